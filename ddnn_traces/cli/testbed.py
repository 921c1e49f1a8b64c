"""Captures of real training: made in network namespaces of this machine, or on real hosts."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from ddnn_traces.cli import lines
from ddnn_traces.cli.arguments import CommandByDefault, key_values
from ddnn_traces.cli.lines import say


@click.group(
    cls=CommandByDefault,
    default="run",
    suffix=".toml",
    short_help="Capture real training on this machine or your own hosts",
)
def testbed() -> None:
    """Real training, captured: runs of a matrix in network namespaces (root), or on machines reached by ssh."""


python_option = click.option(
    "--python",
    "pythons",
    multiple=True,
    metavar="FRAMEWORK=PATH",
    help="Python that has torch, mpi (mpi4py), tensorflow or horovod, where it is not the one of ddnn-traces.",
)


@testbed.command(short_help="Make the runs of a matrix: train and capture")
@click.argument("matrix", metavar="MATRIX.toml", type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder for the run folders."
)
@python_option
def run(matrix: Path, out: Path, pythons: tuple[str, ...]) -> None:
    """Make the runs of a matrix: train, capture, measure the links, write run folders that ingest takes.

    A run that is there already is left as it is, so that an interrupted matrix goes on. A run that lost packets or a
    worker, or whose links are not as asked for, goes to OUT/rejected; ingest names it and leaves it out.
    docs/testbed.md has the keys of a matrix.
    """
    from ddnn_traces import testbed as package

    outcomes = package.run(matrix, out, lines.messages("runs"), key_values(pythons, "--python"))
    made = [outcome for outcome in outcomes if outcome.is_there]
    following = f"; next: ddnn-traces ingest {shlex.quote(str(out))} --out DATASET" if made else ""
    say(f"{len(made)} of {len(outcomes)} runs in {out}{following}")
    sys.exit(0 if len(made) == len(outcomes) else 1)


@testbed.command(short_help="Remove what killed testbeds left behind")
@click.argument("where", metavar="OUT|MATRIX.toml", type=click.Path(path_type=Path, exists=True))
def clean(where: Path) -> None:
    """Remove what killed testbeds left: half-made runs in OUT, or their folders on the [[hosts]] of a matrix.

    Processes, namespaces and rules of this machine end with the testbed that made them.
    """
    from ddnn_traces import testbed as package

    removed = package.clean(where)
    for line in removed:
        say(line)
    if not removed:
        say(f"{where}: nothing of an ended testbed is there")


@testbed.command(short_help="Train for real under each combination of network conditions")
@click.argument("matrix", metavar="SWEEP.toml", type=click.Path(path_type=Path))
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder for captures/ and dataset/."
)
@python_option
def sweep(matrix: Path, out: Path, pythons: tuple[str, ...]) -> None:
    """Train under each combination of delay, rate, loss, model, batch size and workers, and show samples a second.

    SWEEP.toml is a matrix of the testbed (docs/testbed.md) in which every run has a time_limit_s: a run that has not
    ended by then did not finish, which is a result. Links that this machine cannot make are refused before the first
    run; a run that fails is tried once more. The same command goes on where it was. The table is query sweep_cells.
    """
    import ddnn_traces
    from ddnn_traces import testbed as package
    from ddnn_traces.cli import terminal
    from ddnn_traces.errors import UsageError
    from ddnn_traces.ingestors import pipeline

    captures, dataset = out / "captures", out / "dataset"
    outcomes = package.run(matrix, captures, lines.messages("runs"), key_values(pythons, "--python"), sweep=True)
    failed = [outcome.name for outcome in outcomes if not outcome.is_there]
    if len(failed) == len(outcomes):
        raise UsageError(f"{matrix}: no run was made; the messages above say why")
    pipeline.ingest([str(captures)], dataset, messages=lines.messages())
    with ddnn_traces.open(dataset) as opened:
        terminal.print_table(opened.query_arrow("sweep_cells", {}), "Samples a second in each cell")
    for name in failed:
        say(f"{name}: not made, and in no cell")
    sys.exit(1 if failed else 0)


earlier_sweep = click.Command(
    "sweep", callback=sweep.callback, params=sweep.params, hidden=True, help=sweep.help,
    deprecated="It is 'testbed sweep' now; the next version does not know this name.",
)  # fmt: skip
