"""A regression as tables of words and as sentences, which every kind of document sets in its own way."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ddnn_traces.regression import paper
from ddnn_traces.regression.outcome import Regression
from ddnn_traces.regression.results import ALPHA, ERRORS, Coefficient, Excluded, LeftOut

#: Belsley, Kuh and Welsch 1980: from here on, columns are close to depending on each other.
COLLINEAR = 30
#: Of a generalized VIF: what a plain VIF of 10 is.
INFLATED = math.sqrt(10)

# Columns of the rows that a run.toml gives, and its name of them.
_IN_RUN_TOML = {
    "model_bytes": "model_bytes", "model_size_mb": "model_size_mb", "nominal_bytes": "model_size_mb",
    "framework_backend": "framework", "batch_size": "batch_size", "topology": "topology", "workers": "workers",
    "delay_ms": "delay_ms", "loss_pct": "loss_pct", "bandwidth_mbit": "bandwidth_mbit", "model": "model",
    "optimizer": "optimizer",
}  # fmt: skip
# And those that it does not.
_NEEDS = {
    "step_bytes": "training steps (train_history.log beside the captures) and packets during them",
    "step_ms": "training steps (train_history.log) whose begin is logged",
    "samples_per_s": "step_ms above 0, batch_size and workers",
    "normalised_duration": "runs without loss that are otherwise equal",
}
_NO_RUN_HAS = re.compile(r"no run has \w+( or \w+)*$")


@dataclass(frozen=True)
class Table:
    """A table of texts; numeric: the numbers of the columns that are set right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...]


def tables(regression: Regression) -> list[Table]:
    """All tables of a regression, those of the preset first; none where nothing is fitted."""
    found = [_paper_table(regression)] if regression.preset == "paper" else []
    if regression.coefficients:
        found.append(_coefficient_table(regression))
    if regression.tests:
        found.append(_term_table(regression))
    if len(regression.nested) > 1:
        found.append(_nested_table(regression))
    return found


def summary(regression: Regression) -> str:
    """What was fitted to how much, and how well, in one line."""
    count = (
        f"{regression.rows} steps of {regression.runs} runs"
        if regression.grain == "step"
        else f"{regression.rows} runs"
    )
    if regression.r_squared is None or regression.adj_r_squared is None:
        return count
    parts = [count, f"R2 = {regression.r_squared:.6f}", f"adjusted R2 = {regression.adj_r_squared:.6f}"]
    if regression.residual_std_error is not None:
        parts.append(f"residual standard error {amount(regression.left, regression.residual_std_error)}")
    parts.append(f"{regression.df_resid} residual degrees of freedom")
    return ", ".join(parts)


def amount(of: str, value: float) -> str:
    """A value of that left side or column, with its unit."""
    return f"{value / 1e6:,.4f} MB" if of == "step_bytes" else f"{value:.6g}"


def chapters(regression: Regression) -> list[tuple[str, list[str]]]:
    """Headings with their sentences: on each term, on whether the fit may be believed, on what is not in it."""
    verdicts = [f"{verdict.term}: {verdict.sentence}" for verdict in regression.verdicts]
    verdicts += [] if regression.excluded else _supplies(regression)
    said = paper.sentences(regression) if regression.preset == "paper" else []
    found = [
        ("In the words of Zerwas et al. 2021, section VI", said),
        ("Terms", verdicts),
        ("Notes", list(regression.notes)),
        ("May it be believed", diagnosis(regression)),
        ("Left out", exclusions(regression)),
    ]
    return [(heading, sentences) for heading, sentences in found if sentences]


def exclusions(regression: Regression) -> list[str]:
    """Runs that are not in the fit, with the reason and what to do."""
    lost = [f"{run.run_id}: {run.reason}{_steps(regression, run)}" for run in regression.excluded]
    return [*lost, *_supplies(regression)] if lost else []


def _supplies(regression: Regression) -> list[str]:
    """Where what rows lack would come from."""
    said = [part.removesuffix(" missing") for run in regression.excluded for part in run.reason.split("; ")
            if part.endswith(" missing")]  # fmt: skip
    said += [verdict.sentence for verdict in regression.verdicts if _NO_RUN_HAS.search(verdict.sentence)]
    names = {name for part in said for name in re.findall(r"\w+", part)}
    given = ", ".join(dict.fromkeys(entry for name, entry in _IN_RUN_TOML.items() if name in names))
    found = [f"{given} can be given in a run.toml in the run's folder; then ingest it again."] if given else []
    return [*found, *(f"{name} needs {what}." for name, what in _NEEDS.items() if name in names)]


def _steps(regression: Regression, run: Excluded) -> str:
    return f" ({run.rows} rows)" if regression.grain == "step" and run.rows > 1 else ""


# Tables.


def _paper_table(regression: Regression) -> Table:
    rows = tuple((row.name, row.here, row.paper) for row in paper.table(regression))
    without = f", without {paper.SIZE}" if paper.missing_size(regression) else ""
    return Table(f"Equation (1) of Zerwas et al. 2021{without}", ("", "this dataset", "the paper"), rows, ())


def shown_errors(regression: Regression) -> dict[str, str]:
    """The two kinds of standard errors that are shown, that of the intervals first, with a coefficient's attribute."""
    other = regression.robust if regression.errors == "classic" else "classic"
    of_other = "std_error_classic" if other == "classic" else "std_error_robust"
    return {f"{ERRORS[regression.errors]} error": "std_error", f"{ERRORS[other]} error": of_other}


def _coefficient_table(regression: Regression) -> Table:
    columns = ("coefficient", "estimate", *shown_errors(regression), "95% interval", "p")
    rows = tuple(_coefficient_row(regression, coefficient) for coefficient in regression.coefficients)
    title = f"Coefficients, standard errors; intervals and p by {ERRORS[regression.errors]} errors"
    return Table(title, columns, rows, (1, 2, 3, 4, 5))


def _coefficient_row(regression: Regression, coefficient: Coefficient) -> tuple[str, ...]:
    factor, unit = regression.readable(coefficient)
    # four decimals, where they show something
    size = max(abs(coefficient.estimate), coefficient.std_error_classic or 0) * factor
    form = "{:,.4f}" if 1e-3 <= size < 1e6 else "{:.6g}"
    low, high, p = coefficient.ci_low, coefficient.ci_high, coefficient.p_value
    return (
        coefficient.name,
        f"{form.format(coefficient.estimate * factor)} {unit}".rstrip(),
        *(
            "-" if error is None else form.format(error * factor)
            for error in (getattr(coefficient, name) for name in shown_errors(regression).values())
        ),
        "-" if low is None or high is None else f"[{form.format(low * factor)}, {form.format(high * factor)}]",
        _p(p),
    )


def _term_table(regression: Regression) -> Table:
    columns = ("term", "F", "df", "p", "significant", "GVIF^(1/(2 df))")
    found = {verdict.term: verdict.significant for verdict in regression.verdicts}
    rows = tuple(
        (
            test.term,
            "-" if test.f is None else f"{test.f:.4g}",
            f"{test.df}, {test.df_denominator}",
            _p(test.p_value),
            {True: "yes", False: "no", None: "not tested"}[found[test.term]] if test.df else "not told apart",
            "-" if test.gvif_per_df is None else f"{test.gvif_per_df:.3g}",
        )
        for test in regression.tests
    )
    return Table(f"Joint F-test of each term, by {ERRORS[regression.errors]} errors", columns, rows, (1, 2, 3, 5))


def _nested_table(regression: Regression) -> Table:
    columns = ("formula", "coefficients", "R2", "AIC", "BIC", "F against the whole", "p")
    rows = tuple(
        (
            nested.change or "the whole",
            str(nested.coefficients),
            f"{round(nested.r_squared, 6) + 0.0:.6f}",  # no -0.000000
            f"{nested.aic:.2f}",
            f"{nested.bic:.2f}",
            "-" if nested.f is None else f"{nested.f:.4g}",
            _p(nested.p_value),
        )
        for nested in regression.nested
    )
    title = "Nested formulas: a term less (-), and built up in order (+); AIC and BIC as in R's AIC(), classic F"
    return Table(title, columns, rows, (1, 2, 3, 4, 5, 6))


def _p(value: float | None) -> str:
    return "-" if value is None else "< 1e-300" if value < 1e-300 else f"{value:.3g}"


# Sentences.


def diagnosis(regression: Regression) -> list[str]:
    """Collinearity, growing scatter, influence, predictions of left-out runs, logarithms; a sentence or two each."""
    if not regression.coefficients:
        return []
    return [
        *_collinearity(regression),
        *_scatter(regression),
        *_influence(regression),
        *(sentence for found in regression.left_out for sentence in _prediction(regression, found)),
        *_log_log(regression),
    ]


def _collinearity(regression: Regression) -> list[str]:
    number = regression.condition_number
    if number is None:
        return []
    verdict = (
        f"above {COLLINEAR}, where columns nearly depend on each other" if number > COLLINEAR else f"below {COLLINEAR}"
    )
    said = [f"The condition number of the columns, scaled to length 1, is {number:.3g}: {verdict}."]
    inflated = [t.term for t in regression.tests if t.gvif_per_df is not None and t.gvif_per_df > INFLATED]
    if inflated:
        said.append(
            f"The standard errors of {', '.join(inflated)} are more than {INFLATED:.1f} times what they would be "
            "beside unrelated terms."
        )
    return said


def _scatter(regression: Regression) -> list[str]:
    p = regression.breusch_pagan_p_value
    if p is None or regression.breusch_pagan is None:
        return []
    verdict = (
        f"the scatter changes with the terms, so go by the {ERRORS[regression.robust]} errors"
        if p < ALPHA
        else "no sign that the scatter changes with the terms"
    )
    taken = ", steps taken as independent" if regression.grain == "step" else ""
    test = f"Studentized Breusch-Pagan test (Koenker{taken})"
    return [f"{test}: {regression.breusch_pagan:.4g}, p = {p:.3g}: {verdict}."]


def _influence(regression: Regression) -> list[str]:
    if not regression.influence:
        return []
    bound = 4 / len(regression.influence)
    named = ", ".join(f"{run.run_id} ({run.cooks_distance:.3g})" for run in regression.influential)
    said = [f"Cook's distance is above 4/{len(regression.influence)} = {bound:.3g} for: {named or 'no run'}."]
    alone = [run.run_id for run in regression.influence if run.cooks_distance is None]
    if alone:
        said.append(
            f"It is not defined for {len(alone)} runs that settle a coefficient alone (named in the notes): the fit "
            "goes through them whatever they are."
            if len(alone) > 1
            else f"It is not defined for {alone[0]}, which settles a coefficient alone: the fit goes through it."
        )
    return said


def _prediction(regression: Regression, found: LeftOut) -> list[str]:
    what = "run" if found.by == "run" else "model"
    rows = "steps" if regression.grain == "step" else "runs"
    total = found.rows + sum(run.rows for run in found.impossible)
    if found.root_mean_square is None:
        said = [f"Predicted from the other {what}s: none of the {total} {rows}."]
    else:
        scale = "" if found.of == regression.left else f", in {found.of}"
        relative = f"{_relative(found)}, "
        share = "" if found.r_squared is None else f", predictive R2 {found.r_squared:.6g}"
        said = [
            f"Predicted from the other {what}s, {found.rows} of {total} {rows}{scale}: {relative}root mean square "
            f"{amount(found.of, found.root_mean_square)}{share}."
        ]
    # why a run cannot be predicted is in the notes
    names = [run.run_id if found.by == "run" else f"{run.run_id} ({run.reason})" for run in found.impossible]
    return [*said, f"Not without their own {what}: {'; '.join(names)}."] if names else said


def _relative(found: LeftOut) -> str:
    if found.median_relative is not None:
        return f"median error {_percent(found.median_relative)}"
    why = "0 is among what is observed" if found.of.isidentifier() else f"{found.of} cannot be undone"
    return f"no median error ({why})"


def _percent(share: float) -> str:
    """Below a millionth it is rounding."""
    return f"{100 * share:.3g}%" if share >= 1e-6 else "0%"


def _log_log(regression: Regression) -> list[str]:
    logs = regression.log_log
    if logs is None:
        return []
    interval = "" if logs.ci_low is None else f" [{logs.ci_low:.4g}, {logs.ci_high:.4g}]"
    better = "less" if logs.median_relative < logs.median_relative_linear else "not less"
    return [
        f"In logarithms ({logs.formula}) volume grows as size to the power of {logs.exponent:.4g}{interval}; predicted "
        f"from the other runs the median error of {logs.rows} {'steps' if regression.grain == 'step' else 'runs'} is "
        f"{_percent(logs.median_relative)}, {better} than the {_percent(logs.median_relative_linear)} without "
        "logarithms."
    ]


def column_widths(table: Table) -> Sequence[int]:
    """Of each column, the length of its longest text."""
    return [max(len(row[i]) for row in (table.columns, *table.rows)) for i in range(len(table.columns))]
