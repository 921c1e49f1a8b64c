"""What no verdict tells, in words: other ways to lose time, and what cannot be told; of diagnose and the report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl

from ddnn_traces.text import counted, digits, listed

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

_LEAST_LOST = 0.05  # share of a job's time in long steps that is told
_MOST_HOSTS = 3  # in a sentence
_MOST_RUNS = 3  # in a sentence


def sentences(long_steps: pl.DataFrame, dataset: Dataset) -> dict[tuple[str, int], str]:
    """A sentence for each job whose long steps take 5% of its time and more beyond the median. long_steps: the query's
    rows."""
    labels = {(run, host): label for run, host, label in dataset.sql("SELECT run_id, host_ip, label FROM hosts").rows()}
    found = {}
    for run_id, job in long_steps.select("run_id", "job").unique(maintain_order=True).iter_rows():
        rows = long_steps.filter(run_id=run_id, job=job)
        share = rows["lost_share"].sum()
        if share < _LEAST_LOST:
            continue
        hosts = Counter(labels.get((run_id, host)) or host for host in rows.filter(waits_for="host")["host_ip"])
        waits = [f"for {host} in {count}" for host, count in hosts.most_common(_MOST_HOSTS)]
        if within := rows.filter(waits_for="collective").height:
            waits.append(f"for data of a collective in {within}")
        if alike := rows.filter(waits_for="all hosts").height:
            waits.append(f"of all hosts alike, as for a validation, in {alike}")
        many = f"{rows.height} of {counted(rows['steps'][0], 'step')} {'takes' if rows.height == 1 else 'take'}"
        found[run_id, job] = (
            f"{run_id}, job {job}: {many} at least twice the median ({digits(rows['median_ms'][0])} ms), which costs "
            f"{share:.0%} of the time behind the first step; the longest wait is {', '.join(waits)} (query long_steps)."
        )
    return found


def together(late_together: pl.DataFrame) -> dict[tuple[str, int], str]:
    """A sentence for each job whose hosts are late in the same steps. late_together: rows of the query."""
    return {
        (run_id, job): f"{run_id}, job {job}: {sentence} (query late_together)."
        for run_id, job, sentence in late_together.select("run_id", "job", "sentence").iter_rows()
    }


def doubts(jobs: pl.DataFrame, logged: set[str]) -> dict[tuple[str, int], str]:
    """What is said of each job whose steps by repeated bytes are not those of the log or of pauses. jobs: rows of the
    query; logged: runs with a log."""
    rows = jobs.filter(jobs["agreed_share"] < 1).select("run_id", "job", "steps", "other_steps").iter_rows()
    return {
        (run_id, job): f"its flows repeat their bytes in {steps} steps, "
        f"{'the log shows' if run_id in logged else 'pauses show'} {others} (query jobs); "
        "so a collective may be of several steps, or a part of one"
        for run_id, job, steps, others in rows
    }


def of_two_hosts(jobs: pl.DataFrame) -> set[tuple[str, int]]:
    """The run and job of each job of two hosts, of which no verdict can call one slow. jobs: rows of the query."""
    of_two = jobs.filter(jobs["hosts"].str.split(",").list.len() == 2)
    return {*of_two.select("run_id", "job").iter_rows()}


def of_two(of_jobs: set[tuple[str, int]]) -> str:
    """Why of these jobs of two hosts none has a slow one; empty where there is no such job."""
    if not of_jobs:
        return ""
    runs = listed(sorted({run for run, _ in of_jobs}), _MOST_RUNS)
    return (
        f"In {counted(len(of_jobs), 'job')} of two hosts ({runs}) nobody can tell which of the two is slow: no third "
        "host shows how long one should need. See query collective_entries for the time of each."
    )


def of_one_host(uncaptured_hosts: pl.DataFrame, jobs: pl.DataFrame) -> set[str]:
    """The runs of which one host alone was captured, and that show no job. Both arguments: rows of the query."""
    seen = uncaptured_hosts.group_by("run_id").agg(captured=pl.col("hosts").first() - pl.len())
    return {*seen.filter(captured=1)["run_id"]} - {*jobs["run_id"]}


def alone(runs: set[str]) -> str:
    """Why these runs of_one_host show no job, and what their captures tell; empty where there is none."""
    if not runs:
        return ""
    named = listed(sorted(runs), _MOST_RUNS)
    return (
        f"In {counted(len(runs), 'run')} ({named}) one host alone was captured, so no job is seen: what the others "
        "send to each other is missing. Its flows, volumes and steps are there (queries traffic_matrix, "
        "inferred_steps); topology, collectives and slow hosts need the captures of all hosts."
    )
