"""Commands for releases: publish, verify, claims, push."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ddnn_traces.cli.arguments import DatasetPath, RowsOutput, complete_runs, prints_rows
from ddnn_traces.cli.lines import say
from ddnn_traces.errors import DraftError, UsageError
from ddnn_traces.text import counted

_path = click.Path(path_type=Path)
_originals = click.Choice(["kept", "withheld"])


@click.command(short_help="Make a release of a dataset: anonymised, described, checked")
@click.argument("dataset", required=False)
@click.option("--out", type=_path, metavar="RELEASE", help="Folder of the release: new.")
@click.option("--template", is_flag=True, help="Print a release.toml to fill in, and do nothing else.")
@click.option(
    "--about", type=_path, metavar="FILE", help="release.toml: title, licence, creators and more; options win."
)
@click.option("--title", help="Title of the release.")
@click.option("--description", help="A paragraph on what it is.")
@click.option("--licence", metavar="SPDX", help="What others may do with it, as CC-BY-4.0, CC0-1.0, ODbL-1.0.")
@click.option("--licence-file", type=_path, metavar="FILE", help="Text of another licence.")
@click.option("--creator", "creators", multiple=True, metavar='"NAME <ORCID>"', help="Who made it; may be repeated.")
@click.option("--version", metavar="X.Y.Z", help="Default: 1.0.0, or what follows from the changes since --previous.")
@click.option("--date", metavar="YYYY-MM-DD", help="Of publication. Default: SOURCE_DATE_EPOCH, else today.")
@click.option(
    "--table", "tables", multiple=True, help="Only this table, and runs; may be repeated. Default: all that have rows."
)
@click.option("--run", "runs", multiple=True, shell_complete=complete_runs, help="Only this run; may be repeated.")
@click.option("--window-ms", type=float, help="Sum flow_windows to windows of so many ms, a multiple of theirs.")
@click.option(
    "--profile",
    type=click.Choice(["open", "careful", "strict"]),
    default="careful",
    help="What a release keeps; options after it win. careful withholds hashes and sizes of the original captures, "
    "estimates of clocks and unknown words; open keeps them; strict is careful with ports classed.",
)
@click.option(
    "--addresses",
    type=click.Choice(["roles", "crypto-pan", "kept"]),
    help="roles (default): worker-1 instead of an address. crypto-pan: other addresses; those with a common prefix "
    "still have one as long.",
)
@click.option(
    "--ports", type=click.Choice(["kept", "permuted", "classed"]), help="Port numbers. Default: kept; strict: classed."
)
@click.option(
    "--times",
    type=click.Choice(["shifted", "kept"]),
    help="shifted (default): all by one secret offset, intervals unchanged.",
)
@click.option("--hashes", type=_originals, help="SHA-256 or BLAKE3 of the original captures. Default: withheld.")
@click.option("--sizes", type=_originals, help="Sizes of the original capture files. Default: withheld.")
@click.option("--clocks", type=_originals, help="Estimated offsets and drift of clocks. Default: withheld.")
@click.option(
    "--words",
    type=click.Choice(["known", "kept"]),
    help="Names of runs, models and layers. known (default): a tag stands for each word that is in no vocabulary.",
)
@click.option(
    "--allow", multiple=True, metavar="WORD", help="Publish this word though it is in no vocabulary; may be repeated."
)
@click.option(
    "--captures",
    multiple=True,
    metavar="SOURCE",
    help="Also release the capture files, cut down to headers: the folders and files they were ingested from.",
)
@click.option(
    "--claims",
    type=_path,
    metavar="FILE",
    help="Claims on the data, each with the command that computes it (docs/claims.md): all must hold.",
)
@click.option(
    "--split",
    "splits",
    multiple=True,
    metavar="NAME=RUN",
    help="Split that a run belongs to, as test=RUN; may be repeated. The other runs are train.",
)
@click.option("--allow-flagged", multiple=True, metavar="RUN", help="Keep a run that fails data checks, with the flag.")
@click.option(
    "--key",
    type=_path,
    metavar="FILE",
    help="Secret of the anonymisation: read, or made there. Default: RELEASE.key next to the release.",
)
@click.option(
    "--renamed",
    type=_path,
    metavar="FILE",
    help="Write the old and the new names of renamed runs, hosts and addresses there (CSV), readable by you alone: "
    "they undo the anonymisation.",
)
@click.option("--bagit", is_flag=True, help="Lay it out as a BagIt bag (RFC 8493).")
@click.option(
    "--previous", type=_path, metavar="RELEASE", help="The previous release: for the changelog and the version."
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Threads. Default: the CPUs of this process.")
def publish(dataset: str | None, out: Path | None, template: bool, **options: Any) -> None:
    """Turn a dataset into an open release: anonymised, described, checked.

    A release is a folder with the tables as Parquet, descriptions that archives and search engines read, checksums and
    a changelog. It is also a dataset: every command takes it. Title, licence and creator are needed; on a terminal
    publish asks for them. Nothing is written where data checks fail, or where the release would hold an address, a name
    or a path of the dataset. The same dataset, options and key make the same bytes.
    """
    if template:
        from ddnn_traces.release import request

        click.echo(request.TEMPLATE, nl=False)
        return
    if dataset is None or out is None:
        raise UsageError(f"publish needs {'a DATASET' if dataset is None else '--out RELEASE'}; see publish --help")
    from ddnn_traces.cli import lines
    from ddnn_traces.release import publish as release

    ask = _ask if _is_terminal() else None
    done = release.publish(dataset, out, release.PublishOptions(**options), lines.messages(unit="rows"), ask)
    say(done.message)
    if done.key_made:
        say(
            f"{done.key}: the key of the anonymisation. Keep it secret: its holder can undo the anonymisation. Keep "
            "it: the next release needs it for the same labels"
        )


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask(question: str) -> str:
    answer: str = click.prompt(question, err=True, default="", show_default=False)
    return answer


@click.command(short_help="Check a release, also of others: checksums, descriptions, tables")
@click.argument("release", type=DatasetPath())
@prints_rows()
@click.option("--jobs", type=click.IntRange(min=1), help="Threads. Default: as many as there are CPUs.")
@click.option("--fast", is_flag=True, help="Ingest the captures of every tenth run only, at least 3, chosen at random.")
@click.option(
    "--attack",
    is_flag=True,
    help="For its publisher: run attacks on the release instead, and print what they recover. Needs --original.",
)
@click.option("--original", type=DatasetPath(), metavar="DATASET", help="The dataset that it was published from.")
@click.option("--key", type=_path, metavar="FILE", help="The key of the release. Default: the one next to it.")
def verify(
    release: str | Path,
    output: RowsOutput,
    jobs: int | None,
    fast: bool,
    attack: bool,
    original: str | Path | None,
    key: Path | None,
) -> None:
    """Prove a release, also a copy from others: checksums, every description by its validator and against the tables,
    ledger and conservation, captures by an ingest, versions. Nothing is fetched. Exit 1 if a check failed.

    RELEASE is a folder, a BagIt bag or a zip file; docs/verify.md lists the checks. Needs the extra publish.
    """
    import ddnn_traces
    from ddnn_traces.cli import lines

    if attack != (original is not None) or (key and not attack):
        raise UsageError(
            "--attack needs --original DATASET, and its key: what an attack recovers is scored against the real "
            "values, which only the publisher has; the release's own table is in DATASHEET.md"
        )
    if original is not None:
        from ddnn_traces.release import attacks

        output.emit(attacks.of_release(Path(release), original, key).to_arrow())
        return
    rows = ddnn_traces.verify(release, jobs, lines.messages().info, fast).to_arrow()
    found = rows["status"].to_pylist()
    shown = ("passed", "not checked", "flagged", "failed")  # what asks for something stands last, above the sum
    output.emit(rows.take(sorted(range(len(found)), key=lambda row: shown.index(found[row]))))
    counts = ((found.count(status), status) for status in ("passed", "failed", "flagged", "not checked"))
    say(f"{release}: " + ", ".join(f"{n} {status}" for n, status in counts if n))
    if "failed" in found:
        raise click.exceptions.Exit(1)


@click.command(short_help="Compute the claims of a release again, and say which hold")
@click.argument("release", type=DatasetPath())
@click.option(
    "--claims",
    "file",
    type=_path,
    metavar="FILE",
    help="Claims in place of those of the release; RELEASE may be a dataset then.",
)
@prints_rows()
def claims(release: str | Path, file: Path | None, output: RowsOutput) -> None:
    """Compute each claim of claims.csv from the tables of the release, and compare it with what is expected. Exit 1 if
    one does not hold or could not be computed.

    RELEASE is a folder, a BagIt bag or a zip file, also of others: their commands are only questions to its tables
    (docs/claims.md). Nothing is fetched.
    """
    import time

    from ddnn_traces.cli import lines
    from ddnn_traces.release import claims as computing

    began = time.monotonic()
    with computing.folder_of(release) as folder:
        known = computing.of_release(folder) if file is None else computing.read(file)
        found = computing.evaluate(folder, known, lines.messages())
    output.emit(computing.table(found))
    say(f"{computing.summary(found)} ({time.monotonic() - began:.0f} s)")
    if any(one.verdict != computing.HOLDS for one in found):
        raise click.exceptions.Exit(1)


@click.command(short_help="Upload a release to a store, Hugging Face or Zenodo")
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
@click.option(
    "--overwrite-draft",
    is_flag=True,
    help="zenodo: replace the content of a draft of this version by this release. Default: ask, or refuse.",
)
@click.option("--private", is_flag=True, help="hf: make a new repository private.")
def push(release: Path, to: str, dry_run: bool, **options: Any) -> None:
    """Upload a release: proven by its checksums first, never over another version, continuing after an interruption.

    Credentials come from where each service's own programs look for them (docs/push.md), and are never shown.
    """
    from ddnn_traces.cli import lines
    from ddnn_traces.release import push as pushing

    chosen = pushing.PushOptions(**options)
    if dry_run:
        found = pushing.parcels(release, to, chosen)
        for parcel in found:
            click.echo(f"{parcel.bytes:>14,}  {parcel.name}  ->  {parcel.address}")
        say(f"would send {counted(len(found), 'file')}, {sum(parcel.bytes for parcel in found):,} bytes")
        return
    try:
        outcome = pushing.push(release, to, chosen, lines.messages())
    except DraftError as error:
        if not _is_terminal() or not click.confirm(f"{error}\nOverwrite the draft?", err=True):
            raise
        outcome = pushing.push(release, to, replace(chosen, overwrite_draft=True), lines.messages())
    for note in outcome.notes:
        say(note)
    say(outcome.text)
