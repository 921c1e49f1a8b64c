"""The fitted formula beside others: with a term less, built up term by term, and in logarithms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ddnn_traces.regression.aliasing import Share, split_aliased
from ddnn_traces.regression.design import INTERCEPT, Column, Design
from ddnn_traces.regression.estimate import Estimate, refit
from ddnn_traces.regression.inference import coefficients_of
from ddnn_traces.regression.results import LogLog, Nested


def nested(estimate: Estimate, design: Design, terms: Sequence[str], beside: Mapping[str, Share]) -> tuple[Nested, ...]:
    """The whole formula, then each term left out of it, then the formula built up in its order.

    terms: those that have a coefficient. beside: what is left without each term that has a column; what the term had
    hidden (aliased columns of another) is then estimated. A term that is part of an interaction is not left out alone.
    Nothing where all rows lie on the fit.
    """
    if estimate.is_exact:
        return ()
    found = [_nested(estimate, estimate, "")]
    alone = [term for term in beside if not any(_is_part(term, other) for other in beside)]
    for term in alone:
        if beside[term].others:
            found.append(_nested(estimate, refit(estimate, beside[term].others), f"- {term}"))
    start = ["intercept alone"] if design.has_intercept else []
    for count in range(0 if start else 1, len(terms)):
        change = f"+ {terms[count - 1]}" if count else "intercept alone"
        found.append(_nested(estimate, _with_terms(estimate, design, terms[:count]), change))
    return tuple(found)


def _is_part(term: str, other: str) -> bool:
    """Whether an interaction contains `term`."""
    return term != other and set(term.split(":")) < set(other.split(":"))


def _with_terms(estimate: Estimate, design: Design, terms: Sequence[str]) -> Estimate:
    columns: list[Column] = [column for column in design.columns if column.term in {INTERCEPT, *terms}]
    return refit(estimate, split_aliased(columns)[0])


def _nested(whole: Estimate, part: Estimate, change: str) -> Nested:
    from scipy import stats

    aic, bic = part.information_criteria
    df = len(whole.columns) - len(part.columns)
    f = p = None
    if df > 0:
        f = (part.result.ssr - whole.result.ssr) / df / whole.variance
        p = float(stats.f.sf(f, df, whole.df_resid))
    r_squared = float(part.result.rsquared)
    return Nested(change, len(part.columns), r_squared, aic, bic, None if f is None else float(f), p)


def log_formula(formula: str, left: str, size: str) -> str | None:
    """The formula with logarithms of its left side and of the size; None where either is not a plain column there."""
    _, right = formula.split("~")
    if formula.split("~")[0].strip() != left or "(" + size in right.replace(" ", ""):
        return None
    changed, count = re.subn(rf"\b{size}\b", f"np.log({size})", right)
    return f"np.log({left}) ~{changed}" if count == 1 else None


def log_log(formula: str, size: str, plain: Estimate, logs: Estimate, errors: str, robust: str) -> LogLog | None:
    """Both fits by how well they predict rows from the other runs, on the plain scale; None where they share no row."""
    import numpy as np

    rows = np.concatenate(list(plain.rows_of.values()))
    of_plain = np.concatenate([part.errors for part in plain.without_run.values()])
    of_logs = np.concatenate([part.errors for part in logs.without_run.values()])
    observed = plain.response[rows]
    back = observed - np.exp(logs.response[rows] - of_logs)
    there = ~(np.isnan(of_plain) | np.isnan(back))
    if not there.any():
        return None
    of_plain, back, observed = of_plain[there], back[there], observed[there]
    (slope,) = (c for c in coefficients_of(logs, errors, robust) if c.name == f"np.log({size})")
    return LogLog(
        formula,
        slope.estimate,
        slope.ci_low,
        slope.ci_high,
        len(observed),
        float(np.median(abs(back) / observed)),
        float(np.median(abs(of_plain) / observed)),
        float(np.sqrt(np.mean(back**2))),
        float(np.sqrt(np.mean(of_plain**2))),
    )
