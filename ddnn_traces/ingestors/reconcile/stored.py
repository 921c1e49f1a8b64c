"""A run's tables when only its description has changed: from those in the dataset, without a capture."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.ingestors.description import Description
from ddnn_traces.ingestors.reconcile.described import DESCRIBED, DescribedTables, connect
from ddnn_traces.ingestors.reconcile.log_clocks import LogClock
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import partition
from ddnn_traces.text import sql_literal


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
        return partition(self._dataset, table, self._name) / "part-0.parquet"
