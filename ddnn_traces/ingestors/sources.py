"""Find runs in the sources of an ingest: files, globs, folders, folders of run folders.

A folder with captures in it is a run and gives it its name. A file named by itself is a run of its own (with the files
that tcpdump -C continues it in), unless its folder is evidently a run's (run.toml, a row in runs.csv, a name in the
published scheme) or its name carries a host (worker-2-tcpdump.pcap): then all such files of the folder are one run.
A folder that a symbolic link leads to counts like any other, but once: under its own name where it is among the
sources too, and never where it holds the source.
The files of parsed-files/ (parsed_files.py) stand for captures of their names that are not in the folder above it.
`-` is standard input, a run named stdin. A source may be a URL that fsspec knows (s3://bucket/campaign): its paths are
UPaths, which have what is used of a Path here.

Where a run has a folder for each host, `--layout` says so, or `--run-id`, which joins all captures into
one run: then a host is named by the folder.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.ingestors import metadata, parsed_files
from ddnn_traces.ingestors.metadata import RunMetadata
from ddnn_traces.pcap.capture_facts import STDIN
from ddnn_traces.pcap.capture_file import looks_like_capture
from ddnn_traces.pcap.streams import errors, is_local, path_of
from ddnn_traces.store import object_store
from ddnn_traces.store.layout import is_dataset
from ddnn_traces.store.places import is_url
from ddnn_traces.text import counted, listed, shown, valid_text
from ddnn_traces.text_files import name_of_kind, why_it_leads_nowhere

_CAPTURE_NAME = re.compile(r"\.(pcap|pcapng|cap|dmp)\d*(\.(gz|zst|xz|lz4|bz2))?$", re.IGNORECASE)
_HOST_LABEL = re.compile(r"(worker|ps|parameter[-_]server|chief|master|server|node|host|w)[-_]?[0-9]*", re.IGNORECASE)


#: A date, with or without a time of day, or seconds or milliseconds since 1970; a file's number before or after it.
_TIME_IN_NAME = re.compile(
    r"""(?:(?:^|[-_.\ ])[0-9]{5})?(?:^|[-_.\ ])(?:
        (?:19|20)[0-9]{2}[-_.]?[01][0-9][-_.]?[0-3][0-9]
            (?:[-_.T\ ]*[0-2][0-9][-_.:]?[0-5][0-9](?:[-_.:]?[0-6][0-9])?Z?)?
        |1[0-9]{9}(?:[0-9]{3})?
    )(?:[-_.][0-9]{1,5}$|(?=$|[-_.\ ]))""",
    re.VERBOSE,
)

#: On a store a request for each of these would take longer than all else.
_TEXTS = (".log", ".csv", ".toml", ".json", ".txt", ".md", ".yaml", ".html", ".parquet")

NamedFiles = tuple[str, Path | None, tuple[Path, ...]]  # name, folder (None for a bare capture) and captures


@dataclass(frozen=True)
class RunInput:
    """The files of one run. folder: of its metadata and logs; None for a bare capture. hosts: of captures whose host is
    known by a folder or the layout. events: profilers' files that the call names."""

    run_id: str
    folder: Path | None
    captures: tuple[Path, ...]
    hosts: Mapping[Path, str] = field(default_factory=dict)
    events: tuple[Path, ...] = ()

    @cached_property
    def top(self) -> Path:
        """The folder that names of files are relative to."""
        return self.folder or _common_folder(self.captures)

    @cached_property
    def log_folders(self) -> tuple[Path, ...]:
        """Folders with logs: the run's, and those of its hosts."""
        if self.folder is None:
            return ()
        own = {parsed_files.folder_of(path) for path in self.captures}
        below = {above for path in own for above in (path, *path.parents) if above.is_relative_to(self.folder)}
        return tuple(dict.fromkeys((self.folder, *sorted(below))))

    @property
    def table_rows(self) -> tuple[Path, tuple[str, ...]] | None:
        """Folder of the runs.csv that may have a row for the run, and its names there, the first of which counts."""
        if self.captures[0] == STDIN:
            return None
        place = self.folder or self.captures[0]
        own = self.folder.name if self.folder else run_name(self.captures[0])
        return place.parent, tuple(dict.fromkeys((own, self.run_id)))

    def name_of(self, path: Path) -> str:
        """Name of a capture or log, unique in the run: with its folder, where that is not the run's."""
        if path == STDIN:
            return "stdin"
        return valid_text(path.relative_to(self.top).as_posix() if path.is_relative_to(self.top) else path.name)

    def host(self, capture: Path) -> str | None:
        """The host that a capture's folder or name says it is from, or None."""
        return self.hosts.get(capture) or host_label(capture)

    def host_of_folder(self, folder: Path) -> str | None:
        """The host that a folder of logs belongs to; None for the run's own."""
        hosts = self._hosts_below.get(folder, set())
        return next(iter(hosts)) if len(hosts) == 1 and folder != self.folder else None

    @cached_property
    def _hosts_below(self) -> Mapping[Path, set[str]]:
        """The hosts of the captures in and below each folder."""
        found: dict[Path, set[str]] = {}
        for path, host in self.hosts.items():
            for above in path.parents:
                found.setdefault(above, set()).add(host)
        return found


def host_label(capture: Path) -> str | None:
    """Host in the name of a capture (`worker-3-tcpdump.pcap.gz` is worker-3's), or None."""
    stem = host_stem(capture)
    return stem if names_a_host(stem) else None


def host_stem(capture: Path) -> str:
    """The part of a capture's name that would name its host: without times (tcpdump -G), and the numbers that
    dumpcap -b (_00001_20261120100703) and others add beside them. Empty where nothing is left."""
    return re.sub(r"[-_.]tcpdump$", "", _TIME_IN_NAME.sub("", run_name(capture))).strip("-_. ")


def names_a_host(name: str) -> bool:
    """Whether a name is a usual one of a host: worker-1, ps0, node3."""
    return bool(_HOST_LABEL.fullmatch(name))


def role_of(label: str | None) -> str | None:
    """Role in a label like worker-1, ps-0 or chief-0; other for node-1; None for nodeA, which may have any."""
    if label is None or not names_a_host(label):
        return None
    word = label.rstrip("0123456789").rstrip("-_").lower()
    roles = {"worker": "worker", "w": "worker", "ps": "parameter_server", "parameter-server": "parameter_server"}
    return roles.get(word, "chief" if word in ("chief", "master") else "other")


def run_name(capture: Path) -> str:
    """Name of a bare capture's run: the file's name without the endings; standard input's is stdin."""
    if capture == STDIN:
        return "stdin"
    if parsed_files.is_in_folder(capture):
        return valid_text(capture.stem)
    return valid_text(_CAPTURE_NAME.sub("", capture.name) or capture.name)


def series_name(capture_id: str) -> str:
    """What the names of the files in a series have in common: x of x.pcap and x.pcap1."""
    return _CAPTURE_NAME.sub("", capture_id) or capture_id


def find_runs(
    sources: list[str],
    warn: Callable[[str], None] = lambda _: None,
    layout: str | None = None,
    run_id: str | None = None,
) -> list[RunInput]:
    """Runs in the order of their names. UsageError when a source is missing, unreadable or without captures.

    warn: called with a message for each name that is left out: a link that leads nowhere, a pipe or device in a folder.
    layout: of the captures' paths. run_id: name of the run that all captures are joined into.
    Raises UsageError.
    """
    parsed = None if layout is None else parse_layout(layout)
    if run_id is not None and (not run_id.strip() or "\0" in run_id):
        raise UsageError(f"--run-id {run_id!r} is not a name; give one with letters or digits")
    if parsed and run_id is not None and "run" in parsed.pattern.groupindex:
        raise UsageError(f"--layout {layout}: its {{run}} and --run-id exclude each other; leave out one of them")
    files, folders, tops = _captures_of(sources, warn)
    if parsed:
        below = {path: tops[folder] for folder, captures in folders.items() for path in captures}
        runs = _by_layout({**dict.fromkeys(files), **below}, parsed, warn)
    else:
        named: list[NamedFiles] = [(_folder_name(folder), folder, captures) for folder, captures in folders.items()]
        named += [run for run in _runs_of_files(files) if run[1] not in folders]
        runs = _unique_names(named)
    if run_id is not None:
        runs = [_joined(runs, valid_text(run_id))]
    return sorted(runs, key=lambda run: run.run_id)


def _captures_of(
    sources: list[str], warn: Callable[[str], None]
) -> tuple[list[Path], dict[Path, tuple[Path, ...]], dict[Path, Path]]:
    """The files among the sources, the folders with captures in or below the others, and the source of each folder."""
    files: list[Path] = []
    folders: dict[Path, tuple[Path, ...]] = {}  # with their captures
    tops: dict[Path, Path] = {}
    for source in sources:
        if source == "-":
            files.append(_standard_input(again=STDIN in files))
            continue
        for path in _expand(source, warn):
            with errors(path):
                captures = _run_folders_of(path, warn) if path.is_dir() else None
            if captures is None:
                files.append(path)
            else:
                folders.update(captures)
                for folder in captures:  # of a source in another one, the outer
                    tops[folder] = min(tops.get(folder, path), path, key=lambda top: len(top.parts))
    return files, folders, tops


def _run_folders_of(folder: Path, warn: Callable[[str], None]) -> dict[Path, tuple[Path, ...]]:
    """As _run_folders(). Raises UsageError where there are none."""
    left_out: list[str] = []
    found = _run_folders(folder, left_out.append)
    if not found:
        why = f"{folder}: no captures in this folder; name the folder that holds .pcap files"
        raise UsageError("; ".join([why, *left_out]))
    for message in left_out:
        warn(message)
    return found


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


def _by_layout(captures: Mapping[Path, Path | None], layout: Layout, warn: Callable[[str], None]) -> list[RunInput]:
    """Runs of the captures that fit the layout. captures: each with the source that it was found in, if any."""
    runs: dict[tuple[str, Path | None], list[Path]] = {}
    hosts: dict[Path, str] = {}
    others = []
    for capture, top in captures.items():
        place = None if capture == STDIN else layout.place(capture, top)
        if place is None:
            others.append(str(capture))
            continue
        runs.setdefault((place.run, place.folder), []).append(capture)
        if place.host is not None:
            hosts[capture] = place.host
    if not runs:
        raise UsageError(
            f"--layout {layout.text} fits no capture, such as {others[0]}; correct it ({{run}} and {{host}} are below "
            "the source; without {run} the folder of the hosts is the run)"
        )
    if others:
        warn(
            f"--layout {layout.text} does not fit {counted(len(others), 'capture')}, not read: {listed(others, 3)}; "
            "correct it, or leave them out of the sources"
        )
    return [
        replace(run, hosts={path: hosts[path] for path in run.captures if path in hosts})
        for run in _unique_names([(name, folder, tuple(paths)) for (name, folder), paths in runs.items()])
    ]


def _joined(runs: list[RunInput], run_id: str) -> RunInput:
    """All captures as one run. Of several folders each is a host's, unless the layout says more.

    UsageError where they are evidently several runs, each with metadata of its own.
    """
    if len(runs) == 1:
        return replace(runs[0], run_id=run_id)
    captures = tuple(dict.fromkeys(path for run in runs for path in run.captures))
    if STDIN in captures:
        raise UsageError(f"--run-id {run_id}: standard input cannot be joined with other captures; ingest it by itself")
    described = [run.run_id for run in runs if run.folder and metadata.read_metadata(run.folder) != RunMetadata()]
    if len(described) > 1:
        raise UsageError(
            f"--run-id {run_id} joins all captures into one run, but {listed(described, 5)} have metadata of their "
            "own (run.toml, runs.csv or a name in the scheme); ingest them one by one"
        )
    top = _common_folder(captures)
    return RunInput(
        run_id, top, captures, _hosts_by_folder(captures, top) | {p: h for run in runs for p, h in run.hosts.items()}
    )


def _hosts_by_folder(captures: tuple[Path, ...], top: Path) -> dict[Path, str]:
    """For captures in folders below `top` the first part of their path that no two folders have in common."""
    folders = {path: path.relative_to(top).parts[:-1] for path in captures if path.parent != top}
    different = {*folders.values()}
    depths = range(min(map(len, different), default=0))
    depth = next((n for n in depths if len({parts[n] for parts in different}) == len(different)), 0)
    return {path: valid_text(parts[depth]) for path, parts in folders.items()}


def _common_folder(captures: tuple[Path, ...]) -> Path:
    """The deepest folder that holds all of them."""
    first = captures[0].parent
    return next(top for top in (first, *first.parents) if all(path.is_relative_to(top) for path in captures))


def _expand(source: str, warn: Callable[[str], None]) -> list[Path]:
    if not source:
        raise UsageError("a source is empty (an unset shell variable?); name a file or folder, '.' for the current one")
    if is_url(source):
        return _expand_url(source, warn)
    if Path(source).exists():
        return [_absolute(source)]
    found = sorted(glob.glob(source, recursive=True))  # noqa: PTH207 (absolute patterns too)
    paths = [] if found == [source] else _readable([_absolute(path) for path in found], warn)
    if not paths:
        raise UsageError(f"{source}: no such file or folder; check the path")
    return paths


def _expand_url(url: str, warn: Callable[[str], None]) -> list[Path]:
    path = path_of(url)
    if is_local(path):  # file://
        return _expand(str(path), warn)
    with object_store.errors(url):
        object_store.look(url)
        if path.exists():
            return [path]
        found = object_store.matching(url) if set(url) & set("*?[") else []
    if not found:
        step = f"write {url}BUCKET/FOLDER" if url.endswith("://") else "check the URL"
        raise UsageError(f"{object_store.shown(url)}: no such file or folder; {step}")
    return [path_of(one) for one in found]


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
    for path, subfolders, names in _folders_below(top):
        if is_dataset(path) or path.resolve() in seen:
            subfolders.clear()
            continue
        seen.add(path.resolve())
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        links += [path / name for name in subfolders if (path / name).is_symlink()]
        files = _readable([path / name for name in sorted(names) if not name.startswith(".")], warn)
        captures = list(filter(_is_capture, files))
        if parsed_files.FOLDER in subfolders:
            captures += _parsed(path, captures, warn)
        if captures:
            found[path] = tuple(captures)
    return links


def _parsed(folder: Path, captures: Iterable[Path], warn: Callable[[str], None]) -> Iterator[Path]:
    """The parsed files of a run's folder that have no capture there."""
    there = {run_name(path) for path in captures}
    for path in parsed_files.files_in(folder):
        if run_name(path) in there:
            continue
        if parsed_files.is_parsed_file(path):
            yield path
        else:
            warn(
                f"{path}: not read, its first line does not have the columns of parsing_script.py; correct or remove it"
            )


def _folders_below(top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """As os.walk(), with paths."""
    if is_local(top):
        for folder, folders, names in os.walk(top, onerror=_unreadable):
            yield Path(folder), folders, names
        return
    yield from top.walk(on_error=_fail)  # type: ignore[attr-defined]  # Python 3.12's, which a UPath has


def _fail(error: OSError) -> None:
    raise error


def _unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename}: cannot be read ({error.strerror}); check its permissions")


def _is_capture(path: Path) -> bool:
    """By its name, or as files that begin like one (tcpdump -C and -W name them freely)."""
    named = bool(_CAPTURE_NAME.search(path.name))
    if path.is_file():
        return named or (not (path.suffix in _TEXTS and not is_local(path)) and _sniff(path))
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


# --- layouts: which run and host a capture belongs to, by its path, such as `{run}/{host}/*.pcap`

_TOKENS = re.compile(r"\{(?P<name>[^{}/]*)\}|(?P<wrong>\*\*)|(?P<any>\*)|(?P<one>\?)|(?P<text>[^{}*?]+)|(?P<brace>.)")
_PATTERNS = {"any": "[^/]*", "one": "[^/]"}
_NAMES = ("run", "host")
_NEXT = "write it as '{run}/{host}/*.pcap'"


@dataclass(frozen=True)
class Place:
    """The run and host of a capture. folder: the run's; None where the run's name is a part of the file's name."""

    run: str
    folder: Path | None
    host: str | None


@dataclass(frozen=True)
class Layout:
    """A layout as text and as a regular expression with the groups run and host, or one of them."""

    text: str
    pattern: re.Pattern[str]

    def place(self, capture: Path, top: Path | None) -> Place | None:
        """Where a capture belongs, None if its path does not fit. Without {run} the run is the folder of the hosts.

        top: the source, below which {run} and {host} are: else a layout with a folder too many would take the folder
        of all runs for a run, and the runs for its hosts.
        """
        path = str(capture)
        match = self.pattern.search(path)
        if match is None:
            return None
        found = match.groupdict()
        if top is not None and min(map(match.start, found)) <= len(str(top).rstrip("/")):
            return None
        host = found.get("host")
        above = [capture, *capture.parents]
        folder: Path | None
        if "run" in found:
            depth = path.count("/", match.start("run"))
            folder = above[depth] if depth else None
            run = found["run"]
        else:
            folder = above[path.count("/", match.start("host")) + 1]
            run = folder.name or "root"
        return Place(valid_text(run), folder, None if host is None else valid_text(host))


def parse_layout(text: str) -> Layout:
    """The layout of this text. Raises UsageError for one without {run} and {host}, or with anything else in braces."""
    parts: list[str] = []
    seen: list[str] = []
    for token in _TOKENS.finditer(text.removeprefix("./")):
        kind, name = str(token.lastgroup), token["name"]
        if kind in ("brace", "wrong") or (kind == "name" and (name not in _NAMES or name in seen)):
            fault = "is there twice" if name in seen else "is neither {run} nor {host}"
            fault = "is not known here, * stands for one folder" if kind == "wrong" else fault
            raise UsageError(f"--layout {shown(text)}: {shown(token[0])} {fault}; {_NEXT}")
        if kind == "name":
            seen.append(name)
            parts.append(f"(?P<{name}>[^/]+?)")
        else:
            parts.append(_PATTERNS.get(kind) or re.escape(token[0]))
    if not seen:
        raise UsageError(f"--layout {shown(text)}: neither {{run}} nor {{host}} is in it; {_NEXT}")
    begin = "" if text.startswith("/") else "(?:^|/)"
    return Layout(text, re.compile(f"{begin}{''.join(parts)}$", re.DOTALL))
