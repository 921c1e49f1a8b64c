"""Traffic models: what fit finds of runs whose parameters are known, what is generated, scored and refused."""

from __future__ import annotations

import copy
import csv
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddnn_traces
from ddnn_traces.errors import ModelError, StorageError, UsageError
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import model
from ddnn_traces.traffic.collectives import SHAPES, Collective
from ddnn_traces.traffic.model import Document, Job
from ddnn_traces.traffic.model.document import check, text
from ddnn_traces.traffic.model.measure import measure
from ddnn_traces.traffic.model.peers import PEERS, peer
from ddnn_traces.traffic.model.placement import pair_matrix
from ddnn_traces.traffic.model.sampler import ModelledRun, ModelSampler
from ddnn_traces.traffic.model.scoring import DISTANCES, acf, acf_rmse, tolerant_ks
from ddnn_traces.traffic.synthetic.packets import write_folder
from ddnn_traces.traffic.synthetic.tables import write_runs, write_traffic
from ddnn_traces.traffic.synthetic.traffic import DATA_PORT, SyntheticRun, Traffic, make_traffic

RINGS = ("torch-mlp1-sgd-32-gloo-0ms-ring-tso", "torch-mlp1-sgd-128-gloo-0ms-ring-tso")

MPI = (
    "mpi-mlp1-sgd-32-openmpi-0ms-ring", "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2", "mpi-mlp4-sgd-32-openmpi-0ms-ring-tso",
)  # fmt: skip

#: Runs whose parameters a fit has to find.
KNOWN = SyntheticRun(
    "known", "ring", 4, 2_000_000, 40, order=(0, 2, 1, 3), compute_ms=50, jitter=0.05, update_ms=0, delay_ms=4,
    compute_factors=(1, 1, 1.4, 1), noise=0.0, loss_pct=1.0,
)  # fmt: skip
PULL = SyntheticRun("pull", "pair_averaging", 4, 1_000_000, 30, compute_ms=40, noise=0.0)
#: Payload of hosts to each other, over S, as no law has it.
ODD = ((0, 1.0, 0, 0), (0, 0, 0.6, 0), (0.8, 0, 0, 0.15), (0.5, 0, 0, 0))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    path = tmp_path_factory.mktemp("made") / "dataset"
    odd = ModelledRun("odd", "unknown", 4, 1_000_000, 20, noise=0.0, relative=ODD)
    write_traffic(path, map(make_traffic, (KNOWN, PULL, odd)))
    with ddnn_traces.open(path) as dataset:
        yield dataset


@pytest.fixture(scope="module")
def captured(sample_dataset: Dataset) -> Iterator[Dataset]:
    """Some of the sample's runs."""
    with ddnn_traces.open(sample_dataset.path, [*RINGS, *MPI, "torch-mlp4-sgd-32-gloo-0ms-ring-tso"]) as dataset:
        yield dataset


@pytest.fixture(scope="module")
def document(captured: Dataset) -> Document:
    return model.fit(captured, RINGS)


@pytest.fixture
def known(made: Dataset) -> Document:
    return model.fit(made, ["known"])


def exchanged(made: Traffic) -> dict[tuple[int, int], tuple[int, int]]:
    """Payload of each pair on the connections of the exchange from the first step on: sent first, and in all."""
    t = made.transfers
    found: dict[tuple[int, int], tuple[int, int]] = {}
    begin = made.times.start_ns.min()
    for flow, start, fresh, payload in zip(t.flow, t.start_ns, t.fresh, t.payload, strict=True):
        if start >= begin and made.connections[flow // 2].server_port == DATA_PORT:
            before = found.get(made.ends[flow], (0, 0))
            found[made.ends[flow]] = (before[0] + int(fresh), before[1] + int(payload))
    return found


# --- what is measured


def test_transfers_are_found_where_they_were_made(made: Dataset) -> None:
    """Round by round, to about a window at each end."""
    run = measure(made, ["known"])["known"]
    assert run.collective == Collective("ring", 4, order=run.collective.order)
    truth = make_traffic(KNOWN)
    t, begin = truth.transfers, truth.times.start_ns.min()
    there: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for row in np.flatnonzero((t.start_ns >= begin) & (t.payload > 100_000)):
        there.setdefault(truth.ends[t.flow[row]], []).append((t.start_ns[row], t.last_ns[row]))
    found = {
        pair: [
            (x.start_ns, x.end_ns) for x in sorted(run.transfers, key=lambda x: x.start_ns) if (x.src, x.dst) == pair
        ]
        for pair in there
    }
    assert {pair: len(times) for pair, times in found.items()} == dict.fromkeys(there, 6 * KNOWN.steps)
    off = np.abs(np.concatenate([np.array(found[pair]) - np.array(there[pair]) for pair in there])) / 1e6
    assert np.quantile(off, 0.95) < 1.0
    assert off.max() < 3.0


def test_facts_of_a_run_without_log_are_of_its_traffic(tmp_path: Path) -> None:
    write_runs(tmp_path / "d", [SyntheticRun("r", "ring", 4, 1_000_000, 20, log=False, jitter=0.1)])
    with ddnn_traces.open(tmp_path / "d") as dataset:
        document = model.fit(dataset)
    (run,) = document["provenance"]["runs"]
    assert (run["steps_source"], run["topology"]) == ("traffic", "ring")
    assert run["steps"] in (19, 20)
    assert document["computation"]["median_ms"] == pytest.approx(52, abs=4)  # 50 and the update of 2


# --- what is fitted


def test_fit_finds_what_the_run_was_made_with(known: Document) -> None:
    computation, exchange, packets = known["computation"], known["exchange"], known["packets"]
    assert computation["median_ms"] == pytest.approx(50, rel=0.03)
    factors = computation["worker_factors"]
    assert factors[-1] / factors[0] == pytest.approx(1.4, rel=0.04)
    assert np.std(computation["relative"]) == pytest.approx(0.05, rel=0.3)
    assert computation["worker_correlation"] < 0.2
    assert abs(computation["autocorrelation"]) < 0.2
    # what is sent again takes time, too; and 4 ms before each round
    assert exchange["ns_per_byte"] == pytest.approx(KNOWN.ns_per_byte * 1.01, rel=0.05)
    assert np.median(exchange["completion_ms"]["shared"]) == pytest.approx(4, abs=0.6)
    assert exchange["size_ratio"] == pytest.approx(1, abs=0.002)
    assert packets["segment_bytes"] == 1448
    assert packets["acks_per_segment"] == pytest.approx(0.5, abs=0.02)
    assert packets["retransmitted_share"] == pytest.approx(0.01 / 1.01, rel=0.02)
    assert known["start_up"]["broadcast_ratio"] == pytest.approx(1.01, rel=0.01)
    assert known["start_up"]["broadcast_pairs_per_worker"] == 1
    (run,) = known["provenance"]["runs"]
    assert (run["topology"], run["steps"], run["workers"], run["model_bytes"]) == ("ring", 40, 4, 2_000_000)
    assert known["provenance"]["sources"] == ["synthetic"]


def test_what_is_sent_again_is_not_of_the_model(tmp_path: Path) -> None:
    """Nor of the measured pairs: it comes on top, once."""
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
    assert document["exchange"]["size_ratio"] == pytest.approx(1, abs=0.002)
    assert document["packets"]["retransmitted_share"] == pytest.approx(0.03 / 1.03, rel=0.02)
    assert pairs == pytest.approx(np.array(ODD), rel=0.005)


def test_fit_of_pulls(made: Dataset) -> None:
    document = model.fit(made, ["pull"])
    assert document["computation"]["median_ms"] == pytest.approx(42, rel=0.04)  # with the update
    assert document["exchange"]["ns_per_byte"] == pytest.approx(8 * 1.3, rel=0.1)  # 1 to 1.6 of the link's time


def test_a_document_is_small_and_reads_back(document: Document, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    model.write(document, path)
    assert model.read(path) == document
    assert path.stat().st_size < 100_000
    assert max(map(len, path.read_text().splitlines())) > 200  # lists of numbers on a line
    assert [run["run_id"] for run in document["provenance"]["runs"]] == list(RINGS)
    assert document["provenance"]["sources"] == ["capture"]
    assert document["packets"]["segment_bytes"] > 10_000  # segmentation offload


# --- what is generated


@settings(max_examples=40, deadline=None)
@given(
    shape=st.sampled_from([(t, s) for t, shapes in SHAPES.items() for s in shapes]),
    workers=st.integers(2, 13),
    size=st.integers(1, 3_000_000),
    steps=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_pairs_obey_the_law(shape: tuple[str, str], workers: int, size: int, steps: int, seed: int) -> None:
    """Each pair sends what the law says times the fitted ratio, and again at most twice the share of repeats."""
    document = DOCUMENT | {"control": []} if shape[0] == "pair_averaging" else DOCUMENT
    ratio, share = document["exchange"]["size_ratio"], document["packets"]["retransmitted_share"]
    try:
        job = Job(workers, size, shape[0], steps, shape[1], seed=seed)
        made = model.traffic(document, job)
    except UsageError as error:
        assert "group" in str(error)  # a grid of a prime number
        return
    sent = exchanged(made)
    collective = made.run.collective
    rounds = [] if shape[0] == "pair_averaging" else collective.rounds(size)
    law: Counter[tuple[int, int]] = Counter()
    number: Counter[tuple[int, int]] = Counter()
    for transfer in (transfer for round_ in rounds for transfer in round_):
        law[transfer.src, transfer.dst] += transfer.bytes * steps
        number[transfer.src, transfer.dst] += steps
    for pair, bytes_ in law.items():
        fresh, payload = sent[pair]
        assert abs(fresh - ratio * bytes_) <= number[pair]  # rounded to bytes, at least one
        assert fresh <= payload <= fresh * (1 + 2 * share) + number[pair]
    if shape[0] == "pair_averaging":
        pulls = workers - (workers % 2 if shape[1] == "exchange" else 0)
        assert sum(fresh for fresh, _ in sent.values()) == pytest.approx(
            ratio * size * pulls * steps, abs=pulls * steps
        )
    else:
        # nothing but the law's pairs and answers to them
        assert all((dst, src) in law for src, dst in sent if (src, dst) not in law)


def _known_document() -> Document:
    """A document with round numbers, to be changed by tests."""
    levels = {"shared": [0.0, 1.0, 2.0], "own": [-0.5, 0.0, 0.5]}
    return {
        "format": "ddnn-traces traffic model", "version": 1,
        "provenance": {"program": "0", "sources": ["capture"], "runs": [{
            "run_id": "r", "source": "capture", "topology": "ring", "shape": "reduce_scatter", "hosts": 4, "workers": 4,
            "steps": 10, "steps_source": "log", "model_bytes": 1000, "model_bytes_source": "law",
            "misplaced_share": 0.0}]},
        "computation": {"median_ms": 20.0, "relative": [0.8, 1.0, 1.2], "worker_factors": [1.0, 1.0],
                        "worker_correlation": 0.0, "autocorrelation": 0.0},
        "exchange": {"first_completion_ms": levels, "completion_ms": levels, "ns_per_byte": 8.0,
                     "least_ns_per_byte": 4.0, "stall_ms": levels, "slow_pieces": [1.0, 3.0], "size_ratio": 1.002},
        "bursts": {"per_flow_and_step": 1.0, "model_share": [1.0, 1.0], "duration_ms": [1.0, 1.0],
                   "gap_ms": [1.0, 2.0]},
        "packets": {"segment_bytes": 1448, "header_bytes": 66, "measured_header_bytes": 66.0, "acks_per_segment": 0.3,
                    "retransmitted_share": 0.01},
        "start_up": {"duration_ms": 900.0, "broadcast_ratio": 1.0, "broadcast_pairs_per_worker": 1.0,
                     "broadcast_lead_ms": 5.0},
        "tear_down": {"duration_ms": 100.0},
        "control": [
            {"phase": phase, "kind": kind, "port_class": "dynamic", "pattern": pattern, "pairs_share": 0.5,
             "messages_per_pair": 2.0, "bytes": [48.0, 96.0]}
            for phase, kind, pattern in (("start_up", "other", "hub"), ("step", "answer", "any"),
                                         ("step", "other", "any"), ("tear_down", "other", "any"))],
        "transfer_matrix": None,
    }  # fmt: skip


DOCUMENT = _known_document()


def test_the_document_of_these_tests_is_one() -> None:
    check(DOCUMENT, "DOCUMENT")
    assert json.loads(text(DOCUMENT)) == DOCUMENT


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
    document["exchange"] |= {"stall_ms": {"shared": [40.0, 40.0], "own": [0.0, 0.0]}, "slow_pieces": [4.0, 4.0]}
    document["exchange"]["completion_ms"] = document["exchange"]["first_completion_ms"] = {
        "shared": [40.0, 40.0], "own": [0.0, 0.0]}  # fmt: skip
    document["packets"]["retransmitted_share"] = 0.0
    document["control"] = []
    made = model.traffic(document, Job(2, 800_000, "ring", 1))
    t = made.transfers.take(
        np.flatnonzero((made.transfers.payload > 0) & (made.transfers.start_ns >= made.times.start_ns.min()))
    )
    assert len(t) == 4 * 4
    first = np.flatnonzero(t.flow == t.flow[0])[:4]
    assert t.payload[first].sum() == round(400_000 * 1.002)
    pause = t.start_ns[first][1:] - (t.start_ns + t.duration_ns)[first][:-1]
    assert (pause > 9e6).all()


@pytest.mark.parametrize("to", ["dataset", "pcap", "flows"])
def test_the_same_seed_gives_the_same_bytes(to: str, tmp_path: Path) -> None:
    files = {}
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        out = model.generate(DOCUMENT, Job(3, 100_000, "star", 3, seed=seed), tmp_path / name, to)
        paths = [out] if out.is_file() else sorted(path for path in out.rglob("*") if path.is_file())
        files[name] = [path.read_bytes() for path in paths if path.suffix != ".duckdb"]  # holds the dataset's path
    assert len(files["a"]) >= 1
    assert files["a"] == files["b"] != files["c"]


def test_all_formats_tell_the_same(tmp_path: Path) -> None:
    job = Job(4, 500_000, "pair_averaging", 20, run_id="synthetic-pulls")
    for to in ("dataset", "pcap", "flows"):
        model.generate(DOCUMENT, job, tmp_path / to, to)
    query = (
        "SELECT src_ip, dst_ip, src_port, dst_port, packets, wire_bytes, payload_bytes, retransmitted_bytes, "
        "first_seen_ns, last_seen_ns FROM flows ORDER BY ALL"
    )
    with (
        ddnn_traces.open(tmp_path / "dataset") as tables,
        ddnn_traces.ingest(tmp_path / "pcap" / "synthetic-pulls", tmp_path / "read") as read,
    ):
        assert tables.sql(query).equals(read.sql(query))
        assert tables.query("step_volume").equals(read.query("step_volume"))
        for dataset in (tables, read):
            assert dataset.sql("SELECT DISTINCT run_id, source FROM runs").rows() == [("synthetic-pulls", "synthetic")]
            untold = "batch_size, optimizer, epochs, delay_ms, loss_pct, bandwidth_mbit"
            assert dataset.sql(f"SELECT {untold} FROM runs").row(0) == (None,) * 6
            assert dataset.sql("SELECT count(*), count(loss), count(accuracy) FROM steps").row(0) == (80, 0, 0)
            assert [name for name, rows in checks.run_checks(dataset).items() if rows.num_rows] == []
        payload = dict(tables.sql("SELECT flow_id, payload_bytes FROM flows WHERE payload_bytes > 0").rows())
    with (tmp_path / "flows").open() as file:
        rows = list(csv.DictReader(file))
    listed: Counter[int] = Counter()
    for row in rows:
        listed[int(row["flow"])] += int(row["bytes"])
        assert row["source"] == "synthetic"
        assert (row["phase"] == "step") == (row["step"] != "")
        assert int(row["end_ns"]) >= int(row["start_ns"])
    assert listed == payload
    assert {row["phase"] for row in rows} == {"start_up", "step", "tear_down"}
    assert {int(row["step"]) for row in rows if row["step"]} == set(range(20))


def test_generated_run_has_the_topology_that_was_asked_for(document: Document, tmp_path: Path) -> None:
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
        made = model.traffic(DOCUMENT, Job(4, 10_000, "ring", 10, compute_ms=compute_ms))
        spans.append(int(np.median(made.times.communicate_ns - made.times.start_ns)))
    assert spans[0] == spans[1]
    assert spans[2] == pytest.approx(10 * spans[1], rel=1e-6)


# --- runs whose topology is unknown


def test_an_unknown_topology_is_generated_as_it_was_measured(made: Dataset) -> None:
    document = model.fit(made, ["odd"])
    assert document["provenance"]["runs"][0]["topology"] == "unknown"
    relative = np.array(document["transfer_matrix"])
    assert relative == pytest.approx(np.array(ODD), rel=0.01)
    assert "odd is unknown" in model.summary(document)
    again = exchanged(model.traffic(document, Job(4, 300_000, "unknown", 10)))
    for (src, dst), part in np.ndenumerate(np.array(ODD)):
        if part:
            assert again[src, dst][0] == pytest.approx(3_000_000 * part, rel=0.01)


def test_an_unknown_topology_is_refused_for_another_number(made: Dataset) -> None:
    document = model.fit(made, ["odd"])
    with pytest.raises(UsageError, match=r"pairs of 4 hosts.*--workers 4"):
        model.traffic(document, Job(5, 1000, "unknown", 1))
    with pytest.raises(UsageError, match="--topology unknown"):
        model.traffic(document, Job(4, 1000, "ring", 1))
    with pytest.raises(UsageError, match="no measured pairs"):
        model.traffic(DOCUMENT, Job(4, 1000, "unknown", 1))
    with pytest.raises(UsageError, match=r"odd: its topology is unknown.*--run odd"):
        model.fit(made)


# --- the score


def test_the_model_is_nearer_than_its_peers(captured: Dataset) -> None:
    run = RINGS[0]
    scores = model.score(captured, [run])
    assert scores["generator"].to_list() == ["model", *PEERS]
    assert scores["fitted_by"].unique().to_list() == [
        "framework backend model topology delay_ms loss_pct bandwidth_mbit"
    ]
    assert scores["model_bytes_source"].unique().to_list() == ["declared"]
    fitted, constant, poisson = scores.rows(named=True)
    assert fitted["pair_volume_error"] < 0.01
    for distance in ("burst_bytes_wasserstein", "burst_ms_ks", "gap_ms_ks", "acf_rmse"):
        assert fitted[distance] < min(constant[distance], poisson[distance])
    best = {row["distance"]: row for row in model.wins(scores).rows(named=True)}
    assert set(best) == set(DISTANCES)
    assert best["gap_ms_ks"] == {"distance": "gap_ms_ks", "model": 1, "constant_rate": 0, "poisson": 0}


def test_a_held_out_run_is_not_fitted_to(captured: Dataset) -> None:
    """Its neighbours with the same framework, backend, model and topology are, and no others."""
    scores = model.score(captured, MPI[:1])
    assert scores["fitted_runs"].unique().to_list() == [1]  # the one with the other link type
    both = model.score(captured, MPI[:2])
    assert both["fitted_by"].unique().to_list() == ["framework backend topology"]


def test_peers_send_what_the_model_sends() -> None:
    made = model.traffic(DOCUMENT, Job(4, 3_000_000, "ring", 20))
    wanted = {pair: payload for pair, (_, payload) in exchanged(made).items()}
    span = made.times.end_ns.max() - made.times.start_ns.min()
    constant, poisson = (peer(kind, made, kind) for kind in PEERS)
    assert {pair: payload for pair, (_, payload) in exchanged(constant).items()} == wanted
    for pair, (_, payload) in exchanged(poisson).items():
        if wanted[pair] > 1_000_000:
            assert payload == pytest.approx(wanted[pair], rel=0.02)  # 62,000 packets: 0.4% a standard deviation
    t = poisson.transfers.take(np.flatnonzero(poisson.transfers.payload))
    gaps = np.diff(np.sort(t.start_ns[t.flow == np.bincount(t.flow).argmax()]))
    assert gaps.mean() == pytest.approx(gaps.std(), rel=0.03)  # exponential
    assert gaps.sum() == pytest.approx(span, rel=0.01)


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


def test_average_pairs_of_pair_averaging() -> None:
    drawn = np.zeros((5, 5))
    collective = Collective("pair_averaging", 5, "exchange")
    for transfer in (t for seed in range(3000) for round_ in collective.rounds(100, _random(seed)) for t in round_):
        drawn[transfer.src, transfer.dst] += transfer.bytes / 3000
    assert pair_matrix(collective, 100) == pytest.approx(drawn, rel=0.15)


def _random(seed: int) -> Any:
    import random

    return random.Random(seed)


# --- what is refused


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
            with pytest.raises(UsageError, match="no length of time"):
                model.score(dataset, gap_ms=gap_ms)


def changed(**paths: Any) -> bytes:
    document = copy.deepcopy(DOCUMENT)
    for path, value in paths.items():
        *way, last = path.split("__")
        inner: Any = document
        for name in way:
            inner = inner[name]
        inner[last] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(version=2), "version 2, and this program reads version 1; fit the model again"),
        (changed(version=True), "version True"),
        (changed(version=1.0), "version 1.0"),
        (changed(version="\n1\x1b[0m"), r"version '\n1\x1b[0m'"),
        (changed(format="other"), "no traffic model"),
        (b"[]", "no traffic model"),
        (b"", "not JSON"),
        (b'{"format": ', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (changed(tear_down__duration_ms=float("nan")), "NaN is no number"),
        (changed(tear_down__duration_ms=-1), "tear_down/duration_ms"),
        (changed(tear_down__duration_ms=1e300), "tear_down/duration_ms"),
        (changed(packets__segment_bytes=0), "packets/segment_bytes"),
        (changed(packets__segment_bytes=100_000), "packets/segment_bytes"),
        (changed(computation__relative=[2.0, 1.0]), "relative: quantiles go down"),
        (changed(computation__relative=[1.0] * 202), "computation/relative"),
        (changed(computation__relative=["1", "2"]), "computation/relative"),
        (changed(exchange__stall_ms={"shared": [1.0, 1.0]}), "exchange/stall_ms"),
        (changed(transfer_matrix=[[0, 1], [1]]), "not square"),
        (changed(more=1), "more"),
        (json.dumps({**DOCUMENT, "control": DOCUMENT["control"] * 20}).encode(), "control"),
        (b" " * 1_000_001, "larger than 1,000,000 bytes"),
    ],
    ids=lambda value: value[:30].replace(" ", "_") if isinstance(value, str) else "",
)
def test_documents_that_are_none_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(data)
    with pytest.raises(ModelError) as refused:
        model.read(path)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_missing_document_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no\.json: there is no such file"):
        model.read(tmp_path / "no.json")


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
        (Job(1, 1000, "ring", 1), "1 workers of ring have nothing to send; give --workers 2 or more"),
        (Job(4, 1000, "ring", 1, servers=2), "--servers means nothing to ring"),
        (Job(4, 1000, "sharded_parameter_server", 1, group_size=2), "--group-size means nothing to sharded"),
        (Job(4, 1000, "unknown", 1, shape="heap"), "--shape means nothing to unknown"),
        (Job(4, 1000, "binary_tree_star", 1, "overlay", group_size=2), "means nothing to the shape overlay"),
    ],
)
def test_jobs_that_cannot_be_are_refused(job: Job, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        model.traffic(DOCUMENT, job)


@pytest.mark.filterwarnings("error")
def test_a_pcap_ends_with_its_seconds(tmp_path: Path) -> None:
    """Steps of a day are no trouble for a list of flows until the year 2106."""
    for days in (1, 31_500):
        job = Job(2, 1000, "ring", days, compute_ms=86_400_000.0)
        assert (model.traffic(DOCUMENT, job).transfers.start_ns > 0).all()
    with pytest.raises(UsageError, match="32 bits"):
        model.generate(DOCUMENT, job, tmp_path / "out", "pcap")
    assert list(tmp_path.iterdir()) == []


def test_a_document_of_extremes_gives_a_run_or_a_reason() -> None:
    """Whatever the schema lets through neither runs over nor fills the memory."""
    document = copy.deepcopy(DOCUMENT)
    document["computation"] |= {"median_ms": 1e9, "relative": [0.0, 1e6], "worker_factors": [1e6, 1e6]}
    levels = {"shared": [-1e6, 1e9], "own": [-1e6, 1e9]}
    document["exchange"] |= {"completion_ms": levels, "first_completion_ms": levels, "stall_ms": levels,
                             "ns_per_byte": 1e9, "least_ns_per_byte": 0.0, "size_ratio": 0.0}  # fmt: skip
    check(document, "extreme")
    for seed in range(10):
        made = model.traffic(document, Job(4, 1_000_000, "ring", 5, seed=seed))
        assert made.transfers.start_ns.min() >= made.run.start_ns
        assert (np.diff(made.times.end_ns, axis=0) >= 0).all()
    document["computation"] |= {"relative": [0.0, 0.0]}
    made = model.traffic(document, Job(4, 1_000_000, "ring", 1))
    assert made.transfers.start_ns.min() >= made.run.start_ns
    document["control"][1]["messages_per_pair"] = 1e6
    with pytest.raises(UsageError, match="messages of the kind answer in phase step"):
        model.traffic(document, Job(8, 1000, "ring", 5))
    made = model.traffic(DOCUMENT, Job(1, 1000, "star", 2, "server", compute_ms=0.0))
    assert made.transfers.payload.any()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    job = Job(2, 1000, "ring", 1)
    model.generate(DOCUMENT, job, tmp_path, "pcap")
    with pytest.raises(UsageError, match="is there already"):
        model.generate(DOCUMENT, job, tmp_path, "pcap")
    with pytest.raises(UsageError, match="name a file"):
        model.generate(DOCUMENT, job, tmp_path, "flows")
    model.generate(DOCUMENT, job, tmp_path / "dataset", "dataset")
    with pytest.raises(UsageError, match="has a run named synthetic; choose another --out or --run-id"):
        model.generate(DOCUMENT, Job(3, 1000, "ring", 1), tmp_path / "dataset", "dataset")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT workers FROM runs").item() == 2


def test_the_list_of_flows_says_whose_exchange_a_transfer_is_of() -> None:
    """Also where it begins or ends in another step of its sender: each step has the volume of the law."""
    document = copy.deepcopy(DOCUMENT)
    document["control"], document["packets"]["retransmitted_share"] = [], 0.0
    for topology, volume in (("ring", 6), ("pair_averaging", 4)):
        made = model.traffic(document, Job(4, 100_000, topology, 30))
        sent: Counter[int] = Counter()
        for *_, payload, step, phase, source in model.flow_list(made):
            assert source == "synthetic"
            if phase == "step":
                sent[step] += payload
        assert set(sent) == set(range(30))
        assert list(sent.values()) == pytest.approx([volume * 100_000 * 1.002] * 30, abs=12)


def test_captures_say_beforehand_how_large_they_will_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, said = Job(3, 50_000, "ring", 4), list[str]()
    folder = model.generate(DOCUMENT, job, tmp_path, "pcap", said.append)
    there = sum(path.stat().st_size for path in folder.iterdir())
    (line,) = said
    assert int(line.split(" bytes")[0].split()[-1].replace(",", "")) == pytest.approx(there, rel=0.01)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=there // 2))
    with pytest.raises(StorageError, match=f"has room for {there // 2:,}"):
        model.generate(DOCUMENT, job, tmp_path / "new", "pcap")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("to", ["pcap", "flows"])
def test_what_is_interrupted_leaves_nothing_and_loses_nothing(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    old = tmp_path / "flows"
    old.write_text("old")
    monkeypatch.setattr("ddnn_traces.traffic.synthetic.packets._write_logs", interrupted)
    monkeypatch.setattr("ddnn_traces.traffic.model.generation.flow_list", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.generate(DOCUMENT, Job(2, 1000, "ring", 1), old if to == "flows" else tmp_path / "new" / to, to)
    assert [(path, path.read_text()) for path in tmp_path.rglob("*")] == [(old, "old")]


@pytest.mark.parametrize("to", ["dataset", "pcap", "flows"])
@pytest.mark.parametrize(
    "name", ["../../up", "..", ".", ".hidden", "a/b", "/a", "a\\b", "", " ", "a\nb", "\0", "\udcff", "\x1b[0m"]
)
def test_names_that_are_no_plain_ones_are_refused(name: str, to: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no plain name") as refused:
        model.generate(DOCUMENT, Job(2, 1000, "ring", 1, run_id=name), tmp_path / "in" / "out", to)
    assert str(refused.value).isprintable()
    assert list(tmp_path.iterdir()) == []


def test_a_plain_name_may_be_of_any_script(tmp_path: Path) -> None:
    job = Job(2, 1000, "ring", 1, run_id="Zürich 2.0+α")
    assert model.generate(DOCUMENT, job, tmp_path, "pcap") == tmp_path / "Zürich 2.0+α"
    model.generate(DOCUMENT, job, tmp_path / "dataset", "dataset")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.run_ids == ["Zürich 2.0+α"]


def test_from_the_command_line(command: Any, made: Dataset, tmp_path: Path) -> None:
    done = command("model", "fit", made.path, "--run", "known", "--out", "model.json")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"wrote model.json: fitted to 1 run\n"
    asked = ("--workers", "6", "--model-bytes", "400000", "--topology", "tree", "--shape", "chain", "--steps", "4")
    done = command("model", "generate", "model.json", *asked, "--to", "pcap", "--out", "generated")
    assert done.returncode == 0
    assert len(list((tmp_path / "generated" / "synthetic").glob("*.pcap"))) == 6
    done = command("model", "score", made.path, "--holdout", "pull", "--model", "model.json", "--format", "csv")
    rows = list(csv.DictReader(done.stdout.decode().splitlines()))
    assert [row["generator"] for row in rows] == ["model", *PEERS]
    assert {row["fitted_by"] for row in rows} == {"given"}
