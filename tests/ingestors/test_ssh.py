"""Captures by ssh://, from OpenSSH's server: in threads, on a cluster, over a connection that is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import parquet_hashes, plain_and_compressed
from ssh_server import SshServer, lose_connections, ssh_server
from tools import Notes, needs_package

from ddnn_traces.errors import StorageError, UsageError
from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.pcap import streams
from ddnn_traces.store import object_store

pytestmark = pytest.mark.cluster


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshServer]:
    """A server, and the home folder of a user whom it lets in."""
    needs_package("sshfs")
    folder = tmp_path / "ssh"
    folder.mkdir()
    with ssh_server(folder) as server:
        caches = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        monkeypatch.setenv("XDG_CACHE_HOME", caches)  # which has the compiled packet loop
        monkeypatch.setenv("HOME", str(server.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield server


@pytest.fixture
def runs(tmp_path: Path, sample: Path) -> Path:
    """A plain capture, and a run of compressed ones with logs."""
    return plain_and_compressed(tmp_path / "runs", sample, rounds=500)


@pytest.fixture
def expected(runs: Path, tmp_path: Path) -> dict[str, str]:
    pipeline.ingest([str(runs)], tmp_path / "expected", IngestOptions(jobs=1))
    return parquet_hashes(tmp_path / "expected")


@pytest.mark.parametrize("options", [{"jobs": 2}, {"scheduler": "local:2"}], ids=["threads", "cluster"])
def test_the_same_tables(
    server: SshServer, runs: Path, tmp_path: Path, expected: dict[str, str], options: dict[str, int | str]
) -> None:
    pipeline.ingest([f"{server.url}{runs}/*"], tmp_path / "out", IngestOptions(**options))  # type: ignore[arg-type]
    assert parquet_hashes(tmp_path / "out") == expected
    assert f"{server.url}{runs}" in (tmp_path / "out" / "sources.json").read_text()


def test_a_lost_connection(server: SshServer, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, and no run of half of its files."""
    monkeypatch.setattr(streams, "REQUEST_BYTES", 1 << 14)
    monkeypatch.setattr(object_store, "_FIRST_S", 0.001)

    class Losing(Notes):
        def advance(self, size: int, packets: int) -> None:
            lose_connections(server)

    with pytest.raises(StorageError, match="the connection failed 7 times; try again later") as failed:
        pipeline.ingest([f"{server.url}{runs}"], tmp_path / "out", IngestOptions(jobs=1), Losing())
    assert "\n" not in str(failed.value)
    assert not (tmp_path / "out").exists()


def test_a_host_whose_key_is_not_known(server: SshServer, runs: Path, tmp_path: Path) -> None:
    (server.home / ".ssh" / "known_hosts").unlink()
    with pytest.raises(UsageError, match=r"^ssh://.*: the key of this host is not known; connect to it once with ssh"):
        pipeline.ingest([f"{server.url}{runs}"], tmp_path / "out", IngestOptions())


def test_a_user_whom_it_does_not_let_in(server: SshServer, runs: Path, tmp_path: Path) -> None:
    (server.home / ".ssh" / "id_ed25519").unlink()
    with pytest.raises(UsageError, match="does not accept these credentials; check the key"):
        pipeline.ingest([f"{server.url}{runs}"], tmp_path / "out", IngestOptions())


def test_what_several_threads_cannot_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ftp:// cannot be read by several threads at once; copy the files here first"):
        pipeline.ingest(["ftp://host/runs"], tmp_path / "out", IngestOptions())
