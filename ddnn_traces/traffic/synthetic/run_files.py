"""What stands beside the captures in a run folder, as ingest reads it: run.toml, training logs, phases of the steps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any


def seconds(ns: int) -> str:
    """A time in ns as decimal unix seconds, exactly."""
    return f"{ns // 10**9}.{ns % 10**9:09d}"


def training_log(steps: Iterable[tuple[int, int, str, str]]) -> str:
    """train_history-WORKER.log of steps: epoch, end in ns, loss and accuracy as they are to be written."""
    rows = list(steps)
    lines = ["Type,ID,Timestamp,Loss,Accuracy"]
    for step, (row, following) in enumerate(pairwise([*rows, None])):
        assert row is not None
        epoch, end_ns, loss, accuracy = row
        lines.append(f"batch,{step},{seconds(end_ns)},{loss},{accuracy}")
        later = epoch + 1 if following is None else following[0]
        lines += [f"epoch,{ended},{seconds(end_ns)},{loss},{accuracy}" for ended in range(epoch, later)]
    return "\n".join([*lines, ""])


def phases(steps: Iterable[tuple[int, tuple[int, int, int, int]]]) -> str:
    """phases-WORKER.csv of steps: number, then begin, begin and end of communication, and end in ns."""
    rows = [",".join([str(step), *map(seconds, times)]) for step, times in steps]
    return "\n".join(["step,t_begin,t_comm_begin,t_comm_end,t_end", *rows, ""])


def run_toml(fields: Mapping[str, Any], hosts: Iterable[Mapping[str, Any]]) -> str:
    """run.toml of columns of `runs` and [[hosts]] entries; what is None is left out."""
    lines = [f"{name} = {_toml(value)}" for name, value in fields.items() if value is not None]
    for host in hosts:
        lines += ["", "[[hosts]]"]
        lines += [f"{name} = {_toml(value)}" for name, value in host.items() if value is not None]
    return "\n".join([*lines, ""])


def _toml(value: Any) -> str:
    """A value in TOML, whose basic strings are JSON's but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
