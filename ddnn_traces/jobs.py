"""How many jobs run at once, and that a Ctrl-C ends them and the wait for them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


def available_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


@contextmanager
def thread_pool(jobs: int, name: str = "", stop: Callable[[], None] = lambda: None) -> Iterator[ThreadPoolExecutor]:
    """Threads. Where the block fails, also by a Ctrl-C, `stop` is called, and no call that still waits begins.

    jobs: calls at once. stop: tells the calls that run to end.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(jobs, name) as threads:
        try:
            yield threads
        except BaseException:
            stop()
            threads.shutdown(cancel_futures=True)
            raise


def end_waits_by_interrupts() -> None:
    """Let a Ctrl-C end a wait without a limit (for a lock, thread, process or key), whenever polars is imported.

    polars sets a handler of its own then, with SA_RESTART, under which such a wait goes on. Python's has no SA_RESTART.
    """
    if "polars" in sys.modules:
        signal.siginterrupt(signal.SIGINT, True)
    else:
        sys.meta_path.insert(0, _AfterPolars())


class _AfterPolars:
    """Import hook, since most modules that need polars import it, and it costs more than most commands take."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == "polars" else None
        if spec and spec.loader:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                signal.siginterrupt(signal.SIGINT, True)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
