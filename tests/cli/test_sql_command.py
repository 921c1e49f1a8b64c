"""`sql`: statements, mistakes, interrupts, and what a query leaves behind."""

from __future__ import annotations

import errno
import gc
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from tools import COMMAND, RunCommand, lines

from ddnn_traces.errors import QueryError
from ddnn_traces.query.dataset import Dataset


def test_sql_from_standard_input(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, "--format", "csv", stdin=b"SELECT count(*) AS flows FROM flows;")
    assert done.stdout == b'"flows"\n6\n'


def test_a_statement_without_rows_says_so(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, "SELECT 1 AS one WHERE false; SELECT 2 AS two")
    assert lines(done.stderr) == ["no rows"]


def test_reader_that_has_had_enough(small: Dataset) -> None:
    call = [*COMMAND, "sql", str(small.path), "FROM range(1000000)", "--format", "csv"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b'"range"\n'
        process.stdout.close()
        assert process.stderr.read() == b""


INTERRUPTED_QUERY = """
import signal, sys, threading
from ddnn_traces.cli import main
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.errors import QueryError
ask = Dataset.sql_arrow
def interrupt(number, frame):
    # once, and where Python can raise it: a second one would come while the first is handled, on a slow machine
    if frame is not None and frame.f_code is threading.Condition.wait.__code__:
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt
def ask_and_be_interrupted(*arguments):
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    return ask(*arguments)
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


@pytest.mark.long
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
