"""The descriptions of a release, made from facts.Release and schemas/ only: the same facts give the same bytes.

    facts.Release + schemas/ -> croissant, data_package, ro_crate, citation, documents, ... -> a text for each file

No description contains the time of its making, a random number or a property of the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import (
    artifact,
    cards,
    citation,
    croissant,
    data_package,
    ro_crate,
    terms,  # fmt: skip
    workloads,
)
from ddnn_traces.store import layout

#: Makes the text of each description; None where there is nothing to describe. Raises UsageError (no text of the
#: licence), MissingExtra.
MAKERS: dict[str, Callable[[facts.Release], str | None]] = {
    layout.CARD: cards.card,
    layout.DICTIONARY: cards.dictionary,
    layout.DATASHEET: cards.datasheet,
    layout.FIGURE: cards.figure,
    layout.WORKLOADS: workloads.text,
    layout.CLAIMS: artifact.claims,
    layout.ARTIFACT: artifact.page,
    layout.LICENCE: citation.licence,
    layout.CITATION: lambda release: terms.yaml_text(citation.cff_document(release)),
    layout.CROISSANT: lambda release: terms.json_text(croissant.document(release)),
    layout.DATA_PACKAGE: lambda release: terms.json_text(data_package.document(release)),
    layout.RO_CRATE: lambda release: terms.json_text(ro_crate.document(release)),
    layout.DATACITE: lambda release: terms.json_text(citation.datacite_document(release)),
}


def texts(release: facts.Release) -> dict[str, str]:
    """Every description by the name of its file. Raises UsageError (no text of the licence), MissingExtra."""
    return {name: text for name in layout.DESCRIPTIONS if (text := MAKERS[name](release)) is not None}


def write(release: facts.Release, folder: Path) -> None:
    """Write every description into the folder; raises as texts(), before anything is written, and OSError."""
    for name, text in texts(release).items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
