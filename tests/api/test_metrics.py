"""Metrics under vLLM's names."""

import re
from functools import partial
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from vllm_mlx.api.metrics import Metrics

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}]}


def samples(text):
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["model_name"] == "demo"
            reason = sample.labels.get("finished_reason")
            if "le" not in sample.labels:
                found[f"{sample.name} {reason}" if reason else sample.name] = sample.value
    return found


async def test_what_ran_is_counted(serving):
    output = list("t\n</think>\n\nHello")
    lines = [output, output, {"output": output, "finish_reason": "length"}, {"output": output, "error_after": 3}]
    async with serving(*lines) as client:
        usages = [(await client.post(URL, json=BODY)).json().get("usage") for _ in lines]
        response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    found = samples(response.text)
    prompt = usages[0]["prompt_tokens"]
    generated = [usage["completion_tokens"] for usage in usages if usage]
    assert found["vllm:prompt_tokens_total"] == 4 * prompt
    assert found["vllm:generation_tokens_total"] == sum(generated) + 3
    assert found["vllm:prefix_cache_queries_total"] == 4 * prompt
    assert found["vllm:prefix_cache_hits_total"] == 0
    assert found["vllm:request_success_total stop"] == 2
    assert found["vllm:request_success_total length"] == 1
    assert found["vllm:request_success_total error"] == 1
    assert found["vllm:num_requests_running"] == found["vllm:num_requests_waiting"] == 0
    assert found["vllm:inter_token_latency_seconds_count"] == 3 * (len(output) - 1) + 2
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds",
                 "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
                 "request_generation_tokens", "request_max_num_generation_tokens"):  # fmt: skip
        assert found[f"vllm:{name}_count"] == 4
    assert found["vllm:request_prompt_tokens_sum"] == 4 * prompt


def test_the_share_of_the_cache_is_what_running_sequences_take():
    live = [SimpleNamespace(begun=1.0, prefilled=60, usage=SimpleNamespace(completion=15))]
    for room, share in ((300, 0.25), (50, 1.0), (0, 0.0)):
        found = samples(Metrics("demo", live, partial(int, room)).text().decode())
        assert found["vllm:kv_cache_usage_perc"] == share


async def test_nothing_of_a_request_is_in_the_metrics(serving):
    async with serving("secret-answer") as client:
        await client.post(URL, json={"messages": [{"role": "user", "content": "secret-question"}]})
        text = (await client.get("/metrics")).text
    assert not re.search("secret", text)
