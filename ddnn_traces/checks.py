"""Data checks: SQL in queries/checks/ that returns the offending rows. A sound dataset returns none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from ddnn_traces import schema

if TYPE_CHECKING:
    import pyarrow as pa

    from ddnn_traces.dataset import Dataset

#: Rows of all tables that are checked at once.
_TOGETHER = 20_000_000


def run_checks(dataset: Dataset) -> dict[str, pa.Table]:
    """Offending rows of every check, by the check's name."""
    return {name: dataset.sql_arrow((folder() / f"{name}.sql").read_text(encoding="utf-8")) for name in sorted(names())}


def run_in_groups(
    open_runs: Callable[[list[str]], AbstractContextManager[Dataset]], rows: Mapping[str, int]
) -> dict[str, pa.Table]:
    """As run_checks(), of so many runs at a time that their windows fit into memory. rows: of each run."""
    import pyarrow as pa

    found: dict[str, list[pa.Table]] = {name: [] for name in sorted(names())}
    for runs in _groups(rows):
        with open_runs(runs) as dataset:
            for name, table in run_checks(dataset).items():
                found[name].append(table)
    return {name: pa.concat_tables(tables, promote_options="permissive") for name, tables in found.items()}


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
    """Where the checks are."""
    return schema.shipped_folder("queries") / "checks"


def names() -> set[str]:
    """Names of all checks."""
    return {path.stem for path in folder().glob("*.sql")}


def by_run(found: dict[str, pa.Table]) -> dict[str, dict[str, int]]:
    """How many rows each check returned of each run: {run: {check: rows}}, without what returned none."""
    failed: dict[str, dict[str, int]] = {}
    for name, rows in found.items():
        for run_id in rows["run_id"].to_pylist() if rows.num_rows else ():
            counts = failed.setdefault(run_id, {})
            counts[name] = counts.get(name, 0) + 1
    return failed
