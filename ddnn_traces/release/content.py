"""The tables of a release: every run's rows mapped, in order, as Parquet made for readers that are far away.

A file has row groups of 2**20 rows: a reader that prunes by run and time fetches a footer of some kB and then whole
column chunks of 0.1 to 8 MB, few enough requests and large enough ones; pages of 20,000 rows with column and offset
index let it fetch less where it can. Memory holds two row groups a thread, whatever the size of the dataset.

Threads, not processes: decoding, mapping, compression and hashing are done by libraries that release the interpreter,
and nothing has to be pickled, imported again or ended.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ddnn_traces.errors import UsageError
from ddnn_traces.release import facts
from ddnn_traces.release.order import Unsorted, in_order, sort
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import annotated, encodings, partition, row_groups

ROW_GROUP_ROWS = 1 << 20
_BATCH_ROWS = 1 << 17
_PREFIX = b"ddnn_traces."


class RunMapping(Protocol):
    """What anonymisation does to a run's rows (anonymise/mapping.py)."""

    def batch(self, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with what identifies mapped: same schema, same order."""

    def parameters(self, provenance: Mapping[str, str]) -> dict[str, str]:
        """Key-value metadata as they may be published."""


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
    """What the threads share: `advance` is told (bytes, rows) of sources that were read; `stop` ends them."""

    advance: Callable[[int, int], None] = lambda _bytes, _rows: None
    stop: threading.Event = field(default_factory=threading.Event)


class _StoppedError(Exception):
    """Another thread failed, or the user wants no more."""


def sources(dataset: Path, runs: Sequence[str], tables: Sequence[str]) -> list[Source]:
    """What there is to publish, tables in their order, runs in order; those without rows are left out.

    Raises UsageError for a file that is no Parquet.
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
) -> tuple[facts.Table, ...]:
    """Write the tables into the folder `release`. mapping: that of a run. window_ns: windows to sum flow_windows to.
    defined: a table with the meanings that are noted at its columns (columns.py).

    The bytes do not depend on `jobs`, threads. scratch: an empty folder for what has to be sorted. Raises UsageError,
    OSError.
    """
    progress = progress or Progress()
    maps = {run_id: mapping(run_id) for run_id in sorted({source.run_id for source in wanted})}

    def job(source: Source) -> facts.TableFile:
        return _write_file(source, release, maps[source.run_id], scratch, window_ns, progress, defined(source.table))

    # the largest first, so that no thread begins it when the others are done
    with ThreadPoolExecutor(jobs, "publish") as threads:
        futures = {source: threads.submit(job, source) for source in sorted(wanted, key=lambda s: -s.bytes)}
        try:
            done, _ = wait(futures.values(), return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            progress.stop.set()
            threads.shutdown(cancel_futures=True)
            raise
    written: dict[str, list[facts.TableFile]] = {}
    for source in wanted:
        written.setdefault(source.table, []).append(futures[source].result())
    return tuple(facts.Table(table, tuple(files)) for table, files in written.items())


def _write_file(
    source: Source,
    release: Path,
    mapping: RunMapping,
    scratch: Path,
    window_ns: int | None,
    progress: Progress,
    defined: schema.Table,
) -> facts.TableFile:
    path = partition(release, source.table, source.run_id) / "part-0.parquet"
    path.parent.mkdir(parents=True)
    told = mapping.parameters(provenance(source.files[0]))

    def batches() -> Iterator[pa.RecordBatch]:
        mapped = (mapping.batch(source.table, batch) for batch in _read(source, progress))
        return coarser(mapped, window_ns) if source.table == "flow_windows" and window_ns else mapped

    key = [name for name in schema.table(source.table).key if name != "run_id"]  # which is the same in all rows
    try:
        rows = _write_parquet(path, defined, told, in_order(batches(), key))
    except Unsorted:
        name = scratch / f"{source.table}-{hashlib.sha256(source.run_id.encode()).hexdigest()[:16]}"
        rows = _write_parquet(path, defined, told, sort(batches(), key, name, _BATCH_ROWS))
    size, sha256 = path.stat().st_size, file_hash(path)
    return facts.TableFile(path.relative_to(release).as_posix(), size, sha256, source.run_id, rows)


def _write_parquet(
    path: Path, defined: schema.Table, told: Mapping[str, str], batches: Iterator[pa.RecordBatch]
) -> int:
    arrow = annotated(defined.name, told, defined)
    sorted_by = [pq.SortingColumn(arrow.get_field_index(name)) for name in defined.key]
    rows = 0
    with pq.ParquetWriter(
        path,
        arrow,
        compression="zstd",
        write_page_index=True,
        write_page_checksum=True,
        sorting_columns=sorted_by,
        **encodings(defined.name),
    ) as writer:
        for group in row_groups(batches, arrow, ROW_GROUP_ROWS):
            writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
            rows += group.num_rows
    return rows


def _read(source: Source, progress: Progress) -> Iterator[pa.RecordBatch]:
    """The run's rows in the table's schema. Raises UsageError where a file is not of it, or of another run.

    That run_id is the same in all rows is seen in the statistics: to read it costs more than all other columns.
    """
    arrow = schema.table(source.table).arrow()
    others = [name for name in arrow.names if name != "run_id"]
    for path in source.files:
        file = _open(path)
        if file.schema_arrow.names != arrow.names or file.schema_arrow.types != arrow.types:
            raise UsageError(f"{path}: its columns are not those of {source.table}; ingest the run again")
        if not _is_of_run(file, source.run_id):
            raise UsageError(f"{path}: has rows of another run than its folder's; ingest the run again")
        size = path.stat().st_size / max(1, file.metadata.num_rows)
        for batch in file.iter_batches(_BATCH_ROWS, columns=others, use_threads=False):
            if progress.stop.is_set():
                raise _StoppedError
            rows = batch.num_rows
            run_id = pa.repeat(pa.scalar(source.run_id), rows)
            columns = [run_id if name == "run_id" else batch.column(name) for name in arrow.names]
            yield pa.RecordBatch.from_arrays(columns, schema=arrow)
            progress.advance(round(size * rows), rows)


def _is_of_run(file: pq.ParquetFile, run_id: str) -> bool:
    """Whether all rows are of the run."""
    place = file.schema_arrow.get_field_index("run_id")
    for number in range(file.metadata.num_row_groups):
        told = file.metadata.row_group(number).column(place).statistics
        if told and told.has_min_max and told.has_null_count and not told.null_count and told.min == told.max == run_id:
            continue
        column = file.read_row_group(number, columns=["run_id"]).column(0)  # long names may be cut in statistics
        if column.null_count or pc.any(pc.not_equal(column, run_id)).as_py():
            return False
    return True


def coarser(batches: Iterator[pa.RecordBatch], window_ns: int) -> Iterator[pa.RecordBatch]:
    """Rows of flow_windows summed to windows of window_ns, a multiple of theirs, which they are in order of."""
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
    sizes, keys = ("packets", "wire_bytes", "payload_bytes"), ("run_id", "window_start_ns", "flow_id")
    summed = table.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in sizes])
    summed = summed.rename_columns({f"{name}_sum": name for name in sizes}).sort_by(
        [(name, "ascending") for name in keys]
    )
    return summed.append_column("window_ns", pa.repeat(pa.scalar(window_ns, pa.int64()), summed.num_rows))


def _in_schema(table: pa.Table, arrow: pa.Schema) -> Iterator[pa.RecordBatch]:
    yield from table.select(arrow.names).cast(arrow).to_batches()


def window_lengths(wanted: Sequence[Source]) -> dict[str, int]:
    """Base window of each run that has any, ns."""
    lengths = {}
    for source in wanted:
        if source.table == "flow_windows":
            first = next(_open(source.files[0]).iter_batches(1, columns=["window_ns"]))
            lengths[source.run_id] = first.column(0)[0].as_py()
    return lengths


def provenance(path: Path) -> dict[str, str]:
    """What a table's file says of its making."""
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
        raise UsageError(f"{path}: no sound Parquet file ({error}); ingest the run again") from error


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
