"""Masks over the vocabulary: packed bits, and the vocabulary as llguidance wants it."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from llguidance import LLMatcher, LLTokenizer

from tool_parsers.lark import literal

_UNQUOTABLE = re.compile(r"[\s\"\\]")

Bits = np.ndarray[Any, np.dtype[np.uint8]]
"""A bit an id, packed, lowest first."""

_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_TABLE = np.where(_BYTES, 0, -np.inf).astype(np.float32)


def as_mask(bits: Bits, vocab_size: int) -> mx.array:
    """Packed bits to what is added to logits, (vocabulary,) of float32: 0 for an id that may be drawn, else -inf.

    Made by the host, which waits for the device then anyway; for the device to add is far cheaper than to choose.
    """
    return mx.array(_TABLE[bits].reshape(-1)[:vocab_size])


def permit(bits: Bits, ids: Iterable[int], *, allowed: bool) -> None:
    """Sets or clears single ids."""
    for token in ids:
        if token >> 3 < len(bits):
            bit = 1 << (token & 7)
            bits[token >> 3] = bits[token >> 3] | bit if allowed else bits[token >> 3] & (0xFF ^ bit)


class Words:
    """The vocabulary as llguidance wants it, and which markers are tokens of their own."""

    def __init__(self, file: Path, vocab_size: int, stop_ids: list[int]) -> None:
        # A grammar that is satisfied permits the end: it must not be an id that has another meaning.
        end = stop_ids[0] if stop_ids else vocab_size - 1
        self.tokenizer = LLTokenizer(str(file), n_vocab=vocab_size, eos_token=end)
        self.bytes = -(-vocab_size // 8)
        added = json.loads(file.read_text(encoding="utf-8")).get("added_tokens", [])
        self.ids = {token["content"]: token["id"] for token in added if token["id"] < vocab_size}
        self._texts = {id: text.encode() for text, id in self.ids.items()}
        self.markers = {token["id"]: token["content"] for token in added if not token["special"]}
        self.quotes = {id: text for id, text in self.markers.items() if not _UNQUOTABLE.search(text)}
        """Markers that a text may quote: some tokens are whole texts of their own."""
        self.special = [token["id"] for token in added if token["special"]]

    def spell(self, marker: str) -> str:
        return f"<[{self.ids[marker]}]>" if marker in self.ids else literal(marker)

    def text(self, token: int) -> bytes:
        return self._texts.get(token) or bytes(self.tokenizer.decode_bytes([token]))

    def bits(self, matcher: LLMatcher | None) -> Bits:
        """What a matcher allows; without one, all but special tokens."""
        if matcher is not None:
            return np.frombuffer(matcher.compute_bitmask(), np.uint8)[: self.bytes].copy()
        bits = np.full(self.bytes, 0xFF, np.uint8)
        permit(bits, self.special, allowed=False)
        return bits
