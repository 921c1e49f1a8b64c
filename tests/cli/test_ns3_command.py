"""The command ns3, as a user calls it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ddnn_traces
from ddnn_traces.cli import cli
from ddnn_traces.errors import UsageError

SMALL = ["--workers", "3", "--set", "layers=20", "--model-bytes", "3000000", "--compute-ms", "60"]


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["ns3", *words], catch_exceptions=False, standalone_mode=False)


def test_a_job_is_in_a_file_and_the_command_has_the_options_that_change_between_two_runs() -> None:
    options = re.findall(r"^  (?:-\w, )?(--[\w-]+)", run("run", "--help").stdout, re.M)
    of_the_job = options[: options.index("--set")]
    assert {"--workers", "--flows-per-s", "--training-priority"} <= set(of_the_job) and len(of_the_job) <= 14


def test_a_wrong_value_is_refused_before_ns3_is_looked_for() -> None:
    with pytest.raises(UsageError, match=r"flows_per_s = 23\.0; it must be given with seconds"):
        run("--flows-per-s", "23")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "spines=4"], "spines: has no effect without leaves = 2 or more"),
        (["--set", "flow_sizes=sizes.txt", "--seconds", "1"], "flow_sizes: has no effect without flows_per_s"),
        (["--set", "other_jobs_after_ms=5"], "other_jobs_after_ms: has no effect without other_jobs"),
        (["--seed", "1"], "seed: has no effect without compute_jitter or flows_per_s"),
        (["--set", "wrokers=3"], "wrokers: no such key; did you mean workers"),
        (["--set", "workers=three"], "workers = 'three'; it must be a whole number"),
        (["--set", "workers=3", "--workers", "4"], "--set workers=3: workers is given twice"),
        (["--set", "workers"], "--set workers: write it as --set workers=VALUE"),
        (["--training-only"], "--training-only: is for --out DATASET"),
    ],
)
def test_a_wrong_or_unused_key_is_an_error_before_ns3_is_looked_for(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        run(*words)
    assert message in str(caught.value) and "\n" not in str(caught.value)


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
def test_a_run_stopped_at_its_time_limit_is_marked(tmp_path: Path) -> None:
    """By the exit code, a warning in spite of --quiet, and in what is written."""
    result = run(*SMALL, "--seconds", "1000", "--set", "time_limit_s=1", "--out", str(tmp_path / "dataset"), "--quiet")
    assert result.exit_code == 1
    assert result.stderr == "warning: ns3: stopped at the time limit of 1 s; measured is what is there\n"
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT variant FROM runs").item().endswith("-stopped_at_time_limit")


@pytest.mark.ns3
def test_what_cannot_be_captured_is_refused_before_the_simulation(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="leave it out with --pcap, which has no packets of skipped iterations"):
        run(*SMALL, "--set", "skip_tolerance=0.001", "--pcap", str(tmp_path / "captures"))
    with pytest.raises(FileExistsError):
        run(*SMALL, "--pcap", str(tmp_path / "file"))


@pytest.mark.ns3
def test_chosen_links_are_captured(tmp_path: Path) -> None:
    chosen = ["--pcap-host", "worker-3", "--pcap-host", "worker-1"]
    run(*SMALL, "--iterations", "1", "--pcap", str(tmp_path), *chosen)
    assert sorted(path.name for path in (tmp_path / "ns3").glob("*.pcap")) == [
        "worker-1-tcpdump.pcap", "worker-3-tcpdump.pcap",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="worker-9: no host of this run; did you mean worker-"):
        run(*SMALL, "--pcap", str(tmp_path / "other"), "--pcap-host", "worker-9")
    with pytest.raises(UsageError, match="give --pcap, too"):
        run(*SMALL, "--pcap-host", "worker-1")


@pytest.mark.ns3
def test_a_warm_up_that_leaves_nothing_is_said() -> None:
    result = run(*SMALL, "--iterations", "1", "--set", "warm_up_s=5")
    assert "warning: ns3: no iteration lies between warm-up and cool-down" in result.stderr


@pytest.mark.ns3
def test_a_sweep_is_written_printed_drawn_and_goes_on(tmp_path: Path) -> None:
    words = "workers = 3\nlayers = 20\nmodel_bytes = 3_000_000\ncompute_ms = 60\niterations = 1\n"
    (tmp_path / "sweep.toml").write_text(f"{words}queue = ['fifo', 'priority']\n")
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers = [3, 4]\nmodle_bytes = 4", r"modle_bytes: no such key; did you mean model_bytes"),
        ("wrokers = [3, 4]", r"wrokers: no such key; did you mean workers"),
        ("workers = [3, 'four']", r"workers = 'four'; it must be a whole number"),
        ("workers = [3, 4]\nspines = 4", r"spines: has no effect without leaves"),
    ],
)
def test_a_key_that_no_cell_can_have_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        run("sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
