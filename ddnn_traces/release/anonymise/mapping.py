"""One mapping over all tables of a release: each run's rows and provenance as they may be published.

key, options, dataset -> Mapping -> RunMapping of each run -> record batches, parameters
"""

from __future__ import annotations

import collections.abc as abc
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import facts
from ddnn_traces.release.anonymise import addresses, names, ports, scrub, times
from ddnn_traces.release.anonymise.key import Key
from ddnn_traces.release.anonymise.told import told
from ddnn_traces.store import schema
from ddnn_traces.text import nearest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

#: Provenance of a table that goes into a release, and no other.
PROVENANCE = ("version", "schema_version", "inputs", "parameters")
_PREFIX = "ddnn_traces."

_TUNNEL = ("kind", "src_ip", "dst_ip", "protocol", "src_port", "dst_port", "identifier")  # with the parent: its order

_MOST_TUNNELS = 4  # around each other, as ingest has it; more are a dataset that was tampered with

_ADDRESSES = """
SELECT run_id, ip, bool_or(sends) AS sends FROM (
    SELECT run_id, src_ip AS ip, true AS sends FROM flows
    UNION SELECT run_id, dst_ip, false FROM flows
    UNION SELECT run_id, src_ip, true FROM encapsulations
    UNION SELECT run_id, dst_ip, false FROM encapsulations
    UNION SELECT run_id, vantage_ip, true FROM captures
    UNION SELECT run_id, clock_reference_ip, true FROM captures
) WHERE ip IS NOT NULL GROUP BY ALL ORDER BY run_id, ip
"""
_WORKERS = """
FROM (SELECT run_id, worker FROM steps UNION SELECT run_id, worker FROM step_flows UNION
      SELECT run_id, worker FROM events) ORDER BY run_id, worker
"""
#: What is looked up of each run.
_QUERIES = {
    "hosts": "FROM hosts ORDER BY run_id, host_ip",
    "addresses": _ADDRESSES,
    "workers": _WORKERS,
    "captures": "SELECT run_id, capture_id, vantage_ip, first_ns, sha256 FROM captures ORDER BY run_id, capture_id",
    "encapsulations": "FROM encapsulations ORDER BY run_id, encapsulation_id",
    "windows": "SELECT run_id, max(window_ns) AS window_ns FROM flow_windows GROUP BY run_id",
}

_Row = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """What becomes of addresses (roles, crypto-pan, kept), ports (kept, permuted, classed), times (shifted, kept).

    Names of hosts and files, hardware addresses and free text are mapped in any case. Raises UsageError for others.
    """

    addresses: str = "roles"
    ports: str = "kept"
    times: str = "shifted"

    def __post_init__(self) -> None:
        for name, kinds in (("addresses", addresses.KINDS), ("ports", ports.KINDS), ("times", times.KINDS)):
            if (given := getattr(self, name)) not in kinds:
                raise UsageError(f"--{name} {given}: {nearest(given, kinds)}")


@dataclass(frozen=True, repr=False)
class RunMapping:
    """The mapping of one run. It can be pickled, and then holds what the key hides: it stays on the machine.

    addresses, labels, files: old to new. wire: address of a cut-down capture for each old one. tunnels: new
    encapsulation_id by old. ports: int64 (65536,). offset_ns: what is added to times. salt: 32 bytes, for the numbers
    in cut-down captures.
    """

    run_id: str
    addresses: abc.Mapping[str, str]
    wire: abc.Mapping[str, str]
    labels: abc.Mapping[str, str]
    files: abc.Mapping[str, str]
    tunnels: tuple[int, ...]
    ports: npt.NDArray[np.int64]
    offset_ns: int
    salt: bytes

    def batch(self, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with what identifies mapped: same schema, same order. Raises UsageError for times beyond int64."""
        import pyarrow as pa

        kinds = {column.name: column.identifies for column in schema.table(table).columns}
        arrays = [
            self._column(kinds.get(name, ""), column)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)

    def parameters(self, provenance: abc.Mapping[str, str]) -> dict[str, str]:
        """Key-value metadata of a table's file as it may be published: PROVENANCE, with or without its prefix.

        The filter that ingest was given is withheld where it has numbers in it: they are addresses and ports.
        """
        told = {}
        for name, value in provenance.items():
            short = name.removeprefix(_PREFIX)
            if short == "inputs":
                hashes = {self.files.get(file, "capture"): sha256 for file, sha256 in json.loads(value).items()}
                told[name] = json.dumps(hashes, sort_keys=True)
            elif short == "parameters":
                told[name] = json.dumps(self._parameters(json.loads(value)), sort_keys=True)
            elif short in PROVENANCE:
                told[name] = value
        return told

    def text(self, words: str) -> str:
        """Free text in which names of hosts, files and addresses may stand, without them."""
        return scrub.text(words, {**self.addresses, **self.labels, **self.files})

    def _parameters(self, parameters: _Row) -> _Row:
        if any(map(str.isdigit, parameters.get("filter") or "")):
            parameters = parameters | {"filter": "withheld"}
        changed: _Row = scrub.values(parameters, self.text, self.offset_ns)
        return changed

    def _column(self, kind: str, column: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        match kind:
            case "address":
                return _mapped(column, self.addresses.__getitem__)
            case "label":
                return _mapped(column, self.labels.__getitem__)
            case "file":
                return _mapped(column, self.files.__getitem__)
            case "text":
                return _mapped(column, self.text)
            case "port":
                return pa.array(self.ports, pa.int64()).take(column)
            case "tunnel":
                return pa.array(self.tunnels, pa.int64()).take(column)
            case "time" if self.offset_ns:
                try:
                    return pc.add_checked(column, pa.scalar(self.offset_ns, pa.int64()))
                except pa.ArrowInvalid as error:
                    raise UsageError(
                        f"{self.run_id}: has times after the year 2200, which cannot be shifted; leave the run out, or "
                        "publish with --times kept"
                    ) from error
        return column


class Mapping:
    """The mapping of a dataset's runs, None for all. Raises MissingExtra, UsageError.

    Nothing of it depends on which other runs there are: releases made with the same key agree.
    """

    def __init__(self, key: Key, options: Options, dataset: Dataset, runs: abc.Sequence[str] | None = None) -> None:
        self.options = options
        self.key_id = key.id
        self._key = key
        self._crypto_pan = addresses.CryptoPan(key) if options.addresses == "crypto-pan" else None
        self._ports = ports.table(key, options.ports)
        self._salt = key.derive("captures", 32)
        self.runs = tuple(dataset.run_ids if runs is None else runs)
        self._rows = {name: _by_run(dataset, query, self.runs) for name, query in _QUERIES.items()}
        self.windows_ns = sorted({row["window_ns"] for rows in self._rows["windows"].values() for row in rows})
        self.offset_ns = times.offset_ns(key, self.windows_ns) if options.times == "shifted" else 0

    def run(self, run_id: str) -> RunMapping:
        """The mapping of one of the runs. Raises UsageError where cut-down captures would have too many addresses."""
        rows = {name: by_run.get(run_id, []) for name, by_run in self._rows.items()}
        labels = names.labels(self._key, rows["hosts"], [row["worker"] for row in rows["workers"]])
        mapped = self._addresses(rows, labels)
        never_send = {row["ip"] for row in rows["addresses"] if not row["sends"]}
        wire = addresses.made_up(mapped, never_send) if self.options.addresses == "roles" else mapped
        first = names.first_number(labels)
        by_ip = {
            host["host_ip"]: labels.get(host["label"]) or names.by_role(host, self._key, first) or ""
            for host in rows["hosts"]
        }
        files = names.captures(rows["captures"], {ip: label for ip, label in by_ip.items() if label})
        tunnels = self._tunnels(rows["encapsulations"], mapped)
        return RunMapping(run_id, mapped, wire, labels, files, tunnels, self._ports, self.offset_ns, self._salt)

    def facts(self, captures: bool = False) -> facts.Anonymisation:
        """What was done, in sentences for the datasheet. captures: whether the release has cut-down captures."""
        options = self.options
        return told(options.addresses, options.ports, options.times, self.key_id, captures)

    def _addresses(self, rows: abc.Mapping[str, list[_Row]], labels: abc.Mapping[str, str]) -> dict[str, str]:
        every = {row["ip"]: not row["sends"] for row in rows["addresses"]}
        every |= {host["host_ip"]: every.get(host["host_ip"], False) for host in rows["hosts"]}
        if self._crypto_pan:
            return {text: self._crypto_pan.map(text) for text in every}
        if self.options.addresses == "kept":
            return {text: text for text in every}
        return addresses.by_roles(self._key, rows["hosts"], labels, every.items())

    def _tunnels(self, rows: abc.Iterable[_Row], mapped: abc.Mapping[str, str]) -> tuple[int, ...]:
        """New numbers of tunnels, in the order of their columns (ingestors/encapsulations.py), by the old ones."""
        by_id = {row["encapsulation_id"]: row for row in rows}

        def chain(number: int, depth: int = 0) -> tuple[Any, ...]:
            row = by_id[number]
            new = row | {name: mapped[row[name]] for name in ("src_ip", "dst_ip")}
            new |= {name: int(self._ports[row[name]]) for name in ("src_port", "dst_port")}
            new["identifier"] = -1 if row["identifier"] is None else row["identifier"]
            outermost = row["parent_id"] not in by_id or depth == _MOST_TUNNELS
            around = () if outermost else chain(row["parent_id"], depth + 1)
            return (around, *(new[name] for name in _TUNNEL), number)

        order = {number: place for place, number in enumerate(sorted(by_id, key=chain))}
        return tuple(order.get(number, number) for number in range(max(by_id, default=-1) + 1))


def _by_run(dataset: Dataset, query: str, runs: abc.Sequence[str]) -> dict[str, list[_Row]]:
    """Rows of a query by run."""
    found: dict[str, list[_Row]] = {run_id: [] for run_id in runs}
    for row in dataset.sql_arrow(query).to_pylist():
        if row["run_id"] in found:
            found[row["run_id"]].append(row)
    return found


def _mapped(column: pa.Array, change: abc.Callable[[str], str]) -> pa.Array:
    """A column of strings, dictionary-encoded or not, with each value changed; null stays. The same type."""
    import pyarrow as pa

    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = pa.array([change(value) for value in encoded.dictionary.to_pylist()], encoded.dictionary.type)
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(encoded.indices, values)
    return values.take(encoded.indices)
