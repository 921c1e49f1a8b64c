"""Ingest, end to end: find runs, read their captures, build their tables, put the dataset in place."""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import duckdb
import numpy as np

import ddnn_traces
from ddnn_traces import schema
from ddnn_traces.errors import CaptureError, LedgerError, UsageError
from ddnn_traces.ingestors.facts import CaptureFacts, ReadOptions
from ddnn_traces.ingestors.logs import TrainingLog, read_logs
from ddnn_traces.ingestors.metadata import RunMetadata, read_metadata
from ddnn_traces.ingestors.sources import RunInput, find_runs, host_label
from ddnn_traces.ingestors.store import DatasetWriter, partition
from ddnn_traces.ingestors.tables import RunFacts, RunTables
from ddnn_traces.talk import Talk

Engine = Callable[[Path, ReadOptions], CaptureFacts]
#: Modules with a read_capture; imported when used, since each brings a heavy library.
ENGINES = {"numba": "ddnn_traces.ingestors.numba_engine", "pyshark": "ddnn_traces.ingestors.pyshark_engine"}
DEFAULT_ENGINE = "numba"


def ingest(
    sources: list[str],
    out: Path,
    engine: str = DEFAULT_ENGINE,
    window_ms: float = 1.0,
    sha256: bool = True,
    talk: Talk | None = None,
) -> list[str]:
    """Read captures and logs into the dataset at `out`; return the run_ids that were written.

    sources: files, globs, folders, folders of run folders. window_ms: base window of flow_windows, in ms. sha256:
    whether the input files are hashed. Runs of an existing dataset that are not among the sources stay as they are.
    What is partial is marked in the dataset and told to `talk`. Raises UsageError for a wrong call, CaptureError when
    no run could be read, LedgerError when records are missing from the ledger; then nothing at `out` has changed.
    """
    talk = talk or Talk()
    if engine not in ENGINES:
        raise UsageError(f"no engine named {engine}; there are {', '.join(ENGINES)}")
    read_capture: Engine = import_module(ENGINES[engine]).read_capture
    window_ns = round(window_ms * 1_000_000) if math.isfinite(window_ms) else 0
    if not 1 <= window_ns < 2**63:
        raise UsageError(f"a window of {window_ms} ms is no length of time from 1 ns up; try --window-ms 1")
    runs = find_runs(sources)
    metadata = {run.run_id: read_metadata(run.folder) for run in runs}  # mistakes in it show before hours of reading
    written = []
    with DatasetWriter(out) as writer:
        options = ReadOptions(
            window_ns,
            np.empty(0, np.int64),
            writer.scratch / "cells",
            progress=lambda size, _: talk.advance(size),
            hashing=sha256,
        )
        talk.start_files(sum(path.stat().st_size for run in runs for path in run.captures))
        for run in runs:
            facts = _read_run(run, metadata[run.run_id], read_capture, options, talk)
            if not any(file.format for file in facts.files):
                talk.warn(f"{run.run_id}: left out, none of its files is a capture that can be read")
                continue
            _write_run(facts, writer, engine)
            written.append(run.run_id)
        talk.end_files()
        if not written:
            raise CaptureError(f"no run could be read from {', '.join(sources)}; {out} is as it was")
        replaced = sum(partition(writer.out, "runs", run).exists() for run in written)
        writer.commit()
    told = f", {replaced} of them in place of an older one of that name" if replaced else ""
    talk.say(f"{out}: {len(written)} {'run' if len(written) == 1 else 'runs'} written{told}")
    return written


def _read_run(run: RunInput, metadata: RunMetadata, engine: Engine, options: ReadOptions, talk: Talk) -> RunFacts:
    logs = read_logs(run.folder, talk)
    labels = [host_label(path) for path in run.captures]
    by_worker = {log.worker: log for log in logs}
    files, workers = [], []
    for number, (path, label) in enumerate(zip(run.captures, labels, strict=True)):
        log = by_worker.get(label or "", logs[0] if logs else None)
        workers.append(log.worker if log else None)
        spill = options.spill.with_name(f"{number}.parquet")
        spill.unlink(missing_ok=True)  # the run before had one, too
        bounds = log.bounds if log else options.step_bounds
        files.append(_read_file(path, engine, replace(options, step_bounds=bounds, spill=spill), talk))
        if log:
            _compare_clocks(files[-1], log, talk)
    return RunFacts(run.run_id, metadata, logs, files, labels, workers, options.window_ns, ddnn_traces.__version__)


def _read_file(path: Path, engine: Engine, options: ReadOptions, talk: Talk) -> CaptureFacts:
    talk.start_file(str(path))
    try:
        facts = engine(path, options)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        reason = f"cannot be read ({error.strerror}), check its permissions"
        facts = CaptureFacts(path, "none", None, path.lstat().st_size, status="corrupt", status_detail=reason)
    if facts.status != "complete":
        kept = f"kept {facts.records:,} records before that" if facts.format else "nothing of it is kept"
        talk.warn(f"{path}: {facts.status}: {facts.status_detail}; {kept}; copy it again, or leave it out")
    talk.end_file(
        f"{path.parent.name}/{path.name}: {facts.records:,} packets, {facts.flows.num_rows:,} flows, {facts.status}"
    )
    return facts


def _compare_clocks(facts: CaptureFacts, log: TrainingLog, talk: Talk) -> None:
    """Warn when no packet can fall into a step of the log."""
    begin, end = log.bounds[0], log.bounds[-1]
    if facts.first_ns is None or facts.last_ns is None or (facts.first_ns < end and facts.last_ns >= begin):
        return
    hours = (facts.first_ns - begin) / 3.6e12
    talk.warn(
        f"{facts.path}: begins {hours:+.2f} hours after {log.worker}'s log and shares no time with its steps, "
        "so no packet is in a step; compare the two clocks"
    )


def _write_run(facts: RunFacts, writer: DatasetWriter, engine: str) -> None:
    inputs = {file.capture_id: file.sha256 for file in facts.files}
    provenance = {
        "version": facts.version,
        "schema_version": str(schema.SCHEMA_VERSION),
        "inputs": json.dumps(inputs, sort_keys=True),
        "parameters": json.dumps({"engine": engine, "window_ns": facts.window_ns}, sort_keys=True),
    }
    try:
        with RunTables(facts, writer.scratch) as tables:
            _check_ledger(facts, tables)
            for name in schema.TABLES:
                writer.write(name, facts.run_id, tables.batches(name), provenance)
    except duckdb.Error as error:  # mostly: no room for what does not fit into memory
        reason = str(error).splitlines()[0]
        raise CaptureError(
            f"{facts.run_id}: {reason}; is {writer.out.parent} full? {writer.out} is as it was"
        ) from error


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
