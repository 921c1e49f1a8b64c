"""claims.csv, and ARTIFACT.md: the questions of artifact committees, answered from the facts alone."""

from __future__ import annotations

import csv
import dataclasses
import io

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import terms
from ddnn_traces.release.descriptions.cards import code, plain, table
from ddnn_traces.store import layout
from ddnn_traces.text import counted

#: What pip needs; as in pyproject.toml.
PYTHON = "3.11"

_QUESTIONS = (
    "Answers to the questions of artifact committees: the badges *available*, *functional* and *reproduced* of "
    "[sysartifacts](https://sysartifacts.github.io/) as FAST '25 gave them, and ACM's "
    "[artifact review and badging](https://www.acm.org/publications/policies/artifact-review-and-badging-current). "
    f"Made from {layout.RELEASE}; whether a badge is deserved is the committee's to say.\n"
)


def claims(release: facts.Release) -> str | None:
    """claims.csv: the same bytes for the same claims; None without any."""
    if not release.claims:
        return None
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(field.name for field in dataclasses.fields(facts.Claim))
    rows.writerows(dataclasses.astuple(one) for one in release.claims)
    return out.getvalue()


def page(release: facts.Release) -> str:
    """ARTIFACT.md."""
    return "\n".join(
        [
            f"# Artifact: {plain(release.about.title)}\n",
            _QUESTIONS,
            *(f"**{sentence}**\n" for sentence in terms.unmeasured(release)),
            "## Available\n",
            _list(_available(release)),
            "## Functional\n",
            _list(_functional(release)),
            "## Reproduced\n",
            *_reproduced(release),
            "## What is withheld\n",
            _list([plain(text) for text in release.anonymisation.removed] or ["Nothing is removed or mapped."]),
            "What can still be identified:\n",
            _list([plain(text) for text in release.anonymisation.remaining] or ["Nothing is known."]),
            "## Cite\n",
            f"{plain(terms.citation(release.about))}\n",
        ]
    )


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) + "\n"


def _available(release: facts.Release) -> list[str]:
    about = release.about
    return [
        f"Version {plain(about.version)} of {plain(about.published)}.",
        f"Permanent identifier: {plain(terms.doi_url(about.doi))}."
        if about.doi
        else "Permanent identifier: none stated.",
        f"Place: {plain(about.url)}." if about.url else "Place: none stated.",
        f"Licence: {plain(about.licence)} ([{layout.LICENCE}]({layout.LICENCE})).",
    ]


def _functional(release: facts.Release) -> list[str]:
    size = sum(file.bytes for file in release.files)
    version = release.software.rpartition(" ")[2]
    install, with_verify = f"pip install ddnn-traces=={version}", f"pip install 'ddnn-traces[publish]=={version}'"
    unchanged = f"sha256sum --check {layout.CHECKSUMS}"
    return [
        f"Clean install: Python {PYTHON} or later, {code(install)}, from a package index or a "
        "wheel; nothing else is needed, no GPU and no root.",
        f"Unchanged: {code(unchanged)}; complete and consistent: "
        f"{code('ddnn-traces verify RELEASE')} (after {code(with_verify)}).",
        f"Disk: {size:,} bytes of data files, {counted(len(release.files), 'file')}. Descriptions come on top.",
        f"Contents: {counted(len(release.runs), 'run')}; every column with unit: "
        f"[{layout.DICTIONARY}]({layout.DICTIONARY}).",
        *(
            [f"Runs that fail data checks: {', '.join(map(code, sorted(release.flagged)))}; see "
             f"[{layout.DATASHEET}]({layout.DATASHEET})."] if release.flagged else []
        ),
    ]  # fmt: skip


def _reproduced(release: facts.Release) -> list[str]:
    if not release.claims:
        return [f"The release makes no claims: it has no {layout.CLAIMS}.\n"]
    head = ("claim", "source", "expected", "unit", "tolerance", "n", "command")
    rows = [
        [plain(one.claim), plain(one.source), plain(one.expected), plain(one.unit), plain(one.tolerance or "exact"),
         plain(one.n), code(one.command)]
        for one in release.claims
    ]  # fmt: skip
    return [
        f"{counted(len(release.claims), 'claim')}, in [{layout.CLAIMS}]({layout.CLAIMS}). All at once, with a verdict "
        f"each: {code('ddnn-traces claims RELEASE')}. Each alone: its command, with the folder of the release in place "
        "of RELEASE. They read the tables of the release and nothing else.\n",
        f"Time needed: {plain(release.about.claims_time or 'not measured')}.\n",
        table(head, rows),
    ]
