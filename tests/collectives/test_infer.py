"""Jobs, steps and collectives of real runs against what their programs did.

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
from message_streams import CAPTURES, streams_of

import ddnn_traces
from ddnn_traces.collectives import tables
from ddnn_traces.collectives.infer import infer
from ddnn_traces.collectives.kinds import collectives
from ddnn_traces.collectives.phases import measured, parts_of
from ddnn_traces.collectives.steps import Steps
from ddnn_traces.collectives.streams import Stream, with_data

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
    "name", [pytest.param(name, marks=[pytest.mark.long] * (place > 0)) for place, name in enumerate(RUNS)]
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
@pytest.mark.long_after(1)
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
    ("hosts", "shards", "messages", "scattered", "are_kept"),
    [
        (4, [300_000, 800_000, 500_000], 1, 1, False),
        (4, [900_000, 400_000, 400_000, 400_000, 600_000], 2, 1, False),  # equal layers between two others
        (4, [300_000, 800_000, 500_000, 200_000], 1, 2, False),  # gradients in float32, parameters in bfloat16
        (4, [300_000, 800_000, 500_000, 200_000], 3, 1, True),  # the last layer is not gathered again
        (2, [300_000, 800_000, 500_000], 2, 1, False),  # any number of messages is one of rounds
    ],
)
def test_sharded_training_that_gathers_ahead_has_no_pause_between_collectives(
    hosts: int, shards: list[int], messages: int, scattered: int, are_kept: bool
) -> None:
    """Ten steps of hosts whose layers compute for less than their parameters are sent: the next layer is gathered
    meanwhile, so hosts pause before the backward pass and between steps only (Zhao et al. 2023, section 3.3.2)."""
    gathered, back = [("all_gather", shard) for shard in shards], [*reversed(shards)]
    backward = [("all_gather", shard) for shard in back[:2]][are_kept:]
    for place, shard in enumerate(back):
        ahead = back[place + 2 : place + 3]
        backward += [("reduce_scatter", scattered * shard), *(("all_gather", one) for one in ahead)]
    rounds = [[one // hosts // messages] * (hosts - 1) * messages for _, one in (*gathered, *backward)]
    size = np.tile(np.concatenate(rounds), 10)
    start = np.cumsum(size) - size
    pause = np.zeros(len(size))
    each = len(size) // 10
    pause[::each], pause[sum(map(len, rounds[: len(gathered)])) :: each] = 60e6, 8e6
    first = np.cumsum(pause) + 8 * start
    streams = [
        Stream(n, str(n), str((n + 1) % hosts), start, size, first, first + 8 * size - 1000, start + size, start + size)
        for n in range(hosts)
    ]
    (job,) = infer(streams)
    assert [(one.kind, one.tensor_bytes) for one in job.collectives] == [
        (kind, pytest.approx(shard, rel=1e-3)) for kind, shard in (*gathered, *backward)
    ]


def test_replicas_of_shards_sum_up_gradients_without_a_pause() -> None:
    """Ten steps of two groups of four hosts with two layers (hybrid sharding; Zhao et al. 2023, section 3.2.2). Behind
    the gradients of the small layer, pairs sum them up and the large one is gathered without a pause."""
    small, large = 480_000, 720_000
    # when a collective starts in a step, ms, and its messages
    in_groups = [(start, [layer // 4] * 3) for start, layer in [(0, large), (20, small), (40, small), (100, large)]]
    in_groups.insert(3, (60, [small // 4] * 3))
    in_groups.insert(4, (63.9, [large // 4] * 3))
    in_pairs = [(62.9, [small // 8] * 2), (110, [large // 8] * 2)]
    streams = []
    for calls, following in (
        (in_groups, lambda host: host // 4 * 4 + (host + 1) % 4),
        (in_pairs, lambda h: (h + 4) % 8),
    ):
        size = np.array([one for _, sizes in calls for one in sizes] * 10)
        start = np.cumsum(size) - size
        at = [begin * 1e6 + 8 * sum(sizes[:place]) for begin, sizes in calls for place in range(len(sizes))]
        first = (np.arange(10)[:, None] * 250e6 + np.array(at)).ravel()
        for host in range(8):
            hosts = str(host), str(following(host))
            streams.append(Stream(len(streams), *hosts, start, size, first, first + 8 * size - 1000, start + size))
    (job,) = infer(streams)
    found = Counter((one.kind, len(one.hosts), round(one.tensor_bytes)) for one in job.collectives)
    assert found == {
        ("all_gather", 4, small): 4,
        ("all_gather", 4, large): 4,
        ("reduce_scatter", 4, small): 2,
        ("reduce_scatter", 4, large): 2,
        ("all_reduce", 2, small // 4): 4,
        ("all_reduce", 2, large // 4): 4,
    }


@pytest.mark.parametrize(
    ("name", "sends"),
    [
        ("pipelines_with_channels_between", 24),  # four connections for each pair's all-reduce, which runs beside sends
        ("pipelines_with_equal_sends_beside", 48),  # beside 1.6 MB, a send of 200 kB looked like control messages
    ],
)
def test_pipelines_that_sum_up_their_gradients(name: str, sends: int) -> None:
    """Messages of packets made for this: two pipelines of four stages with two and four micro-batches. Equal stages
    exchange gradients behind the last one."""
    [job] = tables.jobs_of(name, pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    found = Counter((one["kind"], round(one["tensor_bytes"])) for one in job["collectives"])
    assert found == {("send", 200_000): sends, ("all_reduce", 1_600_000): 4}


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
@pytest.mark.long_after(1)
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
@pytest.mark.long_after(2)
def test_all_reduces_of_ddp(name: str, sizes: list[int]) -> None:
    """Messages of DistributedDataParallel on gloo, 3 to 5 hosts in network namespaces. Sizes are PyTorch's own."""
    [job] = tables.jobs_of(name, pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    assert [one["kind"] for one in job["collectives"]] == ["all_reduce"] * len(sizes)
    assert [one["tensor_bytes"] for one in job["collectives"]] == pytest.approx(sizes, rel=1e-5)
    several = [one["evidence"].endswith("times are not told apart") for one in job["collectives"]]
    assert several == [len(sizes) > 1] * len(sizes)


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


def test_all_reduces_that_pause_in_their_middle_are_no_sharded_step() -> None:
    """Local SGD: PyTorch averages four parameters on gloo, which gathers a shard the other way around. Of the two large
    all-reduces each half was taken for collectives of a shard, with sizes that differ by 3%."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / "averaged_parameters.parquet")).to_pylist()
    assert [(one["kind"], one["tensor_bytes"]) for one in job["collectives"]] == [
        ("all_reduce", pytest.approx(size, rel=1e-5)) for size in (2**21, 2**12, 2**22, 2**12)
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("messages_that_pause_behind_a_burst", [1_048_576]),  # the shaper lets 64 KiB pass, then the link waits
        ("two_lengths_and_their_sum", [1_667_392, 2_010_368]),  # between two messages no end is seen
    ],
)
def test_parts_and_sums_of_messages_are_no_messages(name: str, expected: list[int]) -> None:
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    assert [one["kind"] for one in job["collectives"]] == ["all_reduce"] * len(expected)
    assert [one["tensor_bytes"] for one in job["collectives"]] == pytest.approx(expected, rel=5e-4)


def test_what_two_hosts_send_one_after_the_other_is_no_all_reduce() -> None:
    """Three asynchronous workers push 1.2 MB to a server over plain sockets, which answers with as much at once."""
    jobs = tables.jobs_of("run", pq.read_table(Path(__file__).parent / "asynchronous_server.parquet")).to_pylist()
    assert [[(one["kind"], one["tensor_bytes"]) for one in job["collectives"]] for job in jobs] == (
        [[("send", 1_200_000), ("send", 1_200_000)]] * 3
    )


@pytest.mark.parametrize("pairs", [12, 4])
def test_flows_that_send_other_bytes_in_each_step_are_an_all_to_all_or_sends(pairs: int) -> None:
    """Four hosts send tokens to each other twice a step, to the expert of one a twentieth, and all-reduce gradients; or
    two pairs of hosts send such bytes, which are as many on average."""
    random, number, streams = np.random.default_rng(3), np.arange(30), []
    first = (1_000_000_000 * number[:, None] + 500_000_000 + 10_000_000 * np.arange(6)).ravel()
    for host in range(4):
        size = np.full(180, 100_000)
        start = np.cumsum(size) - size
        hosts = str(host), str((host + 1) % 4)
        streams.append(Stream(host, *hosts, start, size, first, first + 5_000_000, start + size))
    both = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
    for src, dst in both if pairs == 12 else [(0, 1), (1, 0), (2, 3), (3, 2)]:
        usual = 20_000 if dst == 3 and pairs == 12 else 400_000
        size = (usual * random.uniform(0.8, 1.2, 60)).astype(int)
        start = np.cumsum(size) - size
        times = (1_000_000_000 * number[:, None] + 100_000_000 * np.arange(1, 3)).ravel()
        hosts = str(src), str(dst)
        streams.append(Stream(len(streams), *hosts, start, size, times, times + 20_000_000, start + size))
    (job,) = infer(streams)
    assert Counter((one.kind, len(one.hosts)) for one in job.collectives) == (
        {("all_to_all", 4): 2, ("all_reduce", 4): 1} if pairs == 12 else {("send", 2): 8, ("all_reduce", 4): 1}
    )
    sizes = [one.tensor_bytes for one in job.collectives if one.kind == "all_to_all"]
    assert sizes == pytest.approx([(9 * 400_000 + 3 * 20_000) / 3] * len(sizes), rel=0.05)


def test_jobs_are_numbered_in_the_order_in_which_they_begin() -> None:
    """A ring of three hosts, and behind it one of four, which has more flows."""
    streams = []
    for begin, size in ((0, 3), (20_000_000_000, 4)):
        first = begin + (1_000_000_000 * np.arange(12)[:, None] + 10_000_000 * np.arange(2 * size - 2)).ravel()
        each = np.full(len(first), 100_000)
        start = np.cumsum(each) - each
        for host in range(size):
            hosts = str(host), str((host + 1) % size)
            streams.append(Stream(len(streams), *hosts, start, each, first, first + 1_000_000, start + each))
    assert [len(job.hosts) for job in infer(streams)] == [3, 4]
    assert [len(job.hosts) for job in infer(streams[::-1])] == [3, 4]


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
        # at once, though one ends far earlier
        (
            [
                step_of(("all_reduce", "ring", [A, B, C], 9)),
                step_of(("all_reduce", "ring", [A, B, C], 9), begin=0, end=90),
            ],
            (2, 2, 2),
        ),
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


def test_halves_of_an_all_reduce_have_as_many_messages_where_some_ends_are_not_seen() -> None:
    """A ring of three hosts that pauses in the middle; three of four ends are seen in one half, two in the other."""
    number, streams = np.arange(6), []
    for host in range(3):
        size = np.full(48, 1_000_000)
        start = np.cumsum(size) - size
        first = (100_000_000 * number[:, None] + 1_000_000 * np.arange(8)).ravel()
        ends = (8_000_000 * number[:, None] + 1_000_000 * np.array([2, 3, 4, 6, 8])).ravel()
        streams.append(Stream(host, str(host), str((host + 1) % 3), start, size, first, first + 500_000, ends))
    begin = 100_000_000 * number
    steps = Steps(
        dict.fromkeys(streams, 0.0), dict.fromkeys(streams, 8e6), number, begin, begin - 50_000_000, number[:-1]
    )
    parts = {stream: parts_of(stream, steps) for stream in streams}
    halves = [measured(dict.fromkeys(streams, span), steps, parts) for span in ((0.0, 4e6), (4e6, 8e6))]
    (one,) = collectives(steps, parts, [half for half in halves if half])
    assert (one.kind, one.tensor_bytes) == ("all_reduce", 6_000_000)


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


@pytest.mark.parametrize(
    ("name", "sends", "size"),
    [
        # GPipe, whose sends pause at other bytes: was an all-reduce over a tree of six
        pytest.param("pipeline_of_six_stages", 80, 262_144, marks=pytest.mark.long),
        ("pipeline_in_a_circle", 112, 262_144),  # interleaved: had all-reduces over rings where all stages send
        ("pipeline_that_pauses_in_sends", 80, 262_144),  # 1F1B: TCP begins with 64 KiB, which were in no collective
    ],
)
def test_a_pipeline_has_all_sends_of_its_program(name: str, sends: int, size: int) -> None:
    """Programs over plain sockets in network namespaces, 8 to 18 steps: each edge has as many sends as micro-batches
    and parts of the model."""
    [job] = tables.jobs_of("run", pq.read_table(Path(__file__).parent / f"{name}.parquet")).to_pylist()
    assert [one["kind"] for one in job["collectives"]] == ["send"] * sends
    assert [one["tensor_bytes"] for one in job["collectives"]] == pytest.approx([size] * sends, rel=2e-4)
    of_step = sum(flow["step_bytes"] for flow in job["flows"])
    assert sum(one["tensor_bytes"] for one in job["collectives"]) == pytest.approx(of_step, rel=1e-3)


OF_CHAIN = "a part of an all_reduce over a chain of hosts"


@pytest.mark.parametrize(
    ("sends", "kinds", "kind_or"),
    [
        (["0>1", "1>2", "2>3", "3>2", "2>1", "1>0"], ["send"] * 6, OF_CHAIN),
        (["2>3", "3>2", "2>1", "1>0", "0>1", "1>2"], ["send"] * 6, OF_CHAIN),  # the third stage computes for longest
        # a binary tree of four is a chain, too: both ends send before they receive
        (["0>1 3>2", "1>2", "2>1", "2>3 1>0"], ["all_reduce"], None),
        (["0>1", "1>2", "2>1", "1>0"], ["all_reduce"], "a parameter server, or a pipeline of one micro-batch"),
        (["0>1 2>1", "1>2 1>0"], ["all_reduce"], "a parameter server"),
        (["1>2 1>0", "0>1 2>1"], ["all_reduce"], "a parameter server"),  # which sends first
        # no library has a tree of five that is a chain
        (["0>1 4>3", "1>2", "3>2", "2>3 2>1", "3>4 1>0"], ["send"] * 8, OF_CHAIN),
    ],
)
def test_sends_along_a_chain_are_those_of_a_pipeline(sends: list[str], kinds: list[str], kind_or: str | None) -> None:
    """Twelve steps of 0.4 s; what is sent at the same time is one entry, every 20 ms, and hosts pause in between."""
    size, begin = np.full(12, 1_000_000), 400_000_000 * np.arange(12)
    streams = []
    for place, at_once in enumerate(sends):
        for pair in at_once.split():
            src, dst = pair.split(">")
            first, start = begin + 20_000_000 * place, np.cumsum(size) - size
            streams.append(Stream(len(streams), src, dst, start, size, first, first + 9_000_000, start + size))
    [job] = infer(streams)
    assert [one.kind for one in job.collectives] == kinds
    assert {one.kind_or for one in job.collectives} == {kind_or}
