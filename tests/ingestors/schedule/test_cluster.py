"""Ingest on a Dask cluster gives the dataset of one process, byte for byte, also when workers or scheduler are lost."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import pty
import random
import re
import shutil
import signal
import urllib.error
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask_cluster
import numpy as np
import packets as p
import pytest
from dask_cluster import started
from small_runs import (
    SAMPLED,
    A,
    B,
    C,
    hashes_of,
    in_sequence,
    passing,
    plain_and_compressed,
    ring,
    write_captures,
)
from tools import COMMAND, Notes, Once, reserved_port

from ddnn_traces.errors import ClusterError, StorageError, UsageError
from ddnn_traces.ingestors import end_of_run, pipeline
from ddnn_traces.ingestors.metadata import read_metadata
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.reconcile.log_clocks import LogClock
from ddnn_traces.ingestors.reconcile.run_tables import Found, RunFacts
from ddnn_traces.ingestors.run_description import describe
from ddnn_traces.ingestors.schedule import cluster as cluster_module
from ddnn_traces.ingestors.schedule.cluster import Cluster, Read, ReportedProgress
from ddnn_traces.ingestors.schedule.tasks import ReadTask, RunEnd, most_whole, read
from ddnn_traces.ingestors.sources import RunInput
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import parts
from ddnn_traces.pcap.capture_facts import ReadOptions
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset

pytestmark = pytest.mark.cluster

ROUNDS = 1000


class Said(Notes):
    """Notes that call a function with each progress."""

    def __init__(self, at: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._at = at

    def advance(self, size: int, packets: int) -> None:
        self._at()


@pytest.fixture(scope="module")
def captured(once: Once, sample: Path) -> Path:
    """A plain capture, and a run of compressed ones with logs. Not to be changed."""
    return once("cluster-runs", lambda path: plain_and_compressed(path, sample, ROUNDS))


@pytest.fixture
def runs(captured: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same; the plain capture has many parts."""
    monkeypatch.setattr(parts, "PART_BYTES", 1 << 13)
    return captured


@pytest.fixture(scope="module")
def expected(captured: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return of_one_thread(captured, tmp_path_factory.mktemp("expected") / "dataset")


def of_one_thread(runs: Path, out: Path) -> dict[str, str]:
    """The files of the dataset that one thread makes, in which no check finds anything."""
    pipeline.ingest([str(runs)], out, IngestOptions(jobs=1))
    with Dataset(out) as dataset:
        failed = {name: rows.to_pylist() for name, rows in checks.run_checks(dataset).items() if rows.num_rows}
    assert not failed
    return hashes_of(out)


@pytest.fixture(scope="session")
def address(once: Once) -> str:
    """Of a cluster of two workers, one for all test processes; tests/conftest.py ends it."""
    return str(json.loads(once(dask_cluster.SHARED, dask_cluster.start_shared).read_text())["address"])


def ingested(runs: Path, out: Path, scheduler: str, said: Said | None = None) -> dict[str, str]:
    pipeline.ingest([str(runs)], out, IngestOptions(scheduler=scheduler), said)
    return hashes_of(out)


def test_the_same_bytes(runs: Path, tmp_path: Path, expected: dict[str, str], address: str) -> None:
    """The large file, most of all bytes, is cut."""
    said = Said()
    assert ingested(runs, tmp_path / "out", address, said) == expected
    assert run_again(said) == 0
    assert tasks_of(said) > 20


def test_a_pcapng_is_cut(runs: Path, tmp_path: Path, address: str) -> None:
    folder = tmp_path / "pcapng"
    folder.mkdir()
    packets = in_sequence(ring(A, B, C, rounds=ROUNDS))
    (folder / "worker-1.pcapng").write_bytes(p.pcapng(packet.record for packet in packets))
    said = Said()
    assert ingested(folder, tmp_path / "out", address, said) == of_one_thread(folder, tmp_path / "expected")
    assert run_again(said) == 0
    assert tasks_of(said) > 20


def tasks_of(said: Said) -> int:
    """How many tasks there were, by the summary."""
    (found,) = re.findall(r"^cluster: (\d+) tasks? by", "\n".join(said.notes), re.M)
    return int(found)


# --- runs that a worker ends


@pytest.fixture
def whole(tmp_path: Path, sample: Path) -> Path:
    """Runs whose files are read as a whole, each with something to warn of, and one of which nothing can be read."""
    folder = tmp_path / "whole"
    for number in range(3):
        run = folder / f"run-{number}"
        run.mkdir(parents=True)
        for host in (A, B, C):
            file = p.pcap(packet.record for packet in ring(A, B, C, rounds=20 + number) if passing(host)(packet))
            (run / f"worker-{host[-1]}.pcap").write_bytes(file[: -10 * (host == B)])
    (folder / "nothing").mkdir()
    (folder / "nothing" / "worker-1.pcap").write_bytes(b"no capture")
    (folder / "sampled").symlink_to(sample / SAMPLED)
    return folder


def both(source: Path, out: Path, scheduler: str, said: Said | None = None, **options: Any) -> None:
    """Ingest by one thread and on a cluster: the same bytes and the same warnings in the same order."""
    one, said = Messages(), said or Said()
    pipeline.ingest([str(source)], out / "one", IngestOptions(jobs=1, **options), one)
    assert one.warnings
    pipeline.ingest([str(source)], out / "other", IngestOptions(scheduler=scheduler, **options), said)
    assert said.warnings == one.warnings
    assert hashes_of(out / "other") == hashes_of(out / "one")


def made_here(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs whose tables this process makes from now on."""
    made: list[str] = []
    write = pipeline.write_tables

    def noted(facts: RunFacts, *others: Any) -> Found:
        made.append(facts.run_id)
        return write(facts, *others)

    monkeypatch.setattr(pipeline, "write_tables", noted)
    return made


def test_a_worker_makes_the_tables(whole: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here are only facts without samples, and the tables' files."""
    made = made_here(monkeypatch)
    seen: list[tuple[bool, int]] = []
    write_run = pipeline._write_run

    def looked_at(facts: RunFacts, *others: Any) -> Found:
        seen.extend((bool(file.cells or file.trains), file.samples.num_rows) for file in facts.files)
        return write_run(facts, *others)

    monkeypatch.setattr(pipeline, "_write_run", looked_at)
    both(whole, tmp_path, address)
    one, other = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    assert any(cells and samples for cells, samples in one)
    assert set(other) == {(False, 0)}
    assert sorted(made) == ["run-0", "run-1", "run-2", "sampled"]  # by the one thread


@pytest.mark.parametrize("why", ["large", "packets"])
def test_what_a_worker_cannot_hold_comes_here(
    why: str, whole: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "_MOST_HELD", 1 << 30 if why == "packets" else 1000)
    made = made_here(monkeypatch)
    both(whole / "run-0", tmp_path, address, packets=why == "packets")
    assert made == ["run-0"] * 2


def test_other_steps_are_read_again(tmp_path: Path, sample: Path, address: str) -> None:
    """The logs are a second slow: a worker tells so, and the tables are those of the second reading."""
    folder = tmp_path / "late"
    shutil.copytree(sample / SAMPLED, folder)
    (folder / "worker-9.pcap").write_bytes(b"no capture")  # to warn of
    for log in folder.glob("train_history*.log"):
        head, *rows = log.read_text().splitlines()
        late = [re.sub(r",(\d{10})\.", lambda found: f",{int(found[1]) - 3600}.", row) for row in rows]
        log.write_text("\n".join([head, *late, ""]))
    said = Said()
    both(folder, tmp_path, address, said, clock_offset="auto")
    assert any("added to the logs' times, reading again" in line for line in said.notes)


@pytest.mark.parametrize("lost", ["worker", "scheduler"])
def test_a_loss_between_reading_and_writing(
    lost: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all of a run is read, its worker dies with what it holds, or the scheduler too: its files are read again."""
    end, ended = Cluster._end, []
    with started(tmp_path, workers=1) as running:

        def kill_before(self: Cluster, run: RunEnd, read: Read) -> Any:
            if len(run.reads) == run.files - 1 and not ended:
                ended.append(run)
                if lost == "worker":
                    os.kill(wait_for(running.worker_pids)[0], signal.SIGKILL)
                else:
                    start_again(running)
            return end(self, run, read)

        monkeypatch.setattr(Cluster, "_end", kill_before)
        said = Said()
        both(whole / "run-0", tmp_path, running.address, said)
    assert ended
    assert run_again(said) > 0


def test_a_large_description_is_sent_without_a_warning(address: str) -> None:
    """Logs of a million steps are above the size from which Dask warns of a task."""
    with warnings.catch_warnings(), Cluster(address, 1, 1, Messages()) as cluster:
        warnings.simplefilter("error", UserWarning)
        assert cluster.submit(len, bytes(11_000_000)).result() == 11_000_000


def test_a_full_disk_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is full is where it keeps temporary files."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(end_of_run, "write_tables", full)
    folder = write_captures(tmp_path / "run", {"worker-1.pcap": ring(A, B)})
    run = RunInput("run", folder, (folder / "worker-1.pcap",))
    task = ReadTask(*run.captures, "", "numba", ReadOptions(10**6, np.empty(0, np.int64), tmp_path / "cells"))
    description = describe(run, read_metadata(folder, None), None)
    facts = RunFacts(description, (), 10**6, 200_000, "", description.packet_needs, LogClock(), ())
    with pytest.raises(StorageError, match=r"no space to write \(No space left on device\); out holds .*; set TMPDIR"):
        end_of_run.end_on_worker(facts, IngestOptions(), "out", [(read(task), {})])


def test_files_that_are_not_cut() -> None:
    """With a hash, what is more than a worker's share is cut; without, what is more than a tenth; nothing for one."""
    assert most_whole(1000, 4, "blake3") == 250
    assert most_whole(1000, 4, "none") == pytest.approx(25)
    assert most_whole(1000, 1, "blake3") == most_whole(1000, 1, "none") == math.inf


def test_progress_of_whole_files(runs: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker tells of it while it reads, at first after a block. In the end all bytes have been shown, and once."""
    reported: set[int] = set()
    shown: list[int] = []
    take = Cluster._take_report

    def take_first(self: Cluster, event: tuple[float, Any]) -> None:
        reported.add(event[1][0])
        assert event[1][1] > 0
        take(self, event)

    class Shown(Said):
        def advance(self, size: int, packets: int) -> None:
            shown.append(size)

    monkeypatch.setattr(Cluster, "_take_report", take_first)
    folder = tmp_path / "plain"
    folder.mkdir()
    for name in ("worker-1.pcap", "worker-2.pcap", "worker-3.pcap"):  # each is less than a worker's share
        (folder / name).write_bytes((runs / "large" / "worker-1.pcap").read_bytes())
    said = Shown()
    assert ingested(folder, tmp_path / "out", address, said) == of_one_thread(folder, tmp_path / "expected")
    assert len(reported) == tasks_of(said) == 3
    assert sum(shown) == sum(path.stat().st_size for path in folder.iterdir())


def test_progress_does_not_go_back() -> None:
    """A file that is read again after the loss of a worker begins at 0."""
    shown: list[tuple[int, int]] = []
    reported = ReportedProgress(lambda *more: shown.append(more))
    for reported.latest in [(10, 1), (30, 2), (5, 0), (30, 2), (40, 5)]:
        reported.show()
    assert shown == [(10, 1), (20, 1), (0, 0), (0, 0), (10, 3)]


def test_processes_of_this_machine(runs: Path, tmp_path: Path, expected: dict[str, str]) -> None:
    assert ingested(runs, tmp_path / "out", "local:2") == expected


def test_nobody_else_uses_the_processes_of_this_machine() -> None:
    """Whoever reaches Dask's ports may run code there: a client without the certificate of this run does not."""
    from distributed import Client, Security

    with Cluster("local:1", 1, 1, Messages()) as cluster:
        addresses = [cluster._here.scheduler_address, *cluster._client.scheduler_info()["workers"]]
        assert len(addresses) == 2
        assert {address.partition("://")[0] for address in addresses} == {"tls"}
        tcp = addresses[0].replace("tls://", "tcp://")
        for address, security in ((tcp, None), (addresses[0], Security.temporary())):
            with pytest.raises((OSError, TimeoutError)):
                Client(address, security=security, timeout=2, set_as_default=False)
        assert cluster._client.submit(sum, [1, 2]).result() == 3
        of_workers = cluster._client.scheduler_info()["workers"].values()
        ports = [cluster._here.scheduler.http_server.port, *(worker["services"]["dashboard"] for worker in of_workers)]
        for port in ports:  # of HTTP, which asks for no certificate
            for page in ("/status", "/info/main/workers.html", "/json/identity.json", "/metrics"):
                with pytest.raises(urllib.error.HTTPError, match="404"):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=60)


def test_twenty_workers_are_killed(runs: Path, tmp_path: Path, expected: dict[str, str]) -> None:
    """At 20 random moments of the ingest, told by its progress, a worker dies; its nanny starts another one."""
    chance = random.Random(21)
    size = (runs / "large" / "worker-1.pcap").stat().st_size
    moments = sorted(chance.sample(range(size // (parts.PARTS_OF_A_TASK * parts.PART_BYTES)), 20))
    seen = killed = 0
    with started(tmp_path, workers=2) as cluster:

        def kill() -> None:
            nonlocal seen, killed
            seen += 1
            while killed < len(moments) and moments[killed] < seen:
                pids = wait_for(cluster.worker_pids)
                with contextlib.suppress(ProcessLookupError):  # one that has just gone by itself: another one, then
                    os.kill(chance.choice(pids), signal.SIGKILL)
                    killed += 1

        said = Said(kill)
        assert ingested(runs, tmp_path / "out", cluster.address, said) == expected
    assert killed == 20
    assert run_again(said) > 0


def run_again(said: Said) -> int:
    """How many tasks were, by the summary."""
    (found,) = re.findall(r"^cluster: .* (\d+) tasks? run again", "\n".join(said.notes), re.M)
    return int(found)


def wait_for(pids: Callable[[], list[int]]) -> list[int]:
    while not (found := pids()):
        pass
    return found


def test_the_scheduler_is_restarted(runs: Path, tmp_path: Path, expected: dict[str, str]) -> None:
    with started(tmp_path, workers=2) as cluster:
        seen = 0

        def restart() -> None:
            nonlocal seen
            seen += 1
            if seen == 10:
                start_again(cluster)

        said = Said(restart)
        assert ingested(runs, tmp_path / "out", cluster.address, said) == expected
    assert any("the scheduler is gone" in line for line in said.notes)
    assert run_again(said) > 0


def start_again(cluster: dask_cluster.DaskCluster) -> None:
    """End all processes of a cluster, and start a scheduler at the same port, and a worker."""
    for process in cluster.processes:
        cluster.end(process)
    cluster.start_scheduler()
    cluster.start_worker()


def test_a_worker_of_another_version(runs: Path, tmp_path: Path) -> None:
    about = tmp_path / "other" / "ddnn_traces-9.9.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ddnn-traces\nVersion: 9.9\n")
    assert "has ddnn-traces 9.9, this is" in refused_by_worker(runs, tmp_path, about.parent)


def test_a_worker_without_the_package(runs: Path, tmp_path: Path) -> None:
    code = python_path(
        tmp_path,
        "import importlib.metadata as m\nfound = m.version\n"
        "def version(name):\n"
        "    if name == 'ddnn-traces':\n        raise m.PackageNotFoundError(name)\n    return found(name)\n"
        "m.version = version\n",
    )
    assert "has no ddnn-traces; install it there" in refused_by_worker(runs, tmp_path, code)


def test_a_worker_that_cannot_import_the_package(runs: Path, tmp_path: Path) -> None:
    """Its package is listed as installed, and broken."""
    code = python_path(
        tmp_path,
        "import sys\nclass Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'ddnn_traces':\n            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n",
    )
    assert "has no ddnn-traces; install it there" in refused_by_worker(runs, tmp_path, code)


def python_path(folder: Path, code: str) -> Path:
    """A folder whose code a Python runs first that has it in its path."""
    path = folder / "other"
    path.mkdir()
    (path / "sitecustomize.py").write_text(code)
    return path


def refused_by_worker(runs: Path, tmp_path: Path, code: Path) -> str:
    """What ingest says about a cluster whose worker has this folder in front of its Python path."""
    with started(tmp_path, workers=0) as cluster:
        cluster.start_worker({"PYTHONPATH": str(code)})
        with pytest.raises(ClusterError) as refused:
            pipeline.ingest([str(runs)], tmp_path / "out", IngestOptions(scheduler=cluster.address))
    assert not (tmp_path / "out").exists()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_task_of_another_version_ends_the_ingest(address: str) -> None:
    """A worker that joins later is not asked for its version: each task tells it."""
    from dask_cluster import client_of

    from ddnn_traces.ingestors.schedule.cluster import run

    with client_of(address) as client, pytest.raises(ClusterError, match=r"has ddnn-traces .*, this is"):
        client.submit(run, "9.9", len, ((),)).result()


def test_no_scheduler(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddnn_traces.ingestors.schedule.cluster._CONNECT_S", 1.0)
    with reserved_port() as port, pytest.raises(ClusterError, match="no Dask scheduler answers there; start one"):
        pipeline.ingest([str(runs)], tmp_path / "out", IngestOptions(scheduler=f"tcp://127.0.0.1:{port}"))


def test_an_unknown_host(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="there is no such host; correct the address"):
        pipeline.ingest([str(runs)], tmp_path / "out", IngestOptions(scheduler="tcp://nowhere.invalid:8786"))


@pytest.mark.parametrize(
    "address", ["", "local:0", "local:two", "nonsense://host:1", "127.0.0.1", "tcp://host", "tcp://host:99999"]
)
def test_wrong_addresses(runs: Path, tmp_path: Path, address: str) -> None:
    with pytest.raises(UsageError, match=r"like tcp://HOST:8786, or local:N"):
        pipeline.ingest([str(runs)], tmp_path / "out", IngestOptions(scheduler=address))


def test_tls_without_certificates(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs certificates; name them in Dask's configuration"):
        pipeline.ingest([str(runs)], tmp_path / "out", IngestOptions(scheduler="tls://127.0.0.1:8786"))


def test_ctrl_c_on_a_terminal(tmp_path: Path, sample: Path) -> None:
    """All processes of the terminal get it; one line is said."""
    pid, terminal = pty.fork()
    if not pid:
        arguments = ["ingest", str(sample), "--out", str(tmp_path / "out"), "--scheduler", "local:2"]
        os.execv(COMMAND[0], [*COMMAND, *arguments])
    said = b""
    with contextlib.suppress(OSError):  # at its end
        while block := os.read(terminal, 1 << 16):
            if b"MB" in block and b"MB" not in said:  # the first bar
                os.write(terminal, b"\x03")
            said += block
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert b"ddnn-traces: interrupted" in said
    assert b"Traceback" not in said


def test_no_worker(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddnn_traces.ingestors.schedule.cluster._CONNECT_S", 1.0)
    with started(tmp_path, workers=0) as cluster, pytest.raises(ClusterError, match="has no worker; start some"):
        pipeline.ingest([str(runs)], tmp_path / "out", IngestOptions(scheduler=cluster.address))


def test_a_file_that_only_this_machine_has(runs: Path, tmp_path: Path, address: str) -> None:
    """The workers read a file, not what this process has of it."""
    folder = runs / "sampled"
    with Cluster(address, 1, 0, Messages()) as scheduler:
        task = next(iter(_tasks(folder, tmp_path)))
        with pytest.raises(ClusterError, match="a worker, does not see this file; put it on a file system"):
            scheduler._read(task, lambda *_: None)


def _tasks(folder: Path, scratch: Path) -> Iterator[Any]:
    import numpy as np

    from ddnn_traces.ingestors.schedule.tasks import ReadTask
    from ddnn_traces.pcap.capture_facts import ReadOptions

    options = ReadOptions(10**6, np.empty(0, np.int64), scratch / "cells")
    yield ReadTask(folder / "not-there.pcap.gz", "not-there", "pyshark", options)
