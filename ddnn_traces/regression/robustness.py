"""Conclusions that depend on an attribute that the formula lacks: the fit is repeated with each such attribute.

An estimate includes the effects of attributes that vary with its term and are not in the formula (omitted-variable
bias: Wooldridge, Introductory Econometrics, section 3-3). A conclusion that changes with one of them is not
established.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

import polars as pl

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression.design import MIN_RUNS, RUN
from ddnn_traces.regression.formula import INTERCEPT, Formula
from ddnn_traces.regression.results import (
    ALPHA,
    Change,
    Coefficient,
    OlsFit,
    Refit,
    TermVerdict,
    first_names,
    p_text,
    plain,
)
from ddnn_traces.text import counted, digits

#: Attributes of a run. The model's name is not among them: it stands for its size.
ATTRIBUTES = (
    "workers", "framework_backend", "batch_size", "topology", "optimizer", "delay_ms", "loss_pct", "bandwidth_mbit",
    "ranks_per_host", "congestion_control", "epochs", "steps", "offload", "source",
)  # fmt: skip
#: Numbers that are levels.
_LEVELS = frozenset({"batch_size"})
#: How many times as large a standard error is that makes an interval another one.
_WIDER = 2


def refits(
    rows: pl.DataFrame, formula: Formula, fit: OlsFit, ols: Callable[[pl.DataFrame, str], OlsFit]
) -> tuple[Refit, ...]:
    """The fit of `formula` to `rows`, repeated with each attribute in which they differ and which it lacks.

    Those with which nothing changes are added all at once, too: the last refit. ols: fits a formula to rows, with the
    kind of errors of `fit`. Where some rows lack the attribute, both fits are to the others.
    """
    # a volume over that of the law has the workers in it
    known = formula.names | ({"workers"} if "implied_bytes" in formula.left_names else set())
    lacking = [name for name in ATTRIBUTES if name in rows.columns and name not in known]
    differing = [name for name in lacking if rows[name].drop_nulls().n_unique() > 1]
    found = tuple(_refit(rows, formula, (name,), fit, ols) for name in differing)
    without_effect = tuple(refit.attribute for refit in found if refit.reason is None and not refit.changes)
    if len(without_effect) > 1:
        found = (*found, _refit(rows, formula, without_effect, fit, ols))
    return (*found, *_interactions(rows, formula, fit, ols))


def _interactions(
    rows: pl.DataFrame, formula: Formula, fit: OlsFit, ols: Callable[[pl.DataFrame, str], OlsFit]
) -> Iterator[Refit]:
    """The fit with the interaction of each two factors of the formula, where it is significant (Bonferroni).

    A factor without an effect on average may have opposite ones at the levels of another: its verdict of insignificance
    then depends on the interaction.
    """
    names = [verdict.term for verdict in fit.verdicts if verdict.estimable and verdict.term.startswith("C(")]
    pairs = list(combinations((name for name in names if ":" not in name), 2))
    judged = {verdict.term: verdict for verdict in fit.verdicts}
    for pair in (pair for pair in pairs if any(judged[name].significant is False for name in pair)):
        term = ":".join(pair)
        if term in judged or ":".join(reversed(pair)) in judged:
            continue
        try:
            after = ols(rows, f"{formula.text} + {term}")
        except RegressionError:
            continue
        p_value = next((test.p_value for test in after.tests if test.term == term), None)
        if p_value is None or p_value >= ALPHA / len(pairs):
            continue
        changes = tuple(
            Change(name, _judged(judged[name], fit), f"differs by the other ({p_text(p_value)})")
            for name in pair
            if judged[name].significant is False
        )
        yield Refit(term, (), f"{formula.text} + {term}", changes)


def _refit(
    rows: pl.DataFrame,
    formula: Formula,
    names: tuple[str, ...],
    fit: OlsFit,
    ols: Callable[[pl.DataFrame, str], OlsFit],
) -> Refit:
    known = rows.drop_nulls(names)
    added = [_term(name, rows) for name in names]
    longer = with_attributes(formula, names, rows)
    values = tuple(plain(value) for value in known[names[0]].unique().sort().to_list()) if len(names) == 1 else ()
    found = Refit(" + ".join(names), values, longer)
    if known[RUN].n_unique() < MIN_RUNS:
        return replace(found, reason=f"known of only {counted(known[RUN].n_unique(), 'run')}")
    try:
        before = fit if known.height == rows.height else ols(known, formula.text)
        after = ols(known, longer)
    except RegressionError as error:
        return replace(found, reason=str(error))
    is_judged = {verdict.term for verdict in after.verdicts}.issuperset(added)
    if not (before.coefficients and after.coefficients and is_judged) or set(added) & set(after.crowded):
        return replace(found, reason=f"too few runs for {'one more term' if len(added) == 1 else 'them at once'}")
    return replace(found, changes=tuple(_changes(before, after)))


def with_attributes(formula: Formula, names: Sequence[str], rows: pl.DataFrame) -> str:
    """The formula with more attributes."""
    return " + ".join([formula.text, *(_term(name, rows) for name in names)])


def _term(name: str, rows: pl.DataFrame) -> str:
    """The term of an attribute: a number, or levels. Steps are 1/steps, since what is sent once is spread over them."""
    if name == "steps":
        return "I(1 / steps)"
    is_number = rows[name].dtype.is_numeric() and name not in _LEVELS
    return name if is_number else f"C({name})"


def _changes(before: OlsFit, after: OlsFit) -> Iterator[Change]:
    """The terms and coefficients of `before` whose conclusion is another one in `after`."""
    of_term = {verdict.term: verdict for verdict in after.verdicts}
    of_column = {coefficient.name: coefficient for coefficient in after.coefficients}
    changed = set()
    for column in before.coefficients:
        if column.name != INTERCEPT and _differs(column, of_column.get(column.name)):
            changed.add(column.name)
            yield Change(column.name, _shown(column), _shown(of_column.get(column.name)))
    for verdict in before.verdicts:
        if not verdict.estimable or verdict.term in changed:
            continue
        now = of_term[verdict.term]
        is_same = now.estimable and now.significant is verdict.significant
        if verdict.significant is None:  # nothing is concluded but the estimates
            own = (c.name for c in before.coefficients if c.term == verdict.term)
            is_same = now.estimable and changed.isdisjoint(own)
        if not is_same:
            yield Change(verdict.term, _judged(verdict, before), _judged(now, after))


def _differs(before: Coefficient, after: Coefficient | None) -> bool:
    """Whether another conclusion follows: separability, significance, sign, an estimate outside the interval.

    A standard error twice as large counts too: the interval was too narrow. Where the chosen errors give no interval,
    the estimate is compared with twice its classic error.
    """
    if not before.told_apart or before.std_error_classic is None:
        return False
    if after is None or not after.told_apart:
        return True
    if before.p_value is None:
        return abs(after.estimate - before.estimate) > 2 * before.std_error_classic
    if after.std_error is None or before.std_error is None:
        return True
    if before.is_significant is not after.is_significant:
        return True
    if not before.is_significant or before.ci_low is None or before.ci_high is None:
        return False
    is_outside = not before.ci_low <= after.estimate <= before.ci_high
    return is_outside or after.std_error > _WIDER * before.std_error


def _shown(coefficient: Coefficient | None) -> str:
    if coefficient is None or not coefficient.told_apart:
        return "cannot be separated"
    if coefficient.ci_low is None or coefficient.ci_high is None or coefficient.p_value is None:
        return f"{digits(coefficient.estimate, 4)}, not tested"
    interval = f"[{digits(coefficient.ci_low, 4)}, {digits(coefficient.ci_high, 4)}]"
    return f"{digits(coefficient.estimate, 4)} {interval}, {p_text(coefficient.p_value)}"


def _judged(verdict: TermVerdict, fit: OlsFit) -> str:
    if not verdict.estimable:
        return "cannot be separated"
    p_value = next((test.p_value for test in fit.tests if test.term == verdict.term), None)
    return "not tested" if p_value is None else p_text(p_value)


def depends_on(found: tuple[Refit, ...]) -> dict[str, tuple[str, ...]]:
    """Of each term and coefficient whose conclusion changes, the attributes with which it does."""
    names = dict.fromkeys(change.name for refit in found for change in refit.changes)
    return {name: tuple(r.attribute for r in found if any(c.name == name for c in r.changes)) for name in names}


def notes(found: tuple[Refit, ...]) -> list[str]:
    """What the refits show, in a sentence for each attribute with which something changes or that is not examined."""
    said = []
    for refit in found:
        shown = f" ({first_names(refit.values)})" if refit.values else ""
        values = f"{refit.attribute}{shown}"
        if refit.reason is not None:
            said.append(f"Whether {values} matters, which the formula lacks, was not examined: {refit.reason}.")
        elif refit.changes:
            names = [change.name for change in refit.changes]
            # a term represents its levels
            changed = ", ".join(name for name in names if name.partition("[")[0] not in names or "[" not in name)
            said.append(f"{values} is not in the formula; with it these change and are not established: {changed}.")
    same = [refit.attribute for refit in found if refit.reason is None and not refit.changes and refit.values]
    if same:
        together = any(" + " in refit.attribute and not refit.changes and refit.reason is None for refit in found)
        said.append(
            f"The runs also differ in {', '.join(same)}, which the formula lacks. No conclusion changes when one of "
            f"them is added{', or all of them' if together else ''}."
        )
    return said
