"""From the facts of a run's captures to the run's tables.

DuckDB computes the joins and sums over flows and cells (the .sql files here, one for each intermediate table or
result): it sorts and aggregates beyond memory, so that a run's windows need not fit. Everything has a total order; the
same facts give the same rows in the same order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.ingestors import parsed_files
from ddnn_traces.ingestors.reconcile.described import DescribedTables, connect, rows_of, running
from ddnn_traces.ingestors.reconcile.host_clocks import host_offsets
from ddnn_traces.ingestors.reconcile.log_clocks import LogClock
from ddnn_traces.ingestors.reconcile.vantage import find_vantages, number_series, order_of_files
from ddnn_traces.ingestors.run_description import Description, PacketNeeds
from ddnn_traces.pcap.capture_facts import (
    CELLS,
    DUPLICATE_VANTAGE,
    ENCAPSULATIONS,
    FILTERED,
    IN_FLOWS,
    NO_STEP,
    TRAINS,
    CaptureFacts,
    Int64Array,
)
from ddnn_traces.pcap.compiled import trains as merging
from ddnn_traces.pcap.compiled.flow_table import sum_cells
from ddnn_traces.pcap.flow_counters import NOTES, merged_by
from ddnn_traces.store import schema
from ddnn_traces.text import sql_literal

if TYPE_CHECKING:
    import duckdb

_WHOLE_SHARE = Decimal("0.98")
#: Parameters of the statements that create the intermediate tables, in this order; their meaning is in the .sql files.
_STATEMENTS: dict[str, dict[str, object]] = {
    "missed": {},
    "interfaces": {"pass_ns": 100_000_000, "whole_share": _WHOLE_SHARE},
    "ranked": {"whole_share": _WHOLE_SHARE, "missed_ns": 1_000_000_000, "missed_share": Decimal("0.001")},
    "ledger": {"in_flows": IN_FLOWS, "duplicate_vantage": DUPLICATE_VANTAGE, "filtered": FILTERED},
    "connections": {},
    "merged": {
        "least": merged_by("min"),
        "most": merged_by("max"),
        "sums": merged_by("sum"),
        "first": merged_by("first"),
    },
    "flow_map": {},
    "opcodes": {},
    "reversed": {},
    "run_flows": {},
}
#: Has a row where the filter includes several rows of a five-tuple.
_SEVERAL = (
    "SELECT 1 FROM copies WHERE kept GROUP BY src_ip, dst_ip, protocol, src_port, dst_port HAVING count(*) > 1 LIMIT 1"
)
#: Intermediate tables that are dropped, to free memory, as soon as this statement was executed.
_DROPPED = {
    "connections": ["ranked"], "opcodes": ["connections"], "run_flows": ["merged", "reversed"],
}  # fmt: skip

#: Frames above this size are BIG TCP's, or those of damaged records.
MOST_FRAME_BYTES = 1 << 18
#: TCP flows with so much payload, of which so much was captured again, are there several times (check captured_copies).
LEAST_COPIED_BYTES, LEAST_COPIED_SHARE = 10_000, 0.4
#: Windows by which the cells of a file may be out of the order of time to be merged while they are read.
MOST_LAG = 10_000

#: A tunnel: the one around it (empty without one), then its columns, with identifier -1 for null.
_Tunnel = tuple[Any, ...]
_TUNNEL_COLUMNS = ENCAPSULATIONS.names[1:]


class Found(NamedTuple):
    """What is said of a run that was written, each as RunTables' method of that name gives it."""

    percentages_lost: tuple[float, float]
    all_filtered: int
    large_frames: dict[str, int]
    copied_captures: dict[str, tuple[int, float]]
    cut_headers: dict[str, tuple[int, int, int]]
    label_warnings: list[str]


@dataclass(frozen=True)
class Made:
    """A run's tables, where a worker has made them. folder: of their files, each named as its table."""

    folder: Path
    found: Found


@dataclass(frozen=True)
class RunFacts:
    """All that is known of one run. files: of its captures, in order. needs: of the description, before its times were
    shifted by `clock`. warnings: those of the files. made: its tables; None: they are to be made."""

    description: Description
    files: Sequence[CaptureFacts]
    window_ns: int
    silence_ns: int
    version: str
    needs: PacketNeeds
    clock: LogClock
    warnings: Sequence[str]
    made: Made | None = None

    @property
    def is_readable(self) -> bool:
        """Whether one of its files is a capture."""
        return any(file.format for file in self.files)

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self.description.run.run_id

    @property
    def step_workers(self) -> list[str | None]:
        """Of each file the worker whose steps its packets were assigned to."""
        return [log.worker if log else None for log in self.description.log_of_file]


class RunTables(DescribedTables):
    """The tables of one run, each as Arrow record batches in its schema and order. A context manager."""

    def __init__(self, run: RunFacts, scratch: Path) -> None:
        super().__init__(run.description, run.clock, connect(scratch, _flows(run.files), len(run.files)))
        self._run = run
        self._vantages = find_vantages(run.files)
        self._offsets = host_offsets(run.files, self._vantages)
        self._encapsulations, rows = _number_encapsulations([file.encapsulations for file in run.files])
        self._con.register("copies", _copies(run.files, rows))
        clock_ns = [offset.offset_ns if offset else 0 for offset in self._offsets]
        steps = [len(log.steps) if log else 0 for log in run.description.log_of_file]
        self._con.register("files", _files(run.files, self._vantages, clock_ns, run.step_workers, steps))
        for name, parameters in _statements(self._con).items():
            _execute(self._con, name, parameters)
            for dropped in _DROPPED.get(name, []):
                self._con.execute(f"DROP TABLE {dropped}")
        self._capture_rows = self._rows_of_captures(self._missed_by_file())
        self._con.unregister("copies")
        self._has_opcodes = any(file.flows["roce_opcode"].null_count < file.flows.num_rows for file in run.files)
        for file in run.files:  # their columns are in the tables now; of many flows they are 30 MB
            file.flows = file.flows.select(["flow"])
        self._con.register("no_cells", CELLS.empty_table())
        cells = self._rows_of_files("cells") or "SELECT NULL::INTEGER AS file, * FROM no_cells"
        self._con.execute(f"CREATE TEMP VIEW cells AS {cells}")
        self._con.register("no_trains", TRAINS.empty_table())
        trains = self._rows_of_files("trains") or "SELECT NULL::INTEGER AS file, * FROM no_trains"
        self._con.execute(f"CREATE TEMP VIEW trains AS {trains}")

    def all_filtered(self) -> int:
        """Number of packets in flows that the filter excludes, where it excludes all of them; else 0."""
        ((filtered, others),) = self._con.execute(
            "SELECT sum(packets) FILTER (reason = $filtered), sum(packets) FILTER (reason <> $filtered) FROM ledger",
            {"filtered": FILTERED},
        ).fetchall()
        return 0 if others else int(filtered or 0)

    def large_frames(self) -> dict[str, int]:
        """The captures with a frame of more than MOST_FRAME_BYTES, and the least size that its largest one has.

        That is the mean of a flow's window, or of what a file has of a reason: single sizes are in no table.
        """
        rows = self._con.execute(
            "SELECT file, max(wire_bytes // packets) FROM cells "
            "WHERE wire_bytes > $most * packets AND step >= $no_step GROUP BY file",
            {"most": MOST_FRAME_BYTES, "no_step": NO_STEP},
        ).fetchall()
        in_flows = dict(rows)
        found = {}
        for number, file in enumerate(self._run.files):
            skipped = (wire // packets for packets, wire in file.skipped.values() if packets)
            found[file.capture_id] = max([int(in_flows.get(number, 0)), *skipped])
        return {name: size for name, size in found.items() if size > MOST_FRAME_BYTES}

    def copied_captures(self) -> dict[str, tuple[int, float]]:
        """The captures that hold packets several times (check captured_copies): number of such flows, and the share of
        their payload that was captured again."""
        rows = self._con.execute(
            "SELECT file, count(*), sum(retransmitted_bytes) / sum(payload_bytes) "
            "FROM (SELECT DISTINCT file, flow_id FROM flow_map) JOIN run_flows USING (flow_id) "
            "WHERE protocol = 6 AND payload_bytes >= $least AND retransmitted_bytes >= $share * payload_bytes "
            "GROUP BY file",
            {"least": LEAST_COPIED_BYTES, "share": LEAST_COPIED_SHARE},
        ).fetchall()
        return {self._run.files[file].capture_id: (flows, share) for file, flows, share in sorted(rows)}

    def cut_headers(self) -> dict[str, tuple[int, int, int]]:
        """The captures that cut TCP headers (query cut_headers): number of such flows, bytes kept of each packet, and
        bytes that the headers need without options."""
        rows = self._con.execute(
            "SELECT file, count(*), min(captured_bytes // packets), "
            "max(ceil((wire_bytes - payload_bytes) / packets))::BIGINT AS header_bytes "
            "FROM (SELECT DISTINCT file, flow_id FROM flow_map) JOIN run_flows USING (flow_id) "
            "WHERE protocol = 6 AND missed_bytes IS NULL AND captured_bytes < wire_bytes - payload_bytes GROUP BY file"
        ).fetchall()
        files = self._run.files
        return {
            files[file].capture_id: (flows, kept, header)
            for file, flows, kept, header in sorted(rows)
            if (files[file].snaplen or 0) < header  # else the other end's copy counts
        }

    def found(self) -> Found:
        """All that is said of the tables."""
        return Found(
            self.percentages_lost(),
            self.all_filtered(),
            self.large_frames(),
            self.copied_captures(),
            self.cut_headers(),
            self.label_warnings(),
        )

    # --- inputs of the tables

    def _missed_by_file(self) -> list[Mapping[str, int | None]]:
        """For each file the columns of captures that are sums over its TCP flows."""
        names = ("missed_bytes", "unacknowledged_missed_bytes", "followed_bytes")
        sums = self._con.execute(
            "SELECT file, sum(missed_bytes), sum(unacknowledged_missed_bytes), "
            "sum(different_bytes) FILTER (missed_bytes IS NOT NULL) FROM missed GROUP BY file"
        ).fetchall()
        found: dict[int, Mapping[str, int | None]] = {
            file: dict(zip(names, map(int, values), strict=True)) for file, *values in sums if None not in values
        }
        unknown: dict[str, int | None] = dict.fromkeys(names)
        nothing: dict[str, int | None] = dict.fromkeys(names, 0)
        return [
            unknown if file.engine == parsed_files.ENGINE else found.get(number, nothing)
            for number, file in enumerate(self._run.files)
        ]

    def _rows_of_captures(self, missed_by_file: Sequence[Mapping[str, int | None]]) -> list[dict[str, Any]]:
        names = [column.name for column in schema.table("captures").columns if column.name != "run_id"]
        rows = []
        for file, vantage, offset, missed in zip(
            self._run.files, self._vantages, self._offsets, missed_by_file, strict=True
        ):
            row = {name: getattr(file, name, None) for name in names} | {**missed} | file.counters | file.digests
            row |= {"vantage_ip": vantage, "version": self._run.version}
            if offset:
                row |= {"clock_offset_ns": offset.offset_ns, "clock_offset_uncertainty_ns": offset.uncertainty_ns}
                row["clock_reference_ip"] = offset.reference_ip
            rows.append(row)
        return rows

    # --- one method a table

    def _capture_ledger_table(self) -> Iterable[pa.RecordBatch]:
        ledger = {
            (capture_id, reason): (packets, wire)
            for capture_id, reason, packets, wire in self._con.execute("FROM ledger").fetchall()
        }
        for file in self._run.files:
            ledger |= {(file.capture_id, reason): sums for reason, sums in file.skipped.items()}
        names = [column.name for column in schema.table("capture_ledger").columns]
        rows = [(self.run_id, *key, *sums) for key, sums in sorted(ledger.items())]
        return rows_of("capture_ledger", [dict(zip(names, row, strict=True)) for row in rows])

    def _flows_table(self) -> Iterable[pa.RecordBatch]:
        return self._ordered("flows", "FROM run_flows")

    def _encapsulations_table(self) -> Iterable[pa.RecordBatch]:
        rows = [{"run_id": self.run_id, **tunnel} for tunnel in self._encapsulations]
        return rows_of("encapsulations", rows)

    def _flow_opcodes_table(self) -> Iterable[pa.RecordBatch]:
        return self._ordered("flow_opcodes", "FROM opcodes") if self._has_opcodes else ()

    def _packets_table(self) -> Iterable[pa.RecordBatch]:
        packets = self._rows_of_files("packets")
        if not packets:
            return rows_of("packets", [])
        return self._ordered("packets", f"FROM ({packets}) JOIN flow_map USING (file, flow) JOIN files USING (file)")

    def _flow_windows_table(self) -> Iterable[pa.RecordBatch]:
        if any(file.cell_lag > MOST_LAG for file in self._run.files):
            return self._windows_by_sorting()
        return self._windows_in_time()

    def _windows_in_time(self) -> Iterable[pa.RecordBatch]:
        """The cells of all files merged: they are almost in the order of time."""
        run, arrow = self._run, schema.table("flow_windows").arrow()
        flow_ids = [np.full(file.flows.num_rows, -1, np.int64) for file in run.files]
        columns = self._con.execute("SELECT file, flow, flow_id FROM flow_map ORDER BY file").fetchnumpy()
        begins = np.searchsorted(columns["file"], np.arange(len(flow_ids) + 1))
        for ids, begin, end in zip(flow_ids, begins, begins[1:], strict=False):
            ids[columns["flow"][begin:end]] = columns["flow_id"][begin:end]
        cells = [
            CellFile(file.cells, ids, file.cell_lag)
            for file, ids in zip(run.files, flow_ids, strict=True)
            if file.cells is not None
        ]
        unknown = self._flows_without_payload()
        for window, flow_id, *sums in merge_windows(cells):
            size = len(window)
            run_ids = pa.repeat(pa.scalar(self.run_id), size)
            window_ns = pa.repeat(pa.scalar(run.window_ns), size)
            noted = sums[4:] or [np.zeros(size, np.int64)] * (_NOTED_COLUMNS - _COLUMNS)
            mask = np.isin(flow_id, unknown) if len(unknown) else None
            known = [window * run.window_ns, window_ns, flow_id, *sums[:2]]
            values = [run_ids, *map(pa.array, known), *(pa.array(column, mask=mask) for column in (*sums[2:4], *noted))]
            yield pa.RecordBatch.from_arrays(values, schema=arrow)

    def _flows_without_payload(self) -> Int64Array:
        """The flows whose payload is not known: those of parsed files."""
        found = self._con.execute("SELECT flow_id FROM run_flows WHERE payload_bytes IS NULL").fetchnumpy()
        return np.asarray(found["flow_id"], np.int64)

    def _windows_by_sorting(self) -> Iterable[pa.RecordBatch]:
        """The same where time stamps are far out of order: DuckDB sorts beyond memory."""
        kinds = {name.removesuffix("_packets"): kind for name, kind in NOTES.items()}
        parameters: dict[str, object] = {"window_ns": self._run.window_ns, "no_step": NO_STEP, **kinds}
        return self._ordered("flow_windows", _sql("flow_windows"), parameters)

    def _messages_table(self) -> Iterable[pa.RecordBatch]:
        with running("reconcile/trains.sql"):
            rows = self._con.sql(_sql("trains"), params={"least_segment": _LEAST_SEGMENT})
            yield from _messages(rows.to_arrow_reader(), self.run_id, self._run.silence_ns)

    def _step_flows_table(self) -> Iterable[pa.RecordBatch]:
        if not any(self._run.step_workers):
            return ()
        return self._ordered("step_flows", _sql("step_flows"), {"no_step": NO_STEP})

    def _rows_of_files(self, kind: str) -> str:
        """SQL of all files' cells or packets with the files' numbers; "": none has any. The paths are of scratch files.

        One scan of a list of files: a scan for each takes 100 kB.
        """
        files = ((number, getattr(file, kind)) for number, file in enumerate(self._run.files))
        paths = {str(path): number for number, path in files if path is not None}
        if not paths:
            return ""
        numbers = {"filename": list(paths), "file": pa.array(paths.values(), pa.int32())}
        self._con.register(f"{kind}_files", pa.table(numbers))
        listed = ", ".join(map(sql_literal, paths))
        return (
            f"SELECT file, rows.* EXCLUDE filename FROM {kind}_files JOIN "
            f"read_parquet([{listed}], filename = true, hive_partitioning = false) AS rows USING (filename)"
        )


def counting_rows(
    files: Sequence[CaptureFacts], vantages: Sequence[str | None], clock_ns: Sequence[int], scratch: Path
) -> list[dict[str, Any]]:
    """The rows of the files' flows that count, with the file's number, the flow's number in it, and its key in the run.

    A key is that of `key_of` with the number of the connection. The files may have the flows of some five-tuples only,
    with the reverse ones. vantages, clock_ns: of each file, as in the table captures (0 where clocks are not known).
    """
    encapsulations, ids = _number_encapsulations([file.encapsulations for file in files])
    chains = chains_of(encapsulations)
    with connect(scratch, _flows(files)) as con:
        con.register("copies", _copies(files, ids))
        con.register("files", _files(files, vantages, clock_ns, [None] * len(files), [0] * len(files)))
        for name, parameters in _statements(con).items():
            _execute(con, name, parameters)
            if name in ("connections", "single"):
                break
        rows = con.sql("FROM connections ORDER BY file, flow").to_arrow_table().to_pylist()
    return [{**row, "key": key_of(row, chains)} for row in rows]


def key_of(row: Mapping[str, Any], chains: Mapping[int, _Tunnel]) -> tuple[Any, ...]:
    """What identifies a flow in its run. row: of flows, or of counting_rows. chains: of its encapsulation_id."""
    names = ("src_ip", "dst_ip", "protocol", "src_port", "dst_port", "roce_dest_qp", "connection")
    tunnel = row["encapsulation_id"]
    return *(row[name] for name in names), None if tunnel is None else chains[tunnel]


def chains_of(encapsulations: Iterable[Mapping[str, Any]]) -> dict[int, _Tunnel]:
    """The tunnel of each encapsulation_id, with those around it. encapsulations: rows of that table."""
    rows = sorted(encapsulations, key=lambda row: int(row["encapsulation_id"]))  # a tunnel after the one around it
    return dict(enumerate(_chains([{**row, "parent": row["parent_id"]} for row in rows])))


def _flows(files: Iterable[CaptureFacts]) -> int:
    return sum(file.flows.num_rows for file in files)


def _copies(files: Sequence[CaptureFacts], encapsulation_ids: Sequence[Sequence[int]]) -> pa.Table:
    """Flow facts of all files in one table, with the file's number and the tunnel's in the run."""
    tables = []
    for number, (file, ids) in enumerate(zip(files, encapsulation_ids, strict=True)):
        table = file.flows.append_column("file", pa.array([number] * file.flows.num_rows, pa.int32()))
        rows = file.flows["encapsulation"].combine_chunks()
        none = rows.null_count == len(rows)  # as nearly always; take() imports pyarrow.compute, which takes a while
        found = pa.nulls(len(rows), pa.int64()) if none else pa.array(ids, pa.int64()).take(rows)
        tables.append(table.append_column("encapsulation_id", found))
    return pa.concat_tables(tables)


def _files(
    files: Sequence[CaptureFacts], vantages: Sequence[str | None], clock_ns: Sequence[int],
    workers: Sequence[str | None], steps: Sequence[int],
) -> pa.Table:  # fmt: skip
    """What the SQL needs of each file. workers, steps: whose steps its packets were assigned to, and how many."""
    series = number_series(files, vantages)
    cut = {(vantages[i], series[i]) for i, file in enumerate(files) if file.status != "complete"}
    return pa.table(
        {
            "file": pa.array(range(len(files)), pa.int32()),
            "capture_id": pa.array([file.capture_id for file in files], pa.string()),
            "vantage_ip": pa.array(vantages, pa.string()),
            "series": pa.array(series, pa.int32()),
            "cut": pa.array([place in cut for place in zip(vantages, series, strict=True)], pa.bool_()),
            "clock_ns": pa.array(clock_ns, pa.int64()),
            "begin_ns": pa.array([file.first_ns for file in files], pa.int64()),
            "end_ns": pa.array([file.last_ns for file in files], pa.int64()),
            "file_order": pa.array(order_of_files(files), pa.int32()),
            "worker": pa.array(workers, pa.string()),
            "steps": pa.array(steps, pa.int32()),
        }
    )


def _statements(con: duckdb.DuckDBPyConnection) -> Mapping[str, Mapping[str, object]]:
    """Those of _STATEMENTS, with a shorter one where no five-tuple has several rows: nothing is to be chosen then.

    To plan and sort for nothing takes a tenth of the time of a small ingest.
    """
    if con.execute(_SEVERAL).fetchall():
        return _STATEMENTS
    others = {
        name: parameters
        for name, parameters in _STATEMENTS.items()
        if name not in ("interfaces", "ranked", "connections")
    }
    return {"missed": {}, "single": {}} | others


def _execute(con: duckdb.DuckDBPyConnection, name: str, parameters: Mapping[str, object]) -> None:
    with running(f"reconcile/{name}.sql"):
        con.execute(_sql(name), dict(parameters))


def _sql(name: str) -> str:
    """The statement in NAME.sql, without its semicolon."""
    return resources.files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8").rstrip().removesuffix(";")


def _number_encapsulations(files: Sequence[pa.Table]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Rows of the table `encapsulations`, one a tunnel of the run, and for each file the number of each of its rows.

    files: each file's tunnels, as capture_facts.ENCAPSULATIONS.
    """
    chains = [_chains(file.to_pylist()) for file in files]
    numbers = {chain: number for number, chain in enumerate(sorted({chain for file in chains for chain in file}))}
    rows = []
    for chain, number in numbers.items():
        row = dict(zip(_TUNNEL_COLUMNS, chain[1:], strict=True))
        row |= {"encapsulation_id": number, "parent_id": numbers.get(chain[0])}
        row["identifier"] = None if row["identifier"] < 0 else row["identifier"]
        rows.append(row)
    return rows, [[numbers[chain] for chain in file] for file in chains]


def _chains(rows: list[dict[str, Any]]) -> list[_Tunnel]:
    chains: list[_Tunnel] = []
    for row in rows:  # a tunnel comes after the one around it
        around = () if row["parent"] is None else chains[row["parent"]]
        values = [row[name] for name in _TUNNEL_COLUMNS[:-1]]
        chains.append((around, *values, -1 if row["identifier"] is None else row["identifier"]))
    return chains


# --- the rows of messages, in bounded memory

#: As schemas/messages.toml defines them, by their number in compiled/trains.py.
_END_SOURCES = ("silence", "short_segment", "opcode", "next_message", "last")
#: Where the segment size is not known, the largest segment of a flow is taken for full from so many bytes on.
_LEAST_SEGMENT = 1200


def _messages(trains: Iterable[pa.RecordBatch], run_id: str, silence_ns: int) -> Iterator[pa.RecordBatch]:
    """Rows of messages. trains: as trains.sql gives them."""
    state = np.zeros(merging.STATE_ENTRIES, np.int64)
    state[merging.OPEN_FLOW] = -1
    for batch in trains:
        rows = np.column_stack([column.to_numpy() for column in batch.columns])
        messages = np.empty((2 * len(rows) + 1, merging.MESSAGE_COLUMNS), np.int64)
        count = merging.messages_of(rows, state, messages, silence_ns)
        yield _message_rows(messages[:count], run_id)
    messages = np.empty((1, merging.MESSAGE_COLUMNS), np.int64)
    yield _message_rows(messages[: merging.end_messages(state, messages)], run_id)


def _message_rows(messages: Int64Array, run_id: str) -> pa.RecordBatch:
    *numbers, ends, pushed = messages.T
    columns = [pa.array(np.ascontiguousarray(column)) for column in numbers]
    columns += [pa.array(np.array(_END_SOURCES, object)[ends], pa.string()), pa.array(pushed == 1, mask=pushed < 0)]
    run_ids = pa.repeat(pa.scalar(run_id), len(messages))
    return pa.RecordBatch.from_arrays([run_ids, *columns], schema=schema.table("messages").arrow())


# --- the rows of flow_windows, in bounded memory

#: Rows that are sorted at once, at least.
_AT_ONCE = 1 << 14
#: Columns of a block, and of one with the counts of NOTES and the repeated bytes.
_COLUMNS = 6
_NOTED_COLUMNS = _COLUMNS + len(NOTES) + 1


@dataclass
class CellFile:
    """Cells of one file. flow_ids: flow_id of each of its flows, -1 where it does not count. lag: in windows."""

    path: Path
    flow_ids: Int64Array
    lag: int
    reached: int = field(default=-(2**63), init=False)  # no later cell is of an earlier window

    def rows(self) -> Iterator[Int64Array]:
        """Blocks of (window, flow_id, packets, wire, payload, retransmitted bytes), int64 (6, n), or with the counts of
        NOTES and the repeated bytes, too (13, n); reached: theirs."""
        columns = ["window", "flow", "packets", "wire_bytes", "payload_bytes", "retransmitted_bytes"]
        for group in range(pq.read_metadata(self.path).num_row_groups):
            with pq.ParquetFile(self.path) as file:  # closed between blocks: those of all captures are read by turns
                table = file.read_row_group(group, columns=[*columns, "step"], use_threads=False)
            block = np.stack([_numbers(table[name]) for name in columns])
            self.reached = max(self.reached, int(block[0].max()) - self.lag)
            block[1] = self.flow_ids[block[1]]
            step = table["step"].to_numpy()
            if step.min() < NO_STEP:
                block = _with_notes(block, step)
            yield _chosen(block, block[1] >= 0)
        self.reached = 2**63 - 1


def _numbers(column: pa.ChunkedArray) -> Int64Array:
    """A column as int64, 0 where it is null: the flow tells which rows are."""
    values: Int64Array = (column.fill_null(0) if column.null_count else column).to_numpy().astype(np.int64)
    return values


def merge_windows(files: Sequence[CellFile]) -> Iterator[Int64Array]:
    """Sums over the cells of a window and flow, ordered by window and flow_id: int64 (columns, n) as CellFile.rows."""
    readers = [(file.reached, number, file, file.rows()) for number, file in enumerate(files)]
    heapq.heapify(readers)
    waiting: list[Int64Array] = []
    rows = 0
    while readers:
        _, number, file, blocks = heapq.heappop(readers)
        block = next(blocks, None)
        if block is not None:
            heapq.heappush(readers, (file.reached, number, file, blocks))
            waiting.append(block)
            rows += block.shape[1]
        if rows >= _AT_ONCE or not readers:
            final = readers[0][0] if readers else 2**63 - 1
            held = _joined(waiting)
            is_final = held[0] < final
            waiting = [_chosen(held, ~is_final)]
            rows = waiting[0].shape[1]
            if is_final.any():
                yield sum_cells(_chosen(held, is_final))


def _with_notes(block: Int64Array, step: Int64Array) -> Int64Array:
    """The block with columns for what its cells of NOTES count; in these the other columns are 0."""
    wide = np.zeros((_NOTED_COLUMNS, block.shape[1]), np.int64)
    is_plain = step >= NO_STEP
    wide[:2], wide[2:_COLUMNS] = block[:2], block[2:] * is_plain
    for column, kind in enumerate(NOTES.values(), start=_COLUMNS):
        wide[column] = block[2] * (step == kind)
    wide[-1] = block[3] * ~is_plain
    return wide


def _joined(blocks: Sequence[Int64Array]) -> Int64Array:
    """Blocks side by side; where one has columns for NOTES, all get them."""
    if len({len(block) for block in blocks}) > 1:
        blocks = [np.pad(block, [(0, _NOTED_COLUMNS - len(block)), (0, 0)]) for block in blocks]
    return np.concatenate(blocks, axis=1) if blocks else np.empty((_COLUMNS, 0), np.int64)


def _chosen(cells: Int64Array, is_chosen: npt.NDArray[np.bool_]) -> Int64Array:
    """The chosen columns; mostly these are all, and a copy would take as long as their sums."""
    return cells if is_chosen.all() else np.compress(is_chosen, cells, axis=1)
