"""Whether a fit may be believed: influence of runs, scatter that grows, predictions of runs that were left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddnn_traces.regression.estimate import Estimate, Without, free_labels
from ddnn_traces.regression.formula import undone
from ddnn_traces.regression.results import Excluded, LeftOut, RunInfluence

if TYPE_CHECKING:
    import numpy as np

    Vector = np.ndarray[Any, np.dtype[np.float64]]

# Leverage from which a row's own residual says nothing of it.
_ALL = 1 - 1e-8


def influence(estimate: Estimate) -> tuple[RunInfluence, ...]:
    """Leverage and Cook's distance of every run; of none where all rows lie on the fit."""
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
    import numpy as np

    df = estimate.df_resid - 1
    if estimate.is_exact or df < 1:
        return [None] * len(estimate.response)
    found: list[float | None] = []
    for residual, leverage in zip(estimate.residuals.tolist(), estimate.leverage.tolist(), strict=True):
        if leverage > _ALL:
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

    if estimate.is_exact or not estimate.has_constant or len(estimate.columns) == 1:
        return None, None
    squares = estimate.residuals**2
    centred = squares - squares.mean()
    explained = estimate.basis.T @ centred
    statistic = float(len(squares) * (explained @ explained) / (centred @ centred))
    return statistic, float(stats.chi2.sf(statistic, len(estimate.columns) - 1))


def left_out(
    estimate: Estimate, models: Sequence[str | None] | None, left: str, column: str | None
) -> tuple[LeftOut, ...]:
    """Errors of predictions of each run by the others and, where `models` has several, of each model by the others.

    They are of `column`, the one on the left side, where what is done to it there can be undone; else of `left`.
    """
    if estimate.is_exact:
        return ()
    undo = None if column is None else undone(left, column)
    scale = _Scale(left, None) if column is None or undo is None else _Scale(column, undo)
    found = [_left_out("run", estimate, scale, estimate.rows_of, estimate.without_run)]
    if models is not None and len(set(models)) > 1:
        names = tuple("unknown" if model is None else str(model) for model in models)
        rows = Estimate(estimate.response, estimate.columns, names).rows_of
        found.append(_left_out("model", estimate, scale, rows, {name: estimate.without(rows[name]) for name in rows}))
    return tuple(found)


@dataclass(frozen=True)
class _Scale:
    """What errors are of; undo makes the left side's values such, None where nothing does."""

    of: str
    undo: Callable[[Any], Any] | None


def _left_out(
    by: str, estimate: Estimate, scale: _Scale, rows: Mapping[str, Vector], parts: Mapping[str, Without]
) -> LeftOut:
    import numpy as np

    errors = np.concatenate([part.errors for part in parts.values()])
    observed = estimate.response[np.concatenate([rows[name] for name in parts])]
    there = ~np.isnan(errors)
    errors, observed = errors[there], observed[there]
    impossible = tuple(
        Excluded(name, f"only it tells {', '.join(free_labels(estimate, part))}", int(np.isnan(part.errors).sum()))
        for name, part in parts.items()
        if np.isnan(part.errors).any()
    )
    if not len(errors):
        return LeftOut(by, len(parts), 0, None, None, None, impossible, scale.of)
    if scale.undo is not None:
        with np.errstate(over="ignore"):
            predicted = scale.undo(observed - errors)
        observed = scale.undo(observed)
        errors = observed - predicted
    about_mean = float(((observed - observed.mean()) ** 2).sum())
    return LeftOut(
        by,
        len(parts),
        len(errors),
        float(np.sqrt(np.mean(errors**2))),
        float(np.median(abs(errors / observed))) if scale.undo is not None and observed.all() else None,
        float(1 - errors @ errors / about_mean) if about_mean > 0 else None,
        impossible,
        scale.of,
    )
