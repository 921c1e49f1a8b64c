"""The original files of a dataset's captures: where they are now, and that they are what was ingested."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddnn_traces.errors import CaptureError, UsageError
from ddnn_traces.ingestors.inputs import RunRecord
from ddnn_traces.ingestors.sources import RunInput, find_runs
from ddnn_traces.store import hashes
from ddnn_traces.text import valid_text

_Row = Mapping[str, Any]


def among(runs: Iterable[RunInput], captures: Iterable[_Row], anywhere: bool = False) -> dict[tuple[str, str], Path]:
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
        self._found = among(find_runs(list(sources)), captures, anywhere=True) if sources else {}
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
