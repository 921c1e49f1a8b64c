"""A regression as LaTeX: tables for a paper, with booktabs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ddnn_traces.regression import layout
from ddnn_traces.regression.outcome import Regression

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "²": r"\textsuperscript{2}", "\n": " ",
}  # fmt: skip

_T1_LETTERS = frozenset(
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõöøùúûüýþÿ"
    "ĂăĄąĆćČčĎďĐđĘęĚěĞğĹĺĽľŁłŃńŇňŐőŒœŔŕŘřŚśŞşŠšŢţŤťŮůŰűŸŹźŻżŽž"
)
# A table as wide as it is, but not wider than the page.
_SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"


def latex(regression: Regression) -> str:
    r"""Table environments and lists, to be put in with \input; the document needs booktabs, graphicx, T1 fontenc."""
    lines = [r"% needs \usepackage{booktabs}, \usepackage{graphicx} and \usepackage[T1]{fontenc}"]
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
        *([] if wide else [rf"  {_SHRUNK}{{%"]),
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        f"    {_row(table.columns)}",
        r"    \midrule",
        *(f"    {_row(row, table.numeric)}" for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}" + ("" if wide else "}"),
        r"\end{table}",
    ]


def _row(cells: tuple[str, ...], numeric: Sequence[int] = ()) -> str:
    set_cells = [_number(cell) if i in numeric else escape(cell) for i, cell in enumerate(cells)]
    # an opening bracket after \\ would be read as its option
    return " & ".join(f"{{}}{cell}" if cell.startswith("[") else cell for cell in set_cells) + r" \\"


def _number(cell: str) -> str:
    """A cell of numbers, with minus signs in exponents too; a dash alone stays one."""
    return re.sub(r"(?<=\de)-(?=\d)", "$-$", escape(cell))


def escape(text: str) -> str:
    """A text that LaTeX prints as it stands: with minus signs, and U+2215 for a letter that pdfLaTeX has not."""
    letters = "".join(_ESCAPES.get(letter, letter if _is_in_t1(letter) else f"U+{ord(letter):04X}") for letter in text)
    # a hyphen is a minus where a number begins, and none in the middle of a name
    return re.sub(r"(?<![\w.\])}-])-(?=\d)", "$-$", letters)


def _is_in_t1(letter: str) -> bool:
    """Whether the T1 encoding has it: ASCII, and the Latin letters of Western and Central Europe."""
    code = ord(letter)
    return 0x20 <= code < 0x7F or (letter in _T1_LETTERS and code > 0x7F)
