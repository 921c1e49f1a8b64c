"""The commands of the simulator, as a user calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result

import ddnn_traces
from ddnn_traces.cli import cli
from ddnn_traces.errors import DdnnTracesError
from ddnn_traces.traffic.simulator import layers, sweep

MEASURED = Path(__file__).parents[2] / "data" / "dataset"
SWEEP = 'bandwidth_mbit = [1000, 5000]\nqueue = ["fifo", "priority"]\nbarrier = false\n'


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", *words], catch_exceptions=False, standalone_mode=False)


def rows(*words: str) -> list[dict[str, object]]:
    result = run(*words, "--format", "json")
    found: list[dict[str, object]] = json.loads(result.stdout)
    return found


def test_options_alone_are_a_run() -> None:
    [row] = rows("--bandwidth-mbit", "1000", "--no-barrier", "--queue", "priority")
    assert row["iteration_ms"] == pytest.approx(972.0, abs=0.1)
    assert row["variant"] == "priority-no_barrier" and "aggregation_remaining_ms" not in row
    assert [row["run_id"] for row in rows("--run-id", "mine", "--bandwidth-mbit", "1000")] == ["mine"]


def test_set_gives_every_key_as_toml_has_it() -> None:
    words = ["barrier=false", "queue=priority", "bandwidth_mbit=1000", "run_id=2020", "compute_factors=[1, 1.5]"]
    [row] = rows(*(word for each in words for word in ("--set", each)))
    assert (row["variant"], row["run_id"], row["bandwidth_mbit"]) == ("priority-no_barrier", "2020", 1000)
    with pytest.raises(DdnnTracesError, match=r"compute_factors = .*it must be 2 numbers above 0"):
        run("--set", "compute_factors=[1, 2, 3]")


@pytest.mark.long
def test_a_key_that_one_of_several_jobs_uses_is_a_default_of_all(tmp_path: Path) -> None:
    text = "seed = 7\niterations = 3\nlayers = 20\nmodel_bytes = 900_000\n"
    text += "[[jobs]]\n[[jobs]]\ncompute_jitter = 0.1\nfirst_host = 2\n"
    (tmp_path / "jobs.toml").write_text(text)
    assert [row["run_id"] for row in rows(str(tmp_path / "jobs.toml"))] == ["job-1", "job-2"]
    (tmp_path / "jobs.toml").write_text(text.replace("compute_jitter = 0.1\n", ""))
    with pytest.raises(DdnnTracesError, match="seed: has no effect"):
        run(str(tmp_path / "jobs.toml"))


def test_a_file_is_a_run_and_options_win_over_it(tmp_path: Path) -> None:
    text = 'workers = 4\ntopology = "tree"\nbandwidth_mbit = 500\niterations = 3\ncompute_factors = [1, 1, 2, 1]\n'
    (tmp_path / "job.toml").write_text(text + "link_mbit = [1000, 1000, 500, 1000]\n")
    out = str(tmp_path / "dataset")
    [row] = rows(str(tmp_path / "job.toml"), "--bandwidth-mbit", "1000", "--out", out)
    assert (row["workers"], row["topology"], row["bandwidth_mbit"]) == (4, "tree", 1000)
    with ddnn_traces.open(out) as dataset:
        assert dataset.sql("SELECT max(step) FROM steps").item() == 2
        spent = dataset.sql(
            "SELECT sum(end_ns - start_ns) AS ns FROM events WHERE kind = 'backward' GROUP BY worker ORDER BY worker"
        )["ns"].to_list()
    assert float(spent[2]) == pytest.approx(2 * float(spent[0]), rel=1e-6)


def test_jobs_that_share_links_are_runs_of_one_dataset(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        "bandwidth_mbit = 1000\nworkers = 3\nmodel_bytes = 9000000\nlayers = 20\n[[jobs]]\n[[jobs]]\nstart_ms = 50\n"
    )
    found = rows(str(tmp_path / "jobs.toml"), "--out", str(tmp_path / "dataset"), "--no-layer-events")
    assert [row["run_id"] for row in found] == ["job-1", "job-2"]
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        shared = dataset.sql("SELECT count(DISTINCT host_ip) AS hosts, count(*) AS rows FROM hosts").row(0)
        kinds = dataset.sql("SELECT DISTINCT name FROM events WHERE kind = 'forward'")["name"].to_list()
    assert shared == (3, 6) and kinds == [""]


@pytest.mark.long
def test_a_measured_run_on_another_network() -> None:
    name = next(
        path.name for path in sorted((MEASURED.parent / "captures").glob("torchp2p-mlp1-sgd-32-gloo-10ms-ps-n1*"))
    )
    found = rows("--like", name, "--dataset", str(MEASURED), "--bandwidth-factor", "0.5", "--more-delay-ms", "10")
    assert [row["what"] for row in found] == ["measured", "replayed", "changed"]
    assert (found[2]["bandwidth_mbit"], found[2]["delay_ms"]) == (500, 20)


def test_the_layers_of_a_profile_are_drawn(tmp_path: Path) -> None:
    found = rows("layers", "resnet50", "--set", "loading_ms=90", "--out", str(tmp_path / "out"))
    profile = layers.read("resnet50")
    assert len(found) == 1 + 2 * profile.layers and found[0]["pass"] == "loading"
    assert found[-1]["so_far_ms"] == pytest.approx(90 + profile.compute_ns / 1e6)
    drawn = (tmp_path / "out" / "profile.svg").read_text()
    assert "forward time (ms)" in drawn and "computation so far (ms)" in drawn and ">loading<" in drawn
    assert rows("layers", "thesis", "--out", str(tmp_path / "out"))[0]["name"] == "layer-0"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "nope: no such file, and no shipped profile"),
        (["thesis", "--set", "workers=3"], "workers: no such key"),
        (["thesis", "--set", "link_mbit=[1]"], "link_mbit: is of a job; give keys of a profile: profile, layers,"),
        (["thesis", "--set", "compute_ms=slow"], "compute_ms = 'slow'; it must be a number"),
    ],
)
def test_what_is_no_profile(words: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(DdnnTracesError) as caught:
        run("layers", *words, "--out", str(tmp_path / "out"))
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_sweep_is_resumed_and_drawn(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    out = tmp_path / "out"
    first = rows("sweep", str(tmp_path / "sweep.toml"), "--out", str(out), "--jobs", "1", "--dataset")
    assert [(row["bandwidth_mbit"], row["queue"]) for row in first] == [
        (1000, "fifo"), (1000, "priority"), (5000, "fifo"), (5000, "priority"),
    ]  # fmt: skip
    assert "<svg" in (out / "iteration_time.svg").read_text()
    (out / "remaining_time.svg").write_text("of a sweep of servers before")
    with ddnn_traces.open(out / "dataset") as dataset:
        assert dataset.query("link_utilization").height == 4
    journal = (out / sweep.JOURNAL).read_text().splitlines(keepends=True)
    kept = "".join(journal[:2])
    (out / sweep.JOURNAL).write_text(kept + journal[2][:40])  # as a Ctrl-C leaves it
    assert rows("sweep", str(tmp_path / "sweep.toml"), "--out", str(out), "--jobs", "1") == first
    assert (out / sweep.JOURNAL).read_text().startswith(kept)
    assert not (out / "remaining_time.svg").exists()  # a ring has no such phases


def test_a_sweep_of_a_parameter_server_draws_what_is_left_to_send(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(
        'topology = "star"\nshape = "server"\nlayers = 20\ncompute_ms = [100, 200]\nserver_mbit = [500, 1000, 2000]\n'
    )
    rows("sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"), "--jobs", "1")
    drawn = {path.stem: path.read_text() for path in (tmp_path / "out").glob("*.svg")}
    assert drawn.keys() == {"iteration_time", "remaining_time"}
    for text in drawn.values():
        assert "rate of the server's link (Mbit/s)" in text.replace("&#39;", "'") and "compute_ms 100" in text
    assert ">aggregation</text>" in drawn["remaining_time"] and ">distribution</text>" in drawn["remaining_time"]


@pytest.mark.long
def test_processes_give_what_one_gives(tmp_path: Path) -> None:
    values = {"bandwidth_mbit": [1000 + 100 * i for i in range(20)], "layers": 20}
    one, two = (sweep.sweep(values, tmp_path / str(jobs), jobs) for jobs in (1, 2))
    assert one.equals(two) and one.height == 20


def test_a_link_in_the_place_of_a_sweeps_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / sweep.JOURNAL).symlink_to(tmp_path / "theirs")
    with pytest.raises(DdnnTracesError, match="a link, and what it leads to is not appended to"):
        sweep.sweep({"fusion_bytes": [6_280_000]}, tmp_path / "out")
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_a_cell_that_cannot_be_simulated_says_why_and_leaves_the_others(tmp_path: Path) -> None:
    frame = sweep.sweep({"fusion_bytes": [1000, 6_280_000]}, tmp_path)
    assert frame["iteration_ms"].is_null().to_list() == [True, False]
    assert str(frame["error"][0]).startswith("fusion_bytes = 1,000: the largest tensor")
    assert pl.read_parquet(tmp_path / sweep.CELLS).equals(frame)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers = 2\n", "no key has a list of values"),
        ("workers = []\n", "workers = []; give one value or more"),
        ("workers = [2, 2]\n", "each once"),
        ("worker = [2, 3]\n", "worker: no such key; did you mean workers"),
        ("workers = [2]\n[[jobs]]\n", "jobs: a sweep is of one job"),
    ],
)
def test_a_wrong_sweep_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(text)
    with pytest.raises(DdnnTracesError, match=r".") as caught:
        run("sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "out"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", "1"], "workers = 1; it must be 2"),
        (["--fusion-bytes", "10"], "the largest tensor of thesis has"),
        (["--bandwidth-mbit", "0"], "bandwidth_mbit = 0.0; it must be above 0"),
        (["--profile", "resnet50", "--set", "layers=5"], "layers: is of the thesis's profile"),
        (["--set", "layer_sizes=x"], "give all three and no profile"),
        (["--set", "compute_distribution=lognormal"], "compute_distribution: has no effect without compute_jitter"),
        (["--set", "seed=3"], "seed: has no effect without compute_jitter or topology = 'pair_averaging'"),
        (["--layer-events"], "--layer-events: is for --out DATASET"),
        (["--profile", "nothing"], "no such file, and no shipped profile"),
        (["--like", "x"], "--like and --dataset go together"),
        (["--more-delay-ms", "3"], "--more-delay-ms: is for --like RUN"),
        (["--like", "x", "--dataset", str(MEASURED), "--queue", "fifo"], "queue: --like does not change it"),
        (["--like", "x", "--dataset", str(MEASURED)], "x: no run of this name"),
        (["--set", "servers=2"], "servers = 2; it must be left out for the topology ring"),
    ],
)
def test_a_wrong_call_is_one_line_that_names_the_field(words: list[str], message: str) -> None:
    with pytest.raises(DdnnTracesError) as caught:
        run(*words)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_key_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("bandwith_mbit = 3\n")
    with pytest.raises(DdnnTracesError, match="bandwith_mbit: no such key; did you mean bandwidth_mbit"):
        run(str(tmp_path / "job.toml"))
    (tmp_path / "job.toml").write_text('workers = "3"\n')
    with pytest.raises(DdnnTracesError, match="workers = '3'; it must be a whole number"):
        run(str(tmp_path / "job.toml"))


def test_the_equations_of_the_thesis() -> None:
    found = rows("utilization", "--compute-to-network", "2", "--flow-rate", "184")
    assert found[0]["total_utilization"] == pytest.approx(0.75, abs=0.001)


@pytest.mark.long
def test_ctrl_c_leaves_a_sweep_that_goes_on(tmp_path: Path) -> None:
    """The journal has the finished cells; no process is left."""
    (tmp_path / "sweep.toml").write_text(
        "bandwidth_mbit = " + repr([1000 + i for i in range(4000)]) + "\nworkers = 30\n"
    )
    words = [str(Path(sys.executable).with_name("ddnn-traces")), "simulate", "sweep", "sweep.toml", "--out", "out"]
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, cwd=tmp_path, start_new_session=True, **pipes)
    assert process.stderr is not None
    for line in process.stderr:
        if "cells" in line:
            break
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in error and "Traceback" not in error
    assert 0 < len((tmp_path / "out" / sweep.JOURNAL).read_text().splitlines()) < 4000
    assert not (tmp_path / "out" / sweep.CELLS).exists()
