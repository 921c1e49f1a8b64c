"""A file of a chart draws every row of its query, or says in its title, its caption and on stderr how many it draws."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import vl_convert
from tools import RunCommand

import ddnn_traces
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.report import plot
from ddnn_traces.report.chapters import drivers, time
from ddnn_traces.report.charts.panels import NAMED_ROWS, panels, without_ranges
from ddnn_traces.report.section import Figure, Results
from ddnn_traces.store import schema

CHARTS = Path(__file__).parents[2] / "docs" / "charts.md"
#: Charts in which a mark of that type is a row of the query, with the number of marks a row.
MARKS = {
    "flow_counts": ("rect", 3), "total_throughput": ("symbol", 1), "gradient_flow_throughput": ("symbol", 1),
    "accuracy_volume": ("symbol", 1), "volume_by_model": ("symbol", 1),
    "flow_class_counts": ("rule", 1),
}  # fmt: skip


def scene(figure: Figure) -> dict[str, Any]:
    """The drawn file; a mark with a tooltip of its run has that run as its description."""
    drawn: dict[str, Any] = vl_convert.vegalite_to_scenegraph(described(figure.file_spec))["scenegraph"]
    return drawn


def described(node: Any) -> Any:
    """A specification whose marks are described by the run in their tooltip, since a scene has no tooltips."""
    if isinstance(node, list):
        return [described(one) for one in node]
    if not isinstance(node, dict):
        return node
    node = {key: value if key == "datasets" else described(value) for key, value in node.items()}
    encoding = node.get("encoding", {})  # in a domain, the name of a channel
    tooltip = encoding.get("tooltip", []) if isinstance(encoding, dict) else []
    of_run = [tip for tip in tooltip if isinstance(tip, dict) and tip["field"] in ("run_id", "run", "row")]
    if of_run:
        node["encoding"] = {**node["encoding"], "description": {"field": of_run[0]["field"], "type": "nominal"}}
    return node


def marks(node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every mark of data in a scene, with its type."""
    for item in node.get("items", []):
        if node.get("role") == "mark" and item.get("opacity", 1) > 0:
            yield node["marktype"], item
        yield from marks(item)


def runs_of(node: dict[str, Any]) -> set[str]:
    """The runs that marks are of."""
    return {item["description"] for _, item in marks(node) if "description" in item}


def stated(figure: Figure, drawn: int, of: int) -> bool:
    """Whether title and caption say that so many of all runs are drawn, in one sentence or in steps."""
    title = figure.file_spec["title"]["text"] if figure.file_parts else []
    for part in figure.file_parts:
        said = re.match(r"([\d,]+) of ([\d,]+) runs? are drawn", part)
        if said and int(said[2].replace(",", "")) == of and part in figure.file_caption and part in title:
            of = int(said[1].replace(",", ""))
    return drawn == of


def test_a_file_has_the_runs_that_a_page_draws_later(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "LINES_AT_FIRST", 1)
    (figure,) = plot.figures(dataset, "accuracy_volume")
    assert len(figure.first) == 1 < len(figure.runs)
    drawn = scene(figure)
    assert runs_of(drawn) >= set(dataset.run_ids)
    kind, marks_a_row = MARKS["accuracy_volume"]
    rows = dataset.query("accuracy_volume", **figure.sources[0].params)
    assert Counter(of for of, _ in marks(drawn))[kind] == marks_a_row * rows.height
    assert figure.file_parts == []


@pytest.mark.long
def test_a_picture_has_no_strip_to_drag_on(dataset: Dataset) -> None:
    figure = plot.figures(dataset, "run_throughput")[0]
    on_paper = without_ranges(figure.file_spec)
    assert "drag" in json.dumps(figure.file_spec) and "drag" not in figure.drawn()["svg"].decode()
    for (run, before), (same, after) in zip(panels(figure.file_spec), panels(on_paper), strict=True):
        assert (run, len(before["vconcat"]), len(after["vconcat"])) == (same, 2, 1)
    ranges = [param["value"]["x"] for param in figure.file_spec["params"] if param["name"].startswith("range_")]
    domains = [panel["vconcat"][0]["layer"][0]["encoding"]["x"]["scale"]["domain"] for _, panel in panels(on_paper)]
    assert domains == ranges[: len(domains)]


@pytest.mark.parametrize(
    ("query", "of_a_row"), [("flow_counts", ["rect", "rect", "rect"]), ("position_volume", ["rect"] * 6)]
)
def test_runs_of_a_setting_share_a_row_where_there_are_many(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, query: str, of_a_row: list[str]
) -> None:
    """A bar is the mean, a point each run; the row says how many there are."""
    rows = dataset.query("figure_runs").with_columns(setting=pl.lit("some & all"))
    settings = dict(rows.select("run_id", "setting").iter_rows())
    monkeypatch.setattr(Results, "settings", settings)
    (named,) = plot.figures(dataset, query)
    assert NAMED_ROWS >= len(settings) > 1 and runs_of(scene(named)) == set(settings)
    monkeypatch.setattr("ddnn_traces.report.charts.panels.NAMED_ROWS", len(settings) - 1)
    monkeypatch.setattr("ddnn_traces.report.section.NAMED_ROWS", len(settings) - 1)
    (grouped,) = plot.figures(dataset, query)
    drawn = scene(grouped)
    assert runs_of(drawn) == {*settings, f"some & all ({len(settings)} runs)"}
    assert [kind for kind, _ in marks(drawn) if kind == "rect"] == of_a_row
    assert "A row is a setting" in grouped.caption and "A row is a setting" not in named.caption
    if query == "flow_counts":
        lengths = [item["width"] for kind, item in marks(drawn) if kind == "rect"]
        means = dataset.query(query).select("large_data_flows", "acknowledgement_flows", "side_flows").mean().row(0)
        assert [length / sum(lengths) for length in lengths] == pytest.approx([mean / sum(means) for mean in means])


def test_a_file_says_how_many_panels_it_has(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch, command: RunCommand, tmp_path: Path
) -> None:
    monkeypatch.setattr("ddnn_traces.report.section.FILE_PANELS", 2)
    (figure,) = plot.figures(dataset, "flow_timeline")
    assert len(runs_of(scene(figure))) == 2 and stated(figure, 2, 4)
    done = command("plot", dataset.path, "flow_timeline", "--out", "x.html")
    assert "2 of 4 runs are drawn; --run chooses others." in done.stderr.decode()
    assert "2 of 4 runs are drawn" in (tmp_path / "x.html").read_text().split("<figcaption>")[1].split("</")[0]


def test_flows_that_are_left_out_of_a_run_are_counted(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "TIMELINE", time.Source("flow_timeline", {"flows": 2}))
    (figure,) = plot.figures(dataset, "flow_timeline", {"flows": 2})
    flows = int(dataset.query("flow_counts")["flows"].sum())
    assert any(part.startswith(f"8 of {flows} flows are drawn") for part in figure.file_parts)


@pytest.mark.long
@pytest.mark.parametrize(
    "shipped", [6, pytest.param(1, marks=pytest.mark.nightly)], indirect=True, ids=["sixth", "all"]
)
@pytest.mark.parametrize("query", plot.DRAWN)
def test_a_file_of_the_shipped_dataset_leaves_out_no_run_without_a_word(shipped: Dataset, query: str) -> None:
    """And docs/charts.md names the file."""
    (section,) = re.findall(rf"^### {query}\n(.*?)(?=^##|\Z)", CHARTS.read_text(encoding="utf-8"), re.M | re.S)
    named = set(re.findall(r"^- `(\w+)`: ", section, re.M))
    assert named
    if query in {"link_utilization", "layer_slack"}:
        return  # of simulated runs
    for figure in plot.figures(shipped, query):
        assert figure.name in named
        drawn, source = scene(figure), figure.sources[0]
        rows = shipped.query(source.query, **source.params)
        if figure.name in ("step_volume_fit", "volume_by_law"):  # a mark is of several runs
            counts = [row.get("runs", 0) for of in figure.file_spec["datasets"].values() for row in of]
            known = ddnn_traces.regress(shipped).points["run_id"].n_unique()
            assert sum(counts) == known and (known == rows.height or stated(figure, known, rows.height))
        elif "run_id" in rows.columns:
            runs = set(rows["run_id"])
            shown = (runs_of(drawn) | {run for run, _ in panels(figure.file_spec) if run}) & runs
            assert shown == runs or stated(figure, len(shown), len(runs)), (figure.name, len(shown), len(runs))
        if source.query in MARKS and not figure.parts:
            kind, marks_a_row = MARKS[source.query]
            if query == "flow_class_counts":
                rows = rows.filter(pl.col("flows") > 0)  # a class without flows has no range
            if query in ("flow_counts", "flow_class_counts"):  # of many runs, a row is a setting
                of_settings = rows.join(shipped.query("figure_runs"), on="run_id")
                rows = of_settings.unique(["setting", *({"size_class"} & set(rows.columns))])
            assert Counter(of for of, _ in marks(drawn))[kind] == marks_a_row * rows.height, figure.name
        assert all(len(list(marks(panel))) > 0 for panel in plots(drawn)), figure.name


def plots(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The groups of a scene that have axes of their own: its panels."""
    for item in node.get("items", []):
        below = item.get("items", [])
        if any(one.get("role") == "mark" for one in below):
            yield {"items": [item]}
        for one in below:
            yield from plots(one)


@pytest.fixture(scope="module")
def shipped(request: pytest.FixtureRequest) -> Iterator[Dataset]:
    """Each n-th run of data/dataset, which answers a query once, over views that are stored once for all charts."""
    folder = schema.shipped_folder("data/dataset")
    with ddnn_traces.open(folder) as whole:
        runs = whole.run_ids[:: request.param]
    with ddnn_traces.open(folder, runs) as opened, pytest.MonkeyPatch.context() as patch, Results(opened) as results:
        patch.setattr(opened, "query", cache(opened.query))
        patch.setattr(plot, "Results", lambda *_: nullcontext(results))
        yield opened
