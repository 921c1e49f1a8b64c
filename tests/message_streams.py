"""The messages of real runs, cut from the packets without the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from independent import FLOW, read_capture, repeated_bytes, text

from ddnn_traces.collectives.streams import Stream

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
SILENCE = 200_000
MSS = 1448


def streams_of(folder: Path) -> list[Stream]:
    """The messages of each flow of a run: cut by a silence, their ends at segments that are not full."""
    packets = np.concatenate([read_capture(path) for path in sorted(folder.glob("*.pcap.xz"))])
    begin, found = int(packets["time"].min()), []
    for number, flow in enumerate(np.unique(packets[FLOW])):
        own = packets[(packets[FLOW] == flow) & (packets["payload"] > 0)]
        own = own[repeated_bytes(own) == 0]
        if len(own):
            time, size = own["time"] - begin, own["payload"]
            start = (own["sequence"].astype(np.int64) - int(own["sequence"][0])) % 2**32
            first = np.flatnonzero(np.diff(time, prepend=-(10**12)) > SILENCE)
            last = np.append(first[1:], len(own)) - 1
            ends = (start + size)[(size % MSS != 0) & (size > 64)]
            found.append(
                Stream(
                    number, text(flow["src"]), text(flow["dst"]), start[first], (start + size)[last] - start[first],
                    time[first], time[last], ends,
                )
            )  # fmt: skip
    return found
