"""A regression as tables of texts and as sentences, which every kind of document formats in its own way.

The tables and sentences of the preset paper are those of Zerwas et al. 2021, section VI, with the numbers of this
dataset and of the paper.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ddnn_traces.regression.results import (
    ALPHA,
    ERRORS,
    INFLATED,
    LARGEST_LOG,
    ROBUST,
    SIZES,
    VOLUMES,
    Coefficient,
    LeftOut,
    Regression,
    TermVerdict,
    degrees,
    first_names,
    p_text,
)
from ddnn_traces.store import schema
from ddnn_traces.text import counted, digits

#: Belsley, Kuh and Welsch 1980: from here on, columns are close to depending on each other.
_COLLINEAR = 30
#: Columns of the rows that are computed from a column of runs.
_COMPUTED_FROM = {"nominal_bytes": "model_size_mb", "framework_backend": "framework"}
#: The inputs of columns that are measured.
_NEEDS = {
    "step_bytes": "training steps (train_history.log next to the captures, or --infer-steps) and packets during them",
    "worker_bytes": "step_bytes and workers",
    "step_ms": "training steps whose start is known (train_history.log with it, or --infer-steps)",
    "samples_per_s": "step_ms above 0, batch_size and workers",
    "normalised_duration": "runs without loss that are otherwise equal",
}
#: Runs that a sentence names at most.
_MOST_NAMED = 5
_MOST_DECIMALS = 8
_ANSWERS = {True: "significant", False: "not significant", None: "not tested"}
_NO_RUN_HAS = re.compile(r"no run has \w+( or \w+)*$")


@dataclass(frozen=True)
class Table:
    """A table of texts; numeric: the numbers of the columns that are aligned right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: tuple[int, ...]


class Section(NamedTuple):
    """A heading and its sentences."""

    heading: str
    sentences: list[str]


def blocks(regression: Regression, verbose: bool = False) -> list[Table | Section]:
    """All that a document prints after the summary, in order: what limits a number stands before it.

    Without `verbose` on one page for 20 runs: each coefficient and each term once, and the main diagnostics.
    """
    is_paper = regression.preset == "paper"
    found: list[Table | Section] = [Section("Read first", _limits(regression, verbose))]
    if is_paper:
        found += [
            _paper_table(regression),
            Section("In the words of Zerwas et al. 2021, section VI", [*paper_sentences(regression)]),
        ]
    if regression.coefficients:
        found.append(coefficient_table(regression, verbose))
    verdicts = [f"{verdict.term}: {verdict.sentence}" for verdict in regression.verdicts]
    found.append(Section("Terms", verdicts + ([] if regression.excluded else _supplies(regression))))
    if verbose:
        made = (term_table(regression), _nested_table(regression), _refit_table(regression))
        found += [table for table in made if table.rows]
    found.append(Section("Diagnostics", diagnosis(regression, verbose)))
    found.append(Section("Left out", _exclusions(regression, verbose)))
    return [block for block in found if isinstance(block, Table) or block.sentences]


def _limits(regression: Regression, verbose: bool) -> list[str]:
    """What limits the numbers: the notes, and coefficients that rest on single runs."""
    single = regression.single_runs
    if verbose:
        return [
            *regression.notes,
            *(f"Without {run.run_id} these could not be estimated: {', '.join(run.coefficients)}." for run in single),
        ]
    by, limit = ("cells", "it has no error and no p.") if regression.errors in ("cluster", "hc3") else ("cells", "")
    limit = limit or "a p of it supposes that these scatter as the others do."
    by = "runs" if regression.clusters == regression.runs else by
    alone = [f"{len(single)} of {regression.clusters} {by} each determine a coefficient alone: {limit}"]
    return [*regression.notes, *(alone if single else [])]


def summary(regression: Regression) -> str:
    """The number of rows and the quality of the fit, in one line."""
    count = units(regression)
    if regression.r_squared is None or regression.adj_r_squared is None:
        return count
    parts = [count, f"R2 = {regression.r_squared:.6f}", f"adjusted R2 = {regression.adj_r_squared:.6f}"]
    if regression.residual_std_error is not None:
        parts.append(f"residual standard error {_amount(regression.left, regression.residual_std_error)}")
    parts.append(f"{counted(regression.df_resid or 0, 'residual degree')} of freedom")
    if regression.correlation is not None:
        name = VOLUMES.get(regression.left, regression.left)
        parts.append(f"correlation of model size with {name} {regression.correlation:.3f}")
    return ", ".join(parts)


def units(regression: Regression) -> str:
    """The rows, runs and cells of the fit."""
    count = counted(regression.runs, "run")
    if regression.clusters:
        count += f" in {counted(regression.clusters, 'cell')}"
    return f"{counted(regression.rows, 'step')} of {count}" if regression.grain == "step" else count


def drivers(regression: Regression) -> str:
    """What drives the volume of a step, in plain words: what is established, what is not and why; the unit and n."""
    tests = {test.term: p_text(test.p_value) for test in regression.tests if test.p_value is not None}
    tests |= {term: f"{largest}, {p}" for term, p in tests.items() if (largest := _largest(regression, term))}
    by_law = regression.left == "np.log(implied_bytes)"
    beyond = " beyond it" if by_law else ""  # what topology sends by its law is no term of that fit
    starts = {True: f"has an effect{beyond}", False: f"no effect{beyond} is seen of", None: "cannot be told"}
    said: dict[bool | None, list[str]] = {answer: [] for answer in starts}
    unknown: dict[str, list[str]] = {}
    size = ""
    for verdict in regression.verdicts:
        name, tested = _plain(verdict.term), tests.get(verdict.term)
        if regression.size_column and regression.size_column in verdict.term and verdict.significant:
            size = verdict.effect
        elif verdict.significant is not None:
            said[verdict.significant].append(f"{name} ({tested})" if tested else name)
        else:
            unknown.setdefault(_why_unknown(verdict), []).append(name)
    said[None] = [f"{', '.join(names)} ({why})" for why, names in unknown.items()]
    law = "topology and the number of workers act by the collective's law" if by_law else ""
    parts = [size, law, *(f"{starts[answer]}: {', '.join(names)}" for answer, names in said.items() if names)]
    text = "; ".join(part for part in parts if part)
    return f"{text[:1].upper()}{text[1:]} (ordinary least squares over {units(regression)})."


def _why_unknown(verdict: TermVerdict) -> str:
    if verdict.depends_on:
        return f"it depends on whether {', '.join(verdict.depends_on)} counts"
    if verdict.together:
        return f"not separable from {' and '.join(_plain(term) for term in verdict.together if term != verdict.term)}"
    return "no test" if verdict.estimable else "these runs give no estimate"


def _largest(regression: Regression, term: str) -> str:
    """The largest difference of a level of a term from the reference: a small one can be significant."""
    mine = [c for c in regression.coefficients if c.term == term and "[T." in c.name and ":" not in term]
    if mine and regression.left in VOLUMES:
        return f"up to {digits(max(abs(c.estimate) for c in mine) / 1e6, 2)} MB"
    if mine and regression.left.startswith("np.log("):
        return f"up to {digits(100 * max(abs(math.expm1(c.estimate)) for c in mine), 2)}%"
    return ""


def _plain(term: str) -> str:
    """A term in words: C(batch_size) is batch size."""
    name = re.sub(r"^(?:C|np\.log)\((\w+)\)$", r"\1", term)
    return "framework and backend" if name == "framework_backend" else name.replace("_", " ").replace("bytes", "size")


def _amount(of: str, value: float) -> str:
    """A value of that left side or column, with its unit."""
    return f"{value / 1e6:,.4f} MB" if of in VOLUMES else digits(value)


# --- rows that are not in the fit


def _exclusions(regression: Regression, verbose: bool) -> list[str]:
    """Runs that are not in the fit, by reason, and the remedy; of many runs some names, with `verbose` all."""
    by_reason: dict[str, list[str]] = {}
    for run in regression.excluded:
        rows = f" ({run.rows} rows)" if regression.grain == "step" and run.rows > 1 else ""
        by_reason.setdefault(run.reason, []).append(f"{run.run_id}{rows}")
    lost = [
        f"{names[0]}: {reason}"
        if len(names) == 1
        else f"{len(names)} runs, {reason}: {', '.join(names) if verbose else first_names(names)}"
        for reason, names in by_reason.items()
    ]
    return [*lost, *_supplies(regression)] if lost else []


def _supplies(regression: Regression) -> list[str]:
    """How to supply the values that rows lack."""
    reasons = [part for run in regression.excluded for part in run.reason.split("; ") if part.endswith(" missing")]
    reasons += [verdict.sentence for verdict in regression.verdicts if _NO_RUN_HAS.search(verdict.sentence)]
    names = {_COMPUTED_FROM.get(name, name) for reason in reasons for name in re.findall(r"\w+", reason)}
    given = ", ".join(column.name for column in schema.table("runs").columns if column.name in names)
    found = (
        [f"{given} can be given in runs.csv, or in a run.toml in the run's folder; then ingest again."] if given else []
    )
    return [*found, *(f"{name} needs {inputs}." for name, inputs in _NEEDS.items() if name in names)]


# --- tables


def shown_errors(regression: Regression) -> dict[str, str]:
    """The two kinds of standard errors that are shown, that of the intervals first, with a coefficient's attribute."""
    other = ROBUST if regression.errors == "classic" else "classic"
    of_other = "std_error_classic" if other == "classic" else "std_error_robust"
    return {f"{ERRORS[regression.errors]} error": "std_error", f"{ERRORS[other]} error": of_other}


def coefficient_table(regression: Regression, verbose: bool) -> Table:
    """With the factor exp(estimate) of each level where the left side is a logarithm, and with what it depends on."""
    shown = list(shown_errors(regression).items())[: 2 if verbose else 1]
    is_logarithm = regression.left.startswith("np.log(")
    depends = any(coefficient.depends_on for coefficient in regression.coefficients)
    columns = ["coefficient", "estimate", *(["factor"] if is_logarithm else []), *(name for name, _ in shown)]
    numeric = tuple(range(1, len(columns) + 2))  # not the last one
    rows = []
    for coefficient in regression.coefficients:
        factor = [_factor(coefficient)] if is_logarithm else []
        name, estimate, *errors, interval, p = _coefficient_row(regression, coefficient, [of for _, of in shown])
        conclusion = [_conclusion(coefficient)] if depends else []
        rows.append((name, estimate, *factor, *errors, interval, p, *conclusion))
    title = f"Coefficients; intervals and p by {ERRORS[regression.errors]} errors"
    columns += ["95% interval", "p", *(["conclusion"] if depends else [])]
    return Table(title, tuple(columns), tuple(rows), numeric)


def _conclusion(coefficient: Coefficient) -> str:
    """What the test says at ALPHA, unless that changes with an attribute that the formula lacks."""
    if coefficient.depends_on:
        return f"not established: depends on {', '.join(coefficient.depends_on)}"
    return _ANSWERS[None if coefficient.p_value is None else coefficient.is_significant]


def _factor(coefficient: Coefficient) -> str:
    is_level = coefficient.name.endswith("]") and abs(coefficient.estimate) < LARGEST_LOG
    return digits(math.exp(coefficient.estimate), 4) if is_level else "-"


def _coefficient_row(regression: Regression, coefficient: Coefficient, errors: Sequence[str]) -> tuple[str, ...]:
    factor, unit = regression.readable(coefficient)
    form = f"{{:,.{_decimals(coefficient, factor)}f}}"
    low, high = coefficient.ci_low, coefficient.ci_high
    values = (getattr(coefficient, name) for name in errors)
    return (
        coefficient.name,
        f"{form.format(coefficient.estimate * factor)} {unit}".rstrip(),
        *("-" if value is None else form.format(value * factor) for value in values),
        "-" if low is None or high is None else f"[{form.format(low * factor)}, {form.format(high * factor)}]",
        _p(coefficient.p_value),
    )


def term_table(regression: Regression) -> Table:
    columns = ("term", "F", "df", "p", "conclusion", "GVIF^(1/(2 df))")
    answers = {
        verdict.term: "not established"
        if verdict.depends_on
        else "not separable"
        if verdict.together
        else _ANSWERS[verdict.significant]
        for verdict in regression.verdicts
    }
    rows = tuple(
        (
            test.term, _number(test.f, 4), f"{test.df}, {degrees(test.df_denominator)}", _p(test.p_value),
            answers[test.term] if test.df + test.untested else "not separable", _number(test.gvif_per_df, 3),
        )
        for test in regression.tests
    )  # fmt: skip
    return Table(f"Joint F-test of each term, by {ERRORS[regression.errors]} errors", columns, rows, (1, 2, 3, 5))


def _nested_table(regression: Regression) -> Table:
    columns = ("formula", "coefficients", "R2", "AIC", "BIC", "F against the whole", "p")
    title = "Nested formulas: without a term (-), and built up in order (+); AIC and BIC as in R's AIC(), classic F"
    rows = tuple(
        (
            nested.change or "the whole", str(nested.coefficients),
            f"{round(nested.r_squared, 6) + 0.0:.6f}",  # no -0.000000
            f"{nested.aic:.2f}", f"{nested.bic:.2f}", _number(nested.f, 4), _p(nested.p_value),
        )
        for nested in (regression.nested if len(regression.nested) > 1 else ())
    )  # fmt: skip
    return Table(title, columns, rows, (1, 2, 3, 4, 5, 6))


def _refit_table(regression: Regression) -> Table:
    """What changes with each attribute that the formula lacks."""
    rows = tuple(
        (refit.attribute, change.name, change.without, change.with_it)
        for refit in regression.refits
        for change in refit.changes
    )
    title = "Conclusions that change with an attribute that the formula lacks"
    return Table(title, ("attribute", "term or coefficient", "without it", "with it"), rows, ())


def _decimals(coefficient: Coefficient, factor: float) -> int:
    """Four, and more where the standard error, or without one the estimate, has fewer than two digits in them."""
    size = (coefficient.std_error_classic or abs(coefficient.estimate)) * factor
    return 4 if size == 0 else min(max(4, 1 - math.floor(math.log10(size))), _MOST_DECIMALS)


def _number(value: float | None, figures: int) -> str:
    return "-" if value is None else digits(value, figures)


def _p(value: float | None) -> str:
    return "-" if value is None else p_text(value).removeprefix("p ").removeprefix("= ")


# --- diagnostics


def diagnosis(regression: Regression, verbose: bool = True) -> list[str]:
    """Collinearity, growing scatter, influence, predictions of left-out runs; with `verbose` more of each."""
    if not regression.coefficients:
        return []
    parts = [
        list(_collinearity(regression)), list(_scatter(regression)), list(_influence(regression)),
        [sentence for found in regression.left_out for sentence in _prediction(regression, found)],
    ]  # fmt: skip
    if verbose:
        return [sentence for part in [*parts, list(_log_log(regression))] for sentence in part]
    return [part[0] for part in parts if part]


def _collinearity(regression: Regression) -> Iterator[str]:
    number = regression.condition_number
    if number is None:
        return
    inflated = [t.term for t in regression.tests if t.gvif_per_df is not None and t.gvif_per_df > INFLATED]
    verdict = f"below {_COLLINEAR}"
    if number > _COLLINEAR:
        verdict = f"above {_COLLINEAR}, where columns nearly depend on each other"
        if not inflated and all(t.gvif_per_df is not None for t in regression.tests):
            verdict = f"above {_COLLINEAR}, but no term depends on the others: only the intercept on values far from 0"
    yield f"The condition number of the columns, scaled to length 1, is {digits(number)}: {verdict}."
    if inflated:
        yield (
            f"The standard errors of {', '.join(inflated)} are more than {INFLATED:.1f} times as large as they would "
            "be with unrelated terms."
        )


def _scatter(regression: Regression) -> Iterator[str]:
    differing = [found for found in regression.group_scatter if found.p_value < ALPHA]
    if regression.group_scatter:
        parts = "; ".join(
            f"{found.term} {p_text(found.p_value)}, standard deviation {_amount(regression.left, found.least_size)} "
            f"({found.least}) to {_amount(regression.left, found.most_size)} ({found.most})"
            for found in regression.group_scatter
        )
        held = "no sign that it differs"
        if differing:
            follows = regression.errors in ("cluster", "hc3")
            held = f"it differs, which {ERRORS[regression.errors]} errors {'follow' if follows else 'do not follow'}"
        yield f"Scatter by level (Brown and Forsythe, levels of 3 rows and more): {held}. {parts}."
    p, statistic = regression.breusch_pagan_p_value, regression.breusch_pagan
    if p is None or statistic is None:
        return
    verdict = "no sign that the scatter changes with the terms"
    if p < ALPHA:
        held = "scaled" if regression.errors == "scaled" else ROBUST  # what holds, not what was chosen
        verdict = f"the scatter changes with the terms, for which {ERRORS[held]} errors hold"
    independent = ", steps assumed independent" if regression.grain == "step" else ""
    test = f"Studentized Breusch-Pagan test (Koenker{independent})"
    yield f"{test}: {digits(statistic, 4)}, {p_text(p)}: {verdict}."


def _influence(regression: Regression) -> Iterator[str]:
    runs = len(regression.influence)
    if not runs:
        return
    influential = regression.influential
    named = ", ".join(f"{run.run_id} ({digits(run.cooks_distance or 0)})" for run in influential[:_MOST_NAMED])
    if len(influential) > _MOST_NAMED:
        named += f" and {counted(len(influential) - _MOST_NAMED, 'more run')}"
    yield f"Cook's distance is above 4/{runs} = {digits(4 / runs)} for: {named or 'no run'}."
    alone = [run.run_id for run in regression.influence if run.cooks_distance is None]
    if len(alone) > 1:
        yield (
            f"It is not defined for {len(alone)} runs, each of which determines a coefficient alone: the fit passes "
            "through them whatever their values are."
        )
    elif alone:
        yield f"It is not defined for {alone[0]}, which determines a coefficient alone: the fit passes through it."


def _prediction(regression: Regression, found: LeftOut) -> Iterator[str]:
    start = f"Predicted from the other {found.by}s"
    total = found.rows + sum(run.rows for run in found.impossible)
    if found.root_mean_square is None:
        yield f"{start}: none of the {total} {regression.grain}s."
    else:
        scale = "" if found.of == regression.left else f", in {found.of}"
        share = "" if found.r_squared is None else f", predictive R2 {found.r_squared:.6g}"
        yield (
            f"{start}, {found.rows} of {total} {regression.grain}s{scale}: {_relative(found)}, root mean square "
            f"{_amount(found.of, found.root_mean_square)}{share}."
        )
    # the notes have the reason why a run cannot be predicted
    names = [run.run_id if found.by == "run" else f"{run.run_id} ({run.reason})" for run in found.impossible]
    if names:
        yield f"Not predicted without their own {found.by}: {'; '.join(names)}."


def _relative(found: LeftOut) -> str:
    if found.median_relative is not None:
        return f"median error {_percent(found.median_relative)}"
    why = "an observed value is 0" if found.of.isidentifier() else f"{found.of} cannot be inverted"
    return f"no median error ({why})"


def _percent(share: float) -> str:
    """Below a millionth it is rounding."""
    return f"{digits(100 * share)}%" if share >= 1e-6 else "0%"


def _log_log(regression: Regression) -> Iterator[str]:
    logs = regression.log_log
    if logs is None:
        return
    interval = "" if logs.ci_low is None else f" [{logs.ci_low:.4g}, {logs.ci_high:.4g}]"
    better = "less" if logs.median_relative < logs.median_relative_linear else "not less"
    yield (
        f"In logarithms ({logs.formula}) volume grows as size to the power of {logs.exponent:.4g}{interval}; predicted "
        f"from the other runs the median error of {logs.rows} {regression.grain}s is {_percent(logs.median_relative)}, "
        f"{better} than the {_percent(logs.median_relative_linear)} without logarithms."
    )


# --- the paper: Zerwas et al. 2021, section VI


class PaperRow(NamedTuple):
    """A term of equation (1), or a number of the fit: the result here, and the one that the paper prints."""

    name: str
    here: str
    paper: str


_MODEL_SIZE = "Model_Size"


def paper_rows(regression: Regression) -> list[PaperRow]:
    """One row a term of equation (1), then R2 and the correlation."""
    zero = f"insignificant at alpha = {ALPHA}; 95% confidence intervals include 0"
    terms = {
        _MODEL_SIZE: (SIZES, "significant: 5.7 MB more data a step for 1 MB more model"),
        "Framework_Backend": (("C(framework_backend)",), "significant only for KungFu PairAvg, negative"),
        "Batch_Size": (("C(batch_size)", "batch_size"), zero),
        "Comm_Topology": (("C(topology)",), zero),
    }
    rows = [PaperRow(name, _paper_term(regression, names), paper) for name, (names, paper) in terms.items()]
    r_squared = "nothing is fitted" if regression.r_squared is None else f"{regression.r_squared:.6g}"
    correlation = "not known" if regression.correlation is None else f"{regression.correlation:.3g}"
    return [*rows, PaperRow("R2", r_squared, "0.98"), PaperRow("correlation of size and data", correlation, "0.97")]


def _paper_table(regression: Regression) -> Table:
    without = f", without {_MODEL_SIZE}" if _missing_size(regression) else ""
    title, columns = f"Equation (1) of Zerwas et al. 2021{without}", ("", "this dataset", "the paper")
    return Table(title, columns, tuple(paper_rows(regression)), ())


def _paper_term(regression: Regression, names: tuple[str, ...]) -> str:
    verdict = next((verdict for verdict in regression.verdicts if verdict.term in names), None)
    if verdict is None:
        return "not in the formula"
    if not verdict.estimable or verdict.depends_on or verdict.together:
        return verdict.sentence
    result = {True: "significant", False: f"insignificant at alpha = {ALPHA}", None: "not tested"}[verdict.significant]
    if verdict.term in SIZES:
        slope = next(c for c in regression.coefficients if c.term == verdict.term)
        interval = "" if slope.ci_low is None else f" [{slope.ci_low:.4g}, {slope.ci_high:.4g}]"
        return f"{result}: {slope.estimate:.4g}{interval} MB more data a step for 1 MB more model"
    open_levels = [c for c in regression.coefficients if c.term == verdict.term and c.depends_on]
    if open_levels:
        result += f"; not established for {_levels(open_levels)}: see the terms"
    own = _tested_separately(regression, verdict.term)
    significant = [c for c in own if c.is_significant]
    if significant and verdict.significant is False:
        return f"{result} together, which one interval without 0 of {len(own)} may be by chance: {_levels(significant)}"
    if significant:
        return f"{result}; intervals without 0: {_levels(significant)}"
    includes = verdict.significant is False and own
    return f"{result}; 95% confidence intervals include 0" if includes else result


def paper_sentences(regression: Regression) -> Iterator[str]:
    """The paper's sentences with this dataset's numbers; only those that the fit supports."""
    missing = _missing_size(regression)
    if missing:
        yield (
            f"{_MODEL_SIZE}, the main regressor of equation (1), is not in this fit ({missing}): it is not the paper's "
            "equation, and its numbers are not to be compared with the paper's."
        )
    for verdict in regression.verdicts:
        if verdict.depends_on:
            yield f"{verdict.term} cannot be compared with the paper: {verdict.sentence}."
    if regression.r_squared is not None:
        yield f"The regression yields an R2 of {regression.r_squared:.6g} (the paper: 0.98)."
    zero = [v.term for v in regression.verdicts if v.significant is False]
    if zero:
        yield (
            f"{' and '.join(zero)} {'is' if len(zero) == 1 else 'are'} statistically insignificant at alpha = {ALPHA} "
            "(the paper: Batch_Size and Comm_Topology)."
        )
    yield from _backends(regression)
    yield from _slope(regression)
    if regression.correlation is not None:
        yield (
            "Correlating model size and data transmitted per step yields a correlation value of "
            f"{regression.correlation:.3g} (the paper: 0.97)."
        )


def _slope(regression: Regression) -> Iterator[str]:
    """The paper's sentence on the slope, where the verdict on the model's size supports it."""
    verdict = next((verdict for verdict in regression.verdicts if verdict.term in SIZES), None)
    if verdict is None or not verdict.significant or regression.left != "step_bytes":
        return
    slope = next(c for c in regression.coefficients if c.name == verdict.term)
    bounds = "" if slope.ci_low is None else f", 95% interval {slope.ci_low:.4g} to {slope.ci_high:.4g}"
    yield (
        f"An increase of 1 MB in model size corresponds to {slope.estimate:.4g} MB of data transmitted per step on "
        f"average{bounds} (the paper: 5.7 MB)."
    )


def _missing_size(regression: Regression) -> str | None:
    """Why the fit has no estimate for the model's size; None where it has one."""
    verdict = next((verdict for verdict in regression.verdicts if verdict.term in SIZES), None)
    if not regression.coefficients or (verdict and verdict.estimable):
        return None
    return verdict.sentence.removeprefix("cannot be estimated: ") if verdict else "not in the formula"


def _tested_separately(regression: Regression, term: str) -> list[Coefficient]:
    """The term's coefficients that have an interval, include no other term's effect, and depend on no attribute."""
    own = (coefficient for coefficient in regression.coefficients if coefficient.term == term)
    return [c for c in own if c.p_value is not None and c.told_apart and not c.depends_on]


def _backends(regression: Regression) -> list[str]:
    """The paper's sentence on frameworks, where they are significant together."""
    term = "C(framework_backend)"
    verdict = next((verdict for verdict in regression.verdicts if verdict.term == term), None)
    own = _tested_separately(regression, term)
    found = [c for c in own if c.is_significant]
    if verdict is None or not verdict.significant or not found:
        return []
    rest = "" if len(found) == len(own) else "; it is insignificant for the other configurations"
    every = [c for c in regression.coefficients if c.term == term]
    if any(not c.told_apart for c in every):
        rest += "; some configurations cannot be separated from another term"
    if any(c.depends_on for c in every):
        rest += "; of some it is not established"
    here = f"Framework_Backend is significant for {_levels(found)}{rest}"
    return [f"{here} (the paper: only for KungFu PairAvg, negative)."]


def _levels(coefficients: Sequence[Coefficient]) -> str:
    named = ((c.name.partition("[T.")[2].removesuffix("]") or c.name, c.sign) for c in coefficients)
    return ", ".join(f"{level} ({sign})" for level, sign in named)
