"""A dataset or a release in a folder; a release may be a BagIt bag."""

from __future__ import annotations

import glob
from pathlib import Path

from ddnn_traces.store import layout, schema
from ddnn_traces.store.marker import read_marker
from ddnn_traces.store.places.place import Place


def place(path: Path) -> Place:
    """The place of a dataset's folder. Raises UsageError where there is none of this schema version."""
    content = layout.content(path)
    tables = read_marker(content)
    return Place(str(path), files(content, tables), content)


def files(folder: Path, tables: tuple[str, ...] = schema.TABLES) -> dict[str, list[str]]:
    """What DuckDB reads for each table that a dataset's folder has, and nothing for the others."""
    globs = {table: [f"{glob.escape(str(folder / table))}/*/*.parquet"] for table in tables}
    return {table: globs.get(table, []) for table in schema.TABLES}
