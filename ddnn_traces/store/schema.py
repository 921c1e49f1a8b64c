"""The tables, read from schemas/: the only place where a column is defined.

The Arrow schemas of ingest, `ddnn-traces describe`, DuckDB's column comments and the descriptions of a release are made
from it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ddnn_traces.errors import UsageError
from ddnn_traces.text import counted

if TYPE_CHECKING:
    import pyarrow as pa

#: Goes up when a table or column is added or removed, or changes its name, type or meaning. A dataset carries the
#: version it was written with, and is not opened by an older program.
SCHEMA_VERSION = 14

#: The oldest version whose tables can be read: what was added since is null in them.
OLDEST_VERSION = 4

#: In the order in which a reader meets them.
TABLES = (
    "runs", "hosts", "captures", "capture_ledger", "flows", "encapsulations", "flow_opcodes", "flow_windows",
    "messages", "steps", "step_flows", "events", "packets",
)  # fmt: skip


#: What a column may identify. A release maps all of these (release/anonymise) except run, which the publisher names.
#: file: name of a capture; label: name of a host; tunnel: a number that follows the order of addresses; flow: one that
#: does so among flows that begin at the same time; text: words that may contain any of these. hash, size, clock: of an
#: original capture file, of a device; withheld or kept.
IDENTIFIES = (
    "address", "port", "time", "file", "label", "text", "tunnel", "flow", "run", "connection", "hash", "size", "clock",
)  # fmt: skip


@dataclass(frozen=True)
class Type:
    """A column type of schemas/ and its names in the systems that tables are written for.

    python: the type of a value. duckdb: SQL. pandas: the logical type in a Parquet file's pandas metadata; numpy: the
    storage type there of a column that is never null, and of one that may be. croissant, data_package, hub: Croissant
    1.1, Data Package 2.0, features of the Hugging Face Hub.
    """

    python: type
    duckdb: str
    pandas: str
    numpy: tuple[str, str]
    croissant: str
    data_package: str
    hub: str


TYPES = {
    "string": Type(str, "VARCHAR", "unicode", ("object", "object"), "sc:Text", "string", "string"),
    "int64": Type(int, "BIGINT", "int64", ("int64", "Int64"), "cr:Int64", "integer", "int64"),
    "double": Type(float, "DOUBLE", "float64", ("float64", "float64"), "cr:Float64", "number", "float64"),
    "bool": Type(bool, "BOOLEAN", "bool", ("bool", "boolean"), "sc:Boolean", "boolean", "bool"),
}


@dataclass(frozen=True)
class Column:
    """One column: name, type (a key of TYPES), unit, meaning, source and known inaccuracy.

    identifies: one of IDENTIFIES, or empty. ascending: mostly larger than in the row before: stored as differences.
    """

    name: str
    type: str
    meaning: str
    source: str
    unit: str = ""
    inaccuracy: str = ""
    nullable: bool = True
    identifies: str = ""
    ascending: bool = False

    @property
    def types(self) -> Type:
        """The column's type in other systems."""
        return TYPES[self.type]


@dataclass(frozen=True)
class Table:
    """One table: what a row is, its key (also its sort order) and its columns."""

    name: str
    row: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    def arrow(self) -> pa.Schema:
        """Arrow schema with the types and nullability of schemas/."""
        import pyarrow as pa

        types = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_()}
        return pa.schema([pa.field(c.name, types[c.type], nullable=c.nullable) for c in self.columns])


def shipped_folder(name: str) -> Path:
    """Folder queries, schemas or notebooks: next to the package in a checkout, inside it in an installed wheel.

    Raises FileNotFoundError.
    """
    package = Path(__file__).parents[1]
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"{name}/ is neither in {package} nor next to it: the installation is incomplete")


@cache
def table(name: str) -> Table:
    """The table of that name, as schemas/NAME.toml defines it."""
    with (shipped_folder("schemas") / f"{name}.toml").open("rb") as file:
        text = tomllib.load(file)
    columns = tuple(Column(**column) for column in text["columns"])
    return Table(text["table"], text["row"], tuple(text["key"]), columns)


def tables() -> list[Table]:
    """All tables."""
    return [table(name) for name in TABLES]


def identifying(identifies: str) -> list[tuple[str, str]]:
    """Table and name of each column that identifies so (one of IDENTIFIES), in the order of TABLES."""
    return [(t.name, c.name) for t in tables() for c in t.columns if c.identifies == identifies]


def markdown(names: Sequence[str] = (), counts: Mapping[str, int] | None = None) -> str:
    """The data dictionary of these tables (default: of all) as Markdown, with numbers of rows where they are given.

    Raises UsageError for an unknown name.
    """
    for name in names:
        if name not in TABLES:
            raise UsageError(f"no table named {name}; there are {', '.join(TABLES)}")
    return "\n".join(_markdown(table(name), (counts or {}).get(name)) for name in names or TABLES)


def _markdown(table: Table, rows: int | None) -> str:
    size = "" if rows is None else f" {counted(rows, 'row')}."
    lines = [f"## {table.name}", "", f"One row is {table.row}.{size} Key: {', '.join(table.key)}.", ""]
    lines += ["| column | type | unit | meaning | source | known inaccuracy |", "|---|---|---|---|---|---|"]
    for c in table.columns:
        kind = c.type if c.nullable else f"{c.type}, never null"
        lines.append(f"| {c.name} | {kind} | {c.unit} | {c.meaning} | {c.source} | {c.inaccuracy} |")
    return "\n".join([*lines, ""])
