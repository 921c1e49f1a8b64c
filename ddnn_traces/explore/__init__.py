"""A local page to look around in a dataset: a marimo app, with Mosaic's linked charts over two small tables.

contents.py makes the tables in the dataset's DuckDB connection, and describes the charts; answers.py runs the charts'
queries; guard.py stands before marimo's server.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from ddnn_traces.errors import UsageError, needs_extra, require
from ddnn_traces.explore import answers, guard

#: Environment variable that names the dataset to app.py: marimo gives its apps no arguments.
DATASET = "DDNN_TRACES_DATASET"

#: And the one with the runs to choose from, a JSON list; empty: all.
RUNS = "DDNN_TRACES_RUNS"

HOST = "127.0.0.1"


def serve(
    dataset: str | Path,
    tell: Callable[[str], None],
    port: int | None = None,
    browser: bool = True,
    runs: Sequence[str] = (),
    starting: Callable[[], None] = lambda: None,
) -> None:
    """Serve the page until Ctrl-C, and open it.

    dataset: a path, or the URL of a release. runs: those to choose from, or patterns; empty: all. tell: shows the
    page's address. On a terminal this is the URL with its token; elsewhere, where it may be kept and read by
    others, that of a file that only this user can open. port: None: a free one. starting: called before the
    libraries are imported, which takes seconds. Raises UsageError for a port that cannot be used, MissingExtra without
    the extra explore.
    """
    require(("marimo", "mosaic_widget", "uvicorn"), "explore")
    with _listening(port or 0) as listener, tempfile.TemporaryDirectory(prefix="ddnn-traces-") as folder:
        starting()
        with needs_extra("explore"):
            import marimo
            import mosaic_widget  # noqa: F401
            import uvicorn
            from starlette.staticfiles import StaticFiles
        token = secrets.token_urlsafe()
        os.environ[DATASET] = str(dataset.absolute()) if isinstance(dataset, Path) else dataset
        os.environ[RUNS] = json.dumps(list(runs))
        app = marimo.create_asgi_app(quiet=True, token=token).with_app(
            path="/", root=str(Path(__file__).with_name("app.py"))
        )
        url = f"http://{HOST}:{listener.getsockname()[1]}/?access_token={token}"
        page = guard.redirect(url, Path(folder))
        built: Any = app.build()
        built.router.lifespan_context = _ending_sessions
        # its files may be links: some installers put them so
        assets = StaticFiles(packages=[("marimo", "_static")], follow_symlink=True)
        guarded = guard.Guard(built, assets, token, lambda: page.unlink(missing_ok=True))
        # the listener keeps who comes before the server runs
        tell(url if sys.stdout.isatty() else page.as_uri())
        if browser:  # some browsers return only when they are closed
            threading.Thread(target=webbrowser.open, args=[page.as_uri()], daemon=True).start()
        settings = uvicorn.Config(guarded, log_level="error", ws_ping_timeout=60, timeout_graceful_shutdown=1)
        with contextlib.suppress(KeyboardInterrupt), answers.Preparation(dataset, runs):
            uvicorn.Server(settings).run(sockets=[listener])


@contextlib.asynccontextmanager
async def _ending_sessions(app: Any) -> AsyncIterator[None]:
    """End the threads of marimo's sessions with the server: Starlette tells its end to no application below another."""
    yield
    for mount in app.routes:
        await mount.app.state.session_manager.shutdown()


def _listening(port: int) -> socket.socket:
    """A socket that listens on the port, or a free one for 0. Raises UsageError where that is not possible."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise UsageError(
            f"port {port}: cannot be used ({error.strerror}); choose another --port, or leave it out"
        ) from error
