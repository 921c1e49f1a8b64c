"""Versions of a release: its digest, its changes since the previous release, its version, CHANGELOG.md.

A version is semantic (semver.org): its first part goes up where code that uses the data may break (another schema,
removed tables or runs, labels and times that do not join with the previous ones), its second where there is more or
other data, its third where only descriptions changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddnn_traces.errors import PublishError, UsageError
from ddnn_traces.release import facts
from ddnn_traces.store import schema
from ddnn_traces.store.whole_files import no_memory, no_space
from ddnn_traces.text import counted, listed, sql_literal

FIRST = "1.0.0"
_SEMANTIC = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_HEAD = "# Changelog\n\nVersions of this release, the newest first; they follow semantic versioning (semver.org).\n"
#: Options that decide mapped values.
_MAPPING = ("addresses", "ports", "times", "hashes", "sizes", "clocks")
#: Names that a line of the changelog lists at most.
_MOST_NAMES = 20


@dataclass(frozen=True)
class RowChange:
    """Rows of a run in a table that only one of two releases has."""

    table: str
    run_id: str
    added: int
    removed: int


@dataclass(frozen=True)
class Changes:
    """The changes between two releases.

    keys_differ: whether they were made with different keys. mapping_differs: whether with different keys or options of
    the mapping; `rows` then counts all rows of files that differ, since mapped rows cannot be compared.
    """

    schema_changed: bool
    tables_added: tuple[str, ...]
    tables_removed: tuple[str, ...]
    runs_added: tuple[str, ...]
    runs_removed: tuple[str, ...]
    rows: tuple[RowChange, ...]
    captures_changed: bool
    options: tuple[str, ...]
    descriptions: tuple[str, ...]
    keys_differ: bool
    mapping_differs: bool

    @property
    def part(self) -> int:
        """The part of the version that goes up: 0, 1 or 2."""
        if self.schema_changed or self.tables_removed or self.runs_removed or self.mapping_differs:
            return 0
        return 1 if self.tables_added or self.runs_added or self.rows or self.captures_changed else 2


def digest(release: facts.Release) -> str:
    """SHA-256 of the facts of a release without version, date, predecessor and digest: equal for equal content.

    It covers the hashes of all tables and captures; the other files are made from what it covers.
    """
    about = dataclasses.replace(release.about, version="", published="")
    covered = dataclasses.replace(release, about=about, previous=None, digest="")
    return hashlib.sha256(facts.to_json(covered).encode()).hexdigest()


def standing(out: Path) -> facts.Release | None:
    """The release that is at `out` already, if any. Raises PublishError for anything else but an empty folder."""
    if not out.is_symlink() and (not out.exists() or (out.is_dir() and not any(out.iterdir()))):
        return None
    try:
        return facts.read(out)
    except UsageError as error:
        raise PublishError(f"{out}: exists and is not a release of this program; choose another --out") from error


def check(version: str, previous: str | None) -> None:
    """Raise UsageError unless the version is semantic and greater than the previous one."""
    if not _SEMANTIC.fullmatch(version):
        raise UsageError(f"--version {version}: not a semantic version; write three numbers like 1.2.0")
    if previous is not None and not _order(version) > _order(previous):
        raise UsageError(
            f"--version {version}: not greater than {previous}, the previous one; give a greater one, or none"
        )


def following(previous: str, changes: Changes) -> str:
    """The version after one, by the changes."""
    found = _SEMANTIC.fullmatch(previous)
    assert found, previous
    numbers = [int(found[place]) for place in (1, 2, 3)]
    if found[4] is None or _order(previous) >= _order(".".join(map(str, numbers))):
        numbers = [*numbers[: changes.part], numbers[changes.part] + 1, *[0] * (2 - changes.part)]
    return ".".join(map(str, numbers))


def _order(version: str) -> tuple[Any, ...]:
    """A key by which versions sort (semver.org, 11)."""
    found = _SEMANTIC.fullmatch(version)
    assert found, version
    numbers = tuple(int(found[place]) for place in (1, 2, 3))
    if found[4] is None:
        return (*numbers, 1, ())
    words = tuple((0, int(word), "") if word.isdigit() else (1, 0, word) for word in found[4].split("."))
    return (*numbers, 0, words)


def compare(old: facts.Release, old_folder: Path, new: facts.Release, new_folder: Path, scratch: Path) -> Changes:
    """The changes from a release to another. Folders: of their files (layout.content). Raises UsageError, OSError."""
    before, after = ({table.name: table for table in release.tables} for release in (old, new))
    kept_runs = set(old.run_ids) & set(new.run_ids)
    keys_differ = old.anonymisation.key_id != new.anonymisation.key_id
    mapping_differs = keys_differ or any(
        old.options.get(name, "kept") != new.options.get(name, "kept") for name in _MAPPING
    )
    schema_changed = old.schema_version != new.schema_version
    rows = []
    for table in () if schema_changed else sorted(before.keys() & after.keys(), key=schema.TABLES.index):
        one, other = before[table], after[table]
        if [file.sha256 for file in one.files] == [file.sha256 for file in other.files]:
            continue
        if mapping_differs:
            had, has = one.runs, other.runs
            runs = sorted(kept_runs & (had.keys() | has.keys()))
            rows += [RowChange(table, run_id, has.get(run_id, 0), had.get(run_id, 0)) for run_id in runs]
            continue
        same = {file.sha256 for file in one.files} & {file.sha256 for file in other.files}
        old_files, new_files = (
            [_inside(folder, file) for file in files if file.sha256 not in same]
            for folder, files in ((old_folder, one.files), (new_folder, other.files))
        )
        rows += [change for change in _rows(table, old_files, new_files, scratch) if change.run_id in kept_runs]
    return Changes(
        schema_changed=schema_changed,
        tables_added=tuple(name for name in after if name not in before),
        tables_removed=tuple(name for name in before if name not in after),
        runs_added=tuple(run for run in new.run_ids if run not in old.run_ids),
        runs_removed=tuple(run for run in old.run_ids if run not in new.run_ids),
        rows=tuple(rows),
        captures_changed=[file.sha256 for file in old.captures] != [file.sha256 for file in new.captures],
        options=_options(old.options, new.options),
        descriptions=_descriptions(old, new),
        keys_differ=keys_differ,
        mapping_differs=mapping_differs,
    )


def _inside(folder: Path, file: facts.File) -> Path:
    """A file of a release that may come from elsewhere. Raises UsageError where it is not in the folder."""
    path = (folder / file.path).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise UsageError(
            f"{folder}: {file.path} is missing; 'ddnn-traces verify' lists what else is; get the release again"
        )
    return path


def _rows(table: str, old: Sequence[Path], new: Sequence[Path], scratch: Path) -> list[RowChange]:
    """How many rows of each run only one of them has, duplicates counted."""
    import duckdb

    if not old and not new:
        return []
    columns = ", ".join(f'"{column.name}"' for column in schema.table(table).columns)

    def rows_of(files: Sequence[Path]) -> str:
        listed = ", ".join(sql_literal(str(path)) for path in files)
        only = f"SELECT {columns} FROM read_parquet([{listed}], hive_partitioning = false)"
        return only if files else f"SELECT {columns} FROM ({rows_of(old or new)}) WHERE false"

    config: dict[str, Any] = {"memory_limit": "800MB", "temp_directory": str(scratch / "compare.tmp")}
    try:
        with duckdb.connect(config=config) as sql:
            added, removed = (
                dict(sql.execute(f"SELECT run_id, count(*) FROM ({one} EXCEPT ALL {other}) GROUP BY run_id").fetchall())
                for one, other in ((rows_of(new), rows_of(old)), (rows_of(old), rows_of(new)))
            )
    except duckdb.Error as error:
        if no_space(error) or no_memory(error):
            raise
        what = str(error).splitlines()[0]
        raise UsageError(f"{table}: cannot be compared with the previous release ({what})") from error
    runs = sorted(added.keys() | removed.keys())
    return [RowChange(table, run_id, added.get(run_id, 0), removed.get(run_id, 0)) for run_id in runs]


def _options(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Options that changed, as text, but for the choice of tables and runs: these are compared themselves."""
    names = sorted((old.keys() | new.keys()) - {"tables", "runs"})
    return tuple(
        f"{name}: {_word(old.get(name))} -> {_word(new.get(name))}" for name in names if old.get(name) != new.get(name)
    )


def _word(value: Any) -> str:
    return "not given" if value is None else value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _descriptions(old: facts.Release, new: facts.Release) -> tuple[str, ...]:
    names = [field.name for field in dataclasses.fields(facts.About) if field.name not in ("version", "published")]
    changed = [name for name in names if getattr(old.about, name) != getattr(new.about, name)]
    others = {"software": "software", "flagged": "flagged runs", "provenance": "provenance"}
    changed += [shown for name, shown in others.items() if getattr(old, name) != getattr(new, name)]
    return tuple(changed)


def changelog(release: facts.Release, changes: Changes | None, before: str | None) -> str:
    """CHANGELOG.md. changes: None for a first release. before: that of the previous release, whose entries are kept."""
    title = f"## {release.about.version} - {release.about.published}"
    if changes is None:
        rows = sum(table.rows for table in release.tables)
        runs, tables = counted(len(release.runs), "run"), counted(len(release.tables), "table")
        lines = [f"First release: {runs}, {tables}, {counted(rows, 'row')}."]
    else:
        lines = _lines(changes)
    entry = "\n".join([title, "", *(f"- {line}" for line in lines), ""])
    _, older, entries = (before or "").partition("\n## ")
    return f"{_HEAD}\n{entry}{older}{entries}"


def _lines(changes: Changes) -> list[str]:
    lines = []
    if changes.keys_differ:
        lines.append("Anonymised with another key: labels, addresses and times do not agree with the previous ones.")
    elif changes.mapping_differs:
        lines.append("Anonymised in another way: addresses, ports or times do not agree with the previous ones.")
    if changes.schema_changed:
        lines.append("Schema changed: columns have another name, type or meaning (see the data dictionary).")
    for what, names in (
        ("Runs added", changes.runs_added), ("Runs removed", changes.runs_removed),
        ("Tables added", changes.tables_added), ("Tables removed", changes.tables_removed),
    ):  # fmt: skip
        if names:
            lines.append(f"{what} ({len(names)}): {listed([*map(_quoted, names)], _MOST_NAMES)}.")
    if changes.mapping_differs and changes.rows:
        lines.append(_summed(changes.rows))
    for change in () if changes.mapping_differs else changes.rows:
        counts = f"{counted(change.added, 'row')} added or changed, {change.removed:,} removed or changed"
        lines.append(f"Rows changed in {_quoted(change.table)} of {_quoted(change.run_id)}: {counts}.")
    if changes.captures_changed:
        lines.append("Cut-down captures changed.")
    lines += [f"Option changed: {_quoted(option)}." for option in changes.options]
    if descriptions := [name for name in changes.descriptions if name != "provenance" or not lines]:
        lines.append(f"Descriptions changed: {', '.join(descriptions)}.")
    return lines or ["The same data, made anew."]


def _summed(rows: Sequence[RowChange]) -> str:
    """All rows in one line, where mapped rows cannot be compared."""
    tables, runs = len({change.table for change in rows}), len({change.run_id for change in rows})
    removed, added = sum(change.removed for change in rows), sum(change.added for change in rows)
    return (
        f"Rows changed in {counted(tables, 'table')} of {counted(runs, 'run')}: {counted(removed, 'row')} before, "
        f"{added:,} now; rows that are mapped in another way cannot be compared."
    )


def _quoted(name: str) -> str:
    """A name as Markdown code, whatever is in it."""
    return f"`{' '.join(name.replace('`', chr(39)).split())}`"
