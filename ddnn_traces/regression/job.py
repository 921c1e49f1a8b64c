"""A described job: what is said of it in the types of the runs, and what of it a formula does not know."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import UsageError
from ddnn_traces.regression.formula import Formula
from ddnn_traces.regression.rows import RUN
from ddnn_traces.text import nearest

if TYPE_CHECKING:
    import polars as pl

_POSITIVE = frozenset({"model_bytes", "nominal_bytes", "model_size_mb", "batch_size", "workers", "steps", "step_ms"})
#: Columns of the runs' rows that are measured of a run, not settled before it.
_MEASURED = frozenset({RUN, "step_bytes", "step_ms", "samples_per_s"})
#: Columns of a model's size, one of which in a formula stands for all.
_SIZES = frozenset({"model_bytes", "nominal_bytes", "model_size_mb"})


@dataclass(frozen=True)
class Job:
    """A training job.

    values: of the runs' attributes, by name (model_bytes [bytes], framework_backend, batch_size, topology, workers,
    ...). steps: of the run that is asked for. step_ms: length of a step, where it is known.
    """

    values: Mapping[str, Any]
    steps: int | None = None
    step_ms: float | None = None


def attributes(rows: pl.DataFrame) -> list[str]:
    """The columns that may be said of a job."""
    return sorted(set(rows.columns) - _MEASURED)


def described(rows: pl.DataFrame, job: Job) -> dict[str, Any]:
    """What is said of the job, numbers as floats. Raises UsageError for what is no attribute, or no value of one."""
    values: dict[str, Any] = {}
    for name, value in job.values.items():
        if value is None:
            continue
        if name not in attributes(rows):
            raise UsageError(f"{name} is no attribute of the runs; {nearest(name, attributes(rows))}")
        values[name] = number(name, value) if rows[name].dtype.is_numeric() else str(value)
    return values


def number(name: str, value: Any) -> float:
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


def unlike(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """What of the job is not as in the runs, and has no effect on the prediction, since the formula does not know it.

    Of workers and words a run must have the value, of other numbers it must be within the runs' range. A second size of
    the model need not be in the runs.
    """
    found = []
    known = formula.right_names | (_SIZES if formula.right_names & _SIZES else set())
    for name in sorted(set(values) - known):
        had = rows[name].drop_nulls()
        unknown = f"and the formula does not know of {name}"
        if had.is_empty():
            what = "how many workers they had" if name == "workers" else f"their {name}"
            found.append(f"the runs do not say {what}, {unknown}")
        elif name == "workers":
            if values[name] not in had.to_list():
                found.append(f"the job has {plain(values[name])} workers, the runs {_range(rows, name)}, {unknown}")
        elif not had.dtype.is_numeric():
            if values[name] not in had.to_list():
                found.append(f"no run has {name} = {values[name]}; there are {_range(rows, name)}, {unknown}")
        elif not float(had.min()) <= values[name] <= float(had.max()):  # type: ignore[arg-type]
            found.append(f"{name} = {plain(values[name])}, where the runs have {_range(rows, name)}, {unknown}")
    return found


def idle_notes(rows: pl.DataFrame, formula: Formula, values: Mapping[str, Any]) -> list[str]:
    """What of the job, and of the runs' workers, the formula does not know."""
    notes = []
    idle = [
        f"{name} (the runs have {_range(rows, name)})" if rows[name].drop_nulls().n_unique() > 1 else name
        for name in sorted(set(values) - formula.right_names - {"workers"})
    ]
    if idle:
        notes.append(f"not in the formula, and so without effect: {', '.join(idle)}")
    has_workers = "workers" in rows.columns and "workers" not in formula.right_names
    if has_workers and rows["workers"].drop_nulls().n_unique() > 1:
        notes.append(f"the runs have {_range(rows, 'workers')} workers, of which the formula does not know")
    return notes


def _range(rows: pl.DataFrame, name: str) -> str:
    """The values of workers and of words, least and largest of other numbers."""
    had = rows[name].drop_nulls().unique().sort().to_list()
    if name == "workers" or not rows[name].dtype.is_numeric():
        return ", ".join(map(plain, had))
    return plain(float(had[0])) if len(had) == 1 else f"{plain(float(had[0]))} to {plain(float(had[-1]))}"


def plain(value: Any) -> str:
    """A level or number as one writes it."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
