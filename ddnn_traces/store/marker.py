"""dataset.json: the file that makes a folder a dataset, with the schema version it was written with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.store import schema

MARKER = "dataset.json"


def is_dataset(folder: Path) -> bool:
    """Whether the folder is marked as a dataset, of any schema version."""
    return (folder / MARKER).is_file()


def write_marker(dataset: Path, tables: Sequence[str] | None = None) -> None:
    """Mark a folder as a dataset of this schema version. tables: those it has, where it may lack some (a release)."""
    text = {"format": "ddnn_traces dataset", "schema_version": schema.SCHEMA_VERSION}
    marker = text if tables is None else {**text, "tables": list(tables)}
    (dataset / MARKER).write_text(json.dumps(marker, indent=1) + "\n")


def read_marker(dataset: Path, name: str = "") -> tuple[str, ...]:
    """The tables of a dataset. name: for messages, if not the folder.

    Raises UsageError unless the folder is a dataset of this schema version.
    """
    name = name or str(dataset)
    if not dataset.is_dir():
        raise UsageError(f"{name}: no such dataset; check the path, or make one with 'ddnn-traces ingest'")
    try:
        text = (dataset / MARKER).read_bytes()
    except OSError as error:
        raise _no_dataset(name) from error
    return parse(text, name)


def parse(text: bytes, name: str) -> tuple[str, ...]:
    """The tables that a dataset of this marker has: a release may lack some. Raises UsageError, as read_marker()."""
    try:
        marker = json.loads(text)
        version, tables = marker["schema_version"], marker.get("tables", schema.TABLES)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_dataset(name) from error
    if version != schema.SCHEMA_VERSION:
        newer = isinstance(version, int) and version > schema.SCHEMA_VERSION
        raise UsageError(
            f"{name}: written with schema version {version}, this program reads version {schema.SCHEMA_VERSION}; "
            + ("update ddnn_traces" if newer else "ingest the captures again, into a new folder")
        )
    if isinstance(tables, str) or not isinstance(tables, Sequence) or not set(map(str, tables)) <= set(schema.TABLES):
        raise UsageError(f"{name}: {MARKER} names unknown tables; download this dataset again from its source")
    return tuple(table for table in schema.TABLES if table in tables)


def _no_dataset(name: str) -> UsageError:
    return UsageError(f"{name}: not a ddnn_traces dataset (no readable {MARKER}); make one with 'ddnn-traces ingest'")
