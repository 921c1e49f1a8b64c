"""A release as a BagIt bag (RFC 8493): what it holds in data/, the manifests beside it."""

from __future__ import annotations

from pathlib import Path

from ddnn_traces.releases import facts, layout
from ddnn_traces.releases.checksums import files
from ddnn_traces.releases.content import file_hash

_MANIFEST, _TAG_MANIFEST = "manifest-sha256.txt", "tagmanifest-sha256.txt"


def write(bag: Path, release: facts.Release) -> None:
    """Write the tag files of a bag around bag/data, in which SHA256SUMS is. Raises OSError."""
    data = bag / "data"
    lines = (data / layout.CHECKSUMS).read_text("utf-8").splitlines()
    sums = {path: sha256 for sha256, _, path in (line.partition("  ") for line in lines)}
    sums[layout.CHECKSUMS] = file_hash(data / layout.CHECKSUMS)
    (bag / "bagit.txt").write_bytes(b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n")
    (bag / _MANIFEST).write_bytes(_lines({f"data/{path}": sums[path] for path in files(data)}))
    (bag / "bag-info.txt").write_bytes(_info(data, release))
    tags = ("bag-info.txt", "bagit.txt", _MANIFEST)
    (bag / _TAG_MANIFEST).write_bytes(_lines({name: file_hash(bag / name) for name in tags}))


def _lines(sums: dict[str, str]) -> bytes:
    """RFC 8493, 2.1.3: percent, CR and LF in a path are percent-encoded."""
    told = []
    for path, sha256 in sums.items():
        encoded = path.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        told.append(f"{sha256}  {encoded}\n")
    return "".join(told).encode()


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
