"""Measured runs on another network: the law, its calibration, and what it predicts of runs that it has not seen."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from datasets import write_dataset
from hypothesis import assume, given
from hypothesis import strategies as st

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic.simulator import what_if, what_if_score
from ddnn_traces.traffic.simulator.what_if import Calibration, Change, Facts, Program

MEASURED = Path(__file__).parents[2] / "data" / "dataset"
HEADERS = 1 + 66 / 1448
RUN = Facts(
    "r", "torch ring m 32 4", "torch ring", "ring", 4_000_000, 4, 1000.0, 0.0, 0.0, None, None, 10, 100.0, 40.0, 32, "m"
)  # fmt: skip
STAR = replace(RUN, topology="star", program="torch star", job="torch star m 32 4", step_ms=300.0)


@pytest.fixture(scope="module")
def dataset() -> Iterator[Dataset]:
    """The released runs, which are read once for all tests."""
    with ddnn_traces.open(MEASURED) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr(what_if, "read", functools.cache(what_if.read))
        yield opened


@pytest.fixture(scope="module")
def facts(dataset: Dataset) -> list[Facts]:
    return what_if.read(dataset)[0]


def test_transmission_is_that_of_the_law() -> None:
    assert RUN.transmission_ms == pytest.approx(2 * 3 / 4 * 4e6 * HEADERS * 8 / 1e6)
    star = replace(RUN, topology="parameter_server")
    assert star.transmission_ms == pytest.approx(2 * 4 * 4e6 * HEADERS * 8 / 1e6)


def test_a_token_bucket_passes_once_what_it_holds() -> None:
    """Of a ring's rounds, which follow each other at once, only the first; of a server's phases each host's once."""
    burst = 262_144
    ring = replace(RUN, burst_bytes=burst)
    star = replace(ring, topology="parameter_server")
    assert ring.transmission_ms == pytest.approx((2 * 3 / 4 * 4e6 * HEADERS - burst) * 8 / 1e6)
    assert star.transmission_ms == pytest.approx(((1 + 4) * 4e6 * HEADERS - 2 * burst) * 8 / 1e6)


def test_latency_is_never_hidden_by_computation() -> None:
    """Rounds cost their delay in full; windows wait while bytes are sent, and in a ring so does all latency."""
    program = Program(2.0, 1e6)
    star, ring = (Calibration({run.program: program}, {run.job: 50.0}, exponent=2) for run in (STAR, RUN))
    assert star.step_ms(STAR) == pytest.approx(50 + STAR.transmission_ms)
    waiting = 10 * 2 + 2 * 10 * 2 * 4  # one more delay for each of 2 rounds; of each round 4 windows, a round trip each
    sent = (STAR.transmission_ms**2 + waiting**2) ** 0.5
    assert star.step_ms(replace(STAR, delay_ms=10.0)) == pytest.approx(50 + 2 * 10 + sent)
    latency = 2 * 6 * 10 + 2 * 10 * 6  # a round of a ring of 4 sends a quarter of the model: a window
    slow = replace(RUN, delay_ms=10.0)
    assert ring.step_ms(slow) == pytest.approx(50 + (RUN.transmission_ms**2 + latency**2) ** 0.5, rel=1e-4)


def test_what_events_show_to_be_hidden_is_not_waited_for() -> None:
    overlapped = replace(STAR, overlap_share=0.1)
    calibration = Calibration({}, {STAR.job: 50.0})
    assert calibration.step_ms(overlapped) == pytest.approx(50 + 0.9 * STAR.transmission_ms)
    slow = replace(overlapped, bandwidth_mbit=10.0)  # no more than computation lasts
    assert calibration.step_ms(slow) == pytest.approx(50 + slow.transmission_ms - 40)


_PROGRAMS = st.builds(Program, st.floats(1, 10), st.floats(1e4, 1e9))
_RUNS = st.builds(
    lambda topology, **values: replace(RUN, topology=topology, program=topology, job=topology, **values),
    topology=st.sampled_from(["ring", "star", "tree", "clique", "halving_doubling", "pair_averaging"]),
    model_bytes=st.integers(1_000, 10**9),
    workers=st.sampled_from([2, 4, 8]),
    bandwidth_mbit=st.floats(1, 1e5),
    delay_ms=st.floats(0, 500),
    step_ms=st.floats(1, 1e5),
    compute_ms=st.none() | st.floats(0, 1e4),
    overlap_share=st.sampled_from([0.0, 0.3, 1.0]),
)


@given(_RUNS, _PROGRAMS, st.floats(0, 500), st.sampled_from(what_if_score.EXPONENTS))
def test_no_prediction_is_below_the_floor(run: Facts, program: Program, more: float, exponent: float) -> None:
    """The floor of a condition; and of rounds that follow one another, each added delay in full."""
    calibration = Calibration({run.program: program}, {}, exponent)
    own = max(run.compute_ms or 0.0, 1.0)
    slower = replace(run, delay_ms=run.delay_ms + more)
    before, after = (calibration.step_ms(facts, own) for facts in (run, slower))
    assert before >= run.floor_ms * (1 - 1e-9) and after >= slower.floor_ms * (1 - 1e-9)
    if run.topology != "ring" and run.overlap_share == 0:
        assert after - before >= run.rounds * more - 1e-6 * after


@given(_RUNS, st.floats(0.01, 100), st.floats(0, 500))
def test_no_changed_run_is_below_the_floor(run: Facts, factor: float, more: float) -> None:
    run = replace(run, step_ms=max(run.step_ms, 0.98 * run.floor_ms))
    rows = what_if.like([run], run.run_id, Change(bandwidth_factor=factor, more_delay_ms=more))
    changed = rows.row(-1, named=True)
    assume(changed["what"] == "changed")  # the replay is the last row where nothing is: 1e-97 ms more is no change
    assert changed["step_ms"] >= changed["floor_ms"] * (1 - 1e-9)
    if factor == 1 and run.topology != "ring" and run.overlap_share == 0:
        assert changed["step_ms"] >= run.step_ms + run.rounds * more - 1e-6


def test_a_run_that_sent_more_than_its_links_carry_is_refused() -> None:
    """Its rate is declared wrongly: its bytes take 33 times as long at 3 Mbit/s as its step."""
    with pytest.raises(UsageError, match=r"r: its step of 100 ms is shorter than .* ms that .* links of 3 Mbit/s"):
        what_if.like([replace(STAR, step_ms=100.0, bandwidth_mbit=3.0)], "r", Change(bandwidth_factor=2))


def test_hosts_of_pair_averaging_send_while_others_compute() -> None:
    alone = replace(STAR, topology="pair_averaging", compute_ms=80.0, overlap_share=0.2, delay_ms=0.0)
    exchange = alone.transmission_ms
    assert alone.floor_ms == max(80.0, exchange)
    assert replace(alone, compute_ms=exchange / 2).floor_ms == exchange


def test_added_delay_counts_in_each_round() -> None:
    """A tree of four hosts has four rounds: 8 ms more are 32 ms more at least, where the root of squares had 7."""
    tree = replace(STAR, topology="tree", step_ms=327.6)
    assert tree.rounds == 4
    changed = what_if.like([tree], "r", Change(more_delay_ms=8)).row(2, named=True)
    assert changed["step_ms"] >= 327.6 + 4 * 8


@pytest.mark.long
def test_measured_runs_are_above_their_floor(facts: list[Facts]) -> None:
    """Without the 18 runs of several ranks a host, whose rounds are not modelled."""
    assert len(facts) == 259 and [f.run_id for f in facts if f.step_ms < f.floor_ms] == []
    # TensorFlow's chief sees its workers compute while others send
    hidden = {f.program: round(f.overlap_share, 2) for f in facts if f.overlap_share >= 0.1}
    assert hidden == {"tf-grpc parameter_server": 0.53, "torchp2p-gloo pair_averaging": 0.25}


def test_constants_that_made_runs_are_found_again() -> None:
    true = Calibration({"torch star": Program(2.5, 3e6)}, {STAR.job: 60.0})
    runs = [
        replace(STAR, run_id=f"{rate}-{delay}", bandwidth_mbit=float(rate), delay_ms=float(delay))
        for rate in (100, 300, 1000)
        for delay in (0, 5, 20, 50)
    ]
    other = replace(STAR, job="torch star n 32 4", model_bytes=20_000_000)
    runs += [replace(other, run_id=f"other-{delay}", delay_ms=float(delay)) for delay in (0, 30)]
    true = replace(true, jobs={**true.jobs, other.job: 90.0})
    found = what_if.calibrate([replace(run, step_ms=true.step_ms(run)) for run in runs])
    assert found.jobs == pytest.approx(true.jobs, rel=0.02)
    program = found.programs["torch star"]
    assert (program.rounds, program.window_bytes) == pytest.approx((2.5, 3e6), rel=0.05)


def test_no_job_is_fitted_to_and_scored() -> None:
    """A job that contradicts the others changes no prediction of its own: constants and exponent are of the others."""
    base = [replace(STAR, run_id="a"), replace(STAR, run_id="b", delay_ms=20.0, step_ms=400.0)]
    others = [replace(f, job="other", run_id=f"{f.run_id}o", model_bytes=8_000_000) for f in base]
    contrary = [base[0], replace(base[1], step_ms=4_000.0)]
    predicted = [
        rows.filter(job=STAR.job, condition=base[1].condition)["predicted_ms"].item()
        for rows in (what_if_score.score(base + others), what_if_score.score(contrary + others))
    ]
    assert predicted[0] == pytest.approx(predicted[1])
    alone = what_if_score.score([*base, *(replace(f, job="p", program="p") for f in base)])
    assert set(alone["exponent"]) <= set(what_if_score.EXPONENTS)


def test_classes_are_of_conditions() -> None:
    """All conditions are scored, those with loss too; no measured time makes a class."""
    lossy = replace(STAR, run_id="l", loss_pct=1.0, congestion_control="cubic", step_ms=9_000.0)
    slow = replace(STAR, run_id="d", delay_ms=20.0, step_ms=390.0)
    rows = what_if_score.score([STAR, slow, lossy])
    assert rows["class"].to_list() == ["no loss", "loss, cubic", "no loss"]
    assert rows["error"][1] < -0.9
    with pytest.raises(UsageError, match="l: loss_pct = 1: what TCP sends again is not in the law"):
        what_if.like([STAR, lossy], "l", Change(bandwidth_factor=2))


def test_intervals_are_of_other_errors() -> None:
    assert what_if_score.quantile([0.1] * 8) is None
    errors = [i / 100 for i in range(1, 20)]
    assert what_if_score.quantile(errors) == pytest.approx(2.718281828**0.18)


@pytest.mark.long
def test_the_exponent_of_a_question_is_that_of_the_least_error(facts: list[Facts]) -> None:
    assert what_if_score.LeftOut(facts).choice(None)[0] == what_if.EXPONENT


@pytest.mark.long
def test_what_is_predicted_of_measured_runs(facts: list[Facts]) -> None:
    """docs/what_if_score.md has the table. Two runs of one condition differ by more than the median error."""
    rows = what_if_score.score(facts)
    said = what_if_score.summary(rows)
    clean = rows.filter(pl.col("class") == "no loss")
    assert len(rows) == 50 and len(clean) == 34
    errors = clean["error"].abs()
    assert errors.median() < 0.07 and errors.mean() < 0.09
    assert errors.mean() < clean["additive_error"].abs().mean() / 2
    assert errors.median() < clean["repeat_error"].drop_nulls().median()
    covered = clean.filter(pl.col("measured_ms").is_between("low_ms", "high_ms"))
    assert 0.85 <= len(covered) / len(clean) <= 0.95
    assert said[0].startswith("no loss: median error 6.") and "of 34 conditions" in said[0]


def test_a_run_without_a_declared_size_has_that_of_its_volume(tmp_path: Path) -> None:
    from ddnn_traces.traffic import simulator
    from ddnn_traces.traffic.simulator.job import SimulatedRun
    from ddnn_traces.traffic.simulator.layers import thesis
    from ddnn_traces.traffic.table_writer import write_traffic

    run = SimulatedRun(workers=4, steps=4, profile=thesis(20, 4_000_000, 90))
    write_traffic(tmp_path / "dataset", [simulator.traffic(simulator.simulate(run))])
    with ddnn_traces.open(tmp_path / "dataset") as opened:
        row = opened.query("replay_facts").row(0, named=True)
    facts = replace(RUN, model_bytes=0)
    assert what_if._sized(facts, row["step_payload_bytes"]).model_bytes == pytest.approx(run.model_bytes, rel=1e-5)
    assert row["step_ms"] == pytest.approx(float(simulator.simulate(run).iteration_ms.mean()), rel=1e-6)
    assert row["compute_ms"] == pytest.approx(90, rel=1e-6)


@pytest.mark.long
def test_ten_times_less_bandwidth_and_more_delay(dataset: Dataset) -> None:
    name = "torchp2p-resnet_like-sgd-32-gloo-1ms-ps-n1-r1"
    rows = what_if_score.of_run(dataset, name, {"bandwidth_factor": 0.1})
    measured, replayed, changed = rows.iter_rows(named=True)
    assert measured["error"] is None and abs(replayed["error"]) < 0.2
    assert changed["bandwidth_mbit"] == 100
    sent = changed["transmission_ms"] - measured["transmission_ms"]
    assert changed["step_ms"] == pytest.approx(measured["step_ms"] + sent, rel=0.02)
    assert changed["floor_ms"] <= changed["low_ms"] < changed["step_ms"] < changed["high_ms"]
    later = what_if_score.of_run(dataset, name, {"more_delay_ms": 200}).row(2, named=True)
    assert later["delay_ms"] == 201 and later["step_ms"] > 4 * 200


def test_another_model_and_batch() -> None:
    """Computation is that of other runs, software grows with the bytes; cores that workers share are a factor."""
    big = replace(STAR, run_id="big", job="b", model="big", model_bytes=8_000_000, compute_ms=300.0, step_ms=700.0)
    batch = replace(STAR, run_id="b64", job="c", batch_size=64, compute_ms=70.0)
    facts = [STAR, big, batch]
    software = STAR.step_ms - STAR.transmission_ms - 40

    def changed(run: Facts, **values: object) -> dict[str, object]:
        return what_if.like([run, *facts[1:]], "r", Change(**values)).row(2, named=True)  # type: ignore[arg-type]

    assert changed(STAR, batch_size=64)["step_ms"] == pytest.approx(300 + 30)
    assert changed(STAR, batch_size=128)["computation_ms"] == pytest.approx(40 + 3 * 30)  # the line of 32 and 64
    after = changed(STAR, model="big")
    assert after["software_ms"] == pytest.approx(2 * software)
    assert after["step_ms"] == pytest.approx(300 + 2 * software + 2 * STAR.transmission_ms)
    assert changed(STAR, compute_ms=90)["step_ms"] == pytest.approx(350)
    assert changed(STAR, workers=8, cores=2)["computation_ms"] == pytest.approx(40 * 2)
    assert changed(STAR, cores=8, workers=8)["computation_ms"] == pytest.approx(40)


@pytest.mark.long
def test_workers_that_share_cores_compute_longer(facts: list[Facts]) -> None:
    """Three workers of resnet_like on the testbed's two cores: 1.5 times as long by the term, 1.6 measured."""
    times = {
        n: sorted(f.compute_ms or 0 for f in facts if f.job.endswith(f"parameter_server resnet_like 32 {n}"))
        for n in (1, 3)
    }
    medians = {n: found[len(found) // 2] for n, found in times.items()}
    assert medians[3] / medians[1] == pytest.approx(3 / 2, rel=0.15)


def test_what_is_asked_must_be_possible() -> None:
    facts = [RUN]
    for change, message in (
        (Change(bandwidth_mbit=1, bandwidth_factor=2), "contradict each other"),
        (Change(bandwidth_mbit=-1), "bandwidth_mbit = -1"),
        (Change(delay_ms=-1), "delay_ms"),
        (Change(workers=10**6), "workers = 1000000"),
        (Change(workers=0), "workers = 0"),
        (Change(topology="mesh"), "there is no law for the topology mesh"),
        (Change(model="x"), "model = x: no run of this dataset has it; give model_bytes and compute_ms"),
        (Change(batch_size=64), "batch_size = 64: no run of m tells its computation; give compute_ms"),
        (Change(batch_size=-1), "batch_size = -1"),
    ):
        with pytest.raises(UsageError, match=message):
            what_if.like(facts, "r", change)
    with pytest.raises(UsageError, match="q: no run of this name; there are r"):
        what_if.like(facts, "q", Change())
    with pytest.raises(UsageError, match="q: no run of this name, and no other that can be replayed"):
        what_if.like([], "q", Change())


def test_a_run_without_log_and_metadata_is_told_all_that_is_missing(tmp_path: Path) -> None:
    runs = pl.DataFrame([{"run_id": "r", "source": "capture"}])
    with write_dataset(tmp_path / "dataset", {"runs": runs}) as dataset, pytest.raises(UsageError) as error:
        what_if_score.of_run(dataset, "r", {"bandwidth_factor": 2})
    assert str(error.value) == (
        "r: cannot be replayed: no logged step but the first: ingest it with a train_history.log in its folder, or "
        "give --infer-steps; not "
        "declared in its run.toml or runs.csv: model_bytes, workers (no host has the role of one), topology (the "
        "traffic does not show it); the rate "
        "of its links is not declared: give --link-mbit, or bandwidth_mbit in its run.toml or runs.csv"
    )


@pytest.mark.long
def test_an_unknown_rate_is_asked_for(tmp_path: Path) -> None:
    """The run of a ring at 1 Gbit/s that uses a fifth of it is not a run at 201 Mbit/s."""
    columns = {"run_id": "r", "framework": "torch", "backend": "gloo", "model": "m", "model_bytes": 4_000_000}
    runs = pl.DataFrame([columns | {"batch_size": 32, "topology": "ring", "workers": 2, "source": "capture"}])
    steps = pl.DataFrame(
        {"run_id": "r", "worker": worker, "step": step, "start_ns": step * 10**9, "end_ns": (step + 1) * 10**9}
        for worker in ("w1", "w2")
        for step in range(3)
    )
    sent = pl.DataFrame({"run_id": ["r"], "flow_id": [0], "src_ip": ["10.0.0.1"], "dst_ip": ["10.0.0.2"]})
    windows = pl.DataFrame(
        {"run_id": "r", "flow_id": 0, "window_start_ns": start * 10**7, "window_ns": 10**7, "wire_bytes": 251_250}
        for start in range(100, 300)
    )
    tables = {"runs": runs, "steps": steps, "flows": sent, "flow_windows": windows}
    with write_dataset(tmp_path / "dataset", tables) as dataset:
        row = dataset.query("replay_facts").row(0, named=True)
        assert (row["bandwidth_mbit"], row["measured_mbit"]) == (None, pytest.approx(201))
        with pytest.raises(UsageError, match="rate of its links is not declared: give --link-mbit"):
            what_if_score.of_run(dataset, "r", {"bandwidth_factor": 2})
        measured, _, changed = what_if_score.of_run(dataset, "r", {"bandwidth_factor": 2}, link_mbit=1000).iter_rows(
            named=True
        )
        assert (measured["bandwidth_mbit"], changed["bandwidth_mbit"]) == (1000, 2000)
        for change, reason in (({"bandwidth_factor": 2}, "takes 9 conditions"), ({"workers": 4}, "of rate and delay")):
            rows = what_if_score.of_run(dataset, "r", change, link_mbit=1000)
            assert rows.select("low_ms", "high_ms").row(2) == (None, None)
            assert reason in (what_if_score.why_no_interval(rows, change) or "")
            assert "phases-worker-N.csv" in (what_if_score.unknown_computation(rows) or "")
            assert what_if_score.unknown_computation(rows.with_columns(computation_ms=1.0)) is None


def test_the_least_number_of_errors_of_an_interval() -> None:
    assert what_if_score.quantile([0.1] * 8) is None and what_if_score.quantile([0.1] * 9) is not None


def test_a_single_run_is_replayed_by_its_computation() -> None:
    rows = what_if.like([RUN], "r", Change(bandwidth_mbit=500))
    replayed, changed = rows.row(1, named=True), rows.row(2, named=True)
    assert replayed["step_ms"] == pytest.approx(40 + RUN.transmission_ms)
    assert changed["step_ms"] == pytest.approx(100 + RUN.transmission_ms)
