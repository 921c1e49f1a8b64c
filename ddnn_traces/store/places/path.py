"""Names of files that others wrote: which of them may be followed, and what a Parquet file's name says."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

from ddnn_traces.store import schema

# no *, ? or [, which fsspec and DuckDB would take for a pattern
_PARTITION = re.compile(r"(\w+)/run_id=([^/*?\[]+)/([\w.-]+)\.parquet")

#: Longest path, in characters, that file systems of all kinds can hold.
_LONGEST = 1024


def is_safe(path: str) -> bool:
    """Whether a relative path, with slashes, stays in its folder, also on a system that has backslashes and drives."""
    parts = path.split("/")
    odd = any(part in ("", ".", "..") for part in parts)
    return not odd and len(path) <= _LONGEST and path.isprintable() and not {"\\", ":"} & set(path)


def run_of(path: str) -> tuple[str, str] | None:
    """Table and run of TABLE/run_id=RUN/NAME.parquet; None for every other path."""
    found = _PARTITION.fullmatch(path)
    if found is None or found[1] not in schema.TABLES or not is_safe(path):
        return None
    return found[1], unquote(found[2])


def of_tables(paths: Iterable[str], runs: Iterable[str] | None = None) -> dict[str, list[str]]:
    """The Parquet files among the paths by table, sorted; all tables are there. runs: only of these; None: of all."""
    wanted = None if runs is None else set(runs)
    found: dict[str, list[str]] = {table: [] for table in schema.TABLES}
    for path in sorted(paths):
        named = run_of(path)
        if named and (wanted is None or named[1] in wanted):
            found[named[0]].append(path)
    return found
