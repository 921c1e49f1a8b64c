"""What explains a run's volume: the cases in which conservation once took what was missing for its explanation."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from small_runs import BEGIN_NS, A, B, C, D, Packet, read_folder, sent_by, write_captures, write_log
from tools import mostly_long

import ddnn_traces
from ddnn_traces.query.dataset import Dataset

SAMPLE = Path(__file__).parents[2] / "tests" / "traces" / "runs"
EXPLANATIONS = ["spilled_bytes", "startup_bytes", "startup_in_steps_bytes", "retransmitted_bytes", "framing_bytes"]
MS = 1_000_000


def conservation(dataset: Dataset) -> dict[str, dict[str, Any]]:
    return {row["run_id"]: row for row in dataset.query("conservation").to_dicts()}


@pytest.fixture(scope="module")
def of_the_sample(sample_dataset: Dataset) -> dict[str, dict[str, Any]]:
    return conservation(sample_dataset)


@pytest.mark.long
def test_a_lossy_ring_leaves_what_its_siblings_leave(of_the_sample: dict[str, dict[str, Any]]) -> None:
    """They have as many steps and send the same messages; the lossy one repeats 0.5% of its packets."""
    lossless, lossy = (of_the_sample[f"torch-mlp1-sgd-32-gloo-0ms-ring{word}"] for word in ("", "-loss05"))
    assert lossy["retransmitted_bytes"] > 4 * lossless["retransmitted_bytes"]
    assert lossless["framing_bytes"] == lossy["framing_bytes"] == 23488
    assert lossless["unexplained_bytes"] == lossy["unexplained_bytes"] == -352


@pytest.mark.long
def test_the_regression_divides_by_the_same_law(
    sample_dataset: Dataset, of_the_sample: dict[str, dict[str, Any]]
) -> None:
    """One of them, tf-mlp1-sgd-32-grpc-0ms-ps, has a coordinator's log, in which each step is one worker's."""
    volumes = sample_dataset.query("run_step_volume")
    assert {row["run_id"]: (row["law_factor"], row["steps"]) for row in volumes.to_dicts()} == {
        run: (row["total_factor"], row["exchanges"]) for run, row in of_the_sample.items()
    }


@pytest.mark.long
def test_pair_averaging_counts_all_that_was_requested(of_the_sample: dict[str, dict[str, Any]]) -> None:
    """Fast workers serve slower ones after their own last step: two models here, more than half a step."""
    row = of_the_sample["torchp2p-mlp1-pairavg-32-gloo-0ms-gossip"]
    assert row["spilled_bytes"] == 2 * row["model_bytes"] - 8
    assert abs(row["unexplained_share"]) < 0.0004


@pytest.mark.long
def test_nothing_is_unexplained_by_construction(of_the_sample: dict[str, dict[str, Any]]) -> None:
    assert [name for name, row in of_the_sample.items() if row["unexplained_bytes"] == 0] == []
    assert [name for name, row in of_the_sample.items() if row["flagged"] is not False] == []


def changed(
    sample_dataset: Dataset, tmp_path: Path, table: str, change: Callable[[pl.DataFrame], pl.DataFrame]
) -> Dataset:
    """The sample's dataset with another content of a table."""
    shutil.copytree(sample_dataset.path, tmp_path / "dataset", dirs_exist_ok=True)
    for path in (tmp_path / "dataset").glob(f"{table}/*/*.parquet"):
        frame = pl.read_parquet(path, hive_partitioning=False)
        change(frame).cast(frame.schema).write_parquet(path)
    return ddnn_traces.open(tmp_path / "dataset")


@pytest.mark.long
def test_explanations_do_not_know_what_is_missing(
    sample_dataset: Dataset, of_the_sample: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """Models that are 3% larger than declared: all of the difference is unexplained, and nothing else changes."""
    larger = pl.col("model_bytes") * 103 // 100
    with changed(sample_dataset, tmp_path, "runs", lambda frame: frame.with_columns(model_bytes=larger)) as dataset:
        found = conservation(dataset)
    for name, row in of_the_sample.items():
        other = found[name]
        assert {key: other[key] for key in EXPLANATIONS} == {key: row[key] for key in EXPLANATIONS}
        more = other["expected_bytes"] - row["expected_bytes"]
        assert other["unexplained_bytes"] == row["unexplained_bytes"] - more
        assert other["flagged"]


@pytest.mark.long
def test_payload_that_was_not_captured_is_found(
    sample_dataset: Dataset, of_the_sample: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    """A twentieth of the payload of all steps but the first is lost: less than half a step, which was once spill."""
    lost = pl.when(pl.col("step") > 0).then(pl.col("payload_bytes") // 20).otherwise(0)
    less = pl.col("payload_bytes") - lost
    with changed(
        sample_dataset, tmp_path, "step_flows", lambda frame: frame.with_columns(payload_bytes=less)
    ) as dataset:
        found = conservation(dataset)
    for name, row in of_the_sample.items():
        assert found[name]["flagged"] and found[name]["unexplained_share"] < -0.03
        for key in EXPLANATIONS[:-1]:  # framing is counted in steps, too
            assert found[name][key] == row[key]


@pytest.mark.long
@pytest.mark.parametrize("name", ["mpi-mlp1-sgd-32-openmpi-0ms-recdoubling", "torchp2p-mlp4-sgd-32-gloo-0ms-star-tso"])
def test_with_the_log_of_one_worker_spill_lasts_until_the_pair_is_silent(tmp_path: Path, name: str) -> None:
    run = tmp_path / name
    run.mkdir()
    for pattern in ("*.pcap*", "run.toml", "train_history.log"):
        for path in (SAMPLE / name).glob(pattern):
            shutil.copy(path, run)
    with read_folder(run) as dataset:
        row = conservation(dataset)[name]
    assert row["spilled_bytes"] > 1_000_000
    assert abs(row["unexplained_share"]) < 0.0002
    assert "3 of 4 hosts have no log" in row["not_estimated"]


# --- an asynchronous parameter server: each worker gets the model, then sends gradients and gets new models

MODEL, STEPS = 60_000, 8


def asynchronous_server(
    folder: Path, *, pulls_in_steps: bool, server_logs: bool, last_worker_steps: int = STEPS,
    starts_ms: tuple[int, int, int] = (100, 107, 114), window_ms: float = 1, logs: int = 3,
) -> Dataset:  # fmt: skip
    """One frame of MODEL bytes for each gradient and model; workers of different speed; `run` is its name."""
    packets, updates = [], []
    run = folder / "run"
    run.mkdir(parents=True)
    sequence = dict.fromkeys(itertools.product((A, B, C, D), (A, B, C, D)), 0)
    events: list[tuple[int, str, str]] = []
    for number, worker in enumerate((B, C, D)):
        begin = at = BEGIN_NS + starts_ms[number] * MS
        events.append((at + MS if pulls_in_steps else at - 30 * MS, A, worker))
        ends = []
        for _ in range(last_worker_steps if worker == D else STEPS):
            events += [(at + (20 + 9 * number) * MS, worker, A), (at + (22 + 9 * number) * MS, A, worker)]
            updates.append(at + (21 + 9 * number) * MS)
            at += (24 + 9 * number) * MS
            ends.append(at)
        label = f"worker-{number + 2}"
        if number >= logs:
            continue
        write_log(run, label, ends)
        rows = [f"0,{begin // 10**9}.{begin % 10**9:09d},,,"]
        (run / f"phases-{label}.csv").write_text("\n".join(["step,t_begin,t_comm_begin,t_comm_end,t_end", *rows, ""]))
    for time_ns, src, dst in sorted(events):
        packets.append(Packet(time_ns, src, dst, MODEL, ports=(4000, 4000), seq=sequence[src, dst]))
        sequence[src, dst] += MODEL
    if server_logs:
        write_log(run, "worker-1", sorted(updates))
    write_captures(
        run, {f"worker-{i}-tcpdump.pcap": filter(sent_by(host), packets) for i, host in enumerate((A, B, C, D), 1)}
    )
    (run / "run.toml").write_text(f'model_bytes = {MODEL}\nbackend = "gloo"\ntopology = "parameter_server"\n')
    return read_folder(run, window_ms=window_ms)


@pytest.mark.parametrize("first_models", mostly_long(["in steps", "before steps"], "in steps"))
@pytest.mark.parametrize("server", mostly_long(["with a log", "without a log"]))
def test_an_asynchronous_server_hands_out_the_first_models(tmp_path: Path, first_models: str, server: str) -> None:
    """Three workers get a model before they send a gradient, and one after each of them."""
    pulls_in_steps = first_models == "in steps"
    with asynchronous_server(tmp_path, pulls_in_steps=pulls_in_steps, server_logs=server == "with a log") as dataset:
        row = conservation(dataset)["run"]
    assert row["topology"] == "star"
    assert row["expected_bytes"] == 2 * 3 * STEPS * MODEL
    assert row["startup_bytes"] == 3 * MODEL
    assert row["startup_in_steps_bytes"] == (3 * MODEL if pulls_in_steps else 0)
    assert row["unexplained_bytes"] == 0


@pytest.mark.parametrize(
    "case",
    [{"window_ms": 100}, {"starts_ms": (430, 171, 114)}],
    ids=["windows of several steps", "a late first worker"],
)
@pytest.mark.long_after(1)
def test_first_models_do_not_depend_on_windows_and_starts(tmp_path: Path, case: dict[str, Any]) -> None:
    """Once, 2.86 MB of three first models were unnamed, and gradients before the first worker's log were start-up."""
    with asynchronous_server(tmp_path, pulls_in_steps=True, server_logs=False, **case) as dataset:
        row = conservation(dataset)["run"]
    assert (row["startup_in_steps_bytes"], row["unexplained_bytes"]) == (3 * MODEL, 0)


def test_nothing_is_flagged_where_workers_of_a_server_have_no_log(tmp_path: Path) -> None:
    """They may have done more steps than those that have one."""
    with asynchronous_server(tmp_path, pulls_in_steps=True, server_logs=False, logs=1) as dataset:
        row = conservation(dataset)["run"]
    assert row["flagged"] is None and "1 of 3 have a log" in row["problem"]


@pytest.mark.long
def test_asynchronous_workers_of_fewer_steps_exchange_less(tmp_path: Path) -> None:
    with asynchronous_server(tmp_path, pulls_in_steps=True, server_logs=False, last_worker_steps=5) as dataset:
        row = conservation(dataset)["run"]
        (volume,) = dataset.query("run_step_volume", response="payload").to_dicts()
    assert (row["steps"], row["exchanges"]) == (STEPS, (2 * STEPS + 5) / 3)
    assert row["expected_bytes"] == 2 * (2 * STEPS + 5) * MODEL
    assert (row["startup_bytes"], row["unexplained_bytes"]) == (3 * MODEL, 0)
    assert volume["step_bytes"] * row["exchanges"] == pytest.approx(
        row["payload_bytes"] + row["spilled_bytes"], rel=1e-9
    )
