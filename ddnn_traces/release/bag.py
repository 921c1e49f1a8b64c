"""A release as a BagIt bag (RFC 8493): what it holds in data/, the manifests beside it."""

from __future__ import annotations

from pathlib import Path

from ddnn_traces.release import facts
from ddnn_traces.release.checksums import files
from ddnn_traces.release.content import file_hash
from ddnn_traces.store import layout

_MANIFEST, _TAG_MANIFEST = "manifest-sha256.txt", "tagmanifest-sha256.txt"


def write(bag: Path, release: facts.Release) -> None:
    """Write the tag files of a bag around bag/data, in which SHA256SUMS is. Raises OSError."""
    data = bag / "data"
    lines = (data / layout.CHECKSUMS).read_text("utf-8").splitlines()
    sums = {path: sha256 for sha256, _, path in (line.partition("  ") for line in lines)}
    sums[layout.CHECKSUMS] = file_hash(data / layout.CHECKSUMS)
    paths = files(data)
    # Version 1.0 has percent signs in paths encoded, 0.97 has not; the library bagit reads only the latter of both.
    version = "0.97" if any("%" in path for path in paths) else "1.0"
    (bag / "bagit.txt").write_bytes(f"BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n".encode())
    (bag / _MANIFEST).write_bytes(_lines({f"data/{path}": sums[path] for path in paths}))
    (bag / "bag-info.txt").write_bytes(_info(data, release))
    tags = ("bag-info.txt", "bagit.txt", _MANIFEST)
    (bag / _TAG_MANIFEST).write_bytes(_lines({name: file_hash(bag / name) for name in tags}))


def _lines(sums: dict[str, str]) -> bytes:
    """Lines of a manifest. A release has no line ends in paths: parquet.partition encodes them."""
    return "".join(f"{sha256}  {path}\n" for path, sha256 in sums.items()).encode()


def _info(data: Path, release: facts.Release) -> bytes:
    """bag-info.txt: of the release only, so that the same release makes the same bag."""
    sizes = [(data / path).stat().st_size for path in files(data)]
    about = release.about
    told = {
        "Source-Organization": about.publisher,
        "Contact-Email": about.contact if about.contact and "@" in about.contact else None,
        "External-Description": about.title,
        "External-Identifier": about.doi,
        "Bagging-Date": about.published,
        "Bag-Software-Agent": release.software,
        "Payload-Oxum": f"{sum(sizes)}.{len(sizes)}",
    }
    return "".join(f"{name}: {' '.join(value.split())}\n" for name, value in told.items() if value).encode()
