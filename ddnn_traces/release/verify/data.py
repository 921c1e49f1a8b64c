"""The ledger, conservation and all other data checks, on the released tables."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddnn_traces.errors import DdnnTracesError
from ddnn_traces.query import catalogue, checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, FLAGGED, NOT_CHECKED, PASSED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout, schema
from ddnn_traces.text import counted, sql_literal

if TYPE_CHECKING:
    import pyarrow as pa

DATA = "data"

#: Memory of DuckDB; what does not fit goes to files.
_MEMORY = "1GB"


#: Tables that a dataset need not have any row of; that a release lacks them is the same to the checks.
_OPTIONAL = {"packets", "encapsulations", "flow_opcodes", "steps", "step_flows", "events"}


def check_data(examined: Examined) -> Iterator[Result]:
    """No data check returns rows, but of runs that the release itself says fail it, and as many as it says."""
    release = examined.told()
    tables = {table.name for table in release.tables}
    try:
        found = checks.run_in_groups(lambda runs: _opened(examined, runs), _rows(examined))
    except DdnnTracesError as error:
        raise WrongError(f"the tables cannot be asked ({shown(error)}); look at the failures above") from None
    for name, rows in found.items():
        inputs = _inputs(name)
        if lacking := _lacking(inputs, tables):
            yield Result(DATA, name, NOT_CHECKED, f"the release does not have {', '.join(sorted(lacking))}")
        else:
            allowed = {run: counts[name] for run, counts in release.flagged.items() if name in counts}
            yield from _of_check(name, rows, inputs - tables, allowed)
    for name in sorted({name for counts in release.flagged.values() for name in counts} - found.keys()):
        yield Result(DATA, shown(name), NOT_CHECKED, f"{layout.RELEASE} names a check that this program does not have")


@contextlib.contextmanager
def _opened(examined: Examined, runs: list[str]) -> Iterator[Dataset]:
    """Some runs of the release, asked with little memory."""
    with Dataset(examined.folder, runs or None) as dataset:
        dataset.connection.execute(
            f"SET memory_limit = '{_MEMORY}'; SET threads = {examined.jobs}; "
            f"SET temp_directory = {sql_literal(str(examined.scratch / 'duckdb'))}"
        )
        yield dataset


def _rows(examined: Examined) -> dict[str, int]:
    """Rows of each run."""
    release = examined.told()
    rows = dict.fromkeys(release.run_ids, 0)
    for table in release.tables:
        for file in table.files:
            rows[file.run_id] = rows.get(file.run_id, 0) + file.rows
    return rows


def _lacking(inputs: set[str], tables: set[str]) -> set[str]:
    """Tables without which a check says nothing: steps are needed only where something names them."""
    needed = inputs - (_OPTIONAL - {"steps"} if tables & {"step_flows", "events"} else _OPTIONAL)
    return needed - tables


def _of_check(name: str, rows: pa.Table, absent: set[str], allowed: dict[str, int]) -> Iterator[Result]:
    """A line for each run that fails or is said to, and for rows about tables that are not in the release."""
    about_absent = [any(_names(value, absent) for value in row.values()) for row in rows.to_pylist()]
    if any(about_absent):
        detail = (
            f"{counted(sum(about_absent), 'row')} about {', '.join(sorted(absent))}, which the release does not have"
        )
        yield Result(DATA, name, NOT_CHECKED, detail)
    runs = Counter(
        run for run, excused in zip(rows["run_id"].to_pylist() if rows.num_rows else (), about_absent, strict=True)
        if not excused
    )  # fmt: skip
    for run in sorted(runs.keys() | allowed.keys()):
        yield _of_run(name, run, runs[run], allowed.get(run, 0), partly=bool(absent))
    if not runs and not allowed and not any(about_absent):
        yield Result(DATA, name, PASSED, "returns no row")


def _of_run(name: str, run: str, rows: int, allowed: int, partly: bool) -> Result:
    """partly: rows may have been about a table that is not in the release."""
    subject = f"{name}: {shown(run)}"
    if rows == allowed or (partly and rows < allowed):
        return Result(
            DATA, subject, FLAGGED, f"returns {counted(rows, 'row')}, {layout.RELEASE} flags the run for {allowed:,}"
        )
    said = f"{layout.RELEASE} says {allowed:,}" if allowed else f"{layout.RELEASE} does not flag the run"
    detail = f"returns {counted(rows, 'row')}, and {said}; 'ddnn-traces check' shows them; ask whoever published it"
    return Result(DATA, subject, FAILED, detail)


def _names(value: object, tables: set[str]) -> bool:
    return isinstance(value, str) and bool(tables & set(re.findall(r"\w+", value)))


def _inputs(name: str) -> set[str]:
    """Tables that a check reads, also through queries, as its head says."""
    (line,) = re.findall(r"^-- inputs: (.+)$", (checks.folder() / f"{name}.sql").read_text(encoding="utf-8"), re.M)
    named = set(re.split(r",\s*", line))
    through = {table for query in named & catalogue.catalogue().keys() for table in catalogue.read_by(query)}
    return (named | through) & set(schema.TABLES)
