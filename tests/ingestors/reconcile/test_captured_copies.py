"""Captures that hold each packet several times, as of all interfaces of a host with a bridge."""

from __future__ import annotations

import re
from pathlib import Path

import packets as p
import pytest
from small_runs import BEGIN_NS, SPACING_NS, A, B, found_by, read_folder
from tools import Notes

from ddnn_traces.ingestors.reconcile.run_tables import LEAST_COPIED_BYTES, LEAST_COPIED_SHARE
from ddnn_traces.query import catalogue, checks


def connection(copies: int, again: int = 0) -> list[p.Record]:
    """SYN and 40 segments of 1,000 bytes, the first of them sent again; of each packet so many copies, 2 us apart."""
    numbers = [*range(40), *range(again)]
    segments = [p.tcp(seq=0, flags=p.SYN), *(p.tcp(bytes(1000), seq=1 + 1000 * number) for number in numbers)]
    return [
        p.Record(BEGIN_NS + place * SPACING_NS + 2000 * copy, p.sll2(p.ipv4(segment, A, B)))
        for place, segment in enumerate(segments)
        for copy in range(copies)
    ]


@pytest.mark.parametrize(
    ("copies", "again", "share"),
    [pytest.param(1, 10, None, marks=pytest.mark.long), pytest.param(2, 0, 50, marks=pytest.mark.long), (3, 0, 67)],
)
def test_copies_of_packets_are_said(copies: int, again: int, share: int | None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "any.pcap").write_bytes(p.pcap(connection(copies, again), link=p.SLL2))
    notes = Notes()
    with read_folder(folder, notes) as dataset:
        found = found_by(dataset, "captured_copies")
    said = [warning for warning in notes.warnings if "is there again" in warning]
    if share is None:
        assert (said, found) == ([], [])
        return
    assert [warning.partition(", as")[0] for warning in said] == [
        f"run/any.pcap: {share}% of the payload of 1 TCP flow is there again"
    ]
    assert [(row["run_id"], row["flows"], round(100 * row["repeated_share"])) for row in found] == [("run", 1, share)]


def test_the_check_and_the_warning_have_the_same_limits() -> None:
    """The check is plain SQL over flows, the warning is of files: the two numbers stand in both."""
    sql = catalogue.read(checks.folder() / "captured_copies.sql").sql
    limits = re.findall(r"payload_bytes >= ([\d_]+) AND retransmitted_bytes >= ([\d.]+) \* payload_bytes", sql)
    assert [(int(least), float(share)) for least, share in limits] == [(LEAST_COPIED_BYTES, LEAST_COPIED_SHARE)]
