"""Query results as bytes: CSV, JSON, JSON lines, Parquet, Arrow, Markdown."""

from __future__ import annotations

import html
import json
import math
import re
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from ddnn_traces.errors import QueryError, UsageError
from ddnn_traces.text import printable

FORMATS = ("csv", "json", "ndjson", "parquet", "arrow", "md")
#: Suffixes of files, where they are not the format's name.
_SUFFIXES = {"jsonl": "ndjson", "pq": "parquet", "feather": "arrow", "markdown": "md", "txt": "table"}


def of_suffix(out: Path) -> str:
    """The format that a file's name says; csv for a name without a suffix, such as a pipe's. Raises UsageError."""
    suffix = out.suffix.removeprefix(".").lower()
    if not suffix:
        return "csv"
    if (found := _SUFFIXES.get(suffix, suffix)) in (*FORMATS, "table"):
        return found
    known = ", ".join(f".{name}" for name in FORMATS)
    instead = "; spreadsheets open .csv" if suffix in ("xlsx", "xls", "ods") else ""
    raise UsageError(f"{out}: no format .{suffix}: name it {known}, or give --format{instead}")


def write(rows: pa.Table, output_format: str, out: BinaryIO) -> None:
    """Write a table as csv, json (an array of objects), ndjson (an object a line), parquet, arrow (IPC stream), md (a
    table of Markdown) or spreadsheet (csv in which no text is a formula).

    Raises QueryError for a type that the format does not have.
    """
    try:
        _write(rows, output_format, out)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise QueryError(f"{output_format} cannot hold this result ({error}); cast that column to VARCHAR") from error


def _write(rows: pa.Table, output_format: str, out: BinaryIO) -> None:
    if output_format in ("csv", "spreadsheet"):
        import pyarrow.csv

        flat = _flat(rows)
        pyarrow.csv.write_csv(_without_formulas(flat) if output_format == "spreadsheet" else flat, out)
    elif output_format == "json":
        _refuse_two_of_a_name(rows)
        out.write(json.dumps(_plain(rows.to_pylist()), indent=1).encode() + b"\n")
    elif output_format == "ndjson":
        _refuse_two_of_a_name(rows)
        for batch in rows.to_batches():
            out.writelines(json.dumps(_plain(row)).encode() + b"\n" for row in batch.to_pylist())
    elif output_format == "md":
        out.write(_markdown(_flat(rows)).encode())
    elif output_format == "parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(rows, out, compression="zstd")
    else:
        with pa.ipc.new_stream(out, rows.schema) as stream:
            stream.write_table(rows)


#: As https://owasp.org/www-community/attacks/CSV_Injection has it, also behind blanks and with signs of full width.
_FORMULA = "^([\\t\\r\\n]|\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20])"


def _without_formulas(rows: pa.Table) -> pa.Table:
    """The table with an apostrophe before each text, and name, that a spreadsheet would take for a formula."""
    import pyarrow.compute

    for i, field in enumerate(rows.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            shown = pyarrow.compute.replace_substring_regex(rows[i], _FORMULA, r"'\1")
            rows = rows.set_column(i, field.name, shown)
    return rows.rename_columns([re.sub(_FORMULA, r"'\1", name) for name in rows.schema.names])


def _markdown(rows: pa.Table) -> str:
    """The table in Markdown, numbers aligned right. No text of it is markup of HTML."""
    numeric = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in rows.schema.types]
    lines = [rows.schema.names, ["--:" if number else "---" for number in numeric]]
    columns = (column.to_pylist() for column in rows.columns)
    lines += [["" if value is None else str(value) for value in row] for row in zip(*columns, strict=True)]
    cells = ([html.escape(printable(cell), quote=False).replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _refuse_two_of_a_name(rows: pa.Table) -> None:
    """Raise QueryError where an object would lose a column."""
    names = rows.schema.names
    if twice := [name for name in names if names.count(name) > 1]:
        raise QueryError(f"json cannot hold two columns named {twice[0]}; rename one with AS")


def _flat(rows: pa.Table) -> pa.Table:
    """The table with lists, structs and maps as JSON text, which is how they fit into CSV."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            texts = [None if value is None else json.dumps(_plain(value)) for value in rows[i].to_pylist()]
            rows = rows.set_column(i, field.name, pa.array(texts, pa.string()))
    return rows


def _plain(value: Any) -> Any:
    """A value as JSON has it: no NaN or infinity, decimals as numbers, all else that JSON lacks as text."""
    match value:
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case None | str() | int():
            return value
    return str(value)
