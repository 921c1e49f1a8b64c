"""Damage at rest: what a disk lost or changed is found, named with its run, and read again."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from small_runs import A, B, C, hashes_of, ring, write_captures, write_log
from tools import RunCommand, mostly_long

import ddnn_traces
from ddnn_traces.errors import QueryError, UsageError
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.messages import Messages
from ddnn_traces.query import checks
from ddnn_traces.store import checksums, schema
from ddnn_traces.store.layout import read_marker
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.writer import DatasetWriter


class Heard(Messages):
    """What was said, and the runs that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []
        self.read: set[str] = set()

    def info(self, message: str) -> None:
        self.said.append(message)

    def start_file(self, name: str) -> None:
        self.read.add(name.split("/")[0])


def ingest(runs: Path, out: Path) -> Heard:
    heard = Heard()
    pipeline.ingest([str(runs)], out, IngestOptions(jobs=1, packets=True), heard)
    return heard


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders runs and dataset: runs one and two. Not to be changed."""
    top = tmp_path_factory.mktemp("sound")
    for name, hosts in (("one", (A, B)), ("two", (B, C))):
        write_captures(top / "runs" / name, {"worker-1.pcap": ring(*hosts)})
        write_log(top / "runs" / name, "worker-1", [1_700_000_000_000_050_000, 1_700_000_000_000_100_000])
    ingest(top / "runs", top / "dataset")
    return top


@pytest.fixture
def runs(sound: Path) -> Path:
    return sound / "runs"


@pytest.fixture
def out(sound: Path, tmp_path: Path) -> Path:
    """The dataset, to be damaged."""
    return Path(shutil.copytree(sound / "dataset", tmp_path / "dataset"))


def test_every_file_of_every_run_is_recorded(out: Path) -> None:
    recorded = {out / path for files in checksums.read(out).values() for path in files}
    assert recorded == set(out.glob("*/*/*.parquet"))
    assert checksums.all_damages(out) == []
    assert checks.damaged_files(out) == []


def test_pages_have_checksums(out: Path) -> None:
    """One bit of the values, and pyarrow says which column."""
    path = partition(out, "flow_windows", "one") / "part-0.parquet"
    column = pq.ParquetFile(path).metadata.row_group(0).column(4)
    begin = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    flip(path, 8 * (begin + column.total_compressed_size - 3))
    (damage,) = checksums.all_damages(out)
    assert (damage.run_id, damage.file) == ("one", "flow_windows/run_id=one/part-0.parquet")
    assert f"column {column.path_in_schema}" in damage.problem
    assert "CRC" in damage.problem
    (out / checksums.FILE).unlink()
    (unrecorded,) = checksums.all_damages(out)
    assert (unrecorded.run_id, unrecorded.file) == (damage.run_id, damage.file)


# --- what happens to files


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


FLOWS = "flows/run_id=one/part-0.parquet"

HARMS: dict[str, tuple[Callable[[Path], object], str]] = {
    "emptied": (lambda path: path.write_bytes(b""), "has 0 bytes instead of "),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-1]), " bytes instead of "),
    "zeros": (lambda path: path.write_bytes(bytes(path.stat().st_size)), "does not match its checksum"),
    "footer": (lambda path: flip(path, 8 * (path.stat().st_size - 100)), "does not match its checksum"),
    "values": (lambda path: flip(path, 8 * 40), "does not match its checksum"),
    "removed": (lambda path: path.unlink(), "missing"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), ""),
    "one more": (lambda path: shutil.copy2(path, path.with_name("part-1.parquet")), "not written by this program"),
}


def test_check_lists_damaged_files_and_checks_the_other_runs(out: Path, command: RunCommand) -> None:
    (out / FLOWS).write_bytes(b"")
    done = command("check", "dataset")
    assert done.returncode == 1
    assert b"stored_files: 1 damaged file;" in done.stdout
    assert FLOWS in " ".join(done.stdout.decode().split())
    assert b"orphan_keys: ok" in done.stdout
    (out / FLOWS.replace("one", "two")).write_bytes(b"")
    done = command("check", "dataset")
    assert done.returncode == 1
    assert b"stored_files: 2 damaged files; ingest the runs again" in done.stdout
    assert done.stderr == b"no run is left for the other checks\n"


@pytest.mark.parametrize("harm", mostly_long(HARMS, "emptied", "values"))
def test_damaged_run_is_named_and_read_again(runs: Path, out: Path, harm: str) -> None:
    before = hashes_of(out)
    change, problem = HARMS[harm]
    change(out / FLOWS)
    (damage,) = checksums.all_damages(out)
    assert damage.run_id == "one"
    assert problem in damage.problem
    with ddnn_traces.open(out, ["two"]) as dataset:
        assert dataset.query("traffic_matrix").height > 0
    heard = ingest(runs, out)
    assert heard.read == {"one"}
    assert heard.said[0].startswith(f"run one: {damage.file}: ")
    assert hashes_of(out) == before
    assert checks.damaged_files(out) == []
    assert ingest(runs, out).read == set()


def test_a_query_names_the_damaged_run(out: Path) -> None:
    """Of the first file DuckDB knows when it is opened, of the others when they are read."""
    (out / "flows/run_id=two/part-0.parquet").write_bytes(b"")
    with ddnn_traces.open(out) as dataset, pytest.raises(UsageError, match=r"run two: flows/run_id=two/.*has 0 bytes"):
        dataset.sql("SELECT sum(wire_bytes) FROM flows")
    (out / FLOWS).write_bytes(b"")
    with pytest.raises(UsageError, match=r"run one: flows/run_id=one/.*has 0 bytes.* and 1 more damaged file.*`run`"):
        ddnn_traces.open(out)


@pytest.mark.parametrize("call", [("runs",), ("query", "traffic_matrix"), ("sql", "FROM flows"), ("regress",)])
def test_a_run_whose_files_are_gone_is_named(out: Path, command: RunCommand, call: tuple[str, ...]) -> None:
    """Also one that no table shows any more."""
    for folder in out.glob("*/run_id=one"):
        shutil.rmtree(folder)
    (out / "flows/run_id=two").rename(out / "flows/run_id=other")  # without any file of flows, DuckDB opens nothing
    said = command(call[0], "dataset", *call[1:]).stderr.decode().splitlines()
    first, others = "capture_ledger/run_id=one/part-0.parquet", len(schema.TABLES) - 1
    assert said[:2] == [
        f"note: run one: {first} is missing, and {others} more files; ingest the run again",
        "note: run two: flows/run_id=two/part-0.parquet is missing; ingest the run again",
    ]
    assert not any("is empty" in line for line in said)
    done = command("query", "dataset", "traffic_matrix", "--run", "one")
    assert (done.returncode, b"run one: capture_ledger/run_id=one" in done.stderr) == (2, True)


def test_mistakes_in_sql_are_not_of_files(out: Path) -> None:
    (out / FLOWS).with_name("part-1.parquet").touch()
    with ddnn_traces.open(out, ["two"]) as dataset:
        for text in ("SELECT nothing FROM flows", "SELECT 'x'::BIGINT", "SELEC 1"):
            with pytest.raises(QueryError, match="Error"):
                dataset.sql(text)


# --- the records


@pytest.mark.parametrize("name", ["checksums.json", "inputs.json"])
@pytest.mark.parametrize("text", [b"", b"\xff"])
@pytest.mark.long_after(2)
def test_damaged_records_are_found_and_written_again(runs: Path, out: Path, name: str, text: bytes) -> None:
    before = hashes_of(out)
    (out / name).write_bytes(text)
    assert [(damage.run_id, damage.file) for damage in checks.damaged_files(out) or ()] == [(None, name)]
    heard = ingest(runs, out)
    assert any(name in line for line in heard.said)
    assert heard.read == (set() if name == checksums.FILE else {"one", "two"})
    assert hashes_of(out) == before
    assert checks.damaged_files(out) == []


@pytest.mark.long
def test_check_states_where_there_is_no_record(out: Path, command: RunCommand) -> None:
    assert b"stored_files: ok\n" in command("check", "dataset").stdout
    (out / "checksums.json").unlink()
    assert (
        b"stored_files: ok by its pages alone in 2 runs without a record in checksums.json\n"
        in command("check", "dataset").stdout
    )


@pytest.mark.parametrize("text", [b"", b'{"format": "ddnn', b"[]", None])
def test_damaged_marker_is_written_again(runs: Path, out: Path, text: bytes | None, command: RunCommand) -> None:
    """No run is read again; nothing else can be done with the dataset before."""
    before = hashes_of(out)
    (out / "dataset.json").unlink()
    if text is not None:
        (out / "dataset.json").write_bytes(text)
    done = command("runs", "dataset")
    assert (done.returncode, b"dataset.json is damaged or missing; ingest one of its runs" in done.stderr) == (2, True)
    heard = ingest(runs, out)
    assert (heard.said[0], heard.read) == (f"{out}/dataset.json: damaged or missing; it is written again", set())
    assert hashes_of(out) == before


@pytest.mark.parametrize("version", [schema.OLDEST_VERSION, schema.SCHEMA_VERSION + 1])
def test_damaged_marker_of_a_dataset_of_another_version(out: Path, version: int) -> None:
    """That of a newer one is left as it is."""
    path = partition(out, "runs", "two") / "part-0.parquet"
    rows = pq.read_table(path)
    stated = {**rows.schema.metadata, b"ddnn_traces.schema_version": b"%d" % version}
    pq.write_table(rows.replace_schema_metadata(stated), path)
    (out / "dataset.json").write_bytes(b"")
    if version < schema.SCHEMA_VERSION:
        with DatasetWriter(out):
            assert read_marker(out).oldest == version
    else:
        with pytest.raises(UsageError, match="is damaged or missing"), DatasetWriter(out):
            pass
        assert (out / "dataset.json").read_bytes() == b""


def test_runs_without_a_record_have_their_pages_read(runs: Path, out: Path) -> None:
    """As those of an older version. What is sound is recorded from now on."""
    record = (out / checksums.FILE).read_bytes()
    (out / checksums.FILE).unlink()
    flip(partition(out, "flow_windows", "one") / "part-0.parquet", 8 * 40)
    assert [damage.run_id for damage in checksums.all_damages(out)] == ["one"]
    assert ingest(runs, out).read == {"one"}
    assert (out / checksums.FILE).read_bytes() == record


def test_removed_run_leaves_the_record(runs: Path, out: Path) -> None:
    for folder in out.glob("*/run_id=one"):
        shutil.rmtree(folder)
    assert {damage.run_id for damage in checksums.all_damages(out)} == {"one"}
    write_captures(out.parent / "three", {"a.pcap": ring(A, C)})
    ingest(out.parent / "three", out)
    assert checksums.read(out).keys() == {"two", "three"}


# --- single bits


def bits(out: Path, number: int) -> Iterator[tuple[Path, int]]:
    """Bits of every file of the dataset but the database of views and sources.json, at random."""
    rng = random.Random(20261122)
    others = ("traces.duckdb", "sources.json")
    files = sorted(path for path in out.rglob("*") if path.is_file() and path.name not in others)
    assert {path.relative_to(out).parts[0] for path in files} == {
        *schema.TABLES, "dataset.json", "inputs.json", checksums.FILE
    }  # fmt: skip
    for path in files:
        for _ in range(number):
            yield path, rng.randrange(8 * path.stat().st_size)


@pytest.mark.long
def test_every_flipped_bit_of_the_name_of_a_seal_is_found(out: Path) -> None:
    inputs = out / "inputs.json"
    begin = inputs.read_bytes().index(b'"blake3"')
    for bit in range(8 * begin, 8 * (begin + len('"blake3"'))):
        flip(inputs, bit)
        assert [damage.file for damage in checks.damaged_files(out)] == ["inputs.json"], bit
        flip(inputs, bit)


@pytest.mark.parametrize(
    "number", [1, pytest.param(6, marks=pytest.mark.long), pytest.param(20, marks=pytest.mark.nightly)]
)
def test_every_flipped_bit_is_found(runs: Path, out: Path, number: int) -> None:
    expected = hashes_of(out)
    for i, (path, bit) in enumerate(bits(out, number)):
        flip(path, bit)
        where = f"bit {bit} of {path.relative_to(out)}"
        try:
            found = checks.damaged_files(out)
        except UsageError:  # dataset.json, by which nothing can be opened
            assert path.name == "dataset.json", where
            flip(path, bit)
            continue
        assert found, where
        assert {damage.file for damage in found} == {path.relative_to(out).as_posix()}, where
        if "=" in path.parent.name:
            assert {damage.run_id for damage in found} == {path.parent.name.removeprefix("run_id=")}
        if i % 10 == 0:
            ingest(runs, out)
            assert checks.damaged_files(out) == [], where
            assert hashes_of(out) == expected, where
        else:
            flip(path, bit)


@pytest.mark.parametrize("name", ["three", "x'); COPY (SELECT 1) TO '%2Ftmp%2Fa'; --"])
@pytest.mark.long_after(1)
def test_a_folder_of_no_run_is_named_and_the_other_runs_are_checked(
    name: str, sound: Path, tmp_path: Path, command: RunCommand
) -> None:
    dataset = tmp_path / "dataset"
    shutil.copytree(sound / "dataset", dataset)
    shutil.copytree(partition(dataset, "flows", "one"), dataset / "flows" / f"run_id={name}")
    assert [damage.file for damage in checksums.all_damages(dataset)] == [f"flows/run_id={name}"]
    done = command("check", str(dataset))
    assert done.returncode == 1
    assert "of no run that the table runs has; remove it" in done.stdout.decode()
    assert "flow_references: ok" in done.stdout.decode()
