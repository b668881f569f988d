"""The tokenizer, and sessions as token sequences.

Byte-level BPE with M2's markers in M2's roles. Spaces, words and signs are tokens of their own, so
a value has the same tokens wherever it stands: copying is what this model mostly does. JSON's
separators and the tags of a call are ordinary merges, the same in a message as in the template.

A session becomes one sequence with branches. The trunk holds the history as later prompts show it
(no thoughts); each branch holds what the model wrote at that point, thought included, and sees the
trunk before it and itself. So one pass trains every turn, each under the prompt it really gets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .sessions import Loop, Session, Step, dumps
from .words import Source

SPECIAL = ["]~!b[", "]~b]", "[e~["]
ADDED = ["<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>"]
VOCABULARY = 2048
THOUGHT = 3.0  # a thought's weight in the loss: there the tool is chosen, in a few tokens out of many

IDENTITY = "You are the demo model of vllm-mlx."
TOOLS_HEAD = "\n\n# Tools\nThese tools are at hand, each with the JSON schema of its parameters:\n\n<tools>\n"
TOOLS_TAIL = (
    "</tools>\n\nWrite the calls of a turn in one block, each parameter between its tags:\n\n<minimax:tool_call>\n"
    '<invoke name="tool-name">\n<parameter name="parameter-name">value</parameter>\n</invoke>\n</minimax:tool_call>'
)
# The template's two fixed texts are one token each, and so are the joints of a tool's schema in its
# usual order: a name then follows a token that nothing else follows, which makes it easy to find.
FIXED = [TOOLS_HEAD, TOOLS_TAIL]
JOINTS = [
    '<tool>{"name": "',
    '", "description": "',
    '", "parameters": {"type": "object", "properties": {"',
    '": {"type": "',
    '"}}, "required": ["',
    '"]}}</tool>\n',
]

SPLIT = "|".join(
    [
        r'<parameter name="|</parameter>|<invoke name="|</invoke>|</?response>|</?tool>',
        r'"[\]}]*, "|"[\]}]*: [\[{]?"|"[\]}]+|": |\{"|\["|, "',  # JSON
        r"\p{Lu}?\p{Ll}+|\p{Lu}+|\p{L}+|[0-9]{1,2}| +|\n+|[^\s\p{L}0-9]|\s",
    ]
)


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    added = len(JOINTS) + len(SPECIAL) + len(ADDED) + len(FIXED)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - added, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in JOINTS])
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in ADDED + FIXED])
    return tokenizer


def pieces(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The vocabulary's plain word pieces: material for values that make every token a target."""
    return tuple(sorted(text for text in tokenizer.get_vocab() if re.fullmatch("[A-Z]?[a-z]{1,12}", text)))


# -- the template's pieces (a test holds them against the template itself) -------------------------


def head(session: Session) -> str:
    text = "]~!b[]~b]system\n" + (session.system or IDENTITY)
    if session.tools:
        text += TOOLS_HEAD + "".join(f"<tool>{dumps(tool)}</tool>\n" for tool in session.tools) + TOOLS_TAIL
    return text + "[e~[\n"


def body(step: Step) -> str:
    """What follows a thought, or stands alone in older turns."""
    text = step.content
    if step.calls:
        text += (
            "\n<minimax:tool_call>\n"
            + "".join(invoke(name, arguments) for name, arguments in step.calls)
            + "</minimax:tool_call>"
        )
    return text + "[e~["


def invoke(name: str, arguments: dict[str, Any]) -> str:
    lines = [
        f'<parameter name="{key}">{value if isinstance(value, str) else dumps(value)}</parameter>\n'
        for key, value in arguments.items()
    ]
    return f'<invoke name="{name}">\n{"".join(lines)}</invoke>\n'


def past(step: Step) -> str:
    """A step as later prompts show it."""
    return f"]~b]ai\n{body(step)}\n{results(step)}"


def results(step: Step) -> str:
    return (
        "]~b]tool" + "".join(f"\n<response>{result}</response>" for result in step.results) + "[e~[\n"
        if step.results
        else ""
    )


@dataclass(slots=True)
class Sequence:
    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    branches: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)  # of the token in the loss; 0: only read


class Encoder:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def __call__(self, session: Session) -> Sequence:
        sequence = Sequence()
        at = self._put(sequence, head(session), 0, 0)
        for number, loop in enumerate(session.loops, 1):
            if session.alone or session.keeps_reasoning:
                at = self._loop(sequence, loop, at, number, session.alone)
            else:
                at = self._steps(sequence, loop, at)
        return sequence

    def _loop(self, sequence: Sequence, loop: Loop, at: int, branch: int, alone: bool) -> int:
        """A loop whose steps see each other's thoughts: one branch, then the same without thoughts."""
        end = self._put(sequence, f"]~b]user\n{loop.user}[e~[\n", at, branch if alone else 0)
        start = end
        for step in loop.steps:
            end = self._reply(sequence, step, end, branch)
            end = self._put(sequence, "\n" + results(step), end, branch)
        return at if alone else self._put(sequence, "".join(map(past, loop.steps)), start, 0)

    def _steps(self, sequence: Sequence, loop: Loop, at: int) -> int:
        """A loop whose client sends no thoughts back: a branch for each step."""
        at = self._put(sequence, f"]~b]user\n{loop.user}[e~[\n", at, 0)
        for step in loop.steps:
            self._reply(sequence, step, at, len(sequence.ids))
            at = self._put(sequence, past(step), at, 0)
        return at

    def _reply(self, sequence: Sequence, step: Step, at: int, branch: int) -> int:
        at = self._put(sequence, "]~b]ai\n<think>\n", at, branch)
        at = self._put(sequence, step.think, at, branch, THOUGHT)
        rest = "" if step.unfinished else f"\n\n{body(step)}"
        return self._put(sequence, f"\n</think>{rest}", at, branch, 1.0)

    def _put(self, sequence: Sequence, text: str, at: int, branch: int, weight: float = 0.0) -> int:
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        sequence.ids += ids
        sequence.positions += range(at, at + len(ids))
        sequence.branches += [branch] * len(ids)
        sequence.weights += [weight] * len(ids)
        return at + len(ids)


def corpus(session: Session) -> str:
    """A session's whole text, for training the tokenizer."""
    parts = [head(session)]
    for loop in session.loops:
        parts.append(f"]~b]user\n{loop.user}[e~[\n")
        parts += [f"]~b]ai\n<think>\n{step.think}\n</think>\n\n{body(step)}\n{results(step)}" for step in loop.steps]
    text = "".join(parts)
    for marker in FIXED + SPECIAL + ADDED:
        text = text.replace(marker, "\n")
    return text


def numbers() -> str:
    return " ".join(f"{n} {n:02d}" for n in range(100)) * 3


def make_tokenizer(path: Path, seed: int) -> Tokenizer:
    """Train the tokenizer on generated sessions, or load the one that is there."""
    from .sessions import make_session
    from .words import sentences

    if path.exists():
        return Tokenizer.from_file(str(path))
    source = Source(f"tokenizer {seed}")
    texts = [corpus(make_session(source, 1)) for _ in range(6000)]
    tokenizer = train_tokenizer([*texts, " ".join(sentences()), numbers()])
    tokenizer.save(str(path))
    return tokenizer
