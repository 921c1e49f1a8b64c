"""The tables of a release: in order, whole, with what remote readers need, the same bytes however they are made."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.release import released_tables as release_tables
from ddnn_traces.store import schema
from ddnn_traces.store.parquet import partition
from ddnn_traces.store.whole_files import sha256_of

RUN = "torch-mlp1-sgd-32-gloo-0ms-ring"


class Same:
    """A mapping that changes nothing."""

    def __init__(self, run_id: str = "") -> None:
        self.name = run_id

    def batch(self, _: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def parameters(self, provenance: Mapping[str, str]) -> dict[str, str]:
        return dict(provenance)


class Reversed(Same):
    """A mapping under which hosts sort the other way round."""

    def batch(self, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        if table != "hosts":
            return batch
        place = batch.schema.get_field_index("host_ip")
        texts = ["".join(chr(255 - ord(letter)) for letter in text) for text in batch.column(place).to_pylist()]
        return batch.set_column(place, batch.schema.field(place), pa.array(texts))


def write(
    dataset: Path, folder: Path, tables: Sequence[str] = schema.TABLES, window_ns: int | None = None, jobs: int = 2
) -> dict[str, list[Path]]:
    """The tables written into a new folder; each table's files."""
    (folder / "scratch").mkdir(parents=True)
    runs = [path.name.partition("=")[2] for path in sorted((dataset / "runs").iterdir())]
    wanted = release_tables.sources(dataset, runs, tables)
    written = release_tables.write(wanted, folder, Reversed, folder / "scratch", window_ns, jobs)
    for table in written:
        for file in table.files:
            path = folder / file.path
            assert (file.bytes, file.sha256) == (path.stat().st_size, sha256_of(path))
            assert file.runs == Counter(row["run_id"] for row in rows([path]))
    return {table.name: [folder / file.path for file in table.files] for table in written}


def rows(files: Sequence[Path]) -> list[dict[str, object]]:
    return [row for path in files for row in pq.ParquetFile(path).read().to_pylist()]


def sorted_rows(found: Sequence[dict[str, object]], key: Sequence[str]) -> list[dict[str, object]]:
    return sorted(
        found, key=lambda row: [(row[name] is None, row[name] if row[name] is not None else 0) for name in key]
    )


def test_every_row_in_order_with_all_that_readers_use(small: Path, tmp_path: Path) -> None:
    written = write(small, tmp_path / "out")
    with ddnn_traces.open(small) as dataset:
        for table in schema.tables():
            before = dataset.sql(f"SELECT * FROM {table.name}").to_dicts()
            if not before:
                assert table.name not in written
                continue
            found = rows(written[table.name])
            assert len(found) == len(before)
            for path in written[table.name]:
                assert rows([path]) == sorted_rows(rows([path]), table.key), path
            if table.name != "hosts":
                assert sorted_rows(found, table.key) == sorted_rows(before, table.key)
    hosts = [row["host_ip"] for row in rows(written["hosts"]) if row["run_id"] == RUN]
    assert hosts == sorted(hosts)
    assert hosts[0] != "10.10.0.1"


def test_metadata_of_the_files(small: Path, tmp_path: Path) -> None:
    for table, files in write(small, tmp_path / "out").items():
        defined = schema.table(table)
        for path in files:
            file = pq.ParquetFile(path)
            assert path.relative_to(tmp_path / "out").as_posix() == f"{table}/part-00000.parquet"
            assert file.schema_arrow.names == [column.name for column in defined.columns]
            for column in defined.columns:
                notes = file.schema_arrow.field(column.name).metadata
                assert (notes[b"meaning"].decode(), notes[b"unit"].decode()) == (column.meaning, column.unit)
            assert b"ddnn_traces.inputs" not in file.schema_arrow.metadata
            group = file.metadata.row_group(0)
            assert [file.schema_arrow.names[part.column_index] for part in group.sorting_columns] == list(defined.key)
            for number in range(group.num_columns):
                chunk = group.column(number)
                assert chunk.compression == "ZSTD"
                assert chunk.has_column_index
                assert chunk.has_offset_index
                assert chunk.is_stats_set


def test_runs_share_a_file_up_to_so_many_rows(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = write(small, tmp_path / "together")["flows"]
    monkeypatch.setattr(release_tables, "FILE_ROWS", len(rows(together)) - 1)
    apart = write(small, tmp_path / "apart")["flows"]
    assert [path.name for path in together] == ["part-00000.parquet"]
    assert [path.name for path in apart] == ["part-00000.parquet", "part-00001.parquet"]
    assert rows(apart) == rows(together)
    assert [len({row["run_id"] for row in rows([path])}) for path in apart] == [1, 1]


def test_the_bytes_do_not_depend_on_threads_nor_on_time(small: Path, tmp_path: Path) -> None:
    one, two = (write(small, tmp_path / str(jobs), jobs=jobs) for jobs in (1, 2))
    assert one.keys() == two.keys()
    for table, files in one.items():
        assert [path.read_bytes() for path in files] == [path.read_bytes() for path in two[table]]


def test_sorting_on_disk_is_sorting_in_memory(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = write(small, tmp_path / "memory", ["hosts"])["hosts"]
    monkeypatch.setattr(release_tables, "_IN_MEMORY", 0)
    disk = write(small, tmp_path / "disk", ["hosts"])["hosts"]
    assert [path.read_bytes() for path in memory] == [path.read_bytes() for path in disk]
    assert list((tmp_path / "disk" / "scratch").iterdir()) == []


KEYS = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.one_of(st.none(), st.sampled_from("ab"))), max_size=12
)


@given(keys=KEYS, cuts=st.lists(st.integers(0, 12), max_size=3))
def test_order_is_that_of_python(keys: list[tuple[int | None, str | None]], cuts: list[int]) -> None:
    table = pa.table(
        {
            "a": pa.array([a for a, _ in keys], pa.int64()),
            "b": pa.array([b for _, b in keys], pa.string()),
            "n": pa.array(range(len(keys)), pa.int64()),
        }
    )
    edges = sorted({0, *(cut for cut in cuts if cut <= len(keys)), len(keys)})

    def batches() -> Iterator[pa.RecordBatch]:
        for begin, end in pairwise(edges):
            yield from table.slice(begin, end - begin).to_batches()

    expected = sorted(
        range(len(keys)),
        key=lambda n: [(value is None, value or 0 if i == 0 else value or "") for i, value in enumerate(keys[n])],
    )
    made = [batch.column("n").to_pylist() for batch in release_tables.sort(batches(), ["a", "b"], Path("unused"), 5)]
    assert [n for batch in made for n in batch] == expected
    try:
        passed = sum(batch.num_rows for batch in release_tables.in_order(batches(), ["a", "b"]))
        is_sorted = True
        assert passed == len(keys)
    except release_tables.Unsorted:
        is_sorted = False
    assert is_sorted == (expected == list(range(len(keys))))


@given(
    keys=st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 1), st.integers(0, 2)), max_size=12),
    cut=st.integers(0, 12),
    sort=st.booleans(),
)
def test_order_of_numbers_is_that_of_python(keys: list[tuple[int, int]], cut: int, sort: bool) -> None:
    keys = sorted(keys) if sort else keys
    columns = {"a": pa.array([a for a, _ in keys], pa.int64()), "b": pa.array([b for _, b in keys], pa.int64())}
    table = pa.table(columns)
    batches = [*table.slice(0, cut).to_batches(), *table.slice(cut).to_batches()]
    try:
        rows = sum(batch.num_rows for batch in release_tables.in_order(iter(batches), ["a", "b"]))
    except release_tables.Unsorted:
        rows = None
    assert rows == (len(keys) if keys == sorted(keys) else None)


@pytest.mark.parametrize("factor", [2, 7, 100, 10**6])
def test_windows_are_summed(small: Path, tmp_path: Path, factor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_tables, "_BATCH_ROWS", 100)  # so that windows lie in several batches
    window_ns = factor * 1_000_000
    found = rows(write(small, tmp_path / "out", ["flow_windows"], window_ns)["flow_windows"])
    counted = [column.name for column in schema.table("flow_windows").columns if column.unit in ("packets", "bytes")]
    assert {"packets", "wire_bytes", "retransmitted_bytes", "cnp_packets"} <= {*counted}
    sums = ", ".join(f"sum({name})::BIGINT AS {name}" for name in counted)
    with ddnn_traces.open(small) as dataset:
        expected = dataset.sql(
            f"""SELECT run_id, window_start_ns // {window_ns} * {window_ns} AS window_start_ns,
                       {window_ns} AS window_ns, flow_id, {sums}
                FROM flow_windows GROUP BY ALL ORDER BY run_id, window_start_ns, flow_id"""
        ).to_dicts()
    assert found == expected


def damaged(small: Path, tmp_path: Path, table: str, change: object) -> Path:
    """A copy of one table with one file changed."""
    import shutil

    shutil.copytree(small, tmp_path / "copy")
    path = partition(tmp_path / "copy", table, RUN) / "part-0.parquet"
    change(path)  # type: ignore[operator]
    return tmp_path / "copy"


def test_what_is_no_parquet_is_named(small: Path, tmp_path: Path) -> None:
    copy = damaged(small, tmp_path, "flows", lambda path: path.write_bytes(b"PAR1 is not enough"))
    with pytest.raises(UsageError, match=r"part-0.parquet: not a sound Parquet file"):
        write(copy, tmp_path / "out")


def test_rows_of_another_run_are_refused(small: Path, tmp_path: Path) -> None:
    def another(path: Path) -> None:
        table = pq.ParquetFile(path).read()
        pq.write_table(table.set_column(0, table.schema.field(0), pa.array(["other"] * table.num_rows)), path)

    copy = damaged(small, tmp_path, "flows", another)
    with pytest.raises(UsageError, match="has rows of another run than its folder's"):
        write(copy, tmp_path / "out", ["flows"])


def test_another_column_is_refused(small: Path, tmp_path: Path) -> None:
    def one_less(path: Path) -> None:
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["packets"]), path)

    copy = damaged(small, tmp_path, "flows", one_less)
    with pytest.raises(UsageError, match="its columns are not those of flows"):
        write(copy, tmp_path / "out", ["flows"])


def test_all_threads_end_where_one_fails(small: Path, tmp_path: Path) -> None:
    class Failing(Same):
        def batch(self, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
            raise UsageError("this one")

    (tmp_path / "scratch").mkdir()
    wanted = release_tables.sources(small, [RUN], schema.TABLES)
    random.Random(1).shuffle(wanted)
    with pytest.raises(UsageError, match="this one"):
        release_tables.write(wanted, tmp_path, Failing, tmp_path / "scratch", None, 2)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("publish")] == []
