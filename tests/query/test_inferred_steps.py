"""Steps from traffic alone: against the logs of real captures, and on synthetic traffic with known steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from datasets import write_dataset
from tools import mostly_long, needs_full_captures

import ddnn_traces
from ddnn_traces.query.dataset import Dataset, StoredViews
from ddnn_traces.store import schema

BEGIN_NS = 1_700_000_000_000_000_000
MS = 1_000_000
MSS = 1448  # payload of a full packet
#: Runs whose workers do not wait for each other.
ASYNCHRONOUS = {"torchp2p-mlp1-pairavg-32-gloo-0ms-gossip"}

# --- real captures


def assert_steps_are_those_of_the_logs(dataset: Dataset) -> None:
    scores = dataset.query("step_inference_score")
    assert scores["run_id"].to_list() == dataset.run_ids
    asynchronous = scores.filter(pl.col("run_id").is_in(ASYNCHRONOUS))
    assert asynchronous.select("structured", "inferred").unique().rows() == [(False, 0)]
    others = scores.filter(~pl.col("run_id").is_in(ASYNCHRONOUS))
    assert others["structured"].all()
    wrong = others.filter((pl.col("recall") < 0.95) | (pl.col("precision") < 0.95))
    assert wrong.select("run_id", "recall", "precision").rows() == []
    assert (others["inferred"] == others["in_log"]).all()
    assert asynchronous["is_asynchronous"].to_list() == [True]
    assert asynchronous.select("matched", "recall", "precision", "median_error_share").unique().rows() == [(None,) * 4]
    assert (others["corrected_precision"] > 0.9).all()
    inferred = dataset.query("inferred_steps")
    for run_id, median, p95 in others.select("run_id", "median_error_share", "p95_error_share").iter_rows():
        assert (median, p95) == pytest.approx(timeline_error(dataset, inferred.filter(run_id=run_id), run_id))


def timeline_error(dataset: Dataset, steps: pl.DataFrame, run_id: str) -> tuple[float, float]:
    """Median and 95th percentile of the distance to the nearest inferred boundary, over the median step."""
    logged = dataset.sql("SELECT max(end_ns) FROM steps WHERE run_id = ? GROUP BY step", [run_id])
    ends = np.unique(logged.to_series().to_numpy())
    errors = np.abs(ends[:, None] - steps["end_ns"].to_numpy()).min(axis=1) / np.median(np.diff(ends))
    return float(np.median(errors)), float(np.percentile(errors, 95))


def test_steps_of_the_sample(sample_dataset: Dataset) -> None:
    assert_steps_are_those_of_the_logs(sample_dataset)


@needs_full_captures
def test_steps_of_the_full_captures(full_dataset: Dataset) -> None:
    assert_steps_are_those_of_the_logs(full_dataset)


@pytest.mark.long
def test_steps_of_the_published_runs() -> None:
    """By the declared topology, which the query does not read: pair averaging has no steps, most others have."""
    with ddnn_traces.open(schema.shipped_folder("data/dataset")) as dataset, StoredViews(dataset) as stored:
        stored.store_inputs("step_inference_score")  # both queries read the same
        scores = dataset.query("step_inference_score").join(
            dataset.sql("SELECT run_id, topology, (ranks_per_host > 1)::INTEGER AS warm_up FROM runs"), on="run_id"
        )
        inferred = dataset.query("inferred_steps").group_by("run_id").agg(pl.col("is_synchronous", "evidence").first())
    asynchronous = scores.filter(topology="pair_averaging").join(inferred, on="run_id")
    assert asynchronous.height == 12
    # six steps show no more than that there are none
    assert asynchronous.select("structured", "inferred").unique().rows() == [(False, 0)]
    assert not asynchronous["is_synchronous"].any()
    of_80_steps = asynchronous.filter(pl.col("run_id").str.contains("digits"))
    assert of_80_steps.height == 3 and of_80_steps["evidence"].str.starts_with("asynchronous").all()
    others = scores.filter(pl.col("topology").is_null() | (pl.col("topology") != "pair_averaging"))
    called = inferred.filter(pl.col("run_id").is_in(others["run_id"].implode()), is_synchronous=False)["run_id"]
    assert called.str.contains("-async-").all()  # a server that answers each worker by itself
    # by the pauses of all traffic alone: 121 runs, and 1,553 of 1,686 boundaries are those of the logs
    assert others["structured"].sum() >= 153
    compared = others.drop_nulls("matched")
    # TensorFlow's chief and its ring end a step later than 5 ms after its last data in most runs without a pause
    by_tensorflow = pl.col("run_id").str.starts_with("tf-")
    for runs, share, least in ((~by_tensorflow, 0.975, 2700), (by_tensorflow, 0.59, 850)):
        part = compared.filter(runs)
        logged = part["inferred"].sum() - part["warm_up"].sum()  # runs of several ranks have one step before their log
        assert part["matched"].sum() >= share * logged >= share * least


# --- made traffic


@dataclass
class Wire:
    """Payload of a made run by window and flow."""

    window_ns: int = MS
    counts_packets: bool = False
    pairs: dict[int, tuple[int, int]] = field(default_factory=dict)  # of a flow; without one it goes to the next host
    sent: list[tuple[int, int, int]] = field(default_factory=list)  # time, flow, bytes

    def burst(self, start_ns: float, length_ns: float, flow: int, size: int) -> None:
        """`size` bytes of a flow, evenly over a time, the last packet at its very end."""
        packets = max(2, min(round(length_ns / self.window_ns) * 2, size // 100))
        times = start_ns + np.linspace(0, length_ns - 1, packets)
        sizes = np.diff(np.linspace(0, size, packets + 1).round().astype(int))
        self.sent += [(int(time), flow, int(part)) for time, part in zip(times, sizes, strict=True)]

    def tables(self, run_id: str, hosts: int) -> dict[str, pl.DataFrame]:
        """The tables of a run of so many hosts."""
        windows = (
            pl.DataFrame(self.sent, schema=["time", "flow_id", "payload_bytes"], orient="row")
            .with_columns(window_start_ns=(BEGIN_NS + pl.col("time")) // self.window_ns * self.window_ns)
            .group_by("window_start_ns", "flow_id")
            .agg(pl.col("payload_bytes").sum(), packets=(pl.col("payload_bytes") / MSS).ceil().sum().cast(pl.Int64))
            .with_columns(packets=pl.col("packets") if self.counts_packets else pl.lit(None, pl.Int64))
            .sort("window_start_ns", "flow_id")
            .with_columns(run_id=pl.lit(run_id), window_ns=pl.lit(self.window_ns))
        )
        flows = (
            windows.group_by("flow_id")
            .agg(pl.col("payload_bytes").sum())
            .sort("flow_id")
            .with_columns(
                run_id=pl.lit(run_id),
                src_ip=self._hosts(0, hosts),
                dst_ip=self._hosts(1, hosts),
                src_port=pl.col("flow_id"),
            )
        )
        return {"runs": pl.DataFrame({"run_id": [run_id]}), "flows": flows, "flow_windows": windows}

    def _hosts(self, end: int, hosts: int) -> pl.Expr:
        host = (pl.col("flow_id") + end) % hosts
        if self.pairs:
            host = pl.col("flow_id").replace_strict({flow: pair[end] for flow, pair in self.pairs.items()})
        return pl.format("10.0.0.{}", host + 1)


@dataclass
class Training:
    """Synchronous training in a ring, times in ms."""

    hosts: int = 4
    steps: int = 60
    window_ns: int = MS
    compute: float = 50
    communicate: float = 40
    step_bytes: int = 1_000_000  # a host
    jitter: float = 0.1  # of the computation, standard deviation
    stragglers: float = 0  # part of the steps in which a host starts later, by up to a computation
    timeouts: float = 0  # part of the steps in which all wait 200 ms for a retransmission
    buckets: int = 1  # bursts a step, computation between them
    epoch: int | None = None  # steps, after which all pause for 3 s
    retransmitted: float = 0  # of the payload, mean
    broadcast: bool = True
    coordination: float | None = None  # ms between messages on the training's own connections, as in Horovod
    chatter: bool = False  # a remote shell all the time, heartbeats on the training's own connections
    seed: int = 1

    def run(self) -> tuple[Wire, list[int]]:
        """The traffic, and the end of each step in ns after the start."""
        rng, now, ends = np.random.default_rng(self.seed), 0.0, []
        wire = Wire(self.window_ns, counts_packets=self.coordination is not None)
        if self.broadcast:
            for flow in range(self.hosts - 1):
                wire.burst(now + flow * 5 * MS, 5 * MS, flow, self.step_bytes // 2)
            now += self.hosts * 5 * MS + 1300 * MS
        for step in range(self.steps):
            now += self.compute * max(0.3, rng.normal(1, self.jitter)) * MS
            now = ends_at = self._communicate(wire, rng, now)
            ends.append(int(ends_at))
            if self.epoch and (step + 1) % self.epoch == 0:
                now += 3000 * MS
        if self.chatter:
            self._chat(wire, rng, now)
        if self.coordination:
            times = np.arange(0, now, self.coordination * MS)
            wire.sent += [(int(time), flow, 60) for time in times for flow in range(self.hosts)]
        return wire, ends

    def _communicate(self, wire: Wire, rng: np.random.Generator, now: float) -> float:
        length = self.communicate * MS / self.buckets
        for bucket in range(self.buckets):
            now += self.compute * 0.15 * MS * (bucket > 0)
            late = rng.uniform(0.2, 1) * self.compute * MS if rng.random() < self.stragglers / self.buckets else 0
            size = self.step_bytes // self.buckets * (1 + self.retransmitted * rng.uniform(0.5, 1.5))
            waits = rng.random() < self.timeouts / self.buckets
            for flow in range(self.hosts):
                begin = now + (late if flow == 0 else rng.uniform(0, 0.02) * length)
                if waits:
                    wire.burst(begin, length / 3, flow, int(size * 0.4))
                    wire.burst(begin + length / 3 + 200 * MS, length / 3, flow, int(size) - int(size * 0.4))
                else:
                    wire.burst(begin, length, flow, int(size))
            now = max(time for time, _, _ in wire.sent[-4 * self.hosts * max(4, int(length / self.window_ns)) :])
        return now

    def _chat(self, wire: Wire, rng: np.random.Generator, end: float) -> None:
        for time in np.cumsum(rng.exponential(25 * MS, int(end / 25 / MS))):
            wire.sent.append((int(time), 1000, 80))
        for time in np.arange(0, end, 33 * MS):
            wire.sent.append((int(time), int(rng.integers(self.hosts)), 17))


def inferred(runs: Mapping[str, tuple[Wire, int]], folder: Path) -> dict[str, pl.DataFrame]:
    """Rows of the query for each run of that name, traffic and number of hosts; one query of all is much faster."""
    of_runs = [wire.tables(name, hosts) for name, (wire, hosts) in runs.items()]
    tables = {table: pl.concat([run[table] for run in of_runs]) for table in of_runs[0]}
    with write_dataset(folder / "dataset", tables) as dataset:
        rows = dataset.query("inferred_steps")
    return {name: rows.filter(run_id=name) for name in runs}


TRAININGS = {
    "plain": Training(),
    "no broadcast": Training(broadcast=False),
    "period of 20 ms": Training(compute=10, communicate=10, steps=200),
    "period of 1 s": Training(compute=600, communicate=400),
    "period of 10 s": Training(compute=6000, communicate=4000, steps=15),
    "mostly communication": Training(compute=15, communicate=300),
    "windows of 0.1 ms": Training(window_ns=MS // 10, compute=10, communicate=10),
    "windows of 10 ms": Training(window_ns=10 * MS, compute=100, communicate=150),
    "2 hosts": Training(hosts=2),
    "16 hosts": Training(hosts=16),
    "64 hosts": Training(hosts=64, steps=20),
    "jitter": Training(jitter=0.4),
    "stragglers": Training(stragglers=0.3),
    "timeouts": Training(timeouts=0.3),
    "buckets": Training(buckets=5, communicate=60),
    "validation": Training(steps=200, epoch=20),
    "a dozen epochs": Training(steps=300, epoch=25),
    "loss": Training(retransmitted=0.01, timeouts=0.2),
    "chatter": Training(chatter=True),
    "coordination": Training(coordination=1),
    "coordination and a short period": Training(coordination=5, compute=10, communicate=10, steps=200),
    "everything": Training(
        steps=200, jitter=0.2, stragglers=0.1, timeouts=0.1, buckets=3, epoch=50, retransmitted=0.01, chatter=True
    ),
    "thousands of steps": Training(steps=3000, hosts=2, compute=20, communicate=10),
    "3 steps": Training(steps=3),
}


QUICK = [*list(TRAININGS)[::8], "coordination"]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(QUICK, id="some"),
        pytest.param([name for name in TRAININGS if name not in QUICK], id="others", marks=pytest.mark.long),
    ],
)
def test_steps_of_synthetic_training(names: list[str], tmp_path: Path) -> None:
    made = {name: TRAININGS[name].run() for name in names}
    steps = inferred({name: (wire, TRAININGS[name].hosts) for name, (wire, _) in made.items()}, tmp_path)
    for name, found in steps.items():
        _, ends = made[name]
        assert found["structured"].all(), name
        distance = np.abs(np.array(ends)[:, None] + BEGIN_NS - found["end_ns"].to_numpy()[None])
        tolerance = max(5 * MS, TRAININGS[name].window_ns)
        assert (distance.min(axis=1) <= tolerance).mean() >= 0.95, f"recall of {name}"
        assert (distance.min(axis=0) <= tolerance).mean() >= 0.95, f"precision of {name}"
        assert 0.5 < found["confidence"][0] <= 1, name


@pytest.mark.long
def test_steps_without_a_pause_between_them(tmp_path: Path) -> None:
    """In every sixth step flow 1 is done early and begins its next step while the others still send this one."""
    wire, ends, now, early = Wire(), [], 0, None
    for step in range(40):
        begin, end = now + 50 * MS, now + 90 * MS
        is_overtaken = step % 6 == 3
        for flow in (0, 2, 3):
            wire.burst(begin, end - begin, flow, 1_000_000)
        first = early or begin
        wire.burst(first, end - is_overtaken * 20 * MS - first, 1, 1_000_000)
        early = end - 8 * MS if is_overtaken else None
        ends.append(end)
        now = end
    found = inferred({"run": (wire, 4)}, tmp_path)["run"]
    distance = np.abs(found["end_ns"].to_numpy() - BEGIN_NS - np.array(ends))
    assert (distance <= 2 * MS).all()
    assert found.filter(pl.col("pause_before_ms") == 0)["step"].to_list() == [step + 1 for step in range(3, 39, 6)]


def clique(rng: np.random.Generator, workers: int, steps: int = 30) -> tuple[Wire, list[int]]:
    """Each worker sends to all others when it has computed, in a time of its own; hardly ever are all silent."""
    wire = Wire(pairs=dict(enumerate((a, b) for a in range(workers) for b in range(workers) if a != b)))
    free, ends = np.zeros(workers), []
    for _ in range(steps):
        done = np.zeros(workers)
        for flow, (sender, receiver) in wire.pairs.items():
            if flow % (workers - 1) == 0:
                begin = free[sender] + rng.uniform(5, 45) * MS
            length = rng.uniform(20, 40) * MS
            wire.burst(begin, length, flow, 940_584)
            done[receiver] = max(done[receiver], begin + length)
            done[sender] = max(done[sender], begin + length)
        free = done
        ends.append(int(done.max()))
    return wire, ends


@pytest.mark.parametrize("workers", [3, 4, 5, 6])
@pytest.mark.long_after(1)
def test_steps_of_a_clique_that_is_hardly_ever_silent(workers: int, tmp_path: Path) -> None:
    """Pauses of all traffic at once find none: workers begin a step before others have ended the one before."""
    made = {f"seed {seed}": clique(np.random.default_rng(seed), workers) for seed in range(4)}
    for name, found in inferred({name: (wire, workers) for name, (wire, _) in made.items()}, tmp_path).items():
        assert found["step"].to_list() == list(range(30)), name
        assert (np.abs(found["end_ns"].to_numpy() - BEGIN_NS - np.array(made[name][1])) <= 2 * MS).all(), name
        assert set(found["found_by"]) == {"pairs"}, name
        assert found["is_synchronous"].all(), name


def server(
    rng: np.random.Generator,
    workers: int,
    *,
    waits: bool,
    first_pull: bool = False,
    jitter: float = 0.1,
    transfer: float = 8 * MS,
    in_turn: bool = False,
) -> Wire:
    """Workers compute, send gradients of 940 kB, and get as many bytes back: at once, or when all have sent."""
    wire = Wire(pairs={**{w: (w + 1, 0) for w in range(workers)}, **{workers + w: (0, w + 1) for w in range(workers)}})
    now = np.zeros(workers)
    if first_pull:
        for worker in range(workers):
            now[worker] = rng.uniform(0, 40) * MS
            wire.burst(now[worker], 8 * MS, workers + worker, 940_584)
            now[worker] += 8 * MS
    for _ in range(30):
        now += 50 * MS * np.maximum(rng.normal(1, jitter, workers), 0.3)
        for worker in range(workers):
            wire.burst(now[worker], transfer, worker, 940_584)
        now = np.full(workers, now.max()) + transfer + MS if waits else now + transfer + MS
        now += in_turn * transfer * rng.permutation(workers)
        for worker in range(workers):
            wire.burst(now[worker], transfer, workers + worker, 940_584)
        now = now + transfer
    return wire


@pytest.mark.parametrize("first_pull", [False, True])
@pytest.mark.parametrize("workers", [2, 3, 4, 5])
@pytest.mark.long_after(1)
def test_an_asynchronous_server_is_known_by_the_traffic(workers: int, first_pull: bool, tmp_path: Path) -> None:
    """Its workers are about as fast as each other, so that rounds of all of them recur, as steps would."""
    runs = {
        f"{waits} {seed}": (
            server(np.random.default_rng(seed), workers, waits=waits, first_pull=first_pull),
            workers + 1,
        )
        for waits in (False, True)
        for seed in range(4)
    }
    for name, found in inferred(runs, tmp_path).items():
        waits = name.startswith("True")
        assert set(found["is_synchronous"]) == {waits}, name
        assert found["step"].drop_nulls().to_list() == (list(range(30)) if waits else []), name
        assert found["evidence"][0].startswith("synchronous" if waits else "asynchronous"), name


@pytest.mark.long
@pytest.mark.parametrize("workers", [2, 5])
def test_asynchronous_workers_that_stay_together(workers: int, tmp_path: Path) -> None:
    """They are never a transfer apart, as if each waited for the others. A server that waits may answer in any turn."""
    runs = {
        f"{waits} {in_turn} {transfer} ms {jitter}": (
            server(
                np.random.default_rng(1),
                workers,
                waits=waits,
                jitter=jitter,
                transfer=transfer * MS,
                in_turn=in_turn,
            ),
            workers + 1,
        )
        for waits, in_turn in ((False, False), (True, False), (True, True))
        for transfer, jitter in ((8, 0.005), (8, 0.01), (20, 0.02), (40, 0.05))
    }
    for name, found in inferred(runs, tmp_path).items():
        waits = name.startswith("True")
        assert found["waiting_share"][0] >= 0.9, name
        assert set(found["is_synchronous"]) == {waits}, name
        assert found["step"].drop_nulls().to_list() == (list(range(30)) if waits else []), name
        assert "for each ms" in found["evidence"][0] or waits, name


def gossip(rng: np.random.Generator) -> Wire:
    """Whole models between random pairs at random times."""
    wire = Wire()
    for time in np.cumsum(rng.exponential(30 * MS, 300)):
        wire.burst(time, 8 * MS, int(rng.integers(8)), 1_000_000)
    return wire


def parameter_server(rng: np.random.Generator) -> Wire:
    """Workers that each go at their own speed."""
    wire = Wire()
    for flow in range(5):
        now = 0.0
        while now < 10e9:
            wire.burst(now, 8 * MS, flow, 1_000_000)
            now += (40 + 9 * flow) * MS * rng.uniform(0.7, 1.3)
    return wire


def strewn(rng: np.random.Generator) -> Wire:
    """Windows that have payload or none by chance, of the same flows."""
    wire = Wire()
    for number in np.flatnonzero(rng.random(8000) < 0.3):
        wire.sent += [(int(number) * MS, flow, int(rng.integers(1000, 20_000))) for flow in range(4)]
    return wire


def strewn_alike(rng: np.random.Generator) -> Wire:
    wire = Wire()
    for number in np.flatnonzero(rng.random(8000) < 0.3):
        wire.sent += [(int(number) * MS, flow, 14_480) for flow in range(4)]
    return wire


def bursts_of_any_size(rng: np.random.Generator) -> Wire:
    wire = Wire()
    for time in np.cumsum(rng.exponential(60 * MS, 200)):
        for flow in range(4):
            wire.burst(time, 10 * MS, flow, int(rng.lognormal(13, 1)))
    return wire


def constant_rate(_: np.random.Generator) -> Wire:
    wire = Wire()
    wire.sent = [(number * MS, flow, 14_480) for number in range(5000) for flow in range(4)]
    return wire


def one_burst(_: np.random.Generator) -> Wire:
    wire = Wire()
    wire.burst(0, 40 * MS, 0, 1_000_000)
    return wire


def two_steps(_: np.random.Generator) -> Wire:
    return Training(steps=2).run()[0]


def one_step(_: np.random.Generator) -> Wire:
    return Training(steps=1).run()[0]


UNSTRUCTURED = (
    gossip, parameter_server, strewn, strewn_alike, bursts_of_any_size, constant_rate, one_burst, one_step, two_steps
)  # fmt: skip


@pytest.mark.parametrize("seed", mostly_long(range(5)))
def test_no_structure(seed: int, tmp_path: Path) -> None:
    runs = {make.__name__: (make(np.random.default_rng(seed)), 8) for make in UNSTRUCTURED}
    for name, found in inferred(runs, tmp_path).items():
        assert found.select("run_id", "structured").rows() == [(name, False)]
        others = found.drop("run_id", "structured", "waiting_share", "is_synchronous", "evidence")
        assert others.rows() == [(None,) * others.width], name
        assert not found["is_synchronous"][0], name
        assert found["evidence"][0], name
