"""Background flows of the ns-3 model: sizes, arrivals, files. None of it needs ns-3."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.ns3.ns3_job import LARGE, SMALL, WEB_SEARCH, arrivals, job, read_sizes


def test_the_mean_of_web_search_is_the_thesiss() -> None:
    assert WEB_SEARCH.mean == pytest.approx(1.71e6, rel=0.005)
    drawn = WEB_SEARCH.drawn(np.random.default_rng(1), 200_000)
    assert drawn.mean() == pytest.approx(WEB_SEARCH.mean, rel=0.02)
    assert drawn.min() >= 4_000 and drawn.max() <= 30_000_000


def test_a_share_of_the_flows_is_as_the_distribution_says() -> None:
    drawn = WEB_SEARCH.drawn(np.random.default_rng(2), 100_000)
    for size, share in zip(WEB_SEARCH.bytes, WEB_SEARCH.share, strict=True):
        assert (drawn <= size).mean() == pytest.approx(share, abs=0.005)


def test_counts_are_those_of_table_5_5() -> None:
    """1,447 flows a run of 8 s at 23 flows/s at each of 8 hosts: 55% small, 3% large."""
    flows = arrivals(8, 23, 8, WEB_SEARCH, seed=3)
    assert len(flows) == pytest.approx(8 * 23 * 8, abs=4 * np.sqrt(8 * 23 * 8))
    assert (flows.bytes < SMALL).mean() == pytest.approx(2345 / 4341, abs=0.04)
    assert (flows.bytes > LARGE).mean() == pytest.approx(129 / 4341, abs=0.015)


def test_arrivals_are_poisson() -> None:
    """Gaps at a host are exponential: their standard deviation is their mean; senders and receivers are all alike."""
    flows = arrivals(4, 500, 20, WEB_SEARCH, seed=0)
    gaps = np.diff(flows.start_ns[flows.src == 2]) / 1e9
    assert gaps.mean() == pytest.approx(1 / 500, rel=0.03) and gaps.std() == pytest.approx(gaps.mean(), rel=0.05)
    pairs = np.bincount(flows.src * 4 + flows.dst, minlength=16).reshape(4, 4)
    assert (np.diag(pairs) == 0).all() and pairs[~np.eye(4, dtype=bool)].min() > 0.9 * 10_000 / 3
    assert (np.diff(flows.start_ns) >= 0).all() and flows.start_ns.max() < 20e9


def test_a_seed_gives_the_same_flows_at_every_priority() -> None:
    values = {"preset": "fast", "flows_per_s": 46, "seed": 5}
    same, lower = (job({**values, "training_priority": name}).background() for name in ("same", "lower"))
    other = job({**values, "seed": 6}).background()
    for name in ("start_ns", "src", "dst", "bytes"):
        assert np.array_equal(getattr(same, name), getattr(lower, name))
    assert not np.array_equal(same.start_ns, other.start_ns)


def test_other_sizes_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text("# bytes, share\n1000, 0\n3000 1\n", encoding="utf-8")
    assert read_sizes(path).mean == 2000
    flows = job({"flow_sizes": str(path), "flows_per_s": 100, "seconds": 2}).background()
    assert len(flows) > 300 and 1000 <= flows.bytes.min() <= flows.bytes.max() <= 3000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1000, 0\n3000, 0.9\n", "is no distribution"),
        ("1000, 0\n500, 1\n", "is no distribution"),
        ("1000, 0.5\n3000, 1\n", "is no distribution"),
        ("1000, 1\n", "is no distribution"),
        ("", "is no distribution"),
        ("nan, 0\n3000, 1\n", "is no distribution"),
        ("1000\n3000, 1\n", "has a line that is not two numbers"),
        ("small, 0\n3000, 1\n", "has a line that is not two numbers"),
    ],
)
def test_a_wrong_file_of_sizes_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "sizes.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=message) as caught:
        read_sizes(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_too_many_flows_are_refused() -> None:
    with pytest.raises(UsageError, match="more than 1,000,000 background flows"):
        arrivals(8, 1e5, 12, WEB_SEARCH, seed=0)
