"""SQL of `ddnn-traces sql` writes nothing, by any statement; with --write it may."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import A, B, ring, write_captures
from tools import COMMAND, RunCommand

import ddnn_traces
from ddnn_traces.errors import QueryError
from ddnn_traces.query.dataset import Dataset

READING = [
    "SELECT 1", "FROM runs", "WITH a AS (SELECT 1 AS b) FROM a", "VALUES (1)", "TABLE runs", "DESCRIBE runs",
    "DESCRIBE SELECT 1", "SHOW TABLES", "SHOW ALL TABLES", "SUMMARIZE runs",
    "PIVOT flows ON protocol USING sum(packets) GROUP BY run_id",
    "PIVOT flows ON protocol IN (6) USING sum(packets) GROUP BY run_id", "UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b",
    "EXPLAIN FROM runs", "EXPLAIN ANALYZE FROM runs", "EXPLAIN (FORMAT json) FROM runs",
    "EXPLAIN (ANALYZE, FORMAT json) FROM runs", "EXPLAIN (SELECT 1)", "SET VARIABLE a = 3", "RESET VARIABLE a",
    "SELECT getvariable('a')", "FROM query('SELECT 1')",
    "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) FROM r",
    "SELECT row_number() OVER w FROM runs WINDOW w AS (ORDER BY run_id)", "SELECT 'AS (COPY' -- AS (COPY x\n",
    "FROM pair_throughput(window_ms := 100)", "FROM read_text('here.txt')", "FROM glob('*')", "/* first */ SELECT 1",
]  # fmt: skip

WRITING = [
    "COPY runs TO 'new.csv'", "COPY (SELECT 1) TO 'new.parquet'", "COPY (SELECT 1) TO 'here.txt' (FORMAT csv)",
    "EXPLAIN ANALYZE COPY runs TO 'new.csv'", "EXPLAIN (ANALYZE) COPY runs TO 'new.csv'",
    "EXPLAIN (ANALYZE, FORMAT json) COPY runs TO 'new.csv'", "EXPLAIN ANALYZE /* x */ COPY runs TO 'new.csv'",
    "WITH x AS (COPY runs TO 'new.csv') FROM x", "with x as materialized ( -- a\n copy runs to 'new.csv') select 1",
    "WITH ä AS (/* é */ COPY runs TO 'new.csv') FROM ä", "EXPLAIN ANALYZE WITH x AS (COPY runs TO 'new.csv') FROM x",
    "WITH y AS (SELECT 1), x AS NOT MATERIALIZED (COPY runs TO 'new.csv') FROM y",
    "WITH x AS (COPY (SELECT 1 AS a) TO 'new.csv') PIVOT x ON \"Count\"", "EXPORT DATABASE 'new'",
    "ATTACH 'new.duckdb' AS n", "ATTACH 'new.duckdb'", "COPY FROM DATABASE memory TO memory",
    "CREATE TABLE t (a INT)", "CREATE VIEW v AS SELECT 1", "CREATE OR REPLACE VIEW flows AS SELECT 1",
    "CREATE TEMP TABLE t (a INT)", "CREATE MACRO m() AS 1", "CREATE SEQUENCE s", "CREATE SCHEMA s",
    "CREATE PERSISTENT SECRET s (TYPE s3, KEY_ID 'k', SECRET 's')", "DROP VIEW flows",
    "ALTER VIEW flows RENAME TO old", "COMMENT ON VIEW flows IS 'x'", "INSERT INTO flows VALUES (1)",
    "UPDATE flows SET packets = 1", "DELETE FROM flows", "TRUNCATE flows", "INSTALL json", "LOAD json",
    "SET threads = 1", "SET temp_directory = 'new'", "RESET threads", "PRAGMA threads = 1", "PRAGMA enable_profiling",
    "PRAGMA profiling_output = 'new.json'", "CALL enable_logging()", "CHECKPOINT", "VACUUM", "ANALYZE", "USE memory",
    "BEGIN", "PREPARE p AS COPY runs TO 'new.csv'", "IMPORT DATABASE 'new'", "UPDATE EXTENSIONS", "DETACH memory",
]  # fmt: skip

_SERIALIZED = "json_serialize_sql('WITH x AS (COPY runs TO ''new.csv'') FROM x')"
_DOUBLED = _SERIALIZED.replace("'", "''")
WRITING += [
    f"SELECT * FROM json_execute_serialized_sql({_SERIALIZED})",
    f'FROM system.main."JSON_execute_serialized_sql"({_SERIALIZED})',
    f"FROM query('FROM json_execute_serialized_sql({_DOUBLED})')",
    f"FROM query('FROM json_exec' || 'ute_serialized_sql({_DOUBLED})')",
    f"FROM \"query\"(concat('FROM json_exec', 'ute_serialized_sql({_DOUBLED})'))",
    f"PIVOT json_execute_serialized_sql({_SERIALIZED}) ON Count",
]

#: Table functions that write, which DuckDB itself refuses while the configuration is locked.
FUNCTIONS = [
    "FROM enable_logging(level := 'debug', storage := 'file', storage_config := {'path': 'new'})",
    "FROM enable_profiling(format := 'json', save_location := 'new.json')",
    "SET VARIABLE a = (SELECT count(*) FROM enable_profiling(format := 'json', save_location := 'new.json'))",
]

#: What is refused since it may stand at the top only, or is no SELECT.
NESTED = [
    "FROM query('COPY runs TO ''new.csv''')",
    "FROM query('WITH x AS (COPY runs TO ''new.csv'') FROM x')",
    "FROM (WITH x AS (COPY runs TO 'new.csv') FROM x)",
    "SET VARIABLE a = (WITH x AS (COPY runs TO 'new.csv') FROM x)",
    "DESCRIBE (WITH x AS (COPY runs TO 'new.csv') FROM x)",
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of one run. Not to be changed."""
    top = tmp_path_factory.mktemp("small")
    ddnn_traces.ingest(write_captures(top / "run", {"a.pcap": ring(A, B)}), top / "dataset").close()
    return top / "dataset"


@pytest.fixture(scope="module")
def shared(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Dataset, Path]]:
    """The dataset, opened read-only once, since listing all its views takes long, and a folder with one file."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "here.txt").write_text("mine")
    with ddnn_traces.open(small, read_only=True) as opened:
        yield opened, folder


@pytest.fixture
def dataset(shared: tuple[Dataset, Path], monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """The dataset, read-only; the current folder has one file. A test must leave both unchanged."""
    opened, folder = shared
    monkeypatch.chdir(folder)
    return opened


def state(dataset: Dataset) -> tuple[list[tuple[str, str]], list[tuple[object, ...]]]:
    """Every file of the folder, and every name in the connection."""
    files = [(str(path), path.read_text()) for path in sorted(Path().rglob("*")) if path.is_file()]
    names = (
        "SELECT database_name, view_name, sql, comment FROM duckdb_views() WHERE NOT internal "
        "UNION ALL SELECT database_name, table_name, sql, comment FROM duckdb_tables() WHERE NOT internal "
        "UNION ALL SELECT database_name, function_name, macro_definition, comment FROM duckdb_functions() "
        "WHERE NOT internal "
        "UNION ALL SELECT name, value, NULL, NULL FROM duckdb_settings() ORDER BY ALL"
    )
    return files, dataset.sql(names).rows()


@pytest.mark.parametrize("sql", READING)
@pytest.mark.long_after(10)
def test_what_reads_is_run(dataset: Dataset, sql: str) -> None:
    dataset.sql_arrow(sql)


@pytest.mark.parametrize("sql", WRITING)
@pytest.mark.long_after(15)
def test_what_writes_is_refused_before_it_runs(dataset: Dataset, sql: str) -> None:
    before = state(dataset)
    with pytest.raises(QueryError, match=r"only statements that read are run .*--write"):
        dataset.sql_arrow(sql)
    assert state(dataset) == before


@pytest.mark.parametrize("sql", [*FUNCTIONS, *NESTED])
def test_what_duckdb_refuses(dataset: Dataset, sql: str) -> None:
    before = state(dataset)
    with pytest.raises(QueryError):
        dataset.sql_arrow(sql)
    assert state(dataset) == before


def test_what_would_write_does_where_it_may(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the tests above would show nothing."""
    monkeypatch.chdir(tmp_path)
    with ddnn_traces.open(small) as opened:
        for sql in (WRITING[0], WRITING[3], WRITING[7], *WRITING[-6:-1], "EXPORT DATABASE 'new'", *FUNCTIONS[:2]):
            before = set(Path().rglob("*"))
            opened.sql_arrow(sql)
            opened.sql_arrow("SELECT 1")
            assert set(Path().rglob("*")) != before, sql
            opened.sql_arrow("FROM disable_logging()")
            opened.sql_arrow("FROM disable_profiling()")
            for path in sorted(Path().rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()


def test_command(command: RunCommand, tmp_path: Path, small: Path) -> None:
    done = command("sql", small, "SELECT 1; COPY runs TO 'new.csv'")
    assert (done.returncode, done.stdout) == (2, b"")  # nothing of it was run
    assert done.stderr.decode().startswith("ddnn-traces: COPY: only statements that read are run")
    assert list(tmp_path.iterdir()) == []
    done = command("sql", small, stdin=b"SELECT 1;\n\nWITH x AS (COPY runs TO 'new.csv') FROM x;")
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []
    assert command("sql", small, "--write", "COPY runs TO 'new.csv'").returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def shell(small: Path, folder: Path, typed: list[str], *options: str) -> str:
    """What the shell shows on a terminal: each line is typed when it asks for one, then the input ends."""
    terminal, child = pty.openpty()
    call = [*COMMAND, "sql", str(small), *options]
    environment = os.environ | {"TERM": "dumb", "INPUTRC": "/dev/null"}
    shown = b""
    with subprocess.Popen(call, cwd=folder, stdin=child, stdout=child, stderr=child, env=environment):
        os.close(child)
        for number, line in enumerate([*typed, "\x04"], start=1):
            while shown.count(b"ddnn> ") < number:
                shown += os.read(terminal, 4096)
            os.write(terminal, line.encode())
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while chunk := os.read(terminal, 4096):
                shown += chunk
    os.close(terminal)
    return shown.decode(errors="replace")


@pytest.mark.long
def test_shell_refuses_and_goes_on(small: Path, tmp_path: Path) -> None:
    shown = shell(small, tmp_path, ["SELECT 1; COPY runs TO 'new.csv';\n", "SELECT 40 + 2 AS answer;\n"])
    assert "COPY: only statements that read are run" in shown
    assert "answer" in shown
    assert list(tmp_path.iterdir()) == []
    shell(small, tmp_path, ["COPY runs TO 'new.csv';\n"], "--write")
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


@pytest.mark.long
def test_shell_completes(small: Path, tmp_path: Path) -> None:
    shown = shell(small, tmp_path, ["SELECT DISTINCT src_i\t FROM traffic_m\t;\n"])
    assert re.search(r"SELECT DISTINCT src_ip +FROM traffic_matrix *;", shown)
    assert " 10.0.0.2 " in shown


@pytest.mark.long
def test_words_of_the_shell(small: Path) -> None:
    from ddnn_traces.cli.shell import Completer

    with ddnn_traces.open(small) as dataset:
        words = Completer(dataset).words
        assert words("FROM step_f", "step_f") == ["step_flows"]
        assert words("FROM pair_th", "pair_th") == ["pair_throughput("]
        assert "step_flows" in words("SELECT 1 FROM flows JOIN ", "")
        assert "src_ip" not in words("SELECT 1 FROM flows JOIN ", "")
        assert words("SELECT f.src_", "src_") == ["src_ip", "src_port"]
        assert words("sel", "sel") == ["select"]
        assert words("SELECT window_m", "window_m") == ["window_ms"]
        assert Completer(dataset).word("FROM step_f", "step_f", 1) is None
