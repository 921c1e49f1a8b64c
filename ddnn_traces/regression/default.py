"""The default formula: what a worker sends in a step, or the logarithm of the step's volume, with that of workers.

An all-reduce of S bytes among N workers sends 2(N-1)S in all, by a ring, tree, star or halving and doubling. Of one
worker that is 2(N-1)/N S, nearly the same for any N: a line in S. The volume itself is a product of S, of a factor of N
and of those of the other attributes: its logarithm is their sum. The one with the lower AIC, both in terms of the
step's bytes (Box and Cox 1964), is fitted; docs/regression.md derives them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from ddnn_traces.regression import design
from ddnn_traces.regression.design import RUN
from ddnn_traces.regression.estimate import Estimate, Vector
from ddnn_traces.regression.formula import parse
from ddnn_traces.regression.results import SIZES

_OTHERS = "C(framework_backend) + C(batch_size) + C(topology)"
_WORKERS = " + np.log(workers)"
PER_WORKER = f"worker_bytes ~ model_bytes + {_OTHERS}"
LOGARITHMS = f"np.log(step_bytes) ~ np.log(model_bytes){_WORKERS} + {_OTHERS}"
FORMS = (PER_WORKER, LOGARITHMS)
#: Residual degrees of freedom below which AIC does not compare forms.
_MIN_DF = 3


def default_formula(rows: pl.DataFrame, forms: Sequence[str]) -> tuple[str, list[str]]:
    """The form that these rows support, and notes on the choice.

    rows: as of design.clean_numbers. forms: FORMS, a variant of it, or one formula of a preset. The nominal size
    replaces the exchanged one where no usable row has that, and the whole step what a worker sends where no row has
    workers. Both forms are compared on the rows that both can use.
    """
    adapted = [_without_workers(rows, form) for form in forms] if len(forms) > 1 else list(forms)
    chosen, notes = sized(rows, adapted[0])
    if len(forms) == 1:
        return chosen, notes
    if adapted[0] != forms[0]:
        notes.append("No run has workers: the response is the volume of the whole step, and not what a worker sends.")
    other = sized(rows, adapted[1])[0]
    common, _ = design.split_missing(rows, parse(chosen, rows.columns).names | parse(other, rows.columns).names)
    criteria = [_aic(common, form) for form in (chosen, other)]
    if None in criteria:
        return chosen, notes
    plain, logarithms = (math.inf if found is None else found for found in criteria)
    best, second = (other, chosen) if logarithms < plain else (chosen, other)
    low, high = sorted((plain, logarithms))
    notes.append(
        f"The data support this formula rather than {second}: its AIC is {_rounded(low)}, that of the other "
        f"{_rounded(high)}, both in terms of step_bytes."
    )
    return best, notes


def _rounded(criterion: float) -> str:
    return f"{criterion:.1f}" if math.isfinite(criterion) else "without bound (all rows lie on the fit)"


def _without_workers(rows: pl.DataFrame, form: str) -> str:
    """The form without the workers where no row has them, or all have the same."""
    known = rows["workers"].drop_nulls() if {"workers", "worker_bytes"} <= set(rows.columns) else pl.Series()
    if known.is_empty():
        form = form.replace("worker_bytes", "step_bytes")
    return form if known.n_unique() > 1 else form.replace(_WORKERS, "")


def sized(rows: pl.DataFrame, formula: str) -> tuple[str, list[str]]:
    """The formula with the nominal size where no row that is usable but for the size has the exchanged one."""
    exchanged, nominal = SIZES
    names = parse(formula, {*rows.columns, *SIZES}).names
    if exchanged not in names or not {exchanged, nominal} <= set(rows.columns):
        return formula, []
    usable, _ = design.split_missing(rows, names - {exchanged})
    if usable[exchanged].count() or not usable[nominal].count():
        return formula, []
    note = (
        "No run has the bytes that it exchanges (model_bytes): the nominal size is used instead (nominal_bytes), "
        "which is rounded and may count parameters that are not trained."
    )
    return formula.replace(exchanged, nominal), [note]


def _aic(rows: pl.DataFrame, text: str) -> float | None:
    """AIC of the form as a model of step_bytes; minus infinity where all rows lie on it, None where it has no scatter.

    The density of a function of step_bytes is that of step_bytes over the function's derivative.
    """
    formula = parse(text, rows.columns)
    usable, _ = design.usable_rows(rows, formula)
    if usable.height < rows.height or usable.is_empty():  # a volume of 0 has no logarithm
        return None
    made = design.make_design(usable, formula)
    dropped = design.constant_terms(made, usable)
    kept, _ = design.split_aliased([column for column in made.columns if column.term not in dropped])
    if len(made.response) - len(kept) < _MIN_DF:
        return None
    estimate = Estimate(made.response, tuple(kept), tuple(str(run) for run in usable[RUN]))
    if estimate.is_exact:
        return -math.inf
    derivative = {"np.log(step_bytes)": "step_bytes", "worker_bytes": "workers"}.get(formula.left)
    jacobian = 0.0 if derivative is None else float(np.log(usable[derivative].to_numpy()).sum())
    return _best_scatter(estimate, design.relative_sizes(usable, formula)) + 2 * jacobian


def _best_scatter(estimate: Estimate, relative: Vector | None) -> float:
    """The AIC of the fit, or of the one with scatter that grows with the size, whose power is a parameter more."""
    found = [estimate.information_criteria[0]]
    if relative is None:
        return found[0]
    for power in design.POWERS[1:]:
        deviations = relative**power
        criterion, _ = estimate.weighted(deviations).information_criteria
        found.append(criterion + 2 * float(np.log(deviations).sum()) + 2)
    return min(found)
