"""The facts that an engine reads from one capture file: the interface between engines and tables.

What grows with the capture, cells and packets, is rows on disk (`Spill`); all else is in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.pcap.flow_counters import COUNTERS
from ddnn_traces.store import hashes
from ddnn_traces.text import valid_text

#: Of the files of cells and packets; a reader holds one row group of each file.
ROW_GROUP_ROWS = 1 << 14

#: The path that stands for standard input.
STDIN = Path("-")

#: Step of a packet when the file has no log; before the first step it is -1, after the last the number of steps.
NO_STEP = -2

#: A message of TCP ends by a longer silence of its flow, without another option.
SILENCE_NS = 200_000

IN_FLOWS = "in_flows"
DUPLICATE_VANTAGE = "duplicate_vantage"
#: Packets that --filter excludes.
FILTERED = "filtered"
#: Reasons why a record is not in a flow, in the order of the packet loop's codes.
SKIP_REASONS = ("not_ip", "malformed", "cut_short", "unknown_link_type")

Int64Array = npt.NDArray[np.int64]

#: One row a connection of a directed five-tuple of one file (docs/packets.md), for RoCEv2 one an opcode, in the order
#: of first appearance. Columns as in schemas/flows.toml, the counters as in flow_counters.py, and:
#: flow: number of the row, from 0; cells, samples and packets refer to it.
#: kept: whether --filter includes it.
#: encapsulation: row of `encapsulations` that the flow is in; null outside tunnels.
#: interface: where it was captured (link_types.told_interface); null where the link type does not tell it.
#: followed: whether the numbers of all packets are known: no fragments, none whose TCP header was not captured.
#: gaps: start and end of the numbers between first_sequence and next_sequence that were not captured, ascending.
FLOW_FACTS = pa.schema(
    [
        ("flow", pa.int32()),
        ("kept", pa.bool_()),
        ("src_ip", pa.string()),
        ("dst_ip", pa.string()),
        ("protocol", pa.int64()),
        ("src_port", pa.int64()),
        ("dst_port", pa.int64()),
        ("encapsulation", pa.int64()),
        ("interface", pa.int64()),
        ("roce_dest_qp", pa.int64()),
        ("roce_opcode", pa.int64()),
        *[(counter.name, pa.int64()) for counter in COUNTERS],
        ("followed", pa.bool_()),
        ("gaps", pa.list_(pa.list_(pa.int64(), 2))),
    ]
)

#: One row a tunnel of one file, in the order of first appearance. parent: row of the tunnel around it, null where there
#: is no such tunnel.
ENCAPSULATIONS = pa.schema(
    [
        ("parent", pa.int64()),
        ("kind", pa.string()),
        ("src_ip", pa.string()),
        ("dst_ip", pa.string()),
        ("protocol", pa.int64()),
        ("src_port", pa.int64()),
        ("dst_port", pa.int64()),
        ("identifier", pa.int64()),
    ]
)

#: One row a flow (row number in the flow facts), base window (time // window_ns) and step. The same cell may occur
#: in several rows, which add up. Those with one of flow_counters.NOTES in place of the
#: step count packets that others count, too.
CELLS = pa.schema(
    [
        ("flow", pa.int32()),
        ("window", pa.int64()),
        ("step", pa.int32()),
        ("packets", pa.int64()),
        ("wire_bytes", pa.int64()),
        ("payload_bytes", pa.int64()),
        ("retransmitted_bytes", pa.int64()),
    ]
)

#: One row a packet in a flow, mostly in the order of the file (fragments may have waited). record: its number in the
#: file, from 0. The others from tcp_flags on: null where
#: the packet's headers do not tell them, or were not captured.
PACKETS = pa.schema(
    [
        ("record", pa.int64()),
        ("flow", pa.int32()),
        ("ts_ns", pa.int64()),
        ("wire_bytes", pa.int64()),
        ("ip_bytes", pa.int64()),
        ("payload_bytes", pa.int64()),
        ("captured_bytes", pa.int64()),
        ("tcp_flags", pa.int64()),
        ("tcp_seq", pa.int64()),
        ("ecn", pa.int64()),
        ("roce_opcode", pa.int64()),
        ("roce_psn", pa.int64()),
        ("roce_syndrome", pa.int64()),
    ]
)

#: What messages are made of (docs/packets.md): payload of a flow that is new and without a gap in its numbers. start:
#: number of the first byte, counted on as next_sequence (RoCEv2: packet sequence number). largest_bytes: payload of its
#: largest segment; largest_ns: time of the first such; largest_before: how many it has besides its last segment;
#: last_bytes: payload of that. marks: of
#: compiled/trains.py. Where trains are cut between two segments does not change the messages.
TRAINS = pa.schema(
    [
        ("flow", pa.int32()),
        ("first_ns", pa.int64()),
        ("last_ns", pa.int64()),
        ("start", pa.int64()),
        ("bytes", pa.int64()),
        ("packets", pa.int64()),
        ("largest_bytes", pa.int64()),
        ("largest_ns", pa.int64()),
        ("largest_before", pa.int64()),
        ("last_bytes", pa.int64()),
        ("marks", pa.int64()),
    ]
)

#: A sample of the TCP segments with payload, the same ones in every file that they are in: identity is a hash of
#: five-tuple and sequence number, as int64.
SAMPLES = pa.schema([("identity", pa.int64()), ("flow", pa.int32()), ("ts_ns", pa.int64())])


#: Called with the number of bytes of the file and of packets read since the last call.
Progress = Callable[[int, int], None]


def ignore_progress(_bytes: int, _packets: int) -> None:
    """A Progress that does nothing. A function, not a lambda, so that options with it can be pickled."""


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Answer = TypeVar("_Answer", covariant=True)


class Answer(Protocol[_Answer]):
    """What a Pool will have done."""

    def result(self) -> _Answer:
        """Wait for it. Raises what the function raised."""


class Pool(Protocol):
    """Calls functions elsewhere, in threads or on a cluster.

    ahead: calls that should be under way for one file. part_bytes: of a file that one call should read. most_flows: of
    a file with more, the rest is read in one pass, in order, by the caller.
    """

    @property
    def ahead(self) -> int: ...

    @property
    def part_bytes(self) -> int: ...

    @property
    def most_flows(self) -> float: ...

    def submit(
        self, function: Callable[_Arguments, _Result], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Answer[_Result]:
        """Call a function of a module; it, its arguments and its result can be pickled."""


@dataclass(frozen=True)
class ReadOptions:
    """How to read one file.

    step_bounds: start of the first step and the end of every step, int64 ns, ascending; empty without a log.
    spill: path (not yet existing) that the engine writes the cells to, as Parquet.
    silence_ns: after so long without new payload of its flow a message may end; trains do.
    packets: path (not yet existing) that it writes every packet in a flow to, as Parquet; None: not written.
    open_tunnels: whether the flow is what is inside a tunnel.
    jobs: threads that the engine may use for this file.
    progress: called while reading.
    hash: one of store.hashes.CHOICES, by which the file is hashed.
    pool: where ranges of the file are read; None: here, in threads.
    """

    window_ns: int
    step_bounds: Int64Array
    spill: Path
    packets: Path | None = None
    open_tunnels: bool = True
    jobs: int = 1
    progress: Progress = ignore_progress
    hash: str = hashes.DEFAULT
    pool: Pool | None = None
    silence_ns: int = SILENCE_NS

    @property
    def trains(self) -> Path:
        """Path (not yet existing) that the engine writes the trains to, next to the cells."""
        return self.spill.with_name(f"{self.spill.name}.trains")

    @property
    def outputs(self) -> dict[str, Path]:
        """The paths that the engine writes to, by the names that CaptureFacts has for them."""
        packets = {"packets": self.packets} if self.packets else {}
        return {"cells": self.spill, "trains": self.trains, **packets}


@dataclass
class CaptureFacts:
    """The facts of one capture file. Times in ns since the epoch, UTC."""

    path: Path
    engine: str
    file_bytes: int
    digests: dict[str, str] = field(default_factory=dict)  # algorithm -> hex, of the file as it lies on disk
    format: str | None = None
    link_types: str | None = None
    time_resolution_ns: int | None = None
    snaplen: int | None = None
    status: str = "complete"
    status_detail: str | None = None
    records: int = 0
    wire_bytes: int = 0
    trailing_bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    skipped: dict[str, tuple[int, int]] = field(default_factory=dict)  # reason -> packets, wire bytes
    untimed_records: int = 0  # pcapng: Simple Packet Blocks, which carry no time, and invalid times
    invalid_times: int = 0  # of these, records whose time is outside 0 to 2^63 - 1 ns
    flows: pa.Table = field(default_factory=lambda: FLOW_FACTS.empty_table())
    encapsulations: pa.Table = field(default_factory=lambda: ENCAPSULATIONS.empty_table())
    samples: pa.Table = field(default_factory=lambda: SAMPLES.empty_table())
    cells: Path | None = None  # Parquet file with the CELLS schema; None where there are none
    cell_lag: int = 0  # windows by which a cell may come after one of a later window
    trains: Path | None = None  # Parquet file with the TRAINS schema; None where there are none
    counters: dict[str, int | str] = field(
        default_factory=dict
    )  # columns of captures; what the capturing program counted
    packets: Path | None = None  # Parquet file with the PACKETS schema; None where not requested or there are none
    remarks: tuple[str, ...] = ()  # what else is wrong with the file: warnings without its name
    capture_id: str = ""  # name of the file, unique in its run (RunInput.name_of)

    def __post_init__(self) -> None:
        self.capture_id = self.capture_id or ("stdin" if self.path == STDIN else valid_text(self.path.name))

    def put(self, outputs: Mapping[str, bytes], paths: Mapping[str, Path]) -> None:
        """Write what an engine has written elsewhere to these paths. Both by the names of ReadOptions.outputs."""
        for name, content in outputs.items():
            paths[name].write_bytes(content)
            setattr(self, name, paths[name])


class Spill:
    """A Parquet file of integers; it exists once the first rows were written. A context manager."""

    def __init__(self, path: Path, schema: pa.Schema, null: int | None = None) -> None:
        """schema: CELLS, TRAINS or PACKETS. null: the value that stands for null in nullable columns."""
        self.path = path
        self._schema = schema
        self._null = null
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    @property
    def written(self) -> Path | None:
        """The file, or None when there were no rows."""
        return self.path if self._writer is not None else None

    def write(self, rows: Int64Array) -> None:
        """Append rows, int64 (n, columns of the schema)."""
        if not len(rows):
            return
        if self._writer is None:
            # Read once, from start to end: statistics would take a third of the time.
            self._writer = pq.ParquetWriter(
                self.path, self._schema, compression="lz4", use_dictionary=False, write_statistics=False
            )
        columns = [self._column(np.ascontiguousarray(rows[:, i]), field.type) for i, field in enumerate(self._schema)]
        self._writer.write_table(pa.table(columns, schema=self._schema), row_group_size=ROW_GROUP_ROWS)

    def _column(self, values: Int64Array, kind: pa.DataType) -> pa.Array:
        mask = None if self._null is None else values == self._null
        return pa.array(values, kind, mask=mask)


class CellSpill(Spill):
    """A Parquet file of cells, mostly in the order of time. null: as in Spill, of columns that are not known.

    lag: windows by which a cell may follow one of a later window.
    """

    def __init__(self, path: Path, null: int | None = None) -> None:
        super().__init__(path, CELLS, null)
        self.lag = 0
        self._latest = -(2**63)

    def write(self, rows: Int64Array) -> None:
        super().write(rows)
        if len(rows):
            latest = np.maximum(np.maximum.accumulate(rows[:, 1]), self._latest)
            self.lag = max(self.lag, int((latest - rows[:, 1]).max()))
            self._latest = int(latest[-1])
