"""The view that Python makes: its cache, what it reads, and what DuckDB says of it without Python.

What the jobs are is tested in tests/collectives and by the cases of the queries that read it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from datasets import read_case, write_dataset
from pyarrow import feather
from tools import RunCommand

import ddnn_traces
from ddnn_traces.collectives import tables
from ddnn_traces.errors import QueryError
from ddnn_traces.query import catalogue, inferred, views
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import simulator

DOWNLOAD = Path(__file__).parents[1] / "queries" / "other_traffic" / "a_download_beside_a_ring"
CASE = Path(__file__).parents[1] / "queries" / "jobs" / "ring_of_3"


def rows(run_ids: list[str]) -> dict[str, pl.DataFrame]:
    """The tables of the case, for each of these runs."""
    given = read_case(CASE, as_text=True)
    return {
        table: pl.concat(frame.with_columns(run_id=pl.lit(run_id)) for run_id in run_ids)
        for table, frame in given.items()
    }


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    kept = views._kept_queries()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if kept:
        (tmp_path / "cache" / "ddnn_traces").mkdir(parents=True)
        (tmp_path / "cache" / "ddnn_traces" / "queries").symlink_to(kept.parent)
    return tmp_path / "cache" / "ddnn_traces" / "inferred_jobs"


@pytest.fixture
def dataset(tmp_path: Path, cache: Path) -> Iterator[Dataset]:
    with write_dataset(tmp_path / "dataset", rows(["a", "b"])) as opened:
        yield opened


def no_inference(*_: object) -> None:
    raise AssertionError("inferred again")


def test_jobs_come_from_the_cache_the_second_time(
    dataset: Dataset, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = dataset.query("jobs")
    assert first["run_id"].to_list() == ["a", "b"]
    assert len(list(cache.glob("*.arrow"))) == 2
    monkeypatch.setattr(tables, "jobs_of", no_inference)
    with Dataset(dataset.path) as again:
        assert again.query("jobs").equals(first)


@pytest.mark.long
@pytest.mark.parametrize("most", [10, 0, 1_000_000])
def test_runs_that_are_read_together_are_those_read_alone(
    most: int, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the files of the cache, between which a run without messages lies."""
    given = rows(["a", "b", "c"])
    given["messages"] = given["messages"].filter(pl.col("run_id") != "b")
    with write_dataset(tmp_path / "dataset", given) as dataset:
        alone = [Dataset(dataset.path, run) for run in ("a", "b", "c")]
        wanted = pl.concat(one.query("jobs") for one in alone)
        for one in alone:
            one.close()
        assert wanted["run_id"].to_list() == ["a", "c"]
        kept = sorted(path.name for path in cache.glob("*.arrow"))
        monkeypatch.setattr(inferred, "_TOGETHER", most)
        monkeypatch.setattr(tables, "jobs_of", no_inference)
        assert dataset.query("jobs").equals(wanted)
        assert sorted(path.name for path in cache.glob("*.arrow")) == kept


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def with_other_columns(file: Path) -> None:
    feather.write_feather(pa.table({"run_id": ["a"]}), str(file))


@pytest.mark.parametrize("damage", [cut, with_other_columns])
@pytest.mark.long_after(1)
def test_a_damaged_file_of_the_cache_is_made_again(
    damage: Callable[[Path], None], dataset: Dataset, cache: Path
) -> None:
    first = dataset.query("collectives")
    for file in cache.glob("*.arrow"):
        damage(file)
    with Dataset(dataset.path) as again:
        assert again.query("collectives").equals(first)
    assert all(file.stat().st_size > 100 for file in cache.glob("*.arrow"))


def test_other_messages_are_examined_again(dataset: Dataset, tmp_path: Path, cache: Path) -> None:
    dataset.query("jobs")
    given = rows(["a"])
    doubled = (pl.col("stream_offset", "bytes").cast(pl.Int64) * 2).cast(pl.String)
    given["messages"] = given["messages"].with_columns(doubled)
    with write_dataset(tmp_path / "other", given) as other:
        assert other.query("collectives")["tensor_bytes"].to_list() == [120_000]
    assert len(list(cache.glob("*.arrow"))) == 3


def test_a_run_without_messages_has_no_job(tmp_path: Path, cache: Path) -> None:
    given = rows(["a"])
    del given["messages"]
    with write_dataset(tmp_path / "none", given) as none:
        assert none.query("jobs").is_empty()
        assert none.sql("SELECT run_id, job FROM inferred_jobs").rows() == [("a", None)]
        assert none.query("topology")["run_id"].to_list() == ["a"]


def test_only_the_chosen_runs_are_examined(dataset: Dataset, cache: Path) -> None:
    with Dataset(dataset.path, "b") as chosen:
        assert chosen.query("jobs")["run_id"].to_list() == ["b"]
    assert len(list(cache.glob("*.arrow"))) == 1


def test_the_users_sql_joins_it(dataset: Dataset) -> None:
    found = dataset.sql("SELECT run_id, src_ip, kind FROM flows JOIN collectives USING (run_id) ORDER BY ALL")
    assert found.rows() == [(run, f"10.0.0.{host}", "all_reduce") for run in ("a", "b") for host in (1, 2, 3)]


def test_nothing_is_inferred_where_nothing_reads_it(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "jobs_of", no_inference)
    assert dataset.sql("SHOW TABLES").height > 50
    assert dataset.query("traffic_matrix").height == 6


def test_the_connection_has_it_too(dataset: Dataset) -> None:
    assert dataset.connection.sql("SELECT count(*) FROM jobs").fetchall() == [(2,)]


def test_a_name_that_the_sql_builds_leaves_it_in_place(dataset: Dataset) -> None:
    built = "SELECT count(*) FROM jobs, query('FROM traffic_' || 'matrix')"
    assert dataset.sql(built).item() == 12


def test_lists_after_it_are_of_the_views(dataset: Dataset) -> None:
    assert dataset.query("jobs").height == 2
    found = dataset.sql("SELECT comment FROM duckdb_views() WHERE view_name = 'inferred_jobs' AND comment IS NOT NULL")
    assert found.height == 1
    assert dataset.query("jobs").height == 2


def test_duckdb_alone_says_what_is_needed(dataset: Dataset, tmp_path: Path) -> None:
    views.write(tmp_path / "traces.duckdb", dataset.path)
    with duckdb.connect(str(tmp_path / "traces.duckdb"), read_only=True) as connection:
        assert connection.sql("SELECT count(*) FROM flows").fetchall() == [(6,)]
        with pytest.raises(duckdb.InvalidInputException, match="inferred in Python: open the dataset with ddnn_traces"):
            connection.sql("FROM jobs").fetchall()


def test_an_error_in_python_is_named(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no such run")

    monkeypatch.setattr(tables, "jobs_of", fails)
    with pytest.raises(Exception, match="no such run"):
        dataset.query("jobs")


MS = 1_000_000
HOSTS = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def two_jobs() -> dict[str, pl.DataFrame]:
    """Two jobs on the same three hosts: all-reduces of 60,000 bytes in one direction, of 120,000 in the other."""
    flows, messages = [], []
    for job, (period, size) in enumerate([(100, 20_000), (143, 40_000)]):
        for place, host in enumerate(HOSTS):
            flow = len(flows)
            other = HOSTS[(place + (1, 2)[job]) % 3]
            about = {"protocol": 6, "payload_bytes": 48 * size, "wire_bytes": 50 * size}
            flows.append({"run_id": "r", "flow_id": flow, "src_ip": host, "dst_ip": other} | about)
            for number in range(4 * 12):
                start = (period * (number // 4) + 5 * (number % 4)) * MS + place * MS // 10
                messages.append({
                    "run_id": "r", "flow_id": flow, "message": number, "first_ns": start, "duration_ns": 2 * MS,
                    "stream_offset": number * size, "bytes": size, "packets": 1, "end_source": "silence",
                })  # fmt: skip
    return {"runs": pl.DataFrame({"run_id": ["r"]}), "flows": pl.DataFrame(flows), "messages": pl.DataFrame(messages)}


@pytest.fixture
def jobs(tmp_path: Path, cache: Path) -> Iterator[Dataset]:
    with write_dataset(tmp_path / "jobs", two_jobs()) as opened:
        yield opened


def test_a_query_of_one_job_reads_its_flows_only(jobs: Dataset) -> None:
    every = jobs.query("traffic_matrix")
    assert every.height == 6
    assert jobs.query("jobs")["period_ms"].sort().to_list() == [100, 143]
    pairs = [
        {tuple(row) for row in jobs.query("traffic_matrix", job=job).select("src_ip", "dst_ip").rows()}
        for job in (0, 1)
    ]
    assert [len(found) for found in pairs] == [3, 3]
    assert pairs[0] | pairs[1] == {tuple(row) for row in every.select("src_ip", "dst_ip").rows()}
    assert jobs.query("traffic_matrix", job="1", communicator=0).height == 3


def test_a_query_of_jobs_has_the_rows_of_one(jobs: Dataset) -> None:
    found = jobs.query("collectives", job=1)
    assert found["job"].to_list() == [1]
    assert found["kind"].to_list() == ["all_reduce"]


@pytest.mark.long
def test_notes_on_steps_are_of_the_chosen_job(command: RunCommand, tmp_path: Path, cache: Path) -> None:
    """A number of the job's steps stood above "no sure steps in the traffic, so that none count"."""
    tables = two_jobs()
    tables["captures"] = pl.DataFrame({"run_id": ["r"] * 3, "capture_id": ["a", "b", "c"], "vantage_ip": HOSTS})
    write_dataset(tmp_path / "jobs", tables).close()
    asked = ("query", tmp_path / "jobs", "logged_steps", "--infer-steps", "--format", "csv")
    of_all, of_one = command(*asked), command(*asked, "--param", "job=1")
    assert b'"r",12,' in of_one.stdout and b'"r"' not in of_all.stdout
    assert b"no sure steps in the traffic, so that none count, in 1 run: r (" in of_all.stderr
    # what has them anyway
    assert b"query job_steps has the steps of the jobs in r, query jobs how sure they are" in of_all.stderr
    assert of_one.stderr == (
        b"note: no training log: steps are inferred from the traffic in 1 run: r (12, confidence 1.00)\n"
    )


def test_two_jobs_have_no_common_topology(jobs: Dataset) -> None:
    [row] = jobs.query("topology").to_dicts()
    assert row["topology"] == "unknown"
    said = "2 collectives of 2 communicators; see communicators and choose one by parameters job and communicator"
    assert row["problem"] == f"several patterns ({said})"
    [patterns] = jobs.query("several_patterns").to_dicts()
    assert (patterns["jobs"], patterns["problem"]) == (2, row["problem"])
    assert jobs.query("inferred_jobs")["job"].to_list() == [0, 1]
    first, second = jobs.remarks("ring_order", {})
    assert first == f"run r: {row['problem']}"
    assert second.endswith(f"(jobs 0 to 1): ddnn-traces query {jobs.name} ring_order --run r --param job=0")
    assert "jobs on hosts in common" in second


@pytest.mark.long
def test_a_chosen_communicator_has_the_topology_of_its_flows(jobs: Dataset) -> None:
    for job in (0, 1):
        [row] = jobs.query("topology", job=job, communicator=0).to_dicts()
        assert (row["topology"], row["problem"]) == ("ring", None)
        assert row["confidence"] > 0.5
        assert jobs.query("ring_order", job=job, communicator=0)["is_ring"].to_list() == [True] * 3


def both_ways() -> dict[str, pl.DataFrame]:
    """An all-reduce of 60,000 bytes on a ring of three hosts, and in the pause after it one in the other direction."""
    tables = two_jobs()
    second = pl.col("flow_id") >= 3
    number = pl.col("message") // 4
    tables["messages"] = tables["messages"].with_columns(
        first_ns=pl.when(second).then(pl.col("first_ns") + (25 - 43 * number) * MS).otherwise("first_ns")
    )
    return tables


@pytest.mark.long
def test_rings_in_both_directions_are_a_ring_where_their_communicator_is_chosen(tmp_path: Path, cache: Path) -> None:
    with write_dataset(tmp_path / "both", both_ways()) as dataset:
        of_run, chosen = dataset.query("topology"), dataset.query("topology", communicator=0)
        remarks = [dataset.remarks("ring_order", params) for params in ({}, {"communicator": 0})]
    said = "several patterns (2 collectives of 1 communicator: 2 rings; see collectives"
    may_choose = f"{said} or choose it by parameter communicator)"
    assert of_run.select("topology", "confidence", "problem").row(0) == ("unknown", 0, may_choose)
    assert chosen.select("topology", "confidence", "problem").row(0) == ("ring", None, None)
    assert remarks == [[f"run r: {may_choose}"], [f"run r: {said})"]]


def test_what_holds_of_several_runs_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same 400 characters were there for each run with two jobs."""
    both, after = "2 jobs are in its captures: totals are of both", "2 jobs, one after the other: totals are of both"
    rows = [
        {"run_id": run_id, "jobs": 2, "problem": problem}
        for run_id, problem in (("a", both), ("b", both), ("c", after), ("d", "10% goes to 10.0.0.9"))
    ]
    with write_dataset(tmp_path / "d", {"runs": pl.DataFrame({"run_id": ["a"]})}) as opened:
        monkeypatch.setattr(opened, "query_arrow", lambda name, params: pa.Table.from_pylist(rows))
        first, second = opened._other_traffic("run_step_volume", {})
    assert first.startswith(
        "runs a, b: 2 jobs are in its captures; run c: 2 jobs, one after the other: totals are of both; of one job "
        "alone, as of a (jobs 0 to 1): ddnn-traces query "
    )
    assert first.endswith(" run_step_volume --run a --param job=0")
    assert second.startswith("run d: 10% goes to 10.0.0.9; of one job alone (jobs 0 to 1): ")


@pytest.mark.long
def test_a_download_beside_a_training_is_named_with_the_command_without_it(tmp_path: Path, cache: Path) -> None:
    given = {file.stem: pl.read_csv(file, infer_schema=False) for file in DOWNLOAD.glob("*.csv")}
    del given["expected"]
    with write_dataset(tmp_path / "with download", given) as opened:
        assert opened.remarks("traffic_matrix", {}) == []  # facts
        [remark] = opened.remarks("topology", {})
        shown, command = remark.split("; of one job alone: ")
        assert shown == (
            "run r: 10% of the payload is to or from hosts outside the training job, most from 192.0.2.7 to 10.0.0.1"
        )
        assert shlex.split(command) == [
            "ddnn-traces", "query", opened.name, "topology", "--run", "r", "--param", "job=0",
        ]  # fmt: skip
        assert opened.remarks("topology", {"job": "0"}) == []
        assert opened.query("topology", job=0)["topology"].to_list() == ["ring"]
        by_bytes, other = opened.remarks("inferred_steps", {"longest_step_s": "5"})
        assert "its flows repeat their bytes in 6 steps" in by_bytes
        assert "inferred_steps --run r --param longest_step_s=5 --param job=0" in other
        assert not any(line.startswith(shown) for line in opened.remarks("run_step_volume", {}))
    with Dataset(tmp_path / "with download", infer_steps=True) as opened:
        for name in "run_step_volume", "step_volume":
            said = [line for line in opened.remarks(name, {}) if line.startswith(shown)]
            assert len(said) == 1 and said[0].endswith(f" {name} --run r --param job=0 --infer-steps")
            assert not any(line.startswith(shown) for line in opened.remarks(name, {"job": "0"}))


def test_steps_by_repeated_bytes_are_named_beside_those_by_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 steps of a ring with a late host, pauses showed 31."""
    sources = pa.Table.from_pylist(
        [{"run_id": "late", "steps": 40, "found_by": "bytes"}, {"run_id": "even", "steps": 40, "found_by": "pauses"}]
    )
    with write_dataset(tmp_path / "dataset", {"runs": pl.DataFrame({"run_id": ["even", "late"]})}) as opened:
        query_arrow = opened.query_arrow
        monkeypatch.setattr(
            opened, "query_arrow", lambda name, given: sources if name == "step_sources" else query_arrow(name, given)
        )
        assert opened.remarks("inferred_steps", {}) == [
            "run late: its flows repeat their bytes in 40 steps, which --infer-steps takes (query job_steps)"
        ]
        assert opened.remarks("traffic_matrix", {}) == []


def test_collectives_of_doubtful_steps_are_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An all-reduce was two of half the bytes, each at confidence 0.98."""
    case = Path(__file__).parents[1] / "queries" / "jobs" / "the_log_has_twice_the_steps"
    with write_dataset(tmp_path / "dataset", read_case(case)) as opened:
        (said,) = opened.remarks("collectives", {})
        assert not any("query jobs" in line for line in opened.remarks("traffic_matrix", {}))
        monkeypatch.setattr("ddnn_traces.query.dataset._FEW_RUNS", 0)
        (of_many,) = opened.remarks("collectives", {})
        assert of_many.endswith("query jobs (agreed_share) says of which runs")
    assert said == (
        "run r, job 0: its flows repeat their bytes in 6 steps, the log shows 12; so a collective may be of several "
        "steps, or a part of one. Table steps has those of the log; something may recur after every few steps, as a "
        "checkpoint or an evaluation: ingest a part between two of these (editcap -A, -B) (query jobs: confidence 0.50)"
    )


@pytest.mark.long
def test_nothing_is_to_choose_where_a_communicator_is(tmp_path: Path, cache: Path) -> None:
    """Experts: the flows of the all-reduce of all workers carry the all-to-alls of the groups, too."""
    job = {"run_id": "moe", "workers": 8, "iterations": 8, "model_bytes": 20_000_000, "compute_ms": 200.0}
    file = tmp_path / "moe.toml"
    lines = [
        *(f"{name} = {json.dumps(value)}" for name, value in job.items()),
        "[pattern]",
        'name = "moe"',
        "group_size = 4",
    ]
    file.write_text("\n".join(lines))
    simulator.run(file, {}, tmp_path / "moe", None, lambda _: None)
    with ddnn_traces.open(tmp_path / "moe") as dataset:
        groups = dataset.query("communicators")
        of_all = groups.filter(pl.col("hosts").str.count_matches(",") == 7)["communicator"].item()
        of_run, of_job = dataset.query("several_patterns"), dataset.query("several_patterns", job=0)
        assert of_run["problem"].item().endswith("see communicators and choose one by parameter communicator)")
        assert of_job["problem"].item().endswith("see communicators and choose one by parameter communicator)")
        for communicator in groups["communicator"]:
            assert dataset.query("several_patterns", job=0, communicator=communicator).is_empty()
            [problem] = dataset.query("topology", job=0, communicator=communicator)["problem"]
            assert "choose" not in (problem or "")
        assert dataset.query("communicators", job=0, communicator=of_all).height == 1


@pytest.mark.parametrize(
    ("name", "params", "said"),
    [
        ("traffic_matrix", {"job": 7}, "no run has job 7; queries jobs and communicators list them"),
        ("traffic_matrix", {"communicator": 3}, "no run has job 0 and communicator 3"),
        ("traffic_matrix", {"job": "one"}, "parameter job = 'one' is not a BIGINT: number of a job"),
        ("job_steps", {"communicator": 0}, "job_steps has no communicator; leave that parameter out"),
    ],
)
def test_a_job_that_there_is_not_is_named(jobs: Dataset, name: str, params: dict[str, object], said: str) -> None:
    with pytest.raises(QueryError, match=said):
        jobs.query(name, **params)


@pytest.mark.parametrize(
    ("name", "taken"),
    [("traffic_matrix", ["job", "communicator"]), ("job_steps", ["job"]), ("collectives", ["job", "communicator"])],
)
@pytest.mark.long_after(3)
def test_describe_sql_and_queries_agree_on_job_and_communicator(jobs: Dataset, name: str, taken: list[str]) -> None:
    query = catalogue.find(name)
    assert re.findall(r"(\w+) BIGINT; .*; not in SQL$", query.description, re.MULTILINE) == taken
    for choice in ("job", "communicator"):
        if choice in taken:
            assert jobs.query(name, **{choice: 0}).height
        with pytest.raises(QueryError, match=f"{name}: {choice} is no parameter in SQL, .*; in SQL join job_flows"):
            jobs.sql(f"FROM {name}({choice} := 0)")
    with pytest.raises(QueryError, match=r"has no parameter jobs; did you mean job\?"):
        jobs.query(name, jobs=0)


def test_a_host_that_talks_to_itself_has_no_job(tmp_path: Path, cache: Path) -> None:
    tables_of_run = rows(["a"])
    tables_of_run["flows"] = tables_of_run["flows"].with_columns(dst_ip=pl.col("src_ip"))
    with write_dataset(tmp_path / "alone", tables_of_run) as opened:
        assert opened.query("jobs").is_empty()
