"""The Parquet files: columns and units as schemas/ define them, rows, order, run, page index, compression."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ddnn_traces.release import columns, facts
from ddnn_traces.release.order import Unsorted, in_order
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, PASSED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout, schema
from ddnn_traces.text import counted

if TYPE_CHECKING:
    import pyarrow.parquet as pq

COLUMNS = "columns"
ROWS = "rows and order"
ENCODING = "encoding"
RUNS = "runs"

_BATCH_ROWS = 1 << 17
_ASK = "ask whoever published it, or publish the dataset again"


def check_columns(examined: Examined) -> Iterator[Result]:
    """Each file has the table's columns: names, order, types, nullability, and unit and released meaning at each."""
    yield from _each_table(
        examined, COLUMNS, _columns, lambda table: counted(len(schema.table(table).columns), "column")
    )


def check_rows(examined: Examined) -> Iterator[Result]:
    """Each file has as many rows as release.json says, in the order of the key, and of its folder's run only."""
    totals = {table.name: table.rows for table in examined.told().tables}
    yield from _each_table(examined, ROWS, _rows, lambda table: f"{counted(totals[table], 'row')} in order of the key")


def check_encoding(examined: Examined) -> Iterator[Result]:
    """Each file can be read from afar: zstd, statistics, page index and page checksums on every column."""
    passed = "zstd, statistics, page index and page checksums"
    yield from _each_table(examined, ENCODING, _encoding, lambda _: passed)


def check_runs(examined: Examined) -> Iterator[Result]:
    """release.json repeats the table runs, and every file is of one of its runs."""
    import pyarrow.parquet as pq

    release = examined.told()
    found: list[dict[str, Any]] = []
    for table in release.tables:
        for file in table.files:
            if file.run_id not in release.run_ids:
                raise WrongError(f"{shown(file.path)} is of a run that {layout.RELEASE} does not have; {_ASK}")
            if table.name == "runs":
                found += _open(examined, file, pq).read().to_pylist()
    told = json.loads(json.dumps(list(release.runs)))
    if json.loads(json.dumps(sorted(found, key=lambda run: run["run_id"]))) != told:
        raise WrongError(f"the table runs is not what {layout.RELEASE} says of the runs; {_ASK}")
    yield Result(RUNS, "runs", PASSED, f"{counted(len(found), 'run')} as {layout.RELEASE} has them")


def _each_table(
    examined: Examined,
    check: str,
    wrong: Callable[[Examined, facts.TableFile, str, pq.ParquetFile], str],
    passed: Callable[[str], str],
) -> Iterator[Result]:
    """A line for each table of which no file is wrong, and for each file that is."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def look(table: str, file: facts.TableFile) -> str:
        try:
            return wrong(examined, file, table, _open(examined, file, pq))
        except (pa.ArrowException, OSError, WrongError) as error:
            return f"cannot be read ({shown(error)}); get it again from where the release is from"

    for table in examined.told().tables:
        with ThreadPoolExecutor(examined.jobs) as threads:
            found = list(threads.map(look, [table.name] * len(table.files), table.files))
        for file, what in zip(table.files, found, strict=True):
            if what:
                yield Result(check, shown(file.path), FAILED, what)
        if not any(found):
            yield Result(check, table.name, PASSED, passed(table.name))


def _open(examined: Examined, file: facts.TableFile, pq: Any) -> pq.ParquetFile:
    path: Path = examined.content / file.path
    return pq.ParquetFile(path, read_dictionary=["run_id"], page_checksum_verification=True)


def _columns(examined: Examined, _file: facts.TableFile, table: str, parquet: pq.ParquetFile) -> str:
    defined = columns.released(table, examined.told().anonymisation)
    there = parquet.metadata.schema.to_arrow_schema()  # without read_dictionary's change
    names = [column.name for column in defined.columns]
    if there.names != names:
        lacking, odd = [n for n in names if n not in there.names], [n for n in there.names if n not in names]
        told = [*(f"lacks {shown(n)}" for n in lacking[:5]), *(f"has {shown(n)}, which is none" for n in odd[:5])]
        return f"its columns are not those of {table} ({', '.join(told) or 'in another order'}); {_ASK}"
    for column, field, right in zip(defined.columns, there, defined.arrow(), strict=True):
        if field.type != right.type or field.nullable != right.nullable:
            kinds = [f"{f.type}{'' if f.nullable else ', never null'}" for f in (field, right)]
            return f"its column {column.name} is {kinds[0]}; {table} has it as {kinds[1]}; {_ASK}"
        notes = field.metadata or {}
        for name, text in (("unit", column.unit), ("meaning", column.meaning)):
            if notes.get(name.encode(), b"").decode(errors="replace") != text:
                return f"the {name} noted at its column {column.name} is not that of {table} ({text!r}); {_ASK}"
    return ""


def _rows(examined: Examined, file: facts.TableFile, table: str, parquet: pq.ParquetFile) -> str:
    if parquet.metadata.num_rows != file.rows:
        return f"has {counted(parquet.metadata.num_rows, 'row')}, {layout.RELEASE} says {file.rows:,}; {_ASK}"
    key = [name for name in schema.table(table).key if name != "run_id"]
    lengths = set()
    windowed = ["window_ns"] if table == "flow_windows" else []
    for batch in parquet.iter_batches(_BATCH_ROWS, columns=["run_id", *windowed], use_threads=False):
        lengths |= set(batch.column("window_ns").unique().to_pylist()) if windowed else set()
        runs = set(batch.column("run_id").unique().to_pylist())
        if runs != {file.run_id}:
            others = shown(", ".join(sorted(map(str, runs - {file.run_id}))))
            return f"its folder says run {shown(file.run_id)}, its column run_id also {others}; {_ASK}"
    told = examined.told().windows_ns.get(file.run_id)
    if windowed and lengths != {told}:
        found = ", ".join(sorted(f"{length} ns" for length in lengths))
        return f"its windows are of {shown(found)}, {layout.RELEASE} says {told} ns; {_ASK}"
    try:
        for _ in in_order(parquet.iter_batches(_BATCH_ROWS, columns=key, use_threads=False), key):
            pass
    except Unsorted:
        return f"its rows are not in the order of {', '.join(key)}; {_ASK}"
    return ""


def _encoding(examined: Examined, file: facts.TableFile, _table: str, parquet: pq.ParquetFile) -> str:
    with (examined.content / file.path).open("rb") as content:
        return _lacking(parquet, content)


def _lacking(parquet: pq.ParquetFile, content: BinaryIO) -> str:
    metadata = parquet.metadata
    for group in range(metadata.num_row_groups):
        for place in range(metadata.num_columns):
            column = metadata.row_group(group).column(place)
            lacking = [
                *([] if column.compression == "ZSTD" else [f"zstd ({column.compression})"]),
                *([] if column.is_stats_set else ["statistics"]),
                *([] if column.has_offset_index and column.has_column_index else ["a page index"]),
                *([] if _has_checksum(content, column) else ["page checksums"]),
            ]
            if lacking:
                return f"its column {shown(column.path_in_schema)} lacks {', '.join(lacking)}; {_ASK}"
    return ""


def _has_checksum(content: BinaryIO, column: pq.ColumnChunkMetaData) -> bool:
    """Whether the first page of a column has a checksum: pyarrow checks one, and does not tell whether there is any.

    A page's header is Thrift's compact protocol: type, two sizes and crc are its fields 1 to 4, all of 32 bits; 0x15
    says "the next field, of 32 bits", a number goes on while a byte's highest bit is set.
    """
    content.seek(column.dictionary_page_offset or column.data_page_offset)
    head = content.read(32)
    place = 0
    for _ in ("type", "uncompressed_page_size", "compressed_page_size"):
        if head[place : place + 1] != b"\x15":
            return False
        place += 1
        while place < len(head) and head[place] & 0x80:
            place += 1
        place += 1
    return head[place : place + 1] == b"\x15"
