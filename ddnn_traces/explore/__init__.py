"""A local page to look around in a dataset: `marimo run` of app.py, with Mosaic's linked charts over two small tables.

contents.py makes the tables in the dataset's DuckDB connection, and describes the charts.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
from pathlib import Path
from typing import NoReturn

from ddnn_traces.errors import UsageError, needs_extra

#: Environment variable that names the dataset to app.py: an argument would be parsed.
DATASET = "DDNN_TRACES_DATASET"

HOST = "127.0.0.1"


def serve(dataset: str | Path, port: int | None = None, browser: bool = True) -> NoReturn:
    """Become marimo's server of the page, which prints and opens the page's address with its token.

    dataset: a path, or the URL of a release. port: None: a free one. Raises UsageError for a port that cannot be used,
    MissingExtra without the extra explore.
    """
    chosen = _free_port(port or 0)
    with needs_extra("explore"):
        import marimo  # noqa: F401
        import mosaic_widget  # noqa: F401
    # -P: no module of the folder that the command is called in
    command = [sys.executable, "-P", "-m", "marimo", "run", str(Path(__file__).with_name("app.py")), "--no-sandbox"]
    command += ["--host", HOST, "--port", str(chosen), "--token", "--token-password-file", "-"]
    command += [] if browser else ["--headless"]
    where = str(dataset.absolute()) if isinstance(dataset, Path) else dataset
    _give_token()
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, DATASET: where})  # noqa: S606


def _give_token() -> None:
    """A token on standard input: other users see arguments, and marimo's own follows from the page's code."""
    read, write = os.pipe()
    os.write(write, secrets.token_urlsafe().encode())
    os.close(write)
    os.dup2(read, 0)


def _free_port(port: int) -> int:
    """The port, or a free one for 0. Raises UsageError where it cannot be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(
                f"port {port}: cannot be used ({error.strerror}); choose another --port, or leave it out"
            ) from error
        return int(probe.getsockname()[1])
