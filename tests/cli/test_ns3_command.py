"""The command ns3, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ddnn_traces
from ddnn_traces.cli import cli
from ddnn_traces.errors import UsageError

SMALL = ["--workers", "3", "--layers", "20", "--model-bytes", "3000000", "--compute-ms", "60"]


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["ns3", *words], catch_exceptions=False, standalone_mode=False)


def test_options_of_the_simulator_are_there_and_those_of_other_topologies_are_not() -> None:
    text = run("run", "--help").stdout
    assert "--fusion-bytes" in text and "--flows-per-s" in text and "--multicast" not in text


def test_a_wrong_value_is_refused_before_ns3_is_looked_for() -> None:
    with pytest.raises(UsageError, match=r"flows_per_s = 23\.0; it must be left out without seconds"):
        run("--flows-per-s", "23")


@pytest.mark.ns3
def test_a_run_is_printed_written_and_captured(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("workers = 8\niterations = 1\n", encoding="utf-8")
    out, pcap = tmp_path / "dataset", tmp_path / "captures"
    words = [str(tmp_path / "job.toml"), *SMALL, "--out", str(out), "--pcap", str(pcap), "--format", "json"]
    result = run(*words)
    [row] = json.loads(result.stdout)
    assert (row["workers"], row["steps"], row["ended"]) == (3, 1, "iterations")
    assert "release build" in result.stderr
    assert sorted(path.name for path in (pcap / "ns3").glob("*.pcap")) == [
        f"worker-{i}-tcpdump.pcap" for i in (1, 2, 3)
    ]
    with ddnn_traces.open(out) as dataset:
        assert dataset.sql("SELECT source FROM runs").item() == "ns3"
    with pytest.raises(UsageError, match="is there already; choose another --pcap"):
        run(*words)


@pytest.mark.ns3
def test_a_run_stopped_at_its_time_limit_ends_with_1() -> None:
    assert run(*SMALL, "--seconds", "1000", "--time-limit-s", "1").exit_code == 1


@pytest.mark.ns3
def test_a_sweep_is_written_printed_drawn_and_goes_on(tmp_path: Path) -> None:
    words = [f"{name[2:].replace('-', '_')} = {value}" for name, value in zip(SMALL[::2], SMALL[1::2], strict=True)]
    (tmp_path / "sweep.toml").write_text("\n".join([*words, "iterations = 1", "queue = ['fifo', 'priority']"]))
    command = ["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"), "--jobs", "2", "--format", "json"]
    first = run(*command)
    assert [(row["cell"], row["queue"], row["ended"]) for row in json.loads(first.stdout)] == [
        (0, "fifo", "iterations"), (1, "priority", "iterations"),
    ]  # fmt: skip
    assert "2 cells into" in first.stderr and "2 of 2 cells" in first.stderr
    assert "<svg" in (tmp_path / "out" / "figures" / "by_axis.svg").read_text()
    listed = run("query", str(tmp_path / "out")).stdout
    assert "operating_boundary  At which loads" in listed
    counted = json.loads(
        run("query", str(tmp_path / "out"), "progression", "--param", "number=1", "--format", "json").stdout
    )
    assert {row["kind"] for row in counted} == {"transfer", "forward", "backward"}
    again = run(*command)
    assert again.stdout == first.stdout and "of 2 cells" not in again.stderr


def test_a_sweep_without_an_axis_is_refused_before_ns3_is_looked_for(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text("workers = 3\n")
    with pytest.raises(UsageError, match="no key has a list of values"):
        run("sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"))
