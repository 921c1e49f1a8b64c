"""The tables, read from schemas/: the only place where a column is defined.

Everything else that knows columns is made from here: the Arrow schemas of ingest, `ddnn-traces describe` and DuckDB's
column comments.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

#: Goes up when a column changes its name, type or meaning. A dataset carries the version it was written with.
SCHEMA_VERSION = 3

#: In the order in which a reader meets them.
TABLES = (
    "runs", "hosts", "captures", "capture_ledger", "flows", "encapsulations", "flow_opcodes", "flow_windows", "steps",
    "step_flows", "events", "packets",
)  # fmt: skip


#: What a column may tell of who, where or when: a release maps those (releases/anonymise), all but run, which are the
#: publisher's own words and stay. file: name of a capture; label: name of a host; tunnel: a number that follows the
#: order of addresses; text: words in which any of these may stand.
IDENTIFIES = ("address", "port", "time", "file", "label", "text", "tunnel", "run")


@dataclass(frozen=True)
class Column:
    """One column: name, Arrow type name, unit, meaning, source, known inaccuracy, and what it tells of whom or when.

    identifies: one of IDENTIFIES, empty for none.
    """

    name: str
    type: str
    meaning: str
    source: str
    unit: str = ""
    inaccuracy: str = ""
    nullable: bool = True
    identifies: str = ""


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
    """Folder `queries` or `schemas`: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).parents[1]
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"{name}/ is neither in {package} nor beside it: the installation is incomplete")


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
