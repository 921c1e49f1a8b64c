"""ddnn_traces: from packet captures of distributed training to flow tables, SQL, regression and reports.

In pipeline order: `ingest` captures into a dataset, `open` it, ask with `Dataset.query` and `Dataset.sql`, fit with
`regress`, `predict` from it, `report` it, `publish` it. Frames are polars frames.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces.version import __version__ as __version__

if TYPE_CHECKING:
    import polars as pl

    from ddnn_traces.query.dataset import Dataset
    from ddnn_traces.regression import Regression
    from ddnn_traces.regression.results import Prediction
    from ddnn_traces.release.publish import Published
    from ddnn_traces.release.push import Outcome
    from ddnn_traces.traffic import model as traffic_model

__all__ = ["ingest", "open", "predict", "publish", "push", "regress", "traffic_model", "verify", "write_report"]


def __getattr__(name: str) -> Any:
    """`ddnn_traces.traffic_model`: the package traffic.model, imported when it is first used."""
    if name == "traffic_model":
        from ddnn_traces.traffic import model

        return model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def ingest(sources: str | Path | list[str | Path], out: str | Path, **options: Any) -> Dataset:
    """Read captures and logs into the dataset at `out` and open it.

    sources: files, globs, folders, folders of run folders. options: as of the command `ddnn-traces ingest`, with
    underscores (engine="pyshark", window_ms=0.1, jobs=4, filter="tcp port 5000", wait=False); see
    ingestors.options.IngestOptions. Raises errors.DdnnTracesError.
    """
    from ddnn_traces.ingestors import pipeline
    from ddnn_traces.ingestors.options import IngestOptions

    several = sources if isinstance(sources, list) else [sources]
    pipeline.ingest([str(source) for source in several], Path(out), IngestOptions(**options))
    return open(out)


def open(dataset: str | Path, runs: list[str] | None = None, read_only: bool = False) -> Dataset:
    """Open a dataset, or only some of its runs. Raises errors.UsageError where there is none.

    dataset: a folder; a release also as a zip file or at a URL (https, s3, hf and the other schemes of fsspec).

    read_only: refuse SQL that writes (COPY ... TO, ATTACH, CREATE, ...), as `ddnn-traces sql` does.
    """
    from ddnn_traces.query.dataset import Dataset

    return Dataset(dataset, runs, read_only)


def regress(dataset: Dataset, formula: str | None = None, **options: Any) -> Regression:
    """Fit per-step volume against the runs' attributes, by a default formula that the data choose or a given one.

    options: preset ("paper", "step-time", "throughput", "duration-on-loss"), rows ("runs", "steps"), batch
    ("indicator", "number"), size ("exchanged", "nominal"), errors ("classic", "hc3", "cluster"), response ("cable",
    "wire", "payload"); see regression.fitting.regress.
    """
    from ddnn_traces.regression import fitting

    return fitting.regress(dataset, formula, **options)


def predict(
    dataset: Dataset,
    job: dict[str, Any],
    steps: int | None = None,
    step_ms: float | None = None,
    formula: str | None = None,
    extrapolate: bool = False,
) -> Prediction:
    """Predict what a job sends in a step, in a run of `steps` steps and in an hour, from the dataset's runs.

    job: the runs' attributes by name (model_bytes, framework_backend, batch_size, topology, workers, ...).
    step_ms: length of a step; None: by the runs' step times. Raises errors.PredictionError for a job outside the range
    of the runs, unless `extrapolate`, and for one that the runs have no data for.
    """
    from ddnn_traces.regression.predict import predict as predict_job
    from ddnn_traces.regression.results import Job

    described = Job({name: value for name, value in job.items() if value is not None}, steps, step_ms)
    volumes, times = dataset.query("run_step_volume"), dataset.query("run_step_time")
    return predict_job(volumes, times, described, formula, extrapolate)


def publish(dataset: str | Path, out: str | Path, **options: Any) -> Published:
    """Publish a dataset as the release `out`; return where it is, its facts, its key, and whether it is new.

    options: as of the command `ddnn-traces publish`, with underscores and several as lists (title="...",
    licence="CC-BY-4.0", creators=["Ada Lovelace"], tables=["flows"], allow_flagged=["run"], captures=["folder"]); see
    releases.publish.PublishOptions. Raises errors.DdnnTracesError.
    """
    from ddnn_traces.release import publish as releases

    return releases.publish(dataset, Path(out), releases.PublishOptions(**options))


def write_report(dataset: Dataset, out: str | Path) -> Path:
    """Write the dataset's report, one self-contained HTML file, and its charts next to it; return its path."""
    from ddnn_traces.report import page

    return page.write(dataset, Path(out))


def push(release: str | Path, to: str, **options: Any) -> Outcome:
    """Upload a release to a folder, an S3-compatible store, the Hugging Face Hub or Zenodo; only missing files are
    sent.

    to: as --to of the command `ddnn-traces push`. options: as of that command, with underscores (endpoint_url, record,
    publish_deposit, private). Raises errors.PushError.
    """
    from ddnn_traces.release import push as pushing

    return pushing.push(Path(release), to, pushing.PushOptions(**options))


def verify(
    release: str | Path, jobs: int | None = None, say: Callable[[str], None] = lambda _: None, fast: bool = False
) -> pl.DataFrame:
    """Verify a release (a folder, bag or zip file): a row for each file or table examined, with check, subject, status,
    detail.

    status: passed, failed, flagged (the release itself states that the run fails) or not checked. say: called with the
    name of each check when it begins. fast: ingest the captures of some runs only.

    Needs the extra publish. Raises errors.UsageError where there is no release.
    """
    import dataclasses

    import polars as pl

    from ddnn_traces.release.verify import running

    rows = [dataclasses.asdict(result) for result in running.verify(release, jobs, say, fast)]
    return pl.DataFrame(rows, schema=dict.fromkeys(("check", "subject", "status", "detail"), pl.String))
