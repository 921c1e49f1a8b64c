"""The parts of what a regression found: coefficients, tests, verdicts, diagnostics, runs that are left out."""

from __future__ import annotations

from dataclasses import dataclass

ALPHA = 0.05

#: Kinds of standard errors, and what a reader calls them.
ERRORS = {"classic": "classic", "hc3": "HC3", "cluster": "run-clustered"}


def made_up(synthetic: int, runs: int) -> str:
    """That so many of the runs are synthetic, as the begin of a sentence."""
    return f"{synthetic} of {runs} runs {'is' if synthetic == 1 else 'are'} synthetic"


@dataclass(frozen=True)
class Coefficient:
    """One column of the fit, in units of the left side: the slope of `model_bytes` in bytes a byte (= MB a MB).

    The interval is the 95% confidence interval by the chosen standard errors, std_error. It and `p_value` are None
    where the rows lie on the fit exactly, or where the chosen standard error is not defined (std_error is then None).
    std_error_robust: HC3, or clustered by run where a row is a step. told_apart: whether the number is the column's
    own; false where it holds the effect of another column that the rows cannot tell apart.
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


@dataclass(frozen=True)
class TermTest:
    """Joint Wald F-test that the fit loses nothing without a term, by the chosen standard errors, and the term's GVIF.

    df: independent columns of the term that the other terms do not span. f, p_value: None where no test is possible.
    gvif: generalized variance inflation factor (Fox and Monette 1992), None without an intercept and where other terms
    span part of the term.
    """

    term: str
    f: float | None
    df: int
    df_denominator: int
    p_value: float | None
    gvif: float | None

    @property
    def gvif_per_df(self) -> float | None:
        """GVIF^(1/(2 df)), which compares terms of several coefficients: the square root of a plain VIF."""
        return None if self.gvif is None else self.gvif ** (1 / (2 * self.df))


@dataclass(frozen=True)
class TermVerdict:
    """What the rows say about a term. `significant` is that of the joint F-test, None where no test is possible."""

    term: str
    estimable: bool
    significant: bool | None
    sentence: str


@dataclass(frozen=True)
class Excluded:
    """A run, or steps of it, that are not in the fit."""

    run_id: str
    reason: str
    rows: int = 1


@dataclass(frozen=True)
class RunInfluence:
    """How much one run decides. None where the fit cannot do without the run.

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

    groups: runs or models left out in turn. rows: predicted rows. of: what the errors are of, the left side's column
    (step_bytes also where it is np.log(step_bytes)), or the left side where it cannot be undone. root_mean_square: in
    units of that. median_relative: of |error| / |observed|, None where an observed one is 0 or the left side cannot be
    undone. r_squared: 1 - sum of squared errors / sum of squares about the mean, over
    the predicted rows; None for fewer than 2. impossible: groups with rows that cannot be predicted, with the reason.
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
class Nested:
    """A formula nested in the fitted one, on the same rows. change: `without TERM`, `+ TERM`, `intercept alone`.

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
    """The same regression of logarithms, log(step_bytes) on log(size), by its predictions on the scale of bytes.

    Both errors are medians of |error| / observed over the same rows, each predicted by the fit to the other runs; exp()
    of a predicted logarithm is taken as it is, so that it predicts the median. exponent: of the size, with interval.
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
