"""The view that Python makes: its cache, what it reads, and what DuckDB says of it without Python.

What the jobs are is tested in tests/collectives and by the cases of the queries that read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pytest
from datasets import write_dataset

from ddnn_traces.collectives import tables
from ddnn_traces.query import views
from ddnn_traces.query.dataset import Dataset

CASE = Path(__file__).parents[1] / "queries" / "jobs" / "ring_of_3"


def rows(run_ids: list[str]) -> dict[str, pl.DataFrame]:
    """The tables of the case, for each of these runs."""
    given = {path.stem: pl.read_csv(path, infer_schema=False) for path in CASE.glob("*.csv") if path.stem != "expected"}
    return {
        table: pl.concat(frame.with_columns(run_id=pl.lit(run_id)) for run_id in run_ids)
        for table, frame in given.items()
    }


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
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


def test_a_damaged_file_of_the_cache_is_made_again(dataset: Dataset, cache: Path) -> None:
    first = dataset.query("collectives")
    for file in cache.glob("*.arrow"):
        file.write_bytes(file.read_bytes()[:100])
    with Dataset(dataset.path) as again:
        assert again.query("collectives").equals(first)
    assert all(file.stat().st_size > 100 for file in cache.glob("*.arrow"))


def test_other_messages_are_examined_again(dataset: Dataset, tmp_path: Path, cache: Path) -> None:
    dataset.query("jobs")
    given = rows(["a"])
    given["messages"] = given["messages"].with_columns(bytes=pl.lit("40000"))
    with write_dataset(tmp_path / "other", given) as other:
        assert other.query("collectives")["tensor_bytes"].to_list() != [60000]
    assert len(list(cache.glob("*.arrow"))) == 3


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
