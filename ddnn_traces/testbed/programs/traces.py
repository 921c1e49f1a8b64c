"""What PyTorch itself records of a run, beside the captures: its flight recorder and its profiler (Kineto).

docs/profilers.md lists how ingest takes these files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import torch

#: Collectives that the flight recorder keeps: all of a run of some hundred steps.
_ENTRIES = "20000"


def prepare(wanted: Collection[str]) -> None:
    """Turn the flight recorder on or off: before the process group is made."""
    os.environ["TORCH_FR_BUFFER_SIZE"] = _ENTRIES if "flight_recorder" in wanted else "0"


@contextlib.contextmanager
def recorded(wanted: Collection[str], out: Path, label: str) -> Iterator[Callable[[], object]]:
    """Record the training inside into files of `out`. Yields what is called after each step."""
    with contextlib.ExitStack() as stack:
        profiler = None
        if "kineto" in wanted:
            activities = [torch.profiler.ProfilerActivity.CPU]
            activities += [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
            always = torch.profiler.schedule(wait=0, warmup=0, active=1 << 30)  # with one, steps are marked
            profiler = stack.enter_context(
                torch.profiler.profile(activities=activities, schedule=always, record_shapes=True)
            )
        yield profiler.step if profiler else lambda: None
    if profiler:
        profiler.export_chrome_trace(str(out / f"kineto-{label}.json.gz"))
    if "flight_recorder" in wanted:
        from torch._C import _distributed_c10d as c10d

        dump = getattr(c10d, "_dump_fr_trace_json", None) or c10d._dump_nccl_trace_json
        (out / f"flight_recorder-{label}.json").write_bytes(dump())
