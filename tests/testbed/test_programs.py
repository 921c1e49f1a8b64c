"""The training programs: what they exchange is the law's, replicas stay equal, and their logs are read by ingest.

Each runs as processes of this machine that talk over the loopback interface. DDNN_TRACES_TORCH_PYTHON is a Python that
has PyTorch, where this one has not.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tools import Once, reserved_port

from ddnn_traces.ingestors.training_logs import read_logs
from ddnn_traces.messages import Messages
from ddnn_traces.testbed.hosts import PROGRAMS
from ddnn_traces.testbed.programs import program_list
from ddnn_traces.traffic.collectives import Collective

PYTHON = os.environ.get("DDNN_TRACES_TORCH_PYTHON", sys.executable)
STEPS, SIZE = 3, 940_584


@dataclass(frozen=True)
class Case:
    """A program on four workers, and what its transfers add up to. ranks: of these on a host."""

    program: str
    options: dict[str, str] = field(default_factory=dict)
    servers: int = 0
    law: Collective | None = None
    arguments: tuple[str, ...] = ()
    ranks: int = 1

    @property
    def name(self) -> str:
        servers = ["servers", str(self.servers)] if self.servers else []
        ranks = ["ranks", str(self.ranks)] if self.ranks > 1 else []
        return "-".join([self.program, *self.options.values(), *servers, *ranks, *self.arguments[1::2]])


EXCHANGES = [
    Case("ring", {"order": "0,2,1,3"}, law=Collective("ring", 4, order=(0, 2, 1, 3))),
    Case("tree", law=Collective("tree", 4, "binomial")),
    Case("tree", {"shape": "heap"}, law=Collective("tree", 4, "heap")),
    Case("star", law=Collective("star", 4)),
    Case("binary_tree_star", law=Collective("binary_tree_star", 4, group_size=2)),
    Case("clique", law=Collective("clique", 4)),
    Case("halving_doubling", law=Collective("halving_doubling", 4)),
    Case("ps", servers=1, law=Collective("star", 4, "server")),
    Case("ps", servers=2, law=Collective("sharded_parameter_server", 4, servers=2)),
]
PATTERNS = [Case(name) for name in ("fsdp", "pipeline", "tensor_data", "moe", "two_rings")]
OTHERS = [Case("ddp"), Case("ps_async", servers=2), Case("pair_averaging")]
RANKS = [Case(name, arguments=("--warm-up", "2"), ranks=2) for name in ("ddp", "ring", "hierarchical_ring")]
LEARNS = [Case("pair_averaging", arguments=("--data", "digits", "--model", "mlp0"))]
SLEEPS = [Case("ddp", {"time_scale": "0.01"}, arguments=("--compute", "sleep:mobilenet_v2"))]


#: Runs programs, each as processes forked from one that has imported PyTorch, which takes seconds. A line of JSON,
#: folder, environment of each process and words, is answered by whether one of them failed.
FORKS = """
import json, os, runpy, sys
import torch, torch.distributed, torch.distributed.fsdp
for line in sys.stdin:
    folder, environments, words = json.loads(line)
    children = []
    for rank, environment in enumerate(environments):
        children.append(os.fork())
        if children[-1]:
            continue
        os.environ |= environment
        said = os.open(f"{folder}/said-{rank}", os.O_CREAT | os.O_WRONLY)
        os.dup2(said, 1), os.dup2(said, 2)
        sys.argv = ["programs", *words]
        try:
            runpy.run_module("programs", run_name="__main__", alter_sys=True)
        except BaseException:
            import traceback
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    print(any([os.waitpid(child, 0)[1] for child in children]), flush=True)
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS.parent)}
    command = [PYTHON, "-c", FORKS]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def run(case: Case, out: Path, forks: subprocess.Popen[str]) -> Path:
    """Run a case's processes to their end; fails where one of them does."""
    out.mkdir(exist_ok=True)  # of an earlier try that failed
    hosts = 4 + case.servers
    labels = [f"worker-{rank // case.ranks + 1}" if rank < 4 else f"ps-{rank - 3}" for rank in range(hosts)]
    options = [word for name, value in case.options.items() for word in ("--option", f"{name}={value}")]
    words = [case.program, "--steps", str(STEPS), "--pause-ms", "0", "--out", str(out), *case.arguments, *options]
    assert forks.stdin is not None and forks.stdout is not None
    with reserved_port() as port:
        shared = {
            "WORLD_SIZE": str(hosts), "WORKERS": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        shared |= {"RANKS_PER_HOST": str(case.ranks)} if case.ranks > 1 else {}
        environments = [
            {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank % case.ranks), "LABEL": label}
            for rank, label in enumerate(labels)
        ]
        print(json.dumps([str(out), environments, words]), file=forks.stdin, flush=True)
        answer = forks.stdout.readline()
    assert answer, f"{PYTHON} ended: has it PyTorch? DDNN_TRACES_TORCH_PYTHON names a Python that does"
    said = [(out / f"said-{rank}").read_text() for rank in range(hosts)]
    assert answer == "False\n", said
    (out / "weights.json").write_text(json.dumps([re.findall("weights (\\w{64})", text)[0] for text in said[:4]]))
    return out


@pytest.fixture
def ran(once: Once, forks: subprocess.Popen[str]) -> Callable[[Case], Path]:
    """Runs a case, once for all tests."""
    return lambda case: once(f"program-{case.name}", lambda path: run(case, path, forks))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def events(out: Path, label: str, step: int = 1) -> list[dict[str, str]]:
    return [row for row in rows(out / f"events-{label}.csv") if row["step"] == str(step)]


def losses(out: Path) -> list[float]:
    return [float(row["Loss"]) for row in rows(out / "train_history-worker-1.log") if row["Type"] == "batch"]


def named(case: Case) -> str:
    return case.name


@pytest.mark.testbed
@pytest.mark.parametrize("case", EXCHANGES, ids=named)
def test_an_exchange_sends_what_its_law_says(case: Case, ran: Callable[[Case], Path]) -> None:
    out = ran(case)
    assert case.law is not None
    expected: Counter[int] = Counter()
    for transfers in case.law.rounds(SIZE):
        for transfer in transfers:
            expected[transfer.src] += transfer.bytes
    for rank in range(case.law.hosts):
        label = f"worker-{rank + 1}" if rank < 4 else f"ps-{rank - 3}"
        sent = sum(int(row["bytes"]) for row in events(out, label) if row["kind"] == "send")
        # a gradient of 235,146 numbers is not divided evenly
        assert sent == pytest.approx(expected[rank], abs=4 * 4 * case.law.hosts), label


@pytest.mark.testbed
@pytest.mark.parametrize("case", [*EXCHANGES, Case("ddp"), Case("two_rings")], ids=named)
def test_replicas_stay_equal_and_learn_as_with_ddp(case: Case, ran: Callable[[Case], Path]) -> None:
    out = ran(case)
    assert len(set(json.loads((out / "weights.json").read_text()))) == 1
    assert losses(out) == pytest.approx(losses(ran(Case("ddp"))), rel=1e-3)


@pytest.mark.testbed
@pytest.mark.parametrize("case", RANKS, ids=named)
def test_ranks_of_a_host_share_a_log_behind_steps_that_warm_up(case: Case, ran: Callable[[Case], Path]) -> None:
    out = ran(case)
    assert len(set(json.loads((out / "weights.json").read_text()))) == 1
    logs = read_logs(out, messages := Messages())
    assert messages.warnings == []
    assert [(log.worker, len(log.steps)) for log in logs] == [("worker-1", STEPS), ("worker-2", STEPS)]
    # two steps have trained before the first one that is logged
    assert losses(out)[0] == pytest.approx(losses(ran(Case("ddp")))[2], rel=1e-3)
    sent = sum(int(row["bytes"]) for row in events(out, "worker-1", 0) if row["kind"] in ("send", "allreduce"))
    # a whole all-reduce; 2(R-1)/R of R ranks; to the other host 2(N-1)/N of N hosts, and what the other rank gets
    assert sent == pytest.approx({"ddp": 1, "ring": 1.5, "hierarchical_ring": 1 + 1}[case.program] * SIZE, abs=100)


@pytest.mark.testbed
@pytest.mark.parametrize("case", PATTERNS, ids=named)
def test_a_pattern_does_the_collectives_of_its_truth(case: Case, ran: Callable[[Case], Path]) -> None:
    out = ran(case)
    truth = json.loads((out / "truth.json").read_text())
    done = Counter((row["kind"], int(row["bytes"])) for row in events(out, "worker-1"))
    expected: Counter[tuple[str, int]] = Counter()
    for group in truth["groups"]:
        for collective in group["collectives"] if 0 in group["ranks"] else ():
            expected[collective["kind"], collective["bytes"]] += collective["per_step"]
    if case.program == "pipeline":  # its sends are of both ends of a pair
        expected = Counter({key: count // 2 for key, count in expected.items()})
        done = Counter({key: count for key, count in done.items() if key[0] == "send"})
    if case.program == "two_rings":  # made of 2(N-1) sends of a quarter each
        assert sum(size * count for (_, size), count in done.items()) == pytest.approx(1.5 * SIZE, abs=100)
        return
    assert done == expected


@pytest.mark.testbed
@pytest.mark.parametrize("case", EXCHANGES + PATTERNS + OTHERS, ids=named)
def test_logs_are_read_by_ingest(case: Case, ran: Callable[[Case], Path]) -> None:
    messages = Messages()
    logs = read_logs(ran(case), messages)
    assert messages.warnings == []
    silent = case.servers if case.program == "ps_async" else 0
    assert [len(log.steps) for log in logs] == [STEPS] * (4 + case.servers - silent)
    for log in logs:
        assert {event.kind for event in log.events} >= {"compute", "communicate", "update"}
        begin, end = log.steps[0].start_ns, log.steps[-1].end_ns
        assert all(begin <= event.start_ns <= event.end_ns <= end for event in log.events)


@pytest.mark.testbed
def test_digits_are_tested_on_pictures_that_are_held_out(ran: Callable[[Case], Path]) -> None:
    logs = read_logs(ran(LEARNS[0]), messages := Messages())
    assert messages.warnings == []
    known = [[step.held_out_accuracy for step in log.steps] for log in logs]
    assert all(
        0 < value < 1 and value * 359 == pytest.approx(round(value * 359), abs=1e-3)
        for values in known
        for value in values
        if value is not None
    )  # 359: a fifth of 1,797
    assert len(known) == 4 and all(len(values) == STEPS and None not in values for values in known)
    assert len({tuple(values) for values in known}) > 1  # with pair averaging each worker has its own model


@pytest.mark.testbed
def test_computation_in_place_of_which_it_sleeps(ran: Callable[[Case], Path]) -> None:
    out = ran(SLEEPS[0])
    truth = json.loads((out / "truth.json").read_text())
    assert truth["model_params"] == 3_504_872  # MobileNetV2
    reduced = sum(int(row["bytes"]) for row in events(out, "worker-1") if row["kind"] == "allreduce")
    assert reduced == truth["model_bytes"]
    assert len([row for row in events(out, "worker-1") if row["kind"] == "allreduce"]) > 1  # in buckets


@pytest.mark.testbed
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["hierarchical_ring"], "hierarchical_ring: give ranks = 2 or more, of which one speaks for its host"),
        (["ring", "--option", "order=0,0"], "ring: order = '0,0'; give each of the ranks 0 to 0 once"),
        (["ddp", "--model", "gpt9"], "no model named gpt9: it is one of mlp0"),
        (["ddp", "--compute", "sleep:none"], "none: no CSV with layer"),
    ],
)
def test_wrong_arguments_are_named(words: list[str], message: str, tmp_path: Path) -> None:
    command = [PYTHON, "-m", "programs", *words, "--out", str(tmp_path)]
    with reserved_port() as port:
        alone = {
            "RANK": "0", "WORLD_SIZE": "1", "WORKERS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(PROGRAMS.parent),
        }  # fmt: skip
        done = subprocess.run(command, env={**os.environ, **alone}, capture_output=True, text=True)
    assert done.returncode == 1
    assert message in done.stderr


@pytest.mark.testbed
def test_a_program_on_nccl_says_what_it_needs_where_there_is_no_gpu(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS.parent), "CUDA_VISIBLE_DEVICES": ""}
    command = [PYTHON, "-m", "programs", "nccl_fsdp", "--out", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 3
    assert "programs on NCCL need an NVIDIA GPU, one for all hosts or one for each" in done.stderr
    assert "--python nccl=PATH" in done.stderr


def test_the_settings_of_nccl() -> None:
    """Each process is a host of its own; what is not chosen is left to NCCL."""
    settings = program_list.nccl_settings({"algo": "tree", "channels": "4"}, "worker-2", "eth0")
    assert settings["NCCL_HOSTID"] == "worker-2"
    assert settings["NCCL_SOCKET_IFNAME"] == "eth0"
    assert (settings["NCCL_NET"], settings["NCCL_P2P_DISABLE"], settings["NCCL_SHM_DISABLE"]) == ("Socket", "1", "1")
    assert settings["NCCL_ALGO"] == "tree"
    assert settings["NCCL_MIN_NCHANNELS"] == settings["NCCL_MAX_NCHANNELS"] == "4"
    assert "NCCL_PROTO" not in settings


@pytest.mark.testbed
def test_the_models_have_the_stated_parameters() -> None:
    code = """
import json
from programs import models
counted = {name: models.parameters(models.build(name, "real", {})) for name in models.MODELS}
print(json.dumps([counted, models.MODELS]))
"""
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS.parent)}
    said = subprocess.run([PYTHON, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
    counted, stated = json.loads(said)
    assert counted == stated


def test_the_settings_of_open_mpi() -> None:
    assert program_list.mca_settings("ring") == {
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_allreduce_algorithm": "4",
    }
    assert {
        program_list.mca_settings(name)["coll_tuned_allreduce_algorithm"] for name in program_list.ALGORITHMS
    } == set("12346")


PARAMETERS = {
    "mobilenet_v2": 3_504_872, "resnet50": 25_557_032, "resnet101": 44_549_160, "densenet201": 20_013_928,
    "vgg16": 138_357_544, "vgg19": 143_667_240, "inception_v3": 27_161_264,
    "densenet121": 7_978_856, "mobilenet_v1": 4_231_976,  # of farhat's 8,062,504 and 4,253,864 those that are trained
    "resnet200": 64_673_832,  # published by nobody for these blocks: counted in the model
}  # fmt: skip


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_profile_has_the_published_number_of_parameters(name: str) -> None:
    lines = (PROGRAMS / "profiles" / f"{name}.csv").read_text().splitlines()
    layers = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert sum(int(layer["gradient_bytes"]) for layer in layers) == 4 * PARAMETERS[name]
    assert all(float(layer["forward_ms"]) > 0 and float(layer["backward_ms"]) > 0 for layer in layers)


def test_a_program_without_its_framework_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError(name='torch')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{PROGRAMS.parent}"}
    command = [sys.executable, "-m", "programs", "ddp", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "torch is not installed here: pip install torch\n")


def test_every_program_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "testbed.md").read_text()
    assert [name for name in program_list.PROGRAMS if f"| {name} |" not in page] == []
