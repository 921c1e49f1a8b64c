"""What a regression found, whole."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddnn_traces.regression.design import Design
from ddnn_traces.regression.estimate import Estimate
from ddnn_traces.regression.results import (
    Coefficient,
    Excluded,
    LeftOut,
    LogLog,
    Nested,
    RunInfluence,
    TermTest,
    TermVerdict,
    made_up,
)

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class OlsFit:
    """A fit of any formula on any frame. Nothing could be fitted where `coefficients` is empty.

    `fitted` has a number for every row of the frame, on the scale of the formula's left side. errors: the chosen
    standard errors; robust: those in std_error_robust. clusters: runs, in which rows may depend on each other.
    """

    coefficients: tuple[Coefficient, ...] = ()
    tests: tuple[TermTest, ...] = ()
    verdicts: tuple[TermVerdict, ...] = ()
    notes: tuple[str, ...] = ()
    errors: str = "classic"
    robust: str = "hc3"
    clusters: int = 0
    r_squared: float | None = None
    adj_r_squared: float | None = None
    df_resid: int | None = None
    residual_std_error: float | None = None
    f_statistic: float | None = None
    f_p_value: float | None = None
    aic: float | None = None
    bic: float | None = None
    condition_number: float | None = None
    breusch_pagan: float | None = None
    breusch_pagan_p_value: float | None = None
    influence: tuple[RunInfluence, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    nested: tuple[Nested, ...] = ()
    fitted: tuple[float, ...] | None = None
    estimate: Estimate | None = field(default=None, compare=False, repr=False)
    design: Design | None = field(default=None, compare=False, repr=False)

    @property
    def influential(self) -> list[RunInfluence]:
        """Runs whose Cook's distance is above 4 / number of runs, the largest first."""
        bound = 4 / max(len(self.influence), 1)
        found = [run for run in self.influence if run.cooks_distance is not None and run.cooks_distance > bound]
        return sorted(found, key=lambda run: -(run.cooks_distance or 0))


@dataclass(frozen=True)
class Regression(OlsFit):
    """The regression of a dataset's runs, or of their steps.

    rows: usable rows; runs: the runs that they are of. grain: what a row is, run or step. synthetic_runs: those of them
    that are made up. size_column: model_bytes or nominal_bytes, whichever the formula has (model_bytes if both), else
    None. correlation: Pearson's, of that column with the left side, where the left side is a column; None with fewer
    than 3 rows or a constant column. points: run_id, step (where a row is one), observed and fitted (left side's scale,
    null where nothing is fitted), residual, studentized_residual, leverage, and step_bytes and size_bytes [bytes] where
    they are known. r_squared and the like are None where nothing is fitted, and `notes` says why.
    """

    formula: str = ""
    preset: str | None = None
    grain: str = "run"
    rows: int = 0
    runs: int = 0
    synthetic_runs: int = 0
    correlation: float | None = None
    size_column: str | None = None
    log_log: LogLog | None = None
    excluded: tuple[Excluded, ...] = ()
    points: pl.DataFrame = field(default=None, compare=False, repr=False)  # type: ignore[assignment]

    @property
    def left(self) -> str:
        """The formula's left side."""
        return self.formula.split("~")[0].strip()

    @property
    def synthetic(self) -> str | None:
        """What must be said of made-up runs; None where there are none."""
        if not self.synthetic_runs:
            return None
        return f"{made_up(self.synthetic_runs, self.runs)}: made up by the laws of the collectives, not measured."

    def readable(self, coefficient: Coefficient) -> tuple[float, str]:
        """What to multiply a coefficient by to print it, and its unit then: MB/MB, MB (a step), bytes, or none.

        None where the left side is not step_bytes itself: then bytes are not the coefficient's unit. MB/MB is a slope
        of the size as it is, also where levels have their own (`model_bytes:C(topology)[T.star]`). bytes: for each 1 of
        what is made of a size, as of I(model_bytes ** 2). MB: of a level, or for each 1 of another number.
        """
        if self.left != "step_bytes":
            return 1.0, ""
        numbers = [part for part in coefficient.name.split(":") if not part.endswith("]")]
        if numbers in (["model_bytes"], ["nominal_bytes"]):
            return 1.0, "MB/MB"
        of_size = any(re.search(r"\b(model_bytes|nominal_bytes|model_size_mb)\b", part) for part in numbers)
        return (1.0, "bytes") if of_size else (1e-6, "MB")
