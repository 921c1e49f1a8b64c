"""A job's description in the types of the runs that predict it, and how it differs from these runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

import polars as pl

from ddnn_traces.errors import PredictionError, UsageError
from ddnn_traces.regression.design import MEASURED
from ddnn_traces.regression.formula import Formula
from ddnn_traces.regression.results import SIZES, Job, plain
from ddnn_traces.text import nearest

#: Columns of a model's size, one of which in a formula represents all.
_ALL_SIZES = frozenset({*SIZES, "model_size_mb"})
_POSITIVE = _ALL_SIZES | {"batch_size", "workers", "steps", "step_ms"}
IMPOSSIBLE = "cannot be predicted from these runs:"


def refused(start: str, reasons: Iterable[str]) -> PredictionError:
    """The error that lists the reasons, each once."""
    return PredictionError("\n- ".join([start, *dict.fromkeys(reasons)]))


def attributes(rows: pl.DataFrame) -> list[str]:
    """The columns that are attributes of a job."""
    return sorted(set(rows.columns) - MEASURED)


def described_values(rows: pl.DataFrame, formula: Formula, job: Job) -> dict[str, Any]:
    """The given attributes of the job, numbers as floats.

    Raises UsageError for a name that is not an attribute, an invalid value, and a missing column of the right side.
    """
    values: dict[str, Any] = {}
    for name, value in job.values.items():
        if value is None:
            continue
        if name not in attributes(rows):
            raise UsageError(f"{name} is not an attribute of the runs; {nearest(name, attributes(rows))}")
        values[name] = _value(name, value, rows[name].dtype)
    missing = sorted(formula.right_names - values.keys())
    if missing:
        raise UsageError(
            f"the formula {formula.text} needs the job's {', '.join(missing)}; give them, or another formula"
        )
    return values


def _value(name: str, value: Any, of_runs: pl.DataType) -> Any:
    """The value in the type that the runs have. Raises UsageError."""
    if of_runs == pl.Boolean:
        if str(value).lower() not in ("true", "false"):
            raise UsageError(f"{name} = {value}: give true or false")
        return str(value).lower() == "true"
    return number_of(name, value) if of_runs.is_numeric() else str(value)


def number_of(name: str, value: Any) -> float:
    """The value as a number that the attribute can have. Raises UsageError."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name} = {value}: give a number") from None
    if not math.isfinite(found):
        raise UsageError(f"{name} = {value}: give a finite number")
    if name in _POSITIVE and not found > 0:
        raise UsageError(f"{name} = {value}: give a number above 0")
    return found


def _categorical(rows: pl.DataFrame, formula: Formula) -> list[str]:
    """The columns of the right side that are levels to the formula, not numbers."""
    return sorted(
        name for name in formula.right_names if name not in formula.numeric_names or not rows[name].dtype.is_numeric()
    )


def check_levels(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> None:
    """Raise PredictionError for levels that no run has."""
    reasons = []
    for name in _categorical(rows, formula):
        levels = rows[name].unique().to_list()
        if values[name] not in levels:
            near = ", ".join(str(level) for level in _nearest_first(values[name], levels))
            reasons.append(f"no run has {name} = {plain(values[name])}; there are, the nearest first: {near}")
    if reasons:
        raise refused(IMPOSSIBLE, reasons)


def _nearest_first(value: Any, levels: Sequence[Any]) -> list[Any]:
    """The levels, the nearest first: in value where they are numbers, else in letters."""
    if isinstance(value, float):
        return sorted(levels, key=lambda level: (abs(level - value), level))
    return sorted(levels, key=lambda level: (-SequenceMatcher(None, value, str(level)).ratio(), str(level)))


def outside(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """Numbers outside the measured range."""
    found = []
    for name in sorted(formula.right_names - set(_categorical(rows, formula))):
        low, high = float(rows[name].min()), float(rows[name].max())  # type: ignore[arg-type]
        if not low <= values[name] <= high:
            found.append(f"{name} = {plain(values[name])} is outside the measured range, {plain(low)} to {plain(high)}")
    return found


def never_together(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """The job's levels, where they were never measured together, and the combination that shares most of them."""
    levels = _categorical(rows, formula)
    combinations = rows.select(levels).unique().sort(levels).to_dicts() if len(levels) > 1 else []
    if len(levels) < 2 or any(all(row[name] == values[name] for name in levels) for row in combinations):
        return []
    nearest_one = max(combinations, key=lambda row: sum(row[name] == values[name] for name in levels))
    together, near = (", ".join(f"{name} = {plain(row[name])}" for name in levels) for row in (values, nearest_one))
    return [f"no run has these together: {together}; the nearest: {near}"]


def differences(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """Attributes of the job that are not in the formula, and so without effect, and that differ from the runs'.

    Workers and words differ where no run has the value, other numbers where they are outside the runs' range. A second
    size of the model may differ from the runs'.
    """
    found = []
    used = formula.right_names | (_ALL_SIZES if formula.right_names & _ALL_SIZES else set())
    if "implied_bytes" in formula.left_names:
        used |= {"workers"}
    for name in sorted(set(values) - used - {"law_factor"}):
        known, value = rows[name].drop_nulls(), values[name]
        if known.is_empty():
            found.append(f"the runs have no {name}, which is not in the formula")
            continue
        if name == "workers" or not known.dtype.is_numeric():
            differs = value not in known.to_list()
        else:
            differs = not float(known.min()) <= value <= float(known.max())  # type: ignore[arg-type]
        if differs:
            found.append(
                f"{name} = {plain(value)}, where the runs have {range_text(rows, name)}, and it is not in the formula"
            )
    return found


def unused_notes(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """Attributes of the job, and workers of the runs, that are not in the formula."""
    notes = []
    unused = [
        f"{name} (the runs have {range_text(rows, name)})" if rows[name].drop_nulls().n_unique() > 1 else name
        for name in sorted(set(values) - formula.right_names - {"workers", "law_factor"})
    ]
    if unused:
        notes.append(f"not in the formula, and so without effect: {', '.join(unused)}")
    if "implied_bytes" in formula.left_names:
        if "workers" in values and values["workers"] not in rows["workers"].to_list():
            notes.append(
                f"no run has {plain(values['workers'])} workers: they enter by the law of the collective, "
                f"{plain(values['law_factor'])} model sizes a step"
            )
        return notes
    has_workers = "workers" in rows.columns and "workers" not in formula.right_names
    if has_workers and rows["workers"].drop_nulls().n_unique() > 1:
        notes.append(f"the runs have {range_text(rows, 'workers')} workers, not in the formula")
    return notes


def range_text(rows: pl.DataFrame, name: str) -> str:
    """The values of workers and of words, least and largest of other numbers."""
    values = rows[name].drop_nulls().unique().sort().to_list()
    if name == "workers" or not rows[name].dtype.is_numeric():
        return ", ".join(map(plain, values))
    return plain(float(values[0])) if len(values) == 1 else f"{plain(float(values[0]))} to {plain(float(values[-1]))}"
