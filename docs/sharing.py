"""Keeps what docs/sharing.md and notebooks/06-sharing.ipynb show of a sweep: `python docs/sharing.py OUT`.

data/sharing has its tables, of transfers and layers those that figures 5.20 to 5.23 need; docs/sharing its figures.
Prints the table of the page.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import polars as pl

from ddnn_traces.query import sweep

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data" / "sharing"
FIGURES = ROOT / "docs" / "sharing"
#: Those that the page shows.
SHOWN = (
    "operating_boundary", "ratio_16", "ratio_8", "ratio_4", "ratio_2", "rate_23", "rate_46", "rate_92", "rate_184",
    "application_ratio_0.5", "application_ratio_0.25", "duration_cdf_4", "gains_4", "progression_4_92_same",
    "progression_4_92_lower", "progression_2_92_same", "progression_2_92_lower",
)  # fmt: skip
#: Columns of the page's table: query operating_boundary's, with their digits.
COLUMNS = {
    "compute_to_network": "g", "flows_per_s": "g", "region": "", "iteration_change_pct": "+.1f",
    "small_change_pct": "+.1f", "large_change_pct": "+.1f",
}  # fmt: skip


def table(boundary: pl.DataFrame) -> list[str]:
    """Rows of the page's table, from rows of operating_boundary."""
    rows = boundary.select(COLUMNS).iter_rows()
    return [
        f"| {' | '.join(_cell(value, form) for value, form in zip(row, COLUMNS.values(), strict=True))} |"
        for row in rows
    ]


def _cell(value: object, form: str) -> str:
    return "-" if value is None else format(value, form)


def keep(out: Path) -> None:
    """Write data/sharing and docs/sharing anew from the sweep in OUT."""
    cells = sweep.run(out, "progression_cells")["cell"].to_list()
    for folder in (DATA, FIGURES):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for name in sweep.TABLES:
        frame = pl.read_parquet(out / f"{name}.parquet")
        if name in ("transfers", "layers"):
            frame = frame.filter(pl.col("cell").is_in(cells))
        if name == "transfers":
            frame = frame.filter(pl.col("worker") == 0)
        frame.write_parquet(DATA / f"{name}.parquet", compression_level=19)
    for name in SHOWN:
        shutil.copy(out / "figures" / f"{name}.svg", FIGURES)


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
    print("\n".join(table(sweep.run(DATA, "operating_boundary"))))
