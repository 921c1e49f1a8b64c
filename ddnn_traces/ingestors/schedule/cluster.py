"""Tasks on a Dask cluster: files as a whole, or parts of plain ones, which this process joins.

A task is a function of its arguments alone, so that it can be run again anywhere: after the loss of a worker, or of the
scheduler. What a run becomes is decided here, when the results of all its tasks are there; nothing is counted twice.

What a file's reading has written stays with its worker. It goes from there to the worker that ends the run (RunEnd), or
comes here where the run is not ended on a worker. If either is lost, Dask reads the file again.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import itertools
import logging
import platform
import re
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar
from urllib.parse import urlsplit

from ddnn_traces.errors import ClusterError, StorageError, UsageError, needs_extra
from ddnn_traces.ingestors.schedule.tasks import ReadResult, ReadTask, RunEnd, most_whole, read
from ddnn_traces.ingestors.schedule.threads import Threads
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import parts, streams
from ddnn_traces.pcap.capture_facts import SAMPLES, STDIN, Progress
from ddnn_traces.pcap.engines import ENGINES
from ddnn_traces.text import counted
from ddnn_traces.version import __version__

#: How often a task is run again before ingest ends with an error.
TRIES = 20
#: How long to wait for the scheduler: at the start, and when it is gone, s.
_CONNECT_S, _COME_BACK_S = 15.0, 300.0
#: How often it is looked whether there are workers, s.
_LOOK_S = 10.0
#: How often a worker reports its progress in a file, s.
_REPORT_S = 0.5
#: Tasks for each thread of a worker that are under way or wait there, so that none is idle.
_TASKS_A_THREAD = 4
#: Files of which this process joins the parts at once, and that are read at once as a whole.
_MOST_FILES, _MOST_WHOLE = 64, 2048
#: Bytes of what was read of a run that one worker may have to hold; more come here.
_MOST_HELD = 1 << 30
#: Results with files that come here at once: they are in memory then.
_AT_ONCE = 2

_LOCAL = "local:"
_ADDRESS = re.compile(r"local:[1-9][0-9]*|(tcp|tls|ws|wss|ucx)://[^/\s]+:[0-9]+")

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Done(Generic[_Result]):
    """What a worker returns: the function's result, where, in how many s, and what reading took."""

    result: _Result
    worker: str
    seconds: float
    cost: streams.Cost


def run(version: str, function: Callable[..., _Result], args: tuple[Any, ...]) -> Done[_Result]:
    """On a worker: call the function. Raises ClusterError where it has another version of this package."""
    from distributed import get_worker

    address = str(get_worker().address)
    if version != __version__:
        raise ClusterError(_other_version(address, __version__))
    begin = time.monotonic()
    with streams.measured() as cost:
        try:
            result = function(*args)
        except (StorageError, UsageError) as error:  # which may be so only there: credentials, network
            raise type(error)(f"worker {address}: {error}") from error
    if isinstance(result, Done):  # of another task
        return result
    return Done(result, address, time.monotonic() - begin, cost)


class ReportingProgress:
    """On a worker: the progress in a file, reported to the subscribers of a topic. number: of the file."""

    def __init__(self, topic: str, number: int) -> None:
        from distributed import get_worker

        self._worker, self._topic, self._number = get_worker(), topic, number
        self._bytes = self._packets = 0
        self._next = 0.0

    def __call__(self, size: int, packets: int) -> None:
        """As of capture_facts.Progress."""
        self._bytes += size
        self._packets += packets
        if (now := time.monotonic()) >= self._next:
            self._worker.log_event(self._topic, [self._number, self._bytes, self._packets])
            self._next = now + _REPORT_S


class ReportedProgress:
    """Here: the progress in a file. It never goes back, also where the file is read again after the loss of a worker.

    latest: bytes and packets of the file in a worker's last report.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._bytes = self._packets = 0
        self.latest = (0, 0)

    def show(self) -> None:
        """Go on to the latest."""
        size, packets = self.latest
        more, new = max(0, size - self._bytes), max(0, packets - self._packets)
        self._bytes += more
        self._packets += new
        self._progress(more, new)


def read_whole(task: ReadTask, topic: str, number: int) -> tuple[ReadResult, dict[str, bytes]]:
    """On a worker: read a file; with the files that the engine has written, by their names in ReadOptions.outputs.

    topic, number: as of ReportingProgress. Raises ClusterError.
    """
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as name:
        packets = Path(name, "packets") if task.options.packets else None
        options = replace(task.options, spill=Path(name, "cells"), packets=packets)
        if streams.is_local(task.path) and not task.path.exists():
            raise ClusterError(f"{task.path}: {platform.node()}, a worker, does not see this file; {_SHARE}")
        result = read(replace(task, options=options), ReportingProgress(topic, number))
        result.facts.cells = result.facts.trains = result.facts.packets = None
        return result, {output: path.read_bytes() for output, path in options.outputs.items() if path.exists()}


def without_files(done: Done[Any]) -> Done[Any]:
    """On a worker: of something small and files, which it holds, the first, and how many bytes the files are."""
    small, files = done.result
    if isinstance(small, ReadResult):
        small = replace(small, facts=replace(small.facts, samples=SAMPLES.empty_table()))
    return Done((small, sum(map(len, files.values()))), done.worker, done.seconds, done.cost)


def end_run(
    function: Callable[..., _Result], args: tuple[Any, ...], reads: Sequence[Done[tuple[ReadResult, dict[str, bytes]]]]
) -> _Result:
    """On a worker: what a RunEnd says."""
    return function(*args, [done.result for done in reads])


@dataclass(frozen=True)
class Read:
    """A file that was read. held: what a worker has of it, of so many bytes; None: all is here."""

    task: ReadTask
    result: ReadResult
    held: Call[tuple[ReadResult, dict[str, bytes]]] | None = None
    bytes: int = 0


_SHARE = "put it on a file system that all workers have, or on a store, and ingest its URL"


@dataclass
class Totals:
    """What the workers did. again: tasks that were run again."""

    tasks: int = 0
    again: int = 0
    busy_s: Counter[str] = field(default_factory=Counter)  # by worker
    cost: streams.Cost = field(default_factory=streams.Cost)


class Cluster:
    """A Scheduler on the Dask cluster at an address (tcp://HOST:PORT), or on N processes of this machine (local:N).

    A context manager: leaving it cancels what is not finished. files, total_bytes: what will be read. messages:
    receives the start, progress and end of each file, and a summary. Raises UsageError where there is no such
    scheduler, ClusterError where its workers cannot do the tasks, or a task failed too often.
    """

    most_flows = float("inf")

    def __init__(self, address: str, files: int, total_bytes: int, messages: Messages) -> None:
        with needs_extra("cluster"):
            import distributed
        self._distributed: Any = distributed
        if not _ADDRESS.fullmatch(address):
            raise _wrong_address(address)
        self._address, self._messages = address, messages
        self._most_files, self._bytes = files, total_bytes
        self._here: Any = None
        self._security: Any = None  # None: as Dask's configuration has it
        self._lock = threading.Lock()
        self._joining, self._coming = threading.Semaphore(_MOST_FILES), threading.Semaphore(_AT_ONCE)
        self._ended = False
        self._id, self._numbers = uuid.uuid4().hex, itertools.count()
        self._reported: dict[int, ReportedProgress] = {}
        self.totals = Totals()

    def __enter__(self) -> Self:
        for name in ("distributed", "distributed.client"):  # this process says itself what is lost
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if self._address.startswith(_LOCAL):
            # a certificate of this run, which its processes alone have: without it every user of this machine who
            # reached a port of Dask could run code as this one
            self._security = self._distributed.Security.temporary()
            with _interrupts_blocked(), _without_pages():
                self._here = self._distributed.LocalCluster(
                    protocol="tls://", security=self._security,
                    n_workers=int(self._address.removeprefix(_LOCAL)), threads_per_worker=1, processes=True,
                    dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
                    host="127.0.0.1", silence_logs=50,
                )  # fmt: skip
        else:
            _look_up(self._address)
        self._client = self._connected(_CONNECT_S)
        self._large = _large_tasks()
        try:
            self.workers = self._checked_workers()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self._begin = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended = True
        self._large.__exit__(kind, error, tb)
        with contextlib.suppress(Exception):
            for topic in self._topics:
                self._client.unsubscribe_topic(topic)
            self._client.close(timeout=5)
        if self._here is not None:
            with contextlib.suppress(Exception):
                self._here.close(timeout=10)

    @property
    def part_bytes(self) -> int:
        """Bytes of a part."""
        return parts.PARTS_OF_A_TASK * parts.PART_BYTES

    @property
    def ahead(self) -> int:
        """Parts of one file that should be under way."""
        return max(2, -(-_TASKS_A_THREAD * self.workers // min(self._files, _MOST_FILES)))

    @property
    def _topics(self) -> dict[str, Callable[[tuple[float, Any]], None]]:
        """What the scheduler tells this process of, and what is done then."""
        return {"all": self._note, f"progress-{self._id}": self._take_report}

    @property
    def _files(self) -> int:
        """Files that are read at once."""
        return max(1, min(self._most_files, 2 * self.workers, _MOST_WHOLE))

    def results(self, tasks: Iterable[ReadTask]) -> Iterator[ReadResult]:
        """As of Scheduler."""
        with Threads(self._files, self._messages, self._read) as threads:
            yield from threads.results(tasks)

    def _read(self, task: ReadTask, progress: Progress) -> ReadResult:
        """Read a file: its parts on the workers, or all of it on one."""
        if task.path == STDIN:
            raise UsageError("standard input is only here, not where the workers are; ingest it without --scheduler")
        read = self._read_in_parts(task, progress) or self._read_whole(task, progress)
        return self._end(task.end, read) if task.end else self._fetched([read])

    def _read_in_parts(self, task: ReadTask, progress: Progress) -> Read | None:
        """Read a file in parts; None where it is to be read as a whole."""
        most = most_whole(self._bytes, self.workers, task.options.hash)
        if not ENGINES[task.engine].is_cut(task.path, task.options, most):
            return None
        with self._joining:
            return Read(task, read(replace(task, options=replace(task.options, pool=self)), progress))

    def _read_whole(self, task: ReadTask, progress: Progress) -> Read:
        """Read a file on a worker, which keeps what the engine writes."""
        number, reported = next(self._numbers), ReportedProgress(progress)
        self._reported[number] = reported
        sent = replace(task, options=replace(task.options, jobs=1), end=None)
        held: Call[Any] = Call(self, read_whole, (sent, f"progress-{self._id}", number), counts=False)
        small: Call[tuple[ReadResult, int]] = Call(self, without_files, (held,), reported.show)
        result, size = small.result()
        del self._reported[number]
        reported.latest = (result.facts.file_bytes, result.facts.records)
        reported.show()
        return Read(task, result, held, size)

    def _end(self, end: RunEnd, read: Read) -> ReadResult:
        """The result of one file of a run. After the last one, the run is ended on a worker where it can be."""
        with self._lock:
            end.reads.append(read)
            if len(end.reads) < end.files:
                return read.result
            reads, end.reads = end.reads, []
        held = [one.held for one in reads]
        if None in held or sum(one.bytes for one in reads) > _MOST_HELD:
            return self._fetched(reads)
        # before files of other runs, so that what is held of this one can go
        ended: Call[Any] = Call(self, end_run, (end.function, end.args, held), counts=False, priority=1)
        small: Call[Any] = Call(self, without_files, (ended,), counts=False, priority=1)
        small.result()
        with self._coming:
            said, files = ended.result()
            end.folder.mkdir(exist_ok=True)
            for name, content in files.items():
                (end.folder / name).write_bytes(content)
        return replace(read.result, ended=said)

    def _fetched(self, reads: Sequence[Read]) -> ReadResult:
        """The result of the last file; what workers hold of the files comes here."""
        for one in reads:
            if one.held:
                with self._coming:
                    whole, outputs = one.held.result()
                    one.result.facts.samples = whole.facts.samples
                    one.result.facts.put(outputs, one.task.options.outputs)
        return reads[-1].result

    def _take_report(self, event: tuple[float, Any]) -> None:
        """Keep a worker's report, as ReportingProgress sends it."""
        number, size, packets = event[1]
        if reported := self._reported.get(number):
            reported.latest = (size, packets)  # shown by the thread that waits: this one is Dask's

    # --- calls

    def submit(
        self, function: Callable[_Arguments, _Result], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Call[_Result]:
        """As of capture_facts.Pool."""
        assert not kwargs
        return Call(self, function, args)

    def start(self, call: Call[Any], client: Any = None) -> tuple[Any, Any]:
        """The client, and its future of a call; None where the scheduler is gone."""
        client = client or self._client
        # named by its function: Dask knows then how long others of its kind took, and its dashboard shows what runs
        name = f"{call.function.__name__}-{self._id}-{next(self._numbers)}"
        try:
            args = tuple(_with_futures(arg, client) for arg in call.args)
            future = client.submit(run, __version__, call.function, args, key=name, pure=False, priority=call.priority)
            return client, future
        except self._of_cluster:
            return client, None

    def wait(self, call: Call[Any], client: Any, future: Any) -> Any:
        """The result of a call, or None where it has to be made again. Raises ClusterError."""
        try:
            done = self._result(call, client, future)
        except ModuleNotFoundError as error:
            raise ClusterError(f"a worker has no module {error.name}; {_INSTALL}") from error
        except self._of_cluster as error:
            if self._ended:
                raise
            self._make_again(call, error)
            self._reconnect(client)
            return None
        if call.counts:
            with self._lock:
                self.totals.tasks += 1
                self.totals.busy_s[done.worker] += done.seconds
                self.totals.cost.add(done.cost)
        return done

    def _result(self, call: Call[Any], client: Any, future: Any) -> Any:
        """The future's result. Raises ClusterError where there is no worker for too long."""
        self._await(call, client, future)
        try:
            # never a short time: all threads fetch results together, and one that gives up ends it for the others
            return future.result(timeout=_COME_BACK_S)
        except UnboundLocalError as error:  # which Dask raises in those others (its issue 8514)
            raise TimeoutError from error

    def _await(self, call: Call[Any], client: Any, future: Any) -> None:
        """Return when the future is done or lost."""
        if future is None:
            raise ConnectionError("the scheduler is gone")
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        alone_since: float | None = None
        look = time.monotonic() + _LOOK_S
        while not done.wait(_REPORT_S):
            if client.status != "running":
                raise ConnectionError("the scheduler is gone")
            call.meanwhile()
            if time.monotonic() < look:
                continue
            look = time.monotonic() + _LOOK_S
            if client.nthreads():
                alone_since = None
            elif alone_since is None:
                alone_since = time.monotonic()
                self._messages.info(f"{self._address}: all workers are gone, waiting for others")
            elif time.monotonic() - alone_since > _COME_BACK_S:
                raise ClusterError(
                    f"{self._address}: has had no worker for {_COME_BACK_S:.0f} s; look at the workers' logs, start "
                    f"some ('dask worker {self._address}') and ingest again"
                )

    @property
    def _of_cluster(self) -> tuple[type[BaseException], ...]:
        """Errors of a lost worker, connection or scheduler, not of the task."""
        import concurrent.futures

        names = self._distributed
        return (
            names.KilledWorker, names.comm.CommClosedError, names.client.FuturesCancelledError,
            names.client.ClosedClientError,
            concurrent.futures.CancelledError, TimeoutError, ConnectionError, RuntimeError,
        )  # fmt: skip

    def count_again(self) -> None:
        """Count a task that is run again."""
        with self._lock:
            self.totals.again += 1

    def _make_again(self, call: Call[Any], error: BaseException) -> None:
        """Raise ClusterError where a call was lost too often."""
        call.tries += 1
        self.count_again()
        if call.tries > TRIES:
            reason = (str(error).splitlines() or [""])[0] or type(error).__name__
            raise ClusterError(
                f"{self._address}: a task was lost {call.tries} times, at last with: {reason[:200]}; look at the "
                "workers' logs (not enough memory?); what was finished is in the dataset, ingest again for the others"
            ) from error

    def _note(self, event: tuple[float, Any]) -> None:
        """Count the tasks of a worker that is gone: the scheduler gives them to others by itself."""
        message = event[1]
        if isinstance(message, dict) and message.get("action") == "remove-worker":
            lost = {*message["processing-tasks"], *message["lost-computed-tasks"]}
            with self._lock:
                self.totals.again += sum(self._id in str(key) for key in lost)

    def _reconnect(self, lost: Any) -> None:
        """Get a new client where the one of the lost call has no scheduler any more."""
        with self._lock:
            if self._client is not lost or lost.status == "running":
                return
            with contextlib.suppress(Exception):
                lost.close(timeout=1)
            minutes = f"{_COME_BACK_S / 60:.0f} minutes"
            self._messages.info(
                f"{self._address}: the scheduler is gone, waiting for it to come back, for at most {minutes}"
            )
            self._client = self._connected(_COME_BACK_S)

    # --- the cluster

    def _connected(self, seconds: float) -> Any:
        """A client. Raises ClusterError where no scheduler answers in that time."""
        address = self._address if self._here is None else self._here.scheduler_address
        try:
            end = time.monotonic() + seconds
            while True:
                try:
                    client = self._distributed.Client(
                        address, timeout=max(1.0, min(end - time.monotonic(), 5.0)), set_as_default=False,
                        security=self._security,
                    )  # fmt: skip
                    for topic, handler in self._topics.items():
                        client.subscribe_topic(topic, handler)
                    return client
                except (OSError, TimeoutError):
                    if self._ended or time.monotonic() >= end:
                        raise
        except Exception as error:  # of another server, which does not speak as Dask does, also MemoryError and others
            raise ClusterError(
                f"{self._address}: no Dask scheduler answers there; start one ('dask scheduler'), or correct the "
                "address"
            ) from error

    def _checked_workers(self) -> int:
        """Number of threads of all workers. Raises ClusterError where one of them cannot do the tasks."""
        with contextlib.suppress(TimeoutError, self._distributed.TimeoutError):
            self._client.wait_for_workers(1, timeout=_CONNECT_S)
        threads = int(sum(self._client.nthreads().values()))
        if not threads:
            raise ClusterError(f"{self._address}: has no worker; start some ('dask worker {self._address}')")
        for address, python in self._on_workers(platform.python_version):
            if python.split(".")[:2] != platform.python_version().split(".")[:2]:
                raise ClusterError(
                    f"worker {address} has Python {python}, this is {platform.python_version()}; use one minor version"
                )
        for address, module in self._on_workers(importlib.import_module, "ddnn_traces.version"):
            if isinstance(module, ImportError):
                raise ClusterError(f"worker {address} has no ddnn-traces; {_INSTALL}")
        for address, version in self._on_workers(importlib.metadata.version, "ddnn-traces"):
            if isinstance(version, importlib.metadata.PackageNotFoundError):
                raise ClusterError(f"worker {address} has no ddnn-traces; {_INSTALL}")
            if version != __version__:
                raise ClusterError(_other_version(address, version))
        return threads

    def _on_workers(self, function: Callable[..., Any], *args: Any) -> list[tuple[str, Any]]:
        """What each worker returns or raises, by its address; not of those that are lost meanwhile."""
        found = self._client.run(function, *args, on_error="return")
        return [(address, value) for address, value in sorted(found.items()) if not isinstance(value, OSError)]

    def summarize(self) -> None:
        """One line about the workers."""
        totals, seconds = self.totals, time.monotonic() - self._begin
        busy = sum(totals.busy_s.values())
        if not totals.tasks or not busy:
            return
        waited, span = min(totals.cost.waited_s, busy), max(seconds * self.workers, busy)
        repeated = f", {counted(totals.cost.repeated, 'request')} to the store repeated" * bool(totals.cost.repeated)
        self._messages.info(
            f"cluster: {counted(totals.tasks, 'task')} by {counted(len(totals.busy_s), 'worker')}, "
            f"{totals.cost.bytes / 1e9:,.2f} GB at {totals.cost.bytes / busy / 1e6:,.0f} MB/s a worker; of their time "
            f"{waited / span:.0%} waiting for the files, {(busy - waited) / span:.0%} packet loop, "
            f"{max(0.0, 1 - busy / span):.0%} without a task (start, merge, end); "
            f"{counted(totals.again, 'task')} run again{repeated}"
        )


class Call(Generic[_Result]):
    """A call on the cluster, which is made again where it is lost.

    args: may hold other calls, whose results (Done) then go from worker to worker. meanwhile: called while it is waited
    for. counts: whether it is one of the summary's tasks. priority: the higher ones go first.
    """

    def __init__(
        self,
        cluster: Cluster,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        meanwhile: Callable[[], None] = lambda: None,
        counts: bool = True,
        priority: int = 0,
    ) -> None:
        self._cluster, self.function, self.args = cluster, function, args
        self.meanwhile, self.counts, self.priority = meanwhile, counts, priority
        self.tries = 0
        self._client, self._future = cluster.start(self)

    def result(self) -> _Result:
        """Wait for it. Raises what the function raised, ClusterError where it was lost too often."""
        while (done := self._cluster.wait(self, self._client, self._future)) is None:
            self._client, self._future = self._cluster.start(self)
        result: _Result = done.result
        return result

    def future(self, client: Any) -> Any:
        """Its future of this client; where there is none, or it was lost too often, that of a new call."""
        if self._client is not client or self._future is None or self._future.status not in ("pending", "finished"):
            self._cluster.count_again()
            self._client, self._future = self._cluster.start(self, client)
        if self._future is None:
            raise ConnectionError("the scheduler is gone")
        return self._future


def _with_futures(args: Any, client: Any) -> Any:
    """Arguments with the futures of calls in place of these."""
    if isinstance(args, Call):
        return args.future(client)
    return [_with_futures(arg, client) for arg in args] if isinstance(args, list) else args


_INSTALL = f"install it there: pip install 'ddnn-traces[cluster]=={__version__}'"


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes that start within, and theirs, do not receive the Ctrl-C of a terminal: this one ends them."""
    if threading.current_thread() is not threading.main_thread():  # which alone receives it
        yield
        return
    resource_tracker.ensure_running()  # which would allow the signal again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _without_pages() -> contextlib.AbstractContextManager[Any]:
    """Dask's HTTP servers, which ask nobody for a certificate, have no pages: other users would read what runs."""
    import dask

    pages: dict[str, list[str]] = {f"distributed.{of}.http.routes": [] for of in ("scheduler", "worker")}
    found: contextlib.AbstractContextManager[Any] = dask.config.set(pages)
    return found


def _large_tasks() -> contextlib.AbstractContextManager[Any]:
    """From now on, Dask does not warn of a task above 10 MB: a run's logs may be larger."""
    import dask

    found: contextlib.AbstractContextManager[Any]
    found = dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})
    return found


def _look_up(address: str) -> None:
    """Raise UsageError or ClusterError where the address of a scheduler has an impossible port or an unknown host."""
    try:
        _ = urlsplit(address).port
    except ValueError as error:
        raise _wrong_address(address) from error
    if address.startswith("tls:"):
        from distributed.security import Security

        configured: Any = Security
        if not configured().get_connection_args("client").get("ssl_context"):
            raise UsageError(f"{address}: needs certificates; name them in Dask's configuration (distributed.comm.tls)")
    try:
        socket.getaddrinfo(urlsplit(address).hostname, None)
    except OSError as error:
        raise ClusterError(f"{address}: there is no such host; correct the address") from error


def _other_version(address: str, version: str) -> str:
    return f"worker {address} has ddnn-traces {version}, this is {__version__}; install one version everywhere"


def _wrong_address(address: str) -> UsageError:
    return UsageError(
        f"--scheduler {address}: must be the address of a Dask scheduler, like tcp://HOST:8786, or local:N for N "
        "processes of this machine"
    )
