"""Fabricate the layout of the published Zerwas dataset (doi 10.14459/2021mp1632489) out of other captures.

Run as: python tests/traces/zerwas_layout.py CAPTURES OUT [--gzip]

CAPTURES is tests/traces/runs or the folder of the full captures. Only the layout is the published one: names of folders
and files, what is in the logs, what is not there (run.toml, phases, other workers' logs). The packets are those of
other programs and models than the names say, so that nothing that comes out of them is a result on Zerwas' data.

What the layout is made after: the scripts that the authors published, github.com/tum-lkn/dml-network-traffic-analysis:
experiment.py and analysis/analysis.ipynb (folder names), tcpdump.py (worker-0 to worker-3, plain pcap, 100 bytes, what
the worker sends), frameworks/*/script.py (train_history.log of worker 0), analysis/parsing_script.py and aggregate.py
(parsed-files/, bytes_sent.json: what they leave).
"""

import argparse
import csv
import gzip
from pathlib import Path

from run_folder import write_capture

#: Published folder name of a run that runs/ and the full captures both have. Conditions and topologies fit.
NAMES = {
    "tf-mlp1-sgd-32-grpc-0ms-ring": "tf_sync-mobilenetv2-adam-64-grpc-normal-ring",
    "torch-mlp1-sgd-32-gloo-0ms-ring-loss05": "tf_sync-mobilenetv2-adam-64-grpc_nccl-loss_0.5-ring",
    "mpi-mlp1-sgd-32-openmpi-0ms-ring": "horovod-mobilenetv2-adam-64-mpi-normal-ring",
    "torchp2p-mlp1-sgd-32-gloo-0ms-tree": "kungfu_ssgd-mobilenetv2-adam-64-kungfu-normal-TREE",
    "torchp2p-mlp1-sgd-32-gloo-0ms-star": "kungfu_ssgd-mobilenetv2-adam-64-kungfu-normal-STAR",
    "torchp2p-mlp1-pairavg-32-gloo-0ms-gossip": "kungfu_pairavg-mobilenetv2-adam-64-kungfu-normal-CLIQUE",
}


def fabricate(captures: Path, out: Path, packed: bool = False, names: dict[str, str] = NAMES) -> list[Path]:
    """Write the runs into out, and return their folders. packed: captures as .pcap.gz."""
    folders = []
    for name, published in names.items():
        folder = out / published
        folder.mkdir(parents=True)
        for number in range(4):
            write_capture(
                folder / f"worker-{number}-tcpdump.pcap{'.gz' if packed else ''}", _capture(captures / name, number + 1)
            )
        (folder / "train_history.log").write_text(_log(captures / name / "train_history.log"))
        _left_by_the_analysis(folder / "parsed-files")
        folders.append(folder)
    (out / "bytes_sent.json").write_text("{}")
    return folders


def _capture(folder: Path, number: int) -> bytes:
    (path,) = folder.glob(f"worker-{number}-tcpdump.pcap*")
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def _log(path: Path) -> str:
    """As Keras' callbacks of the published scripts print it: kinds in capitals, batches from 0 in each epoch."""
    lines = ["Type,ID,Timestamp,Loss,Accuracy"]
    batch = epoch = 0
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            is_batch = row["Type"] == "batch"
            number = batch if is_batch else epoch
            lines.append(f"{row['Type'].capitalize()},{number},{row['Timestamp']},{row['Loss']},{row['Accuracy']}")
            batch, epoch = (batch + 1, epoch) if is_batch else (0, epoch + 1)
    return "\n".join(lines) + "\n"


def _left_by_the_analysis(folder: Path) -> None:
    """Files that are no captures and no logs, which ingest has to pass by: the captures are there."""
    folder.mkdir()
    header = "frame.time\tip.src\tip.dst\ttcp.srcport\ttcp.dstport\tframe.interface_name\tframe.len\n"
    (folder / "worker-0-tcpdump.csv").write_text(header)
    (folder / "joint_sent_received.json").write_text("{}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("captures", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--gzip", action="store_true", help="captures as .pcap.gz")
    arguments = parser.parse_args()
    for folder in fabricate(arguments.captures, arguments.out, arguments.gzip):
        print(folder)
