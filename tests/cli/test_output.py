"""What commands print: formats by suffix, tables that fit the terminal, --quiet; the SQL shell."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from rich.cells import cell_len
from rich.console import Console
from small_runs import A, B, C, ring, write_captures
from tools import CODE, COMMAND, CTRL_C, RunCommand, interrupted_in_its_wait, keeping_sigterm, mostly_long

import ddnn_traces
from ddnn_traces.cli import lines, main, shell, terminal
from ddnn_traces.cli.arguments import FORMATS
from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """Three runs. Not to be changed."""
    top = tmp_path_factory.mktemp("several")
    for name in ("tf-a", "tf-b", "torch-a"):
        write_captures(top / "runs" / name, {"a.pcap": ring(A, B, C)})
    with ddnn_traces.ingest(top / "runs", top / "dataset") as dataset:
        yield dataset


# --- files


def test_the_suffix_of_out_is_the_format(command: RunCommand, tmp_path: Path, several: Dataset) -> None:
    rows = several.query("traffic_matrix")
    for name in ("rows.csv", "rows.json", "rows.ndjson", "rows.parquet", "rows.arrow", "rows.md"):
        assert command("query", several.path, "traffic_matrix", "--out", name).returncode == 0
    assert pl.read_csv(tmp_path / "rows.csv").height == rows.height
    assert json.loads((tmp_path / "rows.json").read_text()) == rows.to_dicts()
    written = [json.loads(line) for line in (tmp_path / "rows.ndjson").read_text().splitlines()]
    assert written == rows.to_dicts()
    assert pl.read_parquet(tmp_path / "rows.parquet").equals(rows)
    assert pl.read_ipc_stream(tmp_path / "rows.arrow").equals(rows)
    head, rule, *body = (tmp_path / "rows.md").read_text().splitlines()
    assert head.split(" | ")[0] == "| run_id" and "--:" in rule and len(body) == rows.height


@pytest.mark.parametrize(
    ("name", "words", "out"),
    [
        ("query", ["traffic_matrix"], "rows.csv"),
        ("sql", ["SELECT 1"], "rows.json"),
        ("plot", ["traffic_matrix"], "chart.json"),
    ],
)
@pytest.mark.long_after(1)
def test_a_missing_folder_of_out_is_made(
    command: RunCommand, tmp_path: Path, several: Dataset, name: str, words: list[str], out: str
) -> None:
    done = command(name, several.path, *words, "--out", f"new/deep/{out}")
    assert (done.returncode, [path.name for path in (tmp_path / "new" / "deep").iterdir()]) == (0, [out])


def test_format_overrides_the_suffix(command: RunCommand, tmp_path: Path, several: Dataset) -> None:
    command("query", several.path, "traffic_matrix", "--out", "rows.csv", "--format", "json")
    assert len(json.loads((tmp_path / "rows.csv").read_text())) == several.query("traffic_matrix").height


@pytest.mark.parametrize(("name", "said"), [("rows.xlsx", "spreadsheets open .csv"), ("rows.foo", "or give --format")])
def test_a_suffix_without_a_format_is_refused(
    command: RunCommand, tmp_path: Path, several: Dataset, name: str, said: str
) -> None:
    done = command("runs", several.path, "--out", name)
    assert done.returncode == 2
    assert name in done.stderr.decode() and said in done.stderr.decode()
    assert not (tmp_path / name).exists()


def test_piped_output_has_no_blanks_around_it(command: RunCommand, several: Dataset) -> None:
    lines = command("query", several.path, "traffic_matrix").stdout.decode().split("\n")
    assert lines.pop() == "" and len(lines) == 2 + several.query("traffic_matrix").height
    assert all(line.strip() and line == line.rstrip() for line in lines)


def test_piped_output_is_whole(command: RunCommand, several: Dataset) -> None:
    done = command("sql", several.path, "SELECT range AS number FROM range(200)")
    assert done.stderr == b""
    assert re.findall(r"\d+", done.stdout.decode()) == [str(number) for number in range(200)]


def test_a_piped_table_comes_in_pieces_whose_columns_stand_below_each_other() -> None:
    count = 2_500
    table = pa.table(
        {"name": ["漢字" if row % 7 else "plain" for row in range(count)], "number": range(count), "": ["end"] * count}
    )
    pieces = list(terminal.table_text(table, title="Rows"))
    assert len(pieces) > 2
    title, head, rule, *rows = "".join(pieces).splitlines()
    assert (title, len(rows)) == ("Rows", count)
    assert {cell_len(row) for row in (rule, *rows)} == {cell_len(head.rstrip()) + len("   end")}
    assert [row.split() for row in rows[6:9]] == [["漢字", "6", "end"], ["plain", "7", "end"], ["漢字", "8", "end"]]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["query", "--help"],
        ["describe"],
        *(["runs", "HERE", "--format", name] for name in ("csv", "json", "table")),
    ],
)
def test_a_command_whose_reader_left_ends_quietly(
    arguments: list[str], several: Dataset, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    line = [str(several.path) if word == "HERE" else word for word in ["ddnn-traces", *arguments]]
    with os.fdopen(writing, "w") as nobody, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", nobody)
        patch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as ended, keeping_sigterm():
            main()
    assert ended.value.code == 141
    assert [said for said in capfd.readouterr().err.splitlines() if not said.startswith("note: ")] == []


@pytest.mark.parametrize("unbuffered", mostly_long(["", "1"], ""))
@pytest.mark.parametrize("output_format", mostly_long(FORMATS, "csv", "table"))
def test_a_reader_may_leave_early(output_format: str, unbuffered: str, several: Dataset) -> None:
    """As head -1 does, with and without Python's buffer."""
    many = "SELECT range AS number, 'some words to write' AS text FROM range(50000)"
    line = [*COMMAND, "sql", str(several.path), many, "--format", output_format, "--limit", "0"]
    variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables) as process:
        assert process.stdout and process.stderr
        assert process.stdout.read(1)
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 141)


def test_a_cell_of_markdown_holds_no_bar(command: RunCommand, several: Dataset) -> None:
    done = command("sql", several.path, "SELECT 'a|b' AS text", "--format", "md")
    assert done.stdout.decode().splitlines()[2] == "| a\\|b |"


def test_a_cell_of_markdown_is_no_html(command: RunCommand, several: Dataset) -> None:
    done = command("sql", several.path, "SELECT '<img src=x onerror=alert(1)>&' AS text", "--format", "md")
    assert done.stdout.decode().splitlines()[2] == "| &lt;img src=x onerror=alert(1)&gt;&amp; |"


def test_no_cell_of_a_spreadsheet_is_a_formula(command: RunCommand, several: Dataset) -> None:
    """Text, names and lists that begin as a formula get an apostrophe; numbers stay numbers, and csv what it was."""
    query = (
        "SELECT '=1+2' AS \"@a\", '+1' AS b, '-x' AS c, -1 AS d, 'a=1' AS e, chr(9) || '=1' AS f, NULL::VARCHAR AS g, "
        "' =1' AS h, chr(65309) || '1' AS i"
    )
    done = command("sql", several.path, query, "--format", "spreadsheet")
    assert list(csv.reader(done.stdout.decode().splitlines())) == [
        ["'@a", *"bcdefghi"], ["'=1+2", "'+1", "'-x", "-1", "a=1", "'\t=1", "", "' =1", "'\uff1d1"],
    ]  # fmt: skip
    plain = command("sql", several.path, query, "--format", "csv")
    assert "'" not in plain.stdout.decode()


# --- tables on a terminal


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, rows: pa.Table, width: int, **options: bool) -> list[str]:
    """The lines that a terminal of that width shows of a table."""
    console = Console(width=width, force_terminal=True, color_system=None, record=True, highlight=False)
    monkeypatch.setattr(terminal, "stdout", lambda: console)
    with console.capture() as captured:
        terminal.print_table(rows, **options)
    return [line.rstrip() for line in captured.get().splitlines() if line.strip()]


WIDE = pa.table(
    {"run_id": ["a", "b"], **{f"column_{number}": [number, number + 1] for number in range(12)}, "same": ["x", "x"]}
)


def test_a_row_is_one_line_and_columns_without_a_place_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_a_terminal(monkeypatch, WIDE, 60)
    assert lines[0].split() == ["run_id", "column_0", "column_1", "column_2", "column_3"]
    assert len(lines[2:4]) == 2 and all(len(line) <= 60 for line in lines[:4])
    assert lines[4] == "the same in all rows: same x"
    assert " ".join(lines[5:]).startswith("+8 columns: column_4, column_5, ")
    assert lines[-1].endswith("(--wide shows all)")


def test_the_answer_is_never_below_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither because it is the same in all rows, nor because it is the last column."""
    alike = pa.table({"run_id": ["a", "b"], "topology": ["ring"] * 2, **{f"column_{n}": [n, n + 1] for n in range(12)}})
    lines = on_a_terminal(monkeypatch, alike, 60)
    assert lines[0].split()[:2] == ["run_id", "topology"] and lines[2].split()[1] == "ring"
    lines = on_a_terminal(monkeypatch, WIDE, 60, answer=["column_11", "same"])
    assert {"run_id", "column_11", "same"} < {*lines[0].split()} and all(len(line) <= 60 for line in lines[:4])


def test_the_first_columns_of_the_answer_have_a_place_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the first ones of the table: a long kind_or took the place of the hosts, which come behind it."""
    rows = pa.table({"run_id": ["a", "b"], "or": ["one or another " * 3, "x"], "hosts": ["10.0.0.1,10.0.0.2"] * 2})
    lines = on_a_terminal(monkeypatch, rows, 40, answer=["hosts", "or"])
    assert lines[0].split() == ["run_id", "hosts"]


def test_the_one_run_of_a_table_takes_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = on_a_terminal(monkeypatch, WIDE.set_column(0, "run_id", [["a run", "a run"]]), 60, answer=["column_11"])
    assert "run_id" not in lines[0] and "column_11" in lines[0]
    assert any(line.startswith("the same in all rows: run_id a run") for line in lines)


def test_a_long_answer_is_folded_and_names_and_numbers_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"run_id": ["torch-a", "torch-b"], "cost_ms": [1, 2], "sentence": ["one two " * 12, "three " * 12]})
    lines = on_a_terminal(monkeypatch, rows, 50, answer=["sentence"])
    assert lines[2].startswith(" torch-a   ") and lines[3].startswith("           ")
    assert " ".join(" ".join(lines).split()).count("two") == 12 and all(len(line) <= 50 for line in lines[:6])


@pytest.mark.parametrize(("width", "shown"), [(50, 4), (38, 3), (26, 2), (10, 1)])
def test_no_column_is_cut(monkeypatch: pytest.MonkeyPatch, width: int, shown: int) -> None:
    """The names of runs give way first; then the last columns of the answer are named below the table."""
    names = ["x" + "a" * 60 + "1", "y" + "b" * 60 + "2"]
    answer = {"job": [0, 1], "kind": ["all_reduce", "all_gather"], "confidence": [0.98, 0.97]}
    lines = on_a_terminal(monkeypatch, pa.table({"run_id": names, **answer}), width, answer=list(answer))
    heads = ["run_id", *answer]
    assert lines[0].split() == heads[:shown]
    if shown > 1:
        assert [line.split()[1:] for line in lines[2:4]] == [
            ["0", "all_reduce", "0.98"][: shown - 1], ["1", "all_gather", "0.97"][: shown - 1],
        ]  # fmt: skip
    assert all(any(name in line for line in lines[2:]) for name in heads[shown:])


def test_wide_shows_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(on_a_terminal(monkeypatch, WIDE, 60, wide=True))
    assert all(name in text for name in WIDE.column_names) and "columns:" not in text


def test_names_of_runs_lose_what_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["torch-resnet50-sgd-32-ring", "torch-resnet50-sgd-32-star"]
    lines = on_a_terminal(monkeypatch, pa.table({"run_id": names, "steps": [1, 2]}), 60)
    assert [line.split() for line in lines[2:4]] == [["…ring", "1"], ["…star", "2"]]
    assert lines[4] == "…: torch-resnet50-sgd-32-"


def test_a_long_name_loses_its_middle_but_stays_different(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["x" + "a" * 60 + "1", "y" + "b" * 30 + "c" * 30, "y" + "b" * 29 + "d" + "c" * 30]
    lines = on_a_terminal(monkeypatch, pa.table({"run_id": names, "steps": [1, 2, 3]}), 80)
    shown = [line.split()[0] for line in lines[2:5]]
    assert len(set(shown)) == 3 and all("…" in name for name in shown[:1])
    assert shown[0].startswith("xaaa") and shown[0].endswith("a1")


def test_times_are_utc_and_durations_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"first_seen_ns": [1_600_000_000_123_456_789, None], "since_start_ns": [5, 6]})
    lines = on_a_terminal(monkeypatch, rows, 100)
    assert lines[0].split("   ")[0].strip() == "first_seen (UTC)"
    assert "2020-09-13 12:26:40.123456" in lines[2] and lines[2].split()[-1] == "5"
    assert "1600000000123456789" in "\n".join(on_a_terminal(monkeypatch, rows, 100, ns=True))


def test_machines_get_nanoseconds(command: RunCommand, several: Dataset) -> None:
    done = command("sql", several.path, "SELECT min(first_seen_ns) AS first_seen_ns FROM flows", "--format", "csv")
    assert int(done.stdout.split()[1]) == several.sql("SELECT min(first_seen_ns) AS ns FROM flows")["ns"][0]


# --- runs by pattern, quiet, hints


def test_runs_are_chosen_by_patterns(command: RunCommand, several: Dataset) -> None:
    done = command("query", several.path, "total_volume", "--run", "tf-*", "--format", "csv")
    assert re.findall(r'^"([\w-]+)"', done.stdout.decode(), re.M)[1:] == ["tf-a", "tf-b"]
    with ddnn_traces.open(several.path, runs="t*-a") as opened:
        assert opened.run_ids == ["tf-a", "torch-a"]


def test_a_pattern_that_matches_nothing_is_named(command: RunCommand, several: Dataset) -> None:
    done = command("query", several.path, "total_volume", "--run", "mpi-*")
    assert done.returncode == 2
    assert "no run matches mpi-*" in done.stderr.decode()
    with pytest.raises(UsageError, match="no run named tf-c"):
        ddnn_traces.open(several.path, runs="tf-c")


@pytest.mark.parametrize(
    "name", ["check", "diagnose", "explore", "predict", "query", "regress", "report", "runs", "sql"]
)
def test_each_command_that_reads_a_dataset_takes_patterns_of_runs(
    command: RunCommand, several: Dataset, name: str
) -> None:
    words = {"query": ["topology"], "sql": ["FROM runs"]}.get(name, [])
    done = command(name, several.path, *words, "--run", "mpi-*")
    assert done.returncode == 2 and "no run matches mpi-*" in done.stderr.decode()


@pytest.mark.long
def test_check_of_some_runs_reads_only_these(command: RunCommand, tmp_path: Path, several: Dataset) -> None:
    shutil.copytree(several.path, tmp_path / "damaged")
    damaged = next((tmp_path / "damaged" / "flows" / "run_id=torch-a").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert "torch-a" in command("check", "damaged", "--run", "t*").stdout.decode()
    assert command("check", "damaged", "--run", "tf-*").returncode == 0


def test_a_run_may_be_named_like_a_pattern(tmp_path: Path) -> None:
    for name in ("a[1]", "a1"):
        write_captures(tmp_path / "runs" / name, {"a.pcap": ring(A, B)})
    ddnn_traces.ingest(tmp_path / "runs", tmp_path / "dataset").close()
    with ddnn_traces.open(tmp_path / "dataset", runs="a[1]") as opened:
        assert opened.run_ids == ["a[1]"]


def test_quiet_leaves_errors_and_warnings(command: RunCommand, tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    assert command("ingest", folder, "--out", "loud").stderr != b""
    assert command("ingest", folder, "--out", "still", "--quiet").stderr == b""
    assert b"no query named" in command("query", "still", "nothing", "-q").stderr
    cut = folder / "a.pcap"
    cut.write_bytes(cut.read_bytes()[:-5])
    done = command("ingest", folder, "--out", "cut", "--quiet")
    assert done.returncode == 1 and done.stderr.startswith(b"warning: ")


def test_a_macro_without_parentheses_says_so(command: RunCommand, several: Dataset) -> None:
    done = command("sql", several.path, "SELECT * FROM pair_throughput")
    assert done.returncode == 2 and "write pair_throughput()" in done.stderr.decode()


def test_compare_without_runs_explains_itself(command: RunCommand, several: Dataset) -> None:
    done = command("query", several.path, "compare", "--param", "a_runs=tf-a")
    assert done.returncode == 2
    assert "compare needs b_runs (" in done.stderr.decode() and "a_runs" not in done.stderr.decode()


def test_an_option_that_the_query_does_not_take_names_those_that_do(command: RunCommand, several: Dataset) -> None:
    done = command("query", several.path, "topology", "--by", "model")
    assert done.returncode == 2
    assert done.stderr.decode().strip().endswith("topology does not pool runs; those that do: total_throughput")


def test_a_pattern_of_compare_that_matches_no_run_is_named(command: RunCommand, several: Dataset) -> None:
    done = command("query", several.path, "compare", "--param", "a_runs=tf-a", "--param", "b_runs=tf-a|nosuch*")
    assert done.returncode == 2
    assert done.stderr.decode().strip() == "ddnn-traces: b_runs: no run matches nosuch*; the table runs has their names"


def test_an_unknown_query_names_near_ones_by_their_words_or_says_that_it_is_a_table(
    command: RunCommand, several: Dataset
) -> None:
    said = command("query", several.path, "straggler").stderr.decode()
    near = said.split("the nearest are ")[1].split(";")[0].split(", ")
    assert set(near) == {"stragglers", "straggler_summary", "straggler_chance"}
    assert "FROM flows" in command("query", several.path, "flows").stderr.decode()


# --- generate


def test_generate_alone_makes_the_scenarios(command: RunCommand, tmp_path: Path) -> None:
    for call in (("generate",), ("generate", "scenarios")):
        done = command(*call, "--out", "made", "--steps", "0")
        assert done.returncode == 2 and "steps" in done.stderr.decode()
    assert b"No such command 'model'" in command("model", "fit").stderr


# --- the shell


def test_commands_of_the_shell(several: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = shell.Shell(several, None)
    assert typed.run(".tables") and "flow_windows" in capsys.readouterr().out
    assert typed.run("help") and ".output" in capsys.readouterr().out
    assert typed.run("SELECT run_id FROM runs WHERE false;") and capsys.readouterr().err == "no rows\n"
    assert typed.run(".schema flows") and "wire_bytes" in capsys.readouterr().out
    assert typed.run(".schema ring_order;") and "next_host_ip" in capsys.readouterr().out
    assert typed.run(".help") and ".output" in capsys.readouterr().out
    assert typed.run(".mode md") and typed.run("SELECT 1 AS one;") and "| 1 |" in capsys.readouterr().out
    assert [typed.run(word) for word in (".quit", ".exit", "quit;", "EXIT", "\\q")] == [False] * 5
    assert typed.run("\\d flows") and "\\d: commands start with a dot, such as .tables" in capsys.readouterr().err


def test_a_word_that_leaves_leaves_within_a_statement(
    several: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lines = iter(["\\d flows", "SELECT run_id", ".quit", "SELECT 1;"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    shell.run_shell(several, None)
    assert "commands start with a dot" in capsys.readouterr().err
    assert list(lines) == ["SELECT 1;"]


def test_the_shell_compares_no_inferred_steps_with_themselves(
    several: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    lines = iter(["FROM STEP_SOURCES;", "SELECT 1 AS one;", ".quit"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    shell.run_shell(several, None, infers_steps=True)
    said = capsys.readouterr()
    assert "query step_sources compares steps of logs with those that the traffic shows" in said.err
    assert said.out.split()[0] == "one"


def test_columns_bound_a_table_in_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({f"column_{place}": ["some words", "others"] for place in range(9)})
    widths = []
    for columns in ("60", "", "0", "wide"):
        monkeypatch.setenv("COLUMNS", columns)
        terminal.print_table(rows)
        lines = capsys.readouterr().out.splitlines()
        widths.append(max(map(len, [line for line in lines if "+" not in line and ":" not in line])))
        assert any("--wide shows all" in line for line in lines) == (columns == "60")
    assert widths[0] <= 60 < widths[1] == widths[2] == widths[3]


def test_a_second_interrupt_while_the_first_is_told_ends_as_the_first() -> None:
    """It was killed by the signal."""
    code = (
        "import os, signal, click\nimport ddnn_traces.cli as cli\n"
        "def interrupted(*_, **__):\n    raise KeyboardInterrupt\n"
        "def again(*_, **__):\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "cli.cli.main, click.echo = interrupted, again\ncli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert (done.returncode, done.stderr) == (130, b"")


def test_tables_are_sorted_in_columns_and_apart_from_queries(
    several: Dataset, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shell.Shell(several, None).run(".tables")
    said = capsys.readouterr().out
    tables, queries = (part.split() for part in said.removeprefix("Tables:").split("Queries, with () where one has"))
    assert sorted(tables) == sorted(schema.TABLES) and {"topology", "compare()"} < {*queries}
    first = [line.split()[0] for line in said.split("parameters:\n")[1].splitlines()]
    assert first == sorted(first) and all(len(line) <= 80 for line in said.splitlines())


# --- a command that takes long


@contextmanager
def _reading(total: int) -> Iterator[Callable[[int], None]]:
    told = lines.messages()
    told.start_reading(total)
    yield lambda size: told.advance(size, 1)


@pytest.mark.parametrize(
    ("context", "tell", "shown"),
    [
        (lambda: lines.steps(41), lambda told: told("The runs"), "1 of 41: The runs"),
        (lambda: _reading(16_800_000), lambda told: told(4_200_000), "4.2 of 16.8 MB read"),
        (lambda: _reading(3_000_000_000), lambda told: told(42_000_000), "0.0 of 3.0 GB read"),
        (lambda: lines.share("the simulation"), lambda told: told(0.256), "26% of the simulation"),
    ],
)
def test_a_command_in_the_background_says_what_it_does(
    context: Callable[[], Any], tell: Callable[[Any], None], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    is_said = threading.Event()

    def echo(text: str, err: bool) -> None:
        said.append(text)
        is_said.set()

    monkeypatch.setattr("click.echo", echo)
    with lines.signs_of_life("ddnn-traces report", 0.001), context() as told:
        tell(told)
        is_said.clear()
        assert is_said.wait(60)
    assert re.fullmatch(rf"ddnn-traces report: \d+ s, {shown}", said[-1])


# --- charts as text


def test_a_chart_as_text_is_of_one_run(command: RunCommand, several: Dataset) -> None:
    done = command("plot", several.path, "pair_volume")
    assert "tf-a" in done.stdout.decode() and "tf-b" not in done.stdout.decode()
    assert "the first of 3 runs; --run chooses another" in done.stderr.decode()
    assert "tf-b" in command("plot", several.path, "pair_volume", "--run", "tf-b").stdout.decode()


def test_results_of_the_shell_go_into_a_file(several: Dataset, tmp_path: Path) -> None:
    typed = shell.Shell(several, None)
    typed.run(f".output {tmp_path / 'rows.csv'}")
    typed.run("SELECT 1 AS one;")
    assert (tmp_path / "rows.csv").read_text() == '"one"\n1\n'


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (".tabels", "no such command; .help lists them"), (".mode xml", "write one of table, csv"),
        (".schema flow", "no such table or query"), (".output x.xlsx", "spreadsheets open .csv"),
        ("SELECT FROM;", "Parser Error"), ("COPY flows TO 'x.csv';", "--write"),
    ],
)  # fmt: skip
def test_the_shell_says_what_is_wrong_and_goes_on(
    several: Dataset, typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with ddnn_traces.open(several.path, read_only=True) as opened:
        assert shell.Shell(opened, None).run(typed)
    assert said in capsys.readouterr().err


def test_ctrl_c_ends_the_statement_and_not_the_shell(
    several: Dataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(several, "sql_arrow", interrupt)
    assert shell.Shell(several, None).run("SELECT 1;")
    assert "interrupted" in capsys.readouterr().err


#: A command that waits in the main thread, without a limit, after its work.
WAITS = """
import threading
from ddnn_traces.cli import cli

command = cli.commands[sys.argv[1]]
def work(*args, **options):
    real(*args, **options)
    import polars
    print("waits", flush=True)
    threading.Event().wait()
real, command.callback = command.callback, work
"""


@pytest.mark.parametrize("name", mostly_long(["ingest", "regress", "report"], "ingest"))
def test_ctrl_c_ends_a_wait_of_any_command(sample: Path, sample_dataset: Dataset, tmp_path: Path, name: str) -> None:
    source = next(sample.iterdir()) if name == "ingest" else sample_dataset.path
    of_one_run = ("--run", sample_dataset.run_ids[0]) if name == "report" else ()
    code = CTRL_C + CODE.replace("\nfrom ddnn_traces.cli", f"\n{WAITS}\nfrom ddnn_traces.cli")
    call = [sys.executable, "-c", code, name, str(source), "--out", str(tmp_path / "out"), *of_one_run]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        _, said = interrupted_in_its_wait(process)
    assert process.returncode == 130
    assert said.endswith("ddnn-traces: interrupted; no half-written file is left\n") and "Traceback" not in said


def test_the_shell_completes_names_and_commands(several: Dataset) -> None:
    completer = shell.Completer(several)
    assert completer.words(".sc", "sc") == ["schema"]
    assert "traffic_matrix" in completer.words("SELECT * FROM traffic_", "traffic_")
    assert "pair_throughput(" in completer.words("FROM pair_t", "pair_t")


def test_lines_typed_are_kept_for_the_next_time(
    several: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import readline

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    answers = iter(["SELECT 1;", "exit"])
    monkeypatch.setattr("builtins.input", lambda _: (line := next(answers), readline.add_history(line))[0])
    readline.clear_history()
    shell.run_shell(several, None)
    assert "SELECT 1;" in (tmp_path / "ddnn-traces" / "sql_history").read_text()


# --- exit codes of ingest


def test_a_warning_of_whole_data_is_exit_0_and_with_strict_1(command: RunCommand, tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    nothing = ("ingest", folder, "--out", "new", "--filter", "udp port 9")
    for _ in range(2):  # read, and unchanged
        done = command(*nothing)
        assert done.returncode == 0 and b"--filter 'udp port 9' keeps none of its 20 packets" in done.stderr
    assert command(*nothing, "--strict").returncode == 1
    assert command("ingest", folder, "--out", "whole", "--strict").returncode == 0


def test_partial_data_is_exit_1_each_time(command: RunCommand, tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {"a.pcap": ring(A, B), "b.pcap": ring(B, A)})
    cut = folder / "a.pcap"
    cut.write_bytes(cut.read_bytes()[:-5])
    for said in (b"truncated", b"unchanged, not read again"):
        done = command("ingest", folder, "--out", "new")
        assert done.returncode == 1 and said in done.stderr
