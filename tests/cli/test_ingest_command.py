"""`ingest` as a user meets it: streams, exit codes, partial data, standard input, a terminal's bar, interrupts."""

from __future__ import annotations

import contextlib
import gzip
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import packets as p
import pyarrow.parquet as pq
import pytest
from small_runs import A, B, C, counted, ring, sent, sent_by, write_captures
from tools import CODE, COMMAND, CTRL_C, RunCommand, lines

import ddnn_traces
from ddnn_traces.store import hashes

GOOD = p.pcap(packet.record for packet in ring(A, B))

CUT_GZIP = gzip.compress(GOOD, mtime=0)[:-12]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("bad.pcap", b"", "truncated: the file is empty"),
        ("bad.pcap", b"no capture but text, and more of it", "corrupt: not a capture (no pcap magic number)"),
        ("bad.pcap", GOOD[:-1], "truncated: last record cut short"),
        ("bad.pcap.gz", CUT_GZIP, "truncated: gzip is cut short"),
        ("bad.pcap", GOOD + b"\xff" * 400, "corrupt: no sane record header"),
        ("train_history.log", b"batch,0,1,2,3\n", "the first line is not 'Type,ID,Timestamp,Loss,Accuracy'"),
        ("train_history.log", b"", "the first line is not 'Type,ID,Timestamp,Loss,Accuracy'"),
    ],
)
@pytest.mark.long_after(2)
def test_partial_data(command: RunCommand, tmp_path: Path, name: str, content: bytes, said: str) -> None:
    write_captures(tmp_path / "run", {"good.pcap": ring(B, C)})
    (tmp_path / "run" / name).write_bytes(content)
    done = command("ingest", "run", "--out", "dataset")
    (warning,) = (line for line in lines(done.stderr) if line.startswith("warning: "))
    assert warning.startswith(f"warning: {tmp_path / 'run' / name}: {said}")
    assert warning.endswith(("copy it again, or leave it out", "; add that header"))
    assert lines(done.stderr)[-1] == "dataset: 1 run written"
    assert (done.returncode, done.stdout) == (int(name.startswith("bad")), b"")  # a log has no records
    assert command("ingest", "run", "--out", "dataset").returncode == done.returncode
    assert command("ingest", "run", "--out", "dataset", "--strict").returncode == 1
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        status = dict(dataset.sql("SELECT capture_id, status FROM captures").rows())
        assert status.pop("good.pcap") == "complete"
        assert list(status.values()) == ([said.split(":")[0]] if name.startswith("bad") else [])
        assert sent(ring(B, C)).items() <= counted(dataset).items()


def test_template_that_is_filled_in_later(command: RunCommand, tmp_path: Path) -> None:
    """A folder a host; the row is the run's, and no capture is read for it."""
    for host, name in ((A, "nodeA"), (B, "nodeB")):
        write_captures(tmp_path / "runs" / "x" / name, {"eth0.pcap": filter(sent_by(host), ring(A, B))})
    call = ["ingest", "runs", "--layout", "{run}/{host}/*.pcap"]
    done = command(*call, "--out", "dataset")
    assert [line.split(":")[0] for line in lines(done.stderr)[:2]] == ["x/nodeA/eth0.pcap", "x/nodeB/eth0.pcap"]
    done = command(*call, "--template")
    assert (done.returncode, done.stdout) == (0, b"")
    assert lines(done.stderr) == [f"{tmp_path}/runs/runs.csv: 1 run added; fill in what you know"]
    table = tmp_path / "runs" / "runs.csv"
    table.write_text(table.read_text().replace("x,", "x,torch", 1) + "gone,tf\n")
    done = command(*call, "--out", "dataset")
    assert (done.returncode, done.stdout) == (0, b"")
    assert lines(done.stderr) == [
        f"warning: {table}: 1 row without a folder of that name next to it: 'gone'; correct run_id, or remove such "
        "rows",
        "run x: its metadata or logs changed; its captures are not read again",
        "dataset: metadata of 1 run updated",
    ]
    assert command(*call, "--out", "dataset", "--strict").returncode == 1
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT framework FROM runs").item() == "torch"
        assert dataset.sql("SELECT host_ip, label, role FROM hosts ORDER BY ALL").rows() == [
            (A, "nodeA", None), (B, "nodeB", None),
        ]  # fmt: skip
        assert dataset.sql("SELECT capture_id FROM captures ORDER BY ALL").to_series().to_list() == [
            "nodeA/eth0.pcap", "nodeB/eth0.pcap",
        ]  # fmt: skip


def test_template_is_no_ingest(command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "good.pcap").write_bytes(GOOD)
    done = command("ingest", "good.pcap", "--template", "--out", "dataset")
    assert (done.returncode, lines(done.stderr)[-1]) == (
        2, "Error: --template ingests nothing; leave out --out, or --template",
    )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["good.pcap"]


def test_nothing_could_be_read(command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "bad.pcap").write_bytes(b"text")
    done = command("ingest", "bad.pcap", "--out", "dataset")
    assert done.returncode == 1
    assert lines(done.stderr)[-1] == "ddnn-traces: no run could be read from bad.pcap; dataset was not made"
    assert [path.name for path in tmp_path.iterdir()] == ["bad.pcap"]


def test_metadata_that_is_wrong(command: RunCommand, tmp_path: Path) -> None:
    write_captures(tmp_path / "run", {"good.pcap": ring(B, C)})
    (tmp_path / "run" / "run.toml").write_text("workers = 'many'")
    done = command("ingest", "run", "--out", "dataset")
    assert done.returncode == 1
    assert lines(done.stderr)[-1].startswith(
        f"ddnn-traces: {tmp_path / 'run' / 'run.toml'}: workers = 'many' is not of"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_ingest_talks_on_stderr_only(command: RunCommand, tmp_path: Path) -> None:
    name = "it's a run.pcap"
    (tmp_path / name).write_bytes(GOOD)
    done = command("ingest", name, "--out", "my dataset")
    assert (done.returncode, done.stdout) == (0, b"")
    summary, end = lines(done.stderr)
    rates = r"[\d,]+ packets/s, [\d.]+ MB/s"
    assert re.fullmatch(re.escape(f"{tmp_path.name}/{name}: ") + f"20 packets, 4 flows, {rates}, complete", summary)
    assert end == "my dataset: 1 run written"
    assert "it's a run" in command("runs", "my dataset").stdout.decode()
    again = command("ingest", name, "--out", "my dataset", "--force")
    assert lines(again.stderr)[-1] == "my dataset: 1 run written, 1 of them in place of an older one of that name"


@pytest.mark.parametrize(
    ("options", "column"),
    [([], "blake3"), (["--hash", "sha256"], "sha256"), (["--hash", "none"], None)],
)
@pytest.mark.long_after(1)
def test_hash_is_what_b3sum_and_sha256sum_print(
    command: RunCommand, tmp_path: Path, options: list[str], column: str | None
) -> None:
    (tmp_path / "a.pcap.gz").write_bytes(gzip.compress(GOOD))
    assert command("ingest", "a.pcap.gz", "--out", "dataset", *options).returncode == 0
    (row,) = pq.read_table(tmp_path / "dataset" / "captures", partitioning=None).to_pylist()
    known = {name: row[name] for name in hashes.ALGORITHMS if row[name]}
    assert known == (hashes.digests_of(tmp_path / "a.pcap.gz", column) if column else {})


def test_ingest_from_standard_input(process: RunCommand, tmp_path: Path) -> None:
    done = process("ingest", "-", "--out", "dataset", stdin=GOOD)
    assert (done.returncode, done.stdout) == (0, b"")
    assert lines(done.stderr)[0].startswith("standard input: 20 packets, 4 flows, ")
    again = process("ingest", "-", "--out", "dataset", "--run-id", "it", stdin=gzip.compress(GOOD, mtime=0))
    assert again.returncode == 0
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.run_ids == ["it", "stdin"]
        assert dataset.sql("SELECT DISTINCT capture_id, records, status FROM captures").rows() == [
            ("stdin", 20, "complete")
        ]
    assert "unchanged" not in process("ingest", "-", "--out", "dataset", stdin=GOOD).stderr.decode()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("ingest - - --out new", "standard input can be read only once; name '-' once"),
        ("ingest - --out new --filter tcp[13]=2", "filter 'tcp[13]=2': at character 1"),
        ("ingest - --out new --run-id=", "--run-id ''"),
    ],
)
@pytest.mark.long_after(1)
def test_wrong_calls_with_standard_input(process: RunCommand, tmp_path: Path, call: str, said: str) -> None:
    done = process(*call.split(), stdin=GOOD)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_bar_on_a_terminal(tmp_path: Path) -> None:
    """Bytes, packets a second and the file, and no line a file; the second time nothing is read."""
    write_captures(tmp_path / "run", {"a.pcap": ring(A, B), "b.pcap": ring(B, C)})
    for expected in (r"kB \S+ packets/s \S+ run/[ab]\.pcap", "run run: unchanged, not read again"):
        terminal, child = pty.openpty()
        call = [*COMMAND, "ingest", "run", "--out", "dataset"]
        with subprocess.Popen(
            call, cwd=tmp_path, stderr=child, env=os.environ | {"TERM": "xterm", "COLUMNS": "80"}
        ) as process:
            os.close(child)
            shown = b""
            with contextlib.suppress(OSError):  # how Linux says that the other end is closed
                while chunk := os.read(terminal, 4096):
                    shown += chunk
        os.close(terminal)
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
        assert process.returncode == 0
        assert re.search(expected, plain), plain
        assert ": 20 packets" not in plain


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("there_before", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.long_after(1)
def test_interrupted_ingest_changes_nothing(
    tmp_path: Path, number: signal.Signals, code: int, there_before: bool
) -> None:
    """The second file is a pipe: the ingest is at it when it has opened it, and goes on only after the signal."""
    folder = write_captures(tmp_path / "run", {"worker-1.pcap": ring(A, B)})
    out = tmp_path / "dataset"
    if there_before:
        ddnn_traces.ingest(folder, out).close()
    os.mkfifo(folder / "worker-2.pcap")
    before = sorted(tmp_path.rglob("*"))
    call = start_with_signals("ingest", *sorted(folder.iterdir()), "--out", out)
    with subprocess.Popen(call, stderr=subprocess.PIPE) as process, ended(process):
        assert process.stderr
        assert b"worker-1.pcap: 20 packets, 4 flows, " in process.stderr.readline()
        with (folder / "worker-2.pcap").open("wb"):
            process.send_signal(number)
        said = process.stderr.read().decode().strip()
    assert process.returncode == code
    assert said == ("ddnn-traces: interrupted; no half-written file is left" if code == 130 else "")
    assert sorted(tmp_path.rglob("*")) == before


@contextlib.contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever fails, the process does not wait for ever."""
    try:
        yield
    except BaseException:
        process.kill()
        raise


def start_with_signals(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", CTRL_C + CODE, *map(str, arguments)]
