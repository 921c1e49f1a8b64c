"""A dataset or release as one DuckDB file that holds the rows themselves, with all queries as views and macros.

Other than those of traces.duckdb, its views read no other file: `ATTACH` opens it from any folder, and with DuckDB's
extension httpfs from a URL. A later ingest does not change it.
"""

from __future__ import annotations

from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.query import views
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import layout, schema
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import sql_literal


def export(where: str | Path, out: Path, run: str | None = None) -> tuple[Path, list[str]]:
    """Write the rows of a dataset, or of one of its runs, to the database file `out`; return it, and no lines.

    Raises UsageError where there is no dataset or no such run, or the file cannot be written.
    """
    import duckdb

    layout.refuse_inside(out.parent)
    try:
        with whole_file(out) as half_written:
            half_written.unlink()  # DuckDB takes no empty file
            views.write_relative(half_written, out.parent, ())
            try:
                with Dataset(where, [run] if run else None) as dataset:
                    _fill(dataset, half_written)
            finally:
                half_written.with_name(f"{half_written.name}.wal").unlink(missing_ok=True)
    except (OSError, duckdb.IOException) as error:
        raise UsageError(f"{out}: cannot be written ({error}); choose another --out") from error
    return out, []


def _fill(dataset: Dataset, file: Path) -> None:
    """Replace the views of the tables, which are empty there, by tables with the rows."""
    connection = dataset.connection
    connection.execute(f"ATTACH {sql_literal(str(file))} AS frozen")
    for table in schema.TABLES:
        connection.execute(f"DROP VIEW frozen.{table}; CREATE TABLE frozen.{table} AS FROM {table}")
    connection.execute(";".join(["USE frozen", *views.table_comments("TABLE"), "USE memory", "DETACH frozen"]))
