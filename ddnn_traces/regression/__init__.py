"""Regression: the volume of a step, or another measure of runs, on the runs' attributes.

statsmodels (with scipy and pandas), patsy, numpy and polars are imported inside the functions that use them: together
they take longer than the 0.3 s in which `ddnn-traces --help` must answer.
"""

from __future__ import annotations

from ddnn_traces.regression.fitting import fit, ols
from ddnn_traces.regression.formula import DEFAULT_FORMULA
from ddnn_traces.regression.outcome import OlsFit, Regression
from ddnn_traces.regression.results import ERRORS, Coefficient, Excluded, TermVerdict

__all__ = ["DEFAULT_FORMULA", "ERRORS", "Coefficient", "Excluded", "OlsFit", "Regression", "TermVerdict", "fit", "ols"]
