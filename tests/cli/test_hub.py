import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer

from vllm_mlx.hub import is_local

WEIGHTS = hashlib.shake_128(b"weights").digest(3_000_000)
TINY = {
    "config.json": b'{"model_type": "minimax"}',
    "tokenizer.json": b"{}",
    "chat_template.jinja": b"{{ messages }}",
    "model.safetensors": WEIGHTS,
    "README.md": b"read me",
    "pytorch_model.bin": b"another format",
    "modeling.py": b"raise SystemExit",
}
RESOLVE = """
import sys
from vllm_mlx import hub
try:
    model = hub.resolve(sys.argv[1])
    print(model.name, model.path)
except hub.ModelNotFoundError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def hub() -> Iterator[HubServer]:
    server = HubServer({"org/tiny": TINY})
    yield server
    server.close()


class Resolver:
    """Resolves model names in a process of its own, since the hub's client reads its settings at import."""

    def __init__(self, home: Path, endpoint: str) -> None:
        self.environ = {**os.environ, "HF_HOME": str(home / "hf"), "HF_ENDPOINT": endpoint, "HOME": str(home)}

    def __call__(self, spec: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", RESOLVE, spec]
        return subprocess.run(
            command, env=self.environ, cwd=cwd, capture_output=True, text=True, timeout=60, check=False
        )


@pytest.fixture
def resolve(tmp_path: Path, hub: HubServer) -> Resolver:
    return Resolver(tmp_path, hub.url)


def folder_of(done: subprocess.CompletedProcess[str]) -> Path:
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.split()[1])


def test_download_takes_only_what_is_needed_and_shows_progress(resolve: Resolver, hub: HubServer) -> None:
    done = resolve("org/tiny")
    folder = folder_of(done)
    needed = {"config.json", "tokenizer.json", "chat_template.jinja", "model.safetensors"}
    assert {file.name for file in folder.iterdir()} == needed
    assert hub.fetched() == needed
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert "100%" in done.stderr


def test_a_cached_model_needs_no_network(resolve: Resolver, hub: HubServer) -> None:
    first = folder_of(resolve("org/tiny"))
    hub.requests.clear()
    assert folder_of(resolve("org/tiny")) == first
    assert hub.requests == []


def test_a_cut_connection_goes_on_at_its_byte(resolve: Resolver, hub: HubServer) -> None:
    hub.cut_after = 2_000_000
    folder = folder_of(resolve("org/tiny"))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    ranges = [span for method, path, span in hub.requests if method == "GET" and path.endswith(".safetensors")]
    assert ranges[0] == "bytes=0-"
    assert len(ranges) > 1
    assert "bytes=0-" not in ranges[1:]


@pytest.mark.parametrize("method", ["HEAD", "GET"])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_connection_that_breaks_is_opened_again(
    resolve: Resolver, hub: HubServer, method: str, times: int, name: str
) -> None:
    hub.breaks += [(method, name)] * times
    folder = folder_of(resolve("org/tiny"))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert hub.breaks == []


def test_a_download_that_failed_goes_on_in_the_next_run(resolve: Resolver, hub: HubServer) -> None:
    partial = Path(resolve.environ["HF_HOME"]) / "hub/models--org--tiny/blobs" / hashlib.sha256(WEIGHTS).hexdigest()
    partial.parent.mkdir(parents=True)
    partial.with_name(partial.name + ".partial").write_bytes(WEIGHTS[:1_234_567])
    folder = folder_of(resolve("org/tiny"))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    ranges = [span for method, path, span in hub.requests if method == "GET" and path.endswith(".safetensors")]
    assert ranges == ["bytes=1234567-"]


def test_damaged_bytes_are_not_served(resolve: Resolver) -> None:
    partial = Path(resolve.environ["HF_HOME"]) / "hub/models--org--tiny/blobs" / hashlib.sha256(WEIGHTS).hexdigest()
    partial.parent.mkdir(parents=True)
    partial.with_name(partial.name + ".partial").write_bytes(bytes(len(WEIGHTS)))
    done = resolve("org/tiny")
    assert done.returncode == 1
    assert "model.safetensors arrived damaged" in done.stderr
    assert (folder_of(resolve("org/tiny")) / "model.safetensors").read_bytes() == WEIGHTS


def test_an_incomplete_snapshot_is_not_a_model(resolve: Resolver, hub: HubServer) -> None:
    folder = folder_of(resolve("org/tiny"))
    (folder / "model.safetensors").unlink()
    hub.close()
    done = resolve("org/tiny")
    assert done.returncode == 1
    assert "org/tiny" in done.stderr
    assert "not whole in the cache" in done.stderr


def test_unknown_repository_says_what_is_there(resolve: Resolver) -> None:
    folder_of(resolve("org/tiny"))
    done = resolve("org/tinny")
    assert done.returncode == 1
    assert "the hub has no org/tinny" in done.stderr
    assert "Did you mean org/tiny?" in done.stderr
    assert "demo" in done.stderr


@pytest.mark.parametrize("spec", ["~/models/tiny", "~/tiny", "./org/tiny", "/nowhere/tiny", "../tiny"])
def test_a_missing_path_is_never_a_repository(resolve: Resolver, hub: HubServer, spec: str, tmp_path: Path) -> None:
    done = resolve(spec, cwd=tmp_path)
    assert done.returncode == 1
    assert f"no model '{spec}': no such folder" in done.stderr
    assert hub.requests == []


def test_local_folders(resolve: Resolver, hub: HubServer, tmp_path: Path) -> None:
    folder = (tmp_path / "org" / "tiny").resolve()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    for spec in ("~/org/tiny", str(folder), "./org/tiny", "org/tiny"):
        done = resolve(spec, cwd=tmp_path)
        assert done.stdout.split() == ["tiny", str(folder)], done.stderr
    assert hub.requests == []
    near = resolve("~/org/tinny")
    assert f"Did you mean {folder}?" in near.stderr
    assert "has no config.json" in resolve("~/org").stderr
    assert "a file, not a model folder" in resolve("~/org/tiny/config.json").stderr


def test_offline_says_so(resolve: Resolver, hub: HubServer) -> None:
    resolve.environ["HF_HUB_OFFLINE"] = "1"
    done = resolve("org/tiny")
    assert done.returncode == 1
    assert "org/tiny cannot be downloaded now, and is not whole in the cache" in done.stderr
    assert "offline" in done.stderr.lower()
    assert hub.requests == []


def test_a_bare_name_lists_what_is_there(resolve: Resolver, hub: HubServer) -> None:
    done = resolve("dmeo")
    assert done.returncode == 1
    assert "Did you mean demo?" in done.stderr
    assert hub.requests == []


@pytest.mark.parametrize("spec", ["demo", "~/m", "/m", "./m", "../m", ".", "..", ".hidden/m", "m", "a/b/c", "org/here"])
def test_what_is_no_repository(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org" / "here").mkdir(parents=True)
    assert is_local(spec)
    assert not is_local("org/elsewhere")
