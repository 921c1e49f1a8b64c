"""The scenarios of Zerwas et al. 2021 as synthetic runs: what their testbed would have sent if it obeyed the laws.

The paper measures "more than 75 scenarios" and lists their parts in section IV-B, not their combinations. From the
paper are the models with their sizes, the settings of the frameworks, the four topologies of KungFu's S-SGD and of its
pair averaging (section V-B), batch 64 and Adam by default, batches 128 and 512 (fig. 9), RMSProp (section V-A), loss
with TensorFlow and MobileNetV2 (fig. 10), four nodes, six with a parameter server. The paper does not list which of
these were combined; the combinations here are chosen so that there are 75:

    60  every setting (15) with every model (4), batch 64, Adam
     8  KungFu S-SGD on a binary tree star, batch 128 and 512, with every model
     4  TensorFlow's ring over gRPC with RMSProp, with every model
     3  the same with MobileNetV2 and 0.01, 0.1 and 2% of loss

The four runs with a parameter server are in zerwas-79 only: the paper leaves them out from section V-B on, and a
server of 4 workers moves 8 times the model, where the others move 6.

Runs of equal volume by law differ by `noise`, the one number that is not the paper's: see `runs_of`.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ddnn_traces.errors import UsageError
from ddnn_traces.traffic.synthetic.runs import SyntheticRun, write_runs

#: The paper's gradient flows are 99% of what is transmitted (section V-B); noise models the other 1%.
DEFAULT_NOISE = 0.01

PREFIX = "synthetic-"
WORKERS = 4
WINDOW_NS = 100_000_000
LINK_MBIT = 10_000.0  # section IV-A
_BEGIN_NS = 1_600_000_000_000_000_000
_HOUR_NS = 3_600_000_000_000


@dataclass(frozen=True)
class Model:
    """A model of section IV-B. compute_ms: of a batch of 64 on one worker's GPU; not the paper's, changes no bytes."""

    name: str
    size_mb: int
    compute_ms: float


@dataclass(frozen=True)
class Setting:
    """A framework's setting. topology: as declared; law: the collective and shape that its bytes obey."""

    framework: str
    backend: str
    topology: str
    law: tuple[str, str]


@dataclass(frozen=True)
class Scenario:
    """A setting with a model, an optimizer, a batch and a loss."""

    setting: Setting
    model: Model
    optimizer: str = "adam"
    batch_size: int = 64
    loss_pct: float = 0.0

    @property
    def run_id(self) -> str:
        """`synthetic-` and the name in the published scheme (docs/design.md, section 4)."""
        condition = f"loss_{self.loss_pct:g}" if self.loss_pct else "normal"
        setting = self.setting
        return (
            f"{PREFIX}{setting.framework}-{self.model.name}-{self.optimizer}-{self.batch_size}-{setting.backend}-"
            f"{condition}-{setting.topology}"
        )


MODELS = (
    Model("mobilenetv2", 14, 90.0), Model("densenet201", 80, 260.0), Model("resnet50", 97, 180.0),
    Model("resnet101", 171, 300.0),
)  # fmt: skip

_RING, _GRID, _PULL = ("ring", ""), ("hierarchical_ring", "grid"), ("pair_averaging", "pull")

#: KungFu's topologies and their laws for S-SGD. All send 6 times the model, the clique because its chunks are divided
#: among the workers (each sums its own): the paper finds the same total for all S-SGD, and a clique in which every
#: worker sends everything to all would send 12 times. In the tree only the root relays, as in fig. 4(c).
KUNGFU = {
    "binary_tree_star": ("binary_tree_star", "overlay"),
    "tree": ("star", "worker"),
    "star": ("star", "worker"),
    "clique": ("clique", "sharded"),
}

#: The settings of section IV-B and table II. NCCL's hierarchical reduce is that of a grid: reduce-scatter in the
#: group, all-reduce across, all-gather in the group. Pair averaging is declared with KungFu's topologies, and pulls.
SETTINGS = (
    Setting("tensorflow", "grpc", "ring", _RING),
    Setting("tensorflow", "grpc_nccl", "ring", _RING),
    Setting("horovod", "mpi", "ring", _RING),
    Setting("horovod", "gloo", "ring", _RING),
    Setting("horovod", "mpi_nccl", "ring", _RING),
    Setting("horovod", "gloo_nccl", "ring", _RING),
    Setting("horovod", "mpi_nccl", "hierarchical_ring", _GRID),
    *(Setting("kungfu", "ssgd", topology, law) for topology, law in KUNGFU.items()),
    *(Setting("kungfu", "pairavg", topology, _PULL) for topology in KUNGFU),
)
PARAMETER_SERVER = Setting("tensorflow", "grpc", "parameter_server", ("star", "server"))

LOSSES_PCT = (0.01, 0.1, 2.0)
BATCHES = (128, 512)


def _zerwas_75() -> tuple[Scenario, ...]:
    grpc, star = SETTINGS[0], next(s for s in SETTINGS if (s.backend, s.topology) == ("ssgd", "binary_tree_star"))
    return (
        *(Scenario(setting, model) for setting, model in itertools.product(SETTINGS, MODELS)),
        *(Scenario(star, model, batch_size=batch) for batch, model in itertools.product(BATCHES, MODELS)),
        *(Scenario(grpc, model, "rmsprop") for model in MODELS),
        *(Scenario(grpc, MODELS[0], loss_pct=loss) for loss in LOSSES_PCT),
    )


SCENARIOS = {
    "zerwas-75": _zerwas_75(),
    "zerwas-79": (*_zerwas_75(), *(Scenario(PARAMETER_SERVER, model) for model in MODELS)),
}


def generate(
    out: Path, scenarios: str = "zerwas-75", steps: int = 20, seed: int = 0, noise: float = DEFAULT_NOISE
) -> list[str]:
    """Write a set of SCENARIOS into the dataset at `out`, new or next to other runs; return the runs' names.

    About 0.1 s a run of 20 steps. Arguments and errors as of `runs_of`; UsageError also where `out` is not a dataset.
    """
    return write_runs(out, runs_of(scenarios, steps, seed, noise))


def runs_of(
    scenarios: str = "zerwas-75", steps: int = 20, seed: int = 0, noise: float = DEFAULT_NOISE
) -> list[SyntheticRun]:
    """The runs of a set of SCENARIOS.

    Every run, whatever its setting, draws one share evenly between 0 and 2 * `noise` and uses it twice: for payload
    between pairs that the algorithm does not use (control messages), relative to the exchange; and as the largest part
    of a transfer that is retransmitted, half of it in the mean. So a run sends 1.5 * noise more than its law in the
    mean, with a standard deviation of 0.87 * noise; headers (66 bytes a segment) and acknowledgements (one for two
    segments where no data goes back) come on top, and `loss_pct` is retransmitted. The framework, batch and topology
    have no effect except through the law. The same seed gives the same bytes.

    Raises UsageError for an unknown set, fewer than 1 step, or noise outside 0 to 0.5.
    """
    if scenarios not in SCENARIOS:
        raise UsageError(f"no scenarios named {scenarios}; there are {', '.join(SCENARIOS)}")
    if steps < 1:
        raise UsageError(f"{steps} steps: give 1 or more")
    if not (math.isfinite(noise) and 0 <= noise <= 0.5):
        raise UsageError(f"noise {noise:g}: give a share between 0 and 0.5")
    return [_run(scenario, i, steps, seed, noise) for i, scenario in enumerate(SCENARIOS[scenarios])]


def _run(scenario: Scenario, number: int, steps: int, seed: int, noise: float) -> SyntheticRun:
    setting, model = scenario.setting, scenario.model
    topology, shape = setting.law
    draw = np.random.default_rng([seed, zlib.crc32(scenario.run_id.encode()), 1])  # another stream than the run's own
    return SyntheticRun(
        run_id=scenario.run_id, topology=topology, shape=shape, workers=WORKERS, model_bytes=model.size_mb * 1_000_000,
        declared_topology=setting.topology, framework=setting.framework, backend=setting.backend, model=model.name,
        optimizer=scenario.optimizer, batch_size=scenario.batch_size, loss_pct=scenario.loss_pct, steps=steps,
        compute_ms=model.compute_ms * scenario.batch_size / 64, bandwidth_mbit=LINK_MBIT,
        noise=float(draw.uniform(0, 2 * noise)), window_ns=WINDOW_NS, seed=seed, start_ns=_BEGIN_NS + number * _HOUR_NS,
        chief=setting == PARAMETER_SERVER,
    )  # fmt: skip


def summary(runs: Sequence[str], out: Path) -> str:
    """A sentence on the written runs that states that they are synthetic."""
    return f"wrote {len(runs)} synthetic runs, generated by the laws of the collectives, not measured, to {out}"
