"""A run as a schedule in GOAL, the language of LogGOPSim (github.com/spcl/LogGOPSim) and ATLAHS, in its textual form.

A transfer is a send of one rank and a recv of another under a tag of their own. Before each send a rank calculates;
the calculations of a rank follow one another, and each requires the transfers that were received completely before it
starts. Sizes are bytes, calculations ns or a part of it. A comment names the collective of the sends behind it.

Format: src/LogGOPSim/txt2bin.re. Ranks stand in order; no blank begins a line; a label is defined before it is
required; sizes are 64-bit, tags 32-bit numbers. LogGOPSim takes ns a byte (-G) as an integer: where the links' rate
gives none, all times are in a smaller unit, which the first line and the notes say.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ddnn_traces.export.collectives import load_messages as load
from ddnn_traces.export.simulators import Replay
from ddnn_traces.store.whole_files import whole_file

__all__ = ["load", "write"]


#: Most units of time in a ns; -G is then right to 0.05% from 1 to 10,000 Gbit/s.
_MOST_UNITS = 1_000


def write(replay: Replay, out: Path) -> list[str]:
    """Write the schedule; return notes for the user: how LogGOPSim is called, with the links' rate."""
    units, gap = time_unit(replay.link_mbit)
    said = "ns" if units == 1 else f"1/{units} ns"
    with whole_file(out) as half_written, half_written.open("w", encoding="ascii") as file:
        file.write(f"// Run {replay.name}: {replay.options.size} bytes, calculations in {said}\n")
        file.write(f"num_ranks {len(replay.nodes)}\n")
        for node in replay.nodes["node"]:
            file.writelines([f"\nrank {node} {{\n", *_operations(replay, node, units), "}\n"])
    if gap is None:
        return ["the rate of the links is not declared: choose LogGOPSim's -G, ns a byte"]
    return [f"times are {said}: LogGOPSim -L 0 -o 0 -g 0 -G {gap} of {replay.link_mbit:g} Mbit/s"]


def time_unit(link_mbit: float | None) -> tuple[int, int | None]:
    """Units of time in a ns, and the units that a byte takes at this rate: the integer that LogGOPSim takes as -G."""
    if link_mbit is None:
        return 1, None
    of_byte, units = 8_000 / link_mbit, 1
    while units < _MOST_UNITS and abs(round(of_byte * units) / (of_byte * units) - 1) > 1e-4:
        units *= 10
    return units, max(round(of_byte * units), 1)


def _operations(replay: Replay, node: int, units: int) -> Iterator[str]:
    before = said = None
    for turn, row in replay.turns(node):
        number = row["transfer"]
        if turn == "calc" and row.get("said") != said:
            said = row["said"]
            yield f"// {said}\n"
        if turn == "recv":
            yield f"r{number}: recv {row['size']}b from {row['src']} tag {number}\n"
        elif turn == "send":
            yield f"s{number}: send {row['size']}b to {row['dst']} tag {number}\ns{number} requires c{number}\n"
        else:
            yield f"c{number}: calc {row['calc_ns'] * units}\n"
            if before is not None:
                yield f"c{number} requires c{before}\n"
            yield from (f"c{number} requires r{need}\n" for need in row["needs"])
            before = number
