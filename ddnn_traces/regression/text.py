"""A regression as text, for the terminal."""

from __future__ import annotations

from ddnn_traces.regression.outcome import Regression
from ddnn_traces.regression.results import Coefficient

_HEADINGS = ("coefficient", "estimate", "95% interval", "p")


def text(regression: Regression) -> str:
    """The table, what it says of each term, and what could not be used, as lines of text."""
    lines = [regression.formula, _summary(regression), ""]
    if regression.coefficients:
        lines += [*_table(regression), ""]
    lines += [f"{verdict.term}: {verdict.sentence}" for verdict in regression.verdicts]
    lines += regression.notes
    lines += [f"left out: {run.run_id}: {run.reason}" for run in regression.excluded]
    if regression.excluded:
        lines.append("What is missing can be given in a run.toml in the run's folder; then ingest it again.")
    return "\n".join(lines)


def _cells(regression: Regression, coefficient: Coefficient) -> tuple[str, str, str, str]:
    """Name, estimate with unit, interval and p."""
    factor, unit = regression.readable(coefficient)
    low, high, p = coefficient.ci_low, coefficient.ci_high, coefficient.p_value
    return (
        coefficient.name,
        f"{coefficient.estimate * factor:,.4f} {unit}".rstrip(),
        "" if low is None or high is None else f"[{low * factor:,.4f}, {high * factor:,.4f}]",
        "" if p is None else f"{p:.3g}",
    )


def _summary(regression: Regression) -> str:
    runs = f"{regression.rows} runs"
    if regression.r_squared is None or regression.adj_r_squared is None:
        return runs
    return (
        f"{runs}, R2 = {regression.r_squared:.6f}, adjusted R2 = {regression.adj_r_squared:.6f}, "
        f"{regression.df_resid} residual degrees of freedom"
    )


def _table(regression: Regression) -> list[str]:
    table = [_HEADINGS, *(_cells(regression, coefficient) for coefficient in regression.coefficients)]
    widths = [max(len(row[i]) for row in table) for i in range(len(_HEADINGS))]
    aligned = [f"{{:<{widths[0]}}}", *(f"{{:>{width}}}" for width in widths[1:])]
    return ["  ".join(aligned).format(*row) for row in table]
