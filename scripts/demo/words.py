"""Words and values for the generated data, split into a training and a held-out part.

A name or a value belongs to the held-out part when the checksum of its spelling says so, so the
two parts never share one. `Source.fresh` draws until the spelling is on the right side.
"""

from __future__ import annotations

import functools
import json
import random
import re
import string
import tomllib
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from pydoc_data import topics
from typing import Any

HELD_OUT = 8  # one spelling in eight is never trained on

FOLDER = Path(__file__).resolve().parent


@functools.cache
def material(name: str) -> dict[str, Any]:
    """One of the TOML files beside this one."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text())


VALUES = material("values")
SIGNS = "\"'<>&(){}[]#$%=;|\\*üé中→"


@functools.cache
def common() -> frozenset[str]:
    """Names that people try first: always trained, never used to measure."""
    names: set[str] = set()
    for family in material("families").values():
        names.update(family["names"].split())
        names.update(parameter["names"].split()[0] for parameter in family["parameters"])
    return frozenset(names)


def held_out(spelling: str) -> bool:
    """Whether a name or value is kept for measuring only."""
    return spelling not in common() and zlib.crc32(spelling.encode()) % HELD_OUT == 0


@functools.cache
def english() -> tuple[str, ...]:
    """Ordinary lower-case words, out of Python's own documentation."""
    found = Counter(re.findall(r"\b[a-z]{3,11}\b", " ".join(topics.topics.values())))
    return tuple(sorted(word for word, count in found.items() if count > 1))


@functools.cache
def sentences() -> tuple[str, ...]:
    """Sentences of Python's own documentation, for filler text."""
    text = re.sub(r"\s+", " ", " ".join(topics.topics.values()))
    found = re.findall(r"[A-Z][A-Za-z ,;'()-]{30,160}\.", text)
    return tuple(sorted(set(found)))


class Source(random.Random):
    """A random source of names and values for one side of the split."""

    def __init__(self, seed: int | str, test: bool = False, pieces: tuple[str, ...] = ()) -> None:
        super().__init__(seed)
        self.test = test
        self.pieces = pieces
        self.pool = tuple(word for word in english() if held_out(word) == test)

    def chance(self, share: float) -> bool:
        return self.random() < share

    def fresh(self, draw: Callable[[], Any]) -> Any:
        """Draw until the spelling is on this source's side of the split."""
        for _ in range(200):
            value = draw()
            spelling = value if isinstance(value, str) else json.dumps(value)
            if held_out(spelling) == self.test:
                return value
        return value

    # -- words -----------------------------------------------------------------------------

    def word(self) -> str:
        return self.choice(self.pool)

    def pseudo(self) -> str:
        """A word that does not exist, so that copying is all that helps."""
        kind = self.random()
        if kind < 0.3:
            return "".join(self.choice(VALUES["syllables"]) for _ in range(self.randint(2, 4)))
        if kind < 0.45 or not self.pieces:
            return "".join(self.choice(string.ascii_lowercase) for _ in range(self.randint(3, 8)))
        return "".join(self.choice(self.pieces) for _ in range(self.randint(1, 3)))

    def term(self) -> str:
        """One word: mostly real, sometimes invented."""
        word = self.fresh(self.pseudo) if self.chance(0.2 if self.test else 0.35) else self.word()
        kind = self.random()
        return word.capitalize() if kind < 0.15 else word.upper() if kind < 0.18 else word

    def phrase(self, low: int = 2, high: int = 5) -> str:
        return " ".join(self.term() for _ in range(self.randint(low, high)))

    def title(self) -> str:
        return self.phrase(1, 4).capitalize()

    # -- values by kind --------------------------------------------------------------------

    def value(self, kind: str) -> Any:
        """A value of a kind, on this side of the split."""
        draw = getattr(self, "_" + kind)
        return draw() if kind in ("boolean", "int", "ext") else self.fresh(draw)

    def _boolean(self) -> bool:
        return self.chance(0.5)

    def _int(self) -> int:
        return self.randint(1, 99)

    def _ext(self) -> str:
        return str(self.choice(VALUES["extensions"]))

    def _name(self) -> str:
        return self.term().lower()

    def _word(self) -> str:
        return self.term()

    def _phrase(self) -> str:
        return self.phrase(1, 4)

    def _sentence(self) -> str:
        if self.chance(0.3):
            return self.choice(sentences())[: self.randint(20, 90)].rsplit(" ", 1)[0]
        text = self.phrase(2, 7)
        return text[0].upper() + text[1:] + self.choice(["", "", ".", "!"])

    def _city(self) -> str:
        return self.term().capitalize() if self.chance(0.25) else self.choice(VALUES["cities"])

    def _person(self) -> str:
        return self.term().capitalize() if self.chance(0.25) else self.choice(VALUES["people"])

    def _language(self) -> str:
        return self.choice(VALUES["languages"])

    def _currency(self) -> str:
        return self.choice(VALUES["currencies"])

    def _color(self) -> str:
        return self.choice(VALUES["colors"])

    def _stem(self) -> str:
        kind = self.random()
        if kind < 0.55:
            return self.term()
        return self.choice("_-.").join(self.term() for _ in range(2))

    def _path(self) -> str:
        folders = [self.term().lower() for _ in range(self.choice([0, 0, 0, 1, 1, 2]))]
        name = self._stem() + (f".{self.choice(VALUES['extensions'])}" if self.chance(0.92) else "")
        path = "/".join([*folders, name])
        return self.choice(["", "", "", "", "/", "/tmp/", "./", "src/", "~/"]) + path

    def _folder(self) -> str:
        path = "/".join(self.term().lower() for _ in range(self.randint(1, 2)))
        return self.choice(["", "", "/", "./", "/home/", "src/"]) + path + self.choice(["", "", "/"])

    def _command(self) -> str:
        return self.fill(self.choice(VALUES["commands"]))

    def _url(self) -> str:
        host = f"{self.term().lower()}.{self.choice(['com', 'org', 'net', 'io', 'dev'])}"
        path = "".join("/" + self.term().lower() for _ in range(self.choice([0, 0, 1, 2])))
        return f"http{self.choice(['s', 's', ''])}://{self.choice(['', 'www.', 'api.'])}{host}{path}"

    def _mail(self) -> str:
        user = self.choice([self.term(), self.choice(VALUES["people"])]).lower()
        return f"{user}@{self.term().lower()}.{self.choice(['com', 'org', 'net', 'de'])}"

    def _date(self) -> str:
        return f"20{self.randint(20, 39)}-{self.randint(1, 12):02d}-{self.randint(1, 28):02d}"

    def _clock(self) -> str:
        return f"{self.randint(0, 23):02d}:{self.randint(0, 59):02d}"

    def _zone(self) -> str:
        return f"{self.choice(['Europe', 'Asia', 'America', 'Africa'])}/{self._city().replace(' ', '_')}"

    def _expression(self) -> str:
        signs = ["+", "-", "*", "/"]
        parts = [str(self.randint(1, self.choice([20, 999])))]
        for _ in range(self.choice([1, 1, 2])):
            parts += [self.choice(signs), str(self.randint(1, self.choice([20, 999])))]
        return self.choice([" ", " ", ""]).join(parts)

    def _integer(self) -> int:
        return self.randint(-20 if self.chance(0.1) else 0, self.choice([12, 100, 100, 1000, 100000]))

    def _count(self) -> int:
        return self.randint(1, self.choice([20, 100, 600]))

    def _number(self) -> float | int:
        if self.chance(0.25):
            return self._integer()
        value = round(
            self.uniform(-5 if self.chance(0.1) else 0, self.choice([1, 10, 100, 1000])), self.choice([1, 1, 2, 3])
        )
        return value if value != int(value) else value + 0.5

    def _identifier(self) -> str:
        kind = self.random()
        if kind < 0.3:
            return f"{self.choice(string.ascii_uppercase)}{self.choice(string.ascii_uppercase)}-{self.randint(1, 9999)}"
        if kind < 0.6:
            return "".join(self.choice(string.ascii_lowercase + string.digits) for _ in range(self.randint(4, 9)))
        return f"{self.term()}_{self.randint(1, 99)}"

    def _words(self) -> list[str]:
        return [self.term() for _ in range(self.randint(1, 4))]

    def _integers(self) -> list[int]:
        return [self.randint(0, self.choice([9, 99, 999])) for _ in range(self.randint(1, 5))]

    def _sql(self) -> str:
        return self.fill(self.choice(VALUES["queries"]))

    def _quoted(self) -> str:
        """Short text with signs in it, as code and shell have."""
        parts = [self.term() for _ in range(self.randint(1, 3))]
        parts.insert(self.randint(0, len(parts)), self.choice(SIGNS) + self.term() + self.choice(SIGNS))
        return " ".join(parts)

    def _text(self) -> str:
        """A file of several lines."""
        kind = self.random()
        if kind < 0.45:
            return self.code()
        if kind < 0.6:
            return "\n".join([f"# {self.title()}", "", *(f"- {self.phrase(1, 4)}" for _ in range(self.randint(1, 4)))])
        if kind < 0.7:
            return "\n".join(self._setting() for _ in range(self.randint(2, 5)))
        if kind < 0.8:
            return "\n".join(
                ",".join(str(self.value(self.choice(["word", "integer"]))) for _ in range(3))
                for _ in range(self.randint(2, 4))
            )
        return "\n".join(self.choice([self._sentence, self._phrase, self._quoted])() for _ in range(self.randint(2, 5)))

    def _setting(self) -> str:
        value = self.value(self.choice(["word", "integer", "number"]))
        return f"{self._name()}{self.choice([' = ', ': ', '='])}{value}"

    def code(self) -> str:
        """A few lines of a program."""
        return self.fill(self.choice(VALUES["programs"]))

    def _body(self) -> str:
        return self._text() if self.chance(0.7) else self._sentence()

    def fill(self, template: str) -> str:
        """Replace each {kind} of a template by a value of that kind; {kind:1} repeats one."""
        seen: dict[str, str] = {}

        def value(match: re.Match[str]) -> str:
            key = match[1]
            if key not in seen or ":" not in key:
                seen[key] = str(self.value(key.split(":")[0]))
            return seen[key]

        return re.sub(r"\{([a-z]+(?::\d)?)\}", value, template)
