"""Jobs that lose time in ways of which no verdict tells, in words: the command diagnose and the report say the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ddnn_traces.text import counted

if TYPE_CHECKING:
    import polars as pl

    from ddnn_traces.query.dataset import Dataset

_LEAST_LOST = 0.05  # share of a job's time in long steps that is told
_MOST_HOSTS = 3  # in a sentence


def sentences(long_steps: pl.DataFrame, dataset: Dataset) -> dict[tuple[str, int], str]:
    """A sentence for each job with several long steps that take 5% of its time, and more, beyond the median. A single
    one tells of no cause. long_steps: rows of the query."""
    labels = {(run, host): label for run, host, label in dataset.sql("SELECT run_id, host_ip, label FROM hosts").rows()}
    found = {}
    for run_id, job in long_steps.select("run_id", "job").unique(maintain_order=True).iter_rows():
        rows = long_steps.filter(run_id=run_id, job=job)
        share = rows["lost_share"].sum()
        if rows.height < 2 or share < _LEAST_LOST:
            continue
        hosts = Counter(labels.get((run_id, host)) or host for host in rows.filter(waits_for="host")["host_ip"])
        waits = [f"{host} in {count}" for host, count in hosts.most_common(_MOST_HOSTS)]
        if within := rows.height - hosts.total():
            waits.append(f"data of a collective in {within}")
        many = f"{rows.height} of {counted(rows['steps'][0], 'step')}"
        found[run_id, job] = (
            f"{run_id}, job {job}: {many} take at least twice the median ({rows['median_ms'][0]:.3g} ms), which costs "
            f"{share:.0%} of the time behind the first step; the longest wait is for {', '.join(waits)} "
            "(query long_steps)."
        )
    return found


def together(late_together: pl.DataFrame) -> dict[tuple[str, int], str]:
    """A sentence for each job whose hosts are late in the same steps. late_together: rows of the query."""
    return {
        (run_id, job): f"{run_id}, job {job}: {sentence} (query late_together)."
        for run_id, job, sentence in late_together.select("run_id", "job", "sentence").iter_rows()
    }
