"""Commands that evaluate a dataset: regress, predict, report, plot, explore."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ddnn_traces.cli.arguments import (
    complete_queries,
    dataset_argument,
    emit_text,
    infer_steps_option,
    key_values,
    open_dataset,
    out_option,
    params_option,
    runs_option,
    written,
)
from ddnn_traces.cli.lines import say
from ddnn_traces.errors import UsageError
from ddnn_traces.text import counted

if TYPE_CHECKING:
    from ddnn_traces.report.section import Figure


@click.command(short_help="Fit what drives the volume of a step, with all checks of the fit")
@dataset_argument
@click.option("--formula", help="In statsmodels' language. Default: the volume over that of the collective's law.")
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
    help="Standard errors of intervals and tests. Default: scaled where the scatter grows with the model's size, else "
    "cluster: CR2 by cell, with Satterthwaite's degrees of freedom.",
)
@click.option(
    "--unit",
    type=click.Choice(["cell", "run"]),
    default="cell",
    help="cell: runs that agree in all that was set are averaged. run: they are not, and errors are clustered by cell.",
)
@click.option(
    "--include",
    multiple=True,
    type=click.Choice(["incomplete", "fault", "unfinished", "loss"]),
    help="In a fit of a volume, keep runs whose captures do not cover all hosts, runs with faults, unfinished runs, or "
    "runs that lose 1% and more; may be repeated.",
)
@runs_option
@infer_steps_option
@click.option("--verbose", is_flag=True, help="Also joint tests, nested formulas, refits and all diagnostics.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "table", "html", "latex", "json", "csv"]),
    help="Default: by the suffix of --out; without it text. table is the same as text.",
)
@out_option
def regress(
    dataset: str | Path,
    formula: str | None,
    runs: tuple[str, ...],
    infer_steps: bool,
    output_format: str | None,
    out: Path | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Fit per-step volume, or another measure, against model size, framework and backend, batch size and topology.

    docs/regression.md defines every number. Exit code 1: nothing could be fitted, and the output says why.
    """
    import ddnn_traces
    from ddnn_traces.regression import documents

    output_format = output_format or _format_of_fit(out)  # a wrong suffix is refused before minutes of work
    in_answer = output_format not in ("csv", "latex")
    with open_dataset(dataset, runs, infer_steps=infer_steps, tells_steps=not in_answer) as opened:
        regression = ddnn_traces.regress(opened, formula, **options)
    if output_format == "html":
        from ddnn_traces.report import page  # loads Altair, which takes longer than a regression

        text = page.regression_page(regression, verbose)
    else:
        text = documents.FORMATS[output_format](regression, verbose)
    emit_text(text, out)
    if not regression.coefficients:
        sys.exit(1)


#: Suffixes of a file with a regression.
_FITS = {".txt": "text", ".html": "html", ".tex": "latex", ".json": "json", ".csv": "csv"}


def _format_of_fit(out: Path | None) -> str:
    """The format that a file's name says; text without a file or a suffix. Raises UsageError."""
    suffix = out.suffix.lower() if out else ""
    if suffix and suffix not in _FITS:
        raise UsageError(f"{out}: no format {suffix}: name it {', '.join(_FITS)}, or give --format")
    return _FITS.get(suffix, "text")


@click.command(short_help="Predict the traffic of a job that was never run")
@dataset_argument
@click.option("--model-bytes", type=float, help="Bytes that a step exchanges: those of the trainable parameters.")
@click.option("--framework-backend", help="As in the query run_step_volume: framework and backend, torch-gloo.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Samples a worker uses in one step.")
@click.option("--topology", help="Declared topology, as in runs.")
@click.option("--workers", type=click.IntRange(min=1), help="Workers of the job, by the law of its topology.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Another attribute of the job, delay_ms=5; may be repeated.",
)
@runs_option
@infer_steps_option
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
    runs: tuple[str, ...],
    infer_steps: bool,
    steps: int | None,
    step_ms: float | None,
    formula: str | None,
    extrapolate: bool,
    output_format: str,
    **described: Any,
) -> None:
    """Predict the traffic of a job: a step, a run of --steps steps and an hour, with 95% intervals.

    A job that differs from the measured runs is refused with the reasons (exit code 1): a size outside the runs'
    range, levels that were never measured together, a combination that no run is near. So is another number of workers
    where no law of the topology has it.
    """
    import ddnn_traces
    from ddnn_traces.regression import documents

    values = described | key_values(settings, "--set")
    with open_dataset(dataset, runs, infer_steps=infer_steps, tells_steps=False) as opened:
        predicted = ddnn_traces.predict(opened, values, steps, step_ms, formula, extrapolate)
    click.echo(documents.prediction(predicted, output_format))


@click.command(short_help="Write one HTML page: findings first, then charts and tables")
@dataset_argument
@click.option("--out", default="report.html", type=click.Path(path_type=Path), help="The page; -: standard output.")
@click.option(
    "--charts", type=click.Path(path_type=Path), help="Also write each chart as SVG and PNG into this folder."
)
@runs_option
@infer_steps_option
def report(dataset: str | Path, out: Path, charts: Path | None, runs: tuple[str, ...], infer_steps: bool) -> None:
    """Write one self-contained HTML report: findings first, then charts and tables by question."""
    from ddnn_traces.cli.lines import steps
    from ddnn_traces.report import page

    with open_dataset(dataset, runs, infer_steps=infer_steps) as opened, steps(page.SECTIONS) as began:
        if str(out) != "-":
            page.write(opened, out, charts, began, say)
        else:
            found = page.report(opened, began)
            if charts is not None:
                found.write_charts(charts, say)
            found.say_notes(say)
            sys.stdout.buffer.write(found.html().encode())
    if str(out) != "-":
        say(f"wrote {out}")


@click.command(short_help="Draw the figure of a query: in the terminal, or into a file")
@dataset_argument
@click.argument("name", metavar="[QUERY]", required=False, shell_complete=complete_queries)
@runs_option
@params_option
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File: .svg, .png, .pdf, .html or .json (Vega-Lite).",
)
@infer_steps_option
def plot(
    dataset: str | Path,
    name: str | None,
    runs: tuple[str, ...],
    params: tuple[str, ...],
    out: Path | None,
    infer_steps: bool,
) -> None:
    """Draw the figure that the report has of a query; without --out as text.

    Without QUERY: list the queries that have a figure.
    """
    if out is not None and out.suffix.lower() not in _DRAWINGS:
        raise UsageError(f"{out}: name it {', '.join(_DRAWINGS)}")
    from ddnn_traces.query import catalogue, missing
    from ddnn_traces.report import plot as plots

    if name is None:
        for query in sorted({*plots.DRAWN, *plots.SHOWN_BY}):
            shown = f" (the figure of {plots.SHOWN_BY[query]})" if query in plots.SHOWN_BY else ""
            click.echo(f"{query:<28}{catalogue.find(query).question}{shown}")
        return
    given, drawn = key_values(params), plots.SHOWN_BY.get(name, name)
    with (
        open_dataset(dataset, runs, infer_steps=infer_steps, params=given) as opened,
        missing.explained(drawn),
    ):
        first, *others = plots.figures(opened, name, given)
    if out is None:
        _print_chart(first.first_panel)
        if first.first_panel is not first:
            say(f"the first of {counted(len(first.panels), first.noun)}; --run chooses another, --out draws them all")
    else:
        _write_chart(first, out)
        say(" ".join([f"wrote {out}.", *first.file_parts]) if first.file_parts else f"wrote {out}")
    if others:
        say(f"also of {name}, in the report: {', '.join(figure.name for figure in others)}")


_DRAWINGS = (".svg", ".png", ".pdf", ".html", ".json")


def _print_chart(figure: Figure) -> None:
    from ddnn_traces.cli import terminal
    from ddnn_traces.report import text_chart

    console = terminal.stdout()
    columns = console.width if console.is_terminal else 80
    spec = figure.file_spec
    if values := text_chart.only_mark(spec):
        console.print(values, soft_wrap=True)
        say("one mark, so its values; --out FILE.svg draws the chart")
    else:
        console.print(text_chart.text(spec, columns), no_wrap=True, crop=False)


def _write_chart(figure: Figure, out: Path) -> None:
    import json

    from ddnn_traces.report import page

    suffix = out.suffix.lower()
    if suffix == ".json":
        content = (json.dumps(figure.file_spec, ensure_ascii=False, indent=1) + "\n").encode()
    elif suffix == ".html":
        content = page.chart_page(figure).encode()
    elif suffix == ".pdf":
        content = figure.pdf()
    else:
        content = figure.drawn()[suffix.removeprefix(".")]
    with written(out) as file:
        file.write(content)


@click.command(short_help="Look around in a local page of linked charts")
@dataset_argument
@runs_option
@click.option("--port", type=click.IntRange(1, 65535), help="Port of 127.0.0.1. Default: a free one.")
@click.option("--no-browser", is_flag=True, help="Only print the page's address.")
@click.option(
    "--export",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page that needs no server, of at most 5 MB for 50 runs, in place of opening one.",
)
def explore(
    dataset: str | Path, runs: tuple[str, ...], port: int | None, no_browser: bool, export: Path | None
) -> None:  # fmt: skip
    """Open a local page to look around in: throughput, steps, traffic matrix and flows, filtered by one another.

    The server listens on 127.0.0.1 only and ends with Ctrl-C. The page asks no other host.
    """
    if export is not None:
        from ddnn_traces.report import explorer

        with open_dataset(dataset, runs) as opened:
            said = explorer.write(opened, export)
        say(f"wrote {export}: {said}")
        return
    from ddnn_traces import explore as page

    with open_dataset(dataset, runs, read_only=True) as opened:
        if not opened.run_ids:
            raise UsageError(f"{dataset}: has no runs; 'ddnn-traces ingest CAPTURES --out {dataset}' adds them")
    page.serve(
        dataset, lambda address: click.echo(f"{address}  (Ctrl-C ends it)"), port, not no_browser, runs,
        lambda: say("starting the page; its address follows in some seconds"),
    )  # fmt: skip


@click.command(short_help="Write the Jupyter notebooks: worked explorations")
@click.option("--out", default="notebooks", type=click.Path(path_type=Path, file_okay=False), help="Folder.")
def notebooks(out: Path) -> None:
    """Write the Jupyter notebooks into a folder: SQL, topology, steps, regression, simulation, shared links.

    They read the samples that are installed. `pip install jupyterlab`, then `jupyter lab notebooks`, runs them.
    """
    from ddnn_traces.store import samples

    for path in samples.write_notebooks(out):
        click.echo(path)


@click.command(short_help="Serve a dataset to a language model (Model Context Protocol)")
@dataset_argument
@runs_option
def mcp(dataset: str | Path, runs: tuple[str, ...]) -> None:
    """Serve a dataset to a language model by the Model Context Protocol: named queries with the meaning of their
    columns, SQL that reads, and charts as pictures.

    The program that runs the model starts this command and speaks to it on standard input and output. It opens no port.
    """
    from ddnn_traces.explore import model_context

    model_context.serve(dataset, runs)


#: The run whose traffic matrix the demo shows: a ring of four.
_SHOWN_RUN = "torch-mlp1-sgd-32-gloo-normal-ring-n4"


@click.command(short_help="The main job on the shipped sample, end to end")
@click.option("--sample", type=click.Path(path_type=Path), help="Folder of run folders; default: the shipped sample.")
@click.option("--out", default="demo", type=click.Path(path_type=Path))
def demo(sample: Path | None, out: Path) -> None:
    """The main job on the shipped sample, end to end: ingest, queries, regression, report."""
    import ddnn_traces
    from ddnn_traces.cli import lines, terminal
    from ddnn_traces.ingestors import pipeline
    from ddnn_traces.regression import documents

    source, dataset, messages = sample or ddnn_traces.sample(), out / "dataset", lines.messages()
    first = Path(source) / _SHOWN_RUN
    places = [first, source] if first.is_dir() else [source]  # one run takes a second, all take half a minute
    for place in places:
        messages.info(f"ingest {place}")
        pipeline.ingest([str(place)], dataset, messages=messages)
        if place == places[0]:
            with ddnn_traces.open(dataset) as opened:
                shown = _SHOWN_RUN if place == first else opened.run_ids[0]
                matrix = opened.sql_arrow("FROM traffic_matrix WHERE run_id = $run", {"run": shown})
            terminal.print_table(matrix.drop_columns("run_id"), f"Who sends how much to whom in {shown}")
    with ddnn_traces.open(dataset) as opened:
        terminal.print_table(opened.query_arrow("run_overview", {}), "The runs")
        click.echo("What drives the volume of a step\n")
        click.echo(documents.text(ddnn_traces.regress(opened)))
        compared = opened.query_arrow("ring_comparison", {})
        shown_columns = ["run_id", "declared_topology", "inferred_topology", "declared_ring", "inferred_ring", "agrees"]
        terminal.print_table(compared.select(shown_columns), "Topology and ring in the traffic and the declared ones")
        messages.info(f"report {out / 'report.html'}")
        report = ddnn_traces.write_report(opened, out / "report.html")
    click.echo(f"\nThe dataset is in {dataset}, the report in {report}.")
