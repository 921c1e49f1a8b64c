"""Ingest in threads, and on a Dask cluster of as many workers. Needs the extra cluster.

    python benchmarks/cluster.py                      one pcap of 10 GB; some ten minutes
    python benchmarks/cluster.py --captures 4         four of 2.5 GB, as a ring of four workers has
    python benchmarks/cluster.py --captures 2 --form gzip
    python benchmarks/cluster.py --gigabytes 0.3 --repeat 1
    python benchmarks/cluster.py --captures 16 --gigabytes 1.6

The cluster is running before the command starts, as one of several machines is; local:N starts its own. Commands take
turns; the ratio is of wall times in the same turn, to threads of the same number. CPU is that of the command's process
and what it starts: of a running cluster, what its client takes. The last line compares the datasets' Parquet files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distributed import LocalCluster
from ingest import OUT, _machine, generated, in_form

RECORD_BYTES = 116


def timed(command: list[str], out: Path) -> tuple[float, float, str]:
    """Wall and CPU time of an ingest into a new dataset, s, and its line about the cluster."""
    shutil.rmtree(out, ignore_errors=True)
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        said.seek(0)
        lines = said.read().splitlines()
    if os.waitstatus_to_exitcode(status):
        raise SystemExit("\n".join(lines))
    line = next((line for line in lines if line.startswith("cluster:")), "")
    return seconds, usage.ru_utime + usage.ru_stime, line


def content(dataset: Path) -> str:
    """A hash of all Parquet files of a dataset, with their names."""
    found = hashlib.sha256()
    for path in sorted(dataset.rglob("*.parquet")):
        found.update(str(path.relative_to(dataset)).encode() + path.read_bytes())
    return found.hexdigest()[:16]


def named(capture: Path, number: int) -> list[str]:
    """The capture under so many names: as many runs."""
    others = [capture.with_name(f"{one}-{capture.name}") for one in range(1, number)]
    for other in others:
        other.unlink(missing_ok=True)
        other.hardlink_to(capture)
    return [*map(str, [capture, *others])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=10.0, help="of all captures, uncompressed")
    parser.add_argument("--captures", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3, help="after a first turn; 0: the first one counts")
    parser.add_argument("--hash", default="blake3", help="as of ingest: a file in parts is read again for it")
    parser.add_argument("--form", choices=["pcap", "pcapng", "gzip"], default="pcap")
    options = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    plain = generated(int(options.gigabytes / options.captures * 1e9 / RECORD_BYTES), 24)
    capture = in_form(plain, options.form)
    command = str(Path(sys.executable).with_name("ddnn-traces"))
    sources = named(capture, options.captures)
    size = plain.stat().st_size * len(sources)
    ingest = [command, "ingest", *sources, "--hash", options.hash]
    print(
        f"{_machine()}; {time.strftime('%Y-%m-%d')}; {size / 1e9:.2f} GB in {options.captures} {options.form}, "
        f"{options.hash}, {options.repeat} turns\n"
    )
    print(f"{'command':<24} {'wall s':>8} {'GB/s':>7} {'ratio':>7} {'CPU s':>7}")
    contents: set[str] = set()
    with tempfile.TemporaryDirectory(dir=OUT) as scratch:
        for number in (1, 2):
            with LocalCluster(n_workers=number, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
                commands = {
                    f"--jobs {number}": [*ingest, "--jobs", str(number)],
                    f"{number} workers": [*ingest, "--scheduler", cluster.scheduler_address],
                    f"local:{number}": [*ingest, "--scheduler", f"local:{number}"],
                }
                found: dict[str, list[float]] = {name: [] for name in commands}
                cpu: dict[str, list[float]] = {name: [] for name in commands}
                for turn in range(1 + options.repeat):  # the first one warms caches
                    for name, command in commands.items():
                        seconds, cpu_s, line = timed(command, Path(scratch, "dataset"))
                        contents.add(content(Path(scratch, "dataset")))
                        if turn or not options.repeat:
                            found[name].append(seconds)
                            cpu[name].append(cpu_s)
            base = found[f"--jobs {number}"]
            for name, times in found.items():
                ratio = statistics.median(a / b for a, b in zip(times, base, strict=True))
                wall = statistics.median(times)
                rate, cpu_s = size / wall / 1e9, statistics.median(cpu[name])
                print(f"{name:<24} {wall:>8.2f} {rate:>7.2f} {ratio:>7.2f} {cpu_s:>7.2f}", flush=True)
            print(f"    {line}")
    print(f"datasets: {', '.join(sorted(contents))}")


if __name__ == "__main__":
    main()
