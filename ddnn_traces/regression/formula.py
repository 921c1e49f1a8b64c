"""Formulas in statsmodels' language: checked before they are evaluated, split into terms, rewritten.

patsy, the formula engine of statsmodels, passes every factor to Python's eval, so a formula is code: only the
expressions listed here reach it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddnn_traces.errors import RegressionError

INTERCEPT = "Intercept"
#: Equation (1) of Zerwas et al. 2021, section VI.
PAPER_FORMULA = "step_bytes ~ model_bytes + C(framework_backend) + C(batch_size) + C(topology)"

MAX_FORMULA_CHARACTERS = 500
MAX_EXPONENT = 10
MAX_DEPTH = 100

_CHARACTERS = re.compile(r"[A-Za-z0-9_.+\-*/:()~ ]*")
_WRAPPERS = frozenset({"C", "I"})
_FUNCTIONS = frozenset({*_WRAPPERS, "np.log", "np.log10", "np.exp", "np.sqrt"})
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow)
_LANGUAGE = "names of columns, numbers, C(), I(), np.log(), np.log10(), np.exp(), np.sqrt() and + - * / : ** ( ) ~"


@dataclass(frozen=True)
class Formula:
    """A formula that is safe to evaluate. numeric_names: columns that occur outside C()."""

    text: str
    left: str
    left_names: frozenset[str]
    right_names: frozenset[str]
    numeric_names: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return self.left_names | self.right_names

    @property
    def left_column(self) -> str | None:
        """The only column on the left side; None where there are several or none."""
        return next(iter(self.left_names)) if len(self.left_names) == 1 else None

    @property
    def right(self) -> str:
        """The text of the right side."""
        return self.text.split("~")[1].strip()


def parse(formula: str, columns: Iterable[str]) -> Formula:
    """Check that `formula` is a formula and nothing else, on `columns`. Raises RegressionError."""
    text = " ".join(formula.split())
    if len(text) > MAX_FORMULA_CHARACTERS or not _CHARACTERS.fullmatch(text) or text.count("~") != 1:
        raise _not_a_formula(formula)
    left, right = (side.strip() for side in text.split("~"))
    trees = [_tree(side, formula) for side in (left, right)]
    for tree in trees:
        _check(tree, formula)
    left_names, right_names = (column_names(tree) for tree in trees)
    unknown = (left_names | right_names) - set(columns)
    if unknown:
        raise RegressionError(
            f"unknown columns: {', '.join(sorted(unknown))} (formula {text}). There are: {', '.join(sorted(columns))}"
        )
    if left_names & right_names:
        raise RegressionError(f"{', '.join(sorted(left_names & right_names))} is on both sides of the formula {text}")
    numeric = frozenset().union(*(column_names(tree, skip="C") for tree in trees))
    return Formula(text, left, left_names, right_names, numeric)


def inverse(left: str, name: str) -> Callable[[Any], Any] | None:
    """The function from values of a left side to values of its column `name`; None where it is not known.

    All of them increase, so that the ends of an interval remain its ends.
    """
    plain = left.replace(" ", "")
    scaled = re.fullmatch(rf"I\({re.escape(name)}([*/])([0-9.]+(?:e[+-]?[0-9]+)?)\)", plain)
    if scaled and float(scaled[2]) > 0:
        factor = float(scaled[2]) if scaled[1] == "/" else 1 / float(scaled[2])
        return lambda values: values * factor
    known: dict[str, Callable[[Any], Any]] = {
        name: lambda values: values,
        f"np.log({name})": np.exp,
        f"np.log10({name})": lambda values: np.power(10.0, values),
        f"np.sqrt({name})": lambda values: np.sign(values) * np.square(values),
    }
    return known.get(plain)


def terms_of(formula: Formula) -> dict[str, frozenset[str]]:
    """The right side's terms in order, with the columns of each; the intercept has none. Raises RegressionError."""
    import patsy

    try:
        terms = patsy.ModelDesc.from_formula(formula.text).rhs_termlist
    except (patsy.PatsyError, SyntaxError) as error:
        raise not_evaluated(formula, error) from error
    return {term.name(): frozenset(variables(term)) for term in terms}


def variables(term: Any) -> tuple[str, ...]:
    """The columns of a term of patsy's, in the order of its factors."""
    names = (name for factor in term.factors for name in sorted(column_names(ast.parse(factor.code))))
    return tuple(dict.fromkeys(names))


def in_logarithms(formula: Formula, size: str) -> str | None:
    """The formula with logarithms of its left side and of the size; None where either is not a plain column there."""
    if formula.left not in formula.left_names or f"({size}" in formula.right.replace(" ", ""):
        return None
    right, count = re.subn(rf"\b{size}\b", f"np.log({size})", formula.right)
    return f"np.log({formula.left}) ~ {right}" if count == 1 else None


def not_evaluated(formula: Formula, error: Exception) -> RegressionError:
    """The error of a formula on which patsy fails with `error`."""
    return RegressionError(
        f"The formula {formula.text} cannot be evaluated: {getattr(error, 'message', 'invalid syntax')}"
    )


def _not_a_formula(formula: str, part: str = "") -> RegressionError:
    where = f" ({part} is not allowed)" if part else ""
    shown = formula if len(formula) <= MAX_FORMULA_CHARACTERS else f"{formula[:60]}..."
    return RegressionError(f"Not a formula{where}: {shown}. It may have {_LANGUAGE}, for example {PAPER_FORMULA}")


def _tree(side: str, formula: str) -> ast.expr:
    try:
        # Python has no operator `:`; the check of operators and names treats it like `*`.
        return ast.parse(side.replace(":", "*"), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise _not_a_formula(formula) from error


def _check(node: ast.expr, formula: str, depth: int = 0) -> None:
    """Raise RegressionError unless `node` and all nodes below it are in the formula language."""
    if depth > MAX_DEPTH:
        raise _not_a_formula(formula, "deep nesting")
    match node:
        case ast.Name() if node.id not in _WRAPPERS | {"np"}:
            return
        case ast.Constant() if type(node.value) in (int, float):
            return
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            _check(operand, formula, depth + 1)
        case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _OPERATORS):
            if isinstance(op, ast.Pow) and not _is_small_power(left, right):
                raise _not_a_formula(formula, ast.unparse(node))
            _check(left, formula, depth + 1)
            _check(right, formula, depth + 1)
        case ast.Call(func=function, args=[argument], keywords=[]) if ast.unparse(function) in _FUNCTIONS:
            _check(argument, formula, depth + 1)
        case _:
            raise _not_a_formula(formula, ast.unparse(node))


def _is_small_power(base: ast.expr, exponent: ast.expr) -> bool:
    """Powers of plain numbers are refused: 9**9**9 would never end."""
    if not isinstance(exponent, ast.Constant) or type(exponent.value) not in (int, float):
        return False
    return bool(column_names(base)) and float(exponent.value) <= MAX_EXPONENT  # type: ignore[arg-type]


def column_names(tree: ast.AST, skip: str | None = None) -> frozenset[str]:
    """The names in `tree` that are not functions; without those inside calls of `skip`."""
    if isinstance(tree, ast.Name):
        return frozenset({tree.id})
    if isinstance(tree, ast.Call):
        called = tree.func.id if isinstance(tree.func, ast.Name) else None
        children: list[ast.AST] = [] if skip and called == skip else list(tree.args)
    else:
        children = list(ast.iter_child_nodes(tree))
    return frozenset().union(*(column_names(child, skip) for child in children))
