"""Files of keys and values: safetensors with a checksum. Needs no MLX, so that threads can read and write them.

    8 bytes: length of the header | header (JSON) | arrays, one after the other

The header's metadata says which tokens the arrays are of, where they begin, and after which other file.
"""

import json
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FORMAT = "vllm-mlx-kv-1"
SUFFIX = ".safetensors"
_LENGTH = struct.Struct("<Q")
_LARGEST_HEADER = 1 << 26
_NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_TYPES = {short: long for long, short in _NAMES.items()}


class DamagedError(Exception):
    """The file is not what it should be."""


@dataclass(frozen=True, slots=True)
class Blob:
    """One array: its type's name, its shape, its bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: memoryview


@dataclass(frozen=True, slots=True)
class Header:
    """What a file says of itself. `id` and `parent` name files; a `parent` of "" is none."""

    id: str
    parent: str
    base: int
    tokens: list[int]
    blobs: list[tuple[str, tuple[int, ...], int, int]]
    checksum: int
    start: int
    size: int


def write(folder: Path, id: str, *, parent: str, base: int, tokens: Sequence[int], blobs: Sequence[Blob]) -> int:
    """Writes one file so that it is there whole or not at all; returns its bytes. Raises `OSError`."""
    entries: dict[str, Any] = {}
    checksum = offset = 0
    for index, blob in enumerate(blobs):
        checksum = zlib.crc32(blob.data, checksum)
        end = offset + blob.data.nbytes
        entries[str(index)] = {"dtype": _NAMES[blob.dtype], "shape": blob.shape, "data_offsets": [offset, end]}
        offset = end
    entries["__metadata__"] = {
        "format": FORMAT,
        "parent": parent,
        "base": str(base),
        "tokens": json.dumps(list(tokens), separators=(",", ":")),
        "crc32": str(checksum),
    }
    header = json.dumps(entries).encode()
    target = folder / (id + SUFFIX)
    partial = folder / (id + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(_LENGTH.pack(len(header)) + header)
            for blob in blobs:
                file.write(blob.data)
        os.replace(partial, target)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return target.stat().st_size


def read_header(path: Path) -> Header:
    """Raises `DamagedError` or `OSError`."""
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
            if length > _LARGEST_HEADER:
                raise DamagedError(f"{path.name} has no header")
            entries = json.loads(file.read(length))
            about = entries.pop("__metadata__")
            if about["format"] != FORMAT:
                raise DamagedError(f"{path.name} is of another format")
            blobs = [
                (_TYPES[entry["dtype"]], tuple(entry["shape"]), *entry["data_offsets"])
                for _, entry in sorted(entries.items(), key=lambda item: int(item[0]))
            ]
            start = _LENGTH.size + length
            header = Header(
                path.stem, about["parent"], int(about["base"]), json.loads(about["tokens"]), blobs,
                int(about["crc32"]), start, size,
            )  # fmt: skip
        except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"{path.name} has no header that can be read") from error
    if not header.tokens or size != start + max((end for *_, end in blobs), default=0):
        raise DamagedError(f"{path.name} is cut short")
    return header


def read(path: Path) -> list[Blob]:
    """The arrays of a file, checked. Raises `DamagedError` or `OSError`."""
    header = read_header(path)
    with path.open("rb") as file:
        file.seek(header.start)
        body = memoryview(file.read())
    if zlib.crc32(body) != header.checksum:
        raise DamagedError(f"{path.name} does not have the bytes that were written")
    return [Blob(dtype, shape, body[start:end]) for dtype, shape, start, end in header.blobs]
