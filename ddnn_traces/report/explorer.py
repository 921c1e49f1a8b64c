"""The page of explore as one HTML file that needs no server: sums over windows, linked by Vega-Lite's selections.

`explore --export` writes it, and publish as explore.html of a release. Each run has windows of its own length, at most
so many that the file stays small. The charts are in explorer.js.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.regression.results import generated
from ddnn_traces.report.templates import css, packed, render, script, vega
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import counted, for_xml

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

#: Of the file; the windows become longer until it has no more.
MOST_BYTES = 5_000_000
MOST_WINDOWS = 400
LEAST_WINDOWS = 25
#: Flows of a run that are apart; the others are one for each pair of hosts.
FLOWS = 20
#: Steps of all workers of a run, and collectives; of more, those of each second, third, ... step are drawn.
STEPS = 2000
COLLECTIVES = 500

#: In SQL: what stands for all addresses that are no host of the run (query run_hosts), as those of multicast.
NO_HOST = "'other addresses'"

#: Workers by their labels, with their hosts' names in figures.
WORKERS = """
    SELECT run_id, label AS worker, min(host) AS host
    FROM hosts
    JOIN host_names USING (run_id, host_ip)
    GROUP BY ALL
"""

#: Times of collectives since each run's first packet; track: their group of hosts.
TIMED_COLLECTIVES = """
    SELECT t.*, kind, format('job {} group {} ({} hosts)', job, communicator, len(string_split(hosts, ','))) AS track,
           (t.start_ns - first_ns) / 1e9 AS since_start_s, (t.end_ns - first_ns) / 1e9 AS until_s
    FROM collective_times AS t
    JOIN (SELECT DISTINCT run_id, job, "position", kind FROM collectives) USING (run_id, job, "position")
    JOIN (SELECT run_id, job, communicator, hosts FROM communicators) USING (run_id, job, communicator)
    JOIN run_spans USING (run_id)
"""

_WINDOWS = f"""
WITH spans AS (
    SELECT run_id, first_ns, greatest(1, ceil((last_ns - first_ns) / $windows / base_ns))::BIGINT * base_ns AS width_ns
    FROM run_spans
), ranked AS (
    SELECT run_id, flow_id, src_ip, dst_ip,
           row_number() OVER (PARTITION BY run_id ORDER BY wire_bytes DESC, flow_id) AS place
    FROM five_tuples
), hosts_of_runs AS MATERIALIZED (
    SELECT run_id, host_ip, host
    FROM host_names
    SEMI JOIN run_hosts USING (run_id, host_ip)
), named AS (
    SELECT run_id, connection_id, coalesce(src.host, {NO_HOST}) AS sender, coalesce(dst.host, {NO_HOST}) AS receiver,
           CASE WHEN place <= $flows THEN flow ELSE sender || ' → ' || receiver || ', other flows' END AS flow
    FROM ranked
    JOIN flow_names USING (run_id, flow_id)
    JOIN (SELECT run_id, flow_id, connection_id FROM flow_connections) USING (run_id, flow_id)
    LEFT JOIN (SELECT run_id, host_ip AS src_ip, host FROM hosts_of_runs) AS src USING (run_id, src_ip)
    LEFT JOIN (SELECT run_id, host_ip AS dst_ip, host FROM hosts_of_runs) AS dst USING (run_id, dst_ip)
)
SELECT run_id, width_ns, sender, receiver, flow, (window_start_ns - first_ns) // width_ns AS "window",
       sum(wire_bytes)::BIGINT AS bytes
FROM flow_windows
JOIN spans USING (run_id)
JOIN named ON named.run_id = flow_windows.run_id AND connection_id = flow_id
GROUP BY ALL
ORDER BY ALL
"""
_STEPS = f"""
WITH named AS ({WORKERS}), numbered AS (
    SELECT *, ceil(count(*) OVER (PARTITION BY run_id) / $most)::BIGINT AS every
    FROM steps
    WHERE start_ns IS NOT NULL AND end_ns IS NOT NULL
)
SELECT run_id, every, coalesce(host, worker) AS worker, step, round((start_ns - first_ns) / 1e9, 6) AS since_s,
       round((numbered.end_ns - start_ns) / 1e6, 3) AS duration_ms
FROM numbered
JOIN run_spans USING (run_id)
LEFT JOIN named USING (run_id, worker)
WHERE step % every = 0
ORDER BY run_id, step, worker
"""
_COLLECTIVES = f"""
WITH numbered AS (
    SELECT *, ceil(count(*) OVER (PARTITION BY run_id) / $most)::BIGINT AS every
    FROM ({TIMED_COLLECTIVES})
)
SELECT run_id, every, track, step, "position", kind, round(since_start_s, 6) AS since_s, round(until_s, 6) AS until_s,
       payload_bytes
FROM numbered
WHERE step % every = 0
ORDER BY run_id, since_s, job, communicator, step, "position"
"""
_SETTINGS = """
WITH counts AS (
    SELECT run_id, count(*) AS hosts
    FROM run_hosts
    GROUP BY run_id
)
SELECT run_id, framework, backend, model, topology, coalesce(hosts, 0) AS hosts, source
FROM runs
LEFT JOIN counts USING (run_id)
ORDER BY run_id
"""
#: What runs are chosen by.
FACETS = ("framework", "backend", "model", "topology", "hosts")


def write(dataset: Dataset, out: Path) -> str:
    """Write the page, whole or not at all; return what it holds. Raises UsageError where no run has a flow."""
    html, held = page(dataset, f"Runs of {Path(dataset.name).name}")
    with whole_file(out) as half_written:
        half_written.write_bytes(html.encode())
    return held


def page(dataset: Dataset, title: str) -> tuple[str, str]:
    """The page, and what it holds, in words. The same tables give the same page. Raises UsageError, as write()."""
    known = {row["run_id"]: row for row in settings(dataset)}
    steps = _by_run(dataset.sql(_STEPS, {"most": STEPS}))
    collectives = _by_run(dataset.sql(_COLLECTIVES, {"most": COLLECTIVES}))
    found = dataset.sql(_WINDOWS, {"windows": MOST_WINDOWS, "flows": FLOWS})
    if found.is_empty():
        raise UsageError(f"{dataset.name}: no run has a flow; there is nothing to look at")
    made = generated([row["source"] for row in known.values()])
    synthetic = f" {made} of them are synthetic or simulated, not measured." if made else ""
    windows = MOST_WINDOWS
    while True:
        runs = [
            _run(run_id, rows, known[run_id], steps.get(run_id), collectives.get(run_id))
            for run_id, rows in _by_run(found).items()
        ]
        note = f"{counted(len(runs), 'run')}, each in at most {windows} windows."
        html = render(
            "explorer.html", title=title, note=note + synthetic, packed=packed(runs), script=script("explorer.js"),
            vega=vega(),
        )  # fmt: skip
        size = len(html.encode())
        if size <= MOST_BYTES or windows <= LEAST_WINDOWS:
            large = "; --run chooses fewer runs" if size > MOST_BYTES else ""
            return html, f"{note[:-1]}, {size / 1e6:.1f} MB{large}"
        windows //= 2
        found = _in_twos(found)


def settings(dataset: Dataset) -> list[dict[str, Any]]:
    """The settings of each run, FACETS among them."""
    return dataset.sql(_SETTINGS).to_dicts()


def _in_twos(rows: pl.DataFrame) -> pl.DataFrame:
    """Windows twice as long."""
    keys = [name for name in rows.columns if name != "bytes"]
    longer = rows.with_columns(pl.col("width_ns") * 2, pl.col("window") // 2)
    return longer.group_by(keys).agg(pl.col("bytes").sum()).sort(keys)


def _by_run(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {str(key[0]): part for key, part in rows.partition_by("run_id", as_dict=True, include_key=False).items()}


def _run(
    run_id: str, rows: pl.DataFrame, known: dict[str, Any], steps: pl.DataFrame | None,
    collectives: pl.DataFrame | None,
) -> dict[str, Any]:  # fmt: skip
    """A run for the page: its flows, and for each window with bytes the flow's number, the window's, and the bytes."""
    keys = rows.select("sender", "receiver", "flow").unique(maintain_order=True).with_row_index("number")
    numbered = rows.join(keys, on=["sender", "receiver", "flow"], maintain_order="left")
    return {
        "id": for_xml(run_id), "settings": {name: for_xml(str(known[name] or "not known")) for name in FACETS},
        "measured": not generated([known["source"]]),
        "width_s": rows["width_ns"][0] / 1e9, "windows": rows["window"].max(),
        "flows": [[*map(for_xml, row)] for row in keys.drop("number").iter_rows()],
        "flow": numbered["number"].to_list(), "window": rows["window"].to_list(), "bytes": rows["bytes"].to_list(),
        "every": _every(steps), "steps": _rows(steps),
        "every_collectives": _every(collectives), "collectives": _rows(collectives),
    }  # fmt: skip


def _every(rows: pl.DataFrame | None) -> int:
    return 1 if rows is None else int(rows["every"][0])


def _rows(rows: pl.DataFrame | None) -> list[list[Any]]:
    return [] if rows is None else [list(row) for row in rows.drop("every").iter_rows()]


# --- a page that is there: what is in it, for those who examine it

_DATA = re.compile(r'(<script id="data" type="text/plain">)([A-Za-z0-9+/=]*)(</script>)')
_MOST_UNPACKED = 256 << 20


def parts(html: str) -> tuple[str, str]:
    """The page without its runs, and these as JSON. Raises ValueError where it has them not exactly once."""
    found = _DATA.split(html)
    if len(found) != 5:
        raise ValueError("does not have its runs in one place")
    unpacking = zlib.decompressobj(31)  # of gzip
    try:
        data = base64.b64decode(found[2])
        unpacked = unpacking.decompress(data, _MOST_UNPACKED)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"has runs that cannot be unpacked ({error})") from None
    if not unpacking.eof or unpacking.unused_data or data[3]:  # flags: of names and comments
        raise ValueError("has runs that are cut off, too large, or beside something else")
    return found[0] + found[1] + found[3] + found[4], unpacked.decode()


def without_vega(html: str) -> str:
    """A page without Vega's programs, which other versions of vl-convert write otherwise."""
    return re.sub(r'(?s)(<script id="data"[^>]*></script>\s*<script>).*?(</script>)', r"\1\2", html, count=1)


def texts(html: str) -> str:
    """The texts of a page: without its numbers, and the programs and the style that each such page has.

    Raises ValueError, as parts().
    """
    rest, runs = parts(html)
    for same in (vega(), script("explorer.js"), css()):
        rest = rest.replace(same, "")
    return "\n".join([rest, *dict.fromkeys(_texts(json.loads(runs)))])


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one)]
