"""The Responses API: the shapes of the OpenAI SDK, and a stream that says what the whole response says."""

import json
import re

import pytest
from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent
from pydantic import TypeAdapter

from vllm_mlx.api.sealed import seal

from .conftest import sse
from .replies import CALL, CUT, REPLIES, SCHEMA, THOUGHT, cuts

pytestmark = pytest.mark.anyio

URL = "/v1/responses"
TOOL = {"type": "function", "name": "write_file", "description": "Writes a file.", "parameters": SCHEMA}
PATCH = {"type": "custom", "name": "patch", "description": "Edits."}
PATCHED = (
    'x\n</think>\n\n<minimax:tool_call>\n<invoke name="patch">\n<parameter name="input">'
    '*** Begin\n+"hi"\\\té🦊\n*** End'
    "</parameter>\n</invoke>\n</minimax:tool_call>"
)
EVENT = TypeAdapter(ResponseStreamEvent)


def body(**fields):
    request = {"model": "demo", "input": "hi", "tools": [TOOL]}
    return {name: value for name, value in {**request, **fields}.items() if value is not None}


async def streamed(client, request):
    response = await client.post(URL, json={**request, "stream": True})
    assert response.status_code == 200, response.text
    names = [line.removeprefix("event: ") for line in response.text.split("\n") if line.startswith("event: ")]
    events = sse(response.text)
    assert names == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def folded(events):
    """The items that a client gathers from deltas; items that were never done are left out."""
    open_items, done = {}, {}
    for event in events:
        index = event.get("output_index")
        match event["type"].removeprefix("response."):
            case "output_item.added":
                assert index == len(open_items)
                assert event["item"]["status"] == "in_progress"
                open_items[index] = {"item": event["item"], "text": "", "done": None}
            case (
                "output_text.delta"
                | "reasoning_text.delta"
                | "function_call_arguments.delta"
                | ("custom_tool_call_input.delta")
            ):
                assert event["item_id"] == open_items[index]["item"]["id"]
                assert event["delta"]
                open_items[index]["text"] += event["delta"]
            case "output_text.done" | "reasoning_text.done":
                open_items[index]["done"] = event["text"]
            case "function_call_arguments.done":
                open_items[index]["done"] = event["arguments"]
            case "custom_tool_call_input.done":
                open_items[index]["done"] = event["input"]
            case "output_item.done":
                known = open_items[index]
                assert known["text"] == known["done"]
                assert event["item"]["id"] == known["item"]["id"]
                assert text_of(event["item"]) == known["text"]
                done[index] = event["item"]
    return [done[index] for index in sorted(done)]


def text_of(item):
    if "content" in item:
        return "".join(part["text"] for part in item["content"])
    return item.get("arguments", item.get("input"))


def without_ids(response):
    ids = {"id": None, "created_at": None, "completed_at": None}
    output = [{**item, "id": None, "call_id": "call_id" in item} for item in response["output"]]
    return {**response, **ids, "output": output}


@pytest.mark.parametrize("cut", ["whole", "characters", "bytes"])
@pytest.mark.parametrize("reply", [*REPLIES, "custom"])
async def test_a_stream_says_what_the_whole_response_says(serving, reply, cut):
    pieces = cuts({**REPLIES, "custom": PATCHED}[reply])[cut]
    request = body(tools=[TOOL, PATCH])
    async with serving(pieces, pieces) as client:
        response = await client.post(URL, json=request)
        events = await streamed(client, request)
    assert response.status_code == 200, response.text
    whole = response.json()
    Response.model_validate(whole, strict=True)
    for event in events:
        EVENT.validate_python(event, strict=True)
    created, in_progress, *_, completed = events
    assert [created["type"], in_progress["type"]] == ["response.created", "response.in_progress"]
    assert completed["type"] == "response.completed"
    assert without_ids(completed["response"]) == without_ids(whole)
    assert folded(events) == completed["response"]["output"]
    assert created["response"]["id"] == completed["response"]["id"]


SEQUENCES = {
    "text": "output_item.added content_part.added reasoning_text.delta reasoning_text.done content_part.done "
    "output_item.done output_item.added content_part.added output_text.delta output_text.done content_part.done "
    "output_item.done completed",
    "only calls": "output_item.added content_part.added reasoning_text.delta reasoning_text.done content_part.done "
    "output_item.done output_item.added function_call_arguments.delta function_call_arguments.done output_item.done "
    "output_item.added function_call_arguments.delta function_call_arguments.done output_item.done completed",
    "nothing": "completed",
}


@pytest.mark.parametrize("reply", SEQUENCES)
async def test_the_sequence_of_events(serving, reply):
    async with serving(list(REPLIES[reply])) as client:
        events = await streamed(client, body())
    names = [event["type"].removeprefix("response.") for event in events]
    short = [name for at, name in enumerate(names) if at == 0 or name != names[at - 1]]
    assert " ".join(short) == "created in_progress " + SEQUENCES[reply]


async def test_numbers_keep_their_spelling(serving):
    schema = {"type": "object", "properties": {"mode": {"type": "number", "maximum": 1}}}
    request = json.dumps(body(tools=[{**TOOL, "parameters": schema}])).replace('"maximum": 1', '"maximum": 1.50')
    async with serving(REPLIES["calls"]) as client:
        text = (await client.post(URL, content=request, headers={"content-type": "application/json"})).text
    assert '"maximum":1.50' in text
    assert '\\"mode\\":1.00}' in text


async def test_the_form_that_was_asked_for_is_told(serving):
    form = {"type": "json_schema", "name": "p", "strict": True, "schema": {"type": "object"}}
    async with serving(THOUGHT + "{}", THOUGHT + "{}") as client:
        held = (await client.post(URL, json=body(tools=None, text={"format": form}))).json()
        free = (await client.post(URL, json=body(tools=None))).json()
    assert held["text"] == {"format": form}
    assert free["text"] == {"format": {"type": "text"}}
    Response.model_validate(held, strict=True)


@pytest.mark.parametrize("pieces", [[PATCHED], list(PATCHED)])
async def test_a_custom_tool_gets_text(serving, pieces):
    async with serving(pieces) as client:
        events = await streamed(client, body(tools=[PATCH]))
    item = events[-1]["response"]["output"][-1]
    assert item["type"] == "custom_tool_call"
    assert item["name"] == "patch"
    assert item["input"] == '*** Begin\n+"hi"\\\té🦊\n*** End'
    assert re.fullmatch("call_[0-9a-f]{24}", item["call_id"])


async def test_a_tool_of_a_namespace_is_called_with_it(serving):
    namespace = {"type": "namespace", "name": "files", "description": "", "tools": [TOOL]}
    async with serving(REPLIES["only calls"]) as client:
        output = (await client.post(URL, json=body(tools=[namespace]))).json()["output"]
    assert [(item["name"], item["namespace"]) for item in output[1:]] == [("write_file", "files")] * 2


@pytest.mark.parametrize("include", [None, ["reasoning.encrypted_content"]])
async def test_a_packed_thought_comes_when_it_is_asked_for(serving, include):
    async with serving(REPLIES["text"]) as client:
        thought = (await client.post(URL, json=body(include=include))).json()["output"][0]
    assert thought["content"] == [{"type": "reasoning_text", "text": "Let me see."}]
    assert thought.get("encrypted_content") == (seal("Let me see.") if include else None)


async def test_a_limit_makes_a_response_incomplete(serving):
    line = {"output": list(THOUGHT + "Hel"), "finish_reason": "length"}
    async with serving(line, line) as client:
        whole = (await client.post(URL, json=body())).json()
        events = await streamed(client, body())
    assert events[-1]["type"] == "response.incomplete"
    assert without_ids(events[-1]["response"]) == without_ids(whole)
    assert whole["status"] == "incomplete"
    assert whole["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["status"] for item in whole["output"]] == ["completed", "incomplete"]


async def test_a_cut_call_is_incomplete_when_a_limit_was_hit(serving):
    line = {"output": list(CUT), "finish_reason": "length"}
    async with serving(line, line) as client:
        whole = (await client.post(URL, json=body())).json()
        events = await streamed(client, body())
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message"]
    assert whole["status"] == "incomplete"
    assert without_ids(events[-1]["response"]) == without_ids(whole)
    # The call was begun and is never done.
    added = [event["item"]["type"] for event in events if event["type"] == "response.output_item.added"]
    assert added == ["reasoning", "message", "function_call"]
    assert folded(events) == events[-1]["response"]["output"]
    assert not any(event["type"] == "response.function_call_arguments.done" for event in events)


@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        ({"output": list(CUT)}, 500, "incomplete_tool_call"),
        ({"output": ["abc", "def"], "error_after": 1}, 500, "engine_error"),
        ({"output": ["abc", "def"], "die_after": 1}, 503, "engine_died"),
    ],
)
async def test_a_broken_reply_fails(serving, line, status, code):
    async with serving(line, max_num_seqs=1) as client:
        events = await streamed(client, body())
    async with serving(line) as client:
        whole = await client.post(URL, json=body())
    told, failed = events[-2:]
    assert (told["type"], told["code"]) == ("error", code)
    assert failed["type"] == "response.failed"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"]["code"] == code
    EVENT.validate_python(told, strict=True)
    assert not any(event["type"] in ("response.completed", "response.incomplete") for event in events)
    assert whole.status_code == status
    assert whole.json()["error"]["code"] == code


async def test_one_call_where_parallel_calls_are_off(serving):
    async with serving(THOUGHT + CALL) as client:
        response = (await client.post(URL, json=body(parallel_tool_calls=False))).json()
    assert [item["type"] for item in response["output"]] == ["reasoning", "function_call"]
    assert response["parallel_tool_calls"] is False


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_can_be_fetched_and_forgotten(serving, stream):
    async with serving(REPLIES["calls"]) as client:
        if stream:
            made = (await streamed(client, body()))[-1]["response"]
        else:
            made = (await client.post(URL, json=body())).json()
        where = f"{URL}/{made['id']}"
        fetched = await client.get(where)
        deleted = await client.delete(where)
        missing = [await client.get(where), await client.delete(where)]
    assert fetched.json() == made
    assert deleted.json() == {"id": made["id"], "object": "response.deleted", "deleted": True}
    for response in missing:
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "response_not_found"


async def test_a_response_is_not_kept_against_its_clients_wish(serving):
    async with serving("x") as client:
        made = (await client.post(URL, json=body(store=False))).json()
        fetched = await client.get(f"{URL}/{made['id']}")
        following = await client.post(URL, json=body(previous_response_id=made["id"]))
    assert made["store"] is False
    assert fetched.status_code == following.status_code == 404
    assert following.json()["error"]["code"] == "previous_response_not_found"


@pytest.fixture
def prompts(monkeypatch, chat):
    from vllm_mlx.engine.replay import ReplayEngine

    seen = []
    submit = ReplayEngine.submit
    monkeypatch.setattr(
        ReplayEngine, "submit", lambda self, request: seen.append(chat.decode(request.prompt)) or submit(self, request)
    )
    return seen


async def test_a_response_goes_on_from_another(serving, prompts):
    answer = THOUGHT + "It is written."
    async with serving(REPLIES["only calls"], answer, answer, answer) as client:
        first = (await client.post(URL, json=body(instructions="Be brief."))).json()
        calls = [item["call_id"] for item in first["output"][1:]]
        results = [{"type": "function_call_output", "call_id": call, "output": f"done {call}"} for call in calls]
        second = (await client.post(URL, json=body(input=results, previous_response_id=first["id"]))).json()
        await client.post(URL, json=body(input="Thanks.", previous_response_id=second["id"]))
        # The same conversation sent whole.
        history = [{"role": "user", "content": "hi"}, *first["output"], *results, *second["output"]]
        await client.post(URL, json=body(input=[*history, {"role": "user", "content": "Thanks."}]))
    _, following, third, whole = prompts
    assert all(f"done {call}" in following for call in calls)
    assert "Let me see." in following
    # Instructions are not carried over.
    assert "Be brief." not in following
    assert third == whole
    assert third.count("done") == 2


async def test_an_item_can_be_named_instead_of_sent(serving, prompts):
    async with serving(REPLIES["only calls"], "x", "x") as client:
        first = (await client.post(URL, json=body())).json()
        thought, call, _ = first["output"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "done"}
        user = {"role": "user", "content": "hi"}
        named = {"type": "item_reference", "id": thought["id"]}
        await client.post(URL, json=body(input=[user, named, call, result]))
        await client.post(URL, json=body(input=[user, thought, call, result]))
    assert prompts[1] == prompts[2]
    assert "Let me see." in prompts[1]


async def test_a_prompt_that_is_too_long_is_told_with_its_code(serving):
    async with serving("x", max_model_len=200) as client:
        response = await client.post(URL, json=body(input="word " * 300))
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"], error["type"]) == (
        "context_length_exceeded",
        "input",
        "invalid_request_error",
    )


async def test_the_tokens_of_an_input_are_counted(serving):
    async with serving("x") as client:
        counted = await client.post(f"{URL}/input_tokens", json=body(personality="friendly"))
        usage = (await client.post(URL, json=body())).json()["usage"]
        refused = await client.post(f"{URL}/input_tokens", json=body(input=[5]))
    assert counted.json() == {"object": "response.input_tokens", "input_tokens": usage["input_tokens"]}
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0]")


async def test_what_a_response_was_asked_with_is_listed_in_pages(serving):
    asked = [{"role": "developer", "content": "D"}, {"type": "message", "id": "msg_u", "role": "user", "content": "hi"}]
    async with serving("x") as client:
        id = (await client.post(URL, json=body(input=asked))).json()["id"]
        where = f"{URL}/{id}/input_items"
        latest = (await client.get(where, params={"limit": 1})).json()
        earlier = (await client.get(where, params={"after": latest["last_id"]})).json()
        in_order = (await client.get(where, params={"order": "asc"})).json()
        refused = [await client.get(where, params=query) for query in ({"limit": 0}, {"order": "up"}, {"after": "x"})]
        missing = await client.get(f"{URL}/resp_9/input_items")
    assert [latest["has_more"], earlier["has_more"]] == [True, False]
    assert in_order["data"] == [*earlier["data"], *latest["data"]]
    assert [item["content"] for item in in_order["data"]] == [
        [{"type": "input_text", "text": text}] for text in ("D", "hi")
    ]
    ResponseItemList.model_validate(in_order, strict=True)
    assert [response.status_code for response in (*refused, missing)] == [400, 400, 400, 404]


async def test_a_stored_response_is_not_streamed(serving):
    async with serving("x") as client:
        id = (await client.post(URL, json=body())).json()["id"]
        response = await client.get(f"{URL}/{id}", params={"stream": "true"})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "stream")


SCORED = {
    "text": ["Hello, wörld."],
    "calls": ["I write.\n"],
    "only calls": [],
    "text around calls": ["I write.\n", "\nWritten."],
    "thought alone": [],
}


def tokens_of(ids, text, chat):
    """Those of the ids that wrote a piece of text."""
    raw = b"".join(map(chat.vocabulary.bytes_of, ids))
    begin = raw.index(text.encode())
    end, at, found = begin + len(text.encode()), 0, []
    for id in ids:
        size = len(chat.vocabulary.bytes_of(id))
        if at < end and at + size > begin:
            found.append(id)
        at += size
    return found


@pytest.mark.parametrize("reply", SCORED)
async def test_text_comes_with_the_log_probabilities_of_its_tokens(serving, scored, chat, reply):
    ids = chat.encode(REPLIES[reply])
    request = body(include=["message.output_text.logprobs"], top_logprobs=2)
    async with serving(ids, ids) as client:
        response = (await client.post(URL, json=request)).json()
        events = await streamed(client, request)
    Response.model_validate(response, strict=True)
    assert response["top_logprobs"] == 2
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    assert [part["text"].strip() for part in parts] == [text.strip() for text in SCORED[reply]]
    for part in parts:
        wanted = tokens_of(ids, part["text"], chat)
        assert [entry["logprob"] for entry in part["logprobs"]] == [max(-float(id), -9999.0) for id in wanted]
        assert all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"])
    deltas = [event["logprobs"] for event in events if event["type"] == "response.output_text.delta"]
    assert [entry for some in deltas for entry in some] == [entry for part in parts for entry in part["logprobs"]]
    done = [event["logprobs"] for event in events if event["type"] == "response.output_text.done"]
    assert done == [part["logprobs"] for part in parts]
    assert all(EVENT.validate_python(event) for event in events)


async def test_without_include_there_are_no_log_probabilities(serving, scored, chat):
    async with serving(chat.encode(REPLIES["text"])) as client:
        response = (await client.post(URL, json=body(top_logprobs=0))).json()
    assert response["output"][-1]["content"][0]["logprobs"] == []


async def test_what_cannot_be_included_is_logged_once(serving, caplog):
    request = body(include=["reasoning.encrypted_content", "web_search_call.results"])
    async with serving(REPLIES["text"]) as client:
        for _ in range(2):
            assert (await client.post(URL, json=request)).status_code == 200
    assert caplog.text.count("web_search_call.results") == 1
    assert "encrypted_content" not in caplog.text


@pytest.mark.parametrize("role", [{}, [], 1, None, "judge"])
async def test_a_role_that_is_none_is_told(serving, role):
    async with serving("x") as client:
        response = await client.post(URL, json=body(input=[{"role": role, "content": "Hi"}]))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "input[0].role"
