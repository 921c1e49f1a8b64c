"""Regressions and predictions as documents: text, LaTeX, JSON and CSV.

docs/regression.md and docs/prediction.md list the keys of JSON and the columns of CSV, on which other programs rely.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import cache
from typing import Any

from ddnn_traces.regression import sentences
from ddnn_traces.regression.results import LEVEL, ROBUST, Job, Predicted, Prediction, Regression, plain
from ddnn_traces.text import counted

#: Version of the JSON document of a regression; it increases when a key is renamed, removed, or changes its meaning.
VERSION = 3

_ABOUT = (
    "formula", "preset", "grain", "rows", "runs", "synthetic_runs", "synthetic", "size_column", "errors", "unit",
)  # fmt: skip
_WHOLE_FIT = (
    "r_squared", "adj_r_squared", "df_resid", "residual_std_error", "f_statistic", "f_p_value", "aic", "bic",
    "correlation", "condition_number", "breusch_pagan", "breusch_pagan_p_value",
)  # fmt: skip
_OF_TEST = ("f", "df", "df_denominator", "p_value", "untested", "gvif", "gvif_per_df")
# Columns of the CSV: of a coefficient, and of the fit.
_OF_COEFFICIENT = (
    "name", "term", "estimate", "std_error", "std_error_classic", "std_error_robust", "ci_low", "ci_high", "p_value",
)  # fmt: skip
_OF_FIT = ("formula", "errors", "robust_errors", "rows", "runs", "synthetic_runs", "r_squared", "synthetic")


# --- a regression


def text(regression: Regression, verbose: bool = False) -> str:
    """The summary, then tables and sentences under their headings."""
    lines = [regression.formula, sentences.summary(regression), *filter(None, [regression.synthetic])]
    for block in sentences.blocks(regression, verbose):
        if isinstance(block, sentences.Section):
            lines += ["", block.heading, *block.sentences]
        else:
            numeric = [i in block.numeric for i in range(len(block.columns))]
            lines += ["", block.title, *_aligned([block.columns, *block.rows], numeric)]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> list[str]:
    """Rows of texts as lines with columns of equal width; numeric: which columns are aligned right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(numeric))]
    form = "  ".join(f"{{:{'>' if right else '<'}{width}}}" for width, right in zip(widths, numeric, strict=True))
    return [form.format(*row).rstrip() for row in rows]


def json_text(regression: Regression) -> str:
    """One JSON object of all results; an unknown value, and a number that JSON cannot write, is null."""
    return json.dumps(_plain(_document(regression)), indent=2, allow_nan=False)


def csv_text(regression: Regression) -> str:
    """A row a coefficient, unknown values as empty fields. The last columns are of the fit, the same in each row."""
    about = _document(regression) | {"r_squared": regression.r_squared}
    shared = {name: about[name] for name in _OF_FIT}
    rows = [
        {name: getattr(c, name) for name in _OF_COEFFICIENT} | {"depends_on": " ".join(c.depends_on)} | shared
        for c in regression.coefficients
    ]
    return _csv((*_OF_COEFFICIENT, "depends_on", *_OF_FIT), rows)


def _document(regression: Regression) -> dict[str, Any]:
    tests = {test.term: test for test in regression.tests}
    paper = None
    if regression.preset == "paper":
        rows = [row._asdict() for row in sentences.paper_rows(regression)]
        paper = {"table": rows, "sentences": [*sentences.paper_sentences(regression)]}

    return {
        "ddnn_traces_regression": VERSION, **{name: getattr(regression, name) for name in _ABOUT},
        "robust_errors": ROBUST, "scatter_power": regression.scatter_power, "clusters": regression.clusters,
        "fit": {name: getattr(regression, name) for name in _WHOLE_FIT},
        "coefficients": regression.coefficients,
        "terms": [
            asdict(verdict) | {name: getattr(tests.get(verdict.term), name, None) for name in _OF_TEST}
            for verdict in regression.verdicts
        ],
        "refits": regression.refits, "single_runs": regression.single_runs,
        "influence": regression.influence, "influential": [run.run_id for run in regression.influential],
        "left_out": regression.left_out, "group_scatter": regression.group_scatter, "nested": regression.nested,
        "log_log": regression.log_log, "paper": paper,
        "notes": regression.notes, "diagnosis": sentences.diagnosis(regression), "excluded": regression.excluded,
        "points": regression.points.to_dicts(),
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """The value for JSON: data classes as objects, null for numbers that JSON does not have."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


# --- a regression in LaTeX

# A table of its natural width, but not wider than the page.
_SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"


def latex(regression: Regression, verbose: bool = False) -> str:
    r"""Table environments and lists, for \input; the document needs booktabs, graphicx, T1 fontenc."""
    lines = [r"% needs \usepackage{booktabs}, \usepackage{graphicx} and \usepackage[T1]{fontenc}"]
    about = ". ".join(part for part in (sentences.summary(regression), regression.synthetic) if part)
    about = rf"\texttt{{{latex_escape(regression.formula)}}}: {latex_escape(about)}"
    shown = sentences.blocks(regression, verbose)
    if all(isinstance(block, sentences.Section) for block in shown):
        lines += ["", about]
    for block in shown:
        if isinstance(block, sentences.Table):
            lines += ["", _environment(block, f"{latex_escape(block.title)}. {about}")]
            continue
        lines += ["", rf"\paragraph{{{latex_escape(block.heading)}}}", r"\begin{itemize}"]
        lines += [rf"  \item {latex_escape(sentence)}" for sentence in block.sentences]
        lines.append(r"\end{itemize}")
    return "\n".join(lines)


def _environment(table: sentences.Table, caption: str) -> str:
    wide = not table.numeric  # words wrap, numbers do not
    text_column = r"p{0.3\linewidth}" if wide else "l"
    columns = "".join("r" if i in table.numeric else text_column for i in range(len(table.columns)))
    before, after = ("", "") if wide else (f"  {_SHRUNK}{{%\n", "}")
    rows = "\n".join(f"    {_latex_row(row, table.numeric)}" for row in table.rows)
    return rf"""\begin{{table}}
  \centering
  \caption{{{caption}}}
{before}  \begin{{tabular}}{{{columns}}}
    \toprule
    {_latex_row(table.columns)}
    \midrule
{rows}
    \bottomrule
  \end{{tabular}}{after}
\end{{table}}"""


def _latex_row(cells: tuple[str, ...], numeric: Sequence[int] = ()) -> str:
    escaped = [latex_escape(cell) for cell in cells]
    # minus signs in exponents of numbers too; a dash alone remains a dash
    escaped = [re.sub(r"(?<=\de)-(?=\d)", "$-$", cell) if i in numeric else cell for i, cell in enumerate(escaped)]
    # LaTeX reads an opening bracket after \\ as an option of it
    return " & ".join(f"{{}}{cell}" if cell.startswith("[") else cell for cell in escaped) + r" \\"


def latex_escape(text: str) -> str:
    """A text as LaTeX that prints it, with minus signs before numbers, and U+6A21 for a letter that T1 lacks."""
    escaped: str = _latex_encoder().unicode_to_latex(text)
    return escaped


@cache
def _latex_encoder() -> Any:
    from pylatexenc.latexencode import RULE_REGEX, UnicodeToLatexConversionRule, UnicodeToLatexEncoder

    rules = [
        (re.compile(r"\s"), " "),
        # a hyphen is a minus sign where a number begins, and not within a name
        (re.compile(r"(?<![\w.\])}-])-(?=\d)"), "$-$"),
        # pylatexenc's commands for other letters need more packages than T1 fontenc
        (re.compile(r"[^ -~\u00a0-\u0148\u014a-\u017f\u0391-\u03c9\u2012-\u2026\u2212\u2264\u2265]"), _code_point),
    ]
    return UnicodeToLatexEncoder(
        conversion_rules=[UnicodeToLatexConversionRule(RULE_REGEX, rules), "defaults"],
        unknown_char_policy=_code_point,
        unknown_char_warning=False,
    )


def _code_point(letter: str | re.Match[str]) -> str:
    return f"U+{ord(letter if isinstance(letter, str) else letter[0]):04X}"


#: Documents of a regression by format, of text and LaTeX also the long ones (verbose); report.page has its page.
FORMATS: dict[str, Callable[[Regression, bool], str]] = {
    "text": text, "table": text, "latex": latex,
    "json": lambda regression, _: json_text(regression), "csv": lambda regression, _: csv_text(regression),
}  # fmt: skip


# --- a prediction

#: Names of the quantities, their units in the table, and what an estimate is divided by.
_QUANTITIES = {
    "step": ("volume of a step", "MB", 1e6), "run": ("volume of a run", "GB", 1e9),
    "hour": ("volume of an hour", "GB", 1e9), "step_time": ("step time", "ms", 1.0),
}  # fmt: skip
#: Attributes of a Predicted and their names in JSON and CSV.
_ENDS = {
    "mean_low": "confidence_low", "mean_high": "confidence_high", "low": "prediction_low", "high": "prediction_high",
}  # fmt: skip


def prediction(found: Prediction, output_format: str) -> str:
    """The prediction in one of PREDICTION_FORMATS. All have the warnings and the number of synthetic runs."""
    return PREDICTION_FORMATS[output_format](found)


def _described(job: Job) -> dict[str, Any]:
    return {**job.values, "steps": job.steps, "step_ms": job.step_ms}


def _prediction_table(found: Prediction) -> str:
    """The job, the numbers with both intervals, and the caveats."""
    lines = [
        found.formula,
        ", ".join(f"{name} = {plain(value)}" for name, value in _described(found.job).items() if value is not None),
        f"from {counted(found.runs, 'run')}",
    ]
    if found.synthetic:
        lines.append(f"SYNTHETIC: {found.synthetic}.")
    lines += [f"EXTRAPOLATION: {warning}." for warning in found.warnings]
    head = ("", "estimate", f"{LEVEL:.0%} confidence (all such runs)", f"{LEVEL:.0%} prediction (one such run)")
    rows = [head, *(_cells(predicted, found.job.steps) for predicted in found.predicted)]
    lines += ["", *_aligned(rows, [False, True, True, True]), ""]
    lines += [f"note: {note}." for note in found.notes]
    return "\n".join(lines).rstrip()


def _cells(predicted: Predicted, steps: int | None) -> tuple[str, ...]:
    name, unit, divisor = _QUANTITIES[predicted.quantity]
    name += f" of {counted(steps or 0, 'step')}" if predicted.quantity == "run" else ""
    name += ", median" if predicted.statistic == "median" else ""
    estimate, *ends = (
        None if value is None else f"{value / divisor:,.3f}"
        for value in (predicted.estimate, *(getattr(predicted, end) for end in _ENDS))
    )
    intervals = [f"[{low}, {high}]" if low and high else "none" for low, high in (ends[:2], ends[2:])]
    return name, f"{estimate} {unit}", *intervals


def _prediction_json(found: Prediction) -> str:
    document = {
        "formula": found.formula, "job": _described(found.job), "runs": found.runs,
        "synthetic_runs": found.synthetic_runs, "synthetic": found.synthetic, "level": LEVEL,
        "extrapolation": bool(found.warnings), "warnings": found.warnings, "notes": found.notes,
        "predicted": [_numbers(predicted) for predicted in found.predicted],
    }  # fmt: skip
    return json.dumps(document, indent=2, ensure_ascii=False)


def _prediction_csv(found: Prediction) -> str:
    """A row a quantity; warnings and notes are in every row, so that no number is without them."""
    shared = {
        "level": LEVEL, "runs": found.runs, "synthetic_runs": found.synthetic_runs,
        "extrapolation": str(bool(found.warnings)).lower(), "warnings": "; ".join(found.warnings),
        "notes": "; ".join(filter(None, [found.synthetic, *found.notes])),
    }  # fmt: skip
    rows = [_numbers(predicted) | shared for predicted in found.predicted]
    return _csv(rows[0], rows)


def _numbers(predicted: Predicted) -> dict[str, Any]:
    return {
        **{name: getattr(predicted, name) for name in ("quantity", "unit", "statistic", "estimate")},
        **{name: getattr(predicted, end) for end, name in _ENDS.items()},
    }


PREDICTION_FORMATS: dict[str, Callable[[Prediction], str]] = {
    "table": _prediction_table, "json": _prediction_json, "csv": _prediction_csv,
}  # fmt: skip
