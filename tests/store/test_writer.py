"""Writing a dataset: all of it in its place by one rename, or nothing."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_runs import A, B, ring, write_captures
from tools import CODE, mostly_long, needs_namespaces

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.export import duckdb_file
from ddnn_traces.store import layout, schema, writer
from ddnn_traces.store.layout import MARKER, is_dataset
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.writer import DatasetWriter, check_target
from ddnn_traces.traffic import model, synthetic

ROW = {"run_id": "run", "source": "capture"}


def write(out: Path, *run_ids: str) -> None:
    """A dataset with these runs, each with one row in `runs` and nothing else."""
    with DatasetWriter(out) as writer:
        for run_id in run_ids:
            rows = pa.RecordBatch.from_pylist([ROW | {"run_id": run_id}], schema.table("runs").arrow())
            writer.write("runs", run_id, [rows], {"version": "0"})
        writer.commit({"inputs.json": "{}"})


def runs_in(dataset: Path) -> list[str]:
    return sorted(row["run_id"] for path in dataset.glob("runs/*/*.parquet") for row in pq.read_table(path).to_pylist())


def left_beside(out: Path) -> list[str]:
    return sorted(path.name for path in out.parent.iterdir() if path != out)


def dead_pid() -> int:
    """A process that has been."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


# --- names

NAMES = [
    "a b", "x=y", "50%", "per%20cent", "2021-05-01", "12", "ü", "実験", "it's", 'say "hi"', "a[1]", "st*r", "what?",
    "a:b", "semi;colon", "~x,+@", " ", "-x", "null", "NULL", "nan", "true", "__HIVE_DEFAULT_PARTITION__",
]  # fmt: skip


@pytest.mark.long
def test_run_names_come_back_as_they_were(tmp_path: Path) -> None:
    for name in NAMES:
        write_captures(tmp_path / "runs" / name, {"a.pcap": ring(A, B)})
    with ddnn_traces.ingest(tmp_path / "runs", tmp_path / "dataset") as dataset:
        assert sorted(dataset.run_ids) == sorted(NAMES)
        joined = dataset.sql("SELECT run_id, count(*) FROM runs JOIN flows USING (run_id) GROUP BY ALL").rows()
        assert dict(joined) == dict.fromkeys(NAMES, 4)
        for name in NAMES:
            pruned = dataset.sql("SELECT DISTINCT run_id FROM flows WHERE run_id = $1", [name]).rows()
            assert pruned == [(name,)]


@pytest.mark.parametrize("run_id", ["../up", "/etc", "a/b", "..", "."])
def test_no_name_leads_out_of_the_dataset(run_id: str) -> None:
    path = partition(Path("/data"), "runs", run_id)
    assert path.parent == Path("/data/runs")
    assert path.name.startswith("run_id=")


@pytest.mark.views  # DuckDB gives some of these characters a meaning
@pytest.mark.parametrize("name", mostly_long(["plain", "a[1]", "st*r?", "it's", "ü b", ".hidden"], "st*r?", "it's"))
def test_dataset_may_have_any_name(tmp_path: Path, name: str) -> None:
    folder = write_captures(tmp_path / "run", {"a.pcap": ring(A, B)})
    (tmp_path / f".{name}.partial-{dead_pid()}").mkdir()
    for _ in range(2):
        with ddnn_traces.ingest(folder, tmp_path / name) as dataset:
            assert dataset.run_ids == ["run"]
    assert left_beside(tmp_path / name) == ["run"]


# --- targets


def test_new_target(tmp_path: Path) -> None:
    out = tmp_path / "not" / "there" / "yet"
    write(out, "a")
    assert (runs_in(out), left_beside(out)) == (["a"], [])


def test_empty_folder_is_a_good_target(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write(tmp_path / "out", "a")
    assert runs_in(tmp_path / "out") == ["a"]


def test_target_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write(tmp_path / "link", "a")
    write(tmp_path / "link", "b")
    assert (tmp_path / "link").is_symlink()
    assert runs_in(tmp_path / "real") == ["a", "b"]


def test_folder_that_is_no_dataset_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("my only copy")
    with pytest.raises(
        UsageError, match="out: exists and is not a ddnn_traces dataset; choose another --out or remove it"
    ):
        write(tmp_path / "out", "a")
    assert (tmp_path / "out" / "thesis.tex").read_text() == "my only copy"
    assert left_beside(tmp_path / "out") == []


def test_file_is_no_target(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("notes")
    with pytest.raises(UsageError, match="out: exists and is not a ddnn_traces dataset"):
        write(tmp_path / "out", "a")
    assert (tmp_path / "out").read_text() == "notes"


def test_target_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("notes")
    with pytest.raises(UsageError, match=r"file/out: cannot be written \(.*\); choose another --out"):
        write(tmp_path / "file" / "out", "a")
    assert (tmp_path / "file").read_text() == "notes"


@pytest.mark.parametrize("where", ["", "new", "data/new"])
def test_a_release_is_no_target(tmp_path: Path, where: str) -> None:
    release = tmp_path / "release"
    write(release / "data" if where.startswith("data") else release, "a")
    content = release / "data" if where.startswith("data") else release
    (content / layout.RELEASE).write_text("{}")
    (release / "bagit.txt").write_text("") if where.startswith("data") else None
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    job = model.Job(2, 1000, "ring", 1)
    for call in (
        lambda: DatasetWriter(release / where),
        lambda: synthetic.generate(release / where, "zerwas-75", steps=1),
        lambda: duckdb_file.write(content, release / where / "traces.duckdb"),
        lambda: model.generate({}, job, release / where / "x", "pcap"),
    ):
        with pytest.raises(UsageError, match=r"is (inside )?(the|a) release.*choose another --out"):
            call()
    with pytest.raises(UsageError, match=r"is a release"):
        duckdb_file.write(content)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("text", ['{"schema_version": 99}', "{}", "not JSON", "[]", ""])
def test_dataset_of_another_version_is_no_target(tmp_path: Path, text: str) -> None:
    write(tmp_path / "out", "a")
    (tmp_path / "out" / MARKER).write_text(text)
    with pytest.raises(UsageError, match="out: "):
        check_target(tmp_path / "out")
    assert runs_in(tmp_path / "out") == ["a"]


# --- adding and replacing

Hindrance = Callable[[pytest.MonkeyPatch], None]


def refuse(*_: object) -> NoReturn:
    raise OSError(errno.EPERM, "no hard links here")


HINDRANCES: dict[str, Hindrance] = {
    "none": lambda monkeypatch: None,
    "no hard links": lambda monkeypatch: monkeypatch.setattr(os, "link", refuse),
    "no exchange": lambda monkeypatch: monkeypatch.setattr(writer, "_exchange", lambda *_: False),
}


@pytest.mark.parametrize("hinder", HINDRANCES.values(), ids=HINDRANCES)
def test_second_version_adds_replaces_and_keeps(
    tmp_path: Path, hinder: Hindrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    hinder(monkeypatch)
    out = tmp_path / "out"
    write(out, "kept", "replaced")
    kept = (partition(out, "runs", "kept") / "part-0.parquet").read_bytes()
    (partition(out, "runs", "replaced") / "part-0.parquet").write_bytes(b"old")
    write(out, "added", "replaced")
    assert runs_in(out) == ["added", "kept", "replaced"]
    assert (partition(out, "runs", "kept") / "part-0.parquet").read_bytes() == kept
    assert is_dataset(out)
    assert left_beside(out) == []


def test_what_others_put_into_the_folder_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "a")
    (out / "report.html").write_text("my report")
    (out / "charts" / "svg").mkdir(parents=True)
    (out / "charts" / "svg" / "fig3.svg").write_text("<svg/>")
    (out / "latest").symlink_to("report.html")
    write(out, "b")
    assert (out / "report.html").read_text() == "my report"
    assert (out / "charts" / "svg" / "fig3.svg").read_text() == "<svg/>"
    assert (out / "latest").readlink() == Path("report.html")
    assert runs_in(out) == ["a", "b"]


def test_an_open_file_of_the_old_version_can_be_read_to_its_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "a")
    path = partition(out, "runs", "a") / "part-0.parquet"
    content = path.read_bytes()
    with path.open("rb") as file:
        write(out, "a", "b")
        assert file.read() == content


def test_leaving_without_commit_discards(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "out") as writer:
        assert left_beside(tmp_path / "out") == [".out.lock", writer.partial.name]
    assert left_beside(tmp_path / "out") == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError, OSError(errno.ENOSPC, "disk full")])
def test_old_version_stays_when_the_rename_fails(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "out", "a")

    def fail(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr(writer, "_put_in_place", fail)
    with pytest.raises(error if isinstance(error, type) else type(error)):
        write(tmp_path / "out", "b")
    assert (runs_in(tmp_path / "out"), left_beside(tmp_path / "out")) == (["a"], [])


def test_folders_are_exchanged_where_linux_can(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if writer._exchange(tmp_path / "one", tmp_path / "other"):
        assert (tmp_path / "one" / "other").exists()
        assert (tmp_path / "other" / "one").exists()
    else:
        assert (tmp_path / "one" / "one").exists()
    with pytest.raises(OSError, match="nowhere"):
        writer._exchange(tmp_path / "one", tmp_path / "nowhere")


# --- what killed ingests leave


LEFTOVERS = {"dead": dead_pid(), "mine": os.getpid(), "living": os.getppid()}


def make_leftovers(folder: Path) -> dict[str, str]:
    """Hidden folders of these processes and two that are nobody's; return the names of the first."""
    names = {whose: f".out.partial-{pid}" for whose, pid in LEFTOVERS.items()}
    for name in (*names.values(), ".other.partial-1", ".out.partial-x"):
        (folder / name).mkdir()
        (folder / name / "half").touch()
    return names


def test_leftovers_are_removed(tmp_path: Path) -> None:
    """Only the holder of the lock writes, with any pid: other machines have the same pids."""
    make_leftovers(tmp_path)
    write(tmp_path / "out", "a")
    assert left_beside(tmp_path / "out") == [".other.partial-1", ".out.partial-x"]


@pytest.mark.parametrize(
    "name",
    [".out.lock", *(f".out.partial-{pid}" for pid in LEFTOVERS.values())],
    ids=["the lock", *(f"folder of a process: {whose}" for whose in LEFTOVERS)],
)
def test_links_in_the_place_of_hidden_files_are_replaced(name: str, tmp_path: Path) -> None:
    """What another user's link leads to is neither written nor removed."""
    others = tmp_path / "others"
    others.mkdir()
    (others / "file").write_text("theirs")
    (tmp_path / name).symlink_to(others / "file" if name.endswith("lock") else others)
    write(tmp_path / "out", "a")
    assert is_dataset(tmp_path / "out")
    assert {path.name: path.read_text() for path in others.iterdir()} == {"file": "theirs"}
    assert not (tmp_path / name).is_symlink()


def test_without_locks_leftovers_of_the_living_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    names = make_leftovers(tmp_path)
    write(tmp_path / "out", "a")
    assert left_beside(tmp_path / "out") == sorted([".other.partial-1", ".out.partial-x", names["living"]])


def no_locks(*_: object) -> NoReturn:
    raise OSError(errno.ENOLCK, "No locks available")


def test_old_version_comes_back_when_killed_between_two_renames(tmp_path: Path) -> None:
    """Where folders cannot be exchanged, the old one waits in the hidden folder for the new one to take its place."""
    out = tmp_path / "out"
    write(out, "a")
    partial = tmp_path / f".out.partial-{dead_pid()}"
    partial.mkdir()
    out.rename(partial / "old")
    write(out, "b")
    assert (runs_in(out), left_beside(out)) == (["a", "b"], [])


def test_old_version_comes_back_when_the_second_rename_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    write(out, "a")
    monkeypatch.setattr(writer, "_exchange", lambda *_: False)
    rename = Path.rename

    def fail_for_the_new_one(path: Path, target: Path) -> Path:
        if path.name == "next":
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new_one)
    with pytest.raises(KeyboardInterrupt):
        write(out, "b")
    assert (runs_in(out), left_beside(out)) == (["a"], [])


# --- several commits


def test_every_commit_is_a_dataset(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "a", "b")
    rows = pa.RecordBatch.from_pylist([ROW | {"run_id": "c"}], schema.table("runs").arrow())
    with DatasetWriter(out) as writer:
        for run_id, expected in (("c", ["a", "b", "c"]), ("d", ["a", "b", "c", "d"])):
            with writer.new_run(run_id):
                rows = pa.RecordBatch.from_pylist([ROW | {"run_id": run_id}], schema.table("runs").arrow())
                writer.write("runs", run_id, [rows], {})
            assert writer.uncommitted
            writer.commit({"note": f"up to {run_id}"})
            assert not writer.uncommitted
            assert runs_in(out) == expected
            assert is_dataset(out)
            assert (out / "note").read_text() == f"up to {run_id}"
    assert left_beside(out) == []


def test_replaced_file_is_all_that_changes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "a")
    before = {path: path.stat().st_ino for path in out.rglob("*") if path.name != "inputs.json"}
    with DatasetWriter(out) as writer:
        writer.replace_files({"inputs.json": "new"})
    assert (out / "inputs.json").read_text() == "new"
    assert {path: path.stat().st_ino for path in out.rglob("*") if path.name != "inputs.json"} == before
    assert left_beside(out) == []


# --- mount points


@needs_namespaces
def test_mount_point_is_no_target(tmp_path: Path) -> None:
    """Also one that is mounted from the same file system, which only /proc tells."""
    (tmp_path / "it's a mount").mkdir()
    (tmp_path / "bound").mkdir()
    program = f"{CODE.rsplit('from', 1)[0]}\nfrom pathlib import Path\nimport ddnn_traces.store.writer as store\n"
    program += "import sys\nfor out in sys.argv[1:]:\n    try:\n        store.check_target(Path(out))\n"
    program += "    except store.UsageError as error:\n        print(error)\n"
    script = 'mount -t tmpfs none "$1" && mount --bind "$2" "$2" && exec "$3" -c "$4" "$1" "$2"'
    paths = [tmp_path / "it's a mount", tmp_path / "bound"]
    call = ["unshare", "-m", "sh", "-ec", script, "sh", *map(str, paths), sys.executable, program]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    reported = "is a mount point, which cannot be replaced by another folder; choose a folder in it, like"
    assert done.stdout.splitlines() == [f"{path}: {reported} {path / 'dataset'}" for path in paths]


# --- row groups


@pytest.mark.parametrize(
    ("cuts", "sizes"),
    [
        ([25], [10, 10, 5]), ([1] * 25, [10, 10, 5]), ([9, 16], [10, 10, 5]), ([10, 10, 5], [10, 10, 5]),
        ([0, 24, 0, 1, 0], [10, 10, 5]), ([20], [10, 10]), ([3, 17], [10, 10]), ([7], [7]),
    ],
)  # fmt: skip
def test_row_groups_do_not_depend_on_the_batches(
    tmp_path: Path, cuts: list[int], sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 10)
    arrow = schema.table("runs").arrow()
    numbers = iter(range(sum(cuts)))
    batches = [
        pa.RecordBatch.from_pylist([ROW | {"workers": next(numbers)} for _ in range(cut)], arrow) for cut in cuts
    ]
    with DatasetWriter(tmp_path / "out") as made:
        made.write("runs", "run", batches, {})
        file = pq.ParquetFile(partition(made.next, "runs", "run") / "part-0.parquet")
        assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == sizes
        assert file.read()["workers"].to_pylist() == list(range(sum(cuts)))
