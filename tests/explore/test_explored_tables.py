"""The two tables behind the page's charts, and the charts' specification: without marimo and Mosaic."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from datasets import write_dataset
from packets import pcap
from small_runs import A, B, ring, write_captures

import ddnn_traces
from ddnn_traces.explore import contents as page
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.synthetic import SyntheticRun, write_runs

ONE = "torch-mlp1-sgd-32-gloo-0ms-ring"
TWO = "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"


Made = Callable[..., tuple[Dataset, page.Contents]]


@pytest.fixture(scope="module")
def made(sample_dataset: Dataset) -> Iterator[Made]:
    """Opens runs of the sample and makes the tables, once: make() closes a connection to files for good."""
    found: dict[tuple[str, ...], tuple[Dataset, page.Contents]] = {}

    def make(*runs: str) -> tuple[Dataset, page.Contents]:
        if runs not in found:
            dataset = ddnn_traces.open(sample_dataset.path, list(runs))
            found[runs] = dataset, page.make(dataset)
        return found[runs]

    yield make
    for dataset, _ in found.values():
        dataset.close()


def rows(dataset: Dataset, query: str) -> list[Any]:
    return dataset.provide("").execute(query).fetchall()


def test_the_tables_hold_all_bytes_and_steps_of_the_runs(made: Made, sample_dataset: Dataset) -> None:
    dataset, contents = made(ONE, TWO)
    expected = f"WHERE run_id IN ('{ONE}', '{TWO}') GROUP BY run_id ORDER BY run_id"
    sums = "SELECT run_id, sum(packets), sum(wire_bytes) FROM flows " + expected
    assert (
        rows(dataset, "SELECT run, sum(packets), sum(wire_bytes) FROM explored_windows GROUP BY 1 ORDER BY 1")
        == sample_dataset.sql(sums).rows()
    )
    assert rows(dataset, "SELECT run, count(*) FROM explored_steps GROUP BY 1 ORDER BY 1") == (
        sample_dataset.sql("SELECT run_id, count(*) FROM steps " + expected).rows()
    )
    assert contents.runs == contents.series == (TWO, ONE)  # a colour is a run


def test_many_runs_have_no_chart_of_collectives(sample_dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_WITH_COLLECTIVES", 1)
    for runs, has_some in (([ONE], True), ([ONE, TWO], False)):
        with ddnn_traces.open(sample_dataset.path, runs) as dataset:
            contents = page.make(dataset)
        assert (contents.collectives > 0) == has_some
        assert (page.collectives(contents) in page.spec(contents)["vconcat"]) == has_some


def test_a_window_suits_the_longest_run(made: Made) -> None:
    dataset, contents = made(ONE, TWO)
    ((most, rate_is_right),) = rows(
        dataset,
        "SELECT max(until_s) / max(until_s - since_start_s), "
        "bool_and(abs(gbit_per_s - wire_bytes * 8e-9 / (until_s - since_start_s)) < 1e-9) FROM explored_windows",
    )
    assert page.MOST_WINDOWS / 5 < most <= page.MOST_WINDOWS + 1
    assert rate_is_right
    assert contents.window_ms >= 1


def test_collectives_are_those_of_the_queries_and_each_group_has_a_track(made: Made, sample_dataset: Dataset) -> None:
    dataset, contents = made(ONE)
    shown = rows(dataset, "SELECT step, position, since_start_s, kind, track FROM explored_collectives ORDER BY 1, 2")
    expected = sample_dataset.sql(
        "SELECT DISTINCT step, position, (t.start_ns - first_ns) / 1e9, kind FROM collective_times AS t "
        "JOIN collectives USING (run_id, job, position) JOIN run_spans USING (run_id) "
        f"WHERE run_id = '{ONE}' ORDER BY 1, 2"
    ).rows()
    assert [row[:4] for row in shown] == expected != []
    assert {row[4] for row in shown} == {"job 0 group 0 (4 hosts)"}
    assert (contents.collectives, contents.tracks) == (len(shown), ("job 0 group 0 (4 hosts)",))
    found = page.collective_rows(dataset.provide("").table("explored_collectives")).fetchall()
    kinds = {row[1:4:2] for row in shown}
    assert [(position, kind) for _, position, kind, *_ in found] == sorted(kinds)
    assert sum(times for _, _, _, times, *_ in found) == len(shown)


def test_a_line_is_the_rate_of_its_series_and_falls_to_0_where_it_pauses(made: Made) -> None:
    dataset, _ = made(ONE, TWO)
    sums = "SELECT series, since_start_s, sum(gbit_per_s) AS rate FROM explored_lines GROUP BY ALL"
    sums = f"SELECT *, lead(since_start_s) OVER (PARTITION BY series ORDER BY since_start_s) AS next_s FROM ({sums})"
    drawn = rows(
        dataset, f"SELECT series, sum(rate * (next_s - since_start_s)) / 8e-9 FROM ({sums}) GROUP BY 1 ORDER BY 1"
    )
    sent = rows(dataset, "SELECT series, sum(wire_bytes) FROM explored_windows GROUP BY 1 ORDER BY 1")
    assert [name for name, _ in drawn] == [TWO, ONE]
    assert [area for _, area in drawn] == pytest.approx([total for _, total in sent])  # the area below a step is bytes
    line = next(plots(page.spec(made(ONE, TWO)[1])))["plot"][0]
    assert (line["mark"], line["z"], line["curve"]) == ("lineY", "series", "step-after")


def test_a_zoom_has_shorter_windows_of_its_time(made: Made, sample_dataset: Dataset) -> None:
    whole = made(ONE)[1]
    begin_s, end_s = whole.end_s * 0.95, whole.end_s * 0.97
    with ddnn_traces.open(sample_dataset.path, [ONE]) as dataset:
        part = page.make(dataset, (begin_s, end_s))
        ((first, last),) = rows(dataset, "SELECT min(since_start_s), max(since_start_s) FROM explored_windows")
        assert begin_s <= first <= last < end_s
        assert part.window_ms < whole.window_ms and 0 < part.steps < whole.steps
        ((outside,),) = rows(dataset, f"SELECT count(*) FROM explored_steps WHERE until_s <= {begin_s}")
        assert outside == 0


def test_the_first_zoom_is_the_training(tmp_path: Path) -> None:
    """A capture that runs for long before and behind the steps: they were a narrow part of each chart."""
    second = 1_000_000_000
    flows = {"run_id": "r", "flow_id": 0, "src_ip": A, "dst_ip": B, "src_port": 1, "dst_port": 2, "protocol": 6}
    windows = [{"run_id": "r", "flow_id": 0, "window_start_ns": at * second, "window_ns": 1_000_000, "wire_bytes": 10}
               for at in range(31)]  # fmt: skip
    steps = [{"run_id": "r", "worker": "w", "step": n, "start_ns": (20 + n) * second, "end_ns": (21 + n) * second}
             for n in range(5)]  # fmt: skip
    tables = {
        "runs": [{"run_id": "r"}],
        "flows": [flows | {"wire_bytes": 310}],
        "flow_windows": windows,
        "steps": steps,
    }
    found = {}
    for zoom in (None, page.ALL):
        folder = tmp_path / str(zoom)
        with write_dataset(folder, {name: pl.DataFrame(rows) for name, rows in tables.items()}) as dataset:
            found[zoom] = page.make(dataset, zoom)
    first, whole = found[None], found[page.ALL]
    assert first.is_training and not whole.is_training
    assert first.steps == whole.steps == 5
    assert 19 < first.begin_s <= 20 < 25 <= first.end_s < 26
    assert whole.begin_s == 0 and whole.end_s > 30


def test_the_command_for_packets_names_each_connection_of_the_chosen_flows(made: Made) -> None:
    dataset, _ = made(ONE)
    windows = dataset.provide("").table("explored_windows")
    ((flow,),) = rows(dataset, "SELECT flow FROM explored_windows GROUP BY 1 ORDER BY sum(wire_bytes) DESC, 1 LIMIT 1")
    (command,) = page.packets_commands(windows.filter(f"flow = '{flow}'"), "my data")
    ids = rows(dataset, f"SELECT connection_id FROM explored_connections WHERE flow = '{flow}' ORDER BY 1")
    flows = " ".join(f"--flow {number}" for (number,) in ids)
    assert command == f"ddnn-traces packets 'my data' --run {ONE} {flows} --out chosen-1.pcapng"
    assert page.packets_commands(windows.filter("false"), "d") == []


@pytest.mark.parametrize(
    ("selection", "span"), [(None, None), ({"value": None}, None), ({"value": [1, 2.5]}, (1.0, 2.5))]
)
def test_a_brush_is_a_range(selection: Any, span: tuple[float, float] | None) -> None:
    assert page.brushed(selection) == span


def test_narrow_charts_fit_a_phone(made: Made) -> None:
    charts = list(plots(page.spec(made(ONE)[1], is_narrow=True)))
    assert [chart["width"] for chart in charts] == [360] * 5
    assert max(chart["width"] for chart in plots(page.spec(made(ONE)[1]))) > 1000


def test_names_are_in_natural_order(tmp_path: Path) -> None:
    write_runs(tmp_path / "d", [SyntheticRun("r", "ring", workers=11, steps=2, model_bytes=100_000, chatter=False)])
    with ddnn_traces.open(tmp_path / "d") as dataset:
        contents = page.make(dataset)
        (matrix,) = (chart for chart in plots(page.spec(contents)) if chart["name"] == "matrix")
    assert contents.senders == contents.receivers == tuple(f"W{number}" for number in range(1, 12))
    assert (matrix["xDomain"], matrix["yDomain"]) == (list(contents.receivers), list(contents.senders))


@pytest.mark.long
def test_of_a_single_run_a_colour_is_a_host_of_windows_and_steps(made: Made) -> None:
    _, contents = made(ONE)
    assert contents.series == ("W1", "W2", "W3", "W4")


def test_the_connection_touches_no_file_afterwards(made: Made, tmp_path: Path) -> None:
    dataset, _ = made(ONE)
    for statement in (
        f"COPY explored_windows TO '{tmp_path / 'out.csv'}'",
        f"ATTACH '{tmp_path / 'new.duckdb'}'",
        "FROM read_text('/etc/hostname')",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ):
        with pytest.raises(duckdb.Error):
            dataset.provide("").execute(statement)
    assert list(tmp_path.iterdir()) == []
    # what Mosaic does in memory
    dataset.provide("").execute(
        "CREATE SCHEMA mosaic; CREATE TABLE mosaic.sums AS SELECT count(*) FROM explored_windows"
    )


def test_runs_without_logs_and_with_hostile_names_have_tables(tmp_path: Path) -> None:
    name = "it's; DROP TABLE runs --"
    write_captures(tmp_path / name, {"a.pcap": ring(A, B)})
    ddnn_traces.ingest(tmp_path / name, tmp_path / "dataset").close()
    with ddnn_traces.open(tmp_path / "dataset", [name]) as dataset:
        contents = page.make(dataset)
        assert contents.steps == 0
        assert not contents.is_empty
        assert rows(dataset, "SELECT DISTINCT run FROM explored_windows") == [(name,)]
    assert "explored_steps" not in str(page.spec(contents))


@pytest.mark.long
def test_a_run_without_packets_has_empty_tables(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a.pcap").write_bytes(pcap([]))
    ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset").close()
    with ddnn_traces.open(tmp_path / "dataset", ["run"]) as dataset:
        assert page.make(dataset).is_empty


@pytest.mark.parametrize("steps", [20, 100_000])
def test_the_charts_name_columns_of_the_tables(steps: int, made: Made) -> None:
    dataset, contents = made(ONE)
    spec = page.spec(dataclasses.replace(contents, steps=steps))
    columns = "SELECT column_name FROM duckdb_columns() WHERE table_name LIKE 'explored%'"
    known = {name for (name,) in rows(dataset, columns)}
    marks = [mark for chart in plots(spec) for mark in chart["plot"] if "mark" in mark]
    assert len(marks) == 8
    for mark in marks:
        named = [
            mark[channel]
            for channel in ("x", "x1", "x2", "y", "y1", "y2", "z", "fill", "stroke", "text")
            if channel in mark
        ]
        assert {next(iter(name.values())) if isinstance(name, dict) else name for name in named} <= known


def plots(part: Any) -> Iterator[dict[str, Any]]:
    """All charts of a specification, however deep."""
    for key in ("vconcat", "hconcat"):
        for inner in part.get(key, []):
            yield from plots(inner)
    if "plot" in part:
        yield part
