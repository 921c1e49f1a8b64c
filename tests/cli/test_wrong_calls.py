"""Help, and wrong calls: exit code 2 and one line with what, which and what next.

The fixture `command` asserts for every call that no traceback came out.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import packets as p
import pytest
from small_runs import A, B, ring, write_captures
from tools import RunCommand, lines

import ddnn_traces
from ddnn_traces.cli import cli
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store.writer import partition

GOOD = p.pcap(packet.record for packet in ring(A, B))


@pytest.mark.parametrize("name", ["", *cli.commands])
def test_help(command: RunCommand, name: str) -> None:
    done = command(*filter(None, [name]), "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert "Usage:" in done.stdout.decode()
    reported = cli.commands[name].help if name else cli.help
    assert reported
    assert reported.split("\n")[0].split()[:5] == done.stdout.decode().split("\n\n")[1].split()[:5]


def test_the_commands_are_listed_once_each_in_80_columns() -> None:
    with click.Context(cli, info_name="ddnn-traces", terminal_width=80, **cli.context_settings) as context:
        said = cli.get_help(context).split("Read captures:")[1]
    listed = re.findall(r"^  ([a-z]\w+)  +\S", said, re.M)
    assert sorted(listed) == sorted(name for name, command in cli.commands.items() if not command.hidden)
    assert all(len(line) <= 80 and not line.endswith("...") for line in said.splitlines())


@pytest.mark.parametrize("group", [name for name, one in cli.commands.items() if isinstance(one, click.Group)])
def test_no_description_of_a_group_is_cut(group: str) -> None:
    # click keeps a command's first help option: with other names it would be on the pages that later tests make
    names = cli.context_settings["help_option_names"]
    with click.Context(cli.commands[group], info_name=group, terminal_width=80, help_option_names=names) as context:
        _, said = cli.commands[group].get_help(context).split("Commands:")
    assert "..." not in said
    assert max(map(len, said.splitlines())) <= 80


def test_version(command: RunCommand) -> None:
    assert command("--version").stdout.decode() == f"ddnn-traces, version {ddnn_traces.__version__}\n"


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
        ("diagnose nowhere --out x.xlsx", "x.xlsx: no format .xlsx: name it .csv, "),
        ("query nowhere topology --out x.xlsx", "x.xlsx: no format .xlsx: name it .csv, "),
        ("runs s3://", "s3://: names no bucket; write s3://BUCKET/FOLDER"),
        ("runs full", "full: not a ddnn_traces dataset (no readable dataset.json); make one with 'ddnn-traces ingest'"),
        ("check good.pcap", "good.pcap: no such dataset"),
        ("query DATASET ring_ordr", "no query named ring_ordr; the nearest are ring_order, "),
        ("query ring_order data", "the dataset comes first: ddnn-traces query data ring_order"),
        ("query DATASET host_clock", "host_clock is a check, no query; ddnn-traces check DATASET has its rows"),
        ("query DATASET clock_offset", "the nearest are clock_offsets, clock_differences, profiler_clocks; "),
        ("query DATASET clock_offset", "columns of tables, for sql: captures.clock_offset_ns, "),
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
        ("compare x", "compare is a query: ddnn-traces query DATASET compare"),
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
