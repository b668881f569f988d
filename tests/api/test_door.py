"""Keys, hosts, origins, sizes, ids: on every route, in every reply."""

import gzip
import json
import zlib

import pytest
import zstandard

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}]}
HEADERS = {
    "bearer": {"Authorization": "Bearer k2"},
    "lower case": {"authorization": "bearer k1"},
    "anthropic": {"x-api-key": "k1"},
}
BAD_HEADERS = {
    "none": {},
    "empty": {"Authorization": "Bearer "},
    "wrong": {"Authorization": "Bearer k3"},
    "basic": {"Authorization": "Basic k1"},
    "part": {"x-api-key": "k"},
    "not ASCII": {"x-api-key": "kö".encode()},
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
async def test_a_key_lets_in(serving, headers):
    async with serving("x", api_key=("k1", "k2")) as client:
        assert (await client.post(URL, json=BODY, headers=headers)).status_code == 200
        assert (await client.get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize("headers", BAD_HEADERS.values(), ids=BAD_HEADERS)
async def test_no_key_no_entry(serving, headers):
    async with serving("x", api_key=("k1", "k2")) as client:
        for method, path in (("POST", URL), ("GET", "/v1/models"), ("GET", "/load"), ("GET", "/nope")):
            response = await client.request(method, path, headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
            assert response.headers["www-authenticate"] == "Bearer"
        messages = await client.post("/v1/messages", json={}, headers=headers)
        assert messages.json()["error"]["type"] == "authentication_error"
        for path in ("/health", "/ping", "/version", "/metrics"):
            assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("host", "settings", "status"),
    [
        ("127.0.0.1:8000", {}, 200),
        ("localhost", {}, 200),
        ("LOCALHOST:1", {}, 200),
        ("[::1]:8000", {}, 200),
        ("evil.example", {}, 403),
        ("evil.example:8000", {}, 403),
        ("localhost.evil.example", {}, 403),
        ("127.0.0.1.evil.example", {}, 403),
        ("mac.lan", {"allowed_hosts": ("mac.lan",)}, 200),
        ("mac.lan:8000", {"allowed_hosts": ("a.lan", "MAC.lan")}, 200),
        ("[fe80::1]:8000", {"allowed_hosts": ("[fe80::1]",)}, 200),
        ("[fe80::1]", {"allowed_hosts": ("fe80::1",)}, 200),
        ("[fe80::1]", {}, 403),
        ("evil.example", {"allowed_hosts": ("mac.lan",)}, 403),
        ("evil.example", {"allowed_hosts": ("*",)}, 200),
        ("any.example", {"host": "0.0.0.0"}, 200),
        ("any.example", {"host": "0.0.0.0", "allowed_hosts": ("mac.lan",)}, 403),
    ],
)
async def test_a_loopback_server_answers_for_its_own_names(serving, host, settings, status):
    async with serving("x", **settings) as client:
        response = await client.get("/v1/models", headers={"Host": host})
    assert response.status_code == status
    assert (response.json().get("error") or {}).get("code") == ("host_not_allowed" if status == 403 else None)


async def test_no_origin_is_allowed_unless_asked(serving):
    async with serving("x") as client:
        response = await client.post(URL, json=BODY, headers={"Origin": "http://app.example"})
    assert not any(name.startswith("access-control") for name in response.headers)


@pytest.mark.parametrize("origins", [("*",), ("http://app.example",), ("http://b.example", "http://app.example")])
async def test_an_allowed_origin_is_told_so_on_every_reply(serving, origins):
    origin = {"Origin": "http://app.example"}
    async with serving("x", allowed_origins=origins, api_key=("k",)) as client:
        preflight = await client.options(
            URL,
            headers={
                **origin,
                "Access-Control-Request-Method": "POST",
                "Access-Control-Request-Headers": "authorization,content-type",
            },
        )
        refused = await client.post(URL, json=BODY, headers=origin)
        key = {**origin, "x-api-key": "k"}
        bad = await client.post(URL, json={}, headers=key)
        stream = await client.post(URL, json={**BODY, "stream": True}, headers=key)
    assert preflight.status_code == 200
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    assert [response.status_code for response in (refused, bad, stream)] == [401, 400, 200]
    for response in (preflight, refused, bad, stream):
        assert response.headers["access-control-allow-origin"] in ("*", "http://app.example")


@pytest.mark.parametrize("given", ["my-id-7", "a" * 128])
async def test_a_request_id_comes_back(serving, given):
    async with serving("x") as client:
        for path in ("/health", "/nope", URL):
            assert (await client.get(path, headers={"X-Request-Id": given})).headers["x-request-id"] == given
        stream = await client.post(URL, json={**BODY, "stream": True}, headers={"X-Request-Id": given})
        assert stream.headers["x-request-id"] == given


@pytest.mark.parametrize("given", [None, "", "a" * 129, "two words", "kö"])
async def test_without_a_good_request_id_there_is_a_new_one(serving, given):
    async with serving("x") as client:
        headers = {} if given is None else {"X-Request-Id": given.encode()}
        ids = [(await client.get("/health", headers=headers)).headers["x-request-id"] for _ in range(2)]
    assert len(set(ids)) == 2
    assert all(id.startswith("req_") for id in ids)


PACKERS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": lambda raw: zstandard.ZstdCompressor().compress(raw),
    "identity": lambda raw: raw,
}


@pytest.mark.parametrize("encoding", PACKERS)
async def test_a_packed_body_is_unpacked(serving, encoding):
    packed = PACKERS[encoding](json.dumps(BODY).encode())
    async with serving("x") as client:
        response = await client.post(URL, content=packed, headers={"Content-Encoding": encoding})
    assert response.status_code == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
async def test_what_does_not_unpack_is_refused(serving, encoding):
    async with serving("x") as client:
        broken = await client.post(URL, content=b"{}", headers={"Content-Encoding": encoding})
        unknown = await client.post(URL, content=b"{}", headers={"Content-Encoding": "br"})
    assert broken.status_code == 400
    assert unknown.status_code == 415


@pytest.mark.parametrize("encoding", PACKERS)
async def test_a_body_over_the_limit_is_a_413_packed_or_not(serving, encoding):
    body = {"messages": [{"role": "user", "content": "x" * 3000}]}
    packed = PACKERS[encoding](json.dumps(body).encode())
    async with serving("x", max_request_bytes=2048) as client:
        response = await client.post(URL, content=packed, headers={"Content-Encoding": encoding})
    assert response.status_code == 413
    assert "2048" in response.json()["error"]["message"]


async def test_a_full_queue_is_a_503_with_a_time_to_come_back(serving):
    import asyncio

    hang = {"output": "x", "hang_after": 0}
    async with serving(hang, hang, hang, hang, max_num_seqs=1, max_waiting_seqs=1) as client:
        waiting = [asyncio.create_task(client.post(URL, json=BODY)) for _ in range(2)]
        while (await client.get("/load")).json()["server_load"] != 2:
            await asyncio.sleep(0.01)
        full = await client.post(URL, json={**BODY, "stream": True})
        metrics = (await client.get("/metrics")).text
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert (full.status_code, full.json()["error"]["code"]) == (503, "queue_full")
    assert int(full.headers["retry-after"]) > 0
    assert 'vllm:num_requests_running{engine="0",model_name="demo"} 1.0' in metrics
    assert 'vllm:num_requests_waiting{engine="0",model_name="demo"} 1.0' in metrics


async def test_a_bug_is_an_answer_in_shape(serving, monkeypatch):
    from vllm_mlx.api.service import Service

    def broken(self, name):
        raise RuntimeError("secret")

    monkeypatch.setattr(Service, "check_model", broken)
    async with serving("x") as client:
        response = await client.post(URL, json=BODY)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert "secret" not in response.text
    assert response.headers["x-request-id"]


async def test_a_client_that_leaves_while_it_sends_is_no_error(chat, caplog):
    from vllm_mlx.api.app import create_app
    from vllm_mlx.api.playback import parse_line, replay_engine
    from vllm_mlx.config import EngineConfig, ServeConfig

    config = ServeConfig(engine=EngineConfig(model="demo"))
    app = create_app(config, chat, replay_engine([parse_line({"output": "x"})], config, chat))
    messages = [
        {"type": "http.request", "body": b'{"messages"', "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent = []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": URL,
        "raw_path": URL.encode(),
        "query_string": b"",
        "headers": [],
        "server": ("127.0.0.1", 8000),
        "scheme": "http",
    }
    await app(scope, receive, send)
    assert sent[0]["status"] == 499
    assert not caplog.records
