"""An ingest that is interrupted or fails: the old dataset stays whole, finished runs are kept."""

from __future__ import annotations

import errno
import math
from pathlib import Path
from typing import Any

import packets as p
import pytest
from ingesting import Lines, ingest
from small_runs import (
    A,
    B,
    C,
    contradictions,
    hashes_of,
    ring,
    write_captures,
)
from tools import mostly_long

import ddnn_traces
from ddnn_traces.ingestors import end_of_run, pipeline
from ddnn_traces.ingestors import read_runs as runs_module
from ddnn_traces.query import checks, views
from ddnn_traces.store import writer

GOOD = p.pcap(packet.record for packet in ring(A, B))


def test_a_full_folder_of_temporary_files_costs_only_the_views(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(views, "replace_views", full)
        (said,) = ingest(runs, out=tmp_path / "dataset")
    assert said.startswith(f"{tmp_path / 'dataset'}/traces.duckdb: not written (No space left on device); ")
    assert "TMPDIR" in said
    with ddnn_traces.open(tmp_path / "dataset") as dataset:
        assert contradictions(dataset) == {}
    assert ingest(runs, out=tmp_path / "dataset") == []


def stop_at_the_third_run(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    check, calls = end_of_run._check_ledger, []

    def check_or_stop(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == 3:
            raise error
        check(*arguments)

    monkeypatch.setattr(end_of_run, "_check_ledger", check_or_stop)


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
@pytest.mark.long_after(1)
def test_interrupted_ingest_keeps_the_finished_runs(
    runs: Path, tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_captures(runs / "zzz", {"a.pcap": ring(A, C)})
    out = tmp_path / "dataset"
    ingest(runs, out=tmp_path / "expected")
    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "COMMIT_SECONDS", seconds)
        patched.setattr(pipeline, "_COMMIT_SHARE", 0.0)
        stop_at_the_third_run(patched, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt) as caught:
            ingest(runs, out=out)
    assert str(caught.value) == "interrupted; the dataset has 2 finished runs, ingest again for the others"
    assert checks.damaged_files(out) == []
    with ddnn_traces.open(out) as dataset:
        assert dataset.run_ids == ["one", "two"]
        assert contradictions(dataset) == {}
    messages = Lines()
    pipeline.ingest([str(runs)], out, messages=messages)
    assert len(messages.files) == 1
    assert hashes_of(out) == hashes_of(tmp_path / "expected")


@pytest.mark.long
def test_interrupted_while_it_puts_runs_in_place(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Just after the exchange: the old version, which is removed then, is not put back."""
    out = tmp_path / "dataset"
    ingest(runs, out=out)
    write_captures(runs / "one", {"worker-1.pcap": ring(A, C)})
    ingest(runs, out=tmp_path / "expected")
    put_in_place = writer._put_in_place

    def put_and_stop(new: Path, old: Path) -> None:
        put_in_place(new, old)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pipeline, "COMMIT_SECONDS", 0.0)
        patched.setattr(pipeline, "_COMMIT_SHARE", 0.0)
        patched.setattr(writer, "_put_in_place", put_and_stop)
        with pytest.raises(KeyboardInterrupt):
            ingest(runs, out=out)
    assert by_table(out, "flows") == by_table(tmp_path / "expected", "flows")


def by_table(dataset: Path, table: str) -> dict[str, str]:
    return {name: sha for name, sha in hashes_of(dataset).items() if name.startswith(table)}


@pytest.mark.parametrize("where", ["runs._report", "pipeline._write_run"])
@pytest.mark.parametrize("error", mostly_long([KeyboardInterrupt, SystemExit, RuntimeError], KeyboardInterrupt))
@pytest.mark.long_after(1)
def test_old_dataset_stays(
    runs: Path, tmp_path: Path, where: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "dataset"
    ingest(runs, out=out)
    before = hashes_of(out)
    (runs / "one" / "worker-1.pcap").write_bytes(GOOD)
    (runs / "two" / "worker-1.pcap").write_bytes(GOOD)
    module = {"runs": runs_module, "pipeline": pipeline}[where.split(".")[0]]
    name = where.split(".")[1]
    work = getattr(module, name)
    calls = []

    def fail_at_the_second_call(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise error
        return work(*arguments)

    monkeypatch.setattr(module, name, fail_at_the_second_call)
    monkeypatch.setattr(pipeline, "COMMIT_SECONDS", math.inf)  # a busy machine would commit one before
    with pytest.raises(error):
        ingest(runs, out=out)
    after = hashes_of(out)
    if error is KeyboardInterrupt and where == "pipeline._write_run":  # one is finished
        before, after = ({n: sha for n, sha in found.items() if "run_id=two" in n} for found in (before, after))
    assert after == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset", "runs"]


def test_error_in_the_first_ingest_leaves_nothing(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_of_run, "_check_ledger", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ingest(runs, out=tmp_path / "dataset")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
