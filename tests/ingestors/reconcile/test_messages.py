"""The table messages: hand-made streams in both engines, and in plain Python from the packets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import packets as p
import pytest
from naive import messages as naive
from readings import set_sizes
from small_runs import BEGIN_NS, A, B, C, Packet, ingest, read_folder

from ddnn_traces.query.dataset import Dataset

US = 1000
FULL = 1448
ENGINES = ["numba", "pyshark"]

COLUMNS = "stream_offset, bytes, packets, first_ns, first_ns + duration_ns, end_source, pushed"


def segment(at_us: float, start: int, size: int = FULL, flags: int = p.ACK, ends: tuple[str, str] = (A, B)) -> Packet:
    return Packet(BEGIN_NS + round(at_us * US), *ends, size, flags, seq=start % 2**32)


def stream(*segments: tuple[float, int] | tuple[float, int, int], start: int = 1) -> list[Packet]:
    """Segments in order: time in us, size, flags."""
    packets = []
    for at_us, size, *flags in segments:
        packets.append(segment(at_us, start, size, *flags))
        start += size
    return packets


def messages(dataset: Dataset) -> list[tuple[Any, ...]]:
    """stream_offset, bytes, packets, end_source."""
    return dataset.sql(
        "SELECT stream_offset, bytes, packets, end_source FROM messages ORDER BY flow_id, message"
    ).rows()


PUSH = p.ACK | p.PUSH
#: Packets of one flow, and its messages.
STREAMS: dict[str, tuple[list[Packet], list[tuple[int, int, int, str]]]] = {
    "silence": (
        stream((0, 100), (150, 100), (360, 100), (561, 50)),
        [(0, 200, 2, "silence"), (200, 100, 1, "silence"), (300, 50, 1, "last")],
    ),
    "a silence of just the option": (stream((0, 100), (200, 100)), [(0, 200, 2, "last")]),
    "short segment behind full ones": (
        stream((0, FULL), (10, FULL), (20, 500), (30, FULL), (40, 7), (50, FULL)),
        [(0, 3396, 3, "short_segment"), (3396, 1455, 2, "short_segment"), (4851, FULL, 1, "last")],
    ),
    "short segment at the end": (stream((0, FULL), (10, 500)), [(0, 1948, 2, "short_segment")]),
    "a short segment before full ones is no end": (stream((0, 48), (10, FULL), (20, FULL)), [(0, 2944, 3, "last")]),
    "short segments behind short ones": (stream((0, FULL), (500, 100), (510, 50), (520, 40)), [
        (0, FULL, 1, "silence"), (FULL, 190, 3, "last"),
    ]),
    "without PSH more was queued": (
        stream((0, FULL), (10, 500), (20, FULL), (30, 500, PUSH), (40, FULL)),
        [(0, 3896, 4, "short_segment"), (3896, FULL, 1, "last")],
    ),
    "short segments with PSH": (
        stream(
            (0, 48, PUSH), (5, 48, PUSH), (10, FULL), (20, FULL, PUSH), (30, FULL, PUSH), (40, 48, PUSH), (50, 9, PUSH)
        ),
        [
            (0, 48, 1, "short_segment"), (48, 48, 1, "short_segment"), (96, 3 * FULL + 48, 4, "short_segment"),
            (3 * FULL + 144, 9, 1, "short_segment"),
        ],
    ),
    "retransmission": (
        [*stream((0, FULL), (10, FULL)), segment(300, 1), segment(310, 1 + FULL), segment(390, 1 + 2 * FULL, 10)],
        [(0, 2 * FULL, 2, "silence"), (2 * FULL, 10, 1, "last")],
    ),
    "a retransmission with new bytes": (
        [*stream((0, 100)), segment(50, 51, 100), segment(60, 151, 20)],
        [(0, 170, 3, "short_segment")],
    ),
    "reordering": (
        [segment(0, 1), segment(5, 1 + 2 * FULL), segment(6, 1 + FULL), segment(7, 1 + 3 * FULL, 100)],
        [(0, 3 * FULL + 100, 4, "short_segment")],
    ),
    "a hole that is filled long after": (
        [*stream((0, 100)), segment(10, 201, 100), segment(900, 301, 50), segment(2000, 101, 100)],
        [(0, 300, 3, "silence"), (300, 50, 1, "last")],
    ),
    "the first segment comes second": ([segment(0, 101, 100), segment(3, 201, 100)], [(0, 200, 2, "last")]),
    "numbers begin anew": (
        stream((0, 100), (300, 100), (310, 100), start=2**32 - 150),
        [(0, 100, 1, "silence"), (100, 200, 2, "last")],
    ),
    "super-frames": (
        stream(
            (0, 48), (5, 65160), (545, 65160), (1090, 65160), (1635, 65160), (2180, 39_000), (2190, 65160), (2735, 100)
        ),
        # before so many gaps are known a silence is one
        [
            (0, 65208, 2, "silence"), (65208, 65160, 1, "silence"), (130368, 65160, 1, "silence"),
            (195528, 104160, 2, "short_segment"), (299688, 65260, 2, "short_segment"),
        ],
    ),
    "a link of 10 Mbit/s": (
        stream(*[(1200.0 * i, FULL) for i in range(9)], (9600 + 1200, 100), (30_000, FULL)),
        [
            (0, FULL, 1, "silence"), (FULL, FULL, 1, "silence"), (2 * FULL, FULL, 1, "silence"),
            (3 * FULL, 6 * FULL + 100, 7, "short_segment"), (9 * FULL + 100, FULL, 1, "last"),
        ],
    ),
    "no payload": ([segment(0, 1, 0), segment(10, 1, 0)], []),
    "SYN, FIN": (
        [segment(0, 0, 0, p.SYN), *stream((10, 100), (20, 50)), segment(30, 151, 0, p.FIN | p.ACK)],
        [(0, 150, 2, "short_segment")],
    ),
}  # fmt: skip


def moved(packets: list[Packet], number: int) -> list[Packet]:
    """The same on ports of its own."""
    return [replace(packet, ports=(41000 + number, 5000)) for packet in packets]


#: All streams in the order of time, each a flow of its own.
ALL_STREAMS = sorted(
    (packet for number, (packets, _) in enumerate(STREAMS.values()) for packet in moved(packets, number)),
    key=lambda packet: packet.time_ns,
)


@pytest.fixture(scope="module", params=ENGINES)
def streams(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """One capture of all streams, read by an engine: a capture for each takes ten times as long."""
    if request.param == "pyshark":
        pytest.importorskip("pyshark")
    folder = tmp_path_factory.mktemp("streams")
    with ingest(folder, {"a.pcap": ALL_STREAMS}, packets=True, engine=request.param) as dataset:
        yield dataset


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.long_after(8)
def test_messages_of_a_stream(streams: Dataset, name: str) -> None:
    of_flow = "WHERE flow_id = (SELECT flow_id FROM flows WHERE src_port = $1) ORDER BY"
    port = [41000 + list(STREAMS).index(name)]
    found = streams.sql(f"SELECT stream_offset, bytes, packets, end_source FROM messages {of_flow} message", port)
    assert found.rows() == STREAMS[name][1]
    rows = streams.sql(f"FROM packets {of_flow} record", port).to_dicts()
    assert len(rows) == len(STREAMS[name][0])
    assert streams.sql(f"SELECT {COLUMNS} FROM messages {of_flow} message", port).rows() == naive.of_tcp(rows)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.long_after(1)
def test_a_super_frame_of_whole_segments_is_no_end(tmp_path: Path, engine: str) -> None:
    """With a SYN the segment size is known; without, each that is shorter than the longest is short."""
    if engine == "pyshark":
        pytest.importorskip("pyshark")
    syn = Packet(BEGIN_NS, A, B, 0, p.SYN, seq=0, options=p.mss_option(FULL))
    sizes = [5 * FULL, 45 * FULL, 3 * FULL, 3 * FULL + 1, FULL]
    packets = stream(*[(10.0 * (i + 1), size, PUSH) for i, size in enumerate(sizes)])
    with ingest(tmp_path / "syn", {"a.pcap": [syn, *packets]}, packets=True, engine=engine) as dataset:
        assert messages(dataset) == [(0, 56 * FULL + 1, 4, "short_segment"), (56 * FULL + 1, FULL, 1, "last")]
        rows = dataset.sql("FROM packets ORDER BY record").to_dicts()
        assert dataset.sql(f"SELECT {COLUMNS} FROM messages ORDER BY message").rows() == naive.of_tcp(
            rows, segment_size=FULL
        )
    with ingest(tmp_path / "without", {"a.pcap": packets}, engine=engine) as dataset:
        assert [size for _, size, _, _ in messages(dataset)] == [5 * FULL, 48 * FULL, 3 * FULL + 1, FULL]


@pytest.mark.parametrize("size", [1000, 4000])
@pytest.mark.long_after(1)
def test_messages_of_a_file_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    with ingest(tmp_path / "one", {"a.pcap": ALL_STREAMS}) as dataset:
        whole = dataset.sql("FROM messages ORDER BY ALL").rows()
    assert len(whole) > 20
    set_sizes(monkeypatch, {"chunk": size, "part_block": 1 << 20})
    with ingest(tmp_path / "parts", {"a.pcap": ALL_STREAMS}, jobs=4) as dataset:
        assert dataset.sql("FROM messages ORDER BY ALL").rows() == whole


def test_two_captures_of_a_flow_are_its_messages_once(tmp_path: Path) -> None:
    """The sender's counts, where frames are large; the receiver has them in segments, 2 us later."""
    large = stream((0, 2 * FULL), (10, 2 * FULL, PUSH), (400, 100, PUSH))
    small = [
        segment(at, start, size, flags)
        for at, start, size, flags in [
            (2, 1, FULL, p.ACK), (3, 1 + FULL, FULL, p.ACK), (12, 1 + 2 * FULL, FULL, p.ACK),
            (13, 1 + 3 * FULL, FULL, PUSH), (402, 1 + 4 * FULL, 100, PUSH),
        ]
    ]  # fmt: skip
    answers = [segment(at, 1, 0, ends=(B, A)) for at in (1, 11, 401)]
    others = [segment(5, 1, 9, ends=(B, C))]
    captures = {
        "worker-1.pcap": sorted([*large, *answers], key=lambda each: each.time_ns),
        "worker-2.pcap": sorted([*small, *answers, *others], key=lambda each: each.time_ns),
    }
    with ingest(tmp_path, captures) as dataset:
        found = dataset.sql(
            "SELECT stream_offset, bytes, m.packets, end_source FROM messages AS m JOIN flows USING (flow_id) "
            "WHERE dst_ip = $1 AND src_ip = $2 ORDER BY message", [B, A],
        ).rows()  # fmt: skip
        assert found == [(0, 4 * FULL, 2, "silence"), (4 * FULL, 100, 1, "short_segment")]


def test_a_message_goes_on_in_the_next_file(tmp_path: Path) -> None:
    """Numbers begin anew between them."""
    packets = stream((0, FULL), (10, FULL), (20, FULL), (30, 100), (500, 30), start=2**32 - 2 * FULL + 10)
    files = {"x.pcap": packets[:2], "x.pcap1": packets[2:]}
    with ingest(tmp_path, files) as dataset:
        assert messages(dataset) == [(0, 3 * FULL + 100, 4, "short_segment"), (3 * FULL + 100, 30, 1, "last")]


def test_the_option(tmp_path: Path) -> None:
    with ingest(tmp_path, {"a.pcap": STREAMS["silence"][0]}, silence_us=205) as dataset:
        assert messages(dataset) == [(0, 200, 2, "silence"), (200, 150, 2, "short_segment")]


# --- RoCEv2

WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_LAST_IMM, WRITE_ONLY, WRITE_ONLY_IMM = range(6, 12)
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_LAST_IMM, SEND_ONLY = range(5)
ACKNOWLEDGE = 17
HEADERS = {WRITE_FIRST: 16, WRITE_LAST_IMM: 4, WRITE_ONLY: 16, WRITE_ONLY_IMM: 20, SEND_LAST_IMM: 4, ACKNOWLEDGE: 4}


def roce(at_us: float, opcode: int, number: int, size: int = 0, pad: int = 0, queue_pair: int = 1) -> p.Record:
    body = p.roce(bytes(HEADERS.get(opcode, 0) + size + pad), opcode, queue_pair)
    body = body[:1] + bytes([pad << 4]) + body[2:8] + bytes([0]) + number.to_bytes(3, "big") + body[12:]
    frame = p.ethernet(p.ipv4(p.udp(body, 50000, p.ROCE_PORT), A, B, p.UDP))
    return p.Record(BEGIN_NS + round(at_us * US), frame)


WRITES = [
    roce(0, WRITE_FIRST, 2**24 - 2, 1024), roce(1, WRITE_MIDDLE, 2**24 - 1, 1024), roce(900, WRITE_MIDDLE, 0, 1024),
    roce(901, WRITE_LAST_IMM, 1, 8),
    roce(902, WRITE_ONLY_IMM, 2, 62, pad=2), roce(903, WRITE_ONLY, 3, 0),
    roce(904, WRITE_FIRST, 4, 1024), roce(905, WRITE_LAST, 5, 4),
    roce(910, WRITE_FIRST, 4, 1024), roce(911, WRITE_LAST, 5, 4),  # sent again
    roce(920, SEND_FIRST, 6, 1024), roce(921, SEND_MIDDLE, 7, 1024),  # its LAST is missing
    roce(930, SEND_ONLY, 9, 100), roce(931, SEND_FIRST, 10, 1024),
]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.long_after(1)
def test_messages_of_roce(tmp_path: Path, engine: str) -> None:
    if engine == "pyshark":
        pytest.importorskip("pyshark")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "a.pcap").write_bytes(p.pcap(WRITES))
    with read_folder(folder, engine=engine, packets=True) as dataset:
        assert messages(dataset) == [
            (0, 3080, 4, "opcode"), (3080, 62, 1, "opcode"), (3142, 0, 1, "opcode"), (3142, 1028, 2, "opcode"),
            (4170, 2048, 2, "next_message"), (6218, 100, 1, "opcode"), (6318, 1024, 1, "last"),
        ]  # fmt: skip
        assert dataset.sql("SELECT DISTINCT pushed FROM messages").rows() == [(None,)]
        numbers = dataset.sql("SELECT roce_opcode, roce_psn, roce_syndrome, ecn, tcp_seq FROM packets ORDER BY record")
        assert numbers.rows()[:2] == [(WRITE_FIRST, 2**24 - 2, None, 0, None), (WRITE_MIDDLE, 2**24 - 1, None, 0, None)]
