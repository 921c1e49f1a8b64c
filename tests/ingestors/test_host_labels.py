"""Which host a capture, and a log that names no worker, belong to."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import BEGIN_NS, A, B, C, column, found_by, passing, read_folder, ring, write_captures, write_log

from ddnn_traces.messages import Messages
from ddnn_traces.query.dataset import Dataset


def folder_of(tmp_path: Path, names: tuple[str, ...], log: str | None = None) -> Path:
    """A run of a ring of three with a capture at each host, and a log of this worker, or of none ("")."""
    whole = ring(A, B, C)
    captures = {name: filter(passing(host), whole) for name, host in zip(names, (A, B, C), strict=True)}
    folder = write_captures(tmp_path / "run", captures)
    if log is not None:
        write_log(folder, log, [BEGIN_NS + 100_000, BEGIN_NS + 200_000])
        if not log:
            (folder / "train_history-.log").rename(folder / "train_history.log")
    return folder


def labels(dataset: Dataset) -> list[str | None]:
    return column(dataset, "SELECT label FROM hosts ORDER BY host_ip")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("gpu1.pcap", "gpu2.pcap", "gpu3.pcap"), ["gpu1", "gpu2", "gpu3"]),
        (("alpha-tcpdump.pcap", "beta.pcap", "n1.pcap"), ["alpha", "beta", "n1"]),
        (("a.pcap", "b.pcap", "node3.pcap"), [None, None, "node3"]),  # a usual name counts, and then no other
        (tuple(f"host{n}_0000{n}_20261120100703.pcap" for n in (1, 2, 3)), ["host1", "host2", "host3"]),  # dumpcap -b
        (tuple(f"gpu{n}-20261128-12000{n}.pcap.gz" for n in (1, 2, 3)), ["gpu1", "gpu2", "gpu3"]),  # tcpdump -G
        (tuple(f"rank{n}_2026-11-28_12:00:0{n}.pcap{n}" for n in (0, 1, 2)), ["rank0", "rank1", "rank2"]),
        (tuple(f"trace-20261128-12000{n}.pcap" for n in (1, 2, 3)), [None] * 3),
        (tuple(f"2026112812000{n}.pcap" for n in (1, 2, 3)), [None] * 3),
        (tuple(f"trace.{1764331200 + n}.pcap" for n in (1, 2, 3)), [None] * 3),
        (("x.pcap0", "x.pcap1", "x.pcap2"), [None] * 3),  # tcpdump -C
    ],
)
@pytest.mark.long_after(2)
def test_the_names_of_captures_are_those_of_the_hosts(
    tmp_path: Path, names: tuple[str, ...], expected: list[str | None]
) -> None:
    with read_folder(folder_of(tmp_path, names)) as dataset:
        assert labels(dataset) == expected


def test_names_that_do_not_tell_hosts_apart_are_none(tmp_path: Path) -> None:
    """Two files of one host; and a single capture, which may be of a mirror port or of a tool."""
    whole = ring(A, B, C)
    parts = [packet for packet in whole if passing(A)(packet)]
    captures = {"x.pcap": parts[:8], "y.pcap": parts[8:], "z.pcap": [p for p in whole if passing(B)(p)]}
    with read_folder(write_captures(tmp_path / "two" / "run", captures)) as dataset:
        assert labels(dataset) == [None] * 3
    with read_folder(write_captures(tmp_path / "one" / "run", {"trace.pcap": parts})) as dataset:
        assert labels(dataset) == [None] * 3


@pytest.mark.long
def test_logs_of_workers_that_no_capture_names(tmp_path: Path) -> None:
    """Logs name the hosts otherwise than captures do: neither is taken for the other."""
    folder = folder_of(tmp_path, ("x.pcap", "y.pcap", "z.pcap"), "worker-2")
    with read_folder(folder) as dataset:
        assert labels(dataset) == [None] * 3
        assert found_by(dataset, "missing_worker") == []


@pytest.mark.parametrize("names", ["node0{}.pcap", "gpu{}.pcap"])
@pytest.mark.long_after(1)
def test_a_log_of_no_worker_beside_hosts_that_are_none_is_nobody_s(tmp_path: Path, names: str) -> None:
    folder = folder_of(tmp_path, (names.format(1), names.format(2), names.format(3)), "")
    messages = Messages()
    with read_folder(folder, messages) as dataset:
        assert column(dataset, "SELECT DISTINCT worker FROM steps") == ["worker-1"]
        assert found_by(dataset, "missing_worker") == []
    (said,) = messages.warnings
    first = names.removesuffix(".pcap").format(1)
    assert said.startswith("run: train_history.log: no capture says whose it is; its steps count for all hosts")
    assert f"Rename it to train_history-HOST.log, HOST that wrote it ({first}, " in said
    renamed = folder / f"train_history-{first}.log"
    (folder / "train_history.log").rename(renamed)
    messages = Messages()
    with read_folder(folder, messages) as dataset:
        assert column(dataset, "SELECT DISTINCT worker FROM steps") == [first] and messages.warnings == []


@pytest.mark.long
def test_a_log_of_no_worker_is_the_first_one_s(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, ("w1.pcap", "w2.pcap", "w3.pcap"), "")
    messages = Messages()
    with read_folder(folder, messages) as dataset:
        assert column(dataset, "SELECT DISTINCT worker FROM steps") == ["w1"] and messages.warnings == []
        assert found_by(dataset, "missing_worker") == []


def test_names_of_captures_that_fit_both_hosts_are_said(tmp_path: Path) -> None:
    """Each of two hosts has all packets; where run.toml says whose the addresses are, nothing is left to say."""
    captures = {f"node{n}.pcap": ring(A, B) for n in (1, 2)} | {"node3.pcap": []}  # of a host without traffic
    folder = write_captures(tmp_path / "run", captures)
    messages = Messages()
    with read_folder(folder, messages) as dataset:
        assert labels(dataset) == [None, None]
    assert messages.warnings == [
        f"run: captures node1, node2 have the packets of both {A} and {B}: which name is whose cannot be told, so that "
        "no host has one; give ip and label of each in [[hosts]] of run.toml"
    ]
    stated = (f'[[hosts]]\nip = "{ip}"\nlabel = "node{n}"\n' for n, ip in ((1, A), (2, B)))
    (folder / "run.toml").write_text("".join(stated))
    messages = Messages()
    with read_folder(folder, messages) as dataset:
        assert labels(dataset) == ["node1", "node2"]
    assert messages.warnings == []


def test_a_layout_that_gives_hosts_one_label_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, ("gpu1.pcap", "gpu2.pcap", "gpu3.pcap"))
    messages = Messages()
    with read_folder(folder, messages, layout="{host}*.pcap") as dataset:
        assert labels(dataset) == ["g"] * 3
    assert messages.warnings == [
        f"run: 3 addresses that exchange packets have the label g ({A}, {B}, {C}): they are several hosts; correct "
        "--layout, the captures' names or run.toml"
    ]


def test_folders_of_runs_that_a_layout_takes_for_hosts_are_named(tmp_path: Path) -> None:
    (tmp_path / "lay").mkdir()
    for training in ("one", "two"):
        folder_of(tmp_path, ("x.pcap", "y.pcap", "z.pcap")).rename(tmp_path / "lay" / training)
    messages = Messages()
    with read_folder(tmp_path / "lay", messages, layout="{host}/*.pcap") as dataset:
        assert labels(dataset) == [None] * 3
    assert messages.warnings == [
        f"lay: captures of {A} are in the folders of several hosts (one, two): it has no label; where these are "
        "several runs, correct --layout or --run-id"
    ]
