"""The machine and the Python environment, as far as they can get in the way of serving."""

import os
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from vllm_mlx import __version__
from vllm_mlx.chat.checks import Check

_MODULE = "vllm_mlx"
_NAME = "vllm-mlx"


def environment() -> list[Check]:
    """What is here, and what would be in the way."""
    return [
        Check("vllm-mlx", "info", f"{__version__}, Python {platform.python_version()}, {platform.platform()}"),
        *_mlx(),
        _memory(),
        _commands(os.environ.get("PATH", "").split(os.pathsep), Path(sys.prefix)),
        *_owners(metadata.distributions()),
    ]


def _mlx() -> Iterator[Check]:
    try:
        import mlx.core as mx

        version = f"mlx {metadata.version('mlx')}, mlx-lm {metadata.version('mlx-lm')}"
    except (ImportError, metadata.PackageNotFoundError) as error:
        yield Check("MLX", "fail", f"cannot be imported: {error}")
        return
    yield Check("MLX", "pass", f"{version}, on {mx.default_device()}")


def _memory() -> Check:
    from vllm_mlx.engine.memory import this_device

    device = this_device()
    gigabytes = f"{device.memory / 2**30:.0f} GB of memory, {device.limit / 2**30:.0f} GB of it for models"
    return Check("Device", "info", f"{device.name}: {gigabytes}")


def _commands(path: Iterable[str], prefix: Path) -> Check:
    """Every `vllm-mlx` on the search path; the first is the one that a shell starts."""
    found = list(dict.fromkeys(str(place) for folder in path if (place := Path(folder) / _NAME).is_file()))
    name = "vllm-mlx on PATH"
    if not found:
        return Check(name, "info", f"none; this one runs from {prefix}")
    if not Path(found[0]).is_relative_to(prefix):
        return Check(name, "warn", f"{found[0]} is not of this environment ({prefix}): a shell starts that one")
    if len(found) > 1:
        return Check(name, "warn", f"{found[0]} is started; there is also {', '.join(found[1:])}")
    return Check(name, "pass", found[0])


def _owners(distributions: Iterable[metadata.Distribution]) -> Iterator[Check]:
    """Distributions that install a module of our name: the last one installed wins, file by file."""
    others: list[str] = []
    own: list[str] = []
    for distribution in distributions:
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name == _NAME:
            own.append(distribution.version)
        elif any(file.parts[:1] == (_MODULE,) for file in distribution.files or ()):
            others.append(f"{name} {distribution.version}")
    title = f"Owner of the module {_MODULE}"
    if others:
        yield Check(title, "fail", f"{', '.join(others)} installs it too: give it an environment of its own")
    elif len(own) > 1 or (own and own[0] != __version__):
        yield Check(title, "fail", f"{_NAME} {', '.join(own)} is installed beside this {__version__}: remove it")
    else:
        yield Check(title, "pass", f"{_NAME} alone")
