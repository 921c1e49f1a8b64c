"""Traffic generated from a model: true to the law, to the model's distributions, and refused where it is impossible."""

from __future__ import annotations

import copy
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_documents import DOCUMENT, ODD, exchanged

import ddnn_traces
from ddnn_traces.errors import ModelError, UsageError
from ddnn_traces.query.checks import run_checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import model
from ddnn_traces.traffic.collectives import SHAPES
from ddnn_traces.traffic.model import Document, Job
from ddnn_traces.traffic.model.document import check
from ddnn_traces.traffic.model.fit_model import fit_measured
from ddnn_traces.traffic.model.generation import ModelledRun, ModelSampler, law_share, on_line
from ddnn_traces.traffic.model.measure import measure

DESIGN = Path(__file__).parents[2] / "data" / "sample"


@given(
    shape=st.sampled_from([(t, s) for t, shapes in SHAPES.items() for s in shapes]),
    workers=st.integers(2, 13),
    size=st.integers(1, 3_000_000),
    steps=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_pairs_obey_the_law(shape: tuple[str, str], workers: int, size: int, steps: int, seed: int) -> None:
    """Each pair sends the law's bytes, and retransmits at most twice the share of repeats; messages add 1% at most."""
    document = DOCUMENT | {"control": []} if shape[0] == "pair_averaging" else DOCUMENT
    share = document["packets"]["retransmitted_share"]
    try:
        job = Job(workers, size, shape[0], steps, shape[1], seed=seed)
        generated = model.traffic(document, job)
    except UsageError as error:
        assert "group" in str(error)  # a grid of a prime number
        return
    sent = exchanged(generated)
    collective = generated.run.collective
    rounds = [] if shape[0] == "pair_averaging" else collective.rounds(size)
    law: Counter[tuple[int, int]] = Counter()
    number: Counter[tuple[int, int]] = Counter()
    for transfer in (transfer for round_ in rounds for transfer in round_):
        law[transfer.src, transfer.dst] += transfer.bytes * steps
        number[transfer.src, transfer.dst] += steps
    for pair, bytes_ in law.items():
        fresh, payload = sent[pair]
        assert bytes_ <= fresh <= bytes_ + 0.01 * sum(law.values())
        assert fresh <= payload <= fresh * (1 + 2 * share) + number[pair]
    if shape[0] == "pair_averaging":
        pulls = workers - (workers % 2 if shape[1] == "exchange" else 0)
        assert sum(fresh for fresh, _ in sent.values()) == pytest.approx(size * pulls * steps, abs=pulls * steps)
    else:
        # nothing but the law's pairs and answers to them
        assert all((dst, src) in law for src, dst in sent if (src, dst) not in law)


def test_messages_are_at_most_a_hundredth_of_the_exchange() -> None:
    """However small the model: of one that sends less than its messages, they are left out."""
    document = copy.deepcopy(DOCUMENT)
    document["control"][1]["messages_per_pair"] = 50.0
    for size in (1000, 100_000):
        assert 1 <= law_share(model.traffic(document, Job(4, size, "ring", 10))) <= 1.01


def test_traffic_off_its_law_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelSampler, "payload", lambda self, run, size, rng: (size * 103 // 100, np.zeros_like(size)))
    with pytest.raises(ModelError, match=r"synthetic: would send 1\.0[0-9]+ times what its law gives"):
        model.traffic(DOCUMENT, Job(4, 3_000_000, "ring", 10))


#: Six senders meet at a receiver; in the second run's traffic the receiver's link then paces what follows.
STARS = ("torchp2p-mlp12-sgd-32-gloo-normal-star-n6", "mpi-mlp4-sgd-128-openmpi-normal-star-n6")


@pytest.mark.long
@pytest.mark.parametrize(("every", "runs"), [(7, 7), pytest.param(1, 36, marks=pytest.mark.nightly)])
def test_the_law_holds_for_fitted_and_generated_topologies(every: int, runs: int, tmp_path: Path) -> None:
    """Runs of the design, in which senders meet at a receiver and break transfers, as five topologies; to 1%."""
    known = [run for kind in ("mpi", "torchp2p") for run in sorted(DESIGN.glob(f"{kind}-*"))]
    design = sorted({*known[::every], *(DESIGN / name for name in STARS)})
    with ddnn_traces.ingest(design, tmp_path / "design") as dataset:
        documents = {name: fit_measured([run]) for name, run in measure(dataset).items()}
    assert len(documents) == runs
    topologies = ("ring", "tree", "star", "clique", "halving_doubling")
    jobs = {topology: Job(6, 3_676_200, topology, 10, run_id=topology) for topology in topologies}
    off = {
        (name, topology): abs(law_share(model.traffic(document, job)) - 1)
        for name, document in documents.items()
        for topology, job in jobs.items()
    }
    assert max(off.values()) <= 0.01, max(off, key=lambda key: off[key])
    for name in STARS:
        for job in jobs.values():
            model.generate(documents[name], job, tmp_path / name, "dataset")
        with ddnn_traces.open(tmp_path / name) as generated:
            assert generated.query("conservation")["flagged"].to_list() == [False] * len(jobs)
            assert [check for check, rows in run_checks(generated).items() if len(rows)] == []


def test_gaps_depend_on_each_other_as_they_should() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["computation"] |= {"worker_correlation": 0.6, "autocorrelation": -0.4, "worker_factors": [1.0, 2.0]}
    run = ModelledRun("r", "ring", 6, 1000, 4000, compute_ms=20.0)
    gaps = ModelSampler(document).compute_ns(run, np.random.default_rng(1)) / 20e6
    factors = np.median(gaps, 0)
    assert ((factors >= 0.99) & (factors <= 2.01)).all()
    relative = gaps / factors
    assert relative.min() >= 0.75
    assert relative.max() <= 1.25
    # pieces are even between the quantiles, so that ranks and values agree
    between = np.corrcoef(relative.T)[np.triu_indices(6, 1)]
    before = [np.corrcoef(relative[1:, i], relative[:-1, i])[0, 1] for i in range(6)]
    assert between.mean() == pytest.approx(0.6, abs=0.04)
    assert np.mean(before) == pytest.approx(-0.4, abs=0.04)


def test_slow_transfers_pause() -> None:
    """A transfer that takes far longer than its bytes comes in pieces, with the same payload and end."""
    document = copy.deepcopy(DOCUMENT)
    slow = [{"wire_bytes": 1000.0, "shared": [40.0, 40.0], "own": [0.0, 0.0]}]
    document["exchange"] |= {"stall_ms": slow, "completion_ms": slow, "first_completion_ms": slow}
    document["exchange"]["slow_pieces"] = [4.0, 4.0]
    document["packets"]["retransmitted_share"] = 0.0
    document["control"] = []
    generated = model.traffic(document, Job(2, 800_000, "ring", 1))
    sent = generated.transfers
    t = sent.take(np.flatnonzero((sent.payload > 0) & (sent.start_ns >= generated.times.start_ns.min())))
    assert len(t) == 4 * 4
    first = np.flatnonzero(t.flow == t.flow[0])[:4]
    assert t.payload[first].sum() == 400_000
    pause = t.start_ns[first][1:] - (t.start_ns + t.duration_ns)[first][:-1]
    assert (pause > 9e6).all()


@pytest.mark.long
def test_a_generated_run_has_the_requested_topology(document: Document, tmp_path: Path) -> None:
    for topology in ("ring", "tree", "halving_doubling", "sharded_parameter_server"):
        job = Job(8, 4_000_000, topology, 12, run_id=topology)
        model.generate(document, job, tmp_path / "dataset", "dataset")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        found = dataset.query("topology").select("run_id", "topology")
        assert found.rows() == [(name, name) for name in sorted(found["run_id"])]
        assert dataset.query("conservation")["problem"].drop_nulls().to_list() == []


def test_compute_ms_is_the_callers_where_given() -> None:
    spans = []
    for compute_ms in (None, 20.0, 200.0):
        generated = model.traffic(DOCUMENT, Job(4, 10_000, "ring", 10, compute_ms=compute_ms))
        spans.append(int(np.median(generated.times.communicate_ns - generated.times.start_ns)))
    assert spans[0] == spans[1]
    assert spans[2] == pytest.approx(10 * spans[1], rel=1e-6)


def test_the_first_step_warms_up() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["computation"]["by_size"][0]["warm_up_ms"] = 300.0
    gaps = [traffic.times.communicate_ns - traffic.times.start_ns for traffic in (
        model.traffic(one, Job(4, 1000, "ring", 3)) for one in (DOCUMENT, document))]  # fmt: skip
    assert (gaps[1] - gaps[0]).tolist() == [[300_000_000] * 4, [0] * 4, [0] * 4]


def _measured(*lengths: tuple[int, float], **fields: Any) -> Document:
    """A model of runs with these S and lengths of a step, ms."""
    document = copy.deepcopy(DOCUMENT)
    (one,) = document["provenance"]["runs"]
    document["provenance"]["runs"] = [
        one | fields | {"model_bytes": size, "step_ms": length} for size, length in lengths
    ]
    return document


def test_a_step_of_another_size_is_as_long_as_the_measured_ones_tell() -> None:
    def step_ms(document: Document, size: int = 2_000_000, **options: Any) -> float:
        ends = model.traffic(document, Job(4, size, "ring", 40, **options)).times.end_ns.max(1)
        return float(ends[-1] - ends[0]) / 1e6 / 39

    parts = step_ms(DOCUMENT)
    rising = _measured((1_000_000, parts), (3_000_000, 2 * parts))
    assert step_ms(rising) == pytest.approx(1.5 * parts, rel=0.05)
    assert step_ms(rising, 4_000_000) == pytest.approx(2.5 * parts, rel=0.05)
    assert step_ms(_measured((1_000_000, parts), (2_000_000, 3 * parts))) == parts  # that size was measured
    assert step_ms(_measured((1_000_000, 2 * parts), (3_000_000, parts))) == parts  # no time falls with its bytes
    assert step_ms(_measured((1_000_000, 2 * parts))) == parts
    assert step_ms(_measured((1_000_000, parts), (3_000_000, 2 * parts), hosts=5)) == parts
    times = model.traffic(rising, Job(4, 2_000_000, "ring", 40, compute_ms=7.0)).times
    assert np.median(times.communicate_ns - times.start_ns) == pytest.approx(7e6, rel=0.05)  # as the user gave it


def test_values_of_other_sizes_lie_on_the_line() -> None:
    sizes, at = [10.0, 20.0, 40.0], np.array([[5, 10, 15], [20, 30, 60]])
    found = on_line(sizes, at, [np.full(at.shape, value) for value in (1.0, 3.0, 4.0)])
    assert found.tolist() == [[0.0, 1.0, 2.0], [3.0, 3.5, 5.0]]
    assert on_line([7.0], at, [2.5]).tolist() == np.full(at.shape, 2.5).tolist()
    assert on_line([7.0, 7.5], at, [2.5, 9.0]).tolist() == [[2.5, 9.0, 9.0], [9.0, 9.0, 9.0]]  # too near to tell
    assert float(on_line([1.0, 9.0, 10.0], 19, [0.0, 7.0, 9.0])) == 18.0  # of 1 and 10


def test_an_unknown_topology_is_generated_as_it_was_measured(generated: Dataset) -> None:
    document = model.fit(generated, ["odd"])
    assert document["provenance"]["runs"][0]["topology"] == "unknown"
    relative = np.array(document["transfer_matrix"])
    assert relative == pytest.approx(np.array(ODD), rel=0.01)
    assert "odd is unknown" in model.summary(document)
    again = exchanged(model.traffic(document, Job(4, 300_000, "unknown", 10)))
    for (src, dst), part in np.ndenumerate(np.array(ODD)):
        if part:
            assert again[src, dst][0] == pytest.approx(3_000_000 * part, rel=0.01)


@pytest.mark.long
def test_an_unknown_topology_is_refused_for_another_number(generated: Dataset) -> None:
    document = model.fit(generated, ["odd"])
    with pytest.raises(UsageError, match=r"pairs of 4 hosts.*--workers 4"):
        model.traffic(document, Job(5, 1000, "unknown", 1))
    with pytest.raises(UsageError, match="--topology unknown"):
        model.traffic(document, Job(4, 1000, "ring", 1))
    with pytest.raises(UsageError, match="no measured pairs"):
        model.traffic(DOCUMENT, Job(4, 1000, "unknown", 1))
    with pytest.raises(UsageError, match=r"odd: its topology is unknown.*--run odd"):
        model.fit(generated)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (Job(0, 1000, "ring", 1), "0 workers"),
        (Job(100_000, 1000, "ring", 1), "100000 workers"),
        (Job(4, 1000, "ring", 0), "steps must be 1 or more"),
        (Job(4, 1000, "mesh", 1), "no topology named mesh"),
        (Job(4, 1000, "tree", 1, shape="full"), "tree has no shape full"),
        (Job(200, 1000, "clique", 10_000), "more than the 20,000,000"),
        *((Job(4, 1000, "ring", 1, compute_ms=ms), "0 to 86,400,000") for ms in (-1.0, 9e7, 1e300, math.inf, math.nan)),
        (Job(2, 1000, "ring", 90_000, compute_ms=86_400_000.0), "would last .* years"),
        (Job(2, 10**13, "star", 1), "too large and too slow"),
        (Job(1, 1000, "ring", 1), "1 worker of ring: nothing to send; give --workers 2 or more"),
        (Job(4, 1000, "ring", 1, servers=2), "--servers does not apply to ring"),
        (Job(4, 1000, "sharded_parameter_server", 1, group_size=2), "--group-size does not apply to sharded"),
        (Job(4, 1000, "unknown", 1, shape="heap"), "--shape does not apply to unknown"),
        (Job(4, 1000, "binary_tree_star", 1, "overlay", group_size=2), "does not apply to the shape overlay"),
    ],
)
def test_impossible_jobs_are_refused(job: Job, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        model.traffic(DOCUMENT, job)


def test_a_document_of_extremes_gives_a_run_or_a_reason() -> None:
    """No document that the schema accepts overflows 64 bits or fills the memory."""
    document = copy.deepcopy(DOCUMENT)
    longest = [{"model_bytes": size, "median_ms": 1e9, "warm_up_ms": 1e9} for size in (1, 2)]
    document["computation"] |= {"by_size": longest, "relative": [0.0, 1e6], "worker_factors": [1e6, 1e6]}
    levels = [{"wire_bytes": size, "shared": [-1e6, 1e9], "own": [-1e6, 1e9]} for size in (1.0, 1.5)]
    document["exchange"] |= {"completion_ms": levels, "first_completion_ms": levels, "stall_ms": levels,
                             "ns_per_byte": 1e9, "least_ns_per_byte": 0.0}  # fmt: skip
    check(document, "extreme")
    for seed in range(10):
        generated = model.traffic(document, Job(4, 4, "ring", 5, seed=seed))
        assert generated.transfers.start_ns.min() >= generated.run.start_ns
        assert (np.diff(generated.times.end_ns, axis=0) >= 0).all()
    document["computation"] |= {"relative": [0.0, 0.0]}
    generated = model.traffic(document, Job(4, 4, "ring", 1))
    assert generated.transfers.start_ns.min() >= generated.run.start_ns
    document["control"][1]["messages_per_pair"] = 1e6
    with pytest.raises(UsageError, match="messages of the kind answer in phase step"):
        model.traffic(document, Job(8, 1000, "ring", 5))
    generated = model.traffic(DOCUMENT, Job(1, 1000, "star", 2, "server", compute_ms=0.0))
    assert generated.transfers.payload.any()
