"""The reference engine against the fast one, field by field, and what each alone must do."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import packets as p
import pyarrow.parquet as pq
import pytest
from tools import needs_tool

from ddnn_traces.errors import EngineError
from ddnn_traces.ingestors import numba_engine
from ddnn_traces.ingestors.facts import CELLS, CaptureFacts, ReadOptions

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "data" / "sample"
SAMPLE_RUNS = sorted({path.parent for path in SAMPLE.glob("*/worker-*-tcpdump.pcap*")})

MS = 1_000_000
START = 1_700_000_000 * 10**9 + 123_456_000
DATA = p.ipv4(p.tcp(bytes(100)))
DATA6 = p.ipv6(p.tcp(bytes(100)))

pyshark_engine = pytest.importorskip("ddnn_traces.ingestors.pyshark_engine")
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def _tshark() -> None:
    needs_tool("tshark")


# --- reading with both


def read(engine: Any, path: Path, folder: Path, bounds: tuple[int, ...] = ()) -> CaptureFacts:
    """Facts of the file; the bytes reported as progress must add up to it."""
    progress: list[int] = []
    spill = folder / f"{engine.NAME}.parquet"
    spill.unlink(missing_ok=True)
    facts = engine.read_capture(
        path, ReadOptions(MS, np.array(bounds, np.int64), spill, progress=lambda size, _: progress.append(size))
    )
    if facts.records:
        assert sum(progress) == facts.file_bytes
        assert min(progress) >= 0
    return facts


def cells_of(facts: CaptureFacts) -> list[tuple[int, ...]]:
    """Cells added up and in order: engines may write a cell in several rows."""
    if facts.cells is None:
        return []
    table = pq.read_table(facts.cells)
    assert table.schema == CELLS
    sums = table.group_by(CELLS.names[:3]).aggregate([(name, "sum") for name in CELLS.names[3:]])
    return sorted(tuple(row.values()) for row in sums.to_pylist())


def assert_same(fast: CaptureFacts, reference: CaptureFacts) -> None:
    """Every fact but the engine's name and its own words for damage."""
    for field in dataclasses.fields(CaptureFacts):
        if field.name not in ("engine", "status_detail", "cells", "flows"):
            assert getattr(reference, field.name) == getattr(fast, field.name), field.name
    assert (reference.status_detail is None) == (fast.status_detail is None)
    assert reference.flows.schema == fast.flows.schema
    assert reference.flows.to_pylist() == fast.flows.to_pylist()
    assert cells_of(reference) == cells_of(fast)


def read_both(path: Path, bounds: tuple[int, ...] = ()) -> CaptureFacts:
    """Facts of the reference engine, which are those of the fast one."""
    reference = read(pyshark_engine, path, path.parent, bounds)
    assert_same(read(numba_engine, path, path.parent, bounds), reference)
    return reference


def records(*frames: bytes | tuple[bytes, int]) -> list[p.Record]:
    """Frames, or frames with their original lengths, 0.4 ms apart."""
    pairs = [frame if isinstance(frame, tuple) else (frame, None) for frame in frames]
    return [p.Record(START + i * 400_000, frame, wire) for i, (frame, wire) in enumerate(pairs)]


def write(folder: Path, content: bytes, name: str = "capture.pcap") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


# --- the sample


def test_there_is_a_sample() -> None:
    assert SAMPLE_RUNS


@pytest.mark.parametrize("run", SAMPLE_RUNS, ids=lambda path: path.name)
def test_engines_agree_on_the_sample(run: Path, tmp_path: Path) -> None:
    """All records of all files of the run: 400,000 in the whole sample, which takes about 70 s."""
    for path in sorted(run.glob("worker-*-tcpdump.pcap*")):
        fast = read(numba_engine, path, tmp_path)
        assert fast.records
        bounds = tuple(int(t) for t in np.linspace(fast.first_ns, fast.last_ns, 6)[1:-1])
        assert_same(read(numba_engine, path, tmp_path, bounds), read(pyshark_engine, path, tmp_path, bounds))


# --- captures made by hand

LINKS: dict[str, tuple[int, list[bytes]]] = {
    "vlan": (p.ETHERNET, [p.ethernet(DATA, tags=[p.VLAN]), p.ethernet(DATA6, p.IPV6, [p.SERVICE_VLAN, p.VLAN])]),
    "sll": (p.SLL, [p.sll(DATA), p.sll(DATA6, p.IPV6), p.sll(bytes(28), p.ARP)]),
    "sll2": (p.SLL2, [p.sll2(DATA), p.sll2(DATA6, p.IPV6), p.sll2(bytes(28), p.ARP)]),
    "raw": (p.RAW, [DATA, DATA6]),
    "null": (p.NULL, [p.null(DATA), p.null(DATA6, p.IPV6)]),
}


@pytest.mark.parametrize("name", LINKS)
def test_link_types(name: str, tmp_path: Path) -> None:
    link, frames = LINKS[name]
    facts = read_both(write(tmp_path, p.pcap(records(*frames), link=link)))
    assert facts.link_types == str(link)
    assert facts.flows["src_ip"].to_pylist() == ["10.0.0.1", "fd00::1"]
    assert set(facts.flows["ip_bytes"].to_pylist()) == {140, 160}


def frames_by_name() -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Name, frame, and what its flow's columns (or the reason why there is none) must be."""
    eth = p.ethernet
    flow = {"protocol": p.TCP, "src_port": 40000, "dst_port": 5000, "payload_bytes": 100}
    yield "ipv4", eth(DATA), flow
    yield "ipv4 padded", eth(p.ipv4(p.tcp()) + bytes(6)), flow | {"ip_bytes": 40, "payload_bytes": 0}
    yield "ipv4 options", eth(p.ipv4(p.tcp(bytes(100)), options=b"\x94\x04\0\0")), flow | {"ip_bytes": 144}
    yield "tcp options", eth(p.ipv4(p.tcp(bytes(100), options=p.TIMESTAMPS))), flow | {"ip_bytes": 152}
    yield "ipv4 length 0", eth(p.ipv4(p.tcp(bytes(100)), total=0)), flow | {"ip_bytes": 140}
    yield "ipv4 length beyond the frame", eth(p.ipv4(p.tcp(bytes(100)), total=9000)), flow | {"ip_bytes": 140}
    yield "ipv4 source mapped", eth(p.ipv6(p.tcp(bytes(100)), source="::ffff:10.1.2.3"), p.IPV6), flow
    yield "ipv6", eth(DATA6, p.IPV6), flow | {"ip_bytes": 160}
    yield "ipv6 length 0", eth(p.ipv6(p.tcp(bytes(100)), length=0), p.IPV6), flow | {"ip_bytes": 160}
    for name, headers in {
        "hop by hop": [p.hop_by_hop()],
        "destination options twice": [p.hop_by_hop(1), p.destination_options(), p.destination_options(2)],
        "authentication": [p.authentication()],
        "first fragment": [p.fragment_header(more=True)],
    }.items():
        yield f"ipv6 {name}", eth(p.ipv6(p.tcp(bytes(100)), extensions=headers), p.IPV6), flow
    port0 = {"src_port": 0, "dst_port": 0}
    later = p.ipv6(bytes(64), extensions=[p.fragment_header(64)])
    yield "ipv6 later fragment", eth(later, p.IPV6), port0 | {"protocol": p.TCP, "payload_bytes": 64}
    yield "first fragment", eth(p.ipv4(p.tcp(bytes(100)), more=True)), flow
    yield "later fragment", eth(p.ipv4(bytes(64), fragment=120)), port0 | {"protocol": p.TCP, "payload_bytes": 64}
    yield "udp", eth(p.ipv4(p.udp(bytes(30)), protocol=p.UDP)), flow | {"protocol": p.UDP, "payload_bytes": 30}
    yield "icmp", eth(p.ipv4(p.icmp(), protocol=p.ICMP)), port0 | {"protocol": p.ICMP, "payload_bytes": 8}
    unreachable = struct.pack(">BBHI", 3, 1, 0, 0) + p.ipv4(p.tcp(bytes(100)), "9.9.9.9", "8.8.8.8")[:28]
    yield "icmp error", eth(p.ipv4(unreachable, protocol=p.ICMP)), port0 | {"src_ip": "10.0.0.1", "payload_bytes": 36}
    inside = p.ipv4(p.tcp(bytes(100)), "9.9.9.9", "8.8.8.8")
    yield "ip in ip", eth(p.ipv4(inside, protocol=4)), port0 | {"src_ip": "10.0.0.1", "payload_bytes": 140}
    yield "gre", eth(p.ipv4(b"\0\0\x08\0" + inside, protocol=47)), port0 | {"src_ip": "10.0.0.1", "protocol": 47}
    vxlan = p.udp(b"\x08\0\0\0\0\0\x01\0" + eth(inside), destination=4789)
    yield "vxlan", eth(p.ipv4(vxlan, protocol=p.UDP)), {"src_ip": "10.0.0.1", "dst_port": 4789, "payload_bytes": 162}
    yield "ipv4 in ipv6", eth(p.ipv6(inside, protocol=4), p.IPV6), port0 | {"src_ip": "fd00::1", "protocol": 4}
    yield "arp", p.arp(), {"reason": "not_ip"}
    yield "lldp", eth(bytes(40), 0x88CC), {"reason": "not_ip"}
    yield "version 5", eth(b"\x55" + DATA[1:]), {"reason": "malformed"}
    yield "header of 16 bytes", eth(b"\x44" + DATA[1:]), {"reason": "malformed"}
    yield "length within the header", eth(p.ipv4(p.tcp(bytes(100)), total=10)), {"reason": "malformed"}
    yield "length within tcp", eth(p.ipv4(p.tcp(bytes(100)), total=30)), {"reason": "malformed"}
    short_tcp = bytearray(p.tcp(bytes(100)))
    short_tcp[12] = 4 << 4
    yield "tcp header of 16 bytes", eth(p.ipv4(bytes(short_tcp))), {"reason": "malformed"}


@pytest.mark.parametrize(("frame", "expected"), [pytest.param(*rest, id=name) for name, *rest in frames_by_name()])
def test_frames(frame: bytes, expected: dict[str, Any], tmp_path: Path) -> None:
    facts = read_both(write(tmp_path, p.pcap(records(frame))))
    if "reason" in expected:
        assert facts.skipped == {expected["reason"]: (1, len(frame))}
    else:
        [flow] = facts.flows.to_pylist()
        assert {name: flow[name] for name in expected} == expected
        assert facts.skipped == {}


@pytest.mark.parametrize("total", [0, 4464], ids=["IP length 0", "IP length modulo 2^16"])
def test_frame_beyond_64_kib(total: int, tmp_path: Path) -> None:
    frame = p.ethernet(p.ipv4(p.tcp(bytes(100)), total=total))
    [flow] = read_both(write(tmp_path, p.pcap(records((frame, 70_014))))).flows.to_pylist()
    assert (flow["wire_bytes"], flow["ip_bytes"], flow["payload_bytes"]) == (70_014, 70_000, 69_960)


@pytest.mark.parametrize("frame", [p.ethernet(DATA), p.ethernet(DATA, tags=[p.VLAN]), p.ethernet(DATA6, p.IPV6)])
def test_every_snaplen(frame: bytes, tmp_path: Path) -> None:
    """Cut everywhere but where tshark does not show the TCP header's 13th and 14th byte, though they are there."""
    tcp_at = frame.index(struct.pack(">HH", 40000, 5000))
    snaplens = [n for n in range(len(frame)) if n - tcp_at not in (14, 15)]
    cut = [(frame[:n], len(frame)) for n in snaplens]
    facts = read_both(write(tmp_path, p.pcap(records(*cut))))
    assert facts.skipped["cut_short"][0] == tcp_at + 4
    assert facts.flows["packets"].to_pylist() == [len(cut) - tcp_at - 4]


def test_segments(tmp_path: Path) -> None:
    """Flags, retransmissions, a wrap of the sequence numbers, and a five-tuple that is used again."""
    top = 2**32
    steps = [
        (0, top - 150, p.SYN), (0, top - 149, p.ACK), (100, top - 149, p.ACK), (100, top - 49, p.ACK | p.PUSH),
        (100, top - 149, p.ACK), (80, 21, p.ACK), (0, 51, p.ACK), (0, 101, p.FIN | p.ACK), (0, 0, p.RST),
        (0, 5000, p.SYN), (60, 5001, p.ACK), (0, 77, p.SYN | p.ACK),
    ]  # fmt: skip
    frames = [p.segment(payload, seq % top, flags) for payload, seq, flags in steps]
    [flow] = read_both(write(tmp_path, p.pcap(records(*frames)))).flows.to_pylist()
    assert [flow[f"{flag}_packets"] for flag in ("syn", "fin", "rst")] == [3, 1, 1]
    assert (flow["opened"], flow["accepted"]) == (2, 1)
    assert (flow["retransmitted_packets"], flow["retransmitted_bytes"]) == (2, 130)


def test_steps_and_windows(tmp_path: Path) -> None:
    """A time that is a bound belongs to the step that begins there; times need not ascend."""
    path = write(tmp_path, p.pcap([p.Record(START + t, p.segment()) for t in (0, 10 * MS, 5 * MS, 20 * MS, 19 * MS)]))
    facts = read_both(path, bounds=(START + 5 * MS, START + 10 * MS, START + 20 * MS))
    assert [step for _, _, step, *_ in cells_of(facts)] == [-1, 0, 1, 1, 2]
    assert (facts.first_ns, facts.last_ns) == (START, START + 20 * MS)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("tick_ns", [1, 1000])
def test_byte_orders_and_time_resolutions(order: str, tick_ns: int, tmp_path: Path) -> None:
    stamps = [START + tick_ns, START + 999 * tick_ns, START + 10**9 - START % 10**9 - tick_ns]
    content = p.pcap([p.Record(t, p.segment()) for t in stamps], order, tick_ns, snaplen=96)
    facts = read_both(write(tmp_path, content))
    assert (facts.first_ns, facts.last_ns) == (stamps[0], stamps[2])
    assert (facts.format, facts.time_resolution_ns, facts.snaplen) == (
        "pcap-le" if order == "<" else "pcap-be", tick_ns, 96,
    )  # fmt: skip


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_truncated_last_record(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = write(tmp_path, compress(GOOD), "whole")
    assert (read_both(path).records, read_both(path).status) == (20, "complete")
    cut = read_both(write(tmp_path, compress(GOOD[:-5])))
    assert (cut.records, cut.status, cut.trailing_bytes) == (19, "truncated", 165)
    assert cut.status_detail == "appears to have been cut short in the middle of a packet."


@pytest.mark.parametrize("name", ["-r.pcap", "-", "a \"b' \\ ü $(x).pcap", "line\nbreak.pcap", "not utf-8 \udcff"])
def test_names(name: str, tmp_path: Path) -> None:
    cut = read_both(write(tmp_path, GOOD[:-5], name))
    assert (cut.records, cut.status_detail) == (19, "appears to have been cut short in the middle of a packet.")


def test_relative_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative name that looks like an option, or like stdin."""
    monkeypatch.chdir(tmp_path)
    for name in ("-c1", "-"):
        Path(name).write_bytes(p.pcap(records(p.segment(), p.segment())))
        assert read_both(Path(name)).records == 2


GOOD = p.pcap(records(*[p.segment(seq=100 * i) for i in range(20)]))
DAMAGED = {
    "empty": (b"", "truncated", 0),
    "text": (b"no capture, but long enough to be one", "corrupt", 0),
    "inside the file header": (GOOD[:10], "truncated", 0),
    "file header only": (GOOD[:24], "complete", 0),
    "inside a record header": (GOOD[:-165], "truncated", 19),
    "nonsense after the records": (GOOD + struct.pack("<4I", 1, 1, 2**31, 9) + bytes(99), "corrupt", 20),
    "gzip cut short": (gzip.compress(GOOD)[:-20], "truncated", None),
    "gzip and something else": (gzip.compress(GOOD) + b"something else", "corrupt", 20),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage(name: str, tmp_path: Path) -> None:
    content, status, readable = DAMAGED[name]
    facts = read_both(write(tmp_path, content))
    assert facts.status == status
    assert readable in (None, facts.records)
    assert str(tmp_path) not in str(facts.status_detail)


# --- what only the reference engine reads


def test_pcapng(tmp_path: Path) -> None:
    """The same packets give the same flows; what only pcap's file header says is unknown."""
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


@pytest.mark.parametrize(
    ("frame", "ip_bytes"),
    [
        (p.ethernet(struct.pack(">I", 1 << 12 | 0x100 | 64) + DATA, 0x8847), 140),
        (p.ethernet(struct.pack(">BBHHH", 0x11, 0, 1, 142, 0x21) + DATA, 0x8864), 140),
    ],
    ids=["mpls", "pppoe"],
)
def test_exotic_encapsulation(frame: bytes, ip_bytes: int, tmp_path: Path) -> None:
    [flow] = read(pyshark_engine, write(tmp_path, p.pcap(records(frame))), tmp_path).flows.to_pylist()
    assert (flow["src_port"], flow["ip_bytes"], flow["payload_bytes"]) == (40000, ip_bytes, 100)


def test_unknown_link_type(tmp_path: Path) -> None:
    """One that tshark leaves to the user; at one that it does not know at all it stops."""
    path = write(tmp_path, p.pcap(records(p.segment()), link=147))
    assert read_both(path).skipped == {"unknown_link_type": (1, 154)}
    facts = read(pyshark_engine, write(tmp_path, p.pcap(records(p.segment()), link=9999)), tmp_path)
    assert (facts.status, facts.records) == ("corrupt", 0)
    assert "9999" in str(facts.status_detail)


def test_damage_in_gzip_costs_no_record(tmp_path: Path) -> None:
    """A wrong checksum comes after the last record."""
    content = gzip.compress(GOOD)
    facts = read(pyshark_engine, write(tmp_path, content[:-8] + b"12345678"), tmp_path)
    assert (facts.records, facts.status, facts.trailing_bytes) == (20, "corrupt", 0)


def test_time_stamps_of_other_versions() -> None:
    assert pyshark_engine._time_ns("1700000000.123456789") == 1_700_000_000_123_456_789
    assert pyshark_engine._time_ns("2023-11-14T22:13:20.123456789Z") == 1_700_000_000_123_456_789


def test_cells_are_written_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyshark_engine, "_CELLS_AT_ONCE", 3)
    read_both(write(tmp_path, GOOD))


# --- the program behind it


def children() -> set[str]:
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


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


def test_error_in_the_reader_leaves_no_process(tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap(records(*[p.segment()] * 20_000)))

    def fail(_bytes: int, _packets: int) -> None:
        raise ZeroDivisionError

    before = children()
    with pytest.raises(ZeroDivisionError):
        pyshark_engine.read_capture(path, ReadOptions(MS, np.array([], np.int64), tmp_path / "cells", progress=fail))
    assert children() == before


def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    path = write(tmp_path, p.pcap(records(*[p.segment()] * 50_000)))
    program = f"""
import sys, numpy
from pathlib import Path
from ddnn_traces.ingestors import pyshark_engine
from ddnn_traces.ingestors.facts import ReadOptions
said = []
def progress(_bytes, _packets):
    if not said:
        said.append(print("reading", flush=True))
try:
    pyshark_engine.read_capture(Path({str(path)!r}), ReadOptions(1000, numpy.array([], numpy.int64),
                                Path({str(tmp_path / "cells")!r}), progress=progress))
except KeyboardInterrupt:
    print("left:", [p.read_text() for p in Path("/proc/self/task").glob("*/children") if p.read_text()])
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    with subprocess.Popen([sys.executable, "-c", program], stdout=-1, stderr=-1, env=environment, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == ("left: []\n", "")


def fake_tshark(folder: Path, script: str) -> None:
    """A tshark that says its version, and otherwise does what the script does."""
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


def test_slow_reader_is_waited_for(tmp_path: Path) -> None:
    """tshark blocks on a full pipe while packets are counted; nothing may be lost."""
    path = write(tmp_path, p.pcap(records(*[p.segment()] * 2000)))
    spill = tmp_path / "cells"
    options = ReadOptions(MS, np.array([], np.int64), spill, lambda _: time.sleep(0.2))
    assert pyshark_engine.read_capture(path, options).records == 2000
