"""What may succeed the next time is tried again, later and later."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ddnn_traces.errors import PushError
from ddnn_traces.talk import Talk

_Result = TypeVar("_Result")

#: HTTP states after which the same request may succeed: too many requests, and a server that has trouble.
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class Transient(Exception):
    """A failure that may pass. wait_s: what the server asked for, s."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


@dataclass(frozen=True)
class Retry:
    """attempts in all; before the second one a pause of first_s, then each time twice as long, at most most_s."""

    attempts: int = 6
    first_s: float = 1.0
    most_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep

    def call(self, work: Callable[[], _Result], talk: Talk) -> _Result:
        """What `work` returns. Raises PushError when it raised Transient each time."""
        pause_s = self.first_s
        for attempt in range(1, self.attempts + 1):
            try:
                return work()
            except Transient as failure:
                if attempt == self.attempts:
                    raise PushError(
                        f"{failure}; tried {attempt} times; the same command goes on from here when that has passed"
                    ) from failure
                wait_s = min(self.most_s, pause_s if failure.wait_s is None else max(0.0, failure.wait_s))
                talk.say(f"{failure}; again in {wait_s:g} s")
                self.sleep(wait_s)
                pause_s *= 2
        raise AssertionError("attempts is at least 1")


def seconds(header: str | None) -> float | None:
    """A Retry-After header in seconds; None where there is none, or a date in it."""
    try:
        return float(header) if header else None
    except ValueError:
        return None
