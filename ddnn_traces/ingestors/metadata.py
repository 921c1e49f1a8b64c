"""Metadata of a run: what is known before its packets are read.

Every field comes from the first of these that has it: `run.toml` in the run's folder; the run's row in a `runs.csv`
next to the folder; the folder's name in the published scheme
`framework-model-optimizer-batchsize-backend-condition-topology` (condition: normal, loss_0.01, 20ms, 100mbit;
a number alone is a loss in percent, as the scripts published with zerwas write it).
"""

from __future__ import annotations

import csv
import ipaddress
import math
import re
import tomllib
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ddnn_traces.errors import MetadataError
from ddnn_traces.store import schema

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
#: Values of the column source; the default is capture.
SOURCES = ("capture", "testbed", "simulation", "ns3", "synthetic")
_ABOVE_0 = "above 0; leave it out where it is not known"
_NOT_BELOW_0 = "0 or more"
#: Allowed values of numbers, in words; every number must also be finite.
_ALLOWED = {
    "model_params": _ABOVE_0, "model_bytes": _ABOVE_0, "model_size_mb": _ABOVE_0, "batch_size": _ABOVE_0,
    "workers": _ABOVE_0, "epochs": _ABOVE_0, "bandwidth_mbit": _ABOVE_0,
    "delay_ms": _NOT_BELOW_0, "rank": _NOT_BELOW_0, "ring_position": _NOT_BELOW_0,
    "loss_pct": "0 to 100",
}  # fmt: skip

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_CONDITION = re.compile(
    rf"normal|(?:loss_)?(?P<loss>{_NUMBER})|(?P<delay>{_NUMBER})ms|(?P<rate>{_NUMBER})(?P<unit>[mg])bit", re.IGNORECASE
)
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
    return (folder / "run.toml").exists() or folder.name in _runs_csv(folder.parent) or bool(from_name(folder.name))


def read_metadata(folder: Path | None) -> RunMetadata:
    """Metadata of the run in a folder; empty without a folder. Raises MetadataError."""
    if folder is None:
        return RunMetadata()
    declared, hosts = _run_toml(folder / "run.toml")
    stated = _runs_csv(folder.parent).get(folder.name, {}) | declared
    named = {name: value for name, value in from_name(folder.name).items() if name not in stated}
    for name, value in named.items():
        _check_range(f"{folder}: by the folder's name", name, value)
    fields = named | stated
    if "topology" in fields:
        fields["topology"] = _TOPOLOGY_WORDS.get(fields["topology"].lower(), fields["topology"])
    if "model_size_mb" not in fields and (size := nominal_size_mb(fields.get("model"))) is not None:
        fields["model_size_mb"] = size
    if (source := fields.get("source")) not in (None, *SOURCES):
        raise MetadataError(f"{folder}: source = {source!r} of the run; it is one of {', '.join(SOURCES)}")
    return RunMetadata(fields, hosts)


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
    if not path.exists():
        return {}, ()
    try:
        with path.open("rb") as file:
            text = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MetadataError(f"{path}: not TOML ({error}); correct that line") from error
    hosts = text.pop("hosts", [])
    text.pop("origin", None)  # free text on the run's origin
    return {name: _typed(path, name, value) for name, value in text.items()}, _hosts(path, hosts)


def _hosts(path: Path, entries: Any) -> tuple[HostEntry, ...]:
    try:
        hosts = [HostEntry(**entry) for entry in entries]
    except TypeError as error:
        known = ", ".join(HostEntry.__dataclass_fields__)
        raise MetadataError(f"{path}: a [[hosts]] entry is wrong ({error}); its keys are {known}") from error
    return tuple(_checked(path, host) for host in hosts)


def _checked(path: Path, host: HostEntry) -> HostEntry:
    for name, value in asdict(host).items():
        wanted = int if name in ("rank", "ring_position") else str
        if value is not None and not _has_type(value, wanted):
            raise MetadataError(f"{path}: {name} = {value!r} in [[hosts]] is not of type {wanted.__name__}; change it")
        _check_range(f"{path}: in [[hosts]]", name, value)
    if host.role is not None and host.role not in ROLES:
        raise MetadataError(f"{path}: role {host.role!r} of {host.ip}; it is one of {', '.join(ROLES)}")
    try:
        return replace(host, ip=str(ipaddress.ip_address(host.ip)))
    except ValueError:
        raise MetadataError(f"{path}: ip = {host.ip!r} in [[hosts]] is no IP address; change it") from None


def _runs_csv(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / "runs.csv"
    if not path.exists():
        return {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names, rows = reader.fieldnames or (), list(reader)
    except (csv.Error, UnicodeDecodeError) as error:
        raise MetadataError(f"{path}: not CSV in UTF-8 ({error}); save it as CSV in UTF-8") from error
    if "run_id" not in names:
        raise MetadataError(f"{path}: no column run_id; it holds the names of the run folders")
    runs = {}
    for row in rows:
        run_id = row.pop("run_id")
        runs[run_id] = {name: _parsed(path, name, text) for name, text in row.items() if text not in (None, "")}
    return runs


def _typed(path: Path, name: str, value: Any) -> Any:
    """A TOML value, checked against its column."""
    wanted = schema.TYPES[_column_type(path, name)].python
    if wanted is float and _has_type(value, int):
        value = float(value)
    if not _has_type(value, wanted):
        raise MetadataError(f"{path}: {name} = {value!r} is not of type {wanted.__name__}; change it")
    _check_range(f"{path}:", name, value)
    return value


def _parsed(path: Path, name: str, text: str) -> Any:
    """A CSV cell, converted to its column's type."""
    wanted = schema.TYPES[_column_type(path, name)].python
    try:
        value = wanted(text)
    except ValueError:
        value = None
    if not _has_type(value, wanted):
        raise MetadataError(f"{path}: {name} = {text!r} is not of type {wanted.__name__}; change it")
    _check_range(f"{path}:", name, value)
    return value


def _check_range(where: str, name: str, value: Any) -> None:
    """Raise MetadataError for a number outside of its range."""
    if not isinstance(value, int | float):
        return
    allowed = _ALLOWED.get(name, "a finite number")
    low, high = (0, 100) if name == "loss_pct" else (0, math.inf) if name in _ALLOWED else (-math.inf, math.inf)
    if not math.isfinite(value) or not low <= value <= high or (allowed == _ABOVE_0 and value == 0):
        raise MetadataError(f"{where} {name} = {value!r}; it is {allowed}")


def _has_type(value: Any, wanted: type) -> bool:
    """Whether a value is of exactly this type (a bool is not an int), and an int fits into 64 bits."""
    return type(value) is wanted and not (isinstance(value, int) and value.bit_length() > 63)


def _column_type(path: Path, name: str) -> str:
    columns = _metadata_columns()
    if name not in columns:
        raise MetadataError(f"{path}: unknown key {name!r}; known are {', '.join(columns)}")
    return columns[name]
