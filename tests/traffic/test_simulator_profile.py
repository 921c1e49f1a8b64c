"""Layer profiles: the thesis's, files, fusion."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import SHIPPED, Buffer, LayerProfile, fuse, read, read_columns, thesis


def profile(sizes: list[int]) -> LayerProfile:
    times = np.full(len(sizes), 1e6)
    names = tuple(f"layer-{i}" for i in range(len(sizes)))
    return LayerProfile("test", names, times, times, np.array(sizes))


def test_the_thesis_has_arithmetic_progressions_and_three_kinds_of_layers() -> None:
    found = thesis()
    assert found.layers == 100
    assert found.forward_ns.sum() == pytest.approx(300e6) and found.backward_ns.sum() == pytest.approx(600e6)
    assert np.allclose(np.diff(found.forward_ns), found.forward_ns[1] - found.forward_ns[0])
    assert found.forward_ns[0] == pytest.approx(100 * found.forward_ns[-1])
    assert np.allclose(np.diff(found.backward_ns), found.backward_ns[0])
    sizes = found.gradient_bytes
    assert (sizes[:50] == 222_222).all() and (sizes[50:76] == 888_889).all() and (sizes[76:] == 2_666_667).all()
    assert found.model_bytes / 1e8 == pytest.approx(0.9822, abs=1e-4)  # about 98% of S
    assert found.resized(100_000_000).model_bytes == 100_000_000


def test_the_largest_layer_of_50_gives_the_fusion_buffer_of_table_5_1() -> None:
    """5,333,329 bytes are one more than 12 x, x in whole bytes: 5,333,328."""
    sizes = thesis(layers=50).gradient_bytes
    assert sizes.max() == 5_333_333
    assert 12 * (2 * 100_000_000 // (9 * 50)) == 5_333_328 == 5_333_329 - 1


def test_every_shipped_profile_is_read() -> None:
    for path in SHIPPED.glob("*.csv"):
        found = read(path.stem)
        assert found.layers > 10 and found.model_bytes > 10_000_000
    assert read("resnet50").model_bytes == 4 * 25_557_032


def test_the_page_states_what_the_profile_of_resnet50_has() -> None:
    """As the thesis's figure 3.4: forward times fall, and the last layers have most of the gradients."""
    page = " ".join((Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8").split())
    found = read("resnet50")
    thirds = [round(part.sum() / 1e6) for part in np.array_split(found.forward_ns, 3)]
    assert thirds == sorted(thirds, reverse=True)
    assert f"thirds of the {found.layers} layers take {thirds[0]}, {thirds[1]} and {thirds[2]} ms" in page
    last = found.gradient_bytes[-30:].sum() / found.model_bytes
    assert f"The last 30 layers have {100 * last:.0f}% of the gradients" in page
    assert f"Forward to backward is 1:{found.backward_ns.sum() / found.forward_ns.sum():.2f}," in page


def test_loading_is_a_first_layer_that_other_sums_leave_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("layer,forward_ms,backward_ms,gradient_bytes\nloading,12,0,0\na,3,5,10\nb,1,3,20\n")
    own = specification.profile({"profile": str(tmp_path / "p.csv"), "compute_ms": 24})
    assert (own.forward_ns / 1e6).tolist() == [12, 6, 2] and (own.backward_ns / 1e6).tolist() == [0, 10, 6]
    other = specification.profile({"profile": str(tmp_path / "p.csv"), "loading_ms": 30})
    assert (other.forward_ns / 1e6).tolist() == [30, 3, 1] and other.names == ("loading", "a", "b")
    none = specification.profile({"profile": str(tmp_path / "p.csv"), "loading_ms": 0})
    assert none.names == ("a", "b") and none.compute_ns == 12e6
    assert specification.profile({"layers": 4, "loading_ms": 2.5}).names[:2] == ("loading", "layer-0")
    with pytest.raises(UsageError, match="loading_ms = -1; it must be 0 or more"):
        specification.profile({"loading_ms": -1})


def test_csv_parquet_and_three_files_are_the_same(tmp_path: Path) -> None:
    rows = {"layer": ["a", "b"], "forward_ms": [1.5, 2.0], "backward_ms": [3.0, 4.5], "gradient_bytes": [10, 20]}
    pl.DataFrame(rows).write_parquet(tmp_path / "p.parquet")
    (tmp_path / "p.csv").write_text("# a comment\n" + pl.DataFrame(rows).write_csv())
    for name, values in (("sizes", "bytes\n10\n20\n"), ("forward", "0,1.5\n1,2.0\n"), ("backward", "3.0\n4.5\n")):
        (tmp_path / name).write_text(values)
    found = [
        read(tmp_path / "p.csv"), read(tmp_path / "p.parquet"),
        read_columns(tmp_path / "sizes", tmp_path / "forward", tmp_path / "backward"),
    ]  # fmt: skip
    for one in found:
        assert one.forward_ns.tolist() == [1.5e6, 2e6] and one.backward_ns.tolist() == [3e6, 4.5e6]
        assert one.gradient_bytes.tolist() == [10, 20]
    assert found[0].names == found[1].names == ("a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("layer,forward_ms,backward_ms\na,1,1\n", "has no column gradient_bytes"),
        ("layer,forward_ms,backward_ms,gradient_bytes\na,,1,4\n", "layer 1 has forward_ms None"),
        ("layer,forward_ms,backward_ms,gradient_bytes\na,1,1,4\nb,x,1,4\n", "layer 2 has forward_ms 'x'"),
        ("layer,forward_ms,backward_ms,gradient_bytes\na,1,-1,4\n", "layer 1 has backward_ms '-1'"),
        ("layer,forward_ms,backward_ms,gradient_bytes\na,1,nan,4\n", "layer 1 has backward_ms 'nan'"),
        ("layer,forward_ms,backward_ms,gradient_bytes\na,1,1,4.5\n", "gradient_bytes must be whole numbers"),
        ("layer,forward_ms,backward_ms,gradient_bytes\na,0,1,4\n", "forward_ms must be 0 or more"),
        ("layer,forward_ms,backward_ms,gradient_bytes\na,1,1,0\n", "gradient_bytes must be 0 or more"),
        ("layer,forward_ms,backward_ms,gradient_bytes\n", "has 0 layers"),
        ("", "is no CSV"),
    ],
)
def test_a_wrong_file_is_named_with_its_layer(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        read(tmp_path / "p.csv")


def test_files_that_do_not_fit_and_files_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n")
    (tmp_path / "b").write_text("1\n")
    with pytest.raises(UsageError, match=r"\[1, 2, 2\] lines"):
        read_columns(tmp_path / "a", tmp_path / "b", tmp_path / "a")
    with pytest.raises(UsageError, match=r"no such file, and no shipped profile; there are thesis, .*resnet50"):
        read("resnet5000")
    (tmp_path / "p.parquet").write_text("no")
    with pytest.raises(UsageError, match="is no Parquet file"):
        read(tmp_path / "p.parquet")


def test_fusing_from_either_end() -> None:
    sizes = profile([3, 3, 3, 5])
    assert fuse(sizes, 6) == [Buffer(0, 1, 6), Buffer(2, 2, 3), Buffer(3, 3, 5)]
    assert fuse(sizes, 8, "last") == [Buffer(0, 1, 6), Buffer(2, 3, 8)]


def test_a_tensor_larger_than_the_buffer_is_split_only_when_asked() -> None:
    with pytest.raises(UsageError, match="fusion_bytes = 4: the largest tensor of test has 10 bytes"):
        fuse(profile([1, 10, 2]), 4)
    assert fuse(profile([1, 10, 2]), 4, split=True) == [
        Buffer(0, 0, 1), Buffer(1, 1, 3), Buffer(1, 1, 3), Buffer(1, 1, 4), Buffer(2, 2, 2),
    ]  # fmt: skip


@given(
    sizes=st.lists(st.integers(0, 1000), min_size=1, max_size=40).filter(any),
    buffer=st.integers(1, 2000),
    start=st.sampled_from(["first", "last"]),
)
def test_fusion_keeps_every_byte_and_the_order_of_layers(sizes: list[int], buffer: int, start: str) -> None:
    found = fuse(profile(sizes), buffer, start, split=True)
    assert sum(each.bytes for each in found) == sum(sizes)
    assert all(1 <= each.bytes <= buffer for each in found)
    for one, following in pairwise(found):
        assert one.last < following.first or one.first == one.last == following.first == following.last


@pytest.mark.parametrize("name", ["resnet50", "vgg16"])
def test_a_buffer_holds_the_largest_tensor_unless_given_or_split(name: str) -> None:
    largest = int(read(name).gradient_bytes.max())
    run = SimulatedRun(profile=read(name))
    assert run.most_fused_bytes == max(buffer.bytes for buffer in run.buffers) == largest > 6_280_000
    split = SimulatedRun(profile=read(name), split_tensors=True)
    assert split.most_fused_bytes == 6_280_000 >= max(buffer.bytes for buffer in split.buffers)
    assert SimulatedRun().most_fused_bytes == 6_280_000
    with pytest.raises(UsageError, match=f"give fusion_bytes = {largest} or more, or .*--set split_tensors=true"):
        _ = SimulatedRun(profile=read(name), fusion_bytes=6_280_000).buffers
