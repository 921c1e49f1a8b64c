"""Scoring a traffic model on held-out runs, against baselines."""

from __future__ import annotations

import numpy as np
import pytest
from model_documents import DOCUMENT, MPI, RINGS, exchanged

from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import model
from ddnn_traces.traffic.model import Job
from ddnn_traces.traffic.model.measure import measure
from ddnn_traces.traffic.model.scoring import BASELINES, DISTANCES, acf, acf_rmse, baseline, resampled, tolerant_ks

LIKE = "framework backend topology delay_ms loss_pct bandwidth_mbit workers batch_size"


@pytest.mark.long
def test_the_model_is_nearer_than_the_baselines(captured: Dataset) -> None:
    run = RINGS[0]
    scores = model.score(captured, [run])
    assert scores["generator"].to_list() == ["model", *BASELINES]
    assert scores["fitted_by"].unique().to_list() == [LIKE]
    assert scores["model_bytes_source"].unique().to_list() == ["declared"]
    fitted, constant, poisson, resampled = scores.rows(named=True)
    assert fitted["pair_volume_error"] < 0.01
    for distance in ("burst_bytes_wasserstein", "burst_ms_wasserstein", "gap_ms_ks", "acf_rmse"):
        assert fitted[distance] < min(constant[distance], poisson[distance], resampled[distance])
    best = {row["distance"]: row for row in model.wins(scores).rows(named=True)}
    assert set(best) == set(DISTANCES)
    assert best["gap_ms_ks"] == {"distance": "gap_ms_ks", "model": 1, "constant_rate": 0, "poisson": 0, "resampled": 0}


@pytest.mark.long
def test_a_held_out_run_is_not_fitted_to(captured: Dataset) -> None:
    """Its neighbours with the same framework, backend, topology, condition, workers and batch are, and no others."""
    scores = model.score(captured, MPI[:1])
    assert scores["fitted_runs"].unique().to_list() == [2]  # the one with the other link type, and another model's


@pytest.mark.long
def test_runs_that_are_held_out_together_are_not_fitted_to(captured: Dataset) -> None:
    both = model.score(captured, MPI[:2])
    assert both["fitted_runs"].unique().to_list() == [1]  # another model's
    assert both["fitted_by"].unique().to_list() == [LIKE]


def test_baselines_send_what_the_model_sends() -> None:
    generated = model.traffic(DOCUMENT, Job(4, 3_000_000, "ring", 20))
    wanted = {pair: payload for pair, (_, payload) in exchanged(generated).items()}
    span = generated.times.end_ns.max() - generated.times.start_ns.min()
    constant, poisson = (baseline(kind, generated) for kind in BASELINES[:2])
    assert {pair: payload for pair, (_, payload) in exchanged(constant).items()} == wanted
    for pair, (_, payload) in exchanged(poisson).items():
        if wanted[pair] > 1_000_000:
            assert payload == pytest.approx(wanted[pair], rel=0.02)  # 62,000 packets: 0.4% a standard deviation
    t = poisson.transfers.take(np.flatnonzero(poisson.transfers.payload))
    gaps = np.diff(np.sort(t.start_ns[t.flow == np.bincount(t.flow).argmax()]))
    assert gaps.mean() == pytest.approx(gaps.std(), rel=0.03)  # exponential
    assert gaps.sum() == pytest.approx(span, rel=0.01)


def test_resampled_steps_are_those_of_the_nearest_size(generated: Dataset) -> None:
    source = measure(generated, ["known"])["known"]
    by_model = model.traffic(DOCUMENT, Job(4, 2 * source.model_bytes, "ring", 20))
    made = resampled(by_model, 20, 2 * source.model_bytes, [source])
    assert made is not None
    law = {pair: payload for pair, (payload, _) in exchanged(by_model).items() if payload > 1_000_000}
    assert {pair: payload for pair, (payload, _) in exchanged(made).items()} == pytest.approx(law, rel=0.02)
    step = (made.times.end_ns.max() - made.times.start_ns.min()) / 20
    assert step == pytest.approx((source.end_ns - source.begin_ns) / source.steps, rel=0.02)  # one size: no line
    assert resampled(model.traffic(DOCUMENT, Job(5, 9000, "ring", 1)), 1, 9000, [source]) is None


def test_distances_by_hand() -> None:
    left, right = np.array([100.0, 100, 100, 200]), np.array([100.5, 100.5, 150, 200])
    assert tolerant_ks(left, left, 0.01) == 0
    assert tolerant_ks(left, right, 0.001) == 0.75
    assert tolerant_ks(left, right, 0.01) == 0.25  # 100 and 100.5 are the same
    assert tolerant_ks(right, left, 0.01) == 0.25
    wave = np.tile([1.0, 0.0], 500)
    assert acf(wave, 3) == pytest.approx([-1, 1, -1], abs=0.01)
    assert acf_rmse(wave, wave, 10) == 0
    assert acf_rmse(wave, np.ones(1000), 10) == pytest.approx(1, abs=0.01)
