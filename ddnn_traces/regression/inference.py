"""Standard errors, intervals and tests of a fit's coefficients and terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddnn_traces.regression.design import INTERCEPT
from ddnn_traces.regression.estimate import Estimate
from ddnn_traces.regression.results import ALPHA, Coefficient, TermTest

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]

#: Below so many runs, clustered errors are known to be too small.
FEW_CLUSTERS = 40


def coefficients_of(estimate: Estimate, errors: str, robust: str) -> tuple[Coefficient, ...]:
    """Every coefficient with its interval by the chosen `errors`, and the classic and `robust` standard errors."""
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
        found.append(Coefficient(column.name, column.term, value, low, high, p, chosen, of["classic"], of[robust]))
    return tuple(found)


def _standard_errors(covariance: Vector) -> list[float | None]:
    import numpy as np

    return [float(np.sqrt(value)) if value > 0 else None for value in np.diag(covariance)]


def term_tests(estimate: Estimate, terms: Sequence[str], errors: str) -> tuple[TermTest, ...]:
    """The joint F-test and the GVIF of each of `terms` that has a coefficient."""
    covariance, df = estimate.covariance(errors)
    inflation = generalized_vif(estimate)
    return tuple(_term_test(estimate, term, covariance, df, inflation.get(term)) for term in terms)


def _term_test(estimate: Estimate, term: str, covariance: Vector, df: int, gvif: float | None) -> TermTest:
    numbers = [i for i, column in enumerate(estimate.columns) if column.term == term]
    f = None if estimate.is_exact else wald_f(estimate.coefficients, covariance, numbers, df)
    if f is None:
        return TermTest(term, None, len(numbers), df, None, gvif)
    from scipy import stats

    return TermTest(term, f, len(numbers), df, float(stats.f.sf(f, len(numbers), df)), gvif)


def wald_f(values: Vector, covariance: Vector, numbers: Sequence[int], df: int) -> float | None:
    """Wald's F that the coefficients of these numbers are all 0; None where the covariance does not tell.

    A clustered covariance of more coefficients than runs less 1 is singular, and one that rests on a single run is NaN.
    """
    import numpy as np

    block = covariance[np.ix_(numbers, numbers)]
    if df < 1 or len(numbers) > df or not np.isfinite(block).all():
        return None
    scale = np.sqrt(np.diag(block))
    if not scale.all() or np.linalg.cond(block / np.outer(scale, scale)) > 1e12:
        return None
    scaled = values[list(numbers)] / scale
    return float(scaled @ np.linalg.solve(block / np.outer(scale, scale), scaled)) / len(numbers)


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
    """The classic F-test that all coefficients but the intercept's are 0, and its p-value."""
    from scipy import stats

    count = sum(column.term != INTERCEPT for column in estimate.columns)
    if estimate.is_exact or not count:
        return None, None
    has_intercept = count < len(estimate.columns)
    total = estimate.result.centered_tss if has_intercept else estimate.result.uncentered_tss
    f = float(total - estimate.result.ssr) / count / estimate.variance
    return f, float(stats.f.sf(f, count, estimate.df_resid))


def cluster_notes(estimate: Estimate, errors: str) -> list[str]:
    """What to know of clustered errors where runs are few."""
    count = len(estimate.rows_of)
    if errors != "cluster" or count >= FEW_CLUSTERS:
        return []
    return [f"Errors are clustered by {count} runs: with fewer than {FEW_CLUSTERS} they tend to be too small."]
