"""A regression as data: JSON with all its numbers, CSV with a row a coefficient. docs/regression.md has the keys."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from typing import Any

from ddnn_traces.regression import layout, paper
from ddnn_traces.regression.outcome import Regression

#: Goes up when a key of the JSON document is renamed, goes, or changes its meaning.
VERSION = 1

_WHOLE = (
    "r_squared", "adj_r_squared", "df_resid", "residual_std_error", "f_statistic", "f_p_value", "aic", "bic",
    "correlation", "condition_number", "breusch_pagan", "breusch_pagan_p_value",
)  # fmt: skip


# Columns of the CSV: of a coefficient, and of the fit.
_OWN = (
    "name", "term", "estimate", "std_error", "std_error_classic", "std_error_robust", "ci_low", "ci_high", "p_value",
)  # fmt: skip
_SHARED = ("formula", "errors", "robust_errors", "rows", "runs", "synthetic_runs", "r_squared", "synthetic")


def json_text(regression: Regression) -> str:
    """One JSON object; what is not known is null."""
    return json.dumps(_finite(document(regression)), indent=2, allow_nan=False)


def document(regression: Regression) -> dict[str, Any]:
    """The JSON document as plain values."""
    tests = {test.term: test for test in regression.tests}
    return {
        "ddnn_traces_regression": VERSION,
        "formula": regression.formula,
        "preset": regression.preset,
        "grain": regression.grain,
        "rows": regression.rows,
        "runs": regression.runs,
        "synthetic_runs": regression.synthetic_runs,
        "synthetic": regression.synthetic,
        "size_column": regression.size_column,
        "errors": regression.errors,
        "robust_errors": regression.robust,
        "clusters": regression.clusters,
        "fit": {name: getattr(regression, name) for name in _WHOLE},
        "coefficients": [asdict(coefficient) for coefficient in regression.coefficients],
        "terms": [
            asdict(verdict)
            | {
                name: getattr(tests.get(verdict.term), name, None)
                for name in ("f", "df", "df_denominator", "p_value", "gvif", "gvif_per_df")
            }
            for verdict in regression.verdicts
        ],
        "influence": [asdict(run) for run in regression.influence],
        "influential": [run.run_id for run in regression.influential],
        "left_out": [asdict(found) for found in regression.left_out],
        "nested": [asdict(nested) for nested in regression.nested],
        "log_log": None if regression.log_log is None else asdict(regression.log_log),
        "paper": _paper(regression),
        "notes": list(regression.notes),
        "diagnosis": layout.diagnosis(regression),
        "excluded": [asdict(run) for run in regression.excluded],
        "points": regression.points.to_dicts(),
    }


def _paper(regression: Regression) -> dict[str, Any] | None:
    if regression.preset != "paper":
        return None
    return {"table": [asdict(row) for row in paper.table(regression)], "sentences": paper.sentences(regression)}


def _finite(value: Any) -> Any:
    """The value with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def csv_text(regression: Regression) -> str:
    """A header and a row a coefficient; an empty field is not known. The last columns are the fit's, in every row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_OWN, *_SHARED])
    about = document(regression) | {"r_squared": regression.r_squared}
    for coefficient in regression.coefficients:
        writer.writerow([*(getattr(coefficient, name) for name in _OWN), *(about[name] for name in _SHARED)])
    return out.getvalue().rstrip("\n")
