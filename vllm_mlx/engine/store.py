"""The prefix cache's tier on disk: what ended rows held, in files that survive restarts and crashes.

Files hold pieces of conversations, each naming the one before it, so a turn writes its new tokens only. A thread writes
one piece at a time and another reads; the engine's thread hands over evaluated arrays and takes back bytes.
"""

import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from vllm_mlx.engine import kv, segments
from vllm_mlx.engine.kv import Caches
from vllm_mlx.engine.prefix_cache import PrefixCache, Run
from vllm_mlx.engine.segments import Blob, DamagedError, Header
from vllm_mlx.engine.tree import BLOCK, Node, Tree

_log = logging.getLogger("vllm_mlx.engine")
_PIECE = 2048
"""Most tokens of a file."""
_OFFERS = 64


@dataclass(slots=True, eq=False, kw_only=True)
class Stored(Node):
    """A file."""

    id: str
    nbytes: int


@dataclass(slots=True, eq=False)
class Fetch:
    """Files that hold the end of `tokens`, in the order of their tokens; `blobs` is the first one on its way."""

    tokens: list[int]
    files: deque[Stored]
    blobs: Future[list[Blob]] | None = None


@dataclass(frozen=True, slots=True)
class _Write:
    node: Stored
    parent: Stored | None
    size: Future[int]


class KvStore(Tree[Stored]):
    """Files below `folder`, in a subfolder of the model's own."""

    def __init__(self, folder: Path, *, max_bytes: int, salt: bytes, make: Callable[[], Caches]) -> None:
        """`salt` names the model; `make` gives empty caches. Raises `OSError` where there can be no such folder."""
        super().__init__(salt)
        self.folder = folder / salt.hex()
        self.max_bytes = max_bytes
        self._make = make
        self._offers: deque[list[int]] = deque(maxlen=_OFFERS)
        self._writing: _Write | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kv-write")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="kv-read")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._scan()

    @property
    def nbytes(self) -> int:
        return sum(node.nbytes for node in self.nodes())

    @property
    def busy(self) -> bool:
        """Whether `pump` has something to do, or will soon."""
        return self._writing is not None or bool(self._offers)

    def _scan(self) -> None:
        """Takes in what is there, and removes what is damaged, half written, foreign or without its beginning."""
        found: list[tuple[float, Header]] = []
        for path in self.folder.iterdir():
            try:
                if path.suffix != segments.SUFFIX:
                    raise DamagedError(f"{path.name} is no file of this store")
                found.append((path.stat().st_mtime, segments.read_header(path)))
            except (DamagedError, OSError) as error:
                self._discard(path, error)
        nodes: dict[str, Stored] = {}
        for _, header in sorted(found, key=lambda entry: (entry[1].base, entry[0])):
            parent = nodes.get(header.parent)
            node = Stored(base=header.base, tokens=header.tokens, id=header.id, nbytes=header.size)
            if (parent.end if parent else 0) != header.base or _id(parent, node) != header.id:
                self._discard(self._path(node), DamagedError("its beginning is missing"))
                continue
            self._attach(node, parent)
            nodes[node.id] = node
        order = sorted(found, key=lambda entry: entry[0])
        for _, header in order:
            if header.id in nodes:
                self.touch(nodes[header.id].path())

    def _discard(self, path: Path, error: Exception) -> None:
        _log.warning("kv store: %s is removed: %s", path.name, error)
        if path.is_file() or path.is_symlink():
            _unlink(path)

    def _path(self, node: Stored) -> Path:
        return self.folder / (node.id + segments.SUFFIX)

    def _attach(self, node: Stored, parent: Stored | None) -> None:
        tokens = [token for part in (parent.path() if parent else ()) for token in part.tokens] + node.tokens
        self.attach(node, parent, list(self.chain(tokens, self.known_hashes(parent, node.base))))

    def offer(self, tokens: Sequence[int]) -> None:
        """An ended row left these tokens in the cache: they are written when there is time."""
        if len(tokens) >= BLOCK:
            self._offers.append(list(tokens))

    def pump(self, cache: PrefixCache) -> None:
        """Takes in what was written, and starts the next piece, most recent conversation first. Never waits."""
        if self._writing is not None:
            if not self._writing.size.done():
                return
            self._written(self._writing)
            self._writing = None
        while self._offers:
            tokens = self._offers[-1]
            if self._start(tokens, cache):
                return
            self._offers.remove(tokens)

    def _start(self, tokens: list[int], cache: PrefixCache) -> bool:
        """Hands the next unwritten piece to the writer; False if there is none."""
        count, parent = self.match(tokens)
        if len(tokens) - count < BLOCK:
            return False
        if parent is not None and count < parent.end:
            # Files go on where one ends: what this one has of the tokens is written again.
            count, parent = parent.base, parent.parent
        found, run = cache.match(tokens)
        while run and run.base > count:
            run = run.parent
        end = min(found, run.end if run else 0, count + _PIECE)
        if run is None or end - count < BLOCK or not run.caches:
            return False
        part = kv.piece(run.caches, count - run.base, end - run.base)
        node = Stored(base=count, tokens=tokens[count:end], id="", nbytes=0)
        node.id = _id(parent, node)
        blobs = kv.blobs(part)
        size = self._writer.submit(
            segments.write,
            self.folder,
            node.id,
            parent=parent.id if parent else "",
            base=count,
            tokens=node.tokens,
            blobs=blobs,
        )
        self._writing = _Write(node, parent, size)
        return True

    def _written(self, write: _Write) -> None:
        try:
            write.node.nbytes = write.size.result()
        except OSError as error:
            _log.warning("kv store: nothing is written now: %s", error)
            self._offers.clear()
            return
        if write.parent is not None and write.parent not in self:
            # What it goes on from was evicted meanwhile.
            self.forgotten(write.node)
            return
        self._attach(write.node, write.parent)
        self.touch(write.node.path())
        while self.nbytes > self.max_bytes:
            oldest = min((node for node in self.nodes() if not node.children), key=lambda node: node.used)
            self.remove(oldest)

    def forgotten(self, node: Stored) -> None:
        _unlink(self._path(node))

    def fetch(self, tokens: Sequence[int], have: int) -> Fetch | None:
        """What is stored of `tokens` beyond the first `have`; None if it is not worth it. Nothing is read yet."""
        count, node = self.match(tokens)
        if node is None or count - have < BLOCK:
            return None
        path = node.path()
        self.touch(path)
        return Fetch(list(tokens[:count]), deque(file for file in path if file.end > have))

    def advance(self, fetch: Fetch, cache: PrefixCache) -> bool:
        """Puts a file that has been read into the cache and starts the next one; True when there is none. Never waits.

        One file is in memory beside the cache's bytes, and none is read that the cache has no room for.
        """
        if fetch.blobs is not None:
            if not fetch.blobs.done():
                return False
            self._deliver(fetch.files.popleft(), fetch, cache)
            fetch.blobs = None
        while fetch.files:
            file = fetch.files[0]
            have, run = cache.match(fetch.tokens[: file.end])
            if file.end <= have:
                fetch.files.popleft()
                continue
            if file not in self or file.base > have or not cache.make_room(file.nbytes, run.path() if run else ()):
                return True
            fetch.blobs = self._reader.submit(segments.read, self._path(file))
            return False
        return True

    def _deliver(self, file: Stored, fetch: Fetch, cache: PrefixCache) -> None:
        assert fetch.blobs is not None
        try:
            arrays = fetch.blobs.result()
        except (DamagedError, OSError) as error:
            _log.warning("kv store: %s is removed: %s", file.id, error)
            self.remove(file)
            return
        have, run = cache.match(fetch.tokens[: file.end])
        if file.base <= have < file.end:
            self._adopt(cache, run, have, file, arrays)

    def _adopt(self, cache: PrefixCache, run: Run | None, have: int, file: Stored, arrays: list[Blob]) -> None:
        """Below `run`, which has `have` of the tokens, adds what the file has beyond them, if there is room."""
        if not cache.make_room(sum(blob.data.nbytes for blob in arrays), run.path() if run else ()):
            return
        caches = kv.from_blobs(self._make(), arrays)
        if have > file.base:
            caches = kv.piece(caches, have - file.base, len(file.tokens))
        before = [token for part in file.path()[:-1] for token in part.tokens]
        hashes = list(cache.chain([*before, *file.tokens], cache.known_hashes(run, have)))
        cache.adopt(run, have, file.tokens[have - file.base :], caches, hashes)
        try:
            os.utime(self._path(file))
        except OSError as error:
            _log.warning("kv store: %s keeps its old time of use: %s", file.id, error)

    def close(self, *, wait: bool = True) -> None:
        """Writes and reads no more; waits for the piece that is being written, unless told otherwise."""
        self._writer.shutdown(wait=wait)
        self._reader.shutdown(wait=wait, cancel_futures=True)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.warning("kv store: %s cannot be removed: %s", path.name, error)


def _id(parent: Stored | None, node: Stored) -> str:
    digest = blake2b(f"{parent.id if parent else ''} {node.base} {node.tokens}".encode(), digest_size=16)
    return digest.hexdigest()
