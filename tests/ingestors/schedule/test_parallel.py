"""Calls in threads: results in order, errors at once, nothing left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from ddnn_traces.ingestors.schedule.parallel import Cancelled, OrderedPool


def test_results_are_in_the_order_of_the_calls() -> None:
    """The first call ends last."""
    others = threading.Semaphore(0)

    def first() -> int:
        for _ in range(3):
            assert others.acquire(timeout=60)
        return 0

    def another(number: int) -> Callable[[], int]:
        return lambda: (others.release(), number)[1]

    with OrderedPool[int](2) as pool:
        assert list(pool.results([first, *(another(n) for n in range(1, 4))])) == [0, 1, 2, 3]


@pytest.mark.parametrize(("jobs", "most"), [(1, 1), (2, 4), (3, 6)])
def test_only_some_calls_are_taken_in_advance(jobs: int, most: int) -> None:
    taken = []

    def calls() -> Iterator[Callable[[], int]]:
        for number in range(100):
            taken.append(number)
            yield lambda: 0

    with OrderedPool[int](jobs) as pool:
        results = pool.results(calls())
        for count in range(1, 20):
            next(results)
            assert len(taken) <= count - 1 + most


def test_one_job_runs_in_the_callers_thread() -> None:
    with OrderedPool[str](1) as pool:
        assert list(pool.results([lambda: threading.current_thread().name])) == [threading.current_thread().name]


def test_first_error_ends_the_others_at_once() -> None:
    """The first call would never end by itself, and is the one that is waited for."""
    begun = threading.Event()

    with OrderedPool[int](2) as pool:

        def endless() -> int:
            begun.set()
            while True:
                pool.checkpoint()

        def failing() -> int:
            assert begun.wait(60)
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            list(pool.results([endless, failing]))


def test_leaving_ends_all_threads() -> None:
    begun = threading.Event()
    with pytest.raises(KeyboardInterrupt), OrderedPool[int](3) as pool:

        def endless() -> int:
            begun.set()
            while True:
                pool.checkpoint()

        next(pool.results([lambda: 1, endless, endless, endless, endless, endless, endless]))
        assert begun.wait(60)
        raise KeyboardInterrupt
    assert [thread for thread in threading.enumerate() if thread.name.startswith("reader-")] == []
    with pytest.raises(Cancelled):
        pool.checkpoint()
