"""The counters of a flow, each declared once.

From this table follow the columns of the facts (capture_facts.py), those of the packet loop's flow table
(compiled/flow_table.py) and how parts of a file are joined (join.py there), the flows in plain Python
(tshark/flows.py), and how the files of a run become flows (reconcile/merged.sql).
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Counter(NamedTuple):
    """A counter, int64; it begins with 0, or is null (in the packet loop -1) until a packet tells it, where `unknown`.

    parts: what becomes of it where a part of a file is joined to those before it: `kept` is the earlier value, `own`
    what statements in join.py do. files: where the rows of a connection in several files become a flow: `first` is the
    first known value, None: the table flows does not have it.
    """

    name: str
    parts: Literal["sum", "min", "max", "kept", "own"] = "sum"
    files: Literal["sum", "min", "max", "first"] | None = "sum"
    unknown: bool = False


COUNTERS = (
    Counter("first_seen_ns", "min", "min"),
    Counter("last_seen_ns", "max", "max"),
    Counter("packets"),
    Counter("wire_bytes"),
    Counter("ip_bytes"),
    Counter("payload_bytes"),
    Counter("captured_bytes"),
    Counter("syn_packets"),
    Counter("fin_packets"),
    Counter("rst_packets"),
    Counter("retransmitted_packets"),
    Counter("retransmitted_bytes"),
    Counter("out_of_order_packets"),
    Counter("out_of_order_bytes"),
    Counter("ce_packets"),
    Counter("ece_packets"),
    Counter("nak_packets"),
    Counter("rnr_packets"),
    Counter("cnp_packets"),
    Counter("psn_repeated_packets"),
    Counter("psn_repeated_bytes"),
    Counter("psn_late_packets"),
    Counter("psn_missing_packets", "own"),
    Counter("opened"),  # segments with SYN and no ACK
    Counter("accepted"),  # with SYN and ACK
    Counter("initial_sequence", "kept", None, unknown=True),  # number of the first SYN
    Counter("mss", "kept", "first", unknown=True),
    Counter("window_scale", "kept", "first", unknown=True),  # shift of the windows, of the first SYN that has it
    Counter("largest_window", "max", "max"),  # as the header has it, of segments with ACK and no SYN, FIN, RST
    Counter("zero_window_packets"),  # of such segments
    Counter("large_packets"),  # whose IP length is above 1,500 bytes
    Counter("large_payload_bytes"),
    Counter("huge_packets"),  # above 9,000, which are large, too
    Counter("huge_payload_bytes"),
    # number of the first segment that occupies sequence space, and the one after the highest, counted on beyond 2^32
    Counter("first_sequence", "own", None, unknown=True),
    Counter("next_sequence", "own", None, unknown=True),
    # the first and the highest acknowledgement number, in the same way
    Counter("first_acknowledged", "own", None, unknown=True),
    Counter("acknowledged", "own", None, unknown=True),
    Counter("forgotten_bytes", files=None),  # of gaps that are not remembered
    # of segments with payload that is new (for messages): the largest payload, and how many have PSH
    Counter("largest_segment_bytes", "max", None),
    Counter("pushed_segments", files=None),
)


#: Counters that are also counted by window, in cells of their own: what these have in place of a step, below all steps.
#: Their `packets` are the count, `wire_bytes` the bytes of data where they were sent again.
NOTES = {
    name: -3 - kind
    for kind, name in enumerate(
        ("ce_packets", "ece_packets", "nak_packets", "rnr_packets", "cnp_packets", "psn_repeated_packets")
    )
}


def merged_by(files: str) -> list[str]:
    """The names of the counters that become a flow's in that way."""
    return [counter.name for counter in COUNTERS if counter.files == files]
