"""All checks in order, each to its end: what one finds wrong does not keep the others from looking."""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from collections.abc import Callable, Container, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ddnn_traces import extras
from ddnn_traces.errors import DdnnTracesError, MissingExtra, UsageError
from ddnn_traces.ingestors.schedule.threads import available_cpus
from ddnn_traces.release.verify import (
    agreement,
    croissant,
    data,
    data_package,
    database,
    files,
    ro_crate,
    tables,
    texts,
    told,
    versions,
)
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, NOT_CHECKED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout
from ddnn_traces.store.marker import MARKER
from ddnn_traces.store.places import zipped
from ddnn_traces.store.places.place import is_url

#: Name of each check and what it does, in order: what others rely on comes first.
CHECKS: tuple[tuple[str, Callable[[Examined], Iterator[Result]]], ...] = (
    (files.PLACES, files.check_places),
    (files.SUMS, files.check_sums),
    (files.BAG, files.check_bag),
    (told.TOLD, told.check_told),
    (told.LISTED, told.check_listed),
    (tables.COLUMNS, tables.check_columns),
    (tables.ROWS, tables.check_rows),
    (tables.ENCODING, tables.check_encoding),
    (tables.RUNS, tables.check_runs),
    (data.DATA, data.check_data),
    (versions.VERSIONS, versions.check_versions),
    (database.DATABASE, database.check_database),
    (croissant.CROISSANT, croissant.check_croissant),
    (data_package.DATA_PACKAGE, data_package.check_data_package),
    (ro_crate.RO_CRATE, ro_crate.check_ro_crate),
    (texts.DATACITE, texts.check_datacite),
    (texts.CITATION, texts.check_citation),
    (texts.CARD, texts.check_card),
    (texts.LICENCE, texts.check_licence),
    (texts.DATASHEET, texts.check_datasheet),
    (agreement.AGREEMENT, agreement.check_agreement),
)

#: Looked for before the first check, since some take minutes.
_LIBRARIES = ("mlcroissant", "frictionless", "rocrate_validator", "datacite", "bagit", "yaml")

#: Lines of one check that are told.
_MOST_LINES = 100


def verify(release: str | Path, jobs: int | None = None, say: Callable[[str], None] = lambda _: None) -> list[Result]:
    """What every check finds of a release: a folder, a bag or a zip file. jobs: threads; None: one a CPU.

    say: is told each check as it begins. Nothing is fetched. Raises UsageError where there is no release, MissingExtra
    where a validator is not installed, ReleaseError for a zip file that cannot be unpacked.
    """
    if is_url(release):
        raise UsageError(f"{release}: verify reads files of this machine only; download the release first")
    path = Path(release)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ddnn-traces-")))
        folder = scratch / "release"  # a plain name: libraries read ? and % and spaces in a path in ways of their own
        if path.is_file() and zipfile.is_zipfile(path):
            folder.mkdir()
            zipped.unpack(path, folder, whole=True)
        elif path.is_dir():
            folder.symlink_to(path.resolve(), target_is_directory=True)
        _refuse_none(path, folder)
        for library in _LIBRARIES:
            if importlib.util.find_spec(library) is None:
                extras.load(library)
        found = results(Examined(folder, scratch, jobs or available_cpus()), say)
        return [replace(result, detail=_public(result.detail, folder, path)) for result in found]


def _public(detail: str, folder: Path, path: Path) -> str:
    """A detail without the paths of temporary files: those of the release as it was given."""
    scratch = folder.parent
    return detail.replace(f"{scratch / 'trial'}/", "").replace(str(folder), str(path)).replace(f"{scratch}/", "")


def _refuse_none(path: Path, folder: Path) -> None:
    content = layout.content(folder)
    if not folder.is_dir():
        raise UsageError(f"{path}: no such release; check the path, or make one with 'ddnn-traces publish'")
    if not any((content / name).is_file() for name in (layout.RELEASE, layout.CHECKSUMS)):
        what = "a dataset, and no release" if (content / MARKER).is_file() else "no release"
        raise UsageError(f"{path}: {what} (no {layout.RELEASE} in it); make one with 'ddnn-traces publish'")


def results(
    examined: Examined, say: Callable[[str], None] = lambda _: None, only: Container[str] | None = None
) -> Iterator[Result]:
    """What the checks find. only: names of those to make, of which files' and release.json's come first; None: all."""
    for name, check in CHECKS:
        if only is not None and name not in only:
            continue
        say(name)
        if name != files.PLACES and not examined.safe:
            yield Result(name, "release", NOT_CHECKED, "a link or odd name is in the release, see above")
            continue
        found = list(_guarded(name, check, examined))
        yield from found[:_MOST_LINES]
        if len(found) > _MOST_LINES:
            wrong = sum(result.status == FAILED for result in found[_MOST_LINES:])
            status = FAILED if wrong else found[_MOST_LINES].status
            yield Result(name, "more", status, f"{len(found) - _MOST_LINES:,} more lines, {wrong:,} of them failures")


def _guarded(name: str, check: Callable[[Examined], Iterator[Result]], examined: Examined) -> Iterator[Result]:
    """What a check finds, and what kept it from going on."""
    if examined.release is None and name not in (files.PLACES, files.SUMS, files.BAG, told.TOLD):
        yield Result(name, "release", NOT_CHECKED, f"{layout.RELEASE} is not sound, and says what should be here")
        return
    try:
        yield from check(examined)
    except MissingExtra:
        raise
    except WrongError as wrong:
        yield Result(name, "release", FAILED, str(wrong))
    except Exception as error:  # whatever a library stumbles over in what others wrote: the other checks go on
        known = isinstance(error, _expected())
        what = shown(error) or type(error).__name__
        said = what if known else f"unexpected {type(error).__name__}: {what}"
        yield Result(name, "release", FAILED, f"could not be checked ({said}); get the release again")


def _expected() -> tuple[type[Exception], ...]:
    """What reading a damaged file raises; anything else is told as unexpected, so that tests see it."""
    import duckdb
    import pyarrow as pa

    return (DdnnTracesError, OSError, RecursionError, MemoryError, ValueError, duckdb.Error, pa.ArrowException)
