"""Patterns of today's training: what each worker computes and which collectives of which groups it takes part in.

A step is a list of computations and collectives in the order in which every worker comes to those that it takes part
in. A worker waits for no other than those of its groups. task_graph.py makes transfers of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from math import gcd
from operator import attrgetter
from typing import Any, Protocol, Self

import numpy as np

from ddnn_traces.errors import UsageError
from ddnn_traces.text import nearest
from ddnn_traces.traffic.simulator import chakra_trace
from ddnn_traces.traffic.simulator.chakra_trace import Trace
from ddnn_traces.traffic.simulator.layers import Buffer, LayerProfile
from ddnn_traces.traffic.traffic import Ints

MOST_CHANNELS = 16


@dataclass(frozen=True)
class Compute:
    """Computation of every worker. kind: forward, backward or update. ns: before the factors of workers and steps."""

    kind: str
    ns: float


@dataclass(frozen=True)
class Call:
    """A collective of each group at once. kind: as in the table events. groups: workers, groups by members.

    bytes: of the tensor, as nccl-tests counts it. algorithm: ring, direct, chain or double_tree. channels: rings in
    different orders, each with its part of the tensor. chunks: that follow each other through a chain or tree.
    """

    kind: str
    name: str
    bytes: int
    groups: Ints
    algorithm: str = "ring"
    channels: int = 1
    chunks: int = 1


@dataclass(frozen=True)
class Stages:
    """Micro-batches through a pipeline with a stage a worker. forward_ns, backward_ns: of a micro-batch and stage."""

    micro_batches: int
    bytes: int
    forward_ns: float
    backward_ns: float


@dataclass(frozen=True)
class Grid:
    """Micro-batches through stages of as many workers each. stages: workers, stages by places; stages of the pipeline
    send to the same place of the next one. groups: places of a stage by tensor groups, which reduce `bytes` behind each
    micro-batch of a pass. Others: as of Stages."""

    stages: Ints
    groups: Ints
    micro_batches: int
    bytes: int
    forward_ns: float
    backward_ns: float


@dataclass(frozen=True)
class Replay:
    """All of a recorded trace, its all-reduces, all-gathers and reduce-scatters on so many rings."""

    trace: Trace
    channels: int


Part = Compute | Call | Stages | Grid | Replay


class Training(Protocol):
    """What a pattern needs to know of its job, which SimulatedRun describes."""

    @property
    def workers(self) -> int: ...
    @property
    def model_bytes(self) -> int: ...
    @property
    def update_ms(self) -> float: ...
    @property
    def profile(self) -> LayerProfile: ...
    @property
    def buffers(self) -> list[Buffer]: ...


@dataclass(frozen=True)
class Pattern:
    """A pattern by its name, one of PATTERNS. Other fields: those of its keys; docs/simulator.md explains them."""

    name: str
    group_size: int = 4
    blocks: int = 2
    stages: int = 2
    micro_batches: int = 4
    activation_bytes: int = 1_000_000
    channels: int = 1
    chunks: int = 16
    trace: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The pattern of a table [pattern]. Raises UsageError that names the key."""
        name = values.get("name")
        if name not in PATTERNS:
            raise UsageError(f"pattern.name = {name!r}; it must be one of {', '.join(PATTERNS)}")
        known = [field.name for field in fields(cls)]
        for key, value in values.items():
            if key not in known:
                raise UsageError(f"pattern.{key}: no such key; {nearest(key, known)}")
            if key != "name" and key not in PATTERNS[name][1]:
                raise UsageError(f"pattern.{key}: has no effect in the pattern {name}; leave it out")
            if key == "trace" and not isinstance(value, str):
                raise UsageError(f"pattern.trace = {value!r}; it must be the path of Chakra traces")
            if key not in ("name", "trace") and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise UsageError(f"pattern.{key} = {value!r}; it must be a whole number, 1 or more")
        found = cls(**values)
        if name == "chakra" and not found.trace:
            raise UsageError("pattern.trace: is missing; it is the path of Chakra traces, NAME.RANK.et")
        if found.channels > MOST_CHANNELS:
            raise UsageError(f"pattern.channels = {found.channels}; it must be 1 to {MOST_CHANNELS}")
        return found

    def check(self, workers: int) -> None:
        """Raise UsageError for so many workers if the pattern cannot be theirs."""
        if "group_size" in PATTERNS[self.name][1] and (self.group_size < 2 or workers % self.group_size):
            raise UsageError(f"pattern.group_size = {self.group_size}; it must divide workers = {workers}, above 1")
        if self.name == "three_d" and (self.stages < 2 or workers % (self.group_size * self.stages)):
            raise UsageError(
                f"pattern.stages = {self.stages}; 2 or more must divide workers = {workers}, with group_size = "
                f"{self.group_size} each"
            )
        if self.name == "chakra" and self.ranks != workers:
            raise UsageError(f"workers = {workers}; the trace {self.trace} has {self.ranks} ranks")
        if workers < 3 and self.name == "double_tree":
            raise UsageError(f"pattern.name = 'double_tree': has 3 workers or more, not workers = {workers}")
        if self.channels > len(strides(workers)):
            raise UsageError(
                f"pattern.channels = {self.channels}; {workers} workers have {len(strides(workers))} rings of "
                "different orders"
            )

    @property
    def ranks(self) -> int:
        """Ranks of the trace of a Chakra pattern. Raises UsageError for one that cannot be read."""
        return chakra_trace.read(self.trace).ranks

    def step(self, run: Training) -> list[Part]:
        """The parts of a step, in order."""
        update = [Compute("update", run.update_ms * 1e6)] if run.update_ms else []
        return [*PATTERNS[self.name][0](self, run), *update]


FAULTS = {"slow_host": "ms of computation more in each step", "slow_link": "Mbit/s of the host's link, either way"}


@dataclass(frozen=True)
class Fault:
    """What slows a run with a pattern, as the columns fault_* of runs state it. host: label; strength: as in FAULTS;
    from_step, to_step: the first and last step with it, of slow_host only; None: of all."""

    kind: str
    host: str
    strength: float
    from_step: int | None = None
    to_step: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The fault of a table [fault]. Raises UsageError that names the key."""
        known = [field.name for field in fields(cls)]
        for key in values:
            if key not in known:
                raise UsageError(f"fault.{key}: no such key; {nearest(key, known)}")
        kind, strength = values.get("kind"), values.get("strength")
        if kind not in FAULTS:
            raise UsageError(f"fault.kind = {kind!r}; it must be one of {', '.join(FAULTS)}")
        if isinstance(strength, bool) or not isinstance(strength, int | float) or not 0 < strength < 1e9:
            raise UsageError(f"fault.strength = {strength!r}; it must be a number above 0: {FAULTS[kind]}")
        for key in ("from_step", "to_step"):
            step = values.get(key)
            if step is not None and (kind == "slow_link" or not isinstance(step, int) or step < 0):
                raise UsageError(f"fault.{key} = {step!r}; it must be 0 or more, and is of slow_host only")
        return cls(kind, str(values.get("host")), float(strength), values.get("from_step"), values.get("to_step"))

    def place(self, labels: list[str]) -> int:
        """Number of the worker. Raises UsageError for a label that none has."""
        if self.host not in labels:
            raise UsageError(f"fault.host = {self.host!r}; it must be one of {labels[0]} to {labels[-1]}")
        return labels.index(self.host)

    def steps(self, number: int) -> range:
        """The steps that have it, of so many."""
        last = number - 1 if self.to_step is None else self.to_step
        return range(self.from_step or 0, min(last + 1, number))


def strides(workers: int) -> list[int]:
    """Steps from a host to the next that lead around all of them, the first rings of different orders."""
    return [stride for stride in range(1, workers) if gcd(stride, workers) == 1]


def _everybody(run: Training) -> Ints:
    return np.arange(run.workers, dtype=np.int64)[None]


def _neighbours(run: Training, size: int) -> Ints:
    return np.arange(run.workers, dtype=np.int64).reshape(-1, size)


def _fsdp(pattern: Pattern, run: Training) -> Iterator[Part]:
    """Fully sharded data parallel (Zhao et al. 2023): a layer's parameters are gathered before either pass, its
    gradients scattered behind the backward pass. The buffers of the job are the layers, or parts of one."""
    profile, workers = run.profile, _everybody(run)
    loading = float(profile.forward_ns[: run.buffers[0].first].sum())  # or layers without gradients
    if loading:
        yield Compute("forward", loading)

    def exchanged(kind: str, shards: Iterable[Buffer]) -> Iterator[Part]:
        return (Call(kind, "workers", shard.bytes, workers, channels=pattern.channels) for shard in shards)

    layers = [list(parts) for _, parts in itertools.groupby(run.buffers, attrgetter("first"))]
    for parts in layers:
        yield from exchanged("allgather", parts)
        yield Compute("forward", float(profile.forward_ns[parts[0].first : parts[-1].last + 1].sum()))
    for parts in reversed(layers):
        yield from exchanged("allgather", parts)
        yield Compute("backward", float(profile.backward_ns[parts[0].first : parts[-1].last + 1].sum()))
        yield from exchanged("reduce_scatter", parts)


def _pipeline(pattern: Pattern, run: Training) -> Iterator[Part]:
    """One forward, one backward (Narayanan et al. 2019, PipeDream-flush)."""
    forward, backward = (float(ns.sum()) / pattern.micro_batches for ns in _passes(run))
    yield Stages(pattern.micro_batches, pattern.activation_bytes, forward, backward)


def _tensor_data(pattern: Pattern, run: Training) -> Iterator[Part]:
    """Tensor parallel among neighbours (Shoeybi et al. 2019), data parallel between these groups: an all-reduce of
    activations a block and pass, then one of the gradients of each part."""
    tensor = _neighbours(run, pattern.group_size)
    for kind, ns in zip(("forward", "backward"), _passes(run), strict=True):
        for _ in range(pattern.blocks):
            yield Compute(kind, float(ns.sum()) / pattern.blocks)
            yield Call("allreduce", "tensor", pattern.activation_bytes, tensor)
    if run.workers > pattern.group_size:
        yield Call("allreduce", "data", run.model_bytes // pattern.group_size, tensor.T)


def _three_d(pattern: Pattern, run: Training) -> Iterator[Part]:
    """Pipeline, tensor and data parallel (Narayanan et al. 2021, Megatron-LM): neighbours are a tensor group, then come
    the replicas, then the stages. The gradients of a stage are reduced between replicas at the end."""
    stages = np.arange(run.workers, dtype=np.int64).reshape(pattern.stages, -1)
    groups = np.arange(stages.shape[1], dtype=np.int64).reshape(-1, pattern.group_size)
    forward, backward = (float(ns.sum()) / pattern.micro_batches for ns in _passes(run))
    yield Grid(stages, groups, pattern.micro_batches, pattern.activation_bytes, forward, backward)
    if len(groups) > 1:
        replicas = stages[:, groups.T].reshape(-1, len(groups))
        yield Call("allreduce", "data", run.model_bytes // (pattern.stages * pattern.group_size), replicas)


def _moe(pattern: Pattern, run: Training) -> Iterator[Part]:
    """Mixture of experts (Lepikhin et al. 2020): rows go to the experts of the group and come back, in both passes,
    each expert gets the same number; then an all-reduce of what all workers have."""
    experts = _neighbours(run, pattern.group_size)
    for kind, ns in zip(("forward", "backward"), _passes(run), strict=True):
        part = Compute(kind, float(ns.sum()) / (3 * pattern.blocks))
        rows = Call("alltoall", "experts", pattern.activation_bytes, experts, "direct")
        for _ in range(pattern.blocks):
            yield from (part, rows, part, rows, part)
    yield Call("allreduce", "workers", run.model_bytes, _everybody(run))


def _rings(pattern: Pattern, run: Training) -> Iterator[Part]:
    """Data parallel: an all-reduce on so many rings of different orders at once."""
    yield from _computed(run)
    yield Call("allreduce", "workers", run.model_bytes, _everybody(run), channels=pattern.channels)


def _double_tree(pattern: Pattern, run: Training) -> Iterator[Part]:
    """Data parallel: an all-reduce on two complementary trees (NCCL, ncclGetDtree; Sanders et al. 2009)."""
    yield from _computed(run)
    yield Call("allreduce", "workers", run.model_bytes, _everybody(run), "double_tree", chunks=pattern.chunks)


def _chakra(pattern: Pattern, _run: Training) -> Iterator[Part]:
    """A trace with its own times of computation, whatever the profile."""
    yield Replay(chakra_trace.read(pattern.trace), pattern.channels)


def _computed(run: Training) -> Iterator[Part]:
    for kind, ns in zip(("forward", "backward"), _passes(run), strict=True):
        yield Compute(kind, float(ns.sum()))


def _passes(run: Training) -> tuple[Any, Any]:
    return run.profile.forward_ns, run.profile.backward_ns


#: Patterns by their names, with the keys that each has.
PATTERNS: dict[str, tuple[Callable[[Pattern, Training], Iterator[Part]], tuple[str, ...]]] = {
    "fsdp": (_fsdp, ("channels",)),
    "pipeline": (_pipeline, ("micro_batches", "activation_bytes")),
    "tensor_data": (_tensor_data, ("group_size", "blocks", "activation_bytes")),
    "three_d": (_three_d, ("group_size", "stages", "micro_batches", "activation_bytes")),
    "moe": (_moe, ("group_size", "blocks", "activation_bytes")),
    "rings": (_rings, ("channels",)),
    "double_tree": (_double_tree, ("chunks",)),
    "chakra": (_chakra, ("trace", "channels")),
}
