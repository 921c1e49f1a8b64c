"""The ledger, conservation and all other data checks, on the released tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ddnn_traces import checks, queries, schema
from ddnn_traces.dataset import Dataset
from ddnn_traces.errors import DdnnTracesError
from ddnn_traces.releases import layout
from ddnn_traces.releases.verify.examined import Examined
from ddnn_traces.releases.verify.result import FAILED, FLAGGED, NOT_CHECKED, PASSED, Result, WrongError
from ddnn_traces.releases.verify.untrusted import shown
from ddnn_traces.text import sql_literal

DATA = "data"

#: Memory of DuckDB; what does not fit goes to files.
_MEMORY = "1GB"


def check_data(examined: Examined) -> Iterator[Result]:
    """No data check returns rows, but of runs that the release itself says fail it, and as many as it says."""
    release = examined.told()
    tables = {table.name for table in release.tables}
    try:
        with Dataset(examined.folder) as dataset:
            dataset.connection.execute(
                f"SET memory_limit = '{_MEMORY}'; SET threads = {examined.jobs}; "
                f"SET temp_directory = {sql_literal(str(examined.scratch / 'duckdb'))}"
            )
            found = {name: rows for name, rows in checks.run_checks(dataset).items() if _reads(name) <= tables}
    except DdnnTracesError as error:
        raise WrongError(f"the tables cannot be asked ({shown(error)}); look at the failures above") from None
    failed = checks.by_run(found)
    told = {name for counts in release.flagged.values() for name in counts}
    for name in sorted(checks.names()):
        if name not in found:
            lacking = ", ".join(sorted(_reads(name) - tables))
            yield Result(DATA, name, NOT_CHECKED, f"the release does not have {lacking}")
        elif not any(name in counts for counts in (*failed.values(), *release.flagged.values())):
            yield Result(DATA, name, PASSED, "returns no row")
    for run_id in sorted(failed.keys() | release.flagged.keys()):
        for name in sorted(failed.get(run_id, {}).keys() | release.flagged.get(run_id, {}).keys()):
            if name in found:
                yield _of_run(run_id, name, failed.get(run_id, {}).get(name, 0), release.flagged.get(run_id, {}).get(name, 0))
    for name in sorted(told - checks.names()):
        yield Result(DATA, shown(name), NOT_CHECKED, f"{layout.RELEASE} names a check that this program does not have")


def _of_run(run_id: str, name: str, rows: int, allowed: int) -> Result:
    subject = f"{name}: {shown(run_id)}"
    if rows == allowed:
        return Result(DATA, subject, FLAGGED, f"returns {rows:,} rows, as {layout.RELEASE} says of this run")
    said = f"{layout.RELEASE} says {allowed:,}" if allowed else f"{layout.RELEASE} does not flag the run"
    return Result(
        DATA, subject, FAILED, f"returns {rows:,} rows, and {said}; 'ddnn-traces check' shows them; leave the run out"
    )


def _reads(name: str) -> set[str]:
    """Tables that a check reads, also through queries."""
    words = set(re.findall(r"\w+", _sql(name).lower()))
    through = {table for query in words & queries.catalogue().keys() for table in queries.read_by(query)}
    return (words | through) & set(schema.TABLES)


def _sql(name: str) -> str:
    path: Path = checks.folder() / f"{name}.sql"
    return "\n".join(line.partition("--")[0] for line in path.read_text(encoding="utf-8").splitlines())
