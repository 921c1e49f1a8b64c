"""Whether the SQL of a view or macro can only read the release's tables: for definitions of another version's program.

DuckDB's own parser says what a definition calls and reads; what is not known to be harmless is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

_VIEW = re.compile(r"\s*CREATE VIEW [\w.\"]+(?: ?\([\w\", ]*\))? AS (.*)", re.S)
_NAME = re.compile(r"\w+")

#: Table functions that read nothing.
_MADE = {"unnest", "range", "generate_series"}

#: Functions of a row that tell of the machine, run SQL or read a file.
_TELLING = re.compile(
    r"get_?env|current_\w+|.*setting.*|getvariable|write_log|nextval|currval|.*execute.*|.*query.*|.*file.*|"
    r"(read|sniff|pragma|duckdb|pg|http|which|add|load|enable|disable)_?.*|.*scan.*|glob|.*secret.*|.*attach.*|.*copy.*"
)


def harm(connection: duckdb.DuckDBPyConnection, definition: str, known: Container[str]) -> str:
    """What a definition reads beyond the release's tables, in words; '' where it does not.

    definition: a view's CREATE VIEW, or the body of a macro. known: names of tables, views and macros that may be read.
    """
    view = _VIEW.fullmatch(definition)
    body = view[1] if view else definition
    for text in (body, f"SELECT {body}"):  # a macro of a value is an expression
        tree = json.loads(connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0])
        if not tree["error"] and len(tree["statements"]) == 1:
            return next(_harms(tree, known), "")
    return "is no plain SELECT"


def _harms(node: Any, known: Container[str]) -> Iterator[str]:
    for item in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _harms(item, known)
    if not isinstance(node, dict):
        return
    if "table_name" in node and node.get("type") == "BASE_TABLE":
        if not _NAME.fullmatch(node["table_name"]) or _elsewhere(node):
            yield f"reads {node['table_name']!r}"
    elif node.get("type") == "TABLE_FUNCTION":
        name = str(node.get("function", {}).get("function_name", "")).lower()
        if name not in _MADE and name not in known:
            yield f"calls {name}"
    elif "function_name" in node:
        name = str(node["function_name"]).lower()
        if name not in known and (_TELLING.fullmatch(name) or _elsewhere(node)):
            yield f"calls {name}"
    elif str(node.get("type", "")).upper() in ("SHOW_REF", "COLUMN_DATA"):
        yield "lists what there is"


def _elsewhere(node: dict[str, Any]) -> bool:
    """Whether a name is one of another database or schema."""
    places = [node.get(name) or "" for name in ("catalog_name", "schema_name", "catalog", "schema")]
    return bool({*places} - {"", "main"})
