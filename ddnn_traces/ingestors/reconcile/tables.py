"""From the facts of a run's captures to the run's tables.

The joins and sums over flows and cells are DuckDB's: it sorts and aggregates beyond memory, so that a run's windows
need not fit. Everything has a total order; the same facts give the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from ddnn_traces.ingestors.facts import DUPLICATE_VANTAGE, FILTERED, IN_FLOWS, NO_STEP, CaptureFacts
from ddnn_traces.ingestors.logs import TrainingLog, natural_order
from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.reconcile.clocks import host_offsets
from ddnn_traces.ingestors.reconcile.encapsulations import number_encapsulations
from ddnn_traces.ingestors.reconcile.log_clock import LogClock
from ddnn_traces.ingestors.reconcile.vantage import find_vantages, is_host, number_series, order_of_files
from ddnn_traces.ingestors.reconcile.windows import CellFile, merge_windows
from ddnn_traces.query.dataset import hide_progress_bar
from ddnn_traces.store import schema
from ddnn_traces.text import sql_literal

#: DuckDB spills to disk beyond this; measured: 20 M packets in as many cells of 100,000 flows peak at 516 MB in all.
MEMORY_LIMIT = "128MB"

#: A copy of a five-tuple with less than this share of the fullest copy's payload is partial (its capture lost packets)
#: and counts only where there is no better one. Payload, since offloads make packets of different sizes; packets where
#: there is none. A series with a file that is not complete is partial as soon as it holds less at all.
WHOLE_SHARE = 0.98
#: A series that began so much later, or ended so much earlier, ns, than somebody saw a five-tuple is cut, too.
MISSED_NS = 1_000_000_000


#: Windows by which the cells of a file may be out of the order of time to be merged as they come.
MOST_LAG = 10_000


@dataclass(frozen=True)
class RunFacts:
    """All that is known of one run. labels and step_workers: one entry a file, None where unknown."""

    run_id: str
    metadata: RunMetadata
    logs: Sequence[TrainingLog]
    files: Sequence[CaptureFacts]
    labels: Sequence[str | None]  # host in the file's name
    step_workers: Sequence[str | None]  # worker whose log the file's packets were binned by
    window_ns: int
    version: str
    clock: LogClock = field(default_factory=lambda: LogClock())


class RunTables:
    """The tables of one run, each as Arrow record batches in its schema and order. A context manager."""

    def __init__(self, run: RunFacts, scratch: Path) -> None:
        self._run = run
        self._vantages = find_vantages(run.files)
        self._con = duckdb.connect(
            config={"memory_limit": MEMORY_LIMIT, "temp_directory": str(scratch), "preserve_insertion_order": False}
        )
        hide_progress_bar(self._con)
        self._offsets = host_offsets(run.files, self._vantages)
        self._encapsulations, rows = number_encapsulations([file.encapsulations for file in run.files])
        self._con.register("copies", self._copies(rows))
        self._con.register("files", self._files())
        for statement in (_RANKED, _LEDGER, _CONNECTIONS, _MERGED, _REVERSED, _FLOWS, _FLOW_MAP, _OPCODES):
            self._con.execute(statement)
        for done in ("ranked", "connections", "merged", "reversed"):  # what the tables are made of takes no more memory
            self._con.execute(f"DROP TABLE {done}")
        self._con.unregister("copies")

    def __enter__(self) -> RunTables:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def batches(self, name: str) -> Iterable[pa.RecordBatch]:
        """Record batches of the table of that name."""
        batches: Iterable[pa.RecordBatch] = getattr(self, f"_{name}_table")()
        return batches

    # --- inputs of the SQL

    def _copies(self, encapsulation_ids: Sequence[Sequence[int]]) -> pa.Table:
        """Flow facts of all files in one table, with the file's number and the tunnel's in the run."""
        tables = []
        for number, (file, ids) in enumerate(zip(self._run.files, encapsulation_ids, strict=True)):
            table = file.flows.append_column("file", pa.array([number] * file.flows.num_rows, pa.int32()))
            rows = file.flows["encapsulation"].combine_chunks()
            tables.append(table.append_column("encapsulation_id", pa.array(ids, pa.int64()).take(rows)))
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
            row |= {"role": known.get("role") or _role(label), "ring_position": known.get("ring_position")}
            row["rank"] = known["rank"] if known.get("rank") is not None else _rank(label, first)
            rows.append(row)
        return _rows("hosts", rows)

    def _labels_by_vantage(self) -> dict[str, str]:
        """Host in the names of the files captured at an address; none where they contradict each other."""
        labels: dict[str, set[str]] = {}
        for ip, label in zip(self._vantages, self._run.labels, strict=True):
            if ip and label:
                labels.setdefault(ip, set()).add(label)
        return {ip: next(iter(found)) for ip, found in labels.items() if len(found) == 1}

    def _captures_table(self) -> Iterable[pa.RecordBatch]:
        names = [column.name for column in schema.table("captures").columns]
        rows = []
        for file, vantage, offset in zip(self._run.files, self._vantages, self._offsets, strict=True):
            row = {name: getattr(file, name, None) for name in names}
            row |= {"run_id": self._run.run_id, "vantage_ip": vantage, "version": self._run.version}
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
        return self._ordered("flows", "SELECT * FROM run_flows")

    def _encapsulations_table(self) -> Iterable[pa.RecordBatch]:
        rows = [{"run_id": self._run.run_id, **tunnel} for tunnel in self._encapsulations]
        return _rows("encapsulations", rows)

    def _flow_opcodes_table(self) -> Iterable[pa.RecordBatch]:
        return self._ordered("flow_opcodes", "FROM opcodes")

    def _packets_table(self) -> Iterable[pa.RecordBatch]:
        parts = [
            f"SELECT {number:d}::INTEGER AS file, * FROM read_parquet({sql_literal(str(file.packets))})"
            for number, file in enumerate(self._run.files)
            if file.packets is not None
        ]
        if not parts:
            return _rows("packets", [])
        packets = " UNION ALL ".join(parts)
        return self._ordered(
            "packets", f"SELECT * FROM ({packets}) JOIN flow_map USING (file, flow) JOIN files USING (file)"
        )

    def _flow_windows_table(self) -> Iterable[pa.RecordBatch]:
        if any(file.cell_lag > MOST_LAG for file in self._run.files):
            return self._windows_by_sorting()
        return self._windows_in_time()

    def _windows_in_time(self) -> Iterable[pa.RecordBatch]:
        """The cells of all files merged: they are in the order of time but for a little."""
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
        for window, flow_id, packets, wire_bytes, payload_bytes in merge_windows(cells):
            size = len(window)
            run_ids = pa.repeat(pa.scalar(run.run_id), size)
            window_ns = pa.repeat(pa.scalar(run.window_ns), size)
            values = [run_ids, window * run.window_ns, window_ns, flow_id, packets, wire_bytes, payload_bytes]
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in values], schema=arrow)

    def _windows_by_sorting(self) -> Iterable[pa.RecordBatch]:
        """The same where time stamps are far out of order: DuckDB sorts beyond memory."""
        window_ns = self._run.window_ns
        return self._ordered(
            "flow_windows",
            f"""
            SELECT flow_id, "window" * {window_ns:d} AS window_start_ns, {window_ns:d} AS window_ns,
                   {_SUMS}
            FROM ({self._cells()}) JOIN flow_map USING (file, flow) GROUP BY ALL
            """,
        )

    def _steps_table(self) -> Iterable[pa.RecordBatch]:
        rows = [
            {"run_id": self._run.run_id, "worker": log.worker, **asdict(step)}
            for log in sorted(self._run.logs, key=lambda log: log.worker)
            for step in log.steps
        ]
        return _rows("steps", rows)

    def _events_table(self) -> Iterable[pa.RecordBatch]:
        rows = [
            {"run_id": self._run.run_id, "worker": log.worker, **asdict(event)}
            for log in sorted(self._run.logs, key=lambda log: log.worker)
            for event in sorted(log.events, key=lambda event: (event.step, event.start_ns, event.kind))
        ]
        return _rows("events", rows)

    def _step_flows_table(self) -> Iterable[pa.RecordBatch]:
        return self._ordered(
            "step_flows",
            f"""
            SELECT flow_id, worker,
                   CASE WHEN step < 0 THEN 'before' WHEN step < steps THEN 'during' ELSE 'after' END AS position,
                   CASE WHEN position = 'during' THEN step END AS step,
                   {_SUMS}
            FROM ({self._cells()}) JOIN flow_map USING (file, flow) JOIN files USING (file)
            WHERE step <> {NO_STEP:d} GROUP BY ALL
            """,
        )

    def _cells(self) -> str:
        """SQL of all files' cells with the file's number. The paths are our own scratch files'."""
        parts = [
            f"SELECT {number:d}::INTEGER AS file, * FROM read_parquet({sql_literal(str(file.cells))})"
            for number, file in enumerate(self._run.files)
            if file.cells is not None
        ]
        empty = 'SELECT 0::INTEGER AS file, 0::INTEGER AS flow, 0::BIGINT AS "window", 0::INTEGER AS step,'
        empty += " 0::BIGINT AS packets, 0::BIGINT AS wire_bytes, 0::BIGINT AS payload_bytes WHERE false"
        return " UNION ALL ".join([empty, *parts])

    def _ordered(self, name: str, query: str) -> Iterable[pa.RecordBatch]:
        """The query's rows with the table's columns, types and order."""
        table = schema.table(name)
        sql_types = {"string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN"}
        values = {"run_id": f"{sql_literal(self._run.run_id)}"}
        columns = ", ".join(f"({values.get(c.name, c.name)})::{sql_types[c.type]} AS {c.name}" for c in table.columns)
        order = ", ".join(f"{name} NULLS FIRST" for name in table.key if name != "run_id")
        reader = self._con.sql(f"SELECT {columns} FROM ({query}) ORDER BY {order}").to_arrow_reader()
        for batch in reader:
            yield batch.cast(table.arrow())


def _rows(name: str, rows: list[dict[str, Any]]) -> Iterable[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(rows, schema=schema.table(name).arrow())]


def _role(label: str | None) -> str | None:
    """Role that a label like worker-1, ps-0 or chief-0 tells, or None."""
    if label is None:
        return None
    word = label.rstrip("0123456789").rstrip("-_").lower()
    roles = {"worker": "worker", "w": "worker", "ps": "parameter_server", "parameter-server": "parameter_server"}
    return roles.get(word, "chief" if word in ("chief", "master") else "other")


def _first_number(labels: Iterable[str | None]) -> int:
    """Number of the worker that has rank 0: 0 where a file is worker-0's (the published Zerwas data), else 1."""
    return (
        0
        if any(_role(label) == "worker" and label and natural_order(label)[-1][:2] == (True, 0) for label in labels)
        else 1
    )


def _rank(label: str | None, first: int) -> int | None:
    """Rank that a worker's label tells, where the first worker has the number `first`."""
    if _role(label) != "worker" or label is None:
        return None
    number = natural_order(label)[-1]
    return number[1] - first if number[0] and number[1] >= first else None


_SUMMED = (
    "packets", "wire_bytes", "ip_bytes", "payload_bytes", "captured_bytes", "syn_packets", "fin_packets", "rst_packets",
    "retransmitted_packets", "retransmitted_bytes", "out_of_order_packets", "out_of_order_bytes", "opened", "accepted",
    "large_packets", "large_payload_bytes", "huge_packets", "huge_payload_bytes",
)  # fmt: skip

_SUMS = """sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
                   sum(payload_bytes)::BIGINT AS payload_bytes"""

_FIVE_TUPLE = "src_ip, dst_ip, protocol, src_port, dst_port"
_KEY = f"{_FIVE_TUPLE}, encapsulation_id, roce_dest_qp"

# Which copies count: see vantage.py. place_packets, series_packets: what all files of a vantage, of a series hold of
# the five-tuple. What a series holds inside and outside of tunnels (a capture of all interfaces of the tunnel's host)
# are two copies.
_RANKED = f"""
CREATE TEMP TABLE ranked AS
WITH placed AS (
    SELECT copies.*, series, file_order, cut, clock_ns, begin_ns, end_ns, coalesce(vantage_ip, '') AS place,
           encapsulation_id IS NOT NULL AS tunneled,
           CASE WHEN vantage_ip = src_ip THEN 0 WHEN vantage_ip = dst_ip THEN 1 ELSE 2 END AS distance,
           sum(packets) OVER (PARTITION BY {_FIVE_TUPLE}, vantage_ip) AS place_packets,
           sum(packets) OVER (PARTITION BY {_FIVE_TUPLE}, vantage_ip, series, tunneled) AS series_packets,
           -- a mirror port of both directions sees each packet twice
           sum(CASE WHEN vantage_ip IS NULL THEN payload_bytes - retransmitted_bytes ELSE payload_bytes END)
               OVER (PARTITION BY {_FIVE_TUPLE}, vantage_ip, series, tunneled) AS series_payload
    FROM copies JOIN files USING (file) WHERE kept
), timed AS (
    -- by the clock of the reference host: from when to when the series captured, and the five-tuple was seen by anybody
    SELECT placed.*, heard_from_ns, heard_to_ns,
           min(first_seen_ns - clock_ns) OVER (PARTITION BY {_FIVE_TUPLE}) AS seen_from_ns,
           max(last_seen_ns - clock_ns) OVER (PARTITION BY {_FIVE_TUPLE}) AS seen_to_ns
    FROM placed
    JOIN (SELECT coalesce(vantage_ip, '') AS place, series, min(begin_ns - clock_ns) AS heard_from_ns,
                 max(end_ns - clock_ns) AS heard_to_ns FROM files GROUP BY ALL) USING (place, series)
), compared AS (
    SELECT *, CASE WHEN cut OR heard_from_ns > seen_from_ns + {MISSED_NS} OR heard_to_ns < seen_to_ns - {MISSED_NS}
                   THEN (series_payload, series_packets) < max((series_payload, series_packets)) OVER five_tuple
                   WHEN max(series_payload) OVER five_tuple = 0
                   THEN series_packets < {WHOLE_SHARE} * max(series_packets) FILTER (place <> '') OVER five_tuple
                   ELSE series_payload < {WHOLE_SHARE} * max(series_payload) OVER five_tuple
              END IS TRUE AS is_partial
    FROM timed
    WINDOW five_tuple AS (PARTITION BY {_FIVE_TUPLE})
), best AS (
    SELECT *, first_value((place, series, tunneled))
              OVER (PARTITION BY {_FIVE_TUPLE}
                    ORDER BY is_partial, distance, place_packets DESC, place, series_packets DESC, series, tunneled)
              AS best
    FROM compared
)
SELECT * EXCLUDE (cut, clock_ns, begin_ns, end_ns, heard_from_ns, heard_to_ns, seen_from_ns, seen_to_ns, place,
                  distance, place_packets, series_packets, series_payload, is_partial, tunneled, best),
       (place, series, tunneled) = best AS counts
FROM best
"""

_LEDGER = f"""
CREATE TEMP TABLE ledger AS
SELECT capture_id, reason, sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes
FROM (SELECT file, packets, wire_bytes, CASE WHEN counts THEN '{IN_FLOWS}' ELSE '{DUPLICATE_VANTAGE}' END AS reason
      FROM ranked
      UNION ALL
      SELECT file, packets, wire_bytes, '{FILTERED}' FROM copies WHERE NOT kept)
JOIN files USING (file) GROUP BY ALL
"""

# The connections of a five-tuple, through all files of a series: the first row of a file continues the last of the file
# before, unless it has a SYN, and that one another sequence number, or the file before a FIN or RST.
_CONNECTIONS = f"""
CREATE TEMP TABLE connections AS
WITH followed AS (
    SELECT *, lag(file) OVER key AS file_before, lag(initial_sequence) OVER key AS sequence_before,
           lag(fin_packets + rst_packets > 0) OVER key AS ended_before
    FROM ranked WHERE counts
    WINDOW key AS (PARTITION BY {_KEY} ORDER BY file_order, flow)
)
SELECT * EXCLUDE (file_before, sequence_before, ended_before),
       sum(CASE WHEN protocol <> 6 OR file_before IS NULL THEN 0
                WHEN file_before = file THEN 1
                WHEN initial_sequence IS NULL OR (initial_sequence = sequence_before AND NOT ended_before) THEN 0
                ELSE 1 END)
       OVER (PARTITION BY {_KEY} ORDER BY file_order, flow)::BIGINT AS connection
FROM followed
"""

_MERGED = f"""
CREATE TEMP TABLE merged AS
WITH summed AS (
    SELECT {_KEY}, connection, min(first_seen_ns) AS first_seen_ns, max(last_seen_ns) AS last_seen_ns,
           {", ".join(f"sum({name})::BIGINT AS {name}" for name in _SUMMED)},
           arg_min(mss, (file_order, flow)) FILTER (mss IS NOT NULL) AS mss
    FROM connections GROUP BY ALL
)
SELECT *, row_number() OVER (ORDER BY first_seen_ns, {_KEY}, connection) - 1 AS flow_id FROM summed
"""

# The flow with the ends exchanged, of several connections the one that begins nearest, and only where that holds for
# both. flow_id follows first_seen_ns: the nearest is the next one before or behind.
_REVERSED = """
CREATE TEMP TABLE reversed AS
WITH before AS (
    SELECT f.flow_id, r.flow_id AS other, f.first_seen_ns - r.first_seen_ns AS gap
    FROM merged AS f ASOF JOIN merged AS r
      ON f.src_ip = r.dst_ip AND f.dst_ip = r.src_ip AND f.protocol = r.protocol AND f.src_port = r.dst_port
     AND f.dst_port = r.src_port AND f.flow_id > r.flow_id
), behind AS (
    SELECT f.flow_id, r.flow_id AS other, r.first_seen_ns - f.first_seen_ns AS gap
    FROM merged AS f ASOF JOIN merged AS r
      ON f.src_ip = r.dst_ip AND f.dst_ip = r.src_ip AND f.protocol = r.protocol AND f.src_port = r.dst_port
     AND f.dst_port = r.src_port AND f.flow_id < r.flow_id
), nearest AS (
    SELECT flow_id, arg_min(other, (gap, other)) AS other
    FROM (FROM before UNION ALL FROM behind) GROUP BY flow_id
)
SELECT a.flow_id, a.other AS reverse_flow_id
FROM nearest AS a JOIN nearest AS b ON a.other = b.flow_id AND b.other = a.flow_id
"""

# How busy each end is tells a server: how many other ends it has.
_FLOWS = """
CREATE TEMP TABLE run_flows AS
WITH sides AS (
    SELECT protocol, src_ip AS ip, src_port AS port, dst_ip AS other_ip, dst_port AS other_port FROM merged
    UNION
    SELECT protocol, dst_ip, dst_port, src_ip, src_port FROM merged
), ends AS (
    SELECT protocol, ip, port, count(*) AS others FROM sides WHERE port > 0 GROUP BY ALL
), evidence AS (
    SELECT f.*, v.reverse_flow_id, least(f.mss, r.mss) AS least_mss,
           CASE WHEN f.opened + f.accepted > 0 THEN 'syn'
                WHEN r.opened + r.accepted > 0 THEN 'reverse_syn'
                WHEN s.others <> d.others THEN 'shared_port'
                WHEN (f.src_port < 1024) <> (f.dst_port < 1024) THEN 'port'
                WHEN (f.src_port < 32768) <> (f.dst_port < 32768) THEN 'port'
                WHEN r.flow_id IS NOT NULL THEN 'first_packet'
                ELSE 'only_direction'
           END AS initiator_source,
           CASE initiator_source
                WHEN 'syn' THEN f.opened > 0
                WHEN 'reverse_syn' THEN r.opened = 0
                WHEN 'shared_port' THEN s.others < d.others
                WHEN 'port' THEN f.src_port > f.dst_port
                WHEN 'first_packet' THEN f.flow_id < r.flow_id
                ELSE true
           END AS is_initiator
    FROM merged AS f
    LEFT JOIN reversed AS v USING (flow_id)
    LEFT JOIN merged AS r ON r.flow_id = v.reverse_flow_id
    LEFT JOIN ends AS s ON (s.protocol, s.ip, s.port) = (f.protocol, f.src_ip, f.src_port)
    LEFT JOIN ends AS d ON (d.protocol, d.ip, d.port) = (f.protocol, f.dst_ip, f.dst_port)
), sized AS (
    SELECT *,
           -- headers of most packets: the mean, but headers are of 4 bytes, so that a SYN's longer options do not count
           round((ip_bytes - payload_bytes) / packets / 4) * 4 AS ip_header_bytes,
           (wire_bytes - ip_bytes) / packets + ip_header_bytes AS header_bytes,
           -- TCP options: what they have beyond IP's and TCP's fixed ones
           least_mss - ip_header_bytes + CASE WHEN contains(src_ip, ':') THEN 60 ELSE 40 END AS segment,
           CASE WHEN least_mss > 1500 THEN huge_packets ELSE large_packets END AS super_packets,
           CASE WHEN least_mss > 1500 THEN huge_payload_bytes ELSE large_payload_bytes END AS super_payload
    FROM evidence
)
SELECT * EXCLUDE (ip_header_bytes, header_bytes, segment, super_packets, super_payload, least_mss),
       CASE WHEN protocol = 6 AND segment >= 1 THEN
            (wire_bytes + greatest(0, ceil(super_payload / segment) - super_packets) * header_bytes)::BIGINT
       END AS cable_bytes_estimate
FROM sized
"""

_FLOW_MAP = """
CREATE TEMP TABLE flow_map AS
SELECT c.file, c.flow, m.flow_id FROM connections AS c JOIN merged AS m
  ON (c.src_ip, c.dst_ip, c.protocol, c.src_port, c.dst_port, c.connection)
   = (m.src_ip, m.dst_ip, m.protocol, m.src_port, m.dst_port, m.connection)
 AND c.encapsulation_id IS NOT DISTINCT FROM m.encapsulation_id AND c.roce_dest_qp IS NOT DISTINCT FROM m.roce_dest_qp
"""

_OPCODES = f"""
CREATE TEMP TABLE opcodes AS
SELECT flow_id, roce_opcode, {_SUMS}
FROM ranked JOIN flow_map USING (file, flow) WHERE counts AND roce_opcode IS NOT NULL GROUP BY ALL
"""
