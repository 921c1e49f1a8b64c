"""Tasks in several threads: results in the order of the tasks, and an immediate end when one fails."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Self

from ddnn_traces.ingestors.schedule.tasks import ReadResult, ReadTask, read
from ddnn_traces.messages import Messages
from ddnn_traces.pcap.capture_facts import Progress

#: How long leaving waits for threads, s. One that is blocked in a read (of a pipe without a writer) cannot end and has
#: nothing to clean up.
_JOIN_SECONDS = 5.0
#: Results that wait for their turn, for each thread: a long task must not leave the others idle soon.
_AHEAD = 2


class Cancelled(BaseException):
    """Raised in a thread whose result is no longer needed. Not an Exception, so that no handler catches it."""


class Threads:
    """A Scheduler with `jobs` threads. A context manager: leaving it cancels what is not finished.

    With one job the tasks run in the caller's own thread, where a signal interrupts even a read.
    messages: receives the start, progress and end of each file. work: what is done with a task.
    """

    def __init__(self, jobs: int, messages: Messages, work: Callable[[ReadTask, Progress], ReadResult] = read) -> None:
        self._jobs = jobs
        self._messages = messages
        self._work = work
        self._tasks: SimpleQueue[tuple[Future[ReadResult], ReadTask] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._cancelled = threading.Event()
        self._first_error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancelled.set()
        for _thread in self._threads:
            self._tasks.put(None)
        end = time.monotonic() + _JOIN_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def results(self, tasks: Iterable[ReadTask]) -> Iterator[ReadResult]:
        """Results in the order of the tasks, of which only some are taken in advance.

        The first task that raises ends all, and its error is raised here. May be called again before it has ended: the
        other tasks come after those that wait already.
        """
        if self._jobs == 1:
            for task in tasks:
                yield self._run(task)
            return
        self._start_threads()
        waiting: deque[Future[ReadResult]] = deque()
        for task in tasks:
            future: Future[ReadResult] = Future()
            waiting.append(future)
            self._tasks.put((future, task))
            if len(waiting) >= _AHEAD * self._jobs:
                yield self._result(waiting.popleft())
        while waiting:
            yield self._result(waiting.popleft())

    def summarize(self) -> None:
        """As of Scheduler: the files' own lines say all."""

    def _start_threads(self) -> None:
        while len(self._threads) < self._jobs:
            # Daemons, since the interpreter would wait at its end for a thread that cannot end.
            thread = threading.Thread(target=self._serve, name=f"reader-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _result(self, future: Future[ReadResult]) -> ReadResult:
        try:
            return future.result()
        except BaseException:
            if self._first_error is not None:
                raise self._first_error from None
            raise

    def _serve(self) -> None:
        """In each thread: run tasks until there is none left."""
        while (item := self._tasks.get()) is not None:
            future, task = item
            try:
                self._checkpoint()
                result = self._run(task)
            except BaseException as error:
                if not isinstance(error, Cancelled) and self._first_error is None:
                    self._first_error = error
                self._cancelled.set()
                future.set_exception(error)
            else:
                future.set_result(result)

    def _run(self, task: ReadTask) -> ReadResult:
        self._messages.start_file(task.name)
        result = self._work(task, self._progress)
        self._messages.end_file(task.name)
        return result

    def _progress(self, size: int, packets: int) -> None:
        self._checkpoint()
        self._messages.advance(size, packets)

    def _checkpoint(self) -> None:
        """Raise Cancelled when the tasks are to end."""
        if self._cancelled.is_set():
            raise Cancelled
