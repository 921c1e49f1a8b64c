"""Fixtures: the captures of tests/traces, these as a dataset, and the command line."""

from __future__ import annotations

import fcntl
import functools
import gc
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ceph
import dask_cluster
import pytest
from hypothesis import settings
from tools import COMMAND, FULL, Once, RunCommand, run_here

import ddnn_traces
from ddnn_traces.query import views
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import whole_files

# assertions of helper modules show what differs, as those in tests do
pytest.register_assert_rewrite("readings", "engines", "damages", "predictions")

# make test runs few examples of each property, make test-all (HYPOTHESIS_PROFILE=all) many, make test-nightly most
settings.register_profile("quick", max_examples=10, deadline=None)
settings.register_profile("all", max_examples=100, deadline=None)
settings.register_profile("nightly", max_examples=300, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


@functools.cache
def _compiled() -> list[tuple[ModuleType, str, Any]]:
    """The simulator's loops. Imported by the processes that run tests only: that takes seconds."""
    from ddnn_traces.traffic.simulator import loop, task_loop

    return [
        (module, name, function)
        for module in (loop, task_loop)
        for name, function in vars(module).items()
        if hasattr(function, "py_func")
    ]


def pytest_configure() -> None:
    """Of as many test processes as CPUs each keeps one: threads of DuckDB and Arrow do not wait for another process.

    No width of a terminal is known: xdist's workers have one, which would bound tables.
    """
    os.environ.pop("COLUMNS", None)
    cpus = sorted(os.sched_getaffinity(0))
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker and len(cpus) == int(os.environ["PYTEST_XDIST_WORKER_COUNT"]):
        os.sched_setaffinity(0, [cpus[int(worker.removeprefix("gw"))]])


# To look for cycles among the objects of 4,000 tests takes a tenth of the time in which they are collected.
gc.disable()


def pytest_collection_finish() -> None:
    """What was collected stays to the end: no later collection of cycles looks at it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `long_after(n)`, the cases after the first n are long."""
    cases: Counter[str] = Counter()
    for item in items:
        if mark := item.get_closest_marker("long_after"):
            name = item.nodeid.partition("[")[0]
            cases[name] += 1
            if cases[name] > mark.args[0]:
                item.add_marker("long")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The last process of a session ends what all have shared."""
    gc.unfreeze()  # some modules complain of objects that are left at the end
    if not hasattr(session.config, "workerinput"):
        base = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        dask_cluster.stop_shared(base)
        ceph.stop_shared(base)


@pytest.hookimpl(tryfirst=True)  # before the fixtures of the test
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Of the simulator's loops, tests that are not long run the Python code: to compile them takes 18 s of CPU time in
    each test process of a new checkout."""
    is_long = item.get_closest_marker("long") is not None
    for module, name, function in _compiled():
        setattr(module, name, function if is_long else function.py_func)


@pytest.fixture(scope="session")
def sample() -> Path:
    """Folder of the shipped run folders."""
    return Path(__file__).parents[1] / "tests" / "traces" / "runs"


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Once:
    """`once(name, make)`: the path that `make(path)` filled, called by one of all test processes. Not to be changed."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent

    def made(name: str, make: Callable[[Path], object]) -> Path:
        path, done = shared / name / "made", shared / name / "done"
        path.parent.mkdir(exist_ok=True)
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                make(path)
                done.touch()
        return path

    return made


@pytest.fixture(scope="session", autouse=True)
def packet_loop(sample: Path, once: Once, worker_id: str) -> None:
    """Of several test processes, one compiles the packet loop, which takes half a minute; the others load it."""
    if worker_id != "master":
        run = sample / "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"
        once("packet-loop", lambda path: ddnn_traces.ingest(run, path).close())


@pytest.fixture(scope="session", autouse=True)
def kept_queries(once: Once) -> None:
    """As an ingest of a user does: no later dataset makes the queries again, which takes a second."""
    once("kept-queries", lambda _: views.keep_queries())


@pytest.fixture(scope="session")
def sample_dataset(sample: Path, once: Once) -> Iterator[Dataset]:
    """The captures of tests/traces, ingested. Not to be changed."""
    with ddnn_traces.open(once("sample", lambda path: _ingest_with_views(sample, path))) as dataset:
        yield dataset


@pytest.fixture(scope="session")
def full_dataset(once: Once) -> Iterator[Dataset]:
    """The full captures, ingested, for tests that are marked needs_full_captures. Not to be changed."""
    with ddnn_traces.open(once("full", lambda path: _ingest_with_views(FULL, path))) as dataset:
        yield dataset


_REPLACE_VIEWS = views.replace_views


def _ingest_with_views(captures: Path, dataset: Path) -> None:
    """Also where a test makes the dataset by getfixturevalue(), in which no_traces_duckdb is in force already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(views, "replace_views", _REPLACE_VIEWS)
        ddnn_traces.ingest(captures, dataset).close()


@pytest.fixture(autouse=True)
def no_traces_duckdb(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing traces.duckdb takes most of the time of a small ingest: only tests marked `views` and processes do it."""
    if request.node.get_closest_marker("views") is None:
        monkeypatch.setattr(views, "replace_views", lambda *_: None)


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wait for the disk: only a loss of power shows the difference (tests/power.py). Processes do wait."""
    monkeypatch.setattr(whole_files, "sync", lambda _: None)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunCommand:
    """Runs the command line in this process, in tmp_path; an exception that is not handled fails the test."""

    def run(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            return run_here(*arguments, stdin=stdin)

    return run


@pytest.fixture
def process(tmp_path: Path) -> RunCommand:
    """As `command`, in a process of its own; no traceback may ever come out of it."""

    def run(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run([*COMMAND, *map(str, arguments)], cwd=tmp_path, input=stdin, capture_output=True)
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    return run
