"""The leak scan: every kind of word in every kind of place is found, and a clean release has none."""

from __future__ import annotations

import base64
import gzip
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from leaks import MAC, PACKERS, SECRET, START_NS, kinds

import ddnn_traces
from ddnn_traces.release import leak_scan
from ddnn_traces.release.anonymise import identifiers
from ddnn_traces.release.anonymise.key import Key
from ddnn_traces.release.anonymise.mapping import Anonymiser, Options
from ddnn_traces.release.leak_scan import search
from ddnn_traces.report import templates
from ddnn_traces.store import layout
from ddnn_traces.store.parquet import part

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
