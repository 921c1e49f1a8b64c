"""inputs.json: what each run of a dataset was made from, so that an unchanged run is not read again.

For each run the parameters that shape its tables, and for each file its name (relative to the run's folder: a dataset
gets published), size in bytes, time of its last change in ns, and BLAKE3 or SHA-256. A file whose mtime_ns is null is
always read again by the next ingest: it changed while it was read, could not be read, or is not a regular file.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ddnn_traces.ingestors.counters import is_counter_log
from ddnn_traces.ingestors.facts import STDIN, CaptureFacts
from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.sources import RunInput
from ddnn_traces.store import checksums, hashes, schema
from ddnn_traces.store.layout import INPUTS
from ddnn_traces.text import printable, valid_text
from ddnn_traces.version import __version__

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
class RunRecord:
    """The parameters and files of a run. warnings: those of its ingest, which hold as long as it is not read again."""

    parameters: Mapping[str, Any]
    files: tuple[FileState, ...]
    warnings: tuple[str, ...] = ()


def run_parameters(options: Mapping[str, Any], metadata: RunMetadata) -> dict[str, Any]:
    """All that shapes a run's tables in addition to the files; metadata (run.toml, runs.csv, the name) as a hash."""
    known = json.dumps(asdict(metadata), sort_keys=True, default=str)
    return {
        **options,
        "version": __version__,
        "schema_version": schema.SCHEMA_VERSION,
        "metadata_sha256": hashlib.sha256(known.encode()).hexdigest(),
    }


def current_files(run: RunInput, hash: str = hashes.DEFAULT) -> tuple[FileState, ...]:
    """The current state of the run's files, in the order of their names. Captures are not hashed: that takes time.

    hash: one of store.hashes.CHOICES, of the captures: the other files are hashed in any case.
    """
    of_logs = hashes.DEFAULT if hash == hashes.NONE else hash
    paths = sorted({*run.captures, *_logs(run)})
    return tuple(_state(path, {} if path in run.captures else _digests(path, of_logs)) for path in paths)


def unchanged(record: RunRecord, run: RunInput, now: RunRecord, hash: str = hashes.DEFAULT) -> RunRecord | None:
    """The record, with the current times, when the run would give the same tables again; None when not.

    A file of the same size but another time is hashed, where its hash is known: by the algorithm of then. hash: one of
    store.hashes.CHOICES, which the record has to satisfy.
    """
    names = {valid_text(path.name): path for path in (*run.captures, *_logs(run))}
    then = {file.name: file for file in record.files}
    if not _same_parameters(record.parameters, now.parameters) or then.keys() != {file.name for file in now.files}:
        return None
    for file in sorted(now.files, key=lambda file: file.name):
        old = then[file.name]
        if None in (file.mtime_ns, old.mtime_ns) or file.size != old.size:
            return None
        if not old.identifies(hash) or (file.mtime_ns != old.mtime_ns and not _has_content(names[file.name], old)):
            return None
    files = tuple(replace(then[file.name], mtime_ns=file.mtime_ns) for file in now.files)
    return replace(record, files=files)


def _same_parameters(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether tables made with the parameters of then are those that would be made now.

    A run of an older schema version that is still read counts: only columns that there were not yet are null in it.
    """
    version = then.get("schema_version")
    known = isinstance(version, int) and schema.OLDEST_VERSION <= version <= schema.SCHEMA_VERSION
    without = ("schema_version", "sha256")  # sha256: whether files were hashed, before version 5
    return known and all(then.get(name) == now.get(name) for name in (then.keys() | now.keys()) - {*without})


def changed_meanwhile(run: RunInput, before: Sequence[FileState]) -> list[str]:
    """Names of the files that changed since `before`, while the run was read."""
    now = {state.name: state for state in (_state(path, {}) for path in (*run.captures, *_logs(run)))}
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
    """Records of a dataset's runs; empty where inputs.json is missing or damaged, so that all runs are read again."""
    try:
        runs = checksums.unsealed((dataset / INPUTS).read_text(encoding="utf-8"))["runs"]
        return {
            run_id: RunRecord(
                entry["parameters"], tuple(FileState(**file) for file in entry["files"]), tuple(entry["warnings"])
            )
            for run_id, entry in runs.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def inputs_text(records: Mapping[str, RunRecord]) -> str:
    """Content of inputs.json."""
    runs = {run_id: asdict(record) for run_id, record in records.items()}
    return checksums.sealed({"runs": runs})


def without_folders(message: str, run: RunInput) -> str:
    """A warning about a run's files with their names relative to its folder."""
    folder = run.folder or run.captures[0].parent
    return printable(message.replace(f"{folder}/", "").replace(f"{folder.parent}/", "../"))


def _logs(run: RunInput) -> list[Path]:
    if run.folder is None:
        return []
    return [
        path
        for path in run.folder.iterdir()
        if not path.name.startswith(".") and path.is_file() and (path.suffix in _LOG_ENDINGS or is_counter_log(path))
    ]


def _state(path: Path, digests: Mapping[str, str]) -> FileState:
    try:
        status = path.stat()
    except OSError:
        return FileState(valid_text(path.name), 0, None)
    is_file = stat.S_ISREG(status.st_mode) and path != STDIN
    return FileState(valid_text(path.name), status.st_size, status.st_mtime_ns if is_file else None, **digests)


def _digests(path: Path, algorithm: str) -> dict[str, str]:
    try:
        return hashes.digests_of(path, algorithm)
    except OSError:
        return {}


def _has_content(path: Path, state: FileState) -> bool:
    """Whether the file is the one of the state, by its hash; false where that is not known."""
    return any(getattr(state, name) == digest for name, digest in _digests(path, state.algorithm).items())
