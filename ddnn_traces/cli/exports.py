"""The command that exports a dataset for other programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ddnn_traces.cli import completion
from ddnn_traces.cli.shared import dataset_argument
from ddnn_traces.errors import UsageError
from ddnn_traces.export.targets import TARGETS, Target

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _option(*declarations: str, help: str, **settings: Any) -> Callable[[_Command], _Command]:
    """An option of some targets, which its help names."""
    name = declarations[-1].removeprefix("--").replace("-", "_")
    targets = ", ".join(target.name for target in TARGETS.values() if name in target.options)
    return click.option(*declarations, help=f"{targets}: {help}", **settings)


@click.command()
@dataset_argument
@click.option(
    "--to",
    "target",
    required=True,
    type=click.Choice(list(TARGETS)),
    help="; ".join(f"{target.name}: {target.about}" for target in TARGETS.values()) + ".",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="What to write; " + "; ".join(f"{target.name}: {target.out}" for target in TARGETS.values()) + ".",
)
@_option("--run", shell_complete=completion.run_ids, help="the run, where there are several.")
@_option("--window-ms", type=float, help="window of the flows' throughput, ms. Default: at most 5,000 windows.")
@_option(
    "--from-ms", type=float, default=0.0, show_default=False, help="begin of the excerpt, ms since the run's start."
)
@_option("--length-ms", type=float, help="length of the excerpt, ms. Default: to the run's end.")
@_option(
    "--flows",
    type=click.IntRange(min=0),
    default=20,
    help="number of flows, the largest, with a counter of their own; the others share one.",
)
@_option(
    "--max-events",
    type=click.IntRange(min=1),
    default=500_000,
    help="most events; a timeline that ends there is reported.",
)
@_option(
    "--bytes",
    "size",
    type=click.Choice(["payload", "wire"]),
    default="payload",
    help="bytes that a transfer's size counts: payload, or whole frames, acknowledgements too.",
)
@_option("--gap-ms", type=float, default=5.0, help="shortest silence of a flow that ends a transfer, ms.")
@_option(
    "--traffic",
    type=click.Choice(["all", "steps"]),
    default="all",
    help="all traffic between hosts of the run, or only that in training steps.",
)
@_option("--from-step", type=int, metavar="STEP", help="only this step and later ones.")
@_option("--steps", type=int, metavar="N", help="only this number of steps.")
@_option(
    "--calc",
    type=click.Choice(["all", "events"]),
    default="all",
    help="computation between two transfers of a host: all of the time that passed, or only the host's compute phases, "
    "where it has any.",
)
@_option("--nodes", type=int, metavar="N", help="hosts of the simulated network. Default: of the smallest fat tree.")
@click.pass_context
def export(context: click.Context, /, dataset: str | Path, target: str, out: Path | None, **options: Any) -> None:
    """Write a dataset for another program.

    Each ingest writes traces.duckdb; export it again when the dataset was moved or copied, since it holds the dataset's
    path. docs/exports.md describes the files for simulators.
    """
    chosen = TARGETS[target]
    _refuse_meaningless(context, chosen)
    if out is None and chosen.example:
        raise UsageError(f"--to {target} needs {chosen.example}")
    written, lines = chosen.write(dataset, out, {name: options[name] for name in chosen.options})
    for line in lines:
        click.echo(line, err=True)
    click.echo(f"wrote {written}" + (f"; {chosen.next_step}" if chosen.next_step else ""), err=True)


def _refuse_meaningless(context: click.Context, target: Target) -> None:
    """Raise UsageError for an option that was given and does not apply to the target."""
    for option in context.command.params:
        name = option.name or ""
        given = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if given and name not in {*target.options, "dataset", "target", "out"}:
            taken = sorted(o.opts[0] for o in context.command.params if o.name in target.options)
            raise UsageError(
                f"{option.opts[0]} does not apply to --to {target.name}, which takes --out"
                + (f", {', '.join(taken)}" if taken else "")
            )
