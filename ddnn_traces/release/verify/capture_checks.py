"""The cut-down captures: an ingest of each run's folder must give the released tables.

What an ingest of them cannot give again is not compared (docs/anonymisation.md): sizes and hashes of the original
files, and estimates of clocks. Flows that begin at the same time are numbered by their addresses, which are others in
the captures: so flows are numbered again for the comparison.
"""

from __future__ import annotations

import re
import secrets
import shutil
import zlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import DdnnTracesError
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.release import facts
from ddnn_traces.release.verify.examined import (
    ASK,
    Examined,
    Finding,
    WrongError,
    failed,
    not_checked,
    passed,
    read_text,
    shown,
)
from ddnn_traces.store import hashes, layout, schema
from ddnn_traces.store.parquet import rows_file
from ddnn_traces.text import counted, sql_literal

if TYPE_CHECKING:
    import duckdb


#: Tables that captures and logs give; packets only where the release has them.
TABLES = (
    "runs", "hosts", "captures", "capture_ledger", "encapsulations", "flows", "flow_opcodes", "flow_windows",
    "messages", "steps", "step_flows", "events", "packets",
)  # fmt: skip

#: What an ingest of cut-down captures does not give again: what was captured, the clock's correction that is in the
#: logs' times already, estimates from a sample of the packets, and sequence numbers of TCP, which begin anew there.
NOT_COMPARED = frozenset(
    {"tcp_seq", "captured_bytes", "clock_offset_ns", "clock_offset_estimate_ns", "clock_drift_ppm"}
)
#: Of `captures` only these: the others are properties of the original file.
_OF_CAPTURES = frozenset({"run_id", "capture_id", "first_ns", "last_ns", "records", "wire_bytes", "vantage_ip"})
#: Numbers that follow from the order of addresses; flow_id is numbered again.
_RENUMBERED = frozenset({"reverse_flow_id", "encapsulation_id", "parent_id"})
#: A capture is unpacked to at most this many times its size, and a small file's worth: gzip reaches 1,032.
_MOST_GROWTH, _SMALL = 200, 64 << 20
#: Runs that --fast looks at: every tenth, at least 3.
_FAST_SHARE, _FAST_LEAST = 10, 3
#: Of a gzip file without a name, a time or other fields.
_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0"
_BLOCK_BYTES = 1 << 20
_FILES = ("run.toml", "*.pcap.gz", "train_history-*.log", "phases-*.csv", "events-*.csv")
_LEGEND = re.compile(r"^# (\S+) stands for (\S+)$", re.M)


def check_captures(examined: Examined) -> Iterator[Finding]:
    """Each run's captures, ingested again, give the run's rows of the released tables. Raises WrongError."""
    release = examined.release
    if not release.captures:
        return
    folders: dict[str, list[facts.File]] = {}
    for file in release.captures:
        run_id = file.path.removeprefix(f"{layout.CAPTURES}/").rpartition("/")[0]
        if run_id not in release.run_ids or not any(fnmatchcase(Path(file.path).name, known) for known in _FILES):
            raise WrongError(f"{shown(file.path)} is no file of a run's captures; {ASK}")
        folders.setdefault(run_id, []).append(file)
    runs = sorted(folders)
    chosen = runs
    if examined.fast:
        # at random: whoever made the release does not know which
        chosen = sorted(secrets.SystemRandom().sample(runs, min(len(runs), max(_FAST_LEAST, len(runs) // _FAST_SHARE))))
    right = 0
    for place, run_id in enumerate(chosen, 1):
        examined.report(f"captures: run {place} of {len(chosen)}")
        found = list(_of_run(examined, run_id, folders[run_id]))
        right += not found
        yield from found
    if right:
        extent = counted(right, "run")
        if examined.fast:
            extent = f"a sample: {right} of {counted(len(runs), 'run')} chosen at random"
        compared = ", ".join(table.name for table in release.tables if table.name in TABLES)
        yield passed("captures", f"{extent}; an ingest gives the released rows of {compared}")
    if without := len(release.run_ids) - len(runs):
        yield not_checked("runs without captures", f"{counted(without, 'run')}: their tables were not compared")


def _of_run(examined: Examined, run_id: str, files: list[facts.File]) -> Iterator[Finding]:
    """What is wrong with the captures of a run; nothing is left of its files."""
    import duckdb

    folder = examined.content / layout.CAPTURES / run_id
    scratch = examined.scratch / "captures"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        for file in files:
            if file.path.endswith(".gz"):
                _refuse_odd_gzip(examined.content / file.path, file)
        options, filtered = _options(examined, run_id)
        pipeline.ingest([str(folder)], scratch / "again", options)
        with duckdb.connect(config={"threads": examined.jobs, "memory_limit": "2GB"}) as connection:
            connection.execute(f"SET temp_directory = {sql_literal(str(scratch / 'spill'))}")
            connection.execute("SET preserve_insertion_order = false")
            compared = _Compared(connection, examined, run_id, scratch / "again", folder)
            wrong = [*compared.differences({"capture_ledger"} if filtered else set())]
        for what in wrong:
            yield failed(f"{layout.CAPTURES}/{run_id}", f"{what}; {ASK}")
    except (DdnnTracesError, WrongError, duckdb.Error, zlib.error) as error:
        reason = shown(str(error).replace(str(scratch), ""))
        yield failed(f"{layout.CAPTURES}/{run_id}", f"cannot be ingested and compared ({reason}); {ASK}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _refuse_odd_gzip(path: Path, file: facts.File) -> None:
    """Raise WrongError for a gzip file that grows without end, or holds anything but one compressed file."""
    most = _MOST_GROWTH * file.bytes + _SMALL
    size = 0
    unpack = zlib.decompressobj(wbits=31)
    with path.open("rb") as packed:
        if packed.read(len(_GZIP_HEAD)) != _GZIP_HEAD:
            raise WrongError(f"{path.name} is no gzip file without a name and a time")
        packed.seek(0)
        for block in iter(lambda: unpack.unconsumed_tail or packed.read(_BLOCK_BYTES), b""):
            size += len(unpack.decompress(block, _BLOCK_BYTES))
            if size > most:
                raise WrongError(f"{path.name} is {file.bytes:,} bytes and unpacks to more than {most:,}")
            if unpack.eof:
                break
        if not unpack.eof or unpack.unused_data or packed.read(1):
            raise WrongError(f"{path.name} is not whole, or has bytes after its end")


def _options(examined: Examined, run_id: str) -> tuple[IngestOptions, bool]:
    """The options of the ingest that made the run's tables, as release.json states them; whether it had a filter.

    A filter's addresses are not those of the captures, whose packets outside it became frames without IP.
    """
    release = examined.release
    of_run = [s.parameters for s in release.provenance if s.kind == "ingest" and (not s.runs or run_id in s.runs)]
    parameters: dict[str, Any] = dict(of_run[0]) if of_run else {}
    window_ns = release.windows_ns.get(run_id, parameters.get("window_ns", 1_000_000))
    has_packets = any(table.name == "packets" and run_id in table.runs for table in release.tables)
    options = IngestOptions(
        window_ms=window_ns / 1e6,
        tunnels=str(parameters.get("tunnels", "inner")),
        packets=has_packets,
        hash=hashes.NONE,
        jobs=examined.jobs,
    )
    return options, parameters.get("filter") is not None


class _Compared:
    """The rows of a run in the release and in the dataset of its captures, as views of one connection."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, examined: Examined, run_id: str, again: Path, folder: Path
    ) -> None:
        self._connection, self._run_id = connection, run_id
        toml = folder / "run.toml"
        legend = dict(_LEGEND.findall(read_text(toml))) if toml.is_file() else {}
        if len(set(legend.values())) < len(legend):
            raise WrongError("run.toml gives two addresses the same label")
        connection.execute("CREATE TABLE legend (ip VARCHAR, label VARCHAR)")
        if legend:
            connection.executemany("INSERT INTO legend VALUES (?, ?)", list(legend.items()))
        self._released = {
            table.name: [str(examined.content / file.path) for file in table.files if run_id in file.runs]
            for table in examined.release.tables
        }
        self._again = {name: rows_file(again, name, run_id) for name in TABLES}
        self._number_flows()

    def differences(self, leave_out: set[str]) -> Iterator[str]:
        """A text for each capture that is not whole, and for each table whose rows differ."""
        captures = self._rows("captures", of_release=False)
        for name, detail in self._connection.execute(
            f"SELECT capture_id, coalesce(status_detail, status) FROM ({captures}) WHERE status <> 'complete'"
        ).fetchall():
            yield f"{shown(name)} is not whole ({shown(detail)}): more or less than packets is in it"
        for table in TABLES:
            if table in self._released and table not in leave_out and (what := self._difference(table)):
                yield what

    def _rows(self, table: str, of_release: bool) -> str:
        """SQL of a table's rows on one side: nothing that differs by itself, addresses as the release has them."""
        files = (
            self._released.get(table, [])
            if of_release
            else [str(path) for path in [self._again[table]] if path.is_file()]
        )
        columns = [column.name for column in schema.table(table).columns]
        if not files:
            return f"SELECT {', '.join(f'NULL AS {name}' for name in columns)} WHERE false"
        listed = ", ".join(map(sql_literal, files))
        source = f"read_parquet([{listed}], hive_partitioning = false) WHERE run_id = {sql_literal(self._run_id)}"
        source += " AND profiler IS NULL" * (table == "events")  # what profilers recorded is in no log
        return f"SELECT {', '.join(columns)} FROM {source}"

    def _plain(self, table: str, of_release: bool) -> dict[str, str]:
        """As _rows(), what is compared: expressions by column."""
        side = "released_flows" if of_release else "flows_again"
        compared = {}
        for name in (column.name for column in schema.table(table).columns):
            if name in NOT_COMPARED | _RENUMBERED or (table == "captures" and name not in _OF_CAPTURES):
                continue
            compared[name] = name
            if name == "flow_id":
                compared[name] = f"(SELECT number FROM {side} AS f WHERE f.flow_id = t.flow_id)"
            elif name == "capture_id":
                compared[name] = "regexp_replace(capture_id, '[.](gz|zst)$', '')"
            elif name.endswith("_ip") and not of_release:
                compared[name] = f"coalesce((SELECT label FROM legend WHERE ip = t.{name}), t.{name})"
        return compared

    def _number_flows(self) -> None:
        """Tables with the number of each flow in an order that both sides share: by all that a flow has but numbers."""
        for name, of_release in (("released_flows", True), ("flows_again", False)):
            plain = self._plain("flows", of_release)
            order = ", ".join(plain[column] for column in plain if column not in ("flow_id", "connection"))
            numbered = f"SELECT flow_id, row_number() OVER (ORDER BY {order}) AS number"
            rows = self._rows("flows", of_release)
            self._connection.execute(f"CREATE TABLE {name} AS {numbered} FROM ({rows}) AS t")

    def _difference(self, table: str) -> str:
        """The first row that only one side has, in words; '' where both have the same rows."""
        sides = []
        for of_release, sign in ((True, 1), (False, -1)):
            columns = [f"{what} AS {name}" for name, what in self._plain(table, of_release).items()]
            sides.append(f"SELECT {', '.join(columns)}, {sign} AS side FROM ({self._rows(table, of_release)}) AS t")
        both, names = " UNION ALL ".join(sides), ", ".join(self._plain(table, True))
        sql = f"SELECT {names}, sum(side)::BIGINT AS more FROM ({both}) GROUP BY {names} HAVING more <> 0"
        total, odd = self._connection.execute(f"SELECT count(*), any_value(s) FROM ({sql}) AS s").fetchall()[0]
        if not total:
            return ""
        whose = "the release has" if odd.pop("more") > 0 else "the captures give"
        row = ", ".join(f"{name} {value}" for name, value in odd.items() if name != "run_id" and value is not None)
        rows = counted(total, "row")
        return (
            f"its rows of {table} are not those of the captures: {rows} on one side only; {whose} one with {shown(row)}"
        )
