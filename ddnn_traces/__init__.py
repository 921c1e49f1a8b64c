"""ddnn_traces: from packet captures of distributed training to flow tables, SQL, regression and reports.

In pipeline order: `ingest` captures into a dataset, `open` it, ask with `Dataset.query` and `Dataset.sql`, fit with
`regress`, `report` it. Frames are polars frames.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddnn_traces.dataset import Dataset
    from ddnn_traces.regression import Regression

__version__ = "0.1.0"
__all__ = ["ingest", "open", "regress", "write_report"]


def ingest(sources: str | Path | list[str | Path], out: str | Path, **options: Any) -> Dataset:
    """Read captures and logs into the dataset at `out` and open it.

    sources: files, globs, folders, folders of run folders. options: as of the command `ddnn-traces ingest`, with
    underscores (engine="pyshark", window_ms=0.1, jobs=4, filter="tcp port 5000", wait=False); see
    ingestors.pipeline.IngestOptions. Raises errors.DdnnTracesError.
    """
    from ddnn_traces.ingestors import pipeline

    several = sources if isinstance(sources, list) else [sources]
    pipeline.ingest([str(source) for source in several], Path(out), pipeline.IngestOptions(**options))
    return open(out)


def open(dataset: str | Path, runs: list[str] | None = None, read_only: bool = False) -> Dataset:
    """Open a dataset, or only some of its runs. Raises errors.UsageError where there is none.

    read_only: refuse SQL that writes (COPY ... TO, ATTACH, CREATE, ...), as `ddnn-traces sql` does.
    """
    from ddnn_traces.dataset import Dataset

    return Dataset(Path(dataset), runs, read_only)


def regress(dataset: Dataset, formula: str | None = None, **options: Any) -> Regression:
    """Fit per-step volume against the runs' attributes: equation (1) of zerwas unless `formula` says otherwise.

    options: preset ("paper", "step-time", "throughput", "duration-on-loss"), rows ("runs", "steps"), batch
    ("indicator", "number"), size ("exchanged", "nominal"), errors ("classic", "hc3", "cluster"); see
    regression.presets.regress.
    """
    from ddnn_traces.regression import presets

    return presets.regress(dataset, formula, **options)


def write_report(dataset: Dataset, out: str | Path) -> Path:
    """Write the dataset's report, one self-contained HTML file, and its charts beside it; return its path."""
    from ddnn_traces.report import page

    return page.write(dataset, Path(out))
