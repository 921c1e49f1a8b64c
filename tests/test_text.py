"""Numbers as text."""

from __future__ import annotations

import polars as pl
import pytest

from ddnn_traces.regression.results import p_text
from ddnn_traces.report.number_text import counts, percent, size, span, typical
from ddnn_traces.text import digits


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (1.0, "1"), (0.5, "0.5"), (12.345, "12.3"), (999.96, "1,000"), (123456.7, "123,457"),
        (0.00012345, "0.000123"), (-0.00005, "-0.00005"), (2.5e-9, "0.0000000025"), (2.5e-10, "2.5e-10"),
    ],
)  # fmt: skip
def test_digits_are_significant_and_without_an_exponent(value: float, text: str) -> None:
    assert digits(value) == text


def test_a_share_of_nearly_nothing_or_all_is_no_round_number() -> None:
    assert (percent(3e-7), percent(0.99999), percent(1.0)) == ("0.00003%", "more than 99.9%", "100%")


def test_a_p_value_below_what_a_normal_distribution_supports_is_only_bounded() -> None:
    assert (p_text(0.04321), p_text(1e-4), p_text(9e-5), p_text(0)) == (
        "p = 0.0432", "p = 0.0001", "p < 0.0001", "p < 0.0001",
    )  # fmt: skip


def test_of_few_values_the_ends_of_more_the_median() -> None:
    assert span(pl.Series([3.0, 1.0, 2.0])) == "1 to 3"
    assert span(pl.Series([2.0] * 9)) == "2"
    assert span(pl.Series([1.0, 2.0, 3.0, 4.0, 100.0]), percent) == "300% (median)"
    assert counts(pl.Series([1, 2]), "flow") == "1 to 2 flows"
    assert counts(pl.Series([1, 2, 3, 4, 100]), "flow") == "3 flows (median)"
    assert counts(pl.Series([1, 2, 3, 4, 5, 100]), "flow") == "3.5 flows (median)"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, 3], "1 to 3"),
        ([1, 2, 3, 4, 5], "3 (median of 5 runs)"),
        # quartiles 2 and 4: outliers are below -1 and above 7
        ([1, 2, 3, 4, 7], "3 (median of 5 runs)"),
        ([1, 2, 3, 4, 7.5], "3 (median of 5 runs; one outlier: 7.5 in run-4)"),
        ([-90, 1, 2, 3, 3, 4, 4, 99], "3 (median of 8 runs; 2 outliers, farthest: 99 in run-7)"),
    ],
)
def test_outliers_are_named(values: list[float], text: str) -> None:
    frame = pl.DataFrame({"run_id": [f"run-{number}" for number in range(len(values))], "x": values}, strict=False)
    twice = pl.concat([frame, frame, pl.DataFrame({"run_id": ["unknown"], "x": [None]}, schema=frame.schema)])
    assert typical(twice, "x") == text


def test_sizes_have_no_exponent() -> None:
    assert [size(value) for value in (999.4, 999.6e6, 2.1e6, 2.5e15)] == ["999 B", "1,000 MB", "2.1 MB", "2,500 TB"]
