"""What is worth saying of training jobs in which nothing stands out: sends alone, other traffic, bytes sent again."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from ddnn_traces.text import digits, sql_literal

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

_LEAST_OTHER = 0.01  # of the job's bytes
_LEAST_SENT_AGAIN = 0.005  # of a link's bytes: 1% of lost packets are less, where some of them are small
_COPIES = 2 / 3  # so much that is there again are copies of packets, as in verdicts

#: Jobs whose collectives are sends between two hosts, and no pipeline, whose stages verdicts compares.
_SENDS_ALONE = """
SELECT run_id, job
FROM collectives
ANTI JOIN (FROM communicators WHERE role = 'pipeline') USING (run_id, job)
GROUP BY ALL
HAVING bool_and(kind = 'send')
"""

#: Flows in no job of hosts of a job, with more than a tenth of _LEAST_OTHER of its bytes: candidates, without times.
_BESIDE = """
WITH own AS (
    SELECT run_id, job, flow_id, reverse_flow_id, src_ip, dst_ip, payload_bytes
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
), jobs AS (
    SELECT run_id, job, sum(payload_bytes) AS job_bytes, list_distinct(flatten(list([src_ip, dst_ip]))) AS host_ips
    FROM own
    GROUP BY run_id, job
)
SELECT run_id, job, job_bytes, flow_id, src_ip, dst_ip,
       CASE WHEN is_initiator IS NOT FALSE THEN dst_port ELSE src_port END AS port
FROM flows
ANTI JOIN (SELECT run_id, unnest([flow_id, reverse_flow_id]) AS flow_id FROM own) USING (run_id, flow_id)
JOIN jobs USING (run_id)
WHERE src_ip <> dst_ip AND list_has_any(host_ips, [src_ip, dst_ip]) AND payload_bytes > job_bytes * {least} / 10
"""

#: What goes from a host to another beside a job between its first and its last step, most of each job.
_OTHER = """
WITH beside AS MATERIALIZED ({beside}
), times AS (
    SELECT run_id, job, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM job_steps
    GROUP BY run_id, job
), sums AS (
    SELECT run_id, job, src_ip, dst_ip, port, any_value(job_bytes) AS job_bytes,
           coalesce(sum(payload_bytes), 0) AS payload_bytes
    FROM beside
    JOIN times USING (run_id, job)
    JOIN flow_windows USING (run_id, flow_id)
    WHERE run_id IN ({runs}) AND window_start_ns BETWEEN start_ns AND end_ns
    GROUP BY run_id, job, src_ip, dst_ip, port
)
SELECT sums.run_id, job, coalesce(a.label, src_ip) AS src, coalesce(b.label, dst_ip) AS dst, port,
       payload_bytes::BIGINT AS payload_bytes, payload_bytes / job_bytes AS share
FROM sums
LEFT JOIN hosts AS a ON a.run_id = sums.run_id AND a.host_ip = src_ip
LEFT JOIN hosts AS b ON b.run_id = sums.run_id AND b.host_ip = dst_ip
QUALIFY row_number() OVER (PARTITION BY sums.run_id, job ORDER BY payload_bytes DESC, src_ip, dst_ip) = 1
"""

#: The link of each job with the largest share of bytes that were sent again.
_SENT_AGAIN = """
SELECT links.run_id, job, coalesce(a.label, src_ip) AS src, coalesce(b.label, dst_ip) AS dst, again_bytes, share
FROM (
    SELECT run_id, job, src_ip, dst_ip, sum(retransmitted_bytes)::BIGINT AS again_bytes,
           again_bytes / nullif(sum(payload_bytes), 0) AS share
    FROM job_flows
    JOIN flows USING (run_id, flow_id)
    GROUP BY run_id, job, src_ip, dst_ip
) AS links
LEFT JOIN hosts AS a ON a.run_id = links.run_id AND a.host_ip = src_ip
LEFT JOIN hosts AS b ON b.run_id = links.run_id AND b.host_ip = dst_ip
WHERE share BETWEEN {least} AND {most}
QUALIFY row_number() OVER (PARTITION BY links.run_id, job ORDER BY share DESC, src_ip, dst_ip) = 1
"""


def sends_alone(dataset: Dataset) -> set[tuple[str, int]]:
    """Run and job of those whose collectives are all sends: no host enters one with others, to be compared with."""
    return {*dataset.sql(_SENDS_ALONE).iter_rows()}


def extras(dataset: Dataset, quiet: Collection[tuple[str, int]]) -> dict[tuple[str, int], str]:
    """What these jobs (run, job) have of other traffic and of bytes that were sent again, in sentences; those alone
    that have enough of either."""
    said: dict[tuple[str, int], list[str]] = {}
    for run_id, job, src, dst, port, sent, share in _other(dataset, {run_id for run_id, _ in quiet}):
        if share >= _LEAST_OTHER:
            to = dst if port is None else f"{dst}, port {port}"
            text = f"{_megabytes(sent)} ({_percent(share)} of its bytes) go beside it from {src} to {to}."
            said.setdefault((run_id, job), []).append(text)
    again = dataset.sql(_SENT_AGAIN.format(least=_LEAST_SENT_AGAIN, most=_COPIES))
    for run_id, job, src, dst, sent, share in again.iter_rows():
        text = f"{_megabytes(sent)} from {src} to {dst} ({_percent(share)} of that link's bytes) were sent again."
        said.setdefault((run_id, job), []).append(text)
    return {job: " ".join(sentences) for job, sentences in said.items() if job in quiet}


def _other(dataset: Dataset, runs: set[str]) -> list[tuple[Any, ...]]:
    """The rows of _OTHER; windows are read only of runs that have a candidate."""
    beside = _BESIDE.format(least=_LEAST_OTHER)
    found = set(dataset.sql(beside)["run_id"]) & runs
    if not found:
        return []
    names = ", ".join(map(sql_literal, sorted(found)))
    return dataset.sql(_OTHER.format(beside=beside, runs=names)).rows()


def _megabytes(sent: int) -> str:
    return f"{digits(sent / 1e6)} MB"


def _percent(share: float) -> str:
    return f"{digits(100 * share, 2)}%"
