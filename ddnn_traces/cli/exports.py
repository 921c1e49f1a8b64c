"""The command that exports a dataset for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ddnn_traces.cli import completion
from ddnn_traces.cli.shared import dataset_argument, open_dataset
from ddnn_traces.errors import UsageError

#: The options of each target, besides --out.
_SIMULATOR_OPTIONS = {"run", "size", "gap_ms", "traffic", "from_step", "steps"}
_EXPORT_OPTIONS = {
    "duckdb": set[str](),
    "perfetto": {"run", "window_ms", "from_ms", "length_ms", "flows", "max_events"},
    "basic-sim": _SIMULATOR_OPTIONS,
    "htsim": {*_SIMULATOR_OPTIONS, "nodes"},
    "goal": {*_SIMULATOR_OPTIONS, "calc"},
    "chakra": {*_SIMULATOR_OPTIONS, "calc"},
}


@click.command()
@dataset_argument
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
    help="perfetto: number of flows, the largest, with a counter of their own; the others share one.",
)
@click.option(
    "--max-events",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    help="perfetto: most events; a timeline that ends there is reported.",
)
@click.option(
    "--bytes",
    "size",
    type=click.Choice(["payload", "wire"]),
    default="payload",
    show_default=True,
    help="Simulators: bytes that a transfer's size counts: payload, or whole frames, acknowledgements too.",
)
@click.option(
    "--gap-ms",
    type=float,
    default=5.0,
    show_default=True,
    help="Simulators: shortest silence of a flow that ends a transfer, ms.",
)
@click.option(
    "--traffic",
    type=click.Choice(["all", "steps"]),
    default="all",
    show_default=True,
    help="Simulators: all traffic between hosts of the run, or only that in training steps.",
)
@click.option("--from-step", type=int, metavar="STEP", help="Simulators: only this step and later ones.")
@click.option("--steps", type=int, metavar="N", help="Simulators: only this number of steps.")
@click.option(
    "--calc",
    type=click.Choice(["all", "events"]),
    default="all",
    show_default=True,
    help="goal, chakra: computation between two transfers of a host: all of the time that passed, or only the host's "
    "compute phases, where it has any.",
)
@click.option(
    "--nodes", type=int, metavar="N", help="htsim: hosts of the simulated network. Default: of the smallest fat tree."
)
@click.pass_context
def export(
    context: click.Context, /, dataset: str | Path, target: str, out: Path | None, run: str | None, **options: Any
) -> None:
    """Write a dataset for another program.

    Each ingest writes traces.duckdb; export it again when the dataset was moved or copied, since it holds the dataset's
    path. docs/exports.md describes the files for simulators.
    """
    _refuse_meaningless(context, target)
    options = {name: value for name, value in options.items() if name in _EXPORT_OPTIONS[target]}
    if target == "duckdb":
        from ddnn_traces.export import duckdb_file

        click.echo(f"wrote {duckdb_file.write(dataset, out)}", err=True)
        return
    if out is None:
        names = {"perfetto": "a file: --out timeline.json.gz", "htsim": "a file: --out run.cm"}
        names |= {"goal": "a file: --out run.goal"}
        raise UsageError(f"--to {target} needs {names.get(target, 'a folder: --out folder')}")
    with open_dataset(dataset, (run,) if run else ()) as opened:
        if target == "perfetto":
            from ddnn_traces.export import perfetto

            for line in perfetto.write(opened, out, perfetto.TimelineOptions(**options)):
                click.echo(f"left out: {line}", err=True)
            click.echo(f"wrote {out}; open it in https://ui.perfetto.dev", err=True)
            return
        from ddnn_traces.export import simulators

        for line in simulators.write(opened, target, out, simulators.ReplayOptions(**options)):
            click.echo(line, err=True)
    click.echo(f"wrote {out}; docs/exports.md explains how {target} reads it", err=True)


def _refuse_meaningless(context: click.Context, target: str) -> None:
    """Raise UsageError for an option that was given and does not apply to the target."""
    for option in context.command.params:
        name = option.name or ""
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in {*_EXPORT_OPTIONS[target], "dataset", "target", "out"}:
            taken = sorted(o.opts[0] for o in context.command.params if o.name in _EXPORT_OPTIONS[target])
            raise UsageError(
                f"{option.opts[0]} does not apply to --to {target}, which takes --out"
                + (f", {', '.join(taken)}" if taken else "")
            )
