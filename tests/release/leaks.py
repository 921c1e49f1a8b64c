"""What the tests of the leak scan look for, and a run folder that has all of it."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import packets as p
import zstandard

from ddnn_traces.release import leak_scan

SECRET = bytes(range(60, 100))
START_NS = 1_700_000_123_456_789_000
MAC = "9c:b6:d0:1a:2b:3c"
HARDWARE = bytes.fromhex(MAC.replace(":", ""))

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstandard.compress, "xz": lzma.compress, "bzip2": bz2.compress, "lz4": lz4.frame.compress,
}  # fmt: skip


def write_source(run: Path) -> None:
    """A run with something of everything that a scan looks for."""
    run.mkdir()
    four = p.ethernet(p.ipv4(p.tcp(b"x" * 50), "172.20.30.41", "172.20.30.42"))
    six = p.ethernet(p.ipv6(p.tcp(b"x" * 50), "2001:db8:7::41", "2001:db8:7::42"), p.IPV6)
    macs = HARDWARE + HARDWARE[:5] + b"\x77"
    records = [p.Record(START_NS + 10**6 * k, macs + frame[12:]) for k, frame in enumerate((four, six))]
    (run / "gpu-node17.pcap").write_bytes(p.pcap(records, tick_ns=1))
    (run / "run.toml").write_text('[[hosts]]\nip = "172.20.30.41"\nlabel = "gpu-node17"\nrole = "worker"\nrank = 0\n')
    (run / "train.log").write_text(
        "started by carola@login3.cluster.example.edu in /scratch/carola/jobs/7\n"
        "data of /mnt/home/erika/x and /srv/users/list.txt, from files.pythonhosted.org\n"
    )
    (run / "key").write_bytes(SECRET)


def kinds(folder: Path, words: leak_scan.Words) -> set[str]:
    return {leak.kind for leak in leak_scan.scan(folder, words)}
