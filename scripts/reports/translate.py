"""A chat request in the words of the other APIs."""

import copy
import json
from typing import Any

MAX_TOKENS = 4096


def translated(request: dict[str, Any], api: str) -> dict[str, Any]:
    """The same request for `chat`, `completions`, `messages` or `responses`."""
    match api:
        case "chat":
            return copy.deepcopy(request)
        case "messages":
            return to_messages(request)
        case "completions":
            return to_completions(request)
        case _:
            return to_responses(request)


def to_completions(request: dict[str, Any]) -> dict[str, Any]:
    """The last message as a prompt."""
    names = ("model", "max_tokens", "temperature", "top_p", "stop", "seed", "stream")
    prompt = request["messages"][-1]["content"]
    return {"prompt": prompt} | {name: request[name] for name in names if name in request}


def parsed(arguments: str) -> dict[str, Any]:
    """The other APIs have objects: what is none goes in as one argument."""
    try:
        value = json.loads(arguments)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}


def to_messages(request: dict[str, Any]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": request["model"],
        "max_tokens": request.get("max_tokens", MAX_TOKENS),
        "messages": [anthropic_message(message) for message in request["messages"]],
    }
    body |= {name: request[name] for name in ("temperature", "top_p", "top_k", "stream") if name in request}
    if "stop" in request:
        body["stop_sequences"] = [request["stop"]] if isinstance(request["stop"], str) else request["stop"]
    if "tools" in request:
        functions = [tool["function"] for tool in request["tools"]]
        body["tools"] = [
            {"name": f["name"], "description": f.get("description", ""), "input_schema": f["parameters"]}
            for f in functions
        ]
    choice = request.get("tool_choice")
    wish: dict[str, Any] = {}
    if isinstance(choice, dict):
        wish = {"type": "tool", "name": choice["function"]["name"]}
    elif choice:
        wish = {"type": {"required": "any"}.get(choice, choice)}
    if request.get("parallel_tool_calls") is False:
        wish = {"type": "auto", **wish, "disable_parallel_tool_use": True}
    return body | ({"tool_choice": wish} if wish else {})


def anthropic_message(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return {"role": "user", "content": [result]}
    if message["role"] != "assistant":
        role = "system" if message["role"] == "developer" else message["role"]
        return {"role": role, "content": message["content"]}
    blocks: list[dict[str, Any]] = []
    if thought := message.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": thought, "signature": "x"})
    if content := message.get("content"):
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
    for call in message.get("tool_calls") or []:
        function = call["function"]
        arguments = parsed(function["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
    return {"role": "assistant", "content": blocks}


def to_responses(request: dict[str, Any]) -> dict[str, Any]:
    items: list[dict[str, Any]] = []
    for message in request["messages"]:
        items += response_items(message)
    body: dict[str, Any] = {"model": request["model"], "input": items}
    names = ("temperature", "top_p", "stream", "parallel_tool_calls")
    body |= {name: request[name] for name in names if name in request}
    if "max_tokens" in request:
        body["max_output_tokens"] = request["max_tokens"]
    if "tools" in request:
        body["tools"] = [{"type": "function", **tool["function"]} for tool in request["tools"]]
    choice = request.get("tool_choice")
    if choice:
        body["tool_choice"] = {"type": "function", **choice["function"]} if isinstance(choice, dict) else choice
    return body


def response_items(message: dict[str, Any]) -> list[dict[str, Any]]:
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}]
    items: list[dict[str, Any]] = []
    if thought := message.get("reasoning_content"):
        content = [{"type": "reasoning_text", "text": thought}]
        items.append({"type": "reasoning", "id": "rs_1", "summary": [], "content": content})
    if message.get("content"):
        items.append({"role": message["role"], "content": message["content"]})
    calls = message.get("tool_calls") or []
    return items + [{"type": "function_call", "call_id": call["id"], **call["function"]} for call in calls]
