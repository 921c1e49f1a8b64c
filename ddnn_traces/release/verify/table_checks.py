"""The tables of a release: columns, rows and encoding of the Parquet files, and the data checks on their content.

A check may raise WrongError, of which running.py makes a finding.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ddnn_traces.errors import DdnnTracesError
from ddnn_traces.jobs import thread_pool
from ddnn_traces.query import catalogue, checks
from ddnn_traces.release import facts
from ddnn_traces.release.verify import footer_checks
from ddnn_traces.release.verify.examined import (
    AGAIN,
    ASK,
    FLAGGED,
    Examined,
    Finding,
    WrongError,
    failed,
    not_checked,
    passed,
    shown,
    unless,
)
from ddnn_traces.store import layout, schema
from ddnn_traces.text import counted, is_address, sql_literal

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq


_BATCH_ROWS = 1 << 17


#: A file may claim so many rows for each of its bytes, and so many in any case: windows of synthetic packets, which
#: compress better than real ones, take 1.2 bytes a row; a constant takes next to nothing.
_ROWS_A_BYTE, _SMALL_ROWS = 8, 100_000
#: Rows of a row group (publish: 2^20), unpacked bytes of a column in it, and how many times its packed ones.
_GROUP_ROWS, _CHUNK_BYTES, _GROWTH = 1 << 21, 256 << 20, 200


def check_sizes(examined: Examined) -> Iterator[Finding]:
    """No Parquet file claims more rows or bytes than its size makes plausible, as its footer alone states."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    wrong = []
    for file in examined.release.table_files:
        try:
            metadata = pq.read_metadata(examined.content / file.path)
        except (pa.ArrowException, OSError):
            continue  # the check of columns says so
        if what := _implausible(metadata, file):
            wrong.append(failed(file.path, f"{what}, which is not plausible; nothing of the tables was read; {ASK}"))
    examined.implausible = bool(wrong)
    rows = sum(table.rows for table in examined.release.tables)
    size = sum(file.bytes for file in examined.release.table_files)
    yield from unless(wrong, passed("tables", f"{counted(rows, 'row')} in {counted(size, 'byte')}"))


def _implausible(metadata: pq.FileMetaData, file: facts.TableFile) -> str:
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    rows = max(metadata.num_rows, sum(group.num_rows for group in groups), file.rows)
    if rows > max(_SMALL_ROWS, _ROWS_A_BYTE * file.bytes):
        return f"claims {rows:,} rows in {file.bytes:,} bytes"
    for group in groups:
        if group.num_rows > _GROUP_ROWS:
            return f"has a row group of {group.num_rows:,} rows"
        for column in map(group.column, range(group.num_columns)):
            packed, unpacked = column.total_compressed_size, column.total_uncompressed_size
            if unpacked > min(_CHUNK_BYTES, _GROWTH * packed + (1 << 20)):
                return f"claims {unpacked:,} bytes in {packed:,} of column {shown(column.path_in_schema)}"
            if column.num_values != group.num_rows:
                return f"claims {column.num_values:,} values in {group.num_rows:,} rows"
    return ""


def check_columns(examined: Examined) -> Iterator[Finding]:
    """Each file has the table's columns: names, order, types, nullability, and unit and released meaning at each."""
    yield from _each_table(examined, _columns, lambda table: counted(len(schema.table(table).columns), "column"))


def check_rows(examined: Examined) -> Iterator[Finding]:
    """Each file has as many rows of each run as release.json states, in the order of the key."""
    totals = {table.name: table.rows for table in examined.release.tables}
    yield from _each_table(examined, _rows, lambda table: f"{counted(totals[table], 'row')} in order of the key")


def check_encoding(examined: Examined) -> Iterator[Finding]:
    """Each file can be read remotely in parts: zstd, statistics, page index and page checksums on every column.

    All of its bytes belong to its columns.
    """
    right = "zstd, statistics, page index and page checksums, no other bytes"
    yield from _each_table(examined, _encoding, lambda _: right)


def check_runs(examined: Examined) -> Iterator[Finding]:
    """release.json repeats the table runs, and every file is of one of its runs. Raises WrongError."""
    release = examined.release
    found: list[dict[str, Any]] = []
    for table, file in ((one, file) for one in release.tables for file in one.files):
        if odd := file.runs.keys() - set(release.run_ids):
            raise WrongError(
                f"{shown(file.path)} is of a run that {layout.RELEASE} does not have ({shown(min(odd))}); {ASK}"
            )
        if table.name == "runs":
            found += _open(examined, file).read().to_pylist()
    declared = json.loads(json.dumps(list(release.runs)))
    if json.loads(json.dumps(sorted(found, key=lambda run: run["run_id"]))) != declared:
        raise WrongError(f"the table runs differs from the runs in {layout.RELEASE}; {ASK}")
    yield passed("runs", f"{counted(len(found), 'run')} as {layout.RELEASE} has them")


def check_samples(examined: Examined) -> Iterator[Finding]:
    """The rows that the card shows are the first ones of each table, as DuckDB reads them; the figure's its query's."""
    import duckdb

    release = examined.release
    if not release.samples and not release.figure:
        yield not_checked("samples", f"{layout.RELEASE} has none")
        return
    for table in release.tables:
        files = ", ".join(sql_literal(str(examined.content / file.path)) for file in table.files)
        source = f"read_parquet([{files}], hive_partitioning = false, union_by_name = true)"
        with duckdb.connect(config={"threads": 1}) as connection:
            found = connection.sql(f"FROM {source} LIMIT {facts.FIRST_ROWS}").to_arrow_table().to_pylist()
        if _plain(found) != list(release.samples.get(table.name, ())):
            yield failed(table.name, f"the first rows in {layout.RELEASE} are not those of the table; {ASK}")
        else:
            yield passed(table.name, f"{counted(len(found), 'row')} as in the table")
    with checks.with_little_memory(examined.folder, [], examined.jobs, _spill(examined)) as opened:
        drawn = opened.query("pair_volume", runs=facts.FIGURE_RUNS, hosts=facts.FIGURE_HOSTS).to_dicts()
    if _plain(drawn) != list(release.figure):
        yield failed("figure", f"its rows in {layout.RELEASE} are not those of query pair_volume; {ASK}")
    else:
        yield passed("figure", f"{counted(len(drawn), 'row')} as query pair_volume has them")


def _plain(rows: list[dict[str, Any]]) -> Any:
    """Rows as JSON has them: it knows no infinite number."""
    finite = [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()}
        for row in rows
    ]
    return json.loads(json.dumps(finite))


#: Ports that classes leave as they are: those that tell a tunnel or RoCE from other traffic.
_CLASSED_PORTS = {0, 1, 1024, 32768, 4789, 8472, 6081, 4791}
#: Addresses that are withheld with something else, since this version.
_WITH_OTHERS = {"clock_reference_ip"}
#: Shifted times are in these years, ns since the epoch: 1971 to the end of 2037.
_FIRST_NS, _LAST_NS = 31_536_000 * 10**9, 2_145_916_800 * 10**9


def check_anonymisation(examined: Examined) -> Iterator[Finding]:
    """Values are what release.json states of them: no address under labels, no value of what was withheld, ...

    The hash of every capture is that of an input of the ingest.
    """
    done = examined.release.anonymisation
    yield from _each_table(examined, _anonymised, lambda _: f"addresses {done.addresses}, ports {done.ports}, "
                                                            f"times {done.times}, as its values show")  # fmt: skip
    known = {digest for step in examined.release.provenance for digest in step.inputs.values()}
    captures = [file for table in examined.release.tables if table.name == "captures" for file in table.files]
    rows = [row for file in captures for row in _open(examined, file).read(columns=["sha256", "blake3"]).to_pylist()]
    hashes = [{row["sha256"], row["blake3"] and f"blake3:{row['blake3']}"} - {None} for row in rows]
    if lacking := [either for either in hashes if either and not either & known]:
        yield failed("provenance", f"no step names the capture with the hash {shown(min(lacking[0]))}; {ASK}")
    elif any(hashes):
        yield passed("provenance", f"its steps name {counted(sum(map(bool, hashes)), 'capture')} by their hashes")


def _anonymised(examined: Examined, _file: facts.TableFile, table: str, parquet: pq.ParquetFile) -> str:
    done = examined.release.anonymisation
    is_earlier = examined.release.software != facts.SOFTWARE
    for column in schema.table(table).columns:
        kind, name = column.identifies, column.name
        if name in _WITH_OTHERS and (is_earlier or kind not in done.withheld):
            kind = "address"
        if kind in done.withheld:
            if any(batch.column(0).null_count < len(batch) for batch in parquet.iter_batches(columns=[name])):
                return f"has values of {name}, which {layout.RELEASE} states as withheld; {ASK}"
        elif kind == "address" and done.addresses != "kept":
            wants_label = done.addresses == "roles"
            odd = {one for one in _values(parquet, name) if one and is_address(one) == wants_label}
            if odd:
                return f"has {shown(min(odd))} in {name}, which is not as {done.addresses} makes it; {ASK}"
        elif kind == "port" and done.ports == "classed":
            odd = _values(parquet, name) - _CLASSED_PORTS - {None}
            if odd:
                return f"has the port {min(odd)} in {name}, which is no class of ports; {ASK}"
        elif kind == "time" and done.times == "shifted":
            odd = {one for one in _bounds(parquet, name) if not _FIRST_NS <= one < _LAST_NS}
            if odd:
                return f"has the time {min(odd)} in {name}, which is not between 1971 and 2037; {ASK}"
    return ""


def _values(parquet: pq.ParquetFile, name: str) -> set[Any]:
    found: set[Any] = set()
    for batch in parquet.iter_batches(columns=[name]):
        found.update(batch.column(0).unique().to_pylist())
    return found


def _bounds(parquet: pq.ParquetFile, name: str) -> list[int]:
    """Least and greatest value of a column in each row group, from the statistics."""
    place = parquet.metadata.schema.names.index(name)
    groups = [parquet.metadata.row_group(number).column(place) for number in range(parquet.metadata.num_row_groups)]
    known = [group.statistics for group in groups if group.statistics and group.statistics.has_min_max]
    return [bound for one in known for bound in (one.min, one.max)]


def _each_table(
    examined: Examined,
    wrong: Callable[[Examined, facts.TableFile, str, pq.ParquetFile], str],
    right: Callable[[str], str],
) -> Iterator[Finding]:
    """A line for each table whose files are all right, and for each file that is wrong."""
    import pyarrow as pa

    def examine(table: str, file: facts.TableFile) -> str:
        try:
            return wrong(examined, file, table, _open(examined, file))
        except (pa.ArrowException, OSError, WrongError) as error:
            return f"cannot be read ({shown(error)}); {AGAIN}"

    for table in examined.release.tables:
        with thread_pool(examined.jobs) as threads:
            found = list(threads.map(examine, [table.name] * len(table.files), table.files))
        files = zip(table.files, found, strict=True)
        yield from unless(
            (failed(file.path, what) for file, what in files if what), passed(table.name, right(table.name))
        )


def _open(examined: Examined, file: facts.TableFile) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    return pq.ParquetFile(examined.content / file.path, read_dictionary=["run_id"], page_checksum_verification=True)


def _columns(examined: Examined, _file: facts.TableFile, table: str, parquet: pq.ParquetFile) -> str:
    defined, withheld = schema.table(table), examined.release.anonymisation.withheld
    present = parquet.metadata.schema.to_arrow_schema()  # without read_dictionary's change
    names = [column.name for column in defined.columns]
    if present.names != names:
        lacking, odd = [n for n in names if n not in present.names], [n for n in present.names if n not in names]
        wrong = [*(f"lacks {shown(n)}" for n in lacking[:5]), *(f"has {shown(n)} in addition" for n in odd[:5])]
        return f"its columns are not those of {table} ({', '.join(wrong) or 'in another order'}); {ASK}"
    for column, field, right in zip(defined.columns, present, defined.arrow(), strict=True):
        may_be_null = right.nullable or column.identifies in withheld
        if field.type != right.type or field.nullable != may_be_null:
            nullable = ((field.type, field.nullable), (right.type, may_be_null))
            kinds = [f"{kind}{'' if may_be else ', never null'}" for kind, may_be in nullable]
            return f"its column {column.name} is {kinds[0]}; {table} has it as {kinds[1]}; {ASK}"
        notes = field.metadata or {}
        for name, text in (("unit", column.unit), ("meaning", column.meaning)):
            noted, joint, _ = notes.get(name.encode(), b"").decode(errors="replace").partition(". In this release: ")
            if noted != text or (joint and not column.identifies):
                return f"the {name} noted at its column {column.name} is not that of {table} ({text!r}); {ASK}"
    return ""


def _rows(examined: Examined, file: facts.TableFile, table: str, parquet: pq.ParquetFile) -> str:
    if parquet.metadata.num_rows != file.rows:
        return f"has {counted(parquet.metadata.num_rows, 'row')}, {layout.RELEASE} states {file.rows:,}; {ASK}"
    import polars as pl

    key = [name for name in schema.table(table).key if name != "run_id"]
    windowed = ["window_ns"] if table == "flow_windows" else []
    found: Counter[str] = Counter()
    lengths: set[tuple[str, int]] = set()
    wrong, last = "", None
    for batch in parquet.iter_batches(_BATCH_ROWS, columns=["run_id", *key, *windowed], use_threads=False):
        frame = pl.DataFrame(batch).with_columns(pl.col("run_id").cast(pl.String))
        found.update(dict(frame["run_id"].value_counts().rows()))
        lengths.update(frame.select("run_id", *windowed).unique().rows() if windowed else ())
        keys = frame.select("run_id", *key)
        wrong = wrong or _out_of_order(keys if last is None else pl.concat([last, keys]))
        last = keys.tail(1)
    if found != file.runs:
        counts = (sorted(one.items(), key=lambda pair: str(pair[0])) for one in (found, file.runs))
        present, stated = (", ".join(f"{count:,} of {run}" for run, count in one) for one in counts)
        return f"has other rows ({shown(present)}) than {layout.RELEASE} states ({shown(stated)}); {ASK}"
    if wrong:
        return f"{wrong} {', '.join(key) or 'run_id'}; {ASK}"
    declared = examined.release.windows_ns
    if odd := sorted((str(run), ns) for run, ns in lengths if ns != declared.get(run)):
        run, length = odd[0]
        return f"has windows of {length} ns of run {shown(run)}, {layout.RELEASE} states {declared.get(run)} ns; {ASK}"
    return ""


def _out_of_order(keys: pl.DataFrame) -> str:
    """What is wrong with the order of some keys, '' where each row is above the one before it. Nulls come last."""
    import polars as pl

    less, equal = pl.lit(False), pl.lit(True)
    for name in reversed(keys.columns):
        before, after = pl.col(name).shift(1), pl.col(name)
        less = (after < before).fill_null(after.is_not_null() & before.is_null()) | (after.eq_missing(before) & less)
        equal = equal & after.eq_missing(before)
    for rows, what in (
        (less, "its rows of run {} are not in the order of"),
        (equal, "two of its rows of run {} have the same"),
    ):
        if (odd := keys.slice(1).filter(keys.select(wrong=rows)["wrong"].slice(1))).height:
            return what.format(shown(odd["run_id"][0]))
    return ""


def _encoding(examined: Examined, file: facts.TableFile, _table: str, parquet: pq.ParquetFile) -> str:
    metadata = parquet.metadata
    with (examined.content / file.path).open("rb") as content:
        for group, place in itertools.product(range(metadata.num_row_groups), range(metadata.num_columns)):
            column = metadata.row_group(group).column(place)
            has = {
                f"zstd ({column.compression})": column.compression == "ZSTD",
                "statistics": column.is_stats_set,
                "a page index": column.has_offset_index and column.has_column_index,
                "page checksums": _has_checksum(content, column),
            }
            if not all(has.values()):
                lacking = ", ".join(what for what, there in has.items() if not there)
                return f"its column {shown(column.path_in_schema)} lacks {lacking}; {ASK}"
    try:
        hidden = footer_checks.hidden_bytes(examined.content / file.path)
    except (IndexError, KeyError, ValueError) as error:
        hidden = f"has a footer that cannot be read whole ({shown(repr(error))})"
    return f"{hidden}; {ASK}" if hidden else ""


def _has_checksum(content: BinaryIO, column: pq.ColumnChunkMetaData) -> bool:
    """Whether the first page of a column has a checksum: pyarrow checks one, but does not report whether there is one.

    A page's header is Thrift's compact protocol: type, two sizes and crc are its fields 1 to 4, all of 32 bits; 0x15
    marks "the next field, of 32 bits", a number continues while a byte's highest bit is set.
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


# --- the data checks

#: Tables that may be empty in a dataset; to the checks a release without them is the same.
_OPTIONAL = {"packets", "encapsulations", "flow_opcodes", "messages", "steps", "step_flows", "events"}


def check_data(examined: Examined) -> Iterator[Finding]:
    """No data check returns rows, except of runs that the release itself flags, and as many as it states."""
    release = examined.release
    tables = {table.name for table in release.tables}
    rows_of_runs: Counter[str] = Counter(dict.fromkeys(release.run_ids, 0))
    for table in release.tables:
        rows_of_runs.update(table.runs)
    try:
        found = checks.run_in_groups(
            lambda runs, at_once: checks.with_little_memory(
                examined.folder, runs, examined.jobs, _spill(examined), at_once
            ),
            rows_of_runs,
            examined.jobs,
        )
    except DdnnTracesError as error:
        raise WrongError(f"the tables cannot be queried ({shown(error)}); see the failures above") from None
    for name, rows in found.items():
        inputs = _inputs(name)
        # steps are needed only where another table names them
        optional = _OPTIONAL - {"steps"} if tables & {"step_flows", "events"} else _OPTIONAL
        if lacking := inputs - optional - tables:
            yield not_checked(name, f"the release does not have {', '.join(sorted(lacking))}")
        else:
            allowed = {run: counts[name] for run, counts in release.flagged.items() if name in counts}
            yield from _of_check(name, rows, inputs - tables, _withheld(name, release), allowed)
    for name in sorted({name for counts in release.flagged.values() for name in counts} - found.keys()):
        yield not_checked(shown(name), f"{layout.RELEASE} names a check that this program does not have")


def _spill(examined: Examined) -> Path:
    """A folder of its own for each DuckDB."""
    return examined.scratch / f"duckdb-{secrets.token_hex(4)}"


def _withheld(name: str, release: facts.Release) -> set[str]:
    """Columns that a check names and that are null in the release: it finds fewer rows there than the publisher's."""
    text = (checks.folder() / f"{name}.sql").read_text(encoding="utf-8")
    columns = {column for kind in release.anonymisation.withheld for _, column in schema.identifying(kind)}
    return columns & set(re.findall(r"\w+", text))


def _of_check(
    name: str, rows: pa.Table, absent: set[str], withheld: set[str], allowed: dict[str, int]
) -> Iterator[Finding]:
    """A line for each run that fails or is flagged, and for rows about tables that are not in the release."""
    about_absent = [any(_mentions(value, absent) for value in row.values()) for row in rows.to_pylist()]
    if any(about_absent):
        detail = (
            f"{counted(sum(about_absent), 'row')} about {', '.join(sorted(absent))}, which the release does not have"
        )
        yield not_checked(name, detail)
    runs = Counter(
        run for run, excused in zip(rows["run_id"].to_pylist() if rows.num_rows else (), about_absent, strict=True)
        if not excused
    )  # fmt: skip
    for run in sorted(runs.keys() | allowed.keys()):
        yield _of_run(name, run, runs[run], allowed.get(run, 0), bool(absent or withheld), withheld)
    if not runs and not allowed and not any(about_absent):
        yield passed(name, "returns no row")


def _of_run(name: str, run: str, rows: int, allowed: int, partly: bool, withheld: set[str]) -> Finding:
    """partly: rows may have been about what is not in the release. withheld: columns that the check lacks there."""
    subject = f"{name}: {shown(run)}"
    if rows == allowed or (partly and rows < allowed):
        detail = f"returns {counted(rows, 'row')}, {layout.RELEASE} flags the run for {allowed:,}"
        why = f", found with {' and '.join(sorted(withheld))}, withheld here" if withheld and rows < allowed else ""
        return Finding(subject, FLAGGED, f"{detail}{why}")
    expected = f"{layout.RELEASE} states {allowed:,}" if allowed else f"{layout.RELEASE} does not flag the run"
    detail = f"returns {counted(rows, 'row')}, and {expected}; 'ddnn-traces check' shows them; ask the publisher"
    return failed(subject, detail)


def _mentions(value: object, tables: set[str]) -> bool:
    return isinstance(value, str) and bool(tables & set(re.findall(r"\w+", value)))


def _inputs(name: str) -> set[str]:
    """Tables that a check reads, also through queries, from its head."""
    (line,) = re.findall(r"^-- inputs: (.+)$", (checks.folder() / f"{name}.sql").read_text(encoding="utf-8"), re.M)
    named = set(re.split(r",\s*", line))
    through = {table for query in named & catalogue.catalogue().keys() for table in catalogue.read_by(query)}
    return (named | through) & set(schema.TABLES)
