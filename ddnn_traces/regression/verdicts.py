"""What the fit says of each term, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddnn_traces.regression.aliasing import Alias, Share
from ddnn_traces.regression.design import INTERCEPT, Design, Term
from ddnn_traces.regression.results import ALPHA, ERRORS, Coefficient, TermTest, TermVerdict
from ddnn_traces.regression.rows import RUN, STEP

if TYPE_CHECKING:
    import polars as pl

EXACT = "not tested: every row lies on the fit to within rounding"
#: Attributes of a run that are noted where they differ though the formula does not have them.
_ATTRIBUTES = ("workers", "delay_ms", "loss_pct", "bandwidth_mbit", "optimizer", "epochs")
_MOST_NAMED = 6
SIZES = ("model_bytes", "nominal_bytes")


@dataclass(frozen=True)
class Judged:
    """A term with all that its verdict is made of.

    own: its coefficients. aliased: what of it other terms say too, in words. single_runs: how many runs there are
    without any one of which part of the term could not be estimated.
    """

    term: Term
    own: Sequence[Coefficient]
    test: TermTest
    share: Share
    aliased: str
    is_exact: bool
    errors: str
    single_runs: int = 0

    @property
    def told_apart(self) -> list[Coefficient]:
        """Its coefficients that hold no other term's effect."""
        return [coefficient for coefficient in self.own if coefficient.told_apart]

    @property
    def reservations(self) -> list[str]:
        """What limits the verdict."""
        found = []
        if not self.share.is_whole:
            tested = "1 is" if self.share.df == 1 else f"{self.share.df} are"
            found.append(f"of its {self.share.rank} degrees of freedom {tested} its own and tested")
        if self.aliased:
            found.append(self.aliased)
        if self.single_runs:
            runs = "a single run" if self.single_runs == 1 else f"{self.single_runs} single runs"
            found.append(f"settled by {runs} (see the notes)")
        return found

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


def zero_notes(rows: pl.DataFrame, names: Iterable[str]) -> list[str]:
    """Of the left side's columns, how many rows are 0: such rows are fitted like any other."""
    notes = []
    for name in (name for name in sorted(names) if rows.schema[name].is_numeric()):
        zero = rows.filter(rows[name] == 0)
        if zero.height:
            runs = sorted(set(zero[RUN].to_list()))
            what = "steps" if STEP in rows.columns else "runs"
            listed = ", ".join(runs[:_MOST_NAMED]) + (", ..." if len(runs) > _MOST_NAMED else "")
            notes.append(f"{name} is 0 in {zero.height} of {rows.height} {what}, which are in the fit: {listed}.")
    return notes


def unheard_notes(rows: pl.DataFrame, names: Collection[str]) -> list[str]:
    """Attributes in which the runs differ and of which the formula does not know: it holds their effects elsewhere."""
    notes = []
    for name in (name for name in _ATTRIBUTES if name in rows.columns and name not in names):
        values = [str(value) for value in rows[name].drop_nulls().unique().sort().to_list()]
        if len(values) > 1:
            listed = ", ".join(values[:_MOST_NAMED]) + (", ..." if len(values) > _MOST_NAMED else "")
            said = f"{listed} workers" if name == "workers" else f"{len(values)} values of {name} ({listed})"
            notes.append(f"The runs have {said}, of which the formula does not know.")
    return notes


def verdict(judged: Judged, design: Design) -> TermVerdict:
    """The verdict on a term that has at least one coefficient, in the words of Zerwas et al., section VI."""
    if judged.significant is False:
        sentence = _insignificant(judged, design)
    elif judged.term.categorical:
        sentence = _levels_sentence(judged, design)
    else:
        sentence = _slope_sentence(judged, design)
    return TermVerdict(judged.term.name, True, judged.significant, "; ".join([sentence, *judged.reservations]))


def _is_significant(coefficient: Coefficient) -> bool:
    """Whether the 95% confidence interval leaves out 0."""
    return coefficient.p_value is not None and coefficient.p_value < ALPHA


def _labels(judged: Judged, design: Design, found: Sequence[Coefficient]) -> str:
    labels = {column.name: column.label for column in design.columns}
    return ", ".join(f"{labels[c.name]} ({'positive' if c.estimate > 0 else 'negative'})" for c in found)


def _insignificant(judged: Judged, design: Design) -> str:
    told = f"statistically insignificant at alpha = {ALPHA}{judged.joint}"
    found = [c for c in judged.told_apart if _is_significant(c)]
    if judged.share.by_levels:  # the intervals are about 0, the test is not
        return f"{told}, its levels against each other{_each_against_zero(judged, design, found)}"
    if found:  # one of several intervals may leave out 0 by chance, which the joint test allows for
        return f"together {told}, though the own interval of {_labels(judged, design, found)} leaves out 0"
    if not judged.share.is_whole:
        return told
    intervals = "intervals of {} include 0" if judged.term.categorical else "interval of {} includes 0"
    return f"95% confidence {intervals.format(judged.term.name)}: {told}"


def _each_against_zero(judged: Judged, design: Design, found: Sequence[Coefficient]) -> str:
    return f"; each against 0: {_labels(judged, design, found)}" if found else "; the interval of each includes 0"


def _levels_sentence(judged: Judged, design: Design) -> str:
    if judged.significant is None:
        return f"estimated, but {judged.untested}"
    told = f"significant at alpha = {ALPHA}{judged.joint}"
    own = judged.told_apart
    found = [c for c in own if _is_significant(c)]
    if judged.share.by_levels:
        return f"{told}, its levels against each other{_each_against_zero(judged, design, found)}"
    if not own:
        return told
    if not found:
        return f"{told} together, though each level's own interval includes 0"
    against = f" against {judged.term.reference}" if judged.term.reference is not None else ""
    rest = "; the intervals of the other levels include 0" if len(found) < len(own) else ""
    return f"{told}{against}: {_labels(judged, design, found)}{rest}"


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
