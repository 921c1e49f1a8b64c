"""Regressions with a name: which rows they are fitted to, and by which formula."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression.fitting import fit
from ddnn_traces.regression.formula import DEFAULT_FORMULA
from ddnn_traces.regression.outcome import Regression
from ddnn_traces.regression.results import Excluded
from ddnn_traces.regression.rows import RUN

if TYPE_CHECKING:
    import polars as pl

    from ddnn_traces.query.dataset import Dataset

_NETWORK = "delay_ms + bandwidth_mbit + loss_pct + C(batch_size) + C(model)"
_LOSS = "loss_pct"
#: Column of a query's rows that says why a row is no part of the preset's own formula; null where it is.
_REASON = "left_out_reason"
#: exp() of more is no number.
_LARGEST_LOG = math.log(1e300)


@dataclass(frozen=True)
class Preset:
    """A regression by name. run_query, step_query: the queries with a row a run, and with a row a run and step."""

    name: str
    question: str
    formula: str
    run_query: str
    step_query: str | None


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "paper", "volume of a step, with the sentences of zerwas section VI", DEFAULT_FORMULA,
            "run_step_volume", "step_volume_rows",
        ),
        Preset(
            "step-time", "duration of a step on what cheng varies", f"step_ms ~ {_NETWORK}",
            "run_step_time", "step_time_rows",
        ),
        Preset(
            "throughput", "samples a second on what cheng varies", f"samples_per_s ~ {_NETWORK}",
            "run_step_time", "step_time_rows",
        ),
        Preset(
            "duration-on-loss", "duration beside equal runs with other loss, zerwas fig. 10",
            f"np.log(comparable_s) ~ C(setting) + {_LOSS}", "run_relative_duration", None,
        ),
    )
}  # fmt: skip
ROWS = ("runs", "steps")
BATCH = ("indicator", "number")
SIZE = ("exchanged", "nominal")


def regress(
    dataset: Dataset,
    formula: str | None = None,
    *,
    preset: str | None = None,
    rows: str = "runs",
    batch: str = "indicator",
    size: str = "exchanged",
    errors: str | None = None,
) -> Regression:
    """Fit a formula to the runs of a dataset, or to their steps.

    formula: in statsmodels' language; None: that of the preset, and equation (1) of zerwas without one. preset: a name
    of PRESETS, which also settles the rows. rows: runs or steps. batch, size: whether the batch size is an indicator or
    a number, and the model's size what is exchanged or the nominal one; both only without `formula`. errors: classic
    (default for runs), hc3 or cluster (by run; default for steps).

    Raises RegressionError for a name that there is not, and for a formula that cannot be used.
    """
    for option, value, known in (
        ("preset", preset, (None, *PRESETS)), ("rows", rows, ROWS), ("batch", batch, BATCH), ("size", size, SIZE),
    ):  # fmt: skip
        if value not in known:
            raise RegressionError(f"No {option} named {value}; there are: {', '.join(name for name in known if name)}")
    chosen = PRESETS[preset or "paper"]
    query = chosen.run_query if rows == "runs" else chosen.step_query
    if query is None:
        raise RegressionError(f"{chosen.name} has a row a run only; leave out rows = {rows}")
    default = _with_options(chosen.formula, batch, size)
    if formula is not None and default != chosen.formula:
        raise RegressionError(f"batch and size change the default formula only; write them into yours: {default}")
    found = dataset.query(query)
    if formula is not None:
        return replace(fit(found, formula, errors, default), preset=preset)
    told_apart, left_out = _told_apart(found)
    fitted = fit(told_apart, None, errors, default)
    notes = (*fitted.notes, *_loss_notes(fitted, told_apart))
    return replace(fitted, preset=preset, notes=notes, excluded=(*fitted.excluded, *left_out))


def _told_apart(rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """The rows that the query does not leave out, and the others with its reason."""
    import polars as pl

    if _REASON not in rows.columns:
        return rows, ()
    left_out = rows.drop_nulls(_REASON)
    excluded = tuple(Excluded(str(run), reason) for run, reason in left_out.select(RUN, _REASON).iter_rows())
    return rows.filter(pl.col(_REASON).is_null()), excluded


def _loss_notes(fitted: Regression, rows: pl.DataFrame) -> list[str]:
    """A slope of logarithms on loss as the factor that it is."""
    slope = next((c for c in fitted.coefficients if c.name == _LOSS), None)
    if slope is None or fitted.left != "np.log(comparable_s)":
        return []
    ends = (slope.ci_low, slope.ci_high)
    interval = f" [{_factor(ends[0])}, {_factor(ends[1])}]" if ends[0] is not None and ends[1] is not None else ""
    losses = [float(loss) for loss in rows[_LOSS].drop_nulls()]
    return [
        f"With 1% more of the packets lost a run takes {_factor(slope.estimate)}{interval} times as long as another of "
        f"its setting, where the logarithm of the duration is a line in loss; measured from {min(losses):g}% to "
        f"{max(losses):g}%."
    ]


def _factor(logarithm: float) -> str:
    return f"{math.exp(logarithm):.4g}" if abs(logarithm) < _LARGEST_LOG else "1e300" if logarithm > 0 else "1e-300"


def _with_options(formula: str, batch: str, size: str) -> str:
    if batch == "number":
        formula = formula.replace("C(batch_size)", "batch_size")
    if size == "nominal":
        formula = re.sub(r"\bmodel_bytes\b", "nominal_bytes", formula)
    return formula
