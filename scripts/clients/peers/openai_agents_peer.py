"""openai-agents."""

import asyncio

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from common import KEY, MODEL, main
from openai import AsyncOpenAI

set_tracing_disabled(True)


async def run(case):
    client = AsyncOpenAI(base_url=case.url, api_key=KEY, max_retries=0)
    model = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[case.api](MODEL, client)
    agent = Agent("assistant", model=model, tools=[function_tool(case.tool)])
    if not case.stream:
        return (await Runner.run(agent, case.prompt, max_turns=4)).final_output
    result = Runner.run_streamed(agent, case.prompt, max_turns=4)
    async for _event in result.stream_events():
        pass
    return result.final_output


main(lambda case: asyncio.run(run(case)))
