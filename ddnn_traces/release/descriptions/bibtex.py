"""The release as a BibTeX entry."""

from __future__ import annotations

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import shared

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def entry(about: facts.About) -> str:
    """An entry of type misc, which every style knows."""
    fields = {
        "author": " and ".join(map(_author, about.creators)),
        "title": "{" + _escaped(about.title) + "}",
        "year": about.published[:4],
        "version": _escaped(about.version),
        "publisher": _escaped(about.publisher) if about.publisher else None,
        "doi": about.doi,
        "url": shared.address(about),
    }
    key = f"{shared.identifier(about.title, '_')}_{about.version}"
    lines = [f"  {name} = {{{value}}}" for name, value in fields.items() if value]
    return f"@misc{{{key},\n" + ",\n".join(lines) + "\n}"


def _author(person: facts.Person) -> str:
    """Family, Given; a name of one word, or with what BibTeX parts names by, as it is."""
    given, family = shared.names(person)
    if not given or " and " in f" {person.name} " or "," in given:
        return "{" + _escaped(person.name) + "}"
    return f"{_escaped(family)}, {_escaped(given)}"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(letter, letter) for letter in " ".join(text.split()))
