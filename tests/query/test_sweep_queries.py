"""The queries of a sweep on ns-3, over tables that were written by hand; every expected number is computed by hand."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from scipy import stats
from tools import script

from ddnn_traces.errors import NoDataError, QueryError
from ddnn_traces.query import sweep_queries

#: Iteration time and utilization of each cell: ratio, rate, seed, priority.
CELLS: dict[tuple[float, float, int, str], tuple[float | None, float]] = {
    (4.0, 92.0, 0, "same"): (500.0, 0.25),
    (4.0, 92.0, 0, "lower"): (550.0, 0.225),
    (4.0, 92.0, 1, "same"): (400.0, 0.25),
    (4.0, 92.0, 1, "lower"): (480.0, 0.2),
    (16.0, 184.0, 0, "same"): (1000.0, 0.06),
    (16.0, 184.0, 0, "lower"): (1005.0, 0.06),
    (8.0, 184.0, 0, "same"): (1000.0, 0.12),
    (8.0, 184.0, 0, "lower"): (None, 0.01),
    (2.0, 184.0, 0, "same"): (1000.0, 0.5),
    (2.0, 184.0, 0, "lower"): (1301.0, 0.4),
}
#: Flows of cells 0 to 3: cell, flow, bytes, ms (None: not completed), is_measured.
FLOWS: list[tuple[int, int, int, float | None, bool]] = [
    (0, 0, 99_999, 2.0, True), (1, 0, 99_999, 1.0, True),
    (0, 1, 1000, 4.0, True), (1, 1, 1000, None, True),  # not completed at the lower priority: not paired
    (0, 2, 100_000, 10.0, True), (1, 2, 100_000, 10.0, True),
    (0, 3, 10_000_001, 40.0, True), (1, 3, 10_000_001, 30.0, True),
    (0, 4, 1000, 900.0, False), (1, 4, 1000, 1.0, False),  # not measured
    (2, 0, 1000, 2.0, True), (3, 0, 1000, 1.5, True),
    (2, 1, 1000, 6.0, True), (3, 1, 1000, 1.5, True),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep; the folder's name has what a path in SQL must not stumble on."""
    out = tmp_path_factory.mktemp("it's [a] *sweep")
    cells = [
        {
            "cell": i, "compute_to_network": ratio, "flows_per_s": rate, "seed": seed, "training_priority": priority,
            "expected_utilization": 1 / ratio, "expected_background_utilization": rate * 1.7 * 8 / 10_000,
            "background_ratio": rate * 1.7 * 8 / 10_000 * ratio, "iteration_ms": ms, "utilization": share,
            "background_utilization": 0.125, "error": None,
        }
        for i, ((ratio, rate, seed, priority), (ms, share)) in enumerate(CELLS.items())
    ]  # fmt: skip
    pl.DataFrame(cells, schema_overrides={"error": pl.String}).write_parquet(out / "cells.parquet")
    flows = [
        {
            "cell": cell, "flow": flow, "src": 0, "dst": 1, "bytes": size, "start_ns": 1_000_000_000 * flow,
            "end_ns": None if ms is None else 1_000_000_000 * flow + round(ms * 1e6), "is_measured": measured,
        }
        for cell, flow, size, ms, measured in FLOWS
    ]  # fmt: skip
    pl.DataFrame(flows).write_parquet(out / "background_flows.parquet")
    transfers = {
        "cell": [0, 0, 0], "step": [0, 0, 1], "buffer": [1, 0, 1], "interval": 0, "worker": [0, 1, 0], "partition": 0,
        "bytes": 10, "start_ns": [2_000_000_000, 1_000_000_000, 5_000_000_000],
        "end_ns": [3_000_000_000, 2_500_000_000, 6_000_000_000],
    }  # fmt: skip
    pl.DataFrame(transfers).write_parquet(out / "transfers.parquet")
    layers = {
        "cell": 0,
        "step": 0,
        "layer": [7],
        "kind": "backward",
        "start_ns": 1_500_000_000,
        "end_ns": 1_600_000_000,
    }
    pl.DataFrame(layers).write_parquet(out / "layers.parquet")
    profile = {
        "layer": [-1, 0, 1], "name": ["loading", "a", "b"], "forward_ms": [12.0, 3.0, 1.0],
        "backward_ms": [0.0, 5.0, 4.0], "gradient_bytes": [0, 10, 20],
    }  # fmt: skip
    pl.DataFrame(profile).write_parquet(out / "profile.parquet")
    buffers = {"cell": 0, "buffer": [0, 1], "first_layer": [0, 5], "last_layer": [4, 9], "bytes": 10}
    pl.DataFrame(buffers).write_parquet(out / "buffers.parquet")
    return out


def rows(folder: Path, name: str, *columns: str, **params: Any) -> list[tuple[Any, ...]]:
    return sweep_queries.run(folder, name, **params).select(columns).rows()


def test_flows_are_paired_where_both_completed_and_were_measured(folder: Path) -> None:
    assert rows(folder, "paired_flows", "seed", "flow", "size", "same_ms", "lower_ms") == [
        (0, 0, "small", 2.0, 1.0), (0, 2, "medium", 10.0, 10.0), (0, 3, "large", 40.0, 30.0),
        (1, 0, "small", 2.0, 1.5), (1, 1, "small", 6.0, 1.5),
    ]  # fmt: skip


def test_results_of_each_seed(folder: Path) -> None:
    found = {
        (ratio, seed, measure): (same, lower, change)
        for ratio, seed, measure, same, lower, change in rows(
            folder, "seed_results", "compute_to_network", "seed", "measure", "same", "lower", "change_pct"
        )
    }
    assert found[4.0, 0, "iteration_ms"] == (500, 550, 10)
    assert found[4.0, 1, "iteration_ms"] == (400, 480, 20)
    assert found[4.0, 0, "small_mean_ms"] == (2, 1, -50)
    assert found[4.0, 1, "small_mean_ms"] == (4, 1.5, -62.5)
    assert found[4.0, 1, "small_p90_ms"] == pytest.approx((5.6, 1.5, -100 * 4.1 / 5.6))  # 2 + 0.9 x 4
    assert found[4.0, 0, "large_mean_ms"] == (40, 30, -25)
    assert found[8.0, 0, "iteration_ms"] == (1000, None, None)
    assert (4.0, 1, "large_mean_ms") not in found


def test_results_are_the_means_of_the_seeds_changes(folder: Path) -> None:
    columns = ("seeds", "same", "lower", "change_pct", "expected_total_utilization")
    frame = sweep_queries.run(folder, "sharing_results")
    of_four = frame.filter(compute_to_network=4.0)
    [iteration] = of_four.filter(measure="iteration_ms").select(columns).rows()
    assert iteration == pytest.approx((2, 450, 515, 15, 0.25 + 0.12512))
    [small] = of_four.filter(measure="small_mean_ms").select(columns[:4]).rows()
    assert small == pytest.approx((2, 3, 1.25, -56.25))
    [share] = of_four.filter(measure="utilization").select(columns[1:4]).rows()
    assert share == pytest.approx((0.25, 0.2125, -15))
    [none] = frame.filter(compute_to_network=8.0, measure="iteration_ms").select(columns[:4]).rows()
    assert none == (0, None, None, None)
    assert of_four["background_ratio"].to_list() == pytest.approx([0.50048] * len(of_four))


def of_seeds(out: Path, changes: dict[tuple[float, float], list[float | None]], source: Path) -> Path:
    """A sweep in `out` whose iterations of 1000 ms are so many percent longer; a seed a change, None: not measured."""
    template = pl.read_parquet(source / "cells.parquet", glob=False).row(0, named=True)
    cells: list[dict[str, Any]] = []
    for (ratio, rate), each in changes.items():
        for seed, change in enumerate(each):
            for priority in ("same", "lower"):
                ms = 1000 if priority == "same" else change if change is None else 1000 + 10 * change
                about = {"compute_to_network": ratio, "flows_per_s": rate, "training_priority": priority}
                cells.append(template | about | {"cell": len(cells), "seed": seed, "iteration_ms": ms})
    pl.DataFrame(cells, schema_overrides={"error": pl.String}).write_parquet(out / "cells.parquet")
    for name in ("background_flows", "transfers", "layers", "buffers"):
        pl.read_parquet(source / f"{name}.parquet", glob=False).clear().write_parquet(out / f"{name}.parquet")
    return out


def test_an_interval_is_of_five_seeds_or_more(folder: Path, tmp_path: Path) -> None:
    """By hand: a mean of 10 and a standard deviation of 5 over five seeds; Student's t of 4 degrees is 2.7764."""
    five: list[float | None] = [5, 5, 10, 15, 15]
    sweep = of_seeds(tmp_path, {(4, 92): five, (4, 23): five[:4], (2, 92): [*five, None]}, folder)
    columns = ("flows_per_s", "seeds", "change_pct", "change_low_pct", "change_high_pct")
    frame = sweep_queries.run(sweep, "sharing_results").filter(measure="iteration_ms").select(columns)
    half = 2.7764451052 * 5 / 5**0.5
    assert frame.rows() == [
        (92, 5, pytest.approx(10), None, None),  # a sixth seed had no whole iteration: the mean is of the short ones
        (23, 4, pytest.approx(8.75), None, None),
        (92, 5, pytest.approx(10), pytest.approx(10 - half), pytest.approx(10 + half)),
    ]
    told = {
        (ratio, stated): (low, here)
        for ratio, stated, low, here in rows(
            sweep, "thesis_statements", "compute_to_network", "stated_pct", "change_low_pct", "here"
        )
    }
    assert told[4, 12.5] == told[4, 15.61] == (pytest.approx(10 - half), "cannot be told")
    assert told[2, 23.11] == (None, "cannot be told")


def test_regions_of_the_operating_boundary(folder: Path, tmp_path: Path) -> None:
    """A region is of the whole interval; no region where it holds a limit, or where there is none."""
    changes: dict[tuple[float, float], list[float | None]] = {
        (16, 23): [0.1, 0.1, 0.2, 0.3, 0.3], (8, 46): [9, 9, 10, 11, 11], (4, 92): [1, 1, 2, 3, 3],
        (4, 184): [26, 26, 31, 36, 36], (2, 184): [90, 90, 100, 110, 110], (2, 23): [0.1],
    }  # fmt: skip
    sweep = of_seeds(tmp_path, changes, folder)
    found = rows(sweep, "operating_boundary", "compute_to_network", "seeds", "region", "seeds_to_tell")
    # 2 +- 1.2416 holds 1; at the same scatter n seeds tell it at 1.4294 x 1.2416 x sqrt(5 / n) = 1
    assert found == [
        (16, 5, "green", None), (8, 5, "yellow", None), (4, 5, "cannot be told", 16), (4, 5, "cannot be told", 394),
        (2, 1, "cannot be told", None), (2, 5, "red", None),
    ]  # fmt: skip
    found = rows(folder, "operating_boundary", "compute_to_network", "iteration_change_pct", "region")
    assert {region for *_, region in found} == {"cannot be told"}, "one or two seeds"
    assert [change for _, change, _ in found] == [pytest.approx(0.5), None, pytest.approx(15), pytest.approx(30.1)]


def test_changes_of_settings_are_those_of_each_seed(folder: Path, tmp_path: Path) -> None:
    """The changes of the priority are those of sharing_results; of the rate, by hand."""
    five: list[float | None] = [5, 5, 10, 15, 15]
    sweep = of_seeds(tmp_path, {(4, 23): [0, 0, 0, 0, None], (4, 92): five}, folder)
    frame = sweep_queries.run(sweep, "setting_changes").filter(measure="iteration_ms")
    columns = ("setting", "reference", "value", "others", "seeds", "change_pct", "change_low_pct")
    half = 2.7764451052 * 5 / 5**0.5
    assert frame.select(columns).rows() == [
        ("flows_per_s", "23", "92", "training_priority same", 5, 0, 0),
        # the fifth seed had no whole iteration at 23 flows/s
        ("flows_per_s", "23", "92", "training_priority lower", 4, pytest.approx(8.75), None),
        ("training_priority", "same", "lower", "flows_per_s 23", 4, 0, None),
        ("training_priority", "same", "lower", "flows_per_s 92", 5, pytest.approx(10), pytest.approx(10 - half)),
    ]
    shared = sweep_queries.run(sweep, "sharing_results").filter(measure="iteration_ms")
    of_priority = frame.filter(setting="training_priority")
    names = ["at_reference", "at_value", "change_pct", "change_low_pct", "change_high_pct"]
    assert of_priority.select(names).rows() == shared.select("same", "lower", *names[2:]).rows()


def test_a_sweep_of_one_value_has_no_changes(folder: Path, tmp_path: Path) -> None:
    sweep = of_seeds(tmp_path, {(4, 23): [1, 2]}, folder)
    cells = pl.read_parquet(sweep / "cells.parquet").filter(training_priority="same")
    cells.write_parquet(sweep / "cells.parquet")
    assert sweep_queries.run(sweep, "setting_changes").is_empty()


def test_a_sweep_without_seeds_has_changes_without_intervals(folder: Path, tmp_path: Path) -> None:
    sweep = of_seeds(tmp_path, {(4, 23): [8]}, folder)
    pl.read_parquet(sweep / "cells.parquet").drop("seed").write_parquet(sweep / "cells.parquet")
    [row] = sweep_queries.run(sweep, "setting_changes").filter(measure="iteration_ms").rows(named=True)
    assert (row["setting"], row["value"], row["seeds"], row["change_pct"]) == ("training_priority", "lower", 1, 8)
    assert row["change_low_pct"] is None


@pytest.mark.parametrize(("change", "here"), [(12.0, "below"), (13.0, "above")])
def test_statements_of_the_thesis_beside_ours(change: float, here: str, folder: Path, tmp_path: Path) -> None:
    """12.5% is stated of ratio 4 and 92 flows/s; five seeds within 0.1 of their mean."""
    each: list[float | None] = [change - 0.1, change, change, change, change + 0.1]
    sweep = of_seeds(tmp_path, {(4, 92): each, (8, 184): [None] * 5}, folder)
    columns = ("compute_to_network", "flows_per_s", "stated_pct", "change_pct", "difference_pct", "here")
    found = {row[:3]: row[3:] for row in rows(sweep, "thesis_statements", *columns)}
    assert found[4, 92, 12.5] == (pytest.approx(change), pytest.approx(change - 12.5), here)
    assert found[4, 92, 15.61][2] == "below"
    assert found[8, 184, 117.2] == (None, None, "cannot be told")  # nothing measured at the lower priority
    assert found[2, 92, 23.11] == (None, None, "cannot be told")  # no such cell
    assert len(found) == 9


def test_counts_of_flows(folder: Path) -> None:
    columns = ("training_priority", "seed", "size", "completed", "collected", "completed_pct")
    found = rows(folder, "flow_counts", *columns)
    assert ("lower", 0, "small", 1, 2, 50) in found
    assert ("same", 0, "all", 4, 4, 100) in found
    assert ("lower", None, "small", 3, 4, 75) in found
    assert ("same", None, "all", 6, 6, 100) in found
    assert len(found) == 2 * (4 + 4 + 2)  # of a priority: all seeds, seed 0, seed 1, which has small flows alone


def test_distribution_of_durations(folder: Path) -> None:
    columns = ("seed", "training_priority", "duration_ms", "share")
    assert rows(folder, "flow_duration_cdf", *columns) == [
        (0, "lower", 1, 1), (0, "same", 2, 0.5), (0, "same", 4, 1),
        (1, "lower", 1.5, 1), (1, "lower", 1.5, 1), (1, "same", 2, 0.5), (1, "same", 6, 1),
    ]  # fmt: skip
    assert rows(folder, "flow_duration_cdf", *columns, rate=184.0) == []


def test_gains_and_the_all_reduces_behind_them(folder: Path) -> None:
    assert rows(folder, "flow_gains", "seed", "flow", "start_s", "gain_ms") == [
        (0, 0, 0, 1), (1, 0, 0, 0.5), (1, 1, 1, 4.5),
    ]  # fmt: skip
    found = rows(folder, "all_reduce_periods", "training_priority", "step", "start_s", "end_s")
    assert found == [("same", 0, 1, 3), ("same", 1, 5, 6)]


def test_progression_of_a_cell(folder: Path) -> None:
    columns = ("kind", "step", "layer", "last_layer", "start_ms", "duration_ms")
    found = rows(folder, "progression", *columns, number=0, receiver=0)
    assert found == [
        ("backward", 0, 7, 7, 1500, 100), ("transfer", 0, 5, 9, 2000, 1000), ("transfer", 1, 5, 9, 5000, 1000),
    ]  # fmt: skip
    assert len(rows(folder, "progression", *columns, number=0)) == 4
    assert rows(folder, "progression_cells", "cell", "training_priority") == [(0, "same"), (1, "lower")]


@pytest.mark.parametrize("name", sweep_queries.queries())
def test_a_query_has_the_columns_of_its_head(name: str, folder: Path) -> None:
    query = sweep_queries.queries()[name]
    frame = sweep_queries.run(folder, name)
    assert frame.columns == [column.name for column in query.columns]
    assert set(frame.dtypes) <= {pl.Int64, pl.Float64, pl.String, pl.Int32}


def simulated(out: Path, axes: dict[str, list[Any]], **measures: Any) -> Path:
    """The cells of a sweep of `simulate` in `out`: every combination of the axes, the last one fastest."""
    keys = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    frame = pl.DataFrame(keys).with_columns(pl.int_range(pl.len()).cast(float).alias("iteration_ms"))
    frame.with_columns(**measures, error=pl.lit(None, pl.String)).write_parquet(out / "cells.parquet")
    return out


def test_the_axis_of_numbers_with_most_values_is_x(tmp_path: Path) -> None:
    """As docs/simulations/chang_1.toml has them: the times of computation are lines, the server's rates x."""
    axes = {"compute_ms": [1000, 2000], "server_mbit": [1e3, 2.5e3, 1e4], "queue": ["fifo"]}
    left = pl.col("server_mbit") / 2
    sweep = simulated(tmp_path, axes, aggregation_remaining_ms=left, distribution_remaining_ms=pl.lit(None, pl.Float64))
    found = rows(sweep, "measures_by_axis", "cell", "parameter", "value", "panel", "series", "measure", "ms")
    assert found == [
        (i, "server_mbit", rate, None, f"compute_ms {computed}", measure, ms)
        for measure in ("aggregation_remaining_ms", "iteration_ms")
        for i, (computed, rate) in enumerate(itertools.product(axes["compute_ms"], axes["server_mbit"]))
        for ms in [rate / 2 if measure.startswith("aggregation") else i]
    ]


def test_of_more_than_eight_lines_an_axis_has_panels(tmp_path: Path) -> None:
    """As docs/simulations/chang_2.toml has them: the models."""
    axes = {"multicast": [False, True], "profile": ["a", "b", "c"], "server_barrier": [False, True], "workers": [2, 4]}
    columns = ("parameter", "panel", "series")
    found = rows(simulated(tmp_path, axes), "measures_by_axis", *columns)
    assert len(found) == 24 and found[-1] == ("workers", "profile c", "multicast true, server_barrier true")
    del axes["server_barrier"]
    assert rows(simulated(tmp_path, axes), "measures_by_axis", *columns)[0] == (
        "workers", None, "multicast false, profile a",
    )  # fmt: skip
    assert rows(simulated(tmp_path, {"seed": [1, 2, 3], "workers": [2, 4]}), "measures_by_axis", *columns)[0] == (
        "workers", None, "seed 1",
    )  # fmt: skip
    assert rows(simulated(tmp_path, {"queue": ["fifo", "priority"]}), "measures_by_axis", *columns) == []


def test_layers_of_a_profile_are_in_the_order_of_an_iteration(folder: Path) -> None:
    columns = ("place", "pass", "layer", "name", "ms", "so_far_ms", "gradient_bytes")
    assert rows(folder, "layer_computation", *columns) == [
        (0, "loading", -1, "loading", 12, 12, 0), (1, "forward", 0, "a", 3, 15, 10), (2, "forward", 1, "b", 1, 16, 20),
        (3, "backward", 1, "b", 4, 20, 20), (4, "backward", 0, "a", 5, 25, 10),
    ]  # fmt: skip


def test_inputs_of_a_head_are_what_its_sql_reads() -> None:
    tables = {
        *sweep_queries.TABLES,
        sweep_queries.THESIS,
        sweep_queries.STUDENT_T,
        sweep_queries.SETTINGS,
        *sweep_queries.queries(),
    }
    for name, query in sweep_queries.queries().items():
        read = set(re.findall(r"\b(?:FROM|JOIN) (\w+)", query.sql[query.head_length :])) & tables
        assert read == set(query.inputs), name


def test_what_the_thesis_states_has_its_place() -> None:
    stated = pl.read_csv(sweep_queries.folder() / "gao.csv")
    assert stated["section"].str.starts_with("5.4").all()
    assert stated["stated_pct"].is_not_null().all()
    # the number stands in the words that are quoted
    for number, words in stated.select("stated_pct", "words").iter_rows():
        assert f"{abs(number):g}%" in words


def test_kept_rows_of_a_query_stand_for_the_flows_that_they_are_of(folder: Path, tmp_path: Path) -> None:
    """As data/sharing keeps a campaign: seed_results, and few flows."""
    for name in sweep_queries.TABLES:
        rows = pl.read_parquet(folder / f"{name}.parquet", glob=False)
        (rows.clear() if name == "background_flows" else rows).write_parquet(tmp_path / f"{name}.parquet")
    whole = sweep_queries.run(folder, "sharing_results")
    assert not sweep_queries.run(tmp_path, "sharing_results").equals(whole)
    sweep_queries.run(folder, "seed_results").write_parquet(tmp_path / "seed_results.parquet")
    assert sweep_queries.run(tmp_path, "sharing_results").equals(whole)


def test_a_wrong_name_and_a_missing_table_are_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="no query of a sweep is named nothing; there are all_reduce_periods"):
        sweep_queries.run(folder, "nothing")
    with pytest.raises(NoDataError, match=r"cells\.parquet: is missing; ddnn-traces ns3 sweep --out"):
        sweep_queries.run(tmp_path, "paired_flows")
    with pytest.raises(NoDataError, match=r"profile\.parquet: is missing; ddnn-traces simulate layers --out"):
        sweep_queries.run(tmp_path, "layer_computation")


def test_the_page_shows_what_the_kept_tables_give() -> None:
    """docs/sharing.md against data/sharing; both are written by docs/sharing.py."""
    root = Path(__file__).parents[2]
    page = script("docs/sharing.py")
    shown = (root / "docs" / "sharing.md").read_text(encoding="utf-8").splitlines()
    tables = page.tables(page.DATA)
    assert [len(rows) for rows in tables] == [16, 9, 40, 4, 41]
    for rows in tables:
        first = shown.index(rows[0])
        assert shown[first : first + len(rows)] == rows


def test_sweeps_of_options_that_are_not_there_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = script("docs/sharing.py")
    kept = {name: (page.DATA / name).read_bytes() for name in ("options.parquet", "option_changes.parquet")}
    for name, data in kept.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(page, "DATA", tmp_path)
    page.keep_options(tmp_path / "none")
    for name, data in kept.items():
        assert pl.read_parquet(tmp_path / name).equals(pl.read_parquet(data))


def test_what_the_page_states_beside_the_thesis_in_other_units() -> None:
    """Means of five seeds of data/sharing with Student's interval, as docs/sharing.md has them."""
    page = (Path(__file__).parents[2] / "docs" / "sharing.md").read_text(encoding="utf-8")
    kept = pl.read_parquet(Path(__file__).parents[2] / "data" / "sharing" / "seed_results.parquet")

    def seeds(ratio: float, flows: float, measure: str, column: str) -> Any:
        found = kept.filter(compute_to_network=ratio, flows_per_s=flows, measure=measure).sort("seed")[column]
        assert len(found) == 5
        return found.to_numpy()

    def shown(values: Any, unit: str, digits: int) -> str:
        half = float(stats.t.ppf(0.975, 4)) * values.std(ddof=1) / 5**0.5
        low, high = values.mean() - half, values.mean() + half
        return f"{values.mean():.{digits}f}{unit} [{low:.{digits}f}, {high:.{digits}f}]"

    for flows, thesis in ((92, "1.4"), (184, "3.06")):
        seconds = shown(seeds(8, flows, "iteration_ms", "lower") / 1e3, " s", 2)
        assert f"| 8 | {flows} | iteration at a lower priority | {thesis} s | {seconds} |" in page
    shares = [100 * seeds(2, 92, measure, "lower") for measure in ("utilization", "background_utilization")]
    training, background = (round(share.mean()) for share in shares)
    assert f"| {shown(shares[0] + shares[1], '%', 0)} ({training} + {background}) |" in page
    gains = [seeds(r, 184, f"{size}_mean_ms", "change_pct").mean() for r in (16, 4) for size in ("small", "large")]
    assert [round(gain) for gain in gains] == [-11, -10, -34, -34]
