"""Proof of a release."""

from __future__ import annotations

from pathlib import Path

import click

from ddnn_traces.cli.shared import DatasetPath, emit, format_option, out_option


@click.command()
@click.argument("release", type=DatasetPath())
@format_option
@out_option
@click.option("--jobs", type=click.IntRange(min=1), help="Threads. Default: as many as there are CPUs.")
def verify(release: str | Path, output_format: str, out: Path | None, jobs: int | None) -> None:
    """Prove a release, also a copy from others: checksums, every description by its validator and against the tables,
    ledger and conservation, versions. Nothing is fetched. Exit 1 if a check failed.

    RELEASE is a folder, a BagIt bag or a zip file; docs/verify.md lists the checks. Needs the extra publish.
    """
    import ddnn_traces
    from ddnn_traces.cli import terminal

    rows = ddnn_traces.verify(release, jobs, terminal.messages().info).to_arrow()
    emit(rows, output_format, out, 0)
    counts = {
        status: rows["status"].to_pylist().count(status) for status in ("passed", "failed", "flagged", "not checked")
    }
    click.echo(f"{release}: " + ", ".join(f"{n} {status}" for status, n in counts.items() if n), err=True)
    if counts["failed"]:
        raise click.exceptions.Exit(1)
