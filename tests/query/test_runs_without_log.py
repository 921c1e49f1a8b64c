"""Datasets opened with inferred steps: runs whose logs are taken away, beside what their logs say."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.parquet as pq
import pytest
from tools import Once, RunCommand

import ddnn_traces
from ddnn_traces.errors import QueryError
from ddnn_traces.query import catalogue, checks
from ddnn_traces.query.dataset import Dataset

OF_LOGS = ("steps", "step_flows", "events")
RING = "torch-mlp1-sgd-32-gloo-0ms-ring"


@pytest.fixture(scope="module")
def without_logs(sample_dataset: Dataset, once: Once) -> Path:
    """The sample's tables without a row of a log."""

    def make(folder: Path) -> None:
        shutil.copytree(sample_dataset.path, folder)
        for file in (file for table in OF_LOGS for file in (folder / table).rglob("*.parquet")):
            schema = pq.read_schema(file)
            file.unlink()
            pq.write_table(schema.empty_table(), file)

    return once("without-logs", make)


@pytest.fixture(scope="module")
def inferred(without_logs: Path) -> Iterator[Dataset]:
    with ddnn_traces.open(without_logs, infer_steps=True) as dataset:
        yield dataset


@pytest.mark.long
def test_sure_steps_are_as_many_as_the_logs_have(sample_dataset: Dataset, inferred: Dataset) -> None:
    with ddnn_traces.open(inferred.path) as plain:
        sources = plain.query("step_sources")
        assert plain.sql("FROM steps").is_empty()
    sure = sources.filter(steps_from="traffic")
    logged = sample_dataset.query("logged_steps").select("run_id", pl.col("steps").alias("logged"))
    assert sure.height >= 12
    assert (sure.join(logged, on="run_id").select(apart=pl.col("steps") - pl.col("logged"))["apart"].abs() <= 1).all()
    assert set(sources["steps_from"]) == {"traffic", "none"}
    assert set(inferred.sql("SELECT DISTINCT run_id FROM steps")["run_id"]) == set(sure["run_id"])
    assert sample_dataset.query("step_sources").select("steps_from", "problem").unique().rows() == [("log", None)]


@pytest.mark.long
def test_volume_and_time_of_inferred_steps_are_those_of_the_logs(sample_dataset: Dataset, inferred: Dataset) -> None:
    for query, column, tolerance in (("run_step_volume", "step_bytes", 0.02), ("run_step_time", "step_ms", 0.1)):
        columns = pl.col("run_id"), pl.col(column)
        found = inferred.query(query).select(columns).drop_nulls()
        both = found.join(sample_dataset.query(query).select(columns), on="run_id", suffix="_logged")
        assert found.height >= 12
        assert (both[column] / both[f"{column}_logged"] - 1).abs().max() < tolerance, query


def test_bytes_of_all_positions_are_those_of_the_windows(without_logs: Path) -> None:
    counted = "SELECT run_id, flow_id, sum(wire_bytes)::BIGINT, sum(packets)::BIGINT FROM {} GROUP BY ALL ORDER BY ALL"
    with_steps = "(FROM flow_windows SEMI JOIN steps USING (run_id))"
    with ddnn_traces.open(without_logs, RING, infer_steps=True) as ring:
        found = ring.sql(counted.format("step_flows")).rows()
        assert found and found == ring.sql(counted.format(with_steps)).rows()
        # they are no log of a worker that is missing
        assert ring.sql("SELECT DISTINCT worker FROM steps")["worker"].to_list() == ["traffic"]
        assert ring.sql("SELECT count(label) AS labels FROM hosts")["labels"].item() > 0
        assert ring.sql(catalogue.read(checks.folder() / "missing_worker.sql").sql).is_empty()


def test_a_log_wins_over_the_traffic(sample_dataset: Dataset) -> None:
    with ddnn_traces.open(sample_dataset.path, infer_steps=True) as opened:
        assert opened.step_notes == []
        assert opened.sql("FROM steps").equals(sample_dataset.sql("FROM steps"))


@pytest.mark.long
def test_a_chosen_job_has_inferred_steps_too(without_logs: Path) -> None:
    with ddnn_traces.open(without_logs, RING, read_only=True, infer_steps=True) as ring:
        with pytest.raises(QueryError, match="only statements that read are run"):
            ring.sql("CREATE TABLE mine AS FROM steps")
        assert ring.query("step_volume", job=0).height == ring.query("step_volume").height > 0
        assert ring.query("step_volume", job=0)["wire_bytes"].sum() <= ring.query("step_volume")["wire_bytes"].sum()


@pytest.mark.long
def test_regress_and_predict_say_which_steps_are_inferred(inferred: Dataset) -> None:
    fitted = ddnn_traces.regress(inferred, "np.log(step_bytes) ~ np.log(model_bytes)", unit="run")
    used = set(fitted.points["run_id"])
    inferred_note, unsure_note = fitted.notes[:2]
    assert inferred_note.startswith("No training log: steps are inferred from the traffic in ")
    assert all(run in inferred_note for run in used)
    none = set(inferred.run_ids) - set(inferred.sql("SELECT run_id FROM steps")["run_id"])
    assert none and all(run in unsure_note for run in none)
    assert none <= {excluded.run_id for excluded in fitted.excluded}


@pytest.mark.long
def test_commands_take_inferred_steps(command: RunCommand, without_logs: Path) -> None:
    few = ("--run", RING, "--format", "csv")
    without = command("query", without_logs, "step_volume", *few)
    assert b"--infer-steps takes the steps" in without.stderr and without.stdout.count(b"\n") == 1
    done = command("query", without_logs, "step_volume", "--infer-steps", *few)
    assert done.returncode == 0 and done.stdout.count(b"\n") == 1 + 5
    assert b"note: no training log: steps are inferred from the traffic in" in done.stderr
    assert b"confidence" in done.stderr and b"is empty" not in done.stderr
    compared = command(
        "query", without_logs, "compare", "--infer-steps", "--param", f"a_runs={RING}", "--param", f"b_runs={RING}",
        "--format", "csv",
    )  # fmt: skip
    [volume] = [line for line in compared.stdout.decode().splitlines() if "volume of a step" in line]
    assert float(volume.split(",")[4]) > 0
    assert b"duration of the training" in compared.stdout and b"of the capture" not in compared.stdout


@pytest.mark.long
def test_sql_takes_inferred_steps(command: RunCommand, without_logs: Path) -> None:
    counted = ("sql", without_logs, "SELECT count(*) AS steps FROM steps", "--run", RING, "--format", "csv")
    assert command(*counted).stdout == b'"steps"\n0\n'
    done = command(*counted, "--infer-steps")
    assert int(done.stdout.split()[1]) > 0
    assert done.stderr.startswith(b"note: no training log: steps are inferred from the traffic in")
    refused = command("sql", without_logs, "FROM step_sources", "--run", RING, "--infer-steps")
    assert refused.returncode == 2
    assert b"step_sources compares steps of logs with those that the traffic shows" in refused.stderr


@pytest.mark.long
def test_plot_takes_inferred_steps(command: RunCommand, tmp_path: Path, without_logs: Path) -> None:
    figure = ("plot", without_logs, "iteration_duration_cdf", "--run", RING, "--out", "durations.json")
    refused = command(*figure)
    assert refused.returncode != 0 and b"Or take the steps that the traffic shows" in refused.stderr
    done = command(*figure, "--infer-steps")
    assert done.returncode == 0 and RING in (tmp_path / "durations.json").read_text()
    assert b"steps are inferred from the traffic" in done.stderr


@pytest.mark.long
def test_a_report_takes_inferred_steps_and_compares_them_with_no_log(
    command: RunCommand, tmp_path: Path, without_logs: Path
) -> None:
    done = command("report", without_logs, "--run", RING, "--infer-steps", "--out", "report.html")
    assert done.returncode == 0 and b"steps are inferred from the traffic" in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert "No training log: steps are inferred from the traffic in 1 run" in page
    assert "Traffic alone shows steps in 1 of 1 run by pauses; there is no log to compare them with." in page
    assert " over 1 run with inferred steps." in page and "run with a log" not in page
    assert "--infer-steps takes" not in page


@pytest.mark.long
def test_a_report_names_the_option_that_takes_the_steps(
    command: RunCommand, tmp_path: Path, without_logs: Path
) -> None:
    done = command("report", without_logs, "--run", RING, "--out", "report.html")
    said = "in 1 of 1 run without one the traffic shows sure steps, which --infer-steps takes"
    assert f"note: no training log, so no bytes and no time of a step: {said}".encode() in done.stderr
    page = (tmp_path / "report.html").read_text()
    assert page.count(said) + page.count(said.replace("--infer-steps", "<code>--infer-steps</code>")) >= 2


def test_what_compares_logs_with_traffic_takes_no_inferred_steps(command: RunCommand, without_logs: Path) -> None:
    done = command("query", without_logs, "step_inference_score", "--infer-steps")
    assert done.returncode == 2
    assert b"step_inference_score compares steps of logs with those that the traffic shows" in done.stderr


@pytest.mark.long
def test_simulate_like_replays_inferred_steps(command: RunCommand, without_logs: Path) -> None:
    like = ("simulate", "--like", RING, "--dataset", without_logs, "--bandwidth-mbit", "200", "--format", "csv")
    refused = command(*like)
    assert refused.returncode != 0 and b"or give --infer-steps" in refused.stderr
    done = command(*like, "--infer-steps")
    assert done.returncode == 0
    assert b"steps are inferred from the traffic" in done.stderr


@pytest.mark.parametrize(
    ("pauses", "jobs", "logged", "found"),
    [
        ((40, 0.95), [(40, 1.0)], None, ("traffic", 40, "pauses")),
        ((33, 0.77), [(40, 1.0)], None, ("traffic", 40, "bytes")),
        ((33, 0.95), [(40, 1.0)], None, ("traffic", 40, "bytes")),
        ((33, 0.95), [(40, 0.8)], None, ("none", 33, None)),
        ((33, 0.77), [(40, 0.8)], None, ("none", 33, None)),
        ((33, 0.77), [(40, 1.0), (20, 1.0)], None, ("none", 33, None)),
        ((6, 0.77), [(5, 1.0)], None, ("traffic", 5, "bytes")),
        ((6, 0.77), [(4, 1.0)], None, ("none", 6, None)),
        ((33, 0.77), [], None, ("none", 33, None)),
        ((33, 0.77), [(40, 1.0)], 30, ("log", 30, None)),
    ],
)
def test_steps_of_the_only_job_are_taken_where_pauses_are_unsure(
    pauses: tuple[int, float], jobs: list[tuple[int, float]], logged: int | None, found: tuple[str, int, str | None]
) -> None:
    rows = pl.DataFrame(jobs, {"steps": pl.Int64, "confidence": pl.Float64}, orient="row")
    rows = rows.with_columns(has_same_steps=(pl.col("steps") - pauses[0]).abs() <= 2)
    with duckdb.connect() as connection:
        connection.register("rows", rows.with_columns(run_id=pl.lit("r")).to_arrow())
        connection.execute("CREATE TABLE runs AS SELECT 'r' AS run_id; CREATE VIEW jobs AS FROM rows")
        connection.execute(
            "CREATE TABLE logged_steps AS SELECT 'r' AS run_id, $1 AS steps WHERE $1 IS NOT NULL", [logged]
        )
        connection.execute(
            "CREATE MACRO inferred_steps() AS TABLE SELECT 'r' AS run_id, true AS structured, true AS is_synchronous, "
            f"'pauses' AS evidence, {pauses[1]} AS confidence, unnest(range({pauses[0]})) AS step"
        )
        [row] = connection.sql(catalogue.find("step_sources").sql).pl().rows(named=True)
    assert (row["steps_from"], row["steps"], row["found_by"]) == found
    assert (row["problem"] is None) == (found[0] != "none")
