"""From the facts of a run's captures to the run's tables.

The joins and sums over flows and cells are DuckDB's: it sorts and aggregates beyond memory, so that a run's windows
need not fit. Everything has a total order; the same facts give the same rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ddnn_traces import schema
from ddnn_traces.ingestors.facts import DUPLICATE_VANTAGE, IN_FLOWS, NO_STEP, CaptureFacts
from ddnn_traces.ingestors.logs import TrainingLog, natural_order
from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.vantage import find_vantages, is_host, number_series
from ddnn_traces.text import sql_literal

#: DuckDB spills to disk beyond this; measured: 20 M packets in as many cells of 100,000 flows peak at 516 MB in all.
MEMORY_LIMIT = "128MB"

#: A copy of a five-tuple with less than this share of the fullest copy's payload is partial (a capture that was cut, or
#: lost packets) and counts only where there is no better one. Payload, since offloads make packets of different sizes;
#: packets where there is none.
WHOLE_SHARE = 0.98


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


class RunTables:
    """The tables of one run, each as Arrow record batches in its schema and order. A context manager."""

    def __init__(self, run: RunFacts, scratch: Path) -> None:
        self._run = run
        self._vantages = find_vantages(run.files)
        self._con = duckdb.connect(
            config={"memory_limit": MEMORY_LIMIT, "temp_directory": str(scratch), "preserve_insertion_order": False}
        )
        self._con.execute("SET enable_progress_bar = false")  # DuckDB draws it on stdout
        self._con.register("copies", self._copies())
        self._con.register("files", self._files())
        self._con.execute(_RANKED).execute(_FLOWS).execute(_FLOW_MAP)

    def __enter__(self) -> RunTables:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def batches(self, name: str) -> Iterable[pa.RecordBatch]:
        """Record batches of the table of that name."""
        batches: Iterable[pa.RecordBatch] = getattr(self, f"_{name}_table")()
        return batches

    # --- inputs of the SQL

    def _copies(self) -> pa.Table:
        """Flow facts of all files in one table, with file number and row number."""
        tables = []
        for number, file in enumerate(self._run.files):
            size = file.flows.num_rows
            table = file.flows.append_column("flow", pa.array(range(size), pa.int32()))
            tables.append(table.append_column("file", pa.array([number] * size, pa.int32())))
        return pa.concat_tables(tables)

    def _files(self) -> pa.Table:
        run = self._run
        return pa.table(
            {
                "file": pa.array(range(len(run.files)), pa.int32()),
                "capture_id": pa.array([file.capture_id for file in run.files], pa.string()),
                "vantage_ip": pa.array(self._vantages, pa.string()),
                "series": pa.array(number_series(run.files, self._vantages), pa.int32()),
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
        row |= {"run_id": self._run.run_id, "source": "capture"}
        return _rows("runs", [row])

    def _hosts_table(self) -> Iterable[pa.RecordBatch]:
        query = "SELECT src_ip, true FROM run_flows UNION SELECT dst_ip, false FROM run_flows"
        sends: dict[str, bool] = {}
        for ip, sender in self._con.execute(query).fetchall():
            sends[ip] = sends.get(ip, False) or sender
        declared = {host.ip: host for host in self._run.metadata.hosts}
        by_file = self._labels_by_vantage()
        rows = []
        for ip in sorted(sends.keys() | declared.keys()):
            if not is_host(ip) or (not sends.get(ip) and ip not in declared and ip.endswith(".255")):
                continue  # an address ending in .255 that never sends is taken for a subnet's broadcast
            known = asdict(declared[ip]) if ip in declared else {}
            label = known.get("label") or by_file.get(ip)
            row: dict[str, Any] = {"run_id": self._run.run_id, "host_ip": ip, "label": label}
            row |= {"role": known.get("role") or _role(label), "ring_position": known.get("ring_position")}
            row["rank"] = known["rank"] if known.get("rank") is not None else _rank(label)
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
        for file, vantage in zip(self._run.files, self._vantages, strict=True):
            row = {name: getattr(file, name, None) for name in names}
            row |= {"run_id": self._run.run_id, "vantage_ip": vantage, "version": self._run.version}
            rows.append(row)
        return _rows("captures", sorted(rows, key=lambda row: str(row["capture_id"])))

    def _capture_ledger_table(self) -> Iterable[pa.RecordBatch]:
        query = """
            SELECT capture_id, counts, sum(packets)::BIGINT, sum(wire_bytes)::BIGINT
            FROM ranked JOIN files USING (file) GROUP BY ALL
        """
        ledger = {
            (capture_id, IN_FLOWS if counts else DUPLICATE_VANTAGE): (packets, wire)
            for capture_id, counts, packets, wire in self._con.execute(query).fetchall()
        }
        for file in self._run.files:
            ledger |= {(file.capture_id, reason): sums for reason, sums in file.skipped.items()}
        names = [column.name for column in schema.table("capture_ledger").columns]
        rows = [(self._run.run_id, *key, *sums) for key, sums in sorted(ledger.items())]
        return _rows("capture_ledger", [dict(zip(names, row, strict=True)) for row in rows])

    def _flows_table(self) -> Iterable[pa.RecordBatch]:
        return self._ordered("flows", "SELECT * FROM run_flows")

    def _flow_windows_table(self) -> Iterable[pa.RecordBatch]:
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


def _rank(label: str | None) -> int | None:
    """worker-1 has rank 0."""
    if _role(label) != "worker" or label is None:
        return None
    number = natural_order(label)[-1]
    return number[1] - 1 if number[0] and number[1] > 0 else None


_SUMS = """sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS wire_bytes,
                   sum(payload_bytes)::BIGINT AS payload_bytes"""

_FIVE_TUPLE = "src_ip, dst_ip, protocol, src_port, dst_port"

# Which copies count: see vantage.py. place_packets, series_packets: what all files of a vantage, of a series hold of
# the five-tuple.
_RANKED = f"""
CREATE TEMP TABLE ranked AS
WITH placed AS (
    SELECT copies.*, series, coalesce(vantage_ip, '') AS place,
           CASE WHEN vantage_ip = src_ip THEN 0 WHEN vantage_ip = dst_ip THEN 1 ELSE 2 END AS distance,
           sum(packets) OVER (PARTITION BY {_FIVE_TUPLE}, vantage_ip) AS place_packets,
           sum(packets) OVER (PARTITION BY {_FIVE_TUPLE}, vantage_ip, series) AS series_packets,
           sum(payload_bytes) OVER (PARTITION BY {_FIVE_TUPLE}, vantage_ip, series) AS series_payload
    FROM copies JOIN files USING (file)
), compared AS (
    SELECT *, CASE max(series_payload) OVER five_tuple
                   WHEN 0 THEN series_packets < {WHOLE_SHARE} * max(series_packets) OVER five_tuple
                   ELSE series_payload < {WHOLE_SHARE} * max(series_payload) OVER five_tuple
              END AS is_partial
    FROM placed
    WINDOW five_tuple AS (PARTITION BY {_FIVE_TUPLE})
), best AS (
    SELECT *, first_value((place, series)) OVER (PARTITION BY {_FIVE_TUPLE}
                                                 ORDER BY is_partial, distance, place_packets DESC, place,
                                                          series_packets DESC, series) AS best
    FROM compared
)
SELECT * EXCLUDE (place, distance, place_packets, series_packets, series_payload, is_partial, best),
       (place, series) = best AS counts
FROM best
"""

_FLOWS = f"""
CREATE TEMP TABLE run_flows AS
WITH merged AS (
    SELECT {_FIVE_TUPLE}, min(first_seen_ns) AS first_seen_ns, max(last_seen_ns) AS last_seen_ns,
           sum(packets) AS packets, sum(wire_bytes) AS wire_bytes, sum(ip_bytes) AS ip_bytes,
           sum(payload_bytes) AS payload_bytes, sum(captured_bytes) AS captured_bytes,
           sum(syn_packets) AS syn_packets, sum(fin_packets) AS fin_packets, sum(rst_packets) AS rst_packets,
           sum(retransmitted_packets) AS retransmitted_packets, sum(retransmitted_bytes) AS retransmitted_bytes,
           sum(opened) AS opened, sum(accepted) AS accepted
    FROM ranked WHERE counts GROUP BY ALL
), numbered AS (
    SELECT *, row_number() OVER (ORDER BY first_seen_ns, {_FIVE_TUPLE}) - 1 AS flow_id FROM merged
)
SELECT f.*, NULL::BIGINT AS encapsulation_id, r.flow_id AS reverse_flow_id,
       CASE WHEN f.opened > 0 OR r.accepted > 0 THEN true WHEN f.accepted > 0 OR r.opened > 0 THEN false
       END AS is_initiator,
       CASE WHEN f.opened > 0 OR f.accepted > 0 THEN 'syn' WHEN r.opened > 0 OR r.accepted > 0 THEN 'reverse_syn'
       END AS initiator_source
FROM numbered AS f LEFT JOIN numbered AS r
  ON (f.src_ip, f.dst_ip, f.protocol, f.src_port, f.dst_port)
   = (r.dst_ip, r.src_ip, r.protocol, r.dst_port, r.src_port)
"""

_FLOW_MAP = f"""
CREATE TEMP TABLE flow_map AS
SELECT file, flow, flow_id FROM ranked JOIN run_flows USING ({_FIVE_TUPLE}) WHERE counts
"""
