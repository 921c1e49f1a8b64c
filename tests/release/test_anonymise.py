"""Anonymisation: the key, what it decides, and that all tables of a run agree."""

from __future__ import annotations

import base64
import ipaddress
import itertools
import json
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import leak_scan
from ddnn_traces.release.anonymise import identifiers, mapping
from ddnn_traces.release.anonymise.key import Key, read_or_make
from ddnn_traces.release.anonymise.mapping import Anonymiser, Options, RunMapping
from ddnn_traces.store import schema

RUNS = ("torch-mlp1-sgd-32-gloo-0ms-ring-tso", "tf-mlp1-sgd-32-grpc-0ms-ps")
KEY = Key(bytes(range(32)))


@pytest.fixture(scope="module")
def dataset(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """Two runs, one of them with a worker whose name is no role and free text that names it."""
    folder = tmp_path_factory.mktemp("named")
    for run in RUNS:
        shutil.copytree(sample / run, folder / "in" / run)
    toml = folder / "in" / RUNS[1] / "run.toml"
    assert 'label = "worker-2"' in toml.read_text()
    toml.write_text(toml.read_text().replace('label = "worker-2"', 'label = "gpu-node17"'))
    for path in toml.parent.glob("*worker-2*"):
        path.rename(path.with_name(path.name.replace("worker-2", "gpu-node17")))
    with ddnn_traces.ingest(folder / "in", folder / "dataset") as opened:
        yield opened


def mapped(dataset: Dataset, run: RunMapping) -> dict[str, list[dict[str, Any]]]:
    """Rows of a run's tables as they would be published."""
    return {
        name: [
            row
            for batch in dataset.sql_arrow(f"FROM {name} WHERE run_id = '{run.run_id}'").to_batches()
            for row in run.batch(name, batch).to_pylist()
        ]
        for name in schema.TABLES
    }


# --- the key


@pytest.mark.parametrize("written", [b"%s", b"%s\n"], ids=["plain", "with a line end"])
def test_a_key_is_hex_base64_or_bytes(written: bytes, tmp_path: Path) -> None:
    secret = bytes(range(40, 80))
    for content in (secret.hex().encode(), base64.b64encode(secret)):
        (tmp_path / "key").write_bytes(written % content)
        assert read_or_make(tmp_path / "key").id == Key(secret).id
    (tmp_path / "key").write_bytes(secret)
    assert read_or_make(tmp_path / "key").id == Key(secret).id


def test_a_missing_key_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    made = read_or_make(tmp_path / "new.key")
    assert (tmp_path / "new.key").stat().st_mode & 0o777 == 0o600
    assert read_or_make(tmp_path / "new.key").id == made.id
    assert read_or_make(tmp_path / "other.key").id != made.id
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["new.key", "other.key"]
    assert made.id in repr(made)
    assert (tmp_path / "new.key").read_text().strip() not in repr(made)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"secret", "6 bytes is too short"), (b"00" * 31, "31 bytes is too short"), (b"ab" * 40, "repeats")],
)
def test_a_bad_key_is_refused_and_not_shown(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(UsageError, match=message) as found:
        read_or_make(tmp_path / "key")
    assert content.decode() not in str(found.value)
    assert "openssl rand -hex 32" in str(found.value)


def test_purposes_share_nothing() -> None:
    assert KEY.derive("a", 64)[:32] == KEY.derive("a", 32) != KEY.derive("b", 32)
    assert {KEY.number("dice", 6) for _ in range(3)} == {KEY.number("dice", 6)}


# --- addresses


def test_crypto_pan_gives_the_published_vectors() -> None:
    """Those of the authors' reference implementation (cryptopan 1.0, sample_trace), as yacryptopan has them."""
    from yacryptopan import CryptoPAn

    cipher = CryptoPAn(bytes([
        21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16,
        216, 152, 143, 131, 121, 121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2,
    ]))  # fmt: skip
    published = {
        "128.11.68.132": "135.242.180.132", "129.118.74.4": "134.136.186.123", "130.132.252.244": "133.68.164.234",
        "141.223.7.43": "141.167.8.160", "152.163.225.39": "151.140.114.167", "192.102.249.13": "252.138.62.131",
        "24.0.250.221": "100.15.198.226", "24.5.0.80": "100.9.15.210", "4.3.88.225": "124.60.155.63",
    }  # fmt: skip
    assert {text: cipher.anonymize(text) for text in published} == published
    cipher = CryptoPAn(bytes(range(32)))
    assert cipher.anonymize("192.0.2.1") == "2.90.93.17"
    assert cipher.anonymize("2001:db8::1") == "dd92:2c44:3fc0:ff1e:7ff9:c7f0:8180:7e00"


PAN_KINDS = ("is_multicast", "is_link_local", "is_loopback", "is_unspecified", "version")
_NUMBERS = {version: st.integers(0, 2**bits - 1) for version, bits in ((4, 32), (6, 128))}
_NEAR_RANGES = (
    "0.0.0.3", "10.0.0.1", "126.255.0.1", "127.0.0.1", "128.0.0.1", "169.254.7.8", "172.16.0.1", "223.9.9.9",
    "224.0.0.251", "224.0.1.1", "224.0.2.1", "239.1.2.3", "255.255.255.255", "::", "::1", "::2", "2001:db8::7",
    "fd00::1", "fe80::1", "fe80:0:0:1::1", "fec0::1", "ff02::1", "ff02::1:ff33:4455", "ff3e::9:1",
)  # fmt: skip


def _addresses(version: int) -> st.SearchStrategy[Any]:
    """Any address, and those that share any number of bits with an address at the edge of a range."""
    kind = ipaddress.IPv4Address if version == 4 else ipaddress.IPv6Address
    bits = 32 if version == 4 else 128
    near = st.sampled_from([int(ip) for ip in map(ipaddress.ip_address, _NEAR_RANGES) if ip.version == version])
    mixed = st.builds(lambda one, low, n: one ^ (low >> n), near, _NUMBERS[version], st.integers(0, bits))
    return st.builds(kind, _NUMBERS[version] | mixed)


@pytest.mark.parametrize("version", [4, 6])
def test_crypto_pan_keeps_every_prefix_and_kind(version: int) -> None:
    cipher = identifiers.CryptoPan(KEY)

    @settings(max_examples=400, deadline=None)
    @given(_addresses(version), _addresses(version))
    def keeps(one: Any, other: Any) -> None:
        now, then = (ipaddress.ip_address(cipher.map(str(ip))) for ip in (one, other))
        assert (int(one) ^ int(other)).bit_length() == (int(now) ^ int(then)).bit_length()
        for ip, new in ((one, now), (other, then)):
            assert [getattr(new, kind) for kind in PAN_KINDS] == [getattr(ip, kind) for kind in PAN_KINDS]
            assert identifiers.identifies_no_host(str(new)) == identifiers.identifies_no_host(str(ip))
            assert (new == ip) or not identifiers.identifies_no_host(str(ip))

    keeps()


def test_crypto_pan_changes_what_is_somebodys() -> None:
    cipher = identifiers.CryptoPan(KEY)
    hosts = [str(ipaddress.ip_address(number * 65537 + 2**28)) for number in range(3000)]
    assert len({cipher.map(text) for text in hosts}) == len(hosts)
    # Crypto-PAn's flips repeat where an address agrees with the padding: a few addresses in ten thousand stay by chance
    assert sum(cipher.map(text) == text for text in hosts) < 0.005 * len(hosts)
    for stays in ("127.0.0.1", "255.255.255.255", "224.0.0.251", "ff02::1", "::1", "::", "0.0.0.0"):
        assert cipher.map(stays) == stays
    for text in (
        "239.1.2.3",
        "169.254.7.8",
        "fe80::211:22ff:fe33:4455",
        "ff02::1:ff33:4455",
        "2001:db8::7",
        "10.0.0.1",
    ):
        assert cipher.map(text) != text


def test_roles_are_unique_and_say_nothing_else() -> None:
    hosts = [
        {"host_ip": "10.0.0.1", "label": "worker-1", "role": "worker", "rank": 0},
        {"host_ip": "10.0.1.1", "label": "worker-1", "role": "worker", "rank": 0},
        {"host_ip": "10.0.0.9", "label": None, "role": "parameter_server", "rank": 0},
        {"host_ip": "10.0.0.7", "label": None, "role": None, "rank": None},
    ]
    others = [("239.1.2.3", True), ("10.0.0.255", True), ("10.0.0.53", False), ("0.0.0.0", False)]
    found = identifiers.addresses_by_role(KEY, hosts, {"worker-1": "worker-1"}, others)
    assert {found["10.0.0.1"], found["10.0.1.1"]} == {"worker-1", "worker-1-b"}
    assert found["10.0.0.9"] == "parameter_server-1"
    kinds = {text: found[text].split("-")[0] for text, _ in others}
    assert kinds == {"239.1.2.3": "multicast", "10.0.0.255": "broadcast", "10.0.0.53": "host", "0.0.0.0": "unspecified"}
    assert found["10.0.0.7"].startswith("host-")
    assert len(set(found.values())) == len(found)
    wire = identifiers.capture_addresses(found, {"10.0.0.255", "239.1.2.3"})
    assert len(set(wire.values())) == len(wire)
    assert wire["10.0.0.255"].endswith(".255")
    assert ipaddress.ip_address(wire["239.1.2.3"]).is_multicast
    assert not set(wire.values()) & set(wire) - {"0.0.0.0"}


def test_names_of_hosts_and_captures() -> None:
    hosts = [
        {"host_ip": "10.0.0.1", "label": "gpu-node17", "role": "worker", "rank": 2},
        {"host_ip": "10.0.0.2", "label": "worker-3", "role": "worker", "rank": 2},
        {"host_ip": "10.0.0.3", "label": "alice-laptop", "role": "other", "rank": None},
    ]
    labels = identifiers.labels(KEY, hosts, ["worker-3", "bobs-box"])
    assert labels["worker-3"] == "worker-3"
    assert labels["gpu-node17"] == "worker-3-b"
    assert labels["alice-laptop"].startswith("host-")
    assert labels["bobs-box"].startswith("host-")
    assert labels["gpu-node17"] != labels["worker-3"]
    row = {"sha256": None, "blake3": None, "vantage_ip": None, "first_ns": 1, "last_ns": 9, "records": 1, "counted": 1}
    files = identifiers.capture_names(
        KEY,
        [
            {**row, "capture_id": "trace.pcap"},
            {**row, "capture_id": "trace.pcap1", "first_ns": 2},
            {**row, "capture_id": "trace.pcap10", "first_ns": 3},
            {**row, "capture_id": "gpu-node17.pcap.gz", "vantage_ip": "10.0.0.1"},
            {**row, "capture_id": "worker-9-tcpdump.pcap"},
        ],
        {"10.0.0.1": "worker-3-b"},
    )
    assert files == {
        "trace.pcap": "capture.pcap", "trace.pcap1": "capture.pcap1", "trace.pcap10": "capture.pcap2",
        "gpu-node17.pcap.gz": "worker-3-b.pcap", "worker-9-tcpdump.pcap": "worker-9.pcap",
    }  # fmt: skip


def test_a_worker_of_the_logs_is_the_host_of_its_rank() -> None:
    named = {"host_ip": "10.0.0.1", "label": "gpu-node17", "role": "worker", "rank": 0}
    nameless = {"host_ip": "10.0.0.2", "label": None, "role": "worker", "rank": 1}
    labels = identifiers.labels(KEY, [named, nameless], ["worker-1", "worker-2"])
    assert labels == {"gpu-node17": "worker-1", "worker-1": "worker-1", "worker-2": "worker-2"}
    assert identifiers.addresses_by_role(KEY, [named, nameless], labels, []) == {
        "10.0.0.1": "worker-1",
        "10.0.0.2": "worker-2",
    }
    from_0 = identifiers.labels(KEY, [named, nameless], ["worker-0", "worker-1"])
    assert from_0["gpu-node17"] == "worker-0"
    assert identifiers.addresses_by_role(KEY, [named, nameless], from_0, []) == {
        "10.0.0.1": "worker-0",
        "10.0.0.2": "worker-1",
    }
    both = identifiers.labels(KEY, [named], ["worker-1", "gpu-node17"])  # two logs: two workers
    assert both == {"gpu-node17": "worker-1-b", "worker-1": "worker-1"}


# --- ports, times, text


def test_ports() -> None:
    permuted, classed = identifiers.port_table(KEY, "permuted"), identifiers.port_table(KEY, "classed")
    assert sorted(permuted) == list(range(65536))
    assert (permuted != np.arange(65536)).mean() > 0.99
    for table in (permuted, classed):
        assert all(table[port] == port for port in identifiers.FIXED_PORTS)
        bounds = [0, *identifiers.PORT_CLASSES, 65536]
        for first, end in itertools.pairwise(bounds):
            assert ((first <= table[first:end]) & (table[first:end] < end)).all()
    assert {classed[22], classed[2222], classed[50000]} == {1, 1024, 32768}
    assert (identifiers.port_table(KEY, "kept") == np.arange(65536)).all()
    assert (identifiers.port_table(Key(b"other" * 8), "permuted") != permuted).any()


def _ns(*day: int) -> int:
    return int(datetime(*day, tzinfo=UTC).timestamp()) * 10**9  # type: ignore[arg-type, misc]


_KEYS = [Key(bytes([number]) * 31 + b"k") for number in range(60)]
_FIRST_NS, _LAST_NS = _ns(1971, 1, 1), _ns(2037, 12, 31)


def _offset(key: Key, day: tuple[int, ...], windows: list[int], source: str = "capture", days: int = 1) -> int:
    first = _ns(*day)
    return identifiers.time_offset_ns(key, source, (first, first + days * 86400 * 10**9), windows)


@pytest.mark.parametrize("windows", [[], [1_000_000], [1_000_000, 3_000_000], [7], [999_999], [60 * 10**9]])
@pytest.mark.parametrize("source", ["capture", "synthetic"])
@pytest.mark.parametrize("day", [(1970, 1, 1), (1980, 2, 3), (2004, 1, 3), (2026, 11, 23), (2039, 12, 1), (2199, 1, 1)])
def test_shifted_times_are_in_1971_to_2037(day: tuple[int, ...], source: str, windows: list[int]) -> None:
    for key in _KEYS:
        offset = _offset(key, day, windows, source)
        assert all(offset % window == 0 for window in [10**9, *windows])
        assert _FIRST_NS < _ns(*day) + offset < _LAST_NS - 86400 * 10**9
        assert abs(offset) > 2.9 * 365 * 86400 * 10**9
    assert len({_offset(key, day, windows, source) for key in _KEYS}) > 10


def test_the_offset_is_that_of_the_key_for_every_measured_run() -> None:
    for key in _KEYS:
        offsets = {
            _offset(key, day, windows, source)
            for day in ((2004, 1, 3), (2020, 5, 6), (2039, 12, 1))
            for windows in ([], [10**6], [10**9])
            for source in ("capture", "testbed")
        }
        assert len(offsets) == 1
        generated = _offset(key, (2020, 9, 13), [10**6], "synthetic")  # begins at a time that the source code states
        assert generated not in offsets
        assert _offset(key, (1970, 1, 1), [10**6]) not in offsets


def test_times_that_are_too_far_apart_are_refused() -> None:
    assert _offset(KEY, (1970, 1, 1), [], days=50 * 365) + _ns(1970, 1, 1) > _FIRST_NS
    with pytest.raises(UsageError, match="too far apart to be shifted"):
        _offset(KEY, (1970, 1, 1), [], days=70 * 365)
    with pytest.raises(UsageError, match="begin at no multiple of 1 s"):
        _offset(KEY, (2026, 1, 1), [2**55 - 1])


def test_free_text_loses_what_it_names() -> None:
    known = {"10.0.0.1": "worker-1", "gpu-node17": "worker-2", "gpu-node17.pcap": "worker-2.pcap"}
    assert mapping.scrub_text("last record cut short at byte 24", known) == "last record cut short at byte 24"
    text = "gpu-node17.pcap of gpu-node17 (10.0.0.1, 10.0.0.12, fe80::1, 00:1b:21:0a:0b:0c) in /home/alice/run: cut"
    changed = mapping.scrub_text(text, known)
    assert changed == "worker-2.pcap of worker-2 (worker-1, an address, an address, a hardware address) in a file: cut"
    moved = mapping.scrub_values({"start_ns": 10**18, "window_ns": 10**6, "list": ["10.0.0.1"]}, lambda t: t.upper(), 5)
    assert moved == {"START_NS": 10**18 + 5, "WINDOW_NS": 10**6, "LIST": ["10.0.0.1"]}


# --- all tables


@pytest.mark.parametrize("options", [Options(), Options("crypto-pan", "permuted"), Options("roles", "classed")])
def test_tables_of_a_run_agree(options: Options, dataset: Dataset) -> None:
    anonymiser = Anonymiser(KEY, options, dataset)
    for run_id in RUNS:
        run = pickle.loads(pickle.dumps(anonymiser.run(run_id)))
        tables = mapped(dataset, run)
        text = json.dumps(tables)
        assert "10.10.0." not in text
        assert "gpu-node17" not in text
        assert "tcpdump" not in text
        hosts = {row["host_ip"]: row["label"] for row in tables["hosts"]}
        assert {row[end] for row in tables["flows"] for end in ("src_ip", "dst_ip")} <= hosts.keys()
        assert {row["vantage_ip"] for row in tables["captures"]} <= hosts.keys()
        assert {row["worker"] for row in tables["steps"]} <= set(hosts.values())
        files = {row["capture_id"] for row in tables["captures"]}
        assert {row["capture_id"] for row in tables["capture_ledger"]} == files
        assert all((row["window_start_ns"] % row["window_ns"]) == 0 for row in tables["flow_windows"])
        original = dataset.sql_arrow(f"FROM flows WHERE run_id = '{run_id}'").to_pylist()
        for before, after in zip(original, tables["flows"], strict=True):
            assert after["first_seen_ns"] - before["first_seen_ns"] == run.offset_ns != 0
            assert after["packets"] == before["packets"]
    if options.addresses == "roles":
        assert hosts.keys() >= {"worker-1", "worker-2"}


def test_releases_of_one_key_agree(dataset: Dataset) -> None:
    alone, both = Anonymiser(KEY, Options(), dataset, RUNS[:1]), Anonymiser(KEY, Options(), dataset)
    assert mapped(dataset, alone.run(RUNS[0])) == mapped(dataset, both.run(RUNS[0]))
    other = Anonymiser(Key(b"another key" * 4), Options("crypto-pan"), dataset)
    assert other.run(RUNS[0]).offset_ns != both.run(RUNS[0]).offset_ns == both.run(RUNS[1]).offset_ns
    assert other.key_id != both.key_id
    pan = Anonymiser(KEY, Options("crypto-pan"), dataset)
    assert {tuple(sorted(pan.run(run).addresses.items())) for run in RUNS} == {
        tuple(sorted(pan.run(RUNS[0]).addresses.items()))
    }


def test_a_new_column_of_addresses_is_mapped_and_searched_for(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """schemas/ alone decides: a column that identifies an address needs no other list."""
    defined = schema.table
    gateway = schema.Column("gateway_ip", "string", "The gateway.", "run.toml", identifies="address")

    def with_gateway(name: str) -> schema.Table:
        found = defined(name)
        return replace(found, columns=(*found.columns, gateway)) if name == "hosts" else found

    with ddnn_traces.open(dataset.path) as changed:
        connection = changed.connection  # its views are those of today's schema
        monkeypatch.setattr(schema, "table", with_gateway)
        rows = f"read_parquet('{dataset.path}/hosts/*/*.parquet')"
        connection.execute(f"CREATE OR REPLACE VIEW hosts AS SELECT *, '172.31.7.9' AS gateway_ip FROM {rows}")
        for addresses in ("roles", "crypto-pan"):
            run = Anonymiser(KEY, Options(addresses), changed).run(RUNS[0])
            table = changed.sql_arrow(f"FROM hosts WHERE run_id = '{RUNS[0]}'").combine_chunks()
            after = run.batch("hosts", table.to_batches()[0])
            assert set(after["gateway_ip"].to_pylist()) == {run.addresses["172.31.7.9"]}
            assert run.addresses["172.31.7.9"] != "172.31.7.9"
        words = leak_scan.words(changed, [])
    assert words.texts["172.31.7.9"] == "an IP address"


def test_types_and_nulls_stay(dataset: Dataset) -> None:
    run = Anonymiser(KEY, Options(), dataset).run(RUNS[0])
    table = dataset.sql_arrow(f"FROM captures WHERE run_id = '{RUNS[0]}'")
    encoded = pa.table({name: table[name].dictionary_encode() if name == "vantage_ip" else table[name] for name in
                        table.column_names}).to_batches()[0]  # fmt: skip
    after = run.batch("captures", encoded)
    assert after.schema == encoded.schema
    assert after.column("status_detail").null_count == encoded.num_rows
    assert after.column("vantage_ip").to_pylist() == ["worker-1", "worker-2", "worker-3", "worker-4"]


def test_provenance_names_nothing(dataset: Dataset) -> None:
    run = Anonymiser(KEY, Options(), dataset).run(RUNS[1])
    found = run.parameters(
        {
            "ddnn_traces.version": "0.1.0",
            "ddnn_traces.inputs": json.dumps({"worker-1-tcpdump.pcap.gz": "ab" * 32}),
            "ddnn_traces.parameters": json.dumps({"filter": "host 10.10.0.1", "window_ns": 1000000}),
            "pandas": "/home/alice",
        }
    )
    assert found == {
        "ddnn_traces.version": "0.1.0",
        "ddnn_traces.inputs": json.dumps({"worker-1.pcap": "ab" * 32}),
        "ddnn_traces.parameters": json.dumps({"filter": "withheld", "window_ns": 1000000}),
    }


def test_facts_say_what_was_done(dataset: Dataset) -> None:
    for options in (Options(), Options("crypto-pan", "permuted"), Options("kept", "classed", "kept")):
        found = Anonymiser(KEY, options, dataset).facts(captures=True)
        assert (found.addresses, found.ports, found.times) == (options.addresses, options.ports, options.times)
        assert found.key_id == KEY.id
        assert any("SHA-256" in sentence for sentence in found.remaining)
        assert not any("were not given" in sentence for sentence in found.remaining)
        without = Anonymiser(KEY, options, dataset).facts()
        assert "were not given" in without.remaining[-1]
        assert all(sentence.endswith(".") for sentence in (*found.removed, *found.remaining))


def test_unknown_options_are_named() -> None:
    with pytest.raises(UsageError, match="--addresses role: did you mean roles"):
        Options("role")


def test_names_of_a_run_are_those_that_change(dataset: Dataset) -> None:
    run = Anonymiser(KEY, Options(addresses="kept"), dataset).run(RUNS[1])
    assert list(run.names()) == [("host", "gpu-node17", "worker-2")]
    by_role = Anonymiser(KEY, Options(), dataset).run(RUNS[1])
    addresses = dataset.sql("SELECT host_ip FROM hosts WHERE run_id = ?", [RUNS[1]])["host_ip"].to_list()
    assert {(kind, old) for kind, old, _ in by_role.names()} >= {
        ("host", "gpu-node17"),
        *(("address", ip) for ip in addresses),
    }
