"""Figures of a sweep on ns-3: which there are, and what they draw, from tables that were written by hand."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import vl_convert
from tools import mostly_long

from ddnn_traces.query import sweep_queries
from ddnn_traces.report.charts import gao, style

AXES = ["compute_to_network", "flows_per_s", "training_priority", "seed"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of ratios 4 and 2, rates 92 and 184, two seeds; at 2 and 184 no iteration ended at the lower priority."""
    out = tmp_path_factory.mktemp("sweep")
    cells: list[dict[str, Any]] = []
    flows: list[dict[str, Any]] = []
    for ratio, rate, priority, seed in itertools.product((4.0, 2.0), (92.0, 184.0), ("same", "lower"), (0, 1)):
        number, is_lower = len(cells), priority == "lower"
        background = rate * 1.7 * 8 / 10_000
        ms = None if is_lower and (ratio, rate) == (2, 184) else 140 * ratio * (1.1 if is_lower else 1)
        cells.append(
            {
                "cell": number, "compute_to_network": ratio, "flows_per_s": rate, "training_priority": priority,
                "seed": seed, "expected_utilization": 1 / ratio, "expected_background_utilization": background,
                "background_ratio": background * ratio, "iteration_ms": ms, "utilization": 0.9 / ratio,
                "background_utilization": background, "small_mean_ms": 1.0, "small_p99_ms": 3.0, "error": None,
            }
        )  # fmt: skip
        for flow, size in enumerate((5_000, 9_000, 20_000_000)):
            end = 1e9 * flow + (1e6 + seed * 1e5 + flow * 1e5) * (0.5 if is_lower else 1)
            flows.append(
                {
                    "cell": number, "flow": flow, "src": 0, "dst": 1, "bytes": size, "start_ns": 1_000_000_000 * flow,
                    "end_ns": round(end), "is_measured": True,
                }
            )  # fmt: skip
    pl.DataFrame(cells, schema_overrides={"error": pl.String}).write_parquet(out / "cells.parquet")
    pl.DataFrame(flows).write_parquet(out / "background_flows.parquet")
    numbers = pl.DataFrame({"cell": range(len(cells))})
    spans = {"step": 0, "start_ns": 100_000_000, "end_ns": 200_000_000}
    columns = {"buffer": 0, "interval": 0, "worker": 0, "partition": 0, "bytes": 9, **spans}
    for name, more in (("transfers", columns), ("layers", {"layer": 3, "kind": "backward", **spans})):
        numbers.with_columns(**{key: pl.lit(value) for key, value in more.items()}).write_parquet(
            out / f"{name}.parquet"
        )
    buffers = {"buffer": 0, "first_layer": 2, "last_layer": 4, "bytes": 9}
    numbers.with_columns(**{key: pl.lit(value) for key, value in buffers.items()}).write_parquet(
        out / "buffers.parquet"
    )
    return out


@pytest.fixture(scope="module")
def written(folder: Path) -> list[Path]:
    """Its figures, in the place of one of before."""
    (folder / "figures").mkdir()
    (folder / "figures" / "of_before.svg").write_text("<svg/>")
    return gao.write(folder, AXES)


def texts(path: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", path.read_text(encoding="utf-8"))


@pytest.mark.long
def test_a_sweep_over_the_thesis_s_axes_has_its_figures(folder: Path, written: list[Path]) -> None:
    by_name = {path.stem: path for path in written}
    assert set(by_name) == {
        "ratio_4", "ratio_2", "rate_92", "rate_184", "application_ratio_0.5", "application_ratio_0.25",
        "operating_boundary", "duration_cdf_4", "duration_cdf_2", "gains_4", "gains_2", "progression_4_92_same",
        "progression_4_92_lower", "progression_2_92_same", "progression_2_92_lower",
    }  # fmt: skip
    assert sorted(path.stem for path in (folder / "figures").iterdir()) == sorted(by_name)
    drawn = texts(by_name["operating_boundary"])
    assert drawn.count("+10.0") == 3 and drawn.count("−50.0") == 8  # one cell has no iteration at the lower priority
    assert {"same priority", "lower priority", "small flows"} <= set(texts(by_name["ratio_4"]))


@pytest.mark.parametrize("axes", [["workers", *AXES], ["seed"]])
def test_any_other_sweep_has_a_row_for_its_values(axes: list[str], folder: Path, tmp_path: Path) -> None:
    cells = pl.read_parquet(folder / "cells.parquet").with_columns(workers=8)
    cells.write_parquet(tmp_path / "cells.parquet")
    [path] = gao.write(tmp_path, axes)
    found = texts(path)
    assert path.name == "by_axis.svg" and "iteration time (ms)" in found and "large flows, mean (ms)" not in found
    named = [axis for axis in axes if axis != "seed"] or axes  # seeds are dots of a row
    assert f"by {', '.join(named)}" in found
    labels = cells.select(pl.concat_str(*named, separator=", ").str.replace_all(".0,", ",", literal=True)).to_series()
    assert set(labels) <= set(found), "each row has its values, whole"


def test_seeds_are_dots_of_a_row_and_have_a_line_at_their_mean() -> None:
    cells = pl.DataFrame({"workers": [4, 4, 8, 8], "seed": [0, 1, 0, 1], "iteration_ms": [5.0, 7.0, 9.0, 11.0]})
    [panel] = gao.by_axis(cells, ["workers", "seed"], ["iteration_ms"]).to_dict()["hconcat"]
    dots, line = panel["layer"]
    assert dots["encoding"]["y"]["scale"]["domain"] == ["4", "8"]
    assert line["encoding"]["x"]["aggregate"] == "mean" and dots["encoding"]["x"].get("aggregate") is None


def test_a_sweep_with_a_stream_shows_its_delay_and_jitter(tmp_path: Path) -> None:
    cells = pl.DataFrame({"workers": [4, 8], "iteration_ms": 5.0, "stream_p99_ms": 0.5, "stream_jitter_ms": 0.1})
    cells.write_parquet(tmp_path / "cells.parquet")
    [path] = gao.write(tmp_path, ["workers"])
    assert {"stream, 99th percentile of delay (ms)", "stream, jitter (ms)"} <= set(texts(path))


def test_a_sweep_in_which_nothing_was_simulated_has_no_figure(tmp_path: Path) -> None:
    pl.DataFrame({"cell": [0], "error": ["impossible"]}).write_parquet(tmp_path / "cells.parquet")
    assert gao.write(tmp_path, ["workers"]) == []


@pytest.mark.long
@pytest.mark.parametrize("lacking", mostly_long(["flows", "iterations", "large"], "iterations"))
def test_what_was_not_measured_is_left_out(lacking: str, folder: Path, tmp_path: Path) -> None:
    """A rate of 0, cells that stopped before an iteration ended, a run too short for large flows."""
    for path in folder.glob("*.parquet"):
        shutil.copy(path, tmp_path)
    cells, flows = (pl.read_parquet(folder / f"{name}.parquet") for name in ("cells", "background_flows"))
    if lacking == "flows":
        nothing = pl.when(pl.col("flows_per_s") > 92).then("flows_per_s").otherwise(0.0)
        cells = cells.with_columns(flows_per_s=nothing)
        flows = flows.filter(pl.col("cell").is_in(cells.filter(pl.col("flows_per_s") > 0)["cell"].implode()))
    elif lacking == "iterations":
        cells = cells.with_columns(iteration_ms=pl.lit(None, pl.Float64))
    else:
        flows = flows.filter(pl.col("bytes") < 10_000_000)
    cells.write_parquet(tmp_path / "cells.parquet")
    flows.write_parquet(tmp_path / "background_flows.parquet")
    paths = gao.write(tmp_path, AXES)
    drawn = texts(next(path for path in paths if path.stem == "operating_boundary"))
    numbers = [text for text in drawn if re.fullmatch(r"[+−]\d+\.\d", text)]
    # three maps of four cells, one of which has no iteration at the lower priority
    assert len(numbers) == {"flows": 3 + 2 + 2, "iterations": 8, "large": 3 + 4}[lacking]


def test_the_map_has_intervals_and_is_grey_where_nothing_can_be_told(folder: Path, tmp_path: Path) -> None:
    """Two seeds have no interval: only grey. One cell with an interval: how far it reaches, and its colour."""
    rows = sweep_queries.run(folder, "operating_boundary")
    ends = {"low": 8.5, "high": 11.5}
    first = pl.int_range(pl.len()) == 0
    told = rows.with_columns(
        pl.when(first).then(pl.lit("yellow")).otherwise("region").alias("region"),
        *(pl.when(first).then(value).alias(f"iteration_{end}_pct") for end, value in ends.items()),
    )
    greys, drawn = [], []
    for frame in (rows, told):
        svg = style.svg(style.with_look(gao.operating_boundary(frame), "a map").to_dict())
        greys.append(len(re.findall('fill="#d4d4d4"', svg)))
        drawn.append([text for text in re.findall(r"<text[^>]*>([^<]+)</text>", svg) if text.startswith("±")])
    assert drawn == [[], ["± 1.5"]]
    assert greys[0] == greys[1] + 1


@pytest.mark.long
def test_axes_have_units(folder: Path, written: list[Path]) -> None:
    for path in written:
        titles = [text for text in texts(path) if re.search(r"[a-z]{4,} ?.*\)$", text)]
        assert titles, path.name
    for name in ("duration (ms)", "share of the small flows (share)"):
        assert name in texts(folder / "figures" / "duration_cdf_4.svg")


def test_charts_are_sound_vega_lite(folder: Path) -> None:
    """As style.py draws them without validation."""
    results, seeds = sweep_queries.run(folder, "sharing_results"), sweep_queries.run(folder, "seed_results")
    for chart in (
        gao.panels(results.filter(compute_to_network=4.0), seeds.filter(compute_to_network=4.0), "flows_per_s"),
        gao.operating_boundary(sweep_queries.run(folder, "operating_boundary")),
        gao.progression(sweep_queries.run(folder, "progression", number=0)),
    ):
        spec = style.with_look(chart, "a chart").to_dict()
        assert vl_convert.vegalite_to_vega(spec)["marks"]
