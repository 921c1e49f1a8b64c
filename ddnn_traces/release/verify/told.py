"""release.json: as its schema says, of a version this program reads, and of these files."""

from __future__ import annotations

from collections.abc import Iterator

from ddnn_traces.errors import UsageError
from ddnn_traces.query import views
from ddnn_traces.release import facts, versions
from ddnn_traces.release.verify import untrusted
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, PASSED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout, schema
from ddnn_traces.store.marker import MARKER, parse
from ddnn_traces.store.places.place import is_safe, run_of
from ddnn_traces.text import counted

TOLD = "release.json"
LISTED = "listed files"

#: What every release has beside the data files that release.json lists.
_OTHERS = {layout.RELEASE, layout.CHANGELOG, layout.CHECKSUMS, MARKER, views.FILE, *layout.DESCRIPTIONS}


def check_told(examined: Examined) -> Iterator[Result]:
    """release.json and dataset.json can be read by this program."""
    document = examined.document(layout.RELEASE)
    for name, reads in (("format_version", facts.FORMAT_VERSION), ("schema_version", schema.SCHEMA_VERSION)):
        version = document.get(name)
        if isinstance(version, int) and version > reads:
            raise WrongError(f"{name} {version} is newer than this program, which reads {reads}; update ddnn_traces")
        if version != reads:
            raise WrongError(
                f"{name} is {shown(version)}, this program reads {reads}; use the ddnn_traces it was made by"
            )
    try:
        release = versions.read(examined.folder)
    except UsageError as error:
        raise WrongError(str(error)) from None
    tables = [table.name for table in release.tables]
    if tables != [name for name in schema.TABLES if name in tables]:
        raise WrongError(f"its tables ({shown(', '.join(tables))}) are not tables of ddnn_traces, each once")
    for path in _paths(release):
        if not is_safe(path):
            raise WrongError(f"{shown(path)} leaves the release's folder; ask whoever published it")
    for table in release.tables:
        for file in table.files:
            if run_of(file.path) != (table.name, file.run_id):
                raise WrongError(f"{shown(file.path)} is no place for rows of run {shown(file.run_id)} in {table.name}")
    marked = parse(untrusted.text(examined.content / MARKER).encode(), MARKER)
    examined.release = release
    if list(marked) != tables:
        yield Result(TOLD, MARKER, FAILED, f"names other tables than {layout.RELEASE}; get it again")
    else:
        yield Result(
            TOLD,
            layout.RELEASE,
            PASSED,
            f"{counted(len(release.runs), 'run')}, {counted(len(tables), 'table')}, version {release.about.version}",
        )


def check_listed(examined: Examined) -> Iterator[Result]:
    """The data files that release.json lists are those that are there, with their lengths and SHA-256.

    Nothing was added: beside them a release has files of known names, and no empty folder.
    """
    known, wrong = examined.known_files(), 0
    there = {path for path, _ in untrusted.files(examined.content)}
    for path in sorted((there - _OTHERS) | known.keys()):
        file = known.get(path)
        if file is None:
            detail = f"was added: it is not in {layout.RELEASE}; remove it, or ask whoever published it"
        elif path not in there:
            detail = f"is in {layout.RELEASE} and missing here; get it again from where the release is from"
        elif (size := (examined.content / path).stat().st_size) != file.bytes:
            detail = f"has {size:,} bytes, {layout.RELEASE} says {file.bytes:,}; get both again"
        elif examined.sums.get(path, file.sha256) != file.sha256:
            detail = f"has another SHA-256 than {layout.RELEASE} says; get both again"
        else:
            continue
        wrong += 1
        yield Result(LISTED, shown(path), FAILED, detail)
    for path in untrusted.empty_folders(examined.folder):
        wrong += 1
        yield Result(LISTED, shown(path), FAILED, "was added: an empty folder; remove it")
    if not wrong:
        yield Result(LISTED, "data files", PASSED, f"{counted(len(known), 'file')} as {layout.RELEASE} lists them")


def _paths(release: facts.Release) -> list[str]:
    return [file.path for table in release.tables for file in table.files] + [file.path for file in release.captures]
