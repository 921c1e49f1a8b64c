"""The pyshark engine: the sample as the numba engine reads it, captures that only tshark reads, tshark as a program."""

from __future__ import annotations

import asyncio
import bz2
import contextlib
import gzip
import inspect
import lzma
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import packets as p
import pytest
from engines import (
    DATA,
    FIRST,
    GOOD,
    LATER,
    MS,
    START,
    assert_same,
    assert_same_traffic,
    columns,
    packets_of,
    pyshark_engine,
    read,
    read_both,
    records,
    write,
)
from readings import BEFORE_THE_NIGHT, SAMPLE, SAMPLE_RUNS
from tools import mostly_long, mostly_nightly, needs_tool

from ddnn_traces.errors import EngineError
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.pipeline import ingest
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import numba_engine
from ddnn_traces.pcap.capture_facts import ReadOptions
from ddnn_traces.pcap.tshark import dissect

pytestmark = pytest.mark.filterwarnings("error")

ROOT = Path(__file__).resolve().parents[3]


# --- the sample


@pytest.mark.parametrize("run", mostly_nightly(SAMPLE_RUNS, *BEFORE_THE_NIGHT))
def test_engines_agree_on_the_sample(run: str, tmp_path: Path) -> None:
    """All records of one host of each run, not of the same in each: all hosts take four times as long."""
    paths = sorted((SAMPLE / run).glob("worker-*-tcpdump.pcap*"))
    path = paths[sum(run.encode()) % len(paths)]
    fast = read(numba_engine, path, tmp_path)
    assert fast.records
    bounds = tuple(int(t) for t in np.linspace(fast.first_ns, fast.last_ns, 6)[1:-1])
    assert_same(read(numba_engine, path, tmp_path, bounds), read(pyshark_engine, path, tmp_path, bounds))


# --- captures that only tshark reads


@pytest.mark.long
def test_pcapng(tmp_path: Path) -> None:
    """The same packets give the same flows; the facts of a pcap file header are unknown."""
    editcap = needs_tool("editcap")
    path = write(tmp_path, p.pcap(records(*[p.segment(seq=100 * i) for i in range(20)]), tick_ns=1))
    plain = read(pyshark_engine, path, tmp_path)
    converted = tmp_path / "capture.pcapng"
    subprocess.run([editcap, "-F", "pcapng", path, converted], check=True)
    facts = read(pyshark_engine, converted, tmp_path)
    assert (facts.format, facts.link_types, facts.status) == ("pcapng", "1", "complete")
    assert (facts.snaplen, facts.time_resolution_ns, facts.trailing_bytes) == (None, None, 0)
    assert facts.flows.to_pylist() == plain.flows.to_pylist()
    assert facts.records == 20


@pytest.mark.parametrize("order", ["<", ">"])
def test_engines_agree_on_pcapng(order: str, tmp_path: Path) -> None:
    """Sections, interfaces with their own resolutions, every kind of packet block."""
    section = p.Section(order)
    ticks = START // 1000
    content = section.begin() + section.interface(p.ETHERNET, 96, 6) + section.interface(p.RAW, 200, 0x80 | 30)
    content += section.enhanced(ticks, p.segment(100)[:96], 154) + section.enhanced(3 << 29, DATA, interface=1)
    content += section.simple(p.segment(100, 100)[:96], 154) + section.old(ticks + 5, p.segment(20, 200)[:60], 74)
    content += p.pcapng(records(p.segment(30, 220), p.segment(100, 100)), "<" if order == ">" else ">")
    path = write(tmp_path, content)
    fast, reference = (read(engine, path, tmp_path) for engine in (numba_engine, pyshark_engine))
    assert_same_traffic(fast, reference)
    for name in ("format", "link_types", "records", "untimed_records", "wire_bytes", "first_ns", "last_ns", "status"):
        assert getattr(reference, name) == getattr(fast, name), name
    assert (reference.records, reference.link_types, reference.first_ns) == (6, "1,101", 1_500_000_000)


def test_80211(tmp_path: Path) -> None:
    """Radiotap, a data frame from an access point, LLC and SNAP: link headers whose sizes only tshark knows."""
    radiotap = struct.pack("<BBHI", 0, 0, 8, 0)
    wlan = b"\x08\x02\0\0" + b"\2\0\0\0\0\1" + b"\2\0\0\0\0\2" + b"\2\0\0\0\0\3" + bytes(2)
    snap = b"\xaa\xaa\3\0\0\0\x08\0"
    frame = radiotap + wlan + snap + DATA
    facts = read(pyshark_engine, write(tmp_path, p.pcap(records(frame), link=127)), tmp_path)
    [flow] = facts.flows.to_pylist()
    assert (flow["src_ip"], flow["src_port"], flow["ip_bytes"], flow["payload_bytes"]) == ("10.0.0.1", 40000, 140, 100)
    assert (facts.link_types, flow["wire_bytes"]) == ("127", len(frame))


def test_packets_without_time(tmp_path: Path) -> None:
    """A pcapng's Simple Packet Blocks have the time of the packet before them."""
    section = p.Section()
    simple = section.simple(p.segment(100)[:96], 154)
    content = section.begin() + section.interface(p.ETHERNET, 96, 9) + simple
    content += section.enhanced(START, p.segment(50)[:96], 104) + simple
    facts = read(pyshark_engine, write(tmp_path, content), tmp_path)
    assert (facts.records, facts.untimed_records, facts.wire_bytes) == (3, 2, 412)
    assert (facts.first_ns, facts.last_ns) == (0, START)
    assert columns(packets_of(facts), "ts_ns", "captured_bytes") == [(0, 96), (START, 96), (START, 96)]


ABSURD = {  # if_tsresol, if_tsoffset, units
    "ns": (9, None, 2**63), "all bits, ns": (9, None, 2**64 - 1), "us": (6, None, 2**63 - 1),
    "all bits, us": (6, None, 2**64 - 1),
    "s": (0, None, 2**62), "2^0": (0x80, None, 2**64 - 1), "before 1970": (9, -1, 5), "offset": (6, 2**63 - 1, 7),
    "low offset": (6, -(2**63), 7), "year 10000": (6, None, 253402300800 * 10**6),
}  # fmt: skip


@pytest.mark.parametrize("name", mostly_long(ABSURD, "year 10000"))
def test_absurd_times(name: str, tmp_path: Path) -> None:
    """Where tshark reads all, so do both engines, and the packet has the time of the one before."""
    resolution, offset, ticks = ABSURD[name]
    section = p.Section()
    content = section.begin() + section.interface(resolution=9)
    content += section.interface(resolution=resolution, offset=offset)
    frames = [p.segment(100, 100 * at) for at in range(4)]
    content += section.enhanced(START, frames[0]) + section.enhanced(START + 1, frames[1])
    content += section.enhanced(ticks, frames[2], interface=1) + section.enhanced(START + 9, frames[3])
    path = write(tmp_path, content)
    fast, reference = (read(engine, path, tmp_path) for engine in (numba_engine, pyshark_engine))
    assert_same_traffic(fast, reference)
    for facts in (fast, reference):
        assert (facts.records, facts.untimed_records, facts.invalid_times, facts.status) == (4, 1, 1, "complete")
        assert columns(packets_of(facts), "ts_ns") == [(START,), (START + 1,), (START + 1,), (START + 9,)]


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("name", COMPRESSIONS)
@pytest.mark.long_after(1)
def test_compressions(name: str, tmp_path: Path) -> None:
    """Also those that tshark does not know."""
    facts = read_both(write(tmp_path, COMPRESSIONS[name](GOOD)))
    assert (facts.format, facts.records, facts.status) == (f"pcap-le+{name}", 20, "complete")


@pytest.mark.long
def test_standard_input(tmp_path: Path) -> None:
    program = f"""
import numpy
from pathlib import Path
from ddnn_traces.pcap.tshark import pyshark_engine
from ddnn_traces.pcap.capture_facts import ReadOptions
options = ReadOptions(1000, numpy.array([], numpy.int64), Path({str(tmp_path / "cells")!r}))
facts = pyshark_engine.read_capture(Path("-"), options)
print(facts.records, facts.file_bytes, facts.status)
"""
    done = subprocess.run([sys.executable, "-c", program], input=GOOD, capture_output=True, check=True, cwd=ROOT)
    assert done.stdout.decode().split() == ["20", str(len(GOOD)), "complete"]


@pytest.mark.long
def test_unknown_link_type(tmp_path: Path) -> None:
    """One that tshark leaves to the user; at one that it does not know at all it stops."""
    path = write(tmp_path, p.pcap(records(p.segment()), link=147))
    assert read_both(path).skipped == {"unknown_link_type": (1, 154)}
    facts = read(pyshark_engine, write(tmp_path, p.pcap(records(p.segment()), link=9999)), tmp_path)
    assert (facts.status, facts.records) == ("corrupt", 0)
    assert "9999" in str(facts.status_detail)


def test_link_type_that_only_numba_reads(tmp_path: Path) -> None:
    """tshark says why it reads nothing; the message names the engine that does."""
    path = write(tmp_path, p.pcap(records(b"\1" + p.ppp(DATA)[1:]), link=166))
    messages = Messages()
    ingest([str(path)], tmp_path / "dataset", IngestOptions(engine="pyshark"), messages)
    (warning,) = messages.warnings
    assert "network type 166 unknown or unsupported" in warning and warning.endswith("try --engine numba")


def test_damage_in_gzip_costs_no_record(tmp_path: Path) -> None:
    """A wrong checksum comes after the last record."""
    content = gzip.compress(GOOD)
    facts = read(pyshark_engine, write(tmp_path, content[:-8] + b"12345678"), tmp_path)
    assert (facts.records, facts.status, facts.trailing_bytes) == (20, "corrupt", 0)


def test_time_stamps_of_other_versions() -> None:
    assert dissect.time_ns("1700000000.123456789") == 1_700_000_000_123_456_789
    assert dissect.time_ns("2023-11-14T22:13:20.123456789Z") == 1_700_000_000_123_456_789


@pytest.mark.long
def test_cells_and_packets_are_written_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyshark_engine, "_CELLS_AT_ONCE", 3)
    monkeypatch.setattr(pyshark_engine, "_PACKETS_AT_ONCE", 3)
    facts = read_both(write(tmp_path, GOOD))
    assert [row["record"] for row in packets_of(facts)] == list(range(20))
    frames = [p.segment(), LATER[0], *[p.segment()] * 8, FIRST, p.segment()]
    facts = read_both(write(tmp_path, p.pcap(records(*frames))))
    assert columns(packets_of(facts), "record", "flow") == [(i, int(i in (1, 10))) for i in range(12)]


# --- tshark as a program


def children() -> set[str]:
    """Numbers of this process' child processes."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has ended meanwhile
            found.update((task / "children").read_text().split())
    return found


#: The same for a program of its own.
CHILDREN = f"import contextlib\nfrom pathlib import Path\n{inspect.getsource(children)}"


@pytest.mark.long
def test_many_times_in_a_process_and_its_threads(tmp_path: Path) -> None:
    """No child process stays; a running loop, as in a notebook, is no obstacle."""
    path = write(tmp_path, GOOD)
    before = children()
    counts = [read(pyshark_engine, path, tmp_path).records for _ in range(2)]
    thread = threading.Thread(target=lambda: counts.append(read(pyshark_engine, path, tmp_path).records))
    thread.start()
    thread.join()

    async def in_a_notebook() -> None:
        counts.append(read(pyshark_engine, path, tmp_path).records)

    asyncio.run(in_a_notebook())
    assert counts == [20] * 4
    assert children() == before


@pytest.mark.long
def test_error_in_the_reader_leaves_no_process(tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap(records(*[p.segment()] * 20_000)))

    def fail(_bytes: int, _packets: int) -> None:
        raise ZeroDivisionError

    before = children()
    with pytest.raises(ZeroDivisionError):
        pyshark_engine.read_capture(path, ReadOptions(MS, np.array([], np.int64), tmp_path / "cells", progress=fail))
    assert children() == before


def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap(records(*[p.segment()] * 15_000)))
    program = f"""{CHILDREN}
import sys, numpy
from ddnn_traces.pcap.tshark import pyshark_engine
from ddnn_traces.pcap.capture_facts import ReadOptions
printed = []
def progress(_bytes, _packets):
    if not printed:
        printed.append(print("reading", flush=True))
try:
    pyshark_engine.read_capture(Path({str(path)!r}), ReadOptions(1000, numpy.array([], numpy.int64),
                                Path({str(tmp_path / "cells")!r}), progress=progress))
except KeyboardInterrupt:
    print("left:", sorted(children()))
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    with subprocess.Popen([sys.executable, "-c", program], stdout=-1, stderr=-1, env=environment, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("left: []\n", "")


@pytest.mark.long
def test_interrupt_while_standard_input_is_silent(tmp_path: Path) -> None:
    content = p.pcap(records(*[p.segment()] * 3000))  # more than a block, and than what is reported at once
    program = f"""{CHILDREN}
import numpy
from ddnn_traces.pcap import capture_file
from ddnn_traces.pcap.tshark import pyshark_engine
capture_file.BLOCK_BYTES = 1 << 16
from ddnn_traces.pcap.capture_facts import ReadOptions
printed = []
def progress(_bytes, _packets):
    if not printed:
        printed.append(print("reading", flush=True))
try:
    pyshark_engine.read_capture(Path("-"), ReadOptions(1000, numpy.array([], numpy.int64),
                                Path({str(tmp_path / "cells")!r}), progress=progress))
except KeyboardInterrupt:
    print("left:", sorted(children()))
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, stderr=-1, env=environment) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(content)
        process.stdin.flush()
        assert process.stdout.readline() == b"reading\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b"left: []\n"  # its input is open still
        process.stdin.close()
        assert process.wait(timeout=30) == 0


def fake_tshark(folder: Path, script: str) -> None:
    """A tshark that prints its version, and otherwise runs the script."""
    program = folder / "tshark"
    program.write_text(f'#!/bin/sh\n[ "$1" = -v ] && echo "TShark (Wireshark) 4.0.17" && exit 0\n{script}\n')
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "echo 'tshark: -o flag \"ipv6.tso_support:TRUE\" specifies unknown preference' >&2; exit 1",
            "unknown preference",
        ),
        ("kill -9 $$", "exit status -9"),
    ],
)
def test_tshark_fails(script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_tshark(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(EngineError, match=message) as error:
        read(pyshark_engine, write(tmp_path, GOOD), tmp_path)
    assert "use --engine numba" in str(error.value)


def test_tshark_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.exists", lambda path: "tshark" not in str(path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="apt-get install tshark, or use --engine numba"):
        read(pyshark_engine, write(tmp_path, GOOD), tmp_path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(pyshark_engine, tmp_path / "none.pcap", tmp_path)


def test_a_tshark_is_asked_for_its_version_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes as long as to read a small file; one that was replaced is asked again."""
    asked: list[str] = []
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    get = pyshark_engine.get_tshark_version
    monkeypatch.setattr(pyshark_engine, "get_tshark_version", lambda path: asked.append(path) or get(path))
    for exit_status in (1, 1, 2):
        fake_tshark(tmp_path, f"exit {exit_status}")
        os.utime(tmp_path / "tshark", ns=(exit_status, exit_status))
        with pytest.raises(EngineError, match=f"exit status {exit_status}"):
            read(pyshark_engine, write(tmp_path, GOOD), tmp_path)
    assert asked == [str(tmp_path / "tshark")] * 2


@pytest.mark.long
def test_slow_reader_is_waited_for(tmp_path: Path) -> None:
    """tshark blocks on a full pipe while packets are counted; nothing may be lost."""
    path = write(tmp_path, p.pcap(records(*[p.segment()] * 2000)))
    spill = tmp_path / "cells"
    options = ReadOptions(MS, np.array([], np.int64), spill, progress=lambda *_: time.sleep(0.2))
    assert pyshark_engine.read_capture(path, options).records == 2000
