"""A server of a test's own on a free port, and one in front of another, which can fail as networks and servers do."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Request:
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """An answer; state 0: the connection is closed without one."""

    state: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def json_answer(value: Any, state: int = 200, **headers: str) -> Answer:
    """An answer in JSON."""
    return Answer(state, json.dumps(value).encode(), {"Content-Type": "application/json", **headers})


Handle = Callable[[Request], Answer]


@contextlib.contextmanager
def server(handle: Handle) -> Iterator[str]:
    """Address of a server that answers by `handle`; afterwards no request of a killed client is still being handled."""
    running_requests: list[str] = []
    changed = threading.Condition()
    is_open = True

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            request = Request(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, self._body())
            with changed:
                running_requests.append(self.path)
            try:
                answer = handle(request) if is_open else Answer(0)
            finally:
                with changed:
                    running_requests.remove(self.path)
                    changed.notify()
            if answer.state == 0:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(answer.state)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", answer.headers.get("x-length", str(len(answer.body))))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

        def log_message(self, *_: object) -> None:
            """The tests' output stays clean."""

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = answer

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    thread = threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}"
    finally:
        running.shutdown()
        running.server_close()
        with changed:
            is_open = False
            assert changed.wait_for(lambda: not running_requests, timeout=60), running_requests


@dataclass
class Front:
    """In front of the server at host:port. spoil: what it does with a request instead of handing it on, None for
    nothing. requests: all that came.
    """

    host: str
    port: int
    requests: list[Request] = field(default_factory=list)
    spoil: Callable[[Request], Answer | Request | None] = lambda request: None

    def handle(self, request: Request) -> Answer:
        self.requests.append(request)
        spoilt = self.spoil(request)
        if isinstance(spoilt, Answer):
            return spoilt
        return self._hand_on(spoilt or request)

    def _hand_on(self, request: Request) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        headers = {
            k: v for k, v in request.headers.items() if k not in ("content-length", "expect", "transfer-encoding")
        }
        connection.request(request.method, request.path, body=request.body or None, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        kept = {
            k: v
            for k, v in answer.getheaders()
            if k.lower() not in ("content-length", "transfer-encoding", "date", "server")
        }
        if request.method == "HEAD":
            kept["x-length"] = answer.getheader("Content-Length") or "0"
        connection.close()
        return Answer(answer.status, body, kept)

    def puts(self) -> list[str]:
        """Paths of what was sent, in order."""
        return [request.path for request in self.requests if request.method == "PUT"]


@dataclass
class PowerLoss:
    """Spoils a server: it carries out so many changes, answers all but the last, and then nothing more."""

    carry_out: Callable[[Request], Answer]
    changes: int

    def __call__(self, request: Request) -> Answer | None:
        if not self.changes:
            return Answer(0)
        if request.method in ("GET", "HEAD"):
            return None
        self.changes -= 1
        if self.changes:
            return None
        self.carry_out(request)
        return Answer(0)
