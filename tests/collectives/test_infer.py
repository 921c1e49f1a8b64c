"""Jobs, steps and collectives of real runs against what their programs did, and of made patterns.

The truth is run.toml's groups, which the programs wrote. Messages are cut from the packets here.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from independent import FLOW, read_capture, repeated_bytes, text

import ddnn_traces
from ddnn_traces.collectives import shapes, tables
from ddnn_traces.collectives.infer import infer
from ddnn_traces.collectives.jobs import Steps, in_few_steps, in_steps, is_of_parts, without_rare
from ddnn_traces.collectives.kinds import collectives
from ddnn_traces.collectives.periods import Period, periods
from ddnn_traces.collectives.phases import measured, parts_of
from ddnn_traces.collectives.sharded import roles_of, sharded
from ddnn_traces.collectives.streams import Array, Stream, with_data
from ddnn_traces.traffic.simulator.task_graph import double_tree

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
RUNS = [
    "torch-mlp4-sgd-32-gloo-normal-fsdp-n4",
    "torch-experts-sgd-32-gloo-normal-moe-n4",
    "jobs-ddp-moe-normal-n4",
    "torch-blocks-sgd-32-gloo-normal-pipeline-n4",
    "torch-blocks-sgd-32-gloo-normal-tensor_data-n4",
    "torch-mlp4-sgd-32-gloo-normal-two_rings-n4",
]
KINDS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "send": "send",
}
SILENCE = 200_000
MSS = 1448


def streams_of(folder: Path) -> list[Stream]:
    """The messages of each flow of a run: cut by a silence, their ends at segments that are not full."""
    packets = np.concatenate([read_capture(path) for path in sorted(folder.glob("*.pcap.xz"))])
    begin, found = int(packets["time"].min()), []
    for number, flow in enumerate(np.unique(packets[FLOW])):
        own = packets[(packets[FLOW] == flow) & (packets["payload"] > 0)]
        own = own[repeated_bytes(own) == 0]
        if len(own):
            time, size = own["time"] - begin, own["payload"]
            start = (own["sequence"].astype(np.int64) - int(own["sequence"][0])) % 2**32
            first = np.flatnonzero(np.diff(time, prepend=-(10**12)) > SILENCE)
            last = np.append(first[1:], len(own)) - 1
            ends = (start + size)[(size % MSS != 0) & (size > 64)]
            found.append(
                Stream(
                    number, text(flow["src"]), text(flow["dst"]), start[first], (start + size)[last] - start[first],
                    time[first], time[last], ends,
                )
            )  # fmt: skip
    return found


def truth(job: dict[str, Any], addresses: dict[int, str]) -> dict[tuple[str, frozenset[str]], tuple[int, float]]:
    """Number and sum of bytes of the collectives of a step, by kind and hosts."""
    found: dict[tuple[str, frozenset[str]], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for group in job["groups"]:
        hosts = frozenset(addresses[rank] for rank in group["ranks"])
        for collective in group["collectives"]:
            count, size = found[KINDS[collective["kind"]], hosts]
            times = collective["per_step"]
            found[KINDS[collective["kind"]], hosts] = count + times, size + times * collective["bytes"]
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (place > 2)) for place, name in enumerate(RUNS)]
)
def test_jobs_steps_and_collectives_are_what_the_programs_did(name: str) -> None:
    about = tomllib.loads((CAPTURES / name / "run.toml").read_text())
    addresses = {host["rank"]: host["ip"] for host in about["hosts"]}
    jobs = infer(streams_of(CAPTURES / name))
    assert len(jobs) == len(about["origin"]["jobs"])
    wanted = [truth(job, addresses) for job in about["origin"]["jobs"]]
    programs = [job["program"] for job in about["origin"]["jobs"]]
    for job in jobs:
        assert len(job.steps.whole) == 10
        counts = Counter((c.kind, frozenset(c.hosts)) for c in job.collectives)
        sizes: dict[tuple[str, frozenset[str]], float] = defaultdict(float)
        for c in job.collectives:
            sizes[c.kind, frozenset(c.hosts)] += c.tensor_bytes
        same = [place for place, want in enumerate(wanted) if want.keys() == counts.keys()]
        assert len(same) == 1, (counts, wanted)
        want, program = wanted.pop(same[0]), programs.pop(same[0])
        for key, (count, size) in want.items():
            assert counts[key] == (2 if program == "ddp" else count)  # DistributedDataParallel's two buckets
            assert sizes[key] == pytest.approx(size, rel=0.03)


def test_a_late_host_divides_no_reduce_scatter_of_three_hosts() -> None:
    """Its halves have as many messages as an all-gather has; those come the other way around the ring."""
    folder = CAPTURES / "torch-mlp4-sgd-32-gloo-normal-fsdp-n3"
    about = tomllib.loads((folder / "run.toml").read_text())
    wanted = truth(about["origin"]["jobs"][0], {host["rank"]: host["ip"] for host in about["hosts"]})
    (job,) = infer(streams_of(folder))
    found: dict[tuple[str, frozenset[str]], tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for one in job.collectives:
        count, size = found[one.kind, frozenset(one.hosts)]
        found[one.kind, frozenset(one.hosts)] = count + 1, size + one.tensor_bytes
    assert found == wanted


def test_sends_have_the_bytes_of_their_tensors() -> None:
    """One to four messages of 48 bytes stand beside each on its flow, and such a header is in front of it."""
    name = "torch-blocks-sgd-32-gloo-normal-pipeline-n4"
    about = tomllib.loads((CAPTURES / name / "run.toml").read_text())
    wanted = truth(about["origin"]["jobs"][0], {host["rank"]: host["ip"] for host in about["hosts"]})
    with ddnn_traces.open(CAPTURES.parent / "dataset", runs=name) as dataset:
        sends = dataset.query("collectives").filter(kind="send")
    found: Counter[frozenset[str]] = Counter()
    for hosts, size in sends.select("hosts", "tensor_bytes").iter_rows():
        found[frozenset(hosts.split(","))] += size
    assert found == {hosts: size for (_, hosts), (_, size) in wanted.items()}


@pytest.mark.parametrize(
    "name",
    ["torchp2p-mlp1-sgd-32-gloo-10ms-ps-n1-r1", "torchp2p-resnet_like-sgd-32-gloo-1ms-ps-n1-250mbit-r3"],
)
def test_a_send_that_pauses_in_slow_start_is_one(name: str) -> None:
    """Behind a delay a worker and its server send a few windows, and then all the rest."""
    with ddnn_traces.open(CAPTURES.parent / "dataset", runs=name) as dataset:
        found, size = dataset.query("collectives"), dataset.sql("SELECT model_bytes FROM runs").item()
    assert found["kind"].to_list() == ["send", "send"]
    assert found["tensor_bytes"].to_list() == pytest.approx([size, size], rel=5e-5)


def test_buckets_without_a_pause_are_told_apart() -> None:
    """The gradients of mlp4 are in buckets of 1,666,600 and 2,009,600 bytes by the workers' events."""
    jobs = infer(streams_of(CAPTURES / "jobs-ddp-moe-normal-n4"))
    buckets = next(job for job in jobs if {c.kind for c in job.collectives} == {"all_reduce"})
    assert sorted(c.tensor_bytes for c in buckets.collectives) == pytest.approx([1666600, 2009600], rel=0.001)


@pytest.mark.parametrize(
    ("name", "algorithm", "jobs"),
    [
        ("torchp2p-mlp1-sgd-128-gloo-normal-clique-n4-r1", "direct", 1),
        ("torchp2p-mlp1-sgd-32-gloo-normal-halving_doubling-n4-r1", "halving_doubling", 1),
        # before and after a restart; gRPC's control messages close no job of two hosts
        ("tf-mlp1-sgd-32-grpc-normal-ring-n3-killed_worker2-r1", "ring", 2),
    ],
)  # fmt: skip
def test_a_step_that_is_one_all_reduce_is_told_by_its_graph(name: str, algorithm: str, jobs: int) -> None:
    about = tomllib.loads((CAPTURES / name / "run.toml").read_text())
    (want,) = truth(about["origin"]["jobs"][0], {host["rank"]: host["ip"] for host in about["hosts"]}).items()
    found = infer(streams_of(CAPTURES / name))
    assert len(found) == jobs
    for job in found:
        (one,) = job.collectives
        assert (one.kind, frozenset(one.hosts), one.algorithm) == (*want[0], algorithm)
        assert one.tensor_bytes == pytest.approx(want[1][1], rel=0.005)


@pytest.mark.parametrize(
    ("name", "algorithm", "size"),
    [
        ("tree_of_four", "tree", 11_962_840),  # its reduce and broadcast pause in their middle
        ("halving_doubling_of_four", "halving_doubling", 4_835_752),
        ("rounds_of_open_mpi", "ring", 940_584),  # six equal rounds a step, which pause and recur nearly as well as it
    ],
)
def test_messages_of_a_step_that_is_one_all_reduce(name: str, algorithm: str, size: int) -> None:
    """Ten steps of four hosts: programs of the testbed, and Open MPI."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    [one] = job["collectives"]
    assert (one["kind"], len(one["hosts"]), one["algorithm"]) == ("all_reduce", 4, algorithm)
    assert one["tensor_bytes"] == pytest.approx(size, rel=0.005)


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


def test_acknowledgements_of_grpc_are_no_data() -> None:
    """They were taken for hundreds of sends of 600 to 1,400 bytes in a step of this run."""
    (job,) = infer(streams_of(CAPTURES / "tf-mlp1-sgd-32-grpc-1ms-ring-n3-r2"))
    (one,) = job.collectives
    assert (len(job.streams), one.kind, one.algorithm, len(one.hosts)) == (3, "all_reduce", "ring", 3)
    assert one.tensor_bytes == pytest.approx(940_584, rel=0.005)


@pytest.mark.parametrize(
    ("size", "messages", "is_data"),
    [
        (800, 20, False),
        (16_000, 1, True),  # no acknowledgement: a part of an all-to-all beside a ring
        (1400, 200, True),  # as much as a tenth of what comes the other way
    ],
)
def test_small_messages_are_answers_where_far_more_comes_the_other_way(size: int, messages: int, is_data: bool) -> None:
    def sent(src: str, dst: str, size: int, count: int) -> Stream:
        sizes = np.full(count, size)
        start = np.cumsum(sizes) - sizes
        return Stream(0, src, dst, start, sizes, 1000 * start, 1000 * start, start)

    there, back = sent("a", "b", 280_000, 10), sent("b", "a", size, messages)
    assert with_data([there, back]) == [there, back][: 1 + is_data]


def test_halves_of_a_step_of_two_hosts_are_no_steps() -> None:
    """Six steps of Open MPI with two ranks each: the tensor of 3,676,200 bytes goes around a ring of four."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / "two_ranks_on_two_hosts.parquet")).to_pylist()
    [one] = job["collectives"]
    assert {transfer["step"] for transfer in one["transfers"]} == set(range(6))
    assert one["tensor_bytes"] == pytest.approx(3_676_200 * (3 / 4) / (1 / 2), rel=0.001)


@pytest.mark.parametrize(("size", "is_said"), [(1.0, True), (1.5, False)])
def test_equal_collectives_on_flows_of_their_own_may_be_of_another_job(size: float, is_said: bool) -> None:
    """Two rings of four hosts, each way one, one behind the other in each of ten steps."""
    streams = []
    for way, more in ((1, 1.0), (3, size)):
        first = (1000 * np.arange(10)[:, None] + 100 * way + np.arange(6)).ravel() * 1_000_000
        each = np.full(60, round(100_000 * more))
        start = np.cumsum(each) - each
        for host in range(4):
            hosts = str(host), str((host + way) % 4)
            streams.append(Stream(len(streams), *hosts, start, each, first, first + 1_000_000, start + each))
    (job,) = infer(streams)
    assert [(one.kind, len(one.hosts)) for one in job.collectives] == [("all_reduce", 4)] * 2
    assert ["another job" in (one.kind_or or "") for one in job.collectives] == [is_said] * 2


def test_fewer_messages_than_rounds_may_be_broadcasts() -> None:
    """Each host sends one message to the next one in a step: a ring needs three rounds."""
    first = 1_000_000_000 * np.arange(10)
    size = np.full(10, 1_000_000)
    start = np.cumsum(size) - size
    (job,) = infer(
        [Stream(n, str(n), str((n + 1) % 4), start, size, first, first + 9_000_000, start + size) for n in range(4)]
    )
    (one,) = job.collectives
    assert "broadcasts" in (one.kind_or or "")


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


@pytest.mark.parametrize(("order", "found"), [("lsl", True), ("ssll", False), ("sl", False), ("lls", False)])
def test_half_the_bytes_between_other_pairs_are_halving_doubling_from_outside_in(order: str, found: bool) -> None:
    """Otherwise they are all-reduces of pairs, as of tensors and of data. l: pairs 01 and 23, s: 02 and 13."""
    pairs = {"l": [("0", "1"), ("2", "3")], "s": [("0", "2"), ("1", "3")]}
    both_ways = {step: [pair for a, b in some for pair in ((a, b), (b, a))] for step, some in pairs.items()}
    whole = {"l": 800_000, "s": 400_000}
    number = np.arange(6)
    begin = 100_000_000 * number
    streams = []
    for step, hosts in both_ways.items():
        places = [place for place, one in enumerate(order) if one == step]
        for src, dst in hosts:
            first = np.concatenate([at + 5_000_000 * np.array(places) for at in begin])
            size = np.full(len(first), whole[step] // len(places))
            start = np.cumsum(size) - size
            streams.append(Stream(len(streams), src, dst, start, size, first, first + 1_000_000, start + size))
    (job,) = infer(streams)
    assert [c.algorithm == "halving_doubling" for c in job.collectives if len(c.hosts) > 2] == [True] * found


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


def made(pairs: list[tuple[str, str]]) -> list[Stream]:
    none: Array = np.zeros(0, np.int64)
    return [Stream(number, src, dst, none, none, none, none, none) for number, (src, dst) in enumerate(pairs)]


def both(edges: list[tuple[int, int]]) -> list[tuple[str, str]]:
    return [pair for a, b in edges for pair in ((str(a), str(b)), (str(b), str(a)))]


def test_a_double_binary_tree_is_two_trees() -> None:
    """NCCL's ncclGetDtree for eight ranks: the second tree is the first one mirrored."""
    tree = [(0, 4), (4, 2), (4, 6), (2, 1), (2, 3), (6, 5), (6, 7)]
    mirrored = [(7 - a, 7 - b) for a, b in tree]
    trees = shapes.double_tree(made(both(tree) + both(mirrored)))
    assert trees is not None
    assert [len(found) for found in trees] == [7, 7]
    assert sorted(trees[0] + trees[1]) == sorted((str(min(e)), str(max(e))) for e in tree + mirrored)
    assert shapes.double_tree(made(both(tree) + both(tree))) is None  # inner hosts are a leaf of none


@pytest.mark.parametrize("ranks", [9, 64, 101])
def test_a_large_double_tree_is_divided_by_what_goes_up_first(ranks: int) -> None:
    """Each rank sends up at once where it is a leaf, and else behind its children; hosts have other names."""
    names = np.random.default_rng(1).permutation(ranks)
    streams, times, wanted = [], {}, []
    for parents in double_tree(ranks):
        height = [0] * ranks
        for _ in range(ranks.bit_length()):
            for rank in range(ranks):
                if parents[rank] >= 0:
                    height[parents[rank]] = max(height[parents[rank]], height[rank] + 1)
        edges = [(rank, parents[rank]) for rank in range(ranks) if parents[rank] >= 0]
        for rank, parent in edges:
            up, down = made([(str(names[rank]), str(names[parent])), (str(names[parent]), str(names[rank]))])
            streams += [up, down]
            times |= {up: height[rank], down: 100 - height[rank]}
        wanted.append({frozenset((str(names[a]), str(names[b]))) for a, b in edges})
    trees = shapes.double_tree(streams, times)
    assert trees is not None
    found = [{frozenset(edge) for edge in tree} for tree in trees]
    assert found in (wanted, wanted[::-1])


def test_large_rings_are_told_apart_by_what_follows_at_each_host() -> None:
    random = np.random.default_rng(1)
    orders = [random.permutation(40) for _ in range(3)]
    streams = []
    for channel, order in enumerate(orders):
        for place, host in enumerate(order):
            first = 1000 * place + 40_000 * np.arange(5) + 300 * channel
            edge = str(host), str(order[(place + 1) % 40])
            streams.append(Stream(len(streams), *edge, first, first, first, first + 900, first))
    found = shapes.rings(streams)
    assert found is not None
    following = [{(o[i], o[(i + 1) % 40]) for i in range(40)} for o in found]
    assert all({(str(o[i]), str(o[(i + 1) % 40])) for i in range(40)} in following for o in orders)


def test_rings_are_told_apart() -> None:
    orders = ["01234567", "03614725", "05274163"]
    pairs = [(order[i], order[(i + 1) % 8]) for order in orders for i in range(8)]
    found = shapes.rings(made(pairs))
    assert found is not None
    assert {frozenset(zip(o, [*o[1:], o[0]], strict=True)) for o in found} == {
        frozenset(zip(o, o[1:] + o[0], strict=True)) for o in orders
    }
    assert shapes.rings(made(pairs[:-1])) is None


@pytest.mark.parametrize(
    ("volumes", "kinds"),
    [
        ([9, 5, 1, 1, 5, 2, 9, 10, 18], "ggg ggsgss"),
        ([9, 5, 1, 1, 1, 5, 5, 9, 9], "ggg gsgsgs"),
        ([9, 9, 9], "ggs"),
        ([1, 9, 5, 9, 9, 5, 1, 1, 5], "sgs sgg ggg"),  # begins in the backward pass
        ([9, 5, 1, 9, 5, 1, 9, 5, 1], None),  # not in reverse
        ([9, 9], None),
        ([9, 9, 9, 5, 5, 5], None),
        ([9, 5, 1], None),
    ],
)
def test_a_sharded_step_has_each_volume_three_times(volumes: list[int], kinds: str | None) -> None:
    found = sharded([1e6 * volume for volume in volumes])
    assert (found and "".join({"all_gather": "g", "reduce_scatter": "s"}[kind] for kind, _ in found)) == (
        kinds and kinds.replace(" ", "")
    )


@pytest.mark.parametrize(
    ("volumes", "kinds"),
    [
        ([1, 1, 1, 1, 2, 2, 1], "g g g g sg sg s"),  # nothing is gathered ahead
        ([2, 2, 1, 1, 1, 1, 1], "sg sg s g g g g"),  # begins in the backward pass
        ([1, 1, 1, 1, 1, 2, 1, 2, 2], "g g g g g s g s s"),  # gloo's reduce-scatter; a layer is gathered ahead
        ([3, 1, 1, 1, 2, 2, 1, 1, 3], "g g g g gg sg s s s"),  # the first shard stays whole
        ([2, 3, 2, 4, 5, 2], "g g gg sg sg s"),  # the last layer computes for less than a pause
        ([1, 1, 2, 2], None),
        ([1] * 9, None),
        ([1, 1, 2, 2, 1, 1, 3], None),
    ],
)
def test_a_sharded_step_of_equal_layers_is_told_by_its_order(volumes: list[int], kinds: str | None) -> None:
    found = roles_of([1e6 * volume for volume in volumes], [1e6] * len(volumes), is_whole=True)
    short = {"all_gather": "g", "reduce_scatter": "s"}
    assert (found and ["".join(short[kind] for kind, _ in some) for some in found]) == (kinds and kinds.split())


@pytest.mark.parametrize(("name", "gathered"), [("fsdp_equal_layers", 12), ("fsdp_root_kept", 11)])
def test_equal_layers_of_pytorch(name: str, gathered: int) -> None:
    """Messages of some steps of two runs of the testbed: fully_shard of six linear layers, five of them 784 by 784. In
    the second the first layer is the root module's, which keeps it between the passes."""
    [job] = tables.jobs_of(name, pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    assert Counter(one["kind"] for one in job["collectives"]) == {"all_gather": gathered, "reduce_scatter": 6}
    assert all("the reduce_scatter sends twice its volume" in one["evidence"] for one in job["collectives"])
    largest = max(one["tensor_bytes"] for one in job["collectives"])
    assert largest == pytest.approx(4 * (784 * 784 + 784), rel=0.001)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("late_host_of_experts", {"all_to_all": 4, "all_reduce": 1}),  # the others exchange theirs before
        ("late_host_of_fsdp", {"all_gather": 6, "reduce_scatter": 3}),  # in 9 of 14 steps: flows go on at other bytes
        ("late_host_two_steps_as_one", {"all_gather": 8, "reduce_scatter": 4}),  # two steps are the period of each flow
        ("late_host_of_one_flow", {"all_gather": 8, "reduce_scatter": 4}),  # one flow recurs clearly every three steps
        ("late_host_of_a_ring", {"all_reduce": 1}),  # four of five hosts send behind the wait as behind the computation
    ],
)
@pytest.mark.long_after(2)
def test_a_late_host_of_real_training(name: str, kinds: dict[str, int]) -> None:
    """Messages of gloo with 4 to 6 hosts, one of which sleeps for 60 to 100 ms a step: three runs of the testbed, and
    two of fully_shard in network namespaces."""
    [job] = tables.jobs_of(name, pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    assert Counter(one["kind"] for one in job["collectives"]) == kinds
    assert {len(one["hosts"]) for one in job["collectives"]} == {
        len({h for c in job["collectives"] for h in c["hosts"]})
    }


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("slow_link_of_a_ring", [5_026_560]),  # the hosts wait at the same bytes of each step, first two flows of four
        ("gloo_large_segments", [16_016_000]),  # six messages for each host's part; some borders are not seen
        ("gloo_equal_buckets", [4_327_200, 4_327_200]),  # one of 8.65 MB had messages of twice the length
        ("gloo_buckets_without_pause", [3_925_600, 3_925_600, 1_962_800]),  # the smaller bucket comes last
    ],
)
def test_all_reduces_of_ddp(name: str, sizes: list[int]) -> None:
    """Messages of DistributedDataParallel on gloo, 3 to 5 hosts in network namespaces. Sizes are PyTorch's own."""
    [job] = tables.jobs_of(name, pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    assert [one["kind"] for one in job["collectives"]] == ["all_reduce"] * len(sizes)
    assert [one["tensor_bytes"] for one in job["collectives"]] == pytest.approx(sizes, rel=1e-5)


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
    monkeypatch.setattr("ddnn_traces.collectives.jobs.step_silences", lambda _: (np.arange(3), at, at - 1))
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


def test_two_rings_of_three_hosts_are_told_from_direct_exchange_by_their_messages() -> None:
    """Half the gradient each way around a ring of three: the flows are those of three hosts that send to each other."""
    table = pq.read_table(Path(__file__).parent / "two_rings_of_three.parquet")
    [job] = tables.jobs_of("run", table).to_pylist()
    assert [(one["kind"], one["channel"]) for one in job["collectives"]] == [("all_reduce", 0), ("all_reduce", 1)]
    assert [one["tensor_bytes"] for one in job["collectives"]] == pytest.approx([1_838_100] * 2, rel=5e-4)
    orders = [one["hosts"] for one in job["collectives"]]
    assert orders[0] == [orders[1][0], orders[1][2], orders[1][1]]


def test_a_ring_of_three_hosts_that_pauses_between_its_rounds_is_no_sharded_step() -> None:
    """A hierarchical all-reduce, three ranks a host: four rounds in three phases of 1, 1 and 2 messages."""
    table = pq.read_table(Path(__file__).parent / "ring_of_three_that_pauses.parquet")
    [job] = tables.jobs_of("run", table).to_pylist()
    assert [(one["kind"], one["tensor_bytes"]) for one in job["collectives"]] == [("all_reduce", 3_676_200)]


def test_what_two_hosts_send_one_after_the_other_is_no_all_reduce() -> None:
    """Three asynchronous workers push 1.2 MB to a server over plain sockets, which answers with as much at once."""
    jobs = tables.jobs_of("run", pq.read_table(Path(__file__).parent / "asynchronous_server.parquet")).to_pylist()
    assert [[(one["kind"], one["tensor_bytes"]) for one in job["collectives"]] for job in jobs] == (
        [[("send", 1_200_000), ("send", 1_200_000)]] * 3
    )


def test_flows_that_recur_twice_a_step_are_no_job_of_their_own() -> None:
    """12 steps of fully_shard with four equal layers: the flows of one direction recur nearly as well in half steps."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / "fsdp_half_steps.parquet")).to_pylist()
    assert len({transfer["step"] for one in job["collectives"] for transfer in one["transfers"]}) == 12
    assert Counter(one["kind"] for one in job["collectives"]) == {"all_gather": 8, "reduce_scatter": 4}


def test_of_two_orders_that_fit_the_one_with_even_backward_computations_counts() -> None:
    volumes, backward = [1e6, 1e6, 1e6, 1e6, 2e6, 2e6, 1e6], [8.0, 8.0, 8.0, 8.0, 16.0, 16.0, 16.0]
    found = roles_of(volumes, [5.0, *backward[1:]], is_whole=True)
    assert found is not None and [len(some) for some in found] == [1, 1, 1, 1, 2, 2, 1]
    assert [some[0][0] for some in found].count("reduce_scatter") == 3
    later = roles_of(volumes, [16.0, 8.0, 8.0, 8.0, 5.0, 16.0, 16.0], is_whole=True)
    assert later is not None and later[0] == [("reduce_scatter", 1e6)]


@pytest.mark.parametrize(
    ("edges", "shape"),
    [
        ([(0, 1), (0, 2), (0, 3)], ("star", "a parameter server")),
        ([(0, 1), (1, 2)], ("star", "a parameter server, or a pipeline of one micro-batch")),
        ([(0, 1), (1, 2), (2, 3)], ("tree", "a pipeline of one micro-batch")),
        ([(0, 1), (0, 2), (1, 3), (1, 4)], ("tree", None)),
        ([(0, 1), (2, 3), (0, 2), (1, 3)], ("recursive_doubling", "rings in both directions")),
        ([(a, a ^ bit) for a in range(8) for bit in (1, 2, 4) if a < a ^ bit], ("recursive_doubling", None)),
        ([(0, 1), (1, 2), (0, 2), (3, 4)], None),  # as many pairs as a tree has, not connected
        ([(0, 1)], None),
    ],
)
def test_pairs_that_exchange_all_are_an_all_reduce_by_their_graph(
    edges: list[tuple[int, int]], shape: tuple[str, str | None] | None
) -> None:
    assert shapes.exchange(made(both(edges))) == shape
    assert shapes.exchange(made(both(edges)[:-1])) is None, "a direction is missing"


def step_of(*collectives: tuple[str, str, list[str], int], begin: int = 0, end: int = 9) -> dict[str, Any]:
    """A job as tables.JOBS: kind, algorithm, hosts and bytes of each collective."""
    times = [{"first_ns": begin, "last_ns": end}]
    return {
        "run_id": "r",
        "job": 0,
        "collectives": [
            {
                "kind": kind,
                "algorithm": algorithm,
                "hosts": hosts,
                "channel": 0,
                "tensor_bytes": size,
                "transfers": times,
            }
            for kind, algorithm, hosts, size in collectives
        ],
    }


A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


@pytest.mark.parametrize(
    ("jobs", "wanted"),
    [
        ([{"run_id": "r"}], None),
        ([step_of(("all_reduce", "ring", [A, B, C], 9))], None),
        ([step_of(*[("all_gather", "ring", [A, B, C], 9)] * 2)], None),
        # the other way round, as gloo's reduce-scatter after its all-gather
        ([step_of(("all_gather", "ring", [A, B, C], 9), ("reduce_scatter", "ring", [A, C, B], 9))], (1, 1, 2)),
        # parts of one collective, of other sizes or not several
        ([step_of(("send", "direct", [A, B], 9), ("send", "direct", [B, C], 9))], None),
        ([step_of(*[("send", "direct", [A, B], size) for size in (9, 4, 2)], ("send", "direct", [B, C], 9))], None),
        ([step_of(*[("send", "direct", [A, B], 9), ("send", "direct", [B, C], 9)] * 3)], None),
        ([step_of(*[("send", "direct", pair, 9) for pair in ([A, B], [B, C], [C, B], [B, A])] * 3)], (1, 2, 12)),
        ([step_of(*[("send", "direct", [A, B], 9), ("send", "direct", [B, A], 9)] * 3)], None),
        ([step_of(("all_reduce", "ring", [A, B, C], 9))] * 2, (2, 2, 2)),
        # after a restart
        (
            [
                step_of(("all_reduce", "ring", [A, B, C], 9)),
                step_of(("all_reduce", "ring", [A, B, C], 9), begin=8, end=30),
            ],
            None,
        ),
    ],
)
def test_several_patterns_are_told_from_one(jobs: list[dict[str, Any]], wanted: tuple[int, int, int] | None) -> None:
    rows = [job | {"job": number if "job" in job else None} for number, job in enumerate(jobs)]
    found = tables.patterns_of(pa.Table.from_pylist(rows, schema=tables.JOBS)).to_pylist()
    names = ("jobs", "communicators", "collectives")
    assert [tuple(row[name] for name in names) for row in found] == ([] if wanted is None else [wanted])


@pytest.mark.parametrize(
    ("step", "topology", "problem"),
    [
        (
            [("all_gather", "ring", [A, B, C], 9), ("reduce_scatter", "ring", [A, C, B], 9)], "ring",
            "several patterns (2 collectives of 1 communicator: 2 rings; see collectives)",
        ),
        (
            [("all_reduce", "rings", [A, B, C], 9), ("all_reduce", "rings", [A, C, B], 9)], "ring",
            "several patterns (2 collectives of 1 communicator: 2 rings; see collectives)",
        ),
        (
            [("all_reduce", "ring", [A, B, C], 9), ("all_to_all", "direct", [A, B, C], 9)], None,
            "several patterns (2 collectives of 1 communicator: clique, ring; see collectives)",
        ),
        (
            [("all_reduce", "ring", [A, B, C], 9), ("all_reduce", "ring", ["10.0.0.4", B, C], 9)], None,
            "several patterns (2 collectives of 2 communicators; see communicators and choose one by parameter "
            "communicator)",
        ),
    ],
)  # fmt: skip
def test_a_chosen_communicator_has_one_topology_where_all_its_patterns_have(
    step: list[Any], topology: str | None, problem: str | None
) -> None:
    jobs = pa.Table.from_pylist([step_of(*step) | {"job": 0}], schema=tables.JOBS)
    [row] = tables.patterns_of(jobs, chosen={"job"}).to_pylist()
    assert (row["topology"], row["problem"]) == (topology, problem)
    assert tables.patterns_of(jobs).to_pylist()[0]["topology"] is None  # of a whole run no law says what it sends


def test_rings_without_a_pause_between_them_are_told_apart_by_their_bytes() -> None:
    """A tensor group's all-reduce, and those of two data groups that share hosts with it, in one phase."""
    tensor = [("5", "6"), ("6", "7"), ("7", "8"), ("8", "5")]
    data = [("1", "5"), ("5", "1"), ("2", "6"), ("6", "2")]
    number, streams = np.arange(6), []
    begin = 100_000_000 * number
    for flow_id, (src, dst) in enumerate(tensor + data):
        size = np.full(6, 600_000 if (src, dst) in tensor else 4_000_000)
        start = np.cumsum(size) - size
        streams.append(Stream(flow_id, src, dst, start, size, begin, begin + 1_000_000, start + size))
    sizes = {stream: float(stream.size[0]) for stream in streams}
    steps = Steps(dict.fromkeys(streams, 0.0), sizes, number, begin, begin - 50_000_000, number[:-1])
    parts = {stream: parts_of(stream, steps) for stream in streams}
    phase = measured({stream: (0.0, size) for stream, size in sizes.items()}, steps, parts)
    assert phase is not None
    found = collectives(steps, parts, [phase])
    assert {(c.kind, frozenset(c.hosts), round(c.tensor_bytes)) for c in found} == {
        ("all_reduce", frozenset("5678"), 400_000),
        ("all_reduce", frozenset("15"), 4_000_000),
        ("all_reduce", frozenset("26"), 4_000_000),
    }


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
