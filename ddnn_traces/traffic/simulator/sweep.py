"""Sweeps: every combination of a specification's lists, in parallel, resumed where it was interrupted."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import polars as pl

from ddnn_traces.errors import DdnnTracesError, UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import counted
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.tables import write_traffic

#: A line a finished cell, in the order in which they finish.
JOURNAL = "cells.jsonl"
CELLS = "cells.parquet"
DATASET = "dataset"
_BLOCK = 8  # cells that a process is given at a time
_MOST_CELLS = 1_000_000


def run(path: Path, out: Path, jobs: int | None, dataset: bool, messages: Messages) -> pl.DataFrame:
    """The sweep of a TOML file. dataset: whether each cell becomes a run of OUT/dataset, too. Errors as of sweep."""
    values = specification.read_file(path)
    axes = specification.axes(values)
    messages.start_reading(None)

    def tell(done: int, cells: int) -> None:
        messages.info(f"{done:,} of {cells:,} cells")

    frame = sweep(values, out, jobs or os.cpu_count() or 1, tell)
    messages.end_reading()
    if failed := int(frame["error"].is_not_null().sum()):
        first = frame.filter(pl.col("error").is_not_null())["error"][0]
        messages.warn(f"{counted(failed, 'cell')} of {len(frame):,} cannot be simulated, the first: {first}")
    if dataset:
        runs = (simulator.simulate(specification.job(cell)) for cell in _named(values, axes, frame))
        write_traffic(out / DATASET, map(simulator.traffic, runs))
    return frame


def _named(values: Mapping[str, Any], axes: Mapping[str, Any], frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """The cells that can be simulated, each with a name of its own: its values on the axes."""
    for cell, error in zip(specification.cells(values), frame["error"], strict=True):
        if error is None:
            words = [f"{name}_{str(cell[name]).rsplit('/', 1)[-1].lower()}" for name in axes]
            yield cell | {"run_id": "-".join(words)}


def sweep(
    values: Mapping[str, Any], out: Path, jobs: int = 1, tell: Callable[[int, int], None] = lambda *_: None
) -> pl.DataFrame:
    """Simulate each cell of a specification and write OUT/cells.parquet; return its rows, in the order of the axes.

    A row has the axes' values, summary() and error: why a cell cannot be simulated, null else. Cells that OUT has from
    an interrupted sweep are not simulated again. jobs: processes. tell: called with finished and all cells.
    """
    axes = specification.axes(values)
    cells = list(specification.cells(values))
    if len(cells) > _MOST_CELLS:
        raise UsageError(f"{len(cells):,} cells are more than {_MOST_CELLS:,}; give fewer values")
    out.mkdir(parents=True, exist_ok=True)
    done = _read_journal(out / JOURNAL)
    missing = [cell for cell in cells if _key(cell) not in done]
    blocks = [missing[i : i + _BLOCK] for i in range(0, len(missing), _BLOCK)]
    with (out / JOURNAL).open("a", encoding="utf-8") as journal:
        for rows in _simulated(blocks, jobs):
            for key, row in rows:
                done[key] = row
                journal.write(json.dumps([key, row]) + "\n")
            journal.flush()
            tell(sum(_key(cell) in done for cell in cells), len(cells))
    rows = [{name: cell[name] for name in axes} | done[_key(cell)] for cell in cells]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    with whole_file(out / CELLS) as half_written:
        frame.write_parquet(half_written)
    return frame


def _simulated(blocks: list[list[dict[str, Any]]], jobs: int) -> Any:
    """The rows of each block, as they finish."""
    if jobs == 1 or len(blocks) < 2:
        yield from map(_rows, blocks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
    ignore = signal.signal, (signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C reaches all processes; this one ends the others
    with ProcessPoolExecutor(min(jobs, len(blocks)), context, *ignore) as pool:
        futures = [pool.submit(_rows, block) for block in blocks]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _rows(block: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [(_key(cell), _row(cell)) for cell in block]


def _row(cell: dict[str, Any]) -> dict[str, Any]:
    try:
        return simulator.summary(simulator.simulate(specification.job(cell))) | {"error": None}
    except DdnnTracesError as error:
        return dict.fromkeys(_COLUMNS) | {"error": str(error)}


_COLUMNS = (
    "iteration_ms", "exposed_ms", "first_forward_ms", "sent_bytes", "samples_per_s", "aggregation_remaining_ms",
    "distribution_remaining_ms",
)  # fmt: skip


def _key(cell: Mapping[str, Any]) -> str:
    return json.dumps(cell, sort_keys=True)


def _read_journal(path: Path) -> dict[str, dict[str, Any]]:
    """Finished cells by their keys; a last line that was cut by an interrupt is removed."""
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    try:
        return dict(map(json.loads, whole.splitlines()))
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: is no journal of a sweep ({error}); choose another --out") from error
