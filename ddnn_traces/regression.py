"""What drives the data of a training step: equation (1) of Zerwas et al. 2021, section VI, fitted by OLS.

One row is a run. Whatever the runs cannot tell is left out and named, with the reason: a constant column, levels
that always occur together, more coefficients than runs.
"""

# statsmodels (with scipy and pandas), patsy, numpy and polars are imported inside the functions that use them:
# together they take longer than the 0.3 s in which `ddnn-traces --help` must answer.
from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import RegressionError
from ddnn_traces.formula import DEFAULT_FORMULA, Formula, column_names, parse

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    Vector = np.ndarray[Any, np.dtype[np.float64]]

ALPHA = 0.05
MIN_RUNS = 3
INTERCEPT = "Intercept"

# Of a column scaled to length 1, what must be left after the columns before it are projected out. Rounding leaves
# 1e-15; the nearly collinear Longley data leaves 1e-5.
INDEPENDENT = 1e-9
# Residuals below this share of the response are rounding, and a test against rounding means nothing.
ROUNDING = 1e-12


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


def fit(rows: pl.DataFrame, formula: str = DEFAULT_FORMULA) -> Regression:
    """Fit `formula` to `rows`, one row a run (Zerwas et al. 2021, section VI, equation 1).

    `rows` has run_id, step_bytes (mean wire bytes of a training step), model_bytes, model_size_mb,
    framework_backend, batch_size and topology, null where unknown; the formula may use any further column too, and
    `model_size` [bytes], which is made here. Runs that lack a value are excluded and named.

    Raises RegressionError for a formula that names no column, is more than a formula, or cannot be evaluated.
    """
    parsed = parse(formula, {*rows.columns, "model_size"})
    if parsed.left_names != {"step_bytes"}:
        raise RegressionError(f"The left side of the formula must be step_bytes or a function of it: {formula}")
    sized, source = _with_model_size(rows, parsed.names - {"model_size"})
    usable, excluded = _split_missing(sized, parsed.names, source)
    obstacle = _obstacle(usable)
    outcome = OlsFit(notes=(obstacle,)) if obstacle else ols(usable, formula)
    correlation, sentences = _correlation(usable)
    return Regression(
        formula=formula,
        rows=usable.height,
        r_squared=outcome.r_squared,
        adj_r_squared=outcome.adj_r_squared,
        df_resid=outcome.df_resid,
        coefficients=outcome.coefficients,
        verdicts=outcome.verdicts,
        correlation=correlation,
        model_size_source=source,
        excluded=excluded,
        notes=(*outcome.notes, *sentences),
        fitted=_fitted_frame(usable, outcome),
    )


def ols(frame: pl.DataFrame, formula: str) -> OlsFit:
    """Fit `formula` to a frame that has `run_id` and no missing value in the formula's columns.

    Columns that the rows cannot tell apart from those before them, in formula order, are dropped and named in the
    term's verdict, and so are terms at the end for which there are too few rows. Raises RegressionError.
    """
    design = _design(frame, parse(formula, frame.columns))
    if _is_constant(design.response):
        return OlsFit(notes=(f"Nothing is fitted: every run has the same {design.left}.",))
    constant = _constant_terms(design, frame)
    crowded = _crowded_terms(design, constant)
    kept, aliases = _split_aliased([c for c in design.columns if c.term not in {*constant, *crowded}])
    aliased = {
        term.name: "; ".join(_alias_sentence(a, design, frame) for a in aliases if a.column.term == term.name)
        for term in design.terms
    }
    fitted_terms = {column.term for column in kept} - {INTERCEPT}
    lost = {
        name: TermVerdict(name, False, None, f"cannot be estimated: {reason}")
        for name, reason in {**aliased, **constant, **crowded}.items()
        if name not in fitted_terms
    }
    if not fitted_terms:
        note = "Nothing is fitted: no term of the formula can be estimated."
        return OlsFit(verdicts=tuple(lost.values()), notes=(note,))

    estimate = _estimate(design.response, kept)
    verdicts = tuple(
        lost.get(term.name) or _verdict(term, design, estimate.coefficients, aliased[term.name])
        for term in design.terms
    )
    resting = _resting_on_one_run(kept, frame["run_id"].to_list())
    notes = (*_fit_notes(design, crowded, aliases), *estimate.notes, *resting)
    return replace(estimate, verdicts=verdicts, notes=notes)


# The rows.


def _with_model_size(rows: pl.DataFrame, other_names: Iterable[str]) -> tuple[pl.DataFrame, str]:
    """Add `model_size` [bytes], from the one column that keeps most of the otherwise usable runs.

    The two are never mixed: the nominal size in MB is rounded and may count more than what is exchanged.
    """
    import polars as pl

    clean = _clean_numbers(rows)
    usable = clean.drop_nulls([name for name in other_names if name in clean.columns])
    sources = {"model_bytes": 1.0, "model_size_mb": 1e6}
    there = [name for name in sources if name in clean.columns]
    if not there:
        return clean.with_columns(model_size=pl.lit(None, pl.Float64)), "model_bytes"
    # max() takes the first of equals, and model_bytes, what is really exchanged, stands first
    source = max(there, key=lambda name: usable[name].count())
    return clean.with_columns(model_size=pl.col(source).cast(pl.Float64) * sources[source]), source


def _clean_numbers(rows: pl.DataFrame) -> pl.DataFrame:
    import polars as pl
    import polars.selectors as cs

    # DuckDB answers some sums as decimals
    return rows.with_columns((cs.float() | cs.decimal()).cast(pl.Float64).fill_nan(None))


def _split_missing(rows: pl.DataFrame, names: Iterable[str], source: str) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """The rows with a value in every one of `names`, and the others with what they lack."""
    used = sorted(names)
    excluded = tuple(
        Excluded(str(row["run_id"]), _missing_reason([n for n in used if row[n] is None], source))
        for row in rows.iter_rows(named=True)
        if any(row[name] is None for name in used)
    )
    return rows.drop_nulls(used), excluded


def _missing_reason(names: Sequence[str], source: str) -> str:
    columns = [source if name == "model_size" else name for name in names]
    return f"{', '.join(columns)} {'is' if len(columns) == 1 else 'are'} missing"


def _obstacle(rows: pl.DataFrame) -> str | None:
    """Why nothing can be fitted to `rows` at all, as a sentence; None where something can."""
    if rows.height < MIN_RUNS:
        return f"Nothing is fitted: {rows.height} usable runs, and at least {MIN_RUNS} are needed."
    return None


def _correlation(rows: pl.DataFrame) -> tuple[float | None, list[str]]:
    """Pearson's correlation of model size with data a step (Zerwas section VI: 0.97), and its sentence."""
    import numpy as np

    pairs = rows.select("model_size", "step_bytes").drop_nulls().to_numpy()
    if len(pairs) < MIN_RUNS or any(_is_constant(column) for column in pairs.T):
        return None, []
    value = float(np.corrcoef(pairs.T)[0, 1])
    return value, [f"correlation of model size with data a step: {value:.3f} over {len(pairs)} runs"]


def _fitted_frame(rows: pl.DataFrame, outcome: OlsFit) -> pl.DataFrame:
    import polars as pl

    values = pl.Series("fitted", outcome.fitted or [None] * rows.height, dtype=pl.Float64)
    return rows.select("run_id", "step_bytes", "model_size", values)


def _is_constant(values: Vector) -> bool:
    """Whether all values are the same to within rounding."""
    return bool(values.max() - values.min() <= ROUNDING * abs(values).max())


# The design: the columns of numbers that a formula makes of the rows.


@dataclass(frozen=True)
class _Term:
    """A term of the formula. reference: the level that the others are compared with, `topology = ring`."""

    name: str
    variables: tuple[str, ...]
    categorical: bool
    reference: str | None


@dataclass(frozen=True)
class _Column:
    """A column of the design, named as in `C(topology)[T.star]` and labelled `topology = star`."""

    name: str
    term: str
    label: str
    values: Vector


@dataclass(frozen=True)
class _Design:
    left: str
    response: Vector
    terms: tuple[_Term, ...]
    columns: tuple[_Column, ...]

    def term(self, name: str) -> _Term:
        return next(term for term in self.terms if term.name == name)


def _design(frame: pl.DataFrame, formula: Formula) -> _Design:
    """Evaluate `formula` with patsy, the terms in formula order. Raises RegressionError."""
    import numpy as np
    import patsy  # type: ignore[import-untyped]

    data = {name: _values(frame, name, name in formula.numeric_names) for name in formula.names}
    try:
        with np.errstate(all="ignore"):
            left, right = patsy.dmatrices(
                formula.text,
                data,
                eval_env=patsy.EvalEnvironment([{"np": np}]),
                NA_action=patsy.NAAction(on_NA="raise"),
            )
    except (patsy.PatsyError, SyntaxError) as error:
        reason = getattr(error, "message", "invalid syntax")
        raise RegressionError(f"The formula {formula.text} cannot be evaluated: {reason}") from error
    if left.shape[1] != 1:
        raise RegressionError(f"The left side of the formula must be one number a run: {formula.text}")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise RegressionError(f"The formula {formula.text} is infinite for some run; look for a logarithm of 0")
    info = right.design_info
    # patsy puts the categorical terms first; the formula's order decides which of two aliased terms stays
    order = [term.name() for term in patsy.ModelDesc.from_formula(formula.text).rhs_termlist]
    by_name = sorted(zip(info.term_names, info.terms, strict=True), key=lambda pair: order.index(pair[0]))
    return _Design(
        left=formula.left,
        response=np.asarray(left)[:, 0],
        terms=tuple(_term(name, term, info) for name, term in by_name if name != INTERCEPT),
        columns=tuple(column for _, term in by_name for column in _columns(term, right)),
    )


def _values(frame: pl.DataFrame, name: str, numeric: bool) -> Any:
    """A column for patsy. Whole numbers that are calculated with become floats, for int64 overflows silently."""
    import pandas as pd
    import polars as pl

    column = frame[name]
    if column.dtype.is_integer():
        return column.cast(pl.Float64 if numeric else pl.Int64).to_numpy()
    if column.dtype.is_numeric():
        return column.cast(pl.Float64).to_numpy()
    # patsy compares with the first category: the most frequent one says more than the first in the alphabet
    texts = column.cast(pl.String)
    counts = Counter(texts.sort().to_list())
    return pd.Categorical(texts.to_list(), categories=[text for text, _ in counts.most_common()])


def _term(name: str, term: Any, info: Any) -> _Term:
    variables = {v: None for factor in term.factors for v in sorted(column_names(ast.parse(factor.code)))}
    infos = [info.factor_infos[factor] for factor in term.factors]
    categorical = any(i.type == "categorical" for i in infos)
    columns = info.term_name_slices[name]
    reference = None
    if categorical and len(infos) == 1 and columns.stop - columns.start == len(infos[0].categories) - 1:
        reference = f"{_bare(term.factors[0].name())} = {infos[0].categories[0]}"
    return _Term(name, tuple(variables), categorical, reference)


def _columns(term: Any, matrix: Any) -> list[_Column]:
    import numpy as np

    factors = [factor.name() for factor in term.factors]
    # numpy 2 writes a level as np.int64(64), and patsy takes that for its name
    names = [re.sub(r"np\.\w+\(([^()]*)\)(?=\])", r"\1", name) for name in matrix.design_info.column_names]
    numbers = range(*matrix.design_info.term_name_slices[term.name()].indices(len(names)))
    values = np.asarray(matrix)
    return [_Column(names[i], term.name(), _label(names[i], factors), values[:, i]) for i in numbers]


def _label(column: str, factors: Sequence[str]) -> str:
    """`C(topology)[T.star]` as `topology = star`; a column of numbers is its own label."""
    pattern = ":".join(rf"{re.escape(factor)}(?:\[(?:T\.)?(.*)\])?" for factor in factors)
    match = re.fullmatch(pattern, column, re.DOTALL)
    if not factors or match is None:
        return column
    return " and ".join(
        factor if level is None else f"{_bare(factor)} = {level}"
        for factor, level in zip(factors, match.groups(), strict=True)
    )


def _bare(factor: str) -> str:
    return factor.removeprefix("C(").removesuffix(")") if factor.startswith("C(") else factor


# What the rows can tell.


def _constant_terms(design: _Design, frame: pl.DataFrame) -> dict[str, str]:
    """The terms that have one value in all runs, with that value as the reason."""
    has_intercept = any(column.term == INTERCEPT for column in design.columns)
    reasons = {}
    for term in design.terms:
        constant = [name for name in term.variables if frame[name].n_unique() == 1]
        has_columns = any(column.term == term.name for column in design.columns)
        # without an intercept a constant column takes its place, and can be estimated
        if not has_columns or (has_intercept and len(constant) == len(term.variables)):
            values = " and ".join(f"{name} = {frame[name][0]}" for name in constant)
            reasons[term.name] = f"every run has {values}" if values else "the terms before it say the same"
    return reasons


def _crowded_terms(design: _Design, gone: Mapping[str, str]) -> dict[str, str]:
    """Terms to drop, from the formula's end, until a residual degree of freedom is left.

    A fit with as many coefficients as runs goes through every run: it has R² 1 and no standard errors.
    """
    runs = len(design.response)
    terms = [term.name for term in design.terms if term.name not in gone]
    reasons = {}
    while terms:
        columns = [c for c in design.columns if c.term == INTERCEPT or c.term in terms]
        if len(_split_aliased(columns)[0]) < runs:
            break
        reasons[terms.pop()] = f"{runs} runs for {len(columns)} coefficients"
    return reasons


@dataclass(frozen=True)
class _Alias:
    """A column that is a linear combination of `carriers`, which stand before it."""

    column: _Column
    carriers: tuple[_Column, ...]


def _split_aliased(columns: Sequence[_Column]) -> tuple[list[_Column], list[_Alias]]:
    """Walk through the columns and keep each that says something new (Gram-Schmidt on columns of length 1).

    The scaling matters: beside model sizes of 1e9 bytes, the ones of a level would pass for rounding.
    """
    import numpy as np

    kept: list[_Column] = []
    aliases: list[_Alias] = []
    basis = np.empty((len(columns[0].values) if columns else 0, 0))
    for column in columns:
        rest = _unit(column.values)
        for _ in range(2):  # once leaves rounding of the projected part, twice is enough
            rest = rest - basis @ (basis.T @ rest)
        size = np.linalg.norm(rest)
        if size > INDEPENDENT:
            basis = np.column_stack([basis, rest / size])
            kept.append(column)
        else:
            aliases.append(_Alias(column, _carriers(column, kept)))
    return kept, aliases


def _unit(values: Vector) -> Vector:
    import numpy as np

    norm = np.linalg.norm(values)
    return values / norm if norm > 0 else values


def _carriers(column: _Column, kept: Sequence[_Column]) -> tuple[_Column, ...]:
    import numpy as np

    if not kept:
        return ()
    weights = np.linalg.lstsq(np.column_stack([_unit(k.values) for k in kept]), _unit(column.values), rcond=None)[0]
    return tuple(k for k, weight in zip(kept, weights, strict=True) if abs(weight) > 1e-6)


def _alias_sentence(alias: _Alias, design: _Design, frame: pl.DataFrame) -> str:
    """Say what a dropped column cannot be told apart from."""
    label = alias.column.label
    if not alias.column.values.any():
        return f"no run has {label}"
    together = _always_together(alias, design, frame)
    if together:
        return f"{label} cannot be told apart from {together}: they always occur together"
    others = [c.label for c in alias.carriers if c.term != INTERCEPT] or ["the intercept"]
    return f"{label} cannot be told apart from {'' if len(others) == 1 else 'a combination of '}{', '.join(others)}"


def _always_together(alias: _Alias, design: _Design, frame: pl.DataFrame) -> str | None:
    """The levels of one earlier term that stand in the same runs as a dropped level, and in no others."""
    carriers = {column.term for column in alias.carriers} - {INTERCEPT}
    if len(carriers) != 1 or not design.term(alias.column.term).categorical:
        return None
    carrier = design.term(carriers.pop())
    if not carrier.categorical or len(carrier.variables) != 1:
        return None
    here = alias.column.values != 0
    values = frame[carrier.variables[0]].to_list()
    levels = {value for value, is_here in zip(values, here, strict=True) if is_here}
    if any((value in levels) != is_here for value, is_here in zip(values, here, strict=True)):
        return None
    return f"{carrier.variables[0]} = {' or '.join(str(level) for level in sorted(levels))}"


def _resting_on_one_run(columns: Sequence[_Column], run_ids: Sequence[str]) -> list[str]:
    """A sentence for each run without which some coefficients could not be estimated, with their labels.

    Such a run has leverage 1: the fit goes through it whatever its value. Without it the column of the
    pseudo-inverse that belongs to it would be a direction in which the coefficients are free.
    """
    import numpy as np

    matrix = np.column_stack([_unit(column.values) for column in columns])
    inverse = np.linalg.pinv(matrix)
    leverage = np.sum(matrix * inverse.T, axis=1)
    sentences = []
    for i in np.flatnonzero(leverage > 1 - 1e-8):
        free = abs(inverse[:, i]) > 1e-6 * abs(inverse[:, i]).max()
        labels = [column.label for column, is_free in zip(columns, free, strict=True) if is_free]
        sentences.append(f"Without {run_ids[int(i)]} these could not be estimated: {', '.join(labels)}.")
    return sentences


# The fit and its words.


def _estimate(response: Vector, columns: Sequence[_Column]) -> OlsFit:
    """OLS by statsmodels on independent columns, with at least one residual degree of freedom.

    By the pseudo-inverse: statsmodels' QR squares the condition number in the standard errors.
    """
    import numpy as np
    from statsmodels.regression.linear_model import OLS

    matrix = np.column_stack([column.values for column in columns])
    scale = np.sqrt(np.mean(matrix**2, axis=0))  # bytes beside dummies would cost digits
    result = OLS(response, matrix / scale).fit()
    is_exact = np.sqrt(result.ssr) <= ROUNDING * np.linalg.norm(response)
    # where the fit is exact, what is rounding in the response is rounding in its parts: report 0, not 1e-7 bytes
    is_zero = is_exact & (abs(result.params) <= ROUNDING * np.linalg.norm(response))
    estimates = np.where(is_zero, 0.0, result.params / scale)
    intervals = result.conf_int(ALPHA) / scale[:, None]
    coefficients = tuple(
        Coefficient(c.name, c.term, float(b), None, None, None)
        if is_exact
        else Coefficient(c.name, c.term, float(b), float(low), float(high), float(p))
        for c, b, (low, high), p in zip(columns, estimates, intervals, result.pvalues, strict=True)
    )
    notes = []
    if is_exact:
        notes.append("Every run lies on the fit to within rounding: there is no scatter to test an estimate against.")
    if not result.k_constant:
        notes.append("Without an intercept R² is the share of the squares about 0, not about the mean.")
    return OlsFit(
        coefficients=coefficients,
        notes=tuple(notes),
        r_squared=float(result.rsquared),
        adj_r_squared=float(result.rsquared_adj),
        df_resid=int(result.df_resid),
        fitted=tuple(float(value) for value in result.fittedvalues),
    )


def _fit_notes(design: _Design, crowded: Iterable[str], aliases: Sequence[_Alias]) -> list[str]:
    """What a reader must know before reading an estimate."""
    notes = []
    if design.left != "step_bytes":
        notes.append(f"Estimates and fitted values are of {design.left}.")
    if crowded:
        notes.append(f"Left out for lack of runs: {', '.join(crowded)}; the other estimates hold their effects.")
    for alias in aliases:
        terms = dict.fromkeys(c.term for c in alias.carriers if c.term != INTERCEPT)
        if terms:
            notes.append(f"The estimates of {', '.join(terms)} hold the effect of {alias.column.label} too.")
    return notes


def _verdict(
    term: _Term,
    design: _Design,
    coefficients: Sequence[Coefficient],
    aliased: str,
) -> TermVerdict:
    """The verdict on a term that has at least one coefficient, in the words of Zerwas et al., section VI."""
    own = [c for c in coefficients if c.term == term.name]
    significant = None if own[0].p_value is None else any(_is_significant(c) for c in own)
    if significant is False:
        sentence = _insignificant(term)
    elif term.categorical:
        sentence = _levels_sentence(term, own, design, bool(aliased))
    else:
        sentence = _slope_sentence(term, own[0], design)
    return TermVerdict(term.name, True, significant, "; ".join(part for part in (sentence, aliased) if part))


def _is_significant(coefficient: Coefficient) -> bool:
    """Whether the 95% confidence interval leaves out 0."""
    return coefficient.p_value is not None and coefficient.p_value < ALPHA


def _insignificant(term: _Term) -> str:
    intervals = "intervals of {} include 0" if term.categorical else "interval of {} includes 0"
    return f"95% confidence {intervals.format(term.name)}: statistically insignificant at alpha = {ALPHA}"


UNTESTED = "not tested: every run lies on the fit to within rounding"


def _levels_sentence(term: _Term, own: Sequence[Coefficient], design: _Design, has_aliased: bool) -> str:
    if own[0].p_value is None:
        return f"estimated, but {UNTESTED}"
    labels = {column.name: column.label for column in design.columns}
    against = f" against {term.reference}" if term.reference is not None else ""
    if has_aliased:
        # the levels dropped as aliased have joined the reference
        against = " against the levels without an estimate"
    found = [c for c in own if _is_significant(c)]
    named = ", ".join(f"{labels[c.name]} ({'positive' if c.estimate > 0 else 'negative'})" for c in found)
    rest = "; the intervals of the other levels include 0" if len(found) < len(own) else ""
    return f"significant at alpha = {ALPHA}{against}: {named}{rest}"


def _slope_sentence(term: _Term, slope: Coefficient, design: _Design) -> str:
    is_plain = (
        term.name == "model_size"
        and design.left == "step_bytes"
        and sum("model_size" in t.variables for t in design.terms) == 1  # else there is no one slope of model size
    )
    sign = -1 if is_plain and slope.estimate < 0 else 1
    number = f"{sign * slope.estimate:.4g}"
    bounds = sorted(sign * bound for bound in (slope.ci_low, slope.ci_high) if bound is not None)
    interval = f" [{bounds[0]:.4g}, {bounds[1]:.4g}]" if bounds else ""
    if is_plain:
        more = "more" if sign > 0 else "less"
        change = f"an increase of 1 MB in model size goes with {number} MB{interval} {more} data a step"
        return f"significant: {change}" if bounds else f"{change}; {UNTESTED}"
    change = f"{number}{interval} of {design.left} for each 1 of {term.name}"
    return f"significant at alpha = {ALPHA}: {change}" if bounds else f"{change}; {UNTESTED}"
