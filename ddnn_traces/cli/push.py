"""Upload of a release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("release", type=click.Path(path_type=Path))
@click.option(
    "--to",
    required=True,
    metavar="TARGET",
    help="A folder or s3://BUCKET/PREFIX, where the release goes to TARGET/VERSION; hf://datasets/OWNER/NAME, where "
    "the version is the tag vVERSION; zenodo or zenodo-sandbox, where it is a deposit.",
)
@click.option("--dry-run", is_flag=True, help="List the files and where they would go; no network, no credentials.")
@click.option(
    "--endpoint-url", metavar="URL", help="Server other than the usual one: of an S3-compatible store, a Hub, a Zenodo."
)
@click.option(
    "--record", type=click.IntRange(min=1), metavar="ID", help="zenodo: the record that this is a new version of."
)
@click.option(
    "--publish-deposit", is_flag=True, help="zenodo: make the deposit public, which cannot be undone. Default: a draft."
)
@click.option("--private", is_flag=True, help="hf: make a new repository private.")
def push(release: Path, to: str, dry_run: bool, **options: Any) -> None:
    """Upload a release: proven by its checksums first, never over another version, continuing after an interruption.

    Credentials come from where each service's own programs look for them (docs/push.md), and are never shown.
    """
    from ddnn_traces.cli import terminal
    from ddnn_traces.release import push as pushing

    chosen = pushing.PushOptions(**options)
    if dry_run:
        found = pushing.parcels(release, to, chosen)
        for parcel in found:
            click.echo(f"{parcel.bytes:>14,}  {parcel.name}  ->  {parcel.address}")
        click.echo(f"would send {len(found)} files, {sum(parcel.bytes for parcel in found):,} bytes", err=True)
        return
    outcome = pushing.push(release, to, chosen, terminal.messages())
    for note in outcome.notes:
        click.echo(note, err=True)
    click.echo(outcome.text, err=True)
