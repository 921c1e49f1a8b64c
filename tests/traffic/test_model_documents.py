"""Documents of traffic models: written, read back, and refused where they are invalid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from model_documents import DOCUMENT, RINGS, changed
from tools import files_of_at_most

import ddnn_traces
from ddnn_traces.errors import ModelError, UsageError
from ddnn_traces.traffic import model
from ddnn_traces.traffic.model import Document
from ddnn_traces.traffic.model.document import check, text


def test_the_document_of_these_tests_is_one() -> None:
    check(DOCUMENT, "DOCUMENT")
    assert json.loads(text(DOCUMENT)) == DOCUMENT


def test_a_full_disk_leaves_the_old_document(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("old")
    with files_of_at_most(len(text(DOCUMENT)) // 2), pytest.raises(UsageError, match="cannot be written"):
        model.write(DOCUMENT, path)
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == {"model.json": "old"}


@pytest.mark.long
def test_a_document_is_small_and_reads_back(document: Document, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    model.write(document, path)
    assert model.read(path) == document
    assert path.stat().st_size < 100_000
    assert max(map(len, path.read_text().splitlines())) > 200  # lists of numbers on a line
    assert [run["run_id"] for run in document["provenance"]["runs"]] == list(RINGS)
    assert document["provenance"]["sources"] == ["capture"]
    assert document["packets"]["segment_bytes"] > 10_000  # segmentation offload


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(version=2), "version 2, and this program reads version 5; fit the model again"),
        (changed(version=True), "version True"),
        (changed(version=5.0), "version 5.0"),
        (changed(version="\n1\x1b[0m"), r"version '\n1\x1b[0m'"),
        (changed(format="other"), "not a traffic model"),
        (b"[]", "not a traffic model"),
        (b"", "not JSON"),
        (b'{"format": ', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (changed(tear_down__duration_ms=float("nan")), "NaN is not a number"),
        (changed(tear_down__duration_ms=-1), "tear_down/duration_ms"),
        (changed(tear_down__duration_ms=1e300), "tear_down/duration_ms"),
        (changed(packets__segment_bytes=0), "packets/segment_bytes"),
        (changed(packets__segment_bytes=100_000), "packets/segment_bytes"),
        (changed(computation__relative=[2.0, 1.0]), "relative: quantiles decrease"),
        (changed(computation__relative=[1.0] * 202), "computation/relative"),
        (changed(computation__relative=["1", "2"]), "computation/relative"),
        (changed(exchange__stall_ms={"shared": [1.0, 1.0]}), "exchange/stall_ms"),
        (changed(transfer_matrix=[[0, 1], [1]]), "not square"),
        (changed(more=1), "more"),
        (json.dumps({**DOCUMENT, "control": DOCUMENT["control"] * 20}).encode(), "control"),
        (b" " * 1_000_001, "1,000,001 bytes; of such a file at most 1,000,000 are read"),
    ],
    ids=lambda value: value[:30].replace(" ", "_") if isinstance(value, str) else "",
)
def test_invalid_documents_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(data)
    with pytest.raises(ModelError) as refused:
        model.read(path)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_missing_document_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no\.json: there is no such file"):
        model.read(tmp_path / "no.json")


def test_the_package_is_also_an_attribute_of_ddnn_traces() -> None:
    assert ddnn_traces.traffic_model is model
    with pytest.raises(AttributeError, match="no_such_name"):
        ddnn_traces.no_such_name  # noqa: B018
