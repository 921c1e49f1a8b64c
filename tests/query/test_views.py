"""traces.duckdb: plain DuckDB shows what the dataset shows, from any folder, and ingest keeps the file current."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import duckdb
import pytest
from polars.testing import assert_frame_equal
from small_runs import A, B, C, ring, views_are_current, write_captures, write_log
from tools import RunCommand, mostly_long, mostly_nightly

import ddnn_traces
from ddnn_traces import cache
from ddnn_traces.query import catalogue, views
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema

#: A process that knows DuckDB only.
PLAIN = "import duckdb, sys; print(duckdb.connect(sys.argv[1], read_only=True).execute(sys.argv[2]).fetchall())"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = write_captures(tmp_path / "runs" / "one", {"a.pcap": ring(A, B, C)})
    write_log(folder, "worker-1", [1_700_000_000_000_060_000])
    ddnn_traces.ingest(tmp_path / "runs", tmp_path / "dataset").close()
    return tmp_path / "dataset"


pytestmark = pytest.mark.views


#: A ring, a star, a parameter server and pair averaging.
FEW = ("torch-mlp1-sgd-32-gloo-0ms-ring", "torchp2p-mlp1-sgd-32-gloo-0ms-star",
       "tf-mlp1-sgd-32-grpc-0ms-ps", "torchp2p-mlp1-pairavg-32-gloo-0ms-gossip")  # fmt: skip


@pytest.fixture(scope="module")
def few_runs(sample: Path, once: Callable[[str, Callable[[Path], object]], Path]) -> Iterator[Dataset]:
    """Four runs of the sample. Not to be changed."""
    sources = [sample / run for run in FEW]
    with ddnn_traces.open(once("few", lambda path: ddnn_traces.ingest(sources, path).close())) as dataset:
        yield dataset


def plain(file: Path, sql: str, folder: Path = Path("/")) -> str:
    """Output of DuckDB alone in a folder."""
    call = [sys.executable, "-c", PLAIN, str(file), sql]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, check=True).stdout


#: Queries with and without parameters, each of another group; test_comments binds all, and the others run in the night.
BEFORE_THE_NIGHT = (
    "traffic_matrix", "pair_throughput", "flow_counts", "topology", "step_pairs", "bus_bandwidth", "stragglers",
    "timeline_throughput", "layer_slack",
)  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        *mostly_long(schema.TABLES, "runs", "flows"),
        *mostly_nightly(mostly_long(catalogue.catalogue(), "traffic_matrix", "pair_throughput"), *BEFORE_THE_NIGHT),
    ],
)
def test_file_shows_the_same(few_runs: Dataset, name: str) -> None:
    call = f"{name}()" if name in catalogue.catalogue() and catalogue.find(name).params else name
    with duckdb.connect(str(few_runs.path / views.FILE), read_only=True) as connection:
        if name == "inferred_jobs" or (name in catalogue.catalogue() and "inferred_jobs" in catalogue.read_by(name)):
            with pytest.raises(duckdb.InvalidInputException, match="open the dataset with ddnn_traces"):
                connection.sql(f"FROM {call}").pl()
            return
        found = connection.sql(f"FROM {call}").pl()
    assert_frame_equal(found, few_runs.sql(f"FROM {call}"), check_row_order=name in catalogue.catalogue())


def test_a_file_of_definitions_is_known_by_the_module_that_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one maker's mistake left among the files made before is never taken for another's."""

    def other(connection: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> None:
        connection.execute("CREATE VIEW flows AS SELECT 1")

    names: list[str] = []
    monkeypatch.setattr(views, "_cached", lambda _file, name, _make: names.append(name))
    for define in (None, other, None):
        views.write_relative(tmp_path / "file", tmp_path, ["flows"], define)
    assert names[0] == names[2] != names[1]


def test_comments_are_those_of_the_dataset(sample_dataset: Dataset) -> None:
    lists = (
        "SELECT table_name, column_name, comment FROM duckdb_columns() "
        "WHERE schema_name = 'main' AND NOT internal ORDER BY ALL",
        "SELECT view_name, comment FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal ORDER BY ALL",
        "SELECT function_name, comment, parameters FROM duckdb_functions() "
        "WHERE NOT internal AND schema_name = 'main' ORDER BY ALL",
    )
    with duckdb.connect(str(sample_dataset.path / views.FILE), read_only=True) as connection:
        for sql in lists:
            found = connection.execute(sql).fetchall()
            assert found == sample_dataset.sql(sql).rows()
            assert found
        missing = "SELECT function_name FROM duckdb_functions() WHERE NOT internal AND comment IS NULL"
        assert connection.execute(missing).fetchall() == []
        missing = "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL"
        assert connection.execute(f"{missing} AND schema_name = 'main'").fetchall() == []
        columns = "SELECT comment FROM duckdb_columns() WHERE table_name = 'step_volume' AND column_name = 'wire_bytes'"
        assert connection.execute(columns).fetchall() == [
            ("wire bytes of all flows in the step, with headers, acknowledgements and what is sent again [bytes]",)
        ]
        macro = "SELECT DISTINCT comment FROM duckdb_functions() WHERE function_name = 'flow_counts'"
        [(comment,)] = connection.execute(macro).fetchall()
        assert "\nlarge_flows: fewest flows that together carry" in comment


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of the user's cache has the queries: each is made when it is read."""
    monkeypatch.setattr(cache, "folder", lambda _: None)


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.long
def test_only_what_sql_reads_is_made(dataset: Path) -> None:
    """Words of a comment are no SQL: most queries have one of those that list views in theirs."""
    names = "SELECT count(*) FROM (SHOW TABLES)"
    with ddnn_traces.open(dataset) as opened:
        opened.sql("SELECT 1  -- show bus_bandwidth\n /* describe */")
        opened.sql('SELECT \'no windows show whether\' AS "how" ORDER BY "how" DESC')
        opened.query("pause_recurrence")
        made = opened._connection.sql(names).fetchall()
        assert len(schema.TABLES) < made[0][0] < len(schema.TABLES) + 10
        assert opened.sql(names)["count_star()"][0] > made[0][0] + 50


LISTS = (
    # the columns that EXCLUDE leaves out have no order, and streams of Python have new names in each connection
    r"SELECT view_name, comment, regexp_replace(sql, 'EXCLUDE \([^)]*\)|__duckdb_source\w*', '', 'g')"
    " FROM duckdb_views() WHERE NOT internal ORDER BY ALL",
    "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL",
    "SELECT function_name, parameters, macro_definition, comment FROM duckdb_functions() WHERE NOT internal "
    "ORDER BY ALL",
    "SELECT database_name FROM duckdb_databases() WHERE NOT internal",
)


@pytest.mark.long
@pytest.mark.parametrize("are_kept_before", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_copies_of_kept_queries_are_those_made_anew(
    dataset: Path, tmp_path: Path, are_kept_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []
    for folder in (None, tmp_path, tmp_path):
        monkeypatch.setattr(cache, "folder", lambda _, folder=folder: folder)
        if folder and are_kept_before:
            views.keep_queries()
        with ddnn_traces.open(dataset) as opened:
            shown.append([opened.connection.execute(sql).fetchall() for sql in LISTS])
    assert shown[0] == shown[1] == shown[2]
    assert len(list(tmp_path.glob("queries-*.duckdb"))) == 1
    with ddnn_traces.open(dataset) as opened:
        assert opened.query("ring_order").height == 3
        made = {name for name, comment, _ in opened._connection.execute(LISTS[0]).fetchall() if comment}
        assert "step_volume" in made  # also what it does not read


def test_a_damaged_file_of_kept_queries_is_not_read(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = views._kept_queries()
    assert kept
    content = kept.read_bytes()
    monkeypatch.setattr(cache, "folder", lambda _: tmp_path)
    for damaged in (b"no database", content[:20_000], content[:-400_000] + bytes(400_000)):
        (tmp_path / kept.name).write_bytes(damaged)
        with ddnn_traces.open(dataset) as opened:
            assert opened.query("ring_order").height == 3


def test_what_is_interrupted_while_it_is_copied_is_copied_again(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        copied(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    copied = views.copy_queries
    with ddnn_traces.open(dataset) as opened:
        monkeypatch.setattr(views, "copy_queries", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened.query("ring_order")
        monkeypatch.setattr(views, "copy_queries", copied)
        assert opened.query("ring_order").height == 3


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.long
def test_what_is_interrupted_is_made_again(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(query: catalogue.Query) -> str:
        if query.name == "pair_payload":
            raise KeyboardInterrupt
        return made(query)

    made = views._query
    with ddnn_traces.open(dataset) as opened:
        monkeypatch.setattr(views, "_query", interrupted)
        with pytest.raises(KeyboardInterrupt):
            opened.query("ring_order")
        monkeypatch.setattr(views, "_query", made)
        assert opened.query("ring_order").height == 3


def test_queries_are_made_within_a_transaction_of_the_user(dataset: Path) -> None:
    with ddnn_traces.open(dataset) as opened:
        opened.sql("BEGIN")
        assert opened.query("traffic_matrix").height == 6
        opened.sql("COMMIT")
        assert opened.query("traffic_matrix").height == 6


@pytest.mark.long
def test_from_any_folder(dataset: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, dataset, Path("/")):
        assert plain(dataset / views.FILE, "SELECT count(*) FROM flows", folder) == "[(6,)]\n"
    assert str(dataset) in plain(dataset / views.FILE, "SELECT dataset FROM ddnn_traces.about")


def test_attached_under_another_name(dataset: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE flows AS SELECT 'mine' AS run_id"
        )  # no view may read this instead of the dataset's
        connection.execute(f"ATTACH '{dataset / views.FILE}' AS t (READ_ONLY)")
        assert connection.execute("SELECT count(*) FROM t.traffic_matrix").fetchall() == [(6,)]
        assert connection.execute("SELECT DISTINCT run_id FROM t.total_volume").fetchall() == [("one",)]
        connection.execute("USE t")  # macros are text: DuckDB looks their tables up in the caller's database
        assert connection.execute("SELECT DISTINCT run_id FROM flow_counts()").fetchall() == [("one",)]


def test_moved_dataset(dataset: Path, tmp_path: Path, command: RunCommand) -> None:
    dataset.rename(tmp_path / "moved")
    with pytest.raises(subprocess.CalledProcessError) as error:
        plain(tmp_path / "moved" / views.FILE, "FROM flows")
    assert f'No files found that match the pattern "{dataset}/flows' in error.value.stderr
    done = command("export", "moved", "--to", "duckdb")
    assert (done.returncode, done.stderr.decode()) == (0, "wrote moved/traces.duckdb\n")
    assert plain(tmp_path / "moved" / views.FILE, "SELECT count(*) FROM flows") == "[(6,)]\n"


@pytest.mark.long
def test_moved_dataset_with_its_new_folder(dataset: Path, tmp_path: Path) -> None:
    """Also without this package: one macro has the folder, and the file has no other dataset's."""
    dataset.rename(tmp_path / "moved")
    with duckdb.connect(str(tmp_path / "moved" / views.FILE)) as connection:
        connection.execute(f"CREATE OR REPLACE MACRO ddnn_traces.folder() AS '{tmp_path / 'moved'}'")
    assert plain(tmp_path / "moved" / views.FILE, "SELECT count(*) FROM traffic_matrix") == "[(6,)]\n"


@pytest.mark.parametrize("name", mostly_long(["it's 100% [a] b?", "a=b", "µ 数据集"], "a=b"))
def test_folders_of_any_name(tmp_path: Path, name: str) -> None:
    write_captures(tmp_path / "runs" / "one", {"a.pcap": ring(A, B, C)})
    ddnn_traces.ingest(tmp_path / "runs", tmp_path / name).close()
    assert views_are_current(tmp_path / name)
    shutil.copyfile(
        tmp_path / name / views.FILE, tmp_path / "copy.duckdb"
    )  # DuckDB takes a ? for more than a character
    assert plain(tmp_path / "copy.duckdb", "SELECT count(*) FROM traffic_matrix") == "[(6,)]\n"


@pytest.mark.long
def test_ingest_into_a_copy_writes_it_anew(dataset: Path, tmp_path: Path) -> None:
    shutil.copytree(dataset, tmp_path / "copy")
    assert not views_are_current(tmp_path / "copy")
    ddnn_traces.ingest(tmp_path / "runs", tmp_path / "copy").close()
    assert views_are_current(tmp_path / "copy")
    assert str(tmp_path / "copy") in plain(tmp_path / "copy" / views.FILE, "SELECT dataset FROM ddnn_traces.about")


def test_only_a_change_writes_it(dataset: Path, tmp_path: Path) -> None:
    before = (dataset / views.FILE).stat()
    write_captures(tmp_path / "runs" / "two", {"a.pcap": ring(A, B)})
    ddnn_traces.ingest(tmp_path / "runs", dataset).close()
    after = (dataset / views.FILE).stat()
    assert after.st_mtime_ns == before.st_mtime_ns
    assert plain(dataset / views.FILE, "SELECT run_id FROM runs ORDER BY 1") == "[('one',), ('two',)]\n"


@pytest.mark.long
@pytest.mark.parametrize("is_writable", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_cached_queries_are_those_made_anew(
    dataset: Path, tmp_path: Path, is_writable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = tmp_path / "cached"
    cached.mkdir()
    monkeypatch.setattr(cache, "folder", lambda _: cached if is_writable else None)
    shown = []
    for name in ("new", "again"):
        views.write(tmp_path / name, dataset)
        sql = "SELECT sql, comment FROM duckdb_views() WHERE NOT internal ORDER BY ALL"
        with duckdb.connect(str(tmp_path / name), read_only=True) as connection:
            shown.append(connection.execute(sql).fetchall())
            assert connection.execute("SELECT count(*) FROM flow_counts()").fetchall() == [(1,)]
    assert shown[0] == shown[1] != []
    assert len(list(cached.iterdir())) == is_writable
    for name in ("queries", "schemas"):
        shutil.copytree(schema.shipped_folder(name), tmp_path / name)
    with (tmp_path / "queries" / "topology.sql").open("a") as file:
        file.write("-- another line\n")
    monkeypatch.setattr(schema, "shipped_folder", lambda name: tmp_path / name)
    monkeypatch.setattr(views, "_LOADED_NS", time.time_ns() + 10**9)
    views.write(tmp_path / "other", dataset)
    assert len(list(cached.iterdir())) == 2 * is_writable


@pytest.mark.long
def test_what_a_process_made_before_an_update_is_not_kept(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its definitions in memory are not those of the files that it reads now."""
    cached = tmp_path / "cached"
    cached.mkdir()
    monkeypatch.setattr(cache, "folder", lambda _: cached)
    monkeypatch.setattr(views, "_LOADED_NS", 0)  # before all files were written
    views.write(tmp_path / "a.duckdb", dataset)
    assert list(cached.iterdir()) == []


@pytest.mark.parametrize("content", mostly_long([None, b"", b"no database"], b"no database"))
def test_ingest_repairs_it(dataset: Path, tmp_path: Path, content: bytes | None) -> None:
    if content is None:
        (dataset / views.FILE).unlink()
    else:
        (dataset / views.FILE).write_bytes(content)
    ddnn_traces.ingest(tmp_path / "runs", dataset).close()
    assert plain(dataset / views.FILE, "SELECT count(*) FROM flows") == "[(6,)]\n"
    assert sorted(path.name for path in dataset.iterdir() if path.name.startswith(".")) == []


@pytest.mark.long
def test_reader_and_ingest_do_not_disturb_each_other(dataset: Path, tmp_path: Path) -> None:
    """Another process has the file open, even for writing: an ingest goes on, and the reader reads on."""
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.readline()\n"
    code += "print(c.execute('SELECT count(*) FROM flows').fetchall())"
    call = [sys.executable, "-c", code, str(dataset / views.FILE)]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout
        assert reader.stdout.readline() == "open\n"
        write_captures(tmp_path / "runs" / "two", {"a.pcap": ring(A, B)})
        ddnn_traces.ingest(tmp_path / "runs", dataset).close()
        assert plain(dataset / views.FILE, "SELECT count(*) FROM flows") == "[(10,)]\n"
        assert reader.communicate("\n")[0] == "[(10,)]\n"


def hostile_database(file: Path, written: Path) -> None:
    """A database file whose view writes a file when it is read, which DuckDB does where nothing forbids it."""
    file.unlink()
    copies = f"WITH t AS (COPY (SELECT 'sh') TO '{written}') SELECT 1"
    with duckdb.connect(str(file)) as connection:
        plan = connection.execute("SELECT json_serialize_sql(?)", [copies]).fetchall()[0][0].replace("'", "''")
        runs = f"EXISTS (FROM json_execute_serialized_sql('{plan}'))"
        connection.execute(
            "CREATE SCHEMA ddnn_traces; CREATE VIEW ddnn_traces.about AS "
            f"SELECT 'all' AS definitions, 'all' AS version, 'all' AS dataset WHERE {runs}"
        )
        for name in schema.TABLES:
            connection.execute(f"CREATE VIEW {name} AS SELECT 1 AS run_id WHERE {runs}")
        assert not written.exists()
    assert plain(file, "SELECT definitions FROM ddnn_traces.about") == "[('all',)]\n"
    assert written.exists(), "the trap is none"
    written.unlink()


@pytest.mark.parametrize(
    ("arguments", "is_replaced"),
    [
        (["export", "dataset", "--to", "duckdb"], True),
        (["ingest", "runs", "--out", "dataset"], True),
        (["runs", "dataset"], False),
        (["check", "dataset"], False),
        (["sql", "dataset", "FROM ddnn_traces.about"], False),
    ],
)
@pytest.mark.long_after(1)
def test_a_database_file_of_others_is_not_run(
    dataset: Path, tmp_path: Path, arguments: list[str], is_replaced: bool, command: RunCommand
) -> None:
    hostile_database(dataset / views.FILE, tmp_path / "written")
    command(*arguments)
    assert not (tmp_path / "written").exists()
    assert views_are_current(dataset) == is_replaced


@pytest.mark.parametrize("is_broken", [False, True])
@pytest.mark.long_after(1)
def test_a_link_in_its_place_is_replaced(dataset: Path, tmp_path: Path, is_broken: bool, command: RunCommand) -> None:
    other = tmp_path / "other"
    if not is_broken:
        other.write_text("mine")
    (dataset / views.FILE).unlink()
    (dataset / views.FILE).symlink_to(other)
    assert command("export", "dataset", "--to", "duckdb").returncode == 0
    assert not (dataset / views.FILE).is_symlink()
    assert views_are_current(dataset)
    assert not other.exists() if is_broken else other.read_text() == "mine"


def test_elsewhere(dataset: Path, tmp_path: Path, command: RunCommand) -> None:
    assert command("export", "dataset", "--to", "duckdb", "--out", "mine.duckdb").returncode == 0
    assert plain(tmp_path / "mine.duckdb", "SELECT count(*) FROM flows") == "[(6,)]\n"
    done = command("export", "dataset", "--to", "duckdb", "--out", "mine.duckdb/mine.duckdb")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"mine.duckdb/mine.duckdb: cannot be written" in done.stderr


@pytest.mark.long
def test_duckdb_1_1_opens_the_file(dataset: Path, tmp_path: Path) -> None:
    """The oldest DuckDB that the file is for; it plans the queries that read many others for minutes."""
    older = tmp_path / "older"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(older), "duckdb==1.1.3"], check=True, capture_output=True)
    reads = (
        "import duckdb, sys; print(duckdb.__version__); opened = duckdb.connect(sys.argv[1], read_only=True)\n"
        "for sql in sys.argv[2:]: print(opened.execute(sql).fetchall())"
    )
    asked = [
        *(f"SELECT count(*) FROM {table}" for table in schema.TABLES),
        "SELECT src_ip, dst_ip, wire_bytes FROM traffic_matrix", "SELECT run_id, flows FROM flow_counts()",
        "SELECT since_start_ms, wire_bytes FROM pair_throughput(window_ms := 100)",
    ]  # fmt: skip
    call = [sys.executable, "-c", reads, str(dataset / views.FILE), *asked]
    done = subprocess.run(call, env={"PYTHONPATH": str(older)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    version, *rows = done.stdout.splitlines()
    assert version == "1.1.3"
    with ddnn_traces.open(dataset) as opened:
        assert rows == [str(opened.connection.execute(sql).fetchall()) for sql in asked]
