"""Numbers as text."""

from __future__ import annotations

import pytest

from ddnn_traces.regression.results import p_text
from ddnn_traces.report.number_text import percent
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
