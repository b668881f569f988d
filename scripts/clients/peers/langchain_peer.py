"""langchain-openai and langchain-anthropic, with the tool loop of their guides."""

from common import KEY, MODEL, main
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


def ask(case):
    if case.api == "messages":
        model = ChatAnthropic(model=MODEL, base_url=case.root, api_key=KEY, max_tokens=1000, max_retries=0)
    else:
        model = ChatOpenAI(
            model=MODEL, base_url=case.url, api_key=KEY, use_responses_api=case.api == "responses", max_retries=0
        )
    function = tool(case.tool)
    bound = model.bind_tools([function])
    messages = [HumanMessage(case.prompt)]
    for _ in range(4):
        if case.stream:
            reply = None
            for chunk in bound.stream(messages):
                reply = chunk if reply is None else reply + chunk
        else:
            reply = bound.invoke(messages)
        messages.append(reply)
        if not reply.tool_calls:
            return reply.text
        messages += [ToolMessage(function.invoke(call["args"]), tool_call_id=call["id"]) for call in reply.tool_calls]
    raise RuntimeError("too many turns")


main(ask)
