"""What every client is asked to do: python PEER.py CASES, a JSON list; one JSON line out for each case."""

import json
import sys
from collections.abc import Callable
from typing import Any

MODEL = "demo"
KEY = "none"


class Case:
    """One conversation: over which API, streamed or not, with a call that is whole (`turn`) or cut (`cut`)."""

    def __init__(self, url: str, api: str, mode: str, kind: str) -> None:
        self.url = url
        self.root = url.removesuffix("/v1")
        self.api = api
        self.stream = mode == "stream"
        self.ran: list[str] = []
        """The tools that were run, with their arguments."""
        self.prompt = {"turn": "What is the weather in Paris?", "cut": "Write a long file."}[kind]
        self.tool: Callable[..., str] = {"turn": self._weather(), "cut": self._write()}[kind]
        names = {"turn": ["city"], "cut": ["path", "content"]}[kind]
        self.schema = {
            "type": "object",
            "properties": {name: {"type": "string"} for name in names},
            "required": names,
            "additionalProperties": False,
        }
        self.function = {"name": self.tool.__name__, "description": self.tool.__doc__, "parameters": self.schema}

    def _weather(self) -> Callable[..., str]:
        def get_weather(city: str) -> str:
            """Tells the weather in a city."""
            self.ran.append(f"get_weather {city}")
            return "sunny"

        return get_weather

    def _write(self) -> Callable[..., str]:
        def write_file(path: str, content: str = "") -> str:
            """Writes a file."""
            self.ran.append(f"write_file {path}")
            return f"{len(content)} characters written"

        return write_file


def main(ask: Callable[[Case], str]) -> None:
    """Runs a client's agent in every case; `ask` returns its last text."""
    for wanted in json.loads(sys.argv[1]):
        case = Case(**wanted)
        text: Any = None
        error = None
        try:
            text = ask(case)
        except Exception as problem:  # What a client raises is a result like any other.
            error = f"{type(problem).__name__}: {str(problem)[:200]}"
        print(json.dumps({"ran": case.ran, "text": text, "error": error}), flush=True)
