"""Names of the files in a release.

    RELEASE/
        TABLE/run_id=RUN/part-0.parquet    as in a dataset
        pcap/RUN/...                       optional: cut-down captures, a run folder each, which ingest takes
        release.json                       facts.Release
        everything else below

As a BagIt bag (RFC 8493) all of it is in RELEASE/data/, with bagit.txt and the manifests next to it.
"""

from __future__ import annotations

from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.store.marker import MARKER

RELEASE = "release.json"
CARD = "README.md"
DATASHEET = "DATASHEET.md"
LICENCE = "LICENSE"
CITATION = "CITATION.cff"
CHANGELOG = "CHANGELOG.md"
CROISSANT = "croissant.json"
DATA_PACKAGE = "datapackage.json"
RO_CRATE = "ro-crate-metadata.json"
DATACITE = "datacite.json"
CHECKSUMS = "SHA256SUMS"
CAPTURES = "pcap"  # captures/ is the table of that name

#: Made from facts.Release by descriptions/, in this order.
DESCRIPTIONS = (CARD, DATASHEET, LICENCE, CITATION, CROISSANT, DATA_PACKAGE, RO_CRATE, DATACITE)


def content(release: Path) -> Path:
    """Folder in which the release's files are: itself, or data/ of a bag."""
    return release / "data" if (release / "bagit.txt").is_file() else release


def refuse_inside(path: Path) -> None:
    """Raise UsageError where a path is a release or in one: what is written there would break its checksums."""
    path = path.resolve()
    for folder in (path, *path.parents):
        if (content(folder) / RELEASE).is_file() and (content(folder) / MARKER).is_file():
            where = "is a release" if path == folder else f"is inside the release {folder}"
            raise UsageError(f"{path}: {where}, which its checksums protect; choose another --out")
