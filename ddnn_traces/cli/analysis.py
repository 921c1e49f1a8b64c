"""Commands that evaluate a dataset: regress, predict, report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ddnn_traces.cli.shared import dataset_argument, emit_text, key_values, open_dataset, out_option


@click.command()
@dataset_argument
@click.option("--formula", help="In statsmodels' language. Default: chosen by the data.")
@click.option(
    "--preset",
    type=click.Choice(["paper", "step-time", "throughput", "duration-on-loss"]),
    help="paper: equation (1) of zerwas, with its sentences. step-time, throughput: on delay, bandwidth, loss, batch "
    "size and model. duration-on-loss: within equal settings, zerwas fig. 10.",
)
@click.option("--rows", type=click.Choice(["runs", "steps"]), default="runs", help="What a row is.")
@click.option(
    "--response",
    type=click.Choice(["cable", "wire", "payload"]),
    default="cable",
    help="Bytes of a step's volume: on the cable, as captured (wire: segmentation offload hides headers), or payload.",
)
@click.option(
    "--batch",
    type=click.Choice(["indicator", "number"]),
    default="indicator",
    help="Batch size in the default formula.",
)
@click.option(
    "--size",
    type=click.Choice(["exchanged", "nominal"]),
    default="exchanged",
    help="Model size in the default formula: model_bytes or nominal_bytes.",
)
@click.option(
    "--errors",
    type=click.Choice(["classic", "scaled", "hc3", "cluster"]),
    help="Standard errors of intervals and tests. Default: scaled where the scatter grows with the model's size, hc3 "
    "where it changes with the terms in another way, cluster (by run) where rows are steps, else classic.",
)
@click.option("--verbose", is_flag=True, help="Also joint tests, nested formulas, refits and all diagnostics.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "table", "html", "latex", "json", "csv"]),
    default="text",
    help="table is the same as text.",
)
@out_option
def regress(
    dataset: str | Path, formula: str | None, output_format: str, out: Path | None, verbose: bool, **options: Any
) -> None:  # fmt: skip
    """Fit per-step volume, or another measure, against model size, framework and backend, batch size and topology.

    docs/regression.md defines every number.
    """
    import ddnn_traces
    from ddnn_traces.regression import documents

    with open_dataset(dataset) as opened:
        regression = ddnn_traces.regress(opened, formula, **options)
    if output_format == "html":
        from ddnn_traces.report import page  # loads Altair, which takes longer than a regression

        text = page.regression_page(regression, verbose)
    else:
        text = documents.FORMATS[output_format](regression, verbose)
    emit_text(text, out)


@click.command()
@dataset_argument
@click.option("--model-bytes", type=float, help="Bytes that a step exchanges: those of the trainable parameters.")
@click.option("--framework-backend", help="As in the query run_step_volume: framework and backend, torch-gloo.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Samples a worker uses in one step.")
@click.option("--topology", help="Declared topology, as in runs.")
@click.option("--workers", type=click.IntRange(min=1), help="Workers of the job; refused where no run had as many.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Another attribute of the job, delay_ms=5; may be repeated.",
)
@click.option("--steps", type=click.IntRange(min=1), help="Also the volume of a run of so many steps.")
@click.option("--step-ms", type=float, help="Length of a step, ms. Default: by the runs' own step times.")
@click.option("--formula", help="In statsmodels' language; the default is that of regress.")
@click.option(
    "--extrapolate", is_flag=True, help="Also predict a job that differs from the runs, with the reasons as warnings."
)
@click.option("--format", "output_format", type=click.Choice(["table", "json", "csv"]), default="table")
def predict(
    dataset: str | Path,
    settings: tuple[str, ...],
    steps: int | None,
    step_ms: float | None,
    formula: str | None,
    extrapolate: bool,
    output_format: str,
    **described: Any,
) -> None:
    """Predict the traffic of a job: a step, a run of --steps steps and an hour, with 95% intervals.

    A job that differs from the measured runs is refused with the reasons (exit code 1): a size outside the runs'
    range, levels that were never measured together, another number of workers, a combination that no run is near.
    """
    import ddnn_traces
    from ddnn_traces.regression import documents

    values = described | key_values(settings, "--set")
    with open_dataset(dataset) as opened:
        predicted = ddnn_traces.predict(opened, values, steps, step_ms, formula, extrapolate)
    click.echo(documents.prediction(predicted, output_format))


@click.command()
@dataset_argument
@click.option("--out", default="report.html", type=click.Path(path_type=Path))
def report(dataset: str | Path, out: Path) -> None:
    """Write one self-contained HTML report, and its charts as SVG and PNG next to it."""
    import ddnn_traces

    with open_dataset(dataset) as opened:
        click.echo(f"wrote {ddnn_traces.write_report(opened, out)}", err=True)
