"""Every named query against its cases and its head, and through each of the ways in which a user can run it.

A case is a folder tests/queries/QUERY/CASE/ with TABLE.csv for each input (the columns that matter; the others are
null, a table without a file is empty), params.toml where parameters are not the defaults, and expected.csv: all columns
and rows of the result, in order. An empty field is null. README explains what the case's name does not.
"""

from __future__ import annotations

import functools
import json
import re
import tomllib
from collections.abc import Iterator
from itertools import chain, groupby, takewhile
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
import scipy.stats
from datasets import read_case, table_frame, write_dataset
from polars.testing import assert_frame_equal
from tools import mostly_long, mostly_nightly, script

from ddnn_traces.errors import QueryError
from ddnn_traces.query import catalogue, checks, inferred
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema

CASES = sorted((Path(__file__).parents[1] / "queries").glob("*/*/"))
#: The first case of each query.
FIRST_CASES = [next(cases) for _, cases in groupby(CASES, lambda case: case.parent)]
QUERIES = list(catalogue.catalogue())
#: Those in SQL: rows of the others are lists, which their readers have cases of.
IN_SQL = [name for name in QUERIES if not catalogue.find(name).made_by]
CHECKS = [catalogue.read(checks.folder() / f"{name}.sql") for name in sorted(checks.names())]
TYPES = {"BIGINT", "DOUBLE", "VARCHAR", "BOOLEAN"}
#: Units of schemas/, and those that only results have.
UNITS = {column.unit for table in schema.tables() for column in table.columns} | {
    *("s", "Gbit/s", "samples/s", "share", "ratio", "degrees of freedom", "standard errors"),  # not counted
    *(
        "runs",
        "captures",
        "rows",
        "flows",
        "flow iterations",
        "iterations",
        "steps",
        "boundaries",
        "transfers",
        "bursts",
    ),
    *("batches", "channels", "pairs", "queue pairs", "windows", "replicates", "links", "edges", "groups", "jobs"),
}
#: Name of a result column -> the units that it may have; the first match counts.
NAMED_UNITS = {
    r"share_.*|(.*_)?share|(.*_)?ratio": {"share", "ratio"},
    r".*_ns": {"ns", "ns since the epoch, UTC"},
    r".*_ms": {"ms"},
    r".*gbit_per_s": {"Gbit/s"},
    r"(.*_)?samples_per_s": {"samples/s"},
    r".*_s": {"s"},
    r".*_mb": {"MB (10^6 bytes)"},
    r".*_mbit": {"Mbit/s"},
    r".*_pct": {"percent"},
    r"(.*_)?bytes": {"bytes"},
    r"(.*_)?packets": {"packets"},
}
STABLE = {
    "traffic_matrix": ["run_id", "src_ip", "dst_ip", "wire_bytes", "payload_bytes", "packets"],
    "ring_order": ["run_id", "is_ring", "position", "host_ip", "next_host_ip"],
    "step_volume": ["run_id", "step", "wire_bytes", "payload_bytes"],
}
RUN_NAMES = ["2021-05-01", "007", "1e5", "NULL", "a b", "x'y", "50%", "50%25", "ä=/ü", "..", "*", "a+b", "run[1]?#"]


#: Further queries that DuckDB plans for a second or two.
SLOW = (
    "figure_runs", "inferred_steps", "pause_recurrence", "step_inference_score", "step_synchrony", "timeline_intervals",
)  # fmt: skip


def case_name(case: Path) -> str:
    """QUERY/CASE."""
    return f"{case.parent.name}/{case.name}"


def is_quick(case: Path) -> bool:
    """Whether the case's query reads no view on several ways: DuckDB plans such a query for a second or two."""
    query = catalogue.find(case.parent.name)
    if query.name in SLOW:
        return False
    return query.name in ("topology", "conservation", "bus_bandwidth") or query.statement == query.sql


def assert_expected(result: pl.DataFrame, case: Path) -> None:
    """Compare a result with the rows that a case expects; an empty field is null."""
    expected = pl.read_csv(case / "expected.csv", schema_overrides=result.schema)
    assert_frame_equal(result, expected, rel_tol=1e-9, abs_tol=0)


def read_params(case: Path) -> dict[str, Any]:
    """A case's parameters; "NULL" stands for null."""
    path = case / "params.toml"
    return tomllib.loads(path.read_text()) if path.exists() else {}


def in_sql(name: str, params: dict[str, Any]) -> str:
    """SQL that reads the query as a view, or as a table macro where it has parameters."""
    query = catalogue.find(name)
    if not query.params:
        return f"FROM {name}"
    values = query.values(dict.fromkeys(query.needs, "*") | params)
    given = [f"{param} := {'NULL' if values[param] is None else repr(values[param])}" for param in params]
    return f"FROM {name}({', '.join(given)})"


def nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects in a syntax tree."""
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from nodes(child)


@functools.cache
def syntax_tree(sql: str) -> dict[str, Any]:
    """DuckDB's syntax tree of a query's SQL, which is one SELECT statement."""
    [(text,)] = duckdb.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    [statement] = json.loads(text)["statements"]
    return statement["node"]


def reads(tree: dict[str, Any]) -> set[str]:
    """Inputs of a query: tables, views and macros, without its own CTEs."""
    named = {node.get("table_name") for node in nodes(tree) if node.get("type") == "BASE_TABLE"}
    called = {node["function"]["function_name"] for node in nodes(tree) if node.get("type") == "TABLE_FUNCTION"}
    ctes = {entry["key"] for node in nodes(tree) if "cte_map" in node for entry in node["cte_map"]["map"]}
    return (named | called & set(QUERIES)) - ctes


def order_columns(tree: dict[str, Any]) -> list[str]:
    """The columns of a query's outermost ORDER BY."""
    orders = [modifier["orders"] for modifier in tree["modifiers"] if modifier["type"] == "ORDER_MODIFIER"]
    return [order["expression"]["column_names"][-1] for order in chain.from_iterable(orders)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """Runs of all RUN_NAMES, with a flow each, which has as many bytes as the name's place in the list."""
    runs = pl.DataFrame({"run_id": RUN_NAMES})
    flows = runs.with_columns(src_ip=pl.lit("10.0.0.1"), dst_ip=pl.lit("10.0.0.2")).with_row_index("wire_bytes")
    with write_dataset(tmp_path_factory.mktemp("names"), {"runs": runs, "flows": flows}) as opened:
        yield opened


# --- the cases


_PLANNED_SOON = [case for case in FIRST_CASES if is_quick(case)][::9]
_QUICK_IN_SQL = _PLANNED_SOON[::2]
#: A sixth. As a view of views, DuckDB plans split_predictions for a minute; as Dataset.query, for two seconds.
_IN_SQL = {*_PLANNED_SOON, *FIRST_CASES[::6]} - {
    case for case in FIRST_CASES if case.parent.name == "split_predictions"
}


@pytest.mark.parametrize(
    "case",
    mostly_nightly(mostly_long(FIRST_CASES, *_QUICK_IN_SQL, name=case_name), *map(case_name, _IN_SQL)),
)
def test_case_gives_the_expected_rows_in_sql(case: Path, tmp_path: Path) -> None:
    """A case of a query, in the night of each; the next test has all cases, by Dataset.query."""
    with write_dataset(tmp_path / "dataset", read_case(case, as_text=True)) as opened:
        assert_expected(opened.sql(in_sql(case.parent.name, read_params(case))), case)


@pytest.fixture(scope="module")
def in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """A dataset whose tables are in DuckDB's memory, so that a case only has to fill them."""
    with write_dataset(tmp_path_factory.mktemp("memory"), {"runs": pl.DataFrame({"run_id": ["r"]})}) as opened:
        connection = opened.provide("jobs")  # all queries are copied, and what Python makes is there
        for table in schema.TABLES:
            connection.register("given_rows", table_frame(table, pl.DataFrame()).to_arrow())
            connection.execute(f"DROP VIEW {table}; CREATE TABLE {table} AS FROM given_rows")
        yield opened


def fill(dataset: Dataset, given: dict[str, pl.DataFrame]) -> Dataset:
    """`dataset`, in which each table has these rows, or none."""
    connection = dataset.provide("")
    connection.execute(";".join(f"TRUNCATE {table}" for table in schema.TABLES))
    inferred.provide(connection)  # anew: a run of the same name was inferred before
    for table, rows in given.items():
        connection.register("given_rows", table_frame(table, rows).to_arrow())
        connection.execute(f"INSERT INTO {table} FROM given_rows")
    return dataset


def needs_files(case: Path) -> bool:
    """The first case of each query is of files, as a user's are. Those of a chosen job open the dataset again."""
    return case in FIRST_CASES or bool(catalogue.SELECTION.keys() & read_params(case))


@pytest.mark.parametrize("case", mostly_long(CASES, *CASES[::60], name=case_name))
@pytest.mark.long_after(2)
def test_case_gives_the_same_rows_for_rows_in_another_order(case: Path, tmp_path: Path, in_memory: Dataset) -> None:
    backwards = {table: frame.reverse() for table, frame in read_case(case, as_text=True).items()}
    if needs_files(case):
        with write_dataset(tmp_path / "backwards", backwards) as opened:
            result = opened.query(case.parent.name, **read_params(case))
    else:
        result = fill(in_memory, backwards).query(case.parent.name, **read_params(case))
    assert_expected(result, case)
    key = order_columns(syntax_tree(catalogue.find(case.parent.name).sql))
    if set(key) <= set(result.columns):
        assert result.select(key).is_unique().all(), f"{key} do not determine the order of the rows"


def test_every_query_has_a_case() -> None:
    assert set(IN_SQL) - {case.parent.name for case in CASES} == set(), "tests/queries/QUERY/ has no case"


def test_cases_hold_no_other_files() -> None:
    known = {"expected.csv", "params.toml", "README", *(f"{table}.csv" for table in schema.TABLES)}
    assert [path for case in CASES for path in case.iterdir() if path.name not in known] == []


# --- the files in queries/


def test_head_is_complete(subtests: pytest.Subtests) -> None:
    for name in QUERIES:
        with subtests.test(name):
            query = catalogue.find(name)
            head = "\n".join(takewhile(lambda line: line.startswith("--"), query.sql.splitlines()))
            keys = re.findall(r"^-- (\w+):", head, re.MULTILINE)
            assert query.question.endswith("?")
            assert query.row
            assert set(keys) <= {
                "question",
                "subject",
                "row",
                "inputs",
                "param",
                "needs",
                "optional",
                "figure",
                "made_by",
                "answer",
                "column",
            }
            for key, found in (("param", query.params), ("column", query.columns)):
                assert keys.count(key) == len(found), (
                    f"a {key} line stands below the head's other lines and is not read"
                )


def test_head_names_the_inputs_of_the_query(subtests: pytest.Subtests) -> None:
    for name in QUERIES:
        with subtests.test(name):
            inputs = catalogue.find(name).inputs
            assert set(inputs) <= {*schema.TABLES, *QUERIES}
            assert set(inputs) == reads(syntax_tree(catalogue.find(name).sql))
            assert len(inputs) == len(set(inputs))


def test_parameters_of_the_head_are_those_of_the_sql(subtests: pytest.Subtests) -> None:
    for name in QUERIES:
        with subtests.test(name):
            query = catalogue.find(name)
            params = {param.name for param in query.params}
            columns = {column.name for table in schema.tables() for column in table.columns}
            assert set(re.findall(r"\$(\w+)", query.sql)) == params
            assert params & columns == set(), "a parameter is hidden by a column of the same name in the table macro"


def test_rows_come_in_an_order(subtests: pytest.Subtests) -> None:
    for name in QUERIES:
        with subtests.test(name):
            assert order_columns(syntax_tree(catalogue.find(name).sql)) != []


@pytest.mark.parametrize("name", mostly_long(IN_SQL, *IN_SQL[::10]))
def test_result_has_the_columns_of_the_head_in_plain_types(name: str, dataset: Dataset) -> None:
    """DuckDB sums BIGINT to HUGEINT, which other programs do not know and Arrow makes a double of."""
    described = dataset.sql(f"DESCRIBE {in_sql(name, {})}")
    assert described["column_name"].to_list() == [column.name for column in catalogue.find(name).columns]
    odd = described.filter(~pl.col("column_type").is_in(TYPES))
    assert odd.select("column_name", "column_type").rows() == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_check_has_the_columns_of_its_head(check: catalogue.Query, dataset: Dataset) -> None:
    described = dataset.sql(f"DESCRIBE {check.sql}")
    assert described["column_name"].to_list() == [column.name for column in check.columns]
    assert check.question.endswith("?")
    assert check.row
    assert set(check.inputs) == reads(syntax_tree(check.sql))


def test_units_of_result_columns(subtests: pytest.Subtests) -> None:
    for query in [*catalogue.catalogue().values(), *CHECKS]:
        with subtests.test(query.name):
            tables = {column.name: column.unit for table in schema.tables() for column in table.columns if column.unit}
            for column in query.columns:
                units = next(
                    (units for pattern, units in NAMED_UNITS.items() if re.fullmatch(pattern, column.name)),
                    UNITS | {""},
                )
                assert column.unit in units, f"{column.name} is in {column.unit}"
                if column.name in tables:
                    assert column.unit == tables[column.name], f"{column.name} has another unit in schemas/"


#: Queries that had the word begin for what others call start, before there was a rule.
BEGINS = {
    "run_spans", "inferred_throughput", "throughput_samples", "parameter_server_pairs", "collective_completion",
    "stragglers",
}  # fmt: skip


def test_names_of_times_have_the_words_of_the_docs() -> None:
    """docs/tables.md lists them: start_ns in one query was begin_ns in another."""
    words = {name for names in script("docs/generate.py").TIMES for name in names.split(", ")}
    every = [*schema.tables(), *catalogue.catalogue().values(), *CHECKS]
    times = {(one.name, column.name) for one in every for column in one.columns if "since the epoch" in column.unit}
    odd = {(where, name) for where, name in times if not any(f"_{name}".endswith(f"_{word}") for word in words)}
    assert odd == set()
    assert {where for where, name in times if name == "begin_ns"} == BEGINS | {"negative_durations"}


@pytest.mark.parametrize("name", STABLE)
def test_columns_that_other_programs_rely_on(name: str, dataset: Dataset) -> None:
    assert dataset.query(name).columns == STABLE[name]


HEAD = "-- question: Why?\n-- row: a run\n-- inputs: runs\nSELECT 1\n"


@pytest.mark.parametrize("line", [0, 1, 2])
def test_head_without_a_necessary_line_is_named_with_its_file(line: int, tmp_path: Path) -> None:
    path = tmp_path / "mine.sql"
    path.write_text(HEAD)
    assert catalogue.read(path).inputs == ("runs",)
    lines = HEAD.splitlines()
    missing = lines.pop(line).split(":")[0]
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=rf"mine\.sql: .*{missing}: "):
        catalogue.read(path)


def head(tmp_path: Path, column: str, inputs: str = "flows, flow_windows") -> catalogue.Query:
    """A query with this column line."""
    path = tmp_path / "mine.sql"
    path.write_text(f"-- question: Why?\n-- row: a run\n-- inputs: {inputs}\n-- column: {column}\nSELECT 1\n")
    return catalogue.read(path)


@pytest.mark.parametrize(
    ("line", "source"),
    [("dst_ip", "flows"), ("first_seen_ns", "flows"), ("wire_bytes from flow_windows", "flow_windows")],
)
def test_a_column_takes_unit_and_meaning_from_an_input(line: str, source: str, tmp_path: Path) -> None:
    query = head(tmp_path, line)
    [column] = query.columns
    defined = {other.name: other for other in schema.table(source).columns}[column.name]
    assert (column.unit, column.meaning) == (defined.unit, defined.meaning) and column.meaning
    unit = f" {column.unit}" if column.unit else ""
    assert f"-- column: {column.name}{unit}; {column.meaning}\nSELECT 1" in query.sql, "readers of the SQL see it"


def test_a_column_takes_its_meaning_through_a_query(tmp_path: Path) -> None:
    [column] = head(tmp_path, "src_ip", "traffic_matrix").columns
    assert column.meaning == {other.name: other for other in schema.table("flows").columns}["src_ip"].meaning


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("wire_bytes", r"flows, flow_windows define wire_bytes differently; .* wire_bytes from flows"),
        ("nothing", r"no input has a column nothing; write '-- column: nothing UNIT; MEANING'"),
        ("src_ip from flow_windows", r"flow_windows has no column src_ip"),
        ("src_ip from hosts", r"column src_ip is from hosts, which is not among the inputs"),
        ("src_ip of flows", r"cannot read the column 'src_ip of flows'"),
    ],
)
def test_a_column_without_one_definition_is_named_with_its_file(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"mine\.sql: .*{said}"):
        head(tmp_path, line)


def test_no_head_repeats_the_meaning_that_an_input_has(subtests: pytest.Subtests) -> None:
    for query in [*catalogue.catalogue().values(), *CHECKS]:
        with subtests.test(query.name):
            written = set(re.findall(r"^-- column: (\w+)(?: [^;\n]+)?; ", query.path.read_text(), re.MULTILINE))
            found = [schema.table(read) if read in schema.TABLES else catalogue.find(read) for read in query.inputs]
            known = {(column.name, column.unit, column.meaning) for read in found for column in read.columns}
            repeated = [c.name for c in query.columns if c.name in written and (c.name, c.unit, c.meaning) in known]
            assert repeated == [], "leave out unit and meaning"


# --- mistakes of the user


def test_unknown_query_names_the_nearest(dataset: Dataset) -> None:
    with pytest.raises(QueryError, match="no query named trafic_matrx; the nearest are traffic_matrix"):
        dataset.query("trafic_matrx")


def test_unknown_parameter_names_the_nearest(dataset: Dataset) -> None:
    with pytest.raises(QueryError, match="pair_throughput has no parameter window; did you mean window_ms"):
        dataset.query("pair_throughput", window=5)


def test_parameter_of_a_query_without_any(dataset: Dataset) -> None:
    with pytest.raises(QueryError, match=r"compare has no parameter b_run; did you mean b_runs or a_runs\?"):
        catalogue.find("compare").values({"a_runs": "a", "b_run": "b"})  # b_runs is needed, and not given
    with pytest.raises(
        QueryError, match=r"topology has no parameter run_id: --run .* in Python .*open\(\.\.\., runs=\["
    ):
        catalogue.find("topology").values({"run_id": "ring"})
    with pytest.raises(QueryError, match="traffic_matrix has no parameter window_ms; there are: job, communicator"):
        dataset.query("traffic_matrix", window_ms=5)


def test_a_query_without_what_it_needs_explains_itself(dataset: Dataset) -> None:
    with pytest.raises(QueryError, match=r"compare needs b_runs \(run_id of the second run, "):
        dataset.query("compare", a_runs="*")


@pytest.mark.parametrize("pool_by", ["colour", "", "model,colour"])
def test_a_setting_that_there_is_not_is_named(pool_by: str, dataset: Dataset) -> None:
    with pytest.raises(QueryError, match=r"pool_by has no setting .*; it has backend, "):
        dataset.query("total_throughput", pool_by=pool_by)


@pytest.mark.parametrize("value", ["ten", "", "1,5", [10]])
def test_value_that_is_not_a_number(value: Any, dataset: Dataset) -> None:
    with pytest.raises(QueryError, match=r"DOUBLE|BIGINT"):
        dataset.query("pair_throughput", window_ms=value)


@pytest.mark.parametrize(
    ("type_", "text", "value"), [("BIGINT", "7", 7), ("DOUBLE", "2.5", 2.5), ("VARCHAR", "7", "7")]
)
def test_text_stands_for_a_value_of_the_type(type_: str, text: str, value: Any) -> None:
    param = catalogue.Param("p", type_, None, "a parameter")
    assert param.parse(text) == value
    assert param.parse("null") is None


def test_integer_parameter_takes_no_fraction() -> None:
    with pytest.raises(QueryError, match=r"parameter hosts = '2\.5' is not a BIGINT: number of hosts"):
        catalogue.Param("hosts", "BIGINT", 1, "number of hosts").parse("2.5")


@pytest.mark.parametrize("value", ["0", "-5", 0, -0.5])
@pytest.mark.parametrize("name", [name for name in QUERIES if any(p.positive for p in catalogue.find(name).params)])
def test_parameter_that_must_be_above_0(name: str, value: Any, dataset: Dataset) -> None:
    param = next(param for param in catalogue.find(name).params if param.positive)
    with pytest.raises(QueryError, match=f"parameter {param.name} = .* must be above 0|is not a {param.type}"):
        dataset.query(name, **{param.name: value})


@pytest.mark.parametrize("value", ["nan", "inf", float("nan"), float("-inf")])
def test_parameter_that_is_not_a_finite_number(value: Any, dataset: Dataset) -> None:
    with pytest.raises(
        QueryError, match=r"parameter window_ms = .*(nan|inf).* is not a (DOUBLE|finite number): length"
    ):
        dataset.query("pair_throughput", window_ms=value)


def test_wrong_sql_gives_the_message_of_duckdb(dataset: Dataset) -> None:
    with pytest.raises(QueryError, match='Referenced column "wire_byte" not found'):
        dataset.sql("SELECT wire_byte FROM flows")


# --- statistics


def test_student_t_is_that_of_scipy(dataset: Dataset) -> None:
    table = dataset.query("student_t")
    assert table["t"].to_numpy() == pytest.approx(scipy.stats.t.ppf(0.975, table["df"].to_numpy()), abs=2e-6)
    assert table["df"].to_list() == list(range(1, 1001))


# --- names of runs


def test_run_names_survive_as_text(dataset: Dataset) -> None:
    assert dataset.run_ids == sorted(RUN_NAMES)
    matrix = dataset.query("traffic_matrix")
    assert dict(matrix.select("run_id", "wire_bytes").rows()) == {name: place for place, name in enumerate(RUN_NAMES)}


@pytest.mark.parametrize("name", RUN_NAMES)
@pytest.mark.parametrize("view", ["flows", "traffic_matrix"])
def test_filter_on_run_id_reads_one_file(view: str, name: str, dataset: Dataset) -> None:
    filtered = f"FROM {view} WHERE run_id = ?"
    assert dataset.sql(filtered, [name])["wire_bytes"].to_list() == [RUN_NAMES.index(name)]
    plan = dataset.sql(f"EXPLAIN ANALYZE {filtered}", [name])[0, 1]
    assert re.findall(r"Scanning Files: (\d+)/(\d+)", plan) == [("1", str(len(RUN_NAMES)))]
