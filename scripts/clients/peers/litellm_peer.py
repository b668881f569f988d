"""litellm, by three of its providers."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from common import KEY, MODEL, main


def ask(case):
    provider, base = {
        "chat": ("openai", case.url),
        "chat (hosted_vllm)": ("hosted_vllm", case.url),
        "messages": ("anthropic", case.root),
    }[case.api]
    messages = [{"role": "user", "content": case.prompt}]
    for _ in range(4):
        reply = litellm.completion(
            model=f"{provider}/{MODEL}",
            api_base=base,
            api_key=KEY,
            messages=messages,
            tools=[{"type": "function", "function": case.function}],
            max_tokens=1000,
            stream=case.stream,
            num_retries=0,
        )
        if case.stream:
            reply = litellm.stream_chunk_builder(list(reply), messages=messages)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            content = case.tool(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
    raise RuntimeError("too many turns")


main(ask)
