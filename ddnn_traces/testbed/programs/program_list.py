"""The training programs, models and profiles by the names that a matrix gives: what each is, and how it is started.

Only the standard library: the testbed reads it without a framework.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WIDTHS = {
    "mlp0": (784, 64, 10), "mlp1": (784, 256, 128, 10), "mlp4": (784, 640, 640, 10), "mlp12": (784, 1500, 1200, 10),
}  # fmt: skip
#: Parameters of each model that trains here.
MODELS = {
    "mlp0": 50_890, "mlp1": 235_146, "mlp4": 919_050, "mlp12": 2_990_710,
    "mobilenet_like": 455_562, "resnet_like": 1_208_938, "densenet_like": 618_530,
}  # fmt: skip
#: What is trained on: pictures made with a seed, or scikit-learn's digits, with a part held out.
DATA = ("synthetic", "digits")
#: True models by the sizes of their gradients, and the times of their layers.
PROFILES = Path(__file__).parent / "profiles"
#: Models that `ddnn-traces profile` knows by name: torchvision's, resnet200 of torchvision's class ResNet, and
#: mobilenet_v1, which profile.py builds.
PROFILED_MODELS = (
    "mobilenet_v1", "mobilenet_v2", "resnet50", "resnet101", "resnet200", "densenet121", "densenet201", "vgg16",
    "vgg19", "inception_v3",
)  # fmt: skip


def read_profile(name: str) -> list[tuple[float, float, int]]:
    """Forward seconds, backward seconds and parameters of each layer: a shipped profile, or a file.

    Raises ValueError for what is no profile.
    """
    path = PROFILES / f"{name}.csv"
    path = path if path.is_file() else Path(name)
    try:
        lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        return [
            (float(row["forward_ms"]) / 1e3, float(row["backward_ms"]) / 1e3, int(row["gradient_bytes"]) // 4)
            for row in csv.DictReader(lines)
        ]
    except (OSError, KeyError, TypeError, ValueError, csv.Error) as error:
        shipped = ", ".join(sorted(profile.stem for profile in PROFILES.glob("*.csv")))
        raise ValueError(
            f"{name}: no CSV with layer, forward_ms, backward_ms and gradient_bytes ({error}); there are {shipped}"
        ) from error


#: Open MPI 4.1's numbers of coll_tuned_allreduce_algorithm, and the topology that each is in the tables.
ALGORITHMS = {
    "linear": (1, "star"), "binary": (2, "tree"), "recursive_doubling": (3, "recursive_doubling"),
    "ring": (4, "ring"), "rabenseifner": (6, "halving_doubling"),
}  # fmt: skip
#: Of binary: a reduction and a broadcast along the same tree. (Open MPI's binomial ones are along different trees.)
_BINARY = {"coll_tuned_reduce_algorithm": "4", "coll_tuned_bcast_algorithm": "5"}


def mca_settings(algorithm: str) -> dict[str, str]:
    """Settings of mpirun that choose the all-reduce. Raises KeyError for an unknown name."""
    number, _ = ALGORITHMS[algorithm]
    settings = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": str(number)}
    return settings | (_BINARY if algorithm == "binary" else {})


#: Settings of NCCL by the options of a program; algo and protocol are its own words.
_NCCL_OPTIONS = {
    "algo": ("NCCL_ALGO",), "protocol": ("NCCL_PROTO",), "channels": ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
}  # fmt: skip


def nccl_settings(options: Mapping[str, str], host: str, interface: str) -> dict[str, str]:
    """Environment of a process of NCCL that takes each process for a host, and talks to all others by TCP.

    NCCL refuses two ranks on one GPU unless they are of different hosts: NCCL_HOSTID.
    """
    chosen = {name: options[key] for key, names in _NCCL_OPTIONS.items() if options.get(key) for name in names}
    return {
        "NCCL_HOSTID": host, "NCCL_SOCKET_IFNAME": interface, "NCCL_NET": "Socket", "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV", **chosen,
    }  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """What options are compared with. workers: all ranks; ranks: those of a host."""

    workers: int
    batch_size: int
    ranks: int = 1


#: What is wrong with the text of an option; empty: nothing.
Rule = Callable[[str, Sizes], str]


def _ranks(text: str, sizes: Sizes) -> str:
    if sizes.ranks > 1:
        return "ranks of a host follow each other, remove it"
    ranks = [str(rank) for rank in range(sizes.workers)]
    return "" if sorted(text.split(",")) == sorted(ranks) else f"give each of the ranks 0 to {ranks[-1]} once"


def _whole(text: str, _: Sizes) -> str:
    return "" if text.isdecimal() and int(text) else "it is a whole number, 1 or more"


def _divisor(of: str) -> Rule:
    def rule(text: str, sizes: Sizes) -> str:
        whole = getattr(sizes, of)
        return _whole(text, sizes) or (f"it does not divide {of} = {whole}" if whole % int(text) else "")

    return rule


def _factor(text: str, _: Sizes) -> str:
    try:
        return "" if 0 < float(text) < 1e6 else "it is above 0"
    except ValueError:
        return "it is a number"


#: The words that an option may be, or its rule.
OPTIONS: dict[str, tuple[str, ...] | Rule] = {
    "algorithm": tuple(ALGORITHMS), "shape": ("binomial", "heap"), "order": _ranks, "group": _whole, "least": _whole,
    "algo": ("ring", "tree"), "protocol": ("simple", "ll", "ll128"), "channels": _whole, "work": _factor,
    "checkpoint": _whole, "tensor": _divisor("workers"), "microbatches": _divisor("batch_size"), "time_scale": _factor,
}  # fmt: skip


def _power_of_two(sizes: Sizes) -> str:
    return f"workers = {sizes.workers}; give a power of two" if sizes.workers & (sizes.workers - 1) else ""


def _several_ranks(sizes: Sizes) -> str:
    return "" if sizes.ranks > 1 else "give ranks = 2 or more, of which one speaks for its host"


def _equal_experts(sizes: Sizes) -> str:
    workers, batch = sizes.workers, sizes.batch_size
    return f"batch_size = {batch} on {workers} experts; give a multiple of {workers}" if batch % workers else ""


@dataclass(frozen=True)
class Program:
    """A training program. framework, backend, topology: as in the table runs (topology: unless its options say more).

    launcher: torch (a process a host), mpi and horovod (mpirun on the first host), tensorflow (a process a host;
    servers and, with chief, one more host); a matrix gives the Python of each by this name. servers: hosts beside the
    workers that it needs at least; -1 where it takes none. model: the name of the model that it has of its own,
    whatever a matrix says. elastic: torchrun starts the process of each host, again where it ends. options: those that
    it has alone, with their defaults (empty: none). variant: word in the names of its runs. fits: what is wrong with
    the workers or the batch; empty: nothing.
    """

    framework: str
    backend: str
    topology: str
    launcher: str = "torch"
    servers: int = -1
    chief: bool = False
    elastic: bool = False
    model: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    variant: str = ""
    fits: Callable[[Sizes], str] = lambda _: ""

    def check(self, sizes: Sizes, options: Mapping[str, str]) -> None:
        """Raise ValueError where the workers, the batch size or an option do not fit the program."""
        problem = self.fits(sizes)
        if sizes.ranks > 1 and not self.takes_ranks(options):
            problem = f"ranks = {sizes.ranks}; ddp, ring, star, hierarchical_ring and mpi (ring, linear) have several"
        for name, text in {**self.options, **options}.items():
            rule = OPTIONS[name]
            said = rule(text, sizes) if callable(rule) and text else ""
            problem = problem or (f"{name} = {text!r}; {said}" if said else "")
        if problem:
            raise ValueError(problem)

    def topology_with(self, options: Mapping[str, str]) -> str:
        """The topology with these options."""
        if self.by_mpirun:
            return ALGORITHMS[options.get("algorithm", "ring")][1]
        return (self.topology == "ring" and options.get("algo")) or self.topology

    @property
    def known_options(self) -> tuple[str, ...]:
        """Its options, and those that every PyTorch program has; checkpoint: those whose workers have whole models."""
        own = ("algorithm", *self.options) if self.by_mpirun else self.options
        saved = ("checkpoint",) if self._has_whole_models and self.launcher != "horovod" else ()
        return (*own, *saved) if self.launcher == "tensorflow" else (*own, *saved, "time_scale")

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that it trains."""
        return (self.model,) if self.model else tuple(WIDTHS if self.launcher == "tensorflow" else MODELS)

    @property
    def sleeps(self) -> bool:
        """Whether it can have a profile's gradients and times in place of a model."""
        return self.launcher != "tensorflow" and self._has_whole_models

    @property
    def by_mpirun(self) -> bool:
        """Whether mpirun starts it, with an all-reduce that the option algorithm chooses."""
        return self.launcher in ("mpi", "horovod")

    def takes_ranks(self, options: Mapping[str, str]) -> bool:
        """Whether a host can have several ranks: where a law says what these send from host to host."""
        topology = self.topology_with(options)
        is_one = self.launcher in ("torch", "mpi") and not self.elastic and not options.get("checkpoint")
        return is_one and topology in ("ring", "star", "hierarchical_ring")

    @property
    def warms_up(self) -> bool:
        """Whether it can do steps that no log has: a program of PyTorch or MPI without servers."""
        return self.launcher != "tensorflow" and self.servers < 0

    @property
    def learns(self) -> bool:
        """Whether it can train on real data: its workers are of PyTorch, and have whole models that take pictures."""
        return self.launcher in ("torch", "mpi") and self._has_whole_models

    @property
    def _has_whole_models(self) -> bool:
        """Whether each worker has all of a model that a matrix names."""
        return not self.model and self.topology != "fsdp"

    @property
    def needs(self) -> tuple[str, ...]:
        """The Python packages without which it does not run."""
        return {
            "torch": ("torch",), "nccl": ("torch",), "mpi": ("torch", "numpy", "mpi4py"), "tensorflow": ("tensorflow",),
            "horovod": ("torch", "horovod"),
        }[self.launcher]  # fmt: skip


def _torch(topology: str, **more: Any) -> Program:
    return Program("torchp2p", "gloo", topology, **more)


def _nccl(topology: str, model: str = "", options: Mapping[str, str] | None = None, **more: Any) -> Program:
    own = {"algo": "", "protocol": "", "channels": "", "work": "50", **(options or {})}
    return Program("torch", "nccl", topology, launcher="nccl", model=model, options=own, **more)


PROGRAMS = {
    "ddp": Program("torch", "gloo", "ring"),
    "elastic": Program("torch", "gloo", "ring", elastic=True, options={"least": ""}),
    "ring": _torch("ring", options={"order": ""}),
    "hierarchical_ring": _torch("hierarchical_ring", fits=_several_ranks),
    "tree": _torch("tree", options={"shape": "binomial"}),
    "binary_tree_star": _torch("binary_tree_star", options={"group": "2"}),
    "star": _torch("star"),
    "clique": _torch("clique"),
    "halving_doubling": _torch("halving_doubling", fits=_power_of_two),
    "ps": _torch("ps", servers=1),
    "ps_async": _torch("ps", servers=1, variant="async"),
    "pair_averaging": _torch("gossip"),
    "fsdp": Program("torch", "gloo", "fsdp"),
    "pipeline": Program("torch", "gloo", "pipeline", model="blocks", options={"microbatches": "4"}),
    "tensor_data": Program("torch", "gloo", "tensor_data", model="blocks", options={"tensor": "2"}),
    "moe": Program("torch", "gloo", "moe", model="experts", fits=_equal_experts),
    "two_rings": Program("torch", "gloo", "two_rings", options={"order": ""}),
    "nccl_allreduce": _nccl("ring"),
    "nccl_ddp": _nccl("ring"),
    "nccl_fsdp": _nccl("fsdp"),
    "nccl_pipeline": _nccl("pipeline", "blocks", {"microbatches": "4"}),
    "nccl_tensor_data": _nccl("tensor_data", "blocks", {"tensor": "2"}),
    "nccl_moe": _nccl("moe", "experts", fits=_equal_experts),
    "mpi": Program("mpi", "openmpi", "ring", launcher="mpi"),
    "tf_mirrored": Program("tf", "grpc", "ring", launcher="tensorflow"),
    "tf_ps": Program("tf", "grpc", "ps", launcher="tensorflow", servers=1, chief=True),
    "horovod": Program("horovod", "openmpi", "ring", launcher="horovod"),
}
#: Names by which a matrix gives the Python of programs.
LAUNCHERS = tuple(dict.fromkeys(program.launcher for program in PROGRAMS.values()))
