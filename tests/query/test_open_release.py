"""open: a release in a folder, a bag or a zip file, with what the core install has; what would do harm is refused."""

from __future__ import annotations

import json
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import ddnn_traces
from ddnn_traces.cli import cli
from ddnn_traces.errors import DdnnTracesError, ReleaseError, StorageError, UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import layout, schema
from ddnn_traces.store.parquet import part
from ddnn_traces.store.places import zipped
from ddnn_traces.store.whole_files import sha256_of

TABLES = ("runs", "hosts", "flows", "flow_windows")


@pytest.fixture(scope="module")
def some_tables(sample_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some tables of two runs, as a release has them. Not to be changed."""
    folder = tmp_path_factory.mktemp("some") / "traces"
    listed = []
    for table in TABLES:
        (folder / table).mkdir(parents=True)
        for number, run in enumerate(sorted((sample_dataset.path / table).iterdir())[:2]):
            path = folder / part(table, number)
            shutil.copy(run / "part-0.parquet", path)
            runs = {run.name.removeprefix("run_id="): 1}
            sizes = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
            listed.append({"files": [{"path": part(table, number), "runs": runs, **sizes}]})
    layout.write_marker(folder, TABLES)
    (folder / layout.RELEASE).write_text(json.dumps({"tables": listed}))
    return folder


def pack(folder: Path, out: Path, top: str = "") -> Path:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, f"{top}{file.relative_to(folder).as_posix()}")
    return out


def test_tables_that_are_not_there_are_empty(some_tables: Path) -> None:
    with ddnn_traces.open(some_tables) as dataset:
        assert len(dataset.run_ids) == 2
        for table in schema.TABLES:
            rows = dataset.sql(f"FROM {table}")
            assert rows.columns == [column.name for column in schema.table(table).columns]
            assert rows.is_empty() == (table not in TABLES), table
        assert not dataset.query("traffic_matrix").is_empty()
        assert dataset.sql("SELECT run_id FROM hosts GROUP BY ALL ORDER BY ALL")["run_id"].to_list() == dataset.run_ids
        assert any("steps" in line for line in dataset.missing("step_volume"))


def test_tables_alone_of_a_release(some_tables: Path, tmp_path: Path) -> None:
    """As somebody may have them who downloaded nothing else."""
    folder = Path(shutil.copytree(some_tables, tmp_path / "traces"))
    (folder / layout.RELEASE).unlink()
    with ddnn_traces.open(folder) as dataset, ddnn_traces.open(some_tables) as plain:
        assert dataset.query("traffic_matrix").equals(plain.query("traffic_matrix"))
        one = plain.run_ids[0]
    with ddnn_traces.open(folder, runs=[one]) as dataset:
        assert dataset.query("traffic_matrix")["run_id"].unique().to_list() == [one]


def test_a_bag(some_tables: Path, tmp_path: Path) -> None:
    shutil.copytree(some_tables, tmp_path / "bag" / "data")
    (tmp_path / "bag" / "bagit.txt").write_text("BagIt-Version: 1.0\n")
    with ddnn_traces.open(tmp_path / "bag") as dataset, ddnn_traces.open(some_tables) as plain:
        assert dataset.query("traffic_matrix").equals(plain.query("traffic_matrix"))


@pytest.mark.parametrize("top", ["", "traces-1.0.0/", "traces-1.0.0/data/"])
def test_a_zip_file(some_tables: Path, tmp_path: Path, top: str) -> None:
    packed = pack(some_tables, tmp_path / "traces.zip", top)
    with ddnn_traces.open(packed) as dataset, ddnn_traces.open(some_tables) as plain:
        unpacked = dataset.path
        assert dataset.query("traffic_matrix").equals(plain.query("traffic_matrix"))
    assert not unpacked.exists()


def test_of_a_zip_file_only_the_runs_to_see_are_unpacked(some_tables: Path, tmp_path: Path) -> None:
    packed = pack(some_tables, tmp_path / "traces.zip")
    with ddnn_traces.open(some_tables) as plain:
        one, other = plain.run_ids
    with ddnn_traces.open(packed, runs=[one]) as dataset:
        assert dataset.run_ids == [one]
        assert len(list((dataset.path / "flows").iterdir())) == 1
    with pytest.raises(UsageError, match=rf"no run named {other}x; did you mean .*{other}"):
        ddnn_traces.open(packed, runs=[f"{other}x"])


def test_the_command_line_takes_a_zip_file_and_a_file_url(some_tables: Path, tmp_path: Path) -> None:
    packed = pack(some_tables, tmp_path / "traces.zip")
    for where in (str(packed), f"file://{packed}", f"file://{some_tables}"):
        done = CliRunner().invoke(cli, ["runs", where, "--format", "csv"])
        assert done.exit_code == 0, done.output
        assert len(done.stdout.splitlines()) == 3
    with pytest.raises(UsageError, match="download the release first"):
        CliRunner().invoke(cli, ["export", "https://a.example/b", "--to", "duckdb"], catch_exceptions=False)


def link(archive: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("flows/run_id=x/part-0.parquet")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(info, "/etc/passwd")


HARM: dict[str, tuple[Callable[[zipfile.ZipFile], object], str]] = {
    "above": (lambda a: a.writestr("../evil", "x"), "leaves its folder"),
    "absolute": (lambda a: a.writestr("/etc/evil", "x"), "leaves its folder"),
    "inside": (lambda a: a.writestr("flows/../../evil", "x"), "leaves its folder"),
    "backslash": (lambda a: a.writestr("..\\evil", "x"), "leaves its folder"),
    "drive": (lambda a: a.writestr("C:evil", "x"), "leaves its folder"),
    "link": (link, "a link"),
    "bomb": (lambda a: a.writestr("flows/run_id=x/part-0.parquet", bytes(1 << 24)), "16,777,216 bytes out of"),
}


@pytest.mark.parametrize("harm", HARM)
def test_harm_in_a_zip_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    put, word = HARM[harm]
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dataset.json", "{}")
        put(archive)
    with pytest.raises(ReleaseError, match=word):
        ddnn_traces.open(tmp_path / "x.zip")
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["temporary", "x.zip"]


def test_a_damaged_zip_file(some_tables: Path, tmp_path: Path) -> None:
    packed = pack(some_tables, tmp_path / "traces.zip")
    content = bytearray(packed.read_bytes())
    with zipfile.ZipFile(packed) as archive:
        member = max(archive.infolist(), key=lambda info: info.compress_size)
    content[member.header_offset + 200] ^= 0xFF
    packed.write_bytes(content)
    with pytest.raises(ReleaseError, match="download it again"):
        ddnn_traces.open(packed)


def test_no_room_to_unpack(some_tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = pack(some_tables, tmp_path / "traces.zip")
    monkeypatch.setattr(zipped.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 0, 10))
    with pytest.raises(StorageError, match="set TMPDIR"):
        ddnn_traces.open(packed)


@pytest.mark.parametrize("names", [["a.txt"], ["a/dataset.json", "b/dataset.json"], ["a/b/c/dataset.json"]])
def test_a_zip_file_without_a_release(tmp_path: Path, names: list[str]) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    with pytest.raises(UsageError, match=r"no release|holds 2 datasets"):
        ddnn_traces.open(tmp_path / "x.zip")


@pytest.mark.parametrize("tables", ["runs", ["nothing"], 7, [["runs"]]])
def test_a_marker_with_odd_tables(tmp_path: Path, tables: object) -> None:
    import json

    (tmp_path / "dataset.json").write_text(json.dumps({"schema_version": schema.SCHEMA_VERSION, "tables": tables}))
    with pytest.raises(DdnnTracesError, match="names unknown tables"):
        ddnn_traces.open(tmp_path)


def test_which_paths_are_safe() -> None:
    for name in ("a", "flows/run_id=a%2Fb/part-0.parquet", "ä/b c", "...", "run."):
        assert layout.is_safe(name), name
    for name in ("", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\\b", "C:a", "a\nb", "a" * 2000):
        assert not layout.is_safe(name), name
