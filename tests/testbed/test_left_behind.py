"""Whatever ends a testbed: no process, no namespace, no half-made folder is left, and a run that failed is marked.

The training program is a shell script in place of a framework's Python, so that it fails when the test wants it to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from tools import COMMAND

pytestmark = pytest.mark.testbed

MATRIX = """
[[runs]]
program = "ring"
workers = 3
steps = 5
timeout_s = {timeout_s}
measure = false
"""
NAME = "torchp2p-mlp1-sgd-32-gloo-normal-ring-n3"
LIMIT_S = 120


def fake_python(folder: Path, program: str) -> Path:
    """A Python that has torch, and whose training program is a shell script."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\n[ "$1" = -c ] && exit 0\n{program}\n')
    path.chmod(0o755)
    return path


def start(folder: Path, program: str, timeout_s: float = LIMIT_S) -> subprocess.Popen[str]:
    matrix = folder / "matrix.toml"
    matrix.write_text(MATRIX.format(timeout_s=timeout_s))
    command = ["testbed", "run", str(matrix), "--out", str(folder / "out")]
    python = f"torch={fake_python(folder, program)}"
    # signals that whoever runs the tests ignores (nohup, a background job of a shell) would be ignored here, too
    default = ["env", "--default-signal=HUP,INT,TERM"]
    return subprocess.Popen([*default, *COMMAND, *command, "--python", python], stderr=subprocess.PIPE, text=True)


def processes(folder: Path) -> dict[Path, str]:
    """Processes whose command line names the test's folder, with their network namespaces."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (path / "cmdline").read_bytes():
                found[path] = os.readlink(path / "ns" / "net")  # noqa: PTH115 (no path: net:[4026531833])
        except OSError:  # it has just ended
            continue
    return found


def network_namespaces() -> set[str]:
    listed = subprocess.run(["lsns", "-t", "net", "-n", "-o", "NS"], capture_output=True, text=True, check=True).stdout
    return {f"net:[{number}]" for number in listed.split()}


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def wait_until_trains(process: subprocess.Popen[str], folder: Path) -> None:
    """Return when all three training programs are there."""
    wait_until(lambda: len(list(folder.glob("begun-*"))) == 3 or process.poll() is not None)
    assert process.poll() is None, process.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_is_left_of_a_killed_testbed(tmp_path: Path, how: signal.Signals) -> None:
    process = start(tmp_path, f'touch "{tmp_path}/begun-$RANK"; sleep 1000')
    wait_until_trains(process, tmp_path)
    made = set(processes(tmp_path).values()) - {os.readlink("/proc/self/ns/net")}  # noqa: PTH115
    assert len(made & network_namespaces()) == 4  # three hosts, and the testbed's own
    process.send_signal(how)
    process.communicate(timeout=LIMIT_S)
    wait_until(lambda: not processes(tmp_path) and not made & network_namespaces())
    left = [path.name for path in (tmp_path / "out").iterdir()]
    assert left == ([f".testbed.{process.pid}"] if how in (signal.SIGKILL, signal.SIGHUP) else [])


def test_a_second_testbed_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    first = start(tmp_path, f'touch "{tmp_path}/begun-$RANK"; sleep 1000')
    wait_until_trains(first, tmp_path)
    second = start(tmp_path, "")
    _, said = second.communicate(timeout=LIMIT_S)
    assert second.returncode == 1
    assert f"{tmp_path}/out: another testbed is making runs there; wait for its end, or give another --out" in said
    assert processes(tmp_path)
    first.terminate()
    first.communicate(timeout=LIMIT_S)


def test_clean_removes_only_its_own(tmp_path: Path) -> None:
    process = start(tmp_path, f'touch "{tmp_path}/begun-$RANK"; sleep 1000')
    wait_until_trains(process, tmp_path)
    process.kill()
    process.communicate()
    out = tmp_path / "out"
    (out / ".testbed.notes").mkdir()
    (out / f".testbed.{os.getpid()}").mkdir()  # of a testbed that runs
    clean = [*COMMAND, "testbed", "clean", str(out)]
    said = subprocess.run(clean, capture_output=True, text=True, check=True).stderr
    assert said == f"{out}/.testbed.{process.pid}: removed\n"
    assert sorted(path.name for path in out.iterdir()) == [f".testbed.{os.getpid()}", ".testbed.notes"]


DEATHS = {
    "code": ("echo boom >&2; exit 7", "worker-2 ended with exit code 7: boom"),
    "signal": ("kill -9 $$", "worker-2 was ended by signal 9: it said nothing"),
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_dead_worker_rejects_the_run(tmp_path: Path, death: str) -> None:
    script, message = DEATHS[death]
    process = start(tmp_path, f'[ "$RANK" = 1 ] && {{ {script}; }}; sleep 1000')
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert message in said
    folder = tmp_path / "out" / "rejected" / NAME
    assert message in tomllib.loads((folder / "run.toml").read_text())["rejected"]
    assert (folder / "worker-1-tcpdump.pcap.gz").is_file()
    assert not processes(tmp_path)


@pytest.mark.parametrize("dies", ["at once", "later"])
def test_a_tcpdump_that_ends_fails_the_run_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    fake = tmp_path / "bin" / "tcpdump"
    fake.parent.mkdir()
    listens = "" if dies == "at once" else "echo listening on eth0 >&2;"
    fake.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo fake && exit\n{listens} echo no space >&2; exit 1\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    process = start(tmp_path, "exit 0")
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert f"{NAME}: not made: worker-1: tcpdump does not answer" in said
    assert "no space" in said
    assert "0 of 1 runs" in said
    assert not (tmp_path / "out" / "rejected").exists()
    assert not processes(tmp_path)


def test_an_agent_that_is_killed_fails_the_run_and_takes_its_command_along(tmp_path: Path) -> None:
    """As by the kernel when memory is short: nothing of tcpdump is left to be waited for."""
    trains = f'touch "{tmp_path}/begun-$RANK"; until [ -e "{tmp_path}/killed" ]; do sleep 0.05; done'
    process = start(tmp_path, trains)
    wait_until_trains(process, tmp_path)
    for path in processes(tmp_path):
        words = (path / "cmdline").read_bytes().split(b"\0")
        if b"programs.agent" in words and b"tcpdump" in words:
            os.kill(int(path.name), signal.SIGKILL)
    wait_until(lambda: not any(b"-w" in (path / "cmdline").read_bytes() for path in processes(tmp_path)))
    (tmp_path / "killed").touch()
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert f"{NAME}: not made: worker-1: tcpdump does not answer" in said
    assert not processes(tmp_path)


def test_a_run_that_does_not_end_is_rejected(tmp_path: Path) -> None:
    process = start(tmp_path, "sleep 1000", timeout_s=1)
    _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "no end after 1 s; give it fewer steps, or a larger timeout_s" in said
    assert not processes(tmp_path)
