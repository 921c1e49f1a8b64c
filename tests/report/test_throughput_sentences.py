"""A mean over a training, one over inferred steps and one over a capture with its idle time are never one median."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars as pl
import pytest
from datasets import read_case, write_dataset

import ddnn_traces
from ddnn_traces.report import number_text
from ddnn_traces.report.chapters import summary, time, volume
from ddnn_traces.report.section import Results, Section
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.synthetic import SyntheticRun, write_runs
from ddnn_traces.traffic.table_writer import write_traffic

DATASET = Path(__file__).parents[2] / "data" / "dataset"
CASE = Path(__file__).parents[1] / "queries" / "inferred_throughput" / "four_steps"


@pytest.mark.long
def test_the_mean_without_a_log_is_of_inferred_steps_or_says_that_it_has_idle_time(tmp_path: Path) -> None:
    """run-1 has four steps and is then silent, run-2 sends all the time, run-3 has no window."""
    tables = read_case(CASE)
    tables["flows"] = tables["flows"].with_columns(wire_bytes=1000, packets=1, first_seen_ns=0, last_seen_ns=10)
    with write_dataset(tmp_path / "dataset", tables) as dataset, Results(dataset) as results:
        [section] = time.chapter.sections(results, only=["total-throughput"])
        [first] = summary.chapter.sections(results, only=["throughput"])
        [models] = volume.chapter.sections(results, only=["model-volume"])
    for headline in (section.headline, first.headline):
        assert "1.16 Mbit/s from the first to the last inferred step (1 run), " in headline
        assert " over the capture, idle time included (1 run)" in headline
    [figure] = section.figures
    [rows] = figure.spec["datasets"].values()
    drawn = {row["run_id"]: row["gbit_per_s"] for row in rows if "gbit_per_s" in row}
    assert set(drawn) == {"run-1", "run-2"} and f"{drawn['run-1'] * 1000:.3g}" == "1.16"
    said = "of each run from the first to the last inferred step; or over the capture, idle time included. "
    assert said in figure.caption
    assert [source.query for source in figure.sources] == ["total_throughput", "inferred_throughput"]
    marks = [layer["encoding"]["shape"]["scale"] for layer in figure.spec["layer"] if "shape" in layer["encoding"]]
    assert [scale["domain"] for scale in marks] == [["inferred", "capture"]]  # two quantities on one axis
    assert all(len(set(scale["range"])) == 2 for scale in marks)
    # runs of which nothing is declared are no repeats of one setting
    assert not [table for table in section.tables if "unknown" in str(table.rows) and "runs of" in table.columns]
    assert models.missing.startswith("2 runs of 2 kB, but none declares its model")


def test_a_mean_without_an_interval_says_the_reason_of_the_table() -> None:
    """Of 973 samples of a run without a log the headline said that the run is too short."""
    few, no_log = "12 samples, no interval: fewer than 200 values", "973 samples, no interval: no log, so batch_ms must"
    means = pl.DataFrame({"computation": [no_log, None], "half_width_gbit_per_s": [None, None]})
    of_log = "no log, which states how long a step, and so a sample, is"
    assert time._certainty(means) == f"; no interval within a run: {of_log}"
    means = pl.DataFrame({"computation": [few, no_log, no_log], "half_width_gbit_per_s": [None] * 3})
    assert time._certainty(means) == (
        f"; no interval within a run: fewer than 200 samples of a step or more in 1 run and {of_log} in 2 runs"
    )


@pytest.mark.parametrize(
    ("partly", "said", "part"),
    [
        (set(), "All hosts of a run together transmit", ""),
        ({"a"}, "All hosts of a run together transmit", " Of 1 run (a) it is what the captures show, not all."),
        ({"a", "b"}, "The captures, which do not cover all hosts of a run, show", ""),
    ],
)
def test_a_part_of_the_hosts_is_not_called_all_of_them(partly: set[str], said: str, part: str) -> None:
    section = cast(Section, SimpleNamespace(results=SimpleNamespace(partly_covered=partly)))
    assert summary._whose(section, pl.DataFrame({"run_id": ["a", "b", "b"]})) == (said, part)


@pytest.mark.parametrize(
    ("inferred", "said"), [(set(), "a log"), ({"a"}, "a log or steps of traffic"), ({"a", "b"}, "steps of traffic")]
)
def test_positions_say_where_their_steps_come_from(inferred: set[str], said: str) -> None:
    runs = pl.DataFrame({"run_id": ["a", "b"]})
    assert time._logged_or(runs, inferred, "a log", "steps of traffic") == said


@pytest.mark.long
def test_the_highest_rate_is_of_no_run_with_copies_of_packets(tmp_path: Path) -> None:
    """twice has each packet of once two times."""
    flow = {"flow_id": 0, "src_ip": "10.0.0.1", "dst_ip": "10.0.0.2", "protocol": 6, "first_seen_ns": 0}
    flows = pl.DataFrame(
        {"run_id": run, **flow, "last_seen_ns": 10**9, "packets": 20 * n, "payload_bytes": 20_000 * n,
         "wire_bytes": 21_000 * n, "retransmitted_bytes": 20_000 * (n - 1)}
        for run, n in (("once", 1), ("twice", 2))
    )  # fmt: skip
    windows = pl.DataFrame(
        {"run_id": run, "flow_id": 0, "window_start_ns": start * 10**6, "window_ns": 10**6, "packets": n,
         "payload_bytes": 1000 * n, "wire_bytes": 1050 * n, "retransmitted_bytes": 1000 * (n - 1)}
        for run, n in (("once", 1), ("twice", 2)) for start in range(0, 1000, 50)
    )  # fmt: skip
    tables = {"runs": pl.DataFrame({"run_id": ["once", "twice"]}), "flows": flows, "flow_windows": windows}
    with write_dataset(tmp_path / "dataset", tables) as dataset, Results(dataset) as results:
        [section] = summary.chapter.sections(results, only=["throughput"])
    assert ", in once (but for 1 run with copies of packets)" in section.headline


@pytest.mark.long
def test_what_was_lost_before_it_was_captured_is_said_though_nothing_is_sent_again(tmp_path: Path) -> None:
    """A queue of the sender's own dropped half of a link's packets: no second copy is in the capture."""
    tables = read_case(CASE.parents[1] / "verdicts" / "slow_link_of_late_bytes")
    times = {"first_seen_ns": 1_700_000_000_050_000_000, "last_seen_ns": 1_700_000_001_000_000_000, "packets": 4800}
    tables["flows"] = tables["flows"].with_columns(**{name: pl.lit(value) for name, value in times.items()})
    tables["flow_windows"] = pl.DataFrame(
        {"run_id": "r", "flow_id": 1, "window_start_ns": times["first_seen_ns"], "window_ns": 10**6, "packets": 1,
         "payload_bytes": 1000, "wire_bytes": 1050, "retransmitted_bytes": 0}
    )  # fmt: skip
    with write_dataset(tmp_path / "dataset", tables) as dataset, Results(dataset) as results:
        [section] = summary.chapter.sections(results, only=["throughput"])
    late = "; 50.5% of the bytes from 10.0.0.2 to 10.0.0.3 come late, behind bytes that follow them, as where"
    assert late in section.headline


def test_a_run_of_minutes_has_the_papers_interval_beside_ours(tmp_path: Path) -> None:
    """The paper's windows begin at 200 s. The run has four steps of 70 s."""
    [run] = specification.jobs({"workers": 2, "model_bytes": 1_000_000, "compute_ms": 70_000, "iterations": 4})
    write_traffic(tmp_path / "dataset", [simulator.traffic(simulator.simulate(run))])
    with ddnn_traces.open(tmp_path / "dataset") as dataset, Results(dataset) as results:
        [section] = time.chapter.sections(results, only=["total-throughput"])
    assert "gives a number for 1 of 1 run here" in section.sentences[0]
    assert "from 200 s to 300 s" in section.tables[-1].caption


def test_a_run_that_a_check_flags_does_not_stand_for_all() -> None:
    """A run whose clocks differ was the first picture, beside the same training without a fault."""
    means = pl.DataFrame({"run_id": ["a", "b", "c"], "gbit_per_s": [1.0, 2.0, 3.0]})
    overview = means.select("run_id", hosts=4, steps=10)
    faults: dict[str, pl.DataFrame] = {}
    results = SimpleNamespace(faults=faults)
    section = cast(Section, SimpleNamespace(results=results, rows=lambda _: overview))
    assert summary._representative(section, means) == "b"
    faults["host_clock"] = pl.DataFrame({"run_id": ["b"]})
    assert summary._representative(section, means) == "a"


def test_logs_and_captures_are_apart() -> None:
    means = pl.DataFrame({"run_id": ["a", "b", "c"], "stretch": ["training", "training", "capture"],
                          "gbit_per_s": [2.0, 3.0, 0.1], "inferred": [None, None, 0.5]})  # fmt: skip
    said = time.by_stretch(means, lambda rows: f"{rows['gbit_per_s'].mean():g}")
    assert said == "2.5 in training (2 runs), 0.5 from the first to the last inferred step (1 run)"
    assert time.by_stretch(means.head(2), lambda rows: f"{rows.height}") == "2 in training"


KILLED = "tf-mlp1-sgd-32-grpc-normal-ring-n3-killed_worker1-checkpoint-r2"
TRAINED = ["tf-mlp1-sgd-32-grpc-10ms-ring-n3-r1", "torchp2p-mlp1-sgd-128-gloo-normal-clique-n4-r1"]


@pytest.mark.parametrize("others", [[], TRAINED])
@pytest.mark.long
def test_the_pause_behind_a_kill_is_in_no_mean_and_its_run_is_not_the_first_picture(others: list[str]) -> None:
    """Nothing is sent for 5 of the 8 seconds of the killed run's training; its mean was the median of the three."""
    with ddnn_traces.open(DATASET, [KILLED, *others]) as dataset, Results(dataset) as results:
        means = dict(dataset.query("total_throughput").select("run_id", "gbit_per_s").iter_rows())
        [first] = summary.chapter.sections(results, only=["throughput"])
        of_all = [*time.chapter.sections(results, only=["total-throughput", "gradient-flow"])]
    pause = "a process or host was killed; 5.9 s pass until the next step ends (query fault_recovery)."
    for headline in (section.headline for section in (first, *of_all)):
        assert headline.endswith(f"The mean leaves out 1 of 3 runs, in which {pause}" if others else f"pause: {pause}")
    trained = " to ".join(f"{number_text.rate(means[run])} ({run})" for run in others)
    assert sorted(means.values())[len(others) // 2] == means[KILLED]
    assert (f"transmit {trained} in training on average" in first.headline) == bool(others)
    assert ("on average" in first.headline) == bool(others) == ("on average" in of_all[0].headline)
    [figure] = first.figures
    assert figure.lead == (others or [KILLED])[0]


@pytest.mark.parametrize("workers", [(4, 4), (4, 6)])
@pytest.mark.long_after(1)
def test_a_volume_of_one_law_is_a_sentence_and_no_chart_of_a_single_mark(
    tmp_path: Path, workers: tuple[int, int]
) -> None:
    runs = [SyntheticRun(f"r{n}", "ring", workers=workers[n % 2], steps=4, model_bytes=10_000 * n) for n in range(1, 5)]
    write_runs(tmp_path / "d", runs)
    with ddnn_traces.open(tmp_path / "d") as dataset, Results(dataset) as results:
        [section] = summary.chapter.sections(results, only=["law"])
    if workers == (4, 4):
        [sentence] = section.sentences
        assert sentence.startswith("A step of 4 workers sends ") and sentence.endswith("the law of ring says 6.")
        assert not section.figures
    else:
        assert not section.sentences
        assert [figure.name for figure in section.figures] == ["volume_by_law"]
