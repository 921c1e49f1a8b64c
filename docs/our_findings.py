"""What the papers found and what data/dataset shows: a row a finding, with our number, its interval and a verdict.

findings_rules.py has the rule of a verdict, and findings_PAPER.py the measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import findings_cheng
import findings_farhat
import findings_zerwas
from findings_rules import VERDICTS, findings_of

import ddnn_traces

FINDINGS = [one for paper in (findings_zerwas, findings_farhat, findings_cheng) for one in findings_of(paper)]


def rows(release: Path, blocks: Mapping[str, Sequence[str]]) -> list[tuple[str, str, str, str, str]]:
    """Paper, sentence, our number, verdict, and why, of each finding."""
    with ExitStack() as undo:
        opened = {name: undo.enter_context(ddnn_traces.open(release, runs=list(runs))) for name, runs in blocks.items()}
        found = [(entry, entry.measure(opened)) for entry in FINDINGS]
    return [
        (entry.paper, entry.sentence, one.text, VERDICTS[one.agrees], " ".join(filter(None, [one.needed, entry.why])))
        for entry, one in found
    ]  # fmt: skip


def measures() -> list[str]:
    """The name of each finding's measure, in the order of rows()."""
    return [entry.measure.__name__ for entry in FINDINGS]
