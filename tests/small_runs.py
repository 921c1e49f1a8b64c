"""Small synthetic runs: what hosts send each other, the capture files of it, and the datasets made from them."""

from __future__ import annotations

import contextlib
import filecmp
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import packets as p
import polars as pl

import ddnn_traces
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.messages import Messages
from ddnn_traces.query import checks, views
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store import schema
from ddnn_traces.store.layout import SOURCES
from ddnn_traces.store.whole_files import sha256_of

BEGIN_NS = 1_700_000_000_000_000_000
SPACING_NS = 10_000
A, B, C, D = (f"10.0.0.{number}" for number in range(1, 5))
EVERYBODY = "224.0.0.1"


SAMPLED = "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"


def plain_and_compressed(folder: Path, sample: Path, rounds: int) -> Path:
    """Run folders in a new one: `large`, a plain capture of a ring, and `sampled`, compressed ones with logs."""
    large = folder / "large"
    large.mkdir(parents=True)
    packets = in_sequence(ring(A, B, C, rounds=rounds))
    (large / "worker-1.pcap").write_bytes(p.pcap(packet.record for packet in packets))
    (folder / "sampled").symlink_to(sample / SAMPLED)
    return folder


def parquet_hashes(dataset: Path) -> dict[str, str]:
    """Those of hashes_of() that are of tables."""
    return {name: digest for name, digest in hashes_of(dataset).items() if name.endswith(".parquet")}


@dataclass(frozen=True)
class Packet:
    """A TCP segment (to EVERYBODY: a UDP datagram) of `payload` bytes."""

    time_ns: int
    src: str
    dst: str
    payload: int
    flags: int = p.ACK
    ports: tuple[int, int] = (40000, 5000)
    seq: int = 0
    options: bytes = b""
    window: int = 500

    @property
    def record(self) -> p.Record:
        source, destination = self.ports
        if self.dst == EVERYBODY:
            datagram = p.udp(bytes(self.payload), source, destination)
            return p.Record(self.time_ns, p.ethernet(p.ipv4(datagram, self.src, self.dst, p.UDP)))
        segment = p.tcp(
            bytes(self.payload), source, destination, self.seq, self.flags, self.options, window=self.window
        )
        return p.Record(self.time_ns, p.ethernet(p.ipv4(segment, self.src, self.dst)))


def exchange(pairs: Iterable[tuple[str, str]], rounds: int = 5) -> list[Packet]:
    """Rounds in which each pair's first host sends data and its second an acknowledgement, evenly in time.

    Sizes differ from packet to packet, so that a lost one is not compensated by another counted twice.
    """
    ends = [end for pair in list(pairs) * rounds for end in (pair, pair[::-1])]
    packets = []
    for i, (src, dst) in enumerate(ends):
        ports = (5000, 40000) if i % 2 else (40000, 5000)
        packets.append(Packet(BEGIN_NS + i * SPACING_NS, src, dst, 0 if i % 2 else 100 + i, ports=ports))
    return packets


def in_sequence(packets: Iterable[Packet]) -> Iterator[Packet]:
    """Each host's segments to another one follow each other in the stream; otherwise all are the first again."""
    sent = Counter[tuple[str, str]]()
    for packet in packets:
        yield replace(packet, seq=sent[packet.src, packet.dst])
        sent[packet.src, packet.dst] += packet.payload


def ring(*hosts: str, rounds: int = 5) -> list[Packet]:
    return exchange(zip(hosts, [*hosts[1:], hosts[0]], strict=True), rounds)


def star(centre: str, *leaves: str, rounds: int = 5) -> list[Packet]:
    return exchange([pair for leaf in leaves for pair in ((centre, leaf), (leaf, centre))], rounds)


def sent_by(host: str) -> Callable[[Packet], bool]:
    """As `tcpdump src HOST` at that host."""
    return lambda packet: packet.src == host


def received_by(host: str) -> Callable[[Packet], bool]:
    return lambda packet: packet.dst in (host, EVERYBODY)


def passing(host: str) -> Callable[[Packet], bool]:
    """All that passes a host's interface."""
    return lambda packet: host in (packet.src, packet.dst) or packet.dst == EVERYBODY


def write_captures(folder: Path, captures: Mapping[str, Iterable[Packet]]) -> Path:
    """A run folder with these files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, packets in captures.items():
        (folder / name).write_bytes(p.pcap(packet.record for packet in packets))
    return folder


def write_log(folder: Path, worker: str, ends_ns: Sequence[int]) -> None:
    """Training log of a worker whose steps end at these times."""
    rows = [f"batch,{i},{ns // 10**9}.{ns % 10**9:09d},0.5,0.5" for i, ns in enumerate(ends_ns)]
    text = "\n".join(["Type,ID,Timestamp,Loss,Accuracy", *rows, ""])
    (folder / f"train_history-{worker}.log").write_text(text)


def ingest(folder: Path, captures: Mapping[str, Iterable[Packet]], **options: Any) -> Dataset:
    """Dataset of one run `run` with these files. options: of IngestOptions."""
    return read_folder(write_captures(folder / "run", captures), **options)


def write_frames(folder: Path, captures: Mapping[str, Iterable[bytes]]) -> Path:
    """As write_captures, with frames at intervals of SPACING_NS."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, frames in captures.items():
        records = [p.Record(BEGIN_NS + i * SPACING_NS, frame) for i, frame in enumerate(frames)]
        (folder / name).write_bytes(p.pcap(records))
    return folder


def ingest_frames(folder: Path, captures: Mapping[str, Iterable[bytes]], **options: Any) -> Dataset:
    """As ingest, with frames at intervals of SPACING_NS."""
    return read_folder(write_frames(folder / "run", captures), **options)


def read_folder(run: Path, messages: Messages | None = None, **options: Any) -> Dataset:
    """Dataset of a run folder, next to it."""
    pipeline.ingest([str(run)], run.parent / "dataset", IngestOptions(**options), messages)
    return ddnn_traces.open(run.parent / "dataset")


def column(dataset: Dataset, sql: str) -> list[Any]:
    """First column of a query's result."""
    return dataset.sql(sql).to_series().to_list()


def found_by(dataset: Dataset, check: str) -> list[dict[str, Any]]:
    """The offending rows of one data check: all of them take half a second."""
    return dataset.sql((checks.folder() / f"{check}.sql").read_text()).to_dicts()


def sent(packets: Iterable[Packet]) -> dict[tuple[str, str], tuple[int, int]]:
    """Directed pair -> packets and payload bytes that were sent."""
    packets = list(packets)
    number = Counter((packet.src, packet.dst) for packet in packets)
    payload: Counter[tuple[str, str]] = Counter()
    for packet in packets:
        payload[packet.src, packet.dst] += packet.payload
    return {pair: (number[pair], payload[pair]) for pair in number}


def counted(dataset: Dataset) -> dict[tuple[str, str], tuple[int, int]]:
    """As sent(), from the dataset."""
    rows = dataset.query("traffic_matrix").select("src_ip", "dst_ip", "packets", "payload_bytes").rows()
    return {(src, dst): (packets, payload) for src, dst, packets, payload in rows}


def vantages(dataset: Dataset) -> dict[str, str | None]:
    """Capture -> host where it was taken."""
    return dict(dataset.sql("SELECT capture_id, vantage_ip FROM captures").rows())


#: Pairs of flows with the ends exchanged, and the time between their starts.
EXCHANGED = """
    SELECT f.run_id, f.flow_id, f.reverse_flow_id, r.flow_id AS other, r.reverse_flow_id AS others_reverse,
           abs(f.first_seen_ns - r.first_seen_ns) AS gap
    FROM flows AS f JOIN flows AS r ON f.run_id = r.run_id AND f.flow_id <> r.flow_id
     AND (f.src_ip, f.dst_ip, f.protocol, f.src_port, f.dst_port)
       = (r.dst_ip, r.src_ip, r.protocol, r.dst_port, r.src_port)"""
NEAREST = "SELECT run_id, flow_id, min(gap) AS least FROM exchanged GROUP BY ALL"

#: SQL that returns rows where the tables of a dataset contradict each other, whatever was captured.
CONTRADICTIONS = {
    "a file's ledger adds up to its records": """
        SELECT run_id, capture_id FROM captures
        LEFT JOIN (SELECT run_id, capture_id, sum(packets) AS packets, sum(wire_bytes) AS wire
                   FROM capture_ledger GROUP BY ALL) USING (run_id, capture_id)
        WHERE records <> coalesce(packets, 0) OR wire_bytes <> coalesce(wire, 0)""",
    "flows are what the ledger counts": """
        SELECT run_id FROM (SELECT run_id, sum(packets) AS packets, sum(wire_bytes) AS wire FROM flows GROUP BY ALL)
        FULL JOIN (SELECT run_id, sum(packets) AS in_flows, sum(wire_bytes) AS in_wire
                   FROM capture_ledger WHERE reason = 'in_flows' GROUP BY ALL) USING (run_id)
        WHERE packets IS DISTINCT FROM in_flows OR wire IS DISTINCT FROM in_wire""",
    "flow ids count from 0 in the order of first_seen_ns": """
        SELECT run_id, flow_id, row_number() OVER (PARTITION BY run_id ORDER BY first_seen_ns, flow_id) - 1 AS number
        FROM flows QUALIFY flow_id <> number""",
    "a five-tuple, tunnel and queue pair has connections from 0 on": """
        SELECT run_id, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp,
               list_sort(list(connection)) AS connections
        FROM flows GROUP BY ALL HAVING connections <> range(count(*)) OR (protocol <> 6 AND count(*) > 1)""",
    "a tunnel of a flow has a row, and so has the one around it": """
        SELECT run_id, tunnel FROM (
            SELECT run_id, encapsulation_id AS tunnel FROM flows
            UNION SELECT run_id, parent_id FROM encapsulations) AS t
        ANTI JOIN encapsulations AS e ON (t.run_id, tunnel) = (e.run_id, e.encapsulation_id)
        WHERE tunnel IS NOT NULL""",
    "opcodes add up to their flow, where it has a queue pair": """
        SELECT run_id, flow_id FROM flows FULL JOIN (
            SELECT run_id, flow_id, sum(packets) AS p, sum(wire_bytes) AS w, sum(payload_bytes) AS b
            FROM flow_opcodes GROUP BY ALL) USING (run_id, flow_id)
        WHERE CASE WHEN roce_dest_qp IS NULL THEN p IS NOT NULL
                   ELSE (p, w, b) IS DISTINCT FROM (packets, wire_bytes, payload_bytes) END""",
    "packets, where they were requested, add up to their flow and lie within it": """
        SELECT run_id, flow_id FROM flows FULL JOIN (
            SELECT run_id, flow_id, count(*) AS p, sum(wire_bytes) AS w, sum(ip_bytes) AS i, sum(payload_bytes) AS b,
                   sum(captured_bytes) AS c, min(ts_ns) AS first_ns, max(ts_ns) AS last_ns
            FROM packets GROUP BY ALL) USING (run_id, flow_id)
        WHERE run_id IN (SELECT run_id FROM packets)
          AND (p, w, i, b, c, first_ns, last_ns) IS DISTINCT FROM
              (packets, wire_bytes, ip_bytes, payload_bytes, captured_bytes, first_seen_ns, last_seen_ns)""",
    "reverse_flow_id is a flow with the ends exchanged, both ways, and none begins nearer": f"""
        WITH exchanged AS ({EXCHANGED}), nearest AS ({NEAREST})
        SELECT f.run_id, f.flow_id FROM flows AS f
        LEFT JOIN exchanged AS e ON (e.run_id, e.flow_id, e.other) = (f.run_id, f.flow_id, f.reverse_flow_id)
        LEFT JOIN nearest AS n ON (n.run_id, n.flow_id) = (f.run_id, f.flow_id)
        WHERE f.reverse_flow_id IS NOT NULL AND (e.others_reverse IS DISTINCT FROM f.flow_id OR e.gap > n.least)""",
    "of two flows that are each other's nearest none is without a reverse": f"""
        WITH exchanged AS ({EXCHANGED}), nearest AS ({NEAREST})
        SELECT e.run_id, e.flow_id, e.other FROM exchanged AS e
        JOIN nearest AS a ON (a.run_id, a.flow_id, a.least) = (e.run_id, e.flow_id, e.gap)
        JOIN nearest AS b ON (b.run_id, b.flow_id, b.least) = (e.run_id, e.other, e.gap)
        WHERE e.reverse_flow_id IS NULL AND e.others_reverse IS NULL""",
    "an initiator is known from one of the sources": """
        SELECT run_id, flow_id, initiator_source FROM flows
        WHERE (is_initiator IS NULL) <> (initiator_source IS NULL) OR initiator_source NOT IN
              ('syn', 'reverse_syn', 'shared_port', 'port', 'first_packet', 'only_direction')""",
    "segments on the cable have at least as many bytes as super-frames": """
        SELECT run_id, flow_id FROM flows
        WHERE cable_bytes_estimate < wire_bytes
           OR (protocol <> 6 AND (mss IS NOT NULL OR cable_bytes_estimate IS DISTINCT FROM wire_bytes))""",
    "packets sent again or out of order are some of the packets": """
        SELECT run_id, flow_id FROM flows WHERE retransmitted_packets + out_of_order_packets > packets
           OR retransmitted_bytes + out_of_order_bytes > payload_bytes""",
    "one of two directions opened a connection": """
        SELECT f.run_id, f.flow_id FROM flows AS f
        JOIN flows AS r ON r.run_id = f.run_id AND r.flow_id = f.reverse_flow_id
        WHERE f.is_initiator = r.is_initiator""",
    "windows add up to their flow and lie within it": """
        SELECT run_id, flow_id FROM flows LEFT JOIN (
            SELECT run_id, flow_id, sum(packets) AS p, sum(wire_bytes) AS w, sum(payload_bytes) AS b,
                   min(window_start_ns) AS first_ns, max(window_start_ns + window_ns) AS end_ns,
                   min(packets) AS least, max(window_start_ns % window_ns) AS rest
            FROM flow_windows GROUP BY ALL) USING (run_id, flow_id)
        WHERE (p, w, b) IS DISTINCT FROM (packets, wire_bytes, payload_bytes) OR least < 1 OR rest <> 0
           OR first_ns > first_seen_ns OR end_ns <= last_seen_ns""",
    "step_flows add up to their flow in runs with a log": """
        SELECT run_id, flow_id FROM flows LEFT JOIN (
            SELECT run_id, flow_id, sum(packets) AS p, sum(wire_bytes) AS w, sum(payload_bytes) AS b,
                   sum(retransmitted_bytes) AS r
            FROM step_flows GROUP BY ALL) USING (run_id, flow_id)
        WHERE run_id IN (SELECT run_id FROM steps)
          AND (p, w, b, r) IS DISTINCT FROM (packets, wire_bytes, payload_bytes, retransmitted_bytes)""",
    "step_flows name steps that are there": """
        SELECT run_id, flow_id FROM step_flows LEFT JOIN steps USING (run_id, worker, step)
        WHERE (position = 'during') <> (end_ns IS NOT NULL) OR (step IS NULL) = (position = 'during')""",
    "sizes nest: payload in IP in wire": """
        SELECT run_id, flow_id FROM flows WHERE payload_bytes > ip_bytes OR ip_bytes > wire_bytes OR packets < 1""",
    "every end of a flow is a host": """
        SELECT run_id, src_ip FROM flows ANTI JOIN hosts ON flows.run_id = hosts.run_id AND src_ip = host_ip""",
}


def hashes_of(dataset: Path) -> dict[str, str]:
    """SHA-256 of every file but the database of views, which holds the dataset's path (query/test_views.py), and
    sources.json, which holds that of the captures (export/test_packets.py)."""
    of_places = (dataset / views.FILE, dataset / SOURCES)
    files = sorted(path for path in dataset.rglob("*") if path.is_file() and path not in of_places)
    return {str(path.relative_to(dataset)): sha256_of(path) for path in files}


def views_are_current(dataset: Path) -> bool:
    """Whether traces.duckdb is the file that this version writes for the dataset, byte for byte."""
    with tempfile.TemporaryDirectory() as folder:
        views.write(Path(folder) / views.FILE, dataset)
        return filecmp.cmp(Path(folder) / views.FILE, dataset / views.FILE, shallow=False)


def contradictions(dataset: Dataset) -> dict[str, pl.DataFrame]:
    """Broken rules of CONTRADICTIONS with the rows that break them; empty for a sound dataset."""
    rules = list(enumerate(CONTRADICTIONS.values()))
    counts = " UNION ALL ".join(f"SELECT {n} AS n, count(*) AS rows FROM ({query})" for n, query in rules)
    with _stored_tables(dataset, counts) as connection:  # which takes less than half of the time
        broken = dict(connection.execute(counts).fetchall())  # one statement: less planning
    return {rule: dataset.sql(query) for n, (rule, query) in enumerate(CONTRADICTIONS.items()) if broken[n]}


@contextlib.contextmanager
def _stored_tables(dataset: Dataset, text: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """The dataset's connection, in which the tables that the text names are in memory: each file is read once."""
    connection = dataset.provide(text)
    names = {*schema.TABLES} & {*re.findall(r"\w+", text)}
    connection.execute(";".join(f"CREATE TEMP TABLE {name} AS FROM {name}" for name in names))
    yield connection
    connection.execute(";".join(f"DROP TABLE temp.{name}" for name in names))
