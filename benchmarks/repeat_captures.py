"""Real captures one after the other, again and again with later times, up to a size: a large file of real traffic.

    python benchmarks/repeat_captures.py OUT.pcap --bytes 5e9 FOLDER...

Taken are pcap files, plain or gzip, of little endian, microseconds and Ethernet.
"""

from __future__ import annotations

import argparse
import gzip
import struct
from pathlib import Path

import numpy as np

HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1)


def records(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """The bytes of a capture after its header, and the offsets of its records; None for another format."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if data[:4] != HEADER[:4] or data[20:22] != HEADER[20:22]:
        return None
    begins, at = [], 24
    while at + 16 <= len(data):
        begins.append(at - 24)
        at += 16 + int.from_bytes(data[at + 8 : at + 12], "little")
    return np.frombuffer(data[24:at], np.uint8).copy(), np.array(begins)


def shift(data: np.ndarray, begins: np.ndarray, seconds: int) -> None:
    """Add to the times of all records."""
    places = begins[:, None] + np.arange(4)
    times = np.ascontiguousarray(data[places]).view("<u4")[:, 0] + np.uint32(seconds % 2**32)
    data[places] = times.astype("<u4")[:, None].view(np.uint8)


def seconds_of(data: np.ndarray, begin: int) -> int:
    return int.from_bytes(data[begin : begin + 4].tobytes(), "little")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--bytes", type=float, default=5e9)
    options = parser.parse_args()
    paths = sorted(path for folder in options.folders for path in folder.rglob("*.pcap*"))
    captures = [capture for path in paths if (capture := records(path))]
    now, packets = seconds_of(*captures[0][:1], 0), 0
    with options.out.open("wb") as file:
        file.write(HEADER)
        while file.tell() < options.bytes:
            for data, begins in captures:
                shift(data, begins, now - seconds_of(data, begins[0]))
                data.tofile(file)
                now = seconds_of(data, begins[-1]) + 1
                packets += len(begins)
    print(f"{options.out}: {packets:,} packets, {options.out.stat().st_size / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
