"""What was not changed is not read again, and what was is: through whole ingests, as a user sees it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import packets as p
import pytest
from small_runs import A, B, C, hashes_of, ring, sent_by, write_captures, write_log
from tools import mostly_long
from version_4 import COLUMNS, make_version_4

import ddnn_traces
from ddnn_traces.export import duckdb_file
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.inputs import FileState, RunRecord, read_inputs
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import CaptureFacts, ReadOptions
from ddnn_traces.query import catalogue
from ddnn_traces.query.dataset import StoredViews
from ddnn_traces.store import checksums, hashes, writer
from ddnn_traces.store.layout import INPUTS, read_marker
from ddnn_traces.store.whole_files import sha256_of


class Heard(Messages):
    """What was said, and the files that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.read: list[str] = []

    def info(self, message: str) -> None:
        self.said.append(message)

    def start_file(self, name: str) -> None:
        self.read.append(name)


def ingest(runs: Path, out: Path, **options: Any) -> Heard:
    heard = Heard()
    pipeline.ingest([str(runs)], out, IngestOptions(**{"jobs": 1, **options}), heard)
    return heard


def files_in(record: RunRecord) -> list[FileState]:
    """All files of a run."""
    return [*record.packets.files, *record.description.files]


def files_of(dataset: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file."""
    return {
        str(path.relative_to(dataset)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in dataset.rglob("*")
        if path.is_file()
    }


ENDS = [1_700_000_000_000_050_000, 1_700_000_000_000_100_000]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run folders one and two, with a log, and a run.toml in one, and their dataset: to be copied."""
    folder = tmp_path_factory.mktemp("made")
    for name, hosts in (("one", (A, B)), ("two", (B, C))):
        captured = {f"worker-{n}.pcap": filter(sent_by(host), ring(*hosts)) for n, host in enumerate(hosts, 1)}
        write_captures(folder / "runs" / name, captured)
        write_log(folder / "runs" / name, "worker-1", ENDS)
    (folder / "runs" / "one" / "run.toml").write_text("model = 'mlp1'\n")
    ingest(folder / "runs", folder / "dataset")
    return folder


@pytest.fixture
def runs(tmp_path: Path, made: Path) -> Path:
    """The run folders; a copied file has the time of the original."""
    return Path(shutil.copytree(made / "runs", tmp_path / "runs"))


@pytest.fixture
def out(tmp_path: Path, made: Path) -> Path:
    """The runs' dataset."""
    return Path(shutil.copytree(made / "dataset", tmp_path / "dataset"))


ONE, TWO = ["one/worker-1.pcap", "one/worker-2.pcap"], ["two/worker-1.pcap", "two/worker-2.pcap"]


def test_nothing_changed(runs: Path, out: Path) -> None:
    before = files_of(out)
    heard = ingest(runs, out)
    assert heard.read == []
    assert heard.said == [
        "run one: unchanged, not read again",
        "run two: unchanged, not read again",
        f"{out}: 0 runs written, 2 unchanged",
    ]
    assert files_of(out) == before


def change_size(runs: Path) -> None:
    with (runs / "two" / "worker-1.pcap").open("ab") as file:
        file.write(p.record_bytes(ring(B, C)[0].record))


def change_content(runs: Path) -> None:
    """Of the same size."""
    content = bytearray((runs / "two" / "worker-1.pcap").read_bytes())
    content[-1] ^= 1
    (runs / "two" / "worker-1.pcap").write_bytes(content)


CHANGES: dict[str, Callable[[Path], object]] = {
    "size": change_size,
    "content": change_content,
    "new capture": lambda runs: write_captures(runs / "two", {"worker-3.pcap": ring(A, C)}),
    "capture gone": lambda runs: (runs / "two" / "worker-2.pcap").unlink(),
    "steps": lambda runs: write_log(runs / "two", "worker-1", [1_700_000_000_000_060_000]),
    "new log": lambda runs: write_log(runs / "two", "worker-2", [1_700_000_000_000_060_000]),
    "log gone": lambda runs: (runs / "two" / "train_history-worker-1.log").unlink(),
    "log of another capture": lambda runs: rename_log(runs, "worker-1", "worker-2"),
    "parameter server": lambda runs: (write_log(runs / "two", "worker-2", ENDS), declare_server(runs)),
}


def rename_log(runs: Path, worker: str, other: str) -> None:
    (runs / "two" / f"train_history-{worker}.log").rename(runs / "two" / f"train_history-{other}.log")


def declare_server(runs: Path) -> None:
    """worker-1, whose log the clocks were compared by."""
    text = f"[[hosts]]\nip = '{B}'\nlabel = 'worker-1'\nrole = 'parameter_server'\n"
    (runs / "two" / "run.toml").write_text(text)


@pytest.mark.parametrize("change", mostly_long(CHANGES, "new log", "content", "new capture", "log gone"))
@pytest.mark.long_after(1)
def test_changed_run_is_read_again_whole(runs: Path, out: Path, tmp_path: Path, change: str) -> None:
    CHANGES[change](runs)
    heard = ingest(runs, out)
    of_logs = change not in ("size", "content", "new capture", "capture gone")
    assert (
        any("; its captures are read again, since packets are counted by step" in said for said in heard.said)
        == of_logs
    )
    assert set(heard.read) == {f"two/{path.name}" for path in (runs / "two").glob("*.pcap")}
    assert heard.said[-1] == f"{out}: 1 run written, 1 of them in place of an older one of that name, 1 unchanged"
    ingest(runs, tmp_path / "anew")
    assert hashes_of(out) == hashes_of(tmp_path / "anew")
    assert ingest(runs, out).read == []


def test_run_of_other_files_in_the_place_of_one_is_warned_of(tmp_path: Path) -> None:
    """Another host's file of the same name, from another folder, took the place of a run without a word."""
    for folder, hosts in (("a", (A, B)), ("b", (B, C))):
        write_captures(tmp_path / folder, {"single.pcap": ring(*hosts)})
    out, first, other = tmp_path / "dataset", tmp_path / "a" / "single.pcap", tmp_path / "b" / "single.pcap"
    assert ingest(first, out).warnings == []
    assert ingest(other, out).warnings == [
        f"run single: is now of {other}, and was of {first}: other files, which it took the place of. To have both, "
        "ingest those again, and these with --run-id NAME"
    ]
    assert ingest(other, out).read == []  # and it is not said again
    assert ingest(other, out).warnings == []


@pytest.mark.parametrize("change", ["forced", "grown", "moved"])
def test_run_of_the_same_files_takes_its_place_silently(tmp_path: Path, change: str) -> None:
    write_captures(tmp_path / "a", {"single.pcap": ring(A, B)})
    out, place = tmp_path / "dataset", tmp_path / "a" / "single.pcap"
    ingest(place, out)
    if change == "grown":
        write_captures(tmp_path / "a", {"single.pcap": [*ring(A, B), *ring(B, C)]})
    elif change == "moved":
        place = (tmp_path / "a").rename(tmp_path / "b") / "single.pcap"
    heard = ingest(place, out, force=True)
    assert heard.said[-1] == f"{out}: 1 run written, 1 of them in place of an older one of that name"
    assert heard.warnings == []


# --- metadata later than packets


def change_row(runs: Path) -> None:
    (runs / "runs.csv").write_text("run_id,model,workers\ntwo,vgg16,2\n")


def change_loss(runs: Path) -> None:
    log = runs / "two" / "train_history-worker-1.log"
    log.write_text(log.read_text().replace("0.5,0.5", "0.25,"))


def add_events(runs: Path) -> None:
    text = "step,kind,name,t_begin,t_end,bytes\n0,allreduce,g,1700000000.00001,1700000000.00002,9\n"
    (runs / "two" / "events-worker-1.csv").write_text(text)


def add_hosts(runs: Path) -> None:
    """Also a host that sends nothing, and a role of one without a log."""
    hosts = [(B, "gpu-b", "worker", 1, 0), (C, "gpu-c", "chief", 0, 1), ("10.9.9.9", "away", "other", 7, 2)]
    keys = "[[hosts]]\nip = '{}'\nlabel = '{}'\nrole = '{}'\nrank = {}\nring_position = {}\n"
    (runs / "two" / "run.toml").write_text("model = 'vgg16'\n" + "".join(keys.format(*host) for host in hosts))


def add_counters(runs: Path) -> None:
    """Which say that packets were lost: a warning."""
    lines = "20 packets captured\n25 packets received by filter\n5 packets dropped by kernel\n"
    (runs / "two" / "worker-1.err").write_text(lines)


def add_flight_recorder(runs: Path) -> None:
    """Of another day: a warning."""
    entry = {
        "process_group": ["0", ""],
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 5,
        "collective_seq_id": 1,
    }
    (runs / "two" / "flight_recorder-worker-1.json").write_text(json.dumps({"entries": [entry]}))


#: Of run two; the captures of neither run are read.
LATER: dict[str, Callable[[Path], object]] = {
    "new run.toml": add_hosts,
    "new runs.csv": change_row,
    "log of the same worker": lambda runs: (runs / "two/train_history-worker-1.log").rename(
        runs / "two/train_history.log"
    ),
    "log": change_loss,
    "events": add_events,
    "counters": add_counters,
    "flight recorder": add_flight_recorder,
    "notes": lambda runs: (runs / "two" / "notes.csv").write_text("mine"),
    "a log that cannot be read": lambda runs: (runs / "two" / "train_history-worker-2.log").write_text("mine"),
}


def make_unreadable(runs: Path) -> None:
    """The captures with other content of the same size and time, which only reading them shows."""
    for path in runs.rglob("*.pcap"):
        status = path.stat()
        path.write_bytes(b"x" * status.st_size)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def anew(runs: Path, out: Path, change: Callable[[Path], object], **options: Any) -> tuple[dict[str, str], list[str]]:
    """Hashes and warnings of a new dataset of a copy of the runs, changed."""
    shutil.copytree(runs, out / "runs")
    change(out / "runs")
    heard = ingest(out / "runs", out / "dataset", **options)
    return hashes_of(out / "dataset"), [warning.replace(str(out / "runs"), "..") for warning in heard.warnings]


def logs_copied(runs: Path, of: Path) -> None:
    """Give what was changed the times that it has in the copy: they are in inputs.json."""
    for path in of.rglob("*"):
        if path.is_file() and path.suffix != ".pcap":
            shutil.copystat(path, runs / path.relative_to(of))


@pytest.mark.parametrize("change", mostly_long(LATER, "new run.toml", "counters", "log"))
@pytest.mark.long_after(1)
def test_captures_are_not_read_for_a_changed_description(
    runs: Path, out: Path, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the dataset is that of a new ingest, byte for byte. The tables of packets are the same files."""
    expected, warnings = anew(runs, tmp_path / "anew", LATER[change])
    before = files_of(out)
    LATER[change](runs)
    logs_copied(runs, tmp_path / "anew" / "runs")
    make_unreadable(runs)
    heard = ingest(runs, out)
    assert heard.read == []
    assert heard.said[:2] == [
        "run one: unchanged, not read again",
        "run two: its metadata or logs changed; its captures are not read again",
    ]
    assert [warning.replace(str(runs), "..") for warning in heard.warnings] == warnings
    assert heard.said[-1] == f"{out}: metadata of 1 run updated, 1 unchanged"
    assert hashes_of(out) == expected
    of_packets = {"capture_ledger", "flows", "flow_windows", "packets", "flow_opcodes", "encapsulations"}
    kept = [name for name in before if name.split("/")[0] in of_packets]
    assert len(kept) == 2 * len(of_packets)
    assert all(files_of(out)[name] == before[name] for name in kept)
    assert checksums.all_damages(out) == []
    again = ingest(runs, out)
    assert (again.read, again.said[-1]) == ([], f"{out}: 0 runs written, 2 unchanged")
    assert len(again.warnings) == len(warnings)


NS = 1_700_000_000_123_456_789


@pytest.mark.parametrize("time_ns", [NS, NS // 10**9 * 10**9])
@pytest.mark.long_after(1)
def test_a_renamed_folder(runs: Path, out: Path, tmp_path: Path, time_ns: int) -> None:
    """Its tables are those of a new ingest, but for times in whole seconds, by which files are not known."""
    name = "torch-mlp1-sgd-32-gloo-0ms-ring"
    for number, path in enumerate(sorted(runs.rglob("*.pcap"))):
        os.utime(path, ns=(time_ns, time_ns + number * 10**9))
    ingest(runs, out, force=True)
    expected, _ = anew(runs, tmp_path / "anew", lambda top: (top / "two").rename(top / name))
    before = hashes_of(out)
    (runs / "two").rename(runs / name)
    if time_ns != NS:
        assert ingest(runs, out).read == [f"{name}/worker-1.pcap", f"{name}/worker-2.pcap"]
        return
    make_unreadable(runs)
    heard = ingest(runs, out)
    assert heard.read == []
    assert heard.said[1] == (
        f"run {name}: its captures are those of run two, which stays in the dataset, and are not read again"
    )
    after = hashes_of(out)
    assert expected.items() - after.items() == {(file, expected[file]) for file in (INPUTS, checksums.FILE)}
    assert {file: sha for file, sha in before.items() if "run_id=two" in file}.items() <= after.items()
    assert read_inputs(out)[name] == read_inputs(tmp_path / "anew" / "dataset")[name]
    assert checksums.all_damages(out) == []
    with ddnn_traces.open(out) as dataset:
        assert dataset.sql(f"SELECT framework FROM runs WHERE run_id = '{name}'").item() == "torch"


def test_a_renamed_worker(tmp_path: Path) -> None:
    """The steps of packets are those of the log with its new name."""
    runs, out = tmp_path / "runs", tmp_path / "dataset"
    write_captures(runs / "two", {"eth0.pcap": ring(B, C)})
    write_log(runs / "two", "worker-1", ENDS)
    ingest(runs, out)
    expected, _ = anew(runs, tmp_path / "anew", lambda top: rename_log(top, "worker-1", "gpu-b"))
    rename_log(runs, "worker-1", "gpu-b")
    make_unreadable(runs)
    assert ingest(runs, out).read == []
    assert hashes_of(out) == expected
    with ddnn_traces.open(out) as dataset:
        for table in ("steps", "step_flows"):
            assert dataset.sql(f"SELECT DISTINCT worker FROM {table}").rows() == [("gpu-b",)]


@pytest.mark.long
def test_changed_description_with_aligned_clocks(sample: Path, tmp_path: Path) -> None:
    """The offset that --clock-offset auto found is still applied to the logs."""
    source = next(path for path in sorted(sample.iterdir()) if len((path / "train_history.log").read_text()) > 1000)
    run = tmp_path / "runs" / source.name
    shutil.copytree(source, run)
    for log in run.glob("train_history*.log"):
        head, *rows = log.read_text().splitlines()
        cells = [row.split(",") for row in rows]
        late = [",".join([*row[:2], str(float(row[2]) + 3600), *row[3:]]) for row in cells]
        log.write_text("\n".join([head, *late, ""]))
    for phases in run.glob("phases*.csv"):
        phases.unlink()
    out = tmp_path / "dataset"
    ingest(run.parent, out, clock_offset="auto")
    (record,) = read_inputs(out).values()
    assert record.packets.clock is not None and record.packets.clock.applied_ns

    def describe(runs: Path) -> None:
        (runs / source.name / "run.toml").write_text("model = 'other'\n")

    expected, _ = anew(run.parent, tmp_path / "anew", describe, clock_offset="auto")
    describe(run.parent)
    logs_copied(run.parent, tmp_path / "anew" / "runs")
    make_unreadable(run.parent)
    assert ingest(run.parent, out, clock_offset="auto").read == []
    assert hashes_of(out) == expected


@pytest.mark.parametrize("where", ["hosts", "put"])
@pytest.mark.long_after(2)
def test_interrupted_while_a_run_is_described_anew(
    runs: Path, out: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dataset is the old one, whole."""
    before = hashes_of(out)
    add_hosts(runs)
    write = writer.DatasetWriter.write

    def stop(self: writer.DatasetWriter, table: str, *arguments: Any) -> None:
        if table == where:
            raise KeyboardInterrupt
        write(self, table, *arguments)

    def stop_before(_new: Path, _out: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(writer.DatasetWriter, "write", stop)
        if where == "put":
            patched.setattr(writer, "_put_in_place", stop_before)
        with pytest.raises(KeyboardInterrupt):
            ingest(runs, out)
    assert hashes_of(out) == before
    assert checksums.all_damages(out) == []
    assert ingest(runs, out).read == []
    with ddnn_traces.open(out) as dataset:
        assert dataset.sql("SELECT label FROM hosts WHERE run_id = 'two' AND ring_position = 0").item() == "gpu-b"


def test_damaged_run_is_read_again_although_only_its_description_changed(runs: Path, out: Path) -> None:
    (out / "flows" / "run_id=two" / "part-0.parquet").write_bytes(b"")
    add_hosts(runs)
    assert ingest(runs, out).read == TWO
    assert checksums.all_damages(out) == []


def test_packets_and_description_are_told_apart(out: Path) -> None:
    entry = json.loads((out / INPUTS).read_text())["runs"]["one"]
    assert [file["name"] for file in entry["packets"]["files"]] == ["worker-1.pcap", "worker-2.pcap"]
    assert [file["name"] for file in entry["description"]["files"]] == ["run.toml", "train_history-worker-1.log"]
    assert "metadata_sha256" not in entry["packets"]["parameters"]
    assert {step[0] for step in entry["packets"]["needs"]["steps"].values()} == {"worker-1"}


OPTIONS: dict[str, object] = {
    "window_ms": 2.0,
    "hash": "sha256",
    "engine": "pyshark",
    "tunnels": "outer",
    "filter": "tcp",
    "clock_offset": 0.5,
    "force": True,
}


@pytest.mark.parametrize("option", mostly_long(OPTIONS, "window_ms", "filter", "force"))
@pytest.mark.long_after(1)
def test_other_parameters(runs: Path, out: Path, option: str) -> None:
    assert ingest(runs, out, **{option: OPTIONS[option]}).read == [*ONE, *TWO]


def test_touched_files_are_hashed_and_the_time_is_noted(runs: Path, out: Path) -> None:
    before = files_of(out)
    for path in runs.glob("one/*"):
        os.utime(path, ns=(1, 1))
    assert ingest(runs, out).read == []
    after = files_of(out)
    assert after.pop(INPUTS) != before.pop(INPUTS)
    assert after == before
    assert {file.mtime_ns for file in files_in(read_inputs(out)["one"])} == {1}


def test_touched_files_without_a_known_hash_are_read_again(runs: Path, tmp_path: Path) -> None:
    ingest(runs, tmp_path / "dataset", hash="none")
    os.utime(runs / "one" / "worker-1.pcap", ns=(1, 1))
    assert ingest(runs, tmp_path / "dataset", hash="none").read == ONE


#: Hash of the dataset, hash that is asked for: whether its runs are read again.
ASKED_FOR = {
    ("none", "blake3"): True, ("none", "sha256"): True, ("blake3", "sha256"): True,
    ("blake3", "none"): False, ("sha256", "none"): False, ("sha256", "blake3"): False,
}  # fmt: skip


@pytest.mark.parametrize("case", mostly_long(ASKED_FOR, ("blake3", "sha256"), ("sha256", "blake3")))
@pytest.mark.long_after(1)
def test_a_hash_that_there_is_suffices(runs: Path, tmp_path: Path, case: tuple[str, str]) -> None:
    """But for who asks for SHA-256: lists to compare it with have no other."""
    (before, asked), out = case, tmp_path / "dataset"
    ingest(runs, out, hash=before)
    if before != "none":
        os.utime(runs / "two" / "worker-1.pcap", ns=(1, 1))
    assert ingest(runs, out, hash=asked).read == ([*ONE, *TWO] if ASKED_FOR[case] else [])
    kept = asked if ASKED_FOR[case] else before
    with ddnn_traces.open(out) as dataset:
        for capture in dataset.sql("SELECT run_id, capture_id, blake3, sha256 FROM captures").to_dicts():
            digests = hashes.digests_of(runs / capture["run_id"] / capture["capture_id"], kept)
            assert {name: capture[name] for name in hashes.ALGORITHMS if capture[name]} == digests


# --- datasets of an older schema version


@pytest.fixture
def older(runs: Path, out: Path) -> Path:
    """The runs' dataset, as version 4 wrote it."""
    make_version_4(out, runs)
    return out


def test_older_dataset_is_known(runs: Path, older: Path) -> None:
    """Also by its SHA-256, where times have changed. Nothing of a run is rewritten."""
    before = files_of(older)
    for path in runs.glob("one/*"):
        os.utime(path, ns=(1, 1))
    for _ in range(2):
        assert ingest(runs, older).read == []
    changed = {name for name, state in files_of(older).items() if before.get(name) != state}
    assert changed <= {INPUTS, "traces.duckdb", checksums.FILE}
    with ddnn_traces.open(older) as dataset:
        known = dataset.sql("SELECT run_id, capture_id, sha256 FROM captures WHERE blake3 IS NULL").rows()
        assert len(known) == 4
        assert all(sha256_of(runs / run_id / name) == digest for run_id, name, digest in known)
    change_content(runs)
    os.utime(runs / "two" / "worker-1.pcap", ns=(1, 1))
    assert ingest(runs, older).read == TWO


@pytest.mark.long
def test_older_and_newer_runs_in_one_dataset(runs: Path, older: Path, tmp_path: Path) -> None:
    """What both versions know is as in a new dataset. With the last older run the mark goes away."""
    change_size(runs)
    assert ingest(runs, older).read == TWO
    ingest(runs, tmp_path / "anew")
    with ddnn_traces.open(older) as mixed, ddnn_traces.open(tmp_path / "anew") as anew:
        assert mixed.sql("SELECT run_id, blake3 IS NULL FROM captures ORDER BY ALL").rows() == [
            ("one", True), ("one", True), ("two", False), ("two", False),
        ]  # fmt: skip
        for table, columns in COLUMNS.items():
            listed = ", ".join(name for name in columns.split() if name != "sha256")
            query = f"SELECT {listed} FROM {table} ORDER BY ALL"
            assert mixed.sql(query).rows() == anew.sql(query).rows(), table
    assert read_marker(older).has_older_runs
    ingest(runs, older, force=True)
    assert not read_marker(older).has_older_runs


@pytest.mark.long
def test_every_query_of_an_older_dataset_runs(older: Path) -> None:
    with ddnn_traces.open(older) as dataset, StoredViews(dataset) as stored:
        for name, query in catalogue.catalogue().items():
            stored.store_inputs(name)
            dataset.query(name, **dict.fromkeys(query.needs, "one"))


@pytest.mark.long
@pytest.mark.views
def test_older_dataset_in_duckdb_alone(older: Path) -> None:
    file = duckdb_file.write(older)
    with duckdb.connect(str(file), read_only=True) as connection:
        assert connection.execute("SELECT count(*), count(blake3), count(sha256) FROM captures").fetchall() == [
            (4, 0, 4)
        ]


def test_copies_elsewhere_are_known(runs: Path, out: Path, tmp_path: Path) -> None:
    """An archive copied without its times."""
    shutil.copytree(runs, tmp_path / "copy", copy_function=shutil.copyfile)
    assert ingest(tmp_path / "copy", out).read == []


def test_runs_that_are_no_more_among_the_sources_stay(runs: Path, out: Path) -> None:
    shutil.rmtree(runs / "one")
    change_content(runs)
    ingest(runs, out)
    with ddnn_traces.open(out) as dataset:
        assert dataset.run_ids == ["one", "two"]
    assert read_inputs(out).keys() == {"one", "two"}


def test_no_path_of_this_machine_is_published(runs: Path, out: Path, tmp_path: Path) -> None:
    (runs / "one" / "worker-1.pcap").write_bytes(b"")
    (runs / "one" / "train_history-worker-2.log").write_bytes(b"no log")
    assert len(ingest(runs, out).warnings) == 2
    assert str(tmp_path) not in (out / INPUTS).read_text()
    assert all("/" not in file.name for record in read_inputs(out).values() for file in files_in(record))


@pytest.mark.parametrize(
    "text",
    mostly_long(["", "{}", "[]", '{"runs": []}', '{"runs": {"one": {}}}', '{"runs": {"one": 1}}', "\0"], "[]"),
)
def test_damaged_inputs_are_as_none(runs: Path, out: Path, text: str) -> None:
    (out / INPUTS).write_text(text)
    assert ingest(runs, out).read == [*ONE, *TWO]
    assert read_inputs(out).keys() == {"one", "two"}


def test_lost_run_is_read_again(runs: Path, out: Path) -> None:
    for folder in out.glob("*/run_id=one"):
        shutil.rmtree(folder)
    assert ingest(runs, out).read == ONE


# --- what was partial


def test_unchanged_partial_run_warns_again(runs: Path, out: Path) -> None:
    content = (runs / "one" / "worker-1.pcap").read_bytes()
    (runs / "one" / "worker-1.pcap").write_bytes(gzip.compress(content)[:-12])
    (first,) = ingest(runs, out).warnings
    again = ingest(runs, out)
    assert again.read == []
    assert again.warnings == [f"run one: {first.removeprefix(str(runs / 'one') + '/')}"]
    assert "truncated" in again.warnings[0]


def test_unreadable_file_is_tried_again(runs: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permissions may have been mended, which changes neither size nor time."""
    change_content(runs)
    with monkeypatch.context() as patched:
        patched.setattr(numba_engine, "read_capture", refusing(runs / "two" / "worker-1.pcap"))
        assert len(ingest(runs, out).warnings) == 1
    heard = ingest(runs, out)
    assert (heard.read, heard.warnings) == (TWO, [])


def refusing(unreadable: Path) -> Callable[[Path, ReadOptions], CaptureFacts]:
    read = numba_engine.read_capture

    def read_capture(path: Path, options: ReadOptions) -> CaptureFacts:
        if path == unreadable:
            raise PermissionError(13, "Permission denied")
        return read(path, options)

    return read_capture


@pytest.mark.long
def test_file_that_changes_while_it_is_read(runs: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_content(runs)
    read = numba_engine.read_capture

    def read_while_tcpdump_goes_on(path: Path, options: ReadOptions) -> CaptureFacts:
        facts = read(path, options)
        if path == runs / "two" / "worker-1.pcap":
            change_size(runs)
        return facts

    with monkeypatch.context() as patched:
        patched.setattr(numba_engine, "read_capture", read_while_tcpdump_goes_on)
        (warning,) = ingest(runs, out).warnings
    assert warning.startswith("two/worker-1.pcap: changed while it was read; ingest again")
    record = read_inputs(out)["two"].packets.files[0]
    assert (record.name, record.mtime_ns, record.sha256) == ("worker-1.pcap", None, None)
    heard = ingest(runs, out)
    assert (heard.read, heard.warnings) == (TWO, [])
    with ddnn_traces.open(out) as dataset:
        assert dataset.sql("SELECT sum(records) FROM captures WHERE run_id = 'two'").item() == 21


# --- sources that are no files


def test_pipe_is_read_every_time(tmp_path: Path) -> None:
    content = p.pcap(packet.record for packet in ring(A, B))
    for _ in range(2):
        read_end, write_end = os.pipe()
        os.write(write_end, content)
        os.close(write_end)
        heard = ingest(Path(f"/dev/fd/{read_end}"), tmp_path / "dataset", run_id="piped")
        os.close(read_end)
        assert len(heard.read) == 1
    (state,) = read_inputs(tmp_path / "dataset")["piped"].packets.files
    assert state.mtime_ns is None


def test_content_is_deterministic_json(out: Path) -> None:
    text = (out / INPUTS).read_text()
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"
