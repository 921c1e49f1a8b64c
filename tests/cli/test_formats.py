"""Formats of results: read back equal, odd values, types that a format lacks, files whole or as before."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tools import RunCommand, lines

from ddnn_traces.cli import cli
from ddnn_traces.query import formats
from ddnn_traces.query.dataset import Dataset


def read_back(output_format: str, data: bytes) -> list[dict[str, object]]:
    if output_format == "csv":
        return [dict(row) for row in csv.DictReader(io.StringIO(data.decode()))]
    if output_format == "json":
        return list(json.loads(data))
    if output_format == "parquet":
        return list(pq.read_table(io.BytesIO(data)).to_pylist())
    return list(pa.ipc.open_stream(data).read_all().to_pylist())


@pytest.mark.parametrize("output_format", ["csv", "json", "parquet", "arrow"])
def test_formats_read_back_equal(command: RunCommand, tmp_path: Path, small: Dataset, output_format: str) -> None:
    expected = small.query("traffic_matrix").to_dicts()
    assert len(expected) == 6
    done = command("query", small.path, "traffic_matrix", "--format", output_format)
    assert (done.returncode, done.stderr) == (0, b"")
    found = read_back(output_format, done.stdout)
    if output_format == "csv":
        expected = [{name: str(value) for name, value in row.items()} for row in expected]
    assert found == expected
    command("query", small.path, "traffic_matrix", "--format", output_format, "--out", "rows")
    assert (tmp_path / "rows").read_bytes() == done.stdout


ODD_VALUES = """SELECT [1, NULL] AS list, {'a': 'nan'::DOUBLE} AS struct, 'inf'::DOUBLE AS inf, 12::HUGEINT AS huge,
    1.50::DECIMAL(5, 2) AS dec, DATE '2020-02-29' AS day, NULL AS nothing, 'a,"b' AS text, true AS yes"""


def test_odd_values_as_json(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, ODD_VALUES, "--format", "json")
    assert json.loads(done.stdout, parse_constant=pytest.fail) == [
        {
            "list": [1, None], "struct": {"a": None}, "inf": None, "huge": 12, "dec": 1.5, "day": "2020-02-29",
            "nothing": None, "text": 'a,"b', "yes": True,
        }
    ]  # fmt: skip


def test_odd_values_as_csv(command: RunCommand, small: Dataset) -> None:
    done = command("sql", small.path, ODD_VALUES, "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(done.stdout.decode()))
    assert (row["list"], row["struct"], row["dec"], row["text"]) == ("[1, null]", '{"a": null}', "1.50", 'a,"b')


def test_table_tells_what_it_leaves_out(command: RunCommand, small: Dataset) -> None:
    done = command("query", small.path, "traffic_matrix", "--limit", "4")
    assert lines(done.stderr) == ["2 more rows: --limit 0, or another --format"]
    assert done.stdout.decode().count(" run ") == 4
    assert command("query", small.path, "traffic_matrix", "--limit", "0").stdout.decode().count(" run ") == 6


@pytest.mark.parametrize("output_format", ["csv", "parquet"])
def test_types_that_a_format_lacks(command: RunCommand, small: Dataset, output_format: str) -> None:
    done = command("sql", small.path, "SELECT INTERVAL 1 DAY AS day", "--format", output_format)
    assert done.returncode == 2
    assert b"cast that column to VARCHAR" in done.stderr


def test_what_is_written_is_whole_or_as_before(
    sample_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, link = tmp_path / "counts.csv", tmp_path / "link.csv"
    out.write_text("old")
    link.symlink_to(out)

    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def query(path: Path) -> BaseException | None:
        arguments = ["query", str(sample_dataset.path), "flow_counts", "--format", "csv", "--out", str(path)]
        return CliRunner().invoke(cli, arguments).exception

    with monkeypatch.context() as patch:
        patch.setattr(formats, "write", fails)
        assert "cannot be written (No space left on device)" in str(query(out))
    assert (out.read_text(), sorted(tmp_path.iterdir())) == ("old", [out, link])
    assert query(link) is None
    assert (link.is_symlink(), out.read_text(), link.read_text().count("\n") > 1) == (False, "old", True)
    assert query(Path(os.devnull)) is None
    assert Path(os.devnull).is_char_device()


def test_a_regression_is_written_as_its_file_is_named(command: RunCommand, tmp_path: Path, small: Dataset) -> None:
    """--out fit.html had plain text."""
    command("regress", small.path, "--out", tmp_path / "fit.html")
    assert (tmp_path / "fit.html").read_text().lower().startswith("<!doctype html>")
    command("regress", small.path, "--out", tmp_path / "fit.json")
    assert json.loads((tmp_path / "fit.json").read_text())
    command("regress", small.path, "--out", tmp_path / "fit.html", "--format", "text")
    assert "<html" not in (tmp_path / "fit.html").read_text()
    refused = command("regress", small.path, "--out", tmp_path / "fit.pdf")
    assert refused.returncode == 2 and b"no format .pdf: name it .txt, .html, .tex, .json, .csv" in refused.stderr
