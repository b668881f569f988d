"""How a parser's time grows with one long string argument: 0.25, 0.5, 1 and 2 MB in pieces of 4 characters.

    python scripts/bench_parsers.py [--parser NAME ...]

Peers that are importable are measured beside ours, in the same process: mlx-lm's minimax_m2 parser (which reads a
whole call at once, so it is given the joined text) and vLLM's, where installed. CPU seconds, best of three.
"""

import argparse
import importlib.util
import time
from collections.abc import Callable

from tool_parsers import minimax_m2 as m2
from tool_parsers import minimax_m3 as m3
from vllm_mlx.chat.family import MINIMAX_TURN
from vllm_mlx.chat.output import OutputParser, parser_classes

SIZES = (250_000, 500_000, 1_000_000, 2_000_000)
LINE = "    if a < b and c[0] > d:  # <kept> as it is\n"
TOOL = {
    "type": "function",
    "function": {"name": "write_file", "parameters": {"type": "object", "properties": {"content": {"type": "string"}}}},
}
CALLS = {
    "minimax_m2": f'{m2.OPEN}\n{m2.INVOKE} name="write_file">\n{m2.PARAMETER} name="content">{{}}{m2.PARAMETER_END}\n'
    f"{m2.INVOKE_END}\n{m2.CLOSE}",
    "minimax_m3": f'{m3.NS}<{m3.BLOCK}>\n{m3.NS}<{m3.INVOKE} name="write_file">{m3.NS}<content>{{}}{m3.NS}</content>'
    f"{m3.NS}</{m3.INVOKE}>\n{m3.NS}</{m3.BLOCK}>",
}


def ours(name: str) -> Callable[[str], None]:
    """Feeds the text in pieces of 4 characters, as tokens come."""
    tool, reasoning = parser_classes(name, name)

    def run(text: str) -> None:
        parser = OutputParser(tool, reasoning, tools=[TOOL], turn=MINIMAX_TURN)
        for at in range(0, len(text), 4):
            parser.feed(text[at : at + 4])
        parser.finish()

    return run


def mlx_lm() -> Callable[[str], None]:
    """mlx-lm's parser of the same format: whole calls only."""
    from mlx_lm.tool_parsers import minimax_m2  # type: ignore[import-not-found, unused-ignore]

    def run(text: str) -> None:
        inner = "".join(text[at : at + 4] for at in range(0, len(text), 4))
        minimax_m2.parse_tool_call(
            inner.split(minimax_m2.tool_call_start)[1].split(minimax_m2.tool_call_end)[0], [TOOL]
        )

    return run


def cpu_seconds(run: Callable[[str], None], text: str) -> float:
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        run(text)
        best = min(best, time.process_time() - start)
    return best


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--parser", nargs="*", default=list(CALLS), choices=list(CALLS))
    names = arguments.parse_args().parser
    runs = [(name, CALLS[name], ours(name)) for name in names]
    if importlib.util.find_spec("mlx_lm") and "minimax_m2" in names:
        runs.append(("mlx-lm minimax_m2 (whole call)", CALLS["minimax_m2"], mlx_lm()))
    print(f"{'parser':<32}" + "".join(f"{size / 1e6:>9.2f} MB" for size in SIZES) + "   2 MB / 1 MB")
    for name, call, run in runs:
        times = [cpu_seconds(run, call.format(LINE * (size // len(LINE)))) for size in SIZES]
        print(f"{name:<32}" + "".join(f"{seconds:>10.2f} s" for seconds in times) + f"{times[-1] / times[-2]:>14.2f}")


if __name__ == "__main__":
    main()
