"""Sweeps: every combination of a specification's lists, in parallel, resumed where it was interrupted."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TextIO

import polars as pl

from ddnn_traces.errors import DdnnTracesError, MissingExtra, UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.store.locking import hold
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import counted
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.table_writer import write_traffic

#: A line a finished cell, in the order in which they finish.
JOURNAL = "cells.jsonl"
CELLS = "cells.parquet"
DATASET = "dataset"
_MOST_CELLS = 1_000_000

#: The keys of a cell, or its measures.
Row = dict[str, Any]
#: Called with the numbers of finished and of all cells, and the seconds that the others may take.
Tell = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Simulation:
    """What a sweep does with each cell.

    measures: of a cell, called in another process. keys: that may be axes. columns: measures that a cell without them
    has, too, as null. block: cells that a process is given at a time. cost: of a cell, in any unit; the largest begin.
    is_kept: whether a cell that the journal has with these measures need not be simulated again. apart: whether a
    single process, too, is another one, which Ctrl-C ends with those that it started.
    """

    measures: Callable[[Row], Row]
    keys: specification.Keys
    columns: tuple[str, ...] = ()
    block: int = 1
    cost: Callable[[Row], float] = lambda _: 1.0
    is_kept: Callable[[Row, Row], bool] = lambda *_: True
    apart: bool = False


def _measures(cell: Row) -> Row:
    return simulator.summary(simulator.simulate(specification.job(cell)))


_COLUMNS = (
    "iteration_ms", "exposed_ms", "first_forward_ms", "sent_bytes", "samples_per_s", "aggregation_remaining_ms",
    "distribution_remaining_ms",
)  # fmt: skip
_SIMULATOR = Simulation(_measures, specification.KEYS, _COLUMNS, block=8)


def run(path: Path, out: Path, jobs: int | None, dataset: bool, messages: Messages) -> pl.DataFrame:
    """The sweep of a TOML file. dataset: whether each cell becomes a run of OUT/dataset, too. Errors as of sweep."""
    values = specification.read_file(path)
    specification.check_used(specification.cells(values))
    frame = sweep_and_say(values, out, jobs, messages)
    if dataset:
        runs = (simulator.simulate(specification.job(cell)) for cell in named(values, frame))
        write_traffic(out / DATASET, map(simulator.traffic, runs))
    return frame


def sweep_and_say(
    values: Mapping[str, Any], out: Path, jobs: int | None, messages: Messages, simulation: Simulation = _SIMULATOR
) -> pl.DataFrame:
    """As sweep, with messages of its progress and a warning of the cells that cannot be simulated."""
    messages.start_reading(None)

    def tell(done: int, cells: int, left_s: float) -> None:
        left = f", {left_s / 60:,.0f} min left" if left_s >= 90 else f", {left_s:.0f} s left" if left_s else ""
        messages.info(f"{done:,} of {cells:,} cells{left}")

    frame = sweep(values, out, jobs or os.cpu_count() or 1, tell, simulation)
    messages.end_reading()
    if failed := int(frame["error"].is_not_null().sum()):
        first = frame.filter(pl.col("error").is_not_null())["error"][0]
        messages.warn(f"{counted(failed, 'cell')} of {len(frame):,} cannot be simulated, the first: {first}")
    return frame


def named(
    values: Mapping[str, Any], frame: pl.DataFrame, keys: specification.Keys = specification.KEYS
) -> Iterator[Row]:
    """The cells that can be simulated, each with a name of its own: its values on the axes."""
    axes = specification.axes(values, keys)
    for cell, error in zip(specification.cells(values, keys), frame["error"], strict=True):
        if error is None:
            words = [f"{name}_{str(cell[name]).rsplit('/', 1)[-1].lower()}" for name in axes]
            yield cell | {"run_id": "-".join(words)}


def sweep(
    values: Mapping[str, Any],
    out: Path,
    jobs: int = 1,
    tell: Tell = lambda *_: None,
    simulation: Simulation = _SIMULATOR,
) -> pl.DataFrame:
    """Simulate each cell of a specification and write OUT/cells.parquet; return its rows, in the order of the axes.

    A row has the axes' values, the measures and error: why a cell cannot be simulated, null else. Cells that OUT has
    from an interrupted sweep are not simulated again. jobs: processes. Raises UsageError.
    """
    axes = specification.axes(values, simulation.keys)
    cells = list(specification.cells(values, simulation.keys))
    if len(cells) > _MOST_CELLS:
        raise UsageError(f"{len(cells):,} cells are more than {_MOST_CELLS:,}; give fewer values")
    out.mkdir(parents=True, exist_ok=True)
    if (out / JOURNAL).is_symlink():
        raise UsageError(f"{out / JOURNAL}: a link, and what it leads to is not appended to; remove it")
    with (out / JOURNAL).open("a", encoding="utf-8") as journal:
        hold(journal.fileno(), f"{out}: another sweep writes there; wait until it has ended, or choose another --out")
        done = _read_journal(out / JOURNAL)
        done = {key(cell): done[key(cell)] for cell in cells if key(cell) in done}
        done = {name: row for name, row in done.items() if simulation.is_kept(json.loads(name), row)}
        missing = {key(cell): cell for cell in cells if key(cell) not in done}
        done |= _finished(missing, len(cells), jobs, tell, simulation, journal)
    found = [{name: cell[name] for name in axes} | done[key(cell)] for cell in cells]
    frame = pl.DataFrame(found, infer_schema_length=None).select(pl.exclude("error"), pl.col("error").cast(pl.String))
    with whole_file(out / CELLS) as half_written:
        frame.write_parquet(half_written)
    return frame


def _finished(
    missing: Mapping[str, Row], number: int, jobs: int, tell: Tell, simulation: Simulation, journal: TextIO
) -> dict[str, Row]:
    """Simulate the missing ones of so many cells, write them into the journal; their rows by their keys."""
    found: dict[str, Row] = {}
    costs = {name: simulation.cost(cell) for name, cell in missing.items()}
    ordered = sorted(missing, key=costs.__getitem__, reverse=True)
    size = simulation.block
    blocks = [[missing[name] for name in ordered[i : i + size]] for i in range(0, len(ordered), size)]
    total = left = sum(costs.values())
    began = time.monotonic()
    # closed after any error, it ends its processes
    with contextlib.closing(_simulated(blocks, jobs, simulation)) as simulated:
        for rows in simulated:
            found |= rows
            journal.writelines(json.dumps(row) + "\n" for row in rows)
            journal.flush()
            left -= sum(costs[name] for name, _ in rows)
            speed = (total - left) / (time.monotonic() - began)
            is_last = len(found) == len(missing)
            tell(number - len(missing) + len(found), number, left / speed if speed and not is_last else 0.0)
    return found


def _simulated(
    blocks: list[list[Row]], jobs: int, simulation: Simulation
) -> Generator[list[tuple[str, Row]], None, None]:
    """The rows of each block, as they finish."""
    of_block = _Rows(simulation.measures, simulation.columns)
    if not blocks or (not simulation.apart and (jobs == 1 or len(blocks) < 2)):
        yield from map(of_block, blocks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
    is_over = context.Event()
    with ProcessPoolExecutor(min(jobs, len(blocks)), context, _begin, (is_over,)) as pool:
        before = multiprocessing.active_children()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # a Ctrl-C must not end one that begins
        # not concurrent.futures.wait: interrupted while it takes the locks of all futures, it keeps some for ever
        finished: SimpleQueue[Future[list[tuple[str, Row]]]] = SimpleQueue()
        for block in blocks:
            pool.submit(of_block, block).add_done_callback(finished.put)
        begun = [child.pid for child in multiprocessing.active_children() if child not in before and child.pid]
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            left = len(blocks)
            while left:
                try:  # with a pause: a signal that another thread receives wakes no wait
                    future = finished.get(timeout=0.5)
                except Empty:
                    continue
                left -= 1
                yield future.result()
        except BaseException:
            is_over.set()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            for group in begun:  # of one that was killed, what it had started
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)


#: In a process of a sweep: whether the sweep was interrupted.
_over = threading.Event()


def _begin(is_over: Event) -> None:
    """Make this process, and what it will start, a group, which a Ctrl-C in a terminal does not reach.

    When is_over is set, what it has started ends, and what it has still to do is left out. The group ends with the
    process that made this one. Killed, this one could leave half a message in the pool's pipe, for which that would
    wait for ever.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGUSR1, lambda *_: None)  # not SIG_IGN, which what it starts would have, too
    parent = multiprocessing.parent_process()

    def end_started() -> None:
        is_over.wait()
        _over.set()
        while True:  # it may be about to start something
            os.killpg(0, signal.SIGUSR1)
            time.sleep(0.2)

    def end_all() -> None:
        if parent:
            parent.join()
        os.killpg(0, signal.SIGKILL)

    for end in (end_started, end_all):
        threading.Thread(target=end, daemon=True).start()


@dataclass(frozen=True)
class _Rows:
    """Gives the rows of a block."""

    measures: Callable[[Row], Row]
    columns: tuple[str, ...]

    def __call__(self, block: list[Row]) -> list[tuple[str, Row]]:
        return [(key(cell), self._row(cell)) for cell in block if not _over.is_set()]

    def _row(self, cell: Row) -> Row:
        try:
            return self.measures(cell) | {"error": None}
        except MissingExtra:  # of all cells
            raise
        except DdnnTracesError as error:
            return dict.fromkeys(self.columns) | {"error": str(error)}


def key(cell: Mapping[str, Any]) -> str:
    """What a cell is known by in the journal."""
    return json.dumps(cell, sort_keys=True)


def _read_journal(path: Path) -> dict[str, Row]:
    """Finished cells by their keys; a last line that was cut by an interrupt is removed."""
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        os.truncate(path, len(whole.encode()))
    try:
        return dict(map(json.loads, whole.splitlines()))
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path}: is no journal of a sweep ({error}); choose another --out") from error
