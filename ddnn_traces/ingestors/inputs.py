"""inputs.json: what each run of a dataset was made from, so that an unchanged run is not read again.

For each run the parameters that shape its tables, and for each file its name (relative to the run's folder: a dataset
gets published), size in bytes, time of its last change in ns and SHA-256. A file whose mtime_ns is null is always read
again by the next ingest: it changed while it was read, could not be read, or is not a regular file.
"""

from __future__ import annotations

import hashlib
import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ddnn_traces.ingestors.facts import STDIN, CaptureFacts
from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.sources import RunInput
from ddnn_traces.store import schema
from ddnn_traces.store.whole_files import sha256_of
from ddnn_traces.text import valid_text
from ddnn_traces.version import __version__

INPUTS = "inputs.json"

#: Endings of the other files of a run: run.toml, train_history.log, phases-worker-1.csv and the like.
_LOG_ENDINGS = (".toml", ".log", ".csv")


@dataclass(frozen=True)
class FileState:
    """A file's state: size in bytes, mtime_ns null where it has to be read again, sha256 null where not hashed."""

    name: str
    size: int
    mtime_ns: int | None
    sha256: str | None


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


def current_files(run: RunInput) -> tuple[FileState, ...]:
    """The current state of the run's files, in the order of their names. Captures are not hashed: that takes time."""
    return tuple(
        _state(path, None if path in run.captures else _hash(path)) for path in sorted({*run.captures, *_logs(run)})
    )


def unchanged(record: RunRecord, run: RunInput, now: RunRecord) -> RunRecord | None:
    """The record, with the current times, when the run would give the same tables again; None when not.

    A file of the same size but another time is hashed, where its hash is known.
    """
    names = {valid_text(path.name): path for path in (*run.captures, *_logs(run))}
    then = {file.name: file for file in record.files}
    if record.parameters != now.parameters or then.keys() != {file.name for file in now.files}:
        return None
    for file in sorted(now.files, key=lambda file: file.name):
        old = then[file.name]
        if None in (file.mtime_ns, old.mtime_ns) or file.size != old.size:
            return None
        if file.mtime_ns != old.mtime_ns and (old.sha256 is None or _hash(names[file.name]) != old.sha256):
            return None
    files = tuple(replace(then[file.name], mtime_ns=file.mtime_ns) for file in now.files)
    return replace(record, files=files)


def changed_meanwhile(run: RunInput, before: Sequence[FileState]) -> list[str]:
    """Names of the files that changed since `before`, while the run was read."""
    now = {state.name: state for state in (_state(path, None) for path in (*run.captures, *_logs(run)))}
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
        states.append(
            replace(
                state,
                mtime_ns=None if unread else state.mtime_ns,
                sha256=None if unread else known.sha256 if known else state.sha256,
            )
        )
    return tuple(states)


def read_inputs(dataset: Path) -> dict[str, RunRecord]:
    """Records of a dataset's runs; empty where inputs.json is missing or damaged, so that all runs are read again."""
    try:
        runs = json.loads((dataset / INPUTS).read_text(encoding="utf-8"))["runs"]
        return {
            run_id: RunRecord(
                entry["parameters"], tuple(FileState(**file) for file in entry["files"]), tuple(entry["warnings"])
            )
            for run_id, entry in runs.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def inputs_text(records: Mapping[str, RunRecord]) -> str:
    """Content of inputs.json."""
    runs = {run_id: asdict(record) for run_id, record in records.items()}
    return json.dumps({"runs": runs}, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def without_folders(message: str, run: RunInput) -> str:
    """A warning about a run's files with their names relative to its folder."""
    folder = run.folder or run.captures[0].parent
    return valid_text(message.replace(f"{folder}/", "").replace(f"{folder.parent}/", "../"))


def _logs(run: RunInput) -> list[Path]:
    if run.folder is None:
        return []
    return [
        path
        for path in run.folder.iterdir()
        if path.suffix in _LOG_ENDINGS and not path.name.startswith(".") and path.is_file()
    ]


def _state(path: Path, sha256: str | None) -> FileState:
    try:
        status = path.stat()
    except OSError:
        return FileState(valid_text(path.name), 0, None, None)
    is_file = stat.S_ISREG(status.st_mode) and path != STDIN
    return FileState(valid_text(path.name), status.st_size, status.st_mtime_ns if is_file else None, sha256)


def _hash(path: Path) -> str | None:
    try:
        return sha256_of(path)
    except OSError:
        return None
