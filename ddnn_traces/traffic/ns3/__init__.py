"""Training on real ns-3, packet by packet: a ring all-reduce beside background flows (Gao 2020, chapter 5).

ns3_job.py what is simulated, process.py ns-3 in a process of its own, ns3_results.py what
comes out, as tables, ns3_sweep.py many of them. program/ is the model itself, in C++ and under ns-3's licence.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.store.whole_files import whole_folder
from ddnn_traces.text import nearest
from ddnn_traces.traffic.ns3 import ns3_results, process
from ddnn_traces.traffic.ns3.ns3_job import CONDITIONS, Ns3Run
from ddnn_traces.traffic.ns3.ns3_job import job as job
from ddnn_traces.traffic.ns3.ns3_results import Ns3Result
from ddnn_traces.traffic.pcaps import write_description
from ddnn_traces.traffic.simulator import specification
from ddnn_traces.traffic.table_writer import check_free, write_traffic


def run(
    path: Path | None,
    given: Mapping[str, Any],
    out: Path | None = None,
    pcap: Path | None = None,
    pcap_hosts: Sequence[str] = (),
    compiler: str | None = None,
    debug: bool = False,
    training_only: bool = False,
    say: Callable[[str], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
    told: Callable[[float], None] = lambda _: None,
) -> pl.DataFrame:
    """Simulate the job of a TOML file, with keys given beside it, which win; a row of its measures (results.summary).

    out: dataset to write the run into; training_only: without background flows and other jobs. pcap: folder for a run
    folder with a capture of each host's link, or of those of pcap_hosts, labels of hosts. compiler, debug: as of
    process.find; told: of process.simulate. Raises UsageError and SimulationError.
    """
    values = (specification.read_file(path) if path else {}) | dict(given)
    wanted = job(values)
    specification.check_used([values], CONDITIONS)
    chosen = process.find(compiler, debug)
    say(str(chosen))
    folder = pcap / wanted.run_id if pcap else None
    if folder and folder.exists():
        raise UsageError(f"{folder}: is there already; choose another --pcap or --run-id")
    if pcap_hosts and not folder:
        raise UsageError("pcap_hosts: says whose links --pcap captures; give --pcap, too")
    if folder and wanted.skip_tolerance:
        raise UsageError("skip_tolerance: leave it out with --pcap, which has no packets of skipped iterations")
    if folder:
        folder.parent.mkdir(parents=True, exist_ok=True)  # found to be impossible now, and not after the simulation
    if out:
        check_free(out, wanted.run_id, replace=True)
    result = simulate(wanted, chosen, folder, pcap_hosts, told)
    if folder:
        write_description(folder, ns3_results.CountedTraffic(result))
        say(f"wrote {folder}; next: ddnn-traces ingest {folder} --out DATASET")
    if out:
        shown = result.of_training() if training_only else result
        write_traffic(out, [ns3_results.CountedTraffic(shown)], tables=ns3_results.CountedTables)
        say(f"wrote {out}: {wanted.run_id}")
        if (wanted.flows_per_s or wanted.other_jobs or wanted.stream_mbit) and not training_only:
            say("its tables have all flows, so topology and volumes are of all; --training-only leaves out the others")
    found = ns3_results.summary(result)
    if not result.is_whole:
        warn(f"{wanted.run_id}: stopped at the time limit of {wanted.time_limit_s:g} s; measured is what is there")
    elif not found["measured_steps"]:
        warn(f"{wanted.run_id}: no iteration lies between warm-up and cool-down; give more seconds or less of these")
    facts = {name: getattr(result.run, name) for name in ("run_id", "workers", "bandwidth_mbit", "variant")}
    return pl.DataFrame([{"run_id": facts.pop("run_id")} | found | facts])


def _numbers(run: Ns3Run, hosts: Sequence[str]) -> Sequence[int]:
    """Numbers of the hosts with these labels; of all, without labels. Raises UsageError."""
    for host in hosts:
        if host not in run.labels:
            raise UsageError(f"{host}: no host of this run; {nearest(host, run.labels)}")
    return [run.labels.index(host) for host in hosts] or range(len(run.labels))


def simulate(
    run: Ns3Run,
    chosen: process.Engine,
    pcap: Path | None = None,
    pcap_hosts: Sequence[str] = (),
    told: Callable[[float], None] = lambda _: None,
) -> Ns3Result:
    """Simulate a run. pcap: new folder for captures, of the links of all hosts or of those of pcap_hosts.

    told: called once a second with the share that is done. Raises UsageError and SimulationError.
    """
    captured = [] if pcap is None else _numbers(run, pcap_hosts)
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-ns3-") as folder:
        out = Path(folder)
        summary = process.simulate(run, chosen, out, captured, told)
        if pcap is not None:
            with whole_folder(pcap) as half_written:
                for path in sorted(out.glob("*.pcap")):
                    shutil.move(path, half_written / path.name)
        return ns3_results.read(run, out, summary)
