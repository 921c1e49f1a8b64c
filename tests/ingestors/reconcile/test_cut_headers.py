"""Captures whose snapshot length cuts TCP headers."""

from __future__ import annotations

from pathlib import Path

import packets as p
import pytest
from small_runs import BEGIN_NS, SPACING_NS, read_folder
from tools import Notes

#: With TCP's time stamps a header of IPv6 has 86 bytes, 74 without them; the flags end at byte 68.
ONE, TWO = "fd00::1", "fd00::2"


def connection() -> list[p.Record]:
    """20 segments of 1,000 bytes, each with its acknowledgement."""
    there = [p.tcp(bytes(1000), seq=1000 * i, options=p.TIMESTAMPS) for i in range(20)]
    back = [p.tcp(b"", 5000, 40000, acknowledgement=1000 * (i + 1), options=p.TIMESTAMPS) for i in range(20)]
    sent = [
        p.ipv6(one, *ends)
        for pair in zip(there, back, strict=True)
        for one, ends in zip(pair, ((ONE, TWO), (TWO, ONE)), strict=True)
    ]
    return [p.Record(BEGIN_NS + i * SPACING_NS, p.ethernet(packet, p.IPV6)) for i, packet in enumerate(sent)]


@pytest.mark.parametrize("snaplen", [64, 68, 128])
@pytest.mark.long_after(1)
def test_a_snapshot_length_that_cuts_tcp_headers_is_said(snaplen: int, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "worker-1.pcap").write_bytes(p.pcap(connection(), snaplen=snaplen))
    notes = Notes()
    with read_folder(folder, notes) as dataset:
        rows = dataset.query("cut_headers").rows(named=True)
        [reason] = dataset.query("unchecked").filter(check_name="capture_loss")["reason"] if snaplen == 64 else [""]
    said = [warning for warning in notes.warnings if "snapshot length" in warning]
    if snaplen > 64:
        assert (said, rows) == ([], [])
        return
    [warning] = said
    assert warning.startswith(
        "run/worker-1.pcap: the snapshot length cuts the TCP headers of 2 flows: 64 bytes of each packet are there, "
        "the headers alone need 74; "
    )
    assert warning.endswith("Capture with 'tcpdump -s 128'")
    [row] = rows
    assert (row["flows"], row["cut_flows"], row["kept_bytes"], row["header_bytes"], row["enough_bytes"]) == (
        2,
        2,
        64,
        74,
        128,
    )
    assert reason == row["problem"]
