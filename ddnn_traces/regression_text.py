"""A regression as text, for the terminal."""

from __future__ import annotations

from ddnn_traces.regression import Coefficient, Regression

_HEADINGS = ("coefficient", "estimate", "95% interval", "p")


def text(regression: Regression) -> str:
    """The table, what it says of each term, and what could not be used, as lines of text."""
    lines = [regression.formula, _summary(regression), ""]
    if regression.coefficients:
        lines += [*_table(regression.coefficients), ""]
    lines += [f"{verdict.term}: {verdict.sentence}" for verdict in regression.verdicts]
    lines += regression.notes
    lines += [f"left out: {run.run_id}: {run.reason}" for run in regression.excluded]
    if regression.excluded:
        lines.append("What is missing can be given in a run.toml in the run's folder; then ingest it again.")
    return "\n".join(lines)


def rows(coefficients: tuple[Coefficient, ...]) -> list[tuple[str, str, str, str]]:
    """Cells of the table: name, estimate with unit, interval, p. model_size is in MB a MB, others in MB a step."""
    return [
        (
            c.name,
            f"{c.estimate * _scale(c):,.4f} {_unit(c)}",
            _interval(c),
            "" if c.p_value is None else f"{c.p_value:.3g}",
        )
        for c in coefficients
    ]


def _interval(coefficient: Coefficient) -> str:
    low, high = coefficient.ci_low, coefficient.ci_high
    if low is None or high is None:
        return ""
    return f"[{low * _scale(coefficient):,.4f}, {high * _scale(coefficient):,.4f}]"


def _summary(regression: Regression) -> str:
    runs = f"{regression.rows} runs, model_size from {regression.model_size_source}"
    if regression.r_squared is None or regression.adj_r_squared is None:
        return runs
    return (
        f"{runs}, R2 = {regression.r_squared:.6f}, adjusted R2 = {regression.adj_r_squared:.6f}, "
        f"{regression.df_resid} residual degrees of freedom"
    )


def _is_slope(coefficient: Coefficient) -> bool:
    return coefficient.name == "model_size"


def _scale(coefficient: Coefficient) -> float:
    return 1.0 if _is_slope(coefficient) else 1e-6


def _unit(coefficient: Coefficient) -> str:
    return "MB/MB" if _is_slope(coefficient) else "MB"


def _table(coefficients: tuple[Coefficient, ...]) -> list[str]:
    table = [_HEADINGS, *rows(coefficients)]
    widths = [max(len(row[i]) for row in table) for i in range(len(_HEADINGS))]
    aligned = [f"{{:<{widths[0]}}}", *(f"{{:>{width}}}" for width in widths[1:])]
    return ["  ".join(aligned).format(*row) for row in table]
