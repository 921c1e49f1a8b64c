"""CPU time and memory of an ingest of many small captures, in one run or in many.

    python benchmarks/many_captures.py --captures 3000                # of one run
    python benchmarks/many_captures.py --captures 3000 --runs 30      # a folder of 100 for each run
    python benchmarks/many_captures.py --captures 3000 --runs 3000    # each a run

Each capture has the 20 packets that its host exchanges with a server.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ddnn_traces.capture_format import pcap_header

PACKETS = 20
SERVER = (10 << 24) + (255 << 16) + 1
BEGIN_S = 1_700_000_000
#: The record's header; Ethernet; IPv4; TCP.
RECORD = np.dtype([
    ("s", "<u4"), ("ns", "<u4"), ("captured", "<u4"), ("original", "<u4"), ("ethernet", "V14"),
    ("version", "u1"), ("tos", "u1"), ("length", ">u2"), ("id", ">u2"), ("fragment", ">u2"), ("ttl", "u1"),
    ("protocol", "u1"), ("checksum", ">u2"), ("src", ">u4"), ("dst", ">u4"),
    ("sport", ">u2"), ("dport", ">u2"), ("seq", ">u4"), ("ack", ">u4"), ("offset", "u1"), ("flags", "u1"),
    ("window", ">u2"), ("tcp_checksum", ">u2"), ("urgent", ">u2"),
])  # fmt: skip
FRAME = RECORD.itemsize - 16


def capture(number: int) -> bytes:
    """What host 10.0.0.0 + number + 1 and the server send each other: data, and an answer to each."""
    made = np.zeros(PACKETS, RECORD)
    place = np.arange(PACKETS)
    is_answer = place % 2 == 1
    payload = np.where(is_answer, 0, 100 + place)
    sent = np.cumsum(payload) - payload
    host = (10 << 24) + number + 1
    made["s"], made["ns"] = BEGIN_S, number % 10_000 * 1000 + place * 10_000
    made["captured"], made["original"] = FRAME, FRAME + payload
    made["ethernet"] = np.void(bytes(12) + b"\x08\x00")
    made["version"], made["length"], made["ttl"], made["protocol"] = 0x45, 40 + payload, 64, 6
    made["src"], made["dst"] = np.where(is_answer, SERVER, host), np.where(is_answer, host, SERVER)
    made["sport"], made["dport"] = np.where(is_answer, 5000, 40000), np.where(is_answer, 40000, 5000)
    made["seq"] = np.where(is_answer, 1, 1 + sent)
    made["offset"], made["flags"], made["window"] = 0x50, 0x10, 500
    return pcap_header(65535, 1) + made.tobytes()


def make(folder: Path, captures: int, runs: int) -> None:
    for number in range(captures):
        run = folder / f"run-{number % runs:06}"
        if number < runs:
            run.mkdir(parents=True)
        (run / f"worker-{number // runs:06}.pcap").write_bytes(capture(number))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captures", type=int, default=3000)
    parser.add_argument("--runs", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder / "runs", chosen.captures, chosen.runs)
        call = [
            sys.executable,
            "-c",
            "from ddnn_traces.cli import main; main()",
            "ingest",
            folder / "runs",
            "--out",
            folder / "dataset",
        ]
        begin = time.monotonic()
        ended = subprocess.run([*map(str, call)], check=False, capture_output=True, text=True)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime
        print("\n".join(ended.stderr.splitlines()[-5:]))
        print(
            f"--captures {chosen.captures} --runs {chosen.runs}: {cpu:.1f} s of CPU time, "
            f"{cpu / chosen.runs:.3f} s a run, {time.monotonic() - begin:.0f} s by the clock, "
            f"{used.ru_maxrss / 1024:,.0f} MB; exit code {ended.returncode}"
        )


if __name__ == "__main__":
    main()
