"""ddnn_traces: from packet captures of distributed training to flow tables, SQL, regression and reports.

In pipeline order: `ingest` captures into a dataset, `open` it, ask with `Dataset.query` and `Dataset.sql`, fit with
`regress`, `predict` from it, `report` it, `publish` it. Frames are polars frames.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ddnn_traces import errors as errors
from ddnn_traces import jobs as _jobs
from ddnn_traces.version import __version__ as __version__

if TYPE_CHECKING:
    import polars as pl

    from ddnn_traces.export.packets import Cut
    from ddnn_traces.query.dataset import Dataset
    from ddnn_traces.regression import Regression
    from ddnn_traces.regression.results import Prediction
    from ddnn_traces.release.publish import Published
    from ddnn_traces.release.push import Outcome
    from ddnn_traces.traffic import model as traffic_model

__all__ = [
    "charts",
    "diagnose",
    "ingest",
    "open",
    "predict",
    "publish",
    "push",
    "read_pcap",
    "read_pcap_chunks",
    "regress",
    "sample",
    "simulator",
    "sweep_queries",
    "synthetic",
    "traffic_model",
    "verify",
    "write_packets",
    "write_report",
]

_jobs.end_waits_by_interrupts()


#: Public modules by where they are.
_MODULES = {
    "charts": "report.all_charts", "simulator": "traffic.simulator.public", "sweep_queries": "query.sweep_queries",
    "synthetic": "traffic.synthetic", "traffic_model": "traffic.model",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """A public module, imported when it is first used: `ddnn_traces.charts`."""
    if name in _MODULES:
        return importlib.import_module(f"ddnn_traces.{_MODULES[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What users call, not what this module imports."""
    return [*__all__, "errors", "__version__"]


#: An option of the command line in a message that does not quote a command.
_OPTION = re.compile(r"ddnn-traces [^;,']*|--([a-z][a-z-]+)")
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Options = TypeVar("_Options")


def _with_parameters(text: str) -> str:
    return _OPTION.sub(lambda found: f"`{found[1].replace('-', '_')}`" if found[1] else found[0], text)


def _python(function: _Function) -> _Function:
    """The function, whose errors name its parameters (clock_offset) and not the command's options (--clock-offset).

    A path in the place of an open dataset raises UsageError.
    """
    takes_open = function.__annotations__.get("dataset") == "Dataset"

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("dataset", args[0] if args else None)
        if takes_open and isinstance(given, str | Path):
            raise errors.UsageError(
                f"dataset: {function.__name__}() takes an open one: ddnn_traces.open({str(given)!r})"
            )
        try:
            return function(*args, **kwargs)
        except errors.DdnnTracesError as error:
            error.for_python = _with_parameters
            raise

    return call  # type: ignore[return-value]


@_python
def ingest(
    sources: str | Path | Sequence[str | Path], out: str | Path, *, engine: str = "numba", window_ms: float = 1.0,
    silence_us: float = 200.0, hash: str = "blake3", jobs: int | None = None, force: bool = False, wait: bool = True,
    tunnels: str = "inner", packets: bool = False, filter: str | None = None, clock_offset: str | float = "offer",
    run_id: str | None = None, layout: str | None = None, scheduler: str | None = None,
    events: Sequence[str | Path] = (),
) -> Dataset:  # fmt: skip
    """Read captures and logs into the dataset at `out` and open it.

    sources: files, globs, folders, folders of run folders. The options are those of the command `ddnn-traces ingest`;
    ingestors.options.IngestOptions explains them. Raises errors.DdnnTracesError.

    Example:

        dataset = ddnn_traces.ingest("captures", "dataset", filter="tcp")
        dataset.flows.filter("payload_bytes > 1e6").pl()
    """
    from ddnn_traces.ingestors import pipeline
    from ddnn_traces.ingestors.options import IngestOptions

    options = IngestOptions(
        engine=engine, window_ms=window_ms, silence_us=silence_us, hash=hash, jobs=jobs, force=force, wait=wait,
        tunnels=tunnels, packets=packets, filter=filter, clock_offset=clock_offset, run_id=run_id, layout=layout,
        scheduler=scheduler, events=tuple(str(file) for file in events),
    )  # fmt: skip
    several = [sources] if isinstance(sources, str | Path) else sources
    pipeline.ingest([str(source) for source in several], Path(out), options)
    return open(out)


@_python
def read_pcap(
    path: str | Path, filter: str | None = None, *, table: str = "flows", log: str | Path | None = None,
    window_ms: float = 1.0,
) -> pl.DataFrame:  # fmt: skip
    """One capture file as a frame with the columns of a table (docs/tables.md); no dataset is left behind.

    path: pcap or pcapng, also compressed; of a damaged one, what could be read, with a Python warning. filter:
    capture-filter expression for flows. table: flows, flow_windows (bytes of a flow in each window of `window_ms`),
    messages, packets, encapsulations, flow_opcodes, or step_flows (bytes of a flow in each training step of `log`).
    Raises errors.CaptureError for what is no capture, other errors.DdnnTracesError.

    Example:

        flows = ddnn_traces.read_pcap("captures/worker-1-tcpdump.pcap.gz", "tcp")
        steps = ddnn_traces.read_pcap("captures/worker-1-tcpdump.pcap.gz", table="step_flows")
    """
    from ddnn_traces.ingestors import one_capture

    with one_capture.opened(path, table, filter, log, window_ms) as rows:
        frame: pl.DataFrame = rows.pl()
        return frame


def read_pcap_chunks(
    path: str | Path, filter: str | None = None, *, table: str = "packets", log: str | Path | None = None,
    window_ms: float = 1.0, rows: int = 1_000_000,
) -> Iterator[pl.DataFrame]:  # fmt: skip
    """As read_pcap, in frames of at most `rows` rows, so that a capture of any size fits into memory.

    The capture is read as a whole before the first frame; its tables lie in a temporary folder (TMPDIR) meanwhile.

    Example:

        for packets in ddnn_traces.read_pcap_chunks("captures/worker-1-tcpdump.pcap.gz", rows=1000):
            print(packets["wire_bytes"].sum())
    """
    import polars as pl

    from ddnn_traces.ingestors import one_capture

    with one_capture.opened(path, table, filter, log, window_ms) as found:
        for batch in found.to_arrow_reader(rows):
            yield pl.DataFrame(batch)


@_python
def open(
    dataset: str | Path,
    runs: str | Sequence[str] | None = None,
    read_only: bool = False,
    cache: str | Path | None = None,
    infer_steps: bool = False,
) -> Dataset:
    """Open a dataset, or only some of its runs. Raises errors.UsageError where there is none.

    dataset: a folder, or the URL of an object store (s3, gs, az); a release also as a zip file or at a URL (https, s3,
    hf and the other schemes of fsspec).
    runs: a name or a pattern such as tf-*, or several of them.

    read_only: refuse SQL that writes (COPY ... TO, ATTACH, CREATE, ...), as `ddnn-traces sql` does.

    cache: a folder that keeps the files of a dataset on a store, so that each is fetched once.

    infer_steps: where a run has no training log, take the steps that its traffic shows, if they are sure; `step_notes`
    of the dataset says of which runs they are, and why others have none.

    Example:

        with ddnn_traces.open("dataset") as dataset:
            dataset.query("topology")
            dataset.sql("SELECT run_id, sum(wire_bytes) AS wire_bytes FROM flows GROUP BY ALL")
            dataset.plot("traffic_matrix")
    """
    from ddnn_traces.query.dataset import Dataset

    return Dataset(dataset, runs, read_only, cache, infer_steps=infer_steps)


@_python
def sample(name: str = "sample") -> Path:
    """The folder of captures or tables that is shipped with the package; from a wheel it is unpacked into the cache.

    name: sample, 48 runs in a balanced design; traces, 20 runs of more frameworks and conditions; sharing, the tables
    of a sweep on ns-3 (docs/sharing.md). Raises errors.UsageError for another name.

    Example:

        dataset = ddnn_traces.ingest(ddnn_traces.sample("traces"), "traces")
    """
    from ddnn_traces.store import samples

    return samples.sample(name)


@_python
def diagnose(dataset: Dataset) -> pl.DataFrame:
    """What makes the steps of each training job slow, and of each run why nothing can be told: a row for each sentence.

    Columns as of the query verdicts, whose rows it has. Other rows have no rank, and their kind says what the sentence
    is of: late_together, long_steps (other ways to lose time), doubtful_steps, clocks_differ (of a run),
    in_no_collective (bytes of a job), two_hosts, sends_alone, nothing (no such finding), several_jobs, job_filter (the
    --filter of ingest for a job), interrupted (a job that goes on as another one), and where no job is seen
    one_host_captured, hosts_without_capture, unknown_payload, one_way_hosts, steps_without_job, no_job; cut_headers (of
    a run with a job, too). Each run has a row; times in ms. docs/delays.md has the method. Raises
    errors.DdnnTracesError.

    Example:

        slow = ddnn_traces.diagnose(ddnn_traces.open("sample")).drop_nulls("rank")
        print(slow["run_id", "sentence"])
    """
    from ddnn_traces.query import diagnosis

    return diagnosis.diagnose(dataset).rows()


@_python
def regress(
    dataset: Dataset, formula: str | None = None, *, preset: str | None = None, rows: str = "runs",
    unit: str = "cell", batch: str = "indicator", size: str = "exchanged", errors: str | None = None,
    response: str = "cable", include: Sequence[str] = (),
) -> Regression:  # fmt: skip
    """Fit per-step volume against the runs' attributes, by the default formula or a given one.

    preset: paper, step-time, throughput or duration-on-loss. rows: runs or steps. unit: cell (repeats are averaged) or
    run (their errors are clustered). batch: indicator or number. size: exchanged or nominal. errors: classic, scaled,
    hc3 or cluster. response: cable, wire or payload. include: fault, unfinished, loss: runs that fits of a volume leave
    out by default. See regression.fitting.regress. Raises errors.RegressionError.

    Example:

        print(ddnn_traces.regress(ddnn_traces.open("sample")))
    """
    from ddnn_traces.regression import fitting

    return fitting.regress(
        dataset, formula, preset=preset, rows=rows, unit=unit, batch=batch, size=size, errors=errors,
        response=response, include=include,
    )  # fmt: skip


@_python
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

    Example:

        job = {"model_bytes": 3e6, "framework_backend": "torch-gloo", "batch_size": 32, "topology": "ring"}
        job["workers"] = 4
        ddnn_traces.predict(ddnn_traces.open("sample"), job, steps=1000).predicted
    """
    from ddnn_traces.regression.predict import predict as predict_job
    from ddnn_traces.regression.results import Job

    given = {name: value for name, value in job.items() if value is not None}
    if {"topology", "workers"} <= given.keys() and "law_factor" not in given:
        law = dataset.query(
            "declared_law",
            word=str(given["topology"]),
            worker_hosts=int(given["workers"]),
            worker_ranks=int(given.get("ranks_per_host", 1)),
        )
        given |= law.select("law_factor").to_dicts()[0] if law.height else {}
    described = Job(given, steps, step_ms)
    volumes, times = dataset.query("run_step_volume"), dataset.query("run_step_time")
    predicted = predict_job(volumes, times, described, formula, extrapolate)
    return dataclasses.replace(predicted, notes=(*dataset.step_notes, *predicted.notes))


def _given(function: str, kind: type[_Options], options: dict[str, Any]) -> _Options:
    """Options by name. Raises TypeError, as Python does for an unknown argument, with the nearest ones."""
    import inspect

    from ddnn_traces.text import nearest

    known = list(inspect.signature(kind).parameters)
    for name in options:
        if name not in known:
            raise TypeError(f"{function}() has no argument {name}; {nearest(name, known, 3)}")
    return kind(**options)


@_python
def publish(dataset: str | Path, out: str | Path, **options: Any) -> Published:
    """Publish a dataset as the release `out`; return where it is, its facts, its key, and whether it is new.

    options: as of the command `ddnn-traces publish`, with underscores and several as lists (title="...",
    licence="CC-BY-4.0", creators=["Ada Lovelace"], tables=["flows"], allow_flagged=["run"], captures=["folder"]); see
    releases.publish.PublishOptions. Raises errors.DdnnTracesError.

    Example:

        ddnn_traces.publish("dataset", "release", title="Rings", licence="CC-BY-4.0", creators=["Ada Lovelace"])
    """
    from ddnn_traces.release import publish as releases

    return releases.publish(dataset, Path(out), _given("publish", releases.PublishOptions, options))


@_python
def write_report(dataset: Dataset, out: str | Path, charts: str | Path | None = None) -> Path:
    """Write the dataset's report, one self-contained HTML file; return its path.

    charts: a folder for its charts as SVG and PNG files. Raises errors.UsageError where `out` cannot be a file.

    Example:

        ddnn_traces.write_report(ddnn_traces.open("dataset"), "report.html")
    """
    from ddnn_traces.report import page

    return page.write(dataset, Path(out), None if charts is None else Path(charts))


@_python
def write_packets(
    dataset: str | Path, out: str | Path, *, run: str | None = None, flow: int | Sequence[int] = (),
    pair: tuple[str, str] | None = None, step: int | None = None, captures: str | Path | Sequence[str | Path] = (),
    infer_steps: bool = False,
) -> Cut:  # fmt: skip
    """Write the packets of a flow, a pair of hosts or a step from the original captures; return what was written.

    out: FILE.pcap (nanoseconds) or FILE.pcapng. run: name; None: the only one. flow: one flow_id, or several. pair: two
    hosts by address or label, both directions. step: number of a training step. Of several of these, what they have in
    common. captures: files and folders where the captures are now; empty: where they were ingested from. infer_steps:
    as of open(). The result has the records, wire_bytes and captured_bytes written, those that the tables have, and a
    display filter of Wireshark.

    Raises errors.UsageError for a wrong selection, and where captures are missing; errors.CaptureError where one has
    changed since it was ingested.

    Example:

        ddnn_traces.write_packets("dataset", "step-3.pcap", step=3)
    """
    from ddnn_traces.export import packets
    from ddnn_traces.query.dataset import Dataset

    selection = packets.Selection([flow] if isinstance(flow, int) else flow, pair or (), step)
    sources = [captures] if isinstance(captures, str | Path) else captures
    with Dataset(dataset, None if run is None else [run], infer_steps=infer_steps) as opened:
        return packets.write(opened, Path(out), selection, [str(source) for source in sources])


@_python
def push(release: str | Path, to: str, **options: Any) -> Outcome:
    """Upload a release to a folder, an S3-compatible store, the Hugging Face Hub or Zenodo; only missing files are
    sent.

    to: as --to of the command `ddnn-traces push`. options: as of that command, with underscores (endpoint_url, record,
    publish_deposit, private). Raises errors.PushError.

    Example:

        ddnn_traces.push("release", "pushed")
    """
    from ddnn_traces.release import push as pushing

    return pushing.push(Path(release), to, _given("push", pushing.PushOptions, options))


@_python
def verify(
    release: str | Path, jobs: int | None = None, say: Callable[[str], None] = lambda _: None, fast: bool = False
) -> pl.DataFrame:
    """Verify a release (a folder, bag or zip file): a row for each file or table examined, with check, subject, status,
    detail.

    status: passed, failed, flagged (the release itself states that the run fails) or not checked. say: called with the
    name of each check when it begins. fast: ingest the captures of some runs only.

    Needs the extra publish. Raises errors.UsageError where there is no release.

    Example:

        ddnn_traces.verify("release").filter(status="failed")
    """
    import polars as pl

    from ddnn_traces.release.verify import running

    found = running.verify(release, jobs, say, fast, maker="ddnn_traces.release.descriptions:texts")
    rows = [dataclasses.asdict(result) for result in found]
    return pl.DataFrame(rows, schema=dict.fromkeys(("check", "subject", "status", "detail"), pl.String))
