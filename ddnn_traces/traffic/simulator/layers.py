"""Layer profiles: computation and gradient of each layer of a model, and how layers are fused for the exchange.

Gao 2020, "Designing network-friendlier DDNN training" (the thesis), chapters 3 and 4.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text_files import MOST_TABLE, read_bytes, read_text
from ddnn_traces.traffic.traffic import Floats, Ints

COLUMNS = ("layer", "forward_ms", "backward_ms", "gradient_bytes")
#: Profiles of the papers' models, which the testbed also trains by: data, no code.
SHIPPED = Path(__file__).parents[2] / "testbed" / "programs" / "profiles"
#: Name of a first layer without gradients that stands for loading the inputs.
LOADING = "loading"
_MOST_LAYERS = 100_000
_MOST = 1e15
_NAMES = ", ".join(COLUMNS)


@dataclass(frozen=True)
class LayerProfile:
    """A model's layers in the order of the forward pass.

    names, forward_ns, backward_ns (ns of one worker's batch), gradient_bytes: one a layer. The first may be LOADING:
    its forward time is what the pass waits for its inputs. Raises UsageError for no layers, negative or endless times,
    and a model without computation or without gradients.
    """

    name: str
    names: tuple[str, ...]
    forward_ns: Floats
    backward_ns: Floats
    gradient_bytes: Ints = field(repr=False)

    def __post_init__(self) -> None:
        for what, values in (("forward_ms", self.forward_ns), ("backward_ms", self.backward_ns)):
            if not np.isfinite(values).all() or (values < 0).any() or not values.sum() > 0:
                raise UsageError(f"{self.name}: {what} must be 0 or more in each layer, and above 0 in all of them")
        if (self.gradient_bytes < 0).any() or not self.gradient_bytes.sum() > 0:
            raise UsageError(f"{self.name}: gradient_bytes must be 0 or more in each layer, and above 0 in all of them")

    @property
    def layers(self) -> int:
        return len(self.names)

    @property
    def model_bytes(self) -> int:
        """Bytes of all gradients."""
        return int(self.gradient_bytes.sum())

    @property
    def compute_ns(self) -> float:
        """Time of a forward and a backward pass, with the loading before them, ns."""
        return float(self.forward_ns.sum() + self.backward_ns.sum())

    @property
    def has_loading(self) -> bool:
        """Whether the first layer is the loading of the inputs."""
        return self.names[0] == LOADING and self.gradient_bytes[0] == 0

    def with_loading(self, loading_ms: float) -> LayerProfile:
        """The same profile with so many ms of loading before the forward pass, and none where they are 0."""
        own = slice(1 if self.has_loading else 0, None)
        names, sizes = self.names[own], self.gradient_bytes[own]
        forward, backward = self.forward_ns[own], self.backward_ns[own]
        if loading_ms:
            names, sizes = (LOADING, *names), np.insert(sizes, 0, 0)
            forward, backward = np.insert(forward, 0, loading_ms * 1e6), np.insert(backward, 0, 0.0)
        return LayerProfile(self.name, names, forward, backward, sizes)

    def resized(self, model_bytes: int | None = None, compute_ms: float | None = None) -> LayerProfile:
        """The same profile with other sums: bytes of all gradients, ms of a forward and a backward pass. Loading takes
        as long as before."""
        sizes, forward, backward = self.gradient_bytes, self.forward_ns, self.backward_ns
        if model_bytes is not None:
            ends = np.rint(np.cumsum(sizes) * (model_bytes / self.model_bytes)).astype(np.int64)
            sizes = np.diff(ends, prepend=0)
        if compute_ms is not None:
            loading = forward[0] if self.has_loading else 0.0
            factor = compute_ms * 1e6 / (self.compute_ns - loading)
            forward, backward = forward * factor, backward * factor
            if self.has_loading:
                forward[0] = loading
        return LayerProfile(self.name, self.names, forward, backward, sizes)


def thesis(layers: int = 100, model_bytes: int = 100_000_000, compute_ms: float = 900.0) -> LayerProfile:
    """The thesis's default model (section 4.4, table 4.1).

    Times are arithmetic progressions, forward falling from the first layer on (n, n-1, ..., 1) and backward rising
    (1, ..., n), 1:2 in all. Sizes are heavy-tailed: with x = 2S/(9n), layers up to the half have x bytes, up to three
    quarters (inclusive) 4x, the rest 12x. Since three quarters are inclusive, the sum is about 98% of S;
    LayerProfile.resized makes it S. Raises UsageError.
    """
    if layers < 4 or layers > _MOST_LAYERS:
        raise UsageError(f"layers = {layers}: give 4 to {_MOST_LAYERS:,}")
    if model_bytes < 1 or not compute_ms > 0 or not math.isfinite(compute_ms):
        raise UsageError("model_bytes and compute_ms must be above 0")
    number = np.arange(layers)
    rising = (number + 1) / (layers * (layers + 1) / 2) * compute_ms * 1e6
    multiples = np.where(number < layers / 2, 1, np.where(number <= 0.75 * layers, 4, 12))
    sizes = np.rint(multiples * (2 * model_bytes / (9 * layers))).astype(np.int64)
    names = tuple(f"layer-{i}" for i in range(layers))
    return LayerProfile("thesis", names, rising[::-1] / 3, rising * 2 / 3, sizes)


def write(profile: LayerProfile, path: Path) -> None:
    """Write a profile as Parquet: layer (number from the input on, -1: loading), name, and the times and bytes of
    COLUMNS."""
    frame = pl.DataFrame(
        {
            "layer": np.arange(profile.layers) - int(profile.has_loading), "name": profile.names,
            "forward_ms": profile.forward_ns / 1e6, "backward_ms": profile.backward_ns / 1e6,
            "gradient_bytes": profile.gradient_bytes,
        }
    )  # fmt: skip
    with whole_file(path) as half_written:
        frame.write_parquet(half_written)


def read(name: str | Path) -> LayerProfile:
    """A profile of COLUMNS: a shipped one by its name, a CSV file (lines that begin with # are comments) or Parquet.

    Raises UsageError for no such file, missing columns and values that are no numbers.
    """
    path = SHIPPED / f"{name}.csv"
    path = path if "/" not in str(name) and path.is_file() else Path(name)
    if not path.is_file():
        shipped = ", ".join(sorted(p.stem for p in SHIPPED.glob("*.csv")))
        raise UsageError(f"{name}: no such file, and no shipped profile; there are thesis, {shipped}")
    return _profile(path, _frame(path))


def read_columns(sizes: Path, forward: Path, backward: Path) -> LayerProfile:
    """A profile of three files as the thesis has them (table 5.1): bytes, forward ms and backward ms, a layer a line.

    The last field of a line counts. Raises UsageError where they have different numbers of lines.
    """
    columns = [_numbers(path) for path in (forward, backward, sizes)]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise UsageError(f"{forward}, {backward} and {sizes} have {lengths} lines; there must be one a layer in each")
    frame = pl.DataFrame(dict(zip(COLUMNS[1:], columns, strict=True)))
    return _profile(sizes, frame.with_columns(layer=pl.format("layer-{}", pl.int_range(pl.len()))))


def _frame(path: Path) -> pl.DataFrame:
    content = io.BytesIO(read_bytes(path, MOST_TABLE, UsageError))
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(content)
        return pl.read_csv(content, comment_prefix="#", infer_schema=False)
    except pl.exceptions.PolarsError as error:
        kind = "Parquet file" if path.suffix == ".parquet" else "CSV"
        raise UsageError(
            f"{path}: is no {kind} ({str(error).splitlines()[0]}); its columns must be {_NAMES}"
        ) from error


def _numbers(path: Path) -> pl.Series:
    """The last field of each line; a first line that holds no number is a head."""
    lines = [line for line in read_text(path, MOST_TABLE, UsageError).splitlines() if line.strip()]
    fields = pl.Series([line.split(",")[-1].strip() for line in lines], dtype=pl.String)
    return fields[1:] if len(fields) and fields.cast(pl.Float64, strict=False)[0] is None else fields


def _profile(path: Path, rows: pl.DataFrame) -> LayerProfile:
    if missing := [name for name in COLUMNS if name not in rows.columns]:
        raise UsageError(f"{path}: has no column {', '.join(missing)}; its columns must be {_NAMES}")
    if not 1 <= len(rows) <= _MOST_LAYERS:
        raise UsageError(f"{path}: has {len(rows):,} layers; there must be 1 to {_MOST_LAYERS:,}")
    forward, backward, sizes = (_column(path, rows[name]) for name in COLUMNS[1:])
    if (sizes != np.rint(sizes)).any():
        raise UsageError(f"{path}: gradient_bytes must be whole numbers")
    names = tuple(rows["layer"].cast(pl.String).fill_null("").to_list())
    return LayerProfile(path.stem, names, forward * 1e6, backward * 1e6, sizes.astype(np.int64))


def _column(path: Path, values: pl.Series) -> Floats:
    """The numbers of a column. Raises UsageError for the first that is none, or is below 0."""
    numbers = values.cast(pl.Float64, strict=False)
    valid = numbers.is_between(0, _MOST).fill_null(False)
    if not valid.all():
        row = int(valid.arg_min() or 0)
        raise UsageError(f"{path}: layer {row + 1} has {values.name} {values[row]!r}; give a number, 0 or more")
    return numbers.to_numpy().astype(float)


@dataclass(frozen=True)
class Buffer:
    """What one exchange carries: gradients of the layers first to last, or a part of one layer's.

    Ready when the backward pass has reached its first layer, which is also its priority: a lower one is needed earlier.
    """

    first: int
    last: int
    bytes: int


def fuse(profile: LayerProfile, fusion_bytes: int, start: str = "first", split: bool = False) -> list[Buffer]:
    """The profile's layers in buffers of at most `fusion_bytes`, in the order of layers (Horovod's tensor fusion).

    start: the end that fusing begins from, first or last layer. split: whether a larger tensor is split.
    Raises UsageError for a larger tensor that is not split, as the thesis does (section 5.1).
    """
    if fusion_bytes < 1:
        raise UsageError(f"fusion_bytes = {fusion_bytes}: give 1 or more")
    largest = int(profile.gradient_bytes.max())
    if largest > fusion_bytes and not split:
        raise UsageError(
            f"fusion_bytes = {fusion_bytes:,}: the largest tensor of {profile.name} has {largest:,} bytes; give "
            f"fusion_bytes = {largest} or more, or split_tensors = true (--set split_tensors=true)"
        )
    layers = [(i, int(size)) for i, size in enumerate(profile.gradient_bytes) if size]
    buffers: list[Buffer] = []
    open_: list[tuple[int, int]] = []
    for layer, size in layers if start == "first" else reversed(layers):
        if open_ and sum(held for _, held in open_) + size > fusion_bytes:
            buffers += _closed(open_, fusion_bytes)
            open_ = []
        open_.append((layer, size))
    return sorted(buffers + _closed(open_, fusion_bytes), key=lambda buffer: buffer.first)


def _closed(layers: Iterable[tuple[int, int]], fusion_bytes: int) -> list[Buffer]:
    """The buffer of these layers; several where a single one is larger than a buffer."""
    numbers, sizes = zip(*layers, strict=True)
    total = sum(sizes)
    return [Buffer(min(numbers), max(numbers), part) for part in parts(total, fusion_bytes)]


def parts(size: int, most: int) -> list[int]:
    """A size in parts of at most `most` bytes that differ by at most one."""
    number = -(-size // most)
    return [size * (i + 1) // number - size * i // number for i in range(number)]
