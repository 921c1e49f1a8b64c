"""dataset.json: the file that makes a folder a dataset, with the schema version it was written with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ddnn_traces import schema
from ddnn_traces.errors import UsageError

MARKER = "dataset.json"


def is_dataset(folder: Path) -> bool:
    """Whether the folder is marked as a dataset, of whatever version."""
    return (folder / MARKER).is_file()


def write_marker(dataset: Path, tables: Sequence[str] | None = None) -> None:
    """Mark a folder as a dataset of this schema version. tables: those it has, where it may lack some (a release)."""
    text = {"format": "ddnn_traces dataset", "schema_version": schema.SCHEMA_VERSION}
    told = text if tables is None else {**text, "tables": list(tables)}
    (dataset / MARKER).write_text(json.dumps(told, indent=1) + "\n")


def read_marker(dataset: Path) -> None:
    """Raise UsageError unless the folder is a dataset of this schema version."""
    if not dataset.is_dir():
        raise UsageError(f"{dataset}: no such dataset; check the path, or make one with 'ddnn-traces ingest'")
    try:
        version = json.loads((dataset / MARKER).read_text())["schema_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{dataset}: no ddnn_traces dataset (no readable {MARKER}); make one with 'ddnn-traces ingest'"
        ) from error
    if version != schema.SCHEMA_VERSION:
        newer = isinstance(version, int) and version > schema.SCHEMA_VERSION
        raise UsageError(
            f"{dataset}: written with schema version {version}, this program reads version {schema.SCHEMA_VERSION}; "
            + ("update ddnn_traces" if newer else "ingest the captures again, into a new folder")
        )
