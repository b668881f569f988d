"""Replies of the APIs, streamed or whole, in one form."""

import json
from dataclasses import dataclass, field
from typing import Any

FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
}


@dataclass
class Call:
    id: str | None
    name: str | None
    arguments: str = ""


@dataclass
class View:
    """What a client makes of a reply. `frames` are the JSON of a stream, `raw` is all text that it got."""

    api: str | None
    status: int
    raw: str
    headers: dict[str, str]
    body: Any = None
    frames: list[Any] = field(default_factory=list)
    streamed: bool = False
    reasoning: str = ""
    content: str = ""
    calls: list[Call] = field(default_factory=list)
    finish: str | None = None
    finishes: int = 0
    stop_reason: str | None = None
    error: Any = None
    items: list[dict[str, Any]] = field(default_factory=list)
    """Blocks of a message, items of a response."""


def read_whole(api: str | None, status: int, text: str, headers: dict[str, str]) -> View:
    view = View(api, status, text, headers)
    try:
        view.body = json.loads(text) if text else None
    except ValueError:
        view.error = "the body is not JSON"
        return view
    if status >= 400:
        view.error = view.body
    elif api == "chat":
        choice = view.body["choices"][0]
        message = choice["message"]
        view.content = message.get("content") or ""
        view.reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
        view.calls = [
            Call(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in message.get("tool_calls") or []
        ]
        view.finish, view.finishes = choice["finish_reason"], 1
    elif api == "completions":
        choice = view.body["choices"][0]
        view.content, view.finish, view.finishes = choice["text"], choice["finish_reason"], 1
    elif api == "messages":
        view.items = view.body["content"]
        read_blocks(view)
        read_stop(view, view.body)
    elif api == "responses":
        read_response(view, view.body)
    return view


def read_stream(api: str, status: int, text: str, headers: dict[str, str]) -> View:
    view = View(api, status, text, headers, streamed=True)
    datas = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    view.frames = [data if data == "[DONE]" else json.loads(data) for data in datas]
    for frame in view.frames:
        if frame == "[DONE]":
            continue
        if api in ("chat", "completions"):
            read_chunk(view, frame)
        elif api == "messages":
            read_event(view, frame)
        elif frame["type"] == "error":
            view.error = frame
        elif frame["type"] in ("response.completed", "response.incomplete"):
            view.finishes += 1
            read_response(view, frame["response"])
    if api == "messages":
        # A block that was never closed, a call that was cut, is none.
        view.items = [block for block in view.items if block.pop("closed", False)]
        for block in view.items:
            if block["type"] == "tool_use":
                block["input"] = json.loads(block["json"] or "{}")
        read_blocks(view)
    return view


def read_chunk(view: View, chunk: dict[str, Any]) -> None:
    if "error" in chunk:
        view.error = chunk["error"]
        return
    for choice in chunk["choices"]:
        delta = choice.get("delta", {})
        view.content += delta.get("content") or choice.get("text") or ""
        view.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
        for part in delta.get("tool_calls") or []:
            while len(view.calls) <= part["index"]:
                view.calls.append(Call(None, None))
            call, function = view.calls[part["index"]], part.get("function", {})
            call.id = call.id or part.get("id")
            call.name = call.name or function.get("name")
            call.arguments += function.get("arguments") or ""
        if choice["finish_reason"]:
            view.finish = choice["finish_reason"]
            view.finishes += 1


def read_event(view: View, event: dict[str, Any]) -> None:
    match event["type"]:
        case "content_block_start":
            view.items.append({**event["content_block"], "json": ""})
        case "content_block_delta":
            block, delta = view.items[event["index"]], event["delta"]
            match delta["type"]:
                case "text_delta":
                    block["text"] += delta["text"]
                case "thinking_delta":
                    block["thinking"] += delta["thinking"]
                case "signature_delta":
                    block["signature"] += delta["signature"]
                case "input_json_delta":
                    block["json"] += delta["partial_json"]
        case "content_block_stop":
            view.items[event["index"]]["closed"] = True
        case "message_delta":
            view.finishes += 1
            read_stop(view, event["delta"])
        case "error":
            view.error = event["error"]


def read_blocks(view: View) -> None:
    for block in view.items:
        match block["type"]:
            case "text":
                view.content += block["text"]
            case "thinking":
                view.reasoning += block["thinking"]
            case "tool_use":
                view.calls.append(Call(block["id"], block["name"], json.dumps(block["input"], ensure_ascii=False)))


def read_stop(view: View, holder: dict[str, Any]) -> None:
    view.stop_reason = holder["stop_reason"]
    view.finish = FINISH[holder["stop_reason"]]
    view.finishes = view.finishes or 1


def read_response(view: View, response: dict[str, Any]) -> None:
    view.body = view.body or response
    view.items = response["output"]
    for item in view.items:
        match item["type"]:
            case "message":
                view.content += "".join(part["text"] for part in item["content"])
            case "reasoning":
                view.reasoning += "".join(part["text"] for part in item["content"])
            case "function_call":
                view.calls.append(Call(item["call_id"], item["name"], item["arguments"]))
            case "custom_tool_call":
                view.calls.append(Call(item["call_id"], item["name"], json.dumps({"input": item["input"]})))
    status = response["status"]
    view.finish = "length" if status == "incomplete" else "tool_calls" if view.calls else "stop"
    view.finishes = view.finishes or 1
