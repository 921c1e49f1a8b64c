"""The end of a run: from what was read of its files to the files of its tables, here or on a worker of a cluster."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from ddnn_traces.errors import REPORT, InternalError, LedgerError, StorageError
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.reconcile.log_clocks import LogClock, estimate_clock
from ddnn_traces.ingestors.reconcile.run_tables import Found, RunFacts, RunTables
from ddnn_traces.ingestors.schedule.tasks import ReadResult
from ddnn_traces.store import hashes, schema
from ddnn_traces.store.whole_files import no_memory, no_space
from ddnn_traces.store.writer import write_rows

#: Writes a run's rows of one table: its name, the run, batches in its schema and order, provenance.
Write = Callable[[str, str, Iterable[pa.RecordBatch], dict[str, str]], None]


def write_tables(facts: RunFacts, options: IngestOptions, scratch: Path, out: Path | str, write: Write) -> Found:
    """Make a run's tables, and write each with `write`; return what is said of them.

    scratch: folder for temporary files. out: the dataset in messages, as full_disk(). Raises LedgerError, StorageError,
    InternalError.
    """
    named = {file.capture_id: hashes.named(file.digests) for file in facts.files}
    provenance = {
        "version": facts.version,
        "schema_version": str(schema.SCHEMA_VERSION),
        "inputs": json.dumps(named, sort_keys=True),
        "parameters": json.dumps(options.parameters, sort_keys=True),
    }
    with errors_of_duckdb(out, facts.run_id), RunTables(facts, scratch) as tables:
        _check_ledger(facts, tables)
        for name in schema.TABLES:
            write(name, facts.run_id, tables.batches(name), provenance)
        return tables.found()


def clock_of(run: RunFacts, options: IngestOptions) -> LogClock:
    """The logs' clock against the captures'."""
    described, shift = run.description, options.clock_offset_ns
    clock = estimate_clock(described.clock_logs, run.files, described.labels, run.window_ns)
    return clock if shift is None else clock.before_shift(shift)


def has_other_steps(clock: LogClock, options: IngestOptions) -> bool:
    """Whether the files have to be read again, with other steps, since the logs' times are to be shifted."""
    return bool(clock.estimate) and clock.is_off and options.clock_offset == "auto"


def end_on_worker(
    run: RunFacts, options: IngestOptions, out: str, reads: Sequence[tuple[ReadResult, Mapping[str, bytes]]]
) -> tuple[tuple[LogClock, Found | None], dict[str, bytes]]:
    """On a worker: the clock of a run's logs, what is said of its tables, and their files, by table.

    run: without its files and clock. out: the dataset in messages. reads: of all its files, with what the engine has
    written. Without tables where no file is a capture, or the files have to be read again. Raises as write_tables().
    """
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as name, _errors_of_disk(out):
        folder = Path(name)
        found = {}
        for number, (result, outputs) in enumerate(reads):
            facts = replace(result.facts)  # the worker keeps what was read, and may be asked for it again
            facts.put(outputs, {output: folder / f"{number}-{output}" for output in outputs})
            found[facts.path] = facts
        run = replace(run, files=[found[path] for path in run.description.run.captures])
        run = replace(run, clock=clock_of(run, options))
        if not run.is_readable or has_other_steps(run.clock, options):
            return (run.clock, None), {}

        def write(table: str, _: str, batches: Iterable[pa.RecordBatch], provenance: dict[str, str]) -> None:
            write_rows(folder / table / "rows", table, batches, provenance)

        said = write_tables(run, options, folder, out, write)
        return (run.clock, said), {table: (folder / table / "rows").read_bytes() for table in schema.TABLES}


@contextlib.contextmanager
def _errors_of_disk(out: str) -> Iterator[None]:
    """A full disk of a worker as StorageError."""
    try:
        yield
    except OSError as error:
        if reason := no_space(error):
            raise full_disk(out, reason) from error
        raise


@contextlib.contextmanager
def errors_of_duckdb(out: Path | str, run_id: str) -> Iterator[None]:
    """Raises DuckDB's errors as KeyboardInterrupt, StorageError and InternalError. out: as full_disk()."""
    import duckdb

    try:
        yield
    except RuntimeError as error:
        if str(error) != "Query interrupted":  # DuckDB's error after Ctrl-C
            raise
        raise KeyboardInterrupt from None
    except duckdb.Error as error:
        if "KeyboardInterrupt" in str(error):  # which came while it took rows from Python
            raise KeyboardInterrupt from None
        if reason := no_memory(error):
            raise StorageError(
                f"{run_id}: more flows than its tables have memory for ({reason}); ingest fewer captures at once, or a "
                "part of the flows with --filter"
            ) from error
        if reason := no_space(error):
            raise full_disk(out, f"{run_id}: {reason}") from error
        raise InternalError(f"{run_id}: {str(error).splitlines()[0]}; {REPORT}") from error
    except InternalError as error:
        raise InternalError(f"{run_id}: {error}") from error


def full_disk(out: Path | str, reason: str) -> StorageError:
    """out: the folder of the dataset, on the disk that is full; a text: the dataset, where what is full is the folder
    of temporary files."""
    if isinstance(out, str):
        return StorageError(
            f"{tempfile.gettempdir()}: no space to write ({reason}); {out} holds what was finished before; set "
            "TMPDIR to a folder with more space and ingest again"
        )
    finished = f"{out} holds what was finished before" if out.exists() else "nothing was finished"
    return StorageError(
        f"{out.resolve().parent}: no space to write ({reason}); {finished}; free some space there and ingest again"
    )


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
