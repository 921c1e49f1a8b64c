"""The command line as a user meets it: a process with arguments, two streams and an exit code.

The fixture `command` asserts for every call that no traceback came out.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import gc
import gzip
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import packets as p
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from datasets import write_dataset
from small_runs import BEGIN_NS, A, B, C, counted, ring, sent, sent_by, write_captures, write_log
from tools import CODE, COMMAND, RunCommand

import ddnn_traces
from ddnn_traces.cli import cli
from ddnn_traces.errors import QueryError
from ddnn_traces.query import formats, missing
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import checksums, hashes, schema
from ddnn_traces.store.writer import partition

GOOD = p.pcap(packet.record for packet in ring(A, B))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """A dataset of one run. Not to be changed."""
    top = tmp_path_factory.mktemp("small")
    with ddnn_traces.ingest(write_captures(top / "run", {"a.pcap": ring(A, B, C)}), top / "dataset") as dataset:
        yield dataset


def lines(stream: bytes) -> list[str]:
    return stream.decode().splitlines()


# --- help


@pytest.mark.parametrize("name", ["", *cli.commands])
def test_help(command: RunCommand, name: str) -> None:
    done = command(*filter(None, [name]), "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Usage:" in done.stdout.decode()
    reported = cli.commands[name].help if name else cli.help
    assert reported
    assert reported.split("\n")[0].split()[:5] == done.stdout.decode().split("\n\n")[1].split()[:5]


def test_version(command: RunCommand) -> None:
    assert command("--version").stdout.decode() == f"ddnn-traces, version {ddnn_traces.__version__}\n"


# --- wrong calls: exit code 2 and one line with what, which and what next


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("ingest nowhere.pcap --out new", "nowhere.pcap: no such file or folder; check the path"),
        ("ingest empty --out new", "/empty: no captures in this folder; name the folder that holds .pcap files"),
        ("ingest good.pcap --out good.pcap", "/good.pcap: exists and is not a ddnn_traces dataset"),
        ("ingest good.pcap --out full", "/full: exists and is not a ddnn_traces dataset"),
        ("ingest good.pcap --out good.pcap/deep", "/good.pcap/deep: cannot be written"),
        ("ingest good.pcap --out new --window-ms nan", "a window of nan ms"),
        (
            "ingest good.pcap --out new --layout *.pcap",
            "--layout '*.pcap': neither {run} nor {host} is in it; write it",
        ),
        ("ingest good.pcap --out new --layout {run}/x", "--layout {run}/x fits no capture, such as "),
        ("ingest nowhere --template", "nowhere: no such file or folder; check the path"),
        ("runs nowhere", "nowhere: no such dataset; check the path, or make one with 'ddnn-traces ingest'"),
        ("runs full", "full: not a ddnn_traces dataset (no readable dataset.json); make one with 'ddnn-traces ingest'"),
        ("check good.pcap", "good.pcap: no such dataset"),
        ("query DATASET ring_ordr", "no query named ring_ordr; the nearest are ring_order, "),
        ("query DATASET --describe xyzzy", "no query named xyzzy; without a name all are listed"),
        ("query DATASET pair_throughput --param window=3", "has no parameter window; did you mean window_ms?"),
        ("query DATASET pair_throughput --param window_ms=soon", "parameter window_ms = 'soon' is not a DOUBLE"),
        ("query DATASET pair_throughput --param window_ms", "--param window_ms: write it as --param window_ms=VALUE"),
        ("query DATASET pair_throughput --by model", "query pair_throughput does not pool runs; those that do: "),
        ("query DATASET total_throughput --by model,colour", "pool_by has no setting colour; it has backend, "),
        ("describe --table flow", "no table named flow; there are runs, hosts, "),
    ],
)
def test_wrong_call(command: RunCommand, tmp_path: Path, small: Dataset, call: str, said: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "good.pcap").write_bytes(GOOD)
    done = command(*(str(small.path) if word == "DATASET" else word for word in call.split()))
    (line,) = lines(done.stderr)
    assert line.startswith("ddnn-traces: ")
    assert said in line
    assert (done.returncode, done.stdout) == (2, b"")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full", "good.pcap"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("nonsense", "No such command 'nonsense'"), ("ingest", "Missing argument 'SOURCES...'"),
        ("ingest x", "Missing option '--out'"), ("runs x --format xml", "'xml' is not one of"),
        ("runs x --limit -1", "-1 is not in the range"), ("ingest x --out y --engine steam", "'steam' is not one of"),
        ("ingest x --out=", "--out '' names no dataset"), ("", "Usage:"),
        ("ingest x --out y --scheduler local:2 --jobs 2", "leave it out with --scheduler"),
    ],
)  # fmt: skip
def test_arguments_that_are_none(command: RunCommand, call: str, said: str) -> None:
    done = command(*call.split())
    assert said in done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")


def test_sql_that_is_none(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, "SELEC 1")
    assert (done.returncode, done.stdout) == (2, b"")
    assert lines(done.stderr)[0] == 'ddnn-traces: Parser Error: syntax error at or near "SELEC"'


def test_dataset_that_lost_a_table(command: RunCommand, tmp_path: Path) -> None:
    write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset").close()
    (partition(tmp_path / "dataset", "flows", "run") / "part-0.parquet").unlink()
    done = command("runs", "dataset")
    (line,) = lines(done.stderr)
    missing = "run run: flows/run_id=run/part-0.parquet: missing"
    assert line.startswith(f"ddnn-traces: dataset: {missing}; ingest that run again")
    assert done.returncode == 2


# --- partial data: exit code 1, one line that names the file, and what could be read is kept

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
    assert warning.endswith(("; copy it again, or leave it out", "; add that header"))
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


@pytest.mark.long
def test_check_finds_rows_that_were_lost(command: RunCommand, tmp_path: Path) -> None:
    write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset").close()
    assert command("check", "dataset").returncode == 0
    path = partition(tmp_path / "dataset", "flows", "run") / "part-0.parquet"
    pq.write_table(pq.read_table(path, partitioning=None).slice(1), path)
    (tmp_path / "dataset" / checksums.FILE).unlink()  # by which the file is found before its rows
    done = command("check", "dataset")
    assert done.returncode == 1
    assert "flows" in done.stdout.decode()
    assert "offending row" in done.stderr.decode()


@pytest.mark.long
def test_check_with_nothing_to_examine_is_not_ok(command: RunCommand, tmp_path: Path) -> None:
    """One host's capture without a log, then a run that is declared and logged at both ends."""
    write_captures(tmp_path / "one", {"worker-1.pcap": filter(sent_by(A), ring(A, B))})
    ddnn_traces.ingest(tmp_path / "one", tmp_path / "dataset").close()
    alone = dict(line.split(": ", 1) for line in lines(command("check", "dataset").stderr))
    for name in ("conservation", "host_clock", "log_clock", "missing_worker", "steps_overlap", "both_vantages"):
        assert alone[name].startswith("not checked: "), name
    assert {name for name, outcome in alone.items() if outcome == "ok"} == {
        "capture_loss", "flow_parts", "flow_references", "flows_match_ledger", "ledger", "negative_durations",
        "orphan_keys", "stored_files",
    }  # fmt: skip
    write_captures(tmp_path / "two", {f"worker-{n}.pcap": ring(A, B) for n in (1, 2)})
    write_log(tmp_path / "two", "worker-1", [BEGIN_NS, BEGIN_NS + 50_000])
    (tmp_path / "two" / "run.toml").write_text("workers = 2")
    ddnn_traces.ingest(tmp_path / "two", tmp_path / "dataset").close()
    both = dict(line.split(": ", 1) for line in lines(command("check", "dataset").stderr))
    assert both["missing_worker"].startswith("ok in 1 of 2 runs; not checked: ")
    assert both["ledger"] == "ok"


@pytest.mark.long
def test_check_names_truncated_captures(command: RunCommand, tmp_path: Path) -> None:
    """The dataset has what could be read of them: no failure."""
    for name, content in (("one", GOOD), ("two", GOOD[:-1])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.pcap").write_bytes(content)
    command("ingest", "one", "two", "--out", "dataset")
    done = command("check", "dataset")
    assert done.returncode == 0
    assert lines(done.stderr)[-1] == (
        "partial_captures: 1 capture file read only in part (two/a.pcap truncated); "
        "'ddnn-traces query DATASET partial_captures' says why"
    )
    command("ingest", "one", "--out", "sound")
    assert b"partial_captures" not in command("check", "sound").stderr


# --- good calls


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


def test_describe_names_every_column(command: RunCommand, small: Dataset) -> None:
    done = command("describe", small.path)
    assert (done.returncode, done.stderr) == (0, b"")
    sections = dict(section.split("\n", 1) for section in ("\n" + done.stdout.decode()).split("\n## ")[1:])
    assert tuple(sections) == schema.TABLES
    for table in schema.tables():
        named = [
            line.split(" | ")[0].removeprefix("| ") for line in lines(sections[table.name].encode()) if "|" in line
        ]
        assert named[2:] == [column.name for column in table.columns]
        rows = small.sql(f"SELECT count(*) FROM {table.name}").item()
        assert f" {rows:,} row{'' if rows == 1 else 's'}." in sections[table.name]


def test_describe_one_table_without_a_dataset(command: RunCommand) -> None:
    reported = command("describe", "--table", "hosts").stdout.decode()
    assert reported.startswith("## hosts\n\nOne row is a host in a run. Key: run_id, host_ip.\n")
    assert "## runs" not in reported


def test_query_lists_the_queries_by_paper(command: RunCommand, small: Dataset) -> None:
    from ddnn_traces.query.catalogue import catalogue

    listed = lines(command("query", small.path).stdout)
    headings = [line for line in listed if line and not line.startswith(" ")]
    assert [heading.split()[0] for heading in headings][:2] == ["Zerwas", "Farhat"]
    group = ""
    found = {}
    for line in listed:
        if line in headings:
            group = line.split()[0]
        elif line:
            name, question = line.split(maxsplit=1)
            assert question == catalogue()[name].question
            found[name] = group
    assert found.keys() == catalogue().keys()
    assert found["traffic_matrix"] == "Zerwas"
    assert found["host_names"] == "Zerwas"
    assert found["ring_comparison"] == "Farhat"
    assert found["ledger_sums"] == headings[-1].split()[0]


def test_query_describes_a_query(command: RunCommand, small: Dataset) -> None:
    from ddnn_traces.query.catalogue import catalogue

    said = command("query", small.path, "flow_counts", "--describe").stdout.decode()
    head, sql = said.split("\n\n-- ", 1)
    assert [line.split(maxsplit=1) for line in head.splitlines() if line][:4] == [
        ["flow_counts:", catalogue()["flow_counts"].question],
        ["row", "a run"],
        ["inputs", ", ".join(catalogue()["flow_counts"].inputs)],
        ["figure", "zerwas fig. 5"],
    ]
    for param in catalogue()["flow_counts"].params:
        assert f"{param.name} {param.type} = {param.default}; {param.meaning}" in head
    for column in catalogue()["flow_counts"].columns:
        assert f"{column.name}: {column.meaning}" in head
    assert sql.rstrip().endswith("ORDER BY run_id")


def read_back(output_format: str, data: bytes) -> list[dict[str, object]]:
    if output_format == "csv":
        return [dict(row) for row in csv.DictReader(io.StringIO(data.decode()))]
    if output_format == "json":
        return list(json.loads(data))
    if output_format == "parquet":
        return list(pq.read_table(io.BytesIO(data)).to_pylist())
    return list(pa.ipc.open_stream(data).read_all().to_pylist())


@pytest.mark.parametrize("output_format", ["csv", "json", "parquet", "arrow"])
def test_formats_read_back_equal(command: RunCommand, tmp_path: Path, small: Dataset, output_format: str) -> None:
    expected = small.query("traffic_matrix").to_dicts()
    assert len(expected) == 6
    done = command("query", small.path, "traffic_matrix", "--format", output_format)
    assert (done.returncode, done.stderr) == (0, b"")
    found = read_back(output_format, done.stdout)
    if output_format == "csv":
        expected = [{name: str(value) for name, value in row.items()} for row in expected]
    assert found == expected
    command("query", small.path, "traffic_matrix", "--format", output_format, "--out", "rows")
    assert (tmp_path / "rows").read_bytes() == done.stdout


ODD_VALUES = """SELECT [1, NULL] AS list, {'a': 'nan'::DOUBLE} AS struct, 'inf'::DOUBLE AS inf, 12::HUGEINT AS huge,
    1.50::DECIMAL(5, 2) AS dec, DATE '2020-02-29' AS day, NULL AS nothing, 'a,"b' AS text, true AS yes"""


def test_odd_values_as_json(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, ODD_VALUES, "--format", "json")
    assert json.loads(done.stdout, parse_constant=pytest.fail) == [
        {
            "list": [1, None], "struct": {"a": None}, "inf": None, "huge": 12, "dec": 1.5, "day": "2020-02-29",
            "nothing": None, "text": 'a,"b', "yes": True,
        }
    ]  # fmt: skip


def test_odd_values_as_csv(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, ODD_VALUES, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(done.stdout.decode()))
    assert (row["list"], row["struct"], row["dec"], row["text"]) == ("[1, null]", '{"a": null}', "1.50", 'a,"b')


def test_table_tells_what_it_leaves_out(command: RunCommand, small: Dataset) -> None:
    done = command("query", small.path, "traffic_matrix", "--limit", "4")
    assert lines(done.stderr) == ["2 more rows: --limit 0, or another --format"]
    assert done.stdout.decode().count(" run ") == 4
    assert command("query", small.path, "traffic_matrix", "--limit", "0").stdout.decode().count(" run ") == 6


def test_sql_from_standard_input(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, "--format", "csv", stdin=b"SELECT count(*) AS flows FROM flows;")
    assert done.stdout == b'"flows"\n6\n'


def test_reader_that_has_had_enough(small: Dataset) -> None:
    call = [*COMMAND, "sql", str(small.path), "FROM range(1000000)", "--format", "csv"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b'"range"\n'
        process.stdout.close()
        assert process.stderr.read() == b""


# --- interrupts


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
    """The command with Ctrl-C switched on: a parent in the background may have switched it off."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + CODE
    return [sys.executable, "-c", code, *map(str, arguments)]


INTERRUPTED_QUERY = """
import signal, sys
from ddnn_traces.cli import main
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.errors import QueryError
ask = Dataset.sql_arrow
def ask_and_be_interrupted(*arguments):
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)  # again and again: one may come where Python cannot raise it
    try:
        return ask(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
Dataset.sql_arrow = ask_and_be_interrupted
main()
"""


#: One signal, which the thread of the query receives: it does not wake up the main thread.
INTERRUPTED_THREAD = """
import signal, sys, threading
from ddnn_traces.cli import main
from ddnn_traces.query.dataset import Dataset
signal.signal(signal.SIGALRM, signal.default_int_handler)
run = Dataset._run
def be_interrupted_and_run(*arguments):
    caller = threading.main_thread().ident
    while sys._current_frames()[caller].f_code is not threading.Condition.wait.__code__:
        pass
    signal.pthread_kill(threading.get_ident(), signal.SIGALRM)
    return run(*arguments)
Dataset._run = be_interrupted_and_run
main()
"""


@pytest.mark.parametrize("program", [INTERRUPTED_QUERY, INTERRUPTED_THREAD])
def test_interrupted_query(program: str, small: Dataset) -> None:
    """A query that would take days: it ends by the interrupt or not at all, whenever that comes."""
    endless = "SELECT count(*) FROM range(1000000000000000) WHERE range % 7 = 3"
    call = [sys.executable, "-c", program, "sql", str(small.path), endless]
    done = subprocess.run(call, capture_output=True)
    assert (done.returncode, done.stdout) == (130, b"")
    assert done.stderr.strip() == b"ddnn-traces: interrupted; no half-written file is left"


def test_no_progress_bar_among_the_data(command: RunCommand, small: Dataset) -> None:
    """DuckDB draws one on stdout for long queries where it takes Python for interactive, as with `python -c` here."""
    done = command("sql", small.path, "SELECT current_setting('enable_progress_bar') AS bar", "--format", "csv")
    assert done.stdout == b'"bar"\nfalse\n'


@pytest.mark.parametrize("asked", ["SELECT 1 AS a, 2 AS a, 'x' AS b, 3 AS a", "SELECT run_id, * FROM hosts LIMIT 1"])
def test_two_columns_of_one_name(command: RunCommand, small: Dataset, asked: str) -> None:
    done = command("sql", small.path, asked)
    assert (done.returncode, done.stderr) == (0, b"")
    head, _, row = [line for line in done.stdout.decode().splitlines() if line.strip()]
    if "AS b" in asked:
        assert (head.split(), row.split()) == (["a", "a", "b", "a"], ["1", "2", "x", "3"])
    assert command("sql", small.path, asked, "--format", "csv").returncode == 0
    refused = command("sql", small.path, asked, "--format", "json")
    assert refused.returncode == 2
    assert b"json cannot hold two columns named" in refused.stderr
    assert b"rename one with AS" in refused.stderr


def test_a_dataset_is_closed_though_a_thread_asks_it(small: Dataset) -> None:
    """As after a Ctrl-C that came before the thread of a query was known."""
    ended = []

    def ask() -> None:
        with pytest.raises(QueryError, match="Interrupted"):
            dataset.sql(
                "SELECT count(*) FROM range(1000000000000000) WHERE range % 7 = 3 AND (range > 2 OR begun(range))"
            )
        ended.append(True)

    begun = threading.Event()
    dataset = Dataset(small.path)
    dataset.connection.create_function("begun", lambda _: bool(begun.set()), ["BIGINT"], "BOOLEAN", side_effects=True)
    thread = threading.Thread(target=ask)
    thread.start()
    assert begun.wait(30)
    dataset.close()
    thread.join(30)
    assert ended


def test_what_a_query_spills_is_not_in_the_users_folder_and_goes(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    monkeypatch.chdir(tmp_path)
    dataset = Dataset(small.path)
    dataset.connection.execute("SET memory_limit = '20MB'; SET threads = 1")
    dataset.sql("CREATE TEMP TABLE big AS SELECT range, hash(range) AS h FROM range(5000000)")
    (folder,) = (tmp_path / "temp").iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert any(folder.iterdir())
    dataset.close()
    forgotten = Dataset(small.path)
    assert len([*(tmp_path / "temp").iterdir()]) == 1
    del forgotten
    gc.collect()
    assert [path.name for path in tmp_path.rglob("*")] == ["temp"]


def test_without_a_folder_for_what_is_spilled(small: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(prefix: str) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", none)
    with Dataset(small.path) as dataset:
        assert dataset.run_ids == small.run_ids
        assert dataset.sql("SELECT current_setting('temp_directory') AS t")["t"].to_list() == [""]


def test_several_statements_give_several_tables(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, "SELECT 11 AS one; SELECT 22 AS two;")
    assert done.returncode == 0
    assert [line.split() for line in done.stdout.decode().splitlines() if line.strip().isalnum()] == [
        ["one"], ["11"], ["two"], ["22"],
    ]  # fmt: skip
    assert command("sql", small.path, "SELECT 1; SELECT 2", "--format", "csv").returncode == 2


@pytest.mark.parametrize("output_format", ["csv", "parquet"])
def test_types_that_a_format_lacks(command: RunCommand, small: Dataset, output_format: str) -> None:
    done = command("sql", small.path, "SELECT INTERVAL 1 DAY AS day", "--format", output_format)
    assert done.returncode == 2
    assert b"cast that column to VARCHAR" in done.stderr


@pytest.mark.long
def test_regression_of_a_logarithm_is_not_in_megabytes(command: RunCommand, sample_dataset: Dataset) -> None:
    formula = "np.log(step_bytes) ~ np.log(model_bytes)"
    printed = command("regress", sample_dataset.path, "--verbose", "--formula", formula).stdout.decode()
    slope, _ = (line.split() for line in printed.splitlines() if line.startswith("np.log(model_bytes) "))
    rows = sample_dataset.query("run_step_volume")
    expected, _ = np.polyfit(rows["model_bytes"].log().to_numpy(), rows["step_bytes"].cast(float).log().to_numpy(), 1)
    assert float(slope[1]) == pytest.approx(expected, abs=5e-5)
    fitted, diagnostics = printed.split("Diagnostics")
    assert "MB" not in fitted
    assert "20 of 20 runs, in step_bytes: median error" in diagnostics


@pytest.mark.long
def test_regression_as_a_document(command: RunCommand, sample_dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "fit.json"
    done = command(
        "regress", sample_dataset.path, "--preset", "paper", "--rows", "steps", "--format", "json", "--out", out
    )
    assert (done.returncode, done.stdout) == (0, b"")
    document = json.loads(out.read_text(encoding="utf-8"))
    rows = sample_dataset.query("step_volume_rows")
    assert (document["preset"], document["grain"], document["rows"]) == ("paper", "step", rows.height)
    nowhere = command("regress", sample_dataset.path, "--format", "csv", "--out", tmp_path / "no" / "fit.csv")
    assert nowhere.returncode == 2
    assert b"fit.csv: cannot be written" in nowhere.stderr


def test_query_of_one_run(command: RunCommand, sample_dataset: Dataset) -> None:
    run = "tf-mlp1-sgd-32-grpc-0ms-ring"
    done = command("query", sample_dataset.path, "ring_order", "--run", run, "--format", "json")
    assert {row["run_id"] for row in json.loads(done.stdout)} == {run}
    wrong = command("query", sample_dataset.path, "ring_order", "--run", "tf-mlp1-sgd-32-grpc-ring")
    assert wrong.returncode == 2
    assert b"no run named tf-mlp1-sgd-32-grpc-ring; did you mean tf-mlp1-sgd-32-grpc-0ms-ring or " in wrong.stderr


# --- what is missing


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Five runs without logs, one with; not to be changed."""
    top = tmp_path_factory.mktemp("bare")
    for name in ("a", "b", "c", "d", "e"):
        write_captures(top / "runs" / name, {"a.pcap": ring(A, B)})
    write_log(write_captures(top / "runs" / "logged", {"a.pcap": ring(A, B)}), "worker-1", [1_700_000_000_000_060_000])
    return ddnn_traces.ingest(top / "runs", top / "dataset")


NO_LOG = "no training log (table steps is empty); put train_history.log into the run's folder and ingest again"


def test_query_tells_what_the_runs_lack(command: RunCommand, bare: Dataset) -> None:
    """Through the queries that it reads, once for each kind of data, and also where there are rows."""
    done = command("query", bare.path, "run_step_volume", "--format", "csv")
    assert done.returncode == 0
    assert len(lines(done.stdout)) == 7
    assert lines(done.stderr) == [f"note: 5 of 6 runs (a, b, c and 2 more): {NO_LOG}"]
    one = command("query", bare.path, "step_volume", "--run", "b", "--format", "csv")
    assert (one.returncode, len(lines(one.stdout))) == (0, 1)
    assert lines(one.stderr) == [f"note: run b: {NO_LOG}"]
    assert command("query", bare.path, "step_volume", "--run", "logged").stderr == b""
    assert command("query", bare.path, "traffic_matrix").stderr == b""


def test_every_table_that_may_be_empty_has_a_hint(tmp_path: Path) -> None:
    empty = write_dataset(tmp_path / "empty", {"runs": pl.DataFrame({"run_id": ["x"]})})
    with empty:
        reported = {
            table: missing.lines_of(empty.connection, empty.place, [table], ["x"], {}) for table in schema.TABLES
        }
    assert reported.pop("runs") == []
    for table, found in reported.items():
        (line,) = found
        assert re.fullmatch(r"run x: no .* \(table \w+ is empty\); .+", line), table
    assert "--packets" in reported["packets"][0]
    assert reported["step_flows"] == reported["steps"] == [f"run x: {NO_LOG}"]


def test_line_of_a_mistake_is_the_line_of_the_text(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, stdin=b"-- two of them\nSELECT 1;\n\nSELECT run_id,\n  wire_byte\nFROM flows;\n")
    assert done.returncode == 2
    said = lines(done.stderr)
    assert said[0].startswith('ddnn-traces: Binder Error: Referenced column "wire_byte" not found')
    (place,) = (i for i, line in enumerate(said) if line.startswith("LINE "))
    assert said[place].startswith("LINE 5: ")
    assert said[place + 1].strip().strip("^") == ""
    assert said[place + 1].index("^") == said[place].index("wire_byte")


def test_unknown_table_names_the_nearest(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, "FROM flow")
    assert done.returncode == 2
    assert 'Did you mean "flows' in done.stderr.decode()


# --- names from outside


def test_control_characters_of_names_do_not_reach_the_terminal(command: RunCommand, small: Dataset) -> None:
    for call in (
        ("runs", "no\x1b[31m\nsuch"), ("query", small.path, "a\x1b[31m"), ("query", small.path, "--\x1b[31m"),
        ("ingest", "a\x1b[31m", "--out", "x"), ("sql", small.path, "SELECT chr(27) || chr(10) AS \"a\x1b\""),
        ("sql", small.path, "SELECT nothing\x1b"),
    ):  # fmt: skip
        done = command(*call)
        assert b"\x1b" not in done.stdout + done.stderr
        assert b"\\x1b" in done.stdout + done.stderr


@pytest.mark.parametrize("call", [("sql", "SELECT '\udcff'"), ("query", "traffic_matrix", "--run", "\udcff")])
def test_text_that_is_not_utf_8_is_named(command: RunCommand, small: Dataset, call: tuple[str, ...]) -> None:
    done = command(call[0], small.path, *call[1:])
    assert done.returncode == 2
    assert b"\\udcff" in done.stderr
    assert b"not in UTF-8" in done.stderr


def test_what_is_written_is_whole_or_as_before(
    sample_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, link = tmp_path / "counts.csv", tmp_path / "link.csv"
    out.write_text("old")
    link.symlink_to(out)

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def query(path: Path) -> BaseException | None:
        arguments = ["query", str(sample_dataset.path), "flow_counts", "--format", "csv", "--out", str(path)]
        return CliRunner().invoke(cli, arguments).exception

    with monkeypatch.context() as patch:
        patch.setattr(formats, "write", fails)
        assert "cannot be written (No space left on device)" in str(query(out))
    assert (out.read_text(), sorted(tmp_path.iterdir())) == ("old", [out, link])
    assert query(link) is None
    assert (link.is_symlink(), out.read_text().count("\n") > 1) == (True, True)
    assert query(Path(os.devnull)) is None
    assert Path(os.devnull).is_char_device()
