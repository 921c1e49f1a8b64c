"""`ingest --template`: a runs.csv to fill in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from small_runs import A, B, ring, write_captures

from ddnn_traces.errors import MetadataError, UsageError
from ddnn_traces.ingestors.metadata import read_metadata, runs_csv
from ddnn_traces.ingestors.sources import find_runs
from ddnn_traces.ingestors.template import COLUMNS, write_template
from ddnn_traces.store import schema


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Run folders one and two."""
    for name in ("one", "two"):
        write_captures(tmp_path / name, {"a.pcap": ring(A, B)})
    return tmp_path


def test_a_row_for_each_run(top: Path) -> None:
    ((path, added),) = write_template([str(top)])
    assert (path, added) == (top / "runs.csv", ["one", "two"])
    empty = "," * (len(COLUMNS) - 1)
    assert path.read_text() == f"{','.join(COLUMNS)}\none{empty}\ntwo{empty}\n"
    assert {column.name for column in schema.table("runs").columns} >= set(COLUMNS)
    table = runs_csv(top)
    assert (dict(table.rows), table.bad) == ({"one": {}, "two": {}}, ())


def test_what_the_name_of_a_folder_says_is_filled_in(tmp_path: Path) -> None:
    """As ingest takes it; these cells were empty. run.toml counts more than the name."""
    name = "torch-mlp1-sgd-32-gloo-normal-ring-n4"
    for folder in (name, name.replace("n4", "n5")):
        write_captures(tmp_path / folder, {"a.pcap": ring(A, B)})
    (tmp_path / name.replace("n4", "n5") / "run.toml").write_text("batch_size = 64\n")
    ((path, added),) = write_template([str(tmp_path)])
    first, second = (runs_csv(tmp_path).rows[run] for run in added)
    said: dict[str, object] = {
        "framework": "torch",
        "backend": "gloo",
        "model": "mlp1",
        "optimizer": "sgd",
        "topology": "ring",
    }
    said |= {"delay_ms": 0.0, "loss_pct": 0.0}  # normal
    assert (first, second) == ({**said, "batch_size": 32}, {**said, "batch_size": 64})
    before = path.read_text()
    assert [read_metadata(tmp_path / run).fields for run in added] != [{}, {}]
    path.unlink()
    without = [read_metadata(tmp_path / run).fields for run in added]
    path.write_text(before)
    assert [read_metadata(tmp_path / run).fields for run in added] == without


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("last", ["", "end"])
def test_what_was_filled_in_stays(top: Path, end: str, mark: str, last: str) -> None:
    """Also columns of other names and orders, and a row that is wrong, which is there."""
    text = f"{mark}workers,run_id{end}2,zero{end}many,one" + (end if last else "")
    (top / "runs.csv").write_bytes(text.encode())
    ((_, added),) = write_template([str(top)])
    assert added == ["two"]
    separator = "" if last else end
    assert (top / "runs.csv").read_bytes() == f"{text}{separator},two{end}".encode()
    before = (top / "runs.csv").stat()
    assert write_template([str(top)]) == [(top / "runs.csv", [])]
    assert (top / "runs.csv").stat() == before


def test_bare_captures_and_runs_of_a_layout(top: Path) -> None:
    """The rows are those that ingest reads."""
    write_captures(top / "far", {"x.pcap": ring(A, B), "y.pcap": ring(A, B)})
    write_template([str(top / "far" / "*")])
    write_template([str(top)], layout="{run}/{host}.pcap")
    for folder, names in ((top / "far", ["x", "y"]), (top, ["far", "one", "two"])):
        path = folder / "runs.csv"
        assert list(runs_csv(folder).rows) == names
        path.write_text(path.read_text().replace(f"{names[0]},", f"{names[0]},mpi", 1))
    for run in find_runs([str(top / "far" / "x.pcap")]):
        assert read_metadata(run.folder, run.table_rows).fields == {"framework": "mpi"}
    (joined,) = find_runs([str(top / "one"), str(top / "two")], run_id="far")
    assert read_metadata(joined.folder, joined.table_rows).fields == {}


def test_names_that_no_line_holds(top: Path) -> None:
    (top / "one").rename(top / os.fsdecode(b'o\n"\xff,'))
    ((path, added),) = write_template([str(top)])
    assert added == ['o%0A"%FF,', "two"]
    path.write_text(path.read_text().replace('"o%0A""%FF,",', '"o%0A""%FF,",mpi'))
    run, _ = find_runs([str(top)])
    assert read_metadata(run.folder, run.table_rows).fields == {"framework": "mpi"}


def test_wrong_calls(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / "runs.csv").write_text("model\nx\n")
    with pytest.raises(MetadataError, match="no column run_id"):
        write_template([str(top)])
    (top / "runs.csv").unlink()
    (top / "runs.csv").mkdir()
    with pytest.raises(MetadataError, match="a folder, not a file"):
        write_template([str(top)])
    with pytest.raises(UsageError, match="no captures in this folder"):
        write_template([str(top / "runs.csv")])
    with monkeypatch.context() as patched:
        patched.setattr(os, "isatty", lambda _: False)
        with pytest.raises(UsageError, match=r"standard input has no folder for a runs\.csv"):
            write_template(["-"])
    assert (top / "runs.csv").is_dir()
