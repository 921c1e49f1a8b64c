"""A dataset into a release: checks, tables, captures, descriptions, checksums, leak scan.

The release is made in a hidden folder next to its place and put there by one rename, or not at all.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddnn_traces.errors import LeakError, PublishError, StorageError, UsageError
from ddnn_traces.ingestors.schedule.threads import available_cpus
from ddnn_traces.messages import Messages
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import facts, packaging, provenance, request, tables, versions
from ddnn_traces.release.anonymise import description
from ddnn_traces.release.anonymise import key as keys
from ddnn_traces.release.anonymise.mapping import Anonymiser
from ddnn_traces.release.anonymise.mapping import Options as MappingOptions
from ddnn_traces.store import layout, schema
from ddnn_traces.store.layout import write_marker
from ddnn_traces.store.whole_files import NO_SPACE, remove_left_behind, sha256_of, whole_folder
from ddnn_traces.text import counted, nearest, sql_literal

#: Memory of DuckDB, for checks and for reading names; the tables take about as much again.
_MEMORY = "1GB"
#: Failed runs, and causes of leaks, that a message lists at most.
_MOST_LISTED = 20


@dataclass(frozen=True)
class PublishOptions:
    """Options of `ddnn-traces publish`; None and () as without the option. See docs/releases.md."""

    about: Path | None = None
    title: str | None = None
    description: str | None = None
    licence: str | None = None
    licence_file: Path | None = None
    creators: Sequence[str] = ()
    version: str | None = None
    date: str | None = None
    tables: Sequence[str] = ()
    runs: Sequence[str] = ()
    window_ms: float | None = None
    addresses: str = "roles"
    ports: str = "kept"
    times: str = "shifted"
    captures: Sequence[str] = ()
    allow_flagged: Sequence[str] = ()
    key: Path | None = None
    bagit: bool = False
    previous: Path | None = None
    jobs: int | None = None

    @property
    def threads(self) -> int:
        """Threads to use: `jobs`, or the CPUs of this process."""
        return self.jobs or available_cpus()

    @property
    def mapping(self) -> MappingOptions:
        """Those of the anonymisation. Raises UsageError."""
        return MappingOptions(self.addresses, self.ports, self.times)


@dataclass(frozen=True)
class Published:
    """The outcome. path: the release, or the previous one where nothing changed. written: whether it is new."""

    path: Path
    release: facts.Release
    key: Path
    key_made: bool
    written: bool
    message: str


@dataclass(frozen=True)
class _Plan:
    """All decisions, made before anything is written.

    window_ns: None keeps the windows. standing: the release that is at `out` already. previous: the one of --previous.
    """

    dataset: Dataset
    out: Path
    options: PublishOptions
    messages: Messages
    statements: request.Statements
    sources: list[tables.Source]
    window_ns: int | None
    flagged: Mapping[str, Mapping[str, int]]
    shaped_by: Mapping[str, Any]
    key: keys.Key
    key_file: Path
    standing: facts.Release | None
    previous: facts.Release | None


class _UnchangedError(Exception):
    """The new release is equal to the existing one."""

    def __init__(self, message: str, path: Path, release: facts.Release) -> None:
        super().__init__(message)
        self.path, self.release = path, release


def publish(
    dataset: str | Path,
    out: Path,
    options: PublishOptions | None = None,
    messages: Messages | None = None,
    ask: Callable[[str], str] | None = None,
) -> Published:
    """Publish a dataset as the release `out`: complete, or not at all.

    ask: puts a question (title, licence, creator) to the user. Raises UsageError for a wrong call, PublishError where
    data checks fail or `out` is another release, LeakError, StorageError, MissingExtra.
    """
    options, messages = options or PublishOptions(), messages or Messages()
    layout.refuse_inside(out.parent)
    statements = request.complete(request.read(options.about, _given(options)), ask)
    previous = versions.read(options.previous) if options.previous else None
    key_file = _key_file(options, out, previous)
    _refuse_in_dataset(dataset, out, key_file)
    made = not key_file.exists()
    with _full_disk(out), _removed_after_error(key_file if made else None), _open(dataset, options, out) as opened:
        plan = _plan(opened, out, options, messages, statements, key_file, previous)
        remove_left_behind(out)
        try:
            with whole_folder(out) as folder:
                release = _build(plan, folder)
        except _UnchangedError as unchanged:
            return Published(unchanged.path, unchanged.release, key_file, False, False, str(unchanged))
    _report_missing(release.about, messages)
    return Published(out, release, key_file, made, True, f"{out}: version {release.about.version}")


def _report_missing(about: facts.About, messages: Messages) -> None:
    from ddnn_traces.release.descriptions import shared

    if missing := shared.recommended(about):
        messages.info(f"recommended and not stated (release.toml): {'; '.join(missing)}")


def _given(options: PublishOptions) -> dict[str, Any]:
    names = ("title", "description", "licence", "licence_file", "version")
    return {name: getattr(options, name) for name in names} | {
        "creators": list(options.creators),
        "published": options.date,
    }


@contextlib.contextmanager
def _open(dataset: str | Path, options: PublishOptions, out: Path) -> Iterator[Dataset]:
    """The dataset, or the chosen runs of it, with little memory for queries; DuckDB spills to the disk of `out`."""
    existing = next(folder for folder in out.resolve().parents if folder.exists())
    # DuckDB makes the folder when it needs it; after a kill remove_left_behind() removes it by its name
    spill = existing / f".{out.name}.spill-{secrets.token_hex(4)}.{os.getpid()}"
    try:
        with Dataset(dataset, sorted(set(options.runs)) or None) as opened:
            opened.connection.execute(
                f"SET memory_limit = '{_MEMORY}'; SET threads = {options.threads}; "
                f"SET temp_directory = {sql_literal(str(spill))}"
            )
            yield opened
    finally:
        shutil.rmtree(spill, ignore_errors=True)


@contextlib.contextmanager
def _full_disk(out: Path) -> Iterator[None]:
    """A full disk as StorageError."""
    import duckdb

    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise _storage_error(out, error.strerror or str(error)) from error
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        raise _storage_error(out, str(error).splitlines()[0]) from error


def _storage_error(out: Path, reason: str) -> StorageError:
    folder = out.resolve().parent
    return StorageError(
        f"{folder}: no space to write ({reason}); nothing is left there; free some space and publish again"
    )


@contextlib.contextmanager
def _removed_after_error(key_file: Path | None) -> Iterator[None]:
    """Removes a new key after an error: it belongs to no release."""
    try:
        yield
    except BaseException:
        if key_file is not None:
            key_file.unlink(missing_ok=True)
        raise


def _key_file(options: PublishOptions, out: Path, previous: facts.Release | None) -> Path:
    """The key's file: as given, else next to the previous release where it is its key, else next to the release."""
    default = out.with_name(f"{out.name}.key")
    if options.key is None and options.previous and previous and not default.exists():
        default = keys.find(options.previous.resolve().parent, previous.anonymisation.key_id) or default
    key_file = options.key or default
    if key_file.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"{key_file}: the key would be inside the release, for all to read; name a file elsewhere")
    return key_file


def _refuse_in_dataset(dataset: str | Path, out: Path, key_file: Path) -> None:
    """Raise UsageError where the release or the key would be in the dataset, and be copied with it."""
    source = Path(dataset).resolve()
    if source.is_dir() and out.resolve().is_relative_to(source):
        raise UsageError(f"{out}: the release would be inside the dataset {dataset}; choose an --out elsewhere")
    if source.is_dir() and key_file.resolve().is_relative_to(source):
        raise UsageError(
            f"{key_file}: the key would be inside the dataset {dataset}, and be copied with it; name another file with "
            "--key"
        )


def _standing(out: Path) -> facts.Release | None:
    """The release that is at `out` already, if any. Raises PublishError for anything else but an empty folder."""
    if not out.exists() and not out.is_symlink():
        return None
    if out.is_dir() and not any(out.iterdir()):
        return None
    try:
        return versions.read(out)
    except UsageError as error:
        raise PublishError(f"{out}: exists and is not a release of this program; choose another --out") from error


def _plan(
    dataset: Dataset,
    out: Path,
    options: PublishOptions,
    messages: Messages,
    statements: request.Statements,
    key_file: Path,
    previous: facts.Release | None,
) -> _Plan:
    standing = _standing(out)
    _known("--allow-flagged", options.allow_flagged, dataset.run_ids)
    if "version" in statements:
        versions.check(statements["version"], previous.about.version if previous else None)
    mapping = options.mapping
    sources = tables.sources(dataset.path, dataset.run_ids, _tables(options))
    _refuse_empty(dataset.path, options, sources)
    window_ns = _window_ns(options, tables.window_lengths(sources))
    shaped_by = {
        "tables": list(dict.fromkeys(source.table for source in sources)),
        "runs": sorted(set(options.runs)) or "all",
        "window_ms": options.window_ms,
        "captures": bool(options.captures),
        "allow_flagged": sorted(set(options.allow_flagged)),
        "addresses": mapping.addresses,
        "ports": mapping.ports,
        "times": mapping.times,
        "bagit": options.bagit,
    }
    messages.info("checking the data")
    flagged = _flagged(dataset, sources, options, out)
    key_file.parent.mkdir(parents=True, exist_ok=True)
    key = keys.read_or_make(key_file)
    return _Plan(
        dataset,
        out,
        options,
        messages,
        statements,
        sources,
        window_ns,
        flagged,
        shaped_by,
        key,
        key_file,
        standing,
        previous,
    )


def _known(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"{option} {name}: {nearest(name, known)}")


def _tables(options: PublishOptions) -> list[str]:
    """The tables to publish, in their order; always with runs, which describes the runs."""
    _known("--table", options.tables, schema.TABLES)
    return [name for name in schema.TABLES if not options.tables or name in (*options.tables, "runs")]


def _refuse_empty(dataset: Path, options: PublishOptions, sources: Sequence[tables.Source]) -> None:
    present = {source.table for source in sources}
    if "runs" not in present:
        raise UsageError(f"{dataset}: has no run to publish; ingest one first")
    for table in options.tables:
        if table not in present:
            raise UsageError(f"--table {table}: has no rows in these runs; leave it out")


def _window_ns(options: PublishOptions, lengths: Mapping[str, int]) -> int | None:
    """The windows to sum to, ns. Raises UsageError where they are no multiple of a run's."""
    if options.window_ms is None:
        return None
    window_ns = round(options.window_ms * 1e6)
    if not lengths:
        raise UsageError(
            "--window-ms: flow_windows is not among the tables; leave this option or the choice of tables out"
        )
    for run_id, base in sorted(lengths.items()):
        if window_ns <= 0 or window_ns % base:
            raise UsageError(
                f"--window-ms {options.window_ms:g}: not a multiple of the {base / 1e6:g} ms windows of {run_id}; "
                "give a multiple, or ingest the captures again with other windows"
            )
    return window_ns


def _flagged(
    dataset: Dataset, sources: Sequence[tables.Source], options: PublishOptions, out: Path
) -> dict[str, dict[str, int]]:
    """Rows that checks return, by run and check, of runs in --allow-flagged. Raises PublishError for other runs."""
    rows = dict.fromkeys(dataset.run_ids, 0)
    for source in sources:
        rows[source.run_id] += source.rows
    groups = checks.run_in_groups(lambda runs: _open(dataset.path, replace(options, runs=runs), out), rows)
    failed = checks.by_run(groups)
    refused = {run_id: found for run_id, found in sorted(failed.items()) if run_id not in options.allow_flagged}
    if refused:
        lines = [
            f"{run_id}: " + ", ".join(f"{name} ({counted(count, 'row')})" for name, count in sorted(found.items()))
            for run_id, found in [*refused.items()][:_MOST_LISTED]
        ]
        more = f"\n  and {len(refused) - _MOST_LISTED} more runs" if len(refused) > _MOST_LISTED else ""
        raise PublishError(
            f"{dataset.path}: data checks fail:\n  " + "\n  ".join(lines) + more + "\n"
            f"'ddnn-traces check {dataset.path}' shows the rows; ingest those runs again, choose others with --run, or "
            "publish them with the flag: --allow-flagged RUN"
        )
    return {run_id: failed[run_id] for run_id in sorted(failed)}


def _build(plan: _Plan, folder: Path) -> facts.Release:
    """Make the release in a folder. Raises _UnchangedError, LeakError, PublishError."""
    data = folder / "data" if plan.options.bagit else folder
    scratch = folder / ".scratch"
    data.mkdir(exist_ok=True)
    scratch.mkdir()
    anonymiser = Anonymiser(plan.key, plan.options.mapping, plan.dataset)
    written = _write_tables(plan, anonymiser, data, scratch)
    captures = _write_captures(plan, anonymiser, data)
    release = _facts(plan, anonymiser, written, captures, data)
    release, changes = _with_version(plan, release, data, scratch)
    shutil.rmtree(scratch)  # part of no release
    _describe(plan, release, changes, data)
    if plan.options.bagit:
        packaging.write_bag(folder, release)
    _compare_with_standing(plan, folder)
    _scan(plan, release, folder)
    return release


def _write_tables(plan: _Plan, anonymiser: Anonymiser, data: Path, scratch: Path) -> tuple[facts.Table, ...]:
    plan.messages.start_reading(sum(source.bytes for source in plan.sources))
    try:
        return tables.write(
            plan.sources,
            data,
            anonymiser.run,
            scratch,
            plan.window_ns,
            plan.options.threads,
            tables.Progress(plan.messages.advance),
            lambda table: description.released(table, anonymiser.facts()),
        )
    finally:
        plan.messages.end_reading()


def _write_captures(plan: _Plan, anonymiser: Anonymiser, data: Path) -> tuple[facts.File, ...]:
    if not plan.options.captures:
        return ()
    from ddnn_traces.release import captures

    plan.messages.info("cutting captures down")
    folder = data / layout.CAPTURES
    folder.mkdir()
    paths = sorted(captures.write(list(plan.options.captures), plan.dataset, anonymiser, folder))
    return tuple(
        facts.File(f"{layout.CAPTURES}/{path}", (folder / path).stat().st_size, sha256_of(folder / path))
        for path in paths
    )


def _facts(
    plan: _Plan,
    anonymiser: Anonymiser,
    written: tuple[facts.Table, ...],
    captures: tuple[facts.File, ...],
    data: Path,
) -> facts.Release:
    import pyarrow.parquet as pq

    runs, ingested = [], {}
    for file in next(table.files for table in written if table.name == "runs"):
        parquet = pq.ParquetFile(data / file.path)
        runs += parquet.read().to_pylist()
        ingested[file.run_id] = tables.provenance(data / file.path)
    anonymisation = anonymiser.facts(captures=bool(captures))
    lengths = tables.window_lengths(plan.sources)
    windows_ns = {run_id: plan.window_ns or length for run_id, length in sorted(lengths.items())}
    standing = plan.standing.about if plan.standing else None
    about = request.about(plan.statements, versions.FIRST, standing.published if standing else request.today())
    return facts.Release(
        about=about,
        schema_version=schema.SCHEMA_VERSION,
        software=provenance.SOFTWARE,
        tables=written,
        runs=tuple(runs),
        windows_ns=windows_ns,
        provenance=provenance.steps(plan.dataset, runs, ingested, anonymisation, plan.shaped_by),
        anonymisation=anonymisation,
        captures=captures,
        flagged=plan.flagged,
        options=plan.shaped_by,
        previous=plan.previous.about.version if plan.previous else None,
    )


def _with_version(
    plan: _Plan, release: facts.Release, data: Path, scratch: Path
) -> tuple[facts.Release, versions.Changes | None]:
    """The release with its version and digest, and the changes since the previous one."""
    release = replace(release, digest=versions.digest(release))
    folder = plan.options.previous
    if plan.previous is None or folder is None:
        if "version" not in plan.statements and plan.standing and plan.standing.digest == release.digest:
            release = replace(release, about=replace(release.about, version=plan.standing.about.version))
        return release, None
    if plan.previous.digest == release.digest:
        message = f"{folder}: nothing changed since version {plan.previous.about.version}; nothing is published"
        raise _UnchangedError(message, folder, plan.previous)
    changes = versions.compare(plan.previous, layout.content(folder), release, data, scratch)
    if changes.keys_differ:
        plan.messages.info(
            f"the key differs from that of {folder}: labels, addresses and times of the two releases do not "
            "agree; give its key with --key"
        )
    if "version" not in plan.statements:
        version = versions.following(plan.previous.about.version, changes)
        release = replace(release, about=replace(release.about, version=version))
    return release, changes


def _describe(plan: _Plan, release: facts.Release, changes: versions.Changes | None, data: Path) -> None:
    """Write everything but tables and captures."""
    from ddnn_traces.release import descriptions

    names = [table.name for table in release.tables]
    write_marker(data, names)
    (data / layout.RELEASE).write_text(facts.to_json(release), encoding="utf-8")
    before = None
    if plan.options.previous is not None:
        with contextlib.suppress(OSError, UnicodeError):
            before = (layout.content(plan.options.previous) / layout.CHANGELOG).read_text(encoding="utf-8")
    (data / layout.CHANGELOG).write_text(versions.changelog(release, changes, before), encoding="utf-8")
    packaging.write_database(data, names)
    descriptions.write(release, data)
    known = {file.path: file.sha256 for table in release.tables for file in table.files}
    known |= {file.path: file.sha256 for file in release.captures}
    packaging.write_checksums(data, known, plan.options.threads)


def _compare_with_standing(plan: _Plan, folder: Path) -> None:
    """Where a release exists at `out`: raise _UnchangedError if the new one is equal, else PublishError."""
    if plan.standing is None:
        return
    new, existing = packaging.files(folder), packaging.files(plan.out)
    if new == existing and all(filecmp.cmp(folder / path, plan.out / path, shallow=False) for path in new):
        message = f"{plan.out}: unchanged, version {plan.standing.about.version}"
        raise _UnchangedError(message, plan.out, plan.standing)
    raise PublishError(
        f"{plan.out}: exists, and differs from what would be published now; publish into a new folder: --out NEW "
        f"--previous {plan.out}"
    )


def _scan(plan: _Plan, release: facts.Release, folder: Path) -> None:
    """Raise LeakError where the release holds what it must not. Statements of the publisher on people are intended."""
    from ddnn_traces.release import leak_scan

    sources = list(plan.options.captures)
    plan.messages.info("searching the release for what must not be in it")
    if not sources:
        plan.messages.info(
            "not searched for: names, paths and hardware addresses that are only in the original captures and logs "
            "(--captures)"
        )
    words = leak_scan.words(
        plan.dataset, sources, options=plan.options.mapping, key=plan.key_file, intended=_intended(release.about)
    )
    causes = leak_scan.causes(leak_scan.scan(folder, words))
    if causes:
        shown = "\n  ".join(causes[:_MOST_LISTED])
        more = f"\n  and {len(causes) - _MOST_LISTED} more" if len(causes) > _MOST_LISTED else ""
        raise LeakError(
            f"{plan.out}: not published, and what was made is removed: it holds what must not be published:\n  {shown}"
            f"{more}\nrename what holds it (runs, hosts, release.toml) or leave it out; docs/anonymisation.md lists "
            "what is searched for"
        )


def _intended(about: facts.About) -> str:
    """Names and addresses of people and institutes, which are published on purpose."""
    people = [text for person in about.creators for text in (person.name, person.affiliation)]
    papers = [text for paper in about.papers for text in (paper.authors, paper.url)]
    return " ".join(filter(None, [*people, about.publisher, about.url, about.contact, *papers]))
