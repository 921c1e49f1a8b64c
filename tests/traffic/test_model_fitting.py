"""Fitting a traffic model: what is measured, and what fit finds of runs whose parameters are known."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from model_documents import KNOWN, ODD

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import model
from ddnn_traces.traffic.collectives import Collective
from ddnn_traces.traffic.model import Document, Job
from ddnn_traces.traffic.model.generation import ModelledRun
from ddnn_traces.traffic.model.measure import measure, pair_matrix
from ddnn_traces.traffic.pcaps import write_folder
from ddnn_traces.traffic.synthetic import SyntheticRun, make_traffic, write_runs
from ddnn_traces.traffic.table_writer import write_traffic


def test_transfers_are_found_where_they_are(generated: Dataset) -> None:
    """Round by round, to about a window at each end."""
    run = measure(generated, ["known"])["known"]
    assert run.collective == Collective("ring", 4, order=run.collective.order)
    truth = make_traffic(KNOWN)
    t, begin = truth.transfers, truth.times.start_ns.min()
    there: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in np.flatnonzero((t.start_ns >= begin) & (t.payload > 100_000)):
        there.setdefault(truth.ends[t.flow[row]], []).append((t.start_ns[row], t.last_ns[row]))
    found = {
        pair: [
            (x.start_ns, x.end_ns) for x in sorted(run.transfers, key=lambda x: x.start_ns) if x.transfer[:2] == pair
        ]
        for pair in there
    }
    assert {pair: len(times) for pair, times in found.items()} == dict.fromkeys(there, 6 * KNOWN.steps)
    off = np.abs(np.concatenate([np.array(found[pair]) - np.array(there[pair]) for pair in there])) / 1e6
    assert np.quantile(off, 0.95) < 1.0
    assert off.max() < 3.0


@pytest.mark.long
def test_facts_of_a_run_without_log_are_of_its_traffic(tmp_path: Path) -> None:
    write_runs(tmp_path / "d", [SyntheticRun("r", "ring", 4, 1_000_000, 20, log=False, jitter=0.1)])
    with ddnn_traces.open(tmp_path / "d") as dataset:
        document = model.fit(dataset)
    (run,) = document["provenance"]["runs"]
    assert (run["steps_source"], run["topology"]) == ("traffic", "ring")
    assert run["steps"] in (19, 20)
    assert document["computation"]["median_ms"] == pytest.approx(52, abs=4)  # 50 and the update of 2


def test_fit_finds_the_parameters_of_the_run(known: Document) -> None:
    computation, exchange, packets = known["computation"], known["exchange"], known["packets"]
    assert computation["median_ms"] == pytest.approx(50, rel=0.03)
    factors = computation["worker_factors"]
    assert factors[-1] / factors[0] == pytest.approx(1.4, rel=0.04)
    assert np.std(computation["relative"]) == pytest.approx(0.05, rel=0.3)
    assert computation["worker_correlation"] < 0.2
    assert abs(computation["autocorrelation"]) < 0.2
    # retransmissions take time, too; and 4 ms before each round
    assert exchange["ns_per_byte"] == pytest.approx(KNOWN.ns_per_byte * 1.01, rel=0.05)
    assert np.median(exchange["completion_ms"][0]["shared"]) == pytest.approx(4, abs=0.6)
    assert packets["segment_bytes"] == 1448
    assert packets["acks_per_segment"] == pytest.approx(0.5, abs=0.02)
    assert packets["retransmitted_share"] == pytest.approx(0.01 / 1.01, rel=0.02)
    assert known["start_up"]["broadcast_ratio"] == pytest.approx(1.01, rel=0.01)
    assert known["start_up"]["broadcast_pairs_per_worker"] == 1
    (run,) = known["provenance"]["runs"]
    assert (run["topology"], run["steps"], run["workers"], run["model_bytes"]) == ("ring", 40, 4, 2_000_000)
    assert known["provenance"]["sources"] == ["synthetic"]


@pytest.mark.long
def test_a_size_between_the_measured_ones_takes_as_long_as_it_would(tmp_path: Path) -> None:
    """Bytes by rate, rounds by delay, computation by its own line."""
    sizes = {1_000_000: 30.0, 3_000_000: 50.0, 9_000_000: 110.0}
    alike = replace(KNOWN, compute_factors=(), steps=12)
    runs = [replace(alike, run_id=str(size), model_bytes=size, compute_ms=ms) for size, ms in sizes.items()]
    small, middle, large = map(make_traffic, runs)
    write_traffic(tmp_path / "dataset", [small, large])
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        document = model.fit(dataset)
    assert [size["model_bytes"] for size in document["computation"]["by_size"]] == [1_000_000, 9_000_000]
    again = model.traffic(document, Job(4, 3_000_000, "ring", 12))
    spans = [float(one.times.end_ns.max() - one.times.start_ns.min()) for one in (again, middle)]
    assert spans[0] == pytest.approx(spans[1], rel=0.03)


@pytest.mark.long
def test_retransmissions_are_not_part_of_the_model(tmp_path: Path) -> None:
    """Nor of the measured pairs: they come on top, once."""
    folder = write_folder(tmp_path / "r", make_traffic(replace(KNOWN, model_bytes=400_000, steps=12, loss_pct=3.0)))
    toml = folder / "run.toml"
    toml.write_text("\n".join(line for line in toml.read_text().split("\n") if not line.startswith("model_")))
    odd = ModelledRun("odd", "unknown", 4, 300_000, 20, noise=0.0, loss_pct=3.0, relative=ODD)
    write_traffic(tmp_path / "dataset", [make_traffic(odd)])
    with ddnn_traces.ingest(folder, tmp_path / "dataset") as dataset:
        document = model.fit(dataset, ["r"])
        pairs = np.array(model.fit(dataset, ["odd"])["transfer_matrix"])
    (run,) = document["provenance"]["runs"]
    assert run["model_bytes_source"] == "law"
    assert run["model_bytes"] == pytest.approx(400_000, rel=0.002)
    assert document["packets"]["retransmitted_share"] == pytest.approx(0.03 / 1.03, rel=0.02)
    assert pairs == pytest.approx(np.array(ODD), rel=0.005)


def test_fit_of_pulls(generated: Dataset) -> None:
    document = model.fit(generated, ["pull"])
    assert document["computation"]["median_ms"] == pytest.approx(42, rel=0.04)  # with the update
    assert document["exchange"]["ns_per_byte"] == pytest.approx(8 * 1.3, rel=0.1)  # 1 to 1.6 of the link's time


def test_average_pairs_of_pair_averaging() -> None:
    drawn = np.zeros((5, 5))
    collective = Collective("pair_averaging", 5, "exchange")
    for transfer in (
        t for seed in range(3000) for round_ in collective.rounds(100, random.Random(seed)) for t in round_
    ):
        drawn[transfer.src, transfer.dst] += transfer.bytes / 3000
    assert pair_matrix(collective, 100) == pytest.approx(drawn, rel=0.15)


@pytest.mark.long
def test_runs_without_steps_are_refused(tmp_path: Path) -> None:
    write_runs(tmp_path / "d", [SyntheticRun("r", "ring", 4, 1000, 1, log=False)])
    with ddnn_traces.open(tmp_path / "d") as dataset:
        with pytest.raises(UsageError, match=r"no run has steps.*train_history\.log"):
            model.fit(dataset)
        with pytest.raises(UsageError, match="nothing to score on"):
            model.score(dataset)
        with pytest.raises(UsageError, match="no run named nobody"):
            model.fit(dataset, ["nobody"])
        with pytest.raises(UsageError, match="r: cannot be held out"):
            model.score(dataset, ["r"])
        for gap_ms in (0.0, math.nan):
            with pytest.raises(UsageError, match=r"--gap-ms (0|nan)"):
                model.score(dataset, gap_ms=gap_ms)
