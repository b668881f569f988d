"""A thought as one opaque word, for clients that send it back without showing it. Packed, not encrypted."""

import base64
import binascii
import hashlib
import zlib

_PREFIX = "thought1."
_LONGEST = 4 * 2**20
"""Bytes of text that are unpacked at most: a word from elsewhere must not fill the memory."""


def seal(thought: str) -> str:
    """The word that `unseal` reads."""
    packed = zlib.compress(thought.encode("utf-8", "surrogatepass"))
    return _PREFIX + base64.urlsafe_b64encode(packed).decode()


def unseal(word: str | None) -> str | None:
    """The thought in a word of `seal`; None for every other word."""
    if word is None or not word.startswith(_PREFIX):
        return None
    try:
        packed = base64.urlsafe_b64decode(word[len(_PREFIX) :])
        unpacker = zlib.decompressobj()
        thought = unpacker.decompress(packed, _LONGEST)
        return thought.decode("utf-8", "surrogatepass") if unpacker.eof else None
    except (binascii.Error, zlib.error, UnicodeDecodeError, ValueError):
        return None


def signature(thought: str) -> str:
    """A short word for a thought that is sent in the open: some clients keep no thought without one."""
    digest = hashlib.sha256(thought.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(digest).decode()
