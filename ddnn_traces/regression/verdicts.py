"""What the fit says of each term, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ddnn_traces.regression.aliasing import Alias
from ddnn_traces.regression.design import INTERCEPT, Design, Term
from ddnn_traces.regression.estimate import ALPHA
from ddnn_traces.regression.results import Coefficient, TermVerdict

UNTESTED = "not tested: every run lies on the fit to within rounding"


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


def verdict(
    term: Term,
    design: Design,
    coefficients: Sequence[Coefficient],
    aliased: str,
) -> TermVerdict:
    """The verdict on a term that has at least one coefficient, in the words of Zerwas et al., section VI."""
    own = [c for c in coefficients if c.term == term.name]
    significant = None if own[0].p_value is None else any(_is_significant(c) for c in own)
    if significant is False:
        sentence = _insignificant(term)
    elif term.categorical:
        sentence = _levels_sentence(term, own, design, bool(aliased))
    else:
        sentence = _slope_sentence(term, own[0], design)
    return TermVerdict(term.name, True, significant, "; ".join(part for part in (sentence, aliased) if part))


def _is_significant(coefficient: Coefficient) -> bool:
    """Whether the 95% confidence interval leaves out 0."""
    return coefficient.p_value is not None and coefficient.p_value < ALPHA


def _insignificant(term: Term) -> str:
    intervals = "intervals of {} include 0" if term.categorical else "interval of {} includes 0"
    return f"95% confidence {intervals.format(term.name)}: statistically insignificant at alpha = {ALPHA}"


def _levels_sentence(term: Term, own: Sequence[Coefficient], design: Design, has_aliased: bool) -> str:
    if own[0].p_value is None:
        return f"estimated, but {UNTESTED}"
    labels = {column.name: column.label for column in design.columns}
    against = f" against {term.reference}" if term.reference is not None else ""
    if has_aliased:
        # the levels dropped as aliased have joined the reference
        against = " against the levels without an estimate"
    found = [c for c in own if _is_significant(c)]
    named = ", ".join(f"{labels[c.name]} ({'positive' if c.estimate > 0 else 'negative'})" for c in found)
    rest = "; the intervals of the other levels include 0" if len(found) < len(own) else ""
    return f"significant at alpha = {ALPHA}{against}: {named}{rest}"


def _slope_sentence(term: Term, slope: Coefficient, design: Design) -> str:
    is_plain = (
        term.name == "model_size"
        and design.left == "step_bytes"
        and sum("model_size" in t.variables for t in design.terms) == 1  # else there is no one slope of model size
    )
    sign = -1 if is_plain and slope.estimate < 0 else 1
    number = f"{sign * slope.estimate:.4g}"
    bounds = sorted(sign * bound for bound in (slope.ci_low, slope.ci_high) if bound is not None)
    interval = f" [{bounds[0]:.4g}, {bounds[1]:.4g}]" if bounds else ""
    if is_plain:
        more = "more" if sign > 0 else "less"
        change = f"an increase of 1 MB in model size goes with {number} MB{interval} {more} data a step"
        return f"significant: {change}" if bounds else f"{change}; {UNTESTED}"
    change = f"{number}{interval} of {design.left} for each 1 of {term.name}"
    return f"significant at alpha = {ALPHA}: {change}" if bounds else f"{change}; {UNTESTED}"
