"""No order, count or tie of a release follows the originals: two datasets that differ in them give the same release."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import packets as p
import pytest
from packets import Record
from publishing import ABOUT
from small_release import content
from small_runs import write_log

import ddnn_traces
from ddnn_traces.release.anonymise import identifiers
from ddnn_traces.release.anonymise.key import Key
from ddnn_traces.release.verify import capture_checks
from ddnn_traces.release.verify.examined import PASSED, Examined

BEGIN_NS = 1_700_000_123 * 10**9
KEY = bytes(range(32)).hex()


@dataclass(frozen=True)
class Originals:
    """What a publisher hides, of the hosts, captures and runs of one story."""

    addresses: Sequence[str]
    machines: Sequence[str]
    captures: Sequence[str]
    runs: Sequence[str]

    def names(self) -> dict[str, str]:
        """The part of the story that each original plays."""
        kinds = {"address": self.addresses, "machine": self.machines, "capture": self.captures, "run": self.runs}
        parts = {name: f"<{kind} {i}>" for kind, names in kinds.items() for i, name in enumerate(names)}
        return parts | {run.removeprefix("job_"): parts[run] for run in self.runs}  # the part that is replaced

    def permuted(self, order: Sequence[int]) -> Originals:
        """Each original plays another part."""

        def of(names: Sequence[str]) -> list[str]:
            return [names[i] for i in order if i < len(names)]

        return Originals(of(self.addresses), of(self.machines), of(self.captures), of(self.runs))


FIRST = Originals(
    ("10.10.0.1", "10.10.0.2", "10.10.0.9", "10.10.0.10", "10.9.200.7"),
    ("athena-n7", "boreas-n1", "chloris-n3", "demeter-n2"),
    ("dump-a.pcap", "dump-b.pcap", "dump-c.pcap", "dump-d.pcap"),
    ("job_20231114_2215", "job_20231114_2216", "job_20231115_0107"),
)  # fmt: skip
AGAIN = FIRST.permuted((2, 0, 4, 3, 1))


def story(originals: Originals, folder: Path) -> Path:
    """Three runs of five hosts, in which everything happens at the same times, in the same sizes."""
    for run in originals.runs:
        write_run(originals, folder / run)
    return folder


def write_run(originals: Originals, folder: Path) -> None:
    """Captures at two hosts, and two equal ones in the network; four of the hosts are named, one by its role."""
    folder.mkdir(parents=True)
    hosts = originals.addresses
    labels = ["worker-1", *originals.machines[:3]]
    roles = ["worker", "worker", "worker", "other"]
    rows = [
        f'[[hosts]]\nip = "{hosts[i]}"\nlabel = "{labels[i]}"\nrole = "{roles[i]}"\n' + f"rank = {i}\n" * (i < 3)
        for i in sorted(range(4), key=lambda i: hosts[i])
    ]
    (folder / "run.toml").write_text("\n".join(rows))
    sent = traffic(hosts)
    vantages = [hosts[0], hosts[1], None, None]
    for name, vantage in zip(originals.captures, vantages, strict=True):
        records = [record for *ends, record in sent if vantage is None or vantage in ends]
        (folder / name).write_bytes(p.pcap(records))
    write_log(folder, "worker-1", [BEGIN_NS + step * 10**7 for step in (1, 2, 3)])


def traffic(hosts: Sequence[str]) -> list[tuple[str, str, Record]]:
    """Each pair sends at the same times: TCP (three connections of one five-tuple, other ports), UDP, RoCE, VXLAN."""
    sent = []
    for step in range(3):
        for i, one in enumerate(hosts):
            for j, other in enumerate(hosts):
                if one != other:
                    ports = 5000 + 10 * i + j, 5000 + 10 * j + i
                    packets = frames(one, other, ports, step)
                    sent += [(one, other, Record(BEGIN_NS + step * 10**7, frame)) for frame in packets]
    return sent


def frames(one: str, other: str, ports: tuple[int, int], step: int) -> list[bytes]:
    syn, ack = 2, 16
    inner = p.ethernet(p.ipv4(p.udp(bytes(20), 40000, 6000), one, other, p.UDP))
    return [
        p.ethernet(p.ipv4(p.udp(bytes(8), *ports), one, other, p.UDP)),  # and back, at once: nobody is first
        p.ethernet(p.ipv4(p.tcp(b"", 700, 800, seq=step * 10**6, flags=syn), one, other)),
        p.ethernet(p.ipv4(p.tcp(bytes(30), 700, 800, seq=step * 10**6 + 1, flags=ack), one, other)),
        *(p.ethernet(p.ipv4(p.tcp(bytes(30), 5000, 5001 + n, seq=1 + 30 * step), one, other)) for n in range(2)),
        p.ethernet(p.ipv4(p.udp(p.roce(bytes(16), queue_pair=9), 50000, p.ROCE_PORT), one, other, p.UDP)),
        p.ethernet(p.ipv4(p.udp(p.vxlan(inner), 50001, p.VXLAN_PORT), one, other, p.UDP)),
    ]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The story as both originals play it, ingested with its packets. Not to be changed."""
    made = []
    for originals in (FIRST, AGAIN):
        folder = tmp_path_factory.mktemp("story")
        ddnn_traces.ingest(story(originals, folder / "in"), folder / "dataset", packets=True).close()
        made.append(folder / "dataset")
    return made[0], made[1]


@pytest.fixture(scope="module")
def without_packets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The run folders of the story, and the dataset of their flows. Not to be changed."""
    folder = tmp_path_factory.mktemp("flows")
    ddnn_traces.ingest(story(FIRST, folder / "in"), folder / "dataset").close()
    return folder / "in", folder / "dataset"


def publish(
    originals: Originals, dataset: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: object
) -> dict[str, bytes]:
    """The files of a release of the story, whose key gives each part the same, whoever plays it."""
    names = originals.names()
    folder.mkdir()
    (folder / "key").write_text(KEY)
    with monkeypatch.context() as patch:
        patch.setattr(Key, "derive", _by_part(names, Key.derive))
        patch.setattr(identifiers.CryptoPan, "map", lambda _, ip: f"10.77.3.{3 + 40 * int(names[ip][-2])}")
        ddnn_traces.publish(dataset, folder / "release", **ABOUT, key=folder / "key",
                            allow_flagged=originals.runs, **options)  # fmt: skip
    return content(folder / "release")


def _by_part(names: Mapping[str, str], derive):  # type: ignore[no-untyped-def]
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return lambda key, purpose, size: derive(key, re.sub(known, lambda found: names[found[0]], purpose), size)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"addresses": "crypto-pan", "ports": "permuted"},
        pytest.param({"profile": "strict"}, marks=pytest.mark.nightly),
        # offsets of clocks are those to the first host by address
        {"profile": "open", "hashes": "withheld", "clocks": "withheld"},
    ],
    ids=["careful", "crypto-pan", "strict", "open"],
)
@pytest.mark.long_after(2)
def test_the_release_is_the_same_whoever_has_which_original(
    options: dict[str, object], datasets: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish(FIRST, datasets[0], tmp_path / "first", monkeypatch, **options)
    again = publish(AGAIN, datasets[1], tmp_path / "again", monkeypatch, **options)
    assert again.keys() == first.keys()
    assert [path for path in first if first[path] != again[path]] == []


@pytest.mark.parametrize("addresses", [pytest.param("roles", marks=pytest.mark.nightly), "crypto-pan"])
def test_published_captures_give_the_numbers_of_the_tables(
    addresses: str, without_packets: tuple[Path, Path], tmp_path: Path
) -> None:
    """Flows that begin at the same time have the order of the addresses that are in the cut-down captures."""
    source, dataset = without_packets
    options = ABOUT | {"addresses": addresses, "captures": [source], "allow_flagged": FIRST.runs}
    done = ddnn_traces.publish(dataset, tmp_path / "release", **options)
    release = done.path
    ends = "run_id, flow_id, reverse_flow_id, encapsulation_id, src_port, dst_port, roce_dest_qp, connection, packets"
    with ddnn_traces.ingest(release / "pcap", tmp_path / "again") as again, ddnn_traces.open(release) as released:
        rows, same = (dataset.sql(f"SELECT {ends} FROM flows ORDER BY ALL").rows() for dataset in (released, again))
    assert len(rows) == 480
    assert rows == same
    found = list(capture_checks.check_captures(Examined(release, tmp_path / "scratch", 2, done.release)))
    assert [each for each in found if each.status != PASSED] == []
