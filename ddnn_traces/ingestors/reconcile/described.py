"""The tables that depend on a run's description, and not on its packets but for its flows and captures.

These are made when the packets were read (run_tables.py), and again, from the flows and captures in the dataset, when
only the description has changed (StoredTables).
"""

from __future__ import annotations

import contextlib
import glob
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.errors import REPORT, InternalError
from ddnn_traces.ingestors.reconcile.log_clocks import LogClock
from ddnn_traces.ingestors.reconcile.vantage import OWN_SHARE, is_host
from ddnn_traces.ingestors.run_description import Description
from ddnn_traces.ingestors.sources import host_stem, role_of
from ddnn_traces.ingestors.training_logs import FIRST_WORKER, Event, Step, first_number, rank_of
from ddnn_traces.pcap.interface_statistics import COLUMNS as COUNTERS
from ddnn_traces.pcap.interface_statistics import OF_FILE
from ddnn_traces.query.views import hide_progress_bar
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import rows_file
from ddnn_traces.store.whole_files import no_memory, no_space
from ddnn_traces.text import listed, natural_order, sql_literal

if TYPE_CHECKING:
    import duckdb

_IDLE = 0.1  # of the packets of the largest capture: one with fewer is of a host that was not in the training
#: DuckDB spills to disk beyond this; measured: 20 M packets in as many cells of 100,000 flows peak at 412 MB in all.
_MEMORY_MB = 128
#: And these bytes more for each flow of a capture: what DuckDB does not spill grows with them.
_MEMORY_OF_A_FLOW = 400
#: And for each capture: with less, scans of 100,000 files evict what they need next, without end.
_MEMORY_OF_A_CAPTURE = 2000

#: The tables that a method of DescribedTables makes.
DESCRIBED = ("runs", "hosts", "captures", "steps", "events")


def connect(scratch: Path, flows: int = 0, captures: int = 0) -> duckdb.DuckDBPyConnection:
    """A database in memory that spills to `scratch`. flows: of all captures of the run."""
    import duckdb

    limit = f"{_MEMORY_MB + (flows * _MEMORY_OF_A_FLOW + captures * _MEMORY_OF_A_CAPTURE) // 1_000_000}MB"
    connection = duckdb.connect(
        config={"memory_limit": limit, "temp_directory": str(scratch), "preserve_insertion_order": False}
    )
    hide_progress_bar(connection)
    return connection


@contextlib.contextmanager
def running(statement: str) -> Iterator[None]:
    """Names the statement, an .sql file or what makes a table, in an error of DuckDB. Raises InternalError.

    Errors of memory and of the disk are not the statement's fault, and remain what they are.
    """
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        if no_space(error) or no_memory(error) or "KeyboardInterrupt" in str(error):
            raise
        raise InternalError(f"{statement}: {str(error).splitlines()[0]}; {REPORT}") from error


class DescribedTables:
    """The tables of DESCRIBED, each as Arrow record batches in its schema and order. A context manager.

    con: has the relation run_flows, the rows of flows. A subclass sets _capture_rows, the rows of captures in the order
    of the run's captures; their run_id does not count, nor do counters that are not the file's own.
    """

    def __init__(self, description: Description, clock: LogClock, con: duckdb.DuckDBPyConnection) -> None:
        self._description = description
        self._clock = clock
        self._con = con
        self._capture_rows: Sequence[Mapping[str, Any]] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()

    def batches(self, name: str) -> Iterable[pa.RecordBatch]:
        """Record batches of the table of that name."""
        batches: Iterable[pa.RecordBatch] = getattr(self, f"_{name}_table")()
        return batches

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self._description.run.run_id

    def percentages_lost(self) -> tuple[float, float]:
        """What the captures lost, in percent of the TCP payload and of the packets, as in the query run_capture_loss.

        0 also where nothing is known.
        """
        sums = self._con.execute(
            "SELECT sum(missed_bytes - unacknowledged_missed_bytes), "
            "sum(payload_bytes - retransmitted_bytes) FILTER (missed_bytes IS NOT NULL) FROM run_flows"
        ).fetchall()
        captures = self._counted_captures()
        uncounted = Counter[str | None]()  # records of the files of each host that have no count of their own
        for row in captures:
            uncounted[row["vantage_ip"]] += row["records"] if row["delivered_packets"] is None else 0
        rows = [row for row in captures if row["counter_source"]]
        names = ("kernel_dropped_packets", "interface_dropped_packets")
        dropped = sum(row[name] or 0 for row in rows for name in names)
        cut = sum(
            max(row["delivered_packets"] - row["records"] - uncounted[row["vantage_ip"]] - uncounted[None], 0)
            for row in rows
            if row["delivered_packets"] is not None
        )
        return _percent_lost(*sums[0]), _percent_lost(dropped + cut, sum(row["records"] for row in rows))

    def label_warnings(self) -> list[str]:
        """A line for each label of addresses that are several hosts, for names of captures that fit two hosts, and for
        a log that is no host's."""
        labels = {str(row["host_ip"]): str(row["label"]) for row in self._hosts if row["label"]}
        pairs = self._con.execute("SELECT DISTINCT src_ip, dst_ip FROM run_flows").fetchall()
        same: dict[str, set[str]] = {}
        for ends in pairs:
            if ends[0] != ends[1] and ends[0] in labels and labels[ends[0]] == labels.get(ends[1]):
                same.setdefault(labels[ends[0]], set()).update(ends)
        warnings = [
            f"{self.run_id}: {len(ips)} addresses that exchange packets have the label {label} "
            f"({listed(sorted(ips), 4)}): they are several hosts; correct --layout, the captures' names or run.toml"
            for label, ips in sorted(same.items())
        ]
        folders = self._folders_by_vantage().items()
        if several := {ip: found for ip, found in folders if len(found) > 1 and ip not in labels}:
            ip, found = min(several.items())
            warnings.append(
                f"{self.run_id}: captures of {ip} are in the folders of several hosts "
                f"({listed(sorted(found, key=natural_order), 4)}): it has no label; where these are several runs, "
                "correct --layout or --run-id"
            )
        if either := self._names_of_either(labels):
            warnings.append(
                f"{self.run_id}: captures {listed(either, 4)} have the packets of both "
                f"{' and '.join(self._both_ends)}: which name is whose cannot be told, so that no host has one; give "
                "ip and label of each in [[hosts]] of run.toml"
            )
        worker = self._description.only_worker
        if worker == FIRST_WORKER and labels and all(row["role"] != "worker" for row in self._hosts):
            names = listed(sorted(set(labels.values()), key=natural_order), 4)
            warnings.append(
                f"{self.run_id}: train_history.log: no capture says whose it is; its steps count for all hosts, and "
                "what needs a host's own steps is left out. Rename it to train_history-HOST.log, HOST that wrote it "
                f"({names})"
            )
        return warnings

    def _names_of_either(self, labels: Collection[str]) -> list[str]:
        """Names that captures without a host have, where two hosts without a label are ends of nearly all packets."""
        if len(self._both_ends) != 2 or not {*self._both_ends}.isdisjoint(labels):
            return []
        captures = zip(self._capture_rows, self._description.labels, strict=True)
        least = _IDLE * max(row["records"] for row in self._capture_rows)
        names = {label for row, label in captures if label and not row["vantage_ip"] and row["records"] >= least}
        return sorted(names, key=natural_order) if len(names) > 1 else []

    @cached_property
    def _both_ends(self) -> list[str]:
        """Addresses of the hosts that are an end of nearly all packets."""
        found = self._con.execute(
            "SELECT ip, sum(packets) >= $1 * (SELECT sum(packets) FROM run_flows) FROM (SELECT src_ip AS ip, packets "
            "FROM run_flows UNION ALL SELECT dst_ip, packets FROM run_flows WHERE dst_ip <> src_ip) GROUP BY ip "
            "ORDER BY ip", [OWN_SHARE],
        ).fetchall()  # fmt: skip
        return [ip for ip, is_end in found if is_end and is_host(ip)]

    # --- one method a table

    def _runs_table(self) -> Iterable[pa.RecordBatch]:
        row = {
            column.name: self._description.metadata.fields.get(column.name) for column in schema.table("runs").columns
        }
        clock, estimate = self._clock, self._clock.estimate
        row |= {"run_id": self.run_id, "source": row["source"] or "capture", "clock_offset_ns": clock.applied_ns}
        if estimate:
            row |= {"clock_offset_estimate_ns": estimate.offset_ns, "clock_drift_ppm": estimate.drift_ppm}
        return rows_of("runs", [row])

    def _hosts_table(self) -> Iterable[pa.RecordBatch]:
        return rows_of("hosts", self._hosts)

    @cached_property
    def _hosts(self) -> list[dict[str, Any]]:
        """The rows of hosts."""
        query = "SELECT src_ip, true FROM run_flows UNION SELECT dst_ip, false FROM run_flows"
        sends: dict[str, bool] = {}
        for ip, sender in self._con.execute(query).fetchall():
            sends[ip] = sends.get(ip, False) or sender
        declared = {host.ip: host for host in self._description.metadata.hosts}
        by_file = self._labels_by_vantage()
        first = first_number(self._description.labels)
        rows = []
        for ip in sorted(sends.keys() | declared.keys()):
            if not is_host(ip) or (not sends.get(ip) and ip not in declared and ip.endswith(".255")):
                continue  # an address ending in .255 that never sends is taken for a subnet's broadcast
            known = asdict(declared[ip]) if ip in declared else {}
            label = known.get("label") or by_file.get(ip)
            row: dict[str, Any] = {"run_id": self.run_id, "host_ip": ip, "label": label}
            row |= {"role": known.get("role") or role_of(label), "ring_position": known.get("ring_position")}
            row["rank"] = known["rank"] if known.get("rank") is not None else rank_of(label, first)
            rows.append(row)
        return rows

    def _folders_by_vantage(self) -> dict[str, set[str]]:
        """Hosts that the layout, or folders, give for the files captured at each address."""
        given: dict[str, set[str]] = {}
        for path, row in zip(self._description.run.captures, self._capture_rows, strict=True):
            if row["vantage_ip"] and path in self._description.run.hosts:
                given.setdefault(row["vantage_ip"], set()).add(self._description.run.hosts[path])
        return given

    def _labels_by_vantage(self) -> dict[str, str]:
        """Host in the names of the files captured at each address; no entry where they contradict each other.

        Where no name has a usual one, and no log has another, any name does that tells the hosts apart.
        """
        labels: dict[str, set[str]] = {}
        for row, label in zip(self._capture_rows, self._description.labels, strict=True):
            if label and row["vantage_ip"]:
                labels.setdefault(row["vantage_ip"], set()).add(label)
        workers = {log.worker for log in self._description.logs}
        if any(self._description.labels) or workers - {FIRST_WORKER}:
            return {ip: next(iter(found)) for ip, found in labels.items() if len(found) == 1}
        return self._stems_by_vantage()

    def _stems_by_vantage(self) -> dict[str, str]:
        """The names of captures of two hosts or more; empty unless all files have a host, and each host one name."""
        stems: dict[str, set[str]] = {}
        for path, row in zip(self._description.run.captures, self._capture_rows, strict=True):
            stems.setdefault(row["vantage_ip"] or "", set()).add(host_stem(path))
        names = {stem for found in stems.values() for stem in found}
        if (
            "" in stems
            or "" in names
            or not 1 < len(stems) == len(names)
            or any(len(found) > 1 for found in stems.values())
        ):
            return {}
        return {ip: found.pop() for ip, found in stems.items()}

    def _captures_table(self) -> Iterable[pa.RecordBatch]:
        return rows_of("captures", sorted(self._counted_captures(), key=lambda row: str(row["capture_id"])))

    def _counted_captures(self) -> list[dict[str, Any]]:
        """The rows of captures, in the order of the run's. Counters in a log count where the file itself has none."""
        rows = []
        for path, row in zip(self._description.run.captures, self._capture_rows, strict=True):
            stated = {name: row.get(name) for name in COUNTERS}
            if stated["counter_source"] != OF_FILE:
                stated = dict.fromkeys(COUNTERS) | self._description.counters.get(path, {})
            rows.append({**row, **stated, "run_id": self.run_id})
        return rows

    def _steps_table(self) -> Iterable[pa.RecordBatch]:
        return (
            self._of_log("steps", log.worker, log.steps)
            for log in sorted(self._description.logs, key=lambda log: log.worker)
        )

    def _events_table(self) -> Iterable[pa.RecordBatch]:
        of_programs = {log.worker: log.events for log in self._description.logs}
        of_profilers = {recorded.worker: recorded.events for recorded in self._description.recorded}
        for worker in sorted(of_programs.keys() | of_profilers.keys()):
            events = sorted((*of_programs.get(worker, ()), *of_profilers.get(worker, ())), key=Event.key)
            yield self._of_log("events", worker, events)

    def _of_log(self, table: str, worker: str, rows: Sequence[Step | Event]) -> pa.RecordBatch:
        """The rows of one log, column by column: there may be a million."""
        arrow = schema.table(table).arrow()
        same = {"run_id": self.run_id, "worker": worker}
        columns = [
            pa.repeat(pa.scalar(same[field.name], field.type), len(rows))
            if field.name in same
            else pa.array([getattr(row, field.name, None) for row in rows], field.type)
            for field in arrow
        ]
        return pa.RecordBatch.from_arrays(columns, schema=arrow)

    def _ordered(self, name: str, query: str, parameters: dict[str, object] | None = None) -> Iterable[pa.RecordBatch]:
        """The query's rows with the table's columns, types and order."""
        table = schema.table(name)
        sources = {"run_id": "$run_id"}
        columns = ", ".join(
            f"({sources.get(c.name, c.name)})::{schema.TYPES[c.type].duckdb} AS {c.name}" for c in table.columns
        )
        order = ", ".join(f"{name} NULLS FIRST" for name in table.key if name != "run_id")
        with running(f"reconcile, table {name}"):
            rows = self._con.sql(
                f"SELECT {columns} FROM ({query}) ORDER BY {order}",
                params={"run_id": self.run_id, **(parameters or {})},
            )
            for batch in rows.to_arrow_reader():
                yield pa.RecordBatch.from_arrays(batch.columns, schema=table.arrow())


def rows_of(name: str, rows: list[dict[str, Any]]) -> Iterable[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(rows, schema=schema.table(name).arrow())]


def _percent_lost(lost: int | None, captured: int | None) -> float:
    return 100 * lost / (lost + (captured or 0)) if lost else 0.0


# --- a run's tables when only its description has changed: from those in the dataset, without a capture


class StoredTables(DescribedTables):
    """The tables of a run in the dataset with another description. A context manager.

    name: the run's name in the dataset; where that of the description is another, all tables change.
    workers: the new name of each worker.
    """

    def __init__(
        self,
        dataset: Path,
        name: str,
        description: Description,
        clock: LogClock,
        workers: Mapping[str, str],
        scratch: Path,
    ) -> None:
        super().__init__(description, clock, connect(scratch))
        self._dataset, self._name, self._workers = dataset, name, workers
        self._con.execute(f"CREATE TEMP VIEW run_flows AS {self._stored('flows')}")
        rows = {row["capture_id"]: row for row in pq.read_table(self._file("captures"), partitioning=None).to_pylist()}
        self._capture_rows = [rows[description.run.name_of(path)] for path in description.run.captures]

    @property
    def changed(self) -> list[str]:
        """The tables that are to be written; the others remain as they are."""
        if self.run_id != self._name:
            return list(schema.TABLES)
        renamed = any(then != now for then, now in self._workers.items())
        return [*DESCRIBED, *(["step_flows"] if renamed else [])]

    @property
    def spans(self) -> list[tuple[int | None, int | None]]:
        """First and last time of each capture, ns."""
        return [(row["first_ns"], row["last_ns"]) for row in self._capture_rows]

    @property
    def provenance(self) -> dict[str, str]:
        """That of the run's files in the dataset: what the packets were read from, and how."""
        notes = pq.read_schema(self._file("runs")).metadata or {}
        prefix = b"ddnn_traces."
        return {
            key.removeprefix(prefix).decode(): value.decode() for key, value in notes.items() if key.startswith(prefix)
        }

    def batches(self, name: str) -> Iterable[pa.RecordBatch]:
        """Record batches of one of the tables `changed`."""
        if name in DESCRIBED or name == "step_flows":
            return super().batches(name)
        return self._renamed(name)

    def _step_flows_table(self) -> Iterable[pa.RecordBatch]:
        names = {"old_name": list(self._workers), "new_name": list(self._workers.values())}
        self._con.register(
            "workers", pa.table(names, schema=pa.schema([("old_name", pa.string()), ("new_name", pa.string())]))
        )
        sums = ", ".join(
            f"sum({column.name})::BIGINT AS {column.name}"
            for column in schema.table("step_flows").columns
            if column.unit
        )
        query = f"""SELECT flow_id, new_name AS worker, position, step, {sums}
                    FROM ({self._stored("step_flows")}) AS stored JOIN workers ON worker = old_name GROUP BY ALL"""
        return self._ordered("step_flows", query)

    def _renamed(self, name: str) -> Iterator[pa.RecordBatch]:
        """A table's rows under the run's new name, a row group at a time, also one without rows."""
        arrow = schema.table(name).arrow()
        with pq.ParquetFile(self._file(name)) as file:
            for number in range(file.num_row_groups):
                rows = file.read_row_group(number).combine_chunks()
                run_id = pa.repeat(pa.scalar(self.run_id, pa.string()), rows.num_rows)
                columns = [run_id if field.name == "run_id" else rows[field.name] for field in arrow]
                renamed = pa.Table.from_arrays(columns, schema=arrow)
                yield from renamed.to_batches() or [pa.RecordBatch.from_pylist([], schema=arrow)]

    def _stored(self, table: str) -> str:
        return (
            f"SELECT * FROM read_parquet({sql_literal(glob.escape(str(self._file(table))))}, hive_partitioning = false)"
        )

    def _file(self, table: str) -> Path:
        return rows_file(self._dataset, table, self._name)
