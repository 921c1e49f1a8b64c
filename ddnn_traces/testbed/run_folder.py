"""The folder of a run, which ingest takes as it is: captures, logs, and run.toml with all that is known of the run."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from ddnn_traces.errors import TestbedError
from ddnn_traces.store.whole_files import sync_tree
from ddnn_traces.testbed.capture import Capture
from ddnn_traces.testbed.conditions import BURST_BYTES
from ddnn_traces.testbed.hosts import Host
from ddnn_traces.testbed.matrix import Run
from ddnn_traces.version import __version__

#: Folder beside the runs that holds those that were not made as asked for.
REJECTED = "rejected"
_MEMBER_BYTES = 1 << 20
_NETWORK_TOOLS = {"iproute2": ("ip", "-V"), "nftables": ("nft", "--version")}


def collect(folder: Path, hosts: Sequence[Host], captures: Sequence[Capture], compress: bool) -> None:
    """Bring the files of all hosts into the folder, and what tcpdump said. Raises TestbedError."""
    for host in hosts:
        host.fetch(folder)
    results = folder / "results"
    if results.is_dir():
        shutil.copytree(results, folder, dirs_exist_ok=True)
        shutil.rmtree(results)
    first = folder / "train_history-worker-1.log"
    if first.is_file():
        shutil.copyfile(first, folder / "train_history.log")
    for capture in captures:
        (folder / f"{capture.host.label}-tcpdump.log").write_text(capture.said)
        path = folder / f"{capture.host.label}-tcpdump.pcap"
        if compress and path.is_file():
            _compress(path)


def _compress(path: Path) -> None:
    """Replace a file by its gzip, the same bytes for the same content."""
    with (
        path.open("rb") as source,
        path.with_name(f"{path.name}.gz").open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=9, fileobj=raw, mtime=0) as packed,
    ):
        shutil.copyfileobj(source, packed, _MEMBER_BYTES)
    path.unlink()


def read_truth(path: Path) -> dict[str, Any]:
    """What a job's program declared, empty where it wrote nothing. Raises TestbedError for what is not JSON."""
    try:
        truth = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise TestbedError(f"{path}: not JSON ({error}); the training program wrote it") from error
    path.unlink()
    return dict(truth)


def write_run_toml(
    folder: Path, run: Run, hosts: Sequence[Host], truths: Sequence[Mapping[str, Any]], slowed: Mapping[str, Any],
    origin: Mapping[str, Any], problems: Sequence[str],
) -> None:  # fmt: skip
    """Write run.toml: columns of `runs` (slowed: those of its fault), [[hosts]], and under [origin] how the run was
    made and what was measured.
    """
    one_job = len(run.jobs) == 1
    job, truth = run.jobs[0], (truths[0] if truths else {})
    fields = {
        "framework": job.kind.framework,
        "backend": job.kind.backend,
        "optimizer": job.optimizer,
        "workers": run.workers,
        "delay_ms": run.link.delay_ms,
        "loss_pct": run.link.loss_pct,
        "bandwidth_mbit": run.link.rate_mbit,
        "burst_bytes": BURST_BYTES if run.link.rate_mbit else None,
        "congestion_control": origin["network"].get("congestion_control"),
        "source": "testbed",
        **slowed,
    }
    if one_job:  # of several at once there is no model, batch or topology of the run
        fields |= {
            "model": job.model,
            "batch_size": job.batch_size * job.ranks,  # of a host
            "ranks_per_host": job.ranks if job.ranks > 1 else None,
            "topology": truth.get("topology"),
            "planned_steps": job.steps,
            **{key: truth.get(key) for key in ("model_params", "model_bytes", "epochs")},
        }
    if problems:
        fields["rejected"] = "; ".join(problems)
    ring = list(dict.fromkeys(rank // job.ranks for rank in truth.get("ring_order") or []))  # of hosts
    entries = [
        {
            "ip": host.address,
            "label": host.label,
            "role": "worker" if host.label.startswith("worker-") else truth.get("roles", {}).get(host.label, "other"),
            "rank": rank if rank < len(run.labels) else None,
            "ring_position": ring.index(rank) if one_job and rank in ring else None,
        }
        for rank, host in enumerate(hosts)
    ]
    document = {**fields, "hosts": entries, "origin": origin}
    (folder / "run.toml").write_text(tomli_w.dumps(without_none(document)))


def without_none(value: Any) -> Any:
    """The same without keys and items that are None, which TOML does not have."""
    if isinstance(value, Mapping):
        return {str(key): without_none(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [without_none(inner) for inner in value if inner is not None]
    return value


def machine_facts(host: Host) -> dict[str, Any]:
    """The machine and the programs that decide on packets, those of the first host. Raises TestbedError."""
    return {
        "made_by": f"ddnn-traces {__version__} testbed",
        "kernel": host.output("uname", "-sr"),
        "cpus": int(host.output("nproc")),
        "tcpdump": host.output(*host.tcpdump, "--version").splitlines()[0],
        **({} if host.remote else {name: host.output(*words) for name, words in _NETWORK_TOOLS.items()}),
    }


def put(folder: Path, target: Path) -> None:
    """Give a whole folder its name, in place of one that is there."""
    sync_tree(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        shutil.rmtree(target)
    folder.rename(target)
