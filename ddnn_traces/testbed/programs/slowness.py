"""Sleep that a fault adds to the steps of this process, by the testbed's SLOWED: KIND STRENGTH_MS FROM TO EVERY.

TO is -1 where there is no end.
"""

from __future__ import annotations

import os
import time


def added_s(given: str, step: int) -> float:
    """Seconds that a step sleeps longer; given: SLOWED."""
    if not given:
        return 0.0
    kind, *numbers = given.split()
    strength_s, begin, end, every = float(numbers[0]) / 1e3, *map(int, numbers[1:])
    if step < begin or 0 <= end < step:
        return 0.0
    factor = {
        "slow_host": 1, "pause": step % every == 0, "growing": step - begin + 1, "late_start": step == 0,
    }[kind]  # fmt: skip
    return strength_s * factor


def sleep(step: int) -> None:
    """Sleep as long as the fault adds to this step."""
    time.sleep(added_s(os.environ.get("SLOWED", ""), step))
