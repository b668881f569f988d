"""Recorded output as an engine: order, matching, slots, mishaps."""

import asyncio

import pytest

from vllm_mlx.engine.interface import EngineError
from vllm_mlx.engine.protocol import Delta, EngineInfo, Submit
from vllm_mlx.engine.replay import ReplayEngine, ReplayLine

pytestmark = pytest.mark.anyio

INFO = EngineInfo(max_model_len=100, vocab_size=10, device="replay", weight_bytes=0)


async def started(*lines, **settings):
    engine = ReplayEngine(lines, INFO, **settings)
    await engine.start()
    return engine


def submit(prompt=(1,), max_tokens=100, **fields):
    return Submit(id="r", prompt=list(prompt), max_tokens=max_tokens, **fields)


async def deltas(generation):
    return [message async for message in generation if isinstance(message, Delta)]


def text(line):
    return ReplayLine(pieces=tuple(piece.encode() for piece in line))


async def played(engine, **fields):
    found = await deltas(engine.submit(submit(**fields)))
    return b"".join(delta.raw or b"" for delta in found).decode(), [delta.finish for delta in found]


async def test_pieces_come_one_a_step_and_the_last_one_finishes():
    engine = await started(ReplayLine(pieces=(b"a", 7, b"\xe2"), finish_reason="length"))
    found = await deltas(engine.submit(submit()))
    assert [(delta.raw, delta.tokens, delta.finish) for delta in found] == [
        (b"a", [], None),
        (None, [7], None),
        (b"\xe2", [], "length"),
    ]
    assert [delta.cached_tokens for delta in found] == [0, None, None]


async def test_an_empty_output_still_finishes():
    engine = await started(ReplayLine(pieces=()))
    assert await played(engine) == ("", ["stop"])


async def test_token_ids_obey_stop_ids_and_the_limit():
    engine = await started(ReplayLine(pieces=(3, 4, 5)), ReplayLine(pieces=(3, 4, 5)))
    by_stop = await deltas(engine.submit(submit(stop_ids=[4])))
    assert [(delta.tokens, delta.finish, delta.stop_id) for delta in by_stop] == [([3], None, None), ([], "stop", 4)]
    by_limit = await deltas(engine.submit(submit(max_tokens=2)))
    assert [(delta.tokens, delta.finish) for delta in by_limit] == [([3], None), ([4], "length")]


async def test_lines_play_in_order_and_begin_anew():
    engine = await started(text("a"), text("b"))
    assert [(await played(engine))[0] for _ in range(3)] == ["a", "b", "a"]


async def test_a_line_of_the_same_prompt_comes_first_and_again():
    engine = await started(text("a"), text("b"), text("c"))
    engine.expect(1, [5, 6])
    asked = [(5, 6), (5, 6), (1,), (1,), (1,)]
    assert [(await played(engine, prompt=prompt))[0] for prompt in asked] == ["b", "b", "a", "c", "a"]


async def test_a_cancelled_sequence_frees_its_slot_whatever_it_is_doing():
    engine = await started(ReplayLine(pieces=(b"a",), hang_after=0), text("b"), max_num_seqs=1)
    hanging = engine.submit(submit())
    waiting = asyncio.create_task(played(engine))
    hung = asyncio.create_task(deltas(hanging))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    hanging.cancel()
    assert await waiting == ("b", ["stop"])
    with pytest.raises(EngineError):
        await hung


async def test_an_error_costs_its_own_sequence():
    engine = await started(ReplayLine(pieces=(b"a", b"b"), error_after=1), text("ok"))
    generation = engine.submit(submit())
    found = []

    async def listen():
        async for message in generation:
            found.extend([message.raw] if isinstance(message, Delta) else [])

    with pytest.raises(EngineError) as error:
        await listen()
    assert (found, error.value.kind) == ([b"a"], "internal")
    assert engine.health == "ready"
    assert await played(engine) == ("ok", [None, "stop"])


@pytest.mark.parametrize("after", [0, 2, 9])
async def test_death_ends_every_sequence_and_the_engine_comes_back(after):
    engine = await started(
        ReplayLine(pieces=(b"a", b"b"), die_after=after), ReplayLine((b"x",), hang_after=0), text("c")
    )
    dying, bystander = (asyncio.create_task(deltas(engine.submit(submit()))) for _ in range(2))
    errors = await asyncio.gather(dying, bystander, return_exceptions=True)
    assert [getattr(error, "kind", None) for error in errors] == ["died", "died"]
    assert engine.health == "restarting"
    # As with a real engine: the next request is served once another one is there.
    assert await played(engine) == ("c", ["stop"])
    assert engine.health == "ready"


async def test_a_closed_replay_takes_no_requests():
    engine = await started(text("a"))
    await engine.close()
    with pytest.raises(EngineError):
        engine.submit(submit())


async def test_a_hang_ends_as_a_death_after_the_stall_timeout():
    engine = await started(ReplayLine(pieces=(b"a",), hang_after=1), stall_timeout=0.05)
    with pytest.raises(EngineError) as error:
        await deltas(engine.submit(submit()))
    assert error.value.kind == "died"
