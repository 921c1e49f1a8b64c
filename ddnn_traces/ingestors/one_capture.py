"""One capture file as frames: a dataset in a temporary folder, which is gone when they are read."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ddnn_traces.errors import CaptureError, UsageError
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.messages import Messages
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.text import nearest

if TYPE_CHECKING:
    import duckdb

#: What a capture file alone has rows for, and with a training log step_flows.
TABLES = ("flows", "flow_windows", "messages", "packets", "encapsulations", "flow_opcodes", "step_flows")


@contextmanager
def opened(
    path: str | Path, table: str, filter: str | None, log: str | Path | None, window_ms: float
) -> Iterator[duckdb.DuckDBPyRelation]:
    """The rows of a table, ordered by flow, without run_id. What is damaged is a Python warning.

    Raises UsageError for a table that a capture has not, CaptureError for what is no capture.
    """
    if table not in TABLES:
        raise UsageError(f"table={table!r}: {nearest(table, TABLES, len(TABLES))}")
    options = IngestOptions(filter=filter, window_ms=window_ms, packets=table == "packets", hash="none")
    messages = Messages()
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as folder:
        dataset = Path(folder) / "dataset"
        source = Path(path) if log is None else _run(Path(folder) / "run", Path(path), Path(log))
        try:
            pipeline.ingest([str(source)], dataset, options, messages)
        except CaptureError as error:  # which names the folder of the dataset, not the reason
            raise CaptureError(messages.warnings[0] if messages.warnings else str(error)) from None
        for warning in messages.warnings:
            warnings.warn(warning, stacklevel=4)
        with Dataset(dataset) as opened:
            if table == "step_flows" and not opened.row_counts()["steps"]:
                raise UsageError(f"{path}: no training steps; log= names the training log that has them")
            rows: duckdb.DuckDBPyRelation = getattr(opened, table)  # no query, which would take seconds to make
            yield rows.select("* EXCLUDE (run_id)").order("ALL")


def _run(folder: Path, capture: Path, log: Path) -> Path:
    """A run folder of a capture and a log, whatever their names are."""
    folder.mkdir()
    for name, source in ((f"capture{''.join(capture.suffixes)}", capture), ("train_history.log", log)):
        if not source.is_file():
            raise UsageError(f"{source}: no such file")
        (folder / name).symlink_to(source.resolve())
    return folder
