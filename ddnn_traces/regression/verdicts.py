"""What the fit says of each term, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddnn_traces.regression.aliasing import Alias
from ddnn_traces.regression.design import INTERCEPT, Design, Term
from ddnn_traces.regression.results import ALPHA, ERRORS, Coefficient, TermTest, TermVerdict

EXACT = "not tested: every row lies on the fit to within rounding"
SIZES = ("model_bytes", "nominal_bytes")


@dataclass(frozen=True)
class Judged:
    """A term with all that its verdict is made of; aliased: what of it could not be estimated."""

    term: Term
    own: Sequence[Coefficient]
    test: TermTest
    aliased: str
    is_exact: bool
    errors: str

    @property
    def significant(self) -> bool | None:
        return None if self.test.p_value is None else self.test.p_value < ALPHA

    @property
    def untested(self) -> str:
        if self.is_exact:
            return EXACT
        alone = "row" if self.errors == "hc3" else "run"
        kind = ERRORS[self.errors]
        return f"not tested: {kind} errors need more than a single {alone} to decide, and more runs than levels"

    @property
    def joint(self) -> str:
        """The joint test, where there is more than one coefficient to it."""
        test = self.test
        if test.f is None or test.p_value is None:
            return ""
        name = "joint F" if test.df > 1 else "F"
        p = f"p = {test.p_value:.3g}"
        return f" ({name}({test.df}, {test.df_denominator}) = {test.f:.4g}, {p})"


def fit_notes(design: Design, crowded: Iterable[str], aliases: Sequence[Alias]) -> list[str]:
    """What a reader must know before reading an estimate."""
    notes = []
    if design.left != "step_bytes":
        notes.append(f"Estimates and fitted values are of {design.left}.")
    if crowded:
        notes.append(f"Left out for lack of runs: {', '.join(crowded)}; the other estimates hold their effects.")
    for alias in aliases:
        terms = dict.fromkeys(c.term for c in alias.carriers if c.term != INTERCEPT)
        if terms:
            notes.append(f"The estimates of {', '.join(terms)} hold the effect of {alias.column.label} too.")
    return notes


def verdict(judged: Judged, design: Design) -> TermVerdict:
    """The verdict on a term that has at least one coefficient, in the words of Zerwas et al., section VI."""
    if judged.significant is False:
        sentence = _insignificant(judged, design)
    elif judged.term.categorical:
        sentence = _levels_sentence(judged, design)
    else:
        sentence = _slope_sentence(judged, design)
    sentence = "; ".join(part for part in (sentence, judged.aliased) if part)
    return TermVerdict(judged.term.name, True, judged.significant, sentence)


def _is_significant(coefficient: Coefficient) -> bool:
    """Whether the 95% confidence interval leaves out 0."""
    return coefficient.p_value is not None and coefficient.p_value < ALPHA


def _labels(judged: Judged, design: Design, found: Sequence[Coefficient]) -> str:
    labels = {column.name: column.label for column in design.columns}
    return ", ".join(f"{labels[c.name]} ({'positive' if c.estimate > 0 else 'negative'})" for c in found)


def _insignificant(judged: Judged, design: Design) -> str:
    found = [c for c in judged.own if _is_significant(c)]
    told = f"statistically insignificant at alpha = {ALPHA}{judged.joint}"
    if found:  # one of several intervals may leave out 0 by chance, which the joint test allows for
        return f"together {told}, though the own interval of {_labels(judged, design, found)} leaves out 0"
    intervals = "intervals of {} include 0" if judged.term.categorical else "interval of {} includes 0"
    return f"95% confidence {intervals.format(judged.term.name)}: {told}"


def _levels_sentence(judged: Judged, design: Design) -> str:
    if judged.significant is None:
        return f"estimated, but {judged.untested}"
    against = f" against {judged.term.reference}" if judged.term.reference is not None else ""
    if judged.aliased:
        # the levels dropped as aliased have joined the reference
        against = " against the levels without an estimate"
    found = [c for c in judged.own if _is_significant(c)]
    if not found:
        return f"significant at alpha = {ALPHA}{judged.joint} together, though each level's own interval includes 0"
    rest = "; the intervals of the other levels include 0" if len(found) < len(judged.own) else ""
    return f"significant at alpha = {ALPHA}{judged.joint}{against}: {_labels(judged, design, found)}{rest}"


def _slope_sentence(judged: Judged, design: Design) -> str:
    term, slope = judged.term, judged.own[0]
    is_plain = (
        term.name in SIZES
        and design.left == "step_bytes"
        and sum(term.name in t.variables for t in design.terms) == 1  # else there is no one slope of model size
    )
    sign = -1 if is_plain and slope.estimate < 0 else 1
    number = f"{sign * slope.estimate:.4g}"
    bounds = sorted(sign * bound for bound in (slope.ci_low, slope.ci_high) if bound is not None)
    interval = f" [{bounds[0]:.4g}, {bounds[1]:.4g}]" if bounds else ""
    if is_plain:
        more = "more" if sign > 0 else "less"
        change = f"an increase of 1 MB in model size goes with {number} MB{interval} {more} data a step"
        return f"significant: {change}" if bounds else f"{change}; {judged.untested}"
    change = f"{number}{interval} of {design.left} for each 1 of {term.name}"
    return f"significant at alpha = {ALPHA}{judged.joint}: {change}" if bounds else f"{change}; {judged.untested}"
