"""Make real captures of small training runs: four workers in network namespaces of this machine.

Run as root: python data/make_capture.py data/sample [RUN ...]

Each worker has a namespace with one interface, eth0 (10.10.0.N). A fifth namespace holds the bridge that joins them.
Both ends of each link are shaped to 1 Gbit/s with tbf. tcpdump writes in each namespace what that worker sends, the
first 100 bytes of each frame, with segmentation offload on. Nothing leaves the namespaces, and all that was made (by
name or process) is removed at the end. Needs iproute2, tcpdump, procps, PyTorch, and for the MPI run Open MPI and
mpi4py.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from subprocess import PIPE, Popen

from run_folder import write_capture, write_run_toml
from train_sample import STEPS_PER_EPOCH, WIDTHS, parameters

WORKERS = range(1, 5)
STEPS = 20
RATE_MBIT = 1000
SNAPLEN = 100
SHAPER = ["tbf", "rate", f"{RATE_MBIT}mbit", "burst", "256kb", "latency", "50ms"]  # holds whole 64 KB super-frames
PATIENCE_S = 300
PREFIX = f"sample-{os.getpid()}"
SWITCH = f"{PREFIX}-switch"
HERE = Path(__file__).resolve().parent

# Called by mpirun as a remote shell: an address, then the words of a command line.
AGENT = """#!/bin/sh
name="$NAMESPACES-${1##*.}"
shift
exec ip netns exec "$name" sh -c "$*"
"""

# The program of train_sample.py that each framework name stands for, and the direction in which its ring sends.
PROGRAMS = {"torch": "ddp", "torchp2p": "star", "mpi": "mpi"}
RING_ORDERS = {"torch": [1, 4, 3, 2], "mpi": [1, 2, 3, 4]}

RUNS = [
    "torch-mlp4-sgd-32-gloo-0ms-ring-tso",
    "torch-mlp4-sgd-128-gloo-0ms-ring-tso",
    "torch-mlp1-sgd-128-gloo-0ms-ring-tso",
    "torchp2p-mlp4-sgd-32-gloo-0ms-star-tso",
    "mpi-mlp4-sgd-32-openmpi-0ms-ring-tso",
]


def make_run(name: str, out: Path) -> None:
    """Train in fresh namespaces, capture, and write the run folder `out`/`name`."""
    framework, model, _, batch_size, *_ = name.split("-")
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    training = [
        *[sys.executable, str(HERE / "train_sample.py"), "--program", PROGRAMS[framework], "--model", model],
        *["--batch-size", batch_size, "--steps", str(STEPS), "--out", str(folder)],
    ]
    with tempfile.TemporaryDirectory() as scratch, network():
        with captures(Path(scratch)):
            if framework == "mpi":
                run_mpi(training, Path(scratch))
            else:
                run_workers(training)
        congestion_control = output(inside(namespace(1), "sysctl", "-n", "net.ipv4.tcp_congestion_control"))
        for capture in sorted(Path(scratch).glob("*.pcap")):
            write_capture(folder / f"{capture.name}.gz", capture.read_bytes())
    write_description(folder, congestion_control)


@contextmanager
def network() -> Iterator[None]:
    """Four namespaces joined by a bridge in a fifth; removing a namespace removes the interfaces in it."""
    with ExitStack() as undo:
        for name in [SWITCH, *map(namespace, WORKERS)]:
            call("ip", "netns", "add", name)
            undo.callback(call, "ip", "netns", "delete", name)
            call("ip", "-n", name, "link", "set", "lo", "up")
        call("ip", "-n", SWITCH, "link", "add", "bridge", "type", "bridge")
        call("ip", "-n", SWITCH, "link", "set", "bridge", "up")
        for worker in WORKERS:
            plug_in(worker)
        yield


def plug_in(worker: int) -> None:
    """Join the namespace of `worker` to the bridge by a link that is shaped at both ends."""
    name, port = namespace(worker), f"port{worker}"
    call("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", SWITCH)
    call("ip", "-n", name, "address", "add", f"{address(worker)}/24", "dev", "eth0")
    call("ip", "-n", SWITCH, "link", "set", port, "master", "bridge")
    for where, interface in [(name, "eth0"), (SWITCH, port)]:
        call("ip", "-n", where, "link", "set", interface, "up")
        call("tc", "-n", where, "qdisc", "add", "dev", interface, "root", *SHAPER)


@contextmanager
def captures(folder: Path) -> Iterator[None]:
    """tcpdump on every worker's interface, from before the body until after it."""
    with ExitStack() as undo:
        for worker in WORKERS:
            undo.enter_context(capture(worker, folder))
        yield
        # A signal loses what the kernel has not handed over yet; it does so every second at the latest.
        time.sleep(3)


@contextmanager
def capture(worker: int, folder: Path) -> Iterator[None]:
    """Capture the packets that `worker` sends, into worker-N-tcpdump.pcap; an error if the kernel dropped a packet."""
    target = folder / f"worker-{worker}-tcpdump.pcap"
    options = ["-i", "eth0", "-s", str(SNAPLEN), "-B", "32768", "-U", "-Z", "root", "-w", str(target)]
    tcpdump = inside(namespace(worker), "tcpdump", *options, "src", address(worker))
    with Popen(tcpdump, stderr=PIPE, text=True) as process:
        try:
            wait_for_line(process, "listening on")
            yield
        finally:
            process.send_signal(signal.SIGINT)
            closing = process.stderr.read()
    if "\n0 packets dropped by kernel" not in closing:
        raise RuntimeError(f"tcpdump of worker {worker} lost packets: {closing}")


def wait_for_line(process: Popen, text: str) -> None:
    """Read the output of the process until a line holds `text`."""
    output = ""
    for line in process.stderr:
        output += line
        if text in line:
            return
    raise RuntimeError(f"{process.args} ended early: {output}")


def run_workers(training: list[str]) -> None:
    """One PyTorch process in each namespace; the first one's address is where they meet."""
    meeting = {"MASTER_ADDR": address(1), "MASTER_PORT": "29500", "WORLD_SIZE": str(len(WORKERS))}
    with ExitStack() as undo:
        processes = [
            undo.enter_context(child(inside(namespace(worker), *training), meeting | {"RANK": str(worker - 1)}))
            for worker in WORKERS
        ]
        for process in processes:
            if process.wait(PATIENCE_S):
                raise RuntimeError(f"a worker ended with {process.returncode}")


def run_mpi(training: list[str], scratch: Path) -> None:
    """mpirun in the first namespace; where it would log in to another host, it enters that host's namespace."""
    agent = scratch / "enter"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    settings = {
        "plm_rsh_agent": str(agent),
        "orte_keep_fqdn_hostnames": "1",
        "rtc": "^hwloc",  # its shared file would be one for all namespaces
        "oob_tcp_if_include": "eth0",
        "btl": "tcp,self",
        "btl_tcp_if_include": "eth0",
        "coll_tuned_use_dynamic_rules": "1",
        "coll_tuned_allreduce_algorithm": "4",  # ring
    }
    options = [word for name, value in settings.items() for word in ("--mca", name, value)]
    hosts = ",".join(f"{address(worker)}:1" for worker in WORKERS)
    mpirun = ["mpirun", "--allow-run-as-root", *options, "--host", hosts, "-np", str(len(WORKERS)), *training]
    with child(inside(namespace(1), *mpirun), {"NAMESPACES": PREFIX}) as process:
        if process.wait(PATIENCE_S):
            raise RuntimeError(f"mpirun ended with {process.returncode}")


@contextmanager
def child(command: list[str], settings: dict[str, str]) -> Iterator[Popen]:
    """A process with one computing thread that is gone at the end, whatever happens in between."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"} | settings
    with Popen(command, env=environment) as process:
        try:
            yield process
        finally:
            process.terminate()


def write_description(folder: Path, congestion_control: str) -> None:
    """Write run.toml; the folder name's parts are what was declared."""
    framework, model, optimizer, batch_size, backend, _, topology, *_ = folder.name.split("-")
    run = {
        "framework": framework,
        "backend": backend,
        "model": model,
        "model_params": parameters(WIDTHS[model]),
        "model_bytes": 4 * parameters(WIDTHS[model]),
        "optimizer": optimizer,
        "batch_size": int(batch_size),
        "topology": topology,
        "workers": len(WORKERS),
        "epochs": STEPS // STEPS_PER_EPOCH,
        "delay_ms": 0,
        "loss_pct": 0.0,
        "bandwidth_mbit": RATE_MBIT,
    }
    ring = RING_ORDERS[framework] if topology == "ring" else []
    hosts = [
        {
            "ip": address(worker),
            "label": f"worker-{worker}",
            "role": "worker",
            "rank": worker - 1,
            "ring_position": ring.index(worker) if ring else None,
        }
        for worker in WORKERS
    ]
    origin = {
        "made_by": "data/make_capture.py",
        "cut_to_steps": STEPS,
        "source_steps": STEPS,
        "offload": "on",
        "snaplen": SNAPLEN,
        "congestion_control": congestion_control,
        "versions": versions(framework),
    }
    write_run_toml(folder, run, hosts, origin)


def versions(framework: str) -> str:
    """The software that sent the packets."""
    torch = f"torch {version('torch')}"
    if framework != "mpi":
        return torch
    open_mpi = re.search(r"\d[\d.]+", output(["mpirun", "--version"])).group()
    return f"Open MPI {open_mpi}, mpi4py {version('mpi4py')}, {torch}"


def namespace(worker: int) -> str:
    return f"{PREFIX}-{worker}"


def address(worker: int) -> str:
    return f"10.10.0.{worker}"


def inside(name: str, *command: str) -> list[str]:
    """The command line that runs `command` in the namespace `name`."""
    return ["ip", "netns", "exec", name, *command]


def call(*command: str) -> None:
    subprocess.run(command, check=True)


def output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make real captures of small training runs, as root.")
    parser.add_argument("out", type=Path, help="folder for the run folders")
    parser.add_argument("runs", nargs="*", default=RUNS, help="names of runs; without any, all")
    arguments = parser.parse_args()
    for name in arguments.runs:
        make_run(name, arguments.out.resolve())
        print(name)


if __name__ == "__main__":
    main()
