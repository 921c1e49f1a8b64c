"""Commands that write a dataset elsewhere: export for other programs, packets, and copy and vacuum of object stores."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from ddnn_traces.cli.arguments import (
    DatasetPath,
    complete_runs,
    dataset_argument,
    infer_steps_option,
    open_dataset,
    runs_option,
    say_notes,
)
from ddnn_traces.cli.lines import say
from ddnn_traces.errors import UsageError
from ddnn_traces.export.targets import TARGETS, Target
from ddnn_traces.text import counted

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _option(*declarations: str, help: str, **settings: Any) -> Callable[[_Command], _Command]:
    """An option of some targets, which its help names."""
    name = declarations[-1].removeprefix("--").replace("-", "_")
    targets = ", ".join(target.name for target in TARGETS.values() if name in target.options)
    return click.option(*declarations, help=f"{targets}: {help}", **settings)


@click.command(short_help="Convert a dataset for DuckDB, Perfetto or a network simulator")
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
@_option("--run", shell_complete=complete_runs, help="the run, where there are several.")
@_option("--window-ms", type=float, help="window of the flows' throughput, ms. Default: at most 5,000 windows.")
@_option(
    "--from-ms", type=float, default=0.0, show_default=False, help="start of the excerpt, ms since the run's start."
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
@_option(
    "--transfers",
    type=click.Choice(["messages", "bursts"]),
    help="what a transfer is: what a sender wrote at once (table messages), or a burst of base windows. Default: "
    "messages, where the run has them and --bytes is payload.",
)
@_option("--gap-ms", type=float, default=5.0, help="shortest silence of a flow that ends a burst, ms.")
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
@_option(
    "--collectives",
    is_flag=True,
    help="the collectives of a job that the traffic shows (query collectives), in place of transfers.",
)
@_option("--job", type=int, metavar="N", help="with --collectives, the job, where there are several (query jobs).")
@_option(
    "--profiler",
    metavar="NAME",
    help="the collectives that this profiler recorded (query profiler_collectives), in place of transfers.",
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
        say(line)
    say(f"wrote {written}" + (f"; {chosen.next_step}" if chosen.next_step else ""))


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


@click.command(short_help="Write the packets of a flow, a pair or a step from the captures")
@dataset_argument
@click.option("--run", shell_complete=complete_runs, help="The run, where there are several.")
@click.option(
    "--flow", "flows", type=int, multiple=True, metavar="F", help="flow_id in the table flows; may be repeated."
)
@click.option("--pair", metavar="A,B", help="Two hosts, by address, label or name in charts (W1); both directions.")
@click.option(
    "--step",
    type=int,
    metavar="N",
    help="Training step of the worker at whose host a packet was captured (step_flows).",
)
@infer_steps_option
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="FILE.pcap (nanoseconds), FILE.pcapng (an interface a capture and link type), or - for a pcapng on stdout.",
)
@click.option(
    "--captures",
    multiple=True,
    metavar="SOURCE",
    help="Files and folders where the captures are now; may be repeated. Default: where they were ingested from.",
)
def packets(
    dataset: str | Path, run: str | None, flows: tuple[int, ...], pair: str | None, step: int | None,
    infer_steps: bool, out: Path, captures: tuple[str, ...],
) -> None:  # fmt: skip
    """Write the packets of a flow, a pair of hosts or a step from the original captures.

    Of --flow, --pair and --step, several select what they have in common. The records are those that the tables count:
    of a packet captured at two hosts the sender's copy, later fragments with their flow. They keep time, bytes and
    original length, and are in the order of time. The captures must be unchanged: the same size, and the same time or
    hash. Standard output has a display filter of Wireshark for the same packets (with --out -: standard error). Exit 1
    where the records are not as many as the tables count.
    """
    from ddnn_traces.cli import lines
    from ddnn_traces.export import packets as cutting

    selection = cutting.Selection(flows, () if pair is None else [name.strip() for name in pair.split(",")], step)
    messages = lines.messages()
    with open_dataset(dataset, (run,) if run else (), infer_steps=infer_steps, tells_steps=False) as opened:
        cut = cutting.write(opened, out, selection, captures, messages, sys.stdout.buffer)
        notes = opened.step_notes  # which an error has already
    for line in cutting.lines(cut, out, selection):
        say(line)
    click.echo(cut.display_filter, err=out == cutting.STDOUT)
    say_notes(notes)
    if not cut.agrees:
        packets_there, wire_bytes = cut.expected
        messages.warn_partial(
            f"{out}: has {cut.records:,} records of {cut.wire_bytes:,} wire bytes, but the tables count "
            f"{packets_there:,} packets of {wire_bytes:,}: another version of this program, or --engine pyshark, read "
            "the captures; ingest the run again with --force"
        )
        raise click.exceptions.Exit(1)


@click.command(short_help="Copy a dataset as it is, to an object store or back")
@click.argument("source", metavar="FROM", type=DatasetPath())
@click.argument("target", metavar="TO", type=DatasetPath())
@runs_option
def copy(source: str | Path, target: str | Path, runs: tuple[str, ...]) -> None:
    """Copy a dataset into another one: from a folder to an object store (s3://, gs://, az://), or back.

    The files of the tables stay the same bytes, and are compared with their checksums. A run of the same name in TO is
    replaced; its other runs stay. Readers of TO see all of it at once. Needs the extra cluster.
    """
    from ddnn_traces.cli import lines
    from ddnn_traces.store import copying, object_store

    done = copying.copy(source, target, runs or None, lines.messages().info)
    replaced = f", {done.replaced} of them in place of an older one of that name" if done.replaced else ""
    say(f"{object_store.shown(str(target))}: {counted(len(done.runs), 'run')} copied{replaced}, {done.bytes:,} bytes")


@click.command(short_help="Remove old files from a dataset on an object store")
@click.argument("url")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    default=7,
    help="Keep what was in use or written within so many days. 0: only while nothing writes or reads the dataset.",
)
@click.option("--dry-run", is_flag=True, help="List the files and remove none.")
def vacuum(url: str, older_than: float, dry_run: bool) -> None:
    """Remove from a dataset on an object store what no reader needs: files of replaced runs, uploads that were never
    committed, old versions of inputs.json and the like.

    The files of the last commit stay, and those of commits that were the last one within the days. Needs the extra
    cluster.
    """
    from ddnn_traces.store import object_store
    from ddnn_traces.store.delta import commit as commits

    strays = commits.vacuum(url, older_than, dry_run)
    if dry_run:
        for stray in strays:
            click.echo(f"{stray.bytes:>14,}  {stray.path}")
    done = "would be removed" if dry_run else "removed"
    size = sum(stray.bytes for stray in strays)
    say(f"{object_store.shown(url)}: {counted(len(strays), 'file')} {done}, {size:,} bytes")
