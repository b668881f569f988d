"""Where a model is: from what the user typed to a folder on this disk, by way of the Hugging Face cache or hub."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

BUILT_IN = "demo"
WEIGHTS = "*.safetensors"
TEXTS = ("*.json", "*.jinja", "*.model", "*.tiktoken", "*.txt")
"""All of a model but its weights."""
NEEDED = (*TEXTS, WEIGHTS)
CODE = "*.py"
"""Fetched as well when the model's own code may run."""

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when the hub's client is imported

_REPO_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


class ModelNotFoundError(Exception):
    """No such model, or not to be had now; the message tells the user what there is."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model on this disk. `name` is what clients call it unless they are told otherwise."""

    path: Path
    name: str


def resolve(spec: str, *, revision: str | None = None, code: bool = False) -> Model:
    """Finds what `spec` names: the built-in model, a folder (`~` expanded), or a Hugging Face repository.

    A repository that is whole in the cache is used without any network traffic; else it is downloaded, with
    a progress bar, and an interrupted download goes on where it stopped.

    Raises:
        ModelNotFoundError: with what is available.
    """
    if spec == BUILT_IN:
        return built_in()
    if _is_path(spec):
        return _local(spec)
    if not _REPO_ID.fullmatch(spec):
        raise ModelNotFoundError(f"no model {spec!r}: no such folder, and not a repository id.\n{_available(spec)}")
    path = _cached(spec, revision, code) or _download(spec, revision, code)
    return Model(path, spec)


def is_local(spec: str) -> bool:
    """Whether a model is no repository of the hub: the built-in one, a path, or nothing."""
    return spec == BUILT_IN or _is_path(spec) or not _REPO_ID.fullmatch(spec)


def described(spec: str, *, revision: str | None = None, patterns: Sequence[str] = TEXTS) -> Path:
    """The folder of a model that need not have its weights; of a repository, only files of `patterns` are fetched.

    Raises:
        ModelNotFoundError: with what is available, or why it cannot be looked up.
    """
    if is_local(spec):
        return resolve(spec).path
    folder = Path(_look_up(spec, revision=revision, allow_patterns=[*patterns]))
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(f"{spec} has no config.json: it is not a model")
    return folder


def weight_bytes(spec: str, *, revision: str | None = None) -> int | None:
    """The bytes of a repository's weights, where only the hub knows them. Raises `ModelNotFoundError`."""
    if is_local(spec):
        return None
    files = _look_up(spec, revision=revision, allow_patterns=[WEIGHTS], dry_run=True)
    return sum(file.file_size or 0 for file in files) or None


def _is_path(spec: str) -> bool:
    return spec.startswith(("~", "/", ".")) or Path(spec).exists()


def _look_up(spec: str, **options: Any) -> Any:
    from httpx2 import HTTPError
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(spec, **options)
    except (HTTPError, OSError, ValueError) as error:
        raise ModelNotFoundError(f"{spec} cannot be looked up: {error.__cause__ or error}") from error


def built_in() -> Model:
    """The model that ships with the package."""
    from vllm_mlx import demo

    return Model(Path(demo.path()), BUILT_IN)


def cached_minimax() -> list[Model]:
    """The MiniMax models that are whole in the local Hugging Face cache, by name."""
    return [model for model in cached() if str(_config(model.path).get("model_type", "")).startswith("minimax")]


def cached() -> list[Model]:
    """Every model that is whole in the local Hugging Face cache, by name."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return sorted(_cache_entries(Path(HF_HUB_CACHE)), key=lambda model: model.name.lower())


def _cache_entries(cache: Path) -> Iterator[Model]:
    for folder in cache.glob("models--*--*"):
        ref = folder / "refs" / "main"
        snapshot = folder / "snapshots" / ref.read_text().strip() if ref.is_file() else None
        if snapshot is not None and is_whole(snapshot):
            yield Model(snapshot, folder.name.removeprefix("models--").replace("--", "/", 1))


def is_whole(folder: Path) -> bool:
    """Whether config, tokenizer and every weight file that the index names are in `folder`."""
    if not (folder / "config.json").is_file() or not any(folder.glob("tokenizer*")):
        return False
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return any(folder.glob("*.safetensors"))
    weights: dict[str, str] = json.loads(index.read_text())["weight_map"]
    return all((folder / name).is_file() for name in set(weights.values()))


def _config(folder: Path) -> dict[str, object]:
    config: dict[str, object] = json.loads((folder / "config.json").read_text())
    return config


def _local(spec: str) -> Model:
    try:
        folder = Path(spec).expanduser()
    except RuntimeError as error:
        raise ModelNotFoundError(f"no model {spec!r}: {error}") from error
    if not folder.is_dir():
        kind = "a file, not a model folder" if folder.exists() else "no such folder"
        raise ModelNotFoundError(f"no model {spec!r}: {kind}.\n{_available(spec, folder.parent)}")
    if not (folder / "config.json").is_file():
        raise ModelNotFoundError(f"no model in {spec!r}: it has no config.json.\n{_available(spec, folder)}")
    return Model(folder.resolve(), folder.resolve().name)


def _available(spec: str, beside: Path | None = None) -> str:
    names = [BUILT_IN, *(model.name for model in cached())]
    if beside is not None and beside.is_dir():
        names += [str(config.parent) for config in sorted(beside.glob("*/config.json"))]
        spec = str(beside / Path(spec).name)
    close = get_close_matches(spec, names, n=1)
    hint = f"Did you mean {close[0]}? " if close else ""
    return f"{hint}Available here: {', '.join(names)}; or ORGANISATION/NAME from the Hugging Face hub."


def _patterns(code: bool) -> list[str]:
    return [*NEEDED, CODE] if code else [*NEEDED]


def _cached(repo_id: str, revision: str | None, code: bool) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        found = snapshot_download(repo_id, revision=revision, allow_patterns=_patterns(code), local_files_only=True)
    except LocalEntryNotFoundError:
        return None
    return Path(found) if is_whole(Path(found)) else None


def _download(repo_id: str, revision: str | None, code: bool) -> Path:
    from vllm_mlx.download import DownloadError, download

    try:
        folder = download(repo_id, revision, _patterns(code))
    except DownloadError as error:
        raise ModelNotFoundError(f"{error}.\n{_available(repo_id)}") from error
    if not is_whole(folder):
        raise ModelNotFoundError(f"{repo_id} has no config.json, tokenizer and safetensors: not a model for MLX.")
    return folder
