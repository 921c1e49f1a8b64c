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
from ddnn_traces.ingestors.facts import CaptureFacts, ReadOptions
from ddnn_traces.ingestors.inputs import read_inputs
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.packets import numba_engine
from ddnn_traces.messages import Messages
from ddnn_traces.query import catalogue
from ddnn_traces.store import checksums, hashes
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


def files_of(dataset: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of every file."""
    return {
        str(path.relative_to(dataset)): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in dataset.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Run folders one and two, with a log, and a run.toml in one."""
    for name, hosts in (("one", (A, B)), ("two", (B, C))):
        captured = {f"worker-{n}.pcap": filter(sent_by(host), ring(*hosts)) for n, host in enumerate(hosts, 1)}
        write_captures(tmp_path / "runs" / name, captured)
        write_log(tmp_path / "runs" / name, "worker-1", [1_700_000_000_000_050_000, 1_700_000_000_000_100_000])
    (tmp_path / "runs" / "one" / "run.toml").write_text("model = 'mlp1'\n")
    return tmp_path / "runs"


@pytest.fixture
def out(tmp_path: Path, runs: Path) -> Path:
    """The runs' dataset."""
    ingest(runs, tmp_path / "dataset")
    return tmp_path / "dataset"


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
    "log": lambda runs: write_log(runs / "two", "worker-1", [1_700_000_000_000_060_000]),
    "new log": lambda runs: write_log(runs / "two", "worker-2", [1_700_000_000_000_060_000]),
    "log gone": lambda runs: (runs / "two" / "train_history-worker-1.log").unlink(),
    "new run.toml": lambda runs: (runs / "two" / "run.toml").write_text("model = 'vgg16'"),
    "new runs.csv": lambda runs: (runs / "runs.csv").write_text("run_id,model\ntwo,vgg16\n"),
}


@pytest.mark.parametrize("change", mostly_long(CHANGES, "content", "new capture", "log gone"))
@pytest.mark.long_after(1)
def test_changed_run_is_read_again_whole(runs: Path, out: Path, tmp_path: Path, change: str) -> None:
    CHANGES[change](runs)
    heard = ingest(runs, out)
    assert set(heard.read) == {f"two/{path.name}" for path in (runs / "two").glob("*.pcap")}
    assert heard.said[-1] == f"{out}: 1 run written, 1 of them in place of an older one of that name, 1 unchanged"
    ingest(runs, tmp_path / "anew")
    assert hashes_of(out) == hashes_of(tmp_path / "anew")
    assert ingest(runs, out).read == []


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
    assert {file.mtime_ns for file in read_inputs(out)["one"].files} == {1}


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
    with ddnn_traces.open(older) as dataset:
        for name in catalogue.catalogue():
            dataset.query(name)


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
    assert all("/" not in file.name for record in read_inputs(out).values() for file in record.files)


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
    record = read_inputs(out)["two"].files[1]
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
    (state,) = read_inputs(tmp_path / "dataset")["piped"].files
    assert state.mtime_ns is None


def test_content_is_deterministic_json(out: Path) -> None:
    text = (out / INPUTS).read_text()
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"
