"""The training programs, models and profiles by the names that a matrix gives: what each is, and how it is started.

Only the standard library: the testbed reads it without a framework.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

WIDTHS = {"mlp1": (784, 256, 128, 10), "mlp4": (784, 640, 640, 10), "mlp12": (784, 1500, 1200, 10)}
#: Parameters of each model that trains here.
MODELS = {
    "mlp1": 235_146, "mlp4": 919_050, "mlp12": 2_990_710,
    "mobilenet_like": 455_562, "resnet_like": 1_208_938, "densenet_like": 618_530,
}  # fmt: skip
#: True models by the sizes of their gradients, and the times of their layers.
PROFILES = Path(__file__).parent / "profiles"
#: Models that `ddnn-traces profile` knows by name: torchvision's, and resnet200 of torchvision's class ResNet.
PROFILED_MODELS = (
    "mobilenet_v2", "resnet50", "resnet101", "resnet200", "densenet201", "vgg16", "vgg19", "inception_v3",
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


@dataclass(frozen=True)
class Program:
    """A training program. framework, backend, topology: as in the table runs (topology: unless its options say more).

    launcher: torch (a process a host), mpi and horovod (mpirun on the first host), tensorflow (a process a host;
    servers and, with chief, one more host); a matrix gives the Python of each by this name. servers: hosts beside the
    workers that it needs at least; -1 where it takes none. model: the name of the model that it has of its own,
    whatever a matrix says. elastic: torchrun starts the process of each host, again where it ends. options: names of
    those that it has alone.
    """

    framework: str
    backend: str
    topology: str
    launcher: str = "torch"
    servers: int = -1
    chief: bool = False
    elastic: bool = False
    model: str = ""
    options: tuple[str, ...] = ()

    @property
    def known_options(self) -> tuple[str, ...]:
        """Its options, and those that every PyTorch program has; checkpoint: those whose workers have whole models."""
        own = ("algorithm", *self.options) if self.by_mpirun else self.options
        saved = () if self.model or self.topology == "fsdp" or self.launcher == "horovod" else ("checkpoint",)
        return (*own, *saved) if self.launcher == "tensorflow" else (*own, *saved, "time_scale")

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that it trains."""
        return (self.model,) if self.model else tuple(WIDTHS if self.launcher == "tensorflow" else MODELS)

    @property
    def sleeps(self) -> bool:
        """Whether it can have a profile's gradients and times in place of a model."""
        return self.launcher != "tensorflow" and not self.model and self.topology != "fsdp"

    @property
    def by_mpirun(self) -> bool:
        """Whether mpirun starts it, with an all-reduce that the option algorithm chooses."""
        return self.launcher in ("mpi", "horovod")

    @property
    def needs(self) -> tuple[str, ...]:
        """The Python packages without which it does not run."""
        return {
            "torch": ("torch",), "mpi": ("torch", "numpy", "mpi4py"), "tensorflow": ("tensorflow",),
            "horovod": ("torch", "horovod"),
        }[self.launcher]  # fmt: skip


def _torch(topology: str, servers: int = -1, options: tuple[str, ...] = ()) -> Program:
    return Program("torchp2p", "gloo", topology, servers=servers, options=options)


PROGRAMS = {
    "ddp": Program("torch", "gloo", "ring"),
    "elastic": Program("torch", "gloo", "ring", elastic=True, options=("least",)),
    "ring": _torch("ring", options=("order",)),
    "tree": _torch("tree", options=("shape",)),
    "binary_tree_star": _torch("binary_tree_star", options=("group",)),
    "star": _torch("star"),
    "clique": _torch("clique"),
    "halving_doubling": _torch("halving_doubling"),
    "ps": _torch("ps", servers=1),
    "ps_async": _torch("ps", servers=1),
    "pair_averaging": _torch("gossip"),
    "fsdp": Program("torch", "gloo", "fsdp"),
    "pipeline": Program("torch", "gloo", "pipeline", model="blocks", options=("microbatches",)),
    "tensor_data": Program("torch", "gloo", "tensor_data", model="blocks", options=("tensor",)),
    "moe": Program("torch", "gloo", "moe", model="experts"),
    "two_rings": Program("torch", "gloo", "two_rings", options=("order",)),
    "mpi": Program("mpi", "openmpi", "ring", launcher="mpi"),
    "tf_mirrored": Program("tf", "grpc", "ring", launcher="tensorflow"),
    "tf_ps": Program("tf", "grpc", "ps", launcher="tensorflow", servers=1, chief=True),
    "horovod": Program("horovod", "openmpi", "ring", launcher="horovod"),
}
