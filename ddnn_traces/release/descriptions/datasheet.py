"""DATASHEET.md: what Gebru et al., "Datasheets for Datasets" (2021), ask of a dataset.

What the publisher said is in their own words, and where they said nothing, that is told. All else is from the facts.
"""

from __future__ import annotations

import json

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import shared
from ddnn_traces.release.descriptions.markup import code, markdown, plain, table
from ddnn_traces.store import layout


def text(release: facts.Release) -> str:
    """DATASHEET.md."""
    about = release.about
    sections = {
        "Motivation": _said(about.motivation, "why the data were collected") + _funding(about),
        "Composition": _composition(release),
        "Collection": _said(about.collection, "how the data were collected") + _collection(release),
        "Preprocessing": _steps(release),
        "What was removed": _removed(release.anonymisation),
        "What remains to be told": _remaining(release),
        "Known inaccuracies": _limits(about) + _inaccuracies(release),
        "Uses": _said(about.uses, "what the data are for"),
        "Distribution": _distribution(about),
        "Maintenance": _maintenance(release),
    }
    head = f"# Datasheet of {plain(about.title)}, version {plain(about.version)}\n"
    return "\n".join([head, *(f"## {name}\n\n{said}" for name, said in sections.items())])


def _said(words: str | None, what: str) -> str:
    """The publisher's own words, or that there are none."""
    return f"{markdown(words)}\n" if words and words.strip() else f"The publisher said nothing on {what}.\n"


def _bullets(lines: list[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _funding(about: facts.About) -> str:
    return "\nFunded by:\n\n" + _bullets([plain(grant) for grant in about.funding]) if about.funding else ""


def _composition(release: facts.Release) -> str:
    """Tables, runs by origin, synthetic and flagged ones by name, hosts, windows, captures."""
    rows = [
        [f"`{item.name}`", plain(shared.definition(release, item).row), f"{item.rows:,}", f"{len(item.files)}"]
        for item in release.tables
    ]
    parts = [shared.contents(release) + "\n", table(("table", "a row is", "rows", "files"), rows)]
    for source, runs in shared.sources(release).items():
        parts.append(f"Runs from {plain(source)}: {len(runs)}.\n")
    if synthetic := shared.sources(release).get("synthetic"):
        told = ", ".join(code(run) for run in synthetic)
        parts.append(f"**Synthetic, made up by the laws of collectives and never measured:** {told}.\n")
    parts.append(_flagged(release))
    if release.windows_ns:
        lengths = ", ".join(f"{length / 1e6:g} ms" for length in sorted(set(release.windows_ns.values())))
        parts.append(f"Length of the base windows of `flow_windows`: {lengths}.\n")
    captures = f"{len(release.captures)} files in `{layout.CAPTURES}/`" if release.captures else "none"
    parts.append(f"Cut-down captures (headers only) with their logs: {captures}.\n")
    parts.append(
        "What a run's metadata do not know is null. Records of a capture that are in no flow stand in `capture_ledger` "
        "with the reason, where that table is part of the release.\n"
    )
    return "\n".join(parts)


def _flagged(release: facts.Release) -> str:
    """Runs that failed their checks, with what failed."""
    if not release.flagged:
        return "No run failed the data checks.\n"
    rows = [
        [code(run), code(check), f"{found:,}"]
        for run, checks in sorted(release.flagged.items())
        for check, found in sorted(checks.items())
    ]
    return "**Runs that failed data checks and were allowed by the publisher:**\n\n" + table(
        ("run", "check", "rows that fail it"), rows
    )


def _collection(release: facts.Release) -> str:
    captured = [step for step in release.provenance if step.kind in ("capture", "generate")]
    return "\n" + _bullets([_step(step) for step in captured]) if captured else ""


def _steps(release: facts.Release) -> str:
    made = [step for step in release.provenance if step.kind not in ("capture", "generate")]
    return _bullets([_step(step) for step in made]) or "No step is recorded.\n"


def _step(step: facts.Step) -> str:
    """A step in a sentence: what, by what, with which parameters, of how many inputs."""
    told = f"{plain(step.text)} ({plain(step.kind)}, by {plain(step.software)})"
    if step.parameters:
        values = ", ".join(code(f"{name} = {json.dumps(value)}") for name, value in sorted(step.parameters.items()))
        told += f"; {values}"
    if step.runs:
        told += f"; {shared.counted(len(step.runs), 'run')}"
    if step.inputs:
        hashed = sum(digest is not None for digest in step.inputs.values())
        told += f"; {shared.counted(len(step.inputs), 'input file')}, {hashed} with SHA-256 in `{layout.RELEASE}`"
    return told + "."


def _removed(hidden: facts.Anonymisation) -> str:
    told = [f"Addresses: {plain(hidden.addresses)}. Ports: {plain(hidden.ports)}. Times: {plain(hidden.times)}."]
    if hidden.key_id:
        told.append(f"Releases with the key {plain(hidden.key_id)} map alike and can be joined.")
    return _bullets([*told, *(plain(sentence) for sentence in hidden.removed)])


def _remaining(release: facts.Release) -> str:
    hidden = _bullets([plain(sentence) for sentence in release.anonymisation.remaining])
    return _said(release.about.sensitive, "personal or sensitive information") + ("\n" + hidden if hidden else "")


def _limits(about: facts.About) -> str:
    return _said(about.limitations, "limitations")


def _inaccuracies(release: facts.Release) -> str:
    """Known inaccuracies of every column, from schemas/."""
    parts = []
    for item in release.tables:
        rows = [
            [f"`{column.name}`", plain(column.inaccuracy)]
            for column in shared.definition(release, item).columns
            if column.inaccuracy
        ]
        if rows:
            parts.append(f"\n### {item.name}\n\n" + table(("column", "known inaccuracy"), rows))
    return "".join(parts)


def _distribution(about: facts.About) -> str:
    where, missing = shared.address(about), shared.recommended(about)
    lines = [
        f"Licence: {plain(about.licence)} (`{layout.LICENCE}`).",
        f"Published: {plain(about.published)}" + (f" by {plain(about.publisher)}." if about.publisher else "."),
        f"Where: {plain(where)}." if where else "The publisher said nothing on where it will be found.",
        f"Cite as: {plain(shared.citation(about))}",
        *([f"Recommended, and not told by the publisher: {'; '.join(missing)}."] if missing else []),
    ]
    return _bullets(lines)


def _maintenance(release: facts.Release) -> str:
    about = release.about
    lines = [
        f"Contact: {plain(about.contact)}." if about.contact else "The publisher said nothing on whom to contact.",
        "A version is never changed; what is mended or added comes as a new version.",
        f"This version follows {plain(release.previous)}; see `{layout.CHANGELOG}`."
        if release.previous
        else "This is the first version.",
        f"Made by {plain(release.software)}; version {release.schema_version} of the tables.",
    ]
    return _bullets(lines)
