"""How many collectives the inference finds, and how long it takes, by the number of hosts.

python benchmarks/collectives_scale.py 16,64

Messages of made patterns, eight steps each, with no packets behind them: rounds of rings each 0.5 ms, jitter up to
0.3 ms, 60 to 70 ms between steps.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ddnn_traces.collectives import tables

MS = 1_000_000
STEPS = 8
CHANNELS = (1, 3, 7, 9)  # strides of the orders of rings at once
MICRO_BATCHES, TENSOR, EXPERTS = 4, 4, 8

Truth = Counter[tuple[str, frozenset[str]]]


class Wire:
    """What hosts write. clock: ns. truth: collectives of the step that is being written, by kind and hosts."""

    def __init__(self) -> None:
        self.flows: dict[tuple[int, int, int], list[tuple[int, int, int]]] = defaultdict(list)
        self.dice, self.clock, self.truth = np.random.default_rng(1), 0, Truth()

    def send(self, src: int, dst: int, size: int, after_ms: float, channel: int = 0) -> None:
        first = self.clock + int((after_ms + self.dice.uniform(0, 0.05)) * MS)
        self.flows[src, dst, channel].append((first, first + int(0.3 * MS), size))

    def ring(self, kind: str, order: Sequence[int], size: int, channel: int = 0) -> float:
        """The collective on a ring; its time, ms."""
        rounds = (len(order) - 1) * (2 if kind == "all_reduce" else 1)
        for number in range(rounds):
            for place, host in enumerate(order):
                self.send(host, order[(place + 1) % len(order)], size // len(order), 0.5 * number, channel)
        self.note(kind, order)
        return 0.5 * rounds

    def note(self, kind: str, hosts: Sequence[int]) -> None:
        self.truth[kind, frozenset(map(address, hosts))] += 1

    def wait(self, ms: float) -> None:
        self.clock += int(ms * MS)

    def messages(self) -> pa.Table:
        rows = []
        for flow_id, ((src, dst, _), written) in enumerate(self.flows.items()):
            offset = 0
            for first, last, size in sorted(written):
                rows.append((flow_id, address(src), address(dst), first, last, offset, size, True))
                offset += size
        columns = dict(zip(tables.MESSAGES.names, zip(*rows, strict=True), strict=True))
        return pa.table({name: list(column) for name, column in columns.items()}, schema=tables.MESSAGES)


def address(host: int) -> str:
    return f"10.0.{host // 256}.{host % 256}"


def ring(wire: Wire, size: int) -> None:
    wire.wait(wire.ring("all_reduce", range(size), 1_000_000))


def rings(wire: Wire, size: int) -> None:
    orders = [[place * stride % size for place in range(size)] for stride in CHANNELS]
    wire.wait(max(wire.ring("all_reduce", order, 1_000_000, channel) for channel, order in enumerate(orders)))


def fsdp(wire: Wire, size: int) -> None:
    shards = [25_000 * size, 56_000 * size, 37_000 * size]
    forward = [("all_gather", shard) for shard in shards]
    backward = [(kind, shard) for shard in reversed(shards) for kind in ("all_gather", "reduce_scatter")]
    for kind, shard in (*forward, *backward):
        wire.wait(wire.ring(kind, range(size), shard) + 2)


def pipeline(wire: Wire, size: int) -> None:
    for links in ([(i, i + 1) for i in range(size - 1)], [(i, i - 1) for i in range(size - 1, 0, -1)]):
        for batch in range(MICRO_BATCHES):
            for place, (src, dst) in enumerate(links):
                wire.send(src, dst, 100_000, 3 * (batch + place))
                wire.note("send", (src, dst))
        wire.wait(3 * (MICRO_BATCHES + size) + 5)


def tensor_data(wire: Wire, size: int) -> None:
    for _ in range(4):
        for first in range(0, size, TENSOR):
            wire.ring("all_reduce", range(first, first + TENSOR), 200_000)
        wire.wait(10)
    wire.wait(max(wire.ring("all_reduce", range(rank, size, TENSOR), 2_000_000) for rank in range(TENSOR)))


def moe(wire: Wire, size: int) -> None:
    for _ in range(2):
        for first in range(0, size, EXPERTS):
            group = range(first, first + EXPERTS)
            for src, dst in ((a, b) for a in group for b in group if a != b):
                wire.send(src, dst, 50_000, wire.dice.uniform(0, 0.3))
            wire.note("all_to_all", group)
        wire.wait(15)
    wire.wait(wire.ring("all_reduce", range(size), 3_000_000))


def main() -> None:
    print("pattern, hosts: messages; collectives of a step, found, printed; CPU time of the inference, s")
    for size in map(int, sys.argv[1].split(",")):
        for pattern in (ring, rings, fsdp, pipeline, tensor_data, moe):
            wire = Wire()
            for _ in range(STEPS):
                wire.truth = Truth()
                pattern(wire, size)
                wire.wait(wire.dice.uniform(60, 70))
            messages, begin = wire.messages(), time.process_time()
            jobs = tables.jobs_of("made", messages).to_pylist()
            seconds = time.process_time() - begin
            found = Truth(
                (one["kind"], frozenset(one["hosts"])) for job in jobs for one in job["collectives"] or []
            )  # fmt: skip
            numbers = (found & wire.truth).total(), found.total()
            print(
                f"{pattern.__name__}, {size}: {messages.num_rows}; {wire.truth.total()}, {numbers[0]}, {numbers[1]}; "
                f"{seconds:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
