"""What the user names, and the runs that it stands for."""

from __future__ import annotations

import gzip
import os
import socket
from collections.abc import Callable
from pathlib import Path

import packets as p
import pytest

from ddnn_traces.errors import UsageError
from ddnn_traces.ingestors.sources import STDIN, find_runs, host_label, run_name, series_name
from ddnn_traces.store.layout import write_marker

PCAP = p.pcap([p.Record(10**18, p.segment())])


def make(top: Path, *names: str, content: bytes = PCAP) -> Path:
    for name in names:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
    return top


def found(*sources: str | Path) -> dict[str, list[str]]:
    """Run -> names of its captures."""
    return {run.run_id: [path.name for path in run.captures] for run in find_runs([str(source) for source in sources])}


# --- names


@pytest.mark.parametrize(
    ("name", "run", "label"),
    [
        ("worker-3-tcpdump.pcap.gz", "worker-3-tcpdump", "worker-3"),
        ("worker-3-tcpdump.pcap12", "worker-3-tcpdump", "worker-3"),
        ("worker-3.pcapng.zst", "worker-3", "worker-3"),
        ("Worker_10.cap", "Worker_10", "Worker_10"),
        ("ps-0.pcap", "ps-0", "ps-0"),
        ("parameter-server-1.pcap", "parameter-server-1", "parameter-server-1"),
        ("chief.pcap", "chief", "chief"),
        ("node4.dmp", "node4", "node4"),
        ("w2.pcap.xz", "w2", "w2"),
        ("trace.pcap", "trace", None),
        ("workers.pcap", "workers", None),
        ("worker-1-eth0.pcap", "worker-1-eth0", None),
        ("v1.2.pcap", "v1.2", None),
        ("plain", "plain", None),
        (".pcap", ".pcap", None),
        ("worker-1-20261128-120000.pcap", "worker-1-20261128-120000", "worker-1"),
        ("2026-11-28T12:00:00Z_ps-0.pcap", "2026-11-28T12:00:00Z_ps-0", "ps-0"),
        ("worker-2-tcpdump_20261128120000_3.pcap", "worker-2-tcpdump_20261128120000_3", "worker-2"),
        ("node-20101.pcap", "node-20101", "node-20101"),
    ],
)
def test_names(name: str, run: str, label: str | None) -> None:
    assert (run_name(Path(name)), host_label(Path(name))) == (run, label)


# --- files


def test_bare_capture_is_a_run_named_after_itself(tmp_path: Path) -> None:
    make(tmp_path, "trace.pcap.gz", content=gzip.compress(PCAP))
    (run,) = find_runs([str(tmp_path / "trace.pcap.gz")])
    assert (run.run_id, run.folder, run.captures) == ("trace", None, (tmp_path / "trace.pcap.gz",))


def test_bare_captures_are_runs_each(tmp_path: Path) -> None:
    make(tmp_path, "b.pcap", "a.pcap")
    assert found(tmp_path / "b.pcap", tmp_path / "a.pcap") == {"a": ["a.pcap"], "b": ["b.pcap"]}


def test_files_of_one_tcpdump_are_one_run(tmp_path: Path) -> None:
    make(tmp_path, "x.pcap", "x.pcap1", "x.pcap2", "y.pcap")
    assert found(tmp_path / "*") == {"x": ["x.pcap", "x.pcap1", "x.pcap2"], "y": ["y.pcap"]}


@pytest.mark.parametrize("folder", ["some", "tf-resnet50-sgd-64-grpc-normal-ring"])
def test_workers_of_a_folder_are_one_run(tmp_path: Path, folder: str) -> None:
    make(tmp_path / folder, "worker-1-tcpdump.pcap", "worker-2-tcpdump.pcap")
    (run,) = find_runs([str(tmp_path / folder / "worker-*")])
    assert (run.run_id, run.folder) == (folder, tmp_path / folder)
    assert [path.name for path in run.captures] == ["worker-1-tcpdump.pcap", "worker-2-tcpdump.pcap"]


def test_any_files_of_a_run_folder_are_one_run(tmp_path: Path) -> None:
    make(tmp_path / "some", "left.pcap", "right.pcap")
    (tmp_path / "some" / "run.toml").write_text("")
    assert found(tmp_path / "some" / "left.pcap", tmp_path / "some" / "right.pcap") == {
        "some": ["left.pcap", "right.pcap"]
    }


def test_glob_reaches_into_folders(tmp_path: Path) -> None:
    make(tmp_path, "one/a.pcap", "two/deep/b.pcap", "two/note.txt")
    assert found(tmp_path / "**" / "*.pcap") == {"a": ["a.pcap"], "b": ["b.pcap"]}


def test_a_name_that_looks_like_a_glob_is_taken_as_it_is(tmp_path: Path) -> None:
    make(tmp_path, "a[1].pcap", "a1.pcap")
    assert found(tmp_path / "a[1].pcap") == {"a[1]": ["a[1].pcap"]}


def test_a_file_named_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "sub/a.pcap")
    monkeypatch.chdir(tmp_path)
    assert found("sub/a.pcap", "sub/../sub/a.pcap", tmp_path / "sub" / "a.pcap", "sub/*") == {"a": ["a.pcap"]}


def test_a_file_beside_its_folder_counts_once(tmp_path: Path) -> None:
    make(tmp_path / "run", "worker-1.pcap", "worker-2.pcap")
    assert found(tmp_path / "run", tmp_path / "run" / "worker-1.pcap") == {"run": ["worker-1.pcap", "worker-2.pcap"]}


def test_links_keep_their_names(tmp_path: Path) -> None:
    make(tmp_path, "store/4f2a")
    (tmp_path / "worker-1.pcap").symlink_to(tmp_path / "store" / "4f2a")
    assert found(tmp_path / "worker-1.pcap") == {tmp_path.name: ["worker-1.pcap"]}


# --- folders


def test_folder_with_captures_is_a_run(tmp_path: Path) -> None:
    make(tmp_path / "run", "b.pcap", "a.pcap.gz", "x.pcap1", "notes.txt", "train_history.log")
    (run,) = find_runs([str(tmp_path / "run")])
    assert (run.run_id, run.folder) == ("run", tmp_path / "run")


def test_folder_named_as_dot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "run", "a.pcap", "sub/b.pcap")
    monkeypatch.chdir(tmp_path / "run" / "sub")
    assert found(".") == {"sub": ["b.pcap"]}
    assert found("..") == {"run": ["a.pcap"], "sub": ["b.pcap"]}


def test_folder_of_run_folders_in_the_order_of_names(tmp_path: Path) -> None:
    make(tmp_path, "two/a.pcap", "one/a.pcap", "deep/er/three/a.pcap")
    assert list(found(tmp_path)) == ["one", "three", "two"]


def test_captures_are_told_by_content_too(tmp_path: Path) -> None:
    make(tmp_path / "run", "rotated-0001", "rotated.gz", "text.txt", content=PCAP)
    make(tmp_path / "run", "rotated.gz", content=gzip.compress(PCAP))
    make(tmp_path / "run", "text.txt", "other.gz", content=b"\x1f\x8b no")
    assert found(tmp_path) == {"run": ["rotated-0001", "rotated.gz"]}


def test_empty_capture_is_found_by_its_name(tmp_path: Path) -> None:
    make(tmp_path / "run", "a.pcap", content=b"")
    assert found(tmp_path) == {"run": ["a.pcap"]}


def test_hidden_files_and_folders_are_skipped(tmp_path: Path) -> None:
    make(tmp_path, "run/a.pcap", "run/.b.pcap", ".cache/c.pcap", "run/.git/d.pcap")
    assert found(tmp_path) == {"run": ["a.pcap"]}


def test_datasets_in_the_tree_are_skipped(tmp_path: Path) -> None:
    make(tmp_path, "run/a.pcap", "dataset/b.pcap", "dataset/deep/c.pcap")
    write_marker(tmp_path / "dataset")
    assert found(tmp_path) == {"run": ["a.pcap"]}
    with pytest.raises(UsageError, match="dataset: no captures"):
        find_runs([str(tmp_path / "dataset")])


def test_what_is_no_file_is_skipped(tmp_path: Path) -> None:
    make(tmp_path, "run/a.pcap")
    os.mkfifo(tmp_path / "run" / "pipe.pcap")
    (tmp_path / "run" / "folder.pcap").mkdir()
    assert found(tmp_path) == {"run": ["a.pcap"]}


# --- names that clash


def test_same_name_in_different_folders(tmp_path: Path) -> None:
    make(tmp_path, "monday/run/a.pcap", "tuesday/run/a.pcap", "tuesday/other/a.pcap")
    assert list(found(tmp_path)) == ["monday_run", "other", "tuesday_run"]


def test_same_name_further_up(tmp_path: Path) -> None:
    make(tmp_path, "x/same/run/a.pcap", "y/same/run/a.pcap")
    assert len(found(tmp_path)) == 2


def test_same_file_name_in_different_folders(tmp_path: Path) -> None:
    make(tmp_path, "monday/trace.pcap", "tuesday/trace.pcap")
    assert list(found(tmp_path / "*" / "trace.pcap")) == ["monday_trace", "tuesday_trace"]


def test_new_name_never_takes_another_runs(tmp_path: Path) -> None:
    make(tmp_path, "a/run/x.pcap", "b/run/x.pcap", "a_run/x.pcap", "z/a_run/x.pcap")
    assert len(found(tmp_path)) == 4


@pytest.mark.parametrize(
    "name", ["a b", "it's", 'say "hi"', "Übung 実験", "x=y", "50%", "50%20", "semi;colon", "-x", "\u200d"]
)
def test_odd_names(tmp_path: Path, name: str) -> None:
    make(tmp_path, f"{name}/{name}.pcap")
    assert found(tmp_path) == {name: [f"{name}.pcap"]}
    assert found(tmp_path / name / f"{name}.pcap") == {name: [f"{name}.pcap"]}


# --- standard input


def test_standard_input_is_a_run_without_a_folder(tmp_path: Path) -> None:
    (run,) = find_runs(["-"])
    assert (run.run_id, run.folder, run.captures) == ("stdin", None, (STDIN,))
    make(tmp_path, "stdin/a.pcap")
    assert found(tmp_path, "-") == {f"{tmp_path.name}_stdin": ["a.pcap"], "stdin": ["-"]}
    with pytest.raises(UsageError, match="standard input can be read only once"):
        find_runs(["-", "-"])


def test_standard_input_belongs_to_no_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    assert found("-") == {"stdin": ["-"]}


def test_standard_input_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "isatty", lambda _: True)
        assert refused("-").startswith("standard input is a terminal; pipe a capture into it")
    one, other = socket.socketpair()
    with one, other, monkeypatch.context() as patched:
        status = os.fstat(one.fileno())
        patched.setattr(os, "fstat", lambda _: status)
        assert refused("-") == "standard input is a socket, which cannot be opened; put 'cat |' before ddnn-traces"


def test_other_name_for_the_only_run(tmp_path: Path) -> None:
    make(tmp_path, "one/a.pcap", "two/a.pcap")
    (run,) = find_runs([str(tmp_path / "one")], run_id="monday")
    assert (run.run_id, run.folder) == ("monday", tmp_path / "one")


# --- a folder for each host


def joined(*sources: Path, run_id: str = "x") -> dict[str, str | None]:
    """Host of each capture of the one run."""
    (run,) = find_runs([str(source) for source in sources], run_id=run_id)
    assert run.run_id == run_id
    return {run.name_of(path): run.host(path) for path in run.captures}


def test_all_captures_as_one_run(tmp_path: Path) -> None:
    make(tmp_path, "exp/nodeA/eth0.pcap", "exp/nodeA/eth0.pcap1", "exp/nodeB/eth0.pcap")
    expected = {"nodeA/eth0.pcap": "nodeA", "nodeA/eth0.pcap1": "nodeA", "nodeB/eth0.pcap": "nodeB"}
    assert joined(tmp_path / "exp") == expected
    assert joined(tmp_path / "exp" / "nodeA", tmp_path / "exp" / "nodeB") == expected
    assert joined(*sorted(tmp_path.glob("exp/*/*"))) == expected
    (run,) = find_runs([str(tmp_path / "exp")], run_id="x")
    assert (run.folder, run.log_folders[1:]) == (tmp_path / "exp", (tmp_path / "exp/nodeA", tmp_path / "exp/nodeB"))
    assert [run.host_of_folder(folder) for folder in run.log_folders] == [None, "nodeA", "nodeB"]
    assert len({series_name(run.name_of(path)) for path in run.captures}) == 2


@pytest.mark.parametrize(
    ("paths", "hosts"),
    [
        (["a/dump/x.pcap", "b/dump/x.pcap"], ["a", "b"]),
        (["rack1/n1/x.pcap", "rack1/n2/x.pcap", "rack2/n3/x.pcap"], ["n1", "n2", "n3"]),
        (["a/eth0/x.pcap", "a/eth1/x.pcap", "b/eth0/x.pcap"], ["a", "a", "b"]),
        (["x.pcap", "b/x.pcap"], [None, "b"]),
        (["worker-1.pcap", "worker-2.pcap", "other.pcap"], ["worker-1", "worker-2", None]),
    ],
)
def test_hosts_by_folder(tmp_path: Path, paths: list[str], hosts: list[str | None]) -> None:
    make(tmp_path, *paths)
    assert joined(*(tmp_path / path for path in paths)) == dict(zip(paths, hosts, strict=True))


def test_runs_with_metadata_of_their_own_are_not_joined(tmp_path: Path) -> None:
    make(tmp_path, "one/a.pcap", "two/a.pcap")
    for name in ("one", "two"):
        (tmp_path / name / "run.toml").write_text("model = 'x'")
    with pytest.raises(UsageError, match="joins all captures into one run, but one, two have metadata of their own"):
        joined(tmp_path)
    (tmp_path / "one" / "run.toml").unlink()
    assert joined(tmp_path) == {"one/a.pcap": "one", "two/a.pcap": "two"}


def laid_out(top: Path, layout: str, *paths: str) -> dict[str, tuple[str, list[str | None]]]:
    """By run: its folder below `top`, or nothing, and the hosts of its captures."""
    make(top, *paths)
    return {
        run.run_id: (
            str(run.folder.relative_to(top)) if run.folder else "",
            [run.host(path) for path in run.captures],
        )
        for run in find_runs([str(top)], layout=layout)
    }


@pytest.mark.parametrize(
    ("layout", "paths", "expected"),
    [
        (
            "{run}/{host}/*.pcap",
            ["1/a/x.pcap", "1/b/x.pcap", "2/a/x.pcap"],
            {"1": ("1", ["a", "b"]), "2": ("2", ["a"])},
        ),
        ("./{host}/{run}/*", ["a/1/x.pcap", "b/1/x.pcap"], {"a_1": ("a/1", ["a"]), "b_1": ("b/1", ["b"])}),
        ("{host}/*.pcap*", ["1/a/x.pcap", "1/b/x.pcap1"], {"1": ("1", ["a", "b"])}),
        ("{run}/*/{host}.pcap", ["1/d/a.pcap", "1/d/b.pcap"], {"1": ("1", ["a", "b"])}),
        ("{run}/{host}/?.pcap", ["d/1/a/x.pcap"], {"1": ("d/1", ["a"])}),
        ("{run}-{host}.pcap", ["d/1-a.pcap", "d/1-b.pcap", "d/2-a.pcap"], {"1": ("", ["a", "b"]), "2": ("", ["a"])}),
        ("{host}/{run}.pcap", ["a/1.pcap", "b/1.pcap"], {"1": ("", ["a", "b"])}),
        ("exp-{run}/*.pcap", ["exp-1/worker-1.pcap", "exp-1/b.pcap"], {"1": ("exp-1", [None, "worker-1"])}),
        ("{run}/[x]/{host}.pcap", ["1/[x]/a.pcap"], {"1": ("1", ["a"])}),
    ],
)
def test_layout(tmp_path: Path, layout: str, paths: list[str], expected: object) -> None:
    assert laid_out(tmp_path, layout, *paths) == expected


def test_run_and_host_of_a_layout_are_below_the_source(tmp_path: Path) -> None:
    """Where the file is the host's, {run}/{host}/*.pcap would take the source for the run, and the runs for hosts."""
    make(tmp_path, "lay/one/a.pcap", "lay/one/b.pcap", "lay/two/a.pcap")
    lay = tmp_path / "lay"
    for sources in ([lay], [lay / "one", lay / "two"]):
        with pytest.raises(UsageError) as caught:
            find_runs([*map(str, sources)], layout="{run}/{host}/*.pcap")
        assert f"--layout {{run}}/{{host}}/*.pcap fits no capture, such as {lay}/one/a.pcap; " in str(caught.value)
        assert "\n" not in str(caught.value)
    assert laid_out(lay, "lay/{run}/{host}.pcap") == {"one": ("one", ["a", "b"]), "two": ("two", ["a"])}
    assert laid_out(lay / "one", "{host}.pcap") == {"one": (".", ["a", "b"])}
    (inner, outer) = find_runs([str(lay / "one"), str(lay)], layout="{run}/{host}.pcap")
    assert (inner.run_id, outer.run_id) == ("one", "two")
    files = find_runs([str(path) for path in sorted(lay.glob("*/*"))], layout="{run}/{host}.pcap")
    assert [run.run_id for run in files] == ["one", "two"]


def test_captures_beside_the_layout_are_named(tmp_path: Path) -> None:
    make(tmp_path, "1/a/x.pcap", "x.pcap.gz")
    said: list[str] = []
    assert len(find_runs([str(tmp_path)], said.append, "{run}/{host}/*.pcap")) == 1
    assert said == [
        f"--layout {{run}}/{{host}}/*.pcap does not fit 1 capture, not read: {tmp_path}/x.pcap.gz; "
        "correct it, or leave them out of the sources"
    ]


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("{run}/{host}/*.cap", "fits no capture, such as "),
        ("*.pcap", "neither {run} nor {host} is in it"),
        ("{run}/{rum}/*", "'{rum}' is neither {run} nor {host}"),
        ("{run}/{run}/*", "'{run}' is there twice"),
        ("{run}/**/x", "'**' is not known here, * stands for one folder"),
        ("{run/x", "'{' is neither {run} nor {host}"),
        ("", "neither {run} nor {host} is in it"),
    ],
)
def test_wrong_layout(tmp_path: Path, layout: str, message: str) -> None:
    make(tmp_path, "1/a/x.pcap")
    with pytest.raises(UsageError) as caught:
        find_runs([str(tmp_path)], layout=layout)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


# --- wrong calls


def refused(source: str | Path) -> str:
    with pytest.raises(UsageError) as caught:
        find_runs([str(source)])
    return str(caught.value)


@pytest.mark.parametrize("name", ["nowhere", "nowhere/*.pcap", "run/nothing-*"])
def test_missing(tmp_path: Path, name: str) -> None:
    make(tmp_path, "run/a.pcap")
    assert refused(tmp_path / name) == f"{tmp_path / name}: no such file or folder; check the path"


def test_link_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / "gone.pcap").symlink_to(tmp_path / "nowhere")
    assert refused(tmp_path / "gone.pcap") == f"{tmp_path / 'gone.pcap'}: no such file or folder; check the path"


def test_folder_without_captures(tmp_path: Path) -> None:
    make(tmp_path, "run/notes.txt", content=b"nothing")
    message = refused(tmp_path / "run")
    assert message == f"{tmp_path / 'run'}: no captures in this folder; name the folder that holds .pcap files"
    (tmp_path / "run" / "one").symlink_to("gone")
    (tmp_path / "run" / "two").symlink_to("two")
    message = refused(tmp_path / "run")
    assert message.endswith(
        f"; {tmp_path}/run/one: a link to gone, which is not there; correct or remove it"
        f"; {tmp_path}/run/two: a link to two, which leads back to it; correct or remove it"
    )


def test_unreadable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "run/deep/a.pcap")
    closed = tmp_path / "run" / "deep"
    monkeypatch.setattr(os, "scandir", refusing(os.scandir, closed))  # the tests may run as root, who may read it all
    assert refused(tmp_path) == f"{closed}: cannot be read (Permission denied); check its permissions"


def refusing(scandir: Callable[..., object], closed: Path) -> Callable[..., object]:
    def scan(path: str) -> object:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(closed))
        return scandir(path)

    return scan


def test_no_source() -> None:
    with pytest.raises(UsageError, match="a source is empty"):
        find_runs([""])


def test_names_that_are_not_utf_8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"run-\xff")
    folder.mkdir()
    (folder / "worker-1.pcap").write_bytes(p.pcap([]))
    assert [run.run_id for run in find_runs([str(folder)])] == ["run-%FF"]


def test_names_stay_different_and_printable(tmp_path: Path) -> None:
    names = ["x\x1b[31m", "x\n", "x\r", "x\u202e", "x\u2028", "x%0A", "x%250A", "x%20", "x%", "x%zz"]
    raw = [os.fsencode(name) for name in names] + [b"x\xff", b"x\xfe", b"x\xc3", b"x%C3"]
    for name in raw:
        make(tmp_path, f"{os.fsdecode(name)}/a.pcap")
    runs = list(found(tmp_path))
    assert len(runs) == len(raw)
    assert all(run.isprintable() for run in runs)
    assert {"x%1B[31m", "x%0A", "x%250A", "x%25250A", "x%20", "x%", "x%zz", "x%FF", "x%C3", "x%25C3"} <= {*runs}


# --- links


def test_a_link_to_a_run_folder_is_followed(tmp_path: Path) -> None:
    make(tmp_path, "far/one/a.pcap", "far/deep/two/b.pcap")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "linked").symlink_to(tmp_path / "far")
    assert found(tmp_path / "here") == {"one": ["a.pcap"], "two": ["b.pcap"]}
    (tmp_path / "here" / "again").symlink_to(tmp_path / "far" / "one")
    assert found(tmp_path / "here") == {"again": ["a.pcap"], "two": ["b.pcap"]}


def test_a_run_has_its_own_name_and_counts_once(tmp_path: Path) -> None:
    make(tmp_path, "top/z/a.pcap")
    (tmp_path / "top" / "latest").symlink_to("z")
    (tmp_path / "top" / "z" / "up").symlink_to("..")
    (tmp_path / "top" / "z" / "root").symlink_to("/")
    (tmp_path / "top" / "self").symlink_to("self")
    assert found(tmp_path / "top") == {"z": ["a.pcap"]}
    assert found(tmp_path / "top" / "latest") == {"latest": ["a.pcap"]}


def test_a_capture_whose_link_leads_nowhere_is_missing_and_not_overlooked(tmp_path: Path) -> None:
    make(tmp_path, "run/a.pcap")
    for name in ("b.pcap", "notes.txt"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "annex")
    assert found(tmp_path) == {"run": ["a.pcap", "b.pcap"]}


def test_a_layout_with_runs_and_a_name_of_one_run_exclude_each_other(tmp_path: Path) -> None:
    make(tmp_path, "a/n1/eth0.pcap", "b/n1/eth0.pcap")
    with pytest.raises(UsageError, match=r"its \{run\} and --run-id exclude each other"):
        find_runs([str(tmp_path)], layout="{run}/{host}/*.pcap", run_id="x")
    (joined,) = find_runs([str(tmp_path / "a")], layout="{host}/*.pcap", run_id="x")
    assert joined.run_id == "x"
