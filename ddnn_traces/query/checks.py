"""Data checks: SQL in queries/checks/ that returns the offending rows. A sound dataset returns none."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from ddnn_traces.errors import QueryError
from ddnn_traces.store import checksums, schema
from ddnn_traces.store.places import place

if TYPE_CHECKING:
    import pyarrow as pa

    from ddnn_traces.query.dataset import Dataset

#: Rows of all tables that are checked at once. With 1 GB of memory, the conservation check of 74 million rows spilled
#: to disk and took four times as long.
_TOGETHER = 40_000_000


def run_checks(dataset: Dataset) -> dict[str, pa.Table]:
    """Offending rows of every check, by the check's name."""
    return {name: dataset.sql_arrow((folder() / f"{name}.sql").read_text(encoding="utf-8")) for name in sorted(names())}


def damaged_files(where: str | Path) -> list[checksums.Damage] | None:
    """Files of a dataset that are not what was written, before it is opened; None where they are not in a folder here.

    Raises UsageError where there is no dataset.
    """
    if place.is_url(where) or zipfile.is_zipfile(where):
        return None
    folder = place.in_folder(Path(where)).on_this_machine()
    return checksums.all_damages(folder)


def run_in_groups(
    open_runs: Callable[[list[str]], AbstractContextManager[Dataset]], rows: Mapping[str, int]
) -> dict[str, pa.Table]:
    """As run_checks(), in groups of runs whose windows fit into memory. rows: number of rows of each run."""
    import pyarrow as pa

    parts = [part for runs in _groups(rows) for part in _run_some(open_runs, runs)]
    return {
        name: pa.concat_tables([part[name] for part in parts], promote_options="permissive") for name in sorted(names())
    }


def _run_some(
    open_runs: Callable[[list[str]], AbstractContextManager[Dataset]], runs: list[str]
) -> list[dict[str, pa.Table]]:
    """Results of the checks for these runs; where memory is short, for each half of them."""
    import duckdb

    try:
        with open_runs(runs) as dataset:
            return [run_checks(dataset)]
    except QueryError as error:
        if len(runs) <= 1 or not isinstance(error.__cause__, duckdb.OutOfMemoryException):
            raise
    half = len(runs) // 2
    return _run_some(open_runs, runs[:half]) + _run_some(open_runs, runs[half:])


def _groups(rows: Mapping[str, int]) -> list[list[str]]:
    """The runs in order, in groups of not much more than _TOGETHER rows; one group at least."""
    groups: list[list[str]] = [[]]
    held = 0
    for run_id, number in rows.items():
        if groups[-1] and held + number > _TOGETHER:
            groups.append([])
            held = 0
        groups[-1].append(run_id)
        held += number
    return groups


def folder() -> Path:
    """Folder of the checks."""
    return schema.shipped_folder("queries") / "checks"


def names() -> set[str]:
    """Names of all checks."""
    return {path.stem for path in folder().glob("*.sql")}


def by_run(found: dict[str, pa.Table]) -> dict[str, dict[str, int]]:
    """How many rows each check returned of each run: {run: {check: rows}}, without checks that returned no row."""
    failed: dict[str, dict[str, int]] = {}
    for name, rows in found.items():
        for run_id in rows["run_id"].to_pylist() if rows.num_rows else ():
            counts = failed.setdefault(run_id, {})
            counts[name] = counts.get(name, 0) + 1
    return failed
