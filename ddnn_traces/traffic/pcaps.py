"""Traffic as a run folder, which ingest reads: a pcap a host, training logs, phases of the steps, run.toml.

ingest makes of the folder the same as table_writer.py writes of the same traffic. Packets are cut to SNAPLEN bytes;
payload is zeros. Sequence and acknowledgement numbers follow what was sent; TCP checksums are left 0, since a capture
that is cut cannot show whether they are right.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ddnn_traces.capture_format import pcap_header
from ddnn_traces.errors import UsageError
from ddnn_traces.store.whole_files import whole_folder
from ddnn_traces.traffic.traffic import HEADER_BYTES, SNAPLEN, Ints, Traffic, learning_curve

#: Packets that are written at a time, about.
BLOCK_PACKETS = 1 << 18

#: A record of SNAPLEN bytes: Ethernet, IPv4, TCP with twelve bytes of options, and payload.
RECORD = np.dtype(
    [
        ("seconds", "<u4"), ("fraction", "<u4"), ("captured", "<u4"), ("wire", "<u4"),
        ("ethernet", "S12"), ("ethertype", ">u2"),
        ("version", "u1"), ("tos", "u1"), ("ip_bytes", ">u2"), ("ident", ">u4"), ("ttl", "u1"), ("protocol", "u1"),
        ("checksum", ">u2"), ("src_ip", ">u4"), ("dst_ip", ">u4"),
        ("src_port", ">u2"), ("dst_port", ">u2"), ("seq", ">u4"), ("ack", ">u4"), ("offset", "u1"), ("flags", "u1"),
        ("window", ">u2"), ("tcp_checksum", ">u2"), ("urgent", ">u2"), ("options", "S12"), ("payload", "S34"),
    ]
)  # fmt: skip
assert RECORD.itemsize == 16 + SNAPLEN

_SYN, _PUSH, _ACK = 0x02, 0x08, 0x10
_CONSTANT = {"ethertype": 0x0800, "version": 0x45, "ttl": 64, "protocol": 6, "offset": 8 << 4, "flags": _ACK}
_TIMESTAMPS = b"\x01\x01\x08\x0a" + bytes(8)
_SYN_OPTIONS = b"\x02\x04" + (1460).to_bytes(2, "big") + b"\x04\x02" + b"\x01" * 6  # MSS, SACK permitted
_DONT_FRAGMENT = 0x4000
_LOG_LINE_BYTES = 130  # a line of a log and one of phases
_LATEST_NS = (1 << 32) * 10**9

_ETHERNET = 1  # LINKTYPE_

Records = npt.NDArray[np.void]


def new_records(count: int) -> Records:
    """Records whose fields that never change are filled in."""
    records = np.zeros(count, RECORD)
    for name, value in _CONSTANT.items():
        records[name] = value
    return records


def write_folder(folder: Path, traffic: Traffic) -> Path:
    """Write the run folder, new or empty, and return it: captures, train_history*.log, phases-*.csv, run.toml.

    Whole or not at all: a part of it would look like a capture. Raises UsageError for times that a pcap cannot hold.
    """
    last_ns = int(traffic.transfers.last_ns.max(initial=0))
    if last_ns >= _LATEST_NS:
        raise UsageError(
            f"{traffic.run.run_id}: ends {(last_ns - traffic.run.start_ns) / 1e9:,.0f} s after it begins, and a pcap "
            "counts seconds since 1970 in 32 bits; give fewer steps or shorter ones, or write it as a dataset"
        )
    with whole_folder(folder) as half_written:
        _write_captures(half_written, traffic)
        write_description(half_written, traffic)
    return folder


def write_description(folder: Path, traffic: Traffic) -> None:
    """Write what a run folder has beside its captures: logs, phases and run.toml."""
    if traffic.run.log:
        _write_logs(folder, traffic)
    (folder / "run.toml").write_text(_run_toml(traffic), encoding="utf-8")


def folder_bytes(traffic: Traffic) -> int:
    """Bytes that write_folder writes: of the captures exactly, of the logs about."""
    t = traffic.transfers
    captures = 24 * traffic.hosts + int((16 * t.packets + t.captured).sum())
    return captures + _LOG_LINE_BYTES * traffic.run.steps * (traffic.run.workers + 1)


def _write_captures(folder: Path, traffic: Traffic) -> None:
    with ExitStack() as stack:
        paths = [folder / f"{label}-tcpdump.pcap" for label in traffic.labels]
        files: list[IO[bytes]] = [stack.enter_context(path.open("wb")) for path in paths]
        for file in files:
            file.write(pcap_header(SNAPLEN, _ETHERNET))
        vantage = traffic.vantage
        for flow, records in _blocks(traffic):
            at = vantage[flow]
            for host in np.unique(at):
                mine = records[at == host]
                data = mine.view(np.uint8).reshape(len(mine), RECORD.itemsize)
                kept = np.arange(RECORD.itemsize) < 16 + mine["captured"][:, None]
                files[host].write(data[kept].tobytes())


def _blocks(traffic: Traffic) -> Iterator[tuple[Ints, Records]]:
    """Flow and record of each packet in the order of time, a block at a time."""
    t = traffic.transfers
    numbers = _Numbers(traffic)
    blocks = np.cumsum(t.packets) // BLOCK_PACKETS
    cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(t)]
    waiting, sent = np.empty(0, np.int64), np.zeros(len(t), np.int64)
    for begin, end in pairwise(cuts):
        rows = np.concatenate([waiting, np.arange(begin, end)])
        stop = int(t.start_ns[end]) if end < len(t) else int(t.last_ns[rows].max()) + 1
        for bound in _bounds(traffic, rows, sent[rows], stop):
            upto, _ = t.before(rows, np.full(len(rows), bound))
            number = upto - sent[rows]
            packet_rows = np.repeat(rows, number)
            place = np.arange(len(packet_rows)) - np.repeat(np.cumsum(number) - number, number) + sent[packet_rows]
            sent[rows] = upto
            if len(packet_rows):
                yield _packets(traffic, packet_rows, place, numbers)
        waiting = rows[sent[rows] < t.packets[rows]]


def _bounds(traffic: Traffic, rows: Ints, sent: Ints, stop: int) -> Ints:
    """Ends of blocks until `stop`: of transfers that all begin at once there are more packets than fit in one."""
    t = traffic.transfers
    due = int((t.before(rows, np.full(len(rows), stop))[0] - sent).sum())
    first = t.start_ns[rows] + sent * t.duration_ns[rows] // t.packets[rows]
    last = np.minimum(t.last_ns[rows], stop - 1)
    open_ = first <= last
    if due <= 2 * BLOCK_PACKETS or not open_.any():
        return np.array([stop])
    begin, end = int(first[open_].min()), int(last[open_].max())
    inside = begin + (end - begin) * np.arange(1, -(-due // BLOCK_PACKETS)) // -(-due // BLOCK_PACKETS)
    return np.unique(np.append(inside, stop))


def _packets(traffic: Traffic, rows: Ints, place: Ints, numbers: _Numbers) -> tuple[Ints, Records]:
    """Packets number `place` of the transfers `rows`."""
    t = traffic.transfers
    time_ns = t.start_ns[rows] + place * t.duration_ns[rows] // t.packets[rows]
    order = np.lexsort((place, rows, time_ns))
    rows, place, time_ns = rows[order], place[order], time_ns[order]
    flow, before = t.flow[rows], place * t.segment_bytes
    payload = np.where(t.payload[rows] > 0, np.minimum(t.segment_bytes, t.payload[rows] - before), 0)
    fresh = np.clip(t.fresh[rows] - before, 0, payload)
    first, seq_end, ack = numbers.next(flow, fresh)
    records = new_records(len(flow))
    records["seconds"], records["fraction"] = time_ns // 10**9, time_ns % 10**9
    records["wire"] = HEADER_BYTES + payload
    records["captured"] = np.minimum(records["wire"], SNAPLEN)
    records["ip_bytes"] = records["wire"] - 14
    records["ident"] = _DONT_FRAGMENT
    src, dst, macs, ports = _ends(traffic)
    records["ethernet"] = macs[flow]
    records["src_ip"], records["dst_ip"] = src[flow], dst[flow]
    records["src_port"], records["dst_port"] = ports[flow, 0], ports[flow, 1]
    records["checksum"] = _checksum(records)
    records["seq"] = (seq_end - payload - first) & 0xFFFFFFFF
    records["ack"] = ack & 0xFFFFFFFF
    records["window"] = 0xFFFF
    records["flags"] = np.where(payload > 0, _ACK | _PUSH, _ACK)
    records["options"] = _TIMESTAMPS
    opening = first.astype(bool)
    records["flags"][opening] = np.where(flow[opening] % 2, _SYN | _ACK, _SYN)
    records["options"][opening] = _SYN_OPTIONS
    return flow, records


class _Numbers:
    """Sequence and acknowledgement numbers, block after block. A flow's first packet is its SYN."""

    _BEYOND = 1 << 48  # more than any sequence number

    def __init__(self, traffic: Traffic) -> None:
        flows = len(traffic.ends)
        self._sent = np.arange(flows) % 1000 * 1_000_000  # begins at the initial sequence number
        self._opened = np.zeros(flows, bool)

    def next(self, flow: Ints, fresh: Ints) -> tuple[Ints, Ints, Ints]:
        """For each packet, in the order of time: 1 for a SYN, the sequence number after it, the acknowledged number."""
        by_flow = np.argsort(flow, kind="stable")
        begins = np.ones(len(flow), bool)
        begins[1:] = flow[by_flow][1:] != flow[by_flow][:-1]
        first = np.zeros(len(flow), np.int64)
        first[by_flow[begins]] = ~self._opened[flow[by_flow[begins]]]
        running = np.cumsum((fresh + first)[by_flow])
        restart = np.maximum.accumulate(np.where(begins, running - (fresh + first)[by_flow], 0))
        end = np.empty(len(flow), np.int64)
        end[by_flow] = running - restart + self._sent[flow[by_flow]]
        ack = self._acknowledged(flow, end)
        np.maximum.at(self._sent, flow, end)
        self._opened[flow] = True
        return first, end, ack

    def _acknowledged(self, flow: Ints, end: Ints) -> Ints:
        """The sequence number that the reverse flow has reached before each packet; 0 before its SYN."""
        connection, back = flow // 2, flow % 2
        order = np.argsort(connection, kind="stable")
        group = np.cumsum(np.diff(connection[order], prepend=connection[order[:1]]) != 0)
        answer = np.empty(len(flow), np.int64)
        for side in (0, 1):
            mine = back[order] == side
            reached = np.maximum.accumulate(group * self._BEYOND + np.where(mine, end[order], 0)) - group * self._BEYOND
            other = 2 * connection[order] + side
            known = np.where(self._opened[other], self._sent[other], 0)
            answer[order[~mine]] = np.maximum(reached, known)[~mine]
        return answer


def _ends(traffic: Traffic) -> tuple[Ints, Ints, npt.NDArray[np.bytes_], Ints]:
    """Addresses as numbers, Ethernet addresses (receiver, sender) and ports of each flow."""
    ends = np.array(traffic.ends, np.int64).reshape(-1, 2)
    address = np.array([int(ip_address(text)) for text in traffic.addresses])
    macs = [b"\x02\x00\x00" + (host + 1).to_bytes(3, "big") for host in range(traffic.hosts + 1)]
    pairs = np.array([macs[dst] + macs[src] for src, dst in ends], "S12")
    return address[ends[:, 0]], address[ends[:, 1]], pairs, traffic.ports


def _checksum(records: Records) -> Ints:
    """Checksums of the IPv4 headers (RFC 1071)."""
    total = np.full(len(records), 0x4500 + (64 << 8 | 6), np.int64)
    total += records["ip_bytes"]
    for name in ("ident", "src_ip", "dst_ip"):
        total += (records[name] >> 16) + (records[name] & 0xFFFF)
    for _ in range(2):
        total = (total >> 16) + (total & 0xFFFF)
    return ~total & 0xFFFF


# --- logs and run.toml


def _write_logs(folder: Path, traffic: Traffic) -> None:
    run, times = traffic.run, traffic.times
    losses, accuracies = [""] * run.steps, [""] * run.steps
    if run.learns:
        losses, accuracies = ([f"{value:.6f}" for value in values] for values in learning_curve(run.steps))
    epochs = [step * run.epochs // run.steps for step in range(run.steps)]
    phases = (times.start_ns, times.communicate_ns, times.communicated_ns, times.end_ns)
    for worker in range(run.workers):
        label = traffic.labels[worker]
        ends_ns = times.end_ns[:, worker].tolist()
        text = training_log(zip(epochs, ends_ns, losses, accuracies, [""] * run.steps, strict=True))
        (folder / f"train_history-{label}.log").write_text(text)
        if worker == 0:
            (folder / "train_history.log").write_text(text)
        if run.events:
            rows = enumerate(zip(*(phase[:, worker].tolist() for phase in phases), strict=True))
            (folder / f"phases-{label}.csv").write_text(phases_csv(rows))


def _run_toml(traffic: Traffic) -> str:
    run = traffic.run
    fields = {
        "framework": run.framework, "backend": run.backend, "model": run.model, "optimizer": run.optimizer,
        "topology": run.stated_topology, "batch_size": run.batch_size, "workers": run.workers, "epochs": run.epochs,
        "model_bytes": run.model_bytes, "model_params": run.model_bytes // 4, "model_size_mb": run.model_bytes / 1e6,
        "delay_ms": run.delay_ms, "loss_pct": run.loss_pct, "bandwidth_mbit": run.bandwidth_mbit,
        "source": run.source, "origin": "generated by ddnn-traces, not captured",
    }  # fmt: skip
    declared = {name: value for name, value in fields.items() if name not in run.undeclared}
    hosts = []
    for host, label in enumerate(traffic.labels):
        role = "worker" if host < run.workers else "parameter_server"
        entry = {"ip": traffic.addresses[host], "label": label, "role": role}
        hosts.append(entry | ({"rank": host} if role == "worker" else {}))
    return run_toml(declared, hosts)


def seconds(ns: int) -> str:
    """A time in ns as decimal unix seconds, exactly."""
    return f"{ns // 10**9}.{ns % 10**9:09d}"


def training_log(steps: Iterable[tuple[int, int, str, str, str]]) -> str:
    """train_history-WORKER.log of steps: epoch, end in ns, loss, accuracy and that of held-out data as text."""
    rows = list(steps)
    has_held_out = any(held_out for *_, held_out in rows)
    lines = ["Type,ID,Timestamp,Loss,Accuracy" + (",HeldOutAccuracy" if has_held_out else "")]
    for step, (row, following) in enumerate(pairwise([*rows, None])):
        assert row is not None
        epoch, end_ns, *values = row
        shown = ",".join([seconds(end_ns), *values[: 2 + has_held_out]])
        lines.append(f"batch,{step},{shown}")
        later = epoch + 1 if following is None else following[0]
        lines += [f"epoch,{ended},{shown}" for ended in range(epoch, later)]
    return "\n".join([*lines, ""])


def phases_csv(steps: Iterable[tuple[int, tuple[int, int, int, int]]]) -> str:
    """phases-WORKER.csv of steps: number, then start, start and end of communication, and end in ns."""
    rows = [",".join([str(step), *map(seconds, times)]) for step, times in steps]
    return "\n".join(["step,t_begin,t_comm_begin,t_comm_end,t_end", *rows, ""])


def events_csv(events: Iterable[tuple[int, str, str | None, int, int, int | None]]) -> str:
    """events-WORKER.csv of collectives and transfers: step, kind, name, start and end in ns, bytes."""
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(["step", "kind", "name", "t_begin", "t_end", "bytes"])
    writer.writerows(
        (step, kind, name, seconds(start), seconds(end), size) for step, kind, name, start, end, size in events
    )
    return rows.getvalue()


def run_toml(fields: Mapping[str, Any], hosts: Iterable[Mapping[str, Any]]) -> str:
    """run.toml of columns of `runs` and [[hosts]] entries; fields that are None are left out."""
    lines = [f"{name} = {_toml(value)}" for name, value in fields.items() if value is not None]
    for host in hosts:
        lines += ["", "[[hosts]]"]
        lines += [f"{name} = {_toml(value)}" for name, value in host.items() if value is not None]
    return "\n".join([*lines, ""])


def _toml(value: Any) -> str:
    """A value in TOML, whose basic strings are JSON's but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
