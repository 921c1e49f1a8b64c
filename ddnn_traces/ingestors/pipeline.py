"""Ingest, end to end: find runs, read those that changed, build their tables, put the dataset in place."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ddnn_traces.errors import CaptureError, LedgerError, StorageError, UsageError
from ddnn_traces.ingestors import inputs
from ddnn_traces.ingestors.facts import ReadOptions
from ddnn_traces.ingestors.flow_filter import FlowFilter, parse
from ddnn_traces.ingestors.inputs import INPUTS, FileState, RunRecord
from ddnn_traces.ingestors.metadata import RunMetadata, read_metadata
from ddnn_traces.ingestors.reconcile.tables import RunFacts, RunTables
from ddnn_traces.ingestors.schedule.parallel import available_cpus
from ddnn_traces.ingestors.schedule.reading import ReadPlan, read_runs
from ddnn_traces.ingestors.sources import RunInput, find_runs, rename_run
from ddnn_traces.query import views
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.whole_files import NO_SPACE
from ddnn_traces.store.writer import DatasetWriter
from ddnn_traces.talk import Talk

#: Modules with a read_capture; imported when used, since each brings a heavy library.
ENGINES = {
    "numba": "ddnn_traces.ingestors.packets.numba_engine",
    "pyshark": "ddnn_traces.ingestors.tshark.pyshark_engine",
}
DEFAULT_ENGINE = "numba"
TUNNELS = ("inner", "outer")
CLOCK_OFFSETS = ("auto", "none", "offer")

#: Finished runs are put in place when this many seconds have passed since the last time,
COMMIT_SECONDS = 2.0
#: and this many times what the last time took: a dataset of thousands of runs has as many links to make.
_COMMIT_SHARE = 20.0


@dataclass(frozen=True)
class IngestOptions:
    """How to ingest.

    engine: numba (fast) or pyshark (tshark's dissectors). window_ms: base window of flow_windows, ms. sha256: whether
    the captures are hashed. jobs: threads; None: one a CPU. force: read runs again that have not changed. wait: for
    another ingest into the same dataset, instead of raising BusyError. tunnels: whether a flow is what is inside a
    tunnel or the tunnel. packets: whether every packet becomes a row of `packets`. filter: capture-filter expression
    for flows (flow_filter.py). clock_offset: seconds that are added to the
    logs' times, auto: as many as line them up with the traffic, none,
    or offer: none, with a warning when they do not line up. run_id:
    name of the only run.
    """

    engine: str = DEFAULT_ENGINE
    window_ms: float = 1.0
    sha256: bool = True
    jobs: int | None = None
    force: bool = False
    wait: bool = True
    tunnels: str = "inner"
    packets: bool = False
    filter: str | None = None
    clock_offset: str | float = "offer"
    run_id: str | None = None

    @property
    def window_ns(self) -> int:
        """Base window in ns. Raises UsageError when that is no length of time."""
        window_ns = round(self.window_ms * 1_000_000) if math.isfinite(self.window_ms) else 0
        if not 1 <= window_ns < 2**63:
            raise UsageError(f"a window of {self.window_ms} ms is no length of time from 1 ns up; try --window-ms 1")
        return window_ns

    @property
    def parameters(self) -> dict[str, Any]:
        """What shapes the tables, for the provenance. The filter as it was written."""
        return {
            "engine": self.engine,
            "window_ns": self.window_ns,
            "tunnels": self.tunnels,
            "packets": self.packets,
            "filter": self.filter,
            "clock_offset": self.clock_offset,
        }

    def check(self) -> None:
        """Raise UsageError for a value that is none."""
        if self.engine not in ENGINES:
            raise UsageError(f"no engine named {self.engine}; there are {', '.join(ENGINES)}")
        if self.jobs is not None and self.jobs < 1:
            raise UsageError(f"--jobs {self.jobs} is no number of threads; give 1 or more")
        if self.tunnels not in TUNNELS:
            raise UsageError(f"--tunnels {self.tunnels}: it is one of {', '.join(TUNNELS)}")
        if isinstance(self.clock_offset, str):
            if self.clock_offset not in CLOCK_OFFSETS:
                raise UsageError(f"--clock-offset {self.clock_offset}: it is auto, none or a number of seconds")
        elif not math.isfinite(self.clock_offset) or abs(self.clock_offset) >= 2**33:
            raise UsageError(f"--clock-offset {self.clock_offset}: no such number of seconds fits into 64 bits of ns")


@dataclass(frozen=True)
class _Planned:
    """A run that was found, and what it is before it is read."""

    run: RunInput
    metadata: RunMetadata
    record: RunRecord


def ingest(sources: list[str], out: Path, options: IngestOptions | None = None, talk: Talk | None = None) -> list[str]:
    """Read captures and logs into the dataset at `out`; return the run_ids that were written.

    sources: files, globs, folders, folders of run folders, - for standard input. A run whose inputs and parameters are
    those of the run in the dataset is not read again. Runs of the dataset that are not among the sources stay as they
    are. Every few seconds the finished runs are put in place, so each run is the old or the new one at every instant.
    What is partial is marked in the dataset and told to `talk`. Raises UsageError for a wrong call, BusyError,
    CaptureError when no run could be read, LedgerError when records are missing from the ledger, StorageError when
    there is no room.
    """
    options, talk = options or IngestOptions(), talk or Talk()
    options.check()
    flow_filter = parse(options.filter) if options.filter is not None else None
    planned = _plan(sources, options)  # mistakes in metadata show before hours of reading
    with _errors_told(out), DatasetWriter(out, options.wait, talk.say) as writer:
        if writer.waited:
            planned = _plan(sources, options)
        _Ingest(writer, options, flow_filter, talk).run(planned, sources)
        return writer.written


def _plan(sources: list[str], options: IngestOptions) -> list[_Planned]:
    runs = find_runs(sources)
    if options.run_id is not None:
        runs = rename_run(runs, options.run_id)
    planned = []
    for run in runs:
        files = inputs.look_at(run)  # before anything of it is read: a later change is noticed
        metadata = read_metadata(run.folder)
        parameters = inputs.run_parameters(options.parameters | {"sha256": options.sha256}, metadata)
        planned.append(_Planned(run, metadata, RunRecord(parameters, files)))
    return planned


@contextlib.contextmanager
def _errors_told(out: Path) -> Iterator[None]:
    """Errors of writing in words. The writer has discarded what was unfinished."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise _no_room(out, error.strerror or str(error)) from error


def _no_room(out: Path, reason: str) -> StorageError:
    return StorageError(
        f"{out.resolve().parent}: no room to write ({reason}); {out} holds what was finished before; free some space "
        "there and ingest again"
    )


class _Ingest:
    """One ingest into a dataset that nobody else writes."""

    def __init__(
        self, writer: DatasetWriter, options: IngestOptions, flow_filter: FlowFilter | None, talk: Talk
    ) -> None:
        self._writer = writer
        self._options = options
        self._flow_filter = flow_filter
        self._talk = talk
        self._records = inputs.read_inputs(writer.out)
        self._put_in_place = time.monotonic()
        self._last_cost = 0.0

    def run(self, planned: list[_Planned], sources: list[str]) -> None:
        todo = [plan for plan in planned if not self._is_unchanged(plan)]
        try:
            replaced = self._read(todo) if todo else 0
        except KeyboardInterrupt:
            if not self._writer.committed:
                raise
            raise KeyboardInterrupt(
                f"interrupted; the {self._writer.committed} runs that were finished are in the dataset, ingest again "
                "for the others"
            ) from None
        finally:
            self._talk.end_files()
        written, unchanged = len(self._writer.written), len(planned) - len(todo)
        if not written and not unchanged:
            raise CaptureError(f"no run could be read from {', '.join(sources)}; {self._writer.name} is as it was")
        self._finish()
        told = f", {replaced} of them in place of an older one of that name" if replaced else ""
        told += f", {unchanged} unchanged" if unchanged else ""
        self._talk.say(f"{self._writer.name}: {written} {'run' if written == 1 else 'runs'} written{told}")

    # --- unchanged runs

    def _is_unchanged(self, plan: _Planned) -> bool:
        """Whether the run need not be read; then its warnings are told again, since they still hold."""
        run_id = plan.run.run_id
        old = self._records.get(run_id)
        if self._options.force or old is None or not partition(self._writer.out, "runs", run_id).is_dir():
            return False
        same = inputs.unchanged(old, plan.run, plan.record)
        if same is None:
            return False
        self._records[run_id] = same
        self._talk.say(f"run {run_id}: unchanged, not read again")
        for warning in same.warnings:
            self._talk.warn(f"run {run_id}: {warning}")
        return True

    def _finish(self) -> None:
        """Put in place what is not yet; only times of files may be left to note."""
        text = inputs.inputs_text(self._present())
        if self._writer.uncommitted:
            self._writer.commit({INPUTS: text})
        elif self._present() != inputs.read_inputs(self._writer.out):
            self._writer.replace_file(INPUTS, text)
        views.replace_views(self._writer.out, self._writer.out / views.FILE, self._writer.partial)

    def _present(self) -> dict[str, RunRecord]:
        """Records of the runs that are, or are about to be, in the dataset."""
        return {run_id: record for run_id, record in self._records.items() if self._writer.has_run(run_id)}

    # --- reading and writing

    def _read(self, todo: list[_Planned]) -> int:
        """Read and write the runs; return how many of them take the place of an older one."""
        replaced = 0
        runs = [(plan.run, plan.metadata) for plan in todo]
        warned = len(self._talk.warnings)
        with contextlib.closing(read_runs(runs, self._read_plan(), self._talk)) as read:
            for plan, facts in zip(todo, read, strict=True):
                replaced += self._write(plan, facts, warned)
                warned = len(self._talk.warnings)
        return replaced

    def _read_plan(self) -> ReadPlan:
        options = self._options
        module = import_module(ENGINES[options.engine])
        if not getattr(module, "is_compiled", lambda: True)():
            self._talk.say("compiling the packet loop, once (about half a minute)")
        spill = self._writer.scratch / "cells"
        read_options = ReadOptions(
            options.window_ns,
            np.empty(0, np.int64),
            spill,
            open_tunnels=options.tunnels == "inner",
            hashing=options.sha256,
        )
        jobs = options.jobs or available_cpus()
        return ReadPlan(
            module.read_capture, read_options, self._flow_filter, options.packets, jobs, options.clock_offset
        )

    def _write(self, plan: _Planned, facts: RunFacts, warned: int) -> bool:
        """Write a run's tables unless nothing of it could be read; return whether there was such a run before.

        warned: number of warnings before this run.
        """
        run_id = facts.run_id
        if not any(file.format for file in facts.files):
            self._talk.warn(f"{run_id}: left out, none of its files is a capture that can be read")
            return False
        changed = inputs.changed_meanwhile(plan.run, plan.record.files)
        for name in changed:
            self._talk.warn(f"{run_id}/{name}: changed while it was read; ingest again when nothing writes it any more")
        _write_run(facts, self._writer, self._options)
        warnings = tuple(inputs.without_folders(warning, plan.run) for warning in self._talk.warnings[warned:])
        files: tuple[FileState, ...] = inputs.after_reading(plan.record.files, facts.files, changed)
        self._records[run_id] = replace(plan.record, files=files, warnings=warnings)
        replaced = partition(self._writer.out, "runs", run_id).exists()
        self._commit_when_due()
        return replaced

    def _commit_when_due(self) -> None:
        begin = time.monotonic()
        if begin - self._put_in_place < max(COMMIT_SECONDS, _COMMIT_SHARE * self._last_cost):
            return
        self._writer.commit({INPUTS: inputs.inputs_text(self._present())})
        self._put_in_place = time.monotonic()
        self._last_cost = self._put_in_place - begin


def _write_run(facts: RunFacts, writer: DatasetWriter, options: IngestOptions) -> None:
    hashes = {file.capture_id: file.sha256 for file in facts.files}
    provenance = {
        "version": facts.version,
        "schema_version": str(schema.SCHEMA_VERSION),
        "inputs": json.dumps(hashes, sort_keys=True),
        "parameters": json.dumps(options.parameters, sort_keys=True),
    }
    try:
        with RunTables(facts, writer.scratch) as tables, writer.new_run(facts.run_id):
            _check_ledger(facts, tables)
            for name in schema.TABLES:
                writer.write(name, facts.run_id, tables.batches(name), provenance)
    except RuntimeError as error:
        if str(error) != "Query interrupted":  # what DuckDB makes of a Ctrl-C
            raise
        raise KeyboardInterrupt from None
    except duckdb.Error as error:  # mostly: no room for what does not fit into memory
        raise _no_room(writer.out, f"{facts.run_id}: {str(error).splitlines()[0]}") from error


def _check_ledger(facts: RunFacts, tables: RunTables) -> None:
    """Every record is in flows or under a reason. A remainder is a bug of ours, and no dataset is written."""
    ledger: dict[str, tuple[int, int]] = {}
    for batch in tables.batches("capture_ledger"):
        for row in batch.to_pylist():
            packets, wire = ledger.get(row["capture_id"], (0, 0))
            ledger[row["capture_id"]] = (packets + row["packets"], wire + row["wire_bytes"])
    for file in facts.files:
        found = ledger.get(file.capture_id, (0, 0))
        if found != (file.records, file.wire_bytes):
            raise LedgerError(
                f"{file.path}: {file.records} records of {file.wire_bytes} bytes are in the file, {found[0]} of "
                f"{found[1]} bytes in the ledger; please report this with the file"
            )
