"""A prediction as text, JSON and CSV. All of them carry the warnings, and say when runs were made up."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from ddnn_traces.regression.job import plain
from ddnn_traces.regression.point import LEVEL, Predicted
from ddnn_traces.regression.predict import Prediction

FORMATS = ("table", "json", "csv")

_UNITS = {"step": "MB", "run": "GB", "hour": "GB", "step_time": "ms"}
_DIVISORS = {"MB": 1e6, "GB": 1e9, "ms": 1.0}
_NAMES = {
    "step": "volume of a step", "run": "volume of a run", "hour": "volume of an hour", "step_time": "step time",
}  # fmt: skip
_ENDS = ("mean_low", "mean_high", "low", "high")


def written(prediction: Prediction, output_format: str) -> str:
    """The prediction in one of FORMATS."""
    return {"table": table, "json": as_json, "csv": as_csv}[output_format](prediction)


def table(prediction: Prediction) -> str:
    """For reading: the job, the numbers with both intervals, and what to know of them."""
    job = prediction.job
    described = {**job.values, "steps": job.steps, "step_ms": job.step_ms}
    lines = [
        prediction.formula,
        ", ".join(f"{name} = {plain(value)}" for name, value in described.items() if value is not None),
        f"from {prediction.runs} runs",
    ]
    if prediction.synthetic:
        lines.append(f"SYNTHETIC: {prediction.synthetic}.")
    lines += [f"EXTRAPOLATION: {warning}." for warning in prediction.warnings]
    level = f"{LEVEL:.0%}"
    head = ("", "estimate", f"{level} confidence (all such runs)", f"{level} prediction (one such run)")
    rows = [head, *(_cells(predicted, prediction.job.steps) for predicted in prediction.predicted)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    aligned = "  ".join([f"{{:<{widths[0]}}}", *(f"{{:>{width}}}" for width in widths[1:])])
    lines += ["", *(aligned.format(*row) for row in rows), ""]
    lines += [f"note: {note}." for note in prediction.notes]
    return "\n".join(lines).rstrip()


def _cells(predicted: Predicted, steps: int | None) -> tuple[str, ...]:
    unit = _UNITS[predicted.quantity]
    name = _NAMES[predicted.quantity] + (f" of {steps:,} steps" if predicted.quantity == "run" else "")
    name += ", median" if predicted.statistic == "median" else ""
    estimate, *ends = (
        None if value is None else f"{value / _DIVISORS[unit]:,.3f}"
        for value in (predicted.estimate, *(getattr(predicted, end) for end in _ENDS))
    )
    intervals = [f"[{low}, {high}]" if low and high else "none" for low, high in (ends[:2], ends[2:])]
    return name, f"{estimate} {unit}", *intervals


def as_json(prediction: Prediction) -> str:
    """One object; docs/prediction.md lists its keys."""
    document = {
        "formula": prediction.formula,
        "job": {**prediction.job.values, "steps": prediction.job.steps, "step_ms": prediction.job.step_ms},
        "runs": prediction.runs,
        "synthetic_runs": prediction.synthetic_runs,
        "synthetic": prediction.synthetic,
        "level": LEVEL,
        "extrapolation": bool(prediction.warnings),
        "warnings": list(prediction.warnings),
        "notes": list(prediction.notes),
        "predicted": [_numbers(predicted) for predicted in prediction.predicted],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def as_csv(prediction: Prediction) -> str:
    """A row a quantity; warnings and notes are in every row, so that no number is without them."""
    said = {
        "level": LEVEL,
        "runs": prediction.runs,
        "synthetic_runs": prediction.synthetic_runs,
        "extrapolation": str(bool(prediction.warnings)).lower(),
        "warnings": "; ".join(prediction.warnings),
        "notes": "; ".join([*([prediction.synthetic] if prediction.synthetic else []), *prediction.notes]),
    }
    rows = [{**_numbers(predicted), **said} for predicted in prediction.predicted]
    out = io.StringIO()
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


def _numbers(predicted: Predicted) -> dict[str, Any]:
    ends = dict(zip(("confidence_low", "confidence_high", "prediction_low", "prediction_high"), _ENDS, strict=True))
    return {
        "quantity": predicted.quantity,
        "unit": predicted.unit,
        "statistic": predicted.statistic,
        "estimate": predicted.estimate,
        **{name: getattr(predicted, end) for name, end in ends.items()},
    }
