"""checksums.json: size and BLAKE3 of each Parquet file of a dataset, by run, to find what a disk has lost or changed.

The file has its own BLAKE3 (`sealed`), and so has inputs.json. A Parquet file also has a checksum in each page, of the
compressed values: it tells which column is damaged, and serves where there is no record, but the footer has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from ddnn_traces.jobs import thread_pool
from ddnn_traces.store import hashes, schema
from ddnn_traces.store.layout import INPUTS, MARKER, SOURCES, STORED_FILES, ListedFile, is_safe, marker_is_as_written
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.whole_files import sha256_of
from ddnn_traces.text import counted

FILE = STORED_FILES

_ALGORITHM = "blake3"
_READERS = 4  # threads


@dataclass(frozen=True)
class StoredFile:
    """What a file was when it was written."""

    bytes: int
    blake3: str


#: Files of a run by their path in the dataset, with slashes.
Files = Mapping[str, StoredFile]


@dataclass(frozen=True)
class Damage:
    """A file that is not what was written. run_id: None for a file that belongs to no single run."""

    run_id: str | None
    file: str
    problem: str

    def __str__(self) -> str:
        run = "" if self.run_id is None else f"run {self.run_id}: "
        return f"{run}{self.file}: {self.problem}"


def sealed(document: Mapping[str, Any]) -> str:
    """A JSON document with its own BLAKE3, in which every change is noticed."""
    seal = hashes.hasher(_ALGORITHM)
    seal.update(memoryview(_text(document).encode()))
    return _text({_ALGORITHM: seal.hexdigest(), **document})


def unsealed(text: str, needs_seal: bool = False) -> dict[str, Any]:
    """The document. needs_seal: refuse one without, as older programs wrote. Raises ValueError for a damaged one."""
    document = json.loads(text)
    if not isinstance(document, dict):
        raise ValueError("no JSON object")
    # an older document has one key and no seal: with others, the seal's own name is damaged
    has_seal = document.pop(_ALGORITHM, None) is not None or len(document) > 1
    if (has_seal or needs_seal) and sealed(document) != text:
        raise ValueError("not what was written")
    return document


def _text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def read(dataset: Path) -> dict[str, Files]:
    """The files of each run; empty where there is no record, or it is damaged."""
    try:
        return parsed((dataset / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def parsed(content: str) -> dict[str, Files]:
    """The same from the content of checksums.json."""
    try:
        runs = unsealed(content, needs_seal=True)["runs"]
        if not all(is_safe(path) for files in runs.values() for path in files):
            return {}
        return {run: {path: StoredFile(**file) for path, file in files.items()} for run, files in runs.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def text(runs: Mapping[str, Files]) -> str:
    """Content of checksums.json."""
    return sealed({"runs": {run: {path: asdict(file) for path, file in files.items()} for run, files in runs.items()}})


def of_run(dataset: Path, run_id: str) -> Files:
    """The files of a run as they are now. Raises OSError."""
    return {_name(path, dataset): _state(path) for path in _files(dataset, run_id)}


def damages(dataset: Path, run_id: str, files: Files | None) -> list[Damage]:
    """What is damaged, missing or new among the files of a run. files: as recorded; None: each has its pages read."""
    if files is None:
        return [damage for path in _files(dataset, run_id) for damage in _of_pages(dataset, run_id, path)]
    names = {_name(path, dataset) for path in _files(dataset, run_id)}
    found = [Damage(run_id, name, "not written by this program, and read by queries") for name in names - files.keys()]

    def problem(path: Path, file: StoredFile) -> str | None:
        return _problem(path, file.bytes, lambda: _state(path) == file)

    found += [Damage(run_id, name, what) for name, file in files.items() if (what := problem(dataset / name, file))]
    return sorted(found, key=lambda damage: damage.file)


def all_damages(dataset: Path, runs: Iterable[str] | None = None, pages: bool = True) -> list[Damage]:
    """The same of all files of a dataset, or of these runs. pages: also read the pages where the record does not
    object: their checksums were made before the file was written, the record after it.

    traces.duckdb is not among them: it is made of definitions, and DuckDB has checksums of its own.
    """
    recorded = read(dataset)
    unrecorded = run_ids(dataset) - set(recorded)
    known = {*recorded, *unrecorded}
    of_no_run = _of_no_run(dataset, unrecorded) if unrecorded else {}

    def of(run_id: str) -> list[Damage]:
        files = recorded.get(run_id)
        found = of_no_run.get(run_id, []) if files is None else damages(dataset, run_id, files)
        return found or (damages(dataset, run_id, None) if pages or files is None else [])

    with thread_pool(_READERS) as threads:
        of_runs = threads.map(of, sorted(known if runs is None else known & {*runs}))
        return [*(damaged_records(dataset) if runs is None else ()), *(damage for found in of_runs for damage in found)]


def _of_no_run(dataset: Path, unrecorded: Collection[str]) -> dict[str, list[Damage]]:
    """Folders of these runs where the table runs has none of that name, by run."""
    there = {folder.name for folder in (dataset / "runs").glob("run_id=*")}
    found: dict[str, list[Damage]] = {}
    for table in schema.TABLES:
        for folder in sorted((dataset / table).glob("run_id=*")):
            run_id = unquote(folder.name.removeprefix("run_id="))
            if folder.name not in there and run_id in unrecorded:
                damage = Damage(run_id, f"{table}/{folder.name}", "of no run that the table runs has; remove it")
                found.setdefault(run_id, []).append(damage)
    return found


def listed_damages(release: Path, listed: Sequence[ListedFile]) -> list[Damage]:
    """The files of a release that are not what its release.json states: one for each run with rows in such a file."""

    def problem(file: ListedFile) -> str | None:
        path = release / file.path
        return _problem(path, file.bytes, lambda: sha256_of(path) == file.sha256)

    with thread_pool(_READERS) as threads:
        found = zip(listed, threads.map(problem, listed), strict=True)
        return [Damage(run_id, file.path, what) for file, what in found if what for run_id in sorted(file.runs)]


def run_ids(dataset: Path) -> set[str]:
    """The runs whose folders are there, in any table."""
    folders = {folder.name for table in schema.TABLES for folder in (dataset / table).glob("run_id=*")}
    return {unquote(name.removeprefix("run_id=")) for name in folders}


def missing(dataset: Path, runs: Iterable[str] | None = None) -> dict[str, list[str]]:
    """The files of each run, or of these runs, that were written and are not there, in order. Reads none of them."""
    recorded = read(dataset)
    chosen = recorded if runs is None else {run_id: recorded.get(run_id, {}) for run_id in runs}
    found = {
        run_id: [name for name in sorted(files) if not (dataset / name).exists()] for run_id, files in chosen.items()
    }
    return {run_id: names for run_id, names in found.items() if names}


def unrecorded(dataset: Path) -> set[str]:
    """The runs without recorded sizes and checksums: of an older version, of a release, or the record is gone."""
    return run_ids(dataset) - read(dataset).keys()


def summary(found: Sequence[Damage]) -> str:
    """The first of these files with its problem, and the number of the others; a file may be damaged for many runs."""
    others = len({damage.file for damage in found}) - 1
    return f"{found[0]}" + (f", and {counted(others, 'more damaged file')}" if others else "")


def damaged_records(dataset: Path) -> Iterator[Damage]:
    """Records that are there and cannot be trusted."""
    if not marker_is_as_written(dataset):
        yield Damage(None, MARKER, "damaged")
    for name in (FILE, INPUTS):
        yield from _unsealable(name, partial((dataset / name).read_text, encoding="utf-8"))


def damaged_texts(texts: Mapping[str, str]) -> list[Damage]:
    """The same of the content of these files, by name."""
    return [damage for name in sorted(texts) for damage in _unsealable(name, partial(texts.__getitem__, name))]


def _unsealable(name: str, read: Callable[[], str]) -> Iterator[Damage]:
    try:
        unsealed(read(), needs_seal=name == FILE)
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError) as error:
        yield Damage(None, name, f"damaged ({error})")


def _files(dataset: Path, run_id: str) -> list[Path]:
    """The Parquet files of a run, which queries read."""
    return [path for table in schema.TABLES for path in sorted(partition(dataset, table, run_id).glob("*.parquet"))]


def _name(path: Path, dataset: Path) -> str:
    return path.relative_to(dataset).as_posix()


def _state(path: Path) -> StoredFile:
    return StoredFile(path.stat().st_size, hashes.digests_of(path, _ALGORITHM)[_ALGORITHM])


def _problem(path: Path, recorded_bytes: int, is_same: Callable[[], bool]) -> str | None:
    """What is wrong with a file, by its record. is_same: whether its hash is the recorded one."""
    try:
        if (size := path.stat().st_size) != recorded_bytes:
            return f"has {counted(size, 'byte')} instead of {recorded_bytes:,}"
        return None if is_same() else f"changed: it does not match its checksum{_place(path)}"
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _place(path: Path) -> str:
    """Which column of a changed file is damaged, where its pages tell."""
    problem = _of_each_page(path)
    return "" if problem is None else f" ({problem})"


def _of_pages(dataset: Path, run_id: str, path: Path) -> Iterator[Damage]:
    if problem := _of_each_page(path):
        yield Damage(run_id, _name(path, dataset), f"damaged ({problem})")


def _of_each_page(path: Path) -> str | None:
    """What is wrong with a Parquet file, by the checksums of its pages, where they have some, and its structure."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = ""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                for column in file.schema_arrow.names:
                    file.read_row_group(group, columns=[column], use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        what = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return f"column {column}: {what}" if column else what
    return None


# --- the small files of a dataset by run: inputs.json, sources.json, checksums.json; each is JSON with one key

_KEYS = {INPUTS: "runs", SOURCES: "folders", STORED_FILES: "runs"}

#: Names of the small files.
NAMES = tuple(_KEYS)

#: What a file has of each run.
Entries = Mapping[str, Any]


def entries(name: str, text: str | None) -> dict[str, Any]:
    """What a small file of this name has of each run; nothing where it is missing or damaged."""
    try:
        found = unsealed(text or "")[_KEYS[name]]
    except (ValueError, KeyError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def small_text(name: str, runs: Entries) -> str:
    """Content of the file, as an ingest writes it."""
    document = {_KEYS[name]: dict(sorted(runs.items()))}
    return json.dumps(document, indent=1) + "\n" if name == SOURCES else sealed(document)


def of_runs(name: str, text: str | None, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """The entries of some runs."""
    return {run_id: entry for run_id, entry in entries(name, text).items() if wanted(run_id)}


def merged(name: str, start: str | None, ours: str, theirs: str | None, written: Collection[str]) -> str:
    """Content of the file after a commit on top of another writer's: ours of the runs that we wrote or that only we
    have changed, and theirs of all others.

    start: the content that ours began with. theirs: that of the commit before ours.
    """
    if theirs == start:
        return ours
    before, mine, base = (entries(name, text) for text in (start, ours, theirs))
    chosen = dict(base)
    for run_id, entry in mine.items():
        if run_id in written or (run_id in base and base[run_id] == before.get(run_id)):
            chosen[run_id] = entry
    return small_text(name, chosen)
