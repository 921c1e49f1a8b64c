"""Threads end where what they work for ends."""

from __future__ import annotations

import threading

import pytest

from ddnn_traces.jobs import thread_pool


def test_an_interrupt_ends_calls_and_no_other_begins() -> None:
    begun: list[int] = []
    running, stopped = threading.Event(), threading.Event()

    def call(number: int) -> None:
        begun.append(number)
        running.set()
        while not (stopped.is_set() and waiting.cancelled()):
            stopped.wait()

    with pytest.raises(KeyboardInterrupt), thread_pool(1, stop=stopped.set) as threads:
        threads.submit(call, 0)
        waiting = threads.submit(call, 1)
        running.wait()
        raise KeyboardInterrupt
    assert begun == [0]


def test_a_block_that_ends_waits_for_its_calls() -> None:
    with thread_pool(2, stop=lambda: pytest.fail("nothing failed")) as threads:
        calls = [threads.submit(abs, -number) for number in range(3)]
    assert [call.result() for call in calls] == [0, 1, 2]
