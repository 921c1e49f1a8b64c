"""Why a query has no rows: what could not be looked at, or that nothing is wrong."""

from __future__ import annotations

from dataclasses import replace

from ddnn_traces.query import catalogue, missing
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.text import counted, listed

_MOST_RUNS = 3  # in a line

#: Runs of which no clock was compared, and whether captures of two hosts are there.
_UNCOMPARED = """
SELECT run_id, count(DISTINCT vantage_ip) FILTER (records > 0) > 1
FROM runs
LEFT JOIN captures USING (run_id)
GROUP BY run_id
HAVING count(captures.clock_offset_ns) = 0
ORDER BY run_id
"""
_SAID_BY_VERDICTS = {"clocks_differ", "doubtful_steps"}  # remarks of diagnose that Dataset.remarks() has, too


def reasons(dataset: Dataset, name: str) -> list[str]:
    """Lines on a named query that has no rows."""
    if name in missing.NOT_FOUND:
        return [missing.NOT_FOUND[name]]
    if name in ("clock_offsets", "clock_differences"):
        return _of_clocks(dataset)
    if "inferred_jobs" in catalogue.read_by(name) | {name}:
        return _of_jobs(dataset, name)
    return []


def _of_clocks(dataset: Dataset) -> list[str]:
    rows = dataset.sql(_UNCOMPARED).rows()
    lines = []
    for is_of_two, why in (
        (False, "no captures of two hosts, whose clocks could be compared"),
        (True, "no packet was captured at two hosts, so their clocks cannot be compared"),
    ):
        if runs := [run for run, found in rows if found == is_of_two]:
            lines.append(f"{counted(len(runs), 'run')} ({listed(runs, _MOST_RUNS)}): {why}")
    if compared := len(dataset.run_ids) - len(rows):
        lines.append(f"{counted(compared, 'run')}: clocks were compared (query clock_offsets), and none differ")
    return lines


def _of_jobs(dataset: Dataset, name: str) -> list[str]:
    """Why no job is seen; of jobs without a verdict, what is said of them."""
    from ddnn_traces.query import diagnosis

    if name == "verdicts":
        found = diagnosis.diagnose(dataset)
        said = tuple(one for one in found.remarks if one.kind not in _SAID_BY_VERDICTS)
        return replace(found, remarks=said).lines()
    jobs = dataset.query("jobs")
    return [] if jobs.height else diagnosis.why_no_job(dataset, jobs)
