"""Commands for datasets on object stores: copy, vacuum."""

from __future__ import annotations

from pathlib import Path

import click

from ddnn_traces.cli import completion
from ddnn_traces.cli.lines import say
from ddnn_traces.cli.shared import DatasetPath
from ddnn_traces.text import counted


@click.command()
@click.argument("source", metavar="FROM", type=DatasetPath())
@click.argument("target", metavar="TO", type=DatasetPath())
@click.option(
    "--run",
    "runs",
    multiple=True,
    shell_complete=completion.run_ids,
    help="Only this run, or those that a pattern such as tf-* matches; may be repeated.",
)
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


@click.command()
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
    from ddnn_traces.store.delta import vacuum as vacuums

    strays = vacuums.vacuum(url, older_than, dry_run)
    if dry_run:
        for stray in strays:
            click.echo(f"{stray.bytes:>14,}  {stray.path}")
    done = "would be removed" if dry_run else "removed"
    size = sum(stray.bytes for stray in strays)
    say(f"{object_store.shown(url)}: {counted(len(strays), 'file')} {done}, {size:,} bytes")
