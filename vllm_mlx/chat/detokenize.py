"""Token ids to text as they come: a character split over tokens waits for its end, every other one goes out at once."""

import codecs
import json
from collections.abc import Sequence
from functools import lru_cache

from tokenizers import Tokenizer as Backend
from tokenizers.decoders import DecodeStream


class Vocabulary:
    """The bytes of each id, filled as ids are met; shared by all turns of a model.

    Byte-level tokenizers only, which is what the families here use: a token is a fixed run of bytes there.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        decoder = json.loads(backend.decoder.__getstate__()) if backend.decoder is not None else {}
        steps = decoder.get("decoders", [decoder])
        self.byte_level = [step.get("type") for step in steps] == ["ByteLevel"]
        self._added = {token_id: token.content for token_id, token in backend.get_added_tokens_decoder().items()}
        self._bytes: dict[int, bytes] = {}

    def bytes_of(self, token_id: int) -> bytes:
        """What one id adds to the text; an id that the vocabulary lacks adds nothing."""
        found = self._bytes.get(token_id)
        if found is None:
            found = self._bytes[token_id] = self._spell(token_id)
        return found

    def _spell(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        token = self.backend.id_to_token(token_id)
        if token is None:
            return b""
        if not self.byte_level:
            return self.backend.decode([token_id], skip_special_tokens=False).encode()
        table = _byte_table()
        if all(char in table for char in token):
            return bytes(table[char] for char in token)
        return token.encode()


class Detokenizer:
    """One turn's text. `drop` are ids without text: begin of text, padding. All others keep their text."""

    def __init__(self, vocabulary: Vocabulary, drop: frozenset[int] = frozenset()) -> None:
        self._vocabulary = vocabulary
        self._drop = drop
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._stream = None if vocabulary.byte_level else DecodeStream(skip_special_tokens=False)
        self._unwritten: list[int] = []

    def feed(self, tokens: Sequence[int]) -> str:
        """Text that is whole after these ids."""
        if self._stream is not None:
            return self._step(self._stream, tokens)
        bytes_of, drop = self._vocabulary.bytes_of, self._drop
        return self._utf8.decode(b"".join([bytes_of(token) for token in tokens if token not in drop]))

    def feed_bytes(self, raw: bytes) -> str:
        """The same for the bytes of a replay."""
        return self._utf8.decode(raw)

    def finish(self) -> str:
        """The end: bytes that never became a character are one U+FFFD."""
        if self._unwritten:
            return self._vocabulary.backend.decode(self._unwritten, skip_special_tokens=False)
        return self._utf8.decode(b"", final=True)

    def _step(self, stream: DecodeStream, tokens: Sequence[int]) -> str:
        pieces: list[str] = []
        for token in tokens:
            if token in self._drop:
                continue
            piece = stream.step(self._vocabulary.backend, token)
            if piece is None:
                self._unwritten.append(token)
            else:
                self._unwritten.clear()
                pieces.append(piece)
        return "".join(pieces)


@lru_cache(maxsize=1)
def _byte_table() -> dict[str, int]:
    """The printable stand-ins that byte-level vocabularies are written in: printable Latin-1 stands for itself."""
    same = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(0x100) if byte not in set(same)]
    return {chr(byte): byte for byte in same} | {chr(0x100 + at): byte for at, byte in enumerate(moved)}
