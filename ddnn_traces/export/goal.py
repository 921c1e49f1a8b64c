"""A run as a schedule in GOAL, the language of LogGOPSim (github.com/spcl/LogGOPSim) and ATLAHS, in its textual form.

A transfer is a send of one rank and a recv of another under a tag of their own. Before each send a rank calculates;
the calculations of a rank follow one another, and each requires the transfers that were received completely before it
starts. Sizes are bytes, calculations ns. A comment names the collective of the sends behind it (--collectives).

Format: src/LogGOPSim/txt2bin.re. Ranks stand in order; no blank begins a line; a label is defined before it is
required; sizes are 64-bit, tags 32-bit numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ddnn_traces.export.collectives import load_messages as load
from ddnn_traces.export.simulators import Replay
from ddnn_traces.store.whole_files import whole_file

__all__ = ["load", "write"]


def write(replay: Replay, out: Path) -> list[str]:
    """Write the schedule; return notes for the user."""
    with whole_file(out) as half_written, half_written.open("w", encoding="ascii") as file:
        file.write(f"// Run {replay.name}: {replay.options.size} bytes, calculations in ns\n")
        file.write(f"num_ranks {len(replay.nodes)}\n")
        for node in replay.nodes["node"]:
            file.writelines([f"\nrank {node} {{\n", *_operations(replay, node), "}\n"])
    return []


def _operations(replay: Replay, node: int) -> Iterator[str]:
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
            yield f"c{number}: calc {row['calc_ns']}\n"
            if before is not None:
                yield f"c{number} requires c{before}\n"
            yield from (f"c{number} requires r{need}\n" for need in row["needs"])
            before = number
