"""Models, and an engine core without a process around it."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_mlx.bench.models import make_model
from vllm_mlx.config import EngineConfig
from vllm_mlx.engine.protocol import Delta, Failed, Finish, Progress, Reply, Sampling, Step, Submit

GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("models")
    return lambda name: make_model(name, root)


class CoreRun:
    """A core driven step by step; collects what it sends."""

    def __init__(self, loaded, config: EngineConfig) -> None:
        from vllm_mlx.engine.core import Core

        self.core = Core(loaded, config, self._receive)
        self.tokens: dict[str, list[int]] = {}
        self.deltas: dict[str, list[Delta]] = {}
        self.ends: dict[str, str] = {}
        self.failures: dict[str, Failed] = {}
        self.progress: dict[str, list[Progress]] = {}

    def _receive(self, reply: Reply) -> None:
        match reply:
            case Step(deltas):
                assert len({delta.id for delta in deltas}) == len(deltas)
                for delta in deltas:
                    assert delta.id not in self.ends, "a delta after the end"
                    self.tokens.setdefault(delta.id, []).extend(delta.tokens)
                    self.deltas.setdefault(delta.id, []).append(delta)
                    if delta.finish:
                        self.ends[delta.id] = delta.finish
            case Failed(id):
                self.failures[id] = reply
            case Progress(id):
                self.progress.setdefault(id, []).append(reply)

    def submit(self, id: str, prompt: list[int], max_tokens: int = 12, **fields) -> None:
        fields.setdefault("sampling", GREEDY)
        self.core.handle(Submit(id, prompt, max_tokens, **fields))

    def finish(self, id: str, keep: int) -> None:
        self.core.handle(Finish(id, keep))

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.core.step()

    def until_idle(self) -> None:
        for _ in range(10_000):
            if not self.core.has_work:
                return
            if self.core.waits:  # for a thread that builds a grammar
                time.sleep(0.002)
            self.core.step()
        raise AssertionError("never idle")

    def run(self, id: str, prompt: list[int], max_tokens: int = 12, **fields) -> list[int]:
        self.submit(id, prompt, max_tokens, **fields)
        self.until_idle()
        assert id in self.ends, self.failures
        return self.tokens[id]


@pytest.fixture(scope="session")
def loaded_model(model_folder):
    from vllm_mlx.engine.loader import load

    models = {}

    def get(name: str):
        if name not in models:
            models[name] = load(EngineConfig(str(model_folder(name))))
        return models[name]

    return get


@pytest.fixture
def run_on():
    """A core on a model that is loaded already."""
    return lambda loaded, **settings: CoreRun(loaded, EngineConfig("", **settings))


@pytest.fixture
def core_run(loaded_model):
    def make(name: str = "tiny", limits=None, **settings) -> CoreRun:
        loaded = dataclasses.replace(loaded_model(name), **limits) if limits else loaded_model(name)
        return CoreRun(loaded, EngineConfig(name, **settings))

    return make


@pytest.fixture(scope="session")
def demo_folder() -> Path:
    import vllm_mlx.demo

    return Path(vllm_mlx.demo.__file__).parent


@pytest.fixture
def demo_run(demo_folder, loaded_demo):
    """A core on the built-in model."""
    return lambda **settings: CoreRun(loaded_demo, EngineConfig(str(demo_folder), **settings))


@pytest.fixture(scope="session")
def loaded_demo(demo_folder):
    from vllm_mlx.engine.loader import load

    return load(EngineConfig(str(demo_folder)))
