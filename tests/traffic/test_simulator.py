"""The simulator against closed forms, the thesis's numbers, properties, and its two engines against each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ddnn_traces.errors import SimulationError, UsageError
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator import exchange
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import LayerProfile, thesis
from ddnn_traces.traffic.simulator.result import Result, first_forward

MS = 1e6  # ns


def iteration(**values: Any) -> float:
    """Time of the first iteration of a run, ms."""
    return float(simulator.simulate(SimulatedRun(**values)).iteration_ms[0, 0])


def exchange_ms(size: int, **values: Any) -> float:
    """Time of an exchange at 1 byte a ns and 1 ms of delay."""
    run = SimulatedRun(bandwidth_mbit=8000, delay_ms=1, **values)
    return sum(exchange.timed(run, rounds).duration_ns for rounds in exchange.phases(run, size)) / MS


# --- the thesis


BASE = {"bandwidth_mbit": 1000}
RESCALED = {"profile": thesis().resized(100_000_000), "fuse_from": "last"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, 1100.1),  # figure 4.8: "200 ms later at 1100 ms"
        ({"queue": "priority", "barrier": False}, 972.0),  # figure 4.7: 12% less
        ({"queue": "priority"}, 1100.1),  # with the barrier priority gains nothing
        ({"barrier": False}, 1100.1),  # nor does FIFO without it
        (RESCALED, 1124.0),
        ({**RESCALED, "queue": "priority", "barrier": False}, 970.2),
    ],
)
def test_the_iteration_times_of_the_thesis_at_1_gbit_s(values: dict[str, Any], expected: float) -> None:
    assert iteration(**BASE, **values) == pytest.approx(expected, abs=0.1)


def test_priority_without_barrier_saves_about_12_percent_and_nothing_from_2_gbit_s_on() -> None:
    def saved(mbit: float) -> float:
        return 1 - iteration(bandwidth_mbit=mbit, queue="priority", barrier=False) / iteration(bandwidth_mbit=mbit)

    assert saved(1000) == pytest.approx(0.116, abs=0.001)
    assert [saved(mbit) for mbit in (2000, 5000, 10_000, 20_000)] == pytest.approx([0] * 4, abs=1e-9)


RESCALED_UP = {"profile": RESCALED["profile"]}


@pytest.mark.parametrize(
    ("values", "faster", "first"),
    [
        ({}, 128.1, 972.0),
        ({"fuse_from": "last"}, 177.9, 931.9),
        (RESCALED_UP, 130.3, 983.6),
        (RESCALED, 153.8, 944.8),  # figure 4.9: "around 950 ms", "150ms faster than the FIFO queue"
    ],
)
def test_the_first_forward_layer_of_each_variant(values: dict[str, Any], faster: float, first: float) -> None:
    """The rows of docs/simulator.md; from the start of the forward pass before."""
    fifo = iteration(**BASE, **values)
    run = SimulatedRun(**BASE, **values, queue="priority", barrier=False)
    result = simulator.simulate(run)
    assert fifo - float(result.iteration_ms.mean()) == pytest.approx(faster, abs=0.1)
    assert first_forward(result)[0, 0] / MS == pytest.approx(first, abs=0.1)


# --- closed forms


@pytest.mark.parametrize(
    ("topology", "workers", "more", "bytes_on_busiest_link", "rounds"),
    [
        ("ring", 2, {}, 1.0, 2),
        ("ring", 8, {}, 2 * 7 / 8, 14),
        ("tree", 7, {}, 8.0, 4),  # two levels of two children, up and down
        ("tree", 8, {"shape": "chain"}, 14.0, 14),
        ("star", 5, {}, 8.0, 2),
        ("star", 5, {"shape": "server"}, 10.0, 2),
        ("sharded_parameter_server", 8, {"servers": 4}, 4.0, 2),
        ("sharded_parameter_server", 2, {"servers": 4}, 2.0, 2),
        ("halving_doubling", 8, {}, 2 * 7 / 8, 6),
        ("recursive_doubling", 8, {}, 3.0, 3),
        ("clique", 4, {}, 3.0, 1),
        ("clique", 4, {"shape": "sharded"}, 2 * 3 / 4, 2),
        ("pair_averaging", 4, {"shape": "exchange"}, 1.0, 1),
        ("hierarchical_ring", 16, {"shape": "grid", "group_size": 4}, 2 * 15 / 16, 12),
    ],
)
def test_the_time_of_each_collective(
    topology: str, workers: int, more: dict[str, Any], bytes_on_busiest_link: float, rounds: int
) -> None:
    """Bytes over the rate, and the delay once a round (collectives.py names the sources)."""
    size = 16 * 1024
    found = exchange_ms(size, topology=topology, workers=workers, **more)
    assert found == pytest.approx(bytes_on_busiest_link * size / MS + rounds, rel=1e-12)


def test_the_closed_form_of_a_large_ring_is_that_of_its_rounds() -> None:
    run = SimulatedRun(workers=9, header_bytes=66, order=(3, 1, 4, 0, 5, 2, 6, 8, 7))
    for size in (9, 1000, 5_000_001):
        [rounds] = exchange.phases(run, size)
        plain, closed = exchange.timed(run, rounds), exchange.ring(run, size)
        assert closed.duration_ns == pytest.approx(plain.duration_ns, rel=1e-12)
        one, other = (exchange.merged(phase, run.workers).transmissions for phase in (plain, closed))
        for name in ("src", "dst", "payload"):
            assert getattr(one, name).tolist() == getattr(other, name).tolist()


def test_a_compute_bound_iteration_is_the_computation_and_the_last_buffer() -> None:
    run = SimulatedRun(bandwidth_mbit=100_000, delay_ms=0)
    last = run.buffers[0].bytes * 8 / 100_000e6 * 1e3
    assert iteration(bandwidth_mbit=100_000, delay_ms=0) == pytest.approx(900 + last, rel=1e-9)


def test_a_network_bound_iteration_is_the_exchange_from_the_first_buffer_on_and_the_forward_pass() -> None:
    run = SimulatedRun(bandwidth_mbit=100, delay_ms=0)
    first = run.profile.backward_ns[run.buffers[-1].first :].sum() / MS
    exchange = run.profile.model_bytes * 8 / 100e6 * 1e3
    assert iteration(bandwidth_mbit=100, delay_ms=0) == pytest.approx(first + exchange + 300, rel=1e-6)


def test_a_server_with_a_barrier_exposes_the_whole_distribution() -> None:
    """Chang 2018, section 2: the exchange is 2 m w bytes; only the aggregation overlaps with computation."""
    run = SimulatedRun(topology="star", shape="server", workers=8, server_barrier=True, delay_ms=0)
    found = simulator.summary(simulator.simulate(run))
    assert found["distribution_remaining_ms"] == pytest.approx(8 * run.profile.model_bytes * 8 / 10e9 * 1e3)
    assert found["sent_bytes"] == 2 * 8 * run.profile.model_bytes
    assert found["aggregation_remaining_ms"] < found["distribution_remaining_ms"]


def test_multicast_and_in_network_aggregation_take_the_servers_link_once() -> None:
    values = {"topology": "star", "shape": "server", "workers": 8, "server_barrier": True, "delay_ms": 0}
    once = thesis().model_bytes * 8 / 10e9 * 1e3
    plain, multicast, summed = (
        simulator.summary(simulator.simulate(SimulatedRun(**values, **more)))
        for more in ({}, {"multicast": True}, {"in_network_aggregation": True})
    )
    assert multicast["distribution_remaining_ms"] == pytest.approx(once)
    assert multicast["aggregation_remaining_ms"] == pytest.approx(plain["aggregation_remaining_ms"])
    assert summed["distribution_remaining_ms"] == pytest.approx(plain["distribution_remaining_ms"])
    assert summed["aggregation_remaining_ms"] < plain["aggregation_remaining_ms"]


def test_a_straggler_delays_all() -> None:
    even = simulator.simulate(SimulatedRun(workers=4))
    slow = simulator.simulate(SimulatedRun(workers=4, compute_factors=(1, 1, 2, 1)))
    assert slow.iteration_ms.mean() == pytest.approx(even.iteration_ms.mean() + 900, rel=1e-2)
    assert (slow.exposed_ms[:, 0] > even.exposed_ms[:, 0] + 800).all()


@pytest.mark.parametrize("distribution", ["normal", "lognormal", "exponential"])
def test_jitter_has_the_standard_deviation_that_it_states(distribution: str) -> None:
    run = SimulatedRun(workers=200, steps=100, compute_jitter=0.1, compute_distribution=distribution, seed=3)
    assert run.factors().std() == pytest.approx(0.1, rel=0.05)
    assert run.factors().mean() == pytest.approx(1.1 if distribution == "exponential" else 1, rel=0.01)
    assert (run.factors() == run.changed(seed=3).factors()).all() and (
        run.factors() != run.changed(seed=4).factors()
    ).any()


def test_compression_divides_what_is_sent() -> None:
    plain, packed = (simulator.simulate(SimulatedRun(compression=factor)) for factor in (1, 4))
    assert packed.transmissions.payload.sum() * 4 == pytest.approx(plain.transmissions.payload.sum(), rel=1e-5)


def test_parts_of_buffers_let_the_first_layer_pre_empt() -> None:
    values = {"bandwidth_mbit": 500, "queue": "priority", "barrier": False}
    whole, parts = (simulator.simulate(SimulatedRun(**values, partition_bytes=size)) for size in (None, 500_000))
    assert first_forward(parts)[0, 0] < first_forward(whole)[0, 0]


# --- jobs that share links


def test_two_jobs_on_the_same_links_share_them_fairly() -> None:
    run = SimulatedRun(bandwidth_mbit=100, delay_ms=0, run_id="a")
    alone = simulator.simulate(run).iteration_ms
    both = simulator.simulate_all([run, run.changed(run_id="b")])
    for result in both:
        exposed = run.profile.model_bytes * 8 / 100e6 * 1e3
        assert result.iteration_ms == pytest.approx(alone + exposed, rel=1e-6)


def test_jobs_on_other_hosts_do_not_meet() -> None:
    run = SimulatedRun(bandwidth_mbit=1000, workers=3, run_id="a")
    apart = simulator.simulate_all([run, run.changed(run_id="b", first_host=3)])
    assert apart[0].iteration_ms == pytest.approx(simulator.simulate(run).iteration_ms, rel=1e-9)
    assert np.bincount(apart[1].transmissions.src).tolist() == np.bincount(apart[0].transmissions.src).tolist()


def test_jobs_cannot_give_a_link_different_rates() -> None:
    run = SimulatedRun(run_id="a", workers=3)
    with pytest.raises(UsageError, match="b: bandwidth_mbit: another job gives the link of host 2 another rate"):
        simulator.simulate_all([run, SimulatedRun(run_id="b", workers=2, first_host=2, bandwidth_mbit=1000)])


def test_max_min_fair_rates_of_a_known_network() -> None:
    """Host 0 sends to 1 and 2, host 3 to 2, at 1, 1, 0.5 and 1 bytes a ns: 2's link in is filled first."""
    rates = np.array([1.0, 1.0, 0.5, 1.0])
    found = exchange.max_min_rates(np.array([0, 0, 3]), np.array([1, 2, 2]), rates)
    assert found.tolist() == [0.75, 0.25, 0.25]


ENGINES = [
    ({"topology": topology, "workers": 5}, schedule)
    for topology in (
        "ring", "tree", "star", "sharded_parameter_server", "binary_tree_star", "clique", "recursive_doubling",
        "halving_doubling", "hierarchical_ring",
    )
    for schedule in ({}, {"queue": "priority", "barrier": False})
]  # fmt: skip
VARIATIONS: list[dict[str, Any]] = [
    {}, {"compute_jitter": 0.2}, {"update_ms": 1.0}, {"header_bytes": 66, "partition_bytes": 500_000},
    {"compute_factors": (1, 1.5, 1, 0.7, 1)}, {"uneven": True},
]  # fmt: skip


@pytest.mark.parametrize("values", VARIATIONS, ids=str)
@pytest.mark.parametrize(("job", "schedule"), ENGINES, ids=str)
@pytest.mark.long_after(36)
def test_both_engines_agree(job: dict[str, Any], schedule: dict[str, Any], values: dict[str, Any]) -> None:
    values = dict(values)
    if values.pop("uneven", False):
        hosts = SimulatedRun(**job).collective.hosts
        values["link_mbit"] = (1000.0,) * (hosts - 1) + (300.0,)
    run = SimulatedRun(bandwidth_mbit=1000, steps=3, **job, **schedule, **values)
    one, [other] = simulator.simulate(run), simulator.simulate_all([run])
    assert np.abs(one.schedule.forward_end - other.schedule.forward_end).max() < 1  # ns
    assert np.abs(one.schedule.exchange_end - other.schedule.exchange_end).max() < 1
    assert one.transmissions.payload.sum() == other.transmissions.payload.sum()


@pytest.mark.parametrize(("barrier", "longer_ms"), [(True, 40), (False, 40 - 14)])
def test_inputs_are_loaded_behind_the_barrier_or_beside_the_exchange(barrier: bool, longer_ms: float) -> None:
    """By hand: two layers of 10 ms either way, each exchanged in 12 ms, so that the exchange ends 14 ms behind the
    backward pass. Without barrier that is beside 40 ms of loading."""
    sizes = np.array([12_000_000, 12_000_000])
    times = np.array([10.0, 10.0]) * MS
    computed = LayerProfile("test", ("a", "b"), times, times, sizes)
    jobs = {"barrier": barrier, "bandwidth_mbit": 8000, "delay_ms": 0, "fusion_bytes": 12_000_000}
    runs = [SimulatedRun(profile=profile, **jobs) for profile in (computed, computed.with_loading(40))]
    before, after = (simulator.simulate(run).iteration_ms.mean() for run in runs)
    assert before == pytest.approx(20 + 14 + 20)
    assert after - before == pytest.approx(longer_ms)
    [other] = simulator.simulate_all(runs[1:])
    assert other.iteration_ms.mean() == pytest.approx(after)
    names = simulator.traffic(simulator.simulate(runs[1])).events
    assert names is not None and {"loading", "a", "b"} < set(names.name)


def test_both_engines_agree_on_servers_with_a_barrier() -> None:
    for more in ({}, {"multicast": True}, {"in_network_aggregation": True}, {"server_mbit": 2500.0}):
        run = SimulatedRun(topology="star", shape="server", workers=8, server_barrier=True, update_ms=2, **more)
        one, [other] = simulator.simulate(run), simulator.simulate_all([run])
        assert np.abs(one.schedule.forward_end - other.schedule.forward_end).max() < 1


def test_workers_that_are_the_same_and_workers_that_differ_by_nothing_agree() -> None:
    values = {"workers": 100, "steps": 2, "bandwidth_mbit": 1000}
    same = simulator.simulate(SimulatedRun(**values))
    each = simulator.simulate(SimulatedRun(**values, compute_factors=(1.0,) * 100))
    assert (same.schedule.forward_end == each.schedule.forward_end).all()


# --- properties


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    layers = draw(st.integers(1, 12))
    times = st.lists(st.floats(0.01, 50), min_size=layers, max_size=layers)
    sizes = draw(
        st.lists(st.integers(0, 10**7), min_size=layers, max_size=layers).filter(lambda found: sum(found) > 1000)
    )
    forward, backward = (np.array(draw(times)) * MS for _ in range(2))
    names = tuple(map(str, range(layers)))
    return {
        "profile": LayerProfile("drawn", names, forward, backward, np.array(sizes)),
        "workers": draw(st.integers(2, 6)),
        "topology": draw(st.sampled_from(["ring", "tree", "star", "halving_doubling", "clique"])),
        "bandwidth_mbit": draw(st.floats(50, 20_000)),
        "delay_ms": draw(st.sampled_from([0.0, 0.01, 5.0])),
        "fusion_bytes": draw(st.integers(10**5, 2 * 10**7)),
        "split_tensors": True,
    }


@given(job=jobs(), queue=st.sampled_from(["fifo", "priority"]), barrier=st.booleans())
@settings(deadline=None)
def test_work_is_conserved_and_nothing_happens_before_its_cause(job: dict[str, Any], queue: str, barrier: bool) -> None:
    run = SimulatedRun(**job, queue=queue, barrier=barrier)
    result = simulator.simulate(run)  # which refuses a link above its rate
    schedule = result.schedule
    sent = sum(t.bytes for b in run.buffers for r in run.collective.rounds(b.bytes) for t in r)
    assert result.transmissions.payload.sum() == run.steps * sent
    assert (schedule.exchange_end >= schedule.exchange_start).all()
    begin = schedule.forward_end[:-1]
    ready = begin[:, :1] + np.cumsum(run.profile.backward_ns[::-1])[::-1][[b.first for b in run.buffers]]
    assert (schedule.exchange_start[:, 0, :, 0] >= ready - 1e-3).all()
    assert (schedule.exchange_end[:, 0, :, -1].max(1) - 1e-3 <= schedule.forward_end[1:].T).all()
    assert (result.exposed_ms >= -1e-9).all()


@given(job=jobs())
@settings(deadline=None)
def test_priority_is_never_later_than_fifo_for_the_first_layer(job: dict[str, Any]) -> None:
    assume(job["profile"].gradient_bytes[0] > 0)
    assume(
        job["topology"] != "star"
    )  # whose two phases overlap: an order that is better for one may be worse for the other
    fifo, priority = (
        simulator.simulate(SimulatedRun(**job, queue=queue, barrier=False, steps=1)) for queue in ("fifo", "priority")
    )
    assert (first_forward(priority) <= first_forward(fifo) + 1e-3).all()


def test_a_part_of_one_byte_on_a_fast_link_is_no_error() -> None:
    """It takes 0.09 ns at half a second, where the difference of two floats is off by a millionth."""
    forward, backward = np.array([234e6]), np.array([34.5e6])
    profile = LayerProfile("small", ("a",), forward, backward, np.array([66427]))
    job = {"workers": 3, "topology": "ring", "fusion_bytes": 100_000, "split_tensors": True}
    result = simulator.simulate(SimulatedRun(profile=profile, **job, bandwidth_mbit=88_799.375, delay_ms=0.0))
    assert (result.transmissions.end_ns - result.transmissions.begin_ns).min() < 0.1


@given(job=jobs(), factor=st.floats(1, 10))
@settings(deadline=None)
def test_more_bandwidth_is_never_slower(job: dict[str, Any], factor: float) -> None:
    """With FIFO. A queue with priorities has anomalies, as every schedule that does not pre-empt (Graham 1969)."""
    slow = simulator.simulate(SimulatedRun(**job))
    fast = simulator.simulate(SimulatedRun(**{**job, "bandwidth_mbit": job["bandwidth_mbit"] * factor}))
    assert (fast.iteration_ms <= slow.iteration_ms + 1e-6).all()


@given(job=jobs(), other=jobs(), offset=st.floats(0, 100))
@settings(deadline=None, max_examples=15)
def test_jobs_that_share_links_send_all_and_no_link_is_above_its_rate(
    job: dict[str, Any], other: dict[str, Any], offset: float
) -> None:
    other["bandwidth_mbit"] = job["bandwidth_mbit"]
    runs = [SimulatedRun(**job, run_id="a"), SimulatedRun(**other, run_id="b", start_ms=offset)]
    results = simulator.simulate_all(runs)  # each is checked against its links
    for run, result in zip(runs, results, strict=True):
        sent = sum(t.bytes for b in run.buffers for r in run.collective.rounds(b.bytes) for t in r)
        assert result.transmissions.payload.sum() == run.steps * sent
    rate = runs[0].rates()[0]
    shared = range(min(run.workers for run in runs))
    for host in shared:
        for way in ("src", "dst"):
            parts = [(r.transmissions, getattr(r.transmissions, way) == host) for r in results]
            times = np.concatenate([np.concatenate([t.begin_ns[m], t.end_ns[m]]) for t, m in parts])
            length = [t.end_ns[m] - t.begin_ns[m] + 2 * np.spacing(t.end_ns[m]) for t, m in parts]
            pace = [t.wire[m] / s for (t, m), s in zip(parts, length, strict=True)]
            change = np.concatenate([np.concatenate([p, -p]) for p in pace])
            order = np.lexsort((change, np.rint(times)))
            assert np.cumsum(change[order]).max(initial=0) <= rate * (1 + 1e-6)


# --- wrong input, and results that cannot be


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"workers": 1}, "workers = 1; it must be 2 to"),
        ({"steps": 0}, "iterations = 0"),
        ({"bandwidth_mbit": 0}, "bandwidth_mbit = 0; it must be above 0"),
        ({"bandwidth_mbit": float("nan")}, "bandwidth_mbit = nan"),
        ({"server_mbit": 0.0, "topology": "star", "shape": "server"}, "server_mbit = 0.0"),
        ({"server_mbit": 100.0}, "server_mbit = 100.0; it must be left out without a parameter server"),
        ({"link_mbit": (100.0, 0.0)}, r"link_mbit = \(100.0, 0.0\); it must be 2 numbers above 0"),
        ({"link_mbit": (100.0,)}, "one a host"),
        ({"delay_ms": -1}, "delay_ms = -1; it must be 0 or more"),
        ({"fusion_bytes": 0}, "fusion_bytes = 0"),
        ({"fusion_bytes": 1000}, "the largest tensor of thesis has 2,666,667 bytes"),
        ({"partition_bytes": 0}, "partition_bytes = 0"),
        ({"compression": 0}, "compression = 0"),
        ({"compute_factors": (1.0, -1.0)}, "one a worker"),
        ({"queue": "lifo"}, "queue = 'lifo'; it must be fifo or priority"),
        ({"multicast": True}, "multicast = True; it must be left out without a parameter server of its own"),
        ({"servers": 2}, "servers = 2; it must be left out for the topology ring"),
        ({"group_size": 2}, "group_size = 2"),
        ({"loss_pct": 1.0}, "loss_pct = 1.0"),
        ({"topology": "mesh"}, "no topology named mesh"),
    ],
)
def test_what_cannot_be_is_one_line_that_names_the_field(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        assert SimulatedRun(**values).buffers
    assert "\n" not in str(caught.value)


def damaged(**columns: Any) -> Result:
    """The default's result with other columns of its transmissions."""
    from dataclasses import replace

    result = simulator.simulate(SimulatedRun())
    return replace(result, transmissions=replace(result.transmissions, **columns))


def test_results_that_cannot_be_are_errors() -> None:
    sent = simulator.simulate(SimulatedRun()).transmissions
    with pytest.raises(SimulationError, match="nothing was sent"):
        damaged(payload=np.zeros_like(sent.payload))
    with pytest.raises(SimulationError, match="takes no time"):
        damaged(end_ns=sent.begin_ns)
    with pytest.raises(SimulationError, match="carries 2 times its rate"):
        damaged(wire=2 * sent.wire)
    result = simulator.simulate(SimulatedRun())
    result.schedule.forward_end[1, 1] = np.nan
    with pytest.raises(SimulationError, match="a worker never ends"):
        Result(result.run, result.schedule, result.transmissions, result.step)
