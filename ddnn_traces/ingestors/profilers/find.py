"""The profilers' files of a run: which they are, what each is by its content, and whose rank each has.

A file is recognised by its content; its name only tells that it is to be looked at. Nothing of it is evaluated: a
pickled dump is refused, never unpickled.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ddnn_traces.errors import LogError
from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.ingestors.profilers import chrome_trace, flight_recorder, horovod_timeline, inspector
from ddnn_traces.ingestors.profilers.calls import Recording
from ddnn_traces.ingestors.profilers.json_items import Reader, documents, items
from ddnn_traces.ingestors.sources import RunInput
from ddnn_traces.ingestors.training_logs import Event, first_number, rank_of
from ddnn_traces.messages import Messages
from ddnn_traces.text import counted, natural_order, valid_text

_NAMES = re.compile(
    r"(?P<stem>(.*[-_.])?(flight[-_]?recorder|fr[-_]?trace|nccl_trace|comm_lib_trace|kineto|pt\.trace)([-_.].*)?)"
    r"(?P<end>\.json(\.gz)?)|.*\.pt\.trace\.json(\.gz)?|.*(nccl|comm_lib)_trace_rank_\d+"
    r"|.*inspector.*\.(json|jsonl|log)(\.gz)?|.*timeline.*\.json(\.gz)?|.*\.\d{1,7}\.et",
    re.IGNORECASE | re.DOTALL,
)
_RANK = re.compile(r"rank[-_]?(\d{1,9})(?!\d)", re.IGNORECASE)
_PICKLE, _ZIP = re.compile(rb"\x80[\x02-\x05]"), b"PK\x03\x04"
_AS_JSON = "torch._C._distributed_c10d._dump_fr_trace_json() gives JSON (in older releases _dump_nccl_trace_json())"


@dataclass(frozen=True)
class Recorded:
    """What profilers recorded of one worker."""

    worker: str
    events: tuple[Event, ...]


def is_named_so(path: Path) -> bool:
    """Whether a file beside captures is looked at for what a profiler recorded, by its name."""
    return _NAMES.fullmatch(path.name) is not None


def files_of(run: RunInput) -> list[Path]:
    """The profilers' files in the folders of a run, and those that the call names for it."""
    found = (path for folder in run.log_folders for path in sorted(folder.iterdir()) if is_named_so(path))
    beside = (path for path in found if path not in run.captures and not path.name.startswith(".") and path.is_file())
    return list(dict.fromkeys((*beside, *run.events)))


def read_profilers(
    run: RunInput, metadata: RunMetadata, labels: Sequence[str | None], workers: Iterable[str], messages: Messages
) -> tuple[Recorded, ...]:
    """What the profilers of a run recorded, in the order of its workers; a warning for each thing that is wrong.

    labels: of the captures. workers: those with a training log.
    """
    ranks = {host.label: host.rank for host in metadata.hosts if host.label}
    first = first_number(labels)
    for label in chain(labels, workers):
        if label and ranks.get(label) is None:
            ranks[label] = rank_of(label, first)
    by_rank: dict[int, str] = {}
    for label, rank in ranks.items():  # what run.toml states is first
        if label and rank is not None:
            by_rank.setdefault(rank, label)
    events: dict[str, list[Event]] = {}
    recordings: list[Recording] = []
    for path in files_of(run):
        recording = _read(path, messages)
        if recording is None:
            continue
        recordings.append(recording)
        events.setdefault(_worker(run, path, recording, ranks, by_rank, messages), []).extend(recording.events)
    for line in _missing_ranks(recordings):
        messages.warn(f"{run.run_id}: {line}")
    return tuple(
        Recorded(worker, _distinct(run, worker, events[worker], messages))
        for worker in sorted(events, key=natural_order)
    )


def _read(path: Path, messages: Messages) -> Recording | None:
    """The collectives of a file; None, with a warning, where there are none."""
    recording, faults = None, []
    try:
        with path.open("rb") as file:
            begin = file.read(4)
        if _PICKLE.match(begin) or begin == _ZIP:
            raise LogError(f"is a pickled dump, which is never read, since unpickling runs code; {_AS_JSON}")
        recording = _of_chakra(path) if path.suffix == ".et" else _of_json(path)
    except OSError as error:
        faults.append(f"cannot be read ({error.strerror}); correct or remove it")
    except _CutError as error:
        recording = error.recording
        read = f"{counted(len(recording.events), 'event')} before that" if recording.events else "not"
        faults.append(f"{error}; {read} read")
    except LogError as error:
        faults.append(f"{error}; not read")
    for fault in (*faults, *(recording.notes if recording else ())):
        messages.warn(f"{path}: {fault}")
    return recording if recording and recording.events else None


class _CutError(LogError):
    """A file has a fault after some events."""

    def __init__(self, fault: LogError, recording: Recording) -> None:
        super().__init__(str(fault))
        self.recording = recording


def _of_chakra(path: Path) -> Recording:
    """As _of_json(), of messages of Protocol Buffers."""
    from ddnn_traces.ingestors.profilers import chakra  # imports protobuf, which no other file needs

    recording = Recording(chakra.NAME)
    try:
        chakra.read(path, recording)
    except LogError as error:
        raise _CutError(error, recording) from None
    return recording


def _of_json(path: Path) -> Recording:
    """Raises LogError, _CutError, OSError."""
    reader = Reader(path)
    try:
        recording = _of_items(reader)
    finally:
        reader.close()
    return _of_documents(path) if recording.profiler == _INSPECTOR else recording


def _of_items(reader: Reader) -> Recording:
    """As _of_json(); of an inspector's file nothing yet."""
    parts = items(reader)
    before = []
    for part in parts:
        before.append(part)
        if part[0] in _FORMATS:
            break
        if len(before) > _MOST_HEADER:
            raise LogError("is none of the formats that are read (docs/profilers.md)")
    if not before or before[-1][0] not in _FORMATS:
        raise LogError("is none of the formats that are read (docs/profilers.md)")
    profiler, read = _FORMATS[before[-1][0]]
    recording = Recording(profiler)
    if profiler == _INSPECTOR:
        return recording
    try:
        read(chain(before, parts), recording)
    except LogError as error:
        raise _CutError(error, recording) from None
    return recording


def _of_documents(path: Path) -> Recording:
    """As _of_json(), of a file with a JSON object for each collective."""
    recording = Recording(_INSPECTOR)
    reader = Reader(path)
    try:
        inspector.read(documents(reader), recording)
    except LogError as error:
        raise _CutError(error, recording) from None
    finally:
        reader.close()
    return recording


#: What is before the key that tells a format: some keys, or the elements of another list.
_MOST_HEADER = 10_000
_INSPECTOR = "nccl_inspector"
#: Profiler and reader of a JSON object that has this key.
_FORMATS: dict[str, tuple[str, Callable[[Iterator[tuple[str, Any]], Recording], None]]] = {
    "entries": ("flight_recorder", flight_recorder.read),
    "traceEvents": ("kineto", chrome_trace.read),
    "header": (_INSPECTOR, lambda _parts, _recording: None),
    "": (horovod_timeline.NAME, horovod_timeline.read),  # an array
}


# --- whose file it is


def _worker(
    run: RunInput, path: Path, recording: Recording, ranks: dict[str, int | None], by_rank: dict[int, str],
    messages: Messages,
) -> str:  # fmt: skip
    """The worker of a file: by its folder, by the label in its name, by its rank."""
    host = run.host_of_folder(path.parent)
    parts = path.name.split(".")
    stems = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    named = host or max((label for label in ranks if any(_ends_with(s, label) for s in stems)), key=len, default=None)
    in_name = _RANK.search(path.name)
    rank = recording.rank if recording.rank is not None else int(in_name[1]) if in_name else None
    if named is None and rank is None:
        messages.warn(
            f"{path}: neither a host of the run nor a rank is in its name, so it belongs to no host; name it "
            f"{recording.profiler}-HOST.json or {recording.profiler}-rank-N.json"
        )
        return valid_text(parts[0])
    if named is not None:
        if rank is not None and ranks.get(named) not in (None, rank):
            messages.warn(f"{path}: {named} by its name or folder, which counts, but rank {rank} by its content")
        return named
    assert rank is not None
    if rank not in by_rank:
        messages.warn(f"{path}: rank {rank} is no host's of the run; state rank under [[hosts]] of run.toml")
    return by_rank.get(rank, f"rank-{rank}")


def _ends_with(stem: str, label: str) -> bool:
    return stem == label or (stem.endswith(label) and stem[-len(label) - 1] in "-_.")


def _missing_ranks(recordings: Iterable[Recording]) -> Iterator[str]:
    """Profilers that lack files of ranks of their groups."""
    files: Counter[str] = Counter()
    known: dict[str, set[int]] = {}
    for recording in recordings:
        files[recording.profiler] += 1
        known.setdefault(recording.profiler, set()).update(chain(*recording.groups.values()))
    for profiler, ranks in known.items():
        if len(ranks) > files[profiler]:
            yield (
                f"{profiler}: {counted(files[profiler], 'file')} of {len(ranks)} ranks; nothing is known of the others"
            )


def _distinct(run: RunInput, worker: str, events: list[Event], messages: Messages) -> tuple[Event, ...]:
    """Events in order, each once."""
    once = {event.key(): event for event in reversed(events)}
    if again := len(events) - len(once):
        messages.warn(f"{run.run_id}: {counted(again, 'event')} of {worker} in two files, taken once")
    return tuple(once[key] for key in sorted(once))
