"""Collectives that are inferred from captures whose clocks differ, against those of the same captures as they are.

python benchmarks/moved_clocks.py MILLISECONDS RUN...

RUN: folder of a run with a capture (pcap, little endian, .gz or .xz) a host. Each host's clock is moved by a random
time of up to MILLISECONDS each way. A collective is wrong where the unmoved captures have none of its kind, algorithm,
hosts and kilobytes.
"""

from __future__ import annotations

import gzip
import lzma
import random
import shutil
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import ddnn_traces

OPEN: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
SURE = 0.8


def moved(capture: Path, ns: int) -> bytes:
    """The capture by a clock that is ahead."""
    with OPEN[capture.suffix](capture) as file:
        content = bytearray(file.read())
    unit, at = (1 if content[:4] == b"\x4d\x3c\xb2\xa1" else 1000), 24
    while at + 16 <= len(content):
        seconds, fraction, captured = struct.unpack_from("<3I", content, at)
        time = seconds * 10**9 + fraction * unit + ns
        struct.pack_into("<2I", content, at, time // 10**9, time % 10**9 // unit)
        at += 16 + captured
    return bytes(content)


def copies(run: Path, to: Path, most_ms: float) -> None:
    """The run's captures and metadata, each capture by a clock of its own."""
    drawn = random.Random(f"{run.name}1")
    to.mkdir()
    for path in sorted(run.iterdir()):
        if path.suffix in OPEN:
            (to / path.stem).write_bytes(moved(path, int(drawn.uniform(-most_ms, most_ms) * 1e6)))
        elif path.suffix == ".toml":
            shutil.copy(path, to)


def collectives(run: Path, out: Path) -> tuple[Counter[tuple[object, ...]], Counter[tuple[object, ...]]]:
    """All of a run, and those with a confidence above SURE."""
    found, sure = Counter[tuple[object, ...]](), Counter[tuple[object, ...]]()
    with ddnn_traces.ingest(run, out) as dataset:
        rows = dataset.query("collectives").select("kind", "algorithm", "hosts", "tensor_bytes", "confidence").rows()
    for kind, algorithm, hosts, tensor_bytes, confidence in rows:
        one = kind, algorithm, tuple(sorted(hosts.split(","))), round(tensor_bytes, -3)
        found[one] += 1
        sure[one] += confidence > SURE
    return found, sure


def main() -> None:
    most_ms, runs = float(sys.argv[1]), [Path(run) for run in sys.argv[2:]]
    totals = [0, 0, 0]
    print("run: collectives unmoved; moved: wrong, wrong with a confidence above 0.8")
    for run in runs:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            copies(run, folder / run.name, most_ms)
            (expected, _), (found, sure) = collectives(run, folder / "a"), collectives(folder / run.name, folder / "b")
        wrong = found - expected
        counts = [expected.total(), wrong.total(), sum(min(wrong[one], sure[one]) for one in wrong)]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        print(f"{run.name}: {', '.join(map(str, counts))}")
    print(f"all: {', '.join(map(str, totals))}")


if __name__ == "__main__":
    main()
