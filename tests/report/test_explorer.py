"""The page of `explore --export` and of a release: what is in it, and that a choice in a chart filters the others."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from datasets import write_dataset
from tools import RunCommand, probe

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.explore import contents
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.report import explorer
from ddnn_traces.report.charts import style
from ddnn_traces.traffic.synthetic import SyntheticRun, write_runs

RING, TREE = "torch-mlp1-sgd-32-gloo-0ms-ring", "torchp2p-mlp1-sgd-32-gloo-0ms-tree"


@pytest.fixture(scope="module")
def page(sample_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "page.html"
    with ddnn_traces.open(sample_dataset.path, [RING, TREE]) as opened:
        explorer.write(opened, out)
    return out


def runs_of(page: Path) -> dict[str, Any]:
    return {run["id"]: run for run in json.loads(explorer.parts(page.read_text(encoding="utf-8"))[1])}


def test_every_byte_of_a_run_is_in_its_windows(page: Path, sample_dataset: Dataset) -> None:
    runs = runs_of(page)
    flows = sample_dataset.sql("SELECT run_id, sum(wire_bytes)::BIGINT AS wire_bytes FROM flows GROUP BY ALL")
    assert sorted(runs) == [RING, TREE]
    every = sample_dataset.query("run_spans")
    for run in runs.values():
        assert sum(run["bytes"]) == flows.filter(run_id=run["id"])["wire_bytes"].item()
        assert len(run["bytes"]) == len(run["flow"]) == len(run["window"])
        assert run["windows"] == max(run["window"]) <= explorer.MOST_WINDOWS
        assert run["settings"]["model"] == "mlp1" and run["settings"]["hosts"] == "4" and run["measured"]
        spans = every.filter(run_id=run["id"]).row(0, named=True)
        assert run["width_s"] * (run["windows"] + 1) >= (spans["last_ns"] - spans["first_ns"]) / 1e9
    steps = sample_dataset.sql("SELECT count(*) AS n FROM steps WHERE run_id = $run", {"run": RING}).item()
    assert (len(runs[RING]["steps"]), runs[RING]["every"]) == (steps, 1)


def test_collectives_are_those_of_the_queries(page: Path, sample_dataset: Dataset) -> None:
    kinds = "(SELECT DISTINCT run_id, job, position, kind FROM collectives)"
    expected = sample_dataset.sql(
        f"SELECT step, position, kind, payload_bytes FROM collective_times JOIN {kinds} USING (run_id, job, position) "
        "WHERE run_id = $run ORDER BY ALL", {"run": RING},
    ).rows()  # fmt: skip
    shown = runs_of(page)[RING]["collectives"]
    assert sorted((*row[1:4], row[6]) for row in shown) == expected != []
    assert {row[0] for row in shown} == {"job 0 group 0 (4 hosts)"} and all(row[4] <= row[5] for row in shown)


def test_the_page_loads_nothing_and_names_no_folder(page: Path) -> None:
    before, _, after = page.read_text(encoding="utf-8").partition("<script id=")
    assert "default-src 'none'" in before and str(page.parent) not in before + after
    assert not re.search(r"<(link|img|iframe)\b|<script[^>]* src=", before + after[-20_000:])


@pytest.mark.long
def test_windows_become_longer_until_the_page_is_small(
    sample_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path
) -> None:
    with ddnn_traces.open(sample_dataset.path, [RING, TREE]) as opened:
        monkeypatch.setattr(explorer, "MOST_BYTES", page.stat().st_size - 10)
        assert explorer.write(opened, tmp_path / "less.html").startswith("2 runs, each in at most 200 windows, ")
        monkeypatch.setattr(explorer, "MOST_BYTES", 1000)
        assert "at most 25 windows" in (said := explorer.write(opened, tmp_path / "least.html")) and "--run" in said
    assert max(run["windows"] for run in runs_of(tmp_path / "least.html").values()) <= 25


@pytest.mark.long
def test_steps_of_a_long_run_are_thinned(
    sample_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer, "STEPS", 7)
    monkeypatch.setattr(explorer, "COLLECTIVES", 3)
    with ddnn_traces.open(sample_dataset.path, RING) as opened:
        explorer.write(opened, tmp_path / "page.html")
    (run,) = runs_of(tmp_path / "page.html").values()
    assert run["every"] == 3 and {step for _, step, *_ in run["steps"]} == {0, 3}
    assert run["every_collectives"] == 2 and {row[1] for row in run["collectives"]} == {0, 2, 4}


def write_two_connections(folder: Path) -> Path:
    """The page of a run `r`: two connections of the same ports, and no log."""
    flows = {"run_id": ["r", "r"], "flow_id": [0, 1], "src_ip": ["10.0.0.1"] * 2, "dst_ip": ["10.0.0.2"] * 2}
    flows |= {"src_port": [1, 1], "dst_port": [2, 2], "protocol": [6, 6], "connection": [0, 1], "wire_bytes": [9, 5]}
    windows = {"run_id": ["r", "r"], "flow_id": [0, 1], "window_start_ns": [0, 3000], "window_ns": [1000] * 2}
    windows |= {"wire_bytes": [9, 5]}
    hosts = {"run_id": ["r", "r"], "host_ip": ["10.0.0.1", "10.0.0.2"]}
    tables = {"runs": {"run_id": ["r"]}, "hosts": hosts, "flows": flows, "flow_windows": windows}
    with write_dataset(folder / "d", {name: pl.DataFrame(rows) for name, rows in tables.items()}) as opened:
        explorer.write(opened, folder / "page.html")
    return folder / "page.html"


@pytest.mark.long
def test_charts_that_are_empty_are_explained(tmp_path: Path) -> None:
    page = write_two_connections(tmp_path)
    found = probe(page, tmp_path, "return {said: document.getElementById('chosen').textContent};", ready="drawn")
    assert found["said"].endswith(", no training log and so no chart of steps, no collectives seen")


@pytest.mark.long
def test_a_chart_is_there_where_a_chosen_run_has_rows_for_it(tmp_path: Path) -> None:
    """A run with one sender and no log, and the same with a step: its cell is small, and the steps come and go."""
    flows = {"run_id": ["bare", "logged"], "flow_id": [0, 0], "src_ip": ["10.0.0.1"] * 2, "dst_ip": ["10.0.0.2"] * 2}
    flows |= {"src_port": [1, 1], "dst_port": [2, 2], "protocol": [6, 6], "wire_bytes": [9, 5]}
    windows = {"run_id": ["bare", "logged"], "flow_id": [0, 0], "window_start_ns": [0, 3000], "window_ns": [1000] * 2}
    windows |= {"wire_bytes": [9, 5]}
    steps = {"run_id": ["logged"], "worker": ["w"], "step": [0], "start_ns": [3000], "end_ns": [3500]}
    tables = {"runs": {"run_id": ["bare", "logged"]}, "flows": flows, "flow_windows": windows, "steps": steps}
    with write_dataset(tmp_path / "d", {name: pl.DataFrame(rows) for name, rows in tables.items()}) as opened:
        explorer.write(opened, tmp_path / "page.html")
    found = probe(tmp_path / "page.html", tmp_path, STEPS_OF, fragment="#run=bare", ready="drawn")
    assert found["steps"] == [0, 1, 0]
    assert max(found["cell"]) <= 61


@pytest.mark.long
def test_hosts_of_another_run_are_on_the_axes(tmp_path: Path) -> None:
    """As many hosts as in the first run, so that the charts stay and only their rows change."""
    flows = {"run_id": ["a", "b"], "flow_id": [0, 0], "src_ip": ["10.0.0.9", "10.0.0.2"]}
    flows |= {"dst_ip": ["10.0.0.10", "10.0.0.10"], "src_port": [1, 1], "dst_port": [2, 2], "protocol": [6, 6]}
    windows = {"run_id": ["a", "b"], "flow_id": [0, 0], "window_start_ns": [0, 0], "window_ns": [1000] * 2}
    ends = {"run_id": ["a", "a", "b", "b"], "host_ip": ["10.0.0.9", "10.0.0.10", "10.0.0.2", "10.0.0.10"]}
    tables = {"runs": {"run_id": ["a", "b"]}, "hosts": ends, "flows": flows | {"wire_bytes": [9, 5]}}
    tables["flow_windows"] = windows | {"wire_bytes": [9, 5]}
    with write_dataset(tmp_path / "d", {name: pl.DataFrame(rows) for name, rows in tables.items()}) as opened:
        explorer.write(opened, tmp_path / "page.html")
    found = probe(tmp_path / "page.html", tmp_path, HOSTS_OF, fragment="#run=a", ready="drawn")
    receiver = "10.0.0.10"
    assert found["a"] == [receiver, "10.0.0.9"] and found["b"] == [receiver, "10.0.0.2"]
    assert found["both"] == [receiver, "10.0.0.2", "10.0.0.9"]


@pytest.mark.long
@pytest.mark.parametrize("width", [650, 1200])
def test_a_legend_of_many_runs_fits_the_page(width: int, tmp_path: Path) -> None:
    runs = [SyntheticRun(f"a-run-with-a-name-of-forty-characters-{n}", "ring", workers=2, steps=2, model_bytes=10_000)
            for n in range(10, 20)]  # fmt: skip
    write_runs(tmp_path / "d", runs)
    with ddnn_traces.open(tmp_path / "d") as opened:
        explorer.write(opened, tmp_path / "page.html")
    fragment = "#" + "&".join(f"run={run.run_id}" for run in runs)
    found = probe(
        tmp_path / "page.html", tmp_path, LEGEND, f"--window-size={width},900", fragment=fragment, ready="drawn"
    )
    assert found["names"] == [run.run_id for run in runs]
    assert found["right"] <= width


@pytest.mark.long
def test_more_hosts_than_colours_are_told_by_dashes_and_equal_volumes_have_a_legend(tmp_path: Path) -> None:
    clique = SyntheticRun(
        "r", "clique", workers=12, steps=2, model_bytes=100_000, noise=0, broadcast=False, chatter=False
    )
    write_runs(tmp_path / "d", [clique])
    with ddnn_traces.open(tmp_path / "d") as opened:
        explorer.write(opened, tmp_path / "page.html")
    found = probe(tmp_path / "page.html", tmp_path, STROKES, ready="drawn")
    names = [f"W{number}" for number in range(1, 13)]  # W2 before W10, in the legend and on both axes
    assert found["hosts"] == names and found["axes"] == [names, names]
    assert len({tuple(stroke) for stroke in found["strokes"]}) == 12
    assert len({colour for colour, _ in found["strokes"]}) == 10
    assert len(found["bytes"]) > 1 and len(set(found["bytes"])) == len(found["bytes"])


STROKES = """
    const said = (selector) => [...document.querySelectorAll(`${selector} text`)].map((text) => text.textContent);
    const labels = said('.mark-text.role-legend-label');
    const symbols = [...document.querySelectorAll('.mark-symbol.role-legend-symbol path')];
    const strokes = symbols.map((path) => [path.getAttribute('stroke'), path.getAttribute('stroke-dasharray')]);
    const hosts = labels.filter((label) => label.startsWith('W'));
    const named = [...document.querySelectorAll('.mark-text.role-axis-label')].map(
        (axis) => [...axis.querySelectorAll('text')].map((text) => text.textContent));
    const axes = named.filter((texts) => texts.every((text) => /^W[0-9]+$/.test(text)));
    return {hosts, axes, strokes: strokes.slice(0, hosts.length), bytes: labels.filter((label) => label.endsWith('B'))};
"""

LEGEND = """
    const texts = [...document.querySelectorAll('.mark-text.role-legend-label text')];
    const names = texts.filter((text) => text.textContent.startsWith('a-run'));
    const right = Math.max(...texts.map((text) => text.getBoundingClientRect().right));
    return {names: names.map((text) => text.textContent), right};
"""

HOSTS_OF = """
    const list = document.getElementById('runs');
    const axes = async (...names) => {
        for (const option of list.options) option.selected = names.includes(option.value);
        list.dispatchEvent(new Event('change'));
        await globalThis.drawn;
        const named = [...document.querySelectorAll('.mark-text.role-axis-label')].map(
            (axis) => [...axis.querySelectorAll('text')].map((text) => text.textContent));
        return named.filter((texts) => texts.length && texts.every((text) => /^10[.0-9]+$/.test(text))).flat();
    };
    return {a: await axes('a'), b: await axes('b'), both: await axes('a', 'b')};
"""

STEPS_OF = """
    const list = document.getElementById('runs');
    const choose = async (name) => {
        for (const option of list.options) option.selected = option.value === name;
        list.dispatchEvent(new Event('change'));
        await globalThis.drawn;
        return [...document.querySelectorAll('.chart text')].filter((text) => text.textContent === 'step (ms)').length;
    };
    const cell = document.querySelector('.mark-rect.role-mark path[aria-roledescription="rect mark"]');
    const {width, height} = cell.getBoundingClientRect();
    return {cell: [width, height], steps: [await choose('bare'), await choose('logged'), await choose('bare')]};
"""


def test_connections_that_follow_each_other_are_one_flow(tmp_path: Path) -> None:
    """Every byte is drawn, under one name."""
    (run,) = runs_of(write_two_connections(tmp_path)).values()
    assert (run["bytes"], run["window"], run["flow"]) == ([9, 5], [0, 3], [0, 0])
    assert run["flows"] == [["10.0.0.1", "10.0.0.2", "10.0.0.1:1 → 10.0.0.2:2"]]


def test_addresses_that_are_no_hosts_are_one(tmp_path: Path) -> None:
    """Every byte is drawn; announcements are in one row and column."""
    case = Path(__file__).parents[1] / "queries" / "topology_graph" / "addresses_of_the_network_are_no_hosts"
    tables = {name: pl.read_csv(case / f"{name}.csv", infer_schema=False) for name in ("runs", "hosts", "flows")}
    tables["flows"] = tables["flows"].with_columns(wire_bytes=pl.col("payload_bytes"))
    tables["flow_windows"] = tables["flows"].select(
        "run_id", "flow_id", "wire_bytes", "payload_bytes", window_start_ns=pl.lit(0), window_ns=pl.lit(1_000_000)
    )
    with write_dataset(tmp_path / "d", tables) as opened:
        explorer.write(opened, tmp_path / "page.html")
    (run,) = runs_of(tmp_path / "page.html").values()
    other = "other addresses"
    assert {name for sender, receiver, _ in run["flows"] for name in (sender, receiver)} == {"W1", "W2", other}
    assert sum(run["bytes"]) == 600 + 600 + 100 + 300 + 200 + 300 + 300 + 80
    with ddnn_traces.open(tmp_path / "d") as opened:
        contents.make(opened)
        pairs = "SELECT DISTINCT sender, receiver FROM explored_windows ORDER BY ALL"
        drawn = opened.provide("").execute(pairs).fetchall()
    assert drawn == [("W1", "W2"), ("W1", other), ("W2", "W1"), (other, other)]


@pytest.mark.long
def test_names_of_a_dataset_are_text(tmp_path: Path) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    flows = {"run_id": [hostile], "flow_id": [0], "src_ip": ["10.0.0.1"], "dst_ip": ["10.0.0.2"], "wire_bytes": [9]}
    flows |= {"src_port": [1], "dst_port": [2], "protocol": [6]}
    windows = {"run_id": [hostile], "flow_id": [0], "window_start_ns": [0], "window_ns": [1000], "wire_bytes": [9]}
    tables = {"runs": {"run_id": [hostile], "model": [hostile]}, "flows": flows, "flow_windows": windows}
    with write_dataset(tmp_path / "d", {name: pl.DataFrame(rows) for name, rows in tables.items()}) as opened:
        explorer.write(opened, tmp_path / "page.html")
    assert "<img" not in (tmp_path / "page.html").read_text(encoding="utf-8").partition("<script>")[0]
    assert hostile in runs_of(tmp_path / "page.html")


@pytest.mark.long
def test_a_run_that_was_not_measured_says_so(tmp_path: Path, page: Path) -> None:
    write_runs(tmp_path / "d", [SyntheticRun("synthetic-ring", "ring", workers=2, steps=2, model_bytes=10_000)])
    with ddnn_traces.open(tmp_path / "d") as opened:
        explorer.write(opened, tmp_path / "page.html")
    assert "1 of them are synthetic or simulated, not measured" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not runs_of(tmp_path / "page.html")["synthetic-ring"]["measured"]
    assert "simulated, not measured" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("change", ["cut", "followed", "named", "twice", "none"])
def test_runs_that_hide_something_are_refused(change: str, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    before, start, data = text.partition('<script id="data" type="text/plain">')
    packed, end, after = data.partition("</script>")
    raw = base64.b64decode(packed)
    changed = {
        "cut": raw[:-9],
        "followed": raw + b"10.0.0.1",
        "named": raw[:3] + b"\x08" + raw[4:10] + b"a name\0" + raw[10:],
        "twice": raw,
        "none": b"no gzip",
    }[change]
    wrong = before + start + base64.b64encode(changed).decode() + end + (start + end) * (change == "twice") + after
    with pytest.raises(ValueError, match=r"^(has|does)"):
        explorer.parts(wrong)


@pytest.mark.long
def test_nothing_to_look_at(tmp_path: Path) -> None:
    empty = {"runs": pl.DataFrame({"run_id": ["r"]})}
    with write_dataset(tmp_path / "d", empty) as opened, pytest.raises(UsageError, match="no run has a flow"):
        explorer.write(opened, tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


@pytest.mark.long
def test_command(command: RunCommand, sample_dataset: Dataset, tmp_path: Path) -> None:
    done = command("explore", sample_dataset.path, "--run", RING, "--export", "page.html")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode().startswith("wrote page.html: 1 run, each in at most 400 windows, ")


CHOICE = """
    const count = (mark) => document.querySelectorAll(`.chart ${mark}`).length;
    const rect = (kind) => `.mark-rect.role-mark path[aria-roledescription="${kind}"]`;
    const seen = () => ({bars: count(rect('bar')), cells: count(rect('rect mark')),
        lines: count('.mark-line.role-mark path'), rules: count('.mark-rule.role-mark line')});
    const settled = () => new Promise((done) => setTimeout(done, 500));
    const before = seen();
    const cell = document.querySelector(rect('rect mark'));
    const at = cell.getBoundingClientRect();
    for (const kind of ['mousedown', 'mouseup', 'click'])
        cell.dispatchEvent(new MouseEvent(kind, {bubbles: true, clientX: at.x + 9, clientY: at.y + 9}));
    await settled();
    const after = seen();
    const list = document.getElementById('runs');
    list.options[1].selected = true;
    list.dispatchEvent(new Event('change'));
    await settled();
    const both = seen();
    const topology = document.querySelectorAll('#facets select')[3];
    const counts = [...topology.options].map((option) => option.textContent);
    topology.value = 'tree';
    topology.dispatchEvent(new Event('change'));
    const left = [...list.options].filter((option) => !option.hidden).length;
    return {before, after, both, counts, left, hash: location.hash,
        said: document.getElementById('chosen').textContent};
"""


@pytest.mark.long
def test_a_choice_filters_the_other_charts_without_a_server(page: Path, tmp_path: Path) -> None:
    run = runs_of(page)[RING]
    whole = f"time=0,{(run['windows'] + 1) * run['width_s']:.9g}"
    found = probe(page, tmp_path, CHOICE, fragment=f"#run={RING}&{whole}", ready="drawn")
    before, after = found["before"], found["after"]
    pairs = {(sender, receiver) for sender, receiver, _ in run["flows"]}
    assert before["cells"] == len(pairs) and before["rules"] == len(run["steps"]) + len(run["collectives"])
    assert before["bars"] == min(20, len({flow for *_, flow in run["flows"]}))
    assert (after["cells"], after["rules"]) == (before["cells"], before["rules"])
    assert 0 < after["bars"] < before["bars"] and after["lines"] == 1 < before["lines"]
    assert found["both"]["rules"] > before["rules"]
    assert RING in found["said"] and TREE in found["said"] and TREE in found["hash"]
    assert found["counts"] == ["all (2)", "ring (1)", "tree (1)"] and found["left"] == 1
    again = probe(page, tmp_path, "return {hash: location.hash, " + STATE + "};", fragment=found["hash"], ready="drawn")
    assert (again["hash"], again["left"], again["chosen"]) == (found["hash"], 1, 2)
    assert again["bars"] == found["both"]["bars"] and again["topology"] == "tree"


@pytest.mark.long
def test_the_charts_show_the_training_at_first(page: Path, tmp_path: Path) -> None:
    """The capture began long before it: the training was a third of each chart."""
    run = runs_of(page)[RING]
    begins = [since_s for *_, since_s, _ in run["steps"]] + [row[4] for row in run["collectives"]]
    ends = [since_s + ms / 1000 for *_, since_s, ms in run["steps"]] + [row[5] for row in run["collectives"]]
    around = 0.03 * (max(ends) - min(begins))
    sent = {
        run["flows"][flow][2] for flow, window in zip(run["flow"], run["window"], strict=True)
        if min(begins) - around <= window * run["width_s"] <= max(ends) + around
    }  # fmt: skip
    found = probe(page, tmp_path, "return {" + STATE + "};", fragment=f"#run={RING}", ready="drawn")
    assert found["bars"] == len(sent) < min(20, len({flow for *_, flow in run["flows"]}))


def test_a_kind_of_collective_has_one_colour_in_all_pages(page: Path) -> None:
    """all_gather was light blue in the report and orange here."""
    colours = ", ".join(f"{kind}: '{colour}'" for kind, colour in style.COLLECTIVES.items())
    assert f"const KINDS = {{{colours}}};" in page.read_text()
    contents_of = contents.Contents(("r",), 1.0, (), (), (), ("t",), 0, 1, 0.0, 1.0)
    drawn = contents.collectives(contents_of)
    assert dict(zip(drawn["colorDomain"], drawn["colorRange"], strict=True)) == style.COLLECTIVES


STATE = """
    left: [...document.getElementById('runs').options].filter((option) => !option.hidden).length,
    chosen: document.getElementById('runs').selectedOptions.length,
    bars: document.querySelectorAll('.mark-rect.role-mark path[aria-roledescription="bar"]').length,
    topology: document.querySelectorAll('#facets select')[3].value
"""
