"""A small stand-in for the Hugging Face hub: the routes that a snapshot download uses, from a dict of files."""

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

SHA = "0123456789abcdef0123456789abcdef01234567"


class HubServer:
    """Serves `repos` (id -> file name -> bytes) on a free port; keeps what was asked for in `requests`."""

    def __init__(self, repos: dict[str, dict[str, bytes]]) -> None:
        self.repos = repos
        self.requests: list[tuple[str, str, str | None]] = []
        """Method, path and Range header of each request."""
        self.cut_after: int | None = None
        self.breaks: list[tuple[str, str]] = []  # requests (method, file) that are not answered, each once
        """Breaks the connection after so many bytes of a weight file."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fetched(self) -> set[str]:
        """Names of the files whose content was asked for."""
        return {path.rsplit("/", 1)[1] for method, path, _ in self.requests if method == "GET" and "/resolve/" in path}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self._answer()

            def do_GET(self) -> None:
                self._answer()

            def _answer(self) -> None:
                path = unquote(urlsplit(self.path).path)
                hub.requests.append((self.command, path, self.headers["Range"]))
                parts = path.strip("/").split("/")
                api = parts[:2] == ["api", "models"]
                repo = "/".join(parts[2:4] if api else parts[:2])
                files = hub.repos.get(repo)
                if files is None:
                    self._send(401 if api else 404, b"{}", {"X-Error-Code": "RepoNotFound"})
                elif api and parts[4] == "revision" and parts[5] in ("main", SHA):
                    self._send_json({"id": repo, "sha": SHA, "siblings": [{"rfilename": name} for name in files]})
                elif api and parts[4] == "tree":
                    self._send_json([_entry(name, data) for name, data in files.items()])
                elif not api and parts[2] == "resolve" and parts[-1] in files:
                    self._send_file(parts[-1], files[parts[-1]])
                else:
                    self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound" if api else "EntryNotFound"})

            def _send_json(self, value: object) -> None:
                self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

            def _send_file(self, name: str, data: bytes) -> None:
                if (self.command, name) in hub.breaks:
                    hub.breaks.remove((self.command, name))
                    self.connection.close()
                    self.close_connection = True
                    return
                headers = {"ETag": f'"{_digest(data)}"', "X-Repo-Commit": SHA, "Accept-Ranges": "bytes"}
                start = 0
                if self.headers["Range"]:
                    start = int(self.headers["Range"].removeprefix("bytes=").split("-")[0])
                    headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
                cut = hub.cut_after if name.endswith(".safetensors") and self.command == "GET" else None
                self._send(206 if start else 200, data[start:], headers, cut)

            def _send(self, status: int, body: bytes, headers: dict[str, str], cut: int | None = None) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body[:cut])
                if cut is not None:
                    self.wfile.flush()
                    self.connection.close()
                    self.close_connection = True

        return Handler


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _entry(name: str, data: bytes) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(data), "oid": _digest(data)}
