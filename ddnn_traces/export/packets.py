"""Back to the packets: the records of a flow, a pair of hosts or a step, from the captures that a run was read from.

The records are those that the tables count. Ingest's packet loop reads the captures again, and the SQL that decides
which copy of a packet counts is ingest's, too (reconcile/run_tables.py), over the five-tuples that are wanted: so
fragments, tunnels, connections and copies at two hosts are treated as in `flows`. docs/exports.md states the rules.
"""

from __future__ import annotations

import ipaddress
import shutil
import struct
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ddnn_traces.capture_format import (
    INTERFACE_DESCRIPTION,
    SECTION_HEADER,
    pcap_header,
    pcapng_block,
    pcapng_option,
)
from ddnn_traces.errors import UsageError
from ddnn_traces.export import display_filter
from ddnn_traces.ingestors.inputs import Originals, RunRecord, read_inputs
from ddnn_traces.messages import Messages
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.store.layout import refuse_inside
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text import counted, listed, natural_order, nearest

if TYPE_CHECKING:
    from ddnn_traces.pcap.chosen import FiveTuple, FlowSearch

STDOUT = Path("-")
_SNAPLEN = 262144
_ALWAYS = (-(2**63), 2**63 - 1)
INFERRED_WORKER = "traffic"  # of query inferred_step_rows
_SHOWN = 6  # names of files in a line

_Row = dict[str, Any]


@dataclass(frozen=True)
class Selection:
    """Which packets: those that have all that is given.

    flows: flow_ids. pair: two hosts, each by an address, its label or its short name (query host_names); both
    directions. step: of the worker at whose host the packets were captured, as in step_flows; of a dataset that is
    opened with inferred steps, of all captures. Raises UsageError without
    any, and for a pair that is none.
    """

    flows: Sequence[int] = ()
    pair: Sequence[str] = ()
    step: int | None = None

    def __post_init__(self) -> None:
        if not self.flows and not self.pair and self.step is None:
            raise UsageError(
                "which packets? give --flow F (flow_id of the table flows), --pair A,B (two hosts) or --step N; of "
                "several, what they have in common is written"
            )
        if self.pair and (len(self.pair) != 2 or not all(self.pair)):
            raise UsageError(f"--pair {','.join(self.pair)}: give two hosts, as in --pair worker-1,worker-2")

    @property
    def words(self) -> str:
        """The selection in a message."""
        parts = [f"flow {', '.join(map(str, self.flows))}"] if self.flows else []
        parts += [f"pair {','.join(self.pair)}"] if self.pair else []
        parts += [] if self.step is None else [f"step {self.step}"]
        return " in ".join(parts)


@dataclass(frozen=True)
class Cut:
    """What was written.

    run: its name. records, wire_bytes, captured_bytes: of the cut. expected: packets and wire bytes that the tables
    have. display_filter: of Wireshark, for the same packets. files: captures that have them, with by what each is known
    to be unchanged. searched, searched_bytes: captures that were read to find them. copied_bytes: what was read to copy
    them.
    """

    run: str
    records: int
    wire_bytes: int
    captured_bytes: int
    expected: tuple[int, int]
    display_filter: str
    files: dict[str, str]
    searched: tuple[str, ...]
    searched_bytes: int
    copied_bytes: int

    @property
    def agrees(self) -> bool:
        """Whether it has as many packets and bytes as the tables."""
        return (self.records, self.wire_bytes) == self.expected


def write(
    dataset: Dataset, out: Path, selection: Selection, captures: Sequence[str] = (), messages: Messages | None = None,
    stdout: BinaryIO | None = None,
) -> Cut:  # fmt: skip
    """Write the packets of a selection, of the run of a dataset opened for a single one, as `out`.

    out: FILE.pcap (nanoseconds) or FILE.pcapng (an interface for each capture and link type); `-`: a pcapng to
    `stdout`. Records have the time, bytes and original length that they have in the captures, and are in the order of
    time. captures: files and folders where the captures are now; empty: where they were when they were ingested.
    Raises UsageError for a wrong selection or output, and where captures are missing; CaptureError where one has
    changed.
    """
    messages = messages or Messages()
    _check_name(out, stdout)
    run = _Run(dataset, captures)
    wanted = _Wanted(run, selection)
    run.check_place(out, messages)
    with _output(out, stdout) as file, tempfile.TemporaryDirectory(prefix="ddnn-traces-") as scratch:
        found = _Search(run, wanted, Path(scratch), messages)
        return _copy(run, wanted, found, _Writer(file, out, is_pcapng=out == STDOUT or out.suffix == ".pcapng"))


def _check_name(out: Path, stdout: BinaryIO | None) -> None:
    if out == STDOUT and stdout is None:
        raise UsageError("--out -: there is no standard output here; name a file")
    refuse_inside(out)
    if out != STDOUT and out.suffix not in (".pcap", ".cap", ".pcapng"):
        raise UsageError(f"--out {out}: name it .pcap or .pcapng, or - for standard output; compress it afterwards")


@contextmanager
def _output(out: Path, stdout: BinaryIO | None) -> Iterator[BinaryIO]:
    """The file to write into. For standard output a temporary one, so that nothing comes out before it is whole."""
    if out == STDOUT:
        assert stdout is not None, "_check_name has seen to it"
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            shutil.copyfileobj(file, stdout)
        return
    with whole_file(out) as path:
        try:
            opened = path.open("wb")
        except OSError as error:
            raise UsageError(f"{out}: cannot be written ({error.strerror}); choose another --out") from error
        with opened:
            yield opened


# --- what the tables say


class _Run:
    """A run of a dataset and its captures."""

    def __init__(self, dataset: Dataset, captures: Sequence[str]) -> None:
        self.name = dataset.only_run
        self.dataset = dataset
        if dataset.place.listed is not None:
            raise UsageError(
                f"{dataset.name}: is a release, whose addresses are not those of the captures; use the dataset that it "
                "was made from, or, where it has a folder pcap, ingest that and cut from the new dataset"
            )
        self.has_inferred_steps = self.name in dataset.runs_of_inferred_steps
        self.captures = self.rows("FROM captures WHERE run_id = $run ORDER BY capture_id")
        self.record: RunRecord | None = read_inputs(dataset.path).get(self.name)
        if not any(row["engine"] != "synthetic" for row in self.captures):
            source = self.rows("SELECT coalesce(source, 'synthetic') AS source FROM runs WHERE run_id = $run")
            raise UsageError(
                f"run {self.name} has no captures (source {source[0]['source']}), so there are no packets of it; "
                f"choose a captured run ('ddnn-traces runs {dataset.name}' shows the source of each)"
            )
        if self.record is None:
            raise UsageError(
                f"{dataset.name}: its inputs.json does not tell what run {self.name} was read from; ingest its "
                "captures again"
            )
        self.originals = Originals(dataset.path, self.name, self.captures, self.record, captures)

    def rows(self, sql: str, **params: Any) -> list[_Row]:
        """Rows of SQL with the parameter $run."""
        found: list[_Row] = self.dataset.sql_arrow(sql, {"run": self.name, **params}).to_pylist()
        return found

    def by_key(self, flows: Iterable[_Row]) -> dict[tuple[Any, ...], _Row]:
        """Rows of flows by what identifies a flow in the run."""
        from ddnn_traces.ingestors.reconcile.run_tables import chains_of, key_of

        chains = chains_of(self.rows("FROM encapsulations WHERE run_id = $run"))
        return {key_of(row, chains): row for row in flows}

    def check_place(self, out: Path, messages: Messages) -> None:
        """Raise UsageError where the output would replace a capture; warn where ingest would take it for one."""
        for row in self.captures if out != STDOUT else ():
            path = self.originals.place(row)
            if path and out.exists() and path.exists() and out.samefile(path):
                raise UsageError(f"{out}: is a capture of run {self.name}, which would be lost; choose another --out")
        folders = {path.parent.resolve() for row in self.captures if (path := self.originals.place(row))}
        if out != STDOUT and out.resolve().parent in folders:
            messages.warn(
                f"{out}: is in a folder with captures of run {self.name}; an ingest of that folder would take it for "
                "one more of them"
            )

    @property
    def open_tunnels(self) -> bool:
        """Whether flows are what is inside tunnels."""
        assert self.record
        return bool(self.record.packets.parameters.get("tunnels", "inner") == "inner")

    def worker(self, capture_id: str) -> str | None:
        """Worker whose steps the packets of a capture were assigned to; None without a log. Inferred steps are those of
        all captures.

        Raises UsageError where an older program ingested the run, which did not record it.
        """
        if self.has_inferred_steps:
            return INFERRED_WORKER
        assert self.record
        needs = self.record.packets.needs
        if needs is None:
            raise UsageError(
                f"{self.dataset.name}: an older program wrote run {self.name}, and its inputs.json does not tell which "
                "steps its captures belong to; ingest it again with --force"
            )
        step = needs.steps.get(capture_id)
        return step[0] if step else None


#: The flows of a run with: how many connections their key has, and the times of all of these. rows: wanted ones, with
#: the sums that are expected.
_FLOWS = """
WITH keyed AS (
    SELECT *, count(*) OVER key AS connections, min(first_seen_ns) OVER key AS key_first_ns,
           max(last_seen_ns) OVER key AS key_last_ns
    FROM flows WHERE run_id = $run
    WINDOW key AS (PARTITION BY src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp)
)
SELECT flow_id, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp, connection, packets,
       wire_bytes, captured_bytes, first_seen_ns, last_seen_ns, connections, key_first_ns, key_last_ns
FROM keyed WHERE {conditions} ORDER BY flow_id
"""


class _Wanted:
    """The flows of a selection, what the tables count of it, and the times of its step."""

    def __init__(self, run: _Run, selection: Selection) -> None:
        self.selection = selection
        self._run = run
        conditions: list[str] = ["true"]
        params: dict[str, Any] = {}
        self.pair = [self._addresses(name) for name in selection.pair]
        if selection.flows:
            self._check_flows()
            conditions.append("flow_id IN (SELECT unnest($flows))")
            params["flows"] = list(selection.flows)
        if self.pair:
            ends = "(src_ip IN (SELECT unnest($a)) AND dst_ip IN (SELECT unnest($b)))"
            other = "(src_ip IN (SELECT unnest($b)) AND dst_ip IN (SELECT unnest($a)))"
            conditions.append(f"({ends} OR {other})")
            params |= {"a": self.pair[0], "b": self.pair[1]}
        if selection.step is not None:
            self.steps = self._times_of_step(selection.step)
            conditions.append("flow_id IN (SELECT flow_id FROM step_flows WHERE run_id = $run AND step = $step)")
            params["step"] = selection.step
        self.flows = run.rows(_FLOWS.format(conditions=" AND ".join(conditions)), **params)
        if not self.flows:
            raise UsageError(
                f"run {run.name} has no packets of {selection.words}; 'ddnn-traces sql' shows the tables flows and "
                "step_flows"
            )
        self.in_step = self._rows_in_step()

    @property
    def expected(self) -> tuple[int, int]:
        """Packets and wire bytes of the selection."""
        rows = self.flows if self.selection.step is None else self.in_step
        return sum(row["packets"] for row in rows), sum(row["wire_bytes"] for row in rows)

    def between(self, worker: str | None) -> tuple[int, int]:
        """Start and end (exclusive) of what is wanted of a capture that belongs to that worker's steps, ns."""
        if self.selection.step is None:
            return _ALWAYS
        return self.steps.get(worker or "", (0, 0))

    def display_filter(self, fragmented: set[int]) -> str:
        """For Wireshark. fragmented: flow_ids that may have fragments."""
        parts, routed = [], display_filter.has_route_headers(self.flows)
        if self.selection.flows:
            parts.append(
                display_filter.any_of(
                    display_filter.of_flow(
                        row,
                        row["flow_id"] in fragmented,
                        (row["first_seen_ns"], row["last_seen_ns"]) if row["connections"] > 1 else None,
                    )
                    for row in self.flows
                )
            )
        elif self.pair:
            parts.append(display_filter.of_pair(self.pair[0], self.pair[1], routed))
        if self.selection.step is not None:
            sources = {row["flow_id"]: row["src_ip"] for row in self.flows}
            parts.append(
                display_filter.of_step(
                    ((sources[row["flow_id"]], *self.steps[row["worker"]]) for row in self.in_step), routed
                )
            )
        return display_filter.all_of(parts)

    def _check_flows(self) -> None:
        known = self._run.rows("SELECT min(flow_id) AS low, max(flow_id) AS high FROM flows WHERE run_id = $run")[0]
        for flow in self.selection.flows:
            if known["high"] is None or not known["low"] <= flow <= known["high"]:
                there = "it has none" if known["high"] is None else f"it has {known['low']} to {known['high']}"
                raise UsageError(
                    f"run {self._run.name} has no flow {flow}; {there} (column flow_id of the table flows)"
                )

    def _addresses(self, name: str) -> list[str]:
        """The addresses of a host, by one of them, its label or its short name in charts (W1). Raises UsageError."""
        with suppress(ValueError):
            name = str(ipaddress.ip_address(name))
        labels = self._run.rows("SELECT host_ip, label FROM hosts WHERE run_id = $run ORDER BY host_ip")
        ends = self._run.rows(
            "SELECT src_ip AS ip FROM flows WHERE run_id = $run UNION SELECT dst_ip FROM flows WHERE run_id = $run"
        )
        found = [row["host_ip"] for row in labels if name in (row["host_ip"], row["label"])]
        found += [row["ip"] for row in ends if row["ip"] == name and name not in found]
        if not found:
            names = self._run.rows("FROM host_names WHERE run_id = $run")
            found = [row["host_ip"] for row in names if row["host"] == name]
        if not found:
            known = {row["label"] for row in labels if row["label"]} | {row["host_ip"] for row in labels}
            raise UsageError(
                f"run {self._run.name} has no host {name}; {nearest(name, sorted(known, key=natural_order), 8)}"
            )
        return found

    def _times_of_step(self, step: int) -> dict[str, tuple[int, int]]:
        """Start and end (exclusive) of a step by worker, as ingest assigns packets (logs.TrainingLog.bounds)."""
        rows = self._run.rows(
            "SELECT worker, step, max(end_ns) OVER before AS end_ns, first_value(start_ns) OVER before AS first_ns "
            "FROM steps WHERE run_id = $run WINDOW before AS (PARTITION BY worker ORDER BY step) ORDER BY worker, step"
        )
        if not rows:
            if notes := self._run.dataset.step_notes:
                raise UsageError(f"{notes[0]}; write the packets of a --pair or --flow")
            raise UsageError(
                f"run {self._run.name} has no training log, so it has no logged steps; --infer-steps takes those that "
                "its traffic shows (query inferred_steps), where they are sure"
            )
        ends: dict[str, dict[int, int]] = {}
        first = {}
        for row in rows:
            first[row["worker"]] = row["first_ns"]
            ends.setdefault(row["worker"], {})[row["step"]] = max(row["end_ns"], row["first_ns"])
        most = max(max(steps) for steps in ends.values())
        if not 0 <= step <= most:
            raise UsageError(f"run {self._run.name} has no step {step}; it has 0 to {most}")
        return {
            worker: (steps[step - 1] if step else first[worker], steps[step])
            for worker, steps in ends.items()
            if step in steps
        }

    def _rows_in_step(self) -> list[_Row]:
        if self.selection.step is None:
            return []
        ids = [row["flow_id"] for row in self.flows]
        return self._run.rows(
            "SELECT flow_id, worker, packets, wire_bytes FROM step_flows WHERE run_id = $run AND step = $step "
            "AND flow_id IN (SELECT unnest($ids)) ORDER BY flow_id, worker",
            step=self.selection.step,
            ids=ids,
        )


# --- the search


class _Search:
    """The search for the wanted flows: first in the captures of their senders, which count where there are any.

    Other captures are read only where these do not have what the tables count. searches: of the captures that were
    read, with their rows of the table captures, by what each is known to be unchanged, and the numbers of the wanted
    flows in each. fragmented: flow_ids that may have fragments.
    """

    def __init__(self, run: _Run, wanted: _Wanted, scratch: Path, messages: Messages) -> None:
        self._run, self._wanted, self._scratch, self._messages = run, wanted, scratch, messages
        self._by_key = run.by_key(wanted.flows)
        self.searches: list[FlowSearch] = []
        self.captures: list[_Row] = []
        self.unchanged: list[str] = []
        self.flows: list[list[int]] = []
        self.fragmented: set[int] = set()
        self._prepare()
        for captures in self._stages():
            new = [row for row in captures if row not in self.captures]
            if not new and self.captures:
                continue
            self._read(new)
            if self._decide():
                break

    def _stages(self) -> Iterator[list[_Row]]:
        """The captures that may hold the flows, the likely ones first, at last all."""
        flows = self._wanted.flows
        begin = min(row["key_first_ns"] for row in flows)
        end = max(row["key_last_ns"] for row in flows)
        readable = [row for row in self._run.captures if row["records"]]
        there = [row for row in readable if row["first_ns"] <= end and row["last_ns"] >= begin]
        senders = {row["src_ip"] for row in flows}
        receivers = {row["dst_ip"] for row in flows}
        yield [row for row in there if row["vantage_ip"] in senders]
        yield [row for row in there if row["vantage_ip"] in senders | receivers or row["vantage_ip"] is None]
        yield readable

    def _prepare(self) -> None:
        from ddnn_traces.pcap.engines import DEFAULT_ENGINE, ENGINES

        engine = ENGINES[DEFAULT_ENGINE]
        if not engine.is_compiled():
            self._messages.info("compiling the packet loop, once (about half a minute)")
        engine.prepare(0)

    def _read(self, captures: Sequence[_Row]) -> None:
        """Read captures, several at once, and add them to what was found."""
        from ddnn_traces.jobs import available_cpus, thread_pool
        from ddnn_traces.pcap.chosen import FlowSearch

        tuples = sorted({_five_tuple(row) for row in self._wanted.flows})
        searches: list[FlowSearch] = []
        for row in captures:
            self.unchanged.append(self._run.originals.unchanged_by(row))
            between = self._wanted.between(
                None if self._wanted.selection.step is None else self._run.worker(row["capture_id"])
            )
            path = self._scratch / f"{len(self.searches) + len(searches)}.parquet"
            searches.append(FlowSearch(self._run.originals.path(row), tuples, between, path, self._run.open_tunnels))
        stopped = threading.Event()
        self._messages.start_reading(sum(row["file_bytes"] for row in captures))
        with thread_pool(max(1, min(available_cpus(), len(searches))), stop=stopped.set) as threads:
            for job in [threads.submit(one.read, self._messages.advance, stopped.is_set) for one in searches]:
                job.result()
        self._messages.end_reading()
        for search, row in zip(searches, captures, strict=True):
            facts = search.facts  # of the whole file, as ingest has them
            facts.capture_id, facts.status = row["capture_id"], row["status"]
            facts.first_ns, facts.last_ns = row["first_ns"], row["last_ns"]
        self.searches += searches
        self.captures += captures

    def _decide(self) -> bool:
        """Which rows of the files count; whether they are all that the tables have of the wanted flows."""
        from ddnn_traces.ingestors.reconcile.run_tables import counting_rows

        self.flows, self.fragmented = [[] for _ in self.searches], set()
        if not self.searches:
            return False
        vantages = [row["vantage_ip"] for row in self.captures]
        clocks = [row["clock_offset_ns"] or 0 for row in self.captures]
        facts = [search.facts for search in self.searches]
        sums: dict[int, list[_Row]] = {}
        for row in counting_rows(facts, vantages, clocks, self._scratch):
            flow = self._by_key.get(row["key"])
            if flow is not None:
                self.flows[row["file"]].append(row["flow"])
                sums.setdefault(flow["flow_id"], []).append(row)
                if not row["followed"]:
                    self.fragmented.add(flow["flow_id"])
        return all(_is_all(flow, sums.get(flow["flow_id"], [])) for flow in self._wanted.flows)


def _is_all(flow: _Row, rows: Sequence[_Row]) -> bool:
    """Whether the rows of files are those that the flow was made of."""
    return bool(rows) and (
        all(sum(row[name] for row in rows) == flow[name] for name in ("packets", "wire_bytes", "captured_bytes"))
        and min(row["first_seen_ns"] for row in rows) == flow["first_seen_ns"]
        and max(row["last_seen_ns"] for row in rows) == flow["last_seen_ns"]
    )


def _five_tuple(row: _Row) -> FiveTuple:
    from ddnn_traces.pcap.chosen import FiveTuple

    return FiveTuple(*(row[name] for name in FiveTuple._fields))


# --- the output


def _copy(run: _Run, wanted: _Wanted, found: _Search, writer: _Writer) -> Cut:
    """Write the records that were found, in the order of time."""
    from ddnn_traces.pcap.chosen import CopiedRecords, in_time
    from ddnn_traces.pcap.compiled import copy as copying

    copies, files = [], {}
    for search, row, how, flows in zip(found.searches, found.captures, found.unchanged, found.flows, strict=True):
        marks = search.records_of(flows)
        if marks.any():
            files[row["capture_id"]] = how
            interface = writer.interfaces_of(row["capture_id"], row["snaplen"])
            copies.append((CopiedRecords(search, marks, interface, writer.is_pcapng), search.lag))
    for data in in_time([(one.pieces(), lag) for one, lag in copies]):
        writer.write(data)
    writer.end()
    records, wire_bytes, captured_bytes = (
        int(sum(one.sums[name] for one, _ in copies)) for name in (copying.COPIED, copying.WIRE, copying.CAPTURED)
    )
    return Cut(
        run.name,
        records,
        wire_bytes,
        captured_bytes,
        wanted.expected,
        wanted.display_filter(found.fragmented),
        files,
        tuple(row["capture_id"] for row in found.captures),
        sum(row["file_bytes"] for row in found.captures),
        sum(one.read_bytes for one, _ in copies),
    )


class _Writer:
    """A pcap with nanoseconds, or a pcapng with an interface for each capture and link type; little endian."""

    def __init__(self, file: BinaryIO, out: Path, is_pcapng: bool) -> None:
        self.is_pcapng = is_pcapng
        self._file, self._out = file, out
        self._links: dict[int, str] = {}
        self._interfaces = 0
        if is_pcapng:
            self._file.write(pcapng_block(SECTION_HEADER, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)))

    def interfaces_of(self, capture_id: str, snaplen: int | None) -> Callable[[int], int]:
        """The function that gives the interface of a link type of a capture, and describes it before its packets."""
        return lambda link: self._interface(capture_id, snaplen or 0, link)

    def _interface(self, capture_id: str, snaplen: int, link: int) -> int:
        if self.is_pcapng:
            options = pcapng_option(2, capture_id.encode()) + pcapng_option(9, b"\x09") + pcapng_option(0, b"")
            self._file.write(pcapng_block(INTERFACE_DESCRIPTION, struct.pack("<HHI", link, 0, snaplen) + options))
            self._interfaces += 1
            return self._interfaces - 1
        if not self._links:
            self._begin(link)
        elif link not in self._links:
            raise UsageError(
                f"{self._out}: a pcap has one link type, and the packets have {next(iter(self._links))} and {link}; "
                "name it .pcapng"
            )
        self._links[link] = capture_id
        return 0

    def _begin(self, link: int) -> None:
        self._file.write(pcap_header(_SNAPLEN, link))

    def write(self, data: Any) -> None:
        """Write records or blocks, uint8."""
        self._file.write(data.data)

    def end(self) -> None:
        """A file without packets is its header alone."""
        if not self.is_pcapng and not self._links:
            self._begin(1)


def lines(cut: Cut, out: Path, selection: Selection) -> Iterable[str]:
    """What was done, for the user: how the records were found, and how many there are."""
    several = f"{len(cut.searched)} of the run's captures"
    yield (
        f"run {cut.run}: found by a scan of {several} ({listed(cut.searched, _SHOWN)}; {cut.searched_bytes:,} bytes), "
        f"copied from {counted(cut.copied_bytes, 'byte')} of {listed(list(cut.files), _SHOWN) or 'none'}"
    )
    by_how: dict[str, list[str]] = {}
    for name, how in cut.files.items():
        by_how.setdefault(how, []).append(name)
    for how, names in by_how.items():
        yield f"unchanged since the ingest by {how}: {listed(names, _SHOWN)}"
    packets = f"{counted(cut.records, 'record')} of {cut.wire_bytes:,} wire bytes ({cut.captured_bytes:,} captured)"
    agree = f", as many as the table {'flows' if selection.step is None else 'step_flows'} has" if cut.agrees else ""
    yield f"wrote {out}: {packets}{agree}"
