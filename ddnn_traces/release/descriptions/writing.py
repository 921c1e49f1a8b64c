"""All descriptions of a release, written into its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import (
    card,
    citation,
    croissant,
    data_package,
    datacite,
    datasheet,
    licence,
    ro_crate,
)
from ddnn_traces.store import layout

MAKERS: dict[str, Callable[[facts.Release], str]] = {
    layout.CARD: card.text,
    layout.DATASHEET: datasheet.text,
    layout.LICENCE: licence.text,
    layout.CITATION: citation.text,
    layout.CROISSANT: croissant.text,
    layout.DATA_PACKAGE: data_package.text,
    layout.RO_CRATE: ro_crate.text,
    layout.DATACITE: datacite.text,
}


def texts(release: facts.Release) -> dict[str, str]:
    """Every description by the name of its file. Raises UsageError (no text of the licence), MissingExtra."""
    return {name: MAKERS[name](release) for name in layout.DESCRIPTIONS}


def write(release: facts.Release, folder: Path) -> None:
    """Write every description into the folder; raises as texts(), before anything is written, and OSError."""
    for name, text in texts(release).items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
