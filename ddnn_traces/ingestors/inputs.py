"""inputs.json: what each run of a dataset was made from, so that what has not changed is not read again.

What depends on packets and what depends on the run's description are told apart: `packets` has the parameters that
shape the tables and the captures, `description` the metadata and the other files. Where only the description has
changed, and not what the reading of packets needed of it, no capture is read (reconcile/described.py).

Of each file there are its name (relative to the run's folder: a dataset gets published), size in bytes, time of its
last change in ns, and BLAKE3 or SHA-256. A file whose mtime_ns is null is always read again by the next ingest: it
changed while it was read, could not be read, or is not a regular file.

sources.json tells where the folders of the runs were, for those who look for the captures again (Originals). It
decides nothing here, and is a file of its own: the same inputs in another place give the same inputs.json.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ddnn_traces.errors import CaptureError, UsageError
from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.profilers.find import files_of as files_of_profilers
from ddnn_traces.ingestors.reconcile.log_clocks import LogClock, LogOffset
from ddnn_traces.ingestors.run_description import PacketNeeds, is_counter_log
from ddnn_traces.ingestors.sources import RunInput, find_runs
from ddnn_traces.pcap.capture_facts import STDIN, CaptureFacts
from ddnn_traces.pcap.streams import digests_of, errors, forget_listing, is_local, url_of
from ddnn_traces.store import checksums, hashes, layout, schema
from ddnn_traces.store.layout import INPUTS, SOURCES
from ddnn_traces.store.object_store import shown
from ddnn_traces.text import printable, valid_text
from ddnn_traces.version import __version__

#: Parameter in the records of older programs, which have the metadata there, all files among those of the packets.
_OLDER = "metadata_sha256"
#: Small files of a store that are requested at once.
_REQUESTS = 16
_SECOND_NS = 1_000_000_000
#: Endings of the other files of a run: run.toml, train_history.log, phases-worker-1.csv and the like.
_LOG_ENDINGS = (".toml", ".log", ".csv")


@dataclass(frozen=True)
class FileState:
    """A file's state: size in bytes, mtime_ns null where it has to be read again, a hash null where not computed."""

    name: str
    size: int
    mtime_ns: int | None
    sha256: str | None = None
    blake3: str | None = None

    @property
    def algorithm(self) -> str:
        """The hash that is known of it, one of store.hashes.CHOICES."""
        return next((name for name in hashes.ALGORITHMS if getattr(self, name)), hashes.NONE)

    def identifies(self, wanted: str) -> bool:
        """Whether it is hashed as well as `wanted` asks. SHA-256 is what lists of others have: BLAKE3 is not for it."""
        return wanted == hashes.NONE or getattr(self, wanted) is not None or self.sha256 is not None


@dataclass(frozen=True)
class PacketsRecord:
    """What the packets of a run were read from, and how. needs, clock: what they needed of the description, and found;
    None as long as the run was not read, and in a record of an older program, which has all files here, and in
    `parameters` the metadata. warnings: those of the files, which hold as long as these are not read again. partial:
    whether something of the files was not read.
    """

    parameters: Mapping[str, Any]
    files: tuple[FileState, ...]
    needs: PacketNeeds | None = None
    clock: LogClock | None = None
    warnings: tuple[str, ...] = ()
    partial: bool = False

    @property
    def largest(self) -> int:
        """Size of the largest file, bytes."""
        return max(file.size for file in self.files)


@dataclass(frozen=True)
class DescriptionRecord:
    """metadata_sha256: of run.toml, the row in runs.csv, the folder's name, and the hosts. files: logs and the like."""

    metadata_sha256: str
    files: tuple[FileState, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRecord:
    """What a run was made from. folder: that the names of its files are relative to, as seen from the dataset; None
    where that is not known (older programs, standard input)."""

    packets: PacketsRecord
    description: DescriptionRecord
    folder: str | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of its ingest."""
        return self.packets.warnings + self.description.warnings


def current(
    run: RunInput, metadata: RunMetadata, parameters: Mapping[str, Any], hash: str, dataset: Path | None
) -> RunRecord:
    """The record of a run as it is now. Captures are not hashed: that takes time.

    parameters: IngestOptions.parameters. hash: one of store.hashes.CHOICES, of the captures: the other files are hashed
    in any case. dataset: that it will be in; None: one on a store.
    """
    of_logs = hashes.DEFAULT if hash == hashes.NONE else hash
    with errors(run.top):
        captures = tuple(_state(run.name_of(path), path, {}) for path in sorted(run.captures))
        others = sorted(_logs(run))
    with ThreadPoolExecutor(1 if is_local(run.top) else _REQUESTS) as threads:
        digests = threads.map(lambda path: _digests(path, of_logs), others)
        logs = tuple(_state(run.name_of(path), path, found) for path, found in zip(others, digests, strict=True))
    known = {
        **asdict(metadata),
        **({"captured_at": {run.name_of(p): h for p, h in run.hosts.items()}} if run.hosts else {}),
    }
    digest = hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()
    shaping = {**parameters, "version": __version__, "schema_version": schema.SCHEMA_VERSION}
    folder = None if STDIN in run.captures else _seen_from(dataset, run.top)
    return RunRecord(PacketsRecord(shaping, captures), DescriptionRecord(digest, logs), folder)


def _seen_from(dataset: Path | None, folder: Path) -> str:
    """A folder as sources.json has it: relative to the dataset where both are on this machine."""
    if not is_local(folder):
        return shown(url_of(folder))
    return valid_text(str(folder) if dataset is None else os.path.relpath(folder, dataset.resolve()))


def unchanged(record: RunRecord, run: RunInput, now: RunRecord, hash: str = hashes.DEFAULT) -> RunRecord | None:
    """The record, with the current times, when the run would give the same tables again; None when not.

    A file of the same size but another time is hashed, where its hash is known: by the algorithm of then. hash: one of
    store.hashes.CHOICES, which the record has to satisfy.
    """
    if _OLDER in record.packets.parameters:
        now = _as_older(now)
    packets = same_packets(record, run, now, hash)
    if packets is None:
        return None
    description = record.description
    files = _same_files(description.files, now.description.files, _paths(run), hash)
    if files is None or description.metadata_sha256 != now.description.metadata_sha256:
        return None
    return replace(packets, description=replace(description, files=files))


def same_packets(record: RunRecord, run: RunInput, now: RunRecord, hash: str = hashes.DEFAULT) -> RunRecord | None:
    """The record, with the current times of the captures, when these and the parameters are the same; else None."""
    if not _same_parameters(record.packets.parameters, now.packets.parameters):
        return None
    files = _same_files(record.packets.files, now.packets.files, _paths(run), hash)
    if files is None:
        return None
    return replace(record, packets=replace(record.packets, files=files), folder=now.folder)


def is_renamed(record: RunRecord, now: RunRecord, hash: str = hashes.DEFAULT) -> bool:
    """Whether a run that is not in the dataset has the captures of this record, and would have the same packets.

    Same names, sizes and times to the ns. Times in whole seconds, as archives give them, do not identify files.
    """
    packets = record.packets
    return (
        files_seen(record) == files_seen(now)
        and dict(packets.parameters) == dict(now.packets.parameters)
        and all((file.mtime_ns or 0) % 1_000_000_000 and file.identifies(hash) for file in packets.files)
    )


#: Name, size and time of each capture of a run.
Seen = frozenset[tuple[str, int, int | None]]


def files_seen(record: RunRecord) -> Seen:
    """The captures of a run as they were seen."""
    return frozenset((file.name, file.size, file.mtime_ns) for file in record.packets.files)


def is_of_others(record: RunRecord, now: RunRecord) -> bool:
    """Whether a run was made from other captures than now: none has the place of one of now, or its content.

    record: of a run in the dataset; now: with the hashes of reading. False where a place is not known.
    """
    if None in (record.folder, now.folder):
        return False
    places, contents = [
        [{key(one.folder, file) for file in one.packets.files} for one in (record, now)] for key in (_place, _content)
    ]
    return places[0].isdisjoint(places[1]) and contents[0].isdisjoint(contents[1])


def alike(records: Mapping[str, RunRecord]) -> list[list[str]]:
    """Names of runs that were read from files with the same contents in the same way, as copies of a folder are."""
    found: dict[object, list[str]] = {}
    for run_id, record in sorted(records.items()):
        files = record.packets.files
        if all(file.algorithm != hashes.NONE for file in files):
            contents = frozenset(_content(None, file) for file in files)
            parameters = json.dumps(record.packets.parameters, sort_keys=True, default=str)
            found.setdefault((contents, parameters), []).append(run_id)
    return [names for names in found.values() if len(names) > 1]


def _place(folder: str | None, file: FileState) -> tuple[str | None, str]:
    return folder, file.name


def _content(_: str | None, file: FileState) -> tuple[int, int | str | None]:
    """Size and hash; where it has none its time."""
    return file.size, file.blake3 or file.sha256 or file.mtime_ns


def _as_older(now: RunRecord) -> RunRecord:
    """The current state as an older program recorded it."""
    parameters = {**now.packets.parameters, _OLDER: now.description.metadata_sha256}
    files = sorted((*now.packets.files, *now.description.files), key=lambda file: file.name)
    return RunRecord(PacketsRecord(parameters, tuple(files)), DescriptionRecord("", ()), now.folder)


def _same_files(
    then: Sequence[FileState], now: Sequence[FileState], paths: Mapping[str, Path], hash: str
) -> tuple[FileState, ...] | None:
    """The files of then, with the current times; None where one has changed, is new or is gone."""
    before = {file.name: file for file in then}
    if before.keys() != {file.name for file in now}:
        return None
    for file in sorted(now, key=lambda file: file.name):
        old = before[file.name]
        if None in (file.mtime_ns, old.mtime_ns) or file.size != old.size:
            return None
        if not old.identifies(hash) or (file.mtime_ns != old.mtime_ns and not _has_content(paths[file.name], old)):
            return None
    return tuple(replace(before[file.name], mtime_ns=file.mtime_ns) for file in now)


#: The schema version since which there is the table messages.
_WITH_MESSAGES = 9


def _same_parameters(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether tables made with the parameters of then are those that would be made now.

    A run of an older schema version that is still read counts: only columns that there were not yet are null in it.
    """
    version = then.get("schema_version")
    known = isinstance(version, int) and schema.OLDEST_VERSION <= version <= schema.SCHEMA_VERSION
    without = {"schema_version", "sha256"}  # sha256: whether files were hashed, before version 5
    if isinstance(version, int) and version < _WITH_MESSAGES:
        without.add("silence_ns")
    return known and all(then.get(name) == now.get(name) for name in (then.keys() | now.keys()) - without)


def changed_meanwhile(run: RunInput, before: Sequence[FileState]) -> list[str]:
    """Names of the files that changed since `before`, while the run was read."""
    forget_listing(run.top)
    with errors(run.top):
        now = {name: _state(name, path, {}) for name, path in _paths(run).items()}
    return [
        file.name
        for file in before
        if file.name not in now or (now[file.name].size, now[file.name].mtime_ns) != (file.size, file.mtime_ns)
    ]


def after_reading(
    before: Sequence[FileState], facts: Sequence[CaptureFacts], changed: Sequence[str]
) -> tuple[FileState, ...]:
    """The files' states with the hashes from reading; a file that has to be read again has no time."""
    read = {file.capture_id: file for file in facts}
    states = []
    for state in before:
        known = read.get(state.name)
        unread = state.name in changed or (known is not None and known.engine == "none")
        if unread:
            states.append(FileState(state.name, state.size, None))
        else:
            digests = known.digests if known else {name: getattr(state, name) for name in hashes.ALGORITHMS}
            states.append(FileState(state.name, state.size, state.mtime_ns, **digests))
    return tuple(states)


def read_inputs(dataset: Path) -> dict[str, RunRecord]:
    """records() of a dataset in a folder."""
    return records(layout.texts(dataset))


def records(texts: Mapping[str, str]) -> dict[str, RunRecord]:
    """Records of a dataset's runs; empty where inputs.json is missing or damaged, so that all runs are read again.

    texts: of inputs.json and sources.json, by name.
    """
    try:
        runs = checksums.unsealed(texts[INPUTS])["runs"]
        folders = _folders(texts)
        return {run_id: replace(_record(entry), folder=folders.get(run_id)) for run_id, entry in runs.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _folders(texts: Mapping[str, str]) -> dict[str, str]:
    """The folders of sources.json; empty where it is missing or damaged."""
    try:
        folders = json.loads(texts[SOURCES])["folders"]
        return {run_id: folder for run_id, folder in folders.items() if isinstance(folder, str)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _record(entry: Mapping[str, Any]) -> RunRecord:
    """The record of a run as it is in inputs.json."""
    if "packets" not in entry:  # an older program's, whose warnings were all taken for partial data
        then = tuple(entry["warnings"])
        older = PacketsRecord(entry["parameters"], _files(entry), warnings=then, partial=bool(then))
        return RunRecord(older, DescriptionRecord("", ()))
    packets, description = entry["packets"], entry["description"]
    needs, clock = packets["needs"], packets["clock"]
    steps = {name: step and (step[0], step[1]) for name, step in needs["steps"].items()} if needs else {}
    of_packets = PacketsRecord(
        packets["parameters"],
        _files(packets),
        PacketNeeds(steps, needs["clock"]) if needs else None,
        LogClock(**{**clock, "estimate": clock["estimate"] and LogOffset(**clock["estimate"])}) if clock else None,
        tuple(packets["warnings"]),
        packets["partial"],
    )
    warnings = tuple(description["warnings"])
    return RunRecord(of_packets, DescriptionRecord(description["metadata_sha256"], _files(description), warnings))


def _files(entry: Mapping[str, Any]) -> tuple[FileState, ...]:
    return tuple(FileState(**file) for file in entry["files"])


def files_of(records: Mapping[str, RunRecord]) -> dict[str, str]:
    """Content of inputs.json and sources.json, by name."""
    runs = {run_id: asdict(record) for run_id, record in records.items()}
    folders = {run_id: run.pop("folder") for run_id, run in sorted(runs.items())}
    return {INPUTS: checksums.sealed({"runs": runs}), SOURCES: json.dumps({"folders": folders}, indent=1) + "\n"}


def without_folders(message: str, run: RunInput) -> str:
    """A warning about a run's files with their names relative to its folder."""
    folder = run.top
    return printable(message.replace(f"{folder}/", "").replace(f"{folder.parent}/", "../"))


def _paths(run: RunInput) -> dict[str, Path]:
    """The captures and the other files of a run, by name."""
    return {run.name_of(path): path for path in (*run.captures, *_logs(run))}


def _logs(run: RunInput) -> list[Path]:
    captures = set(run.captures)
    logs = [
        path
        for folder in run.log_folders
        for path in folder.iterdir()
        if path not in captures
        and not path.name.startswith(".")
        and path.is_file()
        and (path.suffix in _LOG_ENDINGS or is_counter_log(path))
    ]
    return list(dict.fromkeys((*logs, *files_of_profilers(run))))


def _state(name: str, path: Path, digests: Mapping[str, str]) -> FileState:
    try:
        status = path.stat()
    except OSError:
        return FileState(name, 0, None)
    is_file = stat.S_ISREG(status.st_mode) and path != STDIN
    # a store tells the time of a file by the second, but where it lists a folder
    time_ns = status.st_mtime_ns if is_local(path) else status.st_mtime_ns // _SECOND_NS * _SECOND_NS
    return FileState(name, status.st_size, time_ns if is_file else None, **digests)


def _digests(path: Path, algorithm: str) -> dict[str, str]:
    try:
        return digests_of(path, algorithm)
    except OSError:
        return {}


def _has_content(path: Path, state: FileState) -> bool:
    """Whether the file is the one of the state, by its hash; false where that is not known."""
    return any(getattr(state, name) == digest for name, digest in _digests(path, state.algorithm).items())


# --- the original files of a dataset's captures: where they are now, and that they are what was ingested

_Row = Mapping[str, Any]


def files_among(
    runs: Iterable[RunInput], captures: Iterable[_Row], anywhere: bool = False
) -> dict[tuple[str, str], Path]:
    """The files of captures in these runs, by run_id and capture_id: by the names that ingest would give them.

    captures: rows of that table. Where a run had a folder a host (nodeA/eth0.pcap), which only --layout or --run-id of
    ingest made one run, the end of the path tells, where only one file has it. anywhere: so it does for every capture.
    What was ingested has to be compared by size and hash.
    """
    runs = list(runs)
    found = {(run.run_id, run.name_of(path)): path for run in runs for path in run.captures}
    paths = [path for run in runs for path in run.captures]
    for row in captures:
        key = row["run_id"], row["capture_id"]
        if "/" in row["capture_id"] or (anywhere and key not in found):
            ends = [path for path in paths if valid_text(str(path)).endswith(f"/{row['capture_id']}")]
            in_run = [path for path in ends if valid_text(str(path)).endswith(f"/{row['run_id']}/{row['capture_id']}")]
            if len(chosen := in_run or ends) == 1:
                found[key] = chosen[0]
    return found


class Originals:
    """The files of the captures of one run, where they are now.

    captures: the run's rows of that table. record: in inputs.json of the dataset, where they were then; None: there is
    none. sources: files and folders where they are now; empty: where they were. Raises UsageError where that is not
    known.
    """

    def __init__(
        self, dataset: Path, run_id: str, captures: Sequence[_Row], record: RunRecord | None, sources: Sequence[str]
    ) -> None:
        self._run_id, self._record, self._sources = run_id, record, sources
        self._found = files_among(find_runs(list(sources)), captures, anywhere=True) if sources else {}
        if sources:
            return
        if any(row["capture_id"] == "stdin" for row in captures):
            raise UsageError(
                f"run {run_id} was read from standard input, so no file is known that has its packets; write them to a "
                "file (tcpdump -w run.pcap), and ingest that"
            )
        if record is None or record.folder is None:
            raise UsageError(
                f"{dataset}: does not tell where the captures of run {run_id} are; name their folder with --captures"
            )
        folder = Path(os.path.normpath(dataset.resolve() / record.folder))
        self._found = {(run_id, row["capture_id"]): folder / row["capture_id"] for row in captures}

    def place(self, row: _Row) -> Path | None:
        """Where the file of a capture should be; None where it is not among the sources."""
        return self._found.get((self._run_id, row["capture_id"]))

    def path(self, row: _Row) -> Path:
        """The file of a capture. Raises UsageError where there is none."""
        found = self.place(row)
        if found is None:
            raise UsageError(
                f"{row['capture_id']} of run {self._run_id} is not in {', '.join(self._sources)}; name with --captures "
                "the folder that has it under that name"
            )
        if not found.exists():
            raise UsageError(
                f"{found}: no such file; name with --captures the folder where the captures of run {self._run_id} are "
                "now"
            )
        return found

    def unchanged_by(self, row: _Row) -> str:
        """By what the file of a capture is known to be what was ingested: size and time, or size and hash.

        It is hashed where its time is another one, or not known. Raises CaptureError where it is another file, or
        nothing tells that it is not, and as path().
        """
        path = self.path(row)
        status = path.stat()
        if status.st_size != row["file_bytes"]:
            raise _changed(path, f"{status.st_size:,} bytes, then {row['file_bytes']:,}")
        states = self._record.packets.files if self._record else ()
        if any((state.name, state.mtime_ns) == (row["capture_id"], status.st_mtime_ns) for state in states):
            return "size and time"
        known = next((name for name in hashes.ALGORITHMS if row[name]), None)
        if known is None:
            raise CaptureError(
                f"{path}: has another time than when it was ingested, and was not hashed then (--hash none), so it may "
                "be another file; ingest it again"
            )
        if hashes.digests_of(path, known)[known] != row[known]:
            raise _changed(path, f"another {known}")
        return f"size and {known}"


def _changed(path: Path, how: str) -> CaptureError:
    return CaptureError(f"{path}: is not the file that was ingested ({how}); restore it, or ingest again")
