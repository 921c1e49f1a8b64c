"""Cuts of captures: their records, read in plain Python, and how tests make one."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import naive.captures

from ddnn_traces.export import packets as cutting
from ddnn_traces.export.packets import Cut, Selection
from ddnn_traces.query.dataset import Dataset

OPENERS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": lambda data: zlib.decompressobj(wbits=31).decompress(data),  # also of a file cut short
    b"\xfd7": lzma.decompress,
}


def records_of(path: Path) -> list[naive.captures.Record]:
    data = path.read_bytes()
    return naive.captures.records(OPENERS.get(data[:2], bytes)(data))[0]


def cut(dataset: Dataset, out: Path, **selection: Any) -> Cut:
    return cutting.write(dataset, out, Selection(**selection))
