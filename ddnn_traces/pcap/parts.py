"""One plain capture cut at byte offsets into parts, each read without the parts before it: in threads or on a cluster.

`read_part` is a function of its task alone: the bytes of a range to partial tables. `read_in_parts` joins these in the
order of the file. Joining is associative, and its result is that of one pass, for any cut: the first record after a cut
is guessed, and the guess is proven when the records before it end there. A part with a wrong guess, or one that depends
on the parts before it (compiled/join.py), is read again in its place. A part of a pcapng is read with the interfaces
that were known when its task was made, up to the next description of one; what is left of it is read in its place, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

import numpy as np

from ddnn_traces.capture_format import PCAP_HEADER_BYTES
from ddnn_traces.pcap.capture_facts import Answer, Int64Array, Pool, ReadOptions, ignore_progress
from ddnn_traces.pcap.capture_file import page_aligned
from ddnn_traces.pcap.compiled.flow_table import FAR_FUTURE, State
from ddnn_traces.pcap.compiled.join import find_record
from ddnn_traces.pcap.compiled.scan import Framing
from ddnn_traces.pcap.records import RecordReader, reader_of
from ddnn_traces.pcap.scanner import Scanner
from ddnn_traces.pcap.streams import digests_of, opened
from ddnn_traces.store import hashes

#: Size of a part: its tables should fit into the caches, and many parts share the work evenly.
PART_BYTES = 64 << 20
#: Such parts that a cluster reads as one: a task has a cost of its own.
PARTS_OF_A_TASK = 4
BLOCK_BYTES = 1 << 20
#: At the start of a pcapng, where its interfaces are described mostly: read first, because all parts need them.
DESCRIPTIONS_BYTES = 1 << 16
#: With more flows than this, one pass is faster in threads, and does not need their table several times.
MOST_FLOWS = 1 << 14

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class PartTask:
    """The records of a capture that begin in [start, stop), bytes of the file. Can be pickled.

    start is the first record's offset for PCAP_HEADER_BYTES, else that of a cut. framing, interfaces, sample_limit: as
    of a Scanner. options: without progress and pool.
    """

    path: Path
    framing: Framing
    interfaces: Int64Array
    options: ReadOptions
    start: int
    stop: int
    sample_limit: int = int(FAR_FUTURE)


@dataclass(frozen=True)
class Part:
    """What was read of a part. begin: offset of its first record, -1 where none was found; end: after its last one.

    damage: as of RecordReader. tables: Scanner.partial(). Can be pickled.
    """

    begin: int
    end: int
    damage: str | None
    tables: State


def read_part(task: PartTask) -> Part:
    """Read a part. Raises OSError, StorageError."""
    scanner = Scanner(task.framing, task.options, None, None)
    scanner.interfaces = task.interfaces.copy()  # from another process it is read-only, which is another type
    scanner.sample_limit = task.sample_limit
    reader = RecordReader(scanner, 0, task.stop)
    blocks = _blocks(task.path, task.start, task.stop)
    first = next(blocks, memoryview(b""))
    skipped = 0 if task.start == PCAP_HEADER_BYTES else _guess(first, scanner)
    begin = -1
    if skipped >= 0:
        begin = reader.position = task.start + skipped
        reader.feed(first[skipped:])
        while not reader.ended and (block := next(blocks, None)) is not None:
            reader.feed(block)
    blocks.close()
    return Part(begin, reader.position, reader.damage, scanner.partial())


def _guess(block: memoryview, scanner: Scanner) -> int:
    """Offset of the first record that begins in a block, -1 where none is found."""
    data = np.frombuffer(block, np.uint8)
    return int(find_record(data, len(data), scanner.framing, scanner.interfaces))


def _blocks(path: Path, start: int, stop: int | None = None) -> Generator[memoryview, None, None]:
    """The bytes of a file from `start` on; a block is overwritten when the next is requested. stop: as of opened()."""
    view = memoryview(page_aligned(BLOCK_BYTES))
    with opened(path, stop) as file:
        file.seek(start)
        while size := file.readinto(view):
            yield view[:size]


class Threads:
    """A Pool of threads of this process."""

    def __init__(self, jobs: int) -> None:
        self.most_flows, self.part_bytes = MOST_FLOWS, PART_BYTES
        self.ahead = jobs + 1
        self._threads = ThreadPoolExecutor(jobs, "part")  # one of them hashes first

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)

    def submit(
        self, function: Callable[_Arguments, _Result], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> Future[_Result]:
        """As of Pool."""
        return self._threads.submit(function, *args, **kwargs)


class PartsReader:
    """Reads one plain capture of `size` bytes into `whole`, its parts in `pool`."""

    def __init__(self, path: Path, size: int, whole: Scanner, options: ReadOptions, pool: Pool) -> None:
        self.reader = reader_of(whole)
        self._path, self._size, self._whole, self._pool = path, size, whole, pool
        self._options = options
        self._progress = options.progress

    def read(self) -> None:
        """Read all. `reader` has the position and damage as after one pass."""
        begin = DESCRIPTIONS_BYTES if self._whole.framing.is_pcapng else 0
        if self._pool.most_flows < np.inf:
            begin = self._pool.part_bytes  # which shows whether there are many flows
        self._read_in_one_pass(begin)
        if self._goes_on:
            self._read_parts(begin)
        if not self.reader.damage:
            self._read_in_one_pass(self._size)
        self.reader.fed = self._size

    @property
    def _goes_on(self) -> bool:
        return self._whole.flows <= self._pool.most_flows and not self.reader.damage

    def _read_parts(self, begin: int) -> None:
        """All parts from this offset on, as long as there are few flows."""
        starts = iter(range(begin, self._size, self._pool.part_bytes))
        running: deque[tuple[PartTask, Answer[Part]]] = deque()

        def submit() -> None:
            if (start := next(starts, None)) is not None:
                task = self._task(start)
                running.append((task, self._pool.submit(read_part, task)))

        for _ in range(self._pool.ahead):
            submit()
        while running and self._goes_on:
            task, answer = running.popleft()
            self._append(answer.result(), task)
            submit()

    def _task(self, start: int) -> PartTask:
        options = replace(self._options, progress=ignore_progress, pool=None)
        begin, stop = max(start, PCAP_HEADER_BYTES), min(start + self._pool.part_bytes, self._size)
        whole = self._whole
        return PartTask(self._path, whole.framing, whole.interfaces, options, begin, stop, whole.sample_limit)

    def _append(self, part: Part, task: PartTask) -> None:
        """Append a part to the whole, and read in its place what does not fit there, or was not read."""
        position, records = self.reader.position, self._whole.records
        if position >= task.stop:
            return
        if part.begin == position and self._is_described(task) and self._whole.join(part.tables):
            self.reader.position, self.reader.damage = part.end, part.damage
            self._progress(self.reader.position - position, self._whole.records - records)
        if not self.reader.damage:
            self._read_in_one_pass(task.stop)

    def _is_described(self, task: PartTask) -> bool:
        """Whether the task was made with the descriptions that hold at the reader's position."""
        whole = self._whole
        return task.framing == whole.framing and np.array_equal(task.interfaces, whole.interfaces)

    def _read_in_one_pass(self, stop: int) -> None:
        """The records from the reader's position on that begin before `stop`."""
        if self.reader.position >= min(stop, self._size):
            return
        self.reader.resume(stop)
        for block in _blocks(self._path, self.reader.position, stop):
            position, records = self.reader.position, self._whole.records
            self.reader.feed(block)
            self._progress(self.reader.position - position, self._whole.records - records)
            if self.reader.ended:
                break


def prepare(whole: Scanner) -> None:
    """Call the compiled functions that the parts of a file need, on nothing."""
    _guess(memoryview(bytearray(1)), whole)
    whole.join(whole.partial())


def read_in_parts(path: Path, size: int, whole: Scanner, options: ReadOptions) -> tuple[RecordReader, dict[str, str]]:
    """Read a plain capture of `size` bytes, and hash it: (the reader, at its end, and its digests)."""
    with ExitStack() as stack:
        pool = options.pool or stack.enter_context(Threads(options.jobs))
        digests = pool.submit(digests_of, path, options.hash) if options.hash != hashes.NONE else None
        parts = PartsReader(path, size, whole, options, pool)
        parts.read()
        return parts.reader, digests.result() if digests else {}
