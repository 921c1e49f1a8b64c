"""open of a release at a URL: servers on this machine (http with and without ranges, moto's S3) and fsspec's memory."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from publishing import ABOUT
from tools import needs_package

import ddnn_traces
from ddnn_traces.errors import MissingExtra, ReleaseError, UsageError
from ddnn_traces.release import released_tables as release_tables
from ddnn_traces.store import layout, places
from ddnn_traces.store.layout import ListedFile
from ddnn_traces.store.places import remote

RUN = "torch-mlp1-sgd-32-gloo-0ms-ring"


class Server(http.server.SimpleHTTPRequestHandler):
    """Files of a folder. ranges: whether parts of a file are given; cut: names of files that are cut in the middle."""

    protocol_version = "HTTP/1.1"
    ranges = True
    cut: tuple[str, ...] = ()
    asked: list[tuple[str, str | None]]

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        file, wanted = Path(self.translate_path(self.path)), self.headers.get("Range")
        self.asked.append((file.name, wanted))
        if not file.is_file():
            self.send_error(404)
            return
        content = file.read_bytes()
        total = len(content)
        if wanted and self.ranges:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or total), total - 1)
            content = content[begin : end + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end}/{total}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if file.name in self.cut else content)
        if file.name in self.cut:
            self.close_connection = True


@contextmanager
def served(folder: Path, ranges: bool = True, cut: tuple[str, ...] = ()) -> Iterator[tuple[str, list[Any]]]:
    """URL of a server of the folder, and what it was asked."""
    asked: list[Any] = []
    handler = type("Handler", (Server,), {"ranges": ranges, "cut": cut, "asked": asked})
    server = type("Many", (http.server.ThreadingHTTPServer,), {"request_queue_size": 256})
    with server(("127.0.0.1", 0), functools.partial(handler, directory=str(folder))) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}", asked
        finally:
            running.shutdown()
            thread.join()


def same(url: str, release: Path) -> None:
    with ddnn_traces.open(url) as dataset, ddnn_traces.open(release) as plain:
        assert dataset.run_ids == plain.run_ids
        for query in ("traffic_matrix", "step_volume"):
            assert dataset.query(query).equals(plain.query(query))
        assert dataset.sql("SELECT sum(wire_bytes) FROM flow_windows").equals(
            plain.sql("SELECT sum(wire_bytes) FROM flow_windows")
        )
        assert dataset.missing("step_volume") == plain.missing("step_volume")
        with pytest.raises(UsageError, match="download the release first"):
            _ = dataset.path


def test_http(release: Path) -> None:
    with served(release) as (url, asked):
        same(url, release)
        same(f"{url}/", release)
        assert {name for name, _ in asked} == {layout.RELEASE, "dataset.json", "part-00000.parquet"}


@pytest.mark.parametrize("ranges", [True, False])
def test_of_large_files_ranges_are_fetched_where_the_server_has_them(
    release: Path, monkeypatch: pytest.MonkeyPatch, ranges: bool
) -> None:
    monkeypatch.setattr(remote, "_WHOLE", 1000)
    with served(release, ranges) as (url, asked):
        same(url, release)
        parts = [wanted for name, wanted in asked if name == "part-00000.parquet"]
        assert any(parts)
        whole = [wanted for wanted in parts if wanted is None]
        assert bool(whole) == (not ranges)


def test_a_file_is_fetched_once(release: Path) -> None:
    with served(release) as (url, asked), ddnn_traces.open(url) as dataset:
        dataset.query("traffic_matrix")
        before = len(asked)
        dataset.query("traffic_matrix")
        assert len(asked) == before


def test_only_runs_to_see_are_fetched(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_tables, "FILE_ROWS", 1)  # a file for each run
    ddnn_traces.publish(small, tmp_path / "traces", **ABOUT)
    with served(tmp_path / "traces") as (url, asked), ddnn_traces.open(url, runs=[RUN]) as dataset:
        assert dataset.run_ids == [RUN]
        dataset.query("traffic_matrix")
        of_both = [name for name, _ in asked if name.startswith("part-")]
        assert set(of_both) == {"part-00000.parquet", "part-00001.parquet"}
        assert of_both.count("part-00000.parquet") == 1, "of the table runs, which lists the runs"


def test_a_bag_and_a_zip_file(release: Path, tmp_path: Path) -> None:
    shutil.copytree(release, tmp_path / "bag" / "data")
    (tmp_path / "bag" / "bagit.txt").touch()
    shutil.make_archive(str(tmp_path / "packed"), "zip", release)
    with served(tmp_path) as (url, _), ddnn_traces.open(release) as plain:
        with ddnn_traces.open(f"{url}/bag") as dataset:
            assert dataset.run_ids == plain.run_ids
        with ddnn_traces.open(f"{url}/packed.zip") as dataset:
            assert dataset.query("traffic_matrix").equals(plain.query("traffic_matrix"))


def test_the_command_line(release: Path, command: Any) -> None:
    with served(release) as (url, _):
        done = command("query", url, "traffic_matrix", "--format", "csv")
        assert done.returncode == 0, done.stderr
        assert done.stdout == command("query", release, "traffic_matrix", "--format", "csv").stdout
        done = command("runs", f"{url}/nothing")
        assert done.returncode == 2
        assert f"{url}/nothing: no dataset and no release" in done.stderr.decode()


def test_memory(release: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(release), "/traces", recursive=True)
    try:
        same("memory://traces", release)
    finally:
        memory.rm("/traces", recursive=True)


def test_s3(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto's server, in this process, asked over http by s3fs."""
    moto = needs_package("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        store = fsspec.filesystem("s3")
        store.mkdir("bucket")
        store.put(str(release), "bucket/traces", recursive=True)
        same("s3://bucket/traces", release)
        with pytest.raises(UsageError, match="no release"):
            ddnn_traces.open("s3://bucket/nothing")
    finally:
        server.stop()


def wrong_path(folder: Path) -> None:
    document = json.loads((folder / layout.RELEASE).read_text())
    document["tables"][0]["files"][0]["path"] = "runs/../../../secret"
    (folder / layout.RELEASE).write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("change", "kind", "word"),
    [
        (lambda f: (f / layout.RELEASE).unlink(), UsageError, r"no release \(no release.json there\)"),
        (lambda f: (f / layout.RELEASE).write_text("{"), ReleaseError, "cannot be read"),
        (lambda f: (f / "dataset.json").unlink(), UsageError, "dataset.json: no such file"),
        (wrong_path, ReleaseError, "not a file of a table"),
        (lambda f: shutil.rmtree(f / "runs"), UsageError, "runs/.*: no such file"),
        (
            lambda f: next((f / "runs").glob("*")).write_bytes(b"PAR1" * 9), ReleaseError,
            "part-00000.parquet: is not what release.json says",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_there(release: Path, tmp_path: Path, change: Any, kind: type[Exception], word: str) -> None:
    folder = Path(shutil.copytree(release, tmp_path / "release"))
    change(folder)
    with served(folder) as (url, _), pytest.raises(kind, match=word), ddnn_traces.open(url) as dataset:
        dataset.query("run_overview")


def test_a_connection_cut_in_the_middle(release: Path) -> None:
    with (
        served(release, cut=("part-00000.parquet",)) as (url, _),
        pytest.raises(ReleaseError, match=r"part-00000\.parquet: cannot"),
    ):
        ddnn_traces.open(url)


def test_a_connection_cut_in_the_middle_of_a_large_file(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_WHOLE", 100)
    with served(release, cut=("part-00000.parquet",)) as (url, _), pytest.raises(ReleaseError, match="try again"):
        ddnn_traces.open(url)


def test_nobody_there() -> None:
    with served(Path()) as (url, _):
        pass
    with pytest.raises(ReleaseError, match=r"cannot be fetched \(.*Cannot connect to host .*try again"):
        ddnn_traces.open(url)
    with pytest.raises(UsageError, match="give a URL that fsspec knows"):
        ddnn_traces.open("gopher://a.example/traces")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("zip:///traces/a.zip", r"give a zip file by its own path or URL, like /traces/a\.zip"),
        ("zip://::https://a.example/a.zip", "like https://a.example/a.zip"),
        ("dir://x", "give a URL that fsspec knows"),
    ],
)
def test_what_is_no_url_of_a_release(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ddnn_traces.open(url)


def test_no_password_in_a_message() -> None:
    with served(Path()) as (url, _):
        pass
    secret = hashlib.sha256(b"x").hexdigest()
    with pytest.raises(ReleaseError) as caught:
        ddnn_traces.open(url.replace("//", f"//me:{secret}@") + f"?signature={secret}")
    assert secret not in str(caught.value)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)  # as where it is not installed
    monkeypatch.delitem(sys.modules, remote.__name__)
    monkeypatch.delattr(places, "remote")
    with pytest.raises(MissingExtra, match=r"fsspec.core is not installed.*ddnn-traces\[publish\]"):
        ddnn_traces.open("http://a.example/traces")


def test_threads_that_read_one_file_do_not_move_each_other() -> None:
    """As DuckDB does: seek, then read, by several threads on one handle. Footers came out as data before."""
    content = bytes(range(256)) * 4
    reported = ListedFile("x", "flows", len(content), "", frozenset())

    class Slow(io.BytesIO):
        def seek(self, place: int, whence: int = 0) -> int:
            time.sleep(0.0005)
            return super().seek(place, whence)

        def read(self, size: int | None = -1) -> bytes:
            time.sleep(0.0005)
            return super().read(size)

    reader = remote._reader(Slow(content), reported, remote._Content("x", None, "x"))

    def read(place: int) -> bytes:
        reader.seek(place)
        return reader.read(10)

    places = [(17 * n) % 1000 for n in range(300)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(read, places)) == [content[place : place + 10] for place in places]
