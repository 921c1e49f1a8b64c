"""A table's Parquet files: paths, metadata of columns, encodings, row groups."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ddnn_traces.errors import UsageError
from ddnn_traces.store import schema

if TYPE_CHECKING:
    import pyarrow as pa

_KEY = "run_id="
_PLAIN = " +,@~"
_MOST_NAME = 255  # bytes of a name in the usual file systems
_HIVE_NULLS = ("null", "__hive_default_partition__")  # what readers of Hive partitions read as NULL


def partition(dataset: Path, table: str, run_id: str) -> Path:
    """Folder of a run's rows of a table; characters that a path or Hive could misread are percent-encoded.

    So are those beyond ASCII, unless the name would be too long for a folder then.
    """
    return dataset / table / _folder_name(run_id)


def rows_file(dataset: Path, table: str, run_id: str) -> Path:
    """The file of a run's rows of a table, as an ingest writes it."""
    return partition(dataset, table, run_id) / "part-0.parquet"


def part(table: str, number: int, split: str | None = None) -> str:
    """Path of a table's file in a release: there a file has rows of several runs, and no folder a run's name.

    split: that of all its runs (runs.split), of which `number` counts the files; the Hub, too, names files so.
    """
    return f"{table}/{split or 'part'}-{number:05}.parquet"


def check_name(run_id: str) -> None:
    """Raise UsageError for a run whose name cannot be that of a folder."""
    size = len(_folder_name(run_id).encode())
    if size > _MOST_NAME:
        raise UsageError(
            f"{run_id}: the name of this run makes a folder's name of {size} bytes, more than {_MOST_NAME}; rename its "
            "folder, or ingest it by itself with a shorter --run-id"
        )


def _folder_name(run_id: str) -> str:
    encoded = quote(run_id, safe=_PLAIN)
    if run_id.lower() in _HIVE_NULLS:
        encoded = f"%{ord(run_id[0]):02X}{run_id[1:]}"
    if len(encoded) + len(_KEY) > _MOST_NAME:
        encoded = "".join(c if c > "\x7f" and c.isprintable() else quote(c, safe=_PLAIN) for c in run_id)
    return f"{_KEY}{encoded}"


def annotated(table: str, provenance: Mapping[str, str], defined: schema.Table | None = None) -> pa.Schema:
    """The table's schema with meaning and unit in the metadata of each column and the provenance in that of the file.

    defined: the table, where its meanings, and which columns may be null, differ from those of schemas/.
    """
    arrow, pandas = _explained(defined or schema.table(table))
    notes = {f"ddnn_traces.{key}": value for key, value in sorted(provenance.items())}
    return arrow.with_metadata(notes | {"pandas": pandas})


@functools.cache
def _explained(table: schema.Table) -> tuple[pa.Schema, str]:
    """The table's schema with the columns' metadata, and its pandas metadata: the same for all runs."""
    import pyarrow as pa

    fields = []
    for field, column in zip(table.arrow(), table.columns, strict=True):
        notes = {"meaning": column.meaning, "source": column.source, "unit": column.unit}
        if column.inaccuracy:
            notes["inaccuracy"] = column.inaccuracy
        fields.append(field.with_metadata(notes))
    return pa.schema(fields), pandas_types(table)


def pandas_types(table: schema.Table) -> str:
    """The pandas metadata of a Parquet file, so that integers with nulls do not become floating point.

    Times since the epoch are larger than the integers that a double holds exactly, and frictionless and mlcroissant,
    which read by pandas, reject NaN as an integer. Format: pandas, "Storing pandas DataFrame objects in Apache Parquet
    format".
    """
    columns = []
    for column in table.columns:
        kind, numpy = column.types.pandas, column.types.numpy[column.nullable]
        names = {"name": column.name, "field_name": column.name, "pandas_type": kind, "numpy_type": numpy}
        columns.append(names | {"metadata": None})
    return json.dumps({"index_columns": [], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"})


def encodings(name: str, for_any_reader: bool = False) -> dict[str, Any]:
    """Encodings for pyarrow: sorted numbers as differences, which are small; other columns, which repeat, by
    dictionary.

    for_any_reader: no differences of times, and none in columns that may be null. fastparquet (2026.9) reads those of
    more than 32 bits as wrong values without an error, and beyond the end of a page that has nulls alone.
    """
    table = schema.table(name)
    sorted_by = {
        column.name: column
        for column in table.columns
        if (column.ascending or (column.name in table.key and column.type == "int64"))
        and not (for_any_reader and column.nullable)
    }
    others = [column.name for column in table.columns if column.name not in sorted_by]
    small = [name for name, column in sorted_by.items() if not (for_any_reader and column.identifies == "time")]
    return {"use_dictionary": others, "column_encoding": dict.fromkeys(small, "DELTA_BINARY_PACKED")}


def row_groups(batches: Iterable[pa.RecordBatch], arrow: pa.Schema, size: int) -> Iterable[pa.Table]:
    """Tables of `size` rows in this schema, the last one shorter: the same groups for any cut of the batches."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch.replace_schema_metadata(None))
        rows += batch.num_rows
        if rows >= size:
            table = pa.Table.from_batches(waiting)
            full = rows - rows % size
            yield _annotated(table.slice(0, full), arrow)
            waiting, rows = table.slice(full).to_batches(), rows - full
    if waiting:
        yield _annotated(pa.Table.from_batches(waiting), arrow)


def _annotated(table: pa.Table, arrow: pa.Schema) -> pa.Table:
    """The table in this schema. Raises ValueError for null where there may be none."""
    import pyarrow as pa

    same = (table.schema.names, table.schema.types) == (arrow.names, arrow.types)
    if same and not any(
        column.null_count for column, known in zip(table.columns, arrow, strict=True) if not known.nullable
    ):
        return pa.Table.from_arrays(table.columns, schema=arrow)  # cast() imports pyarrow.compute, which takes a while
    return table.cast(arrow)
