"""tshark as an independent reference of RoCE: header fields packet by packet, and what follows from them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import packets as p
import pytest
import roce_traffic as roce
from captures_by_hand import in_time
from readings import read
from tools import mostly_long, needs_tool

FIELDS = (
    "infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.aeth.syndrome", "infiniband.aeth.syndrome.opcode",
    "ip.dsfield.ecn",
)  # fmt: skip


def by_tshark(path: Path) -> list[list[int | None]]:
    """FIELDS of each record."""
    command = [needs_tool("tshark"), "-n", "-r", str(path), "-T", "fields", "-E", "separator=\t"]
    command += [word for name in FIELDS for word in ("-e", name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [[int(text, 0) if text else None for text in line.split("\t")] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("carrier", [name for name in roce.CARRIERS if roce.LINK_OF.get(name) != 247])
@pytest.mark.parametrize("selective", mostly_long([False, True], False))
@pytest.mark.long_after(3)
def test_fields_and_counts(selective: bool, carrier: str, tmp_path: Path) -> None:
    packets: list[roce.Sent] = []
    number = 2**24 - 10
    for first in (roce.SEND, roce.WRITE):
        for size, immediate in ((8 * roce.MTU, False), (4 * roce.MTU + 3, True), (10, True), (0, False)):
            packets += roce.message(first, number, size, immediate)
            number = packets[-1].number + 1
    answers = roce.message(roce.READ_ANSWER, number, 6 * roce.MTU)
    sent = [packet for packet, _ in roce.lossy(packets, [3, 20], 4, selective)]
    sent += [roce.read_request(number, 6 * roce.MTU), *(packet for packet, _ in roce.lossy(answers, [2], 2, selective))]
    sent += [roce.acknowledgement(number, roce.RNR_NAK), roce.acknowledgement(number, 0x1F), roce.notification()]
    sent += [roce.Sent(10, number + 6, bytes(16 + 8), 8, ecn) for ecn in range(4)]
    link = roce.LINK_OF.get(carrier, p.ETHERNET)  # tshark reads InfiniBand inside of ERF alone
    data = p.pcap(in_time(*(packet.frame(carrier) for packet in sent)), link=link)
    path = tmp_path / "capture"
    path.write_bytes(data)
    facts, told = read(data), by_tshark(path)
    ours = [[*row[-3:], row[-4]] for row in facts.packets]  # opcode, number, syndrome; ECN
    assert ours == [[*row[:3], row[4]] for row in told]
    flows = facts.flows.values()
    kinds = [row[3] for row in told]
    assert sum(flow["nak_packets"] for flow in flows) == kinds.count(3) > 0
    assert sum(flow["rnr_packets"] for flow in flows) == kinds.count(1) == 1
    assert sum(flow["cnp_packets"] for flow in flows) == sum(row[0] == 0x81 for row in told) == 1
    assert sum(flow["ce_packets"] for flow in flows) == sum(row[4] == 3 for row in told) == (carrier == "v2")
    # a number that a stream had before, by sets of what tshark reads
    seen, again = set(), 0
    for opcode, psn, *_ in told:
        if opcode not in (roce.ACKNOWLEDGE, roce.CNP):
            key = 13 <= (opcode or 0) <= 16, psn
            again += key in seen
            seen.add(key)
    assert sum(flow["psn_repeated_packets"] for flow in flows) == again > 0
