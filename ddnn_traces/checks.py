"""Data checks: SQL in queries/checks/ that returns the offending rows. A sound dataset returns none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddnn_traces import schema

if TYPE_CHECKING:
    import pyarrow as pa

    from ddnn_traces.dataset import Dataset


def run_checks(dataset: Dataset) -> dict[str, pa.Table]:
    """Offending rows of every check, by the check's name."""
    return {name: dataset.sql_arrow((folder() / f"{name}.sql").read_text(encoding="utf-8")) for name in sorted(names())}


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
