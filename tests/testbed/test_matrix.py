"""The matrix of runs: what its keys stand for, and every wrong one named."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddnn_traces.errors import UsageError
from ddnn_traces.testbed import faults, matrix


def read(tmp_path: Path, text: str) -> matrix.Matrix:
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return matrix.read(path)


def test_lists_are_all_combinations(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        [defaults]
        steps = 10
        link = { rate_mbit = 500 }
        [[runs]]
        program = ["ring", "star"]
        model = ["mlp1", "mlp4"]
        link.loss_pct = [0, 1]
        """,
    )
    assert [run.name for run in found.runs] == [
        f"torchp2p-{model}-sgd-32-gloo-{conditions}"
        for program in ("ring", "star")
        for model in ("mlp1", "mlp4")
        for conditions in (f"500mbit-{program}-n4", f"loss_1-{program}-n4-500mbit")
    ]
    assert {(run.link.rate_mbit, run.jobs[0].steps, run.workers) for run in found.runs} == {(500.0, 10, 4)}


def test_repetitions_are_numbered(tmp_path: Path) -> None:
    runs = read(tmp_path, '[[runs]]\nprogram = "ddp"\nrepeat = 3\nvariant = "x"').runs
    assert [run.name for run in runs] == [f"torch-mlp1-sgd-32-gloo-normal-ring-n4-x-r{n}" for n in (1, 2, 3)]


def test_repetitions_have_other_seeds(tmp_path: Path) -> None:
    runs = read(tmp_path, '[[runs]]\nprogram = "ddp"\nrepeat = 3\nseed = 5').runs
    assert [run.jobs[0].seed for run in runs] == [5, 6, 7]


def test_the_order_of_runs_is_drawn_by_a_seed(tmp_path: Path) -> None:
    text = '[[runs]]\nprogram = "ddp"\nrepeat = 9'
    in_order, drawn, again = (
        [run.name for run in read(tmp_path, start + text).runs] for start in ("", "shuffle = 1\n", "shuffle = 1\n")
    )
    assert drawn == again != in_order == sorted(drawn)


def test_servers_and_chief_are_hosts(tmp_path: Path) -> None:
    runs = read(
        tmp_path,
        """
        [[runs]]
        program = "ps"
        workers = 2
        servers = 2
        [[runs]]
        program = "tf_ps"
        workers = 2
        """,
    ).runs
    assert runs[0].labels == ("worker-1", "worker-2", "ps-1", "ps-2")
    assert runs[1].labels == ("worker-1", "worker-2", "ps-1", "chief-1")


def test_jobs_at_the_same_time_share_the_keys_of_the_run(tmp_path: Path) -> None:
    (run,) = read(
        tmp_path,
        """
        [[runs]]
        model = "mlp4"
        jobs = [{ program = "ring" }, { program = "ring", options = { order = "0,3,2,1" }, batch_size = 64 }]
        """,
    ).runs
    assert [(job.name, job.model, job.batch_size) for job in run.jobs] == [("job1", "mlp4", 32), ("job2", "mlp4", 64)]
    assert run.jobs[1].options == {"order": "0,3,2,1"}


def test_several_ranks_a_host_are_in_the_name(tmp_path: Path) -> None:
    (run,) = read(tmp_path, '[[runs]]\nprogram = "hierarchical_ring"\nranks = 2\nwarm_up = 3').runs
    assert run.name == "torchp2p-mlp1-sgd-32-gloo-normal-hierarchical_ring-n4-2ranks"
    assert (run.labels[-1], run.jobs[0].ranks, run.jobs[0].warm_up) == ("worker-4", 2, 3)


def test_a_profile_names_the_model(tmp_path: Path) -> None:
    runs = read(tmp_path, '[[runs]]\nprogram = "ddp"\ncompute = ["sleep:resnet50", "sleep:vgg19"]').runs
    assert [(run.jobs[0].model, run.name.split("-")[1]) for run in runs] == [("resnet50",) * 2, ("vgg19",) * 2]
    assert runs[0].name.endswith("-n4-sleep")


def test_a_profile_of_ones_own_is_where_the_matrix_is(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("layer,forward_ms,backward_ms,gradient_bytes\na,1,2,400\n")
    (job,) = read(tmp_path, '[[runs]]\nprogram = "ddp"\ncompute = "sleep:mine.csv"').runs[0].jobs
    assert (job.model, job.compute, job.profile) == ("mine", "sleep:mine", str(tmp_path / "mine.csv"))


def test_every_condition_is_in_the_name(tmp_path: Path) -> None:
    (run,) = read(tmp_path, '[[runs]]\nprogram = "ddp"\nlink = { loss_pct = 1, delay_ms = 5, rate_mbit = 200 }').runs
    assert run.name == "torch-mlp1-sgd-32-gloo-loss_1-ring-n4-5ms-200mbit"


def test_a_fault_is_in_the_name_and_in_the_truth(tmp_path: Path) -> None:
    text = """
    [[runs]]
    program = "ddp"
    fault = { kind = ["pause", "delay"], host = "worker-3", strength = [5, 0.5], from_step = 4 }
    [[runs]]
    program = "ddp"
    fault = { kind = "slow_link", host = "worker-3", peer = "worker-1", direction = "out", strength = 5, to_step = 9 }
    [[runs]]
    program = "ddp"
    fault.kill = "worker-1"
    """
    runs = read(tmp_path, text).runs
    assert [run.name.removeprefix("torch-mlp1-sgd-32-gloo-normal-ring-n4-") for run in runs] == [
        "pause_worker3_5", "pause_worker3_0.5", "delay_worker3_5", "delay_worker3_0.5",
        "slow_link_worker3_worker1_out_5", "killed_worker1",
    ]  # fmt: skip
    assert [list(faults.truth(run).values()) for run in runs[1:]] == [
        ["slow_host", "worker-3", None, 0.5, 4, 19], ["delay", "worker-3", None, 5, 4, 19],
        ["delay", "worker-3", None, 0.5, 4, 19], ["slow_link", "worker-3", "worker-1", 5, 0, 9], [],
    ]  # fmt: skip


def test_traffic_to_one_host_comes_from_hosts_that_do_not_train(tmp_path: Path) -> None:
    text = """
    [[runs]]
    program = "ddp"
    fault = { kind = ["background", "incast"], strength = 3 }
    [[runs]]
    program = "ddp"
    fault = { kind = "background", strength = 3, peer = "worker-1" }
    """
    others = [run.bystanders for run in read(tmp_path, text).runs]
    assert others == [("other-1",), ("other-1", "other-2", "other-3"), ()]


def test_repetitions_have_the_given_name(tmp_path: Path) -> None:
    runs = read(tmp_path, '[[runs]]\nprogram = "ddp"\nname = "mine"\nrepeat = 2').runs
    assert [run.name for run in runs] == ["mine-r1", "mine-r2"]


def test_an_algorithm_of_mpi_is_the_topology(tmp_path: Path) -> None:
    text = (
        '[[runs]]\nprogram = ["mpi", "horovod"]\noptions.algorithm = ["ring", "recursive_doubling", "linear", "binary"]'
    )
    runs = read(tmp_path, text).runs
    assert [run.name.split("-")[6] for run in runs] == ["ring", "recdoubling", "star", "tree"] * 2


WRONG = {
    "runs = 3": "no [[runs]]",
    "[[run]]\nprogram = 'ddp'": "unknown key 'run'; did you mean runs?",
    "[[runs]]": "[[runs]] 1: no program; one of ddp, elastic, ring",
    "[[runs]]\nprogram = 'dpp'": "program = 'dpp'; did you mean ddp",
    "[[runs]]\nprogram = 'ddp'\nworker = 4": "unknown key 'worker'; did you mean workers",
    "[[runs]]\nprogram = 'ddp'\nworkers = 1": "workers = 1 without a server send nothing",
    "[[runs]]\nprogram = 'ddp'\nworkers = '4'": "workers = '4' is not of type int",
    "[[runs]]\nprogram = 'ddp'\nworkers = true": "workers = True is not of type int",
    "[[runs]]\nprogram = 'ddp'\nsteps = []": "steps is an empty list",
    "[[runs]]\nprogram = 'mpi'\noptions.algorithm = 'rings'": "algorithm = 'rings'; did you mean ring?",
    "[[runs]]\nprogram = 'ddp'\nlink = 5": "link = 5; it is a table",
    "[[runs]]\nprogram = 'ddp'\nlink.speed = 5": "link: unknown key 'speed'; ",
    "[[runs]]\nprogram = 'ddp'\nlink.loss_pct = 100": "loss_pct = 100.0; it is 0 to 99.9",
    "[[runs]]\nprogram = 'ddp'\nlink.loss_pct = 0.00001": "loss_pct = 1e-05; it is 0, or 0.001 and more",
    "[[runs]]\nprogram = 'ddp'\nfault = { kind = 'loss', strength = 100 }": "of loss it is 0.001 to 99.9 percent",
    "[[runs]]\nprogram = 'ddp'\nlink.delay_ms = 501": "link: delay_ms = 501; it is 0 to 500",
    "[[runs]]\nprogram = 'ddp'\nmodel = 'resnet50'": "model = 'resnet50'; it is a profile: compute",
    "[[runs]]\nprogram = 'tf_ps'\nmodel = 'resnet_like'": "model = 'resnet_like'; there are: mlp0, mlp1, mlp4, mlp12",
    "[[runs]]\nprogram = 'ring'\noptions.order = '0,2,1,4'": "order = '0,2,1,4'; give each of the ranks 0 to 3 once",
    "[[runs]]\nprogram = 'halving_doubling'\nworkers = 3": "halving_doubling: workers = 3; give a power of two",
    "[[runs]]\nprogram = 'tensor_data'\nworkers = 5\noptions.tensor = 2": "'2'; it does not divide workers = 5",
    "[[runs]]\nprogram = 'tensor_data'\nworkers = 5": "tensor_data: tensor = '2'; it does not divide workers = 5",
    "[[runs]]\nprogram = 'pipeline'\nbatch_size = 30": "microbatches = '4'; it does not divide batch_size = 30",
    "[[runs]]\nprogram = 'pipeline'\noptions.microbatches = 'x'": "microbatches = 'x'; it is a whole number, 1 or",
    "[[runs]]\nprogram = 'nccl_ddp'\noptions.algo = 'rings'": "algo = 'rings'; did you mean ring?",
    "[[runs]]\nprogram = 'nccl_fsdp'\noptions.channels = 0": "channels = '0'; it is a whole number, 1 or more",
    "[[runs]]\nprogram = 'nccl_moe'\nworkers = 3": "batch_size = 32 on 3 experts; give a multiple of 3",
    "[[runs]]\nprogram = 'moe'\nworkers = 3": "batch_size = 32 on 3 experts; give a multiple of 3",
    "[[runs]]\nprogram = 'ddp'\noptions.time_scale = 'fast'": "ddp: time_scale = 'fast'; it is a number",
    "[[runs]]\nprogram = 'ddp'\noptions.time_scale = 0": "time_scale = '0'; it is above 0",
    "[[runs]]\nprogram = 'fsdp'\ncompute = 'sleep:resnet50'": "fsdp computes; remove compute = 'sleep:resnet50'",
    "[[runs]]\nprogram = 'ddp'\ncompute = 'sleep:resnet51'": "resnet51: no CSV with layer, forward_ms",
    "[[runs]]\nprogram = 'ddp'\noptimizer = 'adam'": "optimizer = 'adam'; there are: sgd",
    "[[runs]]\nprogram = 'ddp'\ncompute = 'slow'": "compute = 'slow'; it is real, or sleep:PROFILE",
    "[[runs]]\nprogram = 'ring'\noptions.oder = '0,1'": "option 'oder' of ring; did you mean order?",
    "[[runs]]\nprogram = 'tree'\noptions.shape = 'heep'": "shape = 'heep'; did you mean heap?",
    "hosts = 5\n[[runs]]\nprogram = 'ddp'": "hosts = 5; write [[hosts]] for each",
    "[[runs]]\nprogram = 'ddp'\nlink.rate_mbit = 0": "rate_mbit = 0.0; it is 0.1 to 400000",
    "[[runs]]\nprogram = 'ddp'\nlink.shaper = 'netem'": "shaper = 'netem'; ",
    "[[runs]]\nprogram = 'ddp'\ncapture.snaplen = 40": "snaplen = 40; it is 54 to 262144",
    "[[runs]]\nprogram = 'ddp'\nname = '../x'": "name = '../x' cannot be a folder's",
    "[[runs]]\nprogram = 'ddp'\nvariant = 'a/b'": "cannot be a folder's",
    "[[runs]]\nprogram = 'ddp'\n[[runs]]\nprogram = 'ddp'": "[[runs]] 2: a second run is named torch-mlp1",
    "[[runs]]\nprogram = 'ddp'\nservers = 1": "program ddp has no servers; remove servers = 1",
    "[[runs]]\nprogram = 'ps'\nservers = 0": "program ps needs a server",
    "[[runs]]\njobs = [{ program = 'ddp' }]": "jobs is a list of two or more tables",
    "[[runs]]\njobs = [{ program = 'ddp' }, { program = 'ddp', workers = 3 }]": "job 2: unknown key 'workers'",
    "[[runs]]\nprogram = 'ddp'\nbackground = { kind = 'replay' }": "background replay needs flows = FILE",
    "[[runs]]\nprogram = 'ddp'\nbackground.src = 'worker-9'": "background between hosts that include 'worker-9'",
    "[[runs]]\nprogram = 'ddp'\nbackground.dst = 'worker-1'": "background from worker-1 to itself",
    "[[runs]]\nprogram = 'ddp'\nbackground.protocol = 'sctp'": "protocol = 'sctp'; there are: ",
    "[[runs]]\nprogram = 'ddp'\nfault.kill = 'worker-9'": "fault kills 'worker-9'; did you mean worker-4",
    "[[runs]]\nprogram = 'ddp'\nfault.step = 19": "fault after step 19, and steps = 20; give an earlier step",
    "[[runs]]\nprogram = 'ddp'\nfault.what = 'rack'": "what = 'rack'; there are: process, host",
    "[[runs]]\nprogram = 'mpi'\nfault = {}": "fault of several jobs or ranks, or of a job that mpirun starts",
    "[[runs]]\nprogram = 'ddp'\nranks = 2\nfault = {}": "fault of several jobs or ranks",
    "[[runs]]\nprogram = 'ddp'\nranks = 17": "ranks = 17; it is 1 to 16",
    "[[runs]]\nprogram = 'ps'\nranks = 2": "ranks = 2; ddp, ring, star, hierarchical_ring and mpi",
    "[[runs]]\nprogram = 'mpi'\nranks = 2\noptions.algorithm = 'binary'": "ranks = 2; ddp, ring, star",
    "[[runs]]\nprogram = 'hierarchical_ring'": "give ranks = 2 or more, of which one speaks for its host",
    "[[runs]]\nprogram = 'ring'\nranks = 2\noptions.order = '0,1'": "ranks of a host follow each other, remove it",
    "[[runs]]\nprogram = 'ddp'\nranks = 2\ntrace = ['kineto']": "trace of several ranks a host; give ranks = 1",
    "[[runs]]\nprogram = 'ps'\nwarm_up = 2": "warm_up of ps; programs without servers warm up, remove it",
    "[[runs]]\nprogram = 'ddp'\nfault.kind = 'slow'": "kind = 'slow'; did you mean slow_",
    "[[runs]]\nprogram = 'ddp'\nfault = { kind = 'loss', step = 3 }": "fault: unknown key 'step'; ",
    "[[runs]]\nprogram = 'ddp'\nfault = { kind = 'loss', host = 'worker-9' }": "host = 'worker-9'; did you mean w",
    "[[runs]]\nprogram = 'ddp'\nfault = { kind = 'pause', peer = 'worker-1' }": "peer of pause; only slow_link, delay",
    "[[runs]]\nprogram = 'ddp'\nfault = { kind = 'loss', peer = 'worker-2', strength = 1 }": "peer = 'worker-2'; ",
    "[[runs]]\nprogram = 'ddp'\nfault.kind = 'delay'": "strength = 0; of delay it is 0.01 to 500 ms one way",
    "[[runs]]\nprogram = 'ddp'\nfault = { kind = 'loss', strength = 1, direction = 'up' }": "direction = 'up'; ",
    "[[runs]]\nprogram = 'ddp'\nfault = { kind = 'loss', strength = 1, to_step = 20 }": "from_step 0 and to_step 20; ",
    "[[runs]]\nprogram = 'ddp'\nfault = { kind = 'loss', strength = 1, from_step = 5, to_step = 4 }": "from_step 5 an",
    "[[runs]]\nprogram = 'ddp'\nfault = { kind = 'late_start', strength = 9, to_step = 4 }": "from_step or to_step of",
    "[[runs]]\nprogram = 'ddp'\nfault = { kind = 'slow_link', strength = 1000 }": "strength = 1000 Mbit/s; give less",
    "[[runs]]\nprogram = 'tf_ps'\nfault = { kind = 'slow_host', strength = 9 }": "slow_host in tf_ps; the programs of",
    "[[runs]]\nprogram = 'mpi'\nfault = { kind = 'cpu_quota', strength = 9 }": "cpu_quota in mpi; give a program that",
    "[[runs]]\njobs = [{ program = 'ddp' }, { program = 'moe' }]\nfault.kind = 'loss'": "fault of several jobs",
    "[[runs]]\nprogram = 'ddp'\nworkers = 60\nfault = { kind = 'incast', strength = 5 }": "65 hosts; at most 64",
    "[[runs]]\nprogram = 'fsdp'\noptions.checkpoint = 2": "option 'checkpoint' of fsdp",
    "[[runs]]\nprogram = 'ddp'\noptions.checkpoint = 0": "checkpoint = '0'; it is a whole number, 1 or more",
    "[python]\njax = '/x'\n[[runs]]\nprogram = 'ddp'": "[python] has 'jax'; there are: torch",
    "[[hosts]]\nssh = 'a'\n[[runs]]\nprogram = 'ddp'": "[[hosts]] 1: no address",
    "[[hosts]]\nssh = '-oProxy=x'\naddress = '10.0.0.1'\ninterface = 'e'\n[[runs]]\nprogram = 'ddp'": "ssh = '-oProxy",
    "[[hosts]]\nssh = 'a'\naddress = 'x'\ninterface = 'eth0'\n[[runs]]\nprogram = 'ddp'": "'x' is no IP address",
    "[[hosts]]\nssh = 'a'\naddress = '10.0.0.1'\ninterface = 'e'\n[[runs]]\nprogram = 'ddp'": "[[hosts]] has 1",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_key_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as error:
        read(tmp_path, text)
    assert WRONG[text] in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "matrix.toml"))
