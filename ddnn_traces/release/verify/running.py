"""All checks in order, each to its end: a failure of one does not prevent the others."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ddnn_traces.errors import DdnnTracesError, MissingExtra, UsageError, require
from ddnn_traces.jobs import available_cpus
from ddnn_traces.release.verify import (
    agreement,
    capture_checks,
    database_checks,
    description_checks,
    explorer_checks,
    file_checks,
    sandbox,
    table_checks,
)
from ddnn_traces.release.verify.examined import (
    FAILED,
    Examined,
    Finding,
    Result,
    WrongError,
    failed,
    not_checked,
    shown,
)
from ddnn_traces.store import layout
from ddnn_traces.store.places import place, zipped

#: Name and function of each check, in order: those that others rely on come first.
CHECKS: tuple[tuple[str, Callable[[Examined], Iterator[Finding]]], ...] = (
    ("links and names", file_checks.check_places),
    ("zip file", file_checks.check_archive),
    ("checksums", file_checks.check_sums),
    ("bag", file_checks.check_bag),
    ("release.json", file_checks.check_release_json),
    ("listed files", file_checks.check_listed),
    ("sizes", table_checks.check_sizes),
    ("columns", table_checks.check_columns),
    ("rows and order", table_checks.check_rows),
    ("encoding", table_checks.check_encoding),
    ("runs", table_checks.check_runs),
    ("anonymisation", table_checks.check_anonymisation),
    ("data", table_checks.check_data),
    ("captures", capture_checks.check_captures),
    ("samples", table_checks.check_samples),
    ("version", file_checks.check_version),
    ("database", database_checks.check_database),
    ("explorer", explorer_checks.check_explorer),
    ("croissant", description_checks.check_croissant),
    ("data package", description_checks.check_data_package),
    ("RO-Crate", description_checks.check_ro_crate),
    ("DataCite", description_checks.check_datacite),
    ("citation", description_checks.check_citation),
    ("card", description_checks.check_card),
    ("licence", description_checks.check_licence),
    ("datasheet", description_checks.check_datasheet),
    ("dictionary", description_checks.check_dictionary),
    ("figure", description_checks.check_figure),
    ("workloads", description_checks.check_workloads),
    ("claims", description_checks.check_claims),
    ("artifact", description_checks.check_artifact),
    ("agreement", agreement.check_agreement),
)

#: Checks that work without a sound release.json.
_FIRST = ("links and names", "zip file", "checksums", "bag", "release.json")

#: Checks that change what the others do.
_RELIED_ON = ("links and names", "release.json", "sizes")

#: Checks that read rows of the tables, or let others do so.
_READ_ROWS = (
    "columns",
    "rows and order",
    "encoding",
    "runs",
    "anonymisation",
    "data",
    "captures",
    "samples",
    "database",
    "explorer",
    "croissant",
    "data package",
)

#: Required before the first check, since some take minutes.
_LIBRARIES = ("mlcroissant", "frictionless", "rocrate_validator", "datacite", "bagit", "yaml")

#: Lines of one check in the output.
_MOST_LINES = 100


def verify(
    release: str | Path,
    jobs: int | None = None,
    report: Callable[[str], None] = lambda _: None,
    fast: bool = False,
    maker: str = "",
) -> list[Result]:
    """The lines of every check of a release: a folder, a bag or a zip file. jobs: threads; None: one for each CPU.

    fast: ingest the captures of some runs only, chosen at random. maker: as in Examined.

    report: called with the name of each check as it begins. Nothing is fetched. Raises UsageError where
    there is no release, MissingExtra where a validator is not installed, ReleaseError for a zip file that cannot be
    unpacked.
    """
    if place.is_url(release):
        raise UsageError(f"{release}: verify reads files of this machine only; download the release first")
    path = Path(release)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ddnn-traces-")))
        folder = scratch / "release"  # a plain name: libraries differ in how they read ? and % and spaces in a path
        is_packed = place.is_zip(path)
        if is_packed:
            folder.mkdir()
            zipped.unpack(path, folder, whole=True)
        elif path.is_dir():
            folder.symlink_to(path.resolve(), target_is_directory=True)
        _refuse_others(path, folder)
        require(_LIBRARIES)
        archive = path if is_packed else None
        examined = Examined(
            folder, scratch, jobs or available_cpus(), archive=archive, fast=fast, maker=maker, report=report
        )
        found = sandbox.results(examined, [name for name, _ in CHECKS], sandbox.limits(folder))
        return [replace(result, detail=_public(result.detail, folder, path)) for result in found]


def _public(detail: str, folder: Path, path: Path) -> str:
    """A detail without the paths of temporary files: those of the release as it was given."""
    scratch = folder.parent
    return detail.replace(f"{scratch / 'trial'}/", "").replace(str(folder), str(path)).replace(f"{scratch}/", "")


def _refuse_others(path: Path, folder: Path) -> None:
    content = layout.content(folder)
    if not folder.is_dir():
        raise UsageError(f"{path}: no such release; check the path, or make one with 'ddnn-traces publish'")
    if not any((content / name).is_file() for name in (layout.RELEASE, layout.CHECKSUMS)):
        what = "a dataset, and no release" if (content / layout.MARKER).is_file() else "no release"
        raise UsageError(f"{path}: {what} (no {layout.RELEASE} in it); make one with 'ddnn-traces publish'")


def results(
    examined: Examined,
    report: Callable[[str], None] = lambda _: None,
    only: Container[str] | None = None,
    done: Container[str] = (),
) -> Iterator[Result]:
    """The lines of the checks. only: names of the checks to make, those that they rely on included; None: all.

    done: checks that were made before, by another process.
    """
    for name, check in CHECKS:
        if name in done:
            if name in _RELIED_ON:
                list(_guarded(name, check, examined))
            continue
        if only is not None and name not in only:
            continue
        report(name)
        if name != _FIRST[0] and not examined.safe:
            found = [not_checked("release", "a link or odd name is in the release, see above")]
        else:
            found = list(_guarded(name, check, examined))
        if more := found[_MOST_LINES:]:
            wrong = sum(finding.status == FAILED for finding in more)
            detail = f"{len(more):,} more lines, {wrong:,} of them failures"
            found[_MOST_LINES:] = [Finding("more", FAILED if wrong else more[0].status, detail)]
        yield from (Result(**vars(finding), check=name) for finding in found)


def _guarded(name: str, check: Callable[[Examined], Iterator[Finding]], examined: Examined) -> Iterator[Finding]:
    """The findings of a check, and its failure where it cannot continue."""
    if examined.declared is None and name not in _FIRST:
        yield not_checked("release", f"{layout.RELEASE} is not sound, so that the contents to expect are unknown")
        return
    if examined.implausible and name in _READ_ROWS:
        yield not_checked("release", "a file claims more than is plausible, and was not read: see sizes")
        return
    try:
        yield from check(examined)
    except MissingExtra:
        raise
    except WrongError as wrong:
        yield failed("release", str(wrong))
    except Exception as error:  # an untrusted file can make a library raise anything: the other checks continue
        what = shown(error) or type(error).__name__
        reason = what if isinstance(error, _expected()) else f"unexpected {type(error).__name__}: {what}"
        yield failed("release", f"could not be checked ({reason}); get the release again")


def _expected() -> tuple[type[Exception], ...]:
    """The errors of reading a damaged file; another one is reported as unexpected, so that tests find it."""
    import duckdb
    import pyarrow as pa

    return (DdnnTracesError, OSError, RecursionError, MemoryError, ValueError, duckdb.Error, pa.ArrowException)


def main() -> None:
    """The process that apart.results() starts: makes the checks after those that are done, and writes what it finds.

    Each finding is a line of JSON.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # after a Ctrl-C the caller ends this process
    given = json.loads(sys.argv[2])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no finding

    def send(**message: Any) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    examined = Examined(
        Path(given["folder"]),
        Path(given["scratch"]),
        given["jobs"],
        archive=Path(given["archive"]) if given["archive"] else None,
        fast=given["fast"],
        maker=given["maker"],
        report=lambda line: send(say=line),
    )
    for result in results(examined, lambda name: send(check=name), done=given["done"]):
        send(result=asdict(result))
    send(end=True)
