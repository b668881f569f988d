"""Proves that no call can be malformed, and writes docs/grammars.md: python scripts/prove_grammars.py [FORMAT ...]

A server of each format with a model of random weights, and one with the built-in model taught the format's tokens, are
asked at temperature 1.5 for calls of tools with hard schemas. Each call that comes must be of an offered tool and fit
its schema; one that the token limit cut is counted as cut. Fails if a call is otherwise.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from tokenizers import AddedToken, Tokenizer

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tables import record  # noqa: E402

import reasoning_parsers  # noqa: E402 - the project is no package of this script
import tool_parsers  # noqa: E402
import vllm_mlx.demo  # noqa: E402
from tests.engine.grammar_formats import FORMATS, MORE_TOOLS, TOOLS, VALUE_ENDS  # noqa: E402
from vllm_mlx.bench.http import BenchError, Stream, stream_chat  # noqa: E402
from vllm_mlx.bench.models import Shape, write_model  # noqa: E402
from vllm_mlx.bench.servers import Server  # noqa: E402

DEMO = Path(vllm_mlx.demo.__file__).parent
CAPTURES = Path(os.environ.get("VLLM_MLX_TEST_DATA", ROOT.parent / "shared")) / "captures"
MODELS = ("random", "demo")
HEAD = """# Calls under grammars

<!-- Written by `make grammars`. -->

Calls that must come (`tool_choice: required`), at temperature 1.5, of one to three tools with hard schemas: unicode
enums, deep and recursive objects, `$ref`, unions, maps, patterns, empty parameters, names with dashes and dots, and
those that coding agents send. *random* has random weights, *demo* is the built-in model; each is taught the tokens of
the format. Such models rarely end a text, so the tokens that end one are made likelier. Every whole call was read by
the server's own parser, was of an offered tool and passed jsonschema; a reply that reached the limit of 200 tokens is
counted as cut. *In part*: calls of tools whose schema no grammar holds wholly.
"""
TITLES = ("Format", "Model", "Requests", "Cut", "Whole calls", "Tools called", "In part", "Wrong")
TEMPLATE = (
    "{% for m in messages %}[TURN]{{ m.role }} {{ m.content }}[END]{% endfor %}[TURN]assistant "
    "{% if thinking_mode == 'on' %}OPEN{% elif thinking_mode == 'off' %}CLOSE{% endif %}"
)
"""The tools are left out of the prompt: random weights read nothing."""

Tool = dict[str, Any]


@dataclass
class Tally:
    """What became of the requests to one server."""

    format: str
    model: str
    requests: int = 0
    cut: int = 0
    calls: int = 0
    tools: set[str] = field(default_factory=set)
    free: int = 0
    """Calls that no grammar could hold wholly, by the server's own count."""
    bad: list[str] = field(default_factory=list)


def pool(captures: Path) -> list[Tool]:
    """Our own tools, and each distinct one of recorded requests, without its descriptions: they would fill prompts."""
    found = {json.dumps(tool, sort_keys=True): tool for tool in (*TOOLS, *MORE_TOOLS)}
    for file in sorted(captures.glob("*.json")):
        body = json.loads(file.read_text(encoding="utf-8"))["body"]
        for tool in body.get("tools") or () if isinstance(body, dict) else ():
            function = tool.get("function", tool)
            parameters = function.get("parameters") or function.get("input_schema")
            if function.get("name") and isinstance(parameters, dict):
                plain = {"name": function["name"], "parameters": _without_prose(parameters)}
                found.setdefault(json.dumps(plain, sort_keys=True), {"type": "function", "function": plain})
    return list(found.values())


def _without_prose(node: Any) -> Any:
    if isinstance(node, dict):
        prose = {key for key in ("description", "title") if isinstance(node.get(key), str)}
        return {key: _without_prose(value) for key, value in node.items() if key not in prose}
    return [_without_prose(item) for item in node] if isinstance(node, list) else node


def thought_of(format: str) -> tuple[str, tuple[str, str]]:
    """The reasoning parser that goes with a format, and its markers."""
    name = tool_parsers.get(format).reasoning
    assert name is not None
    return name, reasoning_parsers.get(name).markers()


def random_model(format: str, folder: Path) -> Path:
    """Random weights over the demo's vocabulary with the tokens of a format."""
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    opener, closer = thought_of(format)[1]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (*FORMATS[format].tokens, opener, closer)])
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in ("[TURN]", "[END]")])
    template = TEMPLATE.replace("OPEN", opener).replace("CLOSE", closer)
    shape = Shape(vocab=tokenizer.get_vocab_size(), hidden=64, layers=2, heads=2, kv_heads=2, intermediate=64)
    return write_model(shape, tokenizer, template, {"eos_token": "[END]"}, folder)


def demo_model(format: str, folder: Path) -> Path:
    """The built-in model, in which tokens that only its prompts use have become the format's own."""
    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    file = folder / "tokenizer.json"
    described = json.loads(file.read_text(encoding="utf-8"))
    kept = thought_of("minimax_m2")[1]
    spare = [token for token in described["added_tokens"] if not token["special"] and token["content"] not in kept]
    known = {token["content"] for token in spare}
    spare.sort(key=lambda token: token["content"] not in FORMATS["minimax_m2"].tokens)
    wanted = [text for text in FORMATS[format].tokens if text not in known]
    for token, text in zip(spare, wanted, strict=False):
        token["content"] = text
    assert len(wanted) <= len(spare)
    file.write_text(json.dumps(described, ensure_ascii=False), encoding="utf-8")
    return folder


def requests_of(format: str, model: str, folder: Path, tools: list[Tool], count: int) -> list[dict[str, Any]]:
    """Requests for calls: a few tools each, with a thought, without one, or as the model likes."""
    rng = random.Random(f"{format} {model}")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ends = Counter(token for text in (FORMATS[format].ends, *VALUE_ENDS) for token in tokenizer.encode(text).ids)
    made, offered = [], {}
    for seed in range(count):
        # Five requests share their tools, so that the prefix cache saves their prompts.
        if seed % 5 == 0:
            offered = {tool["function"]["name"]: tool for tool in rng.sample(tools, rng.randint(1, 3))}
        mode = rng.choice(("on", "off", None))
        body = {
            "messages": [{"role": "user", "content": f"Do what is to be done, number {seed}."}],
            "tools": list(offered.values()),
            "tool_choice": "required",
            "parallel_tool_calls": rng.random() < 0.7,
            "temperature": 1.5,
            "top_p": 1,
            "top_k": 0,
            "seed": seed,
            "max_tokens": 200,
            "thinking_token_budget": 12,
        }
        if model == "random" and mode is not None:
            body["chat_template_kwargs"] = {"thinking_mode": mode}
        if model == "random" or format != "minimax_m2":
            # Such a model hardly ever ends a text by itself.
            bias = rng.choice((5, 8, 12))
            body["logit_bias"] = {str(token): bias + 2 * times for token, times in ends.items()}
        made.append(body)
    return made


def judge(reply: Stream, body: dict[str, Any], tally: Tally) -> None:
    """Counts one reply."""
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in body["tools"]}
    whole, place = list(reply.calls), f"seed {body['seed']}"
    if reply.finish == "length":
        tally.cut += 1
        if whole and not _is_json(whole[-1]["function"]["arguments"]):
            whole.pop()
    elif reply.finish != "tool_calls" or not whole:
        tally.bad.append(f"{place}: ended as {reply.finish} with {len(whole)} calls")
    if reply.content.strip() and reply.finish != "length":
        tally.bad.append(f"{place}: text beside the calls: {reply.content[:80]!r}")
    if len(whole) > 1 and not body["parallel_tool_calls"]:
        tally.bad.append(f"{place}: {len(whole)} calls where one was wanted")
    for call in whole:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        tally.calls += 1
        tally.tools.add(name)
        if name not in schemas:
            tally.bad.append(f"{place}: no tool is called {name!r}")
            continue
        errors = [error.message for error in Draft202012Validator(schemas[name]).iter_errors(json.loads(arguments))]
        if errors:
            tally.bad.append(f"{place}: {name} {arguments[:160]}: {errors[0][:160]}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


async def play(server: Server, bodies: Sequence[dict[str, Any]], tally: Tally, concurrency: int) -> None:
    slots = asyncio.Semaphore(concurrency)

    async def one(body: dict[str, Any]) -> None:
        async with slots:
            tally.requests += 1
            try:
                judge(await stream_chat(server.base_url, body | {"model": server.model}), body, tally)
            except BenchError as error:
                tally.bad.append(f"seed {body['seed']}: {error}")

    await asyncio.gather(*map(one, bodies))


def prove(format: str, model: str, tools: list[Tool], folder: Path, *, count: int, concurrency: int) -> Tally:
    """One row of the table."""
    target = {"random": random_model, "demo": demo_model}[model](format, folder / f"{format}-{model}")
    reasoning = thought_of(format if model == "random" else "minimax_m2")[0]
    words = f"{sys.executable} -m vllm_mlx.cli serve {{model}} --port {{port}} --log-level warning"
    log = folder / f"{format}-{model}.log"
    command = f"{words} --tool-call-parser {format} --reasoning-parser {reasoning} --max-num-seqs {concurrency}"
    tally = Tally(format, model)
    server = Server(f"{format} on {model}", command, target, log=log)
    try:
        asyncio.run(play(server, requests_of(format, model, target, tools, count), tally, concurrency))
        with urllib.request.urlopen(f"{server.base_url.removesuffix('/v1')}/metrics", timeout=10) as reply:
            metrics = reply.read().decode()
    finally:
        server.close()
    tally.free = sum(int(float(n)) for n in re.findall(r"^vllm_mlx:calls_unconstrained_total\S* (\S+)", metrics, re.M))
    # Each reply that was cut may leave one piece of a call that the log tells of, and no other reply any.
    dropped = [line for line in log.read_text(encoding="utf-8").splitlines() if "dropped" in line]
    if len(dropped) > tally.cut:
        tally.bad += [f"the log says: {line[:200]}" for line in dropped]
    return tally


@dataclass
class Row:
    """A tally as texts."""

    format: str
    model: str
    requests: str
    cut: str
    calls: str
    tools: str
    free: str
    bad: str


def rows(options: argparse.Namespace, tools: list[Tool]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        for format in options.formats or FORMATS:
            for model in options.model or MODELS:
                counts = {"count": options.requests, "concurrency": options.concurrency}
                tally = prove(format, model, tools, Path(folder), **counts)
                for line in tally.bad:
                    print(f"{format} on {model}: {line}")
                sizes = (tally.requests, tally.cut, tally.calls, len(tally.tools), tally.free, len(tally.bad))
                yield Row(format, model, *map(str, sizes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=f"of {', '.join(FORMATS)}; all by default")
    parser.add_argument("--model", choices=MODELS, action="append", help="both by default")
    parser.add_argument("--requests", type=int, default=300, help="of each model in each format (300)")
    parser.add_argument("--concurrency", type=int, default=8, help="requests at the same time (8)")
    parser.add_argument("--captures", type=Path, default=CAPTURES, help="recorded requests whose tools are used too")
    options = parser.parse_args()
    tools = pool(options.captures)
    print(f"{len(tools)} tools")
    whole = not options.formats and not options.model
    record("grammars.md", HEAD, TITLES, rows(options, tools), good=lambda row: row.bad == "0", whole=whole)


if __name__ == "__main__":
    main()
