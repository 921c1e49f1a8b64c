"""A dataset into a release: checks, tables, captures, descriptions, checksums, leak scan.

The release is made in a hidden folder next to its place and put there by one rename, or not at all.
"""

from __future__ import annotations

import contextlib
import csv
import filecmp
import io
import math
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ddnn_traces.errors import LeakError, PublishError, QueryError, StorageError, UsageError, needs_extra
from ddnn_traces.jobs import available_cpus
from ddnn_traces.messages import Messages
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import claims, facts, leak_scan, packaging, provenance, released_tables, request, versions
from ddnn_traces.release.anonymise import key as keys
from ddnn_traces.release.anonymise import method_text, words
from ddnn_traces.release.anonymise.mapping import Anonymiser
from ddnn_traces.release.anonymise.mapping import Options as MappingOptions
from ddnn_traces.store import checksums, layout, schema
from ddnn_traces.store.layout import write_marker
from ddnn_traces.store.whole_files import make_folders, no_memory, no_space, remove_left_behind, sha256_of, whole_folder
from ddnn_traces.text import counted, listed, nearest

#: Names of splits, which name files and configurations of the Hub.
_SPLIT = re.compile(r"(?!part$)[a-z][a-z0-9_]{0,30}")
_SPLIT_RULE = "write NAME=RUN with a name of small letters, digits and _, as test=RUN"

#: Failed runs that a message lists at most.
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
    profile: str = "careful"
    addresses: str | None = None
    ports: str | None = None
    times: str | None = None
    hashes: str | None = None
    sizes: str | None = None
    clocks: str | None = None
    words: str | None = None
    allow: Sequence[str] = ()
    captures: Sequence[str] = ()
    claims: Path | None = None
    allow_flagged: Sequence[str] = ()
    splits: Sequence[str] = ()
    key: Path | None = None
    renamed: Path | None = None
    bagit: bool = False
    previous: Path | None = None
    jobs: int | None = None

    @property
    def threads(self) -> int:
        """Threads to use: `jobs`, or the CPUs of this process."""
        return self.jobs or available_cpus()


@dataclass(frozen=True)
class Published:
    """The outcome. path: the release, or the previous one where nothing changed. written: whether it is new."""

    path: Path
    release: facts.Release
    key: Path
    key_made: bool
    written: bool
    message: str


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
    from ddnn_traces.release.descriptions import terms

    with needs_extra():  # before anything is read and said
        import yacryptopan  # noqa: F401
        import yaml  # noqa: F401

    options, messages = options or PublishOptions(), messages or Messages()
    layout.refuse_inside(out.parent)
    names = ("title", "description", "licence", "licence_file", "creators", "version")
    given = {name: getattr(options, name) for name in names} | {"published": options.date}
    statements = request.complete(request.read(options.about, given), ask)
    previous = facts.read(options.previous) if options.previous else None
    key_file = _key_file(Path(dataset), options, out, previous)
    made = not key_file.exists()
    with _removed_after_error(out, key_file if made else None), _open(dataset, options, out) as opened:
        publishing = _Publishing(opened, out, options, messages, statements, key_file, previous, ask)
        remove_left_behind(out)
        publishing.write_renamed()
        try:
            with whole_folder(out) as folder:
                release = publishing.build(folder)
        except _UnchangedError as unchanged:
            return Published(unchanged.path, unchanged.release, key_file, False, False, str(unchanged))
    if missing := terms.recommended(release.about):
        messages.info(f"recommended and not stated (release.toml): {'; '.join(missing)}")
    return Published(out, release, key_file, made, True, f"{out}: version {release.about.version}")


@contextlib.contextmanager
def _open(dataset: str | Path, options: PublishOptions, out: Path, at_once: int = 1) -> Iterator[Dataset]:
    """The dataset, or the chosen runs of it, with little memory for queries; DuckDB spills to the disk of `out`.

    at_once: as in checks.with_little_memory().
    """
    existing = next(folder for folder in out.resolve().parents if folder.exists())
    # DuckDB makes the folder when it needs it; after a kill remove_left_behind() removes it by its name
    spill = existing / f".{out.name}.spill-{secrets.token_hex(4)}.{os.getpid()}"
    try:
        with checks.with_little_memory(dataset, sorted(set(options.runs)), options.threads, spill, at_once) as opened:
            yield opened
    finally:
        shutil.rmtree(spill, ignore_errors=True)


@contextlib.contextmanager
def _removed_after_error(out: Path, new_key: Path | None) -> Iterator[None]:
    """Removes a new key after an error, as it belongs to no release, and the folders that were made for it.

    Raises StorageError for a full disk.
    """
    above = [folder for folder in new_key.parents if not folder.exists()] if new_key else []
    try:
        yield
    except BaseException as error:
        if new_key is not None:
            new_key.unlink(missing_ok=True)
        for folder in above:
            with contextlib.suppress(OSError):  # something else is in it
                folder.rmdir()
        # a query's error is a QueryError
        cause = error.__cause__ if isinstance(error, QueryError) else error
        if reason := no_memory(cause):
            raise StorageError(
                f"{out}: not published, not enough memory ({reason}); publish fewer runs at once (--run) or with "
                "--jobs 1"
            ) from error
        if (reason := no_space(cause)) is None:
            raise
        raise StorageError(
            f"{out.resolve().parent}: no space to write ({reason}); nothing is left there; free some space and publish "
            "again"
        ) from error


def _key_file(dataset: Path, options: PublishOptions, out: Path, previous: facts.Release | None) -> Path:
    """The key's file: as given, else next to the previous release where it is its key, else next to the release.

    Raises UsageError where key or release would be in the dataset, and be copied with it, or the key in the release.
    """
    default = out.with_name(f"{out.name}.key")
    if options.key is None and options.previous and previous and not default.exists():
        default = keys.find(options.previous.resolve().parent, previous.anonymisation.key_id) or default
    key_file = options.key or default
    if key_file.resolve().is_relative_to(out.resolve()):
        raise UsageError(f"{key_file}: the key would be inside the release, for all to read; name a file elsewhere")
    if options.renamed and options.renamed.resolve().is_relative_to(out.resolve()):
        raise UsageError(
            f"{options.renamed}: the names would be inside the release, for all to read; name a file elsewhere"
        )
    if options.renamed and options.renamed.resolve() == key_file.resolve():
        raise UsageError(f"{key_file}: the key and the old names are two files; name another one with --renamed")
    if dataset.is_dir() and out.resolve().is_relative_to(dataset.resolve()):
        raise UsageError(f"{out}: the release would be inside the dataset {dataset}; choose an --out elsewhere")
    if dataset.is_dir() and key_file.resolve().is_relative_to(dataset.resolve()):
        raise UsageError(
            f"{key_file}: the key would be inside the dataset {dataset}, and be copied with it; name another file with "
            "--key"
        )
    return key_file


def first_rows(release: Path, table: facts.Table) -> tuple[Mapping[str, Any], ...]:
    """The first rows of a table, in the order of its key. release: the folder of the tables. Raises ArrowException."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = []
    for file in table.files:
        with pq.ParquetFile(release / file.path) as parquet:
            rows += next((batch.to_pylist() for batch in parquet.iter_batches(facts.FIRST_ROWS)), [])
        if len(rows) >= facts.FIRST_ROWS:
            break
    return tuple({name: _as_json(value) for name, value in row.items()} for row in rows[: facts.FIRST_ROWS])


def _as_json(value: Any) -> Any:
    """A value as JSON has it, which knows no infinite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refuse_unknown(option: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(f"{option} {name}: {nearest(name, known)}")


def _listed_words(found: Mapping[str, Sequence[str]]) -> str:
    """Unknown words with their places: 'alicenet' (model, name of a run)."""
    return listed([f"{words.shown(word)!r} ({', '.join(places)})" for word, places in found.items()], _MOST_LISTED)


class _Publishing:
    """A release in the making. All decisions are made before anything is written; build() writes.

    standing: the release that is at `out` already. previous: the one of --previous. window_ns: None keeps the windows.
    """

    def __init__(
        self,
        dataset: Dataset,
        out: Path,
        options: PublishOptions,
        messages: Messages,
        statements: request.Statements,
        key_file: Path,
        previous: facts.Release | None,
        ask: Callable[[str], str] | None = None,
    ) -> None:
        """Raises UsageError, PublishError, LeakError."""
        self.dataset, self.out, self.options, self.messages = dataset, out, options, messages
        self.statements, self.key_file, self.previous = statements, key_file, previous
        self.standing = versions.standing(out)
        self.claims = claims.answerable(options.claims) if options.claims else ()
        _refuse_unknown("--allow-flagged", options.allow_flagged, dataset.run_ids)
        if "version" in statements:
            versions.check(statements["version"], previous.about.version if previous else None)
        given = {field.name: getattr(options, field.name) for field in fields(MappingOptions)}
        mapping = MappingOptions.chosen(options.profile, **given)
        if options.captures:
            from ddnn_traces.release import captures

            captures.refuse_options(mapping)
        self._refuse_damaged()
        allowed = self._allowed(mapping, ask)
        self.sources = self._sources()
        self.splits = self._splits()
        if mapping.words == "known" and (
            unknown := sorted({s for s in self.splits.values() if words.unknown(s, (), allowed)})
        ):
            raise LeakError(
                f"split {', '.join(unknown)}: in no vocabulary; confirm it with --allow WORD, or give --split NAME=RUN"
            )
        self.windows_ns = released_tables.window_lengths(self.sources)
        self.window_ns = released_tables.summed_window(options.window_ms, self.windows_ns)
        make_folders(key_file.parent)
        key = keys.read_or_make(key_file)
        self.words = self._words(mapping)
        messages.info("checking the data")
        flagged = self._flagged()
        self.anonymiser = Anonymiser(key, mapping, dataset, named=self.words.runs, allowed=allowed)
        self._tell_renamed()
        name = self.anonymiser.name
        self.flagged = dict(sorted((name(run_id), found) for run_id, found in flagged.items()))
        self.shaped_by = {
            "tables": list(dict.fromkeys(source.table for source in self.sources)),
            "runs": sorted(map(name, set(options.runs))) or "all",
            "window_ms": options.window_ms,
            "captures": bool(options.captures),
            "allow_flagged": sorted(map(name, set(options.allow_flagged))),
            **vars(mapping),
            "splits": {
                split: sorted(name(run) for run in self.splits if self.splits[run] == split)
                for split in sorted(set(self.splits.values()))
            },
            "bagit": options.bagit,
        }

    def _allowed(self, mapping: MappingOptions, ask: Callable[[str], str] | None) -> tuple[str, ...]:
        """The words that may be published though they are in no vocabulary: of --allow, and those that the user
        confirms. Says which others a tag stands for. Raises LeakError where the description has other ones.
        """
        allowed = (*self.options.allow, *(text.partition("=")[0] for text in self.options.splits))
        if mapping.words == "kept":
            return allowed
        only_known = self.options.profile == "strict"
        request.refuse_unknown_words(self.statements | self._said_by_claims(), allowed, only_known)
        request.refuse_unknown_names({one.claim: claims.names(one) for one in self.claims}, allowed)
        found = words.unknown_of(self.dataset, allowed)
        if found and ask and self.options.profile != "strict":
            answer = ask(
                f"{_listed_words(found)}\nwhich of these may be published as they are? (separated by commas; Enter: "
                "none)"
            )
            allowed += tuple(filter(None, map(str.strip, answer.split(","))))
            found = words.unknown_of(self.dataset, allowed)
        if found:
            self.messages.info(
                f"unknown words are replaced by 8 hex digits: {_listed_words(found)}; --allow WORD publishes one that "
                "identifies nobody"
            )
        return allowed

    def _said_by_claims(self) -> dict[str, list[str]]:
        """The sentences of claims.csv, as a statement."""
        texts = [text for one in self.claims for text in (one.claim, one.source, one.unit, one.n) if text]
        return {"claims": texts} if texts else {}

    def _refuse_damaged(self) -> None:
        """Raise PublishError where a file is not what was written: a release would state the wrong values as true."""
        dataset = self.dataset
        if damaged := checksums.all_damages(dataset.path, dataset.run_ids, pages=False):
            raise PublishError(
                f"{dataset.path}: {checksums.summary(damaged)}; ingest those runs again, or choose others with --run"
            )

    def _sources(self) -> list[released_tables.Source]:
        """The tables to publish, in their order; always with runs, which describes the runs."""
        wanted = self.options.tables
        _refuse_unknown("--table", wanted, schema.TABLES)
        names = [name for name in schema.TABLES if not wanted or name in (*wanted, "runs")]
        sources = released_tables.sources(self.dataset.path, self.dataset.run_ids, names)
        present = {source.table for source in sources}
        if "runs" not in present:
            raise UsageError(f"{self.dataset.path}: has no run to publish; ingest one first")
        for table in wanted:
            if table not in present:
                raise UsageError(f"--table {table}: has no rows in these runs; leave it out")
        return sources

    def _splits(self) -> dict[str, str]:
        """The split of each run, where any has one: of --split, else as the dataset has it, else train.

        Raises UsageError.
        """
        known: dict[str, str | None] = {
            row["run_id"]: row["split"] for row in self.dataset.sql_arrow("SELECT run_id, split FROM runs").to_pylist()
        }
        for run_id, split in known.items():
            if split is not None and not _SPLIT.fullmatch(split):
                raise UsageError(f"{run_id}: split {split} in its metadata: {_SPLIT_RULE}")
        given: dict[str, str] = {}
        for text in self.options.splits:
            split, _, run_id = text.partition("=")
            if not run_id or not _SPLIT.fullmatch(split):
                raise UsageError(f"--split {text}: {_SPLIT_RULE}")
            _refuse_unknown("--split", [run_id], list(known))
            if given.setdefault(run_id, split) != split:
                raise UsageError(f"--split {text}: the run is in {given[run_id]} already; name one split")
        found = known | given
        if not any(found.values()):
            return {}
        return {run_id: split or "train" for run_id, split in found.items()}

    def _flagged(self) -> dict[str, dict[str, int]]:
        """Rows that checks return, by run and check, of runs in --allow-flagged. Raises PublishError for other runs."""
        dataset, options = self.dataset, self.options
        rows = dict.fromkeys(dataset.run_ids, 0)
        for source in self.sources:
            rows[source.run_id] += source.rows

        def open_runs(runs: list[str], at_once: int) -> contextlib.AbstractContextManager[Dataset]:
            return _open(dataset.path, replace(options, runs=runs), self.out, at_once)

        failed = dict(sorted(checks.by_run(checks.run_in_groups(open_runs, rows, options.threads)).items()))
        refused = [
            f"{run_id}: " + ", ".join(f"{name} ({counted(count, 'row')})" for name, count in sorted(found.items()))
            for run_id, found in failed.items()
            if run_id not in options.allow_flagged
        ]
        if refused:
            more = f"\n  and {len(refused) - _MOST_LISTED} more runs" if len(refused) > _MOST_LISTED else ""
            raise PublishError(
                f"{dataset.path}: data checks fail:\n  " + "\n  ".join(refused[:_MOST_LISTED]) + more + "\n"
                f"'ddnn-traces check {dataset.path}' shows the rows; ingest those runs again, choose others with "
                "--run, or publish them with the flag: --allow-flagged RUN"
            )
        return failed

    def _words(self, mapping: MappingOptions) -> leak_scan.Words:
        """What must not be in the release."""
        sources = list(self.options.captures)
        if not sources:
            self.messages.info(
                "not searched for: names, paths and hardware addresses that are only in the original captures and logs "
                "(--captures)"
            )
        intended = " ".join(request.intended(self.statements))
        return leak_scan.words(self.dataset, sources, mapping, self.key_file, intended)

    def _tell_renamed(self) -> None:
        if renamed := self.anonymiser.renamed:
            shown = [f"{old} is {new} in the release" for old, new in sorted(renamed.items())]
            where = self.options.renamed
            all_of_them = f"{where} has all" if where else "--renamed FILE writes all"
            self.messages.info(
                f"renamed {counted(len(renamed), 'run')}, whose names hold what must not be published (an address, a "
                f"host, a user, a time, an unknown word): {listed(shown, _MOST_LISTED)}; {all_of_them}"
            )
            if kept := sorted({*self.anonymiser.runs} - {*renamed}):
                self.messages.info(
                    f"kept the names of {counted(len(kept), 'run')}, in which each word is a known one, an English one "
                    f"too: {listed(kept, _MOST_LISTED)}"
                )

    def write_renamed(self) -> None:
        """The names of all renamed runs, hosts and addresses, for who publishes them alone. Raises UsageError."""
        if (file := self.options.renamed) is None:
            return
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["run_id", "kind", "original", "released"])
        for run_id in sorted(self.anonymiser.runs):
            rows.writerows((run_id, *names) for names in self.anonymiser.run(run_id).names())
        try:
            make_folders(file.parent)
            keys.write_private(file, text.getvalue())
        except OSError as error:
            raise UsageError(f"{file}: cannot be written ({error.strerror}); name a file elsewhere") from error

    def build(self, folder: Path) -> facts.Release:
        """Make the release in a folder. Raises _UnchangedError, LeakError, PublishError."""
        data = folder / "data" if self.options.bagit else folder
        scratch = folder / ".scratch"
        data.mkdir(exist_ok=True)
        scratch.mkdir()
        written = self._write_tables(data, scratch)
        write_marker(data, [table.name for table in written])
        self._refuse_failed_claims(data)
        captures = self._write_captures(data) if self.options.captures else ()
        release, changes = self._with_version(self._facts(written, captures, data, scratch), data, scratch)
        self._write_explorer(release, data, scratch)
        shutil.rmtree(scratch)  # part of no release
        self._describe(release, changes, data)
        if self.options.bagit:
            packaging.write_bag(folder, release)
        self._compare_with_standing(folder)
        self.messages.info("searching the release for what must not be in it")
        searched = replace(self.words, published=release.about.published)
        leak_scan.refuse(self.out, leak_scan.scan(folder, searched))
        return release

    def _write_tables(self, data: Path, scratch: Path) -> tuple[facts.Table, ...]:
        done = self.anonymiser.facts()
        self.messages.start_reading(sum(source.bytes for source in self.sources))
        try:
            return released_tables.write(
                self.sources,
                data,
                self.anonymiser.run,
                scratch,
                self.window_ns,
                self.options.threads,
                released_tables.Progress(self.messages.advance),
                lambda table: method_text.released(table, done),
                self.splits,
            )
        finally:
            self.messages.end_reading()

    def _refuse_failed_claims(self, data: Path) -> None:
        """Raise PublishError naming each claim that the tables, as they are written, do not bear."""
        if not self.claims:
            return
        self.messages.info("computing the claims")
        wrong = [str(one) for one in claims.evaluate(data, self.claims) if one.verdict != claims.HOLDS]
        if wrong:
            more = f"\n  and {len(wrong) - _MOST_LISTED} more" if len(wrong) > _MOST_LISTED else ""
            raise PublishError(
                f"{self.options.claims}: not published, {counted(len(wrong), 'claim')} of {len(self.claims)} that the "
                "released tables do not bear:\n  " + "\n  ".join(wrong[:_MOST_LISTED]) + f"{more}\ncorrect the claim; "
                "a run, host or time in its command is named as in the release"
            )

    def _write_captures(self, data: Path) -> tuple[facts.File, ...]:
        from ddnn_traces.release import captures

        self.messages.info("cutting captures down")
        folder = data / layout.CAPTURES
        folder.mkdir()
        paths = sorted(captures.write(list(self.options.captures), self.dataset, self.anonymiser, folder))
        return tuple(
            facts.File(f"{layout.CAPTURES}/{path}", (folder / path).stat().st_size, sha256_of(folder / path))
            for path in paths
        )

    def _facts(
        self, written: tuple[facts.Table, ...], captures: tuple[facts.File, ...], data: Path, scratch: Path
    ) -> facts.Release:
        import pyarrow.parquet as pq

        runs: list[dict[str, Any]] = []
        for file in next(table.files for table in written if table.name == "runs"):
            runs += pq.ParquetFile(data / file.path).read().to_pylist()
        ingested = {
            self.anonymiser.name(source.run_id): self.anonymiser.run(source.run_id).parameters(
                released_tables.provenance(source.files[0])
            )
            for source in self.sources
            if source.table == "runs"
        }
        anonymisation = self.anonymiser.facts(captures=bool(captures))
        published = self.standing.about.published if self.standing else request.today()
        return facts.Release(
            about=request.about(self.statements, versions.FIRST, published),
            schema_version=schema.SCHEMA_VERSION,
            software=facts.SOFTWARE,
            tables=written,
            runs=tuple(sorted(runs, key=lambda run: run["run_id"])),
            windows_ns={self.anonymiser.name(run_id): self.window_ns or ns for run_id, ns in self.windows_ns.items()},
            provenance=provenance.steps(
                self.dataset, runs, ingested, anonymisation, self.shaped_by, self.anonymiser.renamed
            ),
            anonymisation=anonymisation,
            captures=captures,
            flagged=self.flagged,
            options=self.shaped_by,
            samples={table.name: first_rows(data, table) for table in written},
            figure=self._figure(data, scratch),
            attacks=self._attacks(data, scratch),
            claims=self.claims,
            previous=self.previous.about.version if self.previous else None,
        )

    def _figure(self, data: Path, scratch: Path) -> tuple[Mapping[str, Any], ...]:
        """The figure's rows, of the tables as they are written."""
        with checks.with_little_memory(data, [], self.options.threads, scratch / "figure") as release:
            return tuple(release.query("pair_volume", runs=facts.FIGURE_RUNS, hosts=facts.FIGURE_HOSTS).to_dicts())

    def _write_explorer(self, release: facts.Release, data: Path, scratch: Path) -> None:
        """explore.html, of the tables as they are written."""
        if not release.has_explorer:
            return
        from ddnn_traces.report import explorer

        with checks.with_little_memory(data, [], self.options.threads, scratch / "explorer") as written:
            page, _ = explorer.page(written, release.about.title)
        (data / layout.EXPLORER).write_bytes(page.encode())

    def _attacks(self, data: Path, scratch: Path) -> tuple[Mapping[str, Any], ...]:
        """What an adversary recovers of the tables as they are written; but for what would tell a guess."""
        from ddnn_traces.release import attacks

        if not {"flows", "hosts", "captures"} <= {source.table for source in self.sources}:
            return ()
        with checks.with_little_memory(data, [], self.options.threads, scratch / "attacks") as release:
            found = attacks.recovered(release, self.dataset, self.anonymiser)
        return tuple(attacks.as_published(one) for one in found if not one.is_secret)

    def _with_version(
        self, release: facts.Release, data: Path, scratch: Path
    ) -> tuple[facts.Release, versions.Changes | None]:
        """The release with its version and digest, and the changes since the previous one."""
        release = replace(release, digest=versions.digest(release))
        version, changes = release.about.version, None
        if self.previous is None or self.options.previous is None:
            if self.standing and self.standing.digest == release.digest:
                version = self.standing.about.version
        else:
            folder = self.options.previous
            if self.previous.digest == release.digest:
                message = f"{folder}: nothing changed since version {self.previous.about.version}; nothing is published"
                raise _UnchangedError(message, folder, self.previous)
            changes = versions.compare(self.previous, layout.content(folder), release, data, scratch)
            if changes.keys_differ:
                self.messages.info(
                    f"the key differs from that of {folder}: labels, addresses and times of the two releases do not "
                    "agree; give its key with --key"
                )
            version = versions.following(self.previous.about.version, changes)
        if "version" in self.statements:
            return release, changes
        return replace(release, about=replace(release.about, version=version)), changes

    def _describe(self, release: facts.Release, changes: versions.Changes | None, data: Path) -> None:
        """Write everything but tables and captures."""
        from ddnn_traces.release import descriptions

        names = [table.name for table in release.tables]
        (data / layout.RELEASE).write_text(facts.to_json(release), encoding="utf-8")
        before = None
        if self.options.previous is not None:
            with contextlib.suppress(OSError, UnicodeError):
                before = (layout.content(self.options.previous) / layout.CHANGELOG).read_text(encoding="utf-8")
        (data / layout.CHANGELOG).write_text(versions.changelog(release, changes, before), encoding="utf-8")
        packaging.write_database(data, names)
        descriptions.write(release, data)
        known = {file.path: file.sha256 for file in release.files}
        packaging.write_checksums(data, known, self.options.threads)

    def _compare_with_standing(self, folder: Path) -> None:
        """Where a release exists at `out`: raise _UnchangedError if the new one is equal, else PublishError."""
        if self.standing is None:
            return
        new, existing = packaging.files(folder), packaging.files(self.out)
        if new == existing and all(filecmp.cmp(folder / path, self.out / path, shallow=False) for path in new):
            message = f"{self.out}: unchanged, version {self.standing.about.version}"
            raise _UnchangedError(message, self.out, self.standing)
        raise PublishError(
            f"{self.out}: exists, and differs from what would be published now; publish into a new folder: --out NEW "
            f"--previous {self.out}"
        )
