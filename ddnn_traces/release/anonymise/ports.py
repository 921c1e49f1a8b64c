"""Ports, TCP's and UDP's alike: kept, permuted within their class, or only their class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddnn_traces.release.anonymise.key import Key

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

KINDS = ("kept", "permuted", "classed")

#: First port of each class, and its representative: 1 to 1023 are well-known services, and from 32768 on systems draw
#: the ports of clients (Linux; RFC 6335 says from 49152). Ingest tells servers by the same bounds.
CLASSES = (1, 1024, 32768)

#: Ports that stay what they are. 0: no port. Tunnels (VXLAN 4789 and 8472, GENEVE 6081) and RoCEv2 (4791) are told
#: by their port alone, and these say what is carried, not who carries it.
FIXED = (0, 4789, 4791, 6081, 8472)


def table(key: Key, kind: str) -> npt.NDArray[np.int64]:
    """The new number of every port, int64 (65536,)."""
    import numpy as np

    numbers = np.arange(65536, dtype=np.int64)
    if kind == "kept":
        return numbers
    mapped = numbers.copy()
    for first, behind in zip(CLASSES, (*CLASSES[1:], 65536), strict=True):
        members = np.setdiff1d(np.arange(first, behind), FIXED)
        if kind == "classed":
            mapped[members] = first
        else:
            draws = np.frombuffer(key.derive(f"ports {first}", 8 * len(members)), ">u8")
            mapped[members] = members[np.lexsort((members, draws))]
    return mapped
