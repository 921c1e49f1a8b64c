"""Generated runs: by the laws of the collectives, or from a model fitted to measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ddnn_traces.cli.arguments import (
    CommandByDefault,
    RowsOutput,
    complete_runs,
    dataset_argument,
    open_dataset,
    prints_rows,
    runs_option,
)
from ddnn_traces.cli.lines import say
from ddnn_traces.traffic.collectives import SHAPES

_VARIANTS = "; ".join(f"{name}: {', '.join(shapes)}" for name, shapes in SHAPES.items() if len(shapes) > 1)


@click.group(
    cls=CommandByDefault,
    default="scenarios",
    short_help="Generate runs by a law or by a model fitted to measured runs",
)
def generate() -> None:
    """Generate runs that were not measured: a paper's scenarios, or traffic of a model fitted to measured runs.

    `ddnn-traces generate` with options is `generate scenarios`.
    """


@generate.command(short_help="Generate a paper's runs by the laws of the collectives")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Dataset folder: new, or to add runs to.")
@click.option(
    "--scenarios",
    default="zerwas-75",
    help="zerwas-75: models, frameworks, backends, optimizers, batches, topologies and loss of zerwas, without its "
    "parameter server. zerwas-79: with it.",
)
@click.option("--steps", type=int, default=20, help="Training steps of a run.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="The same seed, the same bytes.")
@click.option(
    "--noise",
    type=float,
    default=0.01,
    help="Share of control traffic, and of retransmissions: each run draws between 0 and twice this.",
)
def scenarios(out: Path, **options: Any) -> None:
    """Generate the runs of a paper's scenarios: synthetic, by the laws of the collectives with noise, not measured.

    The tables are those of ingest, so every query, regress and report work on them; runs.source is synthetic, and run
    names begin with synthetic-. docs/scenarios.md states which parts are the paper's and which are assumptions.
    """
    from ddnn_traces.traffic import synthetic

    say(synthetic.summary(synthetic.generate(out, **options), out))


@generate.command(short_help="Fit a traffic model to measured runs")
@dataset_argument
@runs_option
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="File to write, JSON.")
def fit(dataset: str | Path, runs: tuple[str, ...], out: Path) -> None:
    """Fit a traffic model to the runs of a dataset that have steps, and write it as JSON.

    It holds the on/off structure of a step: silences of the workers and their correlations, durations of transfers,
    packets, retransmissions, start-up and control messages. docs/traffic_model.md explains how each is found.
    """
    from ddnn_traces.traffic import model

    with open_dataset(dataset) as opened:
        document = model.fit(opened, runs or None)
    model.write(document, out)
    say(f"wrote {out}: {model.summary(document)}")


@generate.command(short_help="Generate the traffic of a job from a traffic model")
@click.argument("document", metavar="MODEL.json", type=click.Path(path_type=Path))
@click.option("--workers", required=True, type=click.IntRange(min=1), help="Number of workers.")
@click.option(
    "--model-bytes",
    required=True,
    type=click.IntRange(min=1),
    help="Bytes that a step exchanges: number of parameters times bytes of each.",
)
@click.option("--topology", required=True, help=f"{', '.join(SHAPES)}; or unknown, for the measured pairs.")
@click.option(
    "--shape",
    default="",
    show_default=False,
    help=f"Variant; default: the first. {_VARIANTS}. docs/traffic_model.md explains them.",
)
@click.option("--servers", type=click.IntRange(min=1), help="Parameter servers of sharded_parameter_server.")
@click.option("--group-size", type=click.IntRange(min=1), help="Hosts a group (binary_tree_star, hierarchical_ring).")
@click.option("--steps", required=True, type=click.IntRange(min=1), help="Training steps.")
@click.option(
    "--compute-ms", type=click.FloatRange(min=0), help="Median silence of a worker in a step, ms. Default: the model's."
)
@click.option("--seed", default=0, type=click.IntRange(min=0), help="The same seed, the same bytes.")
@click.option("--run-id", default="synthetic", help="Name of the run.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Where to write.")
@click.option(
    "--to",
    "target",
    default="dataset",
    type=click.Choice(["dataset", "pcap", "flows"]),
    help="dataset: tables, new or next to other runs. pcap: a capture a host, logs and run.toml in OUT/RUN_ID. "
    "flows: CSV, a row a transfer.",
)
def traffic(document: Path, out: Path, target: str, **job: Any) -> None:
    """Generate the traffic of a job from a traffic model; it is marked as synthetic."""
    from ddnn_traces.traffic import model

    written = model.generate(model.read(document), model.Job(**job), out, target, say)
    say(f"wrote {written}")


@generate.command(short_help="Compare generated with held-out runs")
@dataset_argument
@click.option(
    "--holdout",
    multiple=True,
    shell_complete=complete_runs,
    help="Run to score on and not to fit to; may be repeated. Default: each by turns.",
)
@click.option(
    "--model",
    "document",
    type=click.Path(path_type=Path),
    help="Score this model; default: one fitted to the other runs.",
)
@click.option("--gap-ms", default=5.0, help="Silence that separates two bursts, ms.")
@click.option("--seed", default=0, type=click.IntRange(min=0))
@prints_rows()
def score(
    dataset: str | Path,
    holdout: tuple[str, ...],
    document: Path | None,
    gap_ms: float,
    seed: int,
    output: RowsOutput,
) -> None:
    """Compare generated with held-out runs: volume a pair, bursts, gaps, autocorrelation.

    Baselines are scored, too: constant rate and Poisson arrivals with the same volume, and steps of the run of the
    nearest size, drawn again. After the table comes the number of runs on which each is nearest.
    """
    from ddnn_traces.traffic import model

    with open_dataset(dataset) as opened:
        given = model.read(document) if document else None
        scores = model.score(opened, holdout or None, given, gap_ms, seed)
    output.emit(scores.to_arrow())
    if output.format == "table" and output.out is None:
        output.emit(model.wins(scores).to_arrow())
