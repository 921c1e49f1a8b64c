"""How many jobs run at once."""

from __future__ import annotations

import os


def available_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))
