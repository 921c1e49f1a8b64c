"""The named queries: one question per file in queries/, read with the head that describes it.

A head is the comment lines `-- key: value` at the start of a file: question, row (what a row stands for), inputs
(tables and other queries, or none), optionally figure (of the papers), needs (parameters without which there are no
rows), optional (inputs that a run may lack), answer (columns that a narrow table shows before others) and made_by (the
package whose rows take the place of the SQL's, see inferred.py), a `param` line for each parameter and a `column` line
for each result column, in their order:

    -- param: window_ms DOUBLE = 10; length of a window, ms
    -- column: wire_bytes bytes; sum of the frames' original lengths
    -- column: is_ring; whether the pairs are a ring
    -- column: run_id
    -- column: flow_id from flows

In the SQL a parameter is `$window_ms`. A column without a unit (a name, number or truth value) has none in its line. A
name alone takes unit and meaning from the inputs; `from` says from which one, where they differ.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from ddnn_traces.errors import QueryError
from ddnn_traces.store import schema
from ddnn_traces.text import nearest

#: Lines of comments and empty ones before the SQL.
_COMMENTS = re.compile(r"(\s*--[^\n]*\n|\s*\n)*")
_HEAD_LINE = re.compile(r"--\s*(\w+):\s*(.*)")
_PARAM = re.compile(
    r"(?P<name>\w+)\s+(?P<type>BIGINT|DOUBLE(?:\[\])?|VARCHAR)(?P<positive> > 0)?\s*=\s*(?P<default>[^;]+);"
    r"\s*(?P<meaning>.+)"
)
_COLUMN = re.compile(r"(?P<name>\w+)(?:(?: (?P<unit>[^;]+))?; (?P<meaning>.+)|(?: from (?P<source>\w+))?)")
#: Likeness of two names (difflib) from which one may be meant by the other: difflib's own limit of close matches.
_CLOSE = 0.6
_OF_RUNS = ("run", "runs", "run_id")  # what users take for parameters
_FEW_COLUMNS = 8  # that a word is in: of more none is meant
_PYTHON_TYPES: dict[str, Callable[[str], Any]] = {
    "BIGINT": int,
    "DOUBLE": float,
    "DOUBLE[]": lambda text: [float(part) for part in text.strip("[] ").split(",")],
    "VARCHAR": str,
}


@dataclass(frozen=True)
class Param:
    """A parameter of a query: DuckDB type (BIGINT, DOUBLE, DOUBLE[], VARCHAR), default (None: NULL), meaning with unit,
    and whether it must be above 0."""

    name: str
    type: str
    default: Any
    meaning: str
    positive: bool = False

    def value(self, given: Any) -> Any:
        """A value that is given as such or as a user's text. Raises QueryError."""
        value = self.parse(given) if isinstance(given, str) else given
        if isinstance(value, float) and not math.isfinite(value):
            raise QueryError(f"parameter {self.name} = {value} is not a finite number: {self.meaning}")
        if self.positive and isinstance(value, int | float) and not value > 0:
            raise QueryError(f"parameter {self.name} = {value} must be above 0: {self.meaning}")
        return value

    def parse(self, text: str) -> Any:
        """The value that a user's text stands for. Raises QueryError."""
        if text.upper() == "NULL":
            return None
        try:
            value = _PYTHON_TYPES[self.type](text)
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(text)
            if isinstance(value, int) and abs(value) >= 2**63:
                raise ValueError(text)
            return value
        except ValueError:
            raise QueryError(f"parameter {self.name} = {text!r} is not a {self.type}: {self.meaning}") from None


#: Parameters of named queries, not in SQL: a query reads only the flows of these, or has only their rows.
SELECTION = {
    param.name: param
    for param in (
        Param("job", "BIGINT", 0, "number of a job, as in query jobs: only its flows count"),
        Param(
            "communicator",
            "BIGINT",
            None,
            "number of a group of hosts of that job (0 where none is given), as in query "
            "communicators: only its flows count",
        ),
    )
}


@dataclass(frozen=True)
class ResultColumn:
    """A column of a query's result: meaning and unit (empty for names, numbers of things and truth values)."""

    name: str
    unit: str
    meaning: str

    @property
    def comment(self) -> str:
        """Meaning and unit, as in a column's comment in DuckDB."""
        return f"{self.meaning} [{self.unit}]" if self.unit else self.meaning


@dataclass(frozen=True)
class Query:
    """A named query: question, grain of a row, inputs, the paper's figure, parameters, result columns and its SQL.

    needs: parameters without which it has no rows. optional: inputs that a run may lack without loss. made_by: the
    package whose rows take the place of the SQL's. answer: columns that a table which is too narrow for all has first.
    subject: one of SUBJECTS; of a check or a sweep's query none.
    """

    name: str
    path: Path
    question: str
    row: str
    inputs: tuple[str, ...]
    figure: str
    params: tuple[Param, ...]
    columns: tuple[ResultColumn, ...]
    sql: str
    needs: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    made_by: str = ""
    answer: tuple[str, ...] = ()
    subject: str = ""

    @property
    def is_view(self) -> bool:
        """Whether DuckDB computes it as a view: with parameters it is a macro, and what Python makes is a stream."""
        return not self.params and not self.made_by

    @property
    def choices(self) -> tuple[Param, ...]:
        """Those of SELECTION that the query takes beside its own parameters."""
        taken, columns = {param.name for param in self.params}, {column.name for column in self.columns}
        of_rows = columns if "job" in columns else SELECTION.keys()
        return tuple(param for name, param in SELECTION.items() if self.subject and name in of_rows - taken)

    @property
    def description(self) -> str:
        """The head as text for people, and the SQL below it."""
        lines = [f"{self.name}: {self.question}", ""]
        facts = [("row", self.row), ("inputs", ", ".join(self.inputs) or "none"), ("figure", self.figure)]
        for param in self.params:
            default = "NULL" if param.default is None else param.default
            facts.append(("param", f"{param.name} {param.type} = {default}; {param.meaning}"))
        facts += [("param", f"{param.name} {param.type}; {param.meaning}; not in SQL") for param in self.choices]
        facts += [("column", f"{column.name}: {column.comment}") for column in self.columns]
        before = ""
        for key, value in facts:
            if value:
                lines.append(f"  {'' if key == before else key:<7} {value}")
            before = key
        return "\n".join([*lines, "", self.sql[self.head_length :].strip()])

    @property
    def head_length(self) -> int:
        """Characters of the SQL before the first line that is not `-- key: value`."""
        length = 0
        for line in self.sql.splitlines(keepends=True):
            if not _HEAD_LINE.fullmatch(line.rstrip("\n")):
                break
            length += len(line)
        return length

    @property
    def statement(self) -> str:
        """The SQL in which each view that is read on several ways is a common table expression, computed once.

        DuckDB computes a view anew wherever a view that reads it is read.
        """
        known, below = catalogue(), _views_below(self.name)
        views = [name for name in known if name in below]  # each after those that it reads
        readers = Counter(read for query in (self, *(known[name] for name in views)) for read in query.inputs)
        shared = {name for name in views if readers[name] > 1}
        written: list[str] = []
        for name in views:
            if name in shared or not set(written).isdisjoint(known[name].inputs):
                written.append(name)
        if not written:
            return self.sql
        expressions = ",\n".join(
            f"{name} AS {'' if name in shared else 'NOT '}MATERIALIZED (\n{known[name].sql}\n)" for name in written
        )
        body = _COMMENTS.sub("", self.sql, count=1)
        start = re.match(r"WITH( RECURSIVE)?\s", body)
        if start is None:
            return f"WITH {expressions}\n{body}"
        return f"{start[0]}{expressions},\n{body[start.end() :]}"

    def values(self, given: dict[str, Any]) -> dict[str, Any]:
        """All parameters: the given ones (text is parsed), else the defaults.

        Raises QueryError for unknown ones, and for needed ones that are not given.
        """
        known = {param.name: param for param in self.params}
        for name in given:  # before needed ones: a wrong name may be meant for one of these
            if name not in known and name not in SELECTION:
                if name in _OF_RUNS:
                    how = "--run NAME chooses runs, in Python ddnn_traces.open(..., runs=[NAME])"
                    raise QueryError(f"query {self.name} has no parameter {name}: {how}")
                all_names = [*known, *(param.name for param in self.choices)]
                raise QueryError(f"query {self.name} has no parameter {name}; {nearest(name, all_names)}")
        lacking = [param for param in self.params if param.name in self.needs and param.name not in given]
        if lacking:
            said = " and ".join(f"{param.name} ({param.meaning})" for param in lacking)
            example = " ".join(f"--param {param.name}=..." for param in lacking)
            raise QueryError(f"{self.name} needs {said}; on the command line {example}")
        return {name: param.value(given[name]) if name in given else param.default for name, param in known.items()}

    def selection(self, given: Mapping[str, Any]) -> dict[str, int]:
        """The given ones of SELECTION; none where the query has a parameter of that name itself. Raises QueryError."""
        own = {param.name for param in self.params}
        chosen = {name: param.value(given[name]) for name, param in SELECTION.items() if name in given.keys() - own}
        return {name: value for name, value in chosen.items() if value is not None}


#: `subject` of a query's head -> heading of its group in lists, in their order.
SUBJECTS = {
    "runs": "Runs, captures and settings",
    "volume": "Volume, flows and pairs of hosts",
    "throughput": "Throughput, bursts and pauses",
    "steps": "Training steps and iterations",
    "topology": "Topologies, and what their laws send",
    "collectives": "Jobs and collectives",
    "delays": "What delays a step, and faults",
    "accuracy": "Accuracy by volume",
    "servers": "Parameter servers",
    "conditions": "Conditions of the network",
    "timelines": "Timelines, profilers and simulated runs",
}


def groups() -> dict[str, list[Query]]:
    """The queries by subject, sorted by name."""
    found: dict[str, list[Query]] = {subject: [] for subject in SUBJECTS}
    for name in sorted(catalogue()):
        found[catalogue()[name].subject].append(catalogue()[name])
    return found


def find(name: str) -> Query:
    """The query of that name. Raises QueryError with up to three that are near by their words, of which rare ones tell
    more, or by their names, and with columns of tables that have its rarest word."""
    found = catalogue().get(name)
    if found is not None:
        return found
    if name in schema.TABLES:
        raise QueryError(f"{name} is a table, no query; ddnn-traces sql DATASET 'FROM {name}' has its rows")
    if re.fullmatch(r"\w+", name) and (schema.shipped_folder("queries") / "checks" / f"{name}.sql").is_file():
        raise QueryError(f"{name} is a check, no query; ddnn-traces check DATASET has its rows")
    words = [word[:6].lower() for word in re.findall(r"\w{4,}", name.replace("_", " "))]
    about = {query.name: f"{query.name} {query.question}".lower() for query in catalogue().values()}
    columns = {f"{table.name}.{column.name}" for table in schema.tables() for column in table.columns}
    weights = {word: 1 / (1 + sum(word in text for text in [*about.values(), *columns])) for word in words}
    scores = {
        other: (
            sum(weights[word] for word in words if word in text),
            difflib.SequenceMatcher(None, name, other).ratio(),
        )
        for other, text in about.items()
    }
    close = [other for other, (shared, likeness) in scores.items() if shared or likeness >= _CLOSE]
    near = ", ".join(sorted(close, key=scores.__getitem__, reverse=True)[:3])
    hint = f"the nearest are {near}; " if near else ""
    rarest = max(words, key=weights.__getitem__, default="")
    meant = sorted(column for column in columns if rarest and rarest in column.partition(".")[2])
    if 0 < len(meant) <= _FEW_COLUMNS:
        hint += f"columns of tables, for sql: {', '.join(meant)}; "
    raise QueryError(f"no query named {name}; {hint}without a name all are listed")


@cache
def _views_below(name: str) -> frozenset[str]:
    """The queries that a named query reads as views, and those that they read."""
    found = frozenset(read for read in find(name).inputs if read in catalogue() and find(read).is_view)
    return found.union(*map(_views_below, found))


@cache
def read_by(name: str, optional: bool = True) -> frozenset[str]:
    """Tables and queries that a named query reads, also through the queries that it reads.

    optional: also its optional inputs. Raises QueryError.
    """
    query = find(name)
    inputs = [read for read in query.inputs if optional or read not in query.optional]
    return frozenset(inputs).union(*(read_by(read, optional) for read in inputs if read in catalogue()))


@cache
def catalogue() -> dict[str, Query]:
    """All named queries, each after the queries that it reads."""
    return read_folder(schema.shipped_folder("queries"))


def read_folder(folder: Path) -> dict[str, Query]:
    """The queries of a folder by name, each after those that it reads. Raises ValueError for a wrong head."""
    heads = {path.stem: _Head(path) for path in sorted(folder.glob("*.sql"))}
    order = TopologicalSorter({name: [read for read in head.inputs if read in heads] for name, head in heads.items()})
    queries: dict[str, Query] = {}
    for name in order.static_order():
        queries[name] = heads[name].query(queries)
    return queries


def read(path: Path) -> Query:
    """The query of a file that may read all named queries, as a check does. Raises ValueError for a wrong head."""
    return _Head(path).query(catalogue())


class _Head:
    """The head of a file. Raises ValueError where a line is wrong or missing."""

    def __init__(self, path: Path) -> None:
        self._path, self._text = path, path.read_text(encoding="utf-8")
        self._params: list[Param] = []
        self._columns: list[re.Match[str]] = []
        self._values: dict[str, str] = {}
        for line in self._text.splitlines():
            match = _HEAD_LINE.fullmatch(line)
            if not match:
                break
            if match[1] == "param":
                self._params.append(_param(path, match[2]))
            elif match[1] == "column":
                self._columns.append(_column(path, match[2]))
            else:
                self._values[match[1]] = match[2]
        if missing := [key for key in ("question", "row", "inputs") if not self._values.get(key)]:
            raise ValueError(f"{path}: the head has no line '-- {missing[0]}: ...' (it ends at the first other line)")
        self.inputs = () if self._values["inputs"] == "none" else _names(self._values["inputs"])

    def query(self, known: Mapping[str, Query]) -> Query:
        """The query, whose columns and SQL have the meanings that it takes from its inputs.

        known: the queries that it may read. Raises ValueError where these define a column not at all or differently.
        """
        columns = tuple(self._defined(column, known) for column in self._columns)
        text = self._text
        for match, column in zip(self._columns, columns, strict=True):
            if not match["meaning"]:
                unit = f" {column.unit}" if column.unit else ""
                whole = f"-- column: {column.name}{unit}; {column.meaning}\n"
                text = text.replace(f"-- column: {match[0]}\n", whole, 1)
        about = self._values
        answer = _names(about.get("answer", ""))
        if unknown := set(answer) - {column.name for column in columns}:
            raise ValueError(f"{self._path}: answer {min(unknown)} is none of the columns")
        return Query(
            self._path.stem, self._path, about["question"], about["row"], self.inputs, about.get("figure", ""),
            tuple(self._params), columns, text, _names(about.get("needs", "")),
            _names(about.get("optional", "")), about.get("made_by", ""), answer, about.get("subject", ""),
        )  # fmt: skip

    def _defined(self, match: re.Match[str], known: Mapping[str, Query]) -> ResultColumn:
        """A column with its own meaning, or that of the inputs."""
        name, source = match["name"], match["source"]
        if match["meaning"]:
            return ResultColumn(name, match["unit"] or "", match["meaning"])
        if source and source not in self.inputs:
            raise ValueError(f"{self._path}: column {name} is from {source}, which is not among the inputs")
        found = {
            read: ResultColumn(name, column.unit, column.meaning)
            for read in ((source,) if source else self.inputs)
            for column in _columns_of(read, known)
            if column.name == name
        }
        if not found:
            lacks = f"{source} has no" if source else "no input has a"
            raise ValueError(f"{self._path}: {lacks} column {name}; write '-- column: {name} UNIT; MEANING'")
        first = next(iter(found))
        if len(set(found.values())) > 1:
            raise ValueError(
                f"{self._path}: {', '.join(found)} define {name} differently; write '-- column: {name} from {first}', "
                "or a meaning"
            )
        return found[first]


def _columns_of(read: str, known: Mapping[str, Query]) -> tuple[ResultColumn | schema.Column, ...]:
    """Columns of a table or a query; none of a table of a sweep, which schemas/ does not have."""
    if read in known:
        return known[read].columns
    return schema.table(read).columns if read in schema.TABLES else ()


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name)


def _column(path: Path, text: str) -> re.Match[str]:
    match = _COLUMN.fullmatch(text)
    if match is None:
        raise ValueError(f"{path}: cannot read the column {text!r}")
    return match


def _param(path: Path, text: str) -> Param:
    match = _PARAM.fullmatch(text)
    if match is None:
        raise ValueError(f"{path}: cannot read the parameter {text!r}")
    default = match["default"].strip()
    value = None if default == "NULL" else _PYTHON_TYPES[match["type"]](default)
    return Param(match["name"], match["type"], value, match["meaning"], match["positive"] is not None)
