"""What stands before marimo's server of the page: only the page itself may ask it, and no other page may show it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Server = Callable[[Message, Receive, Send], Awaitable[None]]

#: Names of this machine by which the page is asked. Another one that leads here is an attack (DNS rebinding).
_HOSTS = ("127.0.0.1", "localhost")

# marimo's page has scripts in itself, and imports its widgets from data and blobs; Vega and Arrow compile code.
_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

HEADERS = {
    "content-security-policy": _POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_REPLACED = {name for name, _ in _HEADERS} - {b"content-security-policy"}


class Guard:
    """An ASGI application around the server.

    assets: answers for the files of the page below /assets/, which have nothing of a dataset; the server takes three
    times as long for each of the 300. token: the one that opens the page. used: called when a request has it.
    """

    def __init__(self, server: Server, assets: Server, token: str, used: Callable[[], None]) -> None:
        self._server, self._assets, self._token, self._used = server, assets, token, used

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._server(scope, receive, send)
        elif not _is_ours(scope):
            await _refuse(scope, send)
        else:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("access_token", [""])[-1]
            if secrets.compare_digest(given.encode(), self._token.encode()):
                self._used()
            is_asset = scope["type"] == "http" and scope["path"].startswith("/assets/")
            server = self._assets if is_asset else self._server
            await server(scope, receive, _with_headers(send))


def _is_ours(scope: Message) -> bool:
    """Whether a request is to this machine by its name, and from the page itself where a page asks.

    A browser states the page (Origin) with each WebSocket, and with all that changes something.
    """
    headers = dict(scope["headers"])
    host, origin = headers.get(b"host", b"").decode("latin-1"), headers.get(b"origin")
    with contextlib.suppress(ValueError):
        if urlsplit(f"//{host}").hostname in _HOSTS:
            return origin == f"http://{host}".encode() or (origin is None and scope["type"] == "http")
    return False


async def _refuse(scope: Message, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})  # before it is accepted: status 403
        return
    await send({"type": "http.response.start", "status": 403, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": b"asked by another page, or under another name\n"})


def _with_headers(send: Send) -> Send:
    """Puts the headers into an answer. Where it has a policy of its own, both apply."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            others = [(name, value) for name, value in message.get("headers", ()) if name.lower() not in _REPLACED]
            message["headers"] = others + _HEADERS
        await send(message)

    return sent


def redirect(url: str, folder: Path) -> Path:
    """A page in the folder, readable by its owner alone, that leads to the URL.

    Its path may be an argument of a browser, which all users of the machine see; a URL with a token may not.
    """
    page = folder / "page.html"
    page.touch(mode=0o600, exist_ok=False)
    page.write_text(
        f'<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f'<meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="refresh" content="0; url={url}"><title>ddnn-traces explore</title>\n'
        f"<script>if (innerWidth < 700) location.replace('{url}&narrow=1')</script>\n"
    )
    return page
