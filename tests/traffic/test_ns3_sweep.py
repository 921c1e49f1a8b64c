"""Sweeps of runs on ns-3: what is simulated, what is kept, and that the tables are those of single runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import ddnn_traces
from ddnn_traces.errors import BusyError, MissingExtra, UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.query import sweep_queries as queries
from ddnn_traces.traffic import ns3
from ddnn_traces.traffic.ns3 import ns3_results, process
from ddnn_traces.traffic.ns3 import ns3_sweep as sweeps
from ddnn_traces.traffic.simulator import specification, sweep

DOCUMENTED = Path(__file__).parents[2] / "docs" / "simulations"
SMALL = {
    "workers": 3, "layers": 10, "model_bytes": 2_000_000, "fusion_bytes": 1_000_000, "seconds": 0.2, "warm_up_s": 0.02,
    "flows_per_s": 100,
}  # fmt: skip
#: Without computation no iteration is known to end: the third ratio cannot be simulated.
AXES = {"compute_to_network": [8, 4, 0], "training_priority": ["same", "lower"]}


def write(path: Path, values: dict[str, Any]) -> Path:
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Messages]:
    """A sweep of six cells, two of them impossible, and of a dataset: its file, its folder, its messages."""
    folder = tmp_path_factory.mktemp("swept")
    file, messages = write(folder / "sweep.toml", SMALL | AXES), Messages()
    sweeps.run(file, folder / "out", 2, True, messages)
    return file, folder / "out", messages


# --- what is simulated


def test_without_a_file_it_is_the_thesis_s_campaign() -> None:
    cells = list(specification.cells(sweeps.THESIS, sweeps.ALL_KEYS))
    assert len(cells) == 160
    jobs = [ns3.job(cell) for cell in cells]
    passes = [round(float(job.profile.forward_ns.sum() + job.profile.backward_ns.sum()) / 1e6) for job in jobs]
    assert set(passes) == {2240, 1120, 560, 280}
    about = {(ms, job.flows_per_s, job.training_priority, job.seed) for ms, job in zip(passes, jobs, strict=True)}
    assert len(about) == 160
    assert {job.segment_bytes for job in jobs} == {8940} and {job.seconds for job in jobs} == {12}
    assert {(job.warm_up_s, job.cool_down_s, job.workers) for job in jobs} == {(2, 2, 8)}


def test_the_documented_campaigns() -> None:
    values = specification.read_file(DOCUMENTED / "gao_5.toml")
    whole = [ns3.job(cell) for cell in specification.cells(values, sweeps.ALL_KEYS)]
    own = [ns3.job(cell) for cell in specification.cells(sweeps.THESIS, sweeps.ALL_KEYS)]
    assert [job.parameters() for job in whole] == [job.parameters() for job in own]
    values = specification.read_file(DOCUMENTED / "gao_5_cut.toml")
    cut = [ns3.job(cell) for cell in specification.cells(values, sweeps.ALL_KEYS)]
    assert len(cut) == 32
    assert {(job.seconds, job.warm_up_s, job.cool_down_s, job.seed) for job in cut} == {(5.5, 0.5, 0.25, 0)}


def test_cells_with_more_packets_are_the_first() -> None:
    cells = specification.cells({**sweeps.THESIS, "seed": 0}, sweeps.ALL_KEYS)
    costs = {(cell["compute_to_network"], cell["flows_per_s"]): sweeps.packets(cell) for cell in cells}
    assert max(costs, key=costs.__getitem__) == (2, 184) and min(costs, key=costs.__getitem__) == (16, 23)
    # 8 hosts send 175 MB in 280 ms and 184 flows/s in 12 s, in packets of 8940 bytes
    mean = ns3.job({}).sizes.mean
    assert costs[2, 184] == pytest.approx(8 * 12 * (175e6 / 0.28 + 184 * mean) / 8940, rel=0.03)


def test_a_missing_ns3_is_one_line_before_any_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(*_: object) -> None:
        raise MissingExtra("ns-3 is not installed")

    monkeypatch.setattr(process, "find", find)
    with pytest.raises(MissingExtra, match="ns-3 is not installed"):
        sweeps.run(None, tmp_path / "out", 1, False, Messages())
    assert not (tmp_path / "out").exists()


def test_what_is_missing_for_all_cells_is_no_error_of_a_cell(tmp_path: Path) -> None:
    def measures(_: sweep.Row) -> sweep.Row:
        raise MissingExtra("a header is missing")

    with pytest.raises(MissingExtra, match="a header is missing"):
        sweep.sweep({"seed": [1, 2]}, tmp_path, simulation=sweep.Simulation(measures, sweeps.ALL_KEYS))
    assert (tmp_path / sweep.JOURNAL).read_text() == ""


def test_cells_are_given_out_by_cost_and_finished_ones_are_kept(tmp_path: Path) -> None:
    seen = []

    def measures(cell: sweep.Row) -> sweep.Row:
        seen.append(cell["seed"])
        if cell["seed"] == 2 and len(seen) < 4:
            raise KeyboardInterrupt
        return {"twice": 2 * cell["seed"]}

    simulation = sweep.Simulation(measures, sweeps.ALL_KEYS, cost=lambda cell: float(cell["seed"]))
    values = {"seed": [1, 2, 3]}
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(values, tmp_path, simulation=simulation)
    assert seen == [3, 2]
    frame = sweep.sweep({"seed": [1, 3]}, tmp_path, simulation=simulation)  # another sweep goes on from the same cells
    assert seen == [3, 2, 1] and frame["twice"].to_list() == [2, 6]
    left = []
    frame = sweep.sweep(values, tmp_path, 1, lambda *numbers: left.append(numbers), simulation)
    assert seen == [3, 2, 1, 2] and frame["twice"].to_list() == [2, 4, 6]
    assert left == [(3, 3, 0.0)]


def test_two_sweeps_do_not_write_one_folder(tmp_path: Path) -> None:
    def measures(_: sweep.Row) -> sweep.Row:
        with pytest.raises(BusyError, match="another sweep writes there; wait until it has ended"):
            sweep.sweep({"seed": [1]}, tmp_path, simulation=simulation)
        return {"is_refused": True}

    simulation = sweep.Simulation(measures, sweeps.ALL_KEYS)
    assert sweep.sweep({"seed": [1]}, tmp_path, simulation=simulation)["is_refused"].to_list() == [True]


# --- what comes out


@pytest.mark.ns3
def test_a_row_a_cell_and_why_it_cannot_be_simulated(swept: tuple[Path, Path, Messages]) -> None:
    _, out, messages = swept
    cells = pl.read_parquet(out / "cells.parquet")
    assert cells["cell"].to_list() == [0, 1, 2, 3, 4, 5]
    assert cells["ended"].to_list() == ["simulated time"] * 4 + [None] * 2
    assert cells["error"].is_null().to_list() == [True] * 4 + [False] * 2
    assert str(cells["error"][4]) == "compute_to_network = 0; it must be above 0"
    assert [line for line in messages.warnings if "2 cells of 6 cannot be simulated" in line]
    assert cells["expected_utilization"].to_list()[:4] == [1 / 8, 1 / 8, 1 / 4, 1 / 4]


@pytest.mark.ns3
def test_tables_are_those_of_single_runs(swept: tuple[Path, Path, Messages]) -> None:
    _, out, _ = swept
    single = ns3.simulate(ns3.job({**SMALL, "compute_to_network": 4, "training_priority": "lower"}), process.find())
    row = pl.read_parquet(out / "cells.parquet").row(3, named=True)
    alike = {name for name in ns3_results.summary(single) if "wall" not in name and name != "events_per_s"}
    assert {name: row[name] for name in alike} == {name: ns3_results.summary(single)[name] for name in alike}
    of_cell = {name: pl.read_parquet(out / f"{name}.parquet").filter(cell=3).drop("cell") for name in sweeps.TABLES}
    assert of_cell["transfers"].equals(single.partitions)
    flows = of_cell["background_flows"]
    assert flows["end_ns"].fill_null(-1).to_list() == single.background["end_ns"].to_list()
    is_in = [start >= 0.02e9 for start in single.background["start_ns"]]
    assert flows["is_measured"].to_list() == is_in and 0 < sum(is_in) < len(is_in)
    passes = of_cell["layers"].filter(kind="backward", step=0).sort("layer", descending=True)
    assert passes["layer"].to_list() == list(range(9, -1, -1))
    assert passes["start_ns"][0] == pytest.approx(single.schedule.forward_end[0, 0], abs=1)
    assert (passes["end_ns"] - passes["start_ns"]).to_list() == pytest.approx(
        single.run.profile.backward_ns[::-1].tolist(), abs=1
    )
    buffers = pl.read_parquet(out / "buffers.parquet").filter(cell=3)
    assert buffers["bytes"].to_list() == [buffer.bytes for buffer in single.run.buffers]


@pytest.mark.ns3
def test_the_dataset_has_the_runs(swept: tuple[Path, Path, Messages]) -> None:
    _, out, _ = swept
    with ddnn_traces.open(out / "dataset") as dataset:
        runs = dataset.sql("SELECT run_id, source FROM runs ORDER BY run_id").rows()
        sent = dataset.sql("SELECT sum(payload_bytes)::BIGINT AS bytes FROM flows WHERE dst_port = 43000").item()
    assert ("compute_to_network_4-training_priority_lower", "ns3") in runs and len(runs) == 4
    assert sent > 0


@pytest.mark.ns3
def test_the_queries_answer(swept: tuple[Path, Path, Messages]) -> None:
    _, out, _ = swept
    found = queries.run(out, "sharing_results").filter(measure="iteration_ms")
    assert found["compute_to_network"].to_list() == [4, 8] and found["same"].is_not_null().all()
    cells = pl.read_parquet(out / "cells.parquet")
    assert found["same"].to_list() == [cells["iteration_ms"][2], cells["iteration_ms"][0]]
    counts = queries.run(out, "flow_counts").filter(pl.col("size") == "all", pl.col("seed").is_not_null())
    assert set(counts["collected"]) == set(cells["all_flows"].drop_nulls())


# --- what is kept


@pytest.mark.ns3
def test_finished_cells_are_not_simulated_again(swept: tuple[Path, Path, Messages], tmp_path: Path) -> None:
    """An interrupt cuts the last line, or leaves a finished folder that no line names."""
    file, before, _ = swept
    out = tmp_path / "out"
    shutil.copytree(before, out)
    lines = (out / sweep.JOURNAL).read_text().splitlines(keepends=True)
    of_kind = {line: json.loads(line)[1]["error"] is None for line in lines}
    kept = [line for line in lines if of_kind[line]][:3] + [line for line in lines if not of_kind[line]]
    (out / sweep.JOURNAL).write_text("".join(kept) + '["half')
    again = sweeps.run(file, out, 2, False, Messages())
    written = (out / sweep.JOURNAL).read_text().splitlines(keepends=True)
    assert written[: len(kept)] == kept and len(written) == len(kept) + 1
    timing = ["wall_s", "events_per_s", "simulated_per_wall"]
    assert again.drop(timing).equals(pl.read_parquet(before / "cells.parquet").drop(timing))
    for name in sweeps.TABLES:
        assert (out / f"{name}.parquet").read_bytes() == (before / f"{name}.parquet").read_bytes()


@pytest.mark.ns3
def test_a_cell_at_its_time_limit_is_kept_and_counted(tmp_path: Path) -> None:
    values = {**SMALL, "seconds": 1000, "compute_to_network": 8, "time_limit_s": 2, "training_priority": ["same"]}
    messages = Messages()
    frame = sweeps.run(write(tmp_path / "sweep.toml", values), tmp_path / "out", 1, False, messages)
    assert frame["ended"].to_list() == ["time limit"] and 0 < frame["simulated_s"].item() < 1000
    [warning] = messages.warnings
    assert warning.startswith("1 cell of 1 stopped at time_limit_s") and "training_priority same" in warning


def processes_with(word: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in path.read_bytes().decode(errors="replace"):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.mark.ns3
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_leaves_no_process(sent: signal.Signals, tmp_path: Path) -> None:
    file = write(tmp_path / "sweep.toml", {**SMALL, "seconds": 1000, "seed": [0, 1]})
    words = [sys.executable, "-c", "from ddnn_traces.cli import main; main()", "ns3", "sweep", str(file)]
    words += ["--out", str(tmp_path / "out"), "--jobs", "2"]
    process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while len([path for path in processes_with(str(tmp_path / "out")) if path != str(process.pid)]) < 2:
        assert time.monotonic() < deadline, "no simulation began"
        time.sleep(0.2)
    os.kill(process.pid, sent)
    process.communicate(timeout=60)
    while processes_with(str(tmp_path)):
        assert time.monotonic() < deadline + 30, "a process was left"
        time.sleep(0.2)
    assert (tmp_path / "out" / sweep.JOURNAL).read_text() == "" and not (tmp_path / "out" / "cells.parquet").exists()
    if sent != signal.SIGKILL:
        assert list((tmp_path / "out" / "cells").iterdir()) == []


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"workers": 3}, "no key has a list of values"),
        ({"seed": [1, 1]}, "each once"),
        ({"seed": []}, "give one value or more"),
    ],
)
def test_a_wrong_file_is_one_line(values: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        sweeps.run(write(tmp_path / "sweep.toml", values), tmp_path / "out", 1, False, Messages())
    assert not (tmp_path / "out").exists()
