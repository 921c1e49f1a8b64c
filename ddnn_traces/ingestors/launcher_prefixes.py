"""What launchers put before each line that a process prints: it is no part of the line, and says whose line it is.

    Open MPI, --tag-output      [1,0]<stdout>:LINE, since 5.0 [1,0]<stdout>: LINE
      with --timestamp-output   Thu Nov 26 10:00:00 2026[1,0]<stdout>:LINE
      without tags              Thu Nov 26 10:00:00 2026<stdout>:LINE
    horovodrun                  with MPI as Open MPI, with gloo [0]<stdout>:LINE
      --prefix-output-with-timestamp
                                the same after a time: Thu Nov 26 10:00:00 2026[0]<stdout>:LINE
    kungfu-run                  [192.168.17.50.10000::stdout] LINE, address and port or "stderr" in a terminal's colours

docs/zerwas_dataset.md names the source of each. The times are the launcher's, to a second, and not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_COLOUR = r"(?:\x1b\[[0-9;]{0,16}m)?"
_TIME = r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-3][0-9] [0-9:]{8} [0-9]{4})"
_PREFIX = re.compile(
    rf"{_TIME}?\[(?:[^\],\s]{{1,64}},)?(?P<rank>[0-9]{{1,9}})\]<std(?:out|err|diag)>: ?"
    rf"|{_TIME}<std(?:out|err|diag)>: ?"
    rf"|\[{_COLOUR}(?P<peer>[^\]\s\x1b]{{1,100}}?){_COLOUR}::{_COLOUR}std(?:out|err){_COLOUR}\] "
)

#: Who printed a line: the number of a rank, or the name that kungfu-run gives a process.
Source = int | str


def without_prefix(line: str) -> tuple[Source | None, str]:
    """Who printed a line, None where no prefix says so, and the line without its prefix."""
    found = _PREFIX.match(line)
    if found is None:
        return None, line
    rank, peer = found["rank"], found["peer"]
    return peer if rank is None else int(rank), line[found.end() :]


def ranks_of(sources: Iterable[Source]) -> dict[Source, int | None]:
    """The rank of each source. Processes of kungfu-run have theirs in the order of addresses and ports, where it shows
    several; of a single one it is not known."""
    distinct = set(sources)
    peers = sorted((source for source in distinct if isinstance(source, str)), key=_place)
    ranks: dict[Source, int | None] = {source: source for source in distinct if isinstance(source, int)}
    return ranks | {peer: number if len(peers) > 1 else None for number, peer in enumerate(peers)}


def _place(peer: str) -> tuple[list[int], str]:
    return [int(part) for part in re.findall("[0-9]{1,18}", peer)], peer
