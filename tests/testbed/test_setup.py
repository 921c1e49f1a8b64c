"""What the testbed needs is checked before the first run, and named with what to do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddnn_traces import testbed
from ddnn_traces.errors import TestbedError, UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.testbed import hosts, matrix_runs
from ddnn_traces.testbed.capture import Capture
from ddnn_traces.testbed.hosts import Host

DDP, MPI = '[[runs]]\nprogram = "ddp"\n', '[[runs]]\nprogram = "mpi"\n'


@pytest.fixture
def no_start(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As root, with all tools, and without a run that starts."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(testbed, "tool_missing", lambda *names: [])
    monkeypatch.setattr(testbed.network, "start", lambda arguments: iter(()))
    return monkeypatch


def run(folder: Path, text: str, out: str = "out", **python: str) -> None:
    (folder / "matrix.toml").write_text(text)
    testbed.run(folder / "matrix.toml", folder / out, Messages(), python)


def python_with(folder: Path, *packages: str) -> str:
    """A Python that has only these packages."""
    path = folder / "python"
    cases = "|".join(f"'import {name}'" for name in packages) or "none"
    path.write_text(f'#!/bin/sh\ncase "$2" in {cases}) exit 0;; esac\necho "no module: $2" >&2; exit 1\n')
    path.chmod(0o755)
    return str(path)


def test_without_root(tmp_path: Path, no_start: pytest.MonkeyPatch) -> None:
    no_start.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(TestbedError, match="network namespaces need root: run it by sudo, or give real machines"):
        run(tmp_path, DDP)


def test_without_a_tool(tmp_path: Path, no_start: pytest.MonkeyPatch) -> None:
    no_start.setattr(testbed, "tool_missing", hosts.tool_missing)
    no_start.setattr(hosts.shutil, "which", lambda name, path: None if name in ("nft", "mpirun") else name)
    with pytest.raises(TestbedError, match=r"nft, mpirun: not installed; .*apt-get install nftables openmpi-bin"):
        run(tmp_path, MPI, mpi=python_with(tmp_path, "torch", "numpy", "mpi4py"))


@pytest.mark.parametrize(("there", "missing"), [((), "torch"), (("torch", "numpy"), "mpi4py")])
def test_without_a_package(tmp_path: Path, no_start: object, there: tuple[str, ...], missing: str) -> None:
    with pytest.raises(TestbedError, match=rf"cannot import {missing} \(no module.*--python mpi=PATH"):
        run(tmp_path, MPI, mpi=python_with(tmp_path, *there))


def test_without_a_gpu(tmp_path: Path, no_start: object) -> None:
    """What the Python's own look at its PyTorch says is the message."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$2" in *nccl.missing*) echo "programs on NCCL need a GPU";; esac\n')
    python.chmod(0o755)
    with pytest.raises(TestbedError, match="python: programs on NCCL need a GPU"):
        run(tmp_path, '[[runs]]\nprogram = "nccl_fsdp"\n', nccl=str(python))


def test_without_the_python(tmp_path: Path, no_start: object) -> None:
    with pytest.raises(TestbedError, match="No such file or directory; give the Python of torch: --python torch=PATH"):
        run(tmp_path, DDP, torch=str(tmp_path / "none"))


def test_a_framework_that_there_is_not(tmp_path: Path, no_start: object) -> None:
    with pytest.raises(UsageError, match="--python has 'troch'; did you mean torch"):
        run(tmp_path, DDP, troch=sys.executable)


@pytest.mark.parametrize(("text", "out"), [(DDP, "a:b"), (MPI, "a b")])
def test_folders_that_search_paths_cannot_have(tmp_path: Path, no_start: object, text: str, out: str) -> None:
    python = python_with(tmp_path, "torch", "numpy", "mpi4py")
    with pytest.raises(TestbedError, match=f"{out}: PYTHONPATH and mpirun take no colons and blanks; give another"):
        run(tmp_path, text, out, torch=python, mpi=python)


@pytest.mark.parametrize("name", ["cubik", "c" * 200])
def test_a_congestion_control_that_the_kernel_lacks(tmp_path: Path, no_start: object, name: str) -> None:
    text = f"{DDP}link.congestion_control = '{name}'\n"
    with pytest.raises(UsageError, match=rf"^torch-mlp1-sgd-32-gloo-\S*{name[:9]}\S*: congestion_control = .*cubic"):
        run(tmp_path, text)


def test_a_tcpdump_that_outlives_its_agent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds the pipe by which it speaks."""
    script = (
        "sleep 1000 & echo $! '10 packets captured, 10 packets received by filter, 0 packets dropped by kernel' >&2"
    )
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen(["sh", "-c", script], **pipes) as process:  # type: ignore[call-overload]
        capture = Capture(Host("worker-1", "10.10.0.1", "eth0", "python", "/none"), [], process)
        left = int(capture.wait_for(re.compile(r"(\d+) 10 packets captured.*kernel"))[1])
        try:
            monkeypatch.setattr("ddnn_traces.testbed.capture._ANSWER_S", 0.05)
            capture.end()
            assert capture.counts["captured"] == 10
        finally:
            os.kill(left, signal.SIGKILL)


def test_what_tcpdump_lost_is_named() -> None:
    capture = Capture(Host("worker-1", "10.10.0.1", "eth0", "python", "/none"), [], None)  # type: ignore[arg-type]
    capture.complete = True
    assert matrix_runs._lost(capture) == []
    capture.counts = {"dropped_by_kernel": 1234}
    assert matrix_runs._lost(capture) == ["tcpdump on worker-1 lost 1,234 packets; use fewer hosts, or a lower rate"]
    capture.complete = False
    assert matrix_runs._lost(capture)[1] == "tcpdump on worker-1 did not write all that it received"


def test_commands_are_shown_without_folders() -> None:
    host = Host("worker-1", "10.10.0.1", "eth0", "/opt/python", "/data/out/.testbed.1/run/worker-1")
    words = ["/opt/python", "-x", "PYTHONPATH=/data/out/.testbed.1/run/worker-10", "/data/out/.testbed.1/run/ps-1/x"]
    assert host.shown(words) == "python -x PYTHONPATH=. ./x"
