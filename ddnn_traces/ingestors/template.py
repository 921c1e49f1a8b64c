"""A runs.csv to fill in: a row for each run that ingest finds, next to the runs, where ingest looks for it."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddnn_traces.errors import MetadataError, UsageError
from ddnn_traces.ingestors.metadata import RunsCsv, from_name, read_metadata, runs_csv
from ddnn_traces.ingestors.sources import RunInput, find_runs
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import valid_text
from ddnn_traces.text_files import MOST_TABLE, read_bytes

#: The columns of a new file, those that queries and the regression ask for first. Any other of `runs` may be added.
COLUMNS = (
    "run_id", "framework", "backend", "model", "model_bytes", "optimizer", "batch_size", "topology", "workers",
    "epochs", "delay_ms", "loss_pct", "bandwidth_mbit",
)  # fmt: skip
_NAME = "runs.csv"


def write_template(
    sources: list[str], layout: str | None = None, run_id: str | None = None
) -> list[tuple[Path, list[str]]]:
    """Write a runs.csv next to the runs of the sources, or add the runs that it lacks: its path, and these runs.

    A cell has what the folder's name says, or run.toml in place of it. The others stay empty. Nothing that is there is
    changed. Raises UsageError, MetadataError.
    """
    rows: dict[Path, dict[str, dict[str, Any]]] = {}
    for run in find_runs(sources, layout=layout, run_id=run_id):
        if run.table_rows:
            folder, (name, *_) = run.table_rows
            safe = valid_text(name) == name  # else a line of a file would not hold it
            rows.setdefault(folder / _NAME, {})[name if safe else run.run_id] = _by_name(run)
    if not rows:
        raise UsageError("standard input has no folder for a runs.csv; name files or folders")
    return [(path, _add(path, names)) for path, names in sorted(rows.items())]


def _by_name(run: RunInput) -> dict[str, Any]:
    """What ingest takes from the name of the run's folder."""
    if run.folder is None or not (named := from_name(valid_text(run.folder.name))):
        return {}
    fields = read_metadata(run.folder, run.table_rows).fields
    return {name: fields[name] for name in named if name in fields}


def _add(path: Path, runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Add rows of these runs, with their values; return those that were not there."""
    there = read_bytes(path, MOST_TABLE, MetadataError) if path.exists() else b""
    table = runs_csv(path.parent) if there else RunsCsv(header=COLUMNS)
    new = [name for name in runs if name not in table.named]
    if not new:
        return []
    end = "\r\n" if b"\r\n" in there else "\n"
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator=end)
    if not there:
        lines.writerow(table.header)
    elif not there.endswith(b"\n"):
        text.write(end)
    rows = ({**runs[name], "run_id": name} for name in new)
    lines.writerows([row.get(column, "") for column in table.header] for row in rows)
    try:
        with whole_file(path) as file:
            file.write_bytes(there + text.getvalue().encode())
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); check its permissions") from error
    return new
