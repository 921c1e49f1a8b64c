"""publish: from the command line and from Python, whole or not at all, the same bytes, refusals."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import jsonschema
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from damages import all_found
from datasets import record_checksums
from power import Disk
from publishing import ABOUT
from tools import RunCommand

import ddnn_traces
from ddnn_traces.errors import (
    DdnnTracesError,
    LeakError,
    MissingExtra,
    PublishError,
    QueryError,
    StorageError,
    UsageError,
)
from ddnn_traces.messages import Messages
from ddnn_traces.query import checks
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import facts, packaging, publish, released_tables, versions
from ddnn_traces.release.verify.examined import NOT_CHECKED, PASSED
from ddnn_traces.store import layout, schema
from ddnn_traces.store.parquet import partition
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import thesis
from ddnn_traces.traffic.table_writer import write_traffic

ROOT = Path(ddnn_traces.__file__).parents[1]
CODE = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom ddnn_traces.cli import main; main()"
COMMAND = (sys.executable, "-c", CODE)
OPTIONS = ("--title", "Two runs", "--licence", "CC-BY-4.0", "--creator", "Ada Lovelace", "--date", "2026-01-31")
RUN, OTHER = "torch-mlp1-sgd-32-gloo-0ms-ring", "mpi-mlp1-sgd-32-openmpi-0ms-ring"


def all_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(command: RunCommand) -> Run:
    """The command line in tmp_path; output as text."""

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        done = command(*arguments)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def test_what_is_in_a_release(small: Path, release: Path) -> None:
    names = {path.name for path in release.iterdir()}
    tables = {
        "runs",
        "hosts",
        "captures",
        "capture_ledger",
        "flows",
        "flow_windows",
        "messages",
        "steps",
        "step_flows",
        "events",
    }
    others = {layout.RELEASE, layout.CHANGELOG, layout.CHECKSUMS, "dataset.json", "traces.duckdb", *layout.DESCRIPTIONS}
    others.add(layout.EXPLORER)
    assert names == tables | others - {layout.CLAIMS}
    text = (release / layout.RELEASE).read_text(encoding="utf-8")
    jsonschema.validate(
        json.loads(text), json.loads((schema.shipped_folder("schemas") / "documents" / "release.json").read_text())
    )
    found = facts.from_json(text)
    assert found.run_ids == [OTHER, RUN]
    assert found.digest == versions.digest(found)
    assert [step.kind for step in found.provenance] == ["capture", "ingest", "anonymise", "publish"]
    assert len(found.provenance[1].inputs) == 8
    with ddnn_traces.open(release) as dataset, ddnn_traces.open(small) as source:
        for table in found.tables:
            (before,) = source.sql(f"SELECT count(*) AS n FROM {table.name}")["n"]
            assert table.rows == before == dataset.sql(f"SELECT count(*) AS n FROM {table.name}")["n"][0]
        same = "SELECT run_id, sum(wire_bytes)::BIGINT AS b FROM flow_windows GROUP BY ALL ORDER BY ALL"
        assert dataset.sql(same).equals(source.sql(same))
        addresses = set(dataset.sql("SELECT src_ip FROM flows")["src_ip"])
    assert addresses == {"worker-1", "worker-2", "worker-3", "worker-4"}


@pytest.mark.parametrize("library", ["yaml", "yacryptopan"])
def test_a_missing_extra_is_named_before_anything_is_read(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtra, match=rf"{library} is not installed.*ddnn-traces\[publish\]"):
        ddnn_traces.publish(tmp_path / "no dataset", tmp_path / "release", **ABOUT)


def test_a_dataset_with_a_damaged_file_is_refused(small: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(small, tmp_path / "dataset"))
    file = partition(damaged, "flows", RUN) / "part-0.parquet"
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    with pytest.raises(DdnnTracesError, match=rf"run {RUN}: flows/run_id={RUN}/part-0\.parquet: changed"):
        ddnn_traces.publish(damaged, tmp_path / "release", **ABOUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset"]


def test_checksums_are_those_that_sha256sum_reads(release: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", layout.CHECKSUMS], cwd=release, capture_output=True, text=True
    )
    assert done.returncode == 0
    listed = {line.partition(": ")[0] for line in done.stdout.splitlines()}
    assert listed == set(all_files(release)) - {layout.CHECKSUMS}


def test_the_database_is_relative_and_has_every_view(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "it's moved"
    shutil.copytree(release, moved)
    with duckdb.connect(str(moved / "traces.duckdb"), read_only=True) as elsewhere:
        with pytest.raises(duckdb.IOException):
            elsewhere.sql("SELECT count(*) FROM flows").fetchall()
        elsewhere.execute("SET file_search_path = $1", [str(moved)])
        (found,) = elsewhere.sql("SELECT count(*) FROM flows").fetchall()
        (empty,) = elsewhere.sql("SELECT count(*) FROM packets").fetchall()
    assert (found, empty) == ((36,), (0,))
    monkeypatch.chdir(moved)
    with duckdb.connect("traces.duckdb", read_only=True) as inside, ddnn_traces.open(release) as dataset:
        assert pl.from_arrow(inside.sql("FROM total_volume").arrow()).equals(dataset.query("total_volume"))
        (comment,) = inside.sql("SELECT comment FROM duckdb_views() WHERE view_name = 'flows'").fetchall()
    assert comment == (schema.table("flows").row,)


def test_the_database_has_the_format_that_duckdb_1_0_reads(release: Path) -> None:
    """Its number in the first header (DuckDB 2 writes 68 by default), and of the definitions in the second."""
    content = (release / "traces.duckdb").read_bytes()
    assert struct.unpack_from("<Q", content, 12) == (64,)
    assert struct.unpack_from("<Q", content, 4096 + 56) == (1,)


def test_queries_use_no_syntax_that_duckdb_2_stores_wrongly_for_older_ones() -> None:
    """It stores lag(x, 1, default) in a file of that format so that DuckDB 1 refuses the view."""
    files = sorted(schema.shipped_folder("queries").glob("*.sql"))
    assert len(files) > 100
    assert [file.stem for file in files if re.search(r"\b(lag|lead)\([^()]*,", file.read_text(), re.I)] == []


def test_the_same_bytes_again_also_with_other_threads(small: Path, release: Path, tmp_path: Path, run: Run) -> None:
    key = release.with_name("traces.key")
    done = run("publish", small, "--out", "again", *OPTIONS, "--key", key, "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert all_files(tmp_path / "again") == all_files(release)
    assert done.stdout == ""


def test_another_key_is_another_release(small: Path, release: Path, tmp_path: Path) -> None:
    made = ddnn_traces.publish(small, tmp_path / "other", **ABOUT)
    assert made.key_made
    assert made.key == tmp_path / "other.key"
    assert made.key.stat().st_mode & 0o777 == 0o600
    mine, other = facts.read(release), made.release
    assert mine.anonymisation.key_id != other.anonymisation.key_id
    assert mine.digest != other.digest


def test_unchanged_is_reported_and_nothing_touched(small: Path, release: Path, tmp_path: Path, run: Run) -> None:
    shutil.copytree(release, tmp_path / "traces")
    shutil.copy(release.with_name("traces.key"), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "traces").rglob("*")}
    done = run("publish", small, "--out", "traces", *OPTIONS[:-2])  # the day it was published stays
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "traces: unchanged, version 1.0.0")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "traces").rglob("*")} == before
    for change in (("--window-ms", "10"), ("--description", "More"), ("--run", RUN)):
        other = run("publish", small, "--out", "traces", *OPTIONS, *change)
        assert other.returncode == 1
        assert "traces: exists, and differs from what would be published now" in other.stderr
        assert "--previous traces" in other.stderr
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "traces").rglob("*")} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["traces", "traces.key"]


def test_another_folder_is_not_overwritten(small: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep")
    with pytest.raises(PublishError, match="mine: exists and is not a release of this program; choose another `out`"):
        ddnn_traces.publish(small, tmp_path / "mine", **ABOUT)
    assert all_files(tmp_path) == {"mine/notes": b"keep"}


def test_a_loss_of_power_leaves_it_whole_or_not_at_all(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    out = tmp_path / "releases" / "traces"
    ddnn_traces.publish(small, out, bagit=True, **ABOUT)
    disk.assert_durable("traces.key", "traces")
    ddnn_traces.push(out, str(tmp_path / "share" / "pushed"))
    disk.assert_durable("traces.key", "traces", "1.0.0")
    assert {tmp_path, tmp_path / "releases", tmp_path / "share"} <= disk.synced_folders


def test_an_empty_folder_may_become_one(small: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert ddnn_traces.publish(small, tmp_path / "new", **ABOUT, runs=[RUN], tables=["flows"]).written
    assert json.loads((tmp_path / "new" / "dataset.json").read_text())["tables"] == ["runs", "flows"]
    assert facts.read(tmp_path / "new").run_ids == [RUN]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"licence": None}, "no licence: .*`licence_file`"),
        ({"title": ""}, "no title: .*`title`"),
        ({"creators": []}, "no creators: .*`creator`"),
        ({"tables": ["flow"]}, "`table` flow: did you mean flows"),
        ({"tables": ["packets"]}, "`table` packets: has no rows in these runs"),
        ({"runs": ["torch"]}, "no run named torch"),
        ({"allow_flagged": ["torch"]}, "`allow_flagged` torch: "),
        ({"window_ms": 1.5}, r"`window_ms` 1.5: not a multiple of the 1 ms windows of mpi"),
        ({"window_ms": 0}, r"`window_ms` 0: not a multiple"),
        ({"window_ms": 10, "tables": ["flows"]}, "`window_ms`: flow_windows is not among the tables"),
        ({"version": "1"}, 'version: "1" is not: semantic version'),
        ({"date": "2026-02-30"}, "2026-02-30 is not a day"),
        ({"key": "out/key"}, "out/key: the key would be inside the release"),
        ({"key": "short"}, "short: a key of 2 bytes is too short"),
        ({"previous": "nowhere"}, "nowhere: not a release"),
        ({"about": "nowhere"}, "nowhere: there is no such file"),
        ({"addresses": "random"}, "`addresses` random: "),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_a_wrong_call_writes_nothing(
    small: Path, tmp_path: Path, options: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("abcd")
    paths = {name: Path(value) for name, value in options.items() if name in ("key", "previous", "about")}
    with pytest.raises(UsageError, match=expected):
        ddnn_traces.publish(small, "out", **ABOUT | options | paths)
    assert [path.name for path in tmp_path.iterdir()] == ["short"]


def test_neither_release_nor_key_inside_of_the_dataset(small: Path, release: Path, tmp_path: Path) -> None:
    before = all_files(small) | all_files(release)
    (tmp_path / "link").symlink_to(small)
    for out in (small, small / "out", small / "a" / "b", tmp_path / "link" / "out"):
        with pytest.raises(UsageError, match="the release would be inside the dataset"):
            ddnn_traces.publish(small, out, **ABOUT)
    with pytest.raises(UsageError, match=r"the key would be inside the dataset .*; name another file"):
        ddnn_traces.publish(small, tmp_path / "out", **ABOUT, key=small / "secret.key")
    with pytest.raises(UsageError, match="is inside the release"):
        ddnn_traces.publish(small, release / "flows" / "out", **ABOUT)
    assert all_files(small) | all_files(release) == before
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_what_memory_does_not_hold_is_spilled_next_to_the_release(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorting 80 MB in a quarter of that has to spill."""
    places: list[str] = []

    def spill(dataset: Dataset) -> dict[str, pa.Table]:
        dataset.connection.execute("SET memory_limit = '20MB'; SET threads = 1")
        dataset.sql("CREATE TEMP TABLE big AS SELECT range, hash(range) AS h FROM range(5000000)")
        places.extend(row[0] for row in dataset.sql("SELECT path FROM duckdb_temporary_files()").rows())
        return {name: pa.table({"run_id": []}) for name in checks.names()}

    monkeypatch.setattr(checks, "run_checks", spill)
    monkeypatch.chdir(small)
    before = all_files(small)
    ddnn_traces.publish(small, tmp_path / "new" / "out", **ABOUT, key=tmp_path / "key")
    assert places
    assert {Path(place).parent.parent for place in places} == {tmp_path}
    assert all_files(small) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "new"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_checks_that_fail_refuse_a_run_unless_it_is_flagged(small: Path, tmp_path: Path, run: Run) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    path = partition(copy, "capture_ledger", RUN) / "part-0.parquet"
    changed = pl.read_parquet(path, hive_partitioning=False).with_columns(packets=pl.col("packets") + 1)
    pq.write_table(changed.to_arrow().cast(schema.table("capture_ledger").arrow()), path)
    record_checksums(copy)
    done = run("publish", copy, "--out", "out", *OPTIONS)
    assert done.returncode == 1
    assert f"data checks fail:\n  {RUN}: " in done.stderr
    assert "flows_match_ledger (" in done.stderr
    assert "ledger (" in done.stderr
    assert "--allow-flagged" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]
    made = ddnn_traces.publish(copy, tmp_path / "out", **ABOUT, allow_flagged=[RUN])
    assert made.release.flagged.keys() == {RUN}
    assert made.release.flagged[RUN]["ledger"] == 4
    assert RUN in (tmp_path / "out" / layout.DATASHEET).read_text()
    ddnn_traces.publish(copy, tmp_path / "only", **ABOUT, runs=[OTHER])


def test_a_leak_removes_the_release(small: Path, tmp_path: Path) -> None:
    description = "Captured on 10.10.0.1, a host of ours."
    with pytest.raises(LeakError) as caught:
        ddnn_traces.publish(small, tmp_path / "above" / "out", **ABOUT, description=description, words="kept")
    assert "not published" in str(caught.value)
    assert layout.CARD in str(caught.value)
    assert "an IP address (host 1 of run " in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_day_of_publication_may_be_that_of_the_runs(small: Path, tmp_path: Path) -> None:
    with ddnn_traces.open(small) as dataset:
        first_ns = dataset.sql("SELECT min(first_seen_ns) AS ns FROM flows")["ns"][0]
    today = f"{datetime.fromtimestamp(first_ns / 1e9, UTC) + timedelta(hours=12):%Y-%m-%d}"  # its midnight is near
    release = ddnn_traces.publish(small, tmp_path / "release", **ABOUT | {"date": today}).path
    assert json.loads((release / layout.DATA_PACKAGE).read_text())["created"] == f"{today}T00:00:00Z"


def full_disk(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def query_without_space(*_: object, **__: object) -> NoReturn:
    error = duckdb.OutOfMemoryException("No space left on device")
    raise QueryError(str(error)) from error


@pytest.mark.parametrize(
    ("module", "name", "failure"),
    [
        (released_tables.pq, "ParquetWriter", full_disk),
        (packaging, "write_checksums", full_disk),
        (packaging, "write_database", full_disk),
        (publish, "write_marker", full_disk),
        (checks, "run_checks", query_without_space),
    ],
    ids=["tables", "checksums", "database", "descriptions", "checks"],
)
def test_a_full_disk_leaves_nothing(
    small: Path, tmp_path: Path, module: object, name: str, failure: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, failure)
    with pytest.raises(StorageError, match=r"no space to write \(No space left on device\); nothing is left there"):
        ddnn_traces.publish(small, tmp_path / "out", **ABOUT)
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_no_full_disk(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> NoReturn:
        error = duckdb.OutOfMemoryException("Out of Memory Error: could not allocate block of size 256.0 KiB")
        raise QueryError(str(error)) from error

    monkeypatch.setattr(checks, "run_checks", failing)
    with pytest.raises(StorageError, match=r"not enough memory \(Out of Memory.*publish fewer runs") as caught:
        ddnn_traces.publish(small, tmp_path / "out", **ABOUT)
    assert "space" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


#: Publishes into file systems of these sizes (KiB); prints exit code, stderr and what is left of each.
SMALL_DISKS = """
import json, subprocess, sys
from pathlib import Path
dataset, small, sizes, command, options = json.loads(sys.argv[1])
for size in sizes:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", small], check=True)
    call = [*command, "publish", dataset, "--out", f"{small}/out", *options]
    done = subprocess.run(call, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stderr, sorted(path.name for path in Path(small).iterdir())]))
    subprocess.run(["umount", small], check=True)
"""


def can_mount() -> bool:
    made = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    return made.returncode == 0


@pytest.mark.skipif(not can_mount(), reason="needs mount namespaces")
@pytest.mark.parametrize("sizes", [[600, 8000], pytest.param([32, 200, 1000], marks=pytest.mark.nightly)], ids=str)
def test_disks_that_are_too_small(sizes: list[int], small: Path, tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    arguments = json.dumps([str(small), str(tmp_path / "small"), sizes, COMMAND, OPTIONS])
    call = ["unshare", "-m", sys.executable, "-c", SMALL_DISKS, arguments]
    answers = [
        json.loads(line)
        for line in subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
    ]
    assert [code for code, _, _ in answers] == [0 if size == 8000 else 1 for size in sizes]
    for code, stderr, left in answers:
        assert "Traceback" not in stderr
        assert left == ([] if code else ["out", "out.key"])
        assert not code or "no space to write" in stderr.splitlines()[-1]


def slow_publish(small: Path, out: Path) -> subprocess.Popen[str]:
    """A publish that stays in its first table, once it is there."""
    code = CODE.replace("from ddnn_traces.cli", (
        "import os\nfrom ddnn_traces.release import released_tables\nread = released_tables._read\n"
        "def slow(source, progress):\n    for batch in read(source, progress):\n"
        "        os.write(1, b'in\\n')\n        progress.stop.wait()\n        yield batch\n"
        "released_tables._read = slow\nfrom ddnn_traces.cli"
    ))  # fmt: skip
    call = [sys.executable, "-c", code, "publish", str(small), "--out", str(out), *OPTIONS]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_it_leaves_nothing(small: Path, tmp_path: Path, sent: signal.Signals, code: int) -> None:
    with slow_publish(small, tmp_path / "out") as process:
        assert process.stdout
        assert process.stdout.readline() == "in\n"
        process.send_signal(sent)
        _, stderr = process.communicate(timeout=120)  # it would wait for ever if nothing told its threads to stop
    assert process.returncode == code
    assert "Traceback" not in stderr
    assert list(tmp_path.iterdir()) == []


def test_killed_it_leaves_what_the_next_one_removes(small: Path, tmp_path: Path, run: Run) -> None:
    with slow_publish(small, tmp_path / "out") as process:
        assert process.stdout
        assert process.stdout.readline() == "in\n"
        process.kill()
    assert not (tmp_path / "out").exists()
    done = run("publish", small, "--out", "out", *OPTIONS)
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.key"]


def test_a_bag_is_valid(small: Path, release: Path, tmp_path: Path) -> None:
    import bagit

    key = release.with_name("traces.key")
    made = ddnn_traces.publish(small, tmp_path / "bag", **ABOUT, key=key, bagit=True)
    bag = bagit.Bag(str(tmp_path / "bag"))
    bag.validate()
    assert bag.info["Bagging-Date"] == "2026-01-31"
    assert layout.content(made.path) == tmp_path / "bag" / "data"
    assert facts.read(made.path).options["bagit"] is True
    path = tmp_path / "bag" / "data" / layout.CARD
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(bagit.BagValidationError):
        bagit.Bag(str(tmp_path / "bag")).validate()
    again = ddnn_traces.publish(small, tmp_path / "bag2", **ABOUT, key=key, bagit=True)
    assert versions.digest(again.release) == versions.digest(made.release)
    assert all_files(tmp_path / "bag2") == all_files(tmp_path / "bag") | {
        f"data/{layout.CARD}": (tmp_path / "bag2" / "data" / layout.CARD).read_bytes()
    }


def test_captures_are_among_the_facts(sample: Path, small: Path, tmp_path: Path) -> None:
    made = ddnn_traces.publish(small, tmp_path / "out", **ABOUT, runs=[RUN], captures=[str(sample)])
    paths = {file.path for file in made.release.captures}
    assert f"pcap/{RUN}/worker-1.pcap.gz" in paths
    assert paths == {path for path in all_files(tmp_path / "out") if path.startswith("pcap/")}


def test_the_template_is_printed(tmp_path: Path, run: Run) -> None:
    done = run("publish", "--template")
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "release.toml").write_text(done.stdout)
    assert "[[creators]]" in done.stdout
    assert run("publish").returncode == 2
    assert run("publish", tmp_path).returncode == 2


def test_a_terminal_gets_questions(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def ask(question: str) -> str:
        questions.append(question)
        return "CC0-1.0"

    options = publish.PublishOptions(title="T", creators=["Ada"], runs=[RUN])
    made = publish.publish(small, tmp_path / "out", options, ask=ask)
    assert made.release.about.licence == "CC0-1.0"
    assert ["licence" in question for question in questions] == [True]
    assert os.listdir(tmp_path) != []  # noqa: PTH208


# --- names of runs


def test_runs_whose_names_identify_are_renamed_everywhere(sample: Path, tmp_path: Path, run: Run) -> None:
    """An address, a time and a host; the same names with the same key, also where there is a run more."""
    scheme = "torch-mlp1-sgd-32-gloo-0ms-ring-10.10.0.3"  # metadata that come from the name
    names = ("run1-10.10.0.2", "at_2026-11-20_09-41", "run-1795167600", "run_2_10.10.0.1", scheme, "plain")
    for name in names:
        shutil.copytree(sample / RUN, tmp_path / "in" / name)
    (tmp_path / "in" / scheme / "run.toml").unlink()
    ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset").close()
    found = {}
    for number, chosen in enumerate((names, names[:1])):
        about = ABOUT | {"captures": [str(tmp_path / "in")], "key": tmp_path / "key", "runs": chosen, "words": "kept"}
        release = ddnn_traces.publish(tmp_path / "dataset", tmp_path / f"release-{number}", **about).release
        found[chosen] = release.run_ids
        text = b"".join(name.encode() + data for name, data in all_files(tmp_path / f"release-{number}").items())
        assert not [name for name in names[:-1] if name.encode() in text]
        with ddnn_traces.open(tmp_path / f"release-{number}") as opened:
            for table in release.tables:
                ids = opened.sql(f"SELECT DISTINCT run_id FROM {table.name} ORDER BY ALL")["run_id"].to_list()
                assert ids == release.run_ids == sorted(release.run_ids), table.name
        assert {path.name for path in (tmp_path / f"release-{number}" / "pcap").iterdir()} == set(release.run_ids)
    assert set(found[names[:1]]) < set(found[names])
    tag = "[0-9a-f]{8}"
    patterns = (f"at_{tag}", "plain", f"run-{tag}", f"run1-{tag}", f"run_2_{tag}", f"{scheme[:-9]}{tag}")
    assert all(re.fullmatch(*pair) for pair in zip(patterns, found[names], strict=True))
    told = ["publish", tmp_path / "dataset", *OPTIONS, "--out", tmp_path / "told", "--allow", "plain"]
    inside = run(*told, "--renamed", tmp_path / "told" / "names.csv")
    assert (inside.returncode, (tmp_path / "told").exists()) == (2, False)
    assert "the names would be inside the release" in inside.stderr
    done = run(*told, "--renamed", tmp_path / "names.csv")
    assert done.returncode == 0
    with (tmp_path / "names.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    runs = {row["original"]: row["released"] for row in rows if row["kind"] == "run"}
    assert [*runs] == sorted(names[:-1])
    with ddnn_traces.open(tmp_path / "told") as opened, ddnn_traces.open(tmp_path / "dataset") as original:
        assert {*runs.values()} == {*opened.run_ids} - {"plain"}
        hosts = "SELECT host_ip, label FROM hosts WHERE run_id = ?"
        for run_id in names:
            there = original.sql(hosts, [run_id]).to_dict(as_series=False)
            new = opened.sql(hosts, [runs.get(run_id, run_id)]).to_dict(as_series=False)
            for kind, column in (("address", "host_ip"), ("host", "label")):
                told_of = {
                    row["original"]: row["released"] for row in rows if (row["run_id"], row["kind"]) == (run_id, kind)
                }
                assert sorted(told_of.get(name, name) for name in there[column]) == sorted(new[column])
                assert set(told_of) >= {name for name in there[column] if name not in new[column]}
    assert sum(row["kind"] == "address" for row in rows) >= len(names)
    assert stat.S_IMODE((tmp_path / "names.csv").stat().st_mode) == 0o600
    assert "renamed 5 runs, whose names hold what must not be published" in done.stderr
    assert "run1-10.10.0.2 is run1-" in done.stderr


@pytest.mark.parametrize("name", ["a.pcap", "the-licensor.pcap"])
def test_names_that_the_descriptions_hold_anyway_are_no_leak(name: str, sample: Path, tmp_path: Path) -> None:
    """DICTIONARY.md has "a pcap", and licences "the licensor": spellings of these names with another separator."""
    capture = next((sample / OTHER).glob("worker-1*.pcap.gz"))
    (tmp_path / name).write_bytes(gzip.decompress(capture.read_bytes()))
    ddnn_traces.ingest(tmp_path / name, tmp_path / "dataset").close()
    release = ddnn_traces.publish(tmp_path / "dataset", tmp_path / "release", **ABOUT).path
    assert "a pcap" in (release / layout.DICTIONARY).read_text()
    assert "capture.pcap" in pq.read_table(release / "captures")["capture_id"].to_pylist()


# --- profiles

#: What each profile withholds, and what a test finds of it in the tables.
PROFILES = {
    "open": (), "careful": ("hash", "size", "clock"), "strict": ("hash", "size", "clock"),
}  # fmt: skip


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles(profile: str, small: Path, tmp_path: Path) -> None:
    """What is withheld is nowhere in the release, which says so. It passes verify: other tests verify a careful one."""
    release = tmp_path / "release"
    made = ddnn_traces.publish(small, release, profile=profile, **ABOUT).release
    withheld = PROFILES[profile]
    assert made.anonymisation.withheld == withheld
    assert made.anonymisation.ports == ("classed" if profile == "strict" else "kept")
    assert {name: made.options[name] for name in ("hashes", "sizes", "clocks")} == dict.fromkeys(
        ("hashes", "sizes", "clocks"), "withheld" if withheld else "kept"
    )
    columns = [(table, name) for kind in ("hash", "size", "clock") for table, name in schema.identifying(kind)]
    with ddnn_traces.open(small) as before, ddnn_traces.open(release) as after:
        for table, name in columns:
            (there,) = before.sql(f"SELECT count({name}) FROM {table}").row(0)
            assert after.sql(f"SELECT count({name}) FROM {table}").row(0) == (0 if withheld else there,), (table, name)
        digests = before.sql("SELECT coalesce(sha256, blake3) AS digest FROM captures")["digest"].to_list()
    text = b"".join(all_files(release).values())
    assert [digest.encode() in text for digest in digests] == [not withheld] * len(digests)
    assert all((digest is None) == bool(withheld) for digest in made.provenance[1].inputs.values())
    datasheet = (release / layout.DATASHEET).read_text()
    assert ("SHA-256 and BLAKE3 of the original captures were withheld" in datasheet) == bool(withheld)
    files = {table.name: table.files[0].path for table in made.tables}
    meanings = [
        pq.read_schema(release / files[table]).field(name).metadata[b"meaning"]
        for table, name in columns
        if table in files  # no packets are kept
    ]
    assert len(meanings) == 9
    assert [b"In this release: withheld" in meaning for meaning in meanings] == [bool(withheld)] * len(meanings)
    if profile != "careful":
        assert {row.status for row in all_found(release, tmp_path / "scratch")} == {PASSED}
    if profile == "strict":
        assert_connections_that_look_alike_are_numbered(release)


def assert_connections_that_look_alike_are_numbered(release: Path) -> None:
    """As classed ports make them."""
    alike = "run_id, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp"
    with ddnn_traces.open(release) as dataset:
        found = dataset.sql(
            f"SELECT count(*) AS flows, list_sort(list(connection)) AS numbers FROM flows GROUP BY {alike}"
        )
        assert checks.run_checks(dataset)["flow_references"].num_rows == 0
    assert found["flows"].max() > 1, "or this shows nothing"
    assert found["numbers"].to_list() == [list(range(flows)) for flows in found["flows"]]


def test_an_option_wins_over_the_profile(small: Path, tmp_path: Path) -> None:
    careful = ddnn_traces.publish(small, tmp_path / "1", key=tmp_path / "key", **ABOUT).release
    options = ABOUT | {"clocks": "kept", "key": tmp_path / "key", "previous": tmp_path / "1"}
    found = ddnn_traces.publish(small, tmp_path / "2", **options).release
    assert (careful.anonymisation.withheld, found.anonymisation.withheld) == (
        ("hash", "size", "clock"),
        ("hash", "size"),
    )
    assert found.about.version == "2.0.0"
    assert "Option changed: `clocks: withheld -> kept`" in (tmp_path / "2" / layout.CHANGELOG).read_text()
    with pytest.raises(UsageError, match="`profile` carefull: did you mean careful"):
        ddnn_traces.publish(small, tmp_path / "3", profile="carefull", **ABOUT)
    with pytest.raises(UsageError, match=r"ports classed \(`profile` strict\), connections would not"):
        ddnn_traces.publish(small, tmp_path / "3", profile="strict", captures=["no such folder"], **ABOUT)


@pytest.mark.parametrize("place", ["release.toml", "run.toml", "the name of a run"])
def test_a_key_of_a_service_is_not_published(place: str, sample: Path, tmp_path: Path) -> None:
    """A token in the description refuses the release; in a run's name or metadata it is replaced."""
    token = "AKIAIOSFODNN7EXAMPLE"
    folder = Path(shutil.copytree(sample / RUN, tmp_path / "in" / (f"job-{token}" if "name" in place else "job")))
    if place == "run.toml":
        (folder / "run.toml").write_text(
            f'model = "{token}"\n' + (folder / "run.toml").read_text().replace("model =", "#")
        )
    ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset").close()
    about = ABOUT | ({"description": f"Uploaded with {token}."} if place == "release.toml" else {})
    said: list[str] = []
    if place == "release.toml":
        with pytest.raises(LeakError, match=r"description: AKIA\.\.\. ") as found:
            ddnn_traces.publish(tmp_path / "dataset", tmp_path / "release", **about)
        said.append(str(found.value))
    else:
        messages = Messages()
        messages.info = said.append  # type: ignore[method-assign]
        options = publish.PublishOptions(**about)
        said.append(publish.publish(tmp_path / "dataset", tmp_path / "release", options, messages).message)
        with ddnn_traces.open(tmp_path / "release") as release:
            model, name = release.sql("SELECT model, run_id FROM runs").row(0)
        assert re.fullmatch("job-[0-9a-f]{8}", name) if "name" in place else re.fullmatch("[0-9a-f]{8}", model)
        assert any("AKIA... (20 letters)" in line for line in said)
    # a run has to be named to say that it is renamed
    assert [line for line in said if token in line and not line.startswith("renamed")] == []


def test_runs_can_be_held_out(small: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "release"
    release = ddnn_traces.publish(small, out, **ABOUT, splits=[f"test={RUN}"]).release
    assert release.splits == {"test": [RUN], "train": [OTHER]}
    assert [path.name for path in sorted((out / "flows").iterdir())] == ["test-00000.parquet", "train-00000.parquet"]
    with ddnn_traces.open(out) as dataset:
        assert dict(dataset.sql("SELECT run_id, split FROM runs").iter_rows()) == {RUN: "test", OTHER: "train"}
        assert set(dataset.query("split_scores")["split"]) == {"test", "train"}
    with ddnn_traces.open(out, runs=[RUN]) as dataset:
        assert dataset.sql("SELECT DISTINCT run_id FROM flows")["run_id"].to_list() == [RUN]
    assert {result.status for result in all_found(out, tmp_path / "scratch")} == {PASSED}
    front = yaml.safe_load((out / layout.CARD).read_text().split("---\n")[1])
    flows = next(config for config in front["configs"] if config["config_name"] == "flows")
    assert {file["split"]: file["path"] for file in flows["data_files"]} == {
        "test": "flows/test-*.parquet", "train": "flows/train-*.parquet",
    }  # fmt: skip
    record_sets = json.loads((out / layout.CROISSANT).read_text())["recordSet"]
    assert [row["splits/url"] for row in record_sets[0]["data"]] == ["cr:TestSplit", "cr:TrainingSplit"]
    for split, said in (
        (RUN, "write NAME=RUN"), ("Test=" + RUN, "small letters"), ("part=" + RUN, "small letters"),
        ("test=nothing", "--split nothing: there are: "),
    ):  # fmt: skip
        done = run("publish", small, *OPTIONS, "--split", split, "--out", tmp_path / "wrong")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    with pytest.raises(UsageError, match="is in test already"):
        ddnn_traces.publish(small, tmp_path / "wrong", **ABOUT, splits=[f"test={RUN}", f"validation={RUN}"])


def test_simulated_runs_are_published_and_verified(tmp_path: Path) -> None:
    run = SimulatedRun(workers=3, steps=3, profile=thesis(10, 300_000, 30))
    write_traffic(tmp_path / "dataset", [simulator.traffic(simulator.simulate(run))])
    release = ddnn_traces.publish(tmp_path / "dataset", tmp_path / "release", **ABOUT).path
    steps = json.loads((release / "release.json").read_text())["provenance"]
    assert steps[0]["kind"] == "generate" and "Simulated, not measured: 1 run." in steps[0].values()
    assert {row.status for row in all_found(release, tmp_path / "scratch")} <= {PASSED, NOT_CHECKED}
