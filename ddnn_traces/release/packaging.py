"""Files around the tables of a release: traces.duckdb, SHA256SUMS and the tag files of a BagIt bag.

traces.duckdb has all tables and queries as views and macros, relative to the release's folder:

    cd RELEASE; duckdb traces.duckdb              or, from elsewhere, SET file_search_path = 'RELEASE'
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddnn_traces.jobs import thread_pool
from ddnn_traces.query import views
from ddnn_traces.release import facts
from ddnn_traces.store import layout
from ddnn_traces.store.whole_files import sha256_of


def write_database(release: Path, tables: Sequence[str]) -> None:
    """Write traces.duckdb into a folder that holds the tables already. tables: their names.

    Two such files of the same definitions have the same bytes: in the format of DuckDB 1.0 a file has no identifier of
    its own. Raises duckdb.Error, OSError.
    """
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as scratch:
        file = Path(scratch) / views.FILE  # DuckDB gives a question mark in a path another meaning
        views.write_relative(file, release.resolve(), tables)
        shutil.copyfile(file, release / views.FILE)


# --- SHA256SUMS, which sha256sum --check reads


def files(folder: Path) -> list[str]:
    """Paths of all files below a folder, relative, with slashes, in order of their bytes."""
    found = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]
    return sorted(found, key=str.encode)


def write_checksums(folder: Path, known: Mapping[str, str], jobs: int = 1) -> None:
    """Write SHA256SUMS, for every file but itself. known: hashes that are known already, by path. Raises OSError."""
    paths = [path for path in files(folder) if path != layout.CHECKSUMS]
    with thread_pool(jobs) as threads:
        hashes = threads.map(lambda path: known.get(path) or sha256_of(folder / path), paths)
        lines = _lines(dict(zip(paths, hashes, strict=True)))
    (folder / layout.CHECKSUMS).write_bytes(lines)


def _lines(sums: Mapping[str, str]) -> bytes:
    """SHA-256 and path, a line each. No path of a release has a line end or a backslash (layout.is_safe)."""
    return "".join(f"{sha256}  {path}\n" for path, sha256 in sums.items()).encode()


# --- a BagIt bag (RFC 8493)

_MANIFEST, _TAG_MANIFEST = "manifest-sha256.txt", "tagmanifest-sha256.txt"


def write_bag(bag: Path, release: facts.Release) -> None:
    """Write the tag files of a bag around bag/data, in which SHA256SUMS is. Raises OSError."""
    data = bag / "data"
    lines = (data / layout.CHECKSUMS).read_text("utf-8").splitlines()
    sums = {path: sha256 for sha256, _, path in (line.partition("  ") for line in lines)}
    sums[layout.CHECKSUMS] = sha256_of(data / layout.CHECKSUMS)
    paths = files(data)
    # Version 1.0 encodes percent signs in paths, 0.97 does not; the library bagit reads only 0.97 with such paths.
    version = "0.97" if any("%" in path for path in paths) else "1.0"
    (bag / "bagit.txt").write_bytes(f"BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n".encode())
    (bag / _MANIFEST).write_bytes(_lines({f"data/{path}": sums[path] for path in paths}))
    (bag / "bag-info.txt").write_bytes(_bag_info(data, release))
    tags = ("bag-info.txt", "bagit.txt", _MANIFEST)
    (bag / _TAG_MANIFEST).write_bytes(_lines({name: sha256_of(bag / name) for name in tags}))


def _bag_info(data: Path, release: facts.Release) -> bytes:
    """bag-info.txt: of the release only, so that the same release makes the same bag."""
    sizes = [(data / path).stat().st_size for path in files(data)]
    about = release.about
    fields = {
        "Source-Organization": about.publisher,
        "Contact-Email": about.contact if about.contact and "@" in about.contact else None,
        "External-Description": about.title,
        "External-Identifier": about.doi,
        "Bagging-Date": about.published,
        "Bag-Software-Agent": release.software,
        "Payload-Oxum": f"{sum(sizes)}.{len(sizes)}",
    }
    return "".join(f"{name}: {' '.join(value.split())}\n" for name, value in fields.items() if value).encode()
