"""Regression: the volume of a step, or another measure of runs, on the runs' attributes.

formula: the language of formulas. design: rows, and the columns that a formula makes of them. estimate: ordinary least
squares. inference: standard errors, tests and diagnostics. robustness: which conclusions depend on an attribute that
the formula lacks. verdicts: conclusions as sentences. fitting: presets, the default formula, and fits. words,
documents: tables and sentences, and the documents made of them. predict: a job's traffic by a fit. results: the data
classes that they share.

statsmodels, scipy, pandas and patsy are imported inside the functions that use them, since they load slowly.
"""

from __future__ import annotations

from ddnn_traces.regression.fitting import fit, ols
from ddnn_traces.regression.formula import PAPER_FORMULA
from ddnn_traces.regression.results import ERRORS, Coefficient, Excluded, OlsFit, Regression, TermVerdict

__all__ = ["ERRORS", "PAPER_FORMULA", "Coefficient", "Excluded", "OlsFit", "Regression", "TermVerdict", "fit", "ols"]
