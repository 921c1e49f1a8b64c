"""Data checks: SQL in queries/checks/ that returns the offending rows. A sound dataset returns none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ddnn_traces.errors import QueryError
from ddnn_traces.jobs import thread_pool
from ddnn_traces.query import catalogue
from ddnn_traces.query.dataset import StoredViews
from ddnn_traces.store import checksums, layout, object_store, places, schema
from ddnn_traces.text import sql_literal

if TYPE_CHECKING:
    import pyarrow as pa

    from ddnn_traces.query.dataset import Dataset

#: Rows of all tables that are checked at once. With 1 GB of memory, the conservation check of 74 million rows spilled
#: to disk and took four times as long.
_TOGETHER = 40_000_000
#: Groups of runs that are checked side by side: within a group, much of a query is the work of one thread.
_AT_ONCE = 2
#: Memory for queries of a dataset, MB.
_QUERY_MB = 1000

#: Opens runs of a dataset. The number: of datasets that are open at once, which share memory and threads.
OpenRuns = Callable[[list[str], int], AbstractContextManager["Dataset"]]


@contextmanager
def with_little_memory(
    where: str | Path, runs: list[str], threads: int, spill: Path, at_once: int = 1
) -> Iterator[Dataset]:
    """A dataset, or some runs of it, queried with 1 GB of memory. spill: folder for the rest, made when needed.

    at_once: datasets that are open at the same time, and share memory and threads.
    """
    from ddnn_traces.query.dataset import Dataset

    with Dataset(where, runs or None) as opened:
        opened.sql_arrow(
            f"SET memory_limit = '{_QUERY_MB // at_once}MB'; SET threads = {max(1, threads // at_once)}; "
            f"SET temp_directory = {sql_literal(str(spill))}"
        )
        yield opened


def run_checks(dataset: Dataset) -> dict[str, pa.Table]:
    """Offending rows of every check, by the check's name."""
    texts = {name: (folder() / f"{name}.sql").read_text(encoding="utf-8") for name in sorted(names())}
    dataset.provide("\n".join(texts.values()))
    return {name: dataset.sql_arrow(text, is_own=True) for name, text in texts.items()}


def run_with_stored_inputs(dataset: Dataset) -> dict[str, pa.Table]:
    """As run_checks(), which then plans and computes no view more than once."""
    with StoredViews(dataset) as stored:
        store_inputs(stored)
        return run_checks(dataset)


def store_inputs(stored: StoredViews) -> None:
    """Store the views that the checks read: several read the same, and conservation many."""
    stored.store(sorted({name for check in names() for name in catalogue.read(folder() / f"{check}.sql").inputs}))


def damaged_files(where: str | Path) -> list[checksums.Damage] | None:
    """Files of a dataset that are not what was written, before it is opened; None where they are neither in a folder
    here nor those of a dataset on a store.

    Raises UsageError where there is no dataset.
    """
    if places.is_url(where):
        on_store = places.find(where) if object_store.is_store(where) else None
        return None if on_store is None or on_store.damages is None else on_store.damages()
    if places.is_zip(Path(where)):
        return None
    found = places.in_folder(Path(where))
    folder = found.on_this_machine()
    return checksums.all_damages(folder) if found.listed is None else checksums.listed_damages(folder, found.listed)


def unrecorded_runs(where: str | Path) -> int:
    """How many runs of a dataset lack a record of sizes and checksums; those on a store all have one."""
    return 0 if places.is_url(where) else len(checksums.unrecorded(layout.content(Path(where))))


def sound_runs(where: str | Path, damaged: list[checksums.Damage]) -> list[str]:
    """The runs of a dataset, in a folder or on a store, that have no damaged file."""
    return sorted(places.find(where).run_ids() - {damage.run_id for damage in damaged})


def run_in_groups(open_runs: OpenRuns, rows: Mapping[str, int], threads: int) -> dict[str, pa.Table]:
    """As run_checks(), in groups of runs whose windows fit into memory, two at once where there are threads for it.

    rows: number of rows of each run.
    """
    import pyarrow as pa

    at_once = _AT_ONCE if threads >= _AT_ONCE and max(rows.values(), default=0) <= _TOGETHER // _AT_ONCE else 1
    groups = _groups(rows, _TOGETHER // at_once)
    at_once = min(at_once, len(groups))
    running = _Running()
    with thread_pool(at_once, "checks", running.end) as pool:
        futures = [pool.submit(_run_some, lambda runs: open_runs(runs, at_once), runs, running) for runs in groups]
        parts = [part for future in futures for part in future.result()]
    return {
        name: pa.concat_tables([part[name] for part in parts], promote_options="permissive") for name in sorted(names())
    }


class _Running:
    """The datasets that are being checked, so that all of them end where one fails or the user interrupts."""

    def __init__(self) -> None:
        self._datasets: list[Dataset] = []
        self._ended = threading.Event()

    def checks(self, dataset: Dataset) -> dict[str, pa.Table]:
        """As run_with_stored_inputs(). Raises QueryError where end() was called."""
        self._datasets.append(dataset)
        try:
            if self._ended.is_set():
                raise QueryError("the checks of other runs have failed")
            return run_with_stored_inputs(dataset)
        finally:
            self._datasets.remove(dataset)

    def end(self) -> None:
        """End the queries of all datasets."""
        self._ended.set()
        for dataset in [*self._datasets]:
            dataset.close()


def _run_some(
    open_runs: Callable[[list[str]], AbstractContextManager[Dataset]], runs: list[str], running: _Running
) -> list[dict[str, pa.Table]]:
    """Results of the checks for these runs; where memory is short, for each half of them."""
    import duckdb

    try:
        with open_runs(runs) as dataset:
            return [running.checks(dataset)]
    except QueryError as error:
        if len(runs) <= 1 or not isinstance(error.__cause__, duckdb.OutOfMemoryException):
            raise
    half = len(runs) // 2
    return [part for some in (runs[:half], runs[half:]) for part in _run_some(open_runs, some, running)]


def _groups(rows: Mapping[str, int], together: int) -> list[list[str]]:
    """The runs in order, in groups of not more than so many rows, or of one run; one group at least."""
    groups: list[list[str]] = [[]]
    held = 0
    for run_id, number in rows.items():
        if groups[-1] and held + number > together:
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
