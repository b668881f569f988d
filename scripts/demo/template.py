"""Hold the generator's rendering against the shipped chat template: they must agree to the byte."""

from __future__ import annotations

import json
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment

from .sessions import Session, make_session, messages, wire_tools
from .tokens import body, head, results
from .words import Source


def rendered(session: Session) -> str:
    """The session as the last loop's prompt shows it, reply included."""
    text = head(session)
    for index, loop in enumerate(session.loops):
        text += f"]~b]user\n{loop.user}[e~[\n"
        for step in loop.steps:
            think = f"<think>\n{step.think}\n</think>\n\n" if index == len(session.loops) - 1 else ""
            text += f"]~b]ai\n{think}{body(step)}\n{results(step)}"
    return text


def check(template: Path, seed: int, count: int = 200) -> None:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = json.dumps
    compiled = environment.from_string(template.read_text())
    source = Source(f"template {seed}")
    for turns in range(count):
        session = make_session(source, 1 + turns % 4)
        shown = compiled.render(messages=messages(session), tools=wire_tools(session.tools) or None)
        assert shown == rendered(session), f"the template differs:\n{shown}\n--- generator:\n{rendered(session)}"
        prompt = compiled.render(
            messages=messages(session)[:-1], tools=wire_tools(session.tools) or None, add_generation_prompt=True
        )
        assert prompt.endswith("]~b]ai\n<think>\n")
        assert shown.startswith(prompt)
