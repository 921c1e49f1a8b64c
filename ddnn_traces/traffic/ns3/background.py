"""Background flows: Poisson arrivals at each host, sizes drawn from a distribution (Gao 2020, section 5.4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ddnn_traces.errors import UsageError
from ddnn_traces.text_files import MOST_TABLE, read_text
from ddnn_traces.traffic.traffic import Floats, Ints

_MOST_FLOWS = 1_000_000
#: Limits of small and large flows, bytes (Gao 2020, section 5.4.5).
SMALL, LARGE = 100_000, 10_000_000


@dataclass(frozen=True)
class Sizes:
    """A cumulative distribution of flow sizes: bytes, and the share of the flows that have at most so many.

    Between two points it is linear. Raises UsageError unless both rise, from a share of 0 to 1.
    """

    name: str
    bytes: tuple[float, ...]
    share: tuple[float, ...]

    def __post_init__(self) -> None:
        points = len(self.bytes) == len(self.share) >= 2 and np.isfinite([*self.bytes, *self.share]).all()
        rises = points and (np.diff(self.bytes) > 0).all() and (np.diff(self.share) >= 0).all()
        if not rises or self.bytes[0] < 0 or self.share[0] != 0 or self.share[-1] != 1:
            raise UsageError(
                f"{self.name}: is no distribution of flow sizes; give lines of bytes and cumulative share, both "
                "rising, the share from 0 to 1"
            )

    @cached_property
    def mean(self) -> float:
        """Mean size, bytes."""
        middle = (np.array(self.bytes[1:]) + self.bytes[:-1]) / 2
        return float((np.diff(self.share) * middle).sum())

    def drawn(self, rng: np.random.Generator, number: int) -> Ints:
        """So many sizes, at least a byte each."""
        sizes = np.interp(rng.random(number), self.share, self.bytes)
        return np.maximum(np.rint(sizes), 1).astype(np.int64)


#: Flows of a web search (DCTCP, pFabric), as the thesis interprets them: 1.71 MB in the mean.
WEB_SEARCH = Sizes(
    "web search",
    (4e3, 10e3, 20e3, 30e3, 50e3, 80e3, 200e3, 1e6, 2e6, 5e6, 10e6, 30e6),
    (0, 0.15, 0.2, 0.3, 0.4, 0.53, 0.6, 0.7, 0.8, 0.9, 0.97, 1),
)


def read_sizes(path: Path) -> Sizes:
    """The distribution of a file: a line a point, bytes and cumulative share, separated by a comma or spaces.

    Lines that begin with # are comments. Raises UsageError.
    """
    lines = [line for line in read_text(path, MOST_TABLE, UsageError).splitlines() if line.strip()]
    rows = [line.replace(",", " ").split() for line in lines if not line.startswith("#")]
    try:
        points = [(float(size), float(share)) for size, share in rows]
    except ValueError as error:
        raise UsageError(f"{path}: has a line that is not two numbers, bytes and cumulative share") from error
    return Sizes(str(path), tuple(size for size, _ in points), tuple(share for _, share in points))


@dataclass(frozen=True)
class Flows:
    """Background flows in the order of their start, as parallel arrays: ns, sending and receiving host, bytes."""

    start_ns: Ints
    src: Ints
    dst: Ints
    bytes: Ints

    def __len__(self) -> int:
        return len(self.start_ns)


def arrivals(hosts: int, per_host_s: float, seconds: float, sizes: Sizes, seed: int) -> Flows:
    """Flows that begin within `seconds`: at each host a Poisson process of rate per_host_s, to any other host alike.

    The same for the same arguments. Raises UsageError for more than a million.
    """
    if hosts * per_host_s * seconds > _MOST_FLOWS:
        raise UsageError(f"flows_per_s = {per_host_s:g}: more than {_MOST_FLOWS:,} background flows; give less")
    parts = [_of_host(host, hosts, per_host_s, seconds, sizes, seed) for host in range(hosts)]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return Flows(*(column[order] for column in columns))


def _of_host(
    host: int, hosts: int, per_host_s: float, seconds: float, sizes: Sizes, seed: int
) -> tuple[Ints, Ints, Ints, Ints]:
    rng = np.random.default_rng([seed, host])
    begins = _poisson(rng, per_host_s, seconds)
    others = (host + rng.integers(1, hosts, len(begins))) % hosts
    start = np.rint(begins * 1e9).astype(np.int64)
    return start, np.full(len(begins), host, np.int64), others, sizes.drawn(rng, len(begins))


def _poisson(rng: np.random.Generator, rate: float, seconds: float) -> Floats:
    """Times of a Poisson process, s: their number is Poisson, and they are uniform."""
    return np.sort(rng.random(rng.poisson(rate * seconds)) * seconds)
