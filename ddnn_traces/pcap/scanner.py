"""State of the packet loop over one file: its tables, which grow or go to disk when they are full, and its facts."""

from __future__ import annotations

import ipaddress
import secrets
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ddnn_traces.pcap.capture_facts import (
    ENCAPSULATIONS,
    FLOW_FACTS,
    NO_STEP,
    SAMPLES,
    SKIP_REASONS,
    CaptureFacts,
    Int64Array,
    ReadOptions,
    Spill,
)
from ddnn_traces.pcap.compiled import flow_table as table
from ddnn_traces.pcap.compiled import fragments, trains, tunnels
from ddnn_traces.pcap.compiled import scan as loop
from ddnn_traces.pcap.compiled.connections import NOT_FOLLOWED
from ddnn_traces.pcap.compiled.flow_table import Options, State
from ddnn_traces.pcap.compiled.join import join
from ddnn_traces.pcap.compiled.scan import Framing
from ddnn_traces.pcap.flow_counters import COUNTERS

# Rows of the tables, to begin with.
FLOWS_AT_FIRST = 4096
TUNNELS_AT_FIRST = 64
# Rows that are held in memory before they go to disk.
CELLS_AT_ONCE = 1 << 17
TRAINS_AT_ONCE = 1 << 15
PACKETS_AT_ONCE = 1 << 17
#: Holes in sequence numbers of all flows of a file; of further ones only the bytes are known.
MOST_HOLES_AT_ONCE = 1 << 20
_LEAST_SEGMENT = 16 + 20 + 14  # bytes of a record that can make a hole: its header, IP's, and TCP's up to the flags
#: Segments of a file that are stored to compare clocks by.
SAMPLES_AT_MOST = 1 << 15


class Scanner:
    """Feeds bytes to the packet loop. cells, packets, trains: files for full tables; None: these stay in memory, and
    grow."""

    def __init__(
        self,
        framing: Framing,
        options: ReadOptions,
        cells: Spill | None,
        packets: Spill | None,
        trains: Spill | None = None,
    ) -> None:
        self.framing = framing
        self.interfaces = np.zeros((0, loop.INTERFACE_COLUMNS), np.int64)
        self._cells, self._packets, self._trains = cells, packets, trains
        salt = np.uint64(secrets.randbits(63))
        want = options.packets is not None
        self._options = Options(
            options.window_ns, options.step_bounds, NO_STEP, options.open_tunnels, want, options.silence_ns, salt
        )
        self._state = _new_state(want)

    def scan(self, block: memoryview | bytes, pos: int = 0, stop: int | None = None) -> tuple[int, int]:
        """Read complete records of `block` from `pos` on that begin before `stop`: (offset after them, why it ended).

        The reasons are scan.NEED_BYTES (the rest is not a whole record), STOPPED, CORRUPT, SECTION and INTERFACE.
        """
        data = np.frombuffer(block, np.uint8)
        data.flags.writeable = False  # one type for bytes and buffers: one compilation
        stop = 2**62 if stop is None else stop
        self._make_space_for_holes(len(data) // _LEAST_SEGMENT + 1)
        while True:
            at, why = loop.scan(data, pos, len(data), stop, self.framing, self.interfaces, self._options, self._state)
            pos = int(at)
            if why != loop.FULL:
                return pos, int(why)
            self._make_space()

    def prepare(self) -> None:
        """Call all compiled functions that most files need, on nothing."""
        self.scan(b"")
        self._grow_flows()
        self.close_cells()
        self._close_trains()
        fragments.give_up_one(self._options, self._state)

    @property
    def records(self) -> int:
        """Records read so far."""
        return int(self._state.total[table.RECORDS])

    @property
    def flows(self) -> int:
        """Flows found so far."""
        return int(self._state.total[table.FLOW_COUNT])

    @property
    def sample_limit(self) -> int:
        """Highest identity of a segment that is a sample; it only ever decreases."""
        return int(self._state.total[table.SAMPLE_LIMIT])

    @sample_limit.setter
    def sample_limit(self, limit: int) -> None:
        self._state.total[table.SAMPLE_LIMIT] = limit

    def _make_space(self, flows: int = 0) -> None:
        """Make space for the rows that one packet may add at most, and for `flows` more."""
        state, total = self._state, self._state.total
        while total[table.FLOW_COUNT] + flows + table.SPACE > len(state.keys):
            self._grow_flows()
            state = self._state
        if total[table.TUNNEL_COUNT] + table.SPACE > len(state.tunnel_keys):
            self._grow_tunnels()
        while total[table.CELL_COUNT] + total[table.OPEN_CELLS] + table.WAITING_SPACE > len(self._state.cells):
            self._spill_cells()
        while total[table.TRAIN_COUNT] + trains.TRAIN_SPACE > len(self._state.trains):
            self._spill_trains()
        if self._options.want_packets and total[table.PACKET_COUNT] + table.WAITING_SPACE > len(state.packets):
            self._spill_packets()
        while total[table.SAMPLE_COUNT] + 1 > len(state.samples):
            self._thin_samples()

    def _make_space_for_holes(self, count: int) -> None:
        """Make space for so many holes; a packet may add one."""
        used, size = int(self._state.total[table.HOLE_ROWS]), len(self._state.holes)
        if used + count > size < MOST_HOLES_AT_ONCE:
            holes = np.zeros((min(max(2 * size, used + count), MOST_HOLES_AT_ONCE), table.HOLE_COLUMNS), np.int64)
            holes[:used] = self._state.holes[:used]
            self._state = self._state._replace(holes=holes)

    def _grow_flows(self) -> None:
        state, count = self._state, int(self._state.total[table.FLOW_COUNT])
        slots, keys = _grown(state.slots, state.keys, count, self._options.salt)
        rows = {name: _doubled(getattr(state, name)) for name in ("flows", "details", "open_cells")}
        recent = np.zeros((2 * len(keys), 2), np.uint64)
        self._state = state._replace(slots=slots, keys=keys, recent=recent, **rows)

    def _grow_tunnels(self) -> None:
        state, count = self._state, int(self._state.total[table.TUNNEL_COUNT])
        slots, keys = _grown(state.tunnel_slots, state.tunnel_keys, count, self._options.salt)
        self._state = state._replace(tunnel_slots=slots, tunnel_keys=keys)

    def _spill_cells(self) -> None:
        self._spill("cells", table.CELL_COUNT, self._cells)

    def _spill_trains(self) -> None:
        self._spill("trains", table.TRAIN_COUNT, self._trains)

    def _spill(self, name: str, counter: int, out: Spill | None) -> None:
        """Write the rows that are there to a file; without one, or without rows, make space for twice as many."""
        rows, count = getattr(self._state, name), self._state.total[counter]
        if out is None or not count:
            self._state = self._state._replace(**{name: _doubled(rows)})
            return
        out.write(rows[:count])
        self._state.total[counter] = 0

    def _spill_packets(self) -> None:
        if self._packets is not None:
            self._packets.write(self._state.packets[: self._state.total[table.PACKET_COUNT]])
        self._state.total[table.PACKET_COUNT] = 0

    def _close_trains(self) -> None:
        """Append every flow's open train to the trains."""
        flow = 0
        while (flow := trains.close_trains(self._state, flow)) >= 0:
            self._spill_trains()

    def _thin_samples(self) -> None:
        """Keep the half with the lower identities, and take no others from now on: so the choice depends on the
        packets, not on the order in which the file was read."""
        self._state.total[table.SAMPLE_LIMIT] >>= 1
        self._keep_samples(self._state.samples[: self._state.total[table.SAMPLE_COUNT]])

    def _keep_samples(self, samples: Int64Array) -> None:
        """Of these, those below the limit, which is halved until there is space for them and one more."""
        total = self._state.total
        while len(kept := samples[samples[:, 0] <= total[table.SAMPLE_LIMIT]]) >= len(self._state.samples):
            total[table.SAMPLE_LIMIT] >>= 1
        self._state.samples[: len(kept)] = kept
        total[table.SAMPLE_COUNT] = len(kept)

    def close_cells(self) -> None:
        """Append every flow's current cell to the cells."""
        self._make_space()
        table.close_cells(self._state)

    def join(self, part: State) -> bool:
        """Append what another scanner read, as its partial(); False where its bytes have to be read again, in their
        place."""
        flows = int(part.total[table.FLOW_COUNT])
        self.close_cells()  # so that cells stay in the order of time
        self._close_trains()
        self._make_space(flows)
        self._make_space_for_holes(int(part.total[table.HOLE_ROWS]))
        tunnels = self._join_tunnels(part)
        self._state.recent.fill(0)  # the part may hold a later connection of the same five-tuple
        mapping = np.empty(flows, np.int64)
        fields: Any = part
        part = State(*(rows if rows.flags.writeable else rows.copy() for rows in fields))  # of another process
        laps = np.zeros(flows, np.int64)
        if not join(part, tunnels, mapping, laps, self._options, self._state):
            return False
        part.cells[:, 0] = mapping[part.cells[:, 0]]
        self._append_cells(part.cells)
        part.trains[:, 3] += laps[part.trains[:, 0]]
        part.trains[:, 0] = mapping[part.trains[:, 0]]
        self._append_trains(part.trains)
        part.samples[:, 1] = mapping[part.samples[:, 1]]
        self._join_samples(part.samples, int(part.total[table.SAMPLE_LIMIT]))
        return True

    def _append_cells(self, cells: Int64Array) -> None:
        """Many small writes would take longer than the packet loop."""
        total, most = self._state.total, len(self._state.cells) - table.WAITING_SPACE
        for begin in range(0, len(cells), most):
            some = cells[begin : begin + most]
            if total[table.CELL_COUNT] + len(some) > most:
                self._spill_cells()
            count = int(total[table.CELL_COUNT])
            self._state.cells[count : count + len(some)] = some
            total[table.CELL_COUNT] += len(some)

    def _append_trains(self, rows: Int64Array) -> None:
        total = self._state.total
        while total[table.TRAIN_COUNT] + len(rows) > len(self._state.trains):
            if self._trains is not None and len(rows) > len(self._state.trains):
                self._spill_trains()
                self._trains.write(rows)
                return
            self._spill_trains()
        count = int(total[table.TRAIN_COUNT])
        self._state.trains[count : count + len(rows)] = rows
        total[table.TRAIN_COUNT] += len(rows)

    def _join_tunnels(self, other: State) -> Int64Array:
        rows = np.empty(int(other.total[table.TUNNEL_COUNT]), np.int64)
        for row, words in enumerate(other.tunnel_keys[: len(rows)].tolist()):
            self._make_space()
            if parent := words[5] >> 36:
                words[5] += (int(rows[parent - 1]) + 1 - parent) << 36
            rows[row] = tunnels.tunnel_row(self._state, self._options, *map(np.uint64, words))
        return rows

    def _join_samples(self, samples: Int64Array, limit: int) -> None:
        total = self._state.total
        total[table.SAMPLE_LIMIT] = min(int(total[table.SAMPLE_LIMIT]), limit)
        self._keep_samples(np.concatenate([self._state.samples[: total[table.SAMPLE_COUNT]], samples]))

    def partial(self) -> State:
        """What was read, with the rows in use alone: small, to be pickled, and to be joined to what is before it."""
        self.close_cells()
        self._close_trains()
        state, total = self._state, self._state.total
        flows, tunnels = int(total[table.FLOW_COUNT]), int(total[table.TUNNEL_COUNT])
        rows = {
            "keys": flows, "flows": flows, "details": flows, "holes": int(total[table.HOLE_ROWS]),
            "cells": int(total[table.CELL_COUNT]), "trains": int(total[table.TRAIN_COUNT]),
            "samples": int(total[table.SAMPLE_COUNT]), "tunnel_keys": tunnels,
            "total": len(total), "skipped": len(state.skipped),
        }  # fmt: skip
        return State(**{name: getattr(state, name)[: rows.get(name, 0)].copy() for name in State._fields})

    def finish(self, facts: CaptureFacts) -> None:
        """Write the rows in memory to disk, and the totals, flows, tunnels and samples into `facts`."""
        self._make_space()
        while fragments.give_up_one(self._options, self._state):
            self._make_space()
        self.close_cells()
        self._close_trains()
        if self._state.total[table.CELL_COUNT]:
            self._spill_cells()
        if self._state.total[table.TRAIN_COUNT]:
            self._spill_trains()
        self._spill_packets()
        total = self._state.total
        facts.records, facts.wire_bytes = int(total[table.RECORDS]), int(total[table.TOTAL_WIRE])
        facts.untimed_records, facts.invalid_times = int(total[table.UNTIMED]), int(total[table.INVALID_TIMES])
        if facts.records:
            facts.first_ns, facts.last_ns = int(total[table.EARLIEST]), int(total[table.LATEST])
        facts.skipped = {
            reason: (int(packets), int(wire))
            for reason, (packets, wire) in zip(SKIP_REASONS, self._state.skipped, strict=True)
            if packets
        }
        facts.flows = self._flow_facts()
        facts.encapsulations = self._encapsulations()
        facts.samples = self._sample_facts()

    def _flow_facts(self) -> pa.Table:
        count = int(self._state.total[table.FLOW_COUNT])
        keys, flows, details = self._state.keys[:count], self._state.flows[:count], self._state.details[:count]
        rare = keys[:, 5].astype(np.int64)
        columns: dict[str, Any] = _five_tuples(keys)
        columns |= {"flow": np.arange(count, dtype=np.int32), "kept": np.ones(count, bool)}
        columns["encapsulation"] = _nullable((rare >> 40) - 1, rare >> 40 > 0)
        interface = (keys[:, 4] >> np.uint64(48)).astype(np.int64)
        columns["interface"] = _nullable(interface, interface > 0)
        is_roce = (rare >> 32) & 1 == 1
        columns["roce_dest_qp"] = _nullable(rare & 0xFFFFFF, is_roce)
        columns["roce_opcode"] = _nullable((rare >> 24) & 0xFF, is_roce)
        places = {name: flows[:, column] for name, column in table.FLOW_COUNTERS.items()}
        places |= {name: details[:, column] for name, column in table.DETAIL_COUNTERS.items()}
        for counter in COUNTERS:
            values = places[counter.name]
            columns[counter.name] = _nullable(values, values >= 0) if counter.unknown else values
        columns["followed"] = details[:, table.MARKS] & NOT_FOLLOWED == 0
        is_tcp = details[:, table.LEADER] == 0  # the holes of RoCEv2 are packets, which are counted
        columns["gaps"] = _gaps(np.where(is_tcp, details[:, table.HIGHEST], 0), self._state.holes)
        return pa.table({name: columns[name] for name in FLOW_FACTS.names}, schema=FLOW_FACTS)

    def _encapsulations(self) -> pa.Table:
        keys = self._state.tunnel_keys[: self._state.total[table.TUNNEL_COUNT]]
        rare = keys[:, 5].astype(np.int64)
        identifier = rare & ((1 << 33) - 1)
        columns: dict[str, Any] = _five_tuples(keys)
        columns["parent"] = _nullable((rare >> 36) - 1, rare >> 36 > 0)
        columns["kind"] = [tunnels.KINDS[kind] for kind in (rare >> 33) & 7]
        columns["identifier"] = _nullable(identifier - 1, identifier > 0)
        return pa.table({name: columns[name] for name in ENCAPSULATIONS.names}, schema=ENCAPSULATIONS)

    def _sample_facts(self) -> pa.Table:
        samples = self._state.samples[: self._state.total[table.SAMPLE_COUNT]]
        samples = samples[np.lexsort((samples[:, 2], samples[:, 1], samples[:, 0]))]
        columns = [samples[:, 0], samples[:, 1].astype(np.int32), samples[:, 2]]
        return pa.table(dict(zip(SAMPLES.names, columns, strict=True)), schema=SAMPLES)


def _gaps(highest: Int64Array, holes: Int64Array) -> pa.Array:
    """Start and end of the holes of each flow, ascending. highest: row + 1 of each flow's highest hole."""
    flow, rows = np.arange(len(highest)), highest - 1
    found = []
    while len(rows):
        flow, rows = flow[rows >= 0], rows[rows >= 0]
        found.append((flow, rows))
        rows = holes[rows, table.BELOW] - 1
    flows, taken = (np.concatenate(part) for part in zip(*found, strict=True)) if found else (flow, rows)
    begins, ends = holes[taken, table.HOLE_BEGIN], holes[taken, table.HOLE_END]
    order = np.lexsort((begins, flows))
    offsets = np.append(0, np.cumsum(np.bincount(flows, minlength=len(highest))))
    pairs = pa.FixedSizeListArray.from_arrays(np.column_stack([begins, ends])[order].ravel(), 2)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs)


def _new_state(want_packets: bool) -> State:
    def words(rows: int, columns: int) -> npt.NDArray[np.uint64]:
        return np.zeros((rows, columns), np.uint64)

    def numbers(rows: int, columns: int) -> Int64Array:
        return np.zeros((rows, columns), np.int64)

    total = np.zeros(table.TOTALS, np.int64)
    _clear(total)
    return State(
        slots=_slots(FLOWS_AT_FIRST),
        keys=words(FLOWS_AT_FIRST, table.KEY_WORDS),
        flows=numbers(FLOWS_AT_FIRST, table.FLOW_COLUMNS),
        details=numbers(FLOWS_AT_FIRST, table.DETAIL_COLUMNS),
        holes=numbers(0, table.HOLE_COLUMNS),
        open_cells=np.zeros(FLOWS_AT_FIRST, np.int64),
        cells=numbers(CELLS_AT_ONCE + table.WAITING_SPACE, table.CELL_COLUMNS),
        trains=numbers(TRAINS_AT_ONCE + trains.TRAIN_SPACE, trains.TRAIN_COLUMNS),
        packets=numbers(PACKETS_AT_ONCE + table.WAITING_SPACE if want_packets else 0, table.PACKET_COLUMNS),
        samples=numbers(SAMPLES_AT_MOST, table.SAMPLE_COLUMNS),
        total=total,
        skipped=numbers(len(SKIP_REASONS), 2),
        tunnel_slots=_slots(TUNNELS_AT_FIRST),
        tunnel_keys=words(TUNNELS_AT_FIRST, table.KEY_WORDS),
        datagrams=numbers(fragments.MOST_DATAGRAMS, fragments.DATAGRAM_COLUMNS),
        datagram_keys=words(fragments.MOST_DATAGRAMS, table.KEY_WORDS),
        waiting=numbers(fragments.MOST_WAITING + 1, fragments.WAITING_COLUMNS),
        found=np.zeros(tunnels.FOUND, np.int64),
        found_key=np.zeros(tunnels.FOUND_WORDS, np.uint64),
        recent=words(2 * FLOWS_AT_FIRST, 2),
    )


def _clear(total: Int64Array) -> None:
    total.fill(0)
    total[table.EARLIEST], total[table.LATEST] = table.FAR_FUTURE, table.FAR_PAST
    total[table.SAMPLE_LIMIT] = table.FAR_FUTURE


def _slots(rows: int) -> npt.NDArray[np.int32]:
    """An empty slot table, at most half of which will be taken; a power of two long."""
    return np.full(1 << (2 * rows - 1).bit_length(), -1, np.int32)


def _grown(
    slots: npt.NDArray[np.int32], keys: npt.NDArray[np.uint64], count: int, salt: np.uint64
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
    keys = _doubled(keys)
    slots = _slots(len(keys))
    table.refill(slots, keys, count, salt)
    return slots, keys


def _doubled(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    doubled = np.zeros((2 * len(rows), *rows.shape[1:]), rows.dtype)  # pages that are not used yet take no memory
    doubled[: len(rows)] = rows
    return doubled


def _nullable(values: Int64Array, known: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, pa.int64(), mask=~known)


def _five_tuples(keys: npt.NDArray[np.uint64]) -> dict[str, Any]:
    word = keys[:, 4].astype(np.int64)
    version = (keys[:, 4] & np.uint64(table.WITHOUT_INTERFACE)) >> np.uint64(40)
    ends = {"src_ip": _addresses(version, keys[:, :2]), "dst_ip": _addresses(version, keys[:, 2:4])}
    ports = {"src_port": (word >> 16) & 0xFFFF, "dst_port": word & 0xFFFF}
    return {**ends, "protocol": (word >> 32) & 0xFF, **ports}


def _addresses(version: npt.NDArray[np.uint64], words: npt.NDArray[np.uint64]) -> pa.Array:
    """Text form of addresses: IPv4 dotted, IPv6 as in RFC 5952. words: (n, 2), high and low."""
    # An object for each row of many flows would take more memory than their table.
    codes = np.zeros(len(words), np.int64)
    for column in (version, *words.T):  # one by one: rows as keys take ten times as long to sort
        if (column != column[:1]).any():
            values, numbers = np.unique(column, return_inverse=True)
            codes = codes * len(values) + numbers
    _, first, rows = np.unique(codes, return_index=True, return_inverse=True)
    texts = [
        str(ipaddress.IPv4Address(low) if kind == 4 else ipaddress.IPv6Address((high << 64) | low))
        for kind, high, low in np.column_stack([version[first], words[first]]).tolist()
    ]
    # Not by take() of an Arrow array: it imports pyarrow.compute, which takes a while.
    return pa.array(np.array(texts, object)[rows], pa.string())
