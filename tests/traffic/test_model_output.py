"""Generated traffic as a dataset, captures and a list of flows: the same in each, whole or not at all."""

from __future__ import annotations

import copy
import csv
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from model_documents import DOCUMENT

import ddnn_traces
from ddnn_traces.errors import StorageError, UsageError
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.traffic import model
from ddnn_traces.traffic.model import Job
from ddnn_traces.traffic.model.scoring import BASELINES


@pytest.mark.parametrize("to", ["dataset", "pcap", "flows"])
def test_the_same_seed_gives_the_same_bytes(to: str, tmp_path: Path) -> None:
    files = {}
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        out = model.generate(DOCUMENT, Job(3, 100_000, "star", 3, seed=seed), tmp_path / name, to)
        paths = [out] if out.is_file() else sorted(path for path in out.rglob("*") if path.is_file())
        files[name] = [path.read_bytes() for path in paths if path.suffix != ".duckdb"]  # holds the dataset's path
    assert len(files["a"]) >= 1
    assert files["a"] == files["b"] != files["c"]


@pytest.mark.long
def test_all_formats_hold_the_same(tmp_path: Path) -> None:
    job = Job(4, 500_000, "pair_averaging", 20, run_id="synthetic-pulls")
    for to in ("dataset", "pcap", "flows"):
        model.generate(DOCUMENT, job, tmp_path / to, to)
    query = (
        "SELECT src_ip, dst_ip, src_port, dst_port, packets, wire_bytes, payload_bytes, retransmitted_bytes, "
        "first_seen_ns, last_seen_ns FROM flows ORDER BY ALL"
    )
    with (
        ddnn_traces.open(tmp_path / "dataset") as tables,
        ddnn_traces.ingest(tmp_path / "pcap" / "synthetic-pulls", tmp_path / "read") as read,
    ):
        assert tables.sql(query).equals(read.sql(query))
        assert tables.query("step_volume").equals(read.query("step_volume"))
        for dataset in (tables, read):
            assert dataset.sql("SELECT DISTINCT run_id, source FROM runs").rows() == [("synthetic-pulls", "synthetic")]
            undeclared = "batch_size, optimizer, epochs, delay_ms, loss_pct, bandwidth_mbit"
            assert dataset.sql(f"SELECT {undeclared} FROM runs").row(0) == (None,) * 6
            assert dataset.sql("SELECT count(*), count(loss), count(accuracy) FROM steps").row(0) == (80, 0, 0)
            assert [name for name, rows in checks.run_with_stored_inputs(dataset).items() if rows.num_rows] == []
        payload = dict(tables.sql("SELECT flow_id, payload_bytes FROM flows WHERE payload_bytes > 0").rows())
    with (tmp_path / "flows").open() as file:
        rows = list(csv.DictReader(file))
    listed: Counter[int] = Counter()
    for row in rows:
        listed[int(row["flow"])] += int(row["bytes"])
        assert row["source"] == "synthetic"
        assert (row["phase"] == "step") == (row["step"] != "")
        assert int(row["end_ns"]) >= int(row["start_ns"])
    assert listed == payload
    assert {row["phase"] for row in rows} == {"start_up", "step", "tear_down"}
    assert {int(row["step"]) for row in rows if row["step"]} == set(range(20))


def test_the_list_of_flows_has_the_step_of_each_transfer() -> None:
    """Also where it begins or ends in another step of its sender: each step has the volume of the law."""
    document = copy.deepcopy(DOCUMENT)
    document["control"], document["packets"]["retransmitted_share"] = [], 0.0
    for topology, volume in (("ring", 6), ("pair_averaging", 4)):
        generated = model.traffic(document, Job(4, 100_000, topology, 30))
        sent: Counter[int] = Counter()
        for *_, payload, step, phase, source in model.flow_list(generated):
            assert source == "synthetic"
            if phase == "step":
                sent[step] += payload
        assert set(sent) == set(range(30))
        assert list(sent.values()) == pytest.approx([volume * 100_000] * 30, abs=12)


@pytest.mark.filterwarnings("error")
@pytest.mark.long
def test_a_pcap_ends_with_its_seconds(tmp_path: Path) -> None:
    """Steps of a day are no trouble for a list of flows until the year 2106."""
    for days in (1, 31_500):
        job = Job(2, 1000, "ring", days, compute_ms=86_400_000.0)
        assert (model.traffic(DOCUMENT, job).transfers.start_ns > 0).all()
    with pytest.raises(UsageError, match="32 bits"):
        model.generate(DOCUMENT, job, tmp_path / "out", "pcap")
    assert list(tmp_path.iterdir()) == []


def test_the_size_of_captures_is_printed_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, lines = Job(3, 50_000, "ring", 4), list[str]()
    folder = model.generate(DOCUMENT, job, tmp_path, "pcap", lines.append)
    there = sum(path.stat().st_size for path in folder.iterdir())
    (line,) = lines
    assert int(line.split(" bytes")[0].split()[-1].replace(",", "")) == pytest.approx(there, rel=0.01)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=there // 2))
    with pytest.raises(StorageError, match=f"has space for {there // 2:,}"):
        model.generate(DOCUMENT, job, tmp_path / "new", "pcap")
    assert list(tmp_path.iterdir()) == [folder]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    job = Job(2, 1000, "ring", 1)
    model.generate(DOCUMENT, job, tmp_path, "pcap")
    with pytest.raises(UsageError, match="is there already"):
        model.generate(DOCUMENT, job, tmp_path, "pcap")
    with pytest.raises(UsageError, match="name a file"):
        model.generate(DOCUMENT, job, tmp_path, "flows")
    model.generate(DOCUMENT, job, tmp_path / "dataset", "dataset")
    with pytest.raises(UsageError, match="has a run named synthetic; choose another --out or --run-id"):
        model.generate(DOCUMENT, Job(3, 1000, "ring", 1), tmp_path / "dataset", "dataset")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT workers FROM runs").item() == 2


@pytest.mark.parametrize("to", ["pcap", "flows"])
def test_what_is_interrupted_leaves_nothing_and_loses_nothing(
    to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    old = tmp_path / "flows"
    old.write_text("old")
    monkeypatch.setattr("ddnn_traces.traffic.pcaps._write_logs", interrupted)
    monkeypatch.setattr("ddnn_traces.traffic.table_writer.flow_list", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.generate(DOCUMENT, Job(2, 1000, "ring", 1), old if to == "flows" else tmp_path / "new" / to, to)
    assert [(path, path.read_text()) for path in tmp_path.rglob("*")] == [(old, "old")]


@pytest.mark.parametrize("to", ["dataset", "pcap", "flows"])
@pytest.mark.parametrize(
    "name", ["../../up", "..", ".", ".hidden", "a/b", "/a", "a\\b", "", " ", "a\nb", "\0", "\udcff", "\x1b[0m"]
)
def test_names_that_are_not_plain_are_refused(name: str, to: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no plain name") as refused:
        model.generate(DOCUMENT, Job(2, 1000, "ring", 1, run_id=name), tmp_path / "in" / "out", to)
    assert str(refused.value).isprintable()
    assert list(tmp_path.iterdir()) == []


def test_a_plain_name_may_be_of_any_script(tmp_path: Path) -> None:
    job = Job(2, 1000, "ring", 1, run_id="Zürich 2.0+α")
    assert model.generate(DOCUMENT, job, tmp_path, "pcap") == tmp_path / "Zürich 2.0+α"
    model.generate(DOCUMENT, job, tmp_path / "dataset", "dataset")
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert dataset.run_ids == ["Zürich 2.0+α"]


@pytest.mark.long
def test_from_the_command_line(command: Any, generated: Dataset, tmp_path: Path) -> None:
    done = command("generate", "fit", generated.path, "--run", "known", "--out", "model.json")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"wrote model.json: fitted to 1 run\n"
    job = ("--workers", "6", "--model-bytes", "400000", "--topology", "tree", "--shape", "chain", "--steps", "4")
    done = command("generate", "traffic", "model.json", *job, "--to", "pcap", "--out", "generated")
    assert done.returncode == 0
    assert len(list((tmp_path / "generated" / "synthetic").glob("*.pcap"))) == 6
    done = command("generate", "score", generated.path, "--holdout", "pull", "--model", "model.json", "--format", "csv")
    rows = list(csv.DictReader(done.stdout.decode().splitlines()))
    assert [row["generator"] for row in rows] == ["model", *BASELINES[:2]]  # it has no runs to draw steps of
    assert {row["fitted_by"] for row in rows} == {"given"}
