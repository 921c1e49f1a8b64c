"""Text of others in Markdown and YAML, where it must not become structure; code blocks and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ddnn_traces import extras

_MEANT = re.compile(r"[\\`*_\[\]<>|~$&]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_BEGINS = re.compile(r"[#+=:>-]|\d+[.)](?=\s|$)")


def plain(text: object) -> str:
    """Text of others as one line of Markdown that shows it as it is: no markup, link, HTML or cell comes of it."""
    shown = "".join(letter if letter.isprintable() else " " for letter in str(text))
    line = _MEANT.sub(r"\\\g<0>", " ".join(shown.split()))
    if begin := _BEGINS.match(line):  # would begin a list, a heading, ...
        line = line[: begin.end() - 1] + "\\" + line[begin.end() - 1 :]
    return line


def code(text: object) -> str:
    """Text of others as inline code, also in the cell of a table."""
    shown = " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    edge = " " if shown.startswith("`") or shown.endswith("`") else ""
    return fence + edge + shown.replace("|", "\\|") + edge + fence


def markdown(text: str) -> str:
    """Markdown of others, with code blocks and comments that it leaves open closed: what follows is not theirs."""
    fence = ""
    lines = text.strip().splitlines()
    for line in lines:
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line[found.end() :].strip():
                fence = ""
        elif found and not (found[1][0] == "`" and "`" in line[found.end() :]):
            fence = found[1]
    closed = "\n".join([*lines, *([fence] if fence else [])])
    return closed + ("\n-->" if closed.rfind("<!--") > closed.rfind("-->") else "")


def block(language: str, text: str) -> str:
    """A fenced code block, whatever is in the text."""
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def yaml(document: Mapping[str, Any]) -> str:
    """A YAML document, keys in the order given. Raises MissingExtra without PyYAML."""
    dump = extras.load("yaml").safe_dump
    return str(dump(dict(document), sort_keys=False, allow_unicode=True, width=110, default_flow_style=False))
