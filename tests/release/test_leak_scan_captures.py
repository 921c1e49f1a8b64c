"""The leak scan of captures: what stands in headers by chance is not found, what means something there is."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import packets as p
import pytest
from leaks import HARDWARE, MAC, START_NS, kinds

from ddnn_traces.release import leak_scan


@pytest.mark.parametrize("change", ["address", "inner address", "hardware address", "time", "payload", "none"])
def test_captures(change: str, words: leak_scan.Words, tmp_path: Path) -> None:
    clean = p.ipv4(p.tcp(seq=int.from_bytes(bytes([172, 20, 30, 41]), "big")), "198.18.0.1", "198.18.0.2")
    leaking = p.ipv4(p.tcp(), "172.20.30.41", "198.18.0.2")
    frame = p.ethernet(clean)
    if change == "address":
        frame = p.ethernet(leaking)
    if change == "inner address":
        frame = p.ethernet(p.ipv4(p.udp(p.vxlan(p.ethernet(leaking)), 5000, 4789), "198.18.0.1", "198.18.0.2", p.UDP))
    if change == "hardware address":
        frame = bytes.fromhex(MAC.replace(":", "")) + frame[6:]
    if change == "payload":
        frame = p.ethernet(p.ipv4(p.udp(b"to gpu-node17 now"), "198.18.0.1", "198.18.0.2", p.UDP))
    time = START_NS if change == "time" else START_NS + 10**18
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    record = struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), len(frame))
    (tmp_path / "worker-1.pcap").write_bytes(header + (record + frame) * 3)
    expected = {"address": "an IP address", "inner address": "an IP address", "hardware address": "a hardware address",
                "time": "the time of a run", "payload": "name of a host"}  # fmt: skip
    assert kinds(tmp_path, words) == ({expected[change]} if change in expected else set())


IP = bytes([172, 20, 30, 41])


def capture_of(*frames: bytes) -> bytes:
    """A pcap as releases have it, of a time that is no run's."""
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    records = (struct.pack("<IIII", 1000, 0, len(frame), len(frame)) + frame for frame in frames)
    return header + b"".join(records)


def _udp(payload: bytes) -> bytes:
    return p.ethernet(p.ipv4(p.udp(payload), "198.18.0.1", "198.18.0.2", p.UDP))


def _ipv4(data: bytes) -> str:
    return ".".join(map(str, data))


#: Frames where the bytes of a hardware address, an address or a name stand by chance.
BY_CHANCE = {
    "window, checksum and urgent pointer": p.ethernet(
        p.ipv4(p.tcp()[:14] + HARDWARE, "198.18.0.1", "198.18.0.2")
    ),
    "sequence numbers": p.ethernet(p.ipv4(p.tcp()[:4] + HARDWARE + p.tcp()[10:], "198.18.0.1", "198.18.0.2")),
    "a name in sequence numbers": p.ethernet(
        p.ipv4(p.tcp()[:4] + b".erika.!" + p.tcp()[12:], "198.18.0.1", "198.18.0.2")
    ),
    "the end of one address and the start of the next": p.ethernet(
        p.ipv4(p.tcp(), _ipv4(b"\x0a\x0b" + IP[:2]), _ipv4(IP[2:] + b"\x0a\x0b"))
    ),
    "the same with a hardware address": p.ethernet(
        p.ipv4(p.tcp(), _ipv4(b"\x0a" + HARDWARE[:3]), _ipv4(HARDWARE[3:] + b"\x0a"))
    ),
    "the end of one hardware address and the start of the next": b"\2" + HARDWARE + b"\2" * 5 + _udp(b"")[12:],
}  # fmt: skip


@pytest.mark.parametrize("ending", ["pcap", "pcap.gz"])
@pytest.mark.parametrize("frame", BY_CHANCE.values(), ids=BY_CHANCE)
def test_what_stands_in_headers_by_chance_is_not_found(
    frame: bytes, ending: str, words: leak_scan.Words, tmp_path: Path
) -> None:
    data = capture_of(frame, frame)
    (tmp_path / f"worker-1.{ending}").write_bytes(data if ending == "pcap" else gzip.compress(data))
    assert leak_scan.scan(tmp_path, words) == []


_SIX = p.ipv6(p.tcp(), "2001:2::1", "2001:2::2")
#: Frames that hold one, with its kind.
LEAKING = {
    "the source": ("a hardware address", b"\2" * 6 + HARDWARE + _udp(b"")[12:]),
    "a made hardware address": ("an IP address", b"\2\0" + IP + _udp(b"")[6:]),
    "a payload": ("a hardware address", _udp(b"to " + HARDWARE)),
    "an address in a payload": ("an IP address", _udp(b"to " + IP)),
    "a name in a payload": ("name of a user", _udp(b"by erika.")),
    "a payload of TCP": ("a hardware address", p.ethernet(p.ipv4(p.tcp(HARDWARE), "198.18.0.1", "198.18.0.2"))),
    "ARP": ("a hardware address", p.ethernet(b"\0\1\x08\0\6\4\0\1" + HARDWARE + b"\0" * 14, 0x0806)),
    "an interface": (
        "a hardware address", p.ethernet(_SIX[:32] + bytes.fromhex("9eb6d0fffe1a2b3c") + _SIX[40:], p.IPV6)
    ),
    "a mapped address": ("an IP address", p.ethernet(_SIX[:8] + b"\0" * 10 + b"\xff\xff" + IP + _SIX[24:], p.IPV6)),
    "a frame that is too long to be examined": ("name of a user", _udp(b"\0" * (1 << 18) + b" erika ")),
}  # fmt: skip


@pytest.mark.parametrize("ending", ["pcap", "pcap.gz"])
@pytest.mark.parametrize(("kind", "frame"), LEAKING.values(), ids=LEAKING)
def test_what_stands_where_it_means_something_is_found(
    kind: str, frame: bytes, ending: str, words: leak_scan.Words, tmp_path: Path
) -> None:
    data = capture_of(_udp(b""), frame)
    (tmp_path / f"worker-1.{ending}").write_bytes(data if ending == "pcap" else gzip.compress(data))
    assert kinds(tmp_path, words) == {kind}


@pytest.mark.parametrize(
    ("days", "found"), [(400, set()), (-0.9, {"the time of a run"}), (700.5, {"the time of a run"})]
)
def test_a_time_between_two_runs_is_that_of_none(days: float, found: set[str], tmp_path: Path) -> None:
    """A shifted time may lie between originals of different years, in a capture and in a text."""
    day_ns = 86400 * 10**9
    words = leak_scan.Words(times=[(START_NS, START_NS + 1), (START_NS + 700 * day_ns, START_NS + 700 * day_ns + 1)])
    time = START_NS + int(days * day_ns)
    frame = p.ethernet(p.ipv4(p.tcp(), "198.18.0.1", "198.18.0.2"))
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    record = struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), len(frame)) + frame
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "worker-1.pcap").write_bytes(header + record)
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "train.log").write_text(f"end {time // 10**9}.5\n")
    assert [kinds(tmp_path / folder, words) for folder in "12"] == [found, found]
