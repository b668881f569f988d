"""Marks on text that is data: a spelling of a control token inside a message never becomes the token.

Before rendering, every string that could pass for an added token, whole or joined with what the template writes
beside it, gets a mark after one of its characters: "the character before me is data". The rendered text is then
split at the spellings that hold no marked character; all other text is encoded without added tokens. The mark also
breaks the spelling for templates that look for it (`in`, `split`, `startswith`).
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tool_parsers.json_text import Number as Spelled
from vllm_mlx.chat.template import number

# Noncharacters: never assigned, legal in strings. Where input holds one, it is written as _ESCAPE and a digit.
MARK = "\ufdd0"
_ESCAPE = "\ufdd1"
END = _ESCAPE + "2"
"""Stands for nothing: where the text of a message that the model is to continue ends."""

_SHORT = 500

_ESCAPES = {MARK: _ESCAPE + "0", _ESCAPE: _ESCAPE + "1"}
_TO_ESCAPE = re.compile(f"[{MARK}{_ESCAPE}]")
_MARKS = re.compile(f"{MARK}|{_ESCAPE}[012]")
_UNESCAPE = {_ESCAPE + "0": MARK, _ESCAPE + "1": _ESCAPE, END: ""}

# The words of tool schemas that templates look at (`type == "string"`) and write themselves: never marked.
_WORDS = """
type function name description parameters properties required items enum const default anyOf oneOf allOf not nullable
additionalProperties format title strict examples minimum maximum minItems maxItems minLength maxLength pattern
$schema $ref $defs definitions string number integer boolean array object null
"""
_SCHEMA_WORDS = frozenset(_WORDS.split())


@dataclass(frozen=True, slots=True)
class Marked:
    """Text without marks; `data` are the positions of its marked characters, ascending."""

    text: str
    data: list[int]

    def holds_data(self, start: int, end: int) -> bool:
        """Whether a marked character stands in text[start:end]."""
        at = bisect_left(self.data, start)
        return at < len(self.data) and self.data[at] < end


def unmark(text: str) -> Marked:
    """Takes the marks out of a rendered text."""
    if MARK not in text and _ESCAPE not in text:
        return Marked(text, [])
    pieces: list[str] = []
    data: list[int] = []
    length = last = 0
    for hit in _MARKS.finditer(text):
        piece = text[last : hit.start()]
        length += len(piece)
        if hit.group() == MARK:
            data.append(length - 1)
        else:
            piece += _UNESCAPE[hit.group()]
            length += len(_UNESCAPE[hit.group()])
        pieces.append(piece)
        last = hit.end()
    pieces.append(text[last:])
    return Marked("".join(pieces), data)


class Spellings:
    """The spellings that text must not pass for: added tokens, and markers that templates look for."""

    def __init__(self, spellings: Iterable[str]) -> None:
        """Spellings that are blank are no control tokens and are left alone."""
        words = sorted({spelling for spelling in spellings if spelling.strip()})
        self.pattern = re.compile(trie_pattern(words)) if words else None
        # What a text can end or begin with to be completed by what the template writes beside it.
        self._heads = {word[:n] for word in words for n in range(1, len(word))}
        self._tails = {word[n:] for word in words for n in range(1, len(word))}
        self._longest = max(map(len, words), default=0)
        self._firsts = re.compile(_any_of({word[0] for word in words}))
        self._lasts = re.compile(_any_of({word[-1] for word in words}))
        self._inside = "\0".join(words)
        self._cached = lru_cache(maxsize=8192)(self._mark)

    def mark(self, text: str, *, edges: bool = True) -> str:
        """Marks one string; a string that cannot become part of a token comes back as it is.

        `edges` False: of a single word only whole spellings count, for values that a template compares with its own.
        """
        # Names and descriptions of tools come again with every request.
        return self._cached(text, edges) if len(text) < _SHORT else self._mark(text, edges)

    def _mark(self, text: str, edges: bool) -> str:
        text = _scrub(text)
        if not text or self.pattern is None:
            return _TO_ESCAPE.sub(lambda hit: _ESCAPES[hit.group()], text)
        places: set[int] = set()
        hit = self.pattern.search(text)
        while hit is not None:
            places.add(_visible(text, hit.start(), hit.end()))
            hit = self.pattern.search(text, hit.start() + 1)
        if edges or not text.isidentifier():
            places.update(self._edges(text))
        if not places and _TO_ESCAPE.search(text) is None:
            return text
        return _insert(text, places)

    def _edges(self, text: str) -> Iterable[int]:
        """Characters by which this text could complete a spelling together with what the template writes around it."""
        bare = text.strip()
        if not bare:
            return
        start = text.index(bare[0])
        end = start + len(bare)
        # Templates strip: what counts is the text with and without its blanks.
        if bare in self._inside or any(self._begins(piece) for piece in {bare, text}):
            yield start
        if any(self._ends(piece) for piece in {bare, text}):
            yield end - 1

    def _begins(self, text: str) -> bool:
        hits = self._lasts.finditer(text, 0, self._longest)
        return any(text[: hit.end()] in self._tails and text[: hit.end()].strip() for hit in hits)

    def _ends(self, text: str) -> bool:
        hits = self._firsts.finditer(text, max(0, len(text) - self._longest))
        return any(text[hit.start() :] in self._heads and text[hit.start() :].strip() for hit in hits)

    def mark_all(self, value: Any, *, edges: bool = True) -> Any:
        """Marks every string of a JSON value, keys too; numbers kept by their spelling become a template's numbers."""
        if isinstance(value, Spelled):
            return number(value)
        if isinstance(value, str):
            return self.mark(value, edges=edges)
        if isinstance(value, Mapping):
            return {
                self.mark(key, edges=edges) if isinstance(key, str) else key: self.mark_all(item, edges=edges)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.mark_all(item, edges=edges) for item in value]
        return value

    def mark_schema(self, value: Any) -> Any:
        """The same for a tool's schema; the words of the schema language stay bare."""
        if isinstance(value, Spelled):
            return number(value)
        if isinstance(value, str):
            return value if value in _SCHEMA_WORDS else self.mark(value)
        if isinstance(value, Mapping):
            return {
                key if key in _SCHEMA_WORDS or not isinstance(key, str) else self.mark(key): self.mark_schema(item)
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.mark_schema(item) for item in value]
        return value


def _any_of(chars: Iterable[str]) -> str:
    return "[" + "".join(map(re.escape, sorted(chars))) + "]" if chars else "(?!)"


def _scrub(text: str) -> str:
    """Half a surrogate pair is no character and cannot be encoded."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _visible(text: str, start: int, end: int) -> int:
    """The first character of text[start:end] that `strip` would leave."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()) if piece.strip() else start


def _insert(text: str, places: Iterable[int]) -> str:
    pieces: list[str] = []
    last = 0
    for place in sorted(places):
        pieces += (text[last : place + 1], MARK)
        last = place + 1
    pieces.append(text[last:])
    # A mark is put after its character, escaped or not, so pieces are escaped one by one.
    return "".join(
        piece if piece == MARK and at % 2 else _TO_ESCAPE.sub(lambda hit: _ESCAPES[hit.group()], piece)
        for at, piece in enumerate(pieces)
    )


def trie_pattern(words: Iterable[str]) -> str:
    """A regular expression for any of `words`, the longest first, without trying them one by one."""
    root: dict[str, Any] = {}
    for word in words:
        node = root
        for char in word:
            node = node.setdefault(char, {})
        node[""] = {}
    return _branch(root)


def _branch(node: dict[str, Any]) -> str:
    text = ""
    while len(node) == 1 and "" not in node:
        char, node = next(iter(node.items()))
        text += re.escape(char)
    if list(node) == [""]:
        return text
    options = [re.escape(char) + _branch(child) for char, child in node.items() if char]
    group = options[0] if len(options) == 1 and "" not in node else "(?:" + "|".join(options) + ")"
    if "" in node:
        group = f"(?:{options[0]})?" if len(options) == 1 else group + "?"
    return text + group
