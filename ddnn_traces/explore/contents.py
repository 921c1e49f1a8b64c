"""What the page shows: three tables of the dataset, and the charts over them in Mosaic's specification language.

The tables are what each flow sent in each window, the steps, and the collectives that the traffic shows. Their windows
suit the width of a chart, so they are small however large the dataset is; DuckDB makes them of the dataset's queries,
in memory. Charts: https://idl.uw.edu/mosaic/spec/.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddnn_traces.query.bounded import BOUNDS
from ddnn_traces.report.charts.style import COLLECTIVES as KINDS
from ddnn_traces.report.explorer import NO_HOST, TIMED_COLLECTIVES, WORKERS
from ddnn_traces.text import natural_order

if TYPE_CHECKING:
    import duckdb

    from ddnn_traces.query.dataset import Dataset

WINDOWS, LINES, STEPS, COLLECTIVES = "explored_windows", "explored_lines", "explored_steps", "explored_collectives"

MOST_WINDOWS = 400

#: The zoom to all of the time.
ALL = (-math.inf, math.inf)
_AROUND, _NEARLY_ALL = 0.03, 0.9  # of the training, of the run: as in explorer.js

#: Colours that can be told apart.
MOST_SERIES = 10

#: Runs whose collectives are drawn. Each has a track or more, and DuckDB takes seconds for those of 60 runs.
MOST_WITH_COLLECTIVES = 16

#: Numbers of connections that a command names.
MOST_FLOWS = 20

# since_start_s is the column that brushes select by: the start of a window or a step, by its run's first packet.
# series, the colour: the run, or of a single run the host that sends or trains. explored_lines has windows without
# bytes, too, where a flow pauses, so that a line falls to 0. Without names apart, DuckDB takes 50 s for 190 runs.
_TABLES = """
CREATE TABLE explored_windows AS
WITH named AS MATERIALIZED (
    SELECT run_id, host_ip, host
    FROM host_names
    SEMI JOIN run_hosts USING (run_id, host_ip)
)
SELECT run_id AS run, coalesce(source.host, {no_host}) AS sender, coalesce(target.host, {no_host}) AS receiver,
       flow, flow_id, round(since_start_s, 9) AS since_start_s,
       round(since_start_s + greatest(round({window_ms} * 1e6 / base_ns), 1) * base_ns / 1e9, 9) AS until_s,
       packets, wire_bytes, gbit_per_s, CASE WHEN {runs} = 1 THEN sender ELSE run END AS series
FROM throughput_windows(window_ms := {window_ms})
JOIN run_spans USING (run_id)
JOIN flow_names USING (run_id, flow_id)
LEFT JOIN (SELECT run_id, host_ip AS src_ip, host FROM named) AS source USING (run_id, src_ip)
LEFT JOIN (SELECT run_id, host_ip AS dst_ip, host FROM named) AS target USING (run_id, dst_ip)
WHERE since_start_s >= {begin_s} AND since_start_s < {end_s};
CREATE TABLE explored_lines AS
WITH followed AS (
    SELECT *, lead(since_start_s) OVER (PARTITION BY run, flow_id ORDER BY since_start_s) AS next_s
    FROM explored_windows
)
SELECT run, sender, receiver, flow, series, since_start_s, gbit_per_s
FROM explored_windows
UNION ALL
SELECT run, sender, receiver, flow, series, until_s, 0
FROM followed
WHERE next_s IS NULL OR next_s > until_s;
CREATE TABLE explored_connections AS
SELECT run_id AS run, flow, connection_id
FROM flow_connections
JOIN flow_names USING (run_id, flow_id);
CREATE TABLE explored_steps AS
WITH named AS MATERIALIZED ({workers}), logged AS (
    SELECT steps.*, host, coalesce(first_ns, min(start_ns) OVER (PARTITION BY run_id)) AS zero_ns
    FROM steps
    LEFT JOIN run_spans USING (run_id)
    LEFT JOIN named USING (run_id, worker)
)
SELECT run_id AS run, worker, step, (start_ns - zero_ns) / 1e9 AS since_start_s, (end_ns - zero_ns) / 1e9 AS until_s,
       floor(since_start_s * 1e3 / {window_ms}) * {window_ms} / 1e3 AS window_s,
       (end_ns - start_ns) / 1e6 AS duration_ms, CASE WHEN {runs} = 1 THEN coalesce(host, worker) ELSE run END AS series
FROM logged
WHERE until_s > {begin_s} AND since_start_s < {end_s};
CREATE TABLE explored_collectives AS
WITH named AS MATERIALIZED (
    SELECT run_id, host_ip AS last_host, host
    FROM host_names
)
SELECT run_id AS run, track || CASE WHEN {runs} = 1 THEN '' ELSE ' of ' || run_id END AS track, step, "position", kind,
       since_start_s, until_s, floor(since_start_s * 1e3 / {window_ms}) * {window_ms} / 1e3 AS window_s,
       window_s + {window_ms} / 1e3 AS window_end_s, duration_ms, payload_bytes, coalesce(host, last_host) AS last_host
FROM explored_timed
LEFT JOIN named USING (run_id, last_host)
WHERE until_s > {begin_s} AND since_start_s < {end_s};
DROP TABLE explored_timed;
"""

# Of all of the time: they tell when the training is, before the tables of that time are made.
_TIMED = """
CREATE TABLE explored_timed AS
FROM ({collectives})
LIMIT CASE WHEN {runs} > {most} THEN 0 END;
"""
_TRAINING = """
WITH logged AS (
    SELECT (start_ns - first_ns) / 1e9 AS since_start_s, (steps.end_ns - first_ns) / 1e9 AS until_s
    FROM steps
    JOIN run_spans USING (run_id)
    UNION ALL
    SELECT since_start_s, until_s
    FROM explored_timed
)
SELECT min(since_start_s), max(until_s), (SELECT max(last_ns - first_ns) / 1e9 FROM run_spans)
FROM logged
"""

# From here on the page's SQL reads and writes nothing but tables in memory.
_CLOSE = "SET enable_external_access = false; SET lock_configuration = true"


@dataclass(frozen=True)
class Contents:
    """What the tables hold, names in natural order. series: those that have a colour; empty: too many for that."""

    runs: tuple[str, ...]
    window_ms: float
    series: tuple[str, ...]
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    tracks: tuple[str, ...]
    steps: int
    collectives: int
    begin_s: float
    end_s: float
    is_training: bool = False  # and not all of the time

    @property
    def is_empty(self) -> bool:
        """Whether nothing was sent and no step logged."""
        return self.begin_s == self.end_s


def make(dataset: Dataset, zoom: tuple[float, float] | None = None) -> Contents:
    """Make the tables in the dataset's connection, which can read and write no file from then on.

    zoom: from and to this time since each run's first packet, s; None: that of the steps and collectives, with a little
    around it, or all of it where there are none.
    """
    begin_s, end_s = zoom or ALL
    runs = tuple(dataset.run_ids)
    values = {"runs": len(runs), "most": MOST_WITH_COLLECTIVES, "workers": WORKERS, "no_host": NO_HOST}
    values |= {"collectives": TIMED_COLLECTIVES, **_times((begin_s, end_s))}
    # all queries that these tables need, and no others: to define all of them takes seconds
    connection = dataset.provide((_TIMED + _TABLES).format(window_ms="1.0", **values))
    connection.execute(BOUNDS)
    connection.execute(_TIMED.format(**values))
    training = None if zoom else _training(connection)
    if training:
        begin_s, end_s = training
        values |= _times(training)
    window_ms = _window_ms(connection, end_s - begin_s)
    connection.execute(_TABLES.format(window_ms=repr(window_ms), **values))
    connection.execute(_CLOSE)
    (found,) = connection.execute(_CONTENTS).fetchall()
    series, senders, receivers, tracks = (tuple(sorted(names or (), key=natural_order)) for names in found[:4])
    steps, collectives, begin_s, end_s = found[4:]
    return Contents(
        runs, window_ms, series if len(series) <= MOST_SERIES else (), senders, receivers, tracks, steps, collectives,
        begin_s, end_s, is_training=training is not None,
    )  # fmt: skip


def _times(zoom: tuple[float, float]) -> dict[str, str]:
    begin_s, end_s = zoom
    return {"begin_s": f"'{begin_s!r}'::DOUBLE", "end_s": f"'{end_s!r}'::DOUBLE"}


def _training(connection: duckdb.DuckDBPyConnection) -> tuple[float, float] | None:
    """The time of the steps and collectives; None where that is nearly all, or there are none."""
    (found,) = connection.execute(_TRAINING).fetchall()
    begin_s, end_s, all_s = found
    if begin_s is None or all_s is None:
        return None
    around = _AROUND * (end_s - begin_s)
    begin_s, end_s = max(0.0, begin_s - around), end_s + around
    return (begin_s, end_s) if begin_s < end_s and min(end_s, all_s) - begin_s < _NEARLY_ALL * all_s else None


_CONTENTS = """
SELECT list(DISTINCT series), list(DISTINCT sender) FILTER (sender IS NOT NULL),
       list(DISTINCT receiver) FILTER (receiver IS NOT NULL), (SELECT list(DISTINCT track) FROM explored_collectives),
       count(step), (SELECT count(*) FROM explored_collectives), coalesce(min(since_start_s), 0.0),
       coalesce(max(until_s), 0.0)
FROM (FROM explored_windows UNION ALL BY NAME FROM explored_steps)
"""


def _window_ms(connection: duckdb.DuckDBPyConnection, most_s: float) -> float:
    """1, 2 or 5 times a power of ten, at least a base window: so long that the longest run has MOST_WINDOWS at most.

    most_s: length of the range that is shown.
    """
    ((base_ns, span_ns),) = connection.execute("SELECT max(base_ns), max(last_ns - first_ns) FROM run_spans").fetchall()
    least_ms = max(base_ns or 0, min(span_ns or 0, most_s * 1e9) / MOST_WINDOWS, 1) / 1e6
    power = 10.0 ** math.floor(math.log10(least_ms))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least_ms)


def flow_rows(windows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """What each flow sent in these rows of explored_windows, the largest first."""
    return windows.aggregate(
        """
        run, flow, sum(packets)::BIGINT AS packets, sum(wire_bytes)::BIGINT AS "wire bytes (B)",
        round(min(since_start_s), 6) AS "first (s)", round(max(until_s), 6) AS "last (s)",
        round(max(gbit_per_s), 6) AS "peak (Gbit/s)"
        """,
        "run, flow",
    ).order('"wire bytes (B)" DESC, run, flow')


_CONNECTIONS = f"""
SELECT run, connection_id
FROM (SELECT DISTINCT run, flow FROM chosen)
JOIN explored_connections USING (run, flow)
ORDER BY run, connection_id
LIMIT {MOST_FLOWS + 1}
"""


def packets_commands(windows: duckdb.DuckDBPyRelation, dataset: str) -> list[str]:
    """Commands that write the packets of the flows in these rows, one a run; [] where they are more than MOST_FLOWS."""
    found = windows.query("chosen", _CONNECTIONS)
    rows = found.fetchall() if found is not None else []
    if len(rows) > MOST_FLOWS:
        return []
    ids: dict[str, list[int]] = {}
    for run, number in rows:
        ids.setdefault(run, []).append(number)
    return [
        f"ddnn-traces packets {shlex.quote(dataset)} --run {shlex.quote(run)} "
        f"{' '.join(f'--flow {number}' for number in numbers)} --out chosen-{place}.pcapng"
        for place, (run, numbers) in enumerate(ids.items(), 1)
    ]


def collective_rows(collectives: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The collectives of a step in these rows of explored_collectives; below 10 ms none has a duration."""
    return collectives.aggregate(
        """
        track, position, kind, count(*) AS times, median(payload_bytes)::BIGINT AS "payload (B)",
        round(median(duration_ms), 3) AS "median (ms)", round(max(duration_ms), 3) AS "longest (ms)",
        mode(last_host) AS "most often last to enter"
        """,
        "track, position, kind",
    ).order("regexp_extract_all(track, '[0-9]+')[:2]::BIGINT[], track, position")


# --- charts

#: The selection of all charts together; app.py reads it for the table of flows.
EVERYTHING = "everything"
#: The selection of a range of times.
TIME = "time"

_WIDTH = 1160  # what marimo's page has at 1400 pixels
_FLOWS = 20  # bars
_STEPS = 2000  # marks that a browser draws at once

# of the report (Okabe and Ito), then some that differ from them
_COLOURS = [
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8c6d31", "#7b4173", "#637939", "#843c39",
]  # fmt: skip


def brushed(selection: Any) -> tuple[float, float] | None:
    """The range of a brush over times, as the widget tells it; None for none."""
    value = selection.get("value") if isinstance(selection, dict) else None
    return (float(value[0]), float(value[1])) if value else None


def spec(contents: Contents, is_narrow: bool = False) -> dict[str, Any]:
    """The page's charts for these tables. A brush or a click in one filters the others. is_narrow: for 400 pixels."""
    over_time = [throughput(contents)]
    over_time += [_space(10), steps(contents)] if contents.steps else []
    over_time += [_space(10), collectives(contents), _LEGEND_OF_KINDS] if contents.collectives else []
    senders, receivers = {"vconcat": [matrix(contents), _LEGEND_OF_MATRIX]}, flows(contents)
    if is_narrow:
        for chart in [*over_time, senders["vconcat"][0], receivers]:
            if "plot" in chart:
                chart |= {"width": 360, "marginLeft": min(chart["marginLeft"], 150), "xTicks": 4}
    over_hosts = {"vconcat" if is_narrow else "hconcat": [senders, receivers]}
    return {
        # with other runs, or times, the charts are others
        "meta": {"title": "ddnn-traces explore", "runs": list(contents.runs), "from": contents.begin_s},
        "params": {
            TIME: {"select": "crossfilter"},
            "pairs": {"select": "intersect"},
            "flows": {"select": "intersect"},
            EVERYTHING: {"select": "crossfilter", "include": ["$time", "$pairs", "$flows"]},
        },
        "vconcat": [*_legend(contents), *over_time, _space(20), over_hosts],
    }


def throughput(contents: Contents) -> dict[str, Any]:
    """Rate of all that a series sends, in the windows of the table: runs at different times, or hosts, have no sum."""
    rate = {"x": "since_start_s", "y": {"sum": "gbit_per_s"}, "z": "series", "curve": "step-after"}
    line = {"mark": "lineY", "data": {"from": LINES, "filterBy": f"${EVERYTHING}"}, **rate, "tip": True}
    return {
        "name": "throughput",
        "plot": [line | _colour("stroke", contents) | {"strokeWidth": 1.3}, _brush()],
        **_time(contents),
        "height": 220,
        "yLabel": f"throughput in windows of {contents.window_ms:g} ms (Gbit/s)",
        "yGrid": True,
        "yZero": True,
    }


def collectives(contents: Contents) -> dict[str, Any]:
    """Each collective from its first to its last data, a track a group of hosts; of many, the windows with some."""
    kind = {"data": _COLLECTIVE_ROWS, "y": "track", "stroke": "kind"}
    line = {"mark": "ruleY", **kind, "strokeWidth": 9}
    if contents.collectives > _STEPS:
        marks = [line | {"x1": "window_s", "x2": "window_end_s", "title": {"count": ""}}]
    else:
        channels = {"step": "step", "position": "position", "bytes": "payload_bytes", "entered last": "last_host"}
        # the line of a collective that is shorter than a pixel is not seen
        start = {"mark": "tickX", **kind, "x": "since_start_s", "insetTop": 11, "insetBottom": 11}
        marks = [line | {"x1": "since_start_s", "x2": "until_s", "tip": True, "channels": channels}, start]
    names = {"data": {"from": COLLECTIVES}, "x": {"min": "since_start_s"}, "y": "track", "text": "track"}
    return {
        "name": "collectives",
        "plot": [*marks, {"mark": "text", **names, "textAnchor": "start", "dy": -12}, _brush()],
        **_time(contents),
        "colorDomain": list(KINDS),
        "colorRange": list(KINDS.values()),
        "height": 50 + 34 * len(contents.tracks),
        "yDomain": list(contents.tracks),
        "yLabel": None,
        "yAxis": None,
    }


def steps(contents: Contents) -> dict[str, Any]:
    """Each step from its start to its end, as high as it takes; of many steps, how long those of a window take."""
    are_many = contents.steps > _STEPS
    return {
        "name": "steps",
        "plot": [*(_many_steps(contents) if are_many else _few_steps(contents)), _brush()],
        **_time(contents),
        "height": 180,
        "yLabel": "duration of steps, the median of a window and all (ms)"
        if are_many
        else "duration of each step (ms)",
        "yGrid": True,
        "yZero": True,
    }


def _few_steps(contents: Contents) -> list[dict[str, Any]]:
    rows = {"data": _STEP_ROWS, "y": "duration_ms"}
    told = {"tip": True, "channels": {"step": "step", "worker": "worker", "run": "run"}}
    return [
        {"mark": "ruleY", **rows, "x1": "since_start_s", "x2": "until_s", **_colour("stroke", contents)},
        {"mark": "dot", **rows, "x": "since_start_s", "r": 2.5, **told, **_colour("fill", contents)},
    ]


def _many_steps(contents: Contents) -> list[dict[str, Any]]:
    rows = {"data": _STEP_ROWS, "x": "window_s"}
    ends = {"y1": {"min": "duration_ms"}, "y2": {"max": "duration_ms"}, "strokeOpacity": 0.4}
    return [
        {"mark": "ruleX", **rows, **ends, **_colour("stroke", contents)},
        {"mark": "dot", **rows, "y": {"median": "duration_ms"}, "r": 2, **_colour("fill", contents)},
    ]


def matrix(contents: Contents) -> dict[str, Any]:
    """Who sends how much to whom."""
    pairs = {"data": {"from": WINDOWS, "filterBy": f"${EVERYTHING}"}, "x": "receiver", "y": "sender"}
    cells = {"mark": "cell", **pairs, "fill": {"sum": "wire_bytes"}, "inset": 0.5, **_BYTES}
    return {
        "name": "matrix",
        "plot": [cells, *_clicks("$pairs", "x", "y")],
        "width": 460,
        "height": 400,
        "marginLeft": 90,
        "marginBottom": 55,
        "marginTop": 30,
        **({"xDomain": list(contents.receivers), "yDomain": list(contents.senders)} if contents.senders else {}),
        "xLabel": "receiver",
        "yLabel": "sender",
        "xTickRotate": -30,
        "colorScheme": "ylgnbu",
        "colorScale": "log",
        "colorLabel": "wire bytes (B)",
        "colorTickFormat": "~s",
    }


def flows(contents: Contents) -> dict[str, Any]:
    """The flows that send most."""
    bars = {
        "mark": "barX",
        "data": {"from": WINDOWS, "filterBy": f"${EVERYTHING}"},
        "x": {"sum": "wire_bytes"},
        "y": "flow",
        **_colour("fill", contents),
        **_BYTES,
        "sort": {"y": "-x", "limit": _FLOWS},
    }
    return {
        "name": "flows",
        "plot": [bars, *_clicks("$flows", "y")],
        **_colours(contents),
        "width": 700,
        "height": 440,
        "marginLeft": 220,
        "marginTop": 40,
        "xLabel": f"wire bytes of the {_FLOWS} largest flows (B)",
        "xTickFormat": "~s",
        "xAxis": "top",
        "xGrid": True,
        "yLabel": None,
    }


_STEP_ROWS = {"from": STEPS, "filterBy": "$time"}
_COLLECTIVE_ROWS = {"from": COLLECTIVES, "filterBy": "$time"}

# The browser's own tooltip: Plot's would take the click.
_BYTES = {"title": {"sql": "format('{:,} B', sum(wire_bytes)::BIGINT)"}}

_LEGEND_OF_MATRIX = {"legend": "color", "for": "matrix", "label": "wire bytes (B)", "width": 300, "marginLeft": 90}


_LEGEND_OF_KINDS = {"legend": "color", "for": "collectives"}


def _legend(contents: Contents) -> list[dict[str, Any]]:
    """The colours of all charts, once."""
    return [{"legend": "color", "for": "throughput"}] if contents.series else []


def _space(pixels: int) -> dict[str, Any]:
    return {"vspace": pixels}


def _brush() -> dict[str, Any]:
    return {"select": "intervalX", "as": "$time", "field": "since_start_s"}


def _clicks(selection: str, *channels: str) -> list[dict[str, Any]]:
    """A click chooses what it is on, with the shift key one more; what is not chosen is pale."""
    return [
        {"select": "toggle", "channels": list(channels), "as": selection},
        {"select": "highlight", "by": selection},
    ]


def _colour(channel: str, contents: Contents) -> dict[str, Any]:
    return {channel: "series" if contents.series else _COLOURS[0]}


def _colours(contents: Contents) -> dict[str, Any]:
    return {"colorDomain": list(contents.series), "colorRange": _COLOURS} if contents.series else {}


def _time(contents: Contents) -> dict[str, Any]:
    """What the charts over time share, so that they stand one above the other."""
    return {
        "xLabel": "time since the run's first packet (s)",
        "xDomain": [contents.begin_s, contents.end_s],
        "width": _WIDTH,
        "marginLeft": 60,
        "marginRight": 20,
        **_colours(contents),
    }
