"""What an entry expects, against what a client got. A check gives the problem in words, or None."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from reports.cases import Case, NotRun
from reports.views import View


@dataclass
class Timeline:
    """What the decoder gave for each token: `silence` is the longest run of tokens without an event.

    `before` is the text that had been read when the first argument slice of a value came, None if none did.
    """

    silence: int
    before: str | None


@dataclass
class Result:
    """One case, answered: `views` are the whole reply and the stream, or one reply for another path."""

    case: Case
    views: list[View]
    prompt: str | None
    alive: bool
    seconds: float
    timeline: Timeline | None = None

    @property
    def whole(self) -> View:
        return self.views[0]


Check = Callable[[Any, View, Result], "str | None"]


def problems(result: Result) -> list[str]:
    """Everything that is not as expected. Raises `NotRun` for an expectation that is not known."""
    found = []
    for view in result.views:
        kind = "stream" if view.streamed else "whole"
        found += [f"{kind}: {problem}" for problem in of_view(result.case.expect, view, result)]
    return found


def of_view(expect: dict[str, Any], view: View, result: Result) -> Iterator[str]:
    for name, wanted in expect.items():
        if name == "one_of":
            tries = [list(of_view(option, view, result)) for option in wanted]
            problem = None if not all(tries) else "none of: " + " | ".join("; ".join(one) for one in tries)
        else:
            problem = check_of(name)(wanted, view, result)
        if problem is not None:
            yield f"{name}: {problem}"


def differ(wanted: Any, got: Any) -> str | None:
    """ "" and null are equal."""
    return None if (wanted or None) == (got or None) else f"expected {short(wanted)}, got {short(got)}"


def short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 300 else text[:300] + "…"


def check_of(name: str) -> Check:
    if name in CHECKS:
        return CHECKS[name]
    if found := re.fullmatch(r"(reasoning|content)_(contains|one_of)", name):
        field, kind = found.groups()
        return lambda wanted, view, _: CONTAINED[kind](wanted, getattr(view, field))
    if name.endswith("_has"):
        return lambda wanted, view, _: missing(wanted, at_path(view.body, name.removesuffix("_has")))
    if "." in name:
        return lambda wanted, view, _: at_event(name, wanted, view)
    raise NotRun(f"expectation {name}")


def contained(wanted: list[str], text: str) -> str | None:
    lacking = [piece for piece in wanted if piece not in text]
    return f"lacks {short(lacking)} in {short(text)}" if lacking else None


CONTAINED = {
    "contains": contained,
    "one_of": lambda wanted, text: None if text in wanted else f"expected one of {short(wanted)}, got {short(text)}",
}


def calls(view: View) -> list[dict[str, Any]]:
    return [{"name": call.name, "arguments": arguments(call.arguments)} for call in view.calls]


def arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def visible(view: View) -> str:
    return "\n".join(
        [view.content, view.reasoning, *(f"{call.name} {arguments(call.arguments)}" for call in view.calls)]
    )


def not_contains(wanted: list[str], view: View, _: Result) -> str | None:
    found = [piece for piece in wanted if piece in visible(view)]
    return f"found {short(found)} in {short(visible(view))}" if found else None


def status(wanted: Any, view: View, _: Result) -> str | None:
    allowed = wanted if isinstance(wanted, list) else [wanted]
    return None if view.status in allowed else f"expected {wanted}, got {view.status}: {view.raw[:200]}"


def prompt_text(result: Result) -> str:
    return result.prompt or ""


def once(wanted: list[str], _: View, result: Result) -> str | None:
    counts = {piece: prompt_text(result).count(piece) for piece in wanted}
    return None if set(counts.values()) == {1} else f"counted {counts}"


def absent(wanted: list[str], _: View, result: Result) -> str | None:
    found = [piece for piece in wanted if piece in prompt_text(result)]
    return f"found {short(found)}" if found else None


def invariants(wanted: list[str], view: View, result: Result) -> str | None:
    broken = [f"{name} ({why})" for name in wanted if (why := INVARIANTS[name](view, result))]
    return ", ".join(broken) or None


def equal_views(_: View, result: Result) -> str | None:
    told = [(view.reasoning, view.content, calls(view), view.finish) for view in result.views]
    return None if told[0] == told[-1] else f"{short(told[0])} and {short(told[-1])}"


def json_objects(view: View, _: Result) -> str | None:
    wrong = [call.arguments for call in view.calls if not isinstance(arguments(call.arguments), dict)]
    return short(wrong) if wrong else None


def unique_ids(view: View, _: Result) -> str | None:
    ids = [call.id for call in view.calls]
    return None if all(ids) and len(set(ids)) == len(ids) else short(ids)


def contiguous(view: View, _: Result) -> str | None:
    if view.api == "chat":
        order = [index for index, _ in groupby(delta["index"] for delta in tool_deltas(view))]
    elif view.api == "messages":
        order = [frame["index"] for frame in frames_of(view, "content_block_start")]
    else:
        order = [frame["output_index"] for frame in frames_of(view, "response.output_item.added")]
    return None if order == list(range(len(order))) else short(order)


def has_done(view: View) -> bool:
    """`[DONE]` is a matter of chat and text completions."""
    return view.streamed and view.api in ("chat", "completions")


INVARIANTS: dict[str, Callable[[View, Result], str | None]] = {
    "stream_equals_nonstream": equal_views,
    "args_is_json_object": json_objects,
    "ids_unique": unique_ids,
    "index_contiguous_from_0": contiguous,
    "one_finish_reason": lambda view, _: None if view.finishes == 1 else str(view.finishes),
    "done_is_last": lambda view, _: (
        short(view.frames[-1:]) if has_done(view) and view.frames[-1:] != ["[DONE]"] else None
    ),
}


def frames_of(view: View, kind: str) -> list[dict[str, Any]]:
    return [frame for frame in view.frames if isinstance(frame, dict) and frame.get("type") == kind]


def chunks(view: View) -> list[dict[str, Any]]:
    return [frame for frame in view.frames if isinstance(frame, dict)]


def tool_deltas(view: View) -> list[dict[str, Any]]:
    return [
        delta
        for chunk in chunks(view)
        for choice in chunk.get("choices", [])
        for delta in choice["delta"].get("tool_calls") or []
    ]


def streamed_only(check: Check) -> Check:
    return lambda wanted, view, result: check(wanted, view, result) if view.streamed else None


def first_tool_delta(wanted: dict[str, Any], view: View, _: Result) -> str | None:
    delta = tool_deltas(view)[0]
    lacking = missing(wanted.get("has", []), delta)
    others = {path: value for path, value in wanted.items() if path != "has" and at_path(delta, path) != value}
    return lacking or (f"expected {short(others)}, got {short(delta)}" if others else None)


def names_per_call(wanted: int, view: View, _: Result) -> str | None:
    counts = [0] * len(view.calls)
    for delta in tool_deltas(view):
        counts[delta["index"]] += "name" in delta.get("function", {})
    return None if set(counts) == {wanted} else short(counts)


def every_tool_delta(wanted: list[str], view: View, _: Result) -> str | None:
    return next((lacking for delta in tool_deltas(view) if (lacking := missing(wanted, delta))), None)


def single_values(wanted: list[str], view: View, _: Result) -> str | None:
    values = {name: {chunk.get(name) for chunk in chunks(view)} for name in wanted}
    return None if all(len(found) == 1 for found in values.values()) else short(values)


def one_reasoning_field(_: Any, view: View, __: Result) -> str | None:
    names = {
        name
        for chunk in chunks(view)
        for choice in chunk.get("choices", [])
        for name in choice["delta"].keys() & {"reasoning", "reasoning_content"}
    }
    return None if len(names) == 1 else short(sorted(names))


def stream_end(wanted: list[str], view: View, _: Result) -> str | None:
    """The last frame is an error, before `[DONE]` where there is one."""
    if wanted != ["error_frame", "[DONE]"]:
        raise NotRun(f"events_end_with {wanted}")
    last = list(view.frames)
    if has_done(view):
        if last.pop() != "[DONE]":
            return "no [DONE]"
        return None if "error" in last[-1] else f"the last is {short(last[-1])}"
    kind = last[-1]["type"]
    return None if kind in ("error", "response.failed") else f"the last is {kind}"


def stream_events(wanted: list[str], view: View, _: Result) -> str | None:
    names = [
        f"{frame['type']}({frame['delta']['type']})" if frame["type"] == "content_block_delta" else frame["type"]
        for frame in chunks(view)
        if frame["type"] != "ping"
    ]
    return differ(wanted, [name for name, _ in groupby(names)])


def blocks(wanted: list[dict[str, Any]], view: View, _: Result) -> str | None:
    fit = len(wanted) == len(view.items) and all(map(matches, wanted, view.items))
    return None if fit else f"expected {short(wanted)}, got {short(view.items)}"


def matches(wanted: Any, got: Any) -> bool:
    """Whether a value has all that is wanted; N and M in a message stand for numbers."""
    if wanted == "non-empty string":
        return isinstance(got, str) and bool(got)
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(matches(value, got.get(name)) for name, value in wanted.items())
    if isinstance(wanted, str) and isinstance(got, str):
        pattern = re.sub(r"\b[NM]\b", lambda _: r"\d+", re.escape(wanted))
        return re.match(pattern, got) is not None
    return bool(wanted == got)


def some_item(wanted: dict[str, Any], view: View, _: Result) -> str | None:
    return None if any(wanted.items() <= item.items() for item in view.items) else f"got {short(view.items)}"


def included(wanted: list[str], view: View, _: Result) -> str | None:
    kinds = {frame["type"] for frame in chunks(view)}
    return f"lacks {sorted(set(wanted) - kinds)}" if set(wanted) - kinds else None


def missing(wanted: list[str], holder: Any) -> str | None:
    lacking = [path for path in wanted if at_path(holder, path) is None]
    return f"lacks {short(lacking)} in {short(holder)}" if lacking else None


def at_path(value: Any, path: str) -> Any:
    """`data[0].id` within a value; None where there is nothing."""
    for step in re.findall(r"[^.\[\]]+", path):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, TypeError, ValueError):
            return None
    return value


def at_event(name: str, wanted: Any, view: View) -> str | None:
    """`message_start.usage.input_tokens`: a field of a stream's event, or of its message; whole: of the body."""
    kind, _, path = name.partition(".")
    frames = frames_of(view, kind) if view.streamed else [view.body]
    if not frames:
        return f"no {kind}"
    frame = frames[0]
    got = at_path(frame, path)
    if got is None:
        got = at_path(frame.get(kind.partition("_")[0]), path)
    if wanted == ">0":
        return None if isinstance(got, int) and got > 0 else f"got {got}"
    return differ(wanted, got)


def error_of(view: View) -> dict[str, Any]:
    error = (view.body or {}).get("error") if isinstance(view.body, dict) else None
    return error if isinstance(error, dict) else {}


def error_param(wanted: str, view: View, _: Result) -> str | None:
    """Anthropic's errors name it in the message."""
    error = error_of(view)
    named = error.get("param") == wanted or ("param" not in error and wanted in error.get("message", ""))
    return None if named else f"expected {wanted}, got {short(error)}"


def same_limits(wanted: str, view: View, _: Result) -> str | None:
    if wanted != "effective limit":
        raise NotRun(f"value {wanted!r}")
    names = ("max_model_len", "context_length", "context_window")
    found = {view.body["data"][0][name] for name in names}
    return None if len(found) == 1 and min(found) > 0 else short(sorted(found))


def before_marker(wanted: str, _: View, result: Result) -> str | None:
    timeline = result.timeline
    assert timeline is not None
    return None if timeline.before is not None and wanted not in timeline.before else "no slice came before it"


def silent(wanted: int, _: View, result: Result) -> str | None:
    assert result.timeline is not None
    got = result.timeline.silence
    return None if got <= wanted else f"{got} tokens without an event"


CHECKS: dict[str, Check] = {
    "status": status,
    "never_status": lambda wanted, view, _: f"got {wanted}" if view.status == wanted else None,
    "reasoning": lambda wanted, view, _: differ(wanted, view.reasoning),
    "content": lambda wanted, view, _: differ(wanted, view.content),
    "message_text": lambda wanted, view, _: differ(wanted, view.content),
    "content_json": lambda wanted, view, _: differ(wanted, arguments(view.content)),
    "tool_calls": lambda wanted, view, _: differ(wanted, calls(view)),
    "tool_calls_prefix": lambda wanted, view, _: differ(wanted, calls(view)[: len(wanted)]),
    "tool_calls_contains": lambda wanted, view, _: (
        None if all(call in calls(view) for call in wanted) else f"got {short(calls(view))}"
    ),
    "raw_arguments": lambda wanted, view, _: differ(wanted, [call.arguments for call in view.calls]),
    "finish_reason": lambda wanted, view, _: differ(wanted, view.finish),
    "anthropic_stop_reason": lambda wanted, view, _: differ(wanted, view.stop_reason) if view.stop_reason else None,
    "not_contains": not_contains,
    "prompt_contains": lambda wanted, _, result: contained(wanted, prompt_text(result)),
    "prompt_contains_once": once,
    "prompt_not_contains": absent,
    "invariants": invariants,
    "server_alive": lambda wanted, _, result: None if result.alive is wanted else f"alive: {result.alive}",
    "closed_within_s": lambda wanted, _, result: None if result.seconds < wanted else f"took {result.seconds:.1f} s",
    "status_or_error": lambda _, view, __: None if view.error or view.status >= 400 else "no error",
    "note": lambda *_: None,
    "events_end_with": streamed_only(stream_end),
    "message_has": lambda wanted, view, _: (
        None if view.streamed else missing(wanted, at_path(view.body, "choices[0].message"))
    ),
    "reasoning_field_constant": streamed_only(one_reasoning_field),
    "each_character_once": lambda _, view, result: equal_views(view, result),
    "first_tool_delta": streamed_only(first_tool_delta),
    "count_of_deltas_with_name_per_call": streamed_only(names_per_call),
    "indexes": streamed_only(
        lambda wanted, view, _: differ(wanted, sorted({delta["index"] for delta in tool_deltas(view)}))
    ),
    "every_tool_delta_has": streamed_only(every_tool_delta),
    "single_value_across_chunks": streamed_only(single_values),
    "stream_events": streamed_only(stream_events),
    "events_include": streamed_only(included),
    "events_include_when_streaming": streamed_only(included),
    "blocks": blocks,
    "output_items": lambda wanted, view, _: differ(wanted, [item["type"] for item in view.items]),
    "output_item": some_item,
    "body": lambda wanted, view, _: (
        None if matches(wanted, view.body) else f"expected {short(wanted)}, got {view.raw[:300]}"
    ),
    "error_param": error_param,
    "error_code": lambda wanted, view, _: differ(wanted, error_of(view).get("code")),
    "headers": lambda wanted, view, _: (
        f"lacks {short(lacking)}"
        if (lacking := [name for name in wanted if name.lower() not in view.headers])
        else None
    ),
    "value": same_limits,
    "max_silent_tokens": silent,
    "first_argument_delta_before": before_marker,
    "twice_same_text": lambda _, __, result: differ(result.views[0].content, result.views[-1].content),
}
