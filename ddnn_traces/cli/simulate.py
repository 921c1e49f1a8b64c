"""Simulated training: one job, several that share links, sweeps; profiles of models, which it starts from."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddnn_traces.cli import lines
from ddnn_traces.cli.arguments import (
    CommandByDefault,
    DatasetPath,
    RowsOutput,
    dataset_argument,
    infer_steps_option,
    key_values,
    open_dataset,
    prints_rows,
)
from ddnn_traces.cli.lines import say
from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.collectives import SHAPES

if TYPE_CHECKING:
    from ddnn_traces.traffic.simulator.specification import Keys


@click.group(
    cls=CommandByDefault,
    default="run",
    suffix=".toml",
    short_help="Simulate training in seconds: layers, collectives, links",
)
def simulate() -> None:
    """Simulate data-parallel training: layers, tensor fusion, collectives on links (docs/simulator.md).

    `ddnn-traces simulate` with options, or with a TOML file, is `simulate run`.
    """


#: Options of a job: keys that people change between two runs, of ns3, too. All keys: docs/simulator.md, and --set.
JOB_OPTIONS: list[tuple[str, Any, str]] = [
    ("--profile", str, "Layers: thesis, a shipped profile (resnet50, ...), or a CSV or Parquet file. Default: thesis."),
    ("--model-bytes", int, "Bytes of all gradients. Default: 100,000,000; of another profile its own."),
    ("--compute-ms", float, "Forward and backward pass, ms. Default: 900; of another profile its own."),
    ("--workers", int, "Number of workers. Default: 2."),
    ("--iterations", int, "Iterations. Default: 2."),
    ("--bandwidth-mbit", float, "Rate of each host's link, Mbit/s. Default: 10,000."),
]  # fmt: skip
_OPTIONS: list[tuple[str, Any, str]] = [
    ("--run-id", str, "Name of the run. Default: simulation."),
    *JOB_OPTIONS,
    ("--delay-ms", float, "Propagation delay, in each round of a collective, ms. Default: 0.01."),
    ("--topology", str, f"Collective: {', '.join(SHAPES)}. Default: ring."),
    ("--queue", click.Choice(["fifo", "priority"]), "Which buffer that is ready goes first. Default: fifo."),
    ("--barrier/--no-barrier", bool, "Whether the forward pass waits for all gradients. Default: it does."),
    ("--fusion-bytes", int, "Tensor fusion: bytes of a buffer. Default: 6,280,000, or the largest tensor."),
]


def job_options(
    names: Sequence[tuple[str, Any, str]], page: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorator that gives a command these options of a job (name, type, help), and --set for its other keys.

    page: where the keys are described.
    """

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        said = f"Any key of JOB.toml, as --set update_ms=5; may be repeated. {page} has all keys."
        command = click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=said)(command)
        for name, kind, text in reversed(names):
            options: dict[str, Any] = {"help": text, "default": None, "show_default": False}
            command = click.option(name, **options, **({} if kind is bool else {"type": kind}))(command)
        return command

    return declare


def sweep_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator that gives a command the options of a sweep: out, jobs and dataset."""
    folder = click.Path(path_type=Path, file_okay=False)
    for option in (
        click.option("--dataset/--no-dataset", default=False, help="Write each cell as a run, too, into OUT/dataset."),
        click.option("--jobs", type=click.IntRange(min=1), help="Processes. Default: one a CPU."),
        click.option("--out", required=True, type=folder, help="Folder of the cells and charts."),
    ):
        command = option(command)
    return command


def given_keys(options: Mapping[str, Any], settings: tuple[str, ...], keys: Keys) -> dict[str, Any]:
    """The keys of a job that the command line gives. Raises UsageError for one that is given twice."""
    from ddnn_traces.traffic.simulator import specification

    given = {name: value for name, value in options.items() if value is not None}
    return given | specification.parsed(key_values(settings, "--set", given), keys)


@simulate.command(short_help="Simulate a job, or several that share links")
@click.argument("specification", metavar="[JOB.toml]", required=False, type=click.Path(path_type=Path))
@job_options(_OPTIONS, "docs/simulator.md")
@click.option("--out", type=click.Path(path_type=Path), help="Dataset to write the run into: new, or next to others.")
@click.option(
    "--layer-events/--no-layer-events",
    default=None,
    show_default=False,
    help="Events of each layer's passes, not only of the model's. Default: up to 2 million.",
)
@click.option(
    "--from",
    "source",
    type=(click.Choice(["chakra"]), str),
    metavar="chakra PATH",
    help="Replay a Chakra execution trace: a folder with NAME.RANK.et and comm_groups.json, or FOLDER/NAME.",
)
@click.option("--like", metavar="RUN", help="Replay this measured run of --dataset, and change its network.")
@click.option("--dataset", type=DatasetPath(), help="Dataset of the run; its other runs calibrate the replay.")
@click.option("--link-mbit", type=float, help="With --like: rate of the links, where runs do not declare it, Mbit/s.")
@click.option("--bandwidth-factor", type=float, help="With --like: times the measured run's rate.")
@click.option("--more-delay-ms", type=float, help="With --like: ms beside the measured run's delay.")
@click.option("--model", metavar="NAME", help="With --like: the model of other runs of the dataset.")
@click.option("--batch-size", type=int, help="With --like: inputs of a worker and step.")
@infer_steps_option
@click.option("--cores", type=int, help="With --like: cores that all workers share, and take turns on.")
@prints_rows(out=False)
def run(
    specification: Path | None,
    out: Path | None,
    layer_events: bool | None,
    source: tuple[str, str] | None,
    like: str | None,
    dataset: str | Path | None,
    settings: tuple[str, ...],
    link_mbit: float | None,
    bandwidth_factor: float | None,
    more_delay_ms: float | None,
    model: str | None,
    batch_size: int | None,
    infer_steps: bool,
    cores: int | None,
    output: RowsOutput,
    **options: Any,
) -> None:
    """Simulate a job, or several that share links ([[jobs]] of a TOML file), and print the times of an iteration.

    With --out the run is written as a dataset with the tables of a capture; runs.source is simulation. The defaults are
    those of Gao 2020, table 4.1. docs/simulator.md has the keys of a file; options and --set win over it.

    With --from the computations, transfers and collectives of a recorded trace are simulated, each when what it waits
    for has ended.

    With --like a measured run is replayed, its replay compared with the measured time of a step, and the time on
    another network predicted: --bandwidth-mbit or --bandwidth-factor, --delay-ms or --more-delay-ms, --workers,
    --topology; or of another job: --model or --model-bytes, --batch-size, --compute-ms.
    """
    from ddnn_traces.traffic import simulator

    given = given_keys(options, settings, simulator.specification.KEYS)
    if source:
        given["pattern"] = {"name": source[0], "trace": source[1]}
    changes = {
        "bandwidth_factor": bandwidth_factor, "more_delay_ms": more_delay_ms,
        "model": model, "batch_size": batch_size, "cores": cores,
    }  # fmt: skip
    if like is not None or dataset is not None:
        if like is None or dataset is None:
            raise UsageError("--like and --dataset go together: the run, and the dataset that has it")
        if specification or out or layer_events is not None:
            raise UsageError("--like: takes no JOB.toml, --out and --layer-events; it prints the times of a step")
        with open_dataset(dataset, infer_steps=infer_steps) as opened:
            rows = simulator.what_if_score.of_run(opened, like, given | changes, link_mbit)
        output.emit(rows.to_arrow())
        if reason := simulator.what_if_score.why_no_interval(rows, given | changes):
            say(reason)
        if reason := simulator.what_if_score.unknown_computation(rows):
            say(reason)
        return
    given_for_like = {"link_mbit": link_mbit, "infer_steps": infer_steps or None} | changes
    if wrong := [name for name, value in given_for_like.items() if value is not None]:
        raise UsageError(f"--{wrong[0].replace('_', '-')}: is for --like RUN")
    if layer_events is not None and out is None:
        raise UsageError("--layer-events: is for --out DATASET, which has the events")
    rows = simulator.run(specification, given, out, layer_events, lambda line: say(line))
    output.emit(rows.to_arrow())


@simulate.command(short_help="Compute the utilization of a link by a ring and others")
@click.option("--model-bytes", type=int, default=100_000_000, help="Bytes of all gradients.")
@click.option("--workers", type=int, default=8)
@click.option("--bandwidth-mbit", type=float, default=10_000.0, help="Rate of each link, Mbit/s.")
@click.option("--compute-to-network", type=float, multiple=True, help="Ratio of equation 5.1; default: 16, 8, 4, 2.")
@click.option("--flow-rate", type=float, multiple=True, help="Background flows a second; default: 23, 46, 92, 184.")
@click.option("--thesis", is_flag=True, help="Tables 5.3 and 5.4 with the printed values and the differences to them.")
@prints_rows()
def utilization(
    model_bytes: int,
    workers: int,
    bandwidth_mbit: float,
    compute_to_network: tuple[float, ...],
    flow_rate: tuple[float, ...],
    thesis: bool,
    output: RowsOutput,
) -> None:
    """Compute the utilization of a link by a ring all-reduce and background flows: gao equations 5.1 to 5.5."""
    from ddnn_traces.traffic.simulator import closed_forms as equations

    ring = equations.Ring(model_bytes, workers, bandwidth_mbit)
    if thesis:
        if compute_to_network or flow_rate or ring != equations.Ring():
            raise UsageError("--thesis: takes no other option; its tables are of the defaults")
        output.emit(equations.beside_thesis().to_arrow())
        return
    ratios, rates = compute_to_network or equations.COMPUTE_TO_NETWORK, flow_rate or equations.FLOW_RATES
    output.emit(equations.utilization(ring, ratios, rates).to_arrow())


@simulate.command(short_help="Predict measured network conditions, with the errors")
@dataset_argument
@prints_rows()
def score(dataset: str | Path, output: RowsOutput) -> None:
    """Predict each network condition of a dataset by the law of --like, fitted to other jobs; a row a condition.

    A job is framework, backend, topology, model, batch size and workers. Its conditions are predicted from its other
    conditions without loss, by constants and an exponent that come from other jobs. Beside each error are those of the
    job's nearest run, and of a line in delay and 1/rate.
    """
    from ddnn_traces.traffic import simulator

    with open_dataset(dataset) as opened:
        rows, summary = simulator.what_if_score.scored(opened)
    output.emit(rows.to_arrow())
    for line in summary:
        say(line)


@simulate.command(short_help="Compute samples/s by rate, delay and loss")
@click.argument("specification", metavar="JOB.toml", type=click.Path(path_type=Path))
@click.option(
    "--dataset", type=DatasetPath(), help="Dataset with a sweep: measured samples/s beside the computed ones."
)
@prints_rows()
def throughput(specification: Path, dataset: str | Path | None, output: RowsOutput) -> None:
    """Compute samples/s by rate, delay and loss in closed form: window, slow start and Mathis' law of TCP.

    Keys of the file: model_bytes, compute_ms, batch_size, workers, topology, shape, window_bytes, slow_start, and lists
    bandwidth_mbit, delay_ms, loss_pct. docs/simulator.md says what the law leaves out.
    """
    from ddnn_traces.traffic.simulator import closed_forms
    from ddnn_traces.traffic.simulator import specification as files

    with contextlib.nullcontext() if dataset is None else open_dataset(dataset) as opened:
        rows = closed_forms.throughput(files.read_file(specification), opened)
    output.emit(rows.to_arrow())


@simulate.command(short_help="Simulate each combination of settings, in seconds")
@click.argument("specification", metavar="SWEEP.toml", type=click.Path(path_type=Path))
@sweep_options
@prints_rows(out=False)
def sweep(specification: Path, out: Path, jobs: int | None, dataset: bool, output: RowsOutput) -> None:
    """Simulate every combination of the values that a TOML file has lists of: OUT/cells.parquet and charts.

    Charts have the axis of numbers with most values as x: iteration_time.svg, and of a parameter server what is left to
    send in each phase, remaining_time.svg. An interrupted sweep goes on with the same command. The keys are those of
    `simulate run`.
    """
    from ddnn_traces.report.charts import gao
    from ddnn_traces.traffic.simulator import sweep as sweeps

    cells = sweeps.run(specification, out, jobs, dataset, lines.messages("cells"))
    for chart in gao.write_sweep(out):
        say(f"wrote {chart}")
    output.emit(cells.to_arrow())


@simulate.command(short_help="Draw the computation and gradients of a profile's layers")
@click.argument("profile_name", metavar="PROFILE")
@job_options([], "docs/simulator.md")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the chart.")
@prints_rows(out=False)
def layers(profile_name: str, settings: tuple[str, ...], out: Path, output: RowsOutput) -> None:
    """Draw the times and gradients of a profile's layers, and the stages of an iteration: OUT/profile.svg.

    PROFILE is thesis, a shipped profile (resnet50, ...), or a file of `ddnn-traces profile`. --set changes it, as
    compute_ms=900 or loading_ms=90. The figures are those of Gao 2020, section 3.6.
    """
    from ddnn_traces.query import sweep_queries
    from ddnn_traces.report.charts import gao
    from ddnn_traces.traffic.simulator import layers as profiles
    from ddnn_traces.traffic.simulator import specification

    given = given_keys({"profile": profile_name}, settings, specification.PROFILE_KEYS)
    found = specification.profile_of(given)
    out.mkdir(parents=True, exist_ok=True)
    profiles.write(found, out / f"{sweep_queries.PROFILE}.parquet")
    say(f"wrote {gao.write_profile(out)}")
    output.emit(sweep_queries.run(out, "layer_computation").to_arrow())


@click.command(short_help="Measure the layers of a PyTorch model, for simulate and testbed")
@click.option("--model", required=True, metavar="NAME", help="A model of torchvision (below), or MODULE:FUNCTION.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="CSV to write: a row for each layer."
)
@click.option("--batch-size", type=click.IntRange(min=1), default=4, help="Inputs of an iteration.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="cpu: one thread.")
@click.option("--repeat", type=click.IntRange(min=1), default=5, help="Iterations that are measured, after two others.")
@click.option("--input-shape", metavar="SIZES", help="Of one input. Default: 3,224,224, of inception_v3 3,299,299.")
@click.option("--data", metavar="MODULE:FUNCTION", help="Function that returns batches, whose loading is measured.")
@click.option(
    "--python", default=sys.executable, show_default="the one of ddnn-traces", metavar="PATH",
    help="A Python that has torch, and for models by name torchvision.",
)  # fmt: skip
def profile(out: Path, python: str, **wanted: str | int) -> None:
    """Measure the times of a model's layers by PyTorch's hooks, and its images a second.

    Models by name: mobilenet_v1, mobilenet_v2, resnet50, resnet101, resnet200, densenet121, densenet201, vgg16,
    vgg19, inception_v3, with random weights and inputs. MODULE:FUNCTION is a function of your own, in a module of
    this folder or on PYTHONPATH, that returns a torch.nn.Module. With --data such a function returns batches, as a
    DataLoader, and the file has the time that an iteration waits for one, as a first layer named loading.

    `compute = "sleep:OUT.csv"` in a matrix of the testbed runs with these times (docs/testbed.md).
    """
    from ddnn_traces.testbed import layer_profile
    from ddnn_traces.text import printable

    head = layer_profile.measure(layer_profile.Wanted(**wanted), out, python)  # type: ignore[arg-type]
    loading = f", of it loading {float(head['loading_ms']):,.1f} ms" if "loading_ms" in head else ""
    lines = [
        f"{head['model']} on {head['device']} ({head['versions']}), batch {head['batch']}",
        f"iteration {float(head['iteration_ms']):,.1f} ms{loading}, {head['images_per_s']} images/s, forward:backward "
        f"{head['forward:backward']}",
        f'{out}: written; next: ddnn-traces simulate --profile {out}, or compute = "sleep:{out}" in a testbed matrix',
    ]
    for line in lines:
        say(printable(line))
