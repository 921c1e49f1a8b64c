"""One query's chart: as an Altair chart, as a file, and as text in a terminal."""

from __future__ import annotations

import json
import re
from pathlib import Path

import altair as alt
import polars as pl
import pytest
from tools import RunCommand

import ddnn_traces
from ddnn_traces.errors import NoDataError, QueryError, UsageError
from ddnn_traces.query import catalogue
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.report import page, plot, text_chart
from ddnn_traces.report.charts import farhat, zerwas
from ddnn_traces.report.page import Report
from ddnn_traces.report.section import Figure


@pytest.mark.long
def test_every_figure_of_the_report_can_be_plotted(made: Report) -> None:
    """The sections say what they draw: exactly that."""
    drawn = {figure.sources[0].query for figure in made.figures}
    not_in_four_runs = {"condition_response", "duration_by_loss", "layer_slack", "link_utilization"}
    assert drawn == set(plot.DRAWN) - not_in_four_runs


def test_an_altair_chart_of_some_runs(dataset: Dataset) -> None:
    chart = dataset.plot("flow_counts", run="torch-*")
    assert isinstance(chart, alt.LayerChart)
    rows = [row for data in chart.to_dict()["datasets"].values() for row in data]
    assert {row["run_id"] for row in rows} == {run for run in dataset.run_ids if run.startswith("torch-")}
    chart.properties(width=300).to_dict()  # valid, and open to changes


@pytest.mark.long
def test_the_figure_that_shows_a_querys_rows_is_drawn(dataset: Dataset) -> None:
    assert set(plot.SHOWN_BY.values()) <= set(plot.DRAWN)
    assert all(catalogue.find(name) for name in plot.SHOWN_BY)
    assert dataset.plot("traffic_matrix").to_dict() == dataset.plot("pair_volume").to_dict()


@pytest.mark.long
def test_parameters_reach_the_query(dataset: Dataset) -> None:
    def flows(**params: int) -> int:
        spec = dataset.plot("flow_timeline", run=dataset.run_ids[0], **params).to_dict()
        return len({row["flow"] for rows in spec["datasets"].values() for row in rows})

    assert flows(flows=2) == 2 < flows()


def test_what_cannot_be_drawn_is_refused(dataset: Dataset) -> None:
    with pytest.raises(UsageError, match=r"query conservation has no figure .*; there are: "):
        dataset.plot("conservation")
    with pytest.raises(QueryError, match="no query named trafic_matrix; the nearest are traffic_matrix"):
        dataset.plot("trafic_matrix")
    with pytest.raises(QueryError, match="flow_counts has no parameter x"):
        dataset.plot("flow_counts", x=1)
    with pytest.raises(NoDataError, match="layer_slack: nothing to draw"):
        dataset.plot("layer_slack")


def test_what_is_missing_is_said_once() -> None:
    assert plot.each_once(["No a. Give run.toml b.", "No c. Give run.toml b."]) == "No a. Give run.toml b. No c."


def test_files_by_suffix(command: RunCommand, tmp_path: Path, dataset: Dataset) -> None:
    for name, begin in (
        ("x.svg", b"<svg"),
        ("x.png", b"\x89PNG"),
        ("x.pdf", b"%PDF-"),
        ("x.html", b"<!DOCTYPE html>"),
        ("x.json", b"{"),
    ):
        assert command("plot", dataset.path, "flow_counts", "--out", f"new/{name}").returncode == 0
        assert (tmp_path / "new" / name).read_bytes().startswith(begin)
    assert json.loads((tmp_path / "new" / "x.json").read_text())["$schema"]
    page = (tmp_path / "new" / "x.html").read_text()
    assert "default-src 'none'" in page and not re.search(r'(?:src|href)="http', page)
    done = command("plot", dataset.path, "flow_counts", "--out", "x.gif")
    assert done.returncode == 2 and "x.gif: name it .svg, .png, .pdf, .html, .json" in done.stderr.decode()


def test_no_name_ends_the_script_of_a_page() -> None:
    hostile = "a</script>b <!--<script>"
    chart = alt.Chart(pl.DataFrame({"run": [hostile]})).mark_bar().encode(x="run:N")
    html = page.chart_page(Figure("flow_counts", chart.to_dict(), "", []))
    assert hostile not in html
    spec = re.search(r"vegaEmbed\('#chart', (\{.*\}), \{mode", html)
    assert spec and "<" not in spec[1]
    assert hostile in json.dumps(json.loads(spec[1]))


def test_without_a_query_those_with_a_figure_are_listed(command: RunCommand, dataset: Dataset) -> None:
    lines = command("plot", dataset.path).stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == sorted([*plot.DRAWN, *plot.SHOWN_BY])
    (line,) = (line for line in lines if line.startswith("traffic_matrix "))
    assert line.endswith("(the figure of pair_volume)")


def test_without_a_file_it_is_text_of_80_columns(command: RunCommand, dataset: Dataset) -> None:
    lines = command("plot", dataset.path, "flow_counts").stdout.decode().splitlines()
    assert max(map(len, lines)) <= 80
    counts = dataset.query("flow_counts")
    of_runs = [line for line in lines[1:] if "█" in line]  # below the legend
    assert len(of_runs) == counts.height
    assert "flows (number of directed five-tuples)" in "\n".join(lines)


# --- charts as text


def as_text(chart: alt.TopLevelMixin, columns: int = 80) -> list[str]:
    return text_chart.text(chart.to_dict(), columns).plain.splitlines()


def test_bars_are_as_long_as_their_numbers() -> None:
    frame = pl.DataFrame({"name": ["a", "b"], "number": [10, 5]})
    chart = alt.Chart(frame).mark_bar(color="#0b5394").encode(x="number:Q", y="name:N").properties(width=300, height=60)
    long, short = (line.count("█") for line in as_text(chart) if line.lstrip().startswith(("a", "b")))
    assert long > 40 and short == pytest.approx(long / 2, abs=1)


def test_without_colours_bars_are_told_apart_by_the_legend() -> None:
    """Also where all bars are a little transparent."""
    rows = pl.DataFrame({"kind": ["gather", "scatter"], "from": [0, 5], "to": [5, 10]})
    chart = alt.Chart(rows).mark_bar(opacity=0.8).encode(x="from:Q", x2="to:Q", color="kind:N", y=alt.value(20))
    said = "\n".join(as_text(chart))
    gather, scatter = (said[: said.index(kind)].rstrip()[-1] for kind in ("gather", "scatter"))
    assert gather != scatter
    assert f"{gather}{gather}{scatter}{scatter}" in said


def test_a_chart_of_one_mark_is_its_values() -> None:
    """By its data, whatever it draws: a bar without another one to compare with says nothing."""
    frame = pl.DataFrame({"name": ["a\x1b[31m"], "ms": [1234.5], "share": [0.125], "bytes": [940584], "none": [None]})
    tooltip = [
        alt.Tooltip("ms:Q", title="time (ms)", format=".3~f"), alt.Tooltip("share:Q", title="share", format=".0%"),
        alt.Tooltip("bytes:Q", title="size (bytes)"), alt.Tooltip("none:N", title="none"),
    ]  # fmt: skip
    bar = alt.Chart(frame).mark_bar().encode(x=alt.X("ms:Q"), y=alt.Y("name:N", title="name"), tooltip=tooltip)
    said = text_chart.only_mark(alt.vconcat(bar.properties(title=alt.Title("a run"))).to_dict())
    assert said and said.plain.splitlines() == [
        "a run",
        "  name          a\\x1b[31m",
        "  time (ms)     1234.5",
        "  share         12%",
        "  size (bytes)  940,584",
    ]
    assert text_chart.only_mark(bar.properties(data=pl.concat([frame, frame])).to_dict()) is None
    assert text_chart.only_mark(bar.properties(data=frame.head(0)).to_dict()) is None


def test_plot_of_one_collective_prints_it(command: RunCommand, sample_dataset: Dataset) -> None:
    run = "torch-mlp1-sgd-32-gloo-0ms-ring"
    done = command("plot", sample_dataset.path, "collectives", "--run", run)
    lines = done.stdout.decode().splitlines()
    assert lines[0] == run and "  algorithm          ring" in lines and max(map(len, lines)) <= 80
    assert done.stderr.decode() == "one mark, so its values; --out FILE.svg draws the chart\n"


def test_what_a_chart_cuts_off_is_not_drawn_beside_it() -> None:
    """As where a plot shows a part of its rows."""
    frame = pl.DataFrame({"at": [2.48, 3], "number": [1, 1]})
    axis = alt.X("at:Q", scale=alt.Scale(domain=[2.5, 3.5]))
    chart = alt.Chart(frame).mark_point(clip=True).encode(x=axis, y="number:Q").properties(width=600, height=60)
    assert "\n".join(as_text(chart)).count("●") == 1


def test_a_legend_above_a_chart_is_whole() -> None:
    names = [f"entry-{number}-of-the-legend" for number in range(7)]
    color = alt.Color("name:N", legend=alt.Legend(orient="top"))
    chart = alt.Chart(pl.DataFrame({"name": names})).mark_bar().encode(x=alt.value(20), y="name:N", color=color)
    said = "\n".join(as_text(chart.encode(y=alt.value(20))))
    assert all(name in said for name in names)


def test_cells_of_a_heatmap_are_shaded_and_hold_their_numbers(dataset: Dataset) -> None:
    run = dataset.query("pair_volume").filter(pl.col("run_id") == dataset.run_ids[0])
    text = "\n".join(as_text(zerwas.volume_heatmaps(run)))
    assert {"█", "░"} <= set(text)
    assert "receiver (host)" in text and "W1" in text
    assert text.index("sender (host)") < text.index("W1")


def test_a_curve_climbs(dataset: Dataset) -> None:
    frame = dataset.query("iteration_duration_cdf").filter(pl.col("run_id") == dataset.run_ids[0])
    lines = as_text(farhat.iteration_duration_cdf(frame))
    places = [line.index("●") for line in lines if "●" in line]
    assert places == sorted(places, reverse=True)


def test_control_characters_of_names_do_not_reach_the_terminal(dataset: Dataset) -> None:
    frame = dataset.query("flow_counts").with_columns(run_id=pl.lit("\x1b[31mred\x07"))
    text = "\n".join(as_text(zerwas.flow_counts(frame)))
    assert "red" in text and not re.search(r"[\x00-\x09\x0b-\x1f]", text)


@pytest.mark.long
def test_a_narrow_terminal_gets_a_narrow_chart(dataset: Dataset) -> None:
    chart = zerwas.flow_counts(dataset.query("flow_counts"))
    for columns in (60, 100, 140):
        assert max(map(len, as_text(chart, columns))) <= columns


@pytest.mark.long
def test_every_chart_has_a_text(made: Report) -> None:
    for figure in made.figures:
        lines = text_chart.text(figure.file_spec, 100).plain.splitlines()
        assert len(lines) > 8 and max(map(len, lines)) <= 100, figure.name


def test_a_dataset_that_is_only_read_has_its_charts(sample_dataset: Dataset) -> None:
    with ddnn_traces.open(sample_dataset.path, "torch-mlp1-sgd-32-gloo-0ms-ring", read_only=True) as opened:
        assert opened.plot("traffic_matrix").to_dict()["datasets"]
        with pytest.raises(QueryError, match="only statements that read"):
            opened.sql("CREATE TEMP TABLE mine AS FROM runs")
