"""The tables of a release: every run's rows mapped, in the order of the table's key, as Parquet for remote readers.

    TABLE/part-00000.parquet, TABLE/part-00001.parquet, ...

A file has as many whole runs as fit into 4 million rows, or one larger run: few files, of some tens of MB where there
is so much. No folder is named run_id=..., which pandas and pyarrow would read as a second column of that name.

A file has row groups of 2**20 rows: a reader that prunes by run and time fetches a footer of some kB and then whole
column chunks of 0.1 to 8 MB: few requests, and large ones; with pages of 20,000 rows and a column and offset index it
can fetch less. Memory holds two row groups a thread, whatever the size of the dataset.

Threads, not processes: decoding, mapping, compression and hashing are done by libraries that release the interpreter,
and nothing has to be pickled, imported again or ended.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ddnn_traces.errors import UsageError
from ddnn_traces.jobs import thread_pool
from ddnn_traces.release import facts
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import annotated, encodings, part, row_groups
from ddnn_traces.store.whole_files import sha256_of
from ddnn_traces.text import sql_literal

if TYPE_CHECKING:
    from ddnn_traces.release.anonymise.mapping import RunMapping

ROW_GROUP_ROWS = 1 << 20
#: Runs share a file up to so many rows.
FILE_ROWS = 1 << 22
_BATCH_ROWS = 1 << 17
_PREFIX = b"ddnn_traces."
#: Bytes of rows that are sorted in memory; more go through a file.
_IN_MEMORY = 256 << 20


@dataclass(frozen=True)
class Source:
    """A run's rows of a table in the dataset. rows, bytes: of all files."""

    table: str
    run_id: str
    files: tuple[Path, ...]
    rows: int
    bytes: int


@dataclass
class Progress:
    """Shared by the threads: `advance` gets (bytes, rows) of sources that were read; `stop` ends the threads."""

    advance: Callable[[int, int], None] = lambda _bytes, _rows: None
    stop: threading.Event = field(default_factory=threading.Event)


class _StoppedError(Exception):
    """Another thread failed, or the user interrupted."""


def sources(dataset: Path, runs: Sequence[str], tables: Sequence[str]) -> list[Source]:
    """The tables and runs to publish, tables in their order, runs in order; those without rows are left out.

    Raises UsageError for a file that is not Parquet.
    """
    found = []
    for table in tables:
        folders = {unquote(path.name.partition("=")[2]): path for path in sorted((dataset / table).glob("run_id=*"))}
        for run_id in sorted(set(runs) & folders.keys()):
            files = tuple(sorted(folders[run_id].glob("*.parquet")))
            rows = sum(_open(path).metadata.num_rows for path in files)
            if rows:
                found.append(Source(table, run_id, files, rows, sum(path.stat().st_size for path in files)))
    return found


def write(
    wanted: Sequence[Source],
    release: Path,
    mapping: Callable[[str], RunMapping],
    scratch: Path,
    window_ns: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    defined: Callable[[str], schema.Table] = schema.table,
    splits: Mapping[str, str] | None = None,
) -> tuple[facts.Table, ...]:
    """Write the tables into the folder `release`. Raises UsageError, OSError.

    mapping: that of a run. scratch: an empty folder, for sorting. window_ns: windows to sum flow_windows to. jobs:
    threads; the bytes do not depend on them. defined: a table with the meanings to note at its columns. splits: that of
    each run of the dataset, which runs.split then has; no file has runs of several.
    """
    progress = progress or Progress()
    maps = {run_id: mapping(run_id) for run_id in sorted({source.run_id for source in wanted})}
    wanted = sorted(wanted, key=lambda source: (schema.TABLES.index(source.table), maps[source.run_id].name))

    def job(file: _NewFile) -> facts.TableFile:
        return _write_file(file, release, maps, scratch, window_ns, progress, defined(file.table))

    files = _files(wanted, splits or {})
    # the largest first, so that no thread begins it when the others are done
    with thread_pool(jobs, "publish", progress.stop.set) as threads:
        futures = {file.path: threads.submit(job, file) for file in sorted(files, key=lambda f: -f.bytes)}
        done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
    written: dict[str, list[facts.TableFile]] = {}
    for file in files:
        written.setdefault(file.table, []).append(futures[file.path].result())
    return tuple(facts.Table(table, tuple(made)) for table, made in written.items())


@dataclass(frozen=True)
class _NewFile:
    """A file to write: its path in the release, and the runs in it."""

    path: str
    sources: tuple[Source, ...]
    split: str | None = None

    @property
    def table(self) -> str:
        return self.sources[0].table

    @property
    def bytes(self) -> int:
        return sum(source.bytes for source in self.sources)


def _files(wanted: Sequence[Source], splits: Mapping[str, str]) -> list[_NewFile]:
    """The files of the tables, with as many runs of a split each as fit."""

    def place(source: Source) -> tuple[int, str]:
        return schema.TABLES.index(source.table), splits.get(source.run_id, "")

    files = []
    for _, sources in itertools.groupby(sorted(wanted, key=place), place):
        groups: list[list[Source]] = []
        for source in sources:
            if not groups or sum(other.rows for other in groups[-1]) + source.rows > FILE_ROWS:
                groups.append([])
            groups[-1].append(source)
        table, split = groups[0][0].table, splits.get(groups[0][0].run_id)
        files += [_NewFile(part(table, number, split), tuple(group), split) for number, group in enumerate(groups)]
    return files


def _write_file(
    file: _NewFile,
    release: Path,
    maps: Mapping[str, RunMapping],
    scratch: Path,
    window_ns: int | None,
    progress: Progress,
    defined: schema.Table,
) -> facts.TableFile:
    path = release / file.path
    path.parent.mkdir(parents=True, exist_ok=True)

    def batches(source: Source) -> Iterator[pa.RecordBatch]:
        mapped = (maps[source.run_id].batch(source.table, batch) for batch in _read(source, progress))
        if source.table == "runs" and file.split:
            return (_with_split(batch, file.split) for batch in mapped)
        return coarser(mapped, window_ns) if source.table == "flow_windows" and window_ns else mapped

    key = [name for name in schema.table(file.table).key if name != "run_id"]  # which is the same in all rows of a run
    try:
        runs = _write_parquet(path, defined, {maps[s.run_id].name: in_order(batches(s), key) for s in file.sources})
    except Unsorted:
        name = scratch / file.path.replace("/", "-")
        sorted_runs = {maps[s.run_id].name: sort(batches(s), key, name, _BATCH_ROWS) for s in file.sources}
        runs = _write_parquet(path, defined, sorted_runs)
    return facts.TableFile(file.path, path.stat().st_size, sha256_of(path), runs)


def _with_split(runs: pa.RecordBatch, split: str) -> pa.RecordBatch:
    place = runs.schema.get_field_index("split")
    return runs.set_column(place, runs.schema.field(place), pa.repeat(pa.scalar(split), runs.num_rows))


def _write_parquet(path: Path, defined: schema.Table, runs: Mapping[str, Iterator[pa.RecordBatch]]) -> dict[str, int]:
    """Write the runs one after the other. Returns the number of rows of each."""
    arrow = annotated(defined.name, {"schema_version": str(schema.SCHEMA_VERSION)}, defined)
    sorted_by = [pq.SortingColumn(arrow.get_field_index(name)) for name in defined.key]
    rows = dict.fromkeys(runs, 0)

    def counted() -> Iterator[pa.RecordBatch]:
        for run_id, batches in runs.items():
            for batch in batches:
                rows[run_id] += batch.num_rows
                yield batch

    with pq.ParquetWriter(
        path,
        arrow,
        compression="zstd",
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=sorted_by,
        **encodings(defined.name, for_any_reader=True),
    ) as writer:
        for group in row_groups(counted(), arrow, ROW_GROUP_ROWS):
            writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
    return rows


def _read(source: Source, progress: Progress) -> Iterator[pa.RecordBatch]:
    """The run's rows in the table's schema. Raises UsageError where a file has another schema, or rows of another run.

    That run_id is the same in all rows is known from the statistics: to read it costs more than all other columns.
    """
    arrow = schema.table(source.table).arrow()
    for path in source.files:
        file = _open(path)
        if not _is_in_schema(file.schema_arrow, arrow):
            raise UsageError(f"{path}: its columns are not those of {source.table}; ingest the run again")
        if not _is_of_run(file, source.run_id):
            raise UsageError(f"{path}: has rows of another run than its folder's; ingest the run again")
        size = path.stat().st_size / max(1, file.metadata.num_rows)
        others = [name for name in file.schema_arrow.names if name != "run_id"]
        for batch in file.iter_batches(_BATCH_ROWS, columns=others, use_threads=False):
            if progress.stop.is_set():
                raise _StoppedError
            rows = batch.num_rows
            known = {name: batch.column(name) for name in others}
            known["run_id"] = pa.repeat(pa.scalar(source.run_id), rows)
            columns = [known[f.name] if f.name in known else pa.nulls(rows, f.type) for f in arrow]
            yield pa.RecordBatch.from_arrays(columns, schema=arrow)
            progress.advance(round(size * rows), rows)


def _is_in_schema(found: pa.Schema, arrow: pa.Schema) -> bool:
    """Whether columns are those of a table; one of an older schema version lacks those that were added since."""
    version = int((found.metadata or {}).get(_PREFIX + b"schema_version", schema.SCHEMA_VERSION))
    there = [f for f in arrow if version >= schema.SCHEMA_VERSION or f.name in found.names or not f.nullable]
    return [(f.name, f.type) for f in found] == [(f.name, f.type) for f in there]


def _is_of_run(file: pq.ParquetFile, run_id: str) -> bool:
    """Whether all rows are of the run."""
    place = file.schema_arrow.get_field_index("run_id")
    for number in range(file.metadata.num_row_groups):
        known = file.metadata.row_group(number).column(place).statistics
        counted = known and known.has_min_max and known.has_null_count
        if counted and not known.null_count and known.min == known.max == run_id:
            continue
        column = file.read_row_group(number, columns=["run_id"]).column(0)  # long names may be cut in statistics
        if column.null_count or pc.any(pc.not_equal(column, run_id)).as_py():
            return False
    return True


def coarser(batches: Iterator[pa.RecordBatch], window_ns: int) -> Iterator[pa.RecordBatch]:
    """Rows of flow_windows, in the order of their windows, summed to windows of window_ns, a multiple of theirs."""
    arrow, waiting = schema.table("flow_windows").arrow(), None
    for batch in batches:
        table = _window_sums(pa.Table.from_batches([batch]), window_ns)
        summed = table if waiting is None else _window_sums(pa.concat_tables([waiting, table]), window_ns)
        last = pc.max(summed["window_start_ns"])
        yield from _in_schema(summed.filter(pc.less(summed["window_start_ns"], last)), arrow)
        waiting = summed.filter(pc.equal(summed["window_start_ns"], last))
    if waiting is not None:
        yield from _in_schema(waiting, arrow)


def _window_sums(table: pa.Table, window_ns: int) -> pa.Table:
    start = table["window_start_ns"].to_numpy()
    place = table.schema.get_field_index("window_start_ns")
    table = table.set_column(place, "window_start_ns", pa.array(start - start % window_ns))
    keys = ("run_id", "window_start_ns", "flow_id")
    sizes = [name for name in table.column_names if name not in (*keys, "window_ns")]
    summed = table.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in sizes])
    summed = summed.rename_columns({f"{name}_sum": name for name in sizes})
    summed = summed.sort_by([(name, "ascending") for name in keys])
    return summed.append_column("window_ns", pa.repeat(pa.scalar(window_ns, pa.int64()), summed.num_rows))


def _in_schema(table: pa.Table, arrow: pa.Schema) -> Iterator[pa.RecordBatch]:
    yield from table.select(arrow.names).cast(arrow).to_batches()


def window_lengths(wanted: Sequence[Source]) -> dict[str, int]:
    """Base window of each run that has any, ns. Raises UsageError."""
    lengths = {}
    for source in wanted:
        if source.table == "flow_windows":
            first = next(_open(source.files[0]).iter_batches(1, columns=["window_ns"]))
            lengths[source.run_id] = first.column(0)[0].as_py()
    return lengths


def summed_window(window_ms: float | None, lengths: Mapping[str, int]) -> int | None:
    """The windows to sum to, ns. Raises UsageError where they are no multiple of a run's. lengths: by run, ns."""
    if window_ms is None:
        return None
    window_ns = round(window_ms * 1e6)
    if not lengths:
        raise UsageError(
            "--window-ms: flow_windows is not among the tables; leave this option or the choice of tables out"
        )
    for run_id, base in sorted(lengths.items()):
        if window_ns <= 0 or window_ns % base:
            raise UsageError(
                f"--window-ms {window_ms:g}: not a multiple of the {base / 1e6:g} ms windows of {run_id}; "
                "give a multiple, or ingest the captures again with other windows"
            )
    return window_ns


def provenance(path: Path) -> dict[str, str]:
    """The key-value metadata of a table's file on how it was made, without their prefix. Raises UsageError."""
    metadata = _open(path).schema_arrow.metadata or {}
    return {
        name.removeprefix(_PREFIX).decode(): text.decode()
        for name, text in metadata.items()
        if name.startswith(_PREFIX)
    }


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise UsageError(f"{path}: not a sound Parquet file ({error}); ingest the run again") from error


# --- rows in the order of the key


class Unsorted(Exception):
    """Rows are not in the order of the key."""


def in_order(batches: Iterator[pa.RecordBatch], key: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The same batches; raises Unsorted at the first row that is less than the one before it. Nulls come last."""
    last: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            columns = batch.select(list(key))
            numbers = [_in_numbers(column) for column in pa.Table.from_batches([*last, columns]).columns]
            if _descends(numbers):
                raise Unsorted
            last = [columns.slice(columns.num_rows - 1)]
            yield batch


def _descends(numbers: Sequence[Any]) -> bool:
    """Whether any row is less than the one before it, by all columns in turn."""
    less: Any = False
    for column in reversed(numbers):
        before, after = column[:-1], column[1:]
        less = (after < before) | ((after == before) & less)
    return bool(np.any(less))


def _in_numbers(column: pa.ChunkedArray) -> Any:
    """Integers in the order of the values, nulls last."""
    if pa.types.is_integer(column.type) and not column.null_count:
        return column.to_numpy()
    encoded = column.combine_chunks().dictionary_encode()
    return pc.rank(encoded.dictionary).take(encoded.indices).fill_null(len(column) + 1).to_numpy()


def sort(batches: Iterator[pa.RecordBatch], key: Sequence[str], scratch: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """All rows by the key, nulls last, equal ones in their previous order; in batches of so many rows.

    scratch: path of a file that is written where they do not fit into memory. Raises OSError.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size > _IN_MEMORY:
            yield from _sort_on_disk(held, batches, key, scratch, rows)
            return
    if held:
        table = pa.Table.from_batches(held)
        order = pc.sort_indices(table, [(name, "ascending") for name in key])  # nulls last
        yield from table.take(order).combine_chunks().to_batches(rows)


def _sort_on_disk(
    held: list[pa.RecordBatch], others: Iterator[pa.RecordBatch], key: Sequence[str], scratch: Path, rows: int
) -> Iterator[pa.RecordBatch]:
    import duckdb

    file = scratch.with_suffix(".parquet")
    arrow = held[0].schema
    with pq.ParquetWriter(file, arrow, compression="lz4") as writer:
        while held:
            writer.write_batch(held.pop(0))
        for batch in others:
            writer.write_batch(batch)
    try:
        with duckdb.connect(config={"memory_limit": "400MB", "threads": 1, "temp_directory": f"{scratch}.tmp"}) as sql:
            order = ", ".join(f'"{name}" NULLS LAST' for name in key)
            columns = ", ".join(f'"{name}"' for name in arrow.names)
            rows_of = f"read_parquet({sql_literal(str(file))}, file_row_number = true, hive_partitioning = false)"
            query = f"SELECT {columns} FROM {rows_of} ORDER BY {order}, file_row_number"
            for batch in sql.sql(query).to_arrow_reader(rows):
                yield batch.cast(arrow)
    finally:
        file.unlink()
