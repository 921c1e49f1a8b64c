"""Inference from a fit: standard errors, intervals and tests, and the diagnostics of its assumptions.

The diagnostics are the influence of single runs, scatter that grows, predictions of left-out runs, and the comparison
with shorter formulas and with logarithms.

statsmodels gives the F-tests of whole and nested formulas, and the R² of the Breusch-Pagan test. Where one row or run
determines a coefficient alone, it has no usable value, so these are computed here: robust covariances (HC3 is infinite
for all coefficients, the clustered error of that one is too small), tests of terms (it tests what a pseudo-inverse
leaves of a singular covariance), Cook's distance (of rows only, infinite) and studentized residuals (a refit a row).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from ddnn_traces.regression.design import Design, Share, split_aliased, unit
from ddnn_traces.regression.estimate import (
    ALL,
    ROUNDING,
    Column,
    Estimate,
    Scatter,
    Vector,
    Without,
    overlap,
    without_lost,
)
from ddnn_traces.regression.formula import INTERCEPT, Formula, inverse
from ddnn_traces.regression.results import (
    ALPHA,
    INFLATED,
    ROBUST,
    Coefficient,
    Excluded,
    GroupScatter,
    JointTest,
    LeftOut,
    LogLog,
    Nested,
    RunInfluence,
    TermTest,
    plain,
)

#: Rows of a level whose scatter is compared with that of others.
MIN_OF_LEVEL = 3

# --- coefficients and terms


def coefficients_of(estimate: Estimate, errors: str, mixed: Collection[str] = ()) -> tuple[Coefficient, ...]:
    """Every coefficient with its interval by the chosen `errors`, and the classic and ROBUST standard errors.

    mixed: names of the columns whose coefficients include the effect of another term's column.
    """
    from scipy import stats

    kinds = {kind: estimate.covariance(kind) for kind in dict.fromkeys(("classic", ROBUST, errors))}
    deviations = {
        kind: [float(np.sqrt(value)) if value > 0 else None for value in np.diag(matrix)]
        for kind, (matrix, _) in kinds.items()
    }
    found = []
    for number, (column, value) in enumerate(zip(estimate.columns, estimate.coefficients.tolist(), strict=True)):
        of = {kind: None if estimate.is_exact else values[number] for kind, values in deviations.items()}
        chosen, df = of[errors], float(kinds[errors][1][number])
        low = high = p = None
        if chosen and df > 0:
            reach = float(stats.t.ppf(1 - ALPHA / 2, df)) * chosen
            low, high = value - reach, value + reach
            p = float(2 * stats.t.sf(abs(value) / chosen, df))
        found.append(
            Coefficient(
                column.name, column.term, value, low, high, p, chosen, of["classic"], of[ROBUST],
                told_apart=column.name not in mixed, df=df if chosen else None,
            )
        )  # fmt: skip
    return tuple(found)


def term_tests(estimate: Estimate, by_term: Mapping[str, Share], errors: str) -> tuple[TermTest, ...]:
    """The joint F-test of each term's share, and its GVIF.

    GVIF is None where other terms span part of the term: the interval of that part is then infinitely wide.
    """
    from scipy import stats

    scatter = estimate.scatter(errors)
    inflation = _generalized_vif(estimate)
    found = []
    for term, share in by_term.items():
        gvif = inflation.get(term) if share.is_whole and share.df else None
        f, df, df_denominator = (None, share.df, 0.0) if estimate.is_exact else _wald_f(estimate, scatter, share)
        p = None if f is None else float(stats.f.sf(f, df, df_denominator))
        found.append(TermTest(term, f, df, df_denominator, p, gvif, share.df - df))
    return tuple(found)


def joint_tests(
    estimate: Estimate, columns: Sequence[Column], by_term: Mapping[str, Share], tests: Sequence[TermTest], errors: str
) -> tuple[JointTest, ...]:
    """The joint test of terms that the rows separate poorly or not at all, each group once.

    columns: the design's, with those that others span. A group is of terms with columns that the others of the group
    span, and of all terms whose GVIF^(1/(2 df)) is above INFLATED. A term that is significant by its own part is told
    apart from the rest: it stays in the fit that the rest are tested against.
    """
    from scipy import stats

    groups: list[set[str]] = [
        {term, *(carrier.term for alias in share.aliases for carrier in alias.carriers)} - {INTERCEPT}
        for term, share in by_term.items()
    ]
    groups.append({test.term for test in tests if test.gvif_per_df is not None and test.gvif_per_df > INFLATED})
    merged: list[set[str]] = []
    for group in groups:
        touching = [other for other in merged if other & group]
        merged = [other for other in merged if not other & group] + [group.union(*touching)]
    told_apart = {test.term for test in tests if test.p_value is not None and test.p_value < ALPHA}
    scatter = estimate.scatter(errors)
    found = []
    for group in (group - told_apart for group in merged if len(group - told_apart) > 1):
        others, _ = split_aliased([column for column in columns if column.term not in group])
        share = Share(tuple(others), len(estimate.columns) - len(others), 0, (), False)
        f, df, denominator = (None, share.df, 0.0) if estimate.is_exact else _wald_f(estimate, scatter, share)
        p = None if f is None else float(stats.f.sf(f, df, denominator))
        names = tuple(term for term in by_term if term in group)
        found.append(JointTest(names, f, df, denominator, p))
    return tuple(found)


def _own_directions(estimate: Estimate, share: Share) -> Vector:
    """Of U'y's coordinates, an orthonormal basis of the directions that the other terms do not span, as columns."""
    if not share.others:
        return np.eye(len(estimate.columns))
    spanned = estimate.basis.T @ np.column_stack([unit(column.values) for column in share.others])
    directions: Vector = np.linalg.qr(spanned, mode="complete")[0][:, len(share.others) :]
    return directions


def needed_runs(estimate: Estimate, share: Share) -> int:
    """How many runs there are without any one of which part of the term could not be estimated."""
    directions = _own_directions(estimate, share)
    return sum(overlap(part.lost, directions) for part in estimate.without_run.values())


def _wald_f(estimate: Estimate, scatter: Scatter, share: Share) -> tuple[float | None, int, float]:
    """Wald's F that the fit loses nothing without the term, with both degrees of freedom.

    Of U'y in the directions that the others do not span, less those that one group determines alone: of these no
    scatter is known. By the classic scatter it is the F of the sums of squares of both fits; by the clustered one
    Hotelling's T-squared, (v - q + 1)/(v q) of Wald's statistic by F(q, v - q + 1) (Pustejovsky and Tipton 2018). None
    where the scatter is not known: a covariance of more directions than clusters is singular.
    """
    if not share.df or scatter.df < 1:
        return None, share.df, float(scatter.df)
    directions = without_lost(_own_directions(estimate, share), scatter.lost)
    count = directions.shape[1]
    if not count:
        return None, share.df, float(scatter.df)
    freedom = scatter.degrees(directions)
    denominator = freedom if scatter.own is None else freedom - count + 1
    least = 0.0 if count == 1 else 1 - 1e-9  # a t-test, as of the coefficient, has any degrees of freedom above 0
    if denominator <= least or (scatter.is_estimated and count > scatter.df):
        return None, count, max(denominator, 0.0)
    block = directions.T @ scatter.covariance @ directions
    scale = np.sqrt(np.diag(block))
    if not scale.all() or np.linalg.cond(block / np.outer(scale, scale)) > 1e12:
        return None, count, denominator
    scaled = directions.T @ (estimate.basis.T @ estimate.response) / scale
    wald = float(scaled @ np.linalg.solve(block / np.outer(scale, scale), scaled))
    return wald / count * (denominator / freedom), count, denominator


def _generalized_vif(estimate: Estimate) -> dict[str, float]:
    """GVIF of each term (Fox and Monette 1992): det R_own det R_others / det R of the columns' correlations.

    Nothing without an intercept, since correlations are about the mean.
    """
    kept = [i for i, column in enumerate(estimate.columns) if column.term != INTERCEPT]
    if len(kept) == len(estimate.columns):
        return {}
    centred = estimate.matrix[:, kept] - estimate.matrix[:, kept].mean(axis=0)
    scaled = centred / np.linalg.norm(centred, axis=0)
    owners = np.array([estimate.columns[i].term for i in kept])
    whole = _log_volume(scaled)
    parts = {term: [scaled[:, owners == term], scaled[:, owners != term]] for term in dict.fromkeys(owners.tolist())}
    return {str(term): float(np.exp(sum(map(_log_volume, part)) - whole)) for term, part in parts.items()}


def _log_volume(columns: Vector) -> float:
    """Logarithm of det(columns' columns), by singular values, which lose no digits to the squares."""
    return float(2 * np.log(np.linalg.svd(columns, compute_uv=False)).sum()) if columns.shape[1] else 0.0


def whole_f(estimate: Estimate) -> tuple[float | None, float | None]:
    """The classic F-test that there is nothing but a constant (without one: nothing at all), and its p-value."""
    if estimate.is_exact or not estimate.result.df_model:
        return None, None
    return float(estimate.result.fvalue), float(estimate.result.f_pvalue)


# --- influence and scatter


def influence(estimate: Estimate) -> tuple[RunInfluence, ...]:
    """Leverage and Cook's distance of every run; empty where all rows lie on the fit."""
    if estimate.is_exact:
        return ()
    studentized = studentized_residuals(estimate)
    return tuple(
        RunInfluence(
            run,
            float(estimate.leverage[rows].sum()),
            None if part.lost.shape[1] else float(part.shift @ part.shift) / len(estimate.columns) / estimate.variance,
            studentized[int(rows[0])] if len(rows) == 1 else None,
        )
        for (run, rows), part in zip(estimate.rows_of.items(), estimate.without_run.values(), strict=True)
    )


def studentized_residuals(estimate: Estimate) -> list[float | None]:
    """External studentized residual of each row: over its standard error by the fit without the row."""
    df = estimate.df_resid - 1
    if estimate.is_exact or df < 1:
        return [None] * len(estimate.response)
    found: list[float | None] = []
    for residual, leverage in zip(estimate.residuals.tolist(), estimate.leverage.tolist(), strict=True):
        if leverage > ALL:
            found.append(None)
            continue
        left = max(estimate.df_resid * estimate.variance - residual**2 / (1 - leverage), 0.0) / df
        found.append(float(residual / np.sqrt(left * (1 - leverage))) if left > 0 else None)
    return found


def breusch_pagan(estimate: Estimate) -> tuple[float | None, float | None]:
    """Koenker's studentized Breusch-Pagan test: n R^2 of the squared residuals on the design, and its p-value.

    None where the columns do not span the constant, or nothing else, and where all rows lie on the fit.
    """
    from scipy import stats

    if estimate.is_exact or not estimate.result.k_constant or len(estimate.columns) == 1:
        return None, None
    # statsmodels' het_breuschpagan refuses a constant that the levels of a term make
    squares = replace(estimate, response=estimate.residuals**2).result
    statistic = float(squares.nobs * squares.rsquared)
    return statistic, float(stats.chi2.sf(statistic, squares.df_model))


def intraclass_correlation(values: Vector, groups: Sequence[str]) -> float | None:
    """Of values in groups, by analysis of variance (Fisher; Donner 1986): 0 and less where groups are no more alike.

    None where all values are the same, or each group has one.
    """
    _, numbers = np.unique(np.array(groups), return_inverse=True)
    counts = np.bincount(numbers)
    total, count = len(values), len(counts)
    if total == count or count < 2:
        return None
    means = np.bincount(numbers, weights=values) / counts
    between = float(counts @ (means - values.mean()) ** 2) / (count - 1)
    within = float(((values - means[numbers]) ** 2).sum()) / (total - count)
    size = (total - float(counts @ counts) / total) / (count - 1)
    whole = between + (size - 1) * within
    return (between - within) / whole if whole > 0 else None


def group_scatter(estimate: Estimate, design: Design, rows: pl.DataFrame) -> tuple[GroupScatter, ...]:
    """Brown and Forsythe's test for each categorical term of one attribute, of levels with three rows and more."""
    from scipy import stats

    if estimate.is_exact or len(estimate.rows_of) < len(estimate.response):  # rows of a cell are not independent
        return ()
    free = estimate.leverage < ALL
    residuals = np.where(free, estimate.residuals, 0.0) / np.sqrt(np.where(free, 1 - estimate.leverage, 1.0))
    fitted = {column.term for column in estimate.columns}
    found = []
    for term in (t for t in design.terms if t.categorical and len(t.variables) == 1 and t.name in fitted):
        levels = np.array([plain(level) for level in rows[term.variables[0]].to_list()])
        groups = {level: residuals[free & (levels == level)] for level in dict.fromkeys(levels.tolist())}
        groups = {level: values for level, values in groups.items() if len(values) >= MIN_OF_LEVEL}
        if len(groups) < 2:
            continue
        statistic, p_value = stats.levene(*groups.values(), center="median")
        if not np.isfinite(statistic):
            continue
        sizes = {level: float(values.std(ddof=1)) for level, values in groups.items()}
        least, most = min(sizes, key=lambda k: sizes[k]), max(sizes, key=lambda k: sizes[k])
        found.append(GroupScatter(term.name, float(statistic), float(p_value), least, sizes[least], most, sizes[most]))
    return tuple(found)


def level_variances(estimate: Estimate, levels: Sequence[str]) -> tuple[dict[str, tuple[float, float]], float, float]:
    """Variance and degrees of freedom of the rows of each level, and Bartlett's test that the variances are equal.

    Of levels with three rows and more that do not lie on the fit; nothing, 0 and 1 without two of them. Bartlett's test
    sees what Brown and Forsythe's does not in three rows, of which the median is always 0 from the median.
    """
    from scipy import stats

    free = estimate.leverage < ALL
    least = ROUNDING * float(np.linalg.norm(estimate.response))
    samples = {}
    for level in dict.fromkeys(levels):
        mine = free & (np.array(levels) == level)
        scaled = estimate.residuals[mine] / np.sqrt(1 - estimate.leverage[mine])
        if len(scaled) >= MIN_OF_LEVEL and scaled.std() > least:
            samples[level] = scaled
    if len(samples) < 2:
        return {}, 0.0, 1.0
    statistic, p_value = stats.bartlett(*samples.values())
    found = {level: (float((scaled**2).mean()), float(len(scaled) - 1)) for level, scaled in samples.items()}
    return found, float(statistic), float(p_value)


# --- predictions of left-out runs


def left_out(
    estimate: Estimate, models: Sequence[str | None] | None, formula: Formula, by: str = "run"
) -> tuple[LeftOut, ...]:
    """Errors of predictions of each group by the others and, where `models` has several, of each model by the others.

    They are of the column on the left side, where the left side can be inverted; else of the left side.
    """
    if estimate.is_exact:
        return ()
    column = formula.left_column
    invert = None if column is None else inverse(formula.left, column)
    of = formula.left if column is None or invert is None else column
    found = [_left_out(by, estimate, estimate.rows_of, estimate.without_run, of, invert)]
    if models is not None and len(set(models)) > 1:
        names = tuple("unknown" if model is None else str(model) for model in models)
        rows = replace(estimate, groups=names).rows_of
        parts = {name: estimate.without(rows[name]) for name in rows}
        found.append(_left_out("model", estimate, rows, parts, of, invert))
    return tuple(found)


def _left_out(
    by: str, estimate: Estimate, rows: Mapping[str, Vector], parts: Mapping[str, Without], of: str,
    invert: Callable[[Any], Any] | None,
) -> LeftOut:  # fmt: skip
    """of: the quantity that errors are of; invert computes it from values of the left side, None where nothing does."""
    errors = np.concatenate([part.errors for part in parts.values()])
    observed = estimate.response[np.concatenate([rows[name] for name in parts])]
    predictable = ~np.isnan(errors)
    errors, observed = errors[predictable], observed[predictable]
    lost = {name: int(np.isnan(part.errors).sum()) for name, part in parts.items()}
    impossible = tuple(
        Excluded(name, f"only it determines {', '.join(estimate.labels_without(parts[name]))}", count)
        for name, count in lost.items()
        if count
    )
    if not len(errors):
        return LeftOut(by, len(parts), 0, None, None, None, impossible, of)
    if invert is not None:
        with np.errstate(over="ignore"):
            predicted = invert(observed - errors)
        observed = invert(observed)
        errors = observed - predicted
    about_mean = float(((observed - observed.mean()) ** 2).sum())
    relative = float(np.median(abs(errors / observed))) if invert is not None and observed.all() else None
    r_squared = float(1 - errors @ errors / about_mean) if about_mean > 0 else None
    root_mean_square = float(np.sqrt(np.mean(errors**2)))
    return LeftOut(by, len(parts), len(errors), root_mean_square, relative, r_squared, impossible, of)


# --- other formulas on the same rows


def nested(
    estimate: Estimate, design: Design, terms: Sequence[str], by_term: Mapping[str, Share]
) -> tuple[Nested, ...]:
    """The whole formula, then each term left out of it, then the formula built up in its order.

    terms: those that have a coefficient. by_term: the share of each term that has a column; the fit without the term
    also estimates the columns of others that it had aliased. A term that is part of an interaction is not left out
    alone. Empty where all rows lie on the fit.
    """
    if estimate.is_exact:
        return ()
    found = [_nested(estimate, estimate.columns, "")]
    factors = {term: set(term.split(":")) for term in by_term}
    alone = [term for term in by_term if not any(factors[term] < other for other in factors.values())]
    found += [_nested(estimate, by_term[term].others, f"- {term}") for term in alone if by_term[term].others]
    start = ["intercept alone"] if design.has_intercept else []
    for count in range(0 if start else 1, len(terms)):
        change = f"+ {terms[count - 1]}" if count else "intercept alone"
        columns = [column for column in design.columns if column.term in {INTERCEPT, *terms[:count]}]
        found.append(_nested(estimate, split_aliased(columns)[0], change))
    return tuple(found)


def _nested(whole: Estimate, columns: Sequence[Column], change: str) -> Nested:
    part = replace(whole, columns=tuple(columns))
    aic, bic = part.information_criteria
    f = p = None
    if len(columns) < len(whole.columns):
        f, p, _ = map(float, whole.result.compare_f_test(part.result))
    return Nested(change, len(columns), float(part.result.rsquared), aic, bic, f, p)


def log_log(formula: str, size: str, plain: Estimate, logs: Estimate, errors: str) -> LogLog | None:
    """Both fits by how well they predict rows from the other runs, on the plain scale; None where they share no row."""
    rows = np.concatenate(list(plain.rows_of.values()))
    of_plain = np.concatenate([part.errors for part in plain.without_run.values()])
    of_logs = np.concatenate([part.errors for part in logs.without_run.values()])
    observed = plain.response[rows]
    back = observed - np.exp(logs.response[rows] - of_logs)
    predictable = ~(np.isnan(of_plain) | np.isnan(back))
    if not predictable.any():
        return None
    of_plain, back, observed = of_plain[predictable], back[predictable], observed[predictable]
    (slope,) = (c for c in coefficients_of(logs, errors) if c.name == f"np.log({size})")
    relative = (float(np.median(abs(errors) / observed)) for errors in (back, of_plain))
    squares = (float(np.sqrt(np.mean(errors**2))) for errors in (back, of_plain))
    return LogLog(formula, slope.estimate, slope.ci_low, slope.ci_high, len(observed), *relative, *squares)
