"""Cut-down captures: ingest of them gives the released tables again, and nothing of the originals is in them."""

from __future__ import annotations

import gzip
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fuzz
import naive.captures
import packets as p
import pyarrow.compute as pc
import pytest
import roce_traffic as roce
from captures_by_hand import LINKS, in_time
from roce_traffic import Sent

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.pcap.link_types import LINK_TYPES
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import captures
from ddnn_traces.release.anonymise.key import Key
from ddnn_traces.release.anonymise.mapping import Anonymiser, Options
from ddnn_traces.release.verify.capture_checks import NOT_COMPARED, TABLES

KEY = Key(bytes(range(32)))
REFUSED_LINKS = [link.number for link in LINK_TYPES if link.cut is None]
RUNS = ("torch-mlp1-sgd-32-gloo-0ms-ring-loss05", "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2")


def compare(before: Dataset, again: Dataset, mapping: Anonymiser, leave_out: tuple[str, ...] = ()) -> None:
    """The released tables against those of the cut-down captures, whose addresses are put back into labels."""
    for table in sorted({*TABLES} - {"captures"}):  # its rows are of the original files
        original, found = before.sql_arrow(f"FROM {table}"), again.sql_arrow(f"FROM {table}")
        for run in map(mapping.run, mapping.runs):
            back = {run.wire[old]: new for old, new in run.addresses.items()}

            def plain(row: dict[str, Any], back: dict[str, str] = back) -> str:
                kept = {name: value for name, value in row.items() if name not in (*NOT_COMPARED, *leave_out)}
                return repr({name: back.get(value, value) if name.endswith("_ip") else value
                             for name, value in kept.items()})  # fmt: skip

            of_run = original.filter(pc.equal(original["run_id"], run.run_id)).to_batches()
            released = [row for batch in of_run for row in run.batch(table, batch).to_pylist()]
            ingested = found.filter(pc.equal(found["run_id"], run.run_id)).to_pylist()
            for row in ingested:
                row |= {"capture_id": row["capture_id"].removesuffix(".gz")} if "capture_id" in row else {}
            assert sorted(map(plain, released)) == sorted(map(plain, ingested)), (run.run_id, table)


@pytest.fixture(scope="module")
def two_runs(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Dataset]]:
    folder = tmp_path_factory.mktemp("two")
    for run in RUNS:
        shutil.copytree(sample / run, folder / "in" / run)
    with ddnn_traces.ingest(folder / "in", folder / "dataset", packets=True) as dataset:
        yield folder / "in", dataset


@pytest.mark.parametrize("options", [Options(), Options("crypto-pan", "permuted"), Options("kept", "kept", "kept")])
def test_ingest_gives_the_released_tables_again(
    options: Options, two_runs: tuple[Path, Dataset], tmp_path: Path
) -> None:
    source, dataset = two_runs
    mapping = Anonymiser(KEY, options, dataset)
    written = captures.write([str(source)], dataset, mapping, tmp_path / "pcap")
    assert written == sorted(
        path.relative_to(tmp_path / "pcap").as_posix() for path in (tmp_path / "pcap").rglob("*") if path.is_file()
    )
    with ddnn_traces.ingest(tmp_path / "pcap", tmp_path / "again", packets=True) as again:
        assert again.run_ids == list(mapping.runs)
        assert again.sql("SELECT count(*) FROM packets").item() > 1000
        compare(dataset, again, mapping)


def test_the_same_bytes_every_time(two_runs: tuple[Path, Dataset], tmp_path: Path) -> None:
    source, dataset = two_runs
    for name in ("one", "two"):
        written = captures.write([str(source)], dataset, Anonymiser(KEY, Options(), dataset), tmp_path / name)
    assert any(path.endswith(".pcap.gz") for path in written)
    for path in written:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes()


def joined(files: Sequence[bytes]) -> list[bytes]:
    """All packets of the plain pcap files, in a file for each link type but SLL2, whose copies of a packet are one;
    and each second of the other files."""
    plain, other = defaultdict(list), []
    for data in files:
        link = int.from_bytes(data[20:24], "little")
        if data[:24] == p.pcap([], link=link) and link != p.SLL2 and len(data) < 20_000:  # or it is cut short
            plain[link] += [p.Record(0, record.captured, record.wire) for record in naive.captures.records(data)[0]]
        else:
            other.append(data)
    times = [[replace(record, time_ns=10**18 + i * 1000) for i, record in enumerate(each)] for each in plain.values()]
    return [p.pcap(records, link=link) for link, records in zip(plain, times, strict=True)] + other[::2]


@pytest.mark.parametrize("alone", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_exotic_and_damaged_packets(alone: bool, tmp_path: Path) -> None:
    """VLAN, MPLS, PPPoE, tunnels, fragments, IPv6 headers, pcapng, damage: what the fuzz tests make by hand. All
    packets of each link type together, or each capture alone."""
    (tmp_path / "in").mkdir()
    made = fuzz.made_by_hand(link for link in LINKS if link not in REFUSED_LINKS)
    cases = [*(made if alone else joined(made)), *(fuzz.case(3, number) for number in range(8))]
    files = []
    for number, data in enumerate(cases):
        path = tmp_path / "in" / f"case{number}.pcap"
        path.write_bytes(data)
        files.append(path)
    with ddnn_traces.ingest([str(path) for path in files], tmp_path / "dataset", packets=True) as dataset:
        one_link = (
            "SELECT run_id FROM captures WHERE NOT coalesce(contains(link_types, ','), false)"
            f" AND coalesce(link_types, '') NOT IN {tuple(map(str, REFUSED_LINKS))} ORDER BY run_id"
        )
        runs = [run_id for (run_id,) in dataset.sql(one_link).rows()]
        assert len(runs) > 0.8 * len(dataset.run_ids)
        mapping = Anonymiser(KEY, Options("crypto-pan"), dataset, runs)
        captures.write([str(path) for path in files], dataset, mapping, tmp_path / "pcap")
        # a bare capture has no metadata, its copy is in a folder with the name of its host
        names = ("label", "role", "rank")
        with ddnn_traces.ingest(tmp_path / "pcap", tmp_path / "again", packets=True) as again:
            compare(dataset, again, mapping, names)


@pytest.mark.parametrize("carrier", ["v2", "v1", "v1 of ports"])
@pytest.mark.parametrize("snaplen", [262144, 14 + 4 + 40 + 12 + 13])
def test_roce(carrier: str, snaplen: int, tmp_path: Path) -> None:
    """What numbers, NAKs, requests of READ and padding tell is the same: the counters, and the messages."""
    packets = roce.message(roce.WRITE, 7, 9 * roce.MTU, immediate=True) + roce.message(roce.WRITE, 16, 10)
    sent = [each for each, _ in roce.lossy(packets, [3], 3, selective=False)]
    sent += [roce.read_request(30, 3 * 256), Sent(10, 34, bytes(16 + 5), 5), roce.acknowledgement(34, roce.RNR_NAK)]
    sent += [Sent(0xAC, 40, bytes(4) + roce.read_request(40, 512).body), Sent(0xAA, 43, bytes(20 + 8), 8)]  # XRC
    sent += [*roce.message(roce.READ_ANSWER, 30, 3 * roce.MTU), roce.notification()]
    path = tmp_path / "a.pcap"
    path.write_bytes(p.pcap(in_time(*(each.frame(carrier) for each in sent)), snaplen=snaplen))
    with ddnn_traces.ingest(path, tmp_path / "dataset", packets=True) as dataset:
        sums = "SELECT sum(psn_repeated_packets), sum(nak_packets), sum(rnr_packets) FROM flows"
        assert dataset.sql(sums).rows() == [(4, 1, 1)]
        mapping = Anonymiser(KEY, Options("crypto-pan"), dataset)
        captures.write([str(path)], dataset, mapping, tmp_path / "pcap")
        with ddnn_traces.ingest(tmp_path / "pcap", tmp_path / "again", packets=True) as again:
            compare(dataset, again, mapping, ("label", "role", "rank"))


def test_several_link_types_do_not_fit_into_a_pcap(tmp_path: Path) -> None:
    ip = p.ipv4(p.tcp(b"x"))
    section = p.Section()
    packets = section.enhanced(10**15, p.ethernet(ip)) + section.enhanced(10**15, ip, interface=1)
    data = section.begin() + section.interface(p.ETHERNET) + section.interface(101) + packets
    (tmp_path / "two.pcapng").write_bytes(data)
    with ddnn_traces.ingest(tmp_path / "two.pcapng", tmp_path / "dataset") as dataset:
        assert dataset.sql("SELECT link_types FROM captures").item().count(",") == 1
        with pytest.raises(UsageError, match="several link types"):
            captures.write(
                [str(tmp_path / "two.pcapng")], dataset, Anonymiser(KEY, Options(), dataset), tmp_path / "pcap"
            )


@pytest.mark.parametrize("link", REFUSED_LINKS)
def test_rare_link_types_are_refused(link: int, tmp_path: Path) -> None:
    """Their headers would be lost, and with them the flows; nothing of them is written."""
    path = tmp_path / "rare.pcap"
    path.write_bytes(p.pcap([p.Record(10**15, LINKS[link](p.ipv4(p.tcp(b"x"))))], link=link))
    with (
        ddnn_traces.ingest(path, tmp_path / "dataset") as dataset,
        pytest.raises(UsageError, match=f"headers of link type {link}.*publish without captures"),
    ):
        captures.write([str(path)], dataset, Anonymiser(KEY, Options(), dataset), tmp_path / "pcap")
    assert not [path for path in (tmp_path / "pcap").rglob("*.pcap.gz") if path.stat().st_size]


def test_nothing_of_the_original_is_left(tmp_path: Path) -> None:
    payload = b"secret payload of somebody"
    mac = bytes.fromhex("00163e0badc0")
    frame = p.ethernet(p.ipv4(p.tcp(payload, options=b"\x01\x01\x08\x0a" + b"\x5a\x5b\x5c\x5d\x6a\x6b\x6c\x6d")))
    frame = mac + mac[::-1] + frame[12:]
    unknown = p.ethernet(b"what is this protocol", 0x88B5)
    source = tmp_path / "in" / "job-7"
    source.mkdir(parents=True)
    (source / "worker-1-tcpdump.pcap").write_bytes(
        p.pcap([p.Record(10**18, frame), p.Record(10**18 + 5000, unknown), p.Record(10**18, p.arp())])
    )
    with ddnn_traces.ingest(source, tmp_path / "dataset") as dataset:
        mapping = Anonymiser(KEY, Options(), dataset)
        old = {ip for pair in dataset.sql("SELECT src_ip, dst_ip FROM flows").rows() for ip in pair}
        captures.write([str(source)], dataset, mapping, tmp_path / "pcap")
    data = gzip.decompress((tmp_path / "pcap" / "job-7" / "worker-1.pcap.gz").read_bytes())
    assert len(data) == 24 + (16 + 14 + 20 + 20 + 12) + 2 * (16 + 14)
    packed = [bytes(map(int, ip.split("."))) for ip in old]
    for needle in (payload[:6], mac, mac[::-1], b"\x5a\x5b", b"protocol", *packed):
        assert needle not in data
    toml = (tmp_path / "pcap" / "job-7" / "run.toml").read_text()
    assert 'label = "worker-1"' in toml
    assert not any(ip in toml for ip in old)


def test_sources_that_are_not_those_of_the_dataset(two_runs: tuple[Path, Dataset], tmp_path: Path) -> None:
    source, dataset = two_runs
    mapping = Anonymiser(KEY, Options(), dataset)
    with pytest.raises(UsageError, match="is not among the sources"):
        captures.write([str(source / RUNS[0])], dataset, mapping, tmp_path / "one")
    shutil.copytree(source, tmp_path / "changed")
    changed = next((tmp_path / "changed" / RUNS[0]).glob("*.pcap*"))
    data = bytearray(changed.read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    with pytest.raises(UsageError, match="is not the file that was ingested"):
        captures.write([str(tmp_path / "changed")], dataset, mapping, tmp_path / "two")
    with pytest.raises(UsageError, match="ports classed"):
        captures.write([str(source)], dataset, Anonymiser(KEY, Options(ports="classed"), dataset), tmp_path / "three")


def test_captures_in_folders_of_hosts(sample: Path, tmp_path: Path) -> None:
    """Which ingest had made one run by its layout: they are found again, and the run becomes one folder."""
    source = sample / "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2"
    for number, path in enumerate(sorted(source.glob("worker-*.pcap.gz"))):
        folder = tmp_path / "in" / "run" / f"node{'ABCD'[number]}"
        folder.mkdir(parents=True)
        shutil.copy(path, folder / "eth0.pcap.gz")
        shutil.copy(source / f"train_history-worker-{number + 1}.log", folder / "train_history.log")
    with ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset", layout="{run}/{host}/*") as dataset:
        mapping = Anonymiser(KEY, Options(), dataset)
        paths = captures.write([str(tmp_path / "in")], dataset, mapping, tmp_path / "pcap")
        assert len([path for path in paths if path.endswith(".pcap.gz")]) == len(list(source.glob("worker-*.pcap.gz")))
        assert not any("node" in path for path in paths)
        with ddnn_traces.ingest(tmp_path / "pcap", tmp_path / "again") as again:
            compare(dataset, again, mapping)
        shutil.copytree(tmp_path / "in" / "run", tmp_path / "in" / "second" / "sub")
        shutil.rmtree(tmp_path / "in" / "run" / "nodeA")
        (tmp_path / "in" / "second" / "sub" / "nodeA" / "eth0.pcap.gz").unlink()
        with pytest.raises(UsageError, match=r"nodeA/eth0\.pcap\.gz of run run is not among the sources"):
            captures.write([str(tmp_path / "in")], dataset, mapping, tmp_path / "other")
