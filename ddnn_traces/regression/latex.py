"""A regression as LaTeX: tables for a paper, with booktabs."""

from __future__ import annotations

from ddnn_traces.regression import layout
from ddnn_traces.regression.outcome import Regression

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "²": r"\textsuperscript{2}", "\n": " ",
}  # fmt: skip


def latex(regression: Regression) -> str:
    r"""Table environments and lists, to be put in with \input; the document needs booktabs, and fontenc with T1."""
    lines = [r"% needs \usepackage{booktabs} and \usepackage[T1]{fontenc}"]
    about = ". ".join(part for part in (layout.summary(regression), regression.synthetic) if part)
    shown = layout.tables(regression)
    for table in shown:
        caption = rf"{escape(table.title)}. \texttt{{{escape(regression.formula)}}}: {escape(about)}"
        lines += ["", *_environment(table, caption)]
    for heading, sentences in layout.chapters(regression):
        lines += ["", rf"\paragraph{{{escape(heading)}}}", r"\begin{itemize}"]
        lines += [rf"  \item {escape(sentence)}" for sentence in sentences]
        lines.append(r"\end{itemize}")
    if not shown:
        lines += ["", rf"\texttt{{{escape(regression.formula)}}}: {escape(about)}"]
    return "\n".join(lines)


def _environment(table: layout.Table, caption: str) -> list[str]:
    # words wrap, numbers do not
    wide = not table.numeric
    columns = "".join(
        "r" if i in table.numeric else "p{0.3\\linewidth}" if wide else "l" for i in range(len(table.columns))
    )
    return [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{caption}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        f"    {_row(table.columns)}",
        r"    \midrule",
        *(f"    {_row(row)}" for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def _row(cells: tuple[str, ...]) -> str:
    # an opening bracket after \\ would be read as its option
    return " & ".join(f"{{}}{escape(cell)}" if cell.startswith("[") else escape(cell) for cell in cells) + r" \\"


def escape(text: str) -> str:
    """A text that LaTeX prints as it stands."""
    return "".join(_ESCAPES.get(letter, letter) for letter in text)
