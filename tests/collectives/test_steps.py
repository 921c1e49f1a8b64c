"""Jobs and their steps, of real and made flows: silences, late hosts, validations, few steps."""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from message_streams import CAPTURES, streams_of

from ddnn_traces.collectives import tables
from ddnn_traces.collectives.infer import infer
from ddnn_traces.collectives.jobs import _step_time
from ddnn_traces.collectives.periods import Period, periods
from ddnn_traces.collectives.steps import in_few_steps, in_steps, is_of_parts
from ddnn_traces.collectives.streams import Array, Stream
from ddnn_traces.collectives.validations import without_rare


@pytest.mark.parametrize(
    ("number", "found"),
    [
        ([0, 1, 3, 4, 6, 7, 9, 10], True),  # three all-gathers and reduce-scatters a step, in a capture of four steps
        ([0, 1, 3, 4, 6, 8, 9, 10], False),
        ([0, 1, 3, 4, 6, 7, 8, 9, 10], False),
        ([0, 1, 3, 4, 6, 7], False),  # two may be so by chance
        ([*range(11)], False),
    ],
)
def test_a_silence_that_each_third_lacks_is_none_of_steps(number: list[int], found: bool) -> None:
    assert is_of_parts(np.array(number)) is found


def test_halves_of_a_step_of_two_hosts_are_no_steps() -> None:
    """Six steps of Open MPI with two ranks each: the tensor of 3,676,200 bytes goes around a ring of four."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / "two_ranks_on_two_hosts.parquet")).to_pylist()
    [one] = job["collectives"]
    assert {transfer["step"] for transfer in one["transfers"]} == set(range(6))
    assert one["tensor_bytes"] == pytest.approx(3_676_200 * (3 / 4) / (1 / 2), rel=0.001)


@pytest.mark.parametrize(
    ("waits_ms", "transfer_ms", "steps"),
    [
        ([60, 10], 30, 6),
        ([60, 10, 60], 30, 12),  # not by turns
        ([60, 30], 30, 12),  # the short ones are longer than half of what is sent: steps compute for as long
        ([60, 60], 30, 12),
    ],
)
def test_silences_by_turns_tell_the_halves_of_steps_of_two_hosts(
    waits_ms: list[int], transfer_ms: int, steps: int
) -> None:
    """Twelve equal parts, each way, with these silences before them."""
    last = np.cumsum(np.resize(waits_ms, 12) + transfer_ms) * 1_000_000
    first, size = last - transfer_ms * 1_000_000, np.full(12, 400_000)
    start = np.cumsum(size) - size
    (job,) = infer([Stream(n, *hosts, start, size, first, last, start) for n, hosts in enumerate(("ab", "ba"))])
    assert len(job.steps.whole) == steps


def test_few_steps_are_told_by_the_longest_silences() -> None:
    """A step that warms up and three more, of 16 ranks on four hosts, in one of whose rounds all wait for 0.15 s."""
    name = "mpi-mobilenet_v1-sgd-32-openmpi-normal-ring-n4-4ranks-sleep-r2"
    about = tomllib.loads((CAPTURES / name / "run.toml").read_text())
    (job,) = infer(streams_of(CAPTURES / name))
    (one,) = job.collectives
    assert (len(job.steps.whole), one.kind, len(one.hosts)) == (1 + about["planned_steps"], "all_reduce", 4)
    # a ring through 16 ranks sends 15/16 of twice the tensor from host to host, through 4 ranks 3/4
    assert one.tensor_bytes == pytest.approx(about["model_bytes"] * (15 / 16) / (3 / 4), rel=0.001)


@pytest.mark.parametrize(("steps", "pause_ms", "found"), [(4, 40, 4), (4, 60, None), (3, 0, None), (12, 40, 12)])
def test_three_equal_parts_and_pauses_that_are_not_the_longest_are_no_steps(
    steps: int, pause_ms: int, found: int | None
) -> None:
    """Twenty messages in each step of a ring, with 100 ms between steps, and one pause within the third. Messages and
    the times between them are of random length, so that flows have no other period."""
    random = np.random.default_rng(1)
    size = random.integers(10_000, 90_000, (steps, 20))
    size[:, -1] += 1_500_000 - size.sum(1)
    pause = random.integers(250_000, 900_000, (steps, 20))
    pause[2, 7] += pause_ms * 1_000_000
    pause[:, 0] = 100_000_000
    first = np.cumsum(pause)
    start = np.cumsum(size) - size.ravel()
    streams = [
        Stream(host, str(host), str((host + 1) % 4), start, size.ravel(), first, first + 1000, start + size.ravel())
        for host in range(4)
    ]
    jobs = in_few_steps(streams)
    assert (jobs and len(jobs[1].whole)) == found


def test_one_silence_a_step_is_a_period_in_a_long_run_too() -> None:
    """The longest of 1,500 silences of 200 ms and a little are in every third step or so."""
    first = np.cumsum(2e8 + np.random.default_rng(1).normal(0, 4e6, 1500)).astype(np.int64)
    size = np.full(1500, 5_000_000)
    start = np.cumsum(size) - size
    (found, *_) = periods(Stream(0, "a", "b", start, size, first, first + 1_000_000, start + size))
    assert (found.size, found.score) == (5_000_000, pytest.approx(1, abs=0.05))


def test_a_link_that_disturbs_a_flow_does_not_make_several_steps_one() -> None:
    """The flows over a slow link have other silences in each step: that recur by chance every three steps."""
    name = "torchp2p-eight_layers-sgd-32-gloo-normal-ps-n4-sleep-slow_link_worker3_100"
    [job] = infer(streams_of(CAPTURES.parent / "faults" / name))
    assert len(job.steps.whole) >= 15, "of the 16 of run.toml"
    assert [one.tensor_bytes for one in job.collectives] == [pytest.approx(3_200_000, rel=0.01)]


@pytest.mark.long
def test_a_flow_that_recurs_every_few_steps_joins_the_job_of_the_others() -> None:
    """20 steps of a server with three workers and 10% loss, which had no job."""
    table = pq.read_table(Path(__file__).parent / "server_with_loss.parquet")
    [job] = tables.jobs_of("run", table).to_pylist()
    assert len({transfer["step"] for one in job["collectives"] for transfer in one["transfers"]}) == 20
    assert [(one["kind"], one["tensor_bytes"]) for one in job["collectives"]] == [
        ("all_reduce", pytest.approx(4_835_752, rel=0.001))
    ]


def test_flows_over_a_long_way_join_the_job_of_the_others() -> None:
    """With 10 ms more on the way of worker-4 its flows pause in each round trip, so that they show no period."""
    name = "torch-eight_layers-sgd-32-gloo-normal-ring-n4-sleep-delay_worker4_10"
    [job] = infer(streams_of(CAPTURES.parent / "faults" / name))
    assert (len(job.hosts), len(job.steps.whole)) == (4, 16)
    assert [(one.kind, round(one.tensor_bytes, -5)) for one in job.collectives] == [
        ("all_reduce", 1_200_000), ("all_reduce", 2_000_000)
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "steps"), [("slow_link_to_a_host", 25), ("slow_link_from_a_host", 15)])
@pytest.mark.long_after(1)
def test_a_slow_link_of_one_direction_hides_no_steps(name: str, steps: int) -> None:
    """DistributedDataParallel of four hosts with 4,223,016 bytes of parameters; one link has 60 Mbit/s, one way only.
    Its flow pauses anywhere. The halves of the all-reduce take as long as each other, but for the computation."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    [one] = job["collectives"]
    assert (one["kind"], one["algorithm"], len(one["hosts"])) == ("all_reduce", "ring", 4)
    assert one["tensor_bytes"] == pytest.approx(4_223_016, rel=0.001)
    assert len({transfer["step"] for transfer in one["transfers"]}) in (steps - 1, steps)


@pytest.mark.long
def test_a_link_that_gets_slow_hides_no_steps() -> None:
    """The same of 2,380,840 bytes on 1 Gbit/s, of which one link has 50 Mbit/s, one way, from step 15 of 30 on. There
    two hosts are a sixth of a step ahead when the others compute, and the sender pauses a hundred times a step."""
    table = pq.read_table(Path(__file__).parent / "link_that_gets_slow.parquet")
    [job] = tables.jobs_of("run", table).to_pylist()
    [one] = job["collectives"]
    assert (one["kind"], one["algorithm"], len(one["hosts"])) == ("all_reduce", "ring", 4)
    assert one["tensor_bytes"] == pytest.approx(2_380_840, rel=0.001)
    assert {transfer["step"] for transfer in one["transfers"]} == set(range(30))
    # backwards, where the link is slow in the first steps
    end, streams = table["last_ns"].to_numpy().max(), []
    for number in np.unique(table["flow_id"].to_numpy()):
        rows = table.filter(np.equal(table["flow_id"].to_numpy(), number))
        offset, bytes_, sent, done = (
            rows[name].to_numpy()[::-1] for name in ("stream_offset", "bytes", "first_ns", "last_ns")
        )
        start, hosts = offset[0] + bytes_[0] - offset - bytes_, (rows[name][0].as_py() for name in ("src_ip", "dst_ip"))
        streams.append(Stream(number, *hosts, start, bytes_, end - done, end - sent, start + bytes_))
    (job,) = infer(streams)
    assert len(job.steps.whole) == 30


@pytest.mark.parametrize(
    ("name", "steps", "collectives"),
    [
        ("tree_of_other_edges", 6, 1),  # flows begin and end with another step: of six steps two did not fit
        ("pipeline_of_six_micro_batches", 20, 36),  # 1F1B; two stages recur with a micro-batch, all with a step
        ("pipeline_with_a_slow_stage", 20, 36),
        ("rounds_of_a_ring_of_four", 10, 1),  # Open MPI; each of the six rounds was a step
    ],
)
@pytest.mark.long_after(2)
def test_parts_of_steps_are_no_steps(name: str, steps: int, collectives: int) -> None:
    """A run of data/captures and one of data/sample, with the steps of their logs, and two pipelines of 20 steps."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    found = {transfer["step"] for one in job["collectives"] for transfer in one["transfers"]}
    assert len(found) in (steps - 1, steps)
    assert len(job["collectives"]) == collectives


@pytest.mark.parametrize(("every", "pause_ns"), [(3, 100_000_000), (6, 200_000_000)])
def test_a_pause_behind_every_few_steps_makes_no_step_of_them(every: int, pause_ns: int) -> None:
    """As many steps between two checkpoints as a ring of four has rounds."""
    streams = []
    for stream in ring_with_a_late_host(0, 36):
        later = pause_ns * (stream.start // (every * 600_000))
        streams.append(replace(stream, first=stream.first + later, last=stream.last + later))
    [job] = infer(streams)
    assert len(job.steps.whole) in (35, 36)


@pytest.mark.parametrize(("score", "step_ns"), [(0.14, 600.0), (0.6, 2400.0)])
def test_a_background_tells_of_no_longer_step(score: float, step_ns: float) -> None:
    """Four flows of a ring, whose step recurs with its multiples, too, and five others with four times its time: by
    chance, or as flows that recur once in a step whose parts are equal."""
    at: Array = np.arange(10)

    def period(parts: int, score: float) -> Period:
        return Period(parts * 1e6, score, at, at, 1e6, parts * 600.0)

    flows = [Stream(number, "a", str(number), at, at, at, at, at) for number in range(9)]
    possible = {flow: [period(1, 0.7), period(4, 0.7)] for flow in flows[:4]}
    assert _step_time(possible | {flow: [period(4, score)] for flow in flows[4:]}) == step_ns


def test_noise_has_no_job() -> None:
    """Flows between four hosts that send at random sizes and times."""
    random = np.random.default_rng(1)
    streams = []
    for number, (src, dst) in enumerate((a, b) for a in range(4) for b in range(4) if a != b):
        size = random.integers(100, 50_000, 300)
        first = np.cumsum(random.exponential(5e6, 300)).astype(np.int64)
        start = np.cumsum(size) - size
        streams.append(Stream(number, f"10.0.0.{src}", f"10.0.0.{dst}", start, size, first, first + 100, start + size))
    assert infer(streams) == []


def test_a_validation_behind_some_steps_moves_no_later_step() -> None:
    """DistributedDataParallel with a pause and an all-reduce of two floats every seven of 21 steps: 200 to 400 bytes
    more on each flow. Each step's messages take 15 to 95 ms, and the steps 350."""
    table = pq.read_table(Path(__file__).parent / "validation_every_seven_steps.parquet")
    [job] = tables.jobs_of("run", table).to_pylist()
    [collective] = job["collectives"]
    assert collective["tensor_bytes"] == 4_008_000
    assert collective["evidence"].startswith("12 messages on each of 4 flows")
    spans: dict[int, list[int]] = defaultdict(list)
    for transfer in collective["transfers"]:
        spans[transfer["step"]] += transfer["first_ns"], transfer["last_ns"]
    assert len(spans) == 21
    assert max(max(times) - min(times) for times in spans.values()) < 100_000_000


def test_a_validation_that_gathers_parameters_is_no_part_of_a_step() -> None:
    """14 steps of fully_shard, a validation behind each sixth: its all-gathers are more than a step's, in one direction
    of the ring only. Sizes are those of four layers."""
    table = pq.read_table(Path(__file__).parent / "validation_of_fsdp.parquet")
    [job] = tables.jobs_of("run", table).to_pylist()
    assert {len({t["step"] for t in one["transfers"]}) for one in job["collectives"]} == {14}
    layers = [769_920, 1_025_600, 1_077_440, 1_436_160]
    for kind, times in (("all_gather", 2), ("reduce_scatter", 1)):
        assert sorted(one["tensor_bytes"] for one in job["collectives"] if one["kind"] == kind) == sorted(
            times * layers
        )


def test_gathered_predictions_make_no_steps_longer() -> None:
    """DistributedDataParallel on gloo, 24 steps, with four all-gathers of predictions behind each sixth."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / "validation_beside_a_ring.parquet")).to_pylist()
    assert len(job["flows"]) == 4
    assert {transfer["step"] for one in job["collectives"] for transfer in one["transfers"]} == set(range(24))
    assert [one["tensor_bytes"] for one in job["collectives"]] == pytest.approx([2_004_000] * 2, rel=0.001)


@pytest.mark.parametrize(
    ("edges", "size", "next_ms", "steps"),
    [
        ([(1, 0), (2, 1), (3, 2), (0, 3)], 200_000, 100, 24),  # the ring the other way around
        ([(1, 0), (2, 0)], 200_000, 100, 24),  # to one host, the third one's neighbour
        ([(1, 0), (2, 1), (3, 2), (0, 3)], 200_000, 300, 6),  # parts of a step: hosts compute before the next one
        ([(1, 0), (2, 1), (3, 2), (0, 3)], 2_000_000, 100, 5),  # scatters of a sharded step; five are whole
    ],
)
def test_a_validation_on_other_flows_makes_no_steps_longer(
    edges: list[tuple[int, int]], size: int, next_ms: int, steps: int
) -> None:
    """Four hosts send 1 MB each to the next one in a ring every 150 ms. Behind each fourth time other flows send."""
    wait = np.resize([100, 100, 100, 200 + next_ms], 24)
    last = (np.cumsum(wait + 50) - wait) * 1_000_000
    streams = []
    for src, dst in [(host, (host + 1) % 4) for host in range(4)]:
        start = 1_000_000 * np.arange(24)
        ends = start + 1_000_000
        streams.append(
            Stream(len(streams), str(src), str(dst), start, np.diff(ends, prepend=0), last - 50_000_000, last, ends)
        )
    first = last[3::4] + 100_000_000
    for src, dst in edges:
        start = size * np.arange(6)
        streams.append(
            Stream(len(streams), str(src), str(dst), start, np.full(6, size), first, first + 100_000_000, start + size)
        )
    (job,) = infer(streams)
    assert len(job.steps.whole) == steps


@pytest.mark.parametrize(
    ("more", "is_left"),
    [
        ([0, 0, 0, 500, 0, 0, 0, 500, 0, 0], True),  # two of ten
        ([0, 500, 0, 500, 0, 500, 0, 500, 0, 0], False),  # in too many
        ([0, 0, 0, 500, -500, 0, 0, 0, 0, 0], False),  # what comes early is no validation
        ([3, -90, 40, 500, -60, 80, -40, 10, -70, 30], False),  # no step has the same bytes
        ([0] * 10, False),
    ],
)
def test_what_few_steps_send_more_is_taken_off_at_their_start(more: list[int], is_left: bool) -> None:
    """Two messages of 100 kB a step and, where there is more, a third one before them; in kB."""
    sizes = [size for one in more for size in ([one] if one > 0 else []) + [100, 100 + min(one, 0)]]
    step = [number for number, one in enumerate(more) for _ in range(3 if one > 0 else 2)]
    size = 1000 * np.array(sizes)
    place = np.arange(len(size)) - np.searchsorted(step, step)
    first = 10**8 * np.array(step) + 10**7 * (1 + place)
    start = np.cumsum(size) - size
    stream = Stream(0, "a", "b", start, size, first, first + 10**6, start + size)
    left = without_rare(stream, 10**8 * np.arange(11), np.arange(11))
    assert (left is not None) == is_left
    assert left is None or left.size.tolist() == [100_000] * 20


def test_three_steps_are_too_few_to_take_off_a_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silence that is seen in three of five steps gives three of their starts."""
    at = np.arange(3) * 1_000_000
    stream = Stream(0, "a", "b", at, np.full(3, 1_000_000), at, at + 1, at)
    job = {stream: Period(1e6, 1.0, np.arange(3), np.arange(3), 1.0, 1e6)}
    monkeypatch.setattr("ddnn_traces.collectives.steps.step_silences", lambda _: (np.arange(3), at, at - 1))
    found = in_steps(job)
    assert found is not None and found[0] == job and found[1].size == {stream: 1_000_000}


def test_control_messages_of_another_job_on_the_same_hosts_are_no_flow_of_a_job() -> None:
    """Two of DistributedDataParallel at once: what a receiver answers on a connection is in no job without its data."""
    table = pq.read_table(Path(__file__).parent / "two_jobs_of_same_hosts.parquet")
    jobs = tables.jobs_of("run", table).to_pylist()
    small, large = sorted(jobs, key=lambda job: job["collectives"][0]["tensor_bytes"])
    sizes = [job["collectives"][0]["tensor_bytes"] for job in (small, large)]
    assert sizes == pytest.approx([1_559_520, 5_769_600], rel=1e-4)
    assert [len(job["flows"]) for job in (small, large)] == [4, 4]


def test_flows_that_recur_twice_a_step_are_no_job_of_their_own() -> None:
    """12 steps of fully_shard with four equal layers: the flows of one direction recur nearly as well in half steps."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / "fsdp_half_steps.parquet")).to_pylist()
    assert len({transfer["step"] for one in job["collectives"] for transfer in one["transfers"]}) == 12
    assert Counter(one["kind"] for one in job["collectives"]) == {"all_gather": 8, "reduce_scatter": 4}


@pytest.mark.long
def test_flows_that_pause_behind_other_layers_are_one_job() -> None:
    """10 steps of four equal layers on a busy machine, gathered and reduced without prefetch: each flow alone recurs in
    three quarters of a step. Of 25 such steps two jobs of 33 were made."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / "fsdp_uneven_layers.parquet")).to_pylist()
    assert len({transfer["step"] for one in job["collectives"] for transfer in one["transfers"]}) == 10
    assert Counter(one["kind"] for one in job["collectives"]) == {"all_gather": 8, "reduce_scatter": 4}


def ring_with_a_late_host(late_ms: float, steps: int = 12) -> list[Stream]:
    """An all-reduce of four hosts on a ring, which compute for 50 ms each step; host 2 computes for `late_ms` more.

    A host sends its first piece when it has computed and sent all of the step before, and each other one when it has
    received one. A piece has 100,000 bytes and takes 1 ms.
    """
    random = np.random.default_rng(3)
    sent: list[list[float]] = [[] for _ in range(4)]
    done = np.zeros(4)
    for _ in range(steps):
        times = np.zeros((6, 4))
        times[0] = done + 50 + random.uniform(0, 2, 4) + [0, 0, late_ms, 0]
        for piece in range(1, 6):
            times[piece] = np.maximum(times[piece - 1], np.roll(times[piece - 1], 1)) + 1
        for host in range(4):
            sent[host] += times[:, host].tolist()
        done = np.maximum(times[5], np.roll(times[5], 1)) + 1
    return [
        Stream(
            host, str(host), str((host + 1) % 4), start := 100_000 * np.arange(6 * steps), np.full(6 * steps, 100_000),
            first := (1e6 * np.array(sent[host])).astype(int), first + 900_000, start + 100_000,
        )
        for host in range(4)
    ]  # fmt: skip


@pytest.mark.parametrize("before", [0.0, 0.7, 2.3, 4.3])
def test_parameters_sent_before_training_hide_no_period(before: float) -> None:
    """A host sends them on one of its flows, with pauses. They are this share of a step's bytes, after which all its
    steps begin."""
    stream = ring_with_a_late_host(0, 24)[0]
    size = np.full(10, round(600_000 * before / 10) + 1)
    start = np.cumsum(size) - size
    first = 20_000_000 * np.arange(10)
    found = periods(
        replace(
            stream,
            start=np.append(start, size.sum() + stream.start),
            size=np.append(size, stream.size),
            first=np.append(first, 500_000_000 + stream.first),
            last=np.append(first + 1_000_000, 500_000_000 + stream.last),
        )
    )
    assert found[0].size == 600_000
    assert len(found[0].step) >= 23, "of 24 steps"


@pytest.mark.parametrize("late_ms", [0, 20, 40, 100, 300])
def test_a_late_host_divides_neither_a_step_nor_a_collective(late_ms: float) -> None:
    """With 100 ms the others wait within the all-reduce for longer than all compute between two steps."""
    streams = ring_with_a_late_host(late_ms)
    [job] = infer(streams)
    [found] = job.collectives
    assert (found.kind, len(found.hosts)) == ("all_reduce", 4)
    assert found.tensor_bytes == pytest.approx(400_000, rel=0.01)
    others = np.min([stream.first[::6] for stream in streams], axis=0)
    assert np.isin(job.steps.start, others).all(), "a step starts with the first host that has computed"
