"""The data dictionary, made from schemas/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddnn_traces.errors import UsageError
from ddnn_traces.store import schema

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset


def row_counts(dataset: Dataset) -> dict[str, int]:
    """Rows of every table of a dataset."""
    return {t.name: dataset.sql_arrow(f"SELECT count(*) FROM {t.name}")[0][0].as_py() for t in schema.tables()}


def markdown(names: Sequence[str] = (), counts: dict[str, int] | None = None) -> str:
    """The dictionary of these tables (none named: of all) as Markdown. Raises UsageError for an unknown name."""
    for name in names:
        if name not in schema.TABLES:
            raise UsageError(f"no table named {name}; there are {', '.join(schema.TABLES)}")
    return "\n".join(_table(schema.table(name), (counts or {}).get(name)) for name in names or schema.TABLES)


def _table(table: schema.Table, rows: int | None) -> str:
    size = "" if rows is None else f" {rows:,} rows."
    lines = [f"## {table.name}", "", f"One row is {table.row}.{size} Key: {', '.join(table.key)}.", ""]
    lines += ["| column | type | unit | meaning | source | known inaccuracy |", "|---|---|---|---|---|---|"]
    for c in table.columns:
        kind = c.type if c.nullable else f"{c.type}, never null"
        lines.append(f"| {c.name} | {kind} | {c.unit} | {c.meaning} | {c.source} | {c.inaccuracy} |")
    return "\n".join([*lines, ""])
