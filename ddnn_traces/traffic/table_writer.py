"""Traffic as a dataset: the tables that ingest writes, through the writer that ingest uses; and as a list of flows.

Each host has a capture of what it sends; what the host outside sends is in its receivers' captures. Every packet
counts.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ddnn_traces.errors import UsageError
from ddnn_traces.query import views
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.store.writer import DatasetWriter, check_target
from ddnn_traces.traffic.traffic import SNAPLEN, Ints, Run, Traffic, learning_curve, packets_of
from ddnn_traces.version import __version__

#: Window rows that are made at a time.
BLOCK_ROWS = 1 << 21

_NEVER = np.iinfo(np.int64).max


def write_traffic(
    out: Path, generated: Iterable[Traffic], replace: bool = True, tables: type[TrafficTables] | None = None
) -> list[str]:
    """Write the traffic of runs into the dataset at `out`, new or next to its other runs; return the runs' names.

    replace: whether they take the place of runs of their names that were not measured either. tables: what makes the
    tables of a run; TrafficTables unless given. Raises UsageError where two have the same name, one has that of a
    measured run there or of one that must not be replaced, or `out` is no dataset.
    """
    with DatasetWriter(out) as writer:
        for traffic in generated:
            if traffic.run.run_id in writer.written:
                raise UsageError(f"{traffic.run.run_id}: two runs have this name; give each its own run_id")
            check_free(out, traffic.run.run_id, replace)
            _write_run((tables or TrafficTables)(traffic), traffic.run, writer)
        writer.commit({})
        views.replace_views(writer.out, writer.out / views.FILE, writer.partial)
        return writer.written


def check_free(out: Path, run_id: str, replace: bool) -> None:
    """Raise UsageError as write_traffic does for a run of that name."""
    check_target(out)
    folder = partition(out, "runs", run_id)
    if not folder.exists():
        return
    if not replace:
        raise UsageError(f"{out}: has a run named {run_id}; choose another --out or --run-id")
    sources = pq.ParquetDataset(folder, partitioning=None).read(["source"])["source"].unique().to_pylist()
    if sources not in (["synthetic"], ["simulation"], ["ns3"]):
        raise UsageError(f"{out}: has a run named {run_id} that was not generated; choose another --out or --run-id")


def _write_run(tables: TrafficTables, run: Run, writer: DatasetWriter) -> None:
    provenance = {
        "version": __version__,
        "schema_version": str(schema.SCHEMA_VERSION),
        "inputs": "{}",
        "parameters": json.dumps({run.source: run.parameters()}, sort_keys=True),
    }
    with writer.new_run(run.run_id):
        for name in schema.TABLES:
            writer.write(name, run.run_id, tables.batches(name), provenance)


class TrafficTables:
    """The tables of one run, each as Arrow record batches in its schema and order."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._run = traffic.run
        self._addresses, self._labels, self._vantage = traffic.addresses, traffic.labels, traffic.vantage

    def batches(self, name: str) -> Iterable[pa.RecordBatch]:
        """Record batches of the table of that name; no rows where a generated run does not have it."""
        run = self._run
        has_rows = {"steps": run.log, "events": run.log and run.events, "step_flows": run.log}
        made = getattr(self, f"_{name}", None) if has_rows.get(name, True) else None
        return made() if made else _rows(name, [])

    def _runs(self) -> Iterable[pa.RecordBatch]:
        run = self._run
        row = {column.name: getattr(run, column.name, None) for column in schema.table("runs").columns}
        row |= {"model_params": run.model_bytes // 4, "model_size_mb": run.model_bytes / 1e6, "source": run.source}
        row |= {"clock_offset_ns": 0 if run.log else None, "topology": run.stated_topology}
        row |= dict.fromkeys(run.undeclared)
        return _rows("runs", [row])

    def _hosts(self) -> Iterable[pa.RecordBatch]:
        run = self._run
        places = {host: place for place, host in enumerate(run.order or range(run.workers))}
        declared = run.declare_ring and run.topology == "ring"
        outside, outside_role = run.outside
        labels = [*self._labels, outside]
        roles = ["worker" if host < run.workers else "parameter_server" for host in range(len(self._labels))]
        sending = np.unique(self._traffic.ends)
        rows = []
        for host, (address, label, role) in enumerate(
            zip(self._addresses, labels, [*roles, outside_role], strict=True)
        ):
            if host == len(self._labels) and host not in sending:
                continue
            rank = host if role == "worker" else None
            row = {"run_id": run.run_id, "host_ip": address, "label": label, "role": role, "rank": rank}
            rows.append(row | {"ring_position": places[host] if declared and role == "worker" else None})
        return _rows("hosts", sorted(rows, key=lambda row: str(row["host_ip"])))

    def _captures(self) -> Iterable[pa.RecordBatch]:
        traffic = self._traffic
        vantage = self._vantage[traffic.transfers.flow]
        packets, _, wire, captured = self._sums(vantage, traffic.hosts)
        rows = []
        for host, label in enumerate(self._labels):
            mine = traffic.transfers.take(np.flatnonzero(vantage == host))
            first, last = (int(mine.start_ns.min()), int(mine.last_ns.max())) if len(mine) else (None, None)
            rows.append(
                {
                    "run_id": self._run.run_id, "capture_id": f"{label}-tcpdump.pcap",
                    "file_bytes": int(24 + 16 * packets[host] + captured[host]), "format": "pcap-le",
                    "link_types": "1", "time_resolution_ns": 1, "snaplen": SNAPLEN, "first_ns": first, "last_ns": last,
                    "records": int(packets[host]), "wire_bytes": int(wire[host]), "trailing_bytes": 0,
                    "untimed_records": 0, "vantage_ip": self._addresses[host], "status": "complete",
                    "engine": "synthetic", "version": __version__,
                }
            )  # fmt: skip
        return _rows("captures", sorted(rows, key=lambda row: str(row["capture_id"])))

    def _capture_ledger(self) -> Iterable[pa.RecordBatch]:
        files = pa.Table.from_batches(self._captures())
        columns = {name: files[name] for name in ("run_id", "capture_id")}
        columns |= {"reason": pa.array(["in_flows"] * len(files), pa.string())}
        columns |= {"packets": files["records"], "wire_bytes": files["wire_bytes"]}
        return _table("capture_ledger", columns)

    def _flows(self) -> Iterable[pa.RecordBatch]:
        traffic, t = self._traffic, self._traffic.transfers
        flows = len(traffic.ends)
        packets, payload, wire, captured = self._sums(t.flow, flows)
        last = np.zeros(flows, np.int64)
        np.maximum.at(last, t.flow, t.last_ns)
        again = _sum(t.flow, t.repeated, flows)
        again_packets = _sum(t.flow, packets_of(t.repeated, t.segment_bytes), flows)
        number = np.arange(flows)
        one, nothing = np.ones(flows, np.int64), np.zeros(flows, np.int64)
        forward = number % 2 == 0
        columns = {
            "flow_id": number, "src_ip": [self._addresses[src] for src, _ in traffic.ends],
            "dst_ip": [self._addresses[dst] for _, dst in traffic.ends], "protocol": 6 * one,
            "src_port": traffic.ports[:, 0], "dst_port": traffic.ports[:, 1], "connection": nothing,
            "first_seen_ns": traffic.opened_ns, "last_seen_ns": last, "packets": packets, "wire_bytes": wire,
            "ip_bytes": wire - min(14, t.header_bytes) * packets,
            "payload_bytes": payload, "captured_bytes": captured, "syn_packets": one, "fin_packets": nothing,
            "rst_packets": nothing, "retransmitted_packets": again_packets, "retransmitted_bytes": again,
            "out_of_order_packets": nothing, "out_of_order_bytes": nothing, "mss": 1460 * one,
            "receive_window_bytes": pa.nulls(flows, pa.int64()), "zero_window_packets": nothing,
            **dict.fromkeys(_UNMARKED, nothing),
            "cable_bytes_estimate": wire, "is_initiator": forward,
            "initiator_source": np.where(forward, "syn", "reverse_syn").tolist(), "reverse_flow_id": number ^ 1,
        }  # fmt: skip
        return self._columns("flows", columns)

    def _flow_windows(self) -> Iterator[pa.RecordBatch]:
        window_ns, header = self._run.window_ns, self._traffic.transfers.header_bytes
        for window, flow, packets, payload in _windows(self._traffic, window_ns):
            columns = {
                "window_start_ns": window * window_ns, "window_ns": np.broadcast_to(window_ns, len(flow)),
                "flow_id": flow, "packets": packets, "wire_bytes": payload + header * packets,
                "payload_bytes": payload, "retransmitted_bytes": pa.nulls(len(flow), pa.int64()),
            }  # fmt: skip
            yield from self._columns("flow_windows", columns)

    def _messages(self) -> Iterable[pa.RecordBatch]:
        """Of a simulated run its transfers; what generated traffic writes at once is not known.

        A transfer whose rate changes is several rows of transfers without a pause: with a delay, which parts all
        transfers of a pair, they are one message.
        """
        t, run = self._traffic.transfers, self._run
        rows = np.flatnonzero(t.payload) if run.source == "simulation" else np.empty(0, np.int64)
        rows = rows[np.lexsort((t.start_ns[rows], t.flow[rows]))]
        flow, start, end = t.flow[rows], t.start_ns[rows], t.start_ns[rows] + t.duration_ns[rows]
        is_new = np.ones(len(rows), bool)
        apart = self._traffic.are_whole | (2 * (start[1:] - end[:-1]) >= run.delay_ms * 1e6)
        is_new[1:] = (flow[1:] != flow[:-1]) | apart
        begin = np.flatnonzero(is_new)
        flow, payload, packets = flow[begin], _sums_from(t.payload[rows], begin), _sums_from(t.packets[rows], begin)
        first = np.searchsorted(flow, flow)  # the first message of the flow of each
        before = np.cumsum(payload) - payload
        columns = {
            "flow_id": flow, "message": np.arange(len(begin)) - first, "first_ns": start[begin],
            "duration_ns": end[np.append(begin[1:], len(rows))[: len(begin)] - 1] - start[begin] - 1,
            "stream_offset": before - before[first], "bytes": payload, "packets": packets,
            "end_source": ["simulated"] * len(begin),
        }  # fmt: skip
        return self._columns("messages", columns)

    def _steps(self) -> Iterable[pa.RecordBatch]:
        run, times = self._run, self._traffic.times
        steps, workers = times.end_ns.shape
        order, step = self._by_label(), np.tile(np.arange(steps), workers)
        sources = ["phases" if run.events else "estimated", *["phases" if run.events else "previous_end"] * (steps - 1)]
        columns = {
            "worker": [self._labels[i] for i in order for _ in range(steps)], "step": step,
            "epoch": step * run.epochs // steps, "start_ns": times.start_ns[:, order].T.ravel(),
            "start_source": sources * workers, "end_ns": times.end_ns[:, order].T.ravel(),
        }  # fmt: skip
        if run.learns:
            curves = learning_curve(steps)
            columns |= {name: np.tile(curve, workers) for name, curve in zip(("loss", "accuracy"), curves, strict=True)}
        return self._columns("steps", columns)

    def _events(self) -> Iterable[pa.RecordBatch]:
        if self._traffic.events is not None:
            return self._columns("events", vars(self._traffic.events))
        run, times = self._run, self._traffic.times
        steps, workers = times.end_ns.shape
        order = self._by_label()
        phases = [times.start_ns, times.communicate_ns, times.communicated_ns, times.end_ns]
        bounds = np.stack([phase[:, order].T for phase in phases], axis=-1).reshape(-1, 4)
        columns = {
            "worker": [self._labels[i] for i in order for _ in range(3 * steps)],
            "step": np.tile(np.repeat(np.arange(steps), 3), workers),
            "kind": ["compute", "communicate", "update"] * (steps * workers),
            "start_ns": bounds[:, :3].ravel(), "end_ns": bounds[:, 1:].ravel(),
            "bytes": np.ma.masked_array(
                np.full(3 * steps * workers, run.model_bytes), np.tile([True, False, True], steps * workers)
            ),
        }  # fmt: skip
        return self._columns("events", columns)

    def _step_flows(self) -> Iterable[pa.RecordBatch]:
        clock = self._traffic.clock
        flow, place, packets, payload = _in_steps(self._traffic, clock)
        steps = self._run.steps
        positions = np.array(["before", "during", "after"], object)
        position = positions[(place > 0) + (place > steps).astype(int)]
        during = position == "during"
        columns = {
            "flow_id": flow, "worker": [self._labels[i] for i in clock[flow]], "position": position,
            "step": np.ma.masked_array(place - 1, ~during), "packets": packets,
            "wire_bytes": payload + self._traffic.transfers.header_bytes * packets, "payload_bytes": payload,
            "retransmitted_bytes": pa.nulls(len(flow), pa.int64()),
        }  # fmt: skip
        order = np.lexsort((place, position.astype(str), flow))
        [batch] = self._columns("step_flows", columns)
        return [batch.take(pa.array(order))]

    # --- helpers

    def _by_label(self) -> list[int]:
        """Workers in the order of their labels as text, as the tables are sorted."""
        return sorted(range(self._run.workers), key=lambda i: self._labels[i])

    def _sums(self, key: Ints, keys: int) -> tuple[Ints, Ints, Ints, Ints]:
        """Packets, payload, wire and captured bytes of the transfers with each key."""
        t = self._traffic.transfers
        packets, payload = _sum(key, t.packets, keys), _sum(key, t.payload, keys)
        return packets, payload, payload + t.header_bytes * packets, _sum(key, t.captured, keys)

    def _columns(self, name: str, columns: dict[str, Any]) -> list[pa.RecordBatch]:
        rows = len(next(iter(columns.values())))
        return _table(name, {"run_id": pa.repeat(pa.scalar(self._run.run_id), rows), **columns})


#: Counters of flows that are 0 in generated traffic: no network marks it, and it is TCP.
_UNMARKED = (
    "ce_packets", "ece_packets", "nak_packets", "rnr_packets", "cnp_packets", "psn_repeated_packets",
    "psn_repeated_bytes", "psn_missing_packets", "psn_late_packets",
)  # fmt: skip


def _sum(key: Ints, values: Ints, keys: int) -> Ints:
    total = np.zeros(keys, np.int64)
    np.add.at(total, key, values)
    return total


def _sums_from(values: Ints, begin: Ints) -> Ints:
    """Sums of the values from each of these places to the next."""
    return np.add.reduceat(values, begin) if len(begin) else values


def _windows(traffic: Traffic, window_ns: int) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """Window, flow, packets and payload, in order; a block of transfers at a time.

    Rows from the window in which the next block begins on wait for that block.
    """
    t = traffic.transfers
    first, last = t.start_ns // window_ns, t.last_ns // window_ns
    blocks = np.cumsum(last - first + 1) // BLOCK_ROWS
    cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(t)]
    flows = len(traffic.ends)
    waiting = [np.empty(0, np.int64)] * 3
    for begin, end in pairwise(cuts):
        rows, inside = _parts(first[begin:end], last[begin:end])
        rows += begin
        window = first[rows] + inside
        upto = _uneven(window, t.flow[rows], window_ns) if traffic.is_uneven else (window + 1) * window_ns
        bounds = np.where(window < last[rows], upto, _NEVER)
        packets, payload = _differences(*t.before(rows, bounds), inside)
        there = packets > 0
        key = window[there] * flows + t.flow[rows[there]]
        merged = [np.concatenate(p) for p in zip(waiting, (key, packets[there], payload[there]), strict=True)]
        key, packets, payload = _grouped(*merged)
        ready = np.searchsorted(key, first[end] * flows) if end < len(t) else len(key)
        waiting = [key[ready:], packets[ready:], payload[ready:]]
        yield key[:ready] // flows, key[:ready] % flows, packets[:ready], payload[:ready]


def _uneven(window: Ints, flow: Ints, window_ns: int) -> Ints:
    """Ends of windows, by up to a quarter of a window too early or late: no sender's pace is even."""
    scattered = (window * 0x9E3779B1 + flow * 0x85EBCA77) >> 11 & 0xFFFF
    return (window + 1) * window_ns + (scattered - 0x8000) * window_ns // 0x20000


def _in_steps(traffic: Traffic, clock: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Flow, place (0 before the first step, s + 1 in step s, larger after the last), packets and payload.

    clock: the worker whose steps count for each flow.
    """
    t, bounds = traffic.transfers, traffic.times.bounds_ns
    worker = clock[t.flow]
    first = _step_at(traffic, worker, t.start_ns) + 1
    last = _step_at(traffic, worker, t.last_ns) + 1
    rows, inside = _parts(first, last)
    place = first[rows] + inside
    ends = np.concatenate([bounds, np.full((1, bounds.shape[1]), _NEVER)])
    packets, payload = _differences(*t.before(rows, ends[place, worker[rows]]), inside)
    there = packets > 0
    places = len(ends)
    key, packets, payload = _grouped(t.flow[rows[there]] * places + place[there], packets[there], payload[there])
    return key // places, key % places, packets, payload


def _parts(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """A row for each number from first to last of each transfer: the transfer's place and the number less first."""
    number = last - first + 1
    rows = np.repeat(np.arange(len(first)), number)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(number) - number, number)


def _differences(packets: Ints, payload: Ints, inside: Ints) -> tuple[Ints, Ints]:
    """From what has been sent at the end of each part of a transfer to what is sent in it; part 0 begins one."""
    more = (inside > 0)[1:]
    packets[1:], payload[1:] = packets[1:] - packets[:-1] * more, payload[1:] - payload[:-1] * more
    return packets, payload


def _grouped(key: Ints, packets: Ints, payload: Ints) -> tuple[Ints, Ints, Ints]:
    """Sums of each key, in the order of keys."""
    keys, places = np.unique(key, return_inverse=True)
    return keys, _sum(places, packets, len(keys)), _sum(places, payload, len(keys))


def _rows(name: str, rows: list[dict[str, Any]]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist(rows, schema=schema.table(name).arrow())]


def _table(name: str, columns: dict[str, Any]) -> list[pa.RecordBatch]:
    """A batch of these columns, the others null."""
    arrow, rows = schema.table(name).arrow(), len(next(iter(columns.values())))
    arrays = [
        _array(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in arrow
    ]
    return [pa.RecordBatch.from_arrays(arrays, schema=arrow)]


def _array(values: Any, type_: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    mask = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    return pa.array(np.ma.getdata(values) if mask is not None else values, type_, mask=mask)


# --- a list of flows

FLOW_COLUMNS = ("flow", "src", "dst", "src_port", "dst_port", "start_ns", "end_ns", "bytes", "step", "phase", "source")


def write_flow_list(traffic: Traffic, out: Path) -> None:
    """Write the transfers with payload as CSV, FLOW_COLUMNS."""
    with whole_file(out) as half_written, half_written.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([FLOW_COLUMNS, *flow_list(traffic)])


def flow_list(traffic: Traffic) -> list[tuple[Any, ...]]:
    """The transfers with payload as rows of FLOW_COLUMNS, in the order of time.

    flow: number of the directed five-tuple. step: the step whose exchange the transfer belongs to; of all other
    transfers the step in which they begin by the sender's clock (a server's: the first worker's), empty outside of
    steps. phase: start_up, step, tear_down. source: synthetic.
    """
    t = traffic.transfers.take(np.flatnonzero(traffic.transfers.payload))
    step = _step_at(traffic, traffic.clock[t.flow], t.start_ns)
    if t.step is not None:
        step = np.where(t.step < 0, step, t.step)
    ends, addresses, ports = traffic.ends, traffic.addresses, traffic.ports.tolist()
    columns = (t.flow, t.start_ns, t.start_ns + t.duration_ns, t.payload, step)
    rows = []
    for flow, start, end, payload, number in zip(*(column.tolist() for column in columns), strict=True):
        src, dst = ends[flow]
        phase = "start_up" if number < 0 else "tear_down" if number >= traffic.run.steps else "step"
        who = (flow, addresses[src], addresses[dst], *ports[flow])
        rows.append((*who, start, end, payload, number if phase == "step" else None, phase, "synthetic"))
    return rows


def _step_at(traffic: Traffic, worker: Ints, at_ns: Ints) -> Ints:
    """Step of each of these workers at a time; -1 before the first, the number of steps after the last."""
    bounds = traffic.times.bounds_ns
    step = np.empty(len(worker), np.int64)
    for i in range(traffic.run.workers):
        mine = worker == i
        step[mine] = np.searchsorted(bounds[:, i], at_ns[mine], "right") - 1
    return step
