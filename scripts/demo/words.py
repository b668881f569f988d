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
import zlib
from collections import Counter
from collections.abc import Callable
from pydoc_data import topics
from typing import Any

HELD_OUT = 8  # one spelling in eight is never trained on

# Names that people try first: always trained, never used to measure.
COMMON = frozenset(
    "get_weather weather read_file write_file list_files bash run_command shell search calculate add"
    " read write edit ls grep glob get_time send_email web_search fetch delete_file move_file"
    " city location path content command query a b expression url text name file_path pattern"
    " timezone to subject body old_string new_string".split()
)

CITIES = (
    "Paris Rome Berlin London Tokyo Madrid Vienna Oslo Lima Cairo Delhi Seoul Zurich Prague Dublin"
    " Lisbon Athens Warsaw Boston Denver Austin Dallas Chicago Toronto Sydney Nairobi Hanoi Manila"
    " Beijing Shanghai Osaka Kyoto Bogota Havana Geneva Munich Hamburg Milan Turin Naples Porto"
    " Seville Lyon Nice Bergen Malmo Helsinki Riga Tallinn Vilnius Sofia Tbilisi Yerevan Ankara"
    " Jakarta Mumbai Karachi Accra Lagos Quito Caracas Brussels Antwerp Utrecht Leipzig Dresden"
    " Bremen Cologne Basel Bern Salzburg Graz Krakow Gdansk Split Zagreb"
).split()
CITIES += ["New York", "San Francisco", "Los Angeles", "Hong Kong", "Buenos Aires", "Cape Town", "São Paulo", "Zürich"]
PEOPLE = (
    "Anna Bob Carol David Emma Frank Grace Henry Ivan Julia Kevin Laura Mike Nina Oscar Paula Quinn"
    " Rosa Sam Tina Uma Victor Wendy Xena Yusuf Zoe Ahmed Bianca Chen Diego Elif Fatima Goran Hana"
    " Igor Jonas Kira Liam Mei Noah Olga Pedro Rania Sven Tomas Ursula Vera Walter Alice John Mary Peter"
).split()
LANGUAGES = "French German Spanish Italian Dutch Polish Turkish Arabic Hindi Korean Japanese Chinese English".split()
CURRENCIES = "EUR USD GBP JPY CHF SEK NOK DKK PLN CZK INR CNY BRL CAD AUD".split()
COLORS = "red green blue yellow orange purple black white brown pink grey cyan".split()
EXTENSIONS = "txt md py js json csv html css toml yaml log sh rs go c h cfg ini".split()
COMMANDS = (
    "ls;ls -la;pwd;whoami;date;uname -a;git status;git log --oneline;git diff;python --version;"
    "cat {path};head -n {int} {path};tail -n {int} {path};wc -l {path};rm {path};mkdir {word};"
    "touch {path};grep {word} {path};grep -rn {word} .;find . -name '*.{ext}';echo {word};"
    'echo "{word} {word}";python {path};python3 {path};pytest -q;pytest {path};npm test;npm install {word};'
    "pip install {word};git commit -m '{word} {word}';git checkout {word};cp {path} {path};"
    "mv {path} {path};chmod +x {path};curl {url};make {word};docker ps;df -h;du -sh {word};"
    "sed -n '{int},{int}p' {path};cat {path} | sort | uniq;cd {word} && ls"
).split(";")
SYLLABLES = "ba be bi bo bu da de di do fa fe fi fo ga ge gi go ha he hi ka ke ki ko la le li lo ma me mi mo mu na ne ni no pa pe pi po ra re ri ro sa se si so ta te ti to va ve vi vo wa wi xa xe ya yo za ze zi zo tra ple sto gri kro bran".split()


def held_out(spelling: str) -> bool:
    """Whether a name or value is kept for measuring only."""
    return spelling not in COMMON and zlib.crc32(spelling.encode()) % HELD_OUT == 0


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
        if kind < 0.4:
            return "".join(self.choice(SYLLABLES) for _ in range(self.randint(2, 4)))
        if kind < 0.6 or not self.pieces:
            return "".join(self.choice(string.ascii_lowercase) for _ in range(self.randint(3, 8)))
        return "".join(self.choice(self.pieces) for _ in range(self.randint(1, 3)))

    def term(self) -> str:
        """One word: mostly real, sometimes invented."""
        word = self.fresh(self.pseudo) if self.chance(0.35) else self.word()
        kind = self.random()
        return word.capitalize() if kind < 0.15 else word.upper() if kind < 0.18 else word

    def phrase(self, low: int = 2, high: int = 5) -> str:
        return " ".join(self.term() for _ in range(self.randint(low, high)))

    def title(self) -> str:
        return self.phrase(1, 4).capitalize()

    # -- values by kind --------------------------------------------------------------------

    def value(self, kind: str) -> Any:
        """A value of a kind, on this side of the split."""
        if kind == "boolean":
            return self.chance(0.5)
        return self.fresh(getattr(self, "_" + kind))

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
        return self.term().capitalize() if self.chance(0.25) else self.choice(CITIES)

    def _person(self) -> str:
        return self.term().capitalize() if self.chance(0.25) else self.choice(PEOPLE)

    def _language(self) -> str:
        return self.choice(LANGUAGES)

    def _currency(self) -> str:
        return self.choice(CURRENCIES)

    def _color(self) -> str:
        return self.choice(COLORS)

    def _stem(self) -> str:
        kind = self.random()
        if kind < 0.55:
            return self.term()
        return self.choice("_-.").join(self.term() for _ in range(2))

    def _path(self) -> str:
        folders = [self.term().lower() for _ in range(self.choice([0, 0, 0, 1, 1, 2]))]
        name = self._stem() + (f".{self.choice(EXTENSIONS)}" if self.chance(0.92) else "")
        path = "/".join([*folders, name])
        return self.choice(["", "", "", "", "/", "/tmp/", "./", "src/", "~/"]) + path

    def _folder(self) -> str:
        path = "/".join(self.term().lower() for _ in range(self.randint(1, 2)))
        return self.choice(["", "", "/", "./", "/home/", "src/"]) + path + self.choice(["", "", "/"])

    def _command(self) -> str:
        return self.fill(self.choice(COMMANDS))

    def _url(self) -> str:
        host = f"{self.term().lower()}.{self.choice(['com', 'org', 'net', 'io', 'dev'])}"
        path = "/".join(self.term().lower() for _ in range(self.choice([0, 0, 1, 2])))
        return f"http{self.choice(['s', 's', ''])}://{self.choice(['', 'www.', 'api.'])}{host}" + (f"/{path}" if path else "")

    def _mail(self) -> str:
        return f"{self.choice([self.term(), self.choice(PEOPLE)]).lower()}@{self.term().lower()}.{self.choice(['com', 'org', 'net', 'de'])}"

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
        value = round(self.uniform(-5 if self.chance(0.1) else 0, self.choice([1, 10, 100, 1000])), self.choice([1, 1, 2, 3]))
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
        return self.fill(self.choice(["SELECT * FROM {name}", "SELECT {name} FROM {name} WHERE {name} = {int}", "SELECT COUNT(*) FROM {name};", "DELETE FROM {name} WHERE {name} = '{word}'", "SELECT {name}, {name} FROM {name} ORDER BY {name}"]))

    def _quoted(self) -> str:
        """Short text with signs in it, as code and shell have."""
        signs = ['"', "'", "<", ">", "&", "(", ")", "{", "}", "[", "]", "#", "$", "%", "=", ";", "|", "\\", "*", "ü", "é", "中", "→"]
        parts = [self.term() for _ in range(self.randint(1, 3))]
        parts.insert(self.randint(0, len(parts)), self.choice(signs) + self.term() + self.choice(signs))
        return " ".join(parts)

    def _text(self) -> str:
        """A file of several lines."""
        kind = self.random()
        if kind < 0.45:
            return self.code()
        if kind < 0.6:
            return "\n".join([f"# {self.title()}", "", *(f"- {self.phrase(1, 4)}" for _ in range(self.randint(1, 4)))])
        if kind < 0.7:
            return "\n".join(f"{self.term().lower()}{self.choice([' = ', ': ', '='])}{self.value(self.choice(['word', 'integer', 'number']))}" for _ in range(self.randint(2, 5)))
        if kind < 0.8:
            return "\n".join(",".join(str(self.value(self.choice(["word", "integer"]))) for _ in range(3)) for _ in range(self.randint(2, 4)))
        return "\n".join(self.choice([self._sentence, self._phrase, self._quoted])() for _ in range(self.randint(2, 5)))

    def code(self) -> str:
        """A few lines of a program."""
        return self.fill(self.choice(PROGRAMS))

    def _body(self) -> str:
        return self._text() if self.chance(0.7) else self._sentence()

    def fill(self, template: str) -> str:
        """Replace each {kind} of a template by a value of that kind; {kind:1} repeats one."""
        seen: dict[str, str] = {}

        def value(match: re.Match[str]) -> str:
            key = match[1]
            if key not in seen or ":" not in key:
                kind = key.split(":")[0]
                seen[key] = self.choice(EXTENSIONS) if kind == "ext" else str(self.randint(1, 99)) if kind == "int" else self.term().lower() if kind == "name" else str(self.value(kind))
            return seen[key]

        return re.sub(r"\{([a-z]+(?::\d)?)\}", value, template)


PROGRAMS = (
    'print("{phrase}")',
    'print("{word}")\nprint("{word}")',
    "import {name:1}\n\nprint({name:1}.{name}())",
    'def {name:1}():\n    return "{word}"\n\nprint({name:1}())',
    'def {name:1}({name:2}, {name:3}):\n    return {name:2} + {name:3}\n\n\nif __name__ == "__main__":\n    print({name:1}({int}, {int}))',
    "for i in range({int}):\n    print(i)",
    'for {name:1} in ["{word}", "{word}"]:\n    print({name:1})',
    "{name:1} = {int}\n{name:2} = {int}\nprint({name:1} + {name:2})",
    'class {name:1}:\n    def {name}(self):\n        return {int}',
    'with open("{path}") as f:\n    print(f.read())',
    '#!/bin/sh\n{command}\n{command}',
    '#!/bin/bash\nset -e\n{command}\necho "{word}"',
    'console.log("{phrase}");',
    "function {name:1}({name:2}) {\n  return {name:2} * {int};\n}\n\nconsole.log({name:1}({int}));",
    "const {name:1} = {int};\nlet {name:2} = '{word}';\nconsole.log({name:1}, {name:2});",
    '{\n  "{name}": "{word}",\n  "{name}": {int}\n}',
    '{"{name}": "{word}", "{name}": {int}}',
    "<html>\n<body>\n<h1>{phrase}</h1>\n<p>{phrase}</p>\n</body>\n</html>",
    '<div class="{name}">\n  <a href="{url}">{word}</a>\n</div>',
    '#include <stdio.h>\n\nint main(void) {\n    printf("{word}\\n");\n    return {int};\n}',
    'fn main() {\n    println!("{phrase}");\n}',
    "[{name}]\n{name} = \"{word}\"\n{name} = {int}",
    "{name}:\n  {name}: {word}\n  {name}: {int}",
    "SELECT {name}, {name}\nFROM {name}\nWHERE {name} = {int};",
    "body {\n  color: {color};\n  margin: {int}px;\n}",
    "# {phrase}\n\n{sentence}\n\n- {phrase}\n- {phrase}",
    "from {name} import {name:1}\n\n# {phrase}\n{name:1}({int}, \"{word}\")",
    "try:\n    {name:1}({int})\nexcept ValueError:\n    print(\"{word}\")",
)
