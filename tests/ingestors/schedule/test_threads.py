"""Tasks in threads: results in order, errors at once, no thread left running.

A task here is a function that takes the progress callback, and its result a value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ddnn_traces.ingestors.schedule.threads import Cancelled, Threads
from ddnn_traces.messages import Messages
from ddnn_traces.pcap.capture_facts import Progress

Function = Callable[[Progress], Any]


def task(function: Function) -> SimpleNamespace:
    return SimpleNamespace(name="task", function=function)


def threads(jobs: int, messages: Messages | None = None) -> Threads:
    return Threads(jobs, messages or Messages(), lambda task, progress: task.function(progress))


def value(result: Any) -> SimpleNamespace:
    return task(lambda _: result)


def test_results_are_in_the_order_of_the_tasks() -> None:
    """The first task ends last."""
    others = threading.Semaphore(0)

    def first(_: Progress) -> int:
        for _number in range(3):
            assert others.acquire(timeout=60)
        return 0

    def another(number: int) -> SimpleNamespace:
        return task(lambda _: (others.release(), number)[1])

    with threads(2) as pool:
        assert list(pool.results([task(first), *(another(n) for n in range(1, 4))])) == [0, 1, 2, 3]


@pytest.mark.parametrize(("jobs", "most"), [(1, 1), (2, 4), (3, 6)])
def test_only_some_tasks_are_taken_in_advance(jobs: int, most: int) -> None:
    taken = []

    def tasks() -> Iterator[SimpleNamespace]:
        for number in range(100):
            taken.append(number)
            yield value(0)

    with threads(jobs) as pool:
        results = pool.results(tasks())
        for count in range(1, 20):
            next(results)
            assert len(taken) <= count - 1 + most


def test_one_job_runs_in_the_callers_thread() -> None:
    with threads(1) as pool:
        assert list(pool.results([task(lambda _: threading.current_thread().name)])) == [
            threading.current_thread().name
        ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_more_tasks_while_others_are_not_finished(jobs: int) -> None:
    """As when a run's files are read again while those of the next run are being read."""
    with threads(jobs) as pool:
        outer = pool.results(value(number) for number in range(10))
        got: list[Any] = []
        for number in outer:
            got.append([number, *pool.results(value(f"{number}{letter}") for letter in "ab")])
    assert got == [[number, f"{number}a", f"{number}b"] for number in range(10)]


def test_begin_progress_and_end_of_each_task_are_reported() -> None:
    class Heard(Messages):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[tuple[Any, ...]] = []

        def start_file(self, name: str) -> None:
            self.calls.append(("start", name))

        def advance(self, size: int, packets: int) -> None:
            self.calls.append(("advance", size, packets))

        def end_file(self, name: str) -> None:
            self.calls.append(("end", name))

    messages = Heard()
    with threads(1, messages) as pool:
        list(pool.results([task(lambda progress: progress(100, 2))]))
    assert messages.calls == [("start", "task"), ("advance", 100, 2), ("end", "task")]


def test_first_error_ends_the_others_at_once() -> None:
    """The first task would never end by itself, and its result is the one that is waited for."""
    begun = threading.Event()

    def endless(progress: Progress) -> None:
        begun.set()
        while True:
            progress(0, 0)

    def failing(_: Progress) -> None:
        assert begun.wait(60)
        raise ValueError("broken")

    with threads(2) as pool, pytest.raises(ValueError, match="broken"):
        list(pool.results([task(endless), task(failing)]))


def test_leaving_ends_all_threads() -> None:
    begun = threading.Event()
    ended = threading.Semaphore(0)

    def endless(progress: Progress) -> None:
        begun.set()
        try:
            while True:
                progress(0, 0)
        except Cancelled:
            ended.release()
            raise

    with pytest.raises(KeyboardInterrupt), threads(3) as pool:
        next(pool.results([value(1), *[task(endless)] * 6]))
        assert begun.wait(60)
        raise KeyboardInterrupt
    assert [thread for thread in threading.enumerate() if thread.name.startswith("reader-")] == []
    assert ended.acquire(blocking=False)
