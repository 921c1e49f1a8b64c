"""Regressions with a name: which rows they are fitted to, and by which formula."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression.fitting import fit
from ddnn_traces.regression.formula import DEFAULT_FORMULA
from ddnn_traces.regression.outcome import Regression

if TYPE_CHECKING:
    from ddnn_traces.dataset import Dataset

_NETWORK = "delay_ms + bandwidth_mbit + loss_pct + C(batch_size) + C(model)"


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
            "duration-on-loss", "duration beside equal lossless runs, zerwas fig. 10", "normalised_duration ~ loss_pct",
            "run_relative_duration", None,
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
    return replace(fit(dataset.query(query), formula, errors, default), preset=preset)


def _with_options(formula: str, batch: str, size: str) -> str:
    if batch == "number":
        formula = formula.replace("C(batch_size)", "batch_size")
    if size == "nominal":
        formula = re.sub(r"\bmodel_bytes\b", "nominal_bytes", formula)
    return formula
