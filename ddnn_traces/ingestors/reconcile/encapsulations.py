"""One number for a tunnel that several files of a run have seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ddnn_traces.ingestors.facts import ENCAPSULATIONS

_Tunnel = tuple[
    Any, ...
]  # that of the tunnel around it (empty for none), then the other columns, identifier -1 for none
_COLUMNS = ENCAPSULATIONS.names[1:]


def number_encapsulations(files: Sequence[pa.Table]) -> tuple[list[dict[str, Any]], list[list[int]]]:
    """Rows of the table `encapsulations`, and for each file the encapsulation_id of each of its rows.

    files: each file's tunnels, as facts.ENCAPSULATIONS.
    """
    chains = [_chains(file.to_pylist()) for file in files]
    numbers = {chain: number for number, chain in enumerate(sorted({chain for file in chains for chain in file}))}
    rows = []
    for chain, number in numbers.items():
        row = dict(zip(_COLUMNS, chain[1:], strict=True))
        row |= {"encapsulation_id": number, "parent_id": numbers.get(chain[0])}
        row["identifier"] = None if row["identifier"] < 0 else row["identifier"]
        rows.append(row)
    return rows, [[numbers[chain] for chain in file] for file in chains]


def _chains(rows: list[dict[str, Any]]) -> list[_Tunnel]:
    chains: list[_Tunnel] = []
    for row in rows:  # a tunnel comes behind the one around it
        around = () if row["parent"] is None else chains[row["parent"]]
        values = [row[name] for name in _COLUMNS[:-1]]
        chains.append((around, *values, -1 if row["identifier"] is None else row["identifier"]))
    return chains
