"""What is served, under the names that clients read."""

import anthropic.types
import openai.types
import pytest

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_models_fit_both_sdks(serving, prefix):
    async with serving("x", served_model_name=("MiniMax-M2", "org/other"), max_model_len=4321) as client:
        listed = (await client.get(f"{prefix}/models")).json()
        one = (await client.get(f"{prefix}/models/org/other")).json()
        missing = await client.get(f"{prefix}/models/none")
    assert [model["id"] for model in listed["data"]] == ["MiniMax-M2", "org/other"]
    assert listed["object"] == "list"
    assert listed["has_more"] is False
    assert (listed["first_id"], listed["last_id"]) == ("MiniMax-M2", "org/other")
    assert one == listed["data"][1]
    for model in listed["data"]:
        openai.types.Model.model_validate(model, strict=True)
        anthropic.types.ModelInfo.model_validate(model)
        assert {model[name] for name in ("max_model_len", "context_length", "context_window")} == {4321}
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_version_and_health(serving):
    async with serving("x") as client:
        assert set((await client.get("/version")).json()) == {"version"}
        for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
            response = await client.request(method, path)
            assert (response.status_code, response.json()) == (200, {"status": "ready"})


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nope", 404), ("GET", "/v1/chat/completions", 405),
                                                        ("DELETE", "/health", 405)])  # fmt: skip
async def test_unknown_routes_are_errors_in_shape(serving, method, path, status):
    async with serving("x") as client:
        response = await client.request(method, path)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert path in response.json()["error"]["message"]
