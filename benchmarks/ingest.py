"""Ingest and other programs on one generated ring capture: packets/s, CPU seconds and peak memory of whole processes.

Peers that are not installed are named and left out. tshark reads the first two million packets. Every command is run
once to warm caches (page cache, numba's) and then --repeat times; the median is printed. A program that takes over half
a minute runs once. --cores 1 pins each process to one core; 0 lets it use all.

--form gzip and --form pcapng give all programs the same capture in that form (by gzip, by editcap); softflowd, which
reads no gzip, gets it from gzip -dc.

--start measures what a small ingest (2 MB) takes, compared with the import of its libraries: into a new dataset, and
again into the same one, where nothing has changed. The processes take turns; the ratio is the median over the turns.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from make_capture import write

OUT = Path(__file__).parent / "out"
LONG_S = 30
TSHARK_PACKETS = 2_000_000
START_PACKETS = 17_000  # 2 MB

NFSTREAM = """
import sys
from nfstream import NFStreamer
flows = NFStreamer(source=sys.argv[1], idle_timeout=10**6, active_timeout=10**6, n_dissections=0, n_meters=1)
print(sum(1 for _ in flows), "flows")
"""


COUNTS = """
import sys, ddnn_traces
with ddnn_traces.ingest(sys.argv[1], sys.argv[2], hash="none") as dataset:
    query = "SELECT (SELECT sum(records) FROM captures), (SELECT count(*) FROM flows)"
    print(*map(int, dataset.sql(query).row(0)))
"""

TSHARK_FIELDS = ["-o", "tcp.analyze_sequence_numbers:FALSE"]  # its TCP analysis takes most of its time
TSHARK_FIELDS += [
    part
    for name in ("frame.time_epoch", "frame.len", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport")
    for part in ("-e", name)
]


@dataclass(frozen=True)
class Peer:
    """A command on a capture: name, argument list, and the share of the capture's packets that it reads."""

    name: str
    command: list[str]
    share: float = 1.0


def peers(capture: Path, packets: int, scratch: Path) -> tuple[list[Peer], list[str]]:
    """The commands that can run here, and the names of those that cannot."""
    ingest = [sys.executable, "-c", "from ddnn_traces.cli import main; main()", "ingest", str(capture)]
    ingest += ["--out", str(scratch / "dataset"), "--force"]
    unpacked = ["sh", "-c", 'gzip -dc "$1" | softflowd -d -r /dev/stdin -m 200000', "sh", str(capture)]
    tshark = ["tshark", "-r", str(capture), "-c", str(TSHARK_PACKETS), "-T", "fields", *TSHARK_FIELDS]
    known = [
        Peer("ddnn-traces", ingest),
        Peer("ddnn-traces --hash none", [*ingest, "--hash", "none"]),
        Peer("ddnn-traces --hash sha256", [*ingest, "--hash", "sha256"]),
        Peer("ddnn-traces --jobs 1", [*ingest, "--jobs", "1"]),
        Peer("nfpcapd", ["nfpcapd", "-r", str(capture), "-w", str(scratch)]),
        Peer("softflowd", ["softflowd", "-d", "-r", str(capture), "-m", "200000"]),
        Peer("argus", ["argus", "-r", str(capture), "-w", str(scratch / "argus.out")]),
        Peer("nfstream", [sys.executable, "-c", NFSTREAM, str(capture)]),
        Peer("tshark -T fields", tshark, min(1.0, TSHARK_PACKETS / packets)),
    ]  # fmt: skip
    if capture.suffix == ".gz":  # these read no gzip, and two of them no pipe
        known = [peer for peer in known if peer.name not in ("nfpcapd", "softflowd", "argus")]
        known.append(Peer("gzip -dc | softflowd", unpacked))
    there = {peer.name: bool(shutil.which(peer.command[0])) for peer in known}
    there["nfstream"] = importlib.util.find_spec("nfstream") is not None
    return [peer for peer in known if there[peer.name]], [name for name, found in there.items() if not found]


@dataclass(frozen=True)
class Measured:
    """One run of a process: wall and CPU seconds, peak resident memory in MB."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def run(peer: Peer, cores: int) -> Measured:
    """Run a peer once. Raises CalledProcessError when it fails."""
    pin = (lambda: os.sched_setaffinity(0, range(cores))) if cores else None
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(peer.command, stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=pin)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            raise subprocess.CalledProcessError(process.returncode, peer.command, stderr=errors.read().decode())
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def measure(peer: Peer, cores: int, repeat: int) -> Measured:
    """Medians of `repeat` runs, after one that is not counted; of a command that takes long, its one run."""
    first = run(peer, cores)
    if first.wall_s > LONG_S:
        return first
    runs = [run(peer, cores) for _ in range(repeat)]
    return Measured(*(statistics.median(getattr(m, name) for m in runs) for name in ("wall_s", "cpu_s", "peak_mb")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--capture", type=Path, help="a pcap of your own instead of a generated one")
    parser.add_argument("--packets", type=int, default=20_000_000)
    parser.add_argument("--flows", type=int, default=24)
    parser.add_argument("--form", choices=["pcap", "pcapng", "gzip"], default="pcap")
    parser.add_argument("--cores", type=int, default=1, help="cores a process may use; 0: all")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", help="only the commands whose names begin so")
    parser.add_argument("--start", action="store_true", help="only the start of small ingests")
    options = parser.parse_args()

    OUT.mkdir(exist_ok=True)
    if options.start:
        start(options.cores, max(5, options.repeat))
        return
    capture = in_form(options.capture or generated(options.packets, options.flows), options.form)
    with tempfile.TemporaryDirectory(dir=OUT) as name:
        scratch = Path(name)
        packets, flows = counts(capture, scratch)
        print(f"{_machine()}; {options.cores or 'all'} core(s) a process; {time.strftime('%Y-%m-%d')}")
        print(f"{packets:,} packets, {flows:,} flows, {capture.stat().st_size / 1e9:.2f} GB\n")
        print(f"{'command':<32} {'M packets/s':>11} {'wall s':>8} {'CPU s':>8} {'peak MB':>8}")
        there, missing = peers(capture, packets, scratch)
        for peer in there:
            if options.only is None or peer.name.startswith(options.only):
                m = measure(peer, options.cores, options.repeat)
                rate = packets * peer.share / m.wall_s / 1e6
                print(f"{peer.name:<32} {rate:>11.3f} {m.wall_s:>8.2f} {m.cpu_s:>8.2f} {m.peak_mb:>8.0f}", flush=True)
    if missing:
        print(f"\nnot installed: {', '.join(missing)}")


def start(cores: int, turns: int) -> None:
    """Print wall and CPU seconds of small ingests, and their ratios to the import of their libraries."""
    with tempfile.TemporaryDirectory(dir=OUT) as name:
        command = [
            sys.executable,
            "-c",
            "from ddnn_traces.cli import main; main()",
            "ingest",
            "--out",
            f"{name}/dataset",
        ]
        ingest = [*command, str(generated(START_PACKETS, 24))]
        libraries = Peer("import of the libraries", [sys.executable, "-c", "import numpy, numba, pyarrow, duckdb"])
        peers = [libraries, Peer("ingest into a new dataset", ingest), Peer("again, unchanged", ingest)]
        found: dict[str, list[Measured]] = {peer.name: [] for peer in peers}
        for _ in range(1 + turns):
            shutil.rmtree(f"{name}/dataset", ignore_errors=True)
            for peer in peers:
                found[peer.name].append(run(peer, cores))
    print(f"{_machine()}; {cores or 'all'} core(s) a process; {time.strftime('%Y-%m-%d')}; {turns} turns\n")
    print(f"{'process':<28} {'wall s':>8} {'ratio':>8} {'CPU s':>8} {'ratio':>8}")
    base = found[libraries.name][1:]  # without the first turn, which warms caches
    for name, runs in found.items():
        columns = []
        for field in ("wall_s", "cpu_s"):
            pairs = [(getattr(m, field), getattr(b, field)) for m, b in zip(runs[1:], base, strict=True)]
            columns += [statistics.median(m for m, _ in pairs), statistics.median(m / b for m, b in pairs)]
        print(f"{name:<28} {columns[0]:>8.2f} {columns[1]:>8.2f} {columns[2]:>8.2f} {columns[3]:>8.2f}")


def generated(packets: int, flows: int) -> Path:
    """The synthetic capture, made when it is not there yet."""
    capture = OUT / f"ring-{packets}-{flows}.pcap"
    if not capture.exists():
        write(capture.with_suffix(".part"), packets, flows)
        capture.with_suffix(".part").rename(capture)
    return capture


def in_form(capture: Path, form: str) -> Path:
    """The capture as pcapng or compressed by gzip, made when it is not there yet."""
    if form == "pcap":
        return capture
    made = OUT / f"{capture.name}{'.gz' if form == 'gzip' else 'ng'}"
    if not made.exists():
        part = made.with_suffix(".part")
        command = ["gzip", "-c"] if form == "gzip" else ["editcap", "-F", "pcapng"]
        with part.open("wb") as out:
            subprocess.run([*command, str(capture), *([] if form == "gzip" else ["-"])], stdout=out, check=True)
        part.rename(made)
    return made


def counts(capture: Path, scratch: Path) -> tuple[int, int]:
    """Packets and flows of a capture, by an ingest, which also warms the page cache and compiles.

    In a process of its own: a child's peak memory begins with what its parent has when it is forked.
    """
    command = [sys.executable, "-c", COUNTS, str(capture), str(scratch / "dataset")]
    packets, flows = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    return int(packets), int(flows)


def _machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
