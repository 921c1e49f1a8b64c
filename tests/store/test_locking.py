"""One ingest at a time into a dataset."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

import pytest
from small_runs import A, B, C, contradictions, ring, write_captures
from tools import COMMAND

import ddnn_traces
from ddnn_traces.errors import BusyError
from ddnn_traces.store.locking import DatasetLock
from ddnn_traces.store.writer import DatasetWriter


def silent(_: str) -> None:
    """Say nothing."""


def test_second_says_who_has_it_and_waits(tmp_path: Path) -> None:
    first, second = DatasetLock(tmp_path / "out"), DatasetLock(tmp_path / "out")
    assert first.acquire(True, silent) is False
    said: list[str] = []
    reported, done = threading.Event(), threading.Event()

    def wait_for_it() -> None:
        assert second.acquire(True, lambda message: (said.append(message), reported.set())[0]) is True
        done.set()

    thread = threading.Thread(target=wait_for_it)
    thread.start()
    assert reported.wait(60)
    assert not done.is_set()
    first.release()
    assert done.wait(60)
    thread.join()
    assert said == [f"waiting for another ingest into {tmp_path / 'out'} (pid {os.getpid()})"]
    assert (tmp_path / ".out.lock").exists()  # its own: the first one's was removed
    second.release()
    assert list(tmp_path.iterdir()) == []


def test_no_wait(tmp_path: Path) -> None:
    first, second = DatasetLock(tmp_path / "out"), DatasetLock(tmp_path / "out")
    first.acquire(True, silent)
    said = rf"out: another ingest \(pid {os.getpid()}\) is writing it; try again later, or without --no-wait"
    with pytest.raises(BusyError, match=said):
        second.acquire(False, silent)
    second.release()
    assert (tmp_path / ".out.lock").exists()
    first.release()
    assert second.acquire(False, silent) is False
    second.release()


def test_datasets_do_not_hinder_each_other(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "one", wait=False), DatasetWriter(tmp_path / "other", wait=False):
        pass
    assert list(tmp_path.iterdir()) == []


def test_holder_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from ddnn_traces.store.locking import DatasetLock\n"
    program += "DatasetLock(Path(sys.argv[1])).acquire(True, print); print('held', flush=True); sys.stdin.read()"
    call = [sys.executable, "-c", program, str(tmp_path / "out")]
    env = os.environ | {"PYTHONPATH": str(Path(ddnn_traces.__file__).parents[1])}
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(BusyError, match=f"pid {holder.pid}"):
            DatasetLock(tmp_path / "out").acquire(False, silent)
        holder.send_signal(signal.SIGKILL)
    assert (tmp_path / ".out.lock").exists()
    lock = DatasetLock(tmp_path / "out")
    assert lock.acquire(False, silent) is False
    lock.release()
    assert list(tmp_path.iterdir()) == []


def test_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> NoReturn:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    messages: list[str] = []
    lock = DatasetLock(tmp_path / "out")
    lock.acquire(False, messages.append)
    assert not lock.is_held
    (message,) = messages
    assert message.startswith(f"{tmp_path} has no file locks")
    lock.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_two_commands_at_once(tmp_path: Path) -> None:
    """The first one waits at a pipe until the second has said that it waits."""
    write_captures(tmp_path / "two", {"b.pcap": ring(B, C)})
    os.mkfifo(tmp_path / "one.pcap")
    content = write_captures(tmp_path / "one", {"a.pcap": ring(A, B)}) / "a.pcap"
    start = {"cwd": tmp_path, "stderr": subprocess.PIPE}
    with subprocess.Popen([*COMMAND, "ingest", "one.pcap", "--out", "dataset"], **start) as first:  # type: ignore[call-overload]
        with (tmp_path / "one.pcap").open("wb") as pipe:  # opened by both: it holds the lock
            refused = subprocess.run([*COMMAND, "ingest", "two", "--out", "dataset", "--no-wait"], **start)  # type: ignore[call-overload]
            with subprocess.Popen([*COMMAND, "ingest", "two", "--out", "dataset"], **start) as second:  # type: ignore[call-overload]
                said = second.stderr.readline().decode()
                pipe.write(content.read_bytes())
                pipe.close()
                second.stderr.read()
        first.stderr.read()
    assert refused.returncode == 1
    assert f"another ingest (pid {first.pid}) is writing it" in refused.stderr.decode()
    assert said == f"waiting for another ingest into {tmp_path / 'dataset'} (pid {first.pid})\n"
    assert (first.returncode, second.returncode) == (0, 0)
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.run_ids == ["one", "two"]
        assert contradictions(dataset) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "one", "one.pcap", "two"]
