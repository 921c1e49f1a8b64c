"""Find runs in the sources of an ingest: files, globs, folders, folders of run folders.

A folder with captures in it is a run and gives it its name. A file named by itself is a run of its own (with the files
that tcpdump -C continues it in), unless its folder is evidently a run's (run.toml, a row in runs.csv, a name in the
published scheme) or its name carries a host (worker-2-tcpdump.pcap): then all such files of the folder are one run.
A folder that a symbolic link leads to counts like any other, but once: under its own name where it is among the
sources too, and never where it holds the source.
`-` is standard input, a run named stdin.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.ingestors import metadata
from ddnn_traces.ingestors.capture_file import looks_like_capture
from ddnn_traces.ingestors.facts import STDIN
from ddnn_traces.store.layout import is_dataset
from ddnn_traces.text import valid_text
from ddnn_traces.text_files import name_of_kind, why_it_leads_nowhere

_CAPTURE_NAME = re.compile(r"\.(pcap|pcapng|cap|dmp)\d*(\.(gz|zst|xz|lz4|bz2))?$", re.IGNORECASE)
_HOST_LABEL = re.compile(r"(worker|ps|parameter[-_]server|chief|master|server|node|host|w)[-_]?[0-9]*", re.IGNORECASE)


NamedFiles = tuple[str, Path | None, tuple[Path, ...]]  # name, folder (None for a bare capture) and captures


@dataclass(frozen=True)
class RunInput:
    """The files of one run. folder: of its metadata and logs; None for a bare capture."""

    run_id: str
    folder: Path | None
    captures: tuple[Path, ...]


def host_label(capture: Path) -> str | None:
    """Host in the name of a capture (`worker-3-tcpdump.pcap.gz` is worker-3's), or None."""
    stem = re.sub(r"[-_.]tcpdump$", "", run_name(capture))
    return stem if _HOST_LABEL.fullmatch(stem) else None


def run_name(capture: Path) -> str:
    """Name of a bare capture's run: the file's name without the endings; standard input's is stdin."""
    if capture == STDIN:
        return "stdin"
    return valid_text(_CAPTURE_NAME.sub("", capture.name) or capture.name)


def find_runs(sources: list[str], warn: Callable[[str], None] = lambda _: None) -> list[RunInput]:
    """Runs in the order of their names. UsageError when a source is missing, unreadable or without captures.

    warn: called with a message for each name that is left out: a link that leads nowhere, a pipe or device in a folder.
    """
    files: list[Path] = []
    folders: dict[Path, tuple[Path, ...]] = {}  # with their captures
    for source in sources:
        if source == "-":
            files.append(_standard_input(again=STDIN in files))
            continue
        for path in _expand(source, warn):
            if path.is_dir():
                left_out: list[str] = []
                found = _run_folders(path, left_out.append)
                if not found:
                    why = f"{path}: no captures in this folder; name the folder that holds .pcap files"
                    raise UsageError("; ".join([why, *left_out]))
                for message in left_out:
                    warn(message)
                folders.update(found)
            else:
                files.append(path)
    runs: list[NamedFiles] = [(_folder_name(folder), folder, captures) for folder, captures in folders.items()]
    runs += [run for run in _runs_of_files(files) if run[1] not in folders]
    return sorted(_unique_names(runs), key=lambda run: run.run_id)


def _standard_input(again: bool) -> Path:
    if again:
        raise UsageError("standard input can be read only once; name '-' once")
    try:
        mode = os.fstat(0).st_mode
    except OSError as error:
        raise UsageError("standard input is closed; pipe a capture into it") from error
    if os.isatty(0):
        raise UsageError(
            "standard input is a terminal; pipe a capture into it: tcpdump -w - | ddnn-traces ingest - ..."
        )
    if stat.S_ISSOCK(mode):
        raise UsageError("standard input is a socket, which cannot be opened; put 'cat |' before ddnn-traces")
    return STDIN


def rename_run(runs: list[RunInput], run_id: str) -> list[RunInput]:
    """The only run under another name. UsageError when there are several, or the name is invalid."""
    if not run_id.strip() or "\0" in run_id:
        raise UsageError(f"--run-id {run_id!r} is not a name; give one with letters or digits")
    if len(runs) > 1:
        names = ", ".join(run.run_id for run in runs[:5]) + (", ..." if len(runs) > 5 else "")
        raise UsageError(
            f"--run-id {run_id} names one run, but {len(runs)} were found ({names}); ingest them one by one"
        )
    return [replace(run, run_id=valid_text(run_id)) for run in runs]


def _expand(source: str, warn: Callable[[str], None]) -> list[Path]:
    if not source:
        raise UsageError("a source is empty (an unset shell variable?); name a file or folder, '.' for the current one")
    if Path(source).exists():
        return [_absolute(source)]
    found = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 (absolute patterns too)
    paths = [] if found == [source] else _readable([_absolute(path) for path in found], warn)
    if not paths:
        raise UsageError(f"{source}: no such file or folder; check the path")
    return paths


def _readable(paths: list[Path], warn: Callable[[str], None]) -> list[Path]:
    """The files and folders among the paths, and missing captures, which are reported when they are read."""
    readable = []
    for path in paths:
        if path.is_file() or path.is_dir() or _is_capture(path):
            readable.append(path)
        elif path.exists():
            warn(
                f"{path}: {name_of_kind(path.stat().st_mode)}, which is not read; "
                "a capture from one is named as a source"
            )
        elif path.is_symlink():
            warn(f"{path}: {why_it_leads_nowhere(path)}; correct or remove it")
    return readable


def _absolute(path: str) -> Path:
    """Absolute, with links unresolved: a link's name is the run's or the host's, not its target's."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (Path.absolute() leaves '..' in)


def _run_folders(top: Path, warn: Callable[[str], None]) -> dict[Path, tuple[Path, ...]]:
    """The folders with captures from `top` on, also those that links lead to, and their captures."""
    found: dict[Path, tuple[Path, ...]] = {}
    seen = set(top.resolve().parents)  # a link to one of these would lead back to `top`
    links = [top]
    while links:  # folders before links, so that a run has its own name
        start = links.pop(0)
        if start.resolve() not in seen:
            links += _walk(start, seen, found, warn)
    return found


def _walk(top: Path, seen: set[Path], found: dict[Path, tuple[Path, ...]], warn: Callable[[str], None]) -> list[Path]:
    """Add the folders below `top` to those seen, and those with captures to those found; return the links to others."""
    links: list[Path] = []
    for folder, subfolders, names in os.walk(top, onerror=_unreadable):
        path = Path(folder)
        if is_dataset(path) or path.resolve() in seen:
            subfolders.clear()
            continue
        seen.add(path.resolve())
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        links += [path / name for name in subfolders if (path / name).is_symlink()]
        files = _readable([path / name for name in sorted(names) if not name.startswith(".")], warn)
        if captures := tuple(filter(_is_capture, files)):
            found[path] = captures
    return links


def _unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename}: cannot be read ({error.strerror}); check its permissions")


def _is_capture(path: Path) -> bool:
    """By its name, or as files that begin like one (tcpdump -C and -W name them freely)."""
    named = bool(_CAPTURE_NAME.search(path.name))
    if path.is_file():
        return named or _sniff(path)
    # a link whose target is missing, as in a git-annex without the content: the run is partial, and says so
    return named and path.is_symlink() and not path.exists()


def _sniff(path: Path) -> bool:
    try:
        return looks_like_capture(path)
    except OSError:
        return False  # an unreadable file that does not even have a capture's name


def _folder_name(folder: Path) -> str:
    return valid_text(folder.name) or "root"


def _runs_of_files(files: list[Path]) -> list[NamedFiles]:
    together: dict[Path, list[Path]] = {}
    alone: dict[tuple[Path, str], list[Path]] = {}  # tcpdump -C writes x.pcap, x.pcap1, x.pcap2: one run x
    for path in dict.fromkeys(files):
        if path != STDIN and (metadata.is_run_folder(path.parent) or host_label(path)):
            together.setdefault(path.parent, []).append(path)
        else:
            alone.setdefault((path.parent, run_name(path)), []).append(path)
    runs: list[NamedFiles] = []
    runs += [(_folder_name(folder), folder, tuple(paths)) for folder, paths in together.items()]
    runs += [(name, None, tuple(paths)) for (_, name), paths in alone.items()]
    return runs


def _unique_names(runs: list[NamedFiles]) -> list[RunInput]:
    """Runs of the same name get the names of the folders above in front, as many as it takes."""
    taken: dict[str, int] = {}
    for name, _, _ in runs:
        taken[name] = taken.get(name, 0) + 1
    unique: list[RunInput] = []
    used: set[str] = set()
    for name, folder, captures in runs:
        full = name
        above = folder.parent if folder else captures[0].parent
        while (taken[name] > 1 and full == name and captures != (STDIN,)) or full in used:
            if not above.name:  # no folder is left to distinguish them: same name, same folder
                raise UsageError(f"{captures[0]}: a second run named {full}; rename the file or ingest it by itself")
            full, above = f"{valid_text(above.name)}_{full}", above.parent
        used.add(full)
        unique.append(RunInput(full, folder, captures))
    return unique
