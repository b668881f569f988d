"""What a reply is held to: the form of an answer that a client asks for, and calls that fit their tools."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import tool_parsers
from tool_parsers.grammar import Calls
from tool_parsers.json_text import write_json
from tool_parsers.lark import literal
from vllm_mlx.api.errors import invalid, unsupported
from vllm_mlx.chat.conversation import Tool
from vllm_mlx.engine.protocol import Structured, ToolGrammar
from vllm_mlx.engine.structured import check, choice_answer, grammar_answer, json_answer, regex_answer

if TYPE_CHECKING:
    from vllm_mlx.api.generation import GenerationRequest
    from vllm_mlx.chat.model import ChatModel

_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_WAYS = ("json", "regex", "choice", "grammar", "json_object")
_OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern", "structural_tag")


def answer_of(wish: Mapping[str, Any] | None, param: str) -> Structured | None:
    """A `response_format` of chat completions, or a `text.format` of responses. Raises `ApiError`."""
    match wish:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return json_answer(_ANY_OBJECT)
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return _checked(json_answer(schema), f"{param}.json_schema.schema")
        case {"type": "json_schema", "json_schema": dict()}:
            return json_answer(_ANY_OBJECT)
        case {"type": "json_schema", "schema": dict(schema)}:
            return _checked(json_answer(schema), f"{param}.schema")
        case {"type": "json_schema"}:
            raise invalid(f"{param}: a json_schema needs a schema, an object", param)
    raise unsupported(f"{param}.type", "only text, json_object and json_schema are")


def structured_of(wish: Mapping[str, Any] | None) -> Structured | None:
    """vLLM's `structured_outputs`: one of json, regex, choice, grammar, json_object. Raises `ApiError`."""
    if wish is None:
        return None
    given = [way for way in _WAYS if wish.get(way) not in (None, False)]
    for name in wish:
        if name not in _WAYS and wish[name] not in (None, False):
            known = "is not supported" if name in _OPTIONS else "is unknown"
            raise invalid(f"structured_outputs.{name} {known}", f"structured_outputs.{name}", "unsupported_parameter")
    if len(given) != 1:
        raise invalid(f"structured_outputs: must have one of {', '.join(_WAYS)}", "structured_outputs")
    param = f"structured_outputs.{given[0]}"
    return _structured(given[0], wish[given[0]], param)


def _structured(way: str, value: Any, param: str) -> Structured:
    match way, value:
        case "json_object", True:
            return json_answer(_ANY_OBJECT)
        case "json", str():
            try:
                schema = json.loads(value)
            except ValueError as error:
                raise invalid(f"{param}: {error}", param) from error
            return _structured(way, schema, param) if isinstance(schema, dict) else _refused(param)
        case "json", dict():
            return _checked(json_answer(value), param)
        case "regex", str():
            return _checked(regex_answer(value), param)
        case "grammar", str():
            try:
                return _checked(grammar_answer(value), param)
            except ValueError as error:
                raise invalid(f"{param}: {error}", param) from error
        case "choice", [*choices] if choices and all(isinstance(choice, str) and choice for choice in choices):
            return choice_answer(choices)
    return _refused(param)


def _refused(param: str) -> Structured:
    raise invalid(
        f"{param}: json is a schema, choice a list of texts that are not empty, regex and grammar a string", param
    )


def _checked(answer: Structured, param: str) -> Structured:
    try:
        check(answer)
    except ValueError as error:
        raise invalid(f"{param}: {error}", param, "unsupported_grammar") from error
    return answer


def one_answer(*answers: Structured | None) -> Structured | None:
    """The one that is given. Raises `ApiError` when there are several."""
    given = [answer for answer in answers if answer is not None]
    if len(given) > 1:
        raise invalid("structured_outputs does not go with response_format", "structured_outputs")
    return given[0] if given else None


def constraint_of(request: "GenerationRequest", chat: "ChatModel", wish: str) -> Structured | ToolGrammar | None:
    """The grammar of a request's replies. `wish` is the server's `constrain_tool_calls`."""
    conversation, answer = request.conversation, request.answer
    choice, offered = conversation.tool_choice, conversation.offered
    name = chat.tool_call_parser
    if request.prompts or not offered or name is None or not has_grammar(name):
        return answer
    required = choice.mode in ("required", "named") and wish != "off"
    held = {tool.name for tool in offered if wish == "auto" or required or _is_strict(tool, wish)}
    if not held and answer is None and (choice.allowed is None or wish == "off"):
        return None
    only = (choice.name,) if choice.mode == "named" else choice.allowed
    names = [tool.name for tool in offered if only is None or tool.name in only]
    tools = [tool.function if tool.name in held else {"name": tool.name} for tool in offered]
    single = choice.mode == "named" or not choice.parallel
    return ToolGrammar(name, write_json(tools), names, required, single, None if required else answer)


def _is_strict(tool: Tool, wish: str) -> bool:
    return wish == "strict-only" and tool.function.get("strict") is True


def has_grammar(format: str) -> bool:
    """Whether the calls of a format can be constrained."""
    return tool_parsers.get(format).grammar([], Calls(()), literal) is not None
