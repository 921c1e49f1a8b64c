"""One mapping over all tables of a release: each run's rows and provenance as they may be published.

key, options, dataset -> Anonymiser -> RunMapping of each run -> record batches, parameters
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import facts
from ddnn_traces.release.anonymise import identifiers, method_text
from ddnn_traces.release.anonymise.key import Key
from ddnn_traces.release.anonymise.words import own_words, stated_numbers, unknown
from ddnn_traces.store import schema
from ddnn_traces.text import is_address, nearest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

#: Provenance of a table that goes into a release; all other is left out.
PROVENANCE = ("version", "schema_version", "inputs", "parameters")
_PREFIX = "ddnn_traces."

_TUNNEL = ("kind", "src_ip", "dst_ip", "protocol", "src_port", "dst_port", "identifier")  # with the parent: its order

#: What tells flows apart but for the number of their connection, in the order that ingest has of those that begin at
#: the same time (ingestors/reconcile/merged.sql).
_ALIKE = ("src_ip", "dst_ip", "protocol", "src_port", "dst_port", "encapsulation_id", "roce_dest_qp")
_FLOWS = f"""
SELECT run_id, flow_id, first_seen_ns, {", ".join(_ALIKE)}, connection
FROM flows"""
#: Those whose number does not follow from the times alone.
_UNORDERED = """
QUALIFY count(*) OVER (PARTITION BY run_id, first_seen_ns) > 1
     OR flow_id <> row_number() OVER (PARTITION BY run_id ORDER BY first_seen_ns, flow_id) - 1
"""

_MOST_TUNNELS = 4  # nested, as ingest has it; a dataset with more was tampered with

_Row = dict[str, Any]

_ORIGINALS_KINDS = ("kept", "withheld")
_WORD_KINDS = ("kept", "known")
#: Options of each profile that differ from those of an Options without any.
PROFILES = {
    "open": {},
    "careful": {"words": "known"} | dict.fromkeys(("hashes", "sizes", "clocks"), "withheld"),
    "strict": {"ports": "classed", "words": "known"} | dict.fromkeys(("hashes", "sizes", "clocks"), "withheld"),
}


@dataclass(frozen=True)
class Options:
    """How addresses (roles, crypto-pan, kept), ports (kept, permuted, classed) and times (shifted, kept) are mapped.

    hashes, sizes, clocks: whether those of the original captures and the estimates of clocks are kept or withheld.
    words: of names of runs and other free text, whether all are kept or only known ones (words.py).

    Names of hosts and files and hardware addresses are mapped in any case. Raises UsageError for others.
    """

    addresses: str = "roles"
    ports: str = "kept"
    times: str = "shifted"
    hashes: str = "kept"
    sizes: str = "kept"
    clocks: str = "kept"
    words: str = "kept"

    @classmethod
    def chosen(cls, profile: str, **given: str | None) -> Self:
        """Those of a profile, one of PROFILES, but for those that are given. Raises UsageError."""
        if profile not in PROFILES:
            raise UsageError(f"--profile {profile}: {nearest(profile, list(PROFILES))}")
        return cls(**PROFILES[profile] | {name: value for name, value in given.items() if value is not None})

    @property
    def withheld(self) -> tuple[str, ...]:
        """What columns identify (schema.IDENTIFIES) that are null."""
        kinds = {"hash": self.hashes, "size": self.sizes, "clock": self.clocks}
        return tuple(kind for kind, chosen in kinds.items() if chosen == "withheld")

    def __post_init__(self) -> None:
        every = (
            identifiers.ADDRESS_KINDS,
            identifiers.PORT_KINDS,
            identifiers.TIME_KINDS,
            *[_ORIGINALS_KINDS] * 3,
            _WORD_KINDS,
        )
        for (name, given), kinds in zip(vars(self).items(), every, strict=True):
            if given not in kinds:
                raise UsageError(f"--{name} {given}: {nearest(given, kinds)}")


@dataclass(frozen=True, repr=False)
class RunMapping:
    """The mapping of one run. It holds what the key hides: it stays on the machine.

    run_id, name: the run's name in the dataset and in the release. addresses, labels, files: old to new. wire: address
    of a cut-down capture for each old one. tunnels: new encapsulation_id by old. ports: int64 (65536,). offset_ns: what
    is added to times. salt: 32 bytes, for the numbers in cut-down captures. flows: new flow_id by old; None where all
    stay. connections: new number of each flow's connection, by the new flow_id, where ports are classed; else None.
    withheld: what columns identify that are null. parts: what takes the place of parts of the run's name, also in its
    metadata, which may come from the name.
    free_text: a text with a tag in place of each part that is not known, given those that stand in it already; None
    where all words are kept.
    """

    run_id: str
    name: str
    addresses: Mapping[str, str]
    wire: Mapping[str, str]
    labels: Mapping[str, str]
    files: Mapping[str, str]
    tunnels: tuple[int, ...]
    ports: npt.NDArray[np.int64]
    offset_ns: int
    salt: bytes
    flows: npt.NDArray[np.int64] | None = None
    connections: npt.NDArray[np.int64] | None = None
    withheld: Collection[str] = ()
    parts: Mapping[str, str] = field(default_factory=dict)
    free_text: Callable[[str, Iterable[str]], str] | None = None

    def names(self) -> Iterator[tuple[str, str, str]]:
        """What has another name in the release: kind (run, host, address), old name and new one, in order."""
        for kind, names in (("run", {self.run_id: self.name}), ("host", self.labels), ("address", self.addresses)):
            yield from ((kind, old, new) for old, new in sorted(names.items()) if old != new)

    def batch(self, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with mapped columns: same schema, same order. Raises UsageError for times beyond int64."""
        import pyarrow as pa

        kinds = {column.name: column.identifies for column in schema.table(table).columns}
        arrays = [
            self._run_ids(column) if name == "run_id" else self._column(kinds.get(name, ""), column)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        mapped = pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
        return self._numbered(mapped) if table == "flows" else mapped

    def _numbered(self, flows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with new numbers of their connections."""
        import pyarrow as pa

        if self.connections is None:
            return flows
        place = flows.schema.get_field_index("connection")
        numbers = pa.array(self.connections).take(flows.column("flow_id"))
        return flows.set_column(place, flows.schema.field(place), numbers)

    def parameters(self, provenance: Mapping[str, str]) -> dict[str, str]:
        """Key-value metadata of a table's file as it may be published: PROVENANCE, with or without its prefix.

        The filter that ingest was given is withheld where it has numbers in it: they are addresses and ports.
        """
        published = {}
        for name, value in provenance.items():
            short = name.removeprefix(_PREFIX)
            if short == "inputs":
                hashes = {
                    self.files.get(file, "capture"): None if "hash" in self.withheld else digest
                    for file, digest in json.loads(value).items()
                }
                published[name] = json.dumps(hashes, sort_keys=True)
            elif short == "parameters":
                published[name] = json.dumps(self._parameters(json.loads(value)), sort_keys=True)
            elif short in PROVENANCE:
                published[name] = value
        return published

    def text(self, words: str) -> str:
        """Free text without the names of hosts and files and the addresses in it."""
        known = {**self.addresses, **self.labels, **self.files}
        return scrub_text(words, known | {self.run_id: self.name} if self.name != self.run_id else known)

    def metadata(self, words: str) -> str:
        """A word of the run's metadata without what was replaced in the run's name, and without unknown words."""
        text = identifiers.replaced(words, self.parts)
        return self.free_text(text, self.parts.values()) if self.free_text else text

    def _parameter(self, words: str) -> str:
        """A text among the parameters, whose words may also be this program's own."""
        text = self.text(words)
        if self.free_text is None:
            return text
        known = (*self.addresses.values(), *self.labels.values(), *self.files.values(), self.name)
        return self.free_text(text, [*known, *(word for word in re.findall(r"[a-z]+", text) if word in own_words())])

    def _parameters(self, parameters: _Row) -> _Row:
        if any(map(str.isdigit, parameters.get("filter") or "")):
            parameters = parameters | {"filter": "withheld"}
        if "clock" in self.withheld and not isinstance(parameters.get("clock_offset"), str | None):
            parameters = parameters | {"clock_offset": "withheld"}
        changed: _Row = scrub_values(parameters, self._parameter, self.offset_ns)
        return changed

    def _run_ids(self, column: pa.Array) -> pa.Array:
        """The column run_id, which has the run's name alone."""
        return column if self.name == self.run_id else _mapped(column, lambda _: self.name)

    def _column(self, kind: str, column: pa.Array) -> pa.Array:
        import pyarrow as pa
        import pyarrow.compute as pc

        names = {"address": self.addresses, "label": self.labels, "file": self.files}
        if kind in self.withheld:
            return pa.nulls(len(column), column.type)
        match kind:
            case "address" | "label" | "file":
                return _mapped(column, names[kind].__getitem__)
            case "text":
                return _mapped(column, self.text)
            case "run" if (self.parts or self.free_text) and _is_text(column):
                return _mapped(column, self.metadata)
            case "clock" if pa.types.is_string(column.type):  # the host whose clock is the reference
                return _mapped(column, self.addresses.__getitem__)
            case "port" | "tunnel":
                return pa.array(self.ports if kind == "port" else self.tunnels, pa.int64()).take(column)
            case "flow" if self.flows is not None:
                numbered = pc.and_(pc.greater_equal(column, 0), pc.less(column, len(self.flows)))
                known = pc.if_else(numbered, column, pa.scalar(None, pa.int64()))  # of others there is no flow
                return pc.coalesce(pa.array(self.flows).take(known), column)
            case "time" if self.offset_ns:
                try:
                    return pc.add_checked(column, pa.scalar(self.offset_ns, pa.int64()))
                except pa.ArrowInvalid as error:
                    raise UsageError(
                        f"{self.run_id}: has times that cannot be shifted; leave the run out, or publish with --times "
                        "kept"
                    ) from error
        return column


class Anonymiser:
    """The mapping of a dataset's runs, None for all. Raises MissingExtra, UsageError.

    named: the parts of runs' names that must not be published, as leak_scan.words() finds them. allowed: words that may
    be published though they are not known. Nothing else depends on which other runs there are: releases made with the
    same key agree.
    """

    def __init__(
        self,
        key: Key,
        options: Options,
        dataset: Dataset,
        runs: Sequence[str] | None = None,
        named: Mapping[str, Collection[tuple[int, int]]] | None = None,
        allowed: Collection[str] = (),
    ) -> None:
        self.options = options
        self.key_id = key.id
        self._key = key
        self._crypto_pan = identifiers.CryptoPan(key) if options.addresses == "crypto-pan" else None
        self._ports = identifiers.port_table(key, options.ports)
        self._salt = key.derive("captures", 32)
        self.runs = tuple(dataset.run_ids if runs is None else runs)
        self._allowed = tuple(allowed)
        self._numbers = stated_numbers(dataset) if options.words == "known" else {}
        parts = {run_id: [*(named or {}).get(run_id, ()), *self._unknown(run_id)] for run_id in self.runs}
        self._parts = {run_id: identifiers.run_parts(key, run_id, spans) for run_id, spans in parts.items() if spans}
        self.renamed = identifiers.run_names(key, self.runs, self._parts)
        self._rows = {name: _by_run(dataset, query, self.runs) for name, query in _queries().items()}
        found = dataset.sql(_FLOWS if options.ports == "classed" else _FLOWS + _UNORDERED).sort("run_id", "flow_id")
        self._flows = {str(run_id): flows for (run_id,), flows in found.group_by("run_id", maintain_order=True)}

    def _unknown(self, run_id: str) -> list[tuple[int, int]]:
        """The parts of a run's name that are not known."""
        if self.options.words == "kept":
            return []
        return unknown(run_id, self._numbers.get(run_id, ()), self._allowed)

    def _free_text(self, run_id: str) -> Callable[[str, Iterable[str]], str] | None:
        """Of a run: tags in place of the parts of a text that are not known."""
        if self.options.words == "kept":
            return None

        def known(text: str, there: Iterable[str]) -> str:
            found = unknown(text, self._numbers.get(run_id, ()), [*self._allowed, *there])
            return identifiers.replaced(text, identifiers.run_parts(self._key, text, found))

        return known

    def name(self, run_id: str) -> str:
        """The name of a run in the release."""
        return self.renamed.get(run_id, run_id)

    def run(self, run_id: str) -> RunMapping:
        """The mapping of one of the runs. Raises UsageError where cut-down captures would have too many addresses."""
        rows = {name: by_run.get(run_id, []) for name, by_run in self._rows.items()}
        labels = identifiers.labels(self._key, rows["hosts"], [row["value"] for row in rows["workers"]])
        mapped = self._addresses(rows, labels)
        never_send = {row["ip"] for row in rows["addresses"] if not row["sends"]}
        wire = identifiers.capture_addresses(mapped, never_send) if self.options.addresses == "roles" else mapped
        first = identifiers.first_number(labels)
        by_ip = {
            host["host_ip"]: label
            for host in rows["hosts"]
            if (label := labels.get(host["label"]) or identifiers.by_role(host, self._key, first))
        }
        files = identifiers.capture_names(self._key, rows["captures"], by_ip)
        tunnels = self._tunnels(rows["encapsulations"], wire)
        flows, connections = self._flow_numbers(run_id, wire, tunnels)
        return RunMapping(
            run_id, self.name(run_id), mapped, wire, labels, files, tunnels, self._ports,
            self._offset_ns(run_id, rows), self._salt, flows, connections, self.options.withheld,
            self._parts.get(run_id, {}), self._free_text(run_id),
        )  # fmt: skip

    def facts(self, captures: bool = False) -> facts.Anonymisation:
        """What was done, in sentences for the datasheet. captures: whether the release has cut-down captures."""
        options = self.options
        return method_text.describe(
            options.addresses, options.ports, options.times, self.key_id, captures, options.withheld, options.words
        )

    def _addresses(self, rows: Mapping[str, list[_Row]], labels: Mapping[str, str]) -> dict[str, str]:
        every = {row["ip"]: not row["sends"] for row in rows["addresses"]}
        if self._crypto_pan:
            return {text: self._crypto_pan.map(text) for text in every}
        if self.options.addresses == "kept":
            return dict(zip(every, every, strict=True))
        return identifiers.addresses_by_role(self._key, rows["hosts"], labels, every.items())

    def _offset_ns(self, run_id: str, rows: Mapping[str, list[_Row]]) -> int:
        """What is added to the times of a run. Raises UsageError."""
        if self.options.times == "kept" or not rows["times"]:
            return 0
        (times,) = rows["times"]
        source = rows["runs"][0]["source"]
        try:
            return identifiers.time_offset_ns(
                self._key, source, (times["first_ns"], times["last_ns"]), [row["window_ns"] for row in rows["windows"]]
            )
        except UsageError as error:
            raise UsageError(f"{run_id}: {error}") from error

    def _flow_numbers(
        self, run_id: str, wire: Mapping[str, str], tunnels: tuple[int, ...]
    ) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64] | None]:
        """New flow_id by old, and with ports classed the number of each flow's connection, by the new one.

        Flows that begin at the same time are in the order of their mapped columns, as ingest has it for those of
        cut-down captures: the old numbers follow the real addresses. What looks alike is in the order of the key.
        """
        import numpy as np
        import polars as pl

        flows = self._flows.get(run_id)
        if flows is None:
            return None, None
        classed = self.options.ports == "classed"
        named = flows.with_columns(
            *(pl.col(name).replace_strict(wire, return_dtype=pl.String) for name in ("src_ip", "dst_ip")),
            pl.Series("encapsulation_id", [None if n is None else tunnels[n] for n in flows["encapsulation_id"]]),
        )
        secret = [self._key.derive(f"flow {row}", 8) for row in named.drop("run_id", "flow_id").rows()]
        mapped = named.with_columns(
            *(pl.Series(name, self._ports[flows[name]]) for name in ("src_port", "dst_port")),
            secret=pl.Series(secret, dtype=pl.Binary),
        )
        (count,) = [row["flows"] for row in self._rows["flow_counts"][run_id]]
        numbers = np.arange(count, dtype=np.int64)
        order = ["first_seen_ns", *_ALIKE, *([] if classed else ["connection"]), "secret"]
        numbers[mapped.sort(order, nulls_last=True)["flow_id"].to_numpy()] = flows["flow_id"].to_numpy()
        if not classed:
            return numbers, None
        renumbered = mapped.with_columns(pl.Series("flow_id", numbers[flows["flow_id"].to_numpy()])).sort("flow_id")
        connections = np.zeros(count, np.int64)
        connections[renumbered["flow_id"].to_numpy()] = renumbered.select(
            pl.int_range(pl.len()).over(_ALIKE)
        ).to_series()
        return numbers, connections

    def _tunnels(self, rows: Iterable[_Row], wire: Mapping[str, str]) -> tuple[int, ...]:
        """New numbers of tunnels, in the order of their columns, by the old ones; of alike ones in that of the key."""
        by_id = {row["encapsulation_id"]: row for row in rows}

        def chain(number: int, depth: int = 0) -> tuple[Any, ...]:
            row = by_id[number]
            named = row | {name: wire[row[name]] for name in ("src_ip", "dst_ip")}
            named["identifier"] = -1 if row["identifier"] is None else row["identifier"]
            secret = self._key.derive(f"tunnel {[named[name] for name in _TUNNEL]}", 8)
            new = named | {name: int(self._ports[row[name]]) for name in ("src_port", "dst_port")}
            outermost = row["parent_id"] not in by_id or depth == _MOST_TUNNELS
            around = () if outermost else chain(row["parent_id"], depth + 1)
            return (around, *(new[name] for name in _TUNNEL), secret)

        order = {number: place for place, number in enumerate(sorted(by_id, key=chain))}
        return tuple(order.get(number, number) for number in range(max(by_id, default=-1) + 1))


def _queries() -> dict[str, str]:
    """What is read of each run."""
    return {
        "hosts": "FROM hosts ORDER BY run_id, host_ip",
        "addresses": _addresses_query(),
        "workers": f"{identifiers.every_value('label', leave_out=['hosts'])} ORDER BY run_id, value",
        "captures": """
            SELECT captures.*, coalesce(counted, 0) AS counted FROM captures LEFT JOIN (
                SELECT run_id, capture_id, sum(packets)::BIGINT AS counted FROM capture_ledger
                WHERE reason = 'in_flows' GROUP BY ALL
            ) USING (run_id, capture_id) ORDER BY run_id, capture_id""",
        "encapsulations": "FROM encapsulations ORDER BY run_id, encapsulation_id",
        "runs": "SELECT run_id, source FROM runs",
        "times": identifiers.TIMES,
        "flow_counts": "SELECT run_id, max(flow_id) + 1 AS flows FROM flows GROUP BY run_id",
        "windows": "SELECT run_id, max(window_ns) AS window_ns FROM flow_windows GROUP BY run_id",
    }


def _addresses_query() -> str:
    """SQL of every address of a run, and whether it sends: not where it is only a destination."""

    def sends(table: str, column: str) -> str:
        if table == "hosts":
            return "NULL"  # a host of run.toml need not send
        return "false" if column.startswith("dst_") else "true"

    columns = " UNION ".join(
        f"SELECT run_id, {column} AS ip, {sends(table, column)} AS sends FROM {table}"
        for table, column in schema.identifying("address")
    )
    return f"""
        SELECT run_id, ip, coalesce(bool_or(sends), true) AS sends FROM ({columns})
        WHERE ip IS NOT NULL GROUP BY ALL ORDER BY run_id, ip"""


def _by_run(dataset: Dataset, query: str, runs: Sequence[str]) -> dict[str, list[_Row]]:
    """Rows of a query by run."""
    found: dict[str, list[_Row]] = {run_id: [] for run_id in runs}
    for row in dataset.sql_arrow(query).to_pylist():
        if row["run_id"] in found:
            found[row["run_id"]].append(row)
    return found


def _is_text(column: pa.Array) -> bool:
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return bool(pa.types.is_string(kind))


def _mapped(column: pa.Array, change: Callable[[str], str]) -> pa.Array:
    """A column of strings, dictionary-encoded or not, with each value changed; null stays. The same type."""
    import pyarrow as pa

    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = pa.array([change(value) for value in encoded.dictionary.to_pylist()], encoded.dictionary.type)
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(encoded.indices, values)
    return values.take(encoded.indices)


# --- free text: addresses, names of hosts and files are replaced or left out

_MAC = r"(?<![\w:-])(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}(?![\w:-])"
_IPV4 = r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)"
_IPV6 = r"(?<![\w:])[0-9a-f:]*:[0-9a-f:]*:[0-9a-f:.]*(?![\w:])"
_PATH = r"(?<![\w./])(?:~|\.\.?)?/[^\s'\",;:()\[\]]*[^\s'\",;:()\[\].]"
_PATTERNS = re.compile(f"(?P<mac>{_MAC})|(?P<ipv4>{_IPV4})|(?P<ipv6>{_IPV6})|(?P<path>{_PATH})", re.IGNORECASE)
_REPLACEMENTS = {"mac": "a hardware address", "ipv4": "an address", "ipv6": "an address", "path": "a file"}

#: From here on a number of ns is a time since the epoch (1973), not a duration.
_FIRST_TIME_NS = 10**17


def scrub_text(words: str, known: Mapping[str, str]) -> str:
    """The text with each known name mapped, and without other addresses and paths."""
    if not known:
        return _PATTERNS.sub(_replacement, words)
    alternatives = "|".join(map(re.escape, sorted(known, key=lambda name: (-len(name), name))))
    parts = re.split(rf"(?<![\w.:/-])({alternatives})(?![\w:/-]|\.\w)", words)
    # the patterns do not apply to mapped names, every second part: a Crypto-PAn address matches them, too
    return "".join(
        known[part] if number % 2 else _PATTERNS.sub(_replacement, part) for number, part in enumerate(parts)
    )


def _replacement(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    if kind in ("ipv4", "ipv6") and not is_address(match[0].rstrip(".")):
        return match[0]
    return _REPLACEMENTS[kind]


def scrub_values(value: Any, change: Callable[[str], str], offset_ns: int, name: str = "") -> Any:
    """Nested values of JSON with each string changed and each time (a number named *_ns) moved."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): scrub_values(held, change, offset_ns, key) for key, held in value.items()}
    if isinstance(value, list):
        return [scrub_values(held, change, offset_ns, name) for held in value]
    if isinstance(value, int) and name.endswith("_ns") and value >= _FIRST_TIME_NS:
        return value + offset_ns
    return value
