"""What a loss of power leaves: every rename publishes what is on the disk already, and is then on the disk itself."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from power import Disk
from small_runs import A, B, C, contradictions, hashes_of, ring, write_captures
from tools import COMMAND, mostly_long, needs_tool

import ddnn_traces
from ddnn_traces import cache, jit
from ddnn_traces.errors import StorageError
from ddnn_traces.export import targets
from ddnn_traces.ingestors import pipeline
from ddnn_traces.query import views
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import writer
from ddnn_traces.store.whole_files import sha256_of, sync, sync_tree, whole_file
from ddnn_traces.traffic import synthetic

VIEWS = "new/dataset/traces.duckdb"
RUN = "torch-mlp1-sgd-32-gloo-0ms-ring"


@pytest.fixture(autouse=True)
def no_sync() -> None:
    """What the other tests leave out is done here."""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name, hosts in (("one", (A, B)), ("two", (B, C)), ("three", (A, C))):
        write_captures(tmp_path / "runs" / name, {"a.pcap": ring(*hosts)})
    return tmp_path / "runs"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


# --- the order of fsync and rename


@pytest.mark.views
def test_new_dataset_in_new_folders(runs: Path, tmp_path: Path, disk: Disk) -> None:
    ddnn_traces.ingest(runs, tmp_path / "not" / "there" / "dataset").close()
    disk.assert_durable("dataset", "traces.duckdb")
    assert {tmp_path, tmp_path / "not", tmp_path / "not" / "there"} <= disk.synced_folders


def no_links(*_: object) -> NoReturn:
    raise OSError(errno.EPERM, "no hard links here")


HINDRANCES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "none": lambda monkeypatch: None,
    "no hard links": lambda monkeypatch: monkeypatch.setattr(os, "link", no_links),
    "no exchange": lambda monkeypatch: monkeypatch.setattr(writer, "_exchange", lambda *_: False),
}


@pytest.mark.parametrize("hinder", mostly_long(HINDRANCES, "none"))
def test_every_commit_next_to_older_runs(
    runs: Path, tmp_path: Path, hinder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    HINDRANCES[hinder](monkeypatch)
    disk = Disk(tmp_path, monkeypatch)
    out = tmp_path / "dataset"
    ddnn_traces.ingest(runs / "one", out).close()
    (out / "report.html").write_text("my report")
    (out / "charts").mkdir()
    (out / "charts" / "fig3.svg").write_text("<svg/>")
    sync_tree(out)  # as whoever wrote these should
    monkeypatch.setattr(pipeline, "COMMIT_SECONDS", 0.0)
    monkeypatch.setattr(pipeline, "_COMMIT_SHARE", 0.0)
    ddnn_traces.ingest(runs, out).close()
    assert disk.published.count("dataset") >= 3
    disk.assert_durable("dataset")


def test_new_times_of_inputs(runs: Path, tmp_path: Path, disk: Disk) -> None:
    ddnn_traces.ingest(runs / "one", tmp_path / "dataset").close()
    os.utime(runs / "one" / "a.pcap", ns=(1, 1))
    ddnn_traces.ingest(runs / "one", tmp_path / "dataset").close()
    disk.assert_durable("dataset", "inputs.json")


@pytest.mark.views
@pytest.mark.long
def test_synthetic_runs(tmp_path: Path, disk: Disk) -> None:
    synthetic.generate(tmp_path / "dataset", "zerwas-75", steps=1)
    disk.assert_durable("dataset", "traces.duckdb")


@pytest.mark.parametrize("target", mostly_long(sorted(targets.SIMULATORS), "chakra"))
def test_exports(sample_dataset: Dataset, tmp_path: Path, target: str, disk: Disk) -> None:
    out = tmp_path / "out"
    targets.TARGETS[target].write(sample_dataset.path, out, {"run": RUN})
    disk.assert_durable(*dict.fromkeys(disk.published))
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == set(disk.published)
    assert tmp_path in disk.synced_folders


# --- what the disk answers


def answer(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_fsync_is_used_all_the_same(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(code, monkeypatch)
    with whole_file(tmp_path / "file") as half_written:
        half_written.write_text("new")
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.long_after(1)
def test_what_the_disk_did_not_take_is_not_published(
    runs: Path, tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delayed allocation and network file systems report a full disk only now."""
    out = tmp_path / "dataset"
    ddnn_traces.ingest(runs / "one", out).close()
    before = hashes_of(out)
    answer(code, monkeypatch)
    expected = StorageError if code == errno.ENOSPC else OSError
    with pytest.raises(expected, match=os.strerror(code)):
        ddnn_traces.ingest(runs, out)
    assert hashes_of(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "runs"]


def test_a_folder_that_may_not_be_read_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, flags: int) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    sync([tmp_path])


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_emptied_compiled_code_is_compiled_again(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def more(number: int) -> int:
        return number + 1

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache.code_folder("code", ())
    assert jit.compiled(more, folder)(1) == 2
    (cached,) = tmp_path.rglob(f"*.{suffix}")
    cached.write_bytes(b"")
    with pytest.raises(EOFError):
        jit.compiled(more, folder)(1)
    assert jit.compiled(more, cache.code_folder("code", ()))(1) == 2
    assert cached.stat().st_size > 0


# --- images of a disk, copied without a warning


class Image:
    """An ext4 file system in a file, mounted (by root); copies of the file are what a loss of power leaves of it."""

    def __init__(self, folder: Path) -> None:
        self._file, self._folder = folder / "image", folder
        self.top = folder / "disk"
        self.copies: dict[str, Path] = {}

    @contextlib.contextmanager
    def mounted(self) -> Iterator[Image]:
        with self._file.open("wb") as file:
            file.truncate(96 << 20)
        subprocess.run([needs_tool("mkfs.ext4"), "-q", "-F", self._file], check=True)
        with _mounted(self._file, self.top):
            yield self

    def copy(self, name: str) -> None:
        self.copies[name] = self._folder / f"{len(self.copies)}"
        subprocess.run(["cp", "--sparse=always", self._file, self.copies[name]], check=True)

    def after(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """The copy, mounted as at the next start of the machine."""
        return _mounted(self.copies[name], self._folder / "after")


@contextlib.contextmanager
def _mounted(file: Path, folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    done = subprocess.run([needs_tool("mount"), "-o", "loop", file, folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no image can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    if os.geteuid():
        pytest.skip("only root may mount an image")
    with Image(tmp_path).mounted() as mounted:
        yield mounted


def all_files(top: Path) -> dict[str, str]:
    """Every file's hash, by path; without those of an ingest that did not end."""
    paths = {str(path.relative_to(top)): path for path in top.rglob("*") if path.is_file()}
    return {name: sha256_of(path) for name, path in paths.items() if "/." not in f"/{name}"}


def assert_opens(dataset: Path, run_ids: Iterable[str]) -> None:
    with ddnn_traces.open(dataset) as opened:
        assert opened.run_ids == sorted(run_ids)
        assert opened.row_counts()["flows"] > 0
        assert contradictions(opened) == {}


@pytest.mark.long
@pytest.mark.views
def test_power_is_lost_at_each_point_of_a_commit(runs: Path, image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    out = image.top / "new" / "dataset"
    ddnn_traces.ingest(runs / "one", out).close()
    old = all_files(image.top)
    image.copy("old")

    def photographed(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def between(*arguments: object, **options: object) -> object:
            image.copy(f"before {name}")
            result = function(*arguments, **options)
            image.copy(f"after {name}")
            return result

        return between

    for name in ("sync_tree", "_exchange", "_put_in_place"):
        monkeypatch.setattr(writer, name, photographed(name, getattr(writer, name)))
    with monkeypatch.context() as patched:
        patched.setattr(views, "replace_views", photographed("views", views.replace_views))
        ddnn_traces.ingest(runs, out).close()
    new = all_files(image.top)
    image.copy("new")
    seen = []
    for name in image.copies:
        with image.after(name) as top:
            state = all_files(top)
            is_new = state != old
            assert state in (old, {**new, VIEWS: old[VIEWS]}, new), name
            assert_opens(top / "new" / "dataset", ["one", "three", "two"] if is_new else ["one"])
            seen.append(is_new)
    assert state == new
    assert seen == sorted(seen)
    assert set(seen) == {False, True}


@pytest.mark.long
def test_power_is_lost_seconds_after_the_end(runs: Path, image: Image) -> None:
    out = image.top / "dataset"
    subprocess.run([*COMMAND, "ingest", runs / "one", "--out", out], check=True, capture_output=True)
    subprocess.run([*COMMAND, "ingest", runs, "--out", out], check=True, capture_output=True)
    end = time.monotonic()
    expected = all_files(image.top)
    for seconds in (0, 2, 6, 12, 25):  # the journal is written after 5 s, content after 30
        time.sleep(max(0.0, end + seconds - time.monotonic()))  # the moment is what is tested
        image.copy(str(seconds))
    for name in image.copies:
        with image.after(name) as top:
            assert all_files(top) == expected
            assert_opens(top / "dataset", ["one", "three", "two"])
