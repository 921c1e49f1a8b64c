"""Any run folder that Hypothesis makes: names, links, metadata, logs, damaged captures. The command ends as documented.

Cases are the same every time (derandomize); `make test-all` runs 150 of them, about a minute.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import fuzz
import packets as p
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_runs import A, B, C, contradictions, ring
from tools import RunCommand

import ddnn_traces
from ddnn_traces.ingestors.metadata import _metadata_columns
from ddnn_traces.text import printable, valid_text

MOST_NAME = 255
LONGEST_CASE_S = 60  # one takes a tenth of a second

# --- names: bytes, as a file system has them

PIECES = [
    b"run", b"a", b"worker-1", b"worker-199999999999999999999", b"ps-0", "\u00b2".encode(),
    b"tf-mlp-sgd-32-grpc-0ms-ring", b"-loss_1e400-", b"\x1b[31m", b"\n", b"\r", b"\t", b"\x7f", b"\xff", b"\xc3", b"=",
    b"step=3", b"%41", b"%1B", b"%", b"'", b'"', b"*", b"[a]", b"?", b"{x}", b"$HOME", b"<b>", b"&amp;", b"\\", b" ",
    b"-", b"--out", b".", b",", b":", b"null", "\u5b9e".encode() * 28, "e\u0301\u200d".encode(), "\u202e".encode(),
    "\u2028".encode(), "\ufffe".encode(), b"x" * 100,
]  # fmt: skip
names = (
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4)
    .map(lambda pieces: b"".join(pieces)[:MOST_NAME])
    .filter(lambda name: name not in (b".", b".."))
)
plain_names = st.sampled_from([b"a", b"b", b"tf-mlp-sgd-32-grpc-0ms-ring"])
run_names = st.one_of(plain_names, names)
capture_names = st.one_of(
    st.sampled_from([b"worker-1-tcpdump.pcap", b"worker-2-tcpdump.pcap.gz", b"x.pcapng"]),
    names.map(lambda name: name[: MOST_NAME - 5] + b".pcap"),
)
log_names = st.one_of(
    st.sampled_from([b"train_history.log", b"train_history-worker-1.log"]),
    names.map(lambda name: b"train_history-" + name[: MOST_NAME - 18] + b".log"),
)
phases_names = st.sampled_from([b"phases-worker-1.csv", b"phases-worker-2.csv"])

# --- contents

GOOD = p.pcap(packet.record for packet in ring(A, B, C))
captures = st.one_of(
    st.just(GOOD), st.just(GOOD),
    st.sampled_from([b"", GOOD[:10], GOOD[:-3], GOOD[:4] + b"\1\0\0\0" + GOOD[8:], b"text", b"\x1f\x8b\x08"]),
    st.integers(0, 5000).map(lambda number: fuzz.case(7, number)),
)  # fmt: skip
marks = st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe"])
odd_texts = [
    "", "x", "\x1b[0m", "\u202e", "\x00", "'", '"', "nan", "1e400", "9" * 5000, "-1", "0", "2.5", "true", "\u00b2",
]  # fmt: skip
odd_values = [
    "1", "0", "-1", "1.5", "nan", "inf", "true", "9" * 19, "9" * 5000, "0x" + "f" * 5000, "[" * 3000, "[]", "{}",
    "{a = {b = 1}}", "[" * 50 + "]" * 50, "1979-05-27T07:32:00Z", "'ring'", '"\\u001b[31m"', '"\\u202e\\n"', "'", '"""',
]  # fmt: skip
toml_values = st.one_of(st.sampled_from(odd_values), st.sampled_from(odd_texts).map(lambda text: f"'{text}'"))
keys = st.sampled_from([*_metadata_columns(), "run_id", "unknown", '"\\u001b"', "a.b.c", "hosts", "origin", ""])
hosts = st.tuples(
    st.sampled_from(["ip = '10.0.0.1'", "ip = 'fe80::1%a\\u001b'", "ip = 5", "name = 1", ""]),
    st.sampled_from(["", "label = 'w'", 'label = "\\u001b"', "rank = " + "9" * 20, "rank = -1", "role = 'king'"]),
).map(lambda lines: "\n".join(["[[hosts]]", *lines]))
tomls = st.tuples(
    marks,
    st.one_of(
        st.lists(st.one_of(st.builds("{} = {}".format, keys, toml_values), hosts), max_size=4).map(
            lambda lines: "\n".join(lines).encode()
        ),
        st.binary(max_size=30),
    ),
).map(b"".join)
times = st.sampled_from(
    ["1700000000", "1700000000.0001", "1700000000.0002", "1700000000.0004", "0", "-1", "1e30", "", "nan", "4611686018"]
)
cells = st.one_of(times, st.sampled_from([*odd_texts, "9223372036854775808", "1", "2"]))


def tables(header: str, *columns: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """CSV with mostly this header and such columns; sometimes cells more, cells fewer, other bytes."""
    rows = st.lists(st.tuples(*columns).map(",".join), max_size=6)
    odd = st.lists(cells, max_size=8).map(",".join)
    lines = st.tuples(rows, st.lists(odd, max_size=1)).map(lambda both: [header, *both[0], *both[1]])
    whole = lines.map(lambda text: "\n".join(text).encode(errors="replace"))
    return st.tuples(marks, st.one_of(whole, whole, st.binary(max_size=30))).map(b"".join)


kinds = st.sampled_from(["batch", "epoch", "x"])
step_rows = tables("Type,ID,Timestamp,Loss,Accuracy", kinds, cells, times, cells, cells)
phases_rows = tables("step,t_begin,t_comm_begin,t_comm_end,t_end", cells, times, times, times, times)
runs_rows = tables("run_id,batch_size,model,delay_ms", st.sampled_from(["a", "b", ""]), cells, cells, cells)

# --- what stands in the place of a file

Maker = Callable[[Path], None]


@cache
def written(content: bytes) -> Maker:
    def make(path: Path) -> None:
        path.write_bytes(content)

    return make


@cache
def linked(target: bytes) -> Maker:
    return lambda path: path.symlink_to(os.fsdecode(target))


links = map(linked, (b"/dev/zero", b"/dev/null", b"nowhere", b".", b"..", b"/", b"run.toml"))
odd_files = st.sampled_from([os.mkfifo, Path.mkdir, *links])


def files(content: st.SearchStrategy[bytes]) -> st.SearchStrategy[Maker]:
    return st.integers(0, 9).flatmap(lambda i: odd_files if i == 0 else content.map(written))


Tree = dict[bytes, Maker]  # what is made at paths below a folder, folders before what is in them


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Up to three run folders, links to them, and a runs.csv next to them."""
    tree: Tree = {}
    found = draw(st.lists(run_names, min_size=1, max_size=3, unique=True))
    for run in found:
        tree[run] = Path.mkdir
        content = [(capture_names, captures), (st.just(b"run.toml"), tomls)]
        content += [(log_names, step_rows), (phases_names, phases_rows)]
        for place, (name, text) in enumerate(content):
            for each in draw(st.lists(name, min_size=place == 0, max_size=2, unique=True)):
                tree[run + b"/" + each] = draw(files(text))
    for name in draw(st.lists(names, max_size=2, unique=True)):
        tree.setdefault(name, linked(draw(st.sampled_from([*found, b".", b"..", b"nowhere"]))))
    if draw(st.booleans()):
        tree.setdefault(b"runs.csv", draw(files(runs_rows)))
    return tree


outs = st.one_of(st.just(b"dataset"), st.lists(names, min_size=1, max_size=2).map(b"/".join))
options = st.one_of(
    st.sampled_from([[], [], ["--clock-offset", "4e9"], ["--clock-offset", "auto"], ["--packets"]]),
    names.map(lambda name: ["--run-id", os.fsdecode(name)]),
)


@contextmanager
def in_time() -> Iterator[None]:
    """A case that hangs fails, and is shown."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"a case takes longer than {LONGEST_CASE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    left = signal.alarm(LONGEST_CASE_S)  # pytest-timeout's own, of the whole test
    try:
        yield
    finally:
        signal.alarm(left)
        signal.signal(signal.SIGALRM, before)


def said_of(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    """The lines of messages: a name in one neither ends it nor controls the terminal."""
    text = done.stderr.decode()
    assert "Traceback" not in text
    assert "please report" not in text
    lines = text.split("\n")
    assert lines.pop() == ""
    assert all(printable(line) == line and line.strip() for line in lines), lines
    return lines


def words_of(tree: Tree, top: Path, out: Path) -> set[str]:
    """What a message may call a file by: its path, or its name in the dataset."""
    parts = {part for path in tree for part in os.fsdecode(path).split("/")}
    return {printable(str(top)), printable(str(out)), *map(valid_text, parts), *map(printable, parts)}


@settings(
    max_examples=max(10, settings.default.max_examples // 2) if settings.default else 10,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(trees(), outs, options)
def test_an_ingest_ends_as_documented(command: RunCommand, tree: Tree, out_name: bytes, more: list[str]) -> None:
    with TemporaryDirectory() as folder, in_time():
        top, out = Path(folder, "runs"), Path(folder, os.fsdecode(out_name))
        top.mkdir()
        for path, make in tree.items():
            make(top / os.fsdecode(path))
        done = command("ingest", top, "--out", out, "--strict", *more)
        faults = [line for line in said_of(done) if line.startswith(("warning: ", "ddnn-traces: ", "Error: "))]
        assert done.returncode in (0, 1, 2)
        assert bool(faults) == bool(done.returncode)
        words = {*words_of(tree, top, out), *map(valid_text, more)}
        assert all(any(word in line for word in words) for line in faults), faults
        if not os.path.lexists(out / "dataset.json"):
            assert done.returncode
            return
        with ddnn_traces.open(out) as dataset:
            assert all(printable(run_id) == run_id for run_id in dataset.run_ids)
            assert contradictions(dataset) == {}
        assert command("ingest", top, "--out", out, "--strict", *more).returncode == done.returncode
        assert command("ingest", top, "--out", out, *more).returncode <= done.returncode
