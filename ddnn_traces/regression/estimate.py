"""Ordinary least squares on the columns that are left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddnn_traces.regression.design import ROUNDING, Column
from ddnn_traces.regression.results import Coefficient, OlsFit

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]

ALPHA = 0.05


def estimate(response: Vector, columns: Sequence[Column]) -> OlsFit:
    """OLS by statsmodels on independent columns, with at least one residual degree of freedom.

    By the pseudo-inverse: statsmodels' QR squares the condition number in the standard errors.
    """
    import numpy as np
    from statsmodels.regression.linear_model import OLS

    matrix = np.column_stack([column.values for column in columns])
    scale = np.sqrt(np.mean(matrix**2, axis=0))  # bytes beside dummies would cost digits
    result = OLS(response, matrix / scale).fit()
    is_exact = np.sqrt(result.ssr) <= ROUNDING * np.linalg.norm(response)
    # where the fit is exact, what is rounding in the response is rounding in its parts: report 0, not 1e-7 bytes
    is_zero = is_exact & (abs(result.params) <= ROUNDING * np.linalg.norm(response))
    estimates = np.where(is_zero, 0.0, result.params / scale)
    intervals = result.conf_int(ALPHA) / scale[:, None]
    coefficients = tuple(
        Coefficient(c.name, c.term, float(b), None, None, None)
        if is_exact
        else Coefficient(c.name, c.term, float(b), float(low), float(high), float(p))
        for c, b, (low, high), p in zip(columns, estimates, intervals, result.pvalues, strict=True)
    )
    notes = []
    if is_exact:
        notes.append("Every run lies on the fit to within rounding: there is no scatter to test an estimate against.")
    if not result.k_constant:
        notes.append("Without an intercept R² is the share of the squares about 0, not about the mean.")
    return OlsFit(
        coefficients=coefficients,
        notes=tuple(notes),
        r_squared=float(result.rsquared),
        adj_r_squared=float(result.rsquared_adj),
        df_resid=int(result.df_resid),
        fitted=tuple(float(value) for value in result.fittedvalues),
    )
