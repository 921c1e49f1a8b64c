"""verify: columns, rows, encoding and runs of the Parquet files, and the data checks."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from damages import (
    RUN,
    Change,
    all_found,
    assert_found,
    damages_of,
    declared,
    failures,
    file_of,
    found,
    rewritten,
    sealed,
    with_values,
)
from datasets import record_checksums
from publishing import ABOUT

import ddnn_traces
from ddnn_traces.release.verify import running, table_checks
from ddnn_traces.release.verify.examined import FAILED, FLAGGED, NOT_CHECKED, PASSED
from ddnn_traces.store import layout


@pytest.mark.parametrize("damage", damages_of("sizes", "columns", "rows and order", "encoding", "runs", "data"))
def test_a_damage_is_found_by_its_check(folder: Path, tmp_path: Path, damage: str) -> None:
    assert_found(folder, tmp_path / "scratch", damage)


def test_some_tables_only(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "traces"
    ddnn_traces.publish(small, out, tables=["flows", "hosts"], **ABOUT)
    rows = all_found(out, tmp_path / "scratch")
    assert {row.status for row in rows} == {PASSED, NOT_CHECKED}
    skipped = {row.subject: row.detail for row in rows if row.status == NOT_CHECKED}
    assert skipped["ledger"] == "the release does not have capture_ledger, captures"
    assert "flow_windows" in skipped["flow_parts"]
    assert "flow_references" not in skipped


@pytest.fixture(scope="session")
def flagged(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with a run whose ledger does not add up. Not to be changed."""
    folder = tmp_path_factory.mktemp("flagged")
    dataset = Path(shutil.copytree(small, folder / "dataset"))
    rewritten("capture_ledger", with_values("packets", lambda n: n + 1))(dataset)
    record_checksums(dataset)
    ddnn_traces.publish(dataset, folder / "traces", allow_flagged=[RUN], **ABOUT)
    return folder / "traces"


def test_a_flagged_run_has_that_status(flagged: Path, tmp_path: Path) -> None:
    rows = found(flagged, tmp_path / "scratch", "data", "datasheet")
    assert {row.status for row in rows} == {PASSED, FLAGGED}
    lines = {row.subject: row.detail for row in rows if row.status == FLAGGED}
    assert f"ledger: {RUN}" in lines
    assert all(re.search(r"returns \d+ rows, release.json flags the run for \d+", line) for line in lines.values())


def test_a_run_that_is_flagged_for_its_clocks_is_one_where_these_are_withheld(small: Path, tmp_path: Path) -> None:
    dataset = Path(shutil.copytree(small, tmp_path / "dataset"))
    rewritten("captures", with_values("clock_offset_ns", lambda _: 5_000_000_000))(dataset)
    record_checksums(dataset)
    made = ddnn_traces.publish(dataset, tmp_path / "traces", allow_flagged=[RUN], **ABOUT)
    rows = found(tmp_path / "traces", tmp_path / "scratch", "data")
    (clocks,) = [row for row in rows if row.subject == f"host_clock: {RUN}"]
    number = made.release.flagged[RUN]["host_clock"]
    assert clocks.status == FLAGGED and number > 0
    assert clocks.detail.startswith(
        f"returns 0 rows, release.json flags the run for {number}, found with clock_offset_ns"
    )
    assert FAILED not in {row.status for row in rows}
    # what is not withheld must still be found
    declared(lambda d: d["flagged"][RUN].update(ledger=1))(tmp_path / "traces")
    sealed(tmp_path / "traces")
    (failed,) = failures(tmp_path / "traces", tmp_path / "scratch", "data")
    assert failed.subject == f"ledger: {RUN}"


def test_a_flagged_run_must_fail_as_often_as_declared_and_be_in_the_datasheet(flagged: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(flagged, tmp_path / "traces"))
    declared(lambda d: d["flagged"][RUN].update(ledger=1))(folder)
    (folder / layout.DATASHEET).write_text("All is well.\n")
    sealed(folder)
    wrong = {row.check: row.detail for row in failures(folder, tmp_path / "scratch", "data", "datasheet")}
    assert "release.json states 1" in wrong["data"]
    assert "does not state that" in wrong["datasheet"]


#: Table -> what makes its only file one that cannot be read: DuckDB and pyarrow both fail on that.
UNREADABLE: dict[str, Change] = {
    "flows": lambda path: path.unlink(),
    "steps": lambda path: path.write_bytes(b""),
    "hosts": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "messages": lambda path: path.write_bytes(b"PAR1" + bytes(range(256)) * 8 + b"PAR1"),
    "captures": lambda path: path.write_bytes(b"PAR1" + bytes(range(256)) * 8 + b"\xff\xff\xff\x7fPAR1"),
}


def test_parquet_files_that_cannot_be_read_keep_no_check_from_the_others(folder: Path, tmp_path: Path) -> None:
    paths = [file_of(folder, table) for table in UNREADABLE]
    for path, damage in zip(paths, UNREADABLE.values(), strict=True):
        damage(path)
    sealed(folder)
    rows = all_found(folder, tmp_path / "scratch")
    assert {str(path.relative_to(folder)) for path in paths} <= {row.subject for row in rows if row.status == FAILED}
    of_some = {"bag", "zip file", "captures", "claims"}
    assert {row.check for row in rows} == {name for name, _ in running.CHECKS} - of_some
    passed = {row.check for row in rows if row.status == PASSED}
    assert {"DataCite", "citation", "card", "licence", "datasheet", "agreement"} <= passed


def test_what_is_not_plausible_is_not_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group of any size would have to be unpacked by whoever reads it."""
    monkeypatch.setattr(table_checks, "_GROUP_ROWS", 1000)
    opened: list[object] = []
    for name in ("ParquetFile", "read_table", "ParquetDataset"):
        monkeypatch.setattr(pq, name, lambda *given, **_: opened.append(given))
    rows = all_found(folder, tmp_path / "scratch")
    assert opened == []
    wrong = [row for row in rows if row.status == FAILED]
    large = [file_of(folder, table).relative_to(folder).as_posix() for table in ("flow_windows", "messages")]
    assert [row.subject for row in wrong] == large
    assert all("has a row group of" in row.detail for row in wrong)
    later = {row.check for row in rows if row.status == NOT_CHECKED and "see sizes" in row.detail}
    assert {"rows and order", "data", "database", "croissant", "samples"} <= later
