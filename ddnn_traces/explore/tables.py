"""The two tables that the page's charts read: what each flow sent in each window, and the steps.

Their windows suit the width of a chart, so they are small however large the dataset is; DuckDB makes them of the
dataset's queries, in memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

    from ddnn_traces.query.dataset import Dataset

WINDOWS, STEPS = "explored_windows", "explored_steps"

MOST_WINDOWS = 400

#: Colours that can be told apart.
MOST_SERIES = 10

# since_start_s is the column that brushes select by: the start of a window or a step, by its run's first packet.
# series, the colour: the run, or of a single run the host that sends or trains.
_TABLES = """
CREATE TABLE explored_windows AS
SELECT run_id AS run, coalesce(source, src_ip) AS sender, coalesce(target, dst_ip) AS receiver, flow,
       since_start_s, since_start_s + greatest(round({window_ms} * 1e6 / base_ns), 1) * base_ns / 1e9 AS until_s,
       packets, wire_bytes, gbit_per_s, CASE WHEN {runs} = 1 THEN sender ELSE run END AS series
FROM throughput_windows(window_ms := {window_ms})
JOIN run_spans USING (run_id)
JOIN flow_names USING (run_id, flow_id)
LEFT JOIN (SELECT run_id, host_ip AS src_ip, host AS source FROM host_names) USING (run_id, src_ip)
LEFT JOIN (SELECT run_id, host_ip AS dst_ip, host AS target FROM host_names) USING (run_id, dst_ip);
CREATE TABLE explored_steps AS
WITH named AS (
    SELECT run_id, label AS worker, min(host) AS host
    FROM hosts
    JOIN host_names USING (run_id, host_ip)
    GROUP BY ALL
), logged AS (
    SELECT steps.*, host, coalesce(first_ns, min(start_ns) OVER (PARTITION BY run_id)) AS zero_ns
    FROM steps
    LEFT JOIN run_spans USING (run_id)
    LEFT JOIN named USING (run_id, worker)
)
SELECT run_id AS run, worker, step, (start_ns - zero_ns) / 1e9 AS since_start_s, (end_ns - zero_ns) / 1e9 AS until_s,
       floor(since_start_s * 1e3 / {window_ms}) * {window_ms} / 1e3 AS window_s,
       (end_ns - start_ns) / 1e6 AS duration_ms, CASE WHEN {runs} = 1 THEN coalesce(host, worker) ELSE run END AS series
FROM logged
"""

# From here on the page's SQL reads and writes nothing but tables in memory.
_CLOSE = "SET enable_external_access = false; SET lock_configuration = true"


@dataclass(frozen=True)
class Contents:
    """What the tables hold. series: names that have a colour each; empty: too many for that."""

    runs: tuple[str, ...]
    window_ms: float
    series: tuple[str, ...]
    steps: int
    begin_s: float
    end_s: float

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sent and no step logged."""
        return self.begin_s == self.end_s


def make(dataset: Dataset) -> Contents:
    """Make both tables in the dataset's connection, which can read and write no file from then on."""
    connection = dataset.connection
    runs = tuple(dataset.run_ids)
    window_ms = _window_ms(connection)
    connection.execute(_TABLES.format(window_ms=repr(window_ms), runs=len(runs)))
    connection.execute(_CLOSE)
    (found,) = connection.execute(_CONTENTS).fetchall()
    series, *others = found
    return Contents(runs, window_ms, tuple(series) if len(series) <= MOST_SERIES else (), *others)


_CONTENTS = """
SELECT coalesce(list(DISTINCT series ORDER BY series), []), count(step), coalesce(min(since_start_s), 0.0),
       coalesce(max(until_s), 0.0)
FROM (FROM explored_windows UNION ALL BY NAME FROM explored_steps)
"""


def _window_ms(connection: duckdb.DuckDBPyConnection) -> float:
    """1, 2 or 5 times a power of ten, at least a base window: so long that the longest run has MOST_WINDOWS at most."""
    ((base_ns, span_ns),) = connection.execute("SELECT max(base_ns), max(last_ns - first_ns) FROM run_spans").fetchall()
    least_ms = max(base_ns or 0, (span_ns or 0) / MOST_WINDOWS, 1) / 1e6
    power = 10.0 ** math.floor(math.log10(least_ms))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least_ms)


def flows(windows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """What each flow sent in these rows of explored_windows, the largest first."""
    return windows.aggregate(
        """
        run, flow, sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS "wire bytes (B)",
        round(min(since_start_s), 6) AS "first (s)", round(max(until_s), 6) AS "last (s)",
        round(max(gbit_per_s), 6) AS "peak (Gbit/s)"
        """,
        "run, flow",
    ).order('"wire bytes (B)" DESC, run, flow')
