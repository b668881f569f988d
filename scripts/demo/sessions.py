"""Whole conversations: a system message, tools, and one loop after another.

A loop is one user message with all the assistant's steps up to its answer. Each step is a thought
and either calls (with the results that follow) or an answer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from . import chat
from .requests import Task, make_task
from .tools import FAMILIES, Schema, Tool, family_tool, random_tool
from .words import Source, sentences

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Step:
    think: str
    content: str = ""
    calls: tuple[Call, ...] = ()
    results: tuple[str, ...] = ()
    unfinished: bool = False  # only the thought is there


@dataclass(frozen=True, slots=True)
class Loop:
    user: str
    steps: tuple[Step, ...]
    kind: str


@dataclass(slots=True)
class Session:
    system: str | None
    tools: list[Schema]
    loops: list[Loop]
    keeps_reasoning: bool = True  # whether the client sends thoughts back within a loop
    alone: bool = False  # each loop by itself: they share the tools, and none sees another


# Families whose requests sound alike: never offered together.
ALIKE = (
    {"calculate", "add", "multiply", "average"},
    {"time", "now"},
    {"write", "note"},
    {"mail", "message"},
    {"event", "timer", "reminder"},
    {"search", "grep"},
    {"read", "fetch"},
    {"shell", "sql"},
    {"read", "list"},
    {"weather", "time"},
)

SYSTEMS = [
    "You are a helpful assistant.",
    "You are a helpful assistant",
    "Be brief.",
    "You are a coding agent.",
    "Answer in English.",
    "You are a demo.",
    "You are an expert software engineer.",
    "Use the tools when they help.",
    "You are a friendly assistant. Answer briefly.",
    "Be concise and accurate.",
    "You are an agent that works in a terminal. Use tools to do what the user asks.",
    "Think before you answer.",
    "You can call tools.",
]


def clashes(key: str, taken: set[str]) -> bool:
    return any(key in group and group & taken for group in ALIKE)


def offer(source: Source, count: int) -> list[Tool]:
    """Tools for one session, mixed or of one sort."""
    share = source.choice([1.0, 0.9, 0.8, 0.6, 0.3])
    tools: list[Tool] = []
    taken: set[str] = set()
    names: set[str] = set()
    while len(tools) < count:
        if source.chance(share):
            key = source.choice(list(FAMILIES))
            if key in taken or clashes(key, taken):
                continue
            tool = family_tool(source, key)
            taken.add(key)
        else:
            tool = random_tool(source)
        if tool.name not in names:
            names.add(tool.name)
            tools.append(tool)
    return tools


def system_text(source: Source, filler: int) -> str | None:
    """The system message: none, a usual one, or filler of about so many words."""
    if filler:
        words = 0
        parts: list[str] = []
        while words < filler:
            parts.append(source.choice(sentences()) if source.chance(0.85) else source.phrase(4, 10))
            words += len(parts[-1].split())
        return source.choice([" ", "\n", "\n- "]).join(parts)
    kind = source.random()
    if kind < 0.35:
        return None
    text = source.choice(SYSTEMS)
    return text if kind < 0.8 else f"{text} {source.choice(sentences())}"


# -- loops --------------------------------------------------------------------------------------


def call_of(task: Task) -> Call:
    return task.tool.name, task.arguments


def report(tasks: list[Task]) -> str:
    return "\n".join(f"{task.tool.name} returned: {task.result}" for task in tasks)


def use(task: Task) -> str:
    """The purpose first, when the user did not name the tool: the name is then easy to find."""
    return f"for {task.about} I will use {task.tool.name}" if task.about else f"I will use {task.tool.name}"


def think_of(tasks: list[Task]) -> str:
    text = use(tasks[0])
    if len(tasks) == 2:
        text += " twice" if tasks[0].tool is tasks[1].tool else f" and {use(tasks[1])}"
    return f"{text[0].upper()}{text[1:]}."


def answer(tasks: list[Task]) -> Step:
    return Step("I have the result." if len(tasks) == 1 else "I have the results.", report(tasks))


def one_call(source: Source, tools: list[Tool]) -> Loop:
    task = make_task(source, source.choice(tools))
    return Loop(
        polite(source, task.ask), (Step(think_of([task]), "", (call_of(task),), (task.result,)), answer([task])), "one"
    )


def polite(source: Source, ask: str) -> str:
    if not source.chance(0.1):
        return ask
    before = source.choice(
        ["Please: ", "Hi! ", "Hello. ", "OK. ", "Now: ", "Next: ", "Great. ", "Thanks. ", "Could you do this? "]
    )
    return before + ask


def lower(text: str) -> str:
    """As the second half of a sentence."""
    return (
        text if text.startswith("I ") or not (text[1:2].islower() or text[1:2] == " ") else text[0].lower() + text[1:]
    )


def distinct(source: Source, tools: list[Tool]) -> list[Task] | None:
    """Two tasks: two tools, or one tool twice with other values."""
    if len(tools) > 1 and source.chance(0.72):
        first, second = source.sample(tools, 2)
    else:
        first = second = source.choice(tools)
        if not first.parameters:
            return None
    tasks = [make_task(source, first), make_task(source, second)]
    return None if first is second and tasks[0].arguments == tasks[1].arguments else tasks


def both(source: Source, tools: list[Tool]) -> Loop | None:
    """Two things asked at once, called in one turn."""
    tasks = distinct(source, tools)
    if tasks is None:
        return None
    if (
        tasks[0].tool is tasks[1].tool
        and tasks[0].tool.family in ("weather", "time", "read", "delete", "list", "fetch", "user", "stock")
        and source.chance(0.6)
    ):
        values = [str(next(iter(task.arguments.values()))) for task in tasks]
        again = make_task(source, tasks[0].tool)
        spoken = str(next(iter(again.arguments.values())))
        ask = again.ask.replace(spoken, f"{values[0]} and {values[1]}") if again.ask.count(spoken) == 1 else None
        tasks = [replace(task, about=again.about) for task in tasks] if ask else tasks
    else:
        ask = None
    if ask is None:
        one, two = tasks[0].ask, tasks[1].ask
        multi = "\n" in one
        link = source.choice(
            ["\n", "\n\nAlso: ", "\n\n"]
            if multi
            else [" And ", " Also, ", " ", "\n", " and also ", " Also: ", " And: ", " Then also "]
        )
        if not tasks[0].open_end and source.chance(0.3):
            one = one.rstrip(".")
            link = source.choice([", and ", " and ", " and also "])
        ask = one + link + (lower(two) if link.rstrip().endswith(("d", "o", ",")) else two)
        if source.chance(0.1):
            ask = "Do two things. 1. " + one + " 2. " + two
    step = Step(think_of(tasks), "", tuple(map(call_of, tasks)), tuple(task.result for task in tasks))
    return Loop(polite(source, ask), (step, answer(tasks)), "two")


def in_turn(source: Source, tools: list[Tool]) -> Loop | None:
    """Two things asked for one after the other: call, result, call, result, answer."""
    tasks = distinct(source, tools)
    if tasks is None:
        return None
    one, two = tasks[0].ask, tasks[1].ask
    link = source.choice([" Then ", " After that, ", " When that is done, ", "\nThen ", " Afterwards, "])
    ask = source.choice(["First, ", "First ", "First: "]) + lower(one) + link + lower(two)
    steps = (
        Step(f"First {use(tasks[0])}.", "", (call_of(tasks[0]),), (tasks[0].result,)),
        Step(f"Now {use(tasks[1])}.", "", (call_of(tasks[1]),), (tasks[1].result,)),
        answer(tasks),
    )
    return Loop(ask, steps, "chain")


def pass_on(source: Source, tools: list[Tool]) -> Loop | None:
    """A second call that carries the first one's result."""
    givers = [
        tool
        for tool in tools
        if tool.family
        in (
            "weather",
            "calculate",
            "add",
            "multiply",
            "time",
            "now",
            "stock",
            "random",
            "average",
            "search",
            "fetch",
            "read",
            "shell",
        )
    ]
    takers = [tool for tool in tools if tool.family in ("note", "message", "write")]
    if not givers or not takers:
        return None
    giver, taker = make_task(source, source.choice(givers)), make_task(source, source.choice(takers))
    if "\n" in giver.ask:
        return None
    where, what = list(taker.arguments)
    place = taker.arguments[where]
    link = source.choice(
        ["Send the result to {0}.", "Tell {0} the result.", "Message the result to {0}."]
        if taker.tool.family == "message"
        else [
            "Write the result to {0}.",
            "Save the result as {0}.",
            "Put the result in {0}.",
            "Store the result in {0}.",
        ]
    ).replace("{0}", place)
    second = Task(taker.tool, "", {where: place, what: giver.result}, taker.result)
    ask = giver.ask + source.choice([" ", " Then ", " After that, ", "\n"])
    ask += lower(link) if ask.rstrip().endswith(("Then", ",")) else link
    steps = (
        Step(f"First {use(giver)}.", "", (call_of(giver),), (giver.result,)),
        Step(f"Now {use(second)}.", "", (call_of(second),), (second.result,)),
        answer([giver, second]),
    )
    return Loop(ask, steps, "pass")


def no_fit(source: Source, tools: list[Tool]) -> Loop:
    """A request for a tool that is not offered."""
    taken = {tool.family for tool in tools if tool.family}
    keys = [key for key in FAMILIES if key not in taken and not clashes(key, taken)]
    task = make_task(source, family_tool(source, source.choice(keys)))
    if task.tool.name in task.ask and not source.chance(0.3):
        return no_fit(source, tools)
    if tools:
        think = f"For {task.about} no tool fits." if task.about else "No tool fits."
        return Loop(task.ask, (Step(think, "None of the offered tools can do that."),), "none")
    return Loop(task.ask, (Step("I have no tools.", "I have no tool for that."),), "none")


def talk(exchange: chat.Exchange, kind: str = "chat") -> Loop:
    return Loop(exchange.ask, (Step(exchange.think, exchange.answer),), kind)


def chat_loop(source: Source) -> Loop:
    kind = source.random()
    if kind < 0.55:
        return talk(chat.small_talk(source))
    if kind < 0.85:
        return talk(chat.echo(source))
    return talk(chat.unknown(source), "unknown")


def tool_loop(source: Source, tools: list[Tool]) -> Loop:
    kind = source.random()
    loop: Loop | None = None
    if kind < 0.3:
        return one_call(source, tools)
    if kind < 0.72:
        loop = both(source, tools)
    elif kind < 0.86:
        loop = in_turn(source, tools)
    elif kind < 0.95:
        loop = pass_on(source, tools)
    else:
        return no_fit(source, tools)
    return loop or one_call(source, tools)


def make_session(source: Source, turns: int, filler: int = 0) -> Session:
    """A session of so many user messages."""
    tools = some_tools(source)
    loops: list[Loop] = []
    recalls: list[tuple[int, Loop]] = []
    while len(loops) < turns:
        if recalls and len(loops) >= recalls[0][0]:
            loops.append(recalls.pop(0)[1])
        elif turns > 1 and source.chance(0.12) and not recalls:
            told, recall = chat.told_name(source) if source.chance(0.5) else chat.told_fact(source)
            loops.append(talk(told))
            recalls.append((len(loops) + source.choice([0, 0, 1, 2, 4]), talk(recall, "recall")))
        else:
            loops.append(any_loop(source, tools))
    return Session(system_text(source, filler), [tool.schema for tool in tools], loops, source.chance(0.6))


def some_tools(source: Source) -> list[Tool]:
    return offer(source, source.choice([1, 1, 2, 2, 3, 3, 4, 4, 4])) if source.chance(0.92) else []


def any_loop(source: Source, tools: list[Tool]) -> Loop:
    if tools and source.chance(0.84):
        return tool_loop(source, tools)
    return no_fit(source, tools) if not tools and source.chance(0.12) else chat_loop(source)


def fan(source: Source, count: int, filler: int = 0) -> Session:
    """So many first messages to the same tools, each by itself, most of them cut short."""
    tools = some_tools(source)
    loops = [shortened(source, any_loop(source, tools)) for _ in range(count)]
    return Session(system_text(source, filler), [tool.schema for tool in tools], loops, alone=True)


def shortened(source: Source, loop: Loop) -> Loop:
    """Up to a choice of a tool, up to a call, or whole: choosing and calling are the hardest to learn."""
    kind = source.random()
    if not loop.steps[0].calls or kind < 0.22:
        return loop
    last = source.randrange(len(loop.steps) - 1)
    cut = replace(loop.steps[last], results=(), unfinished=kind < 0.47)
    return replace(loop, steps=(*loop.steps[:last], cut))


def echo_session(source: Source) -> Session:
    """The warm-up: nothing but repeating."""
    return Session(
        None,
        [],
        [
            talk(
                chat.echo(
                    source,
                    source.choice(["word", "phrase", "phrase", "sentence", "quoted", "path", "identifier", "number"]),
                )
            )
        ],
    )


# -- messages, as a client sends them ------------------------------------------------------------


def wire_tools(tools: list[Schema]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": tool} for tool in tools]


def messages(session: Session, upto: int | None = None) -> list[dict[str, Any]]:
    """The session as chat messages (arguments as mappings), up to a number of loops."""
    out: list[dict[str, Any]] = [] if session.system is None else [{"role": "system", "content": session.system}]
    for loop in session.loops[:upto]:
        out.append({"role": "user", "content": loop.user})
        for step in loop.steps:
            message: dict[str, Any] = {"role": "assistant", "content": step.content, "reasoning_content": step.think}
            if step.calls:
                message["tool_calls"] = [
                    {"type": "function", "function": {"name": name, "arguments": arguments}}
                    for name, arguments in step.calls
                ]
            out.append(message)
            out += [{"role": "tool", "content": result} for result in step.results]
    return out


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
