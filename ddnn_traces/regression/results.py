"""What a regression found: coefficients, verdicts, runs that are left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Coefficient:
    """One column of the fit. The slope of `model_size` is in bytes a byte (= MB a MB), the others in bytes a step.

    The interval is the 95% confidence interval. It and `p_value` are None where the runs lie on the fit exactly.
    """

    name: str
    term: str
    estimate: float
    ci_low: float | None
    ci_high: float | None
    p_value: float | None


@dataclass(frozen=True)
class TermVerdict:
    """What the runs say about a term. `significant` is None where no test is possible."""

    term: str
    estimable: bool
    significant: bool | None
    sentence: str


@dataclass(frozen=True)
class Excluded:
    """A run that is not in the fit."""

    run_id: str
    reason: str


@dataclass(frozen=True)
class OlsFit:
    """A fit of any formula on any frame. Nothing could be fitted where `coefficients` is empty.

    `fitted` has a number for every row of the frame, on the scale of the formula's left side.
    """

    coefficients: tuple[Coefficient, ...] = ()
    verdicts: tuple[TermVerdict, ...] = ()
    notes: tuple[str, ...] = ()
    r_squared: float | None = None
    adj_r_squared: float | None = None
    df_resid: int | None = None
    fitted: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Regression:
    """The regression of a dataset's runs.

    rows: usable runs. correlation: Pearson's, of `model_size` with `step_bytes`, None with fewer than 3 runs or
    a constant column. model_size_source: the column that `model_size` [bytes] is made of. fitted: run_id,
    step_bytes, model_size [bytes], and `fitted` on the scale of the formula's left side, null where nothing is
    fitted. r_squared, adj_r_squared and df_resid are None where nothing is fitted, and `notes` says why.
    """

    formula: str
    rows: int
    r_squared: float | None
    adj_r_squared: float | None
    df_resid: int | None
    coefficients: tuple[Coefficient, ...]
    verdicts: tuple[TermVerdict, ...]
    correlation: float | None
    model_size_source: str
    excluded: tuple[Excluded, ...]
    notes: tuple[str, ...]
    fitted: pl.DataFrame = field(compare=False)

    def readable(self, coefficient: Coefficient) -> tuple[float, str]:
        """What to multiply a coefficient by to print it, and its unit then: MB/MB, MB (a step), or none.

        None where the left side is a function of step_bytes: then bytes are not the coefficient's unit.
        """
        if self.formula.split("~")[0].strip() != "step_bytes":
            return 1.0, ""
        return (1.0, "MB/MB") if coefficient.name == "model_size" else (1e-6, "MB")
