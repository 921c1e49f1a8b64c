"""Background traffic: what is sent is what is asked for, is received, and is in the captures beside the training's."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_runs import toy_python

import ddnn_traces
from ddnn_traces import testbed
from ddnn_traces.errors import UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.testbed import matrix
from ddnn_traces.testbed.hosts import PROGRAMS
from ddnn_traces.testbed.programs.background import Flow, read_flows

LIMIT_S = 60
HEAD = "start_s,src,dst,bytes"


@contextlib.contextmanager
def program(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "programs.background", *arguments]
    with subprocess.Popen(
        command, cwd=PROGRAMS.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as it:
        try:
            yield it
        finally:
            it.kill()


def begun(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"


def counts(process: subprocess.Popen[str]) -> dict[str, Any]:
    """End a program, and return what it prints."""
    process.send_signal(signal.SIGTERM)
    said, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    return dict(json.loads(said))


def test_replayed_flows_arrive_whole(tmp_path: Path) -> None:
    with program("sink", "--address", "127.0.0.1") as sink:
        assert sink.stdout is not None
        port = int(sink.stdout.readline())
        flows = tmp_path / "flows.csv"
        flows.write_text(f"0.02,127.0.0.1,{port},3000000\n0,127.0.0.1,{port},1\n0.01,127.0.0.1,{port},70000\n")
        with program("replay", "--flows", str(flows)) as source:
            begun(source)
            sent = json.loads(source.communicate(timeout=LIMIT_S)[0])  # it ends after its last flow
        received = counts(sink)
    assert (sent["begun"], sent["finished"], sent["bytes"]) == (3, 3, 3_070_001)
    assert (received["tcp_bytes"], received["connections"], received["udp_bytes"]) == (3_070_001, 3, 0)


def test_a_tcp_source_says_what_arrived() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sink:
        port = str(sink.getsockname()[1])
        with program("constant", "--to", "127.0.0.1", "--port", port, "--mbit", "50", "--protocol", "tcp") as source:
            begun(source)
            connection = sink.accept()[0]
            connection.settimeout(LIMIT_S)
            received = 0
            while received < 50_000:
                received += len(connection.recv(50_000))
            source.send_signal(signal.SIGTERM)
            while data := connection.recv(50_000):
                received += len(data)
            connection.close()
            sent = json.loads(source.communicate(timeout=LIMIT_S)[0])
    assert sent["bytes"] == received >= 50_000
    assert sent["bytes"] <= 50e6 / 8 * sent["seconds"] + 1


def test_a_udp_source_sends_no_more_than_its_rate() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(LIMIT_S)
        with program("constant", "--to", "127.0.0.1", "--port", str(sink.getsockname()[1]), "--mbit", "5") as source:
            begun(source)
            sizes = {len(sink.recv(1 << 16)) for _ in range(20)}
            sent = counts(source)
    assert sizes == {1448}
    assert 20 * 1448 <= sent["bytes"] <= 5e6 / 8 * sent["seconds"] + 1


def test_a_source_without_a_sink_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with program("constant", "--to", "127.0.0.1", "--port", str(port), "--protocol", "tcp") as source:
        _, said = source.communicate(timeout=LIMIT_S)
    assert source.returncode == 1
    assert "Connection refused; is TCP and UDP let through" in said
    assert "Traceback" not in said


def test_a_flow_list_is_read() -> None:
    assert read_flows([HEAD, "0.5,worker-1,worker-2,1000"]) == [Flow(0.5, "worker-1", "worker-2", 1000)]


WRONG = {
    "start,src,dst,bytes\n": "line 1: the header is not start_s,src,dst,bytes",
    f"{HEAD}\n0,worker-1,worker-2\n": "line 2: 0,worker-1,worker-2 is not start_s,src,dst,bytes",
    f"{HEAD}\n0,worker-1,worker-2,ten\n": "line 2: 0,worker-1,worker-2,ten is not",
    f"{HEAD}\n-1,worker-1,worker-2,10\n": "line 2: a start of 0 or later",
    f"{HEAD}\nnan,worker-1,worker-2,10\n": "line 2: a start of 0 or later",
    f"{HEAD}\n0,worker-1,worker-1,10\n": "two hosts",
    f"{HEAD}\n0,worker-1,worker-2,0\n": "1 byte or more",
    f"{HEAD}\n0,worker-1,worker-9,10\n": "'worker-9' is no host of",
}
REPLAY = "[[runs]]\nprogram = 'star'\nworkers = 3\nbackground = { kind = 'replay', flows = 'flows.csv' }\n"


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_flow_list_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "flows.csv").write_text(text)
    (tmp_path / "matrix.toml").write_text(REPLAY)
    with pytest.raises(UsageError) as error:
        matrix.read(tmp_path / "matrix.toml")
    assert str(error.value).startswith(str(tmp_path / "flows.csv"))
    assert WRONG[text] in str(error.value)


def test_a_missing_flow_list_is_named(tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(REPLAY)
    with pytest.raises(UsageError, match=r"flows\.csv: No such file or directory; background\.flows is a flow list"):
        matrix.read(tmp_path / "matrix.toml")


MATRIX = """
[defaults]
program = "star"
workers = 3
steps = 3
measure = false
[[runs]]
background = { kind = "replay", flows = "flows.csv" }
[[runs]]
background = { rate_mbit = 20, src = "worker-3", dst = "worker-2", protocol = "tcp" }
"""


@pytest.mark.testbed
def test_background_traffic_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "flows.csv").write_text(f"{HEAD}\n0,worker-2,worker-3,5000\n0,worker-3,worker-2,200\n")
    (tmp_path / "matrix.toml").write_text(MATRIX)
    outcomes = testbed.run(tmp_path / "matrix.toml", tmp_path / "out", Messages(), {"torch": toy_python(tmp_path)})
    assert [outcome.outcome for outcome in outcomes] == ["made", "made"], outcomes
    assert [outcome.name.split("-", 7)[7] for outcome in outcomes] == ["n3-replay", "n3-background20tcp"]
    folders = [tmp_path / "out" / outcome.name for outcome in outcomes]
    replayed, constant = (tomllib.loads((f / "run.toml").read_text())["origin"]["background"] for f in folders)
    assert {label: sent["bytes"] for label, sent in replayed["sent"].items()} == {"worker-2": 5000, "worker-3": 200}
    assert {label: got["tcp_bytes"] for label, got in replayed["received"].items() if got["tcp_bytes"]} == {
        "worker-2": 200, "worker-3": 5000,
    }  # fmt: skip
    assert replayed["ports"] == {"worker-1": 9, "worker-2": 9, "worker-3": 9}
    with ddnn_traces.ingest(tmp_path / "out", tmp_path / "dataset") as dataset:
        rows = dataset.sql(
            "SELECT run_id, src_ip, dst_ip, sum(payload_bytes - retransmitted_bytes)::BIGINT FROM flows "
            "WHERE dst_port = 9 GROUP BY ALL ORDER BY ALL"
        ).rows()
    assert rows == [
        (outcomes[1].name, "10.10.0.3", "10.10.0.2", constant["sent"]["worker-3"]["bytes"]),
        (outcomes[0].name, "10.10.0.2", "10.10.0.3", 5000),
        (outcomes[0].name, "10.10.0.3", "10.10.0.2", 200),
    ]
