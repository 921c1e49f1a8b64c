"""Metadata of a run: what is known before its packets are read.

Every field comes from the first of these that has it: `run.toml` in the run's folder; the run's row in a `runs.csv`
next to the folder, or next to a bare capture; the folder's name in the published scheme
`framework-model-optimizer-batchsize-backend-condition-topology` (condition: normal, loss_0.01, 20ms, 100mbit;
a number alone is a loss in percent, as the scripts published with zerwas write it). A row of runs.csv that is wrong is
not used, and `bad_rows` has it; a wrong run.toml, or a runs.csv without a right header, is an error: the first leaves
out its run, the second ends the ingest.
"""

from __future__ import annotations

import ipaddress
import math
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ddnn_traces.errors import MetadataError
from ddnn_traces.pcap.streams import is_local
from ddnn_traces.store import schema
from ddnn_traces.text import counted, listed, meant, nearest, shown, valid_text
from ddnn_traces.text_files import MOST_TABLE, csv_lines, is_missing, read_bytes, read_toml

#: Declared topologies by the words that the frameworks and papers use.
_TOPOLOGY_WORDS = {
    "ps": "parameter_server",
    "gossip": "pair_averaging",
    "pairavg": "pair_averaging",
    "recdoubling": "recursive_doubling",
    "binary_tree": "tree",
    "bts": "binary_tree_star",
} | {word: word for word in ("ring", "tree", "star", "clique", "binary_tree_star")}  # KungFu's are in capitals
ROLES = ("worker", "parameter_server", "chief", "other")

#: Columns of `runs` that ingest fills in by itself.
_NOT_METADATA = ("run_id", "clock_offset_ns")
#: Values of the column fault_kind.
FAULT_KINDS = ("none", "slow_host", "slow_link", "delay", "loss", "background", "receiver", "congestion")
#: Values of the column source; the default is capture.
SOURCES = ("capture", "testbed", "simulation", "ns3", "synthetic")
_ABOVE_0 = "above 0; leave it out where it is not known"
_NOT_BELOW_0 = "0 or more"
#: Allowed values of numbers, in words; every number must also be finite.
_ALLOWED = {
    "model_params": _ABOVE_0, "model_bytes": _ABOVE_0, "model_size_mb": _ABOVE_0, "batch_size": _ABOVE_0,
    "workers": _ABOVE_0, "ranks_per_host": _ABOVE_0, "epochs": _ABOVE_0, "planned_steps": _ABOVE_0,
    "bandwidth_mbit": _ABOVE_0,
    "burst_bytes": _NOT_BELOW_0, "delay_ms": _NOT_BELOW_0, "rank": _NOT_BELOW_0, "ring_position": _NOT_BELOW_0,
    "fault_strength": _NOT_BELOW_0, "fault_from_step": _NOT_BELOW_0, "fault_to_step": _NOT_BELOW_0,
    "loss_pct": "0 to 100",
}  # fmt: skip

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_CONDITION = re.compile(
    rf"normal|(?:loss_)?(?P<loss>{_NUMBER})|(?P<delay>{_NUMBER})ms|(?P<rate>{_NUMBER})(?P<unit>[mg])bit", re.IGNORECASE
)
_MOST_NAMED = 3  # runs in a message
_NO_TEXT = ("\ufffd", "\0")  # what csv_lines makes of bytes that are not UTF-8, and what UTF-16 has between letters
_BATCH_SIZE = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class HostEntry:
    """A [[hosts]] entry of run.toml."""

    ip: str
    label: str | None = None
    role: str | None = None
    rank: int | None = None
    ring_position: int | None = None


@dataclass(frozen=True)
class RunMetadata:
    """Fields of `runs` that are known, by column name, and the declared hosts."""

    fields: dict[str, Any] = field(default_factory=dict)
    hosts: tuple[HostEntry, ...] = ()


def is_run_folder(folder: Path) -> bool:
    """Whether a folder is evidently a run's: run.toml in it, a row in runs.csv next to it, or a name in the scheme."""
    named = folder.name in runs_csv(folder.parent).rows or bool(from_name(folder.name))
    return named or not is_missing(folder / "run.toml")


def bad_rows(folder: Path, known: Collection[str] = ()) -> tuple[str, ...]:
    """The rows that are wrong in the runs.csv of a folder, a message each, and one of all that name no folder next to
    it. known: names of other runs that rows may be of. Raises MetadataError."""
    table = runs_csv(folder)
    others = sorted(known)  # of all runs that are there
    absent = [
        f"{shown(name)}{near and f' ({near})'}"
        for name in table.rows
        if name not in known and not _is_folder(folder / name)
        for near in [meant(name, others)]
    ]
    if not absent:
        return table.bad
    what = f"{counted(len(absent), 'row')} without a folder of that name next to it: {listed(absent, _MOST_NAMED)}"
    return (*table.bad, f"{folder / 'runs.csv'}: {what}; correct run_id, or remove such rows")


def _is_folder(path: Path) -> bool:
    if not is_local(path):
        return path.is_dir()
    return os.path.isdir(path)  # noqa: PTH112 (False for impossible names)


def read_metadata(folder: Path | None, rows: tuple[Path, Sequence[str]] | None = None) -> RunMetadata:
    """Metadata of a run: of its folder, if it has one, and of its row in a runs.csv. Raises MetadataError.

    rows: folder of the runs.csv, and names of the run there, the first of which counts; by default that of the folder.
    """
    if folder is not None and rows is None:
        rows = folder.parent, (folder.name,)
    declared, hosts = _run_toml(folder / "run.toml") if folder else ({}, ())
    stated = {
        name: valid_text(value) if isinstance(value, str) else value
        for name, value in (_row_of(rows) | declared).items()
    }
    name = valid_text(folder.name) if folder else ""
    named = {field: value for field, value in from_name(name).items() if field not in stated}
    for field_name, value in named.items():
        _check_range(f"{folder}: by the folder's name", field_name, value)
    fields = named | stated
    if "topology" in fields:
        fields["topology"] = _TOPOLOGY_WORDS.get(fields["topology"].lower(), fields["topology"])
    if "model_size_mb" not in fields and (size := nominal_size_mb(fields.get("model"))) is not None:
        fields["model_size_mb"] = size
    for field_name, words in (("source", SOURCES), ("fault_kind", FAULT_KINDS)):
        if (word := fields.get(field_name)) not in (None, *words):
            where = folder or (rows and rows[0] / "runs.csv")
            raise MetadataError(f"{where}: {field_name} = {shown(word)} of the run; it is one of {', '.join(words)}")
    return RunMetadata(fields, hosts)


def _row_of(rows: tuple[Path, Sequence[str]] | None) -> dict[str, Any]:
    if rows is None:
        return {}
    table = runs_csv(rows[0]).rows
    return dict(next((table[name] for name in rows[1] if name in table), {}))


def from_name(name: str) -> dict[str, Any]:
    """Fields in a folder name of the published scheme; empty for any other name.

    Backend may itself hold a hyphen (mpi-nccl); what follows the topology is the variant.
    """
    parts = name.split("-")
    batch = next((i for i, part in enumerate(parts) if i >= 3 and _BATCH_SIZE.fullmatch(part)), None)
    if batch is None:
        return {}
    condition = next((i for i in range(batch + 2, len(parts)) if _CONDITION.fullmatch(parts[i])), None)
    if condition is None or condition + 1 >= len(parts):
        return {}
    fields: dict[str, Any] = {
        "framework": parts[0],
        "model": "-".join(parts[1 : batch - 1]),
        "optimizer": parts[batch - 1],
        "batch_size": int(parts[batch]),
        "backend": "-".join(parts[batch + 1 : condition]),
        "topology": parts[condition + 1],
    }
    if condition + 2 < len(parts):
        fields["variant"] = "-".join(parts[condition + 2 :])
    return fields | _conditions(parts[condition])


def _conditions(word: str) -> dict[str, Any]:
    match = _CONDITION.fullmatch(word)
    if match is None:
        return {}
    if match["loss"]:
        return {"loss_pct": float(match["loss"])}
    if match["delay"]:
        return {"delay_ms": float(match["delay"])}
    if match["rate"]:
        return {"bandwidth_mbit": float(match["rate"]) * (1000 if match["unit"].lower() == "g" else 1)}
    return {"delay_ms": 0.0, "loss_pct": 0.0}  # normal


@cache
def _known_models() -> dict[str, float]:
    with (Path(__file__).parent / "models.toml").open("rb") as file:
        return {name: entry["model_size_mb"] for name, entry in tomllib.load(file).items()}


def nominal_size_mb(model: str | None) -> float | None:
    """Size in MB that the papers print for a model's name, or None."""
    return _known_models().get(re.sub(r"[^a-z0-9]", "", model.lower())) if model else None


@cache
def _metadata_columns() -> dict[str, str]:
    return {c.name: c.type for c in schema.table("runs").columns if c.name not in _NOT_METADATA}


def _run_toml(path: Path) -> tuple[dict[str, Any], tuple[HostEntry, ...]]:
    if is_missing(path):
        return {}, ()
    text = read_toml(path, MetadataError)
    hosts = text.pop("hosts", [])
    if not isinstance(hosts, list) or not all(isinstance(host, dict) for host in hosts):
        raise MetadataError(f"{path}: hosts = {shown(hosts)} is not a list of [[hosts]] tables; change it")
    text.pop("origin", None)  # free text on the run's origin
    if "rejected" in text:
        raise MetadataError(
            f"{path}: rejected = {shown(text['rejected'])}, by what made the run; without this key it is ingested"
        )
    faults: list[str] = []
    metadata = _right(faults, lambda item: (item[0], _typed(path, *item)), text.items())
    found = _right(faults, lambda entry: _checked(path, _host(path, entry)), hosts)
    if faults:
        said = [fault.removeprefix(f"{path}: ") for fault in faults[:_MOST_FAULTS]]
        more = [f"and {len(faults) - _MOST_FAULTS:,} more"] if len(faults) > _MOST_FAULTS else []
        raise MetadataError(f"{path}: {'; '.join(said + more)}")
    return dict(metadata), tuple(found)


#: Mistakes of a run.toml that its error names.
_MOST_FAULTS = 20
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def _right(faults: list[str], checked: Callable[[_Item], _Found], items: Iterable[_Item]) -> list[_Found]:
    """The items that are right, as checked; what is wrong with the others is added to `faults`."""
    found = []
    for item in items:
        try:
            found.append(checked(item))
        except MetadataError as error:
            faults.append(str(error))
    return found


def _host(path: Path, entry: dict[str, Any]) -> HostEntry:
    try:
        return HostEntry(**entry)
    except TypeError as error:
        known, fault = ", ".join(HostEntry.__dataclass_fields__), shown(str(error))
        raise MetadataError(f"{path}: a [[hosts]] entry is wrong ({fault}); its keys are {known}") from error


def _checked(path: Path, host: HostEntry) -> HostEntry:
    for name, value in asdict(host).items():
        wanted = int if name in ("rank", "ring_position") else str
        if value is not None and not _has_type(value, wanted):
            raise MetadataError(
                f"{path}: {name} = {shown(value)} in [[hosts]] is not of type {wanted.__name__}; change it"
            )
        _check_range(f"{path}: in [[hosts]]", name, value)
    if host.role is not None and host.role not in ROLES:
        raise MetadataError(f"{path}: role {shown(host.role)} of {shown(host.ip)}; it is one of {', '.join(ROLES)}")
    try:
        label = None if host.label is None else valid_text(host.label)
        return replace(host, ip=valid_text(str(ipaddress.ip_address(host.ip))), label=label)
    except ValueError:
        raise MetadataError(f"{path}: ip = {shown(host.ip)} in [[hosts]] is no IP address; change it") from None


@dataclass(frozen=True)
class RunsCsv:
    """The rows of a runs.csv by run_id, and a message for each row that is wrong. header: names of the columns.
    named: run_id of every row, also of wrong ones."""

    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    bad: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    named: frozenset[str] = frozenset()


def runs_csv(folder: Path) -> RunsCsv:
    """The runs.csv in a folder, empty where there is none. Raises MetadataError for a wrong header."""
    path = folder / "runs.csv"
    if is_missing(path):
        return RunsCsv()
    return _parse_runs_csv(path, read_bytes(path, MOST_TABLE, MetadataError))


#: Wrong rows of runs.csv that are named one by one; each warning is kept in the dataset, too.
_MOST_BAD_ROWS = 20


@lru_cache(maxsize=2)  # one for all runs of a folder
def _parse_runs_csv(path: Path, data: bytes) -> RunsCsv:
    lines = csv_lines(data)
    _, header = next(lines, (1, None))
    names = _header(path, header or [])
    rows: dict[str, dict[str, Any]] = {}
    bad, named = [], set()
    for number, cells in lines:
        try:
            row = _row(names, cells)
            if not row:  # as spreadsheets leave them
                continue
            if (run_id := row.pop("run_id", "")) in rows:
                raise MetadataError(f"run_id = {shown(run_id)} has a row above; remove one of the two")
            if not run_id:
                raise MetadataError("no run_id; write the name of the run's folder there")
            named.add(run_id)
            where = f"run {shown(run_id)}:"
            rows[run_id] = {name: _parsed(where, name, text) for name, text in row.items()}
        except MetadataError as error:
            bad.append(f"{path}: line {number}: {error}; the row is not used")
    if (more := len(bad) - _MOST_BAD_ROWS) > 0:
        bad[_MOST_BAD_ROWS:] = [f"{path}: {more:,} more rows are wrong and not used"]
    return RunsCsv(rows, tuple(bad), tuple(names), frozenset(named))


def _header(path: Path, names: list[str]) -> list[str]:
    """The names of the columns, checked: those of `runs`, each once. A nameless one may be there, without cells."""
    if any(letter in name for name in names for letter in _NO_TEXT):
        raise MetadataError(f"{path}: not CSV in UTF-8; save it as CSV in UTF-8")
    if "run_id" not in names:
        raise MetadataError(f"{path}: no column run_id; it holds the names of the run folders")
    for name in filter(None, names):
        if name != "run_id":
            _column_type(str(path), name)
        if names.count(name) > 1:
            raise MetadataError(f"{path}: {names.count(name)} columns are named {name}; remove all but one")
    return names


def _row(names: list[str], cells: list[str] | None) -> dict[str, str]:
    """The cells of a row that are not empty, by column. Raises MetadataError without the file."""
    if cells is None:
        raise MetadataError("a quotation mark is not closed, or a cell is too long; correct it")
    if any(letter in cell for cell in cells for letter in _NO_TEXT):
        raise MetadataError("not text in UTF-8; save the file as CSV in UTF-8")
    filled = len(cells) - next((i for i, cell in enumerate(reversed(cells)) if cell), len(cells))
    if filled > len(names):
        raise MetadataError(f"{filled} cells, but {counted(len(names), 'column')}; put text with commas in quotes")
    row = {name: cell for name, cell in zip(names, cells, strict=False) if cell}
    if "" in row:
        raise MetadataError(f"{shown(row[''])} is in a column without a name; name the column, or remove the cell")
    return row


def _typed(path: Path, name: str, value: Any) -> Any:
    """A TOML value, checked against its column."""
    wanted = schema.TYPES[_column_type(str(path), name)].python
    if wanted is float and _has_type(value, int):
        value = float(value)
    if not _has_type(value, wanted):
        fault = "is beyond 64 bits" if type(value) is wanted else f"is not of type {wanted.__name__}"
        raise MetadataError(f"{path}: {name} = {shown(value)} {fault}; change it")
    _check_range(f"{path}:", name, value)
    return value


def _parsed(where: str, name: str, text: str) -> Any:
    """A CSV cell, converted to its column's type."""
    wanted = schema.TYPES[_column_type(where, name)].python
    try:
        value = wanted(text)
    except ValueError:
        value = None
    if not _has_type(value, wanted):
        raise MetadataError(f"{where} {name} = {shown(text)} is not of type {wanted.__name__}; change it")
    _check_range(where, name, value)
    return value


def _check_range(where: str, name: str, value: Any) -> None:
    """Raise MetadataError for a number outside of its range."""
    if not isinstance(value, int | float):
        return
    allowed = _ALLOWED.get(name, "a finite number")
    low, high = (0, 100) if name == "loss_pct" else (0, math.inf) if name in _ALLOWED else (-math.inf, math.inf)
    if not math.isfinite(value) or not low <= value <= high or (allowed == _ABOVE_0 and value == 0):
        raise MetadataError(f"{where} {name} = {shown(value)}; it is {allowed}")


def _has_type(value: Any, wanted: type) -> bool:
    """Whether a value is of exactly this type (a bool is not an int), and an int fits into 64 bits."""
    return type(value) is wanted and not (isinstance(value, int) and value.bit_length() > 63)


def _column_type(where: str, name: str) -> str:
    columns = _metadata_columns()
    if name not in columns:
        raise MetadataError(f"{where}: unknown key {shown(name)}; {nearest(name, list(columns))}")
    return columns[name]
