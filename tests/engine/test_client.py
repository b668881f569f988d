"""The engine process and its client: it may die at any moment, those who wait are told, the next one is served."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys

import pytest

from vllm_mlx.config import EngineConfig
from vllm_mlx.engine.client import EngineClient
from vllm_mlx.engine.interface import EngineError
from vllm_mlx.engine.protocol import Delta, Progress, Sampling, Submit

pytestmark = pytest.mark.anyio
PROMPT = list(range(30))


@contextlib.asynccontextmanager
async def engine(folder, stall_timeout=60.0, **settings):
    client = EngineClient(EngineConfig(str(folder), **settings), stall_timeout=stall_timeout)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def collect(client, id, prompt=PROMPT, max_tokens=10, **fields) -> list[int]:
    fields.setdefault("sampling", Sampling(temperature=0))
    tokens: list[int] = []
    async for item in client.submit(Submit(id, prompt, max_tokens, **fields)):
        if isinstance(item, Delta):
            tokens += item.tokens
    return tokens


async def exhausted(iterator) -> None:
    async for _ in iterator:
        pass


async def test_streams_side_by_side_and_a_bad_request(model_folder):
    async with engine(model_folder("tiny"), max_num_seqs=3) as client:
        assert client.health == "ready"
        assert client.info.vocab_size == 8192
        alone = await collect(client, "alone")
        assert len(alone) == 10
        many = await asyncio.gather(*(collect(client, f"m{i}") for i in range(8)))
        assert many == [alone] * 8
        with pytest.raises(EngineError) as caught:
            await collect(client, "long", max_tokens=10**9)
        assert caught.value.kind == "too_long"
        generation = client.submit(Submit("p", PROMPT, 1))
        items = [item async for item in generation]
        assert isinstance(items[0], Progress)
        assert items[-1].finish == "length"


async def test_a_killed_engine_ends_open_streams_and_the_next_request_is_served(model_folder):
    async with engine(model_folder("tiny")) as client:
        expected = await collect(client, "before")
        started = asyncio.Event()

        async def stream(id):
            async for item in client.submit(Submit(id, PROMPT, 100_000)):
                if isinstance(item, Delta):
                    started.set()

        streams = [asyncio.create_task(stream(f"s{i}")) for i in range(8)]
        await started.wait()
        first = client.pid
        os.kill(first, signal.SIGKILL)
        results = await asyncio.gather(*streams, return_exceptions=True)
        assert [result.kind for result in results] == ["died"] * 8
        assert "SIGKILL" in str(results[0])
        assert client.health == "restarting"
        assert await collect(client, "after") == expected
        assert client.health == "ready"
        assert client.pid != first


async def test_an_engine_that_makes_no_step_is_replaced(model_folder):
    async with engine(model_folder("tiny"), stall_timeout=0.6) as client:
        generation = client.submit(Submit("a", PROMPT, 100_000))
        iterator = aiter(generation)
        await anext(iterator)
        os.kill(client.pid, signal.SIGSTOP)
        with pytest.raises(EngineError, match="no step"):
            await exhausted(iterator)
        assert len(await collect(client, "b")) == 10


async def test_an_engine_that_hangs_while_it_loads_again_is_replaced(model_folder):
    async with engine(model_folder("tiny"), stall_timeout=0.6) as client:
        first = client.pid
        os.kill(first, signal.SIGKILL)
        while client.health == "ready" or client.pid == first:
            await asyncio.sleep(0)
        second = client.pid
        os.kill(second, signal.SIGSTOP)
        assert client.health == "restarting"
        assert len(await collect(client, "waits")) == 10
        assert client.pid not in (first, second)


async def test_leaving_a_stream_frees_its_slot(model_folder):
    async with engine(model_folder("tiny"), max_num_seqs=1) as client:
        generation = client.submit(Submit("a", PROMPT, 100_000))
        async for item in generation:
            if isinstance(item, Delta):
                break
        generation.cancel()
        assert len(await collect(client, "b")) == 10


async def test_a_folder_without_a_model_is_explained(tmp_path):
    client = EngineClient(EngineConfig(str(tmp_path)))
    with pytest.raises(EngineError, match=r"config\.json"):
        await client.start()
    assert client.health == "failed"
    with pytest.raises(EngineError):
        client.submit(Submit("a", PROMPT, 1))


async def test_an_engine_that_dies_at_every_start_is_given_up(model_folder, monkeypatch):
    """The interpreter is replaced by a program that ends at once."""
    monkeypatch.setattr("sys.executable", shutil.which("false"))
    client = EngineClient(EngineConfig(str(model_folder("tiny"))))
    with pytest.raises(EngineError, match="exit code 1"):
        await client.start()
    assert client.health == "failed"


def no_process(*_, **__):
    raise OSError(24, "Too many open files")


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


async def test_an_engine_that_cannot_be_spawned_is_given_up(model_folder, monkeypatch):
    monkeypatch.setattr("vllm_mlx.engine.client._BACKOFF", 0)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    client = EngineClient(EngineConfig(str(model_folder("tiny"))))
    before = open_files()
    with pytest.raises(EngineError, match="No such file"):
        await asyncio.wait_for(client.start(), 60)
    assert open_files() <= before
    assert client.health == "failed"


async def test_an_engine_that_cannot_be_spawned_again_fails_those_who_wait(model_folder, monkeypatch):
    monkeypatch.setattr("vllm_mlx.engine.client._BACKOFF", 0)
    async with engine(model_folder("tiny")) as client:
        with monkeypatch.context() as patch:
            patch.setattr("asyncio.create_subprocess_exec", no_process)
            os.kill(client.pid, signal.SIGKILL)
            while client.health == "ready":
                await asyncio.sleep(0)
            with pytest.raises(EngineError, match="Too many open files"):
                await asyncio.wait_for(collect(client, "waits"), 60)
        assert client.health == "failed"


async def test_a_spawn_that_fails_once_is_tried_again(model_folder, monkeypatch):
    async with engine(model_folder("tiny")) as client:
        spawn, fails = asyncio.create_subprocess_exec, iter([True])
        monkeypatch.setattr(
            "asyncio.create_subprocess_exec",
            lambda *given, **named: no_process() if next(fails, False) else spawn(*given, **named),
        )
        os.kill(client.pid, signal.SIGKILL)
        while client.health == "ready":
            await asyncio.sleep(0)
        assert len(await collect(client, "waits")) == 10


async def test_an_error_of_the_supervisor_itself_fails_those_who_wait(model_folder, monkeypatch, caplog):
    async with engine(model_folder("tiny")) as client:
        iterator = aiter(client.submit(Submit("a", PROMPT, 100_000)))
        await anext(iterator)

        async def broken(*_):
            raise ValueError("broken")

        monkeypatch.setattr("vllm_mlx.engine.process.EngineProcess.exit_text", broken)
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(EngineError):
            await asyncio.wait_for(exhausted(iterator), 60)
        with pytest.raises(EngineError, match="broken"):
            await asyncio.wait_for(collect(client, "waits"), 60)
        assert client.health == "failed"
    assert client.pid is None
    assert "ValueError" in caplog.text


async def test_the_engine_ends_with_its_client(model_folder):
    async with engine(model_folder("tiny")) as client:
        pid = client.pid
        generation = client.submit(Submit("a", PROMPT, 100_000))
        await anext(aiter(generation))
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_the_cache_can_be_looked_at(model_folder):
    async with engine(model_folder("tiny")) as client:
        await collect(client, "a", list(range(64)))
        report = await client.cache_report()
        assert [(run.base, run.tokens) for run in report.runs] == [(0, 64 + 9)]
        assert report.lookups[0].id == "a"
        os.kill(client.pid, signal.SIGSTOP)
        asked = asyncio.create_task(client.cache_report())
        await asyncio.sleep(0)
        os.kill(client.pid, signal.SIGKILL)
        with pytest.raises(EngineError):
            await asked


async def test_stored_sessions_survive_the_engines_death(model_folder, tmp_path):
    prompt = [i % 200 for i in range(600)]
    async with engine(model_folder("tiny"), kv_store=str(tmp_path)) as client:
        await collect(client, "a", prompt, 2)
        while not list(tmp_path.rglob("*.safetensors")):
            await asyncio.sleep(0.02)
        os.kill(client.pid, signal.SIGKILL)
        while client.health == "ready":
            await asyncio.sleep(0.01)
        generation = client.submit(Submit("b", [*prompt, 5], 1))
        deltas = [item async for item in generation if isinstance(item, Delta)]
        assert deltas[0].cached_tokens >= 0.99 * len(prompt)


async def test_a_store_that_cannot_be_is_explained(model_folder, tmp_path):
    (tmp_path / "file").write_text("x")
    client = EngineClient(EngineConfig(str(model_folder("tiny")), kv_store=str(tmp_path / "file")))
    with pytest.raises(EngineError, match="--kv-store"):
        await client.start()


def test_the_engine_process_loads_models_without_what_reads_text(model_folder):
    """Importing transformers takes longer than everything else at the start."""
    program = f"""
import sys
from vllm_mlx.config import EngineConfig
from vllm_mlx.engine.worker import _leave_out_tokenizers
_leave_out_tokenizers()
from vllm_mlx.engine.loader import load
assert load(EngineConfig({str(model_folder("tiny-m3"))!r})).info.vocab_size == 8192
assert "transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
