"""Standard errors, intervals and tests of a fit's coefficients and terms."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from ddnn_traces.regression.aliasing import Share
from ddnn_traces.regression.design import INTERCEPT, unit
from ddnn_traces.regression.estimate import Estimate, Scatter, moves
from ddnn_traces.regression.results import ALPHA, ERRORS, Coefficient, TermTest

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]

#: Below so many runs, clustered errors are known to be too small.
FEW_CLUSTERS = 40


def coefficients_of(
    estimate: Estimate, errors: str, robust: str, mixed: Collection[str] = ()
) -> tuple[Coefficient, ...]:
    """Every coefficient with its interval by the chosen `errors`, and the classic and `robust` standard errors.

    mixed: names of those that hold the effect of another term's column too.
    """
    from scipy import stats

    kinds = {kind: estimate.covariance(kind) for kind in dict.fromkeys(("classic", robust, errors))}
    deviations = {kind: _standard_errors(matrix) for kind, (matrix, _) in kinds.items()}
    df = kinds[errors][1]
    found = []
    for number, (column, value) in enumerate(zip(estimate.columns, estimate.coefficients.tolist(), strict=True)):
        of = {kind: None if estimate.is_exact else values[number] for kind, values in deviations.items()}
        chosen = of[errors]
        low = high = p = None
        if chosen and df > 0:
            reach = float(stats.t.ppf(1 - ALPHA / 2, df)) * chosen
            low, high = value - reach, value + reach
            p = float(2 * stats.t.sf(abs(value) / chosen, df))
        found.append(
            Coefficient(
                column.name, column.term, value, low, high, p, chosen, of["classic"], of[robust],
                told_apart=column.name not in mixed,
            )
        )  # fmt: skip
    return tuple(found)


def _standard_errors(covariance: Vector) -> list[float | None]:
    import numpy as np

    return [float(np.sqrt(value)) if value > 0 else None for value in np.diag(covariance)]


def term_tests(estimate: Estimate, beside: Mapping[str, Share], errors: str) -> tuple[TermTest, ...]:
    """The joint F-test of what each term says beside the others, and its GVIF.

    GVIF is None where other terms say part of the term: what they widen is then infinitely wide.
    """
    scatter = estimate.scatter(errors)
    inflation = generalized_vif(estimate)
    found = []
    for term, share in beside.items():
        gvif = inflation.get(term) if share.is_whole and share.df else None
        f = None if estimate.is_exact else wald_f(estimate, scatter, share)
        p = None if f is None else _upper_tail(f, share.df, scatter.df)
        found.append(TermTest(term, f, share.df, scatter.df, p, gvif))
    return tuple(found)


def _upper_tail(f: float, df: int, df_denominator: int) -> float:
    from scipy import stats

    return float(stats.f.sf(f, df, df_denominator))


def own_directions(estimate: Estimate, share: Share) -> Vector:
    """Of U'y's coordinates, an orthonormal basis of what the other terms do not span, as columns."""
    import numpy as np

    if not share.others:
        return np.eye(len(estimate.columns))
    spanned = estimate.basis.T @ np.column_stack([unit(column.values) for column in share.others])
    directions: Vector = np.linalg.qr(spanned, mode="complete")[0][:, len(share.others) :]
    return directions


def runs_settling(estimate: Estimate, share: Share) -> int:
    """How many runs there are without any one of which part of the term could not be estimated."""
    directions = own_directions(estimate, share)
    return sum(moves(part.lost, directions) for part in estimate.without_run.values())


def wald_f(estimate: Estimate, scatter: Scatter, share: Share) -> float | None:
    """Wald's F that the fit loses nothing without the term: of U'y in the directions that the others do not span.

    By the classic scatter it is the F of the sums of squares of both fits. None where the scatter does not tell: a
    clustered covariance of more directions than runs less 1 is singular.
    """
    import numpy as np

    if not share.df or scatter.df < 1 or (scatter.is_estimated and share.df > scatter.df):
        return None
    directions = own_directions(estimate, share)
    if not scatter.tells(directions):
        return None
    values = directions.T @ (estimate.basis.T @ estimate.response)
    block = directions.T @ scatter.covariance @ directions
    scale = np.sqrt(np.diag(block))
    if not scale.all() or np.linalg.cond(block / np.outer(scale, scale)) > 1e12:
        return None
    scaled = values / scale
    return float(scaled @ np.linalg.solve(block / np.outer(scale, scale), scaled)) / share.df


def generalized_vif(estimate: Estimate) -> dict[str, float]:
    """GVIF of each term (Fox and Monette 1992): det R_own det R_others / det R of the columns' correlations.

    Nothing without an intercept, since correlations are about the mean.
    """
    import numpy as np

    kept = [i for i, column in enumerate(estimate.columns) if column.term != INTERCEPT]
    if len(kept) == len(estimate.columns):
        return {}
    centred = estimate.matrix[:, kept] - estimate.matrix[:, kept].mean(axis=0)
    unit = centred / np.linalg.norm(centred, axis=0)
    owners = np.array([estimate.columns[i].term for i in kept])
    whole = _log_volume(unit)
    return {
        str(term): float(np.exp(_log_volume(unit[:, owners == term]) + _log_volume(unit[:, owners != term]) - whole))
        for term in dict.fromkeys(owners.tolist())
    }


def _log_volume(columns: Vector) -> float:
    """Logarithm of det(columns' columns), by singular values, which lose no digits to the squares."""
    import numpy as np

    return float(2 * np.log(np.linalg.svd(columns, compute_uv=False)).sum()) if columns.shape[1] else 0.0


def whole_f(estimate: Estimate) -> tuple[float | None, float | None]:
    """The classic F-test that there is nothing but a constant (without one: nothing at all), and its p-value."""
    count = len(estimate.columns) - estimate.has_constant
    if estimate.is_exact or not count:
        return None, None
    total = estimate.result.centered_tss if estimate.has_constant else estimate.result.uncentered_tss
    f = float(total - estimate.result.ssr) / count / estimate.variance
    return f, _upper_tail(f, count, estimate.df_resid)


def cluster_notes(estimate: Estimate, errors: str) -> list[str]:
    """What to know of errors where runs have several rows, and of clustered ones where runs are few."""
    count = len(estimate.rows_of)
    if errors != "cluster" and count < len(estimate.response):
        return [
            f"The {len(estimate.response)} rows are of {count} runs, and {ERRORS[errors]} errors take them for "
            "independent: they are too small where rows of a run are alike. Errors clustered by run (cluster) are not."
        ]
    if errors != "cluster" or count >= FEW_CLUSTERS:
        return []
    return [f"Errors are clustered by {count} runs: with fewer than {FEW_CLUSTERS} they tend to be too small."]
