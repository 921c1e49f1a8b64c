"""Attacks on releases: each recovers what it must where the release tells it, and nothing beyond chance elsewhere."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from publishing import ABOUT
from small_runs import BEGIN_NS, Packet, write_captures
from tools import RunCommand

import ddnn_traces
from ddnn_traces.release import attacks
from ddnn_traces.release.anonymise.identifiers import CryptoPan
from ddnn_traces.release.anonymise.key import Key
from ddnn_traces.release.attacks import Recovered, Tables, Truth
from ddnn_traces.store import layout

ADDRESSES = ("10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.7.9", "10.9.0.1")
LABELS = ("worker-3", "worker-1", "worker-5", "worker-2", "worker-4")
OFFSET_NS = -(10**18)


def tables(runs: Sequence[str], hosts: Sequence[str], order: Sequence[str], offset_ns: int = 0) -> Tables:
    """Every host sends to every other at the same time, numbered by `order`: of one size, but for one flow of a run."""
    flows = {
        run_id: [
            {
                "run_id": run_id, "flow_id": number, "src_ip": src, "dst_ip": dst, "first_seen_ns": 10**18 + offset_ns,
                "packets": 5, "payload_bytes": 777 if {src, dst} == {*hosts[:2]} and src == hosts[0] else 100,
            }
            for number, (src, dst) in enumerate(itertools.permutations(order, 2))
        ]
        for run_id in runs
    }  # fmt: skip
    return Tables(dict.fromkeys(runs, hosts), flows, {})


def attacked(
    new: Sequence[str], order: Sequence[str], addresses: str = "roles", runs: Sequence[str] = ("run",)
) -> dict[tuple[str, str], list[Recovered]]:
    """The rows by attack and what it recovers. new: the published names of ADDRESSES; order: that of the flows."""
    truth = Truth(
        {(run_id, name): address for run_id in runs for name, address in zip(new, ADDRESSES, strict=True)},
        {run_id: run_id for run_id in runs},
        dict.fromkeys(runs, OFFSET_NS),
    )
    original = tables(runs, ADDRESSES, sorted(ADDRESSES))
    rows: dict[tuple[str, str], list[Recovered]] = {}
    for one in attacks.attack(tables(runs, new, order, OFFSET_NS), original, truth, addresses):
        rows.setdefault((one.attack, one.of), []).append(one)
    return rows


def test_an_order_of_the_old_addresses_names_every_host() -> None:
    """As releases had it: flows that begin at once, numbered by the addresses that were to be hidden."""
    (old,) = attacked(LABELS, LABELS)["order of flow_id", "hosts"]
    assert (old.n, old.recovered, old.chance) == (5, 1.0, 0.2)
    (new,) = attacked(LABELS, sorted(LABELS))["order of flow_id", "hosts"]
    assert (new.n, new.recovered, new.chance) == (5, 0.2, 0.2)


def test_an_order_of_some_hosts_leaves_others_open() -> None:
    """Only two of five are compared: each may be four addresses, and is named in one of four or more cases."""
    flows = {"run": [{"run_id": "run", "first_seen_ns": 1, "src_ip": src, "dst_ip": "worker-9"} for src in LABELS[:2]]}
    candidates = {("run", label): frozenset(ADDRESSES) for label in LABELS}
    found = attacks.by_order(Tables({"run": LABELS}, flows, {}), candidates, "roles")
    assert found["run", LABELS[0]] == {*ADDRESSES} - {ADDRESSES[-1]}
    assert found["run", LABELS[1]] == {*ADDRESSES} - {ADDRESSES[0]}
    assert found["run", LABELS[2]] == {*ADDRESSES}


def mapped() -> list[str]:
    crypto_pan = CryptoPan(Key(bytes(range(32))))
    return [crypto_pan.map(address) for address in ADDRESSES]


def test_prefixes_name_hosts_of_crypto_pan() -> None:
    """In the tree of ADDRESSES 10.9.0.1 and 10.1.7.9 are alone in theirs; of .1, .2 and .3 one has no sister."""
    new = mapped()
    rows = attacked(new, sorted(new), "crypto-pan")
    (shape,) = rows["tree of prefixes", "hosts"]
    assert shape.recovered == pytest.approx((1 + 1 + 1 + 1 / 2 + 1 / 2) / 5)
    assert shape.chance == 0.2
    one, _, half = rows["known plaintext", "hosts"]
    # whoever knows .2 or .3 knows the other one; knowing any other tells nothing new
    assert one.recovered is not None
    assert 0.75 < one.recovered < 1
    assert half.recovered is not None
    assert half.chance is not None
    assert half.recovered > half.chance


def test_with_roles_known_hosts_tell_nothing_of_others() -> None:
    rows = attacked(LABELS, sorted(LABELS))
    assert [row.recovered for row in rows["known plaintext", "hosts"]] == [
        row.chance for row in rows["known plaintext", "hosts"]
    ]
    (shape,) = rows["tree of prefixes", "hosts"]
    assert shape.recovered == shape.chance == 0.2


def test_one_transfer_tells_its_ends_and_the_times_of_all_runs() -> None:
    """Of five hosts two are found by the flow of its own size; others are one of three."""
    rows = attacked(LABELS, sorted(LABELS))
    (hosts,) = rows["injected transfer", "hosts"]
    assert hosts.recovered == pytest.approx((2 + 3 * 1 / 3) / 5)
    (times,) = rows["injected transfer", "times"]
    assert times.recovered == 1.0
    assert times.chance is not None
    assert 0 < times.chance < 1e-8
    (nothing,) = attacked(LABELS, sorted(LABELS), runs=("one", "two"))["injected transfer", "hosts"]
    assert nothing.recovered is None, "in two equal runs no flow has a size of its own"


def test_sizes_name_the_hosts_whose_bytes_differ() -> None:
    """Two of five hosts sent or received other bytes than all others, which are equal."""
    (sizes,) = attacked(LABELS, sorted(LABELS))["sizes", "hosts"]
    assert sizes.recovered == pytest.approx((1 + 1 + 3 * 1 / 3) / 5)


def test_sizes_that_are_known_roughly_name_hosts_that_differ_by_more() -> None:
    """Counters to within 10%: a host with twice the bytes is found, two that differ by 5% are not told apart."""
    assert attacks.are_near((105, 100), (100, 100))
    assert not attacks.are_near((105, 100), (100, 50))
    (sizes,) = attacked(LABELS, sorted(LABELS))["approximate sizes", "hosts"]
    assert sizes.recovered == pytest.approx((1 + 1 + 3 * 1 / 3) / 5)
    candidates = {("run", name): frozenset(ADDRESSES[:3]) for name in LABELS[:3]}
    published = {("run", name): (sent, sent) for name, sent in zip(LABELS[:3], (1000, 1050, 3000), strict=True)}
    known = {("old", address): value for address, value in zip(ADDRESSES, published.values(), strict=False)}
    found = attacks.by_known_values(candidates, published, known, {"run": "old"}, attacks.are_near)
    assert [len(left) for left in found.values()] == [2, 2, 1]
    assert all(address in left for address, left in zip(ADDRESSES, found.values(), strict=False))


def test_clocks_are_recognised_from_another_reference() -> None:
    """Differences of 3 and 7 ms tell three clocks apart, whichever is the reference; three equal ones are not."""
    candidates = {("run", name): frozenset(ADDRESSES[:3]) for name in LABELS[:3]}
    for offsets, left in (((0, 3_000_000, 10_000_000), 1), ((0, 1_000, -2_000), 3)):
        known = {("old", address): offset for address, offset in zip(ADDRESSES, offsets, strict=False)}
        published = {("run", name): offset - offsets[2] + 500 for name, offset in zip(LABELS, offsets, strict=False)}
        found = attacks.by_clocks(candidates, published, known, {"run": "old"})
        assert [len(one) for one in found.values()] == [left] * 3
        assert all(address in one for address, one in zip(ADDRESSES, found.values(), strict=False))


@pytest.mark.parametrize(("clocks", "expected"), [({}, 0.2), ({name: i for i, name in enumerate(LABELS)}, 1.0)])
def test_clocks_name_hosts_where_they_are_published(clocks: Mapping[str, int], expected: float) -> None:
    candidates = {("run", label): frozenset(ADDRESSES) for label in LABELS}
    published = {("run", label): offset for label, offset in clocks.items()}
    known = {("old", address): i for i, address in enumerate(ADDRESSES)}
    found = attacks.by_known_values(candidates, published, known, {"run": "old"})
    right = [(address in found["run", label]) / len(found["run", label])
             for label, address in zip(LABELS, ADDRESSES, strict=True)]  # fmt: skip
    assert sum(right) / len(right) == pytest.approx(expected)


def test_the_original_is_recognised() -> None:
    """Two runs of the same sizes and intervals are one of two; the times are known of neither."""
    truth = Truth({}, {"a": "old-a", "b": "old-b"}, dict.fromkeys("ab", OFFSET_NS))
    original = tables(("old-a", "old-b"), ADDRESSES, ADDRESSES)
    published = tables(("a", "b"), LABELS, LABELS, OFFSET_NS)
    (names,) = [one for one in attacks.attack(published, original, truth, "roles") if one.of == "run names"]
    assert (names.n, names.recovered, names.chance) == (2, 0.5, 0.5)
    original.flows["old-a"][3]["packets"] = published.flows["a"][3]["packets"] = 6
    rows = attacks.attack(published, original, truth, "roles")
    assert [one.recovered for one in rows if one.of == "run names"] == [1.0]
    assert [one.recovered for one in rows if (one.attack, one.of) == ("sizes and intervals", "times")] == [1.0]


def test_a_release_states_what_attacks_recover(small: Path, release: Path, command: RunCommand, tmp_path: Path) -> None:
    made = json.loads((release / layout.RELEASE).read_text())["attacks"]
    assert {row["attack"] for row in made} > {"order of flow_id", "known plaintext", "injected transfer", "sizes"}
    assert "order of the labels" not in {row["attack"] for row in made}, "whether the guess is right stays secret"
    order = next(row for row in made if row["attack"] == "order of flow_id")
    assert order["recovered"] == order["chance"] > 0
    sheet = (release / layout.DATASHEET).read_text()
    assert sheet.count("| known plaintext |") == 3

    done = command("verify", release, "--attack", "--original", small, "--format", "json")
    assert done.returncode == 0, done.stderr
    printed = {(row["attack"], row["of"], row["knows"]): row for row in json.loads(done.stdout)}
    assert ("order of the labels", "hosts", "the addresses of each run") in printed
    for row in made:
        same = printed[row["attack"], row["of"], row["knows"]]
        assert same["n"] == row["n"]
        assert (same["recovered"] or 0) == pytest.approx(row["recovered"] or 0, rel=1e-3)


def conversations(hosts: Sequence[str], rounds: int = 100) -> list[Packet]:
    """Segments of each pair in turn, 50 us apart, whose numbers are all different."""
    pairs = enumerate(list(itertools.permutations(hosts, 2)) * rounds)
    return [Packet(BEGIN_NS + i * 50_000, *ends, 100, ports=(5000, 5000), seq=100 * i) for i, ends in pairs]


@pytest.mark.long
@pytest.mark.parametrize("ahead_ms", [(0, 3, 10), (0, 0, 0)])
def test_clocks_are_estimated_again_from_cut_down_captures(
    ahead_ms: tuple[int, ...], tmp_path: Path, command: RunCommand
) -> None:
    """The tables withhold them, and hosts have no labels. Clocks that differ name their hosts; equal ones nothing."""
    hosts, sent = ADDRESSES[:3], conversations(ADDRESSES[:3])
    seen = {
        f"{host}.pcap": [replace(x, time_ns=x.time_ns + ahead * 10**6 + 30_000 * (x.dst == host))
                         for x in sent if host in (x.src, x.dst)]
        for host, ahead in zip(hosts, ahead_ms, strict=True)
    }  # fmt: skip
    source = write_captures(tmp_path / "run", seen)
    ddnn_traces.ingest(source, tmp_path / "dataset").close()
    options = {**ABOUT, "captures": [source], "allow_flagged": ["run"], "bagit": any(ahead_ms)}
    ddnn_traces.publish(tmp_path / "dataset", tmp_path / "release", **options)
    with ddnn_traces.open(tmp_path / "release") as published:
        assert published.sql("SELECT count(clock_offset_ns) FROM captures").item() == 0
    done = command("verify", "release", "--attack", "--original", "dataset", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = {row["attack"]: row for row in json.loads(done.stdout)}
    expected = 1.0 if len({*ahead_ms}) == 3 else 1 / 3
    again = rows["clocks estimated again"]
    assert (again["n"], again["recovered"], again["chance"]) == (3, pytest.approx(expected), pytest.approx(1 / 3))
    assert rows["clocks"]["recovered"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--attack"], "--original"), (["--attack", "--original", "{small}", "--key", "{other}"], "the key")],
)
def test_without_the_original_or_its_key_nothing_is_scored(
    arguments: list[str], said: str, small: Path, release: Path, command: RunCommand, tmp_path: Path
) -> None:
    (tmp_path / "other").write_text(bytes(range(1, 33)).hex())
    places = {"small": small, "other": tmp_path / "other"}
    done = command("verify", release, *(text.format(**places) for text in arguments))
    assert done.returncode == 2
    assert said in done.stderr.decode()
