"""The views of a dataset that Python makes when a query reads them, one run at a time (made_by in their heads)."""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces import cache as caches
from ddnn_traces import collectives
from ddnn_traces.capture_format import PARSED
from ddnn_traces.store.whole_files import whole_file

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_VIEWS = ("inferred_jobs", "several_patterns")
_LEAST_BYTES = 10_000  # of a flow of training
_TOGETHER = 200_000  # messages that are read at once, so that many small runs take one query
#: Each run, what tells whether windows of the same messages are the same (columns of few bytes), and its messages.
_RUNS = """
SELECT run_id, concat_ws(' ', windows, captured), coalesce(messages, 0)
FROM runs
LEFT JOIN (
    SELECT run_id, count(*) AS messages
    FROM messages
    GROUP BY run_id
) USING (run_id)
LEFT JOIN (
    SELECT run_id, concat_ws(' ', count(*), max(window_ns)) AS windows
    FROM flow_windows
    GROUP BY run_id
) USING (run_id)
LEFT JOIN (
    SELECT run_id, string_agg(DISTINCT vantage_ip, ' ' ORDER BY vantage_ip) AS captured
    FROM captures
    GROUP BY run_id
) USING (run_id)
ORDER BY run_id
"""
#: Of flows between two captured hosts, when packets came back, in the first minute of data; of runs that were captured:
#: simulated hosts have one clock, and do not acknowledge.
_BACK = f"""
SELECT f.flow_id, list(window_start_ns + window_ns // 2 ORDER BY window_start_ns) AS back
FROM flows AS f
JOIN flow_windows AS w ON f.run_id = w.run_id AND f.reverse_flow_id = w.flow_id
WHERE f.run_id = $1 AND f.src_ip <> f.dst_ip AND f.payload_bytes >= {_LEAST_BYTES} AND window_ns <= 1_000_000
      AND window_start_ns < $2 + 60_000_000_000
      AND f.run_id NOT IN (SELECT run_id FROM runs WHERE source IN ('simulation', 'synthetic'))
      AND f.src_ip IN (SELECT vantage_ip FROM captures WHERE run_id = $1)
      AND f.dst_ip IN (SELECT vantage_ip FROM captures WHERE run_id = $1)
GROUP BY f.flow_id
"""
_MESSAGES = f"""
SELECT run_id, flow_id, src_ip, dst_ip, first_ns, first_ns + duration_ns AS last_ns, stream_offset, bytes,
       bytes > 64 AND end_source <> 'next_message' AS is_end, end_source = 'silence' AS is_silence
FROM messages JOIN flows USING (run_id, flow_id)
WHERE run_id BETWEEN $1 AND $2 AND src_ip <> dst_ip
      AND run_id NOT IN (SELECT run_id FROM captures WHERE format = '{PARSED}')
ORDER BY run_id, flow_id, message
"""


@dataclass(frozen=True)
class Chosen:
    """A job or a communicator that a user chose by parameters (job, communicator): its flows (run_id, flow_id, src_ip,
    dst_ip), which may carry other collectives too, and its rows of inferred_jobs with its own collectives only."""

    parameters: frozenset[str]
    flows: pa.Table
    jobs: pa.Table


def provide(connection: duckdb.DuckDBPyConnection, chosen: Chosen | None = None) -> None:
    """Put the rows of Python in the place of the views, which DuckDB alone cannot make."""
    from ddnn_traces.collectives import tables

    runs = _Runs(connection)
    if chosen:
        runs.are_known(chosen.jobs)
    patterns_of = partial(tables.patterns_of, chosen=chosen.parameters if chosen else ())
    streams = (_Stream(tables.JOBS, runs, lambda jobs: jobs), _Stream(tables.PATTERNS, runs, patterns_of))
    for name, stream in zip(_VIEWS, streams, strict=True):
        connection.register(name, stream)


def withdraw(connection: duckdb.DuckDBPyConnection) -> None:
    """Undo provide()."""
    for name in _VIEWS:
        connection.unregister(name)


class _Runs:
    """The jobs of each run, which are inferred once."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = weakref.ref(connection)  # which holds this
        self._known: dict[str, pa.Table] = {}

    def are_known(self, jobs: pa.Table) -> None:
        """Take these jobs, and infer none."""
        import pyarrow.compute as pc

        from ddnn_traces.collectives import tables

        jobs = jobs.cast(tables.JOBS)
        for run_id in pc.unique(jobs["run_id"]).to_pylist():
            self._known[run_id] = jobs.filter(pc.equal(jobs["run_id"], run_id))

    def __iter__(self) -> Iterator[pa.Table]:
        connection = self._connection()
        assert connection is not None
        with connection.cursor() as cursor:  # the connection itself is running the query that reads this
            runs = {run_id: (about, count) for run_id, about, count in cursor.execute(_RUNS).fetchall()}
            left = deque((run_id, count) for run_id, (_, count) in runs.items() if run_id not in self._known)
            messages: dict[str, pa.Table] = {}
            for run_id, (about, _) in runs.items():
                if run_id not in self._known:
                    messages = messages or _messages(cursor, _next_together(left))
                    known = messages.pop(run_id)
                    self._known[run_id] = _of_run(run_id, about, known, partial(_back, cursor, run_id, known))
                yield self._known[run_id]


class _Stream:
    """An Arrow stream with a batch for each run, which DuckDB asks for when a query reads it."""

    def __init__(self, schema: pa.Schema, runs: _Runs, rows: Callable[[pa.Table], pa.Table]) -> None:
        self._schema, self._runs, self._rows = schema, runs, rows

    def __arrow_c_schema__(self) -> Any:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        import pyarrow as pa

        batches = (batch for jobs in self._runs for batch in self._rows(jobs).to_batches())
        return pa.RecordBatchReader.from_batches(self._schema, batches).__arrow_c_stream__(requested_schema)


def _next_together(left: deque[tuple[str, int]]) -> list[str]:
    """The next runs in order whose messages are read at once, one at least; they are taken from those that are left."""
    run_id, held = left.popleft()
    together = [run_id]
    while left and held + left[0][1] <= _TOGETHER:
        run_id, count = left.popleft()
        together.append(run_id)
        held += count
    return together


def _messages(cursor: duckdb.DuckDBPyConnection, runs: list[str]) -> dict[str, pa.Table]:
    """The messages of each of these runs, which follow each other in order."""
    import pyarrow.compute as pc

    rows = cursor.sql(_MESSAGES, params=[runs[0], runs[-1]]).to_arrow_table()
    counts = pc.value_counts(rows["run_id"]).to_pylist()  # in the order of the rows
    starts = accumulate((one["counts"] for one in counts), initial=0)
    held = {one["values"]: (start, one["counts"]) for one, start in zip(counts, starts, strict=False)}
    rows = rows.drop_columns(["run_id"])
    return {run_id: rows.slice(*held.get(run_id, (0, 0))) for run_id in runs}


def _back(cursor: duckdb.DuckDBPyConnection, run_id: str, messages: pa.Table) -> dict[int, Any]:
    """Times at which packets came back, by flow."""
    import pyarrow.compute as pc

    if not len(messages):
        return {}
    rows = cursor.sql(_BACK, params=[run_id, pc.min(messages["first_ns"]).as_py()]).to_arrow_table()
    return dict(zip(rows["flow_id"].to_pylist(), (times.values.to_numpy() for times in rows["back"]), strict=True))


def _of_run(run_id: str, about: str, messages: pa.Table, back: Callable[[], dict[int, Any]]) -> pa.Table:
    """The jobs of a run, from the user's cache where the same was examined before. about: what tells so of its windows.
    back: as of tables.jobs_of()."""
    import pyarrow as pa
    from pyarrow import feather

    from ddnn_traces.collectives import tables

    messages = messages.cast(tables.MESSAGES)
    folder = caches.folder("inferred_jobs")
    file = folder / f"{_digest(f'{run_id} {about}', messages)}.arrow" if folder else None
    if file:
        with contextlib.suppress(OSError, pa.ArrowException):
            known = feather.read_table(file)
            known.validate(full=True)
            if known.schema.equals(tables.JOBS):
                return known
    jobs = tables.jobs_of(run_id, messages, back())
    if file:
        with contextlib.suppress(OSError), whole_file(file) as half_written:
            feather.write_feather(jobs, str(half_written))
        caches.remove_older_daily(file, "*.arrow")
    return jobs


def _digest(about: str, messages: pa.Table) -> str:
    """Of all that the jobs depend on. Columns are copied: a slice's buffers end with parts of the rows after it."""
    import pyarrow as pa

    found = hashlib.blake2b(_code() + about.encode(), digest_size=16)
    for name in messages.column_names:
        found.update(pa.record_batch([messages[name].combine_chunks()], [name]).serialize())
    return found.hexdigest()


@cache
def _code() -> bytes:
    modules = sorted(Path(collectives.__file__).parent.glob("*.py"))
    return b"".join(module.read_bytes() for module in modules)
