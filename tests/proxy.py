"""A proxy in front of a store that is busy, cuts answers short, or is slow, as told; all else passes unchanged."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

#: A request by its method, path and number (from 0, of those of this path and method) -> what happens to it.
Fault = Callable[[str, str, int], str]
#: Called with the path of each object that the store has made, changed or removed, before the next request does that.
Changed = Callable[[str], None]

SLOW_DOWN = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)
_PIECE = 1 << 16


@dataclass
class Proxy:
    """A running proxy. endpoint: its URL. done: what happened to requests, and how often."""

    endpoint: str = ""
    done: Counter[str] = field(default_factory=Counter)


@contextlib.contextmanager
def proxy(store: str, fault: Fault, changed: Changed | None = None) -> Iterator[Proxy]:
    """A proxy of the store at this URL. fault: returns busy (503), short (half of the bytes, then the connection is
    closed), slow (piece by piece), lost (closed without an answer) or pass."""
    state, seen, lock, changing = Proxy(), Counter[tuple[str, str]](), threading.Lock(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits 40 ms for the confirmation of its headers

        def _pass(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size) if size else None
            path = urlsplit(self.path).path
            with lock:
                number = seen[self.command, path]
                seen[self.command, path] += 1
                what = fault(self.command, path, number)
                state.done[what] += 1
            if what == "lost":
                self.close_connection = True
                return
            if what == "busy":
                self._answer(503, {"Content-Type": "application/xml"}, SLOW_DOWN, what)
                return
            with changing if changed and self.command in ("PUT", "POST", "DELETE") else contextlib.nullcontext():
                connection = http.client.HTTPConnection(urlsplit(store).netloc, timeout=60)
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(body)
                answer = connection.getresponse()
                content = answer.read()
                if changed and self.command in ("PUT", "POST", "DELETE") and answer.status < 300:
                    changed(path)
            self._answer(answer.status, dict(answer.getheaders()), content, what)
            connection.close()

        def _answer(self, status: int, headers: dict[str, str], body: bytes, what: str) -> None:
            self.send_response(status)
            given = {name.lower() for name in headers}
            for name, value in headers.items():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            if "content-length" not in given:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            sent = body[: len(body) // 2] if what == "short" else body
            step = _PIECE if what == "slow" else max(1, len(sent))
            with contextlib.suppress(OSError):
                for begin in range(0, len(sent), step):
                    self.wfile.write(sent[begin : begin + step])
                    self.wfile.flush()
            if what == "short":
                self.close_connection = True

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
