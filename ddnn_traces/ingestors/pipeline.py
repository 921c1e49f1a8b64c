"""Ingest, end to end: find runs, read those that changed, build their tables, put the dataset in place."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ddnn_traces.errors import REPORT, CaptureError, MetadataError, UsageError
from ddnn_traces.ingestors import inputs, parsed_files, relations
from ddnn_traces.ingestors.end_of_run import errors_of_duckdb, full_disk, write_tables
from ddnn_traces.ingestors.inputs import PacketsRecord, RunRecord
from ddnn_traces.ingestors.metadata import RunMetadata, bad_rows, read_metadata
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.ingestors.read_runs import clock_warnings, profiler_warnings, read_runs
from ddnn_traces.ingestors.reconcile.described import StoredTables
from ddnn_traces.ingestors.reconcile.run_tables import Found, RunFacts
from ddnn_traces.ingestors.run_description import Description, describe
from ddnn_traces.ingestors.sources import RunInput, find_runs
from ddnn_traces.messages import Messages
from ddnn_traces.pcap import compiled
from ddnn_traces.pcap.engines import ENGINES
from ddnn_traces.query import views
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import check_name
from ddnn_traces.store.places import is_url, writer_of
from ddnn_traces.store.whole_files import no_space
from ddnn_traces.store.writer import Writer
from ddnn_traces.text import counted, digits, listed, printable

#: Finished runs are put in place when this many seconds have passed since the last time,
COMMIT_SECONDS = 2.0
#: and this many times what the last time took: a dataset of thousands of runs has as many links to make.
_COMMIT_SHARE = 20.0

#: Of what was sent, percent; more that captures lost is a warning. As in the check capture_loss.
MOST_PERCENT_LOST = 0.1

_LISTED = 3  # captures in a message


@dataclass(frozen=True)
class _Planned:
    """A run that was found, with its record as its files are before they are read."""

    run: RunInput
    metadata: RunMetadata
    record: RunRecord


@dataclass(frozen=True)
class _MetadataChange:
    """A run of which only the description has changed. name: of the run in the dataset that has its packets; record:
    that of `name`. workers: their new names."""

    plan: _Planned
    name: str
    record: RunRecord
    description: Description
    workers: Mapping[str, str]


def ingest(
    sources: list[str], out: Path | str, options: IngestOptions | None = None, messages: Messages | None = None
) -> list[str]:
    """Read captures and logs into the dataset at `out`, a folder or the URL of one on a store; return the run_ids that
    were written.

    sources: files, globs, folders, folders of run folders, URLs of these, - for standard input. A run whose inputs and
    parameters are those of the run in the dataset is not read again; where only its metadata or logs have changed, its
    captures are not, unless the packets have to be assigned to other steps. Runs of the dataset that are not among the
    sources stay unchanged. Every few seconds the finished runs are put in place, so each run is the old or the new one
    at every instant. Partial data are marked in the dataset, and `messages` gets a warning. Raises UsageError for a
    wrong call, BusyError, CaptureError when no run could be read, LedgerError when records are missing from the ledger,
    StorageError when the disk is full or a store fails, ClusterError.
    """
    options, messages = options or IngestOptions(), messages or Messages()
    options.check()
    planned, problems = _plan(sources, out, options)  # errors in metadata and names are found before hours of reading
    with _errors_of_writing(out), writer_of(out, options.wait, messages.info) as writer:
        if writer.waited:
            planned, problems = _plan(sources, out, options)
        messages.repeat(problems)
        _Ingest(writer, options, messages).run(planned, sources)
        return writer.written


def _plan(sources: list[str], out: Path | str, options: IngestOptions) -> tuple[list[_Planned], Messages]:
    """The runs, and what is wrong with the sources: rows of runs.csv and runs that are left out, names without a file.

    Raises MetadataError where no run is left.
    """
    problems = Messages()
    runs = _with_events(find_runs(sources, problems.warn_partial, options.layout, options.run_id), options.events)
    for problem in _bad_rows(sources, runs):
        problems.warn(problem)
    planned = []
    for run in runs:
        check_name(run.run_id)
        try:
            metadata = read_metadata(run.folder, run.table_rows)
        except MetadataError as error:
            if len(runs) == 1:
                raise
            problems.warn_partial(f"{error}; run {run.run_id} is left out")
        else:
            place = None if is_url(out) else Path(out)
            record = inputs.current(run, metadata, options.parameters, options.hash, place)
            planned.append(_Planned(run, metadata, record))
    if not planned:
        raise MetadataError(f"no run can be read: {'; '.join(problems.warnings[-3:])}")
    return planned, problems


def _with_events(runs: list[RunInput], events: Sequence[str]) -> list[RunInput]:
    """The runs with the profilers' files that the call names. Raises UsageError where it is not one run's file."""
    if not events:
        return runs
    if len(runs) != 1:
        raise UsageError(
            f"--events names files of one run, and there are {len(runs)}; put the files into their runs' folders, or "
            "ingest one run"
        )
    paths = tuple(dict.fromkeys(Path(name) for name in events))
    for path in paths:
        if not path.is_file():
            raise UsageError(f"--events {path}: no such file")
    if len({path.name for path in paths}) < len(paths):
        raise UsageError("--events: two files have the same name; rename one")
    return [replace(runs[0], events=paths)]


def _bad_rows(sources: list[str], runs: list[RunInput]) -> Iterator[str]:
    """What is wrong with the rows of each runs.csv that is next to a run, or in a folder that is a source."""
    names: dict[Path, set[str]] = {Path(os.path.abspath(source)): set() for source in sources if Path(source).is_dir()}  # noqa: PTH100
    for run in runs:
        if run.table_rows:
            folder, rows = run.table_rows
            names.setdefault(folder, set()).update(rows)
    for folder, known in names.items():
        yield from bad_rows(folder, known)


@contextlib.contextmanager
def _errors_of_writing(out: Path | str) -> Iterator[None]:
    """A full disk as StorageError. The writer has discarded what was unfinished."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UsageError(
                f"{out}: a name or path below it is too long for the file system; give the run a shorter name with "
                "--run-id, or choose a shorter --out"
            ) from error
        if reason := no_space(error):
            raise full_disk(out if is_url(out) else Path(out), reason) from error
        raise


class _Ingest:
    """One ingest into a dataset that no other ingest writes."""

    def __init__(self, writer: Writer, options: IngestOptions, messages: Messages) -> None:
        self._writer = writer
        self._options = options
        self._messages = messages
        self._records = inputs.records(writer.texts())
        self._put_in_place = time.monotonic()
        self._last_cost = 0.0
        self._parts: list[relations.Part] = []  # runs that may be parts of one capture

    def run(self, planned: list[_Planned], sources: list[str]) -> None:
        for damage in self._writer.damaged_records():
            self._messages.info(f"{self._writer.name}/{damage}; it is written again")
        changed = [plan for plan in planned if not self._is_unchanged(plan)]
        metadata_changes = [found for plan in changed if (found := self._metadata_change(plan))]
        # others while theirs are as they were
        metadata_changes.sort(key=lambda found: found.name == found.plan.run.run_id)
        described = {found.plan.run.run_id for found in metadata_changes}
        todo = [plan for plan in changed if plan.run.run_id not in described]
        try:
            for found in metadata_changes:
                self._write_described(found)
            replaced = self._read(todo) if todo else 0
        except KeyboardInterrupt as error:
            raise self._after_interrupt(error) from None
        finally:
            self._messages.end_reading()
        self._warn_of_copies({plan.run.run_id for plan in planned})
        unchanged = len(planned) - len(changed)
        written = len(self._writer.written) - len(described)
        if not (written or described or unchanged):
            kept = "is unchanged" if self._writer.exists else "was not made"
            raise CaptureError(f"no run could be read from {', '.join(sources)}; {self._writer.name} {kept}")
        try:
            self._finish()
        except KeyboardInterrupt as error:
            raise self._after_interrupt(error) from None
        details = f", {replaced} of them in place of an older one of that name" if replaced else ""
        done = [f"{counted(written, 'run')} written{details}"] if written or not described else []
        done += [f"metadata of {counted(len(described), 'run')} updated"] if described else []
        done += [f"{unchanged} unchanged"] if unchanged else []
        self._messages.info(f"{self._writer.name}: {', '.join(done)}")

    def _warn_of_copies(self, ingested: set[str]) -> None:
        """Warn where runs of this ingest hold the same packets as others of the dataset: each counts as a run."""
        for names in inputs.alike(self._current()):
            if not ingested.isdisjoint(names):
                self._messages.warn(
                    f"runs {relations.named(names)}: their captures hold the same packets, as copies of a folder do, "
                    "and each counts as a run; ingest one of them"
                )

    def _after_interrupt(self, error: KeyboardInterrupt) -> KeyboardInterrupt:
        """Put what is finished in place; the error that says what the dataset has."""
        self._writer.commit_finished(inputs.files_of(self._current()))
        if not self._writer.committed:
            return error
        finished = counted(self._writer.committed, "finished run")
        return KeyboardInterrupt(f"interrupted; the dataset has {finished}, ingest again for the others")

    # --- unchanged runs

    def _is_unchanged(self, plan: _Planned) -> bool:
        """Whether the run need not be read; then its warnings are repeated, since they still hold."""
        run_id = plan.run.run_id
        old = self._records.get(run_id)
        if self._options.force or old is None or not self._writer.is_there(run_id):
            return False
        same = inputs.unchanged(old, plan.run, plan.record, self._options.hash)
        if same is None or self._is_damaged(run_id):
            return False
        self._records[run_id] = same
        self._messages.info(f"run {run_id}: unchanged, not read again")
        self._warn_again(run_id, same.warnings, same.packets.partial)
        return True

    def _warn_again(self, run_id: str, warnings: Sequence[str], partial: bool) -> None:
        """Warn of what still holds of a run that is not read again."""
        for warning in warnings:
            warn = self._messages.warn_partial if partial else self._messages.warn
            warn(f"run {run_id}: {warning.removeprefix(f'{run_id}: ')}")

    def _is_damaged(self, run_id: str) -> bool:
        """Whether files of the run's tables are not what was written, which is reported."""
        damages = self._writer.damages(run_id)
        for damage in damages:
            self._messages.info(f"{damage}; the run is read again")
        return bool(damages)

    # --- runs of which only the description has changed

    def _metadata_change(self, plan: _Planned) -> _MetadataChange | None:
        """The run with its new description, if its captures need not be read; None where they have to be."""
        found = None if self._options.force else self._with_packets_of(plan)
        if found is None:
            return None
        name, record = found
        needs = record.packets.needs
        if self._writer.folder is None:  # the tables that stay would have to be fetched: the captures are read instead
            return None
        if needs is None or record.packets.clock is None or self._is_damaged(name):
            return None
        description = describe(plan.run, plan.metadata, self._options.clock_offset_ns)
        workers = needs.renamed(description.packet_needs)
        if workers is None:
            what = "its logs are new or gone, or have other steps or captures than before"
            why = "its captures are read again, since packets are counted by step"
            self._messages.info(f"run {plan.run.run_id}: {what}; {why}")
            return None
        return _MetadataChange(plan, name, record, description, workers)

    def _with_packets_of(self, plan: _Planned) -> tuple[str, RunRecord] | None:
        """The run of the dataset that was made from these captures: that of the same name, else of another one."""
        run_id = plan.run.run_id
        if run_id in self._records and self._writer.is_there(run_id):
            same = inputs.same_packets(self._records[run_id], plan.run, plan.record, self._options.hash)
            return None if same is None else (run_id, same)
        for name in self._of_the_same_files.get(inputs.files_seen(plan.record), ()):
            old = self._records[name]
            if self._writer.is_there(name) and inputs.is_renamed(old, plan.record, self._options.hash):
                return name, old
        return None

    @cached_property
    def _of_the_same_files(self) -> Mapping[inputs.Seen, list[str]]:
        """The runs of the dataset by the captures that they were read from."""
        found: dict[inputs.Seen, list[str]] = {}
        for name, record in self._records.items():
            found.setdefault(inputs.files_seen(record), []).append(name)
        return found

    def _write_described(self, found: _MetadataChange) -> None:
        """Write the tables that depend on the run's description."""
        plan, run_id, packets = found.plan, found.plan.run.run_id, found.record.packets
        description, clock, dataset = found.description, packets.clock, self._writer.folder
        assert clock and dataset
        what = "its metadata or logs changed; its captures"
        if found.name != run_id:
            what = f"its captures are those of run {found.name}, which stays in the dataset, and"
        self._messages.info(f"run {run_id}: {what} are not read again")
        self._warn_again(run_id, packets.warnings, packets.partial)
        warnings = list(description.warnings)
        if self._options.clock_offset == "auto" and clock.applied_ns:
            description = description.shifted(clock.correction)
        with (
            errors_of_duckdb(dataset, run_id),
            StoredTables(dataset, found.name, description, clock, found.workers, self._writer.scratch) as tables,
            self._writer.new_run(run_id, keep=found.name == run_id),
        ):
            for name in tables.changed:
                self._writer.write(name, run_id, tables.batches(name), tables.provenance)
            lost, labels = tables.percentages_lost(), tables.label_warnings()
        warnings += labels
        warnings += clock_warnings(description, clock, tables.spans, self._options.clock_offset)
        warnings += profiler_warnings(description, tables.spans)
        for warning in warnings:
            self._messages.warn(warning)
        packets = replace(packets, needs=found.description.packet_needs)
        self._end_run(plan, packets, [*warnings, *_report_loss(run_id, *lost, self._messages)])

    def _finish(self) -> None:
        """Put the last runs in place; without any, record the files' new times."""
        files = inputs.files_of(self._current())
        if self._writer.uncommitted or self._writer.damaged_records():
            self._writer.commit(files)
        else:
            self._writer.replace_files(files)
        dataset = self._writer.folder
        if dataset is None:  # the views are of files of this machine
            return
        import duckdb

        try:
            views.replace_views(dataset, dataset / views.FILE, self._writer.partial)
            # of a first ingest it is a third of the time: the ingest of the process that compiles does it
            if compiled.is_cached():
                views.keep_queries()
        except (OSError, duckdb.Error) as error:
            step = "free space in the folder of temporary files (TMPDIR) and ingest again"
            reason = no_space(error)
            if reason is None:
                reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
                step = "correct that and ingest again" if isinstance(error, OSError) else REPORT
            self._messages.warn(
                f"{self._writer.name}/{views.FILE}: not written ({reason}); the tables are complete: {step}"
            )

    def _current(self) -> dict[str, RunRecord]:
        """Records of the runs that are, or are about to be, in the dataset."""
        return {run_id: record for run_id, record in self._records.items() if self._writer.has_run(run_id)}

    # --- reading and writing

    def _read(self, todo: list[_Planned]) -> int:
        """Read and write the runs; return how many of them take the place of an older one."""
        replaced = 0
        engine = ENGINES[self._options.engine]
        if not engine.is_compiled():
            self._messages.info("compiling the packet loop, once (about half a minute)")
        if self._options.scheduler is None:  # the rates are those of reading
            engine.prepare(max(plan.record.packets.largest for plan in todo))
        runs = [(plan.run, plan.metadata) for plan in todo]
        warned = len(self._messages.warnings)
        reading = read_runs(runs, self._options, self._writer.scratch, self._messages, self._writer.name)
        with contextlib.closing(reading) as results:
            for plan, facts in zip(todo, results, strict=True):
                replaced += self._write(plan, facts, warned)
                warned = len(self._messages.warnings)
        for line in (*relations.rotated(self._parts), *relations.at_hosts(self._parts)):
            self._messages.warn(line)
        return replaced

    def _write(self, plan: _Planned, facts: RunFacts, warned: int) -> bool:
        """Write a run's tables unless nothing of it could be read; return whether there was such a run before.

        warned: number of warnings before this run.
        """
        run_id = facts.run_id
        if not facts.is_readable:
            self._messages.warn_partial(f"{run_id}: left out, none of its files is a capture that can be read")
            return False
        about = [*parsed_files.remarks(run_id, facts.files), *relations.gaps(run_id, facts.files)]
        for line in relations.copies(run_id, facts.files):
            self._messages.info(line)
        if self._options.run_id is None:
            about += relations.unrelated(plan.run, plan.metadata, facts.files)
        if part := relations.part(plan.run, plan.metadata, facts.files):
            self._parts.append(part)
        changed = inputs.changed_meanwhile(plan.run, (*plan.record.packets.files, *plan.record.description.files))
        of_description = self._messages.warnings[warned:]
        for warning in facts.warnings:
            of_description.remove(warning)
        of_packets = [*facts.warnings, *(self._warn_of_change(run_id, name) for name in changed)]
        found = _write_run(facts, self._writer, self._options)
        for warning in found.label_warnings:
            self._messages.warn(warning)
        about += [
            f"{run_id}/{name}: a frame has {size:,} bytes or more by its record, more than networks send, and counts "
            "so; where the hosts do not use BIG TCP the record is damaged: remove it with 'editcap'"
            for name, size in found.large_frames.items()
        ]
        about += [
            f"{run_id}/{name}: {share:.0%} of the payload of {counted(flows, 'TCP flow')} is there again, as where the "
            "captures of several hosts are merged into one, or all interfaces of a host with a bridge are captured (-i "
            "any): volumes are too large, and these copies count as retransmitted. Ingest the captures as they were, "
            "or remove the copies with 'editcap -w 0.05'; capture one interface, or all with their numbers ('tcpdump "
            "-i any -y LINUX_SLL2')"
            for name, (flows, share) in found.copied_captures.items()
        ]
        about += [
            f"{run_id}/{name}: the snapshot length cuts the TCP headers of {counted(flows, 'flow')}: {kept} bytes of "
            f"each packet are there, the headers alone need {header}; payload is too large, and sequence numbers, "
            f"losses, messages and jobs are not known. Capture with 'tcpdump -s {_whole_headers(header)}'"
            for name, (flows, kept, header) in found.cut_headers.items()
        ]
        for warning in about:
            self._messages.warn(warning)
        of_packets += about
        if found.all_filtered:
            kept = f"keeps none of its {counted(found.all_filtered, 'packet')}"
            of_packets.append(
                f"{run_id}: --filter {self._options.filter!r} {kept}; correct the expression, or ingest without it"
            )
            self._messages.warn(of_packets[-1])
        packets = PacketsRecord(
            plan.record.packets.parameters,
            inputs.after_reading(plan.record.packets.files, facts.files, changed),
            facts.needs,
            facts.clock,
            _recorded(of_packets, plan.run),
            partial=bool(changed) or any(file.status != "complete" for file in facts.files),
        )
        replaced = self._writer.is_there(run_id)
        if replaced and run_id in self._records:
            self._warn_of_others(plan, packets, self._records[run_id])
        of_description += [*found.label_warnings, *_report_loss(run_id, *found.percentages_lost, self._messages)]
        self._end_run(plan, packets, of_description, changed)
        return replaced

    def _warn_of_change(self, run_id: str, name: str) -> str:
        warning = f"{run_id}/{name}: changed while it was read; ingest again when it is complete"
        self._messages.warn_partial(warning)
        return warning

    def _warn_of_others(self, plan: _Planned, packets: PacketsRecord, old: RunRecord) -> None:
        """Warn where the run takes the place of one of other captures. packets: as they were read."""
        if not inputs.is_of_others(old, replace(plan.record, packets=packets)):
            return
        new = listed([printable(str(path)) for path in plan.run.captures], _LISTED)
        self._messages.warn(
            f"run {plan.run.run_id}: is now of {new}, and was of {self._places(old)}: other files, which it took the "
            "place of. To have both, ingest those again, and these with --run-id NAME"
        )

    def _places(self, record: RunRecord) -> str:
        """Where the captures of a run in the dataset were."""
        folder = record.folder or ""
        if self._writer.folder is not None and not is_url(folder):
            folder = os.path.normpath(self._writer.folder / folder)
        return listed([f"{folder}/{file.name}" for file in record.packets.files], _LISTED)

    def _end_run(
        self, plan: _Planned, packets: PacketsRecord, warnings: list[str], changed: Sequence[str] = ()
    ) -> None:
        """Record the run. warnings: of its description. changed: names of files that changed while it was read."""
        files = inputs.after_reading(plan.record.description.files, (), changed)
        described = replace(plan.record.description, files=files, warnings=_recorded(warnings, plan.run))
        self._records[plan.run.run_id] = RunRecord(packets, described, plan.record.folder)
        self._commit_when_due()

    def _commit_when_due(self) -> None:
        begin = time.monotonic()
        if begin - self._put_in_place < max(COMMIT_SECONDS, _COMMIT_SHARE * self._last_cost):
            return
        self._writer.commit(inputs.files_of(self._current()))
        self._put_in_place = time.monotonic()
        self._last_cost = self._put_in_place - begin


def _whole_headers(header_bytes: int) -> int:
    """A snapshot length for all TCP options, too (RFC 9293, 3.1: 40 bytes), as the query cut_headers has it."""
    return 32 * math.ceil((header_bytes + 40) / 32)


def _recorded(warnings: Iterable[str], run: RunInput) -> tuple[str, ...]:
    return tuple(inputs.without_folders(warning, run) for warning in warnings)


def _write_run(facts: RunFacts, writer: Writer, options: IngestOptions) -> Found:
    """Write a run's tables, or take the files that a worker has made."""
    with writer.new_run(facts.run_id):
        if facts.made is None:
            return write_tables(facts, options, writer.scratch, writer.folder or writer.name, writer.write)
        for name in schema.TABLES:
            writer.take(name, facts.run_id, facts.made.folder / name)
        return facts.made.found


def _report_loss(run_id: str, payload: float, packets: float, messages: Messages) -> list[str]:
    """Warn of what captures lost, in percent; a share below the bar of the check capture_loss is only stated.

    Returns the warning, if there is one.
    """
    lost = {"the TCP payload by its sequence numbers": payload, "the packets by their counters": packets}
    stated = " and ".join(f"{digits(percent, 2)}% of {what}" for what, percent in lost.items() if percent)
    if not stated:
        return []
    step = "'ddnn-traces query DATASET capture_loss' shows which files"
    if max(lost.values()) <= MOST_PERCENT_LOST:
        messages.info(f"{run_id}: its captures lost {stated}; {step}")
        return []
    warning = f"{run_id}: its captures lost {stated}, so its volumes are too low; {step}"
    messages.warn(warning)
    return [warning]
