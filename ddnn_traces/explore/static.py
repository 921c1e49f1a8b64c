"""The page of explore as one HTML file that needs no server: sums over windows, linked by Vega-Lite's selections.

Each run has windows of its own length, at most so many that the file stays small. The charts are in report/explorer.js.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import UsageError
from ddnn_traces.explore.contents import WORKERS
from ddnn_traces.regression.results import generated
from ddnn_traces.report import page
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import counted, for_xml

if TYPE_CHECKING:
    import polars as pl

    from ddnn_traces.query.dataset import Dataset

#: Of the file; the windows become longer until it has no more.
MOST_BYTES = 5_000_000
MOST_WINDOWS = 400
LEAST_WINDOWS = 25
#: Flows of a run that are apart; the others are one for each pair of hosts.
FLOWS = 20
#: Steps of all workers of a run; of more, each second, third, ... is drawn.
STEPS = 2000

_WINDOWS = """
WITH spans AS (
    SELECT run_id, first_ns, greatest(1, ceil((last_ns - first_ns) / $windows / base_ns))::BIGINT * base_ns AS width_ns
    FROM run_spans
), ranked AS (
    SELECT run_id, flow_id, src_ip, dst_ip,
           row_number() OVER (PARTITION BY run_id ORDER BY wire_bytes DESC, flow_id) AS place
    FROM flows
), named AS (
    SELECT run_id, flow_id, coalesce(src.host, src_ip) AS sender, coalesce(dst.host, dst_ip) AS receiver,
           CASE WHEN place <= $flows THEN flow ELSE sender || ' → ' || receiver || ', other flows' END AS flow
    FROM ranked
    JOIN flow_names USING (run_id, flow_id)
    LEFT JOIN (SELECT run_id, host_ip AS src_ip, host FROM host_names) AS src USING (run_id, src_ip)
    LEFT JOIN (SELECT run_id, host_ip AS dst_ip, host FROM host_names) AS dst USING (run_id, dst_ip)
)
SELECT run_id, sender, receiver, flow, (window_start_ns - first_ns) // width_ns AS "window",
       width_ns / 1e9 AS width_s, sum(wire_bytes)::BIGINT AS bytes
FROM flow_windows
JOIN spans USING (run_id)
JOIN named USING (run_id, flow_id)
GROUP BY ALL
ORDER BY ALL
"""
_STEPS = f"""
WITH named AS ({WORKERS}), numbered AS (
    SELECT *, ceil(count(*) OVER (PARTITION BY run_id) / $steps)::BIGINT AS every
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


def write(dataset: Dataset, out: Path) -> str:
    """Write the page, whole or not at all; return what it holds. Raises UsageError where no run has a flow."""
    steps = _by_run(dataset.sql(_STEPS, {"steps": STEPS}))
    overview = dataset.query("run_overview")
    about = {row["run_id"]: _about(row) for row in overview.to_dicts()}
    made = generated(overview["source"].to_list())
    synthetic = f" {made} of them are synthetic or simulated, not measured." if made else ""
    windows = MOST_WINDOWS
    while True:
        found = _by_run(dataset.sql(_WINDOWS, {"windows": windows, "flows": FLOWS}))
        if not found:
            raise UsageError(f"{dataset.name}: no run has a flow; there is nothing to look at")
        runs = [_run(run_id, rows, steps.get(run_id), about[run_id]) for run_id, rows in found.items()]
        note = f"{counted(len(runs), 'run')}, each in at most {windows} windows."
        html = page.explorer_page(f"Runs of {Path(dataset.name).name}", note + synthetic, runs).encode()
        if len(html) <= MOST_BYTES or windows <= LEAST_WINDOWS:
            break
        windows //= 2
    with whole_file(out) as half_written:
        half_written.write_bytes(html)
    large = "; --run chooses fewer runs" if len(html) > MOST_BYTES else ""
    return f"{note[:-1]}, {len(html) / 1e6:.1f} MB{large}"


def _by_run(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {str(key[0]): part for key, part in rows.partition_by("run_id", as_dict=True, include_key=False).items()}


def _about(row: dict[str, Any]) -> str:
    words = [row["framework"], row["backend"], row["model"], row["topology"], counted(row["hosts"], "host")]
    words += ["not measured"] if generated([row["source"]]) else []
    return ", ".join(for_xml(str(word)) for word in words if word)


def _run(run_id: str, rows: pl.DataFrame, steps: pl.DataFrame | None, about: str) -> dict[str, Any]:
    """A run for the page: its flows, and for each window with bytes the flow's number, the window's, and the bytes."""
    keys = rows.select("sender", "receiver", "flow").unique(maintain_order=True).with_row_index("number")
    numbered = rows.join(keys, on=["sender", "receiver", "flow"], maintain_order="left")
    return {
        "id": for_xml(run_id), "about": about, "width_s": rows["width_s"][0], "windows": rows["window"].max(),
        "flows": [[*map(for_xml, row)] for row in keys.drop("number").iter_rows()],
        "flow": numbered["number"].to_list(), "window": rows["window"].to_list(), "bytes": rows["bytes"].to_list(),
        "every": 1 if steps is None else steps["every"][0],
        "steps": [] if steps is None else [list(row) for row in steps.drop("every").iter_rows()],
    }  # fmt: skip
