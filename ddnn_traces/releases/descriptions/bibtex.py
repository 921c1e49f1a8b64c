"""The release as a BibTeX entry."""

from __future__ import annotations

from ddnn_traces.releases import facts
from ddnn_traces.releases.descriptions import shared

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def entry(about: facts.About) -> str:
    """An entry of type misc, which every style knows."""
    fields = {
        "author": " and ".join("{" + _escaped(person.name) + "}" for person in about.creators),
        "title": "{" + _escaped(about.title) + "}",
        "year": about.published[:4],
        "version": _escaped(about.version),
        "publisher": _escaped(about.publisher) if about.publisher else None,
        "doi": about.doi,
        "url": shared.address(about),
    }
    lines = [f"  {name} = {{{value}}}" for name, value in fields.items() if value]
    return "@misc{ddnn_traces_release,\n" + ",\n".join(lines) + "\n}"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in " ".join(text.split()))
