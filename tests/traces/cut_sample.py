"""Cut captured training runs to their first steps, so that they are small enough to ship.

Run as: python tests/traces/cut_sample.py CAPTURES tests/traces/runs

CAPTURES holds one folder a run: worker-N-tcpdump.pcap[.gz], the training logs, and truth.json, which states what was
declared when the run was made. A cut keeps every packet up to 20 ms after the last worker has ended the last step
that is kept. Where all steps are kept, so are all packets. The same input gives the same bytes.
"""

import argparse
import gzip
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from run_folder import write_capture, write_run_toml

KEPT_STEPS = {
    "mpi-mlp1-sgd-32-openmpi-0ms-recdoubling": 5,
    "mpi-mlp1-sgd-32-openmpi-0ms-ring": 5,
    "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2": 30,
    "mpi-mlp12-sgd-32-openmpi-0ms-ring-tso": 10,
    "tf-mlp1-sgd-32-grpc-0ms-ps": 10,
    "tf-mlp1-sgd-32-grpc-0ms-ring": 5,
    "torch-mlp1-sgd-32-gloo-0ms-ring": 5,
    "torch-mlp1-sgd-32-gloo-0ms-ring-both": 3,
    "torch-mlp1-sgd-32-gloo-0ms-ring-loss05": 5,
    "torch-mlp1-sgd-32-gloo-0ms-ring-tso": 40,
    "torch-mlp12-sgd-32-gloo-0ms-ring-tso": 10,
    "torchp2p-mlp1-pairavg-32-gloo-0ms-gossip": 6,
    "torchp2p-mlp1-sgd-32-gloo-0ms-ps": 5,
    "torchp2p-mlp1-sgd-32-gloo-0ms-star": 5,
    "torchp2p-mlp1-sgd-32-gloo-0ms-tree": 5,
}

# Hosts that do not train; truth.json does not list them. README.md explains how they were found.
OTHER_ROLES = {
    "tf-mlp1-sgd-32-grpc-0ms-ps": {"worker-1": "parameter_server", "worker-4": "chief"},
    "torchp2p-mlp1-sgd-32-gloo-0ms-ps": {"worker-1": "parameter_server"},
}

TOPOLOGIES = {"ps": "parameter_server", "gossip": "pair_averaging", "binary_tree": "tree"}
BANDWIDTHS_MBIT = {"1gbit": 1000}
VERSION_KEYS = ("torch", "tensorflow", "mpi", "mpi4py")

MARGIN_NS = 20_000_000  # acknowledgements of the last kept step; the next one begins with a pause of 50 ms
FILE_HEADER_BYTES = 24
RECORD_HEADER_BYTES = 16
NS_PER_TICK = {0xA1B2C3D4: 1000, 0xA1B23C4D: 1}


def cut_run(source: Path, target: Path) -> None:
    """Write the cut of the run folder `source` to the new or existing folder `target`."""
    target.mkdir(parents=True, exist_ok=True)
    truth = json.loads((source / "truth.json").read_text())
    steps = KEPT_STEPS[source.name]
    limit_ns = last_end_ns(source, steps) + MARGIN_NS if steps < truth["steps"] else None
    for capture in sorted(source.glob("worker-*-tcpdump.pcap*")):
        write_capture(target / capture.name, cut_capture(read_bytes(capture), limit_ns))
    for log in sorted(source.glob("train_history*.log")):
        (target / log.name).write_text("".join(cut_history(log, steps)))
    for log in sorted([*source.glob("phases-worker-*.csv"), *source.glob("peers-worker-*.csv")]):
        (target / log.name).write_text("".join(cut_steps(log, steps)))
    write_description(target, truth, steps)


def last_end_ns(source: Path, steps: int) -> int:
    """The time at which the last worker had ended the first `steps` steps (ns since the epoch)."""
    ends = []
    for log in source.glob("train_history-worker-*.log"):
        rows = (line.split(",") for line in log.read_text().splitlines())
        ends += [int(Decimal(row[2]) * 10**9) for row in rows if row[:2] == ["batch", str(steps - 1)]]
    return max(ends)


def read_bytes(path: Path) -> bytes:
    """The content of a capture file, uncompressed."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def cut_capture(content: bytes, limit_ns: int | None) -> bytes:
    """The pcap file `content` with the records up to `limit_ns` only; None keeps all."""
    if limit_ns is None:
        return content
    kept = [record for time_ns, record in records(content) if time_ns <= limit_ns]
    return content[:FILE_HEADER_BYTES] + b"".join(kept)


def records(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Each record of a little-endian pcap file: its time (ns since the epoch) and its bytes with the header."""
    ns_per_tick = NS_PER_TICK[struct.unpack_from("<I", content)[0]]
    start = FILE_HEADER_BYTES
    while start < len(content):
        seconds, ticks, captured, _ = struct.unpack_from("<IIII", content, start)
        end = start + RECORD_HEADER_BYTES + captured
        yield seconds * 10**9 + ticks * ns_per_tick, content[start:end]
        start = end


def cut_history(log: Path, steps: int) -> Iterator[str]:
    """The lines of a training history before the batch `steps`: epoch lines stand after their last batch."""
    for line in log.read_text().splitlines(keepends=True):
        if line.startswith("batch,") and int(line.split(",")[1]) >= steps:
            return
        yield line


def cut_steps(log: Path, steps: int) -> list[str]:
    """The header and the lines of the first `steps` steps of a file that has one line a step."""
    header, *lines = log.read_text().splitlines(keepends=True)
    return [header, *(line for line in lines if int(line.split(",")[0]) < steps)]


def write_description(target: Path, truth: dict, steps: int) -> None:
    """Write run.toml from what truth.json declares; names come from the folder name's parts."""
    framework, model, optimizer, _, backend, *_ = target.name.split("-")
    hosts = describe_hosts(truth)
    run = {
        "framework": framework,
        "backend": backend,
        "model": model,
        "model_params": truth["params"],
        "model_bytes": truth["model_bytes"],
        "optimizer": optimizer,
        "batch_size": truth["batch"],
        "topology": TOPOLOGIES.get(truth["topology"], truth["topology"]),
        "workers": sum(host["role"] == "worker" for host in hosts),
        "epochs": whole_epochs(target / "train_history.log"),
        "delay_ms": truth["one_way_delay_ms"],
        "loss_pct": truth["loss_per_10000"] / 100,
        "bandwidth_mbit": BANDWIDTHS_MBIT[truth["rate"]],
    }
    versions = [f"{key} {truth[key]}" for key in VERSION_KEYS if key in truth]
    origin = {
        "made_by": "data/cut_sample.py",  # where this file was when the runs were cut
        "cut_to_steps": steps,
        "source_steps": truth["steps"],
        "offload": truth["offload"],
        "snaplen": truth["snaplen"],
        "congestion_control": truth["congestion_control"],
        "versions": ", ".join([truth["framework"], *versions]),
    }
    write_run_toml(target, run, hosts, origin)


def describe_hosts(truth: dict) -> list[dict]:
    """One dict a host, in the order of the addresses; ring_position is None where no ring was declared."""
    roles = OTHER_ROLES.get(truth["name"], {})
    ring = truth.get("ring_order", [])
    return [
        {
            "ip": ip,
            "label": label,
            "role": roles.get(label, "worker"),
            "rank": truth["rank_to_worker"].index(label),
            "ring_position": ring.index(label) if label in ring else None,
        }
        for ip, label in truth["workers"].items()
    ]


def whole_epochs(history: Path) -> int | None:
    """The epochs that a training history holds from start to end; None where the cut ends inside the first."""
    return sum(line.startswith("epoch,") for line in history.read_text().splitlines()) or None


def main() -> None:
    parser = argparse.ArgumentParser(description="Cut captured training runs to their first steps.")
    parser.add_argument("captures", type=Path, help="folder that holds one folder a run")
    parser.add_argument("out", type=Path, help="folder for the cuts, by the same names")
    arguments = parser.parse_args()
    for name in KEPT_STEPS:
        cut_run(arguments.captures / name, arguments.out / name)
        print(name)


if __name__ == "__main__":
    main()
