"""`query`, `describe` and `regress`: lists, descriptions, one run, and what the runs lack."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from datasets import read_case, write_dataset
from small_runs import A, B, ring, write_captures, write_log
from tools import RunCommand, lines

import ddnn_traces
from ddnn_traces.errors import NoDataError
from ddnn_traces.query import missing
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema


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


def test_query_lists_the_queries_by_subject(command: RunCommand, small: Dataset) -> None:
    from ddnn_traces.query.catalogue import SUBJECTS, catalogue

    listed = lines(command("query", small.path).stdout)
    headings = [line for line in listed if line and not line.startswith(" ")]
    assert headings == [*SUBJECTS.values()]
    group = ""
    found = {}
    for line in listed:
        if line in headings:
            group = line
        elif line:
            name, question = line.split(maxsplit=1)
            assert question == catalogue()[name].question
            found[name] = group
    assert found.keys() == catalogue().keys()
    assert found == {name: SUBJECTS[query.subject] for name, query in catalogue().items()}


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
    below = command("regress", sample_dataset.path, "--format", "csv", "--out", out / "fit.csv")
    assert below.returncode == 2
    assert b"fit.csv: cannot be written (Not a directory)" in below.stderr


def test_query_of_one_run(command: RunCommand, sample_dataset: Dataset) -> None:
    run = "tf-mlp1-sgd-32-grpc-0ms-ring"
    done = command("query", sample_dataset.path, "ring_order", "--run", run, "--format", "json")
    assert {row["run_id"] for row in json.loads(done.stdout)} == {run}
    wrong = command("query", sample_dataset.path, "ring_order", "--run", "tf-mlp1-sgd-32-grpc-ring")
    assert wrong.returncode == 2
    assert b"no run named tf-mlp1-sgd-32-grpc-ring; did you mean tf-mlp1-sgd-32-grpc-0ms-ring or " in wrong.stderr


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Five runs without logs, one with; not to be changed."""
    top = tmp_path_factory.mktemp("bare")
    for name in ("a", "b", "c", "d", "e"):
        write_captures(top / "runs" / name, {"a.pcap": ring(A, B)})
    write_log(write_captures(top / "runs" / "logged", {"a.pcap": ring(A, B)}), "worker-1", [1_700_000_000_000_060_000])
    return ddnn_traces.ingest(top / "runs", top / "dataset")


NO_LOG = (
    "no training log (table steps is empty); --infer-steps takes the steps that the traffic shows, where they are "
    "sure; or put train_history.log into the run's folder and ingest again"
)


def test_query_tells_what_the_runs_lack(command: RunCommand, bare: Dataset) -> None:
    """Through the queries that it reads, once for each kind of data, and also where there are rows."""
    done = command("query", bare.path, "run_step_volume", "--format", "csv")
    assert done.returncode == 0
    assert len(lines(done.stdout)) == 7
    assert lines(done.stderr) == [f"note: 5 of 6 runs (a, b, c and 2 more): {NO_LOG}"]
    one = command("query", bare.path, "step_volume", "--run", "b", "--format", "csv")
    assert (one.returncode, len(lines(one.stdout))) == (0, 1)
    assert lines(one.stderr) == ["no rows", f"note: run b: {NO_LOG}"]
    for name in ("inferred_steps", "job_steps"):
        assert any("bytes" in column for column in bare.query(name).columns)
        assert b"no training log" not in command("query", bare.path, name, "--run", "b").stderr
    assert lines(command("query", bare.path, "step_volume", "--run", "logged").stderr) == ["no rows"]
    assert command("query", bare.path, "traffic_matrix").stderr == b""


def test_no_rows_of_clocks_say_whether_any_were_compared(command: RunCommand, tmp_path: Path) -> None:
    """Nothing told clocks that agree from clocks that nobody could compare."""
    at = [("alone", A, None), ("apart", A, None), ("apart", B, None), ("both", A, 0), ("both", B, 100)]
    captures = [
        {"run_id": run, "capture_id": f"{place}.pcap", "vantage_ip": ip, "records": 5, "clock_offset_ns": offset,
         "clock_offset_uncertainty_ns": offset, "clock_reference_ip": A}
        for place, (run, ip, offset) in enumerate(at)
    ]  # fmt: skip
    tables = {"runs": pl.DataFrame({"run_id": ["alone", "apart", "both"]}), "captures": pl.DataFrame(captures)}
    write_dataset(tmp_path / "dataset", tables).close()
    said = command("query", "dataset", "clock_differences").stderr
    assert lines(said)[-3:] == [
        "note: 1 run (alone): no captures of two hosts, whose clocks could be compared",
        "note: 1 run (apart): no packet was captured at two hosts, so their clocks cannot be compared",
        "note: 1 run: clocks were compared (query clock_offsets), and none differ",
    ]
    assert command("query", "dataset", "clock_offsets", "--run", "both").stderr == b""


@pytest.mark.long
def test_no_rows_of_jobs_say_why(command: RunCommand, bare: Dataset, tmp_path: Path) -> None:
    case = Path(__file__).parents[1] / "queries" / "jobs" / "ring_of_3"
    write_dataset(tmp_path / "job", read_case(case)).close()
    for name in ("jobs", "collectives", "verdicts"):
        none = lines(command("query", bare.path, name, "--run", "a").stderr)
        assert none[0] == "no rows" and any("no job is seen" in line.lower() for line in none)
    verdicts = lines(command("query", "job", "verdicts").stderr)
    assert verdicts[0] == "no rows" and verdicts[-1].startswith("note: Nothing stands out in 1 job")
    assert command("query", "job", "jobs").stderr == b""


def test_an_excerpt_without_a_pair_of_runs_says_so(command: RunCommand, bare: Dataset) -> None:
    why = "o two runs differ in their batch size alone (batch_size in run.toml or runs.csv)"
    assert f"note: n{why}" in lines(command("query", bare.path, "batch_pair_excerpt").stderr)
    done = command("plot", bare.path, "batch_pair_excerpt", "--out", "b.svg")
    assert done.returncode == 1
    assert lines(done.stderr)[-1].startswith("ddnn-traces: batch_pair_excerpt: nothing to draw. ")
    assert lines(done.stderr)[-1].endswith(f" N{why}.")
    with pytest.raises(NoDataError, match="No two runs differ in their batch size"):
        bare.plot("batch_pair_excerpt")


def test_servers_of_runs_that_declare_none_are_said_to_be_unknown(command: RunCommand, tmp_path: Path) -> None:
    pair = [{"run_id": run, "flow_id": 0, "src_ip": A, "dst_ip": B, "payload_bytes": 9} for run in ("asis", "told")]
    roles = pl.DataFrame({"run_id": ["told"], "host_ip": [A], "role": ["parameter_server"]})
    tables = {"runs": pl.DataFrame({"run_id": ["asis", "told"]}), "flows": pl.DataFrame(pair), "hosts": roles}
    with write_dataset(tmp_path / "dataset", tables) as dataset:
        (line,) = dataset.remarks("parameter_servers", {})
        assert dataset.query("parameter_servers").rows() == [("told", A, "role", 1.0)]
        assert dataset.remarks("traffic_matrix", {}) == []
    assert line.startswith("run asis: no parameter server and no topology is declared")
    done = command("query", "dataset", "parameter_servers")
    assert f"note: {line}" in lines(done.stderr)
    assert not any("no parameter" in said for said in lines(command("query", "dataset", "flow_counts").stderr))


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


def test_runs_says_where_steps_and_a_topology_are_inferred(command: RunCommand, tmp_path: Path) -> None:
    write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    ddnn_traces.ingest(tmp_path / "run", tmp_path / "dataset").close()
    steps, line = lines(command("runs", "dataset").stderr)
    assert steps.startswith("note: 1 of 1 run without a training log; --infer-steps counts the steps")
    assert line.startswith("note: no topology is declared for 1 of 1 run")
    assert lines(command("runs", "dataset", "--quiet").stderr) == []
