"""From the facts of a run's captures to the run's tables.

DuckDB computes the joins and sums over flows and cells (the .sql files here, one for each intermediate table or
result): it sorts and aggregates beyond memory, so that a run's windows need not fit. Everything has a total order; the
same facts give the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ddnn_traces.ingestors.facts import (
    CELLS,
    DUPLICATE_VANTAGE,
    ENCAPSULATIONS,
    FILTERED,
    IN_FLOWS,
    NO_STEP,
    CaptureFacts,
)
from ddnn_traces.ingestors.logs import Event, Step, TrainingLog, natural_order
from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.reconcile.host_clocks import host_offsets
from ddnn_traces.ingestors.reconcile.log_clocks import LogClock
from ddnn_traces.ingestors.reconcile.vantage import find_vantages, is_host, number_series, order_of_files
from ddnn_traces.ingestors.reconcile.windows import CellFile, merge_windows
from ddnn_traces.query.views import hide_progress_bar
from ddnn_traces.store import schema
from ddnn_traces.text import sql_literal

#: DuckDB spills to disk beyond this; measured: 20 M packets in as many cells of 100,000 flows peak at 412 MB in all.
MEMORY_LIMIT = "128MB"

#: Parameters of the statements that create the intermediate tables, in this order; their meaning is in the .sql files.
_STATEMENTS: dict[str, dict[str, object]] = {
    "missed": {},
    "ranked": {"whole_share": Decimal("0.98"), "missed_ns": 1_000_000_000, "missed_share": Decimal("0.001")},
    "ledger": {"in_flows": IN_FLOWS, "duplicate_vantage": DUPLICATE_VANTAGE, "filtered": FILTERED},
    "connections": {},
    "merged": {},
    "flow_map": {},
    "opcodes": {},
    "reversed": {},
    "run_flows": {},
}
#: Intermediate tables that are dropped, to free memory, as soon as this statement was executed.
_DROPPED = {
    "connections": ["ranked"], "opcodes": ["connections"], "run_flows": ["merged", "reversed"],
}  # fmt: skip

#: Windows by which the cells of a file may be out of the order of time to be merged while they are read.
MOST_LAG = 10_000

#: A tunnel: the one around it (empty without one), then its columns, with identifier -1 for null.
_Tunnel = tuple[Any, ...]
_TUNNEL_COLUMNS = ENCAPSULATIONS.names[1:]


@dataclass(frozen=True)
class RunFacts:
    """All that is known of one run. labels and step_workers: one entry for each file, None where unknown."""

    run_id: str
    metadata: RunMetadata
    logs: Sequence[TrainingLog]
    files: Sequence[CaptureFacts]
    labels: Sequence[str | None]  # host in the file's name
    step_workers: Sequence[str | None]  # worker whose steps the file's packets were assigned to
    window_ns: int
    version: str
    clock: LogClock = field(default_factory=lambda: LogClock())


class RunTables:
    """The tables of one run, each as Arrow record batches in its schema and order. A context manager."""

    def __init__(self, run: RunFacts, scratch: Path) -> None:
        import duckdb

        self._run = run
        self._vantages = find_vantages(run.files)
        self._con = duckdb.connect(
            config={"memory_limit": MEMORY_LIMIT, "temp_directory": str(scratch), "preserve_insertion_order": False}
        )
        hide_progress_bar(self._con)
        self._offsets = host_offsets(run.files, self._vantages)
        self._encapsulations, rows = _number_encapsulations([file.encapsulations for file in run.files])
        self._con.register("copies", self._copies(rows))
        self._con.register("files", self._files())
        for name, parameters in _STATEMENTS.items():
            self._con.execute(_sql(name), parameters)
            for dropped in _DROPPED.get(name, []):
                self._con.execute(f"DROP TABLE {dropped}")
        self._missed = self._missed_by_file()
        self._con.unregister("copies")
        for file in run.files:  # their columns are in the tables now; of many flows they are 30 MB
            file.flows = file.flows.select(["flow"])
        self._con.register("no_cells", CELLS.empty_table())
        cells = ["SELECT NULL::INTEGER AS file, * FROM no_cells", *self._rows_of_files("cells")]
        self._con.execute(f"CREATE TEMP VIEW cells AS {' UNION ALL '.join(cells)}")

    def __enter__(self) -> RunTables:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def batches(self, name: str) -> Iterable[pa.RecordBatch]:
        """Record batches of the table of that name."""
        batches: Iterable[pa.RecordBatch] = getattr(self, f"_{name}_table")()
        return batches

    def percentages_lost(self) -> tuple[float, float]:
        """What the captures lost, in percent of the TCP payload and of the packets, as in the query run_capture_loss.

        0 also where nothing is known.
        """
        sums = self._con.execute(
            "SELECT sum(missed_bytes - unacknowledged_missed_bytes), "
            "sum(payload_bytes - retransmitted_bytes) FILTER (missed_bytes IS NOT NULL) FROM run_flows"
        ).fetchall()
        names = ("kernel_dropped_packets", "interface_dropped_packets")
        files = [file for file in self._run.files if file.counters]
        dropped = sum(int(file.counters.get(name, 0)) for file in files for name in names)
        return _percent_lost(*sums[0]), _percent_lost(dropped, sum(file.records for file in files))

    # --- inputs of the SQL

    def _copies(self, encapsulation_ids: Sequence[Sequence[int]]) -> pa.Table:
        """Flow facts of all files in one table, with the file's number and the tunnel's in the run."""
        tables = []
        for number, (file, ids) in enumerate(zip(self._run.files, encapsulation_ids, strict=True)):
            table = file.flows.append_column("file", pa.array([number] * file.flows.num_rows, pa.int32()))
            rows = file.flows["encapsulation"].combine_chunks()
            none = rows.null_count == len(rows)  # as nearly always; take() imports pyarrow.compute, which takes a while
            found = pa.nulls(len(rows), pa.int64()) if none else pa.array(ids, pa.int64()).take(rows)
            tables.append(table.append_column("encapsulation_id", found))
        return pa.concat_tables(tables)

    def _files(self) -> pa.Table:
        run = self._run
        series = number_series(run.files, self._vantages)
        cut = {(self._vantages[i], series[i]) for i, file in enumerate(run.files) if file.status != "complete"}
        return pa.table(
            {
                "file": pa.array(range(len(run.files)), pa.int32()),
                "capture_id": pa.array([file.capture_id for file in run.files], pa.string()),
                "vantage_ip": pa.array(self._vantages, pa.string()),
                "series": pa.array(series, pa.int32()),
                "cut": pa.array([place in cut for place in zip(self._vantages, series, strict=True)], pa.bool_()),
                "clock_ns": pa.array([offset.offset_ns if offset else 0 for offset in self._offsets], pa.int64()),
                "begin_ns": pa.array([file.first_ns for file in run.files], pa.int64()),
                "end_ns": pa.array([file.last_ns for file in run.files], pa.int64()),
                "file_order": pa.array(order_of_files(run.files), pa.int32()),
                "worker": pa.array(run.step_workers, pa.string()),
                "steps": pa.array(
                    [next((len(log.steps) for log in run.logs if log.worker == w), 0) for w in run.step_workers],
                    pa.int32(),
                ),
            }
        )

    def _missed_by_file(self) -> list[dict[str, int]]:
        """For each file the columns of captures that are sums over its TCP flows."""
        names = ("missed_bytes", "unacknowledged_missed_bytes", "followed_bytes")
        sums = self._con.execute(
            "SELECT file, sum(missed_bytes), sum(unacknowledged_missed_bytes), "
            "sum(different_bytes) FILTER (missed_bytes IS NOT NULL) FROM missed GROUP BY file"
        ).fetchall()
        found = {file: dict(zip(names, map(int, values), strict=True)) for file, *values in sums if None not in values}
        return [found.get(number, dict.fromkeys(names, 0)) for number in range(len(self._run.files))]

    # --- one method a table

    def _runs_table(self) -> Iterable[pa.RecordBatch]:
        row = {column.name: self._run.metadata.fields.get(column.name) for column in schema.table("runs").columns}
        clock, estimate = self._run.clock, self._run.clock.estimate
        row |= {"run_id": self._run.run_id, "source": row["source"] or "capture", "clock_offset_ns": clock.applied_ns}
        if estimate:
            row |= {"clock_offset_estimate_ns": estimate.offset_ns, "clock_drift_ppm": estimate.drift_ppm}
        return _rows("runs", [row])

    def _hosts_table(self) -> Iterable[pa.RecordBatch]:
        query = "SELECT src_ip, true FROM run_flows UNION SELECT dst_ip, false FROM run_flows"
        sends: dict[str, bool] = {}
        for ip, sender in self._con.execute(query).fetchall():
            sends[ip] = sends.get(ip, False) or sender
        declared = {host.ip: host for host in self._run.metadata.hosts}
        by_file = self._labels_by_vantage()
        first = _first_number(self._run.labels)
        rows = []
        for ip in sorted(sends.keys() | declared.keys()):
            if not is_host(ip) or (not sends.get(ip) and ip not in declared and ip.endswith(".255")):
                continue  # an address ending in .255 that never sends is taken for a subnet's broadcast
            known = asdict(declared[ip]) if ip in declared else {}
            label = known.get("label") or by_file.get(ip)
            row: dict[str, Any] = {"run_id": self._run.run_id, "host_ip": ip, "label": label}
            row |= {"role": known.get("role") or role_of(label), "ring_position": known.get("ring_position")}
            row["rank"] = known["rank"] if known.get("rank") is not None else _rank(label, first)
            rows.append(row)
        return _rows("hosts", rows)

    def _labels_by_vantage(self) -> dict[str, str]:
        """Host in the names of the files captured at each address; no entry where they contradict each other."""
        labels: dict[str, set[str]] = {}
        for ip, label in zip(self._vantages, self._run.labels, strict=True):
            if ip and label:
                labels.setdefault(ip, set()).add(label)
        return {ip: next(iter(found)) for ip, found in labels.items() if len(found) == 1}

    def _captures_table(self) -> Iterable[pa.RecordBatch]:
        names = [column.name for column in schema.table("captures").columns]
        rows = []
        places = zip(self._run.files, self._vantages, self._offsets, self._missed, strict=True)
        for file, vantage, offset, missed in places:
            row = {name: getattr(file, name, None) for name in names} | missed | file.counters
            row |= {**file.digests, "run_id": self._run.run_id, "vantage_ip": vantage, "version": self._run.version}
            if offset:
                row |= {"clock_offset_ns": offset.offset_ns, "clock_offset_uncertainty_ns": offset.uncertainty_ns}
                row["clock_reference_ip"] = offset.reference_ip
            rows.append(row)
        return _rows("captures", sorted(rows, key=lambda row: str(row["capture_id"])))

    def _capture_ledger_table(self) -> Iterable[pa.RecordBatch]:
        ledger = {
            (capture_id, reason): (packets, wire)
            for capture_id, reason, packets, wire in self._con.execute("FROM ledger").fetchall()
        }
        for file in self._run.files:
            ledger |= {(file.capture_id, reason): sums for reason, sums in file.skipped.items()}
        names = [column.name for column in schema.table("capture_ledger").columns]
        rows = [(self._run.run_id, *key, *sums) for key, sums in sorted(ledger.items())]
        return _rows("capture_ledger", [dict(zip(names, row, strict=True)) for row in rows])

    def _flows_table(self) -> Iterable[pa.RecordBatch]:
        return self._ordered("flows", "FROM run_flows")

    def _encapsulations_table(self) -> Iterable[pa.RecordBatch]:
        rows = [{"run_id": self._run.run_id, **tunnel} for tunnel in self._encapsulations]
        return _rows("encapsulations", rows)

    def _flow_opcodes_table(self) -> Iterable[pa.RecordBatch]:
        return self._ordered("flow_opcodes", "FROM opcodes")

    def _packets_table(self) -> Iterable[pa.RecordBatch]:
        packets = " UNION ALL ".join(self._rows_of_files("packets"))
        if not packets:
            return _rows("packets", [])
        return self._ordered("packets", f"FROM ({packets}) JOIN flow_map USING (file, flow) JOIN files USING (file)")

    def _flow_windows_table(self) -> Iterable[pa.RecordBatch]:
        if any(file.cell_lag > MOST_LAG for file in self._run.files):
            return self._windows_by_sorting()
        return self._windows_in_time()

    def _windows_in_time(self) -> Iterable[pa.RecordBatch]:
        """The cells of all files merged: they are almost in the order of time."""
        run, arrow = self._run, schema.table("flow_windows").arrow()
        flow_ids = [np.full(file.flows.num_rows, -1, np.int64) for file in run.files]
        columns = self._con.execute("SELECT file, flow, flow_id FROM flow_map").fetchnumpy()
        for file, ids in enumerate(flow_ids):
            mine = columns["file"] == file
            ids[columns["flow"][mine]] = columns["flow_id"][mine]
        cells = [
            CellFile(file.cells, ids, file.cell_lag)
            for file, ids in zip(run.files, flow_ids, strict=True)
            if file.cells is not None
        ]
        for window, flow_id, *sums in merge_windows(cells):
            size = len(window)
            run_ids = pa.repeat(pa.scalar(run.run_id), size)
            window_ns = pa.repeat(pa.scalar(run.window_ns), size)
            values = [run_ids, window * run.window_ns, window_ns, flow_id, *sums]
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in values], schema=arrow)

    def _windows_by_sorting(self) -> Iterable[pa.RecordBatch]:
        """The same where time stamps are far out of order: DuckDB sorts beyond memory."""
        return self._ordered("flow_windows", _sql("flow_windows"), {"window_ns": self._run.window_ns})

    def _steps_table(self) -> Iterable[pa.RecordBatch]:
        return (
            self._of_log("steps", log.worker, log.steps) for log in sorted(self._run.logs, key=lambda log: log.worker)
        )

    def _events_table(self) -> Iterable[pa.RecordBatch]:
        for log in sorted(self._run.logs, key=lambda log: log.worker):
            events = sorted(log.events, key=lambda event: (event.step, event.start_ns, event.kind))
            yield self._of_log("events", log.worker, events)

    def _of_log(self, table: str, worker: str, rows: Sequence[Step | Event]) -> pa.RecordBatch:
        """The rows of one log, column by column: there may be a million."""
        arrow = schema.table(table).arrow()
        same = {"run_id": self._run.run_id, "worker": worker}
        columns = [
            pa.repeat(pa.scalar(same[field.name], field.type), len(rows))
            if field.name in same
            else pa.array([getattr(row, field.name, None) for row in rows], field.type)
            for field in arrow
        ]
        return pa.RecordBatch.from_arrays(columns, schema=arrow)

    def _step_flows_table(self) -> Iterable[pa.RecordBatch]:
        return self._ordered("step_flows", _sql("step_flows"), {"no_step": NO_STEP})

    def _rows_of_files(self, kind: str) -> list[str]:
        """SQL of each file's cells or packets with the file's number. The paths are those of scratch files."""
        return [
            f"SELECT {number:d}::INTEGER AS file, * "
            f"FROM read_parquet({sql_literal(str(path))}, hive_partitioning = false)"
            for number, file in enumerate(self._run.files)
            if (path := getattr(file, kind)) is not None
        ]

    def _ordered(self, name: str, query: str, parameters: dict[str, object] | None = None) -> Iterable[pa.RecordBatch]:
        """The query's rows with the table's columns, types and order."""
        table = schema.table(name)
        sources = {"run_id": "$run_id"}
        columns = ", ".join(
            f"({sources.get(c.name, c.name)})::{schema.TYPES[c.type].duckdb} AS {c.name}" for c in table.columns
        )
        order = ", ".join(f"{name} NULLS FIRST" for name in table.key if name != "run_id")
        rows = self._con.sql(
            f"SELECT {columns} FROM ({query}) ORDER BY {order}",
            params={"run_id": self._run.run_id, **(parameters or {})},
        )
        for batch in rows.to_arrow_reader():
            yield pa.RecordBatch.from_arrays(batch.columns, schema=table.arrow())


def _sql(name: str) -> str:
    """The statement in NAME.sql, without its semicolon."""
    return resources.files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8").rstrip().removesuffix(";")


def _rows(name: str, rows: list[dict[str, Any]]) -> Iterable[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(rows, schema=schema.table(name).arrow())]


def _percent_lost(lost: int | None, captured: int | None) -> float:
    return 100 * lost / (lost + (captured or 0)) if lost else 0.0


def role_of(label: str | None) -> str | None:
    """Role in a label like worker-1, ps-0 or chief-0, or None."""
    if label is None:
        return None
    word = label.rstrip("0123456789").rstrip("-_").lower()
    roles = {"worker": "worker", "w": "worker", "ps": "parameter_server", "parameter-server": "parameter_server"}
    return roles.get(word, "chief" if word in ("chief", "master") else "other")


def _first_number(labels: Iterable[str | None]) -> int:
    """Number of the worker that has rank 0: 0 where a file is worker-0's (the published Zerwas data), else 1."""
    return (
        0
        if any(role_of(label) == "worker" and label and natural_order(label)[-1][:2] == (True, 0) for label in labels)
        else 1
    )


def _rank(label: str | None, first: int) -> int | None:
    """Rank in a worker's label, where the first worker has the number `first`."""
    if role_of(label) != "worker" or label is None:
        return None
    number = natural_order(label)[-1]
    return number[1] - first if number[0] and first <= number[1] < 2**63 else None


def _number_encapsulations(files: Sequence[pa.Table]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Rows of the table `encapsulations`, one a tunnel of the run, and for each file the number of each of its rows.

    files: each file's tunnels, as facts.ENCAPSULATIONS.
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
