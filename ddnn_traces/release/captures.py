"""Cut-down captures: the headers of the original captures, mapped as the tables are, in run folders that ingest takes.

    RUN/worker-1.pcap.gz              little endian, ns, one for each capture that could be read; named CAPTURE_ID.gz
    RUN/run.toml                      metadata, and which label has which address here
    RUN/train_history-worker-1.log    made from the table steps
    RUN/phases-worker-1.csv           made from the table events
    RUN/events-worker-1.csv           made from the table events

pcap/compiled/cut.py defines what of a packet is kept. `ddnn-traces ingest` of them gives the released
tables again but for what a pcap cannot hold: labels in place of addresses, and properties of the original file.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from ddnn_traces.capture_format import pcap_header
from ddnn_traces.errors import UsageError
from ddnn_traces.ingestors.inputs import files_among
from ddnn_traces.ingestors.sources import RunInput, find_runs
from ddnn_traces.jobs import thread_pool
from ddnn_traces.pcap.capture_facts import STDIN
from ddnn_traces.pcap.capture_file import CaptureFile
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release.anonymise.mapping import Anonymiser, Options, RunMapping
from ddnn_traces.store import hashes, schema
from ddnn_traces.text import is_plain_name, sql_literal
from ddnn_traces.traffic import pcaps

if TYPE_CHECKING:
    from ddnn_traces.pcap.compiled.cut import Substitutes
    from ddnn_traces.pcap.compiled.scan import Framing
    from ddnn_traces.pcap.scanner import Scanner

_THREADS = 2  # the loop releases the interpreter, and a disk is not faster for more
_SNAPLEN = 262144
#: Columns of `runs` that are not metadata: ingest fills them in.
_DERIVED = ("run_id", "clock_offset_ns", "clock_offset_estimate_ns", "clock_drift_ppm")
_KINDS = ("compute", "communicate", "update")

_Row = dict[str, Any]


def write(sources: list[str], dataset: Dataset, anonymiser: Anonymiser, folder: Path) -> list[str]:
    """Write the captures of the anonymiser's runs into `folder`, new: their paths in it, in order.

    sources: what the dataset was ingested from, as ingest takes it; each file is compared with what was read then.
    Runs without files in the dataset (generated, simulated) have none here. Raises UsageError where sources are
    missing, are other files, or cannot be written with these options.
    """
    refuse_options(anonymiser.options)
    captures = _rows(dataset, "captures", anonymiser.runs)
    found = _match(find_runs(sources), captures)
    paths: list[str] = []
    for run_id in anonymiser.runs:
        rows = [row for row in captures if row["run_id"] == run_id and row["engine"] != "synthetic"]
        if not rows:
            continue
        run = anonymiser.run(run_id)
        if not is_plain_name(run.name):
            raise UsageError(f"run {run_id!r} cannot be the name of a folder; publish it without captures")
        (folder / run.name).mkdir(parents=True)
        _cut_all([(found[run_id, row["capture_id"]], row) for row in rows if row["format"]], run, folder / run.name)
        _write_run_files(dataset, run, folder / run.name)
        paths += sorted(path.relative_to(folder).as_posix() for path in (folder / run.name).iterdir())
    return paths


def refuse_options(options: Options) -> None:
    """Raise UsageError where captures cannot be cut down with these options."""
    if options.ports == "classed":
        raise UsageError(
            "with ports classed (--profile strict), connections would not be distinguishable in cut-down captures; "
            "publish without captures, or with --ports permuted"
        )


def _rows(dataset: Dataset, table: str, runs: Iterable[str]) -> list[_Row]:
    """Rows of these runs in the order of the table's key."""
    order = ", ".join(schema.table(table).key)
    only = ", ".join(map(sql_literal, runs)) or "NULL"
    rows: list[_Row] = dataset.sql_arrow(f"FROM {table} WHERE run_id IN ({only}) ORDER BY {order}").to_pylist()
    return rows


# --- which file is which capture


def _match(runs: list[RunInput], captures: list[_Row]) -> dict[tuple[str, str], Path]:
    """The file of each capture; runs that are not published are left out. Raises UsageError for one without a file."""
    found = files_among(runs, captures)
    for row in captures:
        if row["engine"] == "synthetic" or not row["format"]:
            continue
        key = (row["run_id"], row["capture_id"])
        path = found.get(key)
        if path is None or path == STDIN:
            raise UsageError(
                f"{key[1]} of run {key[0]} is not among the sources of the captures; name the folders that the dataset "
                "was ingested from, or publish without captures"
            )
        _compare(path, row, path.stat().st_size, {})
    return found


def _compare(path: Path, row: _Row, size: int, digests: Mapping[str, str]) -> None:
    """Raise UsageError where a file is not the one that was ingested. digests: empty where they are not known yet."""
    others = [name for name, digest in digests.items() if digest != row[name]]
    if others or row["file_bytes"] not in (None, size):
        raise UsageError(
            f"{path}: is not the file that was ingested (another {'hash' if others else 'size'}); restore it, or "
            "ingest again"
        )


# --- captures


def _cut_all(files: list[tuple[Path, _Row]], run: RunMapping, folder: Path) -> None:
    substitutes = _substitutes(run)
    targets = [folder / f"{run.files[row['capture_id']]}.gz" for _, row in files]
    with thread_pool(_THREADS) as threads:
        jobs = [threads.submit(_cut, *file, substitutes, target) for file, target in zip(files, targets, strict=True)]
        for job in jobs:
            job.result()


def _substitutes(run: RunMapping) -> Substitutes:
    import numpy as np

    from ddnn_traces.pcap.compiled.cut import Substitutes

    pairs = [(ipaddress.ip_address(old), ipaddress.ip_address(new)) for old, new in run.wire.items()]
    v4 = sorted([int(old), int(new)] for old, new in pairs if old.version == 4)
    v6 = sorted((int(old), int(new)) for old, new in pairs if old.version == 6)
    words = [[number >> 64, number & (1 << 64) - 1] for pair in v6 for number in pair]
    return Substitutes(
        np.array(v4, np.int64).reshape(-1, 2),
        np.array(words, np.uint64).reshape(-1, 4),
        run.ports,
        np.frombuffer(run.salt, np.uint64),
        run.offset_ns,
    )


def _cut(path: Path, row: _Row, substitutes: Substitutes, target: Path) -> None:
    """Write the cut-down copy of one capture. A damaged one ends where ingest ended."""
    from ddnn_traces.pcap.records import reader_of, split_header

    known = next((name for name in hashes.ALGORITHMS if row[name]), hashes.NONE)
    with CaptureFile(path, hash=known) as file, target.open("wb") as out:
        header, framing, stream = split_header(file.blocks())
        if framing is None:
            raise UsageError(f"{path}: {header}; ingest it again, or publish without captures")
        pcap = _Pcap(out, min(row["snaplen"] or _SNAPLEN, 0xFFFFFFFF))
        cutter = _Cutter(path, pcap, framing, -1 if framing.is_pcapng else framing.link, substitutes)
        reader = reader_of(cast("Scanner", cutter))
        reader.read(stream)
        pcap.end(cutter.link)
    _compare(path, row, file.raw_bytes, file.digests)


class _Pcap:
    """A pcap file that is written as gzip: the same bytes for the same packets, without a name or a time."""

    def __init__(self, out: IO[bytes], snaplen: int) -> None:
        from zlib_ng import zlib_ng

        self._out, self._snaplen, self._begun = out, snaplen, False
        self._gzip = zlib_ng.compressobj(6, wbits=31)

    def write(self, records: memoryview, link: int) -> None:
        """Write records of packets. link: their link type, which the first ones tell."""
        if not self._begun:
            self._out.write(self._gzip.compress(pcap_header(self._snaplen, max(link, 0))))
            self._begun = True
        self._out.write(self._gzip.compress(records))

    def end(self, link: int) -> None:
        """Write what is left; a file without packets is its header alone."""
        self.write(memoryview(b""), link)
        self._out.write(self._gzip.flush())


class _Cutter:
    """Takes a Scanner's place in a RecordReader: writes records instead of counting them."""

    def __init__(self, path: Path, out: _Pcap, framing: Framing, link: int, substitutes: Substitutes) -> None:
        import numpy as np

        from ddnn_traces.pcap.compiled.scan import INTERFACE_COLUMNS

        self.framing = framing
        self.interfaces = np.zeros((0, INTERFACE_COLUMNS), np.int64)
        self.records = 0
        self.link = link
        self._path, self._out, self._substitutes = path, out, substitutes
        self._last_ns = 0
        self._buffer = np.zeros(0, np.uint8)

    def scan(self, block: memoryview | bytes, start: int, stop: int | None) -> tuple[int, int]:
        """As Scanner.scan: the offset of the first byte that is not read, and why it stopped there.

        Raises UsageError for a capture that cannot be cut down.
        """
        import numpy as np

        from ddnn_traces.pcap.compiled import copy, cut

        buf = np.frombuffer(block, np.uint8)
        buf.flags.writeable = False  # one type for bytes and buffers: one compilation
        if len(self._buffer) < len(buf):
            self._buffer = np.zeros(len(buf), np.uint8)
        pos, why, written, records, self.link, self._last_ns = cut.cut(
            buf, start, len(buf), 2**62 if stop is None else stop, self.framing, self.interfaces, self.link,
            self._last_ns, self._substitutes, self._buffer,
        )  # fmt: skip
        if written:
            self._out.write(self._buffer[:written].data, self.link)
        self.records += records
        refused = {
            copy.OTHER_LINK: "packets of several link types, and a pcap has one",
            cut.UNWRITTEN_LINK: f"headers of link type {self.link}, which are not anonymised",
            copy.NO_TIME: "shifted times that a pcap cannot hold",
        }
        if why in refused:
            raise UsageError(f"{self._path}: has {refused[why]}; publish without captures, or leave the run out")
        return pos, why


# --- the files next to them


def _write_run_files(dataset: Dataset, run: RunMapping, folder: Path) -> None:
    (fields,) = _rows(dataset, "runs", [run.run_id])
    metadata = {
        name: run.metadata(value) if isinstance(value, str) else value
        for name, value in fields.items()
        if name not in _DERIVED
    }
    text = pcaps.run_toml(metadata, _hosts(_rows(dataset, "hosts", [run.run_id]), run))
    (folder / "run.toml").write_text(text + _legend(run), encoding="utf-8")
    first_begins = {}
    for worker, group in itertools.groupby(_rows(dataset, "steps", [run.run_id]), key=lambda row: row["worker"]):
        steps = list(group)
        names = ("loss", "accuracy", "held_out_accuracy")
        rows = ((s["epoch"], s["end_ns"] + run.offset_ns, *(_number(s[name]) for name in names)) for s in steps)
        (folder / f"train_history-{run.labels[worker]}.log").write_text(pcaps.training_log(rows), encoding="utf-8")
        if steps[0]["start_source"] == "phases":
            first_begins[worker] = steps[0]["start_ns"] + run.offset_ns
    phases = {}
    # what profilers recorded is in the table only
    logged = (row for row in _rows(dataset, "events", [run.run_id]) if row["profiler"] is None)
    for worker, group in itertools.groupby(logged, key=lambda row: row["worker"]):
        events = list(group)
        phases[worker] = _phases([event for event in events if event["kind"] in _KINDS], run.offset_ns)
        single = [_event(event, run) for event in events if event["kind"] not in _KINDS]
        if single:
            path = folder / f"events-{run.labels[worker]}.csv"
            path.write_text(pcaps.events_csv(single), encoding="utf-8")
    for worker, start in first_begins.items():
        rows_of_worker = phases.get(worker) or [(0, (start,) * 4)]
        path = folder / f"phases-{run.labels[worker]}.csv"
        path.write_text(pcaps.phases_csv(rows_of_worker), encoding="utf-8")


def _hosts(rows: list[_Row], run: RunMapping) -> list[_Row]:
    kept = ("role", "rank", "ring_position")
    hosts = [
        {"ip": run.wire[row["host_ip"]], "label": run.labels.get(row["label"]), **{name: row[name] for name in kept}}
        for row in rows
    ]
    return sorted(hosts, key=lambda host: ipaddress.ip_address(host["ip"]).packed)


def _legend(run: RunMapping) -> str:
    """Comments that list the tables' label of each address."""
    pairs = sorted((new, run.addresses[old]) for old, new in run.wire.items() if new != run.addresses[old])
    lines = [f"# {new} stands for {label}" for new, label in pairs]
    return "\n".join(["", *lines, ""]) if lines else ""


def _event(row: _Row, run: RunMapping) -> tuple[int, str, str | None, int, int, int | None]:
    """A collective or transfer as a row of events-WORKER.csv."""
    start_ns, end_ns = (row[name] + run.offset_ns for name in ("start_ns", "end_ns"))
    return row["step"], row["kind"], row["name"] and run.metadata(row["name"]), start_ns, end_ns, row["bytes"]


def _phases(events: list[_Row], offset_ns: int) -> list[tuple[int, tuple[int, int, int, int]]]:
    """Steps with all phases known, with their times as ingestors/training_logs.py reads them."""
    rows = []
    for step, group in itertools.groupby(events, key=lambda row: row["step"]):
        kinds = {row["kind"]: row for row in group}
        if set(kinds) == set(_KINDS):
            compute, communicate, update = (kinds[kind] for kind in _KINDS)
            times = (compute["start_ns"], communicate["start_ns"], communicate["end_ns"], update["end_ns"])
            rows.append((step, tuple(time + offset_ns for time in times)))
    return cast("list[tuple[int, tuple[int, int, int, int]]]", rows)


def _number(value: float | None) -> str:
    return "" if value is None else repr(value)
