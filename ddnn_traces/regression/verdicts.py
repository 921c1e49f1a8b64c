"""The conclusions that a fit carries, as sentences: a verdict on each term, and notes on the fit and its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from ddnn_traces.regression.design import RUN, STEP, Alias, Design, Share, Term
from ddnn_traces.regression.estimate import Estimate
from ddnn_traces.regression.formula import INTERCEPT
from ddnn_traces.regression.inference import needed_runs
from ddnn_traces.regression.results import (
    ALPHA,
    ERRORS,
    SIZES,
    VOLUMES,
    Coefficient,
    JointTest,
    SingleRun,
    TermTest,
    TermVerdict,
    degrees,
    first_names,
    p_text,
)
from ddnn_traces.text import digits

_LOGARITHMS = frozenset(f"np.log({name})" for name in VOLUMES)
_LOG_SIZES = frozenset(f"np.log({name})" for name in SIZES)


# --- terms


def not_estimable(term: str, reason: str) -> TermVerdict:
    """The verdict on a term without a coefficient of its own."""
    return TermVerdict(term, False, None, f"cannot be estimated: {reason}")


def verdicts(
    estimate: Estimate, design: Design, rows: pl.DataFrame, dropped: Mapping[str, str], by_term: Mapping[str, Share],
    coefficients: Sequence[Coefficient], tests: Iterable[TermTest], errors: str,
    unsettled: Mapping[str, tuple[str, ...]], by: str = "run", together: Sequence[JointTest] = (),
) -> tuple[TermVerdict, ...]:  # fmt: skip
    """The verdict on every term of the design, in the words of Zerwas et al., section VI.

    dropped: the terms without a column in the fit, with the reason. by_term, tests: of the other terms. unsettled: of
    terms and coefficients, the attributes on which their conclusions depend. by: what is independent, run or cell.
    together: tests of terms that the rows separate poorly or not at all, of which no one is called insignificant.
    """
    test_of = {test.term: test for test in tests}
    alone = "row" if errors == "hc3" else by
    untested = f"{ERRORS[errors]} errors need more than a single {alone} to decide, and more {alone}s than levels"
    untested = f"not tested: {'every row lies on the fit to within rounding' if estimate.is_exact else untested}"
    found = []
    for term in design.terms:
        if term.name in dropped:
            found.append(not_estimable(term.name, dropped[term.name]))
            continue
        share = by_term[term.name]
        aliased = "; ".join(_alias_sentence(alias, design, rows) for alias in share.aliases)
        if not share.df:
            found.append(not_estimable(term.name, aliased))
            continue
        own = [c for c in coefficients if c.term == term.name]
        needed = needed_runs(estimate, share)
        found.append(
            _Judged(
                term,
                own,
                test_of[term.name],
                share,
                aliased,
                needed,
                by,
                design,
                untested,
                unsettled.get(term.name, ()),
            ).verdict()
        )
    return tuple(_with_others(verdict, together) for verdict in found)


def _with_others(verdict: TermVerdict, together: Sequence[JointTest]) -> TermVerdict:
    """The verdict, and that on the term with those that it cannot be told from, where alone it is not significant."""
    joint = next((test for test in together if verdict.term in test.terms), None)
    if joint is None or verdict.depends_on or joint.f is None or joint.p_value is None:
        return verdict
    names = " and ".join(sorted(joint.terms, key=lambda term: (term not in SIZES, term)))  # in any formula the same
    test = f"joint F({joint.df}, {degrees(joint.df_denominator)}) = {digits(joint.f, 4)}, {p_text(joint.p_value)}"
    if joint.p_value >= ALPHA:
        return replace(verdict, sentence=f"{verdict.sentence}; {names} together: insignificant, too ({test})")
    own = verdict.sentence.replace("statistically insignificant", "what it adds to the others is not significant")
    sentence = f"{names} together: significant, but not separable ({test}); {own}"
    return replace(verdict, significant=None, sentence=sentence, together=joint.terms)


@dataclass(frozen=True)
class _Judged:
    """A term with all facts that its verdict depends on.

    own: its coefficients. aliased: the sentences on its columns that other terms span. needed: how many runs or cells
    (by) there are without any one of which part of the term could not be estimated. untested: why there may be no test.
    depends_on: attributes that the formula lacks, and with which the conclusion on the term changes.
    """

    term: Term
    own: Sequence[Coefficient]
    test: TermTest
    share: Share
    aliased: str
    needed: int
    by: str
    design: Design
    untested: str
    depends_on: tuple[str, ...]

    def verdict(self) -> TermVerdict:
        """The conclusion and its limits."""
        significant = None if self.test.p_value is None else self.test.p_value < ALPHA
        if self.depends_on:
            significant, sentences = None, [self._not_established()]
        elif significant is False:
            sentences = [self._insignificant()]
        else:
            sentences = [self._levels(significant) if self.term.categorical else self._slope()]
        if not self.share.is_whole:
            tested = "1 is" if self.share.df == 1 else f"{self.share.df} are"
            sentences.append(f"of its {self.share.rank} degrees of freedom {tested} its own and tested")
        if self.aliased:
            sentences.append(self.aliased)
        if self.needed:
            single = f"a single {self.by}" if self.needed == 1 else f"{self.needed} single {self.by}s"
            sentences.append(
                f"not tested for what {single} {'determines' if self.needed == 1 else 'determine'}"
                if self.test.untested and self.test.p_value is not None
                else f"determined by {single}"
            )
        effect = self._effect if significant and not self.term.categorical else ""
        return TermVerdict(self.term.name, True, significant, "; ".join(sentences), self.depends_on, effect=effect)

    def _not_established(self) -> str:
        """The attributes on which the conclusion depends, and the number that the fit without them has."""
        slope = self.own[0]
        number = self._joint[2:-1]
        if not self.term.categorical and slope.ci_low is not None and slope.ci_high is not None:
            number = f"{digits(slope.estimate, 4)} [{digits(slope.ci_low, 4)}, {digits(slope.ci_high, 4)}]"
        return f"not established: {_dependence(self.depends_on)}{f' (without: {number})' if number else ''}"

    def _insignificant(self) -> str:
        result = f"statistically insignificant at alpha = {ALPHA}{self._joint}"
        if self.share.by_levels:  # the intervals are about 0, the test is not
            return f"{result}, {self._against_zero}"
        if self._found:  # one of several intervals may exclude 0 by chance, which the joint test allows for
            return f"together {result}, though the own interval of {self._labels} excludes 0"
        if not self.share.is_whole:
            return result
        intervals = "intervals of {} include 0" if self.term.categorical else "interval of {} includes 0"
        return f"95% confidence {intervals.format(self.term.name)}: {result}"

    def _levels(self, significant: bool | None) -> str:
        if significant is None:
            return f"estimated, but {self.untested}"  # where a level depends on an attribute, so does the term
        result = f"significant at alpha = {ALPHA}{self._joint}"
        if self.share.by_levels:
            return f"{result}, {self._against_zero}"
        if not self._separate:
            return result
        open_levels: dict[tuple[str, ...], list[str]] = {}
        for coefficient in self.own:
            if coefficient.depends_on:
                open_levels.setdefault(coefficient.depends_on, []).append(self._label(coefficient))
        limits = "".join(
            f"; not established for {', '.join(labels)}: {_dependence(attributes)}"
            for attributes, labels in open_levels.items()
        )
        if not self._found:
            own = "" if open_levels else ", though each level's own interval includes 0"
            return f"{result} together{own}{limits}"
        against = f" against {self.term.reference}" if self.term.reference is not None else ""
        others = len(self._separate) - len(self._found)
        rest = "; the intervals of the other levels include 0" if others else ""
        return f"{result}{against}: {self._labels}{rest}{limits}"

    def _slope(self) -> str:
        if self.own[0].ci_low is None:
            return f"{self._effect}; {self.untested}"
        joint = "" if self._is_plain else f" at alpha = {ALPHA}{self._joint}"
        return f"significant{joint}: {self._effect}"

    @property
    def _is_alone(self) -> bool:
        """Whether no other term has the same column; model size may have several."""
        columns = set(self.term.variables)
        return sum(not columns.isdisjoint(term.variables) for term in self.design.terms) == 1

    @property
    def _is_plain(self) -> bool:
        """Whether it is a size that a volume grows with, both in bytes."""
        return self.term.name in SIZES and self.design.formula.left in VOLUMES and self._is_alone

    @property
    def _effect(self) -> str:
        """What goes with 1 more of a number, with its interval."""
        name, slope, left = self.term.name, self.own[0], self.design.formula.left
        sign = -1 if self._is_plain and slope.estimate < 0 else 1
        bounds = sorted(sign * bound for bound in (slope.ci_low, slope.ci_high) if bound is not None)
        number = digits(sign * slope.estimate, 4)
        interval = f" [{digits(bounds[0], 4)}, {digits(bounds[1], 4)}]" if bounds else ""
        if self._is_plain:
            more = "more" if sign > 0 else "less"
            return f"an increase of 1 MB in model size goes with {number} MB{interval} {more} {VOLUMES[left]}"
        if left in _LOGARITHMS and name in _LOG_SIZES and self._is_alone:
            return f"volume grows as the model's size to the power of {number}{interval}"
        return f"{number}{interval} of {left} for each 1 of {name}"

    @property
    def _separate(self) -> list[Coefficient]:
        """Its coefficients that include no other term's effect, and of which no attribute decides."""
        return [coefficient for coefficient in self.own if coefficient.told_apart and not coefficient.depends_on]

    @property
    def _found(self) -> list[Coefficient]:
        """Those of them whose interval excludes 0."""
        return [coefficient for coefficient in self._separate if coefficient.is_significant]

    @property
    def _labels(self) -> str:
        return ", ".join(f"{self._label(c)} ({c.sign})" for c in self._found)

    def _label(self, coefficient: Coefficient) -> str:
        return next(column.label for column in self.design.columns if column.name == coefficient.name)

    @property
    def _joint(self) -> str:
        """The joint test in parentheses; empty where there is none."""
        test = self.test
        if test.f is None or test.p_value is None:
            return ""
        name = "joint F" if test.df > 1 else "F"
        return f" ({name}({test.df}, {degrees(test.df_denominator)}) = {digits(test.f, 4)}, {p_text(test.p_value)})"

    @property
    def _against_zero(self) -> str:
        """The result against 0 of each level that the joint test compares with the others."""
        each = f"each against 0: {self._labels}" if self._found else "the interval of each includes 0"
        return f"its levels against each other; {each}"


def _dependence(attributes: Sequence[str]) -> str:
    *most, last = attributes
    named = f"{', '.join(most)} and {last} are" if most else f"{last} is"
    return f"depends on whether {named} in the formula"


def _alias_sentence(alias: Alias, design: Design, rows: pl.DataFrame) -> str:
    """The columns that a dropped column cannot be separated from."""
    label = alias.column.label
    if not alias.column.values.any():
        return f"no run has {label}"
    if together := _always_together(alias, design, rows):
        return f"{label} cannot be separated from {together}: they always occur together"
    others = [c.label for c in alias.carriers if c.term != INTERCEPT] or ["the intercept"]
    return f"{label} cannot be separated from {'' if len(others) == 1 else 'a combination of '}{', '.join(others)}"


def _always_together(alias: Alias, design: Design, rows: pl.DataFrame) -> str | None:
    """The levels of one earlier term that occur in the same runs as a dropped level, and in no others."""
    carriers = {column.term for column in alias.carriers} - {INTERCEPT}
    if len(carriers) != 1 or not design.term(alias.column.term).categorical:
        return None
    carrier = design.term(carriers.pop())
    if not carrier.categorical or len(carrier.variables) != 1:
        return None
    here = alias.column.values != 0
    values = rows[carrier.variables[0]].to_list()
    levels = {value for value, is_here in zip(values, here, strict=True) if is_here}
    if any((value in levels) != is_here for value, is_here in zip(values, here, strict=True)):
        return None
    return f"{carrier.variables[0]} = {' or '.join(str(level) for level in sorted(levels))}"


# --- notes


def fit_notes(
    estimate: Estimate, design: Design, crowded: Iterable[str], aliases: Sequence[Alias], errors: str, by: str = "run"
) -> tuple[str, ...]:
    """The caveats of the fit. crowded: terms dropped for lack of runs. aliases: dropped columns."""
    notes = []
    if design.formula.left == "worker_bytes":
        notes.append("worker_bytes is the volume of a step over the number of workers: what a worker sends in a step.")
    elif design.formula.left == "np.log(implied_bytes)":
        notes.append(
            "implied_bytes is step_bytes over law_factor, the model sizes that the declared collective sends among the "
            "run's workers: a factor of 1 is what the law says, and the number of workers enters by the law alone."
        )
    elif design.formula.left != "step_bytes":
        notes.append(f"Estimates and fitted values are of {design.formula.left}.")
    if crowded:
        notes.append(f"Left out for lack of runs: {', '.join(crowded)}; the other estimates include their effects.")
    for alias in aliases:
        terms = dict.fromkeys(c.term for c in alias.carriers if c.term != INTERCEPT)
        if terms:
            notes.append(f"The estimates of {', '.join(terms)} include the effect of {alias.column.label}.")
    if estimate.is_exact:
        notes.append("Every row lies on the fit to within rounding: there is no scatter to test an estimate against.")
    if not estimate.result.k_constant:
        notes.append("Without an intercept R² is the share of the squares about 0, not about the mean.")
    return (*notes, *_cluster_notes(estimate, errors, by))


def single_runs(estimate: Estimate) -> tuple[SingleRun, ...]:
    """The runs that alone determine coefficients, with the labels of these."""
    found = ((run, estimate.labels_without(part)) for run, part in estimate.without_run.items())
    return tuple(SingleRun(run, tuple(labels)) for run, labels in found if labels)


def _cluster_notes(estimate: Estimate, errors: str, by: str) -> list[str]:
    """The caveat of errors that take rows of a run or cell as independent."""
    count = len(estimate.rows_of)
    if errors == "cluster" or count == len(estimate.response):
        return []
    return [
        f"The {len(estimate.response)} rows are of {count} {by}s, and {ERRORS[errors]} errors assume that they are "
        f"independent: they are too small where rows of a {by} are alike. Errors clustered by cell (cluster) are not."
    ]


def row_notes(rows: pl.DataFrame, left_names: Collection[str]) -> list[str]:
    """Rows in which a column of the left side is 0; they are fitted like any other."""
    notes = []
    for name in (name for name in sorted(left_names) if rows.schema[name].is_numeric()):
        zero = rows.filter(rows[name] == 0)
        if zero.height:
            unit = "steps" if STEP in rows.columns else "runs"
            listed = first_names(sorted(set(zero[RUN].to_list())))
            notes.append(f"{name} is 0 in {zero.height} of {rows.height} {unit}, which are in the fit: {listed}.")
    return notes
