"""Whether SQL only reads, by DuckDB's own parser.

Statements without a type of their own are recognised by their words: a COPY, INSERT, ... in WITH is a SELECT to DuckDB
(it may stand in the outermost WITH only), and EXPLAIN ANALYZE runs what it explains. Table functions that change
settings (enable_logging, which writes files) are kept out by `lock_configuration`, see Dataset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from ddnn_traces.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Sequence

_READING = ("SELECT", "MULTI")  # MULTI: PIVOT, which makes a type for the values that it finds
_WRITING_IN_WITH = (
    "COPY", "INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "CREATE", "DROP", "ALTER", "ATTACH", "DETACH", "EXPORT",
    "IMPORT", "INSTALL", "LOAD", "SET", "RESET", "PRAGMA", "CALL", "EXPLAIN", "PREPARE", "EXECUTE", "VACUUM",
    "CHECKPOINT", "FORCE",
)  # fmt: skip

_RUNS_ANYTHING = "JSON_EXECUTE_SERIALIZED_SQL"


def check(statement: str) -> None:
    """Raise QueryError for a statement that is not known to only read. statement: one that DuckDB can parse."""
    if kind := _writing_kind(statement):
        raise QueryError(
            f"{kind}: only statements that read are run (SELECT, FROM, WITH, PIVOT, DESCRIBE, SHOW, SUMMARIZE, "
            "EXPLAIN, SET VARIABLE); 'ddnn-traces sql --write' runs all; --out writes a result into a file"
        )


def _writing_kind(statement: str) -> str:
    """First word of what would write, else ''."""
    words = [text for _, text in _tokens(statement)]
    kind = _statement_type(statement)
    if kind == "EXPLAIN":
        return _writing_kind(_explained(statement))
    if kind == "SET" and words[1:2] == ["VARIABLE"]:
        return ""
    if kind not in _READING:
        return words[0] if words else "nothing"
    return _writing_in_with(words) or _writing_in_text(words)


def _writing_in_with(words: Sequence[str]) -> str:
    for before, bracket, word in zip(words, words[1:], words[2:], strict=False):
        if before in ("AS", "MATERIALIZED") and bracket == "(" and word in _WRITING_IN_WITH:
            return word
    return ""


def _writing_in_text(words: Sequence[str]) -> str:
    """The function that would run what is not written out: query() runs a SELECT only, but that may call the other."""
    if any(_RUNS_ANYTHING in word for word in words):
        return _RUNS_ANYTHING.lower()
    for name, bracket, text, end in zip(words, words[1:], words[2:], words[3:], strict=False):
        if name.strip('"') == "QUERY" and bracket == "(" and not (text.startswith("'") and end == ")"):
            return "query() of a text that is put together"
    return ""


def _statement_type(statement: str) -> str:
    """DuckDB's type of a single statement; '' where it has none, there are several, or it is no SQL."""
    try:
        (parsed,) = duckdb.extract_statements(statement)
        return str(parsed.type.name)
    except (ValueError, duckdb.Error):
        return ""


def _explained(statement: str) -> str:
    """The statement that an EXPLAIN statement explains: after EXPLAIN [ANALYZE] or EXPLAIN (OPTION, ...)."""
    tokens = _tokens(statement)[1:]
    words = [text for _, text in tokens]
    if words[:1] == ["("] and ")" in words:
        rest = _from(statement, tokens[words.index(")") + 1 :])
        if _statement_type(rest):
            return rest
    return _from(statement, tokens[words[:1] == ["ANALYZE"] :])


def without_comments(statement: str) -> str:
    """The statement's words, in capitals."""
    return " ".join(text for _, text in _tokens(statement))


def _from(statement: str, tokens: Sequence[tuple[int, str]]) -> str:
    """The statement's text from the first of these tokens on."""
    return statement.encode()[tokens[0][0] :].decode() if tokens else ""


def _tokens(statement: str) -> list[tuple[int, str]]:
    """Place (in bytes) and text, in capitals, of each token but comments."""
    encoded = statement.encode()
    found = duckdb.tokenize(statement)
    ends = [*(place for place, _ in found), len(encoded)][1:]
    return [
        (place, encoded[place:end].decode(errors="replace").strip().upper())
        for (place, kind), end in zip(found, ends, strict=True)
        if kind != duckdb.token_type.comment
    ]
