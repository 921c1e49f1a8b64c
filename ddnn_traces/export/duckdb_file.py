"""A dataset as a database file of its views, traces.duckdb: after it was moved or copied, or for newer queries."""

from __future__ import annotations

from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.query import views
from ddnn_traces.store import layout
from ddnn_traces.store.layout import read_marker
from ddnn_traces.store.places import is_url


def write(where: str | Path, out: Path | None = None) -> Path:
    """Write the database file of a dataset's views to `out`, by default its own traces.duckdb; return the path.

    Raises UsageError where there is no dataset, or the file cannot be written.
    """
    if is_url(where):
        raise UsageError(f"{where}: a database file needs a dataset on this machine; download the release first")
    dataset = Path(where)
    read_marker(dataset)
    file = out or dataset / views.FILE
    layout.refuse_inside(file.parent)
    try:
        views.replace_views(dataset, file, file.parent)
    except OSError as error:
        raise UsageError(f"{file}: cannot be written ({error.strerror}); give another one with --out") from error
    return file


def export(where: str | Path, out: Path | None) -> tuple[Path, list[str]]:
    """As write(), for targets.Target."""
    return write(where, out), []
