"""What a regression and a prediction find: coefficients, tests, verdicts, diagnostics, predicted numbers."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from ddnn_traces.errors import UsageError
from ddnn_traces.text import digits

if TYPE_CHECKING:
    from ddnn_traces.regression.estimate import Estimate

ALPHA = 0.05
_LEAST_P = 0.0001
#: Logarithms beyond it overflow in exp().
LARGEST_LOG = math.log(1e300)
#: Of the intervals of a prediction.
LEVEL = 0.95
#: Columns of a step's volume in bytes, and what they are in a sentence.
VOLUMES = {
    "step_bytes": "data a step", "worker_bytes": "data that a worker sends a step",
    "implied_bytes": "data a step over the model sizes that the law sends",
}  # fmt: skip
#: Columns of a model's size in bytes: what a step exchanges, and the published size.
SIZES = ("model_bytes", "nominal_bytes")
#: Kinds of standard errors, and their names in documents.
ERRORS = {"classic": "classic", "hc3": "HC3", "cluster": "CR2", "scaled": "size-scaled"}
#: Those that hold whatever the scatter is.
ROBUST = "cluster"
#: Of a generalized VIF: the equivalent of a plain VIF of 10.
INFLATED = math.sqrt(10)


def plain(value: Any) -> str:
    """A level or number without a needless decimal point."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def first_names(names: Sequence[str]) -> str:
    """The first six names, and dots for the others."""
    return ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")


#: runs.source of runs that were never measured.
GENERATED = ("synthetic", "simulation", "ns3")


def generated(sources: Sequence[str | None]) -> int:
    """How many of the runs of these sources were never measured."""
    return sum(source in GENERATED for source in sources)


def _synthetic(synthetic: int, runs: int) -> str | None:
    """That so many of the runs are synthetic or simulated; None where no run is."""
    if not synthetic:
        return None
    are = "is" if synthetic == 1 else "are"
    how = "generated from the laws of the collectives, or simulated, not measured"
    return f"{synthetic} of {runs} runs {are} synthetic: {how}"


@dataclass(frozen=True)
class Coefficient:
    """One column of the fit, in units of the left side: the slope of `model_bytes` in bytes a byte (= MB a MB).

    The interval is the 95% confidence interval by the chosen standard errors, std_error. It and `p_value` are None
    where the rows lie on the fit exactly, or where the chosen standard error is not defined (std_error is then None).
    std_error_robust: CR2, clustered by cell. told_apart: whether the number is the effect of this column alone; false
    where it includes the effect of a column that the rows cannot distinguish from this one. depends_on: attributes that
    the formula lacks, and with one of which the conclusion changes (Refit). df: degrees of freedom of its t-test.
    """

    name: str
    term: str
    estimate: float
    ci_low: float | None
    ci_high: float | None
    p_value: float | None
    std_error: float | None = None
    std_error_classic: float | None = None
    std_error_robust: float | None = None
    told_apart: bool = True
    depends_on: tuple[str, ...] = ()
    df: float | None = None

    @property
    def is_significant(self) -> bool:
        """Whether the 95% confidence interval excludes 0."""
        return self.p_value is not None and self.p_value < ALPHA

    @property
    def sign(self) -> str:
        return "positive" if self.estimate > 0 else "negative"


@dataclass(frozen=True)
class TermTest:
    """Joint Wald F-test that the fit loses nothing without a term, by the chosen standard errors, and the term's GVIF.

    df: independent columns of the term that the other terms do not span, and that are tested; untested: those that one
    run or cell determines alone. f, p_value: None where no test is possible.
    gvif: generalized variance inflation factor (Fox and Monette 1992), None without an intercept and where other terms
    span part of the term.
    """

    term: str
    f: float | None
    df: int
    df_denominator: float
    p_value: float | None
    gvif: float | None
    untested: int = 0

    @property
    def gvif_per_df(self) -> float | None:
        """GVIF^(1/(2 df)), which compares terms of several coefficients: the square root of a plain VIF."""
        return None if self.gvif is None else self.gvif ** (1 / (2 * (self.df + self.untested)))


@dataclass(frozen=True)
class JointTest:
    """The joint test of terms that the rows separate poorly or not at all."""

    terms: tuple[str, ...]
    f: float | None
    df: int
    df_denominator: float
    p_value: float | None


@dataclass(frozen=True)
class TermVerdict:
    """The conclusion about a term.

    significant: by the joint F-test; None where no test is possible, and where the conclusion is not established.
    together: the terms that are significant with it, where the rows do not tell which of them is; empty elsewhere.
    depends_on: attributes that the formula lacks, and with one of which the conclusion changes (Refit). effect: of a
    number that is significant, what goes with 1 more of it, in words.
    """

    term: str
    estimable: bool
    significant: bool | None
    sentence: str
    depends_on: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    effect: str = ""


@dataclass(frozen=True)
class SingleRun:
    """A run without which some coefficients could not be estimated: the fit passes through it in their direction."""

    run_id: str
    coefficients: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """A term or coefficient whose conclusion changes, in words: without the attribute, and with it."""

    name: str
    without: str
    with_it: str


@dataclass(frozen=True)
class Refit:
    """The fit repeated with an attribute in which the runs differ and which the formula lacks.

    values: of the attribute. formula: the longer one. reason: why it could not be fitted; None where it was.
    """

    attribute: str
    values: tuple[str, ...]
    formula: str
    changes: tuple[Change, ...] = ()
    reason: str | None = None


@dataclass(frozen=True)
class Excluded:
    """A run, or steps of it, that are not in the fit."""

    run_id: str
    reason: str
    rows: int = 1


@dataclass(frozen=True)
class RunInfluence:
    """How much one run decides. None where the fit needs the run.

    leverage: of all its rows together (their sum). cooks_distance: how far all fitted values move when the run is left
    out (Cook 1977; of a group of rows: Cook and Weisberg 1982, section 3.5). studentized_residual: external; only where
    a run is one row.
    """

    run_id: str
    leverage: float
    cooks_distance: float | None
    studentized_residual: float | None


@dataclass(frozen=True)
class LeftOut:
    """Errors of rows predicted by the fit to the other runs (by='run') or to the runs of other models (by='model').

    groups: runs or models left out in turn. rows: predicted rows. of: the quantity that the errors are of, the left
    side's column (step_bytes also where it is np.log(step_bytes)), or the left side where it cannot be inverted.
    root_mean_square: in units of that. median_relative: of |error| / |observed|, None where an observed value is 0 or
    the left side cannot be inverted. r_squared: 1 - sum of squared errors / sum of squares about the mean, over the
    predicted rows; None for fewer than 2. impossible: groups with rows that cannot be predicted, with the reason.
    """

    by: str
    groups: int
    rows: int
    root_mean_square: float | None
    median_relative: float | None
    r_squared: float | None
    impossible: tuple[Excluded, ...]
    of: str


@dataclass(frozen=True)
class GroupScatter:
    """Whether the levels of a term scatter alike: Brown and Forsythe's test of the residuals over sqrt(1 - leverage).

    Levels of three rows and more. least, most: those of the smallest and largest standard deviation, which least_size
    and most_size are, on the left side's scale.
    """

    term: str
    statistic: float
    p_value: float
    least: str
    least_size: float
    most: str
    most_size: float


@dataclass(frozen=True)
class Nested:
    """A formula nested in the fitted one, on the same rows. change: `- TERM`, `+ TERM`, `intercept alone`, or empty.

    AIC and BIC count the residual variance as a parameter, as R's AIC() does (statsmodels does not: 2, or log n, less).
    f, p_value: classic F-test against the whole formula; None for the whole formula itself.
    """

    change: str
    coefficients: int
    r_squared: float
    aic: float
    bic: float
    f: float | None
    p_value: float | None


@dataclass(frozen=True)
class LogLog:
    """The same regression of logarithms, log(step_bytes) on log(size), by its predictions in bytes.

    Both errors are medians of |error| / observed over the same rows, each predicted by the fit to the other runs; exp()
    of a predicted logarithm is not corrected, so that it predicts the median. exponent: of the size, with interval.
    """

    formula: str
    exponent: float
    ci_low: float | None
    ci_high: float | None
    rows: int
    median_relative: float
    median_relative_linear: float
    root_mean_square: float
    root_mean_square_linear: float


@dataclass(frozen=True)
class OlsFit:
    """A fit of any formula on any frame. Nothing could be fitted where `coefficients` is empty.

    `fitted` has a number for every row of the frame, on the scale of the formula's left side. errors: the chosen
    standard errors. scatter_power: of the model's size, with which the scatter of
    rows grows. clusters: cells, in which runs may depend on each other. crowded: terms for which there are too few
    runs.
    """

    coefficients: tuple[Coefficient, ...] = ()
    tests: tuple[TermTest, ...] = ()
    verdicts: tuple[TermVerdict, ...] = ()
    crowded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    errors: str = "classic"
    scatter_power: float = 0.0
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
    group_scatter: tuple[GroupScatter, ...] = ()
    influence: tuple[RunInfluence, ...] = ()
    single_runs: tuple[SingleRun, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    nested: tuple[Nested, ...] = ()
    fitted: tuple[float, ...] | None = None
    estimate: Estimate | None = field(default=None, compare=False, repr=False)

    @property
    def influential(self) -> list[RunInfluence]:
        """Runs whose Cook's distance is above 4 / number of runs, the largest first."""
        bound = 4 / max(len(self.influence), 1)
        found = [run for run in self.influence if run.cooks_distance is not None and run.cooks_distance > bound]
        return sorted(found, key=lambda run: -(run.cooks_distance or 0))


@dataclass(frozen=True)
class Regression(OlsFit):
    """The regression of a dataset's runs, or of their steps.

    rows: usable rows; runs: the runs that they belong to. grain: what a row is, run or step. unit: cell, where the runs
    of a cell are averaged, or run; either way errors take the cells as independent, and not the runs. synthetic_runs:
    those of them that are synthetic or simulated (GENERATED). size_column: model_bytes or nominal_bytes, whichever the
    formula has (model_bytes if both), else None. correlation: Pearson's, of that column with the left side, where the
    left side is a column; None with fewer than 3 rows or a constant column. points: run_id, step (where a row is one),
    cell,     observed and fitted (left side's scale, null where nothing is fitted), residual, studentized_residual,
    leverage (the last two are those of its cell where runs are averaged), and
    step_bytes, size_bytes and fitted_bytes [bytes], the fitted volume of a step, where they are known. refits: one for
    each attribute in which the runs differ and which the formula lacks. r_squared and the like are None where nothing
    is fitted, and `notes` gives the reason.
    """

    formula: str = ""
    preset: str | None = None
    grain: str = "run"
    unit: str = "cell"
    rows: int = 0
    runs: int = 0
    synthetic_runs: int = 0
    correlation: float | None = None
    size_column: str | None = None
    log_log: LogLog | None = None
    excluded: tuple[Excluded, ...] = ()
    refits: tuple[Refit, ...] = ()
    points: pl.DataFrame = field(default=None, compare=False, repr=False)  # type: ignore[assignment]
    #: What writes document(): documents.FORMATS.
    _formats: Mapping[str, Callable[[Regression, bool], str]] = field(default_factory=dict, compare=False, repr=False)

    def summary(self, verbose: bool = False) -> str:
        """Coefficients, tests, verdicts and diagnostics as text, as `ddnn-traces regress` prints them."""
        return self.document("text", verbose)

    def document(self, form: str, verbose: bool = False) -> str:
        """The regression as text, latex, json or csv, as of --format of `ddnn-traces regress`. Raises UsageError."""
        if form not in self._formats:
            raise UsageError(f"a regression has no format {form}; its formats are {', '.join(self._formats)}")
        return self._formats[form](self, verbose)

    def __str__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.summary())}</pre>"

    @property
    def left(self) -> str:
        """The formula's left side."""
        return self.formula.split("~")[0].strip()

    @property
    def synthetic(self) -> str | None:
        """The sentence on synthetic runs that every document has; None where there are none."""
        found = _synthetic(self.synthetic_runs, self.runs)
        return found and f"{found}."

    def readable(self, coefficient: Coefficient) -> tuple[float, str]:
        """The factor by which a coefficient is printed, and its unit then: MB/MB, MB (a step), bytes, or none.

        None where the left side is not a volume itself: then bytes are not the coefficient's unit. MB/MB is a slope
        of the plain size, also where levels have their own (`model_bytes:C(topology)[T.star]`). bytes: for each 1 of
        an expression of a size, as I(model_bytes ** 2). MB: of a level, or for each 1 of another number.
        """
        if self.left not in VOLUMES:
            return 1.0, ""
        numbers = [part for part in coefficient.name.split(":") if not part.endswith("]")]
        if numbers in ([size] for size in SIZES):
            return 1.0, "MB/MB"
        of_size = any(re.search(r"\b(model_bytes|nominal_bytes|model_size_mb)\b", part) for part in numbers)
        return (1.0, "bytes") if of_size else (1e-6, "MB")


def p_text(p_value: float) -> str:
    """A p-value as text: p = 0.0123; below 0.0001 only that, since what is smaller rests on the tails of a normal
    distribution."""
    return f"p = {digits(p_value)}" if p_value >= _LEAST_P else f"p < {digits(_LEAST_P)}"


def degrees(value: float) -> str:
    """Degrees of freedom: whole ones plain, Satterthwaite's with one decimal."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Job:
    """A training job.

    values: of the runs' attributes, by name (model_bytes [bytes], framework_backend, batch_size, topology, workers,
    ...). steps: of a run to predict. step_ms: length of a step, where it is known.
    """

    values: Mapping[str, Any]
    steps: int | None = None
    step_ms: float | None = None


@dataclass(frozen=True)
class Predicted:
    """One number: quantity step, run, hour (unit bytes) or step_time (ms).

    mean_low to mean_high: the 95% confidence interval of the mean of all such runs. low to high: the 95% prediction
    interval, in which one such run lies. All four are None where the runs lie on the fit exactly. statistic: mean,
    median (of what is fitted as its logarithm or root), or ratio (of an hour: the volume of a step over the median step
    time).
    """

    quantity: str
    unit: str
    estimate: float
    mean_low: float | None
    mean_high: float | None
    low: float | None
    high: float | None
    statistic: str = "mean"

    def times(self, factor: float, quantity: str) -> Predicted:
        """Another quantity that is `factor` times this one."""
        names = ("estimate", "mean_low", "mean_high", "low", "high")
        ends = {name: getattr(self, name) for name in names}
        scaled: dict[str, Any] = {name: None if end is None else end * factor for name, end in ends.items()}
        return replace(self, quantity=quantity, **scaled)


@dataclass(frozen=True)
class Prediction:
    """The predicted traffic of a job. warnings: why it is an extrapolation; empty where it is not one. notes: caveats.

    runs: those of the fit; synthetic_runs: those of them that are synthetic, not measured.
    """

    formula: str
    job: Job
    runs: int
    synthetic_runs: int
    predicted: tuple[Predicted, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, quantity: str) -> Predicted | None:
        """The number for that quantity; None where there is none."""
        return next((p for p in self.predicted if p.quantity == quantity), None)

    @property
    def synthetic(self) -> str | None:
        """The clause on synthetic runs that every document has; None where there are none."""
        return _synthetic(self.synthetic_runs, self.runs)
