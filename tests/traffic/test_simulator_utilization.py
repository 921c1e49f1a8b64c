"""The thesis's tables 5.3 and 5.4, recomputed."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.simulator.closed_forms import Ring, beside_thesis
from ddnn_traces.traffic.simulator.closed_forms import utilization as table

#: Table 5.4 as printed, percent: total utilization by flow rate, for each ratio of computation to transmission.
TOTAL = {16: (9.375, 12.5, 18.75, 31.25), 8: (15.63, 18.76, 25.01, 37.5), 4: (28.13, 31.25, 37.51, 50.02)}
RATIO = {16: (0.5, 1, 2, 4), 8: (0.25, 0.5, 1, 2), 4: (0.125, 0.25, 0.5, 1), 2: (0.0625, 0.125, 0.25, 0.5)}


def test_table_5_3() -> None:
    rows = table(Ring()).unique("compute_to_network", maintain_order=True)
    assert rows["iteration_ms"].to_list() == pytest.approx([2240, 1120, 560, 280])
    assert rows["utilization"].to_list() == pytest.approx([0.0625, 0.125, 0.25, 0.5])


def test_table_5_4() -> None:
    rows = table(Ring())
    for ratio, expected in TOTAL.items():
        found = rows.filter(pl.col("compute_to_network") == ratio)["total_utilization"] * 100
        assert found.to_list() == pytest.approx(expected, abs=0.03)
    for ratio, expected in RATIO.items():
        found = rows.filter(pl.col("compute_to_network") == ratio)["background_ratio"]
        assert found.to_list() == pytest.approx(expected, rel=2e-3)


def test_the_misprint_of_table_5_4() -> None:
    """It prints 72.5% for 50% + 12.5%."""
    rows = table(Ring()).filter(compute_to_network=2.0)["total_utilization"] * 100
    assert rows.to_list() == pytest.approx([53.13, 56.25, 62.5, 75], abs=0.03)


def test_what_is_printed_beside_what_the_equations_give() -> None:
    """But for the misprint, what is printed is rounded, to 3.125 or 6.25 x 2^n: within 0.05 percentage points."""
    rows = beside_thesis()
    wrong = rows.filter(pl.col("total_pct_difference").abs() > 0.05)
    assert wrong.select("compute_to_network", "flows_per_s", "total_pct_printed").rows() == [(2.0, 92.0, 72.5)]
    assert wrong["total_pct_difference"].item() == pytest.approx(-9.988)  # 50 + 92 x 1.7 x 8 / 100 - 72.5
    for name in ("iteration_ms", "utilization_pct"):
        assert rows[f"{name}_difference"].abs().max() == pytest.approx(0, abs=1e-9)
    for ratio, printed in TOTAL.items():
        assert tuple(rows.filter(compute_to_network=float(ratio))["total_pct_printed"]) == printed


def test_the_table_of_the_page_is_that_of_the_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sharing.md").read_text(encoding="utf-8")
    for row in beside_thesis().iter_rows(named=True):
        values = [row[name] for name in ("background_pct", "total_pct", "background_ratio")]
        printed = [row[f"{name}_printed"] for name in ("background_pct", "total_pct", "background_ratio")]
        cells = [f"{ours:.4g} ({theirs:g})" for ours, theirs in zip(values, printed, strict=True)]
        line = [f"{row['compute_to_network']:g}", f"{row['flows_per_s']:g}", *cells]
        assert f"| {' | '.join(line)} | {row['total_pct_difference']:+.3f} |" in page


def test_what_is_not_above_0_is_refused() -> None:
    with pytest.raises(UsageError, match="workers 2 or more"):
        Ring(workers=1)
    with pytest.raises(UsageError, match="flow-rate must be above 0"):
        table(Ring(), flow_rates=[0])
