"""The one file with all rows: plain DuckDB reads it from another folder, without the dataset."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.export import frozen_database
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema

RUN = "torch-mlp1-sgd-32-gloo-0ms-ring"


@pytest.mark.long
def test_it_has_the_rows_and_answers_of_a_run_without_the_dataset(
    sample_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen_database.export(sample_dataset.path, tmp_path / "frozen.duckdb", RUN)
    monkeypatch.chdir("/")
    with ddnn_traces.open(sample_dataset.path, [RUN]) as dataset, duckdb.connect() as plain:
        plain.execute(f"ATTACH '{tmp_path}/frozen.duckdb' AS frozen (READ_ONLY)")
        for name in (*schema.TABLES, "total_volume", "topology"):
            rows = f"SELECT count(*), count(DISTINCT t) FROM {{}}{name} AS t"
            assert plain.sql(rows.format("frozen.")).fetchall() == dataset.sql(rows.format("")).rows(), name
        plain.execute("USE frozen")
        assert plain.sql("FROM step_volume_rows()").pl().equals(dataset.query("step_volume_rows"))
        comments = plain.sql("SELECT comment FROM duckdb_columns() WHERE table_name = 'flows'").fetchall()
        assert all(comment for (comment,) in comments)


@pytest.mark.long
def test_nothing_is_left_where_it_cannot_be_written(sample_dataset: Dataset, tmp_path: Path) -> None:
    for out, run, message in (
        (tmp_path / "new/frozen.duckdb", "none", "no run named none"),
        (tmp_path, None, "is there and not a file"),
    ):
        with pytest.raises(UsageError, match=message):
            frozen_database.export(sample_dataset.path, out, run)
    assert list(tmp_path.iterdir()) == []
