"""Names and paths of sources and datasets, and folders of hosts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest
from small_runs import (
    BEGIN_NS,
    A,
    B,
    C,
    contradictions,
    counted,
    ring,
    sent,
    sent_by,
    write_captures,
    write_log,
)

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query import views
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import part, partition

#: Hosts with names that are not usual ones.
NAMES = [(A, "alice"), (B, "rack-7b")]


@pytest.mark.views
@pytest.mark.long
def test_equals_signs_above_the_dataset(tmp_path: Path) -> None:
    """Readers of Hive partitions take a folder step=3 for a column: the one in the file has to win."""
    folder = write_captures(tmp_path / "run", {"worker-1.pcap": ring(A, B)})
    rows = "".join(f"batch,{i},{BEGIN_NS / 1e9 + i / 1e4:.6f},1,1\n" for i in range(1, 4))
    (folder / "train_history-worker-1.log").write_text(f"Type,ID,Timestamp,Loss,Accuracy\n{rows}")
    out = tmp_path / "step=7" / "run_id=x" / "a=b"
    assert ingest(folder, out=out, clock_offset="none") == []
    with ddnn_traces.open(out) as dataset:
        assert dataset.sql("SELECT run_id, step FROM steps ORDER BY step").rows() == [("run", i) for i in range(3)]
        assert counted(dataset) == sent(ring(A, B))
        assert contradictions(dataset) == {}
    with duckdb.connect(out / "traces.duckdb") as connection:
        assert connection.execute("SELECT DISTINCT run_id FROM flows").fetchall() == [("run",)]
    release = tmp_path / "step=7" / "release"
    for table in schema.TABLES:
        (release / table).mkdir(parents=True)
        shutil.copy(partition(out, table, "run") / "part-0.parquet", release / part(table, 0))
    with duckdb.connect() as connection:  # as a release's own database does
        connection.execute(f"SET file_search_path = '{release}'")
        views.define_relative(connection, schema.TABLES)
        found = connection.execute("SELECT run_id, step FROM steps ORDER BY step").fetchall()
        assert found == [("run", i) for i in range(3)]


@pytest.mark.parametrize("name", [b"dataset\xff", b"back\\slash"])
def test_a_dataset_s_path_that_duckdb_cannot_open(runs: Path, tmp_path: Path, name: bytes) -> None:
    with pytest.raises(UsageError, match="choose another name"):
        ingest(runs, out=tmp_path / os.fsdecode(name))


@pytest.mark.parametrize("name", ["n" * 248, "実" * 28, "実" * 82, "%" * 80, "ö" * 100 + " ="])
@pytest.mark.long_after(1)
def test_long_names(tmp_path: Path, name: str) -> None:
    folder = write_captures(tmp_path / name, {"worker-1.pcap": ring(A, B)})
    assert ingest(folder, out=tmp_path / "dataset") == []
    assert ingest(folder, out=tmp_path / "dataset") == []
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT run_id FROM runs").rows() == [(name,)]
    with ddnn_traces.open(tmp_path / "dataset", [name]) as dataset:
        assert counted(dataset) == sent(ring(A, B))


@pytest.mark.parametrize("name", ["n" * 249, "実" * 83, "\x1b" * 100])
def test_a_name_that_is_too_long_is_refused_before_anything_is_read(tmp_path: Path, name: str) -> None:
    folder = write_captures(tmp_path / name, {"worker-1.pcap": ring(A, B)})
    with pytest.raises(UsageError, match="ingest it by itself with a shorter --run-id"):
        ingest(folder, out=tmp_path / "dataset")
    assert ingest(folder, out=tmp_path / "dataset", run_id="short") == []


def test_names_of_files_that_are_not_utf_8(tmp_path: Path) -> None:
    """Names that differ only in such bytes stay different."""
    names = [os.fsdecode(name) for name in (b"a\xff.pcap", b"a\xfe.pcap", b"a\n.pcap")]
    folder = write_captures(tmp_path / "run", dict(zip(names, (ring(A, B), ring(C, B), ring(A, C)), strict=True)))
    (folder / os.fsdecode(b"train_history-w\xff.log")).write_text("Type,ID,Timestamp,Loss,Accuracy\nbatch,0,1,1,1\n")
    ingest(folder, out=tmp_path / "dataset", clock_offset="none")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        found = dataset.sql("SELECT capture_id FROM captures ORDER BY 1").rows()
        assert found == [("a%0A.pcap",), ("a%FE.pcap",), ("a%FF.pcap",)]
        assert dataset.sql("SELECT DISTINCT worker FROM steps").rows() == [("w%FF",)]


def test_a_worker_s_number_that_fits_no_column(tmp_path: Path) -> None:
    folder = write_captures(tmp_path / "run", {"worker-199999999999999999999-tcpdump.pcap": ring(A, B)})
    (folder / "train_history-².log").write_text(f"Type,ID,Timestamp,Loss,Accuracy\nbatch,0,{BEGIN_NS / 1e9},1,1\n")
    ingest(folder, out=tmp_path / "dataset")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert set(dataset.sql("SELECT rank FROM hosts").rows()) == {(None,)}
        assert dataset.sql("SELECT worker FROM steps").rows() == [("²",)]


def test_a_log_with_the_name_of_a_capture_is_its_log(tmp_path: Path) -> None:
    """Whatever the name; and that names the host, whose role it does not tell."""
    folder = write_captures(tmp_path / "run", {f"{host}.pcap": filter(sent_by(ip), ring(A, B)) for ip, host in NAMES})
    for _, host in NAMES:
        write_log(folder, host, [BEGIN_NS + 50_000, BEGIN_NS + 100_000])
    ingest(folder, out=tmp_path / "dataset")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT host_ip, label, role FROM hosts ORDER BY ALL").rows() == [
            (ip, host, None) for ip, host in NAMES
        ]
        binned = "SELECT DISTINCT src_ip, worker FROM step_flows JOIN flows USING (run_id, flow_id) ORDER BY ALL"
        assert dataset.sql(binned).rows() == NAMES


def test_folders_of_hosts_as_one_run(tmp_path: Path) -> None:
    """A packet captured at both hosts counts once; a host's log is in its folder, the run's metadata in that of all."""
    top = tmp_path / "exp"
    for name in ("nodeA", "nodeB"):
        write_captures(top / name, {"eth0.pcap": ring(A, B)[::2], "eth0.pcap1": ring(A, B)[1::2]})
        write_log(top / name, name, [BEGIN_NS + 50_000, BEGIN_NS + 100_000])
        (top / name / f"train_history-{name}.log").rename(top / name / "train_history.log")
        (top / name / "eth0.err").write_text("9 packets captured\n9 packets received by filter\n")
    (top / "run.toml").write_text("model = 'mlp1'")
    [note] = ingest(top, out=tmp_path / "dataset", run_id="joined")
    assert "nodeA, nodeB have the packets of both" in note  # so no name is a host's
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT run_id, model FROM runs").rows() == [("joined", "mlp1")]
        assert dataset.sql("SELECT DISTINCT worker FROM steps ORDER BY ALL").rows() == [("nodeA",), ("nodeB",)]
        stated = "SELECT capture_id FROM captures WHERE delivered_packets = 9 ORDER BY ALL"
        assert dataset.sql(stated).rows() == [("nodeA/eth0.pcap",), ("nodeB/eth0.pcap",)]
        assert dataset.sql("SELECT sum(packets) FROM flows").item() == 20
        assert contradictions(dataset) == {}
    assert ingest(top / "nodeB", top / "nodeA", out=tmp_path / "dataset", run_id="joined") == [f"run {note}"]
