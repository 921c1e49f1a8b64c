"""Readers of datasets on a real S3 server: their versions, the bytes that they read, the cache, files that are gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote, unquote

import pytest
from stored import OTHER, RUN, fails, state, state_at, write
from tools import CODE

import ddnn_traces
from ddnn_traces.errors import StorageError, UsageError
from ddnn_traces.store import schema
from ddnn_traces.store.copying import copy
from ddnn_traces.store.delta.commit import vacuum
from ddnn_traces.store.delta.delta_dataset import StoredDataset
from ddnn_traces.store.delta.delta_writer import StoreWriter
from ddnn_traces.store.parquet import partition

pytestmark = pytest.mark.cluster


def test_a_reader_keeps_its_version(local: Path, newer: Path, bucket: str) -> None:
    text = "SELECT run_id, count(*) AS windows FROM flow_windows GROUP BY run_id ORDER BY run_id"
    with ddnn_traces.open(local) as before, ddnn_traces.open(newer) as after:
        old, new = before.sql(text).rows(), after.sql(text).rows()
    assert old != new
    copy(local, bucket)
    with ddnn_traces.open(bucket) as reader:
        copy(newer, bucket)
        assert vacuum(bucket) == []
        assert reader.sql(text).rows() == old
        with ddnn_traces.open(bucket) as later:
            assert later.sql(text).rows() == new


def test_every_commit_is_one_whole_dataset(local: Path, newer: Path, bucket: str) -> None:
    copy(local, bucket)
    dataset = StoredDataset(bucket)
    first = dataset.head()
    copy(newer, bucket, [RUN])
    copy(newer, bucket)
    assert state_at(dataset, first) == state(local)
    assert state_at(dataset, dataset.head()) == state(newer)


def test_all_queries_give_what_the_folder_gives(local: Path, bucket: str) -> None:
    copy(local, bucket)
    with ddnn_traces.open(local) as here, ddnn_traces.open(bucket) as there:
        assert there.run_ids == here.run_ids == sorted([RUN, OTHER])
        assert there.row_counts() == here.row_counts()
        for name in ("run_overview", "pair_throughput", "run_step_volume", "ledger_sums"):
            assert there.query(name).equals(here.query(name)), name
            assert there.missing(name) == here.missing(name)
    with ddnn_traces.open(bucket, "*-tso") as one:
        assert one.run_ids == [OTHER]
    with pytest.raises(UsageError, match="no run named nope"):
        ddnn_traces.open(bucket, ["nope"])


def of_many(source: Path, url: str, number: int) -> list[str]:
    names = [f"run-{count:02}" for count in range(number)]
    with StoreWriter(url) as writer:
        writer.commit(write(writer, source, RUN, names))
    return names


def sizes(source: Path) -> dict[str, int]:
    return {table: (partition(source, table, RUN) / "part-0.parquet").stat().st_size for table in schema.TABLES}


def test_one_run_of_many_reads_its_part_of_the_bytes(local: Path, bucket: str) -> None:
    number = 25
    names = of_many(local, bucket, number)
    everything = "; ".join(f"SELECT sum(hash({table})) FROM {table}" for table in ("flows", "flow_windows", "hosts"))
    read = {}
    for runs in ([names[3]], None):
        with ddnn_traces.open(bucket, runs) as dataset:
            for text in everything.split("; "):
                dataset.sql(text)
            read[runs is None] = dataset.place.filesystem.bytes_read
    small = sum(sizes(local).values())
    assert 0 < read[False] <= small
    assert read[True] > (number - 1) * sum(sizes(local)[table] for table in ("flows", "flow_windows", "hosts"))


def test_the_folder_names_prune_files_without_a_choice_of_runs(local: Path, bucket: str) -> None:
    names = of_many(local, bucket, 25)
    with ddnn_traces.open(bucket) as dataset:
        dataset.sql("SELECT 1 FROM runs LIMIT 1")  # the views read the first file of each table
        before = dataset.place.filesystem.bytes_read
        found = dataset.sql(f"SELECT count(*), any_value(run_id) FROM flows WHERE run_id = '{names[7]}'").rows()
        assert found[0][0] > 0 and found[0][1] == names[7]
        assert dataset.place.filesystem.bytes_read - before <= sizes(local)["flows"]


def test_ranges_of_a_large_file_are_read(bucket: str, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ddnn_traces.store.places.delta import StoreFiles

    rows = 400_000
    table = pa.table({"a": range(rows), "b": [os.urandom(8) for _ in range(rows)]})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=50_000)
    size = (tmp_path / "x.parquet").stat().st_size
    dataset = StoredDataset(bucket)
    dataset.upload(str(tmp_path / "x.parquet"), "flows/x.parquet")
    files = StoreFiles(dataset, {"flows/x.parquet": size}, None)
    import duckdb

    with duckdb.connect() as connection:
        connection.register_filesystem(files)
        found = connection.execute("SELECT sum(a), count(*) FROM 'dataset://x/flows/x.parquet' WHERE a < 1000")
        assert found.fetchall() == [(499_500, 1000)]
        assert 0 < files.bytes_read < size // 4
        everything = connection.execute("SELECT sum(a), count(DISTINCT b) FROM 'dataset://x/flows/x.parquet'")
        assert everything.fetchall() == [(rows * (rows - 1) // 2, rows)]
    reader = files._open("x/flows/x.parquet")
    content = (tmp_path / "x.parquet").read_bytes()
    places = [(begin, begin + 100_003) for begin in range(0, size, 70_001)]

    def piece(place: tuple[int, int]) -> bool:
        reader.seek(place[0])
        return reader.read(place[1] - place[0]) == content[slice(*place)]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(piece, places))


def test_a_cache_fetches_each_file_once(local: Path, bucket: str, tmp_path: Path) -> None:
    copy(local, bucket)
    cache = tmp_path / "cache"
    found, read = [], []
    for _ in range(2):
        with ddnn_traces.open(bucket, cache=cache) as dataset:
            found.append(dataset.query("pair_throughput").rows())
            read.append(dataset.place.filesystem.bytes_read)
    assert found[0] == found[1] and read[0] > 0 and read[1] == 0
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in kept) == read[0]
    kept[0].write_bytes(b"")  # as after a loss of power
    with ddnn_traces.open(bucket, cache=cache) as dataset:
        assert dataset.query("pair_throughput").rows() == found[0]


def test_processes_share_a_cache(local: Path, bucket: str, tmp_path: Path) -> None:
    copy(local, bucket)
    code = CODE.rsplit("from", 1)[0] + (
        "\nimport ddnn_traces"
        f"\nwith ddnn_traces.open({bucket!r}, cache={str(tmp_path / 'cache')!r}) as dataset:"
        "\n    print(dataset.sql('SELECT sum(hash(flows)) FROM flows').rows())"
    )
    started = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(4)]
    printed = [process.communicate()[0] for process in started]
    assert {process.returncode for process in started} == {0}
    assert len({*printed}) == 1 and printed[0]
    assert not [*(tmp_path / "cache").rglob(".*")]


def test_a_cache_is_for_stores_only(local: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a cache is for a dataset on an object store"):
        ddnn_traces.open(local, cache=tmp_path)


def test_a_file_that_is_gone_is_one_line(local: Path, newer: Path, bucket: str) -> None:
    copy(local, bucket)
    with ddnn_traces.open(bucket) as dataset:
        copy(newer, bucket)
        assert vacuum(bucket, 0)
        with pytest.raises(UsageError, match=r"not there any more \(a vacuum\?\); open the dataset again") as error:
            dataset.sql("SELECT sum(payload_bytes) FROM flow_windows")
    assert "\n" not in str(error.value) and str(error.value).startswith(bucket)


def test_a_store_that_fails_is_one_line(local: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copy(local, bucket)
    with ddnn_traces.open(bucket) as dataset:

        def fails(*_: object, **__: object) -> bytes:
            raise ConnectionResetError(104, "Connection reset by peer")

        store = dataset.place.filesystem._dataset
        monkeypatch.setattr(store.filesystem, "cat_file", fails)
        monkeypatch.setattr("ddnn_traces.store.object_store.pause", lambda _: None)
        with pytest.raises(StorageError, match=r"the connection failed .* times; try again later") as error:
            dataset.sql("SELECT sum(payload_bytes) FROM flow_windows")
    assert "\n" not in str(error.value)


def test_a_log_that_names_files_outside_its_table_is_refused(
    local: Path, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files are kept in a folder by their names in the log, which whoever can write on the store chooses."""
    copy(local, bucket)
    dataset = StoredDataset(bucket)
    version = dataset.head().versions["flows"]
    log = f"flows/_delta_log/{version:020}.json"
    text = dataset.read(log).decode()
    [(path, file)] = [found for found in dataset.files("flows", version).items() if found[1].run_id == RUN]
    for name in dataset.listing("flows/_delta_log"):  # checkpoints have the paths, too
        if not name.endswith(".json"):
            dataset.filesystem.rm_file(dataset.at(name))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary" / "deep"))
    (tmp_path / "temporary" / "deep").mkdir(parents=True)
    for way in ("../../../../escaped", "%2E%2E/%2e%2e/../%2e./escaped", "/escaped", "..%5Cescaped"):
        hostile = f"run_id={RUN}/{way}"
        dataset.put(log, text.replace(quote(path), hostile).replace(path, hostile).encode())
        dataset.put(f"flows/{unquote(hostile)}", dataset.read(f"flows/{path}"))
        assert file.bytes < 256 << 10, "not fetched whole"
        for opens in (True, False):
            with pytest.raises(UsageError, match="escaped' is no name of a file in its folder; not opened"):
                ddnn_traces.open(bucket).sql("FROM flows") if opens else copy(bucket, tmp_path / "copied")
    assert not list(tmp_path.rglob("escaped"))


def test_a_commit_that_names_files_outside_the_dataset_is_refused(local: Path, bucket: str) -> None:
    copy(local, bucket)
    dataset = StoredDataset(bucket)
    head = dataset.head()
    log = f"runs/_delta_log/{head.version:020}.json"
    named = next(iter(head.files.values()))
    dataset.put(log, dataset.read(log).replace(named.encode(), b"../other/secret.json"))
    with pytest.raises(UsageError, match=r"'../other/secret.json' is no name of a file"):
        ddnn_traces.open(bucket)


@pytest.mark.parametrize(
    "said", [{}, [], 7, {"versions": 1, "files": {}, "mark": "x"}, {"versions": {}, "files": {"a": 1}, "mark": "x"}]
)
def test_a_commit_that_says_something_else_is_one_line(said: object, local: Path, bucket: str) -> None:
    copy(local, bucket)
    dataset = StoredDataset(bucket)
    log = f"runs/_delta_log/{dataset.head().version:020}.json"
    lines = [json.loads(line) for line in dataset.read(log).splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["ddnn_traces"] = json.dumps(said)
    dataset.put(log, "\n".join(map(json.dumps, lines)).encode())
    fails(lambda: ddnn_traces.open(bucket), "commit 1 is none of this program's")
