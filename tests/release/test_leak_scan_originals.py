"""What the leak scan reads of original captures and logs, and releases of the sample, which are clean."""

from __future__ import annotations

import gzip
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import packets as p
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from captures_by_hand import LINKS
from leaks import PACKERS, SECRET, START_NS

import ddnn_traces
from ddnn_traces.pcap.link_types import ETHERTYPE, LINK_TYPES, LinkType
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import captures, leak_scan
from ddnn_traces.release.anonymise.key import Key
from ddnn_traces.release.anonymise.mapping import Anonymiser, Options
from ddnn_traces.release.leak_scan import original_captures
from ddnn_traces.release.leak_scan.searched_words import _Collector
from ddnn_traces.store import schema

# --- what is in the original captures and logs


@pytest.mark.parametrize("link", [each.number for each in LINK_TYPES])
def test_hardware_addresses_of_link_types(link: int, tmp_path: Path) -> None:
    """Those of the link header, also in PPI or ERF; not those of a group, and none where there are no such headers."""
    path = tmp_path / "a.pcap"
    path.write_bytes(p.pcap([p.Record(10**15, LINKS[link](p.ipv4(p.tcp(b"x"))))], link=link))
    first, second = b"\2\0\0\0\0\1", b"\2\0\0\0\0\2"
    expected = {p.ETHERNET: {first, second}, p.SLL: {first}, p.SLL2: {first}, 192: {first, second}}
    expected[197] = expected[p.ETHERNET]
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


# --- releases of the sample


RUNS = ("torch-mlp1-sgd-32-gloo-0ms-ring-tso", "mpi-mlp1-sgd-32-openmpi-0ms-ring-sll2")


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
