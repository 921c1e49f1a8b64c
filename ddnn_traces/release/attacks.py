"""What an adversary recovers of a release: attacks that are run, scored against the truth that its publisher has.

An attack is a function of what is published and what the adversary knows. Of each host it returns the addresses that
the host may have. The score is the share of hosts that are named rightly by drawing one of these. Chance is the same
without the attack: one of the run's addresses that are not known. What an attack leaves always holds the truth, so that
a score tells nothing of a mapping but what the attack tells itself. by_labels is a guess, and the exception.

Prefix-preserving addresses: Xu, Fan, Ammar, Moon, ICNP 2002. Attacks on them by known and injected addresses: Brekne,
Årnes, Øslebø, PET 2005; by sizes and behaviour: Coull et al., NDSS 2007; injected patterns: Burkhart et al., CCR 2010.
"""

from __future__ import annotations

import ipaddress
import itertools
import operator
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import UsageError
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import facts, leak_scan, request
from ddnn_traces.release.anonymise import identifiers
from ddnn_traces.release.anonymise import key as keys
from ddnn_traces.release.anonymise.mapping import Anonymiser, Options, RunMapping
from ddnn_traces.store import layout
from ddnn_traces.text import natural_order, sql_literal

if TYPE_CHECKING:
    import polars as pl

#: Shares of the hosts that an adversary knows, and how often they, or a transfer, are drawn.
KNOWN_SHARES = (0.01, 0.1, 0.5)
DRAWS = 20
#: Runs are attacked up to so many flows, which are held in memory; the others are left out.
MOST_FLOWS = 200_000
#: By how much counters that are read at other times, and count headers, may be off.
ROUGHLY = 0.1
#: By how much two estimates of a clock differ: each has an uncertainty of a few us (docs/clocks.md).
CLOCK_NS = 20_000

#: A host: the name of its run, and its own there.
Host = tuple[str, str]
#: The addresses that each host may have.
Candidates = dict[Host, frozenset[str]]
_Flow = dict[str, Any]


@dataclass(frozen=True)
class Tables:
    """What the attacks read of a release, or of the original: rows of hosts and flows by run, offsets of clocks.

    again: the offsets that an ingest of a release's captures estimates.
    """

    hosts: Mapping[str, Sequence[str]]
    flows: Mapping[str, Sequence[_Flow]]
    clocks: Mapping[Host, int]
    again: Mapping[Host, int] = field(default_factory=dict)

    @classmethod
    def of(cls, dataset: Dataset, runs: Sequence[str]) -> Tables:
        """Read those of some runs. Raises QueryError."""
        only = f"run_id IN ({', '.join(map(sql_literal, runs)) or 'NULL'})"
        hosts: dict[str, list[str]] = {run_id: [] for run_id in runs}
        for run_id, ip in dataset.sql(f"SELECT run_id, host_ip FROM hosts WHERE {only} ORDER BY ALL").rows():
            hosts[run_id].append(ip)
        flows: dict[str, list[_Flow]] = {run_id: [] for run_id in runs}
        for row in dataset.sql(_FLOWS.format(only)).iter_rows(named=True):
            flows[row["run_id"]].append(row)
        clocks = {(run_id, ip): offset for run_id, ip, offset in dataset.sql(_CLOCKS.format(only)).rows()}
        return cls(hosts, flows, clocks)

    @property
    def every_host(self) -> list[Host]:
        """The hosts of all runs."""
        return [(run_id, host) for run_id, hosts in self.hosts.items() for host in hosts]


_FLOWS = """
SELECT run_id, flow_id, src_ip, dst_ip, first_seen_ns, packets, payload_bytes FROM flows
WHERE {} ORDER BY run_id, first_seen_ns, flow_id"""
_CLOCKS = """
SELECT run_id, vantage_ip, min(clock_offset_ns) FROM captures
WHERE {} AND vantage_ip IS NOT NULL AND clock_offset_ns IS NOT NULL GROUP BY ALL ORDER BY ALL"""


@dataclass(frozen=True)
class Truth:
    """What only the publisher has: the address of each host of a release, old names of runs, what is added to times."""

    addresses: Mapping[Host, str]
    runs: Mapping[str, str]
    offsets_ns: Mapping[str, int]

    @classmethod
    def of(cls, maps: Sequence[RunMapping]) -> Truth:
        """That of some runs."""
        return cls(
            {(mapping.name, new): old for mapping in maps for old, new in mapping.addresses.items()},
            {mapping.name: mapping.run_id for mapping in maps},
            {mapping.name: mapping.offset_ns for mapping in maps},
        )


@dataclass(frozen=True)
class Recovered:
    """What an attack recovers. knows: what the adversary has beside the release. of: hosts, times or run names.

    n: hosts of runs, runs, or renamed runs that were to be found. recovered, chance: shares, with and without the
    attack; None where there is nothing to be found, or no such attack on these data. is_secret: the share itself would
    tell readers of the release whether the attack's guess is right.
    """

    attack: str
    knows: str
    of: str
    n: int
    recovered: float | None
    chance: float | None
    is_secret: bool = False


def of_release(release: Path, original: str | Path, key: Path | None = None) -> pl.DataFrame:
    """What is recovered of a release folder, by its publisher: rows of Recovered, but for is_secret.

    original: the dataset that it was published from. key: its file; None: the one next to the release. Raises
    UsageError where this is not the key, or the release has no run of the dataset, MissingExtra.
    """
    import polars as pl

    known = facts.read(release)
    of_key = known.anonymisation.key_id
    file = key or keys.find(release.resolve().parent, of_key)
    held = keys.Key(keys.read_secret(file)) if file else None
    if file is None or held is None or held.id != of_key:
        raise UsageError(f"{release}: needs the key that it was published with ({of_key}); name its file with --key")
    options = Options(
        **{field.name: known.options[field.name] for field in fields(Options) if field.name in known.options}
    )
    with Dataset(original) as before, Dataset(release) as after:
        allowed = {word for name in known.run_ids for word in re.split(r"[-_. ]", name)}  # published, so on purpose
        named = leak_scan.words(before, [], options, file, " ".join(request.intended(asdict(known.about)))).runs
        mapping = Anonymiser(held, options, before, named=named, allowed=allowed)
        found = recovered(after, before, mapping, clocks_again(release, known, mapping))
    if not found:
        raise UsageError(f"{original}: has no run of {release}; name the dataset that it was published from")
    return pl.DataFrame(map(_row, found), infer_schema_length=None)


def clocks_again(release: Path, known: facts.Release, anonymiser: Anonymiser) -> dict[Host, int]:
    """Offsets of clocks that an ingest of a release's captures estimates, also where its tables withhold them."""
    if not known.captures:
        return {}
    maps = map(anonymiser.run, anonymiser.runs)
    hosts = {(run.name, run.wire[old]): (run.name, new) for run in maps for old, new in run.addresses.items()}
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as scratch:
        captures = str(layout.content(release) / layout.CAPTURES)
        pipeline.ingest([captures], Path(scratch) / "again", IngestOptions(hash="none"))
        with Dataset(Path(scratch) / "again") as again:
            rows = again.sql(_CLOCKS.format("true")).rows()
    return {hosts[run_id, ip]: offset for run_id, ip, offset in rows if (run_id, ip) in hosts}


def as_published(found: Recovered) -> dict[str, Any]:
    """A row of the table in a release: shares to four digits, so that its bytes do not depend on the machine."""
    shares = {"recovered": found.recovered, "chance": found.chance}
    return _row(found) | {name: value and float(f"{value:.4g}") for name, value in shares.items()}


def _row(found: Recovered) -> dict[str, Any]:
    return {name: value for name, value in vars(found).items() if name != "is_secret"}


def recovered(
    release: Dataset, original: Dataset, anonymiser: Anonymiser, again: Mapping[Host, int] | None = None
) -> list[Recovered]:
    """What the attacks recover of the runs of a release that fit into MOST_FLOWS; [] where there is none.

    again: clocks_again(), where the captures were ingested.
    """
    flows = dict(release.sql("SELECT run_id, count(*) FROM flows GROUP BY ALL").rows())
    left, maps = MOST_FLOWS, []
    for run_id in anonymiser.runs:
        number = flows.get(anonymiser.name(run_id))
        if number and number <= left:
            left -= number
            maps.append(anonymiser.run(run_id))
    if not maps:
        return []
    published = Tables.of(release, [mapping.name for mapping in maps])
    return attack(
        replace(published, again=again or {}),
        Tables.of(original, [mapping.run_id for mapping in maps]),
        Truth.of(maps),
        anonymiser.options.addresses,
    )


def attack(published: Tables, original: Tables, truth: Truth, addresses: str) -> list[Recovered]:
    """Run all attacks on a release. addresses: how it maps them, which it states (identifiers.ADDRESS_KINDS)."""
    case = _Case(published, original, truth, addresses)
    return [*_on_hosts(case), *_on_times(case), *_on_runs(case)]


@dataclass(frozen=True)
class _Case:
    published: Tables
    original: Tables
    truth: Truth
    addresses: str

    @property
    def hosts(self) -> list[Host]:
        return [host for host in self.published.every_host if host in self.truth.addresses]

    def in_use(self, known: Mapping[Host, str] | None = None) -> Candidates:
        """What everybody knows who knows which addresses each run has: of a known host its own, else the others.

        Addresses that are published as they are need no attack.
        """
        known = known or {}
        left: dict[str, set[str]] = {}
        for host in self.hosts:
            left.setdefault(host[0], set()).add(self.truth.addresses[host])
        for host, address in known.items():
            left[host[0]].discard(address)
        found: Candidates = {}
        for host in self.hosts:
            if self.addresses == "kept":
                found[host] = frozenset({host[1]})
            else:
                found[host] = frozenset({known[host]} if host in known else left[host[0]])
        return found

    def by_prefixes(self, known: Mapping[Host, str]) -> Candidates:
        """Candidates with what the prefixes tell, where they are kept."""
        left = self.in_use(known)
        return by_prefixes(left, known) if self.addresses == "crypto-pan" else left

    def share(self, candidates: Candidates, among: Iterable[Host]) -> float | None:
        """Share of the hosts that are named rightly by drawing one of the candidates."""
        scores = [
            Fraction(int(self.truth.addresses[host] in candidates[host]), max(1, len(candidates[host])))
            for host in among
        ]
        return float(sum(scores) / len(scores)) if scores else None


# --- the attacks on addresses


def by_order(published: Tables, candidates: Candidates, addresses: str) -> Candidates:
    """Flows that begin at the same time, numbered by their addresses: who is before whom.

    An order that is that of the published names is made from them (docs/anonymisation.md), and tells nothing.
    """
    found = dict(candidates)
    for run_id, flows in published.flows.items():
        hosts = [host for host in published.hosts[run_id] if (run_id, host) in candidates]
        after: dict[str, set[str]] = {host: set() for host in hosts}
        for one, other in _compared(flows):
            if one in after and other in after:
                after[one].add(other)
        place = {host: number for number, host in enumerate(sorted(hosts, key=_published_order(hosts, addresses)))}
        if all(place[one] < place[other] for one, others in after.items() for other in others):
            continue
        later = {host: _reached(host, after) for host in hosts}
        if any(host in reached for host, reached in later.items()):
            continue  # a circle: another order than that of addresses
        in_use = sorted(set().union(*(candidates[run_id, host] for host in hosts)))  # ingest orders texts
        for host in hosts:
            first, end = sum(host in reached for reached in later.values()), len(in_use) - len(later[host])
            found[run_id, host] = candidates[run_id, host] & frozenset(in_use[first:end])
    return found


def _compared(flows: Sequence[_Flow]) -> Iterator[tuple[str, str]]:
    """Pairs of hosts of which the first has the smaller address, if numbers of flows follow them."""
    for one, other in itertools.pairwise(flows):
        if one["first_seen_ns"] == other["first_seen_ns"]:
            for end in ("src_ip", "dst_ip"):
                if one[end] != other[end]:
                    yield one[end], other[end]
                    break


def _published_order(hosts: Sequence[str], addresses: str) -> Callable[[str], str]:
    """In which order a release has these hosts: by the addresses that stand for them in cut-down captures."""
    if addresses != "roles":
        return str
    labels = {f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}": host for n, host in enumerate(hosts)}
    wire = identifiers.capture_addresses(labels, ())
    return {host: wire[text] for text, host in labels.items()}.__getitem__


def _reached(host: str, after: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [host]
    while waiting:
        new = after[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def by_labels(candidates: Candidates) -> Candidates:
    """The guess that the first worker has the lowest address: who sets up a testbed numbers its hosts so."""
    runs: dict[str, list[str]] = {}
    for run_id, host in candidates:
        runs.setdefault(run_id, []).append(host)
    found = dict(candidates)
    for run_id, hosts in runs.items():
        in_use = set().union(*(candidates[run_id, host] for host in hosts))
        for host, address in zip(sorted(hosts, key=natural_order), sorted(in_use, key=_number), strict=False):
            found[run_id, host] = frozenset({address})
    return found


def by_same_labels(candidates: Candidates, known: Mapping[str, str]) -> Candidates:
    """The guess that a label is the same host in all runs. known: the address of each label of one run."""
    return {
        host: frozenset({known[host[1]]}) if known.get(host[1]) in left else left for host, left in candidates.items()
    }


def by_prefixes(candidates: Candidates, known: Mapping[Host, str]) -> Candidates:
    """Crypto-PAn keeps the tree of prefixes and is the same in all runs: what has another place in it is another host.

    known: some addresses. Each also gives the bits that every address below its prefixes shares with it.
    """
    by_host = {host: address for (_, host), address in known.items()}
    new = _places({host for _, host in candidates}, by_host)
    in_use = {address for left in candidates.values() for address in left}
    old = _places(in_use, {address: address for address in by_host.values()})
    return {
        (run_id, host): frozenset(address for address in left if old[address] == new[host])
        for (run_id, host), left in candidates.items()
    }


def _places(addresses: Iterable[str], marks: Mapping[str, str]) -> dict[str, Any]:
    """The place of each address in the tree of prefixes: equal for those that exchanging branches brings together.

    marks: what tells a leaf from others. (Canonical forms of trees: Aho, Hopcroft, Ullman 1974.)
    """
    bits = {text: format(int(ip := ipaddress.ip_address(text)), f"0{ip.max_prefixlen}b") for text in addresses}
    places: dict[str, Any] = {}
    for length in (32, 128):
        of_version = [text for text in bits if len(bits[text]) == length]
        if of_version:
            places |= _branches(of_version, bits, marks)[1]
    return places


def _branches(leaves: Sequence[str], bits: Mapping[str, str], marks: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The form of a tree, and for each leaf the forms that it passes on its way."""
    if len(leaves) == 1:
        form = f"<{marks.get(leaves[0], '')}>"
        return form, {leaves[0]: (form,)}
    columns = zip(*(bits[leaf] for leaf in leaves), strict=True)
    depth = next(place for place, column in enumerate(columns) if len(set(column)) > 1)
    sides = [_branches([leaf for leaf in leaves if bits[leaf][depth] == bit], bits, marks) for bit in "01"]
    form = f"({depth} {' '.join(sorted(form for form, _ in sides))})"
    return form, {leaf: (form, *way) for _, ways in sides for leaf, way in ways.items()}


def by_known_values(
    candidates: Candidates,
    published: Mapping[Host, Any],
    known: Mapping[Host, Any],
    runs: Mapping[str, str],
    alike: Callable[[Any, Any], bool] = operator.eq,
) -> Candidates:
    """Of each host those that have the same value: bytes, the offset of a clock, all that was sent and when.

    published: by host of the release. known: by address and old name of the run. A host without a value tells nothing.
    """
    found = dict(candidates)
    for (run_id, host), left in candidates.items():
        if (value := published.get((run_id, host))) is not None:
            others = {address: known.get((runs[run_id], address)) for address in left}
            same = frozenset(address for address, other in others.items() if other is not None and alike(value, other))
            found[run_id, host] = same or left
    return found


def are_near(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether counters are the same but for ROUGHLY."""
    return all(abs(a - b) <= ROUGHLY * max(a, b) for a, b in zip(one, other, strict=True))


def by_clocks(
    candidates: Candidates, published: Mapping[Host, int], known: Mapping[Host, int], runs: Mapping[str, str]
) -> Candidates:
    """Offsets of clocks by another reference: those that bring all clocks of the run onto known ones at once."""
    found = dict(candidates)
    for (run_id, host), left in candidates.items():
        if (run_id, host) in published:
            ours = [offset for (run, _), offset in published.items() if run == run_id]
            theirs = [offset for (run, _), offset in known.items() if run == runs[run_id]]
            same = set()
            for address in left:
                if (offset := known.get((runs[run_id], address))) is not None:
                    shift = offset - published[run_id, host]
                    if all(any(abs(one + shift - other) <= CLOCK_NS for other in theirs) for one in ours):
                        same.add(address)
            found[run_id, host] = frozenset(same) or left
    return found


def volumes(tables: Tables) -> dict[Host, Any]:
    """Payload bytes that each host sent and received, as counters of a switch tell."""
    sums: dict[Host, list[int]] = {}
    for run_id, flows in tables.flows.items():
        for flow in flows:
            for place, end in enumerate(("src_ip", "dst_ip")):
                sums.setdefault((run_id, flow[end]), [0, 0])[place] += flow["payload_bytes"] or 0
    return {host: tuple(found) for host, found in sums.items()}


def histories(tables: Tables) -> dict[Host, Any]:
    """All flows of each host: when they begin, after the first of the run, and their sizes. Unchanged in a release."""
    found: dict[Host, list[Any]] = {}
    for run_id, flows in tables.flows.items():
        begin = min((flow["first_seen_ns"] for flow in flows), default=0)
        for flow in flows:
            facts = flow["first_seen_ns"] - begin, flow["packets"], flow["payload_bytes"]
            for end in ("src_ip", "dst_ip"):
                found.setdefault((run_id, flow[end]), []).append((end, *facts))
    return {host: sorted(rows) for host, rows in found.items()}


# --- hosts


def _on_hosts(case: _Case) -> Iterator[Recovered]:
    in_use, hosts, runs = case.in_use(), case.hosts, case.truth.runs
    published, original = case.published, case.original

    def found(name: str, knows: str, candidates: Candidates, is_secret: bool = False) -> Recovered:
        shares = case.share(candidates, hosts), case.share(in_use, hosts)
        return Recovered(name, knows, "hosts", len(hosts), *shares, is_secret)

    yield found("order of flow_id", "the addresses of each run", by_order(published, in_use, case.addresses))
    if case.addresses == "roles":
        yield found("order of the labels", "the addresses of each run", by_labels(in_use), is_secret=True)
        yield _same_labels(case)
    yield found("tree of prefixes", "the addresses of each run", case.by_prefixes({}))
    for share in KNOWN_SHARES:
        yield _known_plaintext(case, share)
    yield _injected(case)
    counted = by_known_values(in_use, volumes(published), volumes(original), runs)
    yield found("sizes", "the addresses of each run, and bytes sent and received by each", counted)
    roughly = by_known_values(in_use, volumes(published), volumes(original), runs, are_near)
    knows = f"the addresses of each run, and bytes sent and received by each to within {ROUGHLY:.0%}"
    yield found("approximate sizes", knows, roughly)
    clocks = by_known_values(in_use, published.clocks, original.clocks, runs)
    yield found("clocks", "the addresses of each run, and the offset of each clock", clocks)
    if published.again:
        again = by_clocks(in_use, published.again, original.clocks, runs)
        yield found("clocks estimated again", "the addresses of each run, and the offset of each clock", again)
    same = by_known_values(in_use, histories(published), histories(original), runs)
    yield found("sizes and intervals", "the original dataset", same)


def _same_labels(case: _Case) -> Recovered:
    """The hosts of all runs but one, whose hosts are known."""
    every = case.in_use()
    run_id = max(case.published.hosts, key=lambda run_id: len(case.published.hosts[run_id]))
    known = {host: case.truth.addresses[run, host] for run, host in case.hosts if run == run_id}
    others = [host for host in case.hosts if host[0] != run_id]
    shares = case.share(by_same_labels(every, known), others), case.share(every, others)
    return Recovered(
        "labels of one run", "the addresses of each run, and all hosts of one", "hosts", len(others), *shares, True
    )


def _known_plaintext(case: _Case, share: float) -> Recovered:
    """The hosts that are not known, when a share of all addresses is. Mean of some draws."""
    import numpy as np

    every = sorted({case.truth.addresses[host] for host in case.hosts}, key=_number)
    rng = np.random.default_rng(0)
    number = max(1, round(share * len(every)))
    shares, chances, left = [], [], []
    for _ in range(DRAWS):
        drawn = {every[i] for i in rng.permutation(len(every))[:number]}
        known = {host: case.truth.addresses[host] for host in case.hosts if case.truth.addresses[host] in drawn}
        others = [host for host in case.hosts if host not in known]
        left.append(len(others))
        shares.append(case.share(case.by_prefixes(known), others))
        chances.append(case.share(case.in_use(known), others))
    knows = f"the addresses of each run, and the hosts of {number} of {len(every)} ({share:.0%}, at least one)"
    return Recovered("known plaintext", knows, "hosts", round(sum(left) / DRAWS), _mean(shares), _mean(chances))


def _injected(case: _Case) -> Recovered:
    """One transfer of a size of its own between two hosts that are known: they are found by it, and what follows."""
    shares = []
    for run_id, flow in _transfers(case):
        ends = [(run_id, flow[end]) for end in ("src_ip", "dst_ip")]
        known = {host: case.truth.addresses[host] for host in ends if host in case.truth.addresses}
        shares.append(case.share(case.by_prefixes(known), case.hosts))
    chance = case.share(case.in_use(), case.hosts)
    return Recovered("injected transfer", _TRANSFER, "hosts", len(case.hosts), _mean(shares), chance)


_TRANSFER = "the addresses of each run, and ends, size and time of one transfer"


def _transfers(case: _Case) -> list[tuple[str, _Flow]]:
    """Flows of the release that their size tells from all others, as an adversary chooses it: some, drawn."""
    import numpy as np

    sizes: dict[tuple[int, int], list[tuple[str, _Flow]]] = {}
    for run_id in case.truth.runs:
        for flow in case.published.flows[run_id]:
            sizes.setdefault((flow["packets"], flow["payload_bytes"]), []).append((run_id, flow))
    alone = [found[0] for found in sizes.values() if len(found) == 1]
    return [alone[i] for i in np.random.default_rng(0).permutation(len(alone))[:DRAWS]]


# --- times and names of runs


def _on_times(case: _Case) -> Iterator[Recovered]:
    """An offset that is known for one run is that of all that share it."""
    offsets = case.truth.offsets_ns
    runs = case.truth.runs
    chance = 1 / identifiers.OFFSETS if any(offsets.values()) else 1.0

    def shared_with(known: Iterable[str]) -> float | None:
        seen = {offsets[run_id] for run_id in known}
        return _mean([float(offset in seen) for offset in offsets.values()]) if chance < 1 else 1.0

    injected = _mean([shared_with([run_id]) for run_id, _ in _transfers(case)])
    yield Recovered("injected transfer", _TRANSFER, "times", len(runs), injected, chance)
    same = [run_id for run_id, left in _same_runs(case).items() if left == {runs[run_id]}]
    yield Recovered("sizes and intervals", "the original dataset", "times", len(runs), shared_with(same), chance)


def _on_runs(case: _Case) -> Iterator[Recovered]:
    renamed = [new for new, old in case.truth.runs.items() if new != old]
    same = _same_runs(case)
    scores = [int(case.truth.runs[run_id] in same[run_id]) / len(same[run_id]) for run_id in renamed]
    chance = 1 / len(case.truth.runs) if renamed else None
    yield Recovered("sizes and intervals", "the original dataset", "run names", len(renamed), _mean(scores), chance)


def _same_runs(case: _Case) -> dict[str, set[str]]:
    """The runs of the original whose flows have the sizes and intervals of each run."""

    def trace(flows: Sequence[_Flow]) -> tuple[Any, ...]:
        begin = flows[0]["first_seen_ns"] if flows else 0
        return tuple(sorted((f["first_seen_ns"] - begin, f["packets"], f["payload_bytes"]) for f in flows))

    known: dict[tuple[Any, ...], set[str]] = {}
    for run_id, flows in case.original.flows.items():
        known.setdefault(trace(flows), set()).add(run_id)
    every = set(case.original.flows)
    return {run_id: known.get(trace(case.published.flows[run_id]), every) for run_id in case.truth.runs}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _number(text: str) -> tuple[int, int]:
    ip = ipaddress.ip_address(text)
    return ip.version, int(ip)
