"""Programs, captures and recorded messages that some tests need."""

from __future__ import annotations

import contextlib
import functools
import gc
import html
import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

import ddnn_traces
from ddnn_traces.cli import main
from ddnn_traces.messages import Messages

#: What the `ddnn-traces` command runs, also in another folder and where the package is not installed.
CODE = f"import sys; sys.path.insert(0, {str(Path(ddnn_traces.__file__).parents[1])!r})\n"
CODE += "from ddnn_traces.cli import main; main()"
COMMAND = (sys.executable, "-c", CODE)

#: Ctrl-C switched on: a parent in the background may have switched it off.
CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"

RunCommand = Callable[..., subprocess.CompletedProcess[bytes]]
#: The fixture once of tests/conftest.py.
Once = Callable[[str, Callable[[Path], object]], Path]

#: The full captures, where they are at hand: they are not shipped, and the sample is cut from them.
FULL = Path(__file__).parents[2] / "shared" / "captures"


@contextlib.contextmanager
def keeping_sigterm() -> Iterator[None]:
    """main() takes SIGTERM for its own, and after a Ctrl-C SIGINT."""
    before = {sent: signal.getsignal(sent) for sent in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for sent, handler in before.items():
            signal.signal(sent, handler)


def run_here(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command line, run in this process; an exception that is not handled is raised."""
    import pandas  # noqa: F401  before ingest hides it: pyarrow asks for it only once
    import scipy  # noqa: F401

    line = ["ddnn-traces", *map(str, arguments)]
    threshold = gc.get_threshold()
    with (
        keeping_sigterm(),
        pytest.MonkeyPatch.context() as patch,
        CliRunner().isolation(input=stdin) as (stdout, stderr, _),
    ):
        patch.setattr("sys.argv", line)
        patch.setattr("sys.meta_path", [*sys.meta_path])  # ingest hides pandas and scipy from its own process
        with pytest.raises(SystemExit) as ended:
            main()
        sys.stdout.flush()
    gc.set_threshold(*threshold)
    return subprocess.CompletedProcess(line, int(ended.value.code or 0), stdout.getvalue(), stderr.getvalue())


def interrupted_in_its_wait(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process writes (stdout, stderr) after a Ctrl-C in the wait that follows its line "waits"."""
    assert process.stdout
    assert process.stdout.readline() == "waits\n"
    main = Path(f"/proc/{process.pid}/task/{process.pid}/stat")
    while main.read_text().rpartition(") ")[2][0] != "S":  # before it sleeps, a signal would not have to end a wait
        pass
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=60)
    finally:
        process.kill()


def lines(stream: bytes) -> list[str]:
    return stream.decode().splitlines()


class Notes(Messages):
    """Warnings, and the other lines."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def info(self, message: str) -> None:
        self.notes.append(message)


def mostly_long(cases: Iterable[Any], *quick: Any, name: Callable[[Any], str] = str) -> list[Any]:
    """Values as parameters of a test, the quick ones for `make test`, all for `make test-all`. name: of a value."""
    values = list(cases)
    assert all(value in values for value in quick)
    return [pytest.param(value, id=name(value), marks=() if value in quick else pytest.mark.long) for value in values]


def probe(
    page: Path, folder: Path, javascript: str, *options: str, fragment: str = "", ready: str = "drawAll()"
) -> dict[str, Any]:  # fmt: skip
    """The result of `javascript`, the body of a function, in a browser once the promise `ready` holds: all is drawn."""
    script = f"""<script>(async () => {{
        await {ready};
        const answer = document.createElement('div');
        answer.id = 'probed';
        answer.textContent = JSON.stringify(await (async () => {{ {javascript} }})());
        document.body.append(answer);
    }})()</script></body>"""
    copy = folder / "probed.html"
    before, end, after = page.read_text(encoding="utf-8").rpartition("</body>")
    assert end
    copy.write_text(before + script + after, encoding="utf-8")
    common = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
              "--disable-background-networking", "--disable-component-update", "--disable-sync",
              "--enable-logging=stderr", "--virtual-time-budget=30000",
              f"--user-data-dir={folder / 'browser'}")  # fmt: skip
    command = [needs_tool("chromium"), *common, *options, "--dump-dom", copy.as_uri() + fragment]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r'<div id="probed">(.*?)</div>', done.stdout, re.DOTALL)
    assert found, done.stderr
    answer: dict[str, Any] = json.loads(html.unescape(found[1]))
    return answer


@functools.cache
def script(path: str) -> ModuleType:
    """A program of the repository, as docs/examples.py, as a module."""
    file = Path(__file__).parents[1] / path
    spec = importlib.util.spec_from_file_location(path.removesuffix(".py").replace("/", "_"), file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # which dataclasses look up
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(file.parent)  # as where it is run
        spec.loader.exec_module(module)
    return module


def mostly_nightly(cases: Iterable[Any], *before: str) -> list[Any]:
    """Parameters of a test with more marks: all but those of these ids run in `make test-nightly` alone."""
    params = [case if isinstance(case, type(pytest.param())) else pytest.param(case, id=str(case)) for case in cases]
    assert {param.id for param in params} >= set(before)
    marks = [param.marks if param.id in before else (*param.marks, pytest.mark.nightly) for param in params]
    return [pytest.param(*param.values, id=param.id, marks=mark) for param, mark in zip(params, marks, strict=True)]


def needs_full_captures(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that reads the full captures: it is long, and skipped where they are not at hand."""
    skip = pytest.mark.skipif(not FULL.is_dir(), reason="the full captures are not next to the checkout")
    return skip(pytest.mark.long(test))  # type: ignore[no-any-return]


def needs_tool(name: str) -> str:
    """Path of a program. Without it the test is skipped, but fails under CI, which has to have them all."""
    path = shutil.which(name)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed, and CI=true")
        pytest.skip(f"{name} is not installed")
    return path


def needs_package(name: str) -> Any:
    """A module of an extra. Without it the test is skipped, but fails under CI."""
    return importlib.import_module(name) if os.environ.get("CI") == "true" else pytest.importorskip(name)


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes, as where a disk or quota is full (EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def _can_mount() -> bool:
    """Whether this process may mount file systems in a mount namespace of its own."""
    if shutil.which("unshare") is None:
        return False
    return (
        subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0
    )


needs_namespaces = pytest.mark.skipif(not _can_mount(), reason="only root may mount file systems")


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of the loopback that the kernel gives nobody else. A program that sets SO_REUSEADDR may listen at it."""
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        yield int(reservation.getsockname()[1])
