"""Calls in several threads, results in the order of the calls, and an end at once when something goes wrong."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, Self, TypeVar

T = TypeVar("T")
Task = tuple[Future[T], Callable[[], T]]

#: How long leaving waits for threads, s. One that is blocked in a read (of a pipe that nobody writes) cannot end and
#: has nothing to clean up.
_JOIN_SECONDS = 5.0
#: Results that wait for their turn, for each thread: a long call must not leave the others idle soon.
_AHEAD = 2


class Cancelled(BaseException):
    """Raised by checkpoint() in a thread whose result nobody wants any more. No Exception: nobody may catch it."""


def available_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


class OrderedPool(Generic[T]):
    """Threads for calls that check in now and then. A context manager: leaving it cancels what is not done.

    With one job the calls run in the caller's own thread, where a signal interrupts even a read.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._tasks: SimpleQueue[Task[T] | None] = SimpleQueue()
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

    def checkpoint(self) -> None:
        """Called by the calls as often as they can: raises Cancelled when they are to end."""
        if self._cancelled.is_set():
            raise Cancelled

    def results(self, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
        """Results in the order of `calls`, of which only some are taken in advance.

        The first call that raises ends all, and its error is raised here.
        """
        if self._jobs == 1:
            for call in calls:
                yield call()
            return
        yield from self._threaded(calls)

    def _threaded(self, calls: Iterable[Callable[[], T]]) -> Iterator[T]:
        for number in range(self._jobs):
            # Daemons, since the interpreter would wait at its end for a thread that cannot end.
            thread = threading.Thread(target=self._work, name=f"reader-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()
        waiting: deque[Future[T]] = deque()
        for call in calls:
            future: Future[T] = Future()
            waiting.append(future)
            self._tasks.put((future, call))
            if len(waiting) >= _AHEAD * self._jobs:
                yield self._result(waiting.popleft())
        while waiting:
            yield self._result(waiting.popleft())

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except BaseException:
            if self._first_error is not None:
                raise self._first_error from None
            raise

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            future, call = task
            try:
                self.checkpoint()
                result = call()
            except BaseException as error:
                if not isinstance(error, Cancelled) and self._first_error is None:
                    self._first_error = error
                self._cancelled.set()
                future.set_exception(error)
            else:
                future.set_result(result)
