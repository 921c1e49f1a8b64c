"""Ingest, end to end: find runs, read those that changed, build their tables, put the dataset in place."""

from __future__ import annotations

import contextlib
import errno
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ddnn_traces.errors import CaptureError, LedgerError, MetadataError, StorageError, UsageError
from ddnn_traces.ingestors import inputs
from ddnn_traces.ingestors.engines import ENGINES
from ddnn_traces.ingestors.inputs import FileState, RunRecord
from ddnn_traces.ingestors.metadata import RunMetadata, bad_rows, read_metadata
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.reconcile.tables import RunFacts, RunTables
from ddnn_traces.ingestors.runs import read_runs
from ddnn_traces.ingestors.sources import RunInput, find_runs, rename_run
from ddnn_traces.messages import Messages
from ddnn_traces.query import views
from ddnn_traces.store import hashes, schema
from ddnn_traces.store.layout import INPUTS, is_dataset
from ddnn_traces.store.parquet import check_name, partition
from ddnn_traces.store.whole_files import NO_SPACE
from ddnn_traces.store.writer import DatasetWriter
from ddnn_traces.text import counted

#: Finished runs are put in place when this many seconds have passed since the last time,
COMMIT_SECONDS = 2.0
#: and this many times what the last time took: a dataset of thousands of runs has as many links to make.
_COMMIT_SHARE = 20.0

#: Of what was sent, percent; more that captures lost is a warning. As in the check capture_loss.
MOST_PERCENT_LOST = 0.1


@dataclass(frozen=True)
class _Planned:
    """A run that was found, with the state of its files before they are read."""

    run: RunInput
    metadata: RunMetadata
    record: RunRecord


def ingest(
    sources: list[str], out: Path, options: IngestOptions | None = None, messages: Messages | None = None
) -> list[str]:
    """Read captures and logs into the dataset at `out`; return the run_ids that were written.

    sources: files, globs, folders, folders of run folders, - for standard input. A run whose inputs and parameters are
    those of the run in the dataset is not read again. Runs of the dataset that are not among the sources stay
    unchanged. Every few seconds the finished runs are put in place, so each run is the old or the new one at every
    instant. Partial data are marked in the dataset, and `messages` gets a warning. Raises UsageError for a wrong call,
    BusyError, CaptureError when no run could be read, LedgerError when records are missing from the ledger,
    StorageError when the disk is full.
    """
    options, messages = options or IngestOptions(), messages or Messages()
    options.check()
    planned, problems = _plan(sources, options)  # errors in metadata and names are found before hours of reading
    with _errors_of_writing(out), DatasetWriter(out, options.wait, messages.info) as writer:
        if writer.waited:
            planned, problems = _plan(sources, options)
        for problem in problems:
            messages.warn(problem)
        _Ingest(writer, options, messages).run(planned, sources)
        return writer.written


def _plan(sources: list[str], options: IngestOptions) -> tuple[list[_Planned], list[str]]:
    """The runs, and what is wrong with the sources: rows of runs.csv and runs that are left out, names without a file.

    Raises MetadataError where no run is left.
    """
    problems: list[str] = []
    runs = find_runs(sources, problems.append)
    if options.run_id is not None:
        runs = rename_run(runs, options.run_id)
    tables = {run.folder.parent: run.folder for run in runs if run.folder}
    problems += [bad for folder in tables.values() for bad in bad_rows(folder)]
    planned = []
    for run in runs:
        check_name(run.run_id)
        try:
            planned.append(_planned(run, options))
        except MetadataError as error:
            if len(runs) == 1:
                raise
            problems.append(f"{error}; run {run.run_id} is left out")
    if not planned:
        raise MetadataError(f"no run can be read: {'; '.join(problems[-3:])}")
    return planned, problems


def _planned(run: RunInput, options: IngestOptions) -> _Planned:
    files = inputs.current_files(run, options.hash)  # before anything of it is read: a later change is noticed
    metadata = read_metadata(run.folder)
    parameters = inputs.run_parameters(options.parameters, metadata)
    return _Planned(run, metadata, RunRecord(parameters, files))


@contextlib.contextmanager
def _errors_of_writing(out: Path) -> Iterator[None]:
    """A full disk as StorageError. The writer has discarded what was unfinished."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(
                f"{out}: a name or path below it is too long for the file system; give the run a shorter name with "
                "--run-id, or choose a shorter --out"
            ) from error
        if error.errno not in NO_SPACE:
            raise
        raise _no_space(out, error.strerror or str(error)) from error


def _no_space(out: Path, reason: str) -> StorageError:
    finished = f"{out} holds what was finished before" if out.exists() else "nothing was finished"
    return StorageError(
        f"{out.resolve().parent}: no space to write ({reason}); {finished}; free some space there and ingest again"
    )


class _Ingest:
    """One ingest into a dataset that no other ingest writes."""

    def __init__(self, writer: DatasetWriter, options: IngestOptions, messages: Messages) -> None:
        self._writer = writer
        self._options = options
        self._messages = messages
        self._records = inputs.read_inputs(writer.out)
        self._put_in_place = time.monotonic()
        self._last_cost = 0.0

    def run(self, planned: list[_Planned], sources: list[str]) -> None:
        for damage in self._writer.damaged_records():
            self._messages.info(f"{self._writer.name}/{damage}; it is written again")
        todo = [plan for plan in planned if not self._is_unchanged(plan)]
        try:
            replaced = self._read(todo) if todo else 0
        except KeyboardInterrupt:
            self._writer.commit_finished({INPUTS: inputs.inputs_text(self._current())})
            if not self._writer.committed:
                raise
            finished = counted(self._writer.committed, "finished run")
            raise KeyboardInterrupt(f"interrupted; the dataset has {finished}, ingest again for the others") from None
        finally:
            self._messages.end_reading()
        written, unchanged = len(self._writer.written), len(planned) - len(todo)
        if not written and not unchanged:
            kept = "is unchanged" if is_dataset(self._writer.out) else "was not made"
            raise CaptureError(f"no run could be read from {', '.join(sources)}; {self._writer.name} {kept}")
        self._finish()
        details = f", {replaced} of them in place of an older one of that name" if replaced else ""
        details += f", {unchanged} unchanged" if unchanged else ""
        self._messages.info(f"{self._writer.name}: {counted(written, 'run')} written{details}")

    # --- unchanged runs

    def _is_unchanged(self, plan: _Planned) -> bool:
        """Whether the run need not be read; then its warnings are repeated, since they still hold."""
        run_id = plan.run.run_id
        old = self._records.get(run_id)
        if self._options.force or old is None or not partition(self._writer.out, "runs", run_id).is_dir():
            return False
        same = inputs.unchanged(old, plan.run, plan.record, self._options.hash)
        if same is None or self._is_damaged(run_id):
            return False
        self._records[run_id] = same
        self._messages.info(f"run {run_id}: unchanged, not read again")
        for warning in same.warnings:
            self._messages.warn(f"run {run_id}: {warning}")
        return True

    def _is_damaged(self, run_id: str) -> bool:
        """Whether files of the run's tables are not what was written, which is reported."""
        damages = self._writer.damages(run_id)
        for damage in damages:
            self._messages.info(f"{damage}; the run is read again")
        return bool(damages)

    def _finish(self) -> None:
        """Put the last runs in place; without any, record the files' new times."""
        text = inputs.inputs_text(self._current())
        if self._writer.uncommitted or self._writer.damaged_records():
            self._writer.commit({INPUTS: text})
        else:
            self._writer.replace_files({INPUTS: text})
        import duckdb

        try:
            views.replace_views(self._writer.out, self._writer.out / views.FILE, self._writer.partial)
        except (OSError, duckdb.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
            self._messages.warn(
                f"{self._writer.name}/{views.FILE}: not written ({reason}); the tables are complete: free space in the "
                "folder of temporary files (TMPDIR) and ingest again"
            )

    def _current(self) -> dict[str, RunRecord]:
        """Records of the runs that are, or are about to be, in the dataset."""
        return {run_id: record for run_id, record in self._records.items() if self._writer.has_run(run_id)}

    # --- reading and writing

    def _read(self, todo: list[_Planned]) -> int:
        """Read and write the runs; return how many of them take the place of an older one."""
        replaced = 0
        if not ENGINES[self._options.engine].is_compiled():
            self._messages.info("compiling the packet loop, once (about half a minute)")
        runs = [(plan.run, plan.metadata) for plan in todo]
        warned = len(self._messages.warnings)
        with contextlib.closing(read_runs(runs, self._options, self._writer.scratch, self._messages)) as results:
            for plan, facts in zip(todo, results, strict=True):
                replaced += self._write(plan, facts, warned)
                warned = len(self._messages.warnings)
        return replaced

    def _write(self, plan: _Planned, facts: RunFacts, warned: int) -> bool:
        """Write a run's tables unless nothing of it could be read; return whether there was such a run before.

        warned: number of warnings before this run.
        """
        run_id = facts.run_id
        if not any(file.format for file in facts.files):
            self._messages.warn(f"{run_id}: left out, none of its files is a capture that can be read")
            return False
        changed = inputs.changed_meanwhile(plan.run, plan.record.files)
        for name in changed:
            self._messages.warn(f"{run_id}/{name}: changed while it was read; ingest again when it is complete")
        lost = _write_run(facts, self._writer, self._options)
        _report_loss(run_id, *lost, self._messages)
        warnings = tuple(inputs.without_folders(warning, plan.run) for warning in self._messages.warnings[warned:])
        files: tuple[FileState, ...] = inputs.after_reading(plan.record.files, facts.files, changed)
        self._records[run_id] = replace(plan.record, files=files, warnings=warnings)
        replaced = partition(self._writer.out, "runs", run_id).exists()
        self._commit_when_due()
        return replaced

    def _commit_when_due(self) -> None:
        begin = time.monotonic()
        if begin - self._put_in_place < max(COMMIT_SECONDS, _COMMIT_SHARE * self._last_cost):
            return
        self._writer.commit({INPUTS: inputs.inputs_text(self._current())})
        self._put_in_place = time.monotonic()
        self._last_cost = self._put_in_place - begin


def _write_run(facts: RunFacts, writer: DatasetWriter, options: IngestOptions) -> tuple[float, float]:
    """Write a run's tables; return RunTables.percentages_lost()."""
    named = {file.capture_id: hashes.named(file.digests) for file in facts.files}
    provenance = {
        "version": facts.version,
        "schema_version": str(schema.SCHEMA_VERSION),
        "inputs": json.dumps(named, sort_keys=True),
        "parameters": json.dumps(options.parameters, sort_keys=True),
    }
    import duckdb

    try:
        with RunTables(facts, writer.scratch) as tables, writer.new_run(facts.run_id):
            _check_ledger(facts, tables)
            for name in schema.TABLES:
                writer.write(name, facts.run_id, tables.batches(name), provenance)
            return tables.percentages_lost()
    except RuntimeError as error:
        if str(error) != "Query interrupted":  # DuckDB's error after Ctrl-C
            raise
        raise KeyboardInterrupt from None
    except duckdb.Error as error:  # mostly: no disk space for what does not fit into memory
        raise _no_space(writer.out, f"{facts.run_id}: {str(error).splitlines()[0]}") from error


def _report_loss(run_id: str, payload: float, packets: float, messages: Messages) -> None:
    """Warn of what captures lost, in percent; a share below the bar of the check capture_loss is only stated."""
    lost = {"the TCP payload by its sequence numbers": payload, "the packets by their counters": packets}
    stated = " and ".join(f"{percent:.2g}% of {what}" for what, percent in lost.items() if percent)
    if not stated:
        return
    step = "'ddnn-traces query DATASET capture_loss' shows which files"
    if max(lost.values()) > MOST_PERCENT_LOST:
        messages.warn(f"{run_id}: its captures lost {stated}, so its volumes are too low; {step}")
    else:
        messages.info(f"{run_id}: its captures lost {stated}; {step}")


def _check_ledger(facts: RunFacts, tables: RunTables) -> None:
    """Raise LedgerError unless every record is in flows or under a reason: then this program is wrong."""
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
