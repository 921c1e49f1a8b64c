"""The leak scan: every kind of word in every kind of place is found, and a clean release has none."""

from __future__ import annotations

import base64
import bz2
import gzip
import io
import json
import lzma
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import lz4.frame
import packets as p
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from captures_by_hand import LINKS
from hypothesis import given
from hypothesis import strategies as st

import ddnn_traces
from ddnn_traces.pcap.link_types import ETHERTYPE, LINK_TYPES, LinkType
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import captures, leak_scan
from ddnn_traces.release.anonymise import identifiers
from ddnn_traces.release.anonymise.key import Key
from ddnn_traces.release.anonymise.mapping import Anonymiser, Options
from ddnn_traces.release.leak_scan import original_captures, search
from ddnn_traces.release.leak_scan.searched_words import _Collector
from ddnn_traces.report import templates
from ddnn_traces.store import layout, schema
from ddnn_traces.store.parquet import part

RUNS = ("torch-mlp1-sgd-32-gloo-0ms-ring-tso", "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2")
SECRET = bytes(range(60, 100))
START_NS = 1_700_000_123_456_789_000
MAC = "9c:b6:d0:1a:2b:3c"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with something of everything that a scan looks for."""
    run = tmp_path_factory.mktemp("alice") / "job-7"
    run.mkdir()
    mac = bytes.fromhex(MAC.replace(":", ""))
    four = p.ethernet(p.ipv4(p.tcp(b"x" * 50), "172.20.30.41", "172.20.30.42"))
    six = p.ethernet(p.ipv6(p.tcp(b"x" * 50), "2001:db8:7::41", "2001:db8:7::42"), p.IPV6)
    records = [
        p.Record(START_NS + 10**6 * k, mac + mac[:5] + b"\x77" + frame[12:]) for k, frame in enumerate((four, six))
    ]
    (run / "gpu-node17.pcap").write_bytes(p.pcap(records, tick_ns=1))
    (run / "run.toml").write_text('[[hosts]]\nip = "172.20.30.41"\nlabel = "gpu-node17"\nrole = "worker"\nrank = 0\n')
    (run / "train.log").write_text(
        "started by carola@login3.cluster.example.edu in /scratch/carola/jobs/7\n"
        "data of /mnt/home/erika/x and /srv/users/list.txt, from files.pythonhosted.org\n"
    )
    (run / "key").write_bytes(SECRET)
    return run


@pytest.fixture(scope="module")
def words(source: Path, tmp_path_factory: pytest.TempPathFactory) -> leak_scan.Words:
    with ddnn_traces.ingest(source, tmp_path_factory.mktemp("words") / "dataset") as dataset:
        return leak_scan.words(dataset, [str(source)], key=source / "key")


#: Spellings of what must not be published, by the kind that the scan reports.
SPELLINGS = {
    "an IP address": [
        "172.20.30.41", "172-20-30-41", "41.30.20.172.in-addr.arpa", "ac141e29", "0xAC141E29", "2886999593",
        "::ffff:172.20.30.41", "2001:db8:7::41", "172.20.30.41.50010", "172_20_30_41",
        "2001:0DB8:0007:0000:0000:0000:0000:0041", "2001:db8:7:0:0:0:0:41",
        "1.172.20.30.41", "172.20.30.41.5.6", "v1.172.20.30.41", "172.20.30.0/24", "172-20-30-0",
        "172.020.030.041", "172020030041", "172203041",
        "41.30.20.172", "41-30-20-172", "291e14ac", "0x291e14ac", "689837228", "ac:14:1e:29", "29-1e-14-ac",
        "0254.024.036.051", "0254.0024.0036.0051", "254.024.036.051", "172%2E20%2E30%2E41", "0xac.0x14.0x1e.0x29",
        "\\xac\\x14\\x1e\\x29", "::ffff:ac14:1e29", "410000000000000000000700b80d0120",
    ],
    "a hardware address": [MAC, MAC.upper(), MAC.replace(":", "-"), MAC.replace(":", ""), MAC.replace(":", "_"),
        "3c:2b:1a:d0:b6:9c", "9cb6.d01a.2b3c", "fe80::9eb6:d0ff:fe1a:2b3c",
        "Mellanox_1a:2b:3c", "IntelCor_1a-2b-3c", "0x9cb6d003001a2b3c", "9cb6:d0ff:fe1a:2b3c",
        "fe80::9cb6:d003:1a:2b3c", "9c:b6:d0:03:00:1a:2b:3c"],
    "name of a host": ["gpu-node17", "GPU-NODE17", "gpu_node17", "gpunode17", "gpu node17", "71edon-upg",
        "gpu-node17-tcpdump.pcap", "login3.cluster.example.edu", "login3"],
    "domain of a host": ["cluster.example.edu", "example.edu", "www.example.edu", "n4.cluster.example.edu"],
    "name of a user": ["erika", "/scratch/users/erika", "carola", "carola@elsewhere", "/home/carola/x"],
    "a path": ["/scratch/carola/jobs/7", "/scratch/carola/jobs/7/out.txt", "/scratch/carola/jobs/7_old"],
    "the home of a user": ["/home/dave/x", "/Users/dave", "/root/x", r"C:\Users\dave", "file:///home/dave",
        "-I/home/dave",
    ],
    "the time of a run": [str(START_NS), "1700000123.456789", "1700000123", "2023-11-14T22:15:23Z",
        "2023-11-14 22:15",
        "20231114-221523", "20231114T221523Z", "20231114_2215", "202311142215", "2023-11-14_22-15-23",
        "2023-11-14-2215",
        "231114-221500", "2023-11-15T03:45:23+05:30", "2023-11-14_17-14", "14.11.2023 22:15", "11/14/2023, 22:15",
        "1700000122", "1700080000", "1699920000", "1700000122.5", "1700000123456", "1700000123456789", "1,700,000,123",
        "1700000123456789000", "1.700000123e9", "1.700000123e+18", "1.700000123456E+09", "1_700_000_123_456",
        "Nov14_22-15-23", "Tue Nov 14 22:15:23 2023", "14/Nov/2023:22:15:23 +0000",
        "6553f17b", "0x6553F17B", "2023-11-14T22", "2023-11-14-22", "20231114_22", "22.15.23-14.11.2023",
        "2215-20231114",
    ],
    "the key": [SECRET.hex(), SECRET.hex().upper(), base64.b64encode(SECRET).decode(),
        *(base64.b64encode(b"key"[:before] + SECRET + b"!").decode() for before in (1, 2, 3)),
        base64.urlsafe_b64encode(b"\xff\xfe" + SECRET).decode(),
        base64.b64encode(b"k=" + SECRET.hex().encode()).decode(),
    ],
    "a secret": ["AKIAIOSFODNN7EXAMPLE", "ghp_" + "a1B2" * 9, "github_pat_" + "11ABCDEFG0" * 4, "hf_" + "aB3dE" * 7,
        "AIza" + "SyA1b" * 7, "xoxb-123456789012-abcdefGHIJKL", "glpat-" + "x1Y2" * 5, "sk-proj-" + "a1B2" * 8,
        "sk_live_" + "a1B2" * 6, "rk_test_" + "a1B2" * 6, "wandb_v1_" + "a1B2" * 8, "nvapi-" + "a1B2" * 12,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc", "-----BEGIN RSA PRIVATE KEY-----",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "password=correcthorse",
        "PASSWORD: hunter22",
        '"api_key": "0a1b2c3d4e5f"', "WANDB_TOKEN=abcdefgh", "Authorization: Bearer abcdef0123456789abcdef",
        "https://alice:s3cret@example.com/x.git", "pw: S3cretPassword", "dbPassword=correcthorse",
    ],
}  # fmt: skip
_EVERY = [(kind, text) for kind, texts in SPELLINGS.items() for text in texts]

#: Similar texts that identify nothing.
HARMLESS = (
    "172.20.30.4", "172.20.30.412", "2172.20.30.41", "ac141e29ac141e29", "28869995931", "0172203041",
    "token: transformer", "secret: its holder", "tokens=40960000", "max_tokens = 2048", "the password is short", "AKIA",
    "1700000123 bytes", '"bytes": 1700000123', "1,700,000,123 bytes", "1701000123", "0.1700000123", "11700000123",
    "170000012",
    "5f1700000123" + "ab" * 12, "1.7e9", "https://example.com:8080/a@b", "sk-learn", "hf_model", "xoxo",
    "gpu-node1",
    "gpu-node170", "mycarola", "17000001234", "9c:b6:d0:1a:2b:3d", "/scratch/carol", "worker-1", "2001:db8:7::4",
    "2023-11-14", "2023-11-14, 22.8 MB", "2023-11-14 22 files", "6553f17b0", "65a3f17b", "172.20.30",
    "20231114", "2023-11-16T22:15", "12023-11-14T22:15", "2023-11-14T25:15", "https://a.org/home/dave",
    "/homes", "/user/x", "first_seen_ns", "edu", "list", "https://pythonhosted.org",
)  # fmt: skip


def release(folder: Path) -> Path:
    """A release with a Parquet file of `flows` and nothing wrong in it."""
    return write_parquet(folder, ["worker-1", "worker-2"])


def write_parquet(folder: Path, values: list[str], metadata: dict[str, str] | None = None, **options: object) -> Path:
    path = folder / part("flows", 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"src_ip": values, "roce_dest_qp": pa.array([1] * len(values), pa.int64())})
    pq.write_table(table.replace_schema_metadata(metadata), path, compression="zstd", **options)
    return folder


def kinds(folder: Path, words: leak_scan.Words) -> set[str]:
    return {leak.kind for leak in leak_scan.scan(folder, words)}


@pytest.mark.parametrize(("kind", "text"), _EVERY, ids=[text for _, text in _EVERY])
def test_every_spelling_is_found_in_a_text(kind: str, text: str, words: leak_scan.Words, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"Recorded with ({text}), see there.")
    leaks = leak_scan.scan(tmp_path, words)
    assert kind in {leak.kind for leak in leaks}
    assert text.lower() not in str(leaks).lower()  # a message goes into logs


@pytest.mark.parametrize(("kind", "text"), _EVERY, ids=[text for _, text in _EVERY])
def test_every_spelling_is_found_between_whatever_is_no_letter(
    kind: str, text: str, words: leak_scan.Words, tmp_path: Path
) -> None:
    edges = "_-,:;=|'\"\u2192\u201c" + "." * (not text.startswith("/"))
    for number, edge in enumerate(edges):
        (tmp_path / f"{number}.md").write_text(f"net{edge}{text}{edge}run")
    found = {leak.file for leak in leak_scan.scan(tmp_path, words) if leak.kind == kind}
    assert found == {f"{number}.md" for number in range(len(edges))}


#: What no digit and no letter beside it continues: kind, text and what is around it.
NEIGHBOURS = [
    *(("an IP address", "172.20.30.41", *around) for around in (
        ("run1-", ""), ("run_2_", ""), ("x", "y"), ("", ".pcap"), ("v1.", ""), ("run1.", "b"), ("1_", "_1"),
        ("\u00e9", "\u00e9"))),
    ("an IP address", "AC141E29", "run1x", "y"), ("an IP address", "172-20-30-41", "ip-", "-2"),
    ("a hardware address", "9cb6d01a2b3c", "nicx", "y"), ("a hardware address", MAC, "00:", ":00"),
    ("the time of a run", "1700000123", "run-", ""), ("the time of a run", "1700000123", "job", "b"),
    ("the time of a run", "1700000123456", "t", "ms"), ("the time of a run", "1700000123", "1_", "_2"),
    *(("name of a user", *around) for around in (("erika", "run2", "3"), ("Erika", "my", "Run"), ("erika", "", "Run"),
        ("ERIKA", "my2", "Run"), ("Erika", "HTTP", "2"))),
    ("name of a host", "gpu-node17", "7", "a"), ("name of a host", "login3", "8", "B"),
    ("a secret", "AKIAIOSFODNN7EXAMPLE", "k=", ""),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "before", "after"), NEIGHBOURS)
def test_neighbours_that_do_not_continue_it(
    kind: str, text: str, before: str, after: str, words: leak_scan.Words, tmp_path: Path
) -> None:
    (tmp_path / "README.md").write_text(f"a {before}{text}{after} b")
    (tmp_path / f"{before}{text.replace('/', '')}{after}.txt").write_text("nothing")
    found = {(leak.file, leak.place) for leak in leak_scan.scan(tmp_path, words) if leak.kind == kind}
    assert found == {("README.md", f"the bytes, at {2 + len(before.encode())}"), ("...", "the name of the file")}


@pytest.mark.parametrize("kind", SPELLINGS)
def test_words_in_base64_and_hex(kind: str, words: leak_scan.Words, tmp_path: Path) -> None:
    text = f"made by {SPELLINGS[kind][0]} here".encode()
    encoded = [
        base64.b64encode(text),
        base64.urlsafe_b64encode(text),
        text.hex().encode(),
        base64.b64encode(base64.b64encode(text)),
    ]
    for number, data in enumerate(encoded):
        (tmp_path / f"{number}.json").write_text(json.dumps({"a": f"x {data.decode()}"}))
    assert {leak.file for leak in leak_scan.scan(tmp_path, words) if leak.kind == kind} == {
        f"{n}.json" for n in range(4)
    }


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_it_is_not(text: str, words: leak_scan.Words, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(f"Recorded with ({text}), see there.")
    assert leak_scan.scan(tmp_path, words) == []


Plant = Callable[..., object]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstandard.compress, "xz": lzma.compress, "bzip2": bz2.compress, "lz4": lz4.frame.compress,
}  # fmt: skip
PLACES: dict[str, Plant] = {
    "a value": lambda folder, text: write_parquet(
        folder, [f"x{k}" for k in range(5000)] + [text], use_dictionary=False
    ),
    "a dictionary": lambda folder, text: write_parquet(folder, ["worker-1", text] * 3000),
    "statistics alone": lambda folder, text: _in_statistics(folder, text),
    "metadata": lambda folder, text: write_parquet(folder, ["a"], {"ddnn_traces.inputs": json.dumps({text: "x"})}),
    "JSON with escapes": lambda folder, text: (folder / "x.json").write_text(
        '{"a": ["' + "".join(f"\\u{ord(letter):04x}" for letter in text) + '"]}'
    ),
    "a line of a log": lambda folder, text: (folder / "train.log").write_text(f"a\n{text}\n"),
    "a drawing": lambda folder, text: (folder / "traffic.svg").write_text(
        f'<svg><text aria-label="run: {text}">a</text></svg>'
    ),
    "the page to look around in": lambda folder, text: (folder / layout.EXPLORER).write_text(_explorer(text)),
    "a title of that page": lambda folder, text: (folder / layout.EXPLORER).write_text(_explorer("none", text)),
    "a workload card": lambda folder, text: (folder / "workloads.yaml").write_text(f"a:\n  contact: {text}\n"),
    "a log": lambda folder, text: (folder / "train.log").write_text(f"a\nhost {text}\n"),
    "gzip": lambda folder, text: (folder / "x.gz").write_bytes(gzip.compress(f"a {text} b".encode())),
    "the comment of a zip": lambda folder, text: _commented(folder / "x.zip", text),
    **{
        f"{ending} of a text": lambda folder, text, pack=pack: (folder / "x.packed").write_bytes(
            pack(f"a {text} b".encode())
        )
        for ending, pack in PACKERS.items()
    },
    "zip in zip": lambda folder, text: (folder / "x.zip").write_bytes(_zipped(_zipped(f"a {text} b".encode()))),
    "a database": lambda folder, text: _database(folder / "traces.duckdb", text),
    "the name of a file": lambda folder, text: (folder / f"x {text.replace('/', '%2F')} y.txt").write_text("nothing"),
    "across blocks": lambda folder, text: (folder / "x.bin").write_bytes(
        b" " * ((16 << 20) - 5) + text.encode() + b" "
    ),
}


def _in_statistics(folder: Path, text: str) -> None:
    """The text in the footer's minimum, another of the same length in the column."""
    value = "!" * len(text.encode())
    path = write_parquet(folder, [value]) / part("flows", 0)
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert value.encode() in data[footer:]
    path.write_bytes(data[:footer] + data[footer:].replace(value.encode(), text.encode()))
    assert pq.read_table(path, partitioning=None)["src_ip"].to_pylist() == [value]


def _explorer(text: str, title: str = "none") -> str:
    page = templates.render(
        "explorer.html", title=title, note="none", packed=templates.packed([{"id": f"a {text} b", "bytes": [1]}]),
        script=templates.script("explorer.js"), vega="",
    )  # fmt: skip
    assert text not in page or text == "none"
    return page


def _zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inside", data)
    return file.getvalue()


def _commented(path: Path, text: str) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inside", b"nothing")
        archive.comment = f"a {text} b".encode()


def _database(path: Path, text: str) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE VIEW flows AS SELECT '{text}' AS a")


def test_nothing_is_found_where_nothing_was_put(words: leak_scan.Words, tmp_path: Path) -> None:
    assert kinds(release(tmp_path), words) == set()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", SPELLINGS)
def test_every_kind_is_found_in_every_place(kind: str, place: str, words: leak_scan.Words, tmp_path: Path) -> None:
    release(tmp_path)
    PLACES[place](tmp_path, SPELLINGS[kind][0])
    assert kind in kinds(tmp_path, words)


def test_binary_forms_are_found(words: leak_scan.Words, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"\0\0" + bytes.fromhex(MAC.replace(":", "")) + b"\0")
    (tmp_path / "y.bin").write_bytes(b"\0\0" + bytes.fromhex("20010db8000700000000000000000041") + SECRET)
    found = {(leak.file, leak.kind) for leak in leak_scan.scan(tmp_path, words)}
    assert found == {("x.bin", "a hardware address"), ("y.bin", "an IP address"), ("y.bin", "the key")}


@pytest.mark.parametrize("order", ["big", "little"])
def test_addresses_as_numbers_of_a_column(order: str, words: leak_scan.Words, tmp_path: Path) -> None:
    number = int.from_bytes(bytes([172, 20, 30, 41]), order)  # type: ignore[arg-type]
    path = tmp_path / part("flows", 0)
    path.parent.mkdir(parents=True)
    for column, found in (("roce_dest_qp", {"an IP address"}), ("wire_bytes", set()), ("flow_id", set())):
        pq.write_table(pa.table({column: pa.array([1, number, 2**40], pa.int64())}), path)
        assert kinds(tmp_path, words) == found


def test_times_that_were_not_shifted(words: leak_scan.Words, tmp_path: Path) -> None:
    path = tmp_path / part("flow_windows", 0)
    path.parent.mkdir(parents=True)
    for time, found in ((START_NS + 5, {"the time of a run"}), (START_NS + 10**18, set())):
        pq.write_table(pa.table({"window_start_ns": pa.array([time], pa.int64())}), path)
        assert kinds(tmp_path, words) == found


@pytest.mark.parametrize("change", ["address", "inner address", "hardware address", "time", "payload", "none"])
def test_captures(change: str, words: leak_scan.Words, tmp_path: Path) -> None:
    clean = p.ipv4(p.tcp(seq=int.from_bytes(bytes([172, 20, 30, 41]), "big")), "198.18.0.1", "198.18.0.2")
    leaking = p.ipv4(p.tcp(), "172.20.30.41", "198.18.0.2")
    frame = p.ethernet(clean)
    if change == "address":
        frame = p.ethernet(leaking)
    if change == "inner address":
        frame = p.ethernet(p.ipv4(p.udp(p.vxlan(p.ethernet(leaking)), 5000, 4789), "198.18.0.1", "198.18.0.2", p.UDP))
    if change == "hardware address":
        frame = bytes.fromhex(MAC.replace(":", "")) + frame[6:]
    if change == "payload":
        frame = p.ethernet(p.ipv4(p.udp(b"to gpu-node17 now"), "198.18.0.1", "198.18.0.2", p.UDP))
    time = START_NS if change == "time" else START_NS + 10**18
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    record = struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), len(frame))
    (tmp_path / "worker-1.pcap").write_bytes(header + (record + frame) * 3)
    expected = {"address": "an IP address", "inner address": "an IP address", "hardware address": "a hardware address",
                "time": "the time of a run", "payload": "name of a host"}  # fmt: skip
    assert kinds(tmp_path, words) == ({expected[change]} if change in expected else set())


IP = bytes([172, 20, 30, 41])
HARDWARE = bytes.fromhex(MAC.replace(":", ""))


def capture_of(*frames: bytes) -> bytes:
    """A pcap as releases have it, of a time that is no run's."""
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    records = (struct.pack("<IIII", 1000, 0, len(frame), len(frame)) + frame for frame in frames)
    return header + b"".join(records)


def _udp(payload: bytes) -> bytes:
    return p.ethernet(p.ipv4(p.udp(payload), "198.18.0.1", "198.18.0.2", p.UDP))


def _ipv4(data: bytes) -> str:
    return ".".join(map(str, data))


#: Frames where the bytes of a hardware address, an address or a name stand by chance.
BY_CHANCE = {
    "window, checksum and urgent pointer": p.ethernet(
        p.ipv4(p.tcp()[:14] + HARDWARE, "198.18.0.1", "198.18.0.2")
    ),
    "sequence numbers": p.ethernet(p.ipv4(p.tcp()[:4] + HARDWARE + p.tcp()[10:], "198.18.0.1", "198.18.0.2")),
    "a name in sequence numbers": p.ethernet(
        p.ipv4(p.tcp()[:4] + b".erika.!" + p.tcp()[12:], "198.18.0.1", "198.18.0.2")
    ),
    "the end of one address and the start of the next": p.ethernet(
        p.ipv4(p.tcp(), _ipv4(b"\x0a\x0b" + IP[:2]), _ipv4(IP[2:] + b"\x0a\x0b"))
    ),
    "the same with a hardware address": p.ethernet(
        p.ipv4(p.tcp(), _ipv4(b"\x0a" + HARDWARE[:3]), _ipv4(HARDWARE[3:] + b"\x0a"))
    ),
    "the end of one hardware address and the start of the next": b"\2" + HARDWARE + b"\2" * 5 + _udp(b"")[12:],
}  # fmt: skip


@pytest.mark.parametrize("ending", ["pcap", "pcap.gz"])
@pytest.mark.parametrize("frame", BY_CHANCE.values(), ids=BY_CHANCE)
def test_what_stands_in_headers_by_chance_is_not_found(
    frame: bytes, ending: str, words: leak_scan.Words, tmp_path: Path
) -> None:
    data = capture_of(frame, frame)
    (tmp_path / f"worker-1.{ending}").write_bytes(data if ending == "pcap" else gzip.compress(data))
    assert leak_scan.scan(tmp_path, words) == []


_SIX = p.ipv6(p.tcp(), "2001:2::1", "2001:2::2")
#: Frames that hold one, with its kind.
LEAKING = {
    "the source": ("a hardware address", b"\2" * 6 + HARDWARE + _udp(b"")[12:]),
    "a made hardware address": ("an IP address", b"\2\0" + IP + _udp(b"")[6:]),
    "a payload": ("a hardware address", _udp(b"to " + HARDWARE)),
    "an address in a payload": ("an IP address", _udp(b"to " + IP)),
    "a name in a payload": ("name of a user", _udp(b"by erika.")),
    "a payload of TCP": ("a hardware address", p.ethernet(p.ipv4(p.tcp(HARDWARE), "198.18.0.1", "198.18.0.2"))),
    "ARP": ("a hardware address", p.ethernet(b"\0\1\x08\0\6\4\0\1" + HARDWARE + b"\0" * 14, 0x0806)),
    "an interface": (
        "a hardware address", p.ethernet(_SIX[:32] + bytes.fromhex("9eb6d0fffe1a2b3c") + _SIX[40:], p.IPV6)
    ),
    "a mapped address": ("an IP address", p.ethernet(_SIX[:8] + b"\0" * 10 + b"\xff\xff" + IP + _SIX[24:], p.IPV6)),
    "a frame that is too long to be examined": ("name of a user", _udp(b"\0" * (1 << 18) + b" erika ")),
}  # fmt: skip


@pytest.mark.parametrize("ending", ["pcap", "pcap.gz"])
@pytest.mark.parametrize(("kind", "frame"), LEAKING.values(), ids=LEAKING)
def test_what_stands_where_it_means_something_is_found(
    kind: str, frame: bytes, ending: str, words: leak_scan.Words, tmp_path: Path
) -> None:
    data = capture_of(_udp(b""), frame)
    (tmp_path / f"worker-1.{ending}").write_bytes(data if ending == "pcap" else gzip.compress(data))
    assert kinds(tmp_path, words) == {kind}


@pytest.mark.parametrize(
    ("days", "found"), [(400, set()), (-0.9, {"the time of a run"}), (700.5, {"the time of a run"})]
)
def test_a_time_between_two_runs_is_that_of_none(days: float, found: set[str], tmp_path: Path) -> None:
    """A shifted time may lie between originals of different years, in a capture and in a text."""
    day_ns = 86400 * 10**9
    words = leak_scan.Words(times=[(START_NS, START_NS + 1), (START_NS + 700 * day_ns, START_NS + 700 * day_ns + 1)])
    time = START_NS + int(days * day_ns)
    frame = p.ethernet(p.ipv4(p.tcp(), "198.18.0.1", "198.18.0.2"))
    header = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    record = struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), len(frame)) + frame
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "worker-1.pcap").write_bytes(header + record)
    (tmp_path / "2").mkdir()
    (tmp_path / "2" / "train.log").write_text(f"end {time // 10**9}.5\n")
    assert [kinds(tmp_path / folder, words) for folder in "12"] == [found, found]


def test_a_message_names_the_run_once_and_not_the_text(words: leak_scan.Words, tmp_path: Path) -> None:
    for table in ("flows", "hosts", "steps"):
        folder = tmp_path / table / "of gpu-node17"
        folder.mkdir(parents=True)
        (folder / "x.txt").write_text("gpu-node17 and 172.20.30.42")
    causes = leak_scan.causes(leak_scan.scan(tmp_path, words))
    places = [", ".join(f"{table}/.../x.txt (the bytes, at {at})" for table in ("flows", "hosts")) for at in (15, 0)]
    assert causes == [
        f"an IP address (host 2 of run job-7): in {places[0]} and 1 more file",
        f"name of a host (host 1 of run job-7): in {places[1]} and 1 more file",
    ]


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("a-20231114T221523", "a-"), ("a_2023-11-14_22-15-23.456_b", "a__b"), ("2023-11-14T22:15:23Z-b", "-b"),
        ("a1700000123.456b", "ab"), ("run2-172.20.30.41.x", "run2-.x"), ("x_gpunode17_erika3", "x__3"),
    ],
)  # fmt: skip
def test_what_is_left_of_the_name_of_a_run(name: str, rest: str, source: Path, tmp_path: Path) -> None:
    """The whole time goes, with seconds and their fraction."""
    shutil.copytree(source, tmp_path / "in" / name)
    with ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset") as dataset:
        found = leak_scan.words(dataset, [str(tmp_path / "in")]).runs
        renamed = Anonymiser(Key(SECRET), Options(), dataset, named=found).renamed
    parts = identifiers.run_parts(Key(SECRET), name, found[name])
    assert identifiers.replaced(name, dict.fromkeys(parts, "")) == rest
    assert renamed[name] == identifiers.replaced(name, parts)


def test_the_name_of_a_run_that_names_a_host_is_not_shown(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "in" / "net_gpu-node17_v2")
    with ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset") as dataset:
        words = leak_scan.words(dataset, [])
        leaks = leak_scan.scan(tmp_path / "dataset", words)
    assert any("(host 1 of run number 1)" in leak.cause for leak in leaks)
    assert "gpu-node17" not in str(leaks)


_PIECES = st.binary(min_size=4, max_size=6).map(lambda data: bytes(b"ab"[byte & 1] for byte in data))


@given(
    pieces=st.dictionaries(_PIECES, st.sampled_from("xyz"), min_size=1, max_size=6),
    data=st.lists(st.sampled_from(b"abAc"), max_size=60).map(bytes),
    chunk=st.integers(1, 20),
)
def test_the_search_finds_what_a_plain_search_finds(pieces: dict[bytes, str], data: bytes, chunk: int) -> None:
    """Overlapping words, and words across the chunks in which bytes are searched."""
    expected = [(place, kind) for place in range(len(data)) for word, kind in pieces.items()
                if data.startswith(word, place)]  # fmt: skip
    searcher = search.Searcher({}, pieces)
    before, search._CHUNK_BYTES = search._CHUNK_BYTES, chunk
    try:
        assert sorted(searcher.kinds(data)) == sorted(expected)
        assert sorted(searcher.kinds(memoryview(data))) == sorted(expected)
    finally:
        search._CHUNK_BYTES = before


# --- what is in the original captures and logs


@pytest.mark.parametrize("link", [each.number for each in LINK_TYPES])
def test_hardware_addresses_of_link_types(link: int, tmp_path: Path) -> None:
    """Those of the link header, also of one in PPI; not those of a group, and none where there are no such headers."""
    path = tmp_path / "a.pcap"
    path.write_bytes(p.pcap([p.Record(10**15, LINKS[link](p.ipv4(p.tcp(b"x"))))], link=link))
    first, second = b"\2\0\0\0\0\1", b"\2\0\0\0\0\2"
    expected = {p.ETHERNET: {first, second}, p.SLL: {first}, p.SLL2: {first}, 192: {first, second}}
    assert original_captures.hardware_addresses(path) == expected.get(link, set())


def test_a_link_type_without_its_hardware_addresses_is_an_error() -> None:
    with pytest.raises(TypeError, match="hardware"):
        LinkType(300, ETHERTYPE, 14, cut=None, wireshark=None, type_at=12)  # type: ignore[call-arg]


_COMPRESSORS = {"": bytes, ".gz": gzip.compress, **{f".{ending}": pack for ending, pack in PACKERS.items()}}


@pytest.mark.parametrize("ending", _COMPRESSORS)
def test_texts_of_a_pcapng(ending: str, tmp_path: Path) -> None:
    """Comments, interfaces, hardware, system and filter; whole, and what may be a host in them; compressed or not."""
    section = p.Section("<")
    begin = section.block(
        p.SECTION,
        struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1)
        + section.options(
            (1, b"taken by zoe@atlas7 of Blue Lab"),
            (2, b"Intel(R) Xeon(R) E5-2680 v4"),
            (3, b"Linux 6.1.0-18-amd64 on titan-x1"),
        ),
    )
    interface = section.block(
        1,
        struct.pack("<HHI", 1, 0, 65535)
        + section.options((2, b"eth0 on gpu-node17 rack B4"), (3, b"uplink of sw3.hall"), (11, b"\0host 192.0.2.77")),
    )
    frame = p.ethernet(p.ipv4(p.tcp(b"x" * 50), "172.20.30.41", "172.20.30.42"))
    data = begin + interface + section.enhanced(START_NS, frame, len(frame))
    run = tmp_path / "run"
    run.mkdir()
    (run / f"worker-1.pcapng{ending}").write_bytes(_COMPRESSORS[ending](data))
    with ddnn_traces.ingest(run, tmp_path / "dataset") as dataset:
        words = leak_scan.words(dataset, [str(run)])
    assert {
        "gpu-node17",
        "atlas7",
        "titan-x1",
        "sw3.hall",
        "192.0.2.77",
        "taken by zoe@atlas7 of blue lab",
    } <= words.texts.keys()
    assert not {"eth0", "enp3s0", "e5-2680", "linux", "intel", "6.1.0-18-amd64", "rack", "uplink"} & words.texts.keys()


LOGS = {
    "SLURM_JOB_NODELIST=gpu[01-03,7],cpu-9": {"gpu01", "gpu02", "gpu03", "gpu7", "cpu-9"},
    "SLURMD_NODENAME=athena": {"athena"},
    "HOSTNAME=athena.lab": {"athena.lab"},
    "export MASTER_ADDR=node-5a": {"node-5a"},
    "    exec_host = mia01/0*8+mia02/0*8": {"mia01", "mia02"},
    "PBS_O_HOST=login9": {"login9"},
    '"nodes": "rack1n[1-2]x[08-09]"': {"rack1n1x08", "rack1n1x09", "rack1n2x08", "rack1n2x09"},
    "mpirun -np 2 -H deep01:1,deep02:1 train": {"deep01", "deep02"},
    "ares02 slots=4 max_slots=8": {"ares02"},
    "ares03:4711:4712 [0] NCCL INFO Bootstrap": {"ares03"},
    "[ares04:04711] mca_base_component": {"ares04"},
    'TF_CONFIG={"cluster": {"worker": ["doris6:2222", "doris7:2222"]}}': {"doris6", "doris7"},
    "connected to hera-3:29500": {"hera-3"},
    "[hera-4]:29500 listens": {"hera-4"},
    "Nodes: rhea[1-2]": {"rhea1", "rhea2"},
    "Nov 21 06:18:23 phoebe4 sshd[12]: accepted": {"phoebe4"},
    "SLURM_JOB_USER=mallory": {"mallory"},
    "SLURM_JOB_ACCOUNT=bluelab": {"bluelab"},
}


@pytest.mark.parametrize(
    "name",
    [
        "slurm-17.out",
        "job.e17",
        "job.stderr",
        "train.stdout",
        "x.err",
        "env",
        "hostfile",
        "job.log.gz",
        "logs/slurm.out",
    ],
)
def test_names_in_the_output_of_schedulers(name: str, source: Path, tmp_path: Path) -> None:
    """In any text next to the captures, whatever it is called."""
    run = Path(shutil.copytree(source, tmp_path / "run"))
    text = "\n".join(["SLURM_NNODES=4", "GPUS_PER_NODE=8", *LOGS]).encode()
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    with ddnn_traces.ingest(run, tmp_path / "dataset") as dataset:
        words = leak_scan.words(dataset, [str(run)])
    assert set().union(*LOGS.values()) <= words.texts.keys()


def test_texts_next_to_the_run_folders_are_read(source: Path, tmp_path: Path) -> None:
    shutil.copytree(source, tmp_path / "in" / "run")
    (tmp_path / "in" / "slurm.out").write_text("SLURM_NODELIST=poseidon7\n")
    with ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset") as dataset:
        assert "poseidon7" in leak_scan.words(dataset, [str(tmp_path / "in")]).texts


@pytest.mark.parametrize(
    ("text", "found"),
    [("2023-11-15T00:00:00Z", False), ("2023-11-15T00:00:01Z", True), ("2023-11-15T00:00Z", True),
     ("2023-11-14T12:00:00Z", True)],
)  # fmt: skip
def test_the_day_of_publication_is_no_time_of_a_run(
    text: str, found: bool, words: leak_scan.Words, tmp_path: Path
) -> None:
    (tmp_path / "x.json").write_text(f'{{"created": "{text}"}}')
    assert kinds(tmp_path, words) == {"the time of a run"}
    assert kinds(tmp_path, replace(words, published="2023-11-15")) == ({"the time of a run"} if found else set())


def test_of_a_time_before_a_date_nothing_is_left(words: leak_scan.Words) -> None:
    (begin, end, _), *_ = words.searcher().spans(b"k-22.15.23-14.11.2023.x")
    assert b"k-22.15.23-14.11.2023.x"[begin:end] == b"22.15.23-14.11.2023"


# --- releases of the sample


@pytest.fixture(scope="module")
def two_runs(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Dataset]]:
    folder = tmp_path_factory.mktemp("two")
    for run in RUNS:
        shutil.copytree(sample / run, folder / "in" / run)
    with ddnn_traces.ingest(folder / "in", folder / "dataset") as dataset:
        yield folder / "in", dataset


@pytest.mark.parametrize("options", [Options(), Options("crypto-pan", "permuted"), Options("kept", "kept", "kept")])
def test_a_mapped_sample_is_clean_and_the_original_is_not(
    options: Options, two_runs: tuple[Path, Dataset], tmp_path: Path
) -> None:
    source, dataset = two_runs
    mapping = Anonymiser(Key(SECRET), options, dataset)
    for table in schema.TABLES:
        for path in sorted((dataset.path / table).glob("run_id=*/*.parquet")):
            run = mapping.run(path.parent.name.removeprefix("run_id="))
            target = tmp_path / "release" / table / f"{run.name}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            file = pq.ParquetFile(path)
            metadata = run.parameters({name.decode(): value.decode() for name, value in file.metadata.metadata.items()})
            batches = [run.batch(table, batch) for batch in file.iter_batches()]
            arrow = file.schema_arrow.with_metadata(metadata)
            pq.write_table(pa.Table.from_batches(batches, file.schema_arrow).cast(arrow), target, compression="zstd")
    captures.write([str(source)], dataset, mapping, tmp_path / "release" / "pcap")
    words = leak_scan.words(dataset, [str(source)], options=options)
    assert leak_scan.scan(tmp_path / "release", words) == []
    if options.addresses != "kept":
        found = leak_scan.scan(dataset.path, words)
        assert {leak.kind for leak in found} >= {"an IP address", "the time of a run"}
        assert {leak.file.split("/")[0] for leak in found} >= {"flows", "hosts", "captures", "steps", "flow_windows"}
        assert "a hardware address" in {leak.kind for leak in leak_scan.scan(source, words)}


@pytest.mark.long
@pytest.mark.parametrize("addresses", ["roles", "crypto-pan", "kept"])
def test_captures_of_the_shipped_sample_are_clean_with_every_key(addresses: str, tmp_path: Path) -> None:
    """Its hardware addresses are 02:00:00:00:00:01 and the like, which stand in TCP headers by chance."""
    runs = ("mpi-mlp1-sgd-128-openmpi-normal-ring-n6", "torch-mlp1-sgd-32-gloo-normal-ring-n4")
    for run in runs:
        shutil.copytree(schema.shipped_folder("data") / "sample" / run, tmp_path / "in" / run)
    options = Options(addresses)
    with ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset") as dataset:
        words = leak_scan.words(dataset, [str(tmp_path / "in")], options)
        assert bytes.fromhex("020000000001") in words.binary
        for number in range(5):
            folder = tmp_path / str(number)
            mapping = Anonymiser(Key(bytes([number + 1] * 16) + bytes(range(16))), options, dataset)
            captures.write([str(tmp_path / "in")], dataset, mapping, folder)
            assert leak_scan.scan(folder, words) == []
            assert len(list(folder.rglob("*.pcap.gz"))) == 10


def test_what_the_publisher_states_on_purpose_is_no_leak(two_runs: tuple[Path, Dataset], tmp_path: Path) -> None:
    _, dataset = two_runs
    address = dataset.sql("SELECT min(host_ip) FROM hosts").item()
    (tmp_path / "README.md").write_text(f"Made at {address}.")
    assert leak_scan.scan(tmp_path, leak_scan.words(dataset, []))
    assert leak_scan.scan(tmp_path, leak_scan.words(dataset, [], intended=f"It was run at {address}.")), "no name"
    collected = _Collector("Jane Doe, Gamma-Institute")
    for name in ("gamma-institute", "delta-institute"):
        collected.name(name, "name of a host")
    assert "gamma-institute" not in collected.words.texts
    assert "delta-institute" in collected.words.texts
