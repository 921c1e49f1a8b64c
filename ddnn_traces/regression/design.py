"""The design: the columns of numbers that a formula makes of the rows."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression.formula import Formula, column_names
from ddnn_traces.regression.results import Excluded
from ddnn_traces.regression.rows import RUN

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    Vector = np.ndarray[Any, np.dtype[np.float64]]

INTERCEPT = "Intercept"
# Differences below this share of the values are rounding, and a test against rounding means nothing.
ROUNDING = 1e-12
# Of a column scaled to length 1, what must be left after the columns before it are projected out. Rounding leaves
# 1e-15; the nearly collinear Longley data leaves 1e-5.
INDEPENDENT = 1e-9
# Largest values of a column, between which sums of squares neither vanish nor overflow.
_SQUARABLE = (1e-140, 1e140)


@dataclass(frozen=True)
class Term:
    """A term of the formula. reference: the level that the others are compared with, `topology = ring`."""

    name: str
    variables: tuple[str, ...]
    categorical: bool
    reference: str | None


@dataclass(frozen=True)
class Column:
    """A column of the design, named as in `C(topology)[T.star]` and labelled `topology = star`.

    place: its number among the columns that patsy makes.
    """

    name: str
    term: str
    label: str
    values: Vector
    place: int


@dataclass(frozen=True)
class Design:
    """The left side and the columns of the right side, in formula order; info is patsy's DesignInfo of the right."""

    formula: Formula
    response: Vector
    terms: tuple[Term, ...]
    columns: tuple[Column, ...]
    info: Any

    @property
    def left(self) -> str:
        return self.formula.left

    @property
    def has_intercept(self) -> bool:
        return any(column.term == INTERCEPT for column in self.columns)

    def term(self, name: str) -> Term:
        return next(term for term in self.terms if term.name == name)


def make_design(frame: pl.DataFrame, formula: Formula) -> Design:
    """Evaluate `formula` with patsy, the terms in formula order. Raises RegressionError."""
    import numpy as np
    import patsy  # type: ignore[import-untyped]

    data = _data(frame, formula, formula.names)
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
        raise RegressionError(f"The left side of the formula must be one number a row: {formula.text}")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise RegressionError(f"The formula {formula.text} is infinite for some row; look for a logarithm of 0")
    for values in (left, *right.T):
        largest = float(np.abs(values).max(initial=0.0))
        if largest and not _SQUARABLE[0] < largest < _SQUARABLE[1]:
            raise RegressionError(f"The formula {formula.text} gives numbers whose squares no longer are numbers")
    info = right.design_info
    # patsy puts the categorical terms first; the formula's order decides which of two aliased terms stays
    order = [term.name() for term in patsy.ModelDesc.from_formula(formula.text).rhs_termlist]
    by_name = sorted(zip(info.term_names, info.terms, strict=True), key=lambda pair: order.index(pair[0]))
    return Design(
        formula=formula,
        response=np.asarray(left)[:, 0],
        terms=tuple(_term(name, term, info) for name, term in by_name if name != INTERCEPT),
        columns=tuple(column for _, term in by_name for column in _columns(term, right)),
        info=info,
    )


def split_infinite(frame: pl.DataFrame, formula: Formula) -> tuple[pl.DataFrame, tuple[Excluded, ...]]:
    """The rows for which every part of `formula` is a finite number, and the runs of the others with what is not.

    A formula that cannot be evaluated at all is left to make_design.
    """
    import numpy as np
    import patsy
    import polars as pl

    if frame.is_empty():
        return frame, ()
    parts: dict[str, Vector] = {}

    class Noted(patsy.NAAction):  # type: ignore[misc]
        """Notes what would not be finite, and changes nothing."""

        def is_numerical_NA(self, values: Any) -> Any:
            finite = np.isfinite(values)
            return ~(finite if finite.ndim == 1 else finite.all(axis=1))

        def handle_NA(self, values: Any, is_NAs: Any, origins: Any) -> Any:
            parts.update((o.relevant_code(), mask) for o, mask in zip(origins, is_NAs, strict=True) if o and mask.any())
            return values

    try:
        with np.errstate(all="ignore"):
            environment = patsy.EvalEnvironment([{"np": np}])
            patsy.dmatrices(formula.text, _data(frame, formula, formula.names), environment, NA_action=Noted())
    except (patsy.PatsyError, SyntaxError):
        return frame, ()
    if not parts:
        return frame, ()
    reasons: Counter[tuple[str, str]] = Counter()
    for row, run in enumerate(frame[RUN].to_list()):
        found = [name for name, mask in parts.items() if mask[row]]
        if found:
            reasons[str(run), f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} not a finite number"] += 1
    usable = frame.filter(pl.Series(~np.any(list(parts.values()), axis=0)))
    return usable, tuple(Excluded(run, reason, count) for (run, reason), count in reasons.items())


def matrix_of(design: Design, frame: pl.DataFrame, columns: Sequence[Column]) -> Vector:
    """The values that `columns` of the design have in other rows, rows by columns.

    `frame` has the columns of the formula's right side without nulls. Raises RegressionError for a level that the
    design does not know.
    """
    import numpy as np
    import patsy

    data = _data(frame, design.formula, design.formula.right_names)
    try:
        (matrix,) = patsy.build_design_matrices([design.info], data, NA_action=patsy.NAAction(on_NA="raise"))
    except patsy.PatsyError as error:
        reason = getattr(error, "message", str(error))
        raise RegressionError(f"The formula {design.formula.text} cannot be evaluated: {reason}") from error
    # without a column of numbers patsy gives a single row of ones
    values = np.broadcast_to(np.asarray(matrix), (frame.height, matrix.shape[1]))
    return values[:, [column.place for column in columns]]


def terms_of(formula: Formula) -> dict[str, frozenset[str]]:
    """The terms of the right side in formula order, each with its columns; the intercept has none."""
    import patsy

    try:
        terms = patsy.ModelDesc.from_formula(formula.text).rhs_termlist
    except (patsy.PatsyError, SyntaxError) as error:
        reason = getattr(error, "message", "invalid syntax")
        raise RegressionError(f"The formula {formula.text} cannot be evaluated: {reason}") from error
    return {
        term.name(): frozenset[str]().union(*(column_names(ast.parse(factor.code)) for factor in term.factors))
        for term in terms
    }


def _data(frame: pl.DataFrame, formula: Formula, names: Iterable[str]) -> dict[str, Any]:
    return {name: _values(frame, name, name in formula.numeric_names) for name in names}


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


def _term(name: str, term: Any, info: Any) -> Term:
    variables = {v: None for factor in term.factors for v in sorted(column_names(ast.parse(factor.code)))}
    infos = [info.factor_infos[factor] for factor in term.factors]
    categorical = any(i.type == "categorical" for i in infos)
    columns = info.term_name_slices[name]
    reference = None
    if categorical and len(infos) == 1 and columns.stop - columns.start == len(infos[0].categories) - 1:
        reference = f"{_bare(term.factors[0].name())} = {infos[0].categories[0]}"
    return Term(name, tuple(variables), categorical, reference)


def _columns(term: Any, matrix: Any) -> list[Column]:
    import numpy as np

    factors = [factor.name() for factor in term.factors]
    # numpy 2 writes a level as np.int64(64), and patsy takes that for its name
    names = [re.sub(r"np\.\w+\(([^()]*)\)(?=\])", r"\1", name) for name in matrix.design_info.column_names]
    numbers = range(*matrix.design_info.term_name_slices[term.name()].indices(len(names)))
    values = np.asarray(matrix)
    return [Column(names[i], term.name(), _label(names[i], factors), values[:, i], i) for i in numbers]


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


def is_constant(values: Vector) -> bool:
    """Whether all values are the same to within rounding."""
    return bool(values.max() - values.min() <= ROUNDING * abs(values).max())


def unit(values: Vector) -> Vector:
    import numpy as np

    norm = np.linalg.norm(values)
    return values / norm if norm > 0 else values
