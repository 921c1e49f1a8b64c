"""What captures lost: bytes that were sent, as sequence and acknowledgement numbers prove, and are in no file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import packets as p
import pytest
from small_runs import BEGIN_NS, SPACING_NS, A, B, found_by, ingest_frames, read_folder, write_captures, write_frames
from tools import Notes

from ddnn_traces.query.dataset import Dataset

UP, DOWN = (40000, 5000), (5000, 40000)
SIZE = 1000
STARTS = [2**32 - 30_000, 5000, 2**32 - 1, 2**31 - 30_000]
LOST = [range(0, 96, 6), range(84, 100), range(16), range(40, 56)]


def up(number: int, size: int = 0, flags: int = p.ACK, acknowledged: int = 901) -> bytes:
    """A segment of the connection's client, which sends the data."""
    return p.ethernet(p.ipv4(p.tcp(bytes(size), *UP, number, flags, b"", acknowledged % 2**32), A, B))


def down(acknowledged: int, flags: int = p.ACK, number: int = 901, size: int = 0) -> bytes:
    return p.ethernet(p.ipv4(p.tcp(bytes(size), *DOWN, number, flags, b"", acknowledged % 2**32), B, A))


def opening(start: int) -> list[bytes]:
    return [up(start - 1, flags=p.SYN, acknowledged=0), down(start, p.SYN | p.ACK, 900), up(start)]


def closing(end: int) -> list[bytes]:
    return [up(end, flags=p.FIN | p.ACK), down(end + 1, p.FIN | p.ACK), up(end + 1, acknowledged=902)]


def data(start: int, segments: Sequence[int], lost: Collection[int] = ()) -> list[bytes]:
    """Segments of these numbers and an acknowledgement of each; those lost are not captured."""
    frames = []
    for i in segments:
        frames += [] if i in lost else [up(start + i * SIZE, SIZE)]
        frames.append(down(start + (i + 1) * SIZE))
    return frames


def missed(dataset: Dataset, sender: str = A) -> tuple[int | None, int | None]:
    ((*found,),) = dataset.sql(
        f"SELECT missed_bytes, unacknowledged_missed_bytes FROM flows WHERE src_ip = '{sender}'"
    ).rows()
    return tuple(found)  # type: ignore[return-value]


def missed_of(folder: Path, frames: list[bytes]) -> tuple[int | None, int | None]:
    with ingest_frames(folder, {"a.pcap": frames}) as dataset:
        return missed(dataset)


@pytest.mark.parametrize(
    ("start", "lost"),
    [
        pytest.param(
            start, lost, marks=() if row == column == 0 else pytest.mark.nightly if row != column else pytest.mark.long
        )
        for row, start in enumerate(STARTS)
        for column, lost in enumerate(LOST)
    ],
)
def test_sixteen_of_a_hundred_segments(start: int, lost: range, tmp_path: Path) -> None:
    """Acknowledged, and not captured: at the start, in the middle, at the end, and scattered in 16 gaps."""
    frames = opening(start) + data(start, range(100), lost) + closing(start + 100 * SIZE)
    with ingest_frames(tmp_path, {"a.pcap": frames}) as dataset:
        assert missed(dataset) == (16 * SIZE, 0)
        assert missed(dataset, B) == (0, 0)
        (capture,) = dataset.query("capture_loss").to_dicts()
        assert (capture["missed_bytes"], capture["percent_lost"], capture["flagged"]) == (16 * SIZE, 16, True)
        (pair,) = dataset.query("flow_capture_loss").to_dicts()
        assert (pair["missed_bytes"], pair["reverse_missed_bytes"], pair["percent_lost"]) == (16 * SIZE, 0, 16)
        (run,) = found_by(dataset, "capture_loss")
        assert (run["missed_bytes"], run["percent_lost"]) == (16 * SIZE, 16)


@pytest.mark.parametrize(
    ("segments", "lost", "dropped", "said"),
    [
        (100, 16, 0, "16% of the TCP payload by its sequence numbers"),
        (100, 0, 1, "0.48% of the packets by their counters"),
        (100, 16, 1, "16% of the TCP payload by its sequence numbers and 0.52% of the packets by their counters"),
        (2000, 1, 0, "0.05% of the TCP payload by its sequence numbers"),
        (100, 0, 0, None),
    ],
)
@pytest.mark.long_after(2)
def test_ingest_states_what_was_lost(segments: int, lost: int, dropped: int, said: str | None, tmp_path: Path) -> None:
    """As in run_capture_loss; below the bar of the check it is no warning. An unchanged run is warned of again."""
    frames = opening(5000) + data(5000, range(segments), range(40, 40 + lost)) + closing(5000 + segments * SIZE)
    folder = write_frames(tmp_path / "run", {"a.pcap": frames})
    log = f"{len(frames)} packets captured\n1 packets received by filter\n{dropped} packets dropped by kernel\n"
    (folder / "a.log").write_text(log)
    messages, again = Notes(), Notes()
    with read_folder(folder, messages) as dataset:
        (row,) = dataset.query("run_capture_loss").to_dicts()
    assert row["flagged"] == bool(messages.warnings) == (lost > 1 or dropped > 0)
    stated = [line for line in [*messages.warnings, *messages.notes] if "lost" in line]
    assert bool(stated) == bool(said)
    assert all(line.startswith(f"run: its captures lost {said}") and "DATASET capture_loss" in line for line in stated)
    read_folder(folder, again).close()
    assert again.warnings == [f"run {warning}" for warning in messages.warnings]


@pytest.mark.long
def test_nothing_is_missed(tmp_path: Path) -> None:
    whole = opening(5000) + data(5000, range(20)) + closing(5000 + 20 * SIZE)
    early = [frame for i in range(3, 43, 2) for frame in (whole[i + 1], whole[i])]
    probes = [up(5000 + 20 * SIZE - 1), up(5000 + 20 * SIZE - 1, 1), down(5000 + 20 * SIZE)]
    cases = {
        "whole": whole,
        "acknowledged before it was captured": [*whole[:3], *early, *closing(25_000)],
        "backwards": opening(5000) + data(5000, range(20))[::-1] + closing(25_000),
        "all sent twice": opening(5000) + data(5000, range(20)) * 2 + closing(25_000),
        "keepalive and zero-window probes": opening(5000) + data(5000, range(20)) + probes + closing(25_000),
        "from the middle on": data(5000, range(7, 20)) + closing(25_000),
        "reset": opening(5000) + data(5000, range(20)) + [up(25_000, flags=p.RST), down(77, p.RST | p.ACK)],
        "FIN not captured": whole[:-3] + whole[-2:],
        "FIN not captured, and no answer": [*whole[:-3], down(25_001)],
        "SYN not captured": whole[1:],
        "both SYNs not captured": whole[2:],
    }  # fmt: skip
    found = {name: missed_of(tmp_path / name, frames) for name, frames in cases.items()}
    assert found == dict.fromkeys(cases, (0, 0))


def test_many_gaps_that_retransmissions_fill(tmp_path: Path) -> None:
    """Lost on the way to the capture, and sent again: 40 gaps at a time are none in the end."""
    sent = [up(5000 + i * SIZE, SIZE) for i in range(80)]
    frames = [*opening(5000), *sent[::2], up(5000 + 80 * SIZE, SIZE), *sent[1::2], down(5000 + 81 * SIZE)]
    assert missed_of(tmp_path, frames) == (0, 0)


def test_gap_that_the_peer_did_not_acknowledge(tmp_path: Path) -> None:
    """The network may have lost it: the check takes no notice."""
    frames = [*opening(5000), up(5000, SIZE), down(6000), up(8000, SIZE), down(6000), down(6500)]
    with ingest_frames(tmp_path, {"a.pcap": frames}) as dataset:
        assert missed(dataset) == (2 * SIZE, 1500)
        assert dataset.query("run_capture_loss")["lost_bytes"].to_list() == [500]


def test_one_direction_is_captured(tmp_path: Path) -> None:
    frames = [up(5000 + i * SIZE, SIZE) for i in range(100) if i % 6 or i > 95]
    assert missed_of(tmp_path, frames) == (
        15 * SIZE,
        0,
    )  # the first one was sent before the capture, as far as it shows


def test_no_data_is_captured(tmp_path: Path) -> None:
    frames = opening(5000) + data(5000, range(100), range(100)) + closing(5000 + 100 * SIZE)
    assert missed_of(tmp_path / "with both SYN", frames) == (100 * SIZE, 0)
    assert missed_of(tmp_path / "with that of the peer", frames[1:]) == (100 * SIZE, 0)


def test_reused_ports(tmp_path: Path) -> None:
    """Each connection has its own numbers; acknowledgements count where both directions have as many connections."""
    first = opening(5000) + data(5000, range(10), [9]) + closing(5000 + 10 * SIZE)
    second = opening(900_000) + data(900_000, range(10), [4, 9])
    with ingest_frames(tmp_path / "both", {"a.pcap": first + second}) as dataset:
        found = dataset.sql("SELECT missed_bytes FROM flows WHERE src_ip = ? ORDER BY connection", [A])
        assert found["missed_bytes"].to_list() == [SIZE, 2 * SIZE]
    without_answer = [frame for frame in second if frame != down(900_000, p.SYN | p.ACK, 900)]
    with ingest_frames(tmp_path / "one", {"a.pcap": first + without_answer}) as dataset:
        found = dataset.sql("SELECT missed_bytes FROM flows WHERE src_ip = ? ORDER BY connection", [A])
        assert found["missed_bytes"].to_list() == [SIZE, SIZE] or found["missed_bytes"].to_list() == [0, SIZE]


def test_fragments_and_cut_headers_leave_it_unknown(tmp_path: Path) -> None:
    pieces = [p.ethernet(each) for each in p.fragments(p.tcp(bytes(1600), *UP, 5000), [800])]
    with ingest_frames(tmp_path, {"a.pcap": pieces}) as dataset:
        assert dataset.sql("SELECT missed_bytes FROM flows")["missed_bytes"].to_list() == [None]
        unknown = dataset.query("unchecked").rows()
        assert ("run", "capture_loss", False) in [row[:3] for row in unknown]


def ingest_parts(folder: Path, *parts: list[bytes]) -> Dataset:
    """Files of one series: each begins when the one before has ended."""
    run = write_captures(folder / "run", {})
    for number, frames in enumerate(parts):
        begin = BEGIN_NS + number * 10**9
        records = [p.Record(begin + i * SPACING_NS, frame) for i, frame in enumerate(frames)]
        (run / f"a.pcap{number or ''}").write_bytes(p.pcap(records))
    return read_folder(run)


def test_files_that_follow_each_other(tmp_path: Path) -> None:
    """As tcpdump -C writes: what the next file begins with is no loss; what is in neither is one."""
    frames = opening(5000) + data(5000, range(100), [30, 31, 70])
    with ingest_parts(tmp_path / "all", frames[:83], frames[83:]) as dataset:
        assert missed(dataset)[0] == 3 * SIZE
    with ingest_parts(tmp_path / "hole", frames[:80], frames[100:]) as dataset:
        lost = [frame for frame in frames[80:100] if len(frame) > SIZE]
        assert missed(dataset)[0] == (3 + len(lost)) * SIZE


@pytest.mark.long
def test_copy_that_lost_less_counts(tmp_path: Path) -> None:
    """The sender's capture lost a hundredth, the receiver's nothing: the receiver's counts, and nothing is missed."""
    lost = opening(5000) + data(5000, range(1000), range(0, 1000, 100)) + closing(5000 + 1000 * SIZE)
    whole = opening(5000) + data(5000, range(1000)) + closing(5000 + 1000 * SIZE)
    other = [p.ethernet(p.ipv4(p.tcp(b"x", 1, 2), host, "10.0.0.9")) for host in (A, B)]  # so that each has a vantage
    with ingest_frames(tmp_path, {"worker-1.pcap": [*lost, other[0]], "worker-2.pcap": [*whole, other[1]]}) as dataset:
        found = dataset.sql("SELECT payload_bytes, missed_bytes FROM flows WHERE src_ip = ? AND dst_ip = ?", [A, B])
        assert found.rows() == [(1000 * SIZE, 0)]
        assert dataset.query("capture_loss")["missed_bytes"].to_list() == [10 * SIZE, 0]
        assert found_by(dataset, "capture_loss") == []


@pytest.mark.parametrize(("kept", "said"), [(100, None), (20, "80% of the packets by their counters")])
def test_a_whole_file_of_fewer_packets_than_were_counted_is_known(kept: int, said: str | None, tmp_path: Path) -> None:
    """Cut at the end of a packet, it is complete, and its sequence numbers have no gap."""
    frames = (opening(5000) + data(5000, range(100), range(0)))[:100]
    folder = write_frames(tmp_path / "run", {"a.pcap": frames[:kept]})
    (folder / "a.log").write_text("100 packets captured\n100 packets received by filter\n0 packets dropped by kernel\n")
    messages = Notes()
    with read_folder(folder, messages) as dataset:
        (row,) = dataset.query("run_capture_loss").to_dicts()
        assert (row["lost_bytes"], row["dropped_packets"], row["flagged"]) == (0, 100 - kept, kept < 100)
        assert bool(found_by(dataset, "capture_loss")) == (kept < 100)
    assert any(f"its captures lost {said}" in warning for warning in messages.warnings) == (kept < 100)
