"""A regression as text, for the terminal."""

from __future__ import annotations

from ddnn_traces.regression import layout
from ddnn_traces.regression.outcome import Regression


def text(regression: Regression) -> str:
    """The tables, what they say of each term, whether to believe it, and what could not be used, as lines of text."""
    lines = [regression.formula, layout.summary(regression)]
    if regression.synthetic:
        lines.append(regression.synthetic)
    for table in layout.tables(regression):
        lines += ["", table.title, *_lines(table)]
    for heading, sentences in layout.chapters(regression):
        lines += ["", heading, *sentences]
    return "\n".join(lines)


def _lines(table: layout.Table) -> list[str]:
    widths = layout.column_widths(table)
    cells = [f"{{:{'>' if i in table.numeric else '<'}{width}}}" for i, width in enumerate(widths)]
    form = "  ".join(cells)
    return [form.format(*row).rstrip() for row in (table.columns, *table.rows)]
