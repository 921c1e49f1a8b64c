"""The packet loop: everything that is done for each packet, compiled by numba. docs/packets.md has the rules.

`scan.scan` reads records; `headers` finds the IP packet and its ports, `tunnels` those inside tunnels; `fragments`
finds the flow of fragments; `flow_table` finds the flow and counts; `connections` follows TCP; `join` joins the facts
of parts of a file. tests/naive is the same in plain Python, one packet at a time, and the tests compare the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddnn_traces import cache, capture_format
from ddnn_traces.pcap import flow_counters, link_types

#: All that is compiled into the loop, constants included (jit.py is always): where one changes, all is compiled again.
#: numba is not imported here: whether it is to compile is asked before.
_TABLES = (capture_format, flow_counters, link_types)
SOURCES = (*sorted(Path(__file__).parent.glob("*.py")), *(Path(str(table.__file__)) for table in _TABLES))
FOLDER = cache.code_folder("packet-loop", SOURCES)


def compiled(function: Any) -> Any:
    """A function of the loop that Python calls."""
    from ddnn_traces import jit

    return jit.compiled(function, FOLDER)


def is_cached() -> bool:
    """Whether the packet loop was compiled before, and its code is on disk."""
    return FOLDER is not None and any(FOLDER.rglob("scan.scan-*.nbc"))
