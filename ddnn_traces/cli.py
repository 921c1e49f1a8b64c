"""The command line. A command parses, calls one library function and prints; heavy imports wait inside commands."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ddnn_traces import __version__, completion
from ddnn_traces.errors import DdnnTracesError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from ddnn_traces.dataset import Dataset

FORMATS = ("table", "csv", "json", "parquet", "arrow")

_dataset_argument = click.argument("dataset", type=click.Path(path_type=Path))
_format_option = click.option(
    "--format", "output_format", type=click.Choice(FORMATS), default="table", show_default=True
)
_out_option = click.option("--out", type=click.Path(path_type=Path), help="Write there instead of to stdout.")
_limit_option = click.option(
    "--limit", type=click.IntRange(min=0), default=50, show_default=True, help="Rows of a table to print; 0: all."
)
_runs_option = click.option(
    "--run", "runs", multiple=True, shell_complete=completion.run_ids, help="Only this run; may be repeated."
)


def _clock_offset(_context: click.Context, _option: click.Parameter, value: str | None) -> str | float:
    """auto, none, a number of seconds, or offer where the option is not given."""
    if value is None:
        return "offer"
    if value in ("auto", "none"):
        return value
    try:
        return float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not auto, none or a number of seconds") from None


def main() -> NoReturn:
    """Entry point: run a command; every error that a user can cause becomes one line and an exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that an ingest removes what it has half written
    try:
        sys.exit(
            cli.main(prog_name="ddnn-traces", standalone_mode=False)
        )  # the code of a click.exceptions.Exit; commands return None
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except DdnnTracesError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        _fail(f"{error.filename or 'input or output'}: {error.strerror or error}; mend that and try again", 1)
    except (KeyboardInterrupt, click.Abort) as interrupt:
        _fail(str(interrupt) or "interrupted; nothing was changed", 130)
    except RuntimeError as error:
        if str(error) != "Query interrupted":  # what DuckDB makes of a Ctrl-C
            raise
        _fail("interrupted; nothing was changed", 130)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"ddnn-traces: {message}", err=True)
    sys.exit(code)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="ddnn-traces")
def cli() -> None:
    """Packet captures of distributed deep-learning training: flow tables, SQL, regression and reports.

    Exit codes: 0 done, 1 the data is wrong or partial, 2 the call is wrong.
    """


@cli.command()
@click.argument("sources", nargs=-1, required=True)
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Dataset folder: new, or to add runs to.")
@click.option(
    "--engine",
    type=click.Choice(["numba", "pyshark"]),
    default="numba",
    show_default=True,
    help="numba: fast. pyshark: tshark's dissectors, slow, reads whatever tshark reads.",
)
@click.option("--window-ms", default=1.0, show_default=True, help="Base window of flow_windows, ms.")
@click.option(
    "--sha256/--no-sha256",
    default=True,
    show_default=True,
    help="Hash the input files into captures and provenance: 0.5 s of CPU a GB.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Threads, over files and inside a large one. Default: the CPUs this process may use.",
)
@click.option(
    "--filter",
    metavar="EXPR",
    help="Only flows that a capture-filter expression lets through, as 'tcp port 5000 and not host 10.0.0.9': "
    "host, net, port, portrange, proto and protocols with src, dst, and, or, not. The packets of the "
    "others are in the ledger as filtered.",
)
@click.option(
    "--tunnels",
    type=click.Choice(["inner", "outer"]),
    default="inner",
    show_default=True,
    help="inner: flows are what is inside IPIP, GRE, VXLAN and Geneve. outer: the tunnels themselves.",
)
@click.option(
    "--packets", is_flag=True, help="Also write the table packets, one row a packet: as large as the capture."
)
@click.option(
    "--clock-offset",
    metavar="auto|none|SECONDS",
    callback=_clock_offset,
    help="Seconds to add to the times of the training logs; auto: as many as line their steps up with the traffic; "
    "none: none. Without it, a warning says when they do not line up.",
)
@click.option("--run-id", metavar="NAME", help="Name of the run, where the sources hold a single one.")
@click.option("--force", is_flag=True, help="Read runs again whose inputs and parameters have not changed.")
@click.option("--no-wait", is_flag=True, help="Fail when another ingest is writing the dataset, instead of waiting.")
def ingest(sources: tuple[str, ...], out: Path, no_wait: bool, **options: Any) -> None:
    """Read captures and training logs into a dataset.

    SOURCES are files, globs, folders, folders of run folders, or - for standard input. A folder that holds captures is
    one run. A run whose files and parameters are those of the run in the dataset is not read again; one that changed
    replaces it whole; other runs stay. Each run that is finished is in the dataset within seconds, also when the ingest
    is killed later: the next one goes on with the others.
    """
    _prepare_for_ingest()
    from ddnn_traces import terminal
    from ddnn_traces.ingestors import pipeline

    talk = terminal.talk()
    pipeline.ingest(list(sources), out, pipeline.IngestOptions(wait=not no_wait, **options), talk)
    if talk.warnings:
        raise click.exceptions.Exit(1)


@cli.command()
@_dataset_argument
@_format_option
@_out_option
@_limit_option
def runs(dataset: Path, output_format: str, out: Path | None, limit: int) -> None:
    """List the runs with their metadata and volume."""
    with _open(dataset) as opened:
        _emit(opened.query_arrow("run_overview", {}), output_format, out, limit)


@cli.command()
@click.argument("dataset", type=click.Path(path_type=Path), required=False)
@click.option(
    "--table", "names", multiple=True, shell_complete=completion.tables, help="Only this table; may be repeated."
)
def describe(dataset: Path | None, names: tuple[str, ...]) -> None:
    """Print the data dictionary: every table and column with type, unit, meaning, source and known inaccuracy.

    With a DATASET, also its numbers of rows.
    """
    from ddnn_traces import dictionary

    counts = {}
    if dataset is not None:
        with _open(dataset) as opened:
            counts = dictionary.row_counts(opened)
    click.echo(dictionary.markdown(names, counts))


@cli.command()
@_dataset_argument
@click.argument("name", required=False, shell_complete=completion.query_names)
@_runs_option
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="K=V",
    shell_complete=completion.parameters,
    help="Value of a parameter; may be repeated.",
)
@click.option("--describe", "only_describe", is_flag=True, help="Print what the query answers, its parameters and SQL.")
@_format_option
@_out_option
@_limit_option
def query(
    dataset: Path,
    name: str | None,
    runs: tuple[str, ...],
    params: tuple[str, ...],
    only_describe: bool,
    output_format: str,
    out: Path | None,
    limit: int,
) -> None:
    """Run a named query. Without NAME: list the queries.

    What the runs lack of the tables that the query reads, it says on standard error.
    """
    from ddnn_traces import queries

    if name is None:
        _list_queries()
        return
    if only_describe:
        click.echo(queries.find(name).description)
        return
    with _open(dataset, runs) as opened:
        rows = opened.query_arrow(name, _key_values(params))
        for line in opened.missing(name):
            click.echo(f"note: {line}", err=True)
        _emit(rows, output_format, out, limit)


def _list_queries() -> None:
    from ddnn_traces import queries

    width = max(map(len, queries.catalogue()))
    for number, (heading, group) in enumerate(queries.groups().items()):
        click.echo(f"{'' if number == 0 else chr(10)}{heading}")
        for query in group:
            click.echo(f"  {query.name:<{width}}  {query.question}")


@cli.command()
@_dataset_argument
@click.argument("statement", required=False)
@click.option("--write", is_flag=True, help="Also run statements that write: COPY ... TO, ATTACH, CREATE, SET, ...")
@_format_option
@_out_option
@_limit_option
def sql(dataset: Path, statement: str | None, write: bool, output_format: str, out: Path | None, limit: int) -> None:
    """Run your own SQL (DuckDB) over the tables and queries as views. Without STATEMENT: read it from standard
    input, on a terminal as a shell.

    Only statements that read are run, unless --write is given.
    """
    with _open(dataset, read_only=not write) as opened:
        if statement is None and sys.stdin.isatty():
            from ddnn_traces.shell import run_shell

            run_shell(opened, limit)
            return
        statements = opened.statements(sys.stdin.read() if statement is None else statement)
        if len(statements) != 1 and (output_format != "table" or out):
            raise UsageError(f"{len(statements)} statements make no single {output_format}; give one")
        opened.check_reads(statements)  # all of them, before the first one runs
        for one in statements:
            _emit(opened.sql_arrow(one), output_format, out, limit)


@cli.command()
@_dataset_argument
def check(dataset: Path) -> None:
    """Check the data: whether every record is accounted for, and the tables agree. Exit 1 with the offending rows."""
    from ddnn_traces import checks, terminal

    with _open(dataset) as opened:
        found = checks.run_checks(opened)
    for name, rows in found.items():
        click.echo(f"{name}: {'ok' if rows.num_rows == 0 else f'{rows.num_rows} offending rows'}", err=True)
        if rows.num_rows:
            terminal.print_table(rows, name)
    if any(rows.num_rows for rows in found.values()):
        raise click.exceptions.Exit(1)


@cli.command()
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Dataset folder: new, or to add runs to.")
@click.option(
    "--scenarios",
    default="zerwas-75",
    show_default=True,
    help="zerwas-75: models, frameworks, backends, optimizers, batches, topologies and loss of zerwas, without its "
    "parameter server. zerwas-79: with it.",
)
@click.option("--steps", type=int, default=20, show_default=True, help="Training steps of a run.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed, the same bytes.")
@click.option(
    "--noise",
    type=float,
    default=0.01,
    show_default=True,
    help="Share of control traffic, and of what is sent again: each run draws between 0 and twice this.",
)
def generate(out: Path, **options: Any) -> None:
    """Make up the runs of a paper's scenarios: synthetic, by the laws of the collectives with noise, not measured.

    They are tables as those of ingest, so that every query, regress and report run on them; runs.source is synthetic,
    and run names begin with synthetic-. docs/scenarios.md says what is the paper's in them, and what is ours.
    """
    from ddnn_traces import scenarios

    click.echo(scenarios.summary(scenarios.generate(out, **options), out), err=True)


@cli.command()
@_dataset_argument
@click.option("--formula", help="In statsmodels' language; the default is equation (1) of zerwas.")
@click.option(
    "--preset",
    type=click.Choice(["paper", "step-time", "throughput", "duration-on-loss"]),
    help="paper: zerwas section VI with its sentences. step-time, throughput: on delay, bandwidth, loss, batch size "
    "and model. duration-on-loss: zerwas fig. 10.",
)
@click.option("--rows", type=click.Choice(["runs", "steps"]), default="runs", show_default=True, help="What a row is.")
@click.option(
    "--batch",
    type=click.Choice(["indicator", "number"]),
    default="indicator",
    show_default=True,
    help="Batch size in the default formula.",
)
@click.option(
    "--size",
    type=click.Choice(["exchanged", "nominal"]),
    default="exchanged",
    show_default=True,
    help="Model size in the default formula: model_bytes or nominal_bytes.",
)
@click.option(
    "--errors",
    type=click.Choice(["classic", "hc3", "cluster"]),
    help="Standard errors of intervals and tests; the table has classic and robust ones side by side. Default: "
    "classic, and clustered by run where rows are steps.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "html", "latex", "json", "csv"]),
    default="text",
    show_default=True,
)
@_out_option
def regress(dataset: Path, formula: str | None, output_format: str, out: Path | None, **options: Any) -> None:
    """Fit per-step volume, or another measure, against model size, framework and backend, batch size and topology.

    docs/regression.md defines every number.
    """
    import ddnn_traces
    from ddnn_traces.report import regression_page

    with _open(dataset) as opened:
        regression = ddnn_traces.regress(opened, formula, **options)
    _emit_text(regression_page.FORMATS[output_format](regression), out)


@cli.command()
@_dataset_argument
@click.option("--model-bytes", type=float, help="Bytes that a step exchanges: those of the trainable parameters.")
@click.option("--framework-backend", help="As in the query run_step_volume: framework and backend, torch-gloo.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Samples a worker uses in one step.")
@click.option("--topology", help="Declared topology, as in runs.")
@click.option("--workers", type=click.IntRange(min=1), help="Workers of the job; refused where the runs had others.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Another column of the formula, delay_ms=5; may be repeated.",
)
@click.option("--steps", type=click.IntRange(min=1), help="Also the volume of a run of so many steps.")
@click.option("--step-ms", type=float, help="Length of a step, ms. Default: by the runs' own step times.")
@click.option("--formula", help="In statsmodels' language; the default is that of regress.")
@click.option("--extrapolate", is_flag=True, help="Predict also a job unlike the runs, with the reasons as warnings.")
@click.option(
    "--format", "output_format", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True
)
def predict(
    dataset: Path,
    settings: tuple[str, ...],
    steps: int | None,
    step_ms: float | None,
    formula: str | None,
    extrapolate: bool,
    output_format: str,
    **described: Any,
) -> None:
    """Predict what a job would send: a step, a run of --steps steps and an hour, with 95% intervals.

    A job outside what was measured is refused with the reasons (exit code 1): a size beyond the runs', levels that
    were never measured together, another number of workers, a combination that only looks measured.
    """
    import ddnn_traces
    from ddnn_traces.regression import predict_text

    values = described | _key_values(settings, "--set")
    with _open(dataset) as opened:
        predicted = ddnn_traces.predict(opened, values, steps, step_ms, formula, extrapolate)
    click.echo(predict_text.written(predicted, output_format))


@cli.command()
@_dataset_argument
@click.option("--out", default="report.html", show_default=True, type=click.Path(path_type=Path))
def report(dataset: Path, out: Path) -> None:
    """Write one self-contained HTML report, and its charts as SVG and PNG beside it."""
    import ddnn_traces

    with _open(dataset) as opened:
        click.echo(f"wrote {ddnn_traces.write_report(opened, out)}", err=True)


#: What each target of export takes besides --out.
_SIMULATOR_OPTIONS = {"run", "size", "gap_ms", "traffic", "from_step", "steps"}
_EXPORT_OPTIONS = {
    "duckdb": set[str](),
    "perfetto": {"run", "window_ms", "from_ms", "length_ms", "flows", "max_events"},
    "basic-sim": _SIMULATOR_OPTIONS,
    "htsim": {*_SIMULATOR_OPTIONS, "nodes"},
    "goal": {*_SIMULATOR_OPTIONS, "calc"},
    "chakra": {*_SIMULATOR_OPTIONS, "calc"},
}


@cli.command()
@_dataset_argument
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Choice(list(_EXPORT_OPTIONS)),
    help="duckdb: DATASET/traces.duckdb, all tables and queries as views and macros, which plain DuckDB opens. "
    "perfetto: a timeline of one run in the trace-event format, for ui.perfetto.dev. The others: the transfers of one "
    "run, for the simulators basic-sim (TCP flow schedule), htsim (connection matrix), LogGOPSim (goal) and ASTRA-sim "
    "(chakra).",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="What to write; perfetto: FILE.json or FILE.json.gz; htsim, goal: a file; basic-sim, chakra: a folder; "
    "basic-sim: the schedule alone as FILE.csv.",
)
@click.option("--run", shell_complete=completion.run_ids, help="All but duckdb: the run, where there are several.")
@click.option("--window-ms", type=float, help="perfetto: window of the flows' throughput, ms. Default: at most 5,000.")
@click.option("--from-ms", type=float, default=0.0, help="perfetto: begin of the excerpt, ms since the run's start.")
@click.option("--length-ms", type=float, help="perfetto: length of the excerpt, ms. Default: to the run's end.")
@click.option(
    "--flows",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="perfetto: so many flows, the largest, with a counter of their own; the others share one.",
)
@click.option(
    "--max-events",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    help="perfetto: the timeline ends where it has so many events, and says so.",
)
@click.option(
    "--bytes",
    "size",
    type=click.Choice(["payload", "wire"]),
    default="payload",
    show_default=True,
    help="Simulators: what a transfer's size counts: payload, or whole frames, acknowledgements too.",
)
@click.option(
    "--gap-ms",
    type=float,
    default=5.0,
    show_default=True,
    help="Simulators: a silence of a flow of so long or longer ends a transfer, ms.",
)
@click.option(
    "--traffic",
    type=click.Choice(["all", "steps"]),
    default="all",
    show_default=True,
    help="Simulators: all that hosts of the run send to one another, or what they send in training steps.",
)
@click.option("--from-step", type=int, metavar="STEP", help="Simulators: only this step and later ones.")
@click.option("--steps", type=int, metavar="N", help="Simulators: only so many steps.")
@click.option(
    "--calc",
    type=click.Choice(["all", "events"]),
    default="all",
    show_default=True,
    help="goal, chakra: what a host computes between two transfers: all of the time that passed, or only what its "
    "phases say, where they say something.",
)
@click.option(
    "--nodes", type=int, metavar="N", help="htsim: hosts of the simulated network. Default: of the smallest fat tree."
)
@click.pass_context
def export(
    context: click.Context, /, dataset: Path, target: str, out: Path | None, run: str | None, **options: Any
) -> None:
    """Write a dataset for another program.

    traces.duckdb is there after each ingest; write it anew when the dataset was moved or copied, since it holds the
    dataset's path. What simulators get, docs/exports.md tells.
    """
    _refuse_meaningless(context, target)
    options = {name: value for name, value in options.items() if name in _EXPORT_OPTIONS[target]}
    if target == "duckdb":
        from ddnn_traces.exporters import duckdb_file

        click.echo(f"wrote {duckdb_file.write(dataset, out)}", err=True)
        return
    if out is None:
        names = {"perfetto": "a file: --out timeline.json.gz", "htsim": "a file: --out run.cm"}
        names |= {"goal": "a file: --out run.goal"}
        raise UsageError(f"--to {target} needs {names.get(target, 'a folder: --out folder')}")
    with _open(dataset, (run,) if run else ()) as opened:
        if target == "perfetto":
            from ddnn_traces.exporters import perfetto

            for line in perfetto.write(opened, out, perfetto.Options(**options)):
                click.echo(f"left out: {line}", err=True)
            click.echo(f"wrote {out}; open it in https://ui.perfetto.dev", err=True)
            return
        from ddnn_traces.exporters import simulators, transfers

        for line in simulators.write(opened, target, out, transfers.Options(**options)):
            click.echo(line, err=True)
    click.echo(f"wrote {out}; docs/exports.md tells how {target} reads it", err=True)


def _refuse_meaningless(context: click.Context, target: str) -> None:
    """Raise UsageError for an option that was given and means nothing to the target."""
    for option in context.command.params:
        name = option.name or ""
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in {*_EXPORT_OPTIONS[target], "dataset", "target", "out"}:
            taken = sorted(o.opts[0] for o in context.command.params if o.name in _EXPORT_OPTIONS[target])
            raise UsageError(
                f"{option.opts[0]} means nothing to --to {target}, which takes --out"
                + (f", {', '.join(taken)}" if taken else "")
            )


@cli.command()
@click.option("--sample", type=click.Path(path_type=Path), help="Folder of run folders; default: the shipped sample.")
@click.option("--out", default="demo", show_default=True, type=click.Path(path_type=Path))
def demo(sample: Path | None, out: Path) -> None:
    """The main job on the shipped sample, end to end: ingest, queries, regression, report."""
    from ddnn_traces import demo as demonstration
    from ddnn_traces import terminal

    demonstration.run(sample, out, terminal.talk())


@cli.group()
def model() -> None:
    """A model of training traffic: fit it to measured runs, generate runs of any size, score it."""


@model.command("fit")
@_dataset_argument
@_runs_option
@click.option("--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="File to write, JSON.")
def model_fit(dataset: Path, runs: tuple[str, ...], out: Path) -> None:
    """Fit a traffic model to the runs of a dataset that have steps, and write it as JSON.

    It holds the on/off structure of a step: how long workers are silent and how that hangs together, how long transfers
    take, packets, retransmissions, start-up and control messages. docs/traffic_model.md says how each is found.
    """
    from ddnn_traces import traffic_model

    with _open(dataset) as opened:
        document = traffic_model.fit(opened, runs or None)
    traffic_model.write(document, out)
    click.echo(f"wrote {out}: fitted to {len(document['provenance']['runs'])} runs", err=True)


@model.command("generate")
@click.argument("document", metavar="MODEL.json", type=click.Path(path_type=Path))
@click.option("--workers", required=True, type=click.IntRange(min=1), help="Number of workers.")
@click.option(
    "--model-bytes",
    required=True,
    type=click.IntRange(min=1),
    help="What a step exchanges: parameters times bytes.",
)
@click.option(
    "--topology",
    required=True,
    help="ring, tree, star, sharded_parameter_server, binary_tree_star, clique, recursive_doubling, halving_doubling, "
    "pair_averaging (asynchronous), hierarchical_ring; or unknown, for the pairs as they were measured.",
)
@click.option("--shape", default="", help="Variant, as tree: heap, binomial, chain; star: worker, server.")
@click.option("--servers", type=click.IntRange(min=1), help="Parameter servers of sharded_parameter_server.")
@click.option("--group-size", type=click.IntRange(min=1), help="Hosts a group (binary_tree_star, hierarchical_ring).")
@click.option("--steps", required=True, type=click.IntRange(min=1), help="Training steps.")
@click.option(
    "--compute-ms", type=click.FloatRange(min=0), help="Median silence of a worker in a step, ms. Default: the model's."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="The same seed, the same bytes.")
@click.option("--run-id", default="synthetic", show_default=True, help="Name of the run.")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Where to write.")
@click.option(
    "--to",
    "target",
    default="dataset",
    show_default=True,
    type=click.Choice(["dataset", "pcap", "flows"]),
    help="dataset: tables, new or beside other runs. pcap: a capture a host, logs and run.toml in OUT/RUN_ID. "
    "flows: CSV, a row a transfer.",
)
def model_generate(document: Path, out: Path, target: str, **job: Any) -> None:
    """Generate the traffic of a job from a traffic model; it is marked as synthetic."""
    from ddnn_traces import traffic_model

    written = traffic_model.generate(traffic_model.read(document), traffic_model.Job(**job), out, target)
    click.echo(f"wrote {written}", err=True)


@model.command("score")
@_dataset_argument
@click.option(
    "--holdout",
    multiple=True,
    shell_complete=completion.run_ids,
    help="Run to score on and not to fit to; may be repeated. Default: each by turns.",
)
@click.option(
    "--model", "document", type=click.Path(path_type=Path), help="Score this model, instead of one of the other runs."
)
@click.option("--gap-ms", default=5.0, show_default=True, help="Silence that parts two bursts, ms.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0))
@_format_option
@_out_option
@_limit_option
def model_score(
    dataset: Path,
    holdout: tuple[str, ...],
    document: Path | None,
    gap_ms: float,
    seed: int,
    output_format: str,
    out: Path | None,
    limit: int,
) -> None:
    """Compare generated with held-out runs: volume a pair, bursts, gaps, autocorrelation.

    Beside it stand two plain peers with the same volume: constant rate and Poisson arrivals. Behind the table comes on
    how many runs each of the three is nearest.
    """
    from ddnn_traces import traffic_model

    with _open(dataset) as opened:
        given = traffic_model.read(document) if document else None
        scores = traffic_model.score(opened, holdout or None, given, gap_ms, seed)
    _emit(scores.to_arrow(), output_format, out, limit)
    if output_format == "table" and out is None:
        _emit(traffic_model.wins(scores).to_arrow(), output_format, None, 0)


def _prepare_for_ingest() -> None:
    """Settings of a process that does nothing else, which save a third of its start and an eighth of its memory."""
    sys.meta_path.insert(0, _HiddenLibraries)
    gc.set_threshold(1_000_000)  # numba's modules are many objects that stay
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # nothing here multiplies matrices
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own one keeps what it once had


class _HiddenLibraries:
    """Import hook under which scipy and pandas are not installed.

    numba looks for scipy's BLAS and pyarrow for pandas as soon as they are there. Ingest needs neither, and importing
    the two takes longer than reading a small capture.
    """

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name in ("scipy", "pandas"):
            raise ModuleNotFoundError(f"{name} is hidden from ingest", name=name)


def _open(dataset: Path, runs: tuple[str, ...] = (), read_only: bool = False) -> Dataset:
    import ddnn_traces

    return ddnn_traces.open(dataset, list(runs) or None, read_only)


def _key_values(params: tuple[str, ...], option: str = "--param") -> dict[str, str]:
    pairs = [param.partition("=") for param in params]
    for key, equals, _ in pairs:
        if not equals:
            raise UsageError(f"{option} {key}: write it as {option} {key}=VALUE")
    return {key: value for key, _, value in pairs}


def _emit_text(text: str, out: Path | None) -> None:
    if out is None:
        click.echo(text)
        return
    try:
        out.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error


def _emit(rows: pa.Table, output_format: str, out: Path | None, limit: int) -> None:
    from ddnn_traces import formats, terminal

    if output_format == "table" and out is None:
        terminal.print_table(rows, limit=limit)
        return
    try:
        written: Any = out.open("wb") if out else sys.stdout.buffer
    except OSError as error:
        raise UsageError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error
    try:
        formats.write(rows, "csv" if output_format == "table" else output_format, written)
    finally:
        if out:
            written.close()
