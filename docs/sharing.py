"""Keeps what docs/sharing.md and notebooks/06-sharing.ipynb show: `python docs/sharing.py CAMPAIGN OPTIONS`.

CAMPAIGN: folder of the sweep gao_5_cut.toml of docs/simulations. OPTIONS: folder with those of ns3_*.toml there,
each named as its file. data/sharing gets their tables, of transfers and layers those that figures 5.20 to 5.23 need;
docs/sharing gets the figures. Prints the tables of the page.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import polars as pl
import vl_convert

from ddnn_traces.query import sweep_queries
from ddnn_traces.report.charts import gao
from ddnn_traces.traffic.ns3.ns3_sweep import axes

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data" / "sharing"
FIGURES = ROOT / "docs" / "sharing"
SIMULATIONS = ROOT / "docs" / "simulations"
#: Larger figures are kept as PNG.
MOST_SVG = 200_000
#: Figures of the campaign that the page shows.
SHOWN = (
    "operating_boundary", "ratio_16", "ratio_8", "ratio_4", "ratio_2", "rate_23", "rate_46", "rate_92", "rate_184",
    "application_ratio_0.5", "application_ratio_0.25", "duration_cdf_16", "duration_cdf_8", "duration_cdf_4",
    "gains_16",
    "progression_4_92_same", "progression_4_92_lower", "progression_2_92_same", "progression_2_92_lower",
)  # fmt: skip
#: Columns of the table of the campaign, with their digits: of query operating_boundary.
BOUNDARY = {
    "compute_to_network": "g", "flows_per_s": "g", "region": "", "iteration_change_pct": "+.1f",
    "small_change_pct": "+.1f", "large_change_pct": "+.1f",
}  # fmt: skip
#: Columns of the table of the options: a sweep, its axes, and measures.
OPTIONS = {
    "sweep": "", "values": "", "iteration_ms": ",.0f", "small_mean_ms": ".3f", "small_p99_ms": ".2f",
    "large_mean_ms": ".1f", "other_iteration_ms": ",.0f",
}  # fmt: skip


def table(frame: pl.DataFrame, columns: dict[str, str]) -> list[str]:
    """Rows of a table of the page."""
    rows = frame.select(*columns).iter_rows()
    return [f"| {' | '.join(map(_cell, row, columns.values()))} |" for row in rows]


def _cell(value: object, form: str) -> str:
    text = "-" if value is None else format(value, form)
    return text.replace("-", "+") if text == "-0.0" else text


def keep(campaign: Path, options: Path) -> None:
    """Write data/sharing and docs/sharing anew."""
    for folder in (DATA, FIGURES):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    shown = sweep_queries.run(campaign, "progression_cells")["cell"].to_list()
    for name in sweep_queries.TABLES:
        frame = pl.read_parquet(campaign / f"{name}.parquet")
        if name in ("transfers", "layers"):
            frame = frame.filter(pl.col("cell").is_in(shown))
        if name == "transfers":
            frame = frame.filter(pl.col("worker") == 0)
        frame.write_parquet(DATA / f"{name}.parquet", compression_level=19)
    gao.write(campaign, axes(SIMULATIONS / "gao_5_cut.toml"))
    for name in SHOWN:
        figure = campaign / "figures" / f"{name}.svg"
        if figure.stat().st_size < MOST_SVG:
            shutil.copy(figure, FIGURES)
        else:
            png = vl_convert.svg_to_png(figure.read_text(encoding="utf-8"))
            (FIGURES / f"{name}.png").write_bytes(png)
    parts = []
    for file in sorted(SIMULATIONS.glob("ns3_*.toml")):
        gao.write(options / file.stem, axes(file))
        parts.append(_cells(options / file.stem, file.stem.removeprefix("ns3_")))
        shutil.copy(options / file.stem / "figures" / "by_axis.svg", FIGURES / f"{file.stem}.svg")
    pl.concat(parts).write_parquet(DATA / "options.parquet", compression_level=19)


def _cells(folder: Path, name: str) -> pl.DataFrame:
    cells = pl.read_parquet(folder / "cells.parquet")
    facts = cells.columns[1 : cells.columns.index("expected_utilization")]
    varied = [fact for fact in facts if cells[fact].n_unique() > 1]
    values = pl.concat_str([pl.format(f"{axis} {{}}", pl.col(axis)) for axis in varied], separator=", ")
    return cells.select(
        values.alias("values"), sweep=pl.lit(name), **{m: pl.col(m).cast(pl.Float64) for m in list(OPTIONS)[2:]}
    )


if __name__ == "__main__":
    keep(*map(Path, sys.argv[1:]))
    print("\n".join(table(sweep_queries.run(DATA, "operating_boundary"), BOUNDARY)), end="\n\n")
    print("\n".join(table(pl.read_parquet(DATA / "options.parquet"), OPTIONS)))
