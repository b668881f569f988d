"""`vllm-mlx chat`: a conversation in the terminal with a server that runs."""

import json
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import click

from vllm_mlx.cli._values import Text
from vllm_mlx.config import URL


@click.command(short_help="Talk to a running server in the terminal.")
@click.option(
    "--url",
    default="http://127.0.0.1:8000/v1",
    show_default=True,
    type=Text(URL),
    metavar="URL",
    help="Base URL of the server.",
)
@click.option(
    "--api-key", envvar="VLLM_API_KEY", type=Text(), metavar="KEY", help="Key of the server (or VLLM_API_KEY)."
)
@click.option("--model", type=Text(), metavar="NAME", help="Model name.  [default: the first that the server lists]")
@click.option("--system", metavar="TEXT", help="System message.")
def command(url: str, api_key: str | None, model: str | None, system: str | None) -> None:
    """Talk to a running server. Thoughts are dim. An empty line or Ctrl-D ends."""
    server = _Server(url, api_key)
    try:
        model = model or server.models()[0]
        click.echo(f"{model} at {url}", err=True)
        messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
        while question := _ask():
            messages.append({"role": "user", "content": question})
            messages.append(_answer(server, model, messages))
    except (OSError, HTTPException) as error:
        raise click.ClickException(f"no answer from {url}: {error}") from error


def _ask() -> str:
    if sys.stdin.isatty():
        import readline  # noqa: F401  (line editing for input)
    try:
        return input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return ""


def _answer(server: "_Server", model: str, messages: list[dict[str, str]]) -> dict[str, str]:
    """Prints a reply as it comes; returns it for the history. Ctrl-C ends it early."""
    parts: dict[str, list[str]] = {"reasoning_content": [], "content": []}
    try:
        for delta in server.stream({"model": model, "messages": messages}):
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            for name, text in (("reasoning_content", thought), ("content", delta.get("content"))):
                if text:
                    if name == "content" and not parts[name] and parts["reasoning_content"]:
                        click.echo()
                    parts[name].append(text)
                    click.secho(text, dim=name != "content", nl=False)
    except KeyboardInterrupt:
        pass
    click.echo()
    return {"role": "assistant", **{name: "".join(text) for name, text in parts.items() if text}}


class _Server:
    def __init__(self, url: str, api_key: str | None) -> None:
        self._url = urlsplit(url.rstrip("/"))
        self._headers: dict[str, str | bytes] = {"Content-Type": "application/json", "Connection": "close"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}".encode()

    def models(self) -> list[str]:
        with self._request("GET", "/models") as answer:
            return [model["id"] for model in json.load(answer)["data"]]

    def stream(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The deltas of one streamed chat completion."""
        with self._request("POST", "/chat/completions", {**body, "stream": True}) as answer:
            for line in answer:
                data = line.removeprefix(b"data:").strip()
                if not line.startswith(b"data:") or data == b"[DONE]":
                    continue
                event = json.loads(data)
                if "error" in event:
                    raise click.ClickException(event["error"]["message"])
                yield from (choice["delta"] for choice in event["choices"])

    def _request(self, method: str, path: str, body: object = None) -> HTTPResponse:
        kind = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        connection = kind(self._url.netloc)
        data = None if body is None else json.dumps(body)
        connection.request(method, self._url.path + path, data, self._headers)
        answer = connection.getresponse()
        if answer.status != 200:
            with answer:
                raise click.ClickException(f"{answer.status} {answer.reason}: {_message(answer.read())}")
        return answer


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
