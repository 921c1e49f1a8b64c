"""LICENSE: the text of the licence that was chosen.

The texts in licences/ are those of the SPDX licence list, for the licences that open data are usually under.
"""

from __future__ import annotations

from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.release import facts
from ddnn_traces.text import nearest

_FOLDER = Path(__file__).parents[1] / "licences"


def known() -> list[str]:
    """SPDX identifiers of the licences whose texts are here."""
    return sorted(path.stem for path in _FOLDER.glob("*.txt"))


def full_text(licence: str) -> str:
    """Text of a known licence. Raises UsageError for another."""
    if licence not in known():
        raise UsageError(
            f"no text for the licence {licence} (for another one give its text as a file, and a name that begins with "
            f"LicenseRef-); {nearest(licence, known())}"
        )
    return (_FOLDER / f"{licence}.txt").read_text(encoding="utf-8")


def text(release: facts.Release) -> str:
    """LICENSE. Raises UsageError where there is no text."""
    about = release.about
    if about.licence_text is not None:
        return about.licence_text.rstrip("\n") + "\n"
    holders = ", ".join(person.name for person in about.creators)
    return full_text(about.licence).replace("<year>", about.published[:4]).replace("<copyright holders>", holders)
