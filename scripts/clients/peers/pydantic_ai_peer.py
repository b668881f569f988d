"""pydantic-ai."""

import asyncio

from common import KEY, MODEL, main
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


async def read(_, events):
    async for _event in events:
        pass


def ask(case):
    match case.api:
        case "chat":
            model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=case.url, api_key=KEY))
        case "responses":
            model = OpenAIResponsesModel(MODEL, provider=OpenAIProvider(base_url=case.url, api_key=KEY))
        case _:
            model = AnthropicModel(MODEL, provider=AnthropicProvider(base_url=case.root, api_key=KEY))
    agent = Agent(model, tools=[case.tool], retries=0)
    handler = {"event_stream_handler": read} if case.stream else {}
    return asyncio.run(agent.run(case.prompt, **handler)).output


main(ask)
