"""Files from the Hugging Face hub into its cache on this disk, so that an interrupted download goes on at its byte.

The hub's own client keeps whole files and starts a cut one again. The weight files of these models are gigabytes
each, so they are fetched here, into the blobs where that client looks first; the rest is left to it.
"""

import fcntl
import hashlib
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any

LARGE = 1 << 20
"""Bytes from which a file is worth resuming."""
WORKERS = 4
TRIES = 5
CHUNK = 1 << 20


class DownloadError(Exception):
    """The files cannot be had; the message is for the user."""


def download(repo_id: str, revision: str | None, patterns: list[str]) -> Path:
    """Brings the files of a repository that match `patterns` to the cache; returns the snapshot's folder.

    Raises:
        DownloadError: no room, no such repository, no access, no network.
    """
    from httpx2 import HTTPError
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError
    from huggingface_hub.utils import tqdm

    class Quiet(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call,unused-ignore]

    try:
        fetch = partial(snapshot_download, repo_id, revision=revision, allow_patterns=patterns, tqdm_class=Quiet)
        plan = _persist(partial(fetch, dry_run=True))
        missing = [file for file in plan if file.will_download]
        _check_room(repo_id, sum(file.file_size or 0 for file in missing))
        _fetch_large(repo_id, [file for file in missing if (file.file_size or 0) >= LARGE])
        return Path(_persist(fetch))
    except DryRunError as error:
        raise DownloadError(_reason(repo_id, revision, error.__cause__ or error)) from error
    except (HTTPError, OSError) as error:
        raise DownloadError(_reason(repo_id, revision, error)) from error


def _persist(call: Callable[[], Any]) -> Any:
    """Calls again when a connection breaks: after hours of weights, one that the hub has closed is in the pool."""
    from httpx2 import ConnectError, TransportError
    from huggingface_hub.errors import DryRunError

    tries = TRIES
    while True:
        try:
            return call()
        except (TransportError, DryRunError) as error:
            cause = error.__cause__ if isinstance(error, DryRunError) else error
            tries -= 1
            if not tries or isinstance(cause, ConnectError) or not isinstance(cause, TransportError):
                raise
            time.sleep(1)


def _reason(repo_id: str, revision: str | None, error: BaseException) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    match error:
        case GatedRepoError():
            return f"{repo_id} wants its terms accepted on the hub; then log in with `hf auth login`"
        case RepositoryNotFoundError():
            return f"the hub has no {repo_id}, or it is private"
        case RevisionNotFoundError():
            return f"{repo_id} has no revision {revision!r}"
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{repo_id} cannot be downloaded now, and is not whole in the cache: {line}"


def _check_room(repo_id: str, size: int) -> None:
    from huggingface_hub.constants import HF_HUB_CACHE

    cache = Path(HF_HUB_CACHE)
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    if size > free:
        raise DownloadError(
            f"{repo_id} needs {size / 1e9:.1f} GB and {free / 1e9:.1f} GB are free at {cache} (HF_HOME moves the cache)"
        )


def _fetch_large(repo_id: str, files: list[Any]) -> None:
    """`files` are the hub client's plan entries."""
    from huggingface_hub.utils import tqdm

    stop = threading.Event()
    total = sum(file.file_size for file in files)
    with tqdm(total=total, unit="B", unit_scale=True, desc=repo_id) as bar, ThreadPoolExecutor(WORKERS) as pool:
        try:
            for _ in pool.map(lambda file: _fetch(repo_id, file, bar, stop), files):
                pass
        finally:
            stop.set()


def _fetch(repo_id: str, file: Any, bar: Any, stop: threading.Event) -> None:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.constants import HF_HUB_CACHE

    url = hf_hub_url(repo_id, file.filename, revision=file.commit_hash)
    etag = _persist(partial(get_hf_file_metadata, url)).etag
    assert etag is not None
    blob = Path(HF_HUB_CACHE) / f"models--{repo_id.replace('/', '--')}" / "blobs" / etag
    blob.parent.mkdir(parents=True, exist_ok=True)
    begun = blob.with_name(f"{etag}.partial")
    with begun.open("ab") as out:
        fcntl.flock(out, fcntl.LOCK_EX)
        if not blob.exists():
            _continue(url, out, file.file_size, bar, stop)
            _verify(file.filename, begun, etag)
            begun.rename(blob)


def _continue(url: str, out: IO[bytes], size: int, bar: Any, stop: threading.Event) -> None:
    from httpx2 import TransportError

    bar.update(out.tell())
    tries = TRIES
    while out.tell() < size:
        before = out.tell()
        try:
            _stream(url, out, bar, stop)
        except TransportError:
            tries = TRIES if out.tell() > before else tries - 1
            if not tries or stop.wait(1):
                raise
        if stop.is_set():
            raise DownloadError("interrupted")


def _stream(url: str, out: IO[bytes], bar: Any, stop: threading.Event) -> None:
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    headers = {**build_hf_headers(), "Range": f"bytes={out.tell()}-", "Accept-Encoding": "identity"}
    with get_session().stream("GET", url, headers=headers, follow_redirects=True, timeout=30) as answer:
        hf_raise_for_status(answer)
        if answer.status_code != 206:
            bar.update(-out.tell())
            out.truncate(0)
        for piece in answer.iter_raw(CHUNK):
            out.write(piece)
            bar.update(len(piece))
            if stop.is_set():
                return


def _verify(name: str, begun: Path, etag: str) -> None:
    """The etag of a large file on the hub is its SHA-256."""
    if len(etag) != hashlib.sha256().digest_size * 2:
        return
    with begun.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != etag:
        begun.unlink()
        raise DownloadError(f"{name} arrived damaged; run the same command again")
