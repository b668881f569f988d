"""Small talk and questions about the model and its server: what is asked, what is thought, what is said."""

from __future__ import annotations

from dataclasses import dataclass

from .words import Source, material


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question with the thought and the answer it gets."""

    ask: str
    think: str
    answer: str


PHRASES = material("chat")
ECHO_KINDS = [
    "word",
    "phrase",
    "sentence",
    "quoted",
    "number",
    "integer",
    "path",
    "identifier",
    "command",
    "url",
    "text",
]
FACT_KEYS = ["code", "password", "number", "word", "secret", "color", "key", "city", "place", "answer"]
FACT_KINDS = ["word", "integer", "phrase", "identifier", "color", "path", "number"]


def small_talk(source: Source) -> Exchange:
    intent = source.choice(PHRASES["intents"])
    ask = source.choice(intent["asks"])
    if source.chance(0.05):
        ask = source.choice(["Hello! ", "Hi, ", "Please: ", "One question: "]) + ask
    return Exchange(ask, intent["think"], intent["answer"])


def echo(source: Source, kind: str | None = None) -> Exchange:
    text = str(source.value(kind or source.choice(ECHO_KINDS)))
    return Exchange(source.choice(PHRASES["echoes"]).replace("{0}", text), "I repeat it.", text)


def unknown(source: Source) -> Exchange:
    ask = source.choice(PHRASES["unknown"]).replace("{0}", source.term()).replace("{1}", source.term())
    return Exchange(ask, "I do not know this.", "I am only a tiny demo model and do not know that.")


def told_name(source: Source) -> tuple[Exchange, Exchange]:
    """A name that is told, and the question that recalls it."""
    name = source.value("person")
    told = Exchange(source.choice(PHRASES["tell_name"]).replace("{0}", name), "A name.", f"Nice to meet you, {name}!")
    return told, Exchange(source.choice(PHRASES["ask_name"]), "I was told the name.", f"Your name is {name}.")


def told_fact(source: Source) -> tuple[Exchange, Exchange]:
    """A fact that is told, and the question that recalls it."""
    key = source.choice([*FACT_KEYS, source.word(), f"{source.word()} {source.word()}"])
    value = str(source.value(source.choice(FACT_KINDS)))
    ask = source.choice(PHRASES["tell_fact"]).replace("{0}", key).replace("{1}", value)
    told = Exchange(ask, "Something to remember.", f"OK, the {key} is {value}.")
    recall = source.choice(PHRASES["ask_fact"]).replace("{0}", key)
    return told, Exchange(recall, "I was told this.", f"The {key} is {value}.")
