"""Which run and which host a capture belongs to, by its path: a layout such as `{run}/{host}/*.pcap`.

A layout describes the end of a path. `{run}` and `{host}` stand for a name, or a part of one; `*` and `?` for
characters of a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.text import shown, valid_text

_TOKENS = re.compile(r"\{(?P<name>[^{}/]*)\}|(?P<wrong>\*\*)|(?P<any>\*)|(?P<one>\?)|(?P<text>[^{}*?]+)|(?P<brace>.)")
_PATTERNS = {"any": "[^/]*", "one": "[^/]"}
_NAMES = ("run", "host")
_NEXT = "write it as '{run}/{host}/*.pcap'"


@dataclass(frozen=True)
class Place:
    """The run and host of a capture. folder: the run's; None where the run's name is a part of the file's name."""

    run: str
    folder: Path | None
    host: str | None


@dataclass(frozen=True)
class Layout:
    """A layout as text and as a regular expression with the groups run and host, or one of them."""

    text: str
    pattern: re.Pattern[str]

    def place(self, capture: Path) -> Place | None:
        """Where a capture belongs, None if its path does not fit. Without {run} the run is the folder of the hosts."""
        path = str(capture)
        match = self.pattern.search(path)
        if match is None:
            return None
        found = match.groupdict()
        host = found.get("host")
        above = [capture, *capture.parents]
        folder: Path | None
        if "run" in found:
            depth = path.count("/", match.start("run"))
            folder = above[depth] if depth else None
            run = found["run"]
        else:
            folder = above[path.count("/", match.start("host")) + 1]
            run = folder.name or "root"
        return Place(valid_text(run), folder, None if host is None else valid_text(host))


def parse_layout(text: str) -> Layout:
    """The layout of this text. Raises UsageError for one without {run} and {host}, or with anything else in braces."""
    parts: list[str] = []
    seen: list[str] = []
    for token in _TOKENS.finditer(text.removeprefix("./")):
        kind, name = str(token.lastgroup), token["name"]
        if kind in ("brace", "wrong") or (kind == "name" and (name not in _NAMES or name in seen)):
            fault = "is there twice" if name in seen else "is neither {run} nor {host}"
            fault = "is not known here, * stands for one folder" if kind == "wrong" else fault
            raise UsageError(f"--layout {shown(text)}: {shown(token[0])} {fault}; {_NEXT}")
        if kind == "name":
            seen.append(name)
            parts.append(f"(?P<{name}>[^/]+?)")
        else:
            parts.append(_PATTERNS.get(kind) or re.escape(token[0]))
    if not seen:
        raise UsageError(f"--layout {shown(text)}: neither {{run}} nor {{host}} is in it; {_NEXT}")
    begin = "" if text.startswith("/") else "(?:^|/)"
    return Layout(text, re.compile(f"{begin}{''.join(parts)}$", re.DOTALL))
