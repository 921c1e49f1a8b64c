"""publish, from the command line and from Python: what a release holds, the same bytes again, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import jsonschema
import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml
from damages import all_found
from damages import found as checked
from datasets import record_checksums
from publishing import ABOUT, OPTIONS, OTHER, RUN, Run
from small_release import content

import ddnn_traces
from ddnn_traces.errors import DdnnTracesError, MissingExtra, PublishError, UsageError
from ddnn_traces.release import facts, publish, versions
from ddnn_traces.release.verify import running
from ddnn_traces.release.verify.examined import NOT_CHECKED, PASSED
from ddnn_traces.store import layout, schema
from ddnn_traces.store.parquet import partition
from ddnn_traces.traffic import simulator
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import thesis
from ddnn_traces.traffic.table_writer import write_traffic


def test_what_is_in_a_release(small: Path, release: Path) -> None:
    names = {path.name for path in release.iterdir()}
    tables = {
        "runs",
        "hosts",
        "captures",
        "capture_ledger",
        "flows",
        "flow_windows",
        "messages",
        "steps",
        "step_flows",
        "events",
    }
    others = {layout.RELEASE, layout.CHANGELOG, layout.CHECKSUMS, "dataset.json", "traces.duckdb", *layout.DESCRIPTIONS}
    others.add(layout.EXPLORER)
    assert names == tables | others - {layout.CLAIMS}
    text = (release / layout.RELEASE).read_text(encoding="utf-8")
    jsonschema.validate(
        json.loads(text), json.loads((schema.shipped_folder("schemas") / "documents" / "release.json").read_text())
    )
    found = facts.from_json(text)
    assert found.run_ids == [OTHER, RUN]
    assert found.digest == versions.digest(found)
    assert [step.kind for step in found.provenance] == ["capture", "ingest", "anonymise", "publish"]
    assert len(found.provenance[1].inputs) == 8
    with ddnn_traces.open(release) as dataset, ddnn_traces.open(small) as source:
        for table in found.tables:
            (before,) = source.sql(f"SELECT count(*) AS n FROM {table.name}")["n"]
            assert table.rows == before == dataset.sql(f"SELECT count(*) AS n FROM {table.name}")["n"][0]
        same = "SELECT run_id, sum(wire_bytes)::BIGINT AS b FROM flow_windows GROUP BY ALL ORDER BY ALL"
        assert dataset.sql(same).equals(source.sql(same))
        addresses = set(dataset.sql("SELECT src_ip FROM flows")["src_ip"])
    assert addresses == {"worker-1", "worker-2", "worker-3", "worker-4"}


@pytest.mark.parametrize("library", ["yaml", "yacryptopan"])
def test_a_missing_extra_is_named_before_anything_is_read(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    said = rf"{library} is not installed, and this needs all of the extra publish: pip install 'ddnn-traces\[publish\]'"
    with pytest.raises(MissingExtra, match=said):
        ddnn_traces.publish(tmp_path / "no dataset", tmp_path / "release", **ABOUT)


def test_a_dataset_with_a_damaged_file_is_refused(small: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(small, tmp_path / "dataset"))
    file = partition(damaged, "flows", RUN) / "part-0.parquet"
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    with pytest.raises(DdnnTracesError, match=rf"run {RUN}: flows/run_id={RUN}/part-0\.parquet: changed"):
        ddnn_traces.publish(damaged, tmp_path / "release", **ABOUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dataset"]


def test_checksums_are_those_that_sha256sum_reads(release: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", layout.CHECKSUMS], cwd=release, capture_output=True, text=True
    )
    assert done.returncode == 0
    listed = {line.partition(": ")[0] for line in done.stdout.splitlines()}
    assert listed == set(content(release)) - {layout.CHECKSUMS}


def test_the_database_is_relative_and_has_every_view(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "it's moved"
    shutil.copytree(release, moved)
    with duckdb.connect(str(moved / "traces.duckdb"), read_only=True) as elsewhere:
        with pytest.raises(duckdb.IOException):
            elsewhere.sql("SELECT count(*) FROM flows").fetchall()
        elsewhere.execute("SET file_search_path = $1", [str(moved)])
        (found,) = elsewhere.sql("SELECT count(*) FROM flows").fetchall()
        (empty,) = elsewhere.sql("SELECT count(*) FROM packets").fetchall()
    assert (found, empty) == ((36,), (0,))
    monkeypatch.chdir(moved)
    with duckdb.connect("traces.duckdb", read_only=True) as inside, ddnn_traces.open(release) as dataset:
        assert pl.from_arrow(inside.sql("FROM total_volume").arrow()).equals(dataset.query("total_volume"))
        (comment,) = inside.sql("SELECT comment FROM duckdb_views() WHERE view_name = 'flows'").fetchall()
    assert comment == (schema.table("flows").row,)


def test_the_database_has_the_format_that_duckdb_1_0_reads(release: Path) -> None:
    """Its number in the first header (DuckDB 2 writes 68 by default), and of the definitions in the second."""
    content = (release / "traces.duckdb").read_bytes()
    assert struct.unpack_from("<Q", content, 12) == (64,)
    assert struct.unpack_from("<Q", content, 4096 + 56) == (1,)


def test_queries_use_no_syntax_that_duckdb_2_stores_wrongly_for_older_ones() -> None:
    """It stores lag(x, 1, default) in a file of that format so that DuckDB 1 refuses the view."""
    files = sorted(schema.shipped_folder("queries").glob("*.sql"))
    assert len(files) > 100
    assert [file.stem for file in files if re.search(r"\b(lag|lead)\([^()]*,", file.read_text(), re.I)] == []


def test_the_same_bytes_again_also_with_other_threads(small: Path, release: Path, tmp_path: Path, run: Run) -> None:
    key = release.with_name("traces.key")
    done = run("publish", small, "--out", "again", *OPTIONS, "--key", key, "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert content(tmp_path / "again") == content(release)
    assert done.stdout == ""


def test_another_key_is_another_release(small: Path, release: Path, tmp_path: Path) -> None:
    made = ddnn_traces.publish(small, tmp_path / "other", **ABOUT)
    assert made.key_made
    assert made.key == tmp_path / "other.key"
    assert made.key.stat().st_mode & 0o777 == 0o600
    mine, other = facts.read(release), made.release
    assert mine.anonymisation.key_id != other.anonymisation.key_id
    assert mine.digest != other.digest


def test_unchanged_is_reported_and_nothing_touched(small: Path, release: Path, tmp_path: Path, run: Run) -> None:
    shutil.copytree(release, tmp_path / "traces")
    shutil.copy(release.with_name("traces.key"), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "traces").rglob("*")}
    done = run("publish", small, "--out", "traces", *OPTIONS[:-2])  # the day it was published stays
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "traces: unchanged, version 1.0.0")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "traces").rglob("*")} == before
    for change in (("--window-ms", "10"), ("--description", "More"), ("--run", RUN)):
        other = run("publish", small, "--out", "traces", *OPTIONS, *change)
        assert other.returncode == 1
        assert "traces: exists, and differs from what would be published now" in other.stderr
        assert "--previous traces" in other.stderr
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "traces").rglob("*")} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["traces", "traces.key"]


def test_another_folder_is_not_overwritten(small: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep")
    with pytest.raises(PublishError, match="mine: exists and is not a release of this program; choose another `out`"):
        ddnn_traces.publish(small, tmp_path / "mine", **ABOUT)
    assert content(tmp_path) == {"mine/notes": b"keep"}


def test_an_empty_folder_may_become_one(small: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    assert ddnn_traces.publish(small, tmp_path / "new", **ABOUT, runs=[RUN], tables=["flows"]).written
    assert json.loads((tmp_path / "new" / "dataset.json").read_text())["tables"] == ["runs", "flows"]
    assert facts.read(tmp_path / "new").run_ids == [RUN]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"licence": None}, "no licence: .*`licence_file`"),
        ({"title": ""}, "no title: .*`title`"),
        ({"creators": []}, "no creators: .*`creator`"),
        ({"tables": ["flow"]}, "`table` flow: did you mean flows"),
        ({"tables": ["packets"]}, "`table` packets: has no rows in these runs"),
        ({"runs": ["torch"]}, "no run named torch"),
        ({"allow_flagged": ["torch"]}, "`allow_flagged` torch: "),
        ({"window_ms": 1.5}, r"`window_ms` 1.5: not a multiple of the 1 ms windows of mpi"),
        ({"window_ms": 0}, r"`window_ms` 0: not a multiple"),
        ({"window_ms": 10, "tables": ["flows"]}, "`window_ms`: flow_windows is not among the tables"),
        ({"version": "1"}, 'version: "1" is not: semantic version'),
        ({"date": "2026-02-30"}, "2026-02-30 is not a day"),
        ({"key": "out/key"}, "out/key: the key would be inside the release"),
        ({"key": "short"}, "short: a key of 2 bytes is too short"),
        ({"previous": "nowhere"}, "nowhere: not a release"),
        ({"about": "nowhere"}, "nowhere: there is no such file"),
        ({"addresses": "random"}, "`addresses` random: "),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_a_wrong_call_writes_nothing(
    small: Path, tmp_path: Path, options: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("abcd")
    paths = {name: Path(value) for name, value in options.items() if name in ("key", "previous", "about")}
    with pytest.raises(UsageError, match=expected):
        ddnn_traces.publish(small, "out", **ABOUT | options | paths)
    assert [path.name for path in tmp_path.iterdir()] == ["short"]


def test_neither_release_nor_key_inside_of_the_dataset(small: Path, release: Path, tmp_path: Path) -> None:
    before = content(small) | content(release)
    (tmp_path / "link").symlink_to(small)
    for out in (small, small / "out", small / "a" / "b", tmp_path / "link" / "out"):
        with pytest.raises(UsageError, match="the release would be inside the dataset"):
            ddnn_traces.publish(small, out, **ABOUT)
    with pytest.raises(UsageError, match=r"the key would be inside the dataset .*; name another file"):
        ddnn_traces.publish(small, tmp_path / "out", **ABOUT, key=small / "secret.key")
    with pytest.raises(UsageError, match="is inside the release"):
        ddnn_traces.publish(small, release / "flows" / "out", **ABOUT)
    assert content(small) | content(release) == before
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_checks_that_fail_refuse_a_run_unless_it_is_flagged(small: Path, tmp_path: Path, run: Run) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    path = partition(copy, "capture_ledger", RUN) / "part-0.parquet"
    changed = pl.read_parquet(path, hive_partitioning=False).with_columns(packets=pl.col("packets") + 1)
    pq.write_table(changed.to_arrow().cast(schema.table("capture_ledger").arrow()), path)
    record_checksums(copy)
    done = run("publish", copy, "--out", "out", *OPTIONS)
    assert done.returncode == 1
    assert f"data checks fail:\n  {RUN}: " in done.stderr
    assert "flows_match_ledger (" in done.stderr
    assert "ledger (" in done.stderr
    assert "--allow-flagged" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy"]
    made = ddnn_traces.publish(copy, tmp_path / "out", **ABOUT, allow_flagged=[RUN])
    assert made.release.flagged.keys() == {RUN}
    assert made.release.flagged[RUN]["ledger"] == 4
    assert RUN in (tmp_path / "out" / layout.DATASHEET).read_text()
    ddnn_traces.publish(copy, tmp_path / "only", **ABOUT, runs=[OTHER])


def test_a_bag_is_valid(small: Path, release: Path, tmp_path: Path) -> None:
    import bagit

    key = release.with_name("traces.key")
    made = ddnn_traces.publish(small, tmp_path / "bag", **ABOUT, key=key, bagit=True)
    bag = bagit.Bag(str(tmp_path / "bag"))
    bag.validate()
    assert bag.info["Bagging-Date"] == "2026-01-31"
    assert layout.content(made.path) == tmp_path / "bag" / "data"
    assert facts.read(made.path).options["bagit"] is True
    path = tmp_path / "bag" / "data" / layout.CARD
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(bagit.BagValidationError):
        bagit.Bag(str(tmp_path / "bag")).validate()
    again = ddnn_traces.publish(small, tmp_path / "bag2", **ABOUT, key=key, bagit=True)
    assert versions.digest(again.release) == versions.digest(made.release)
    assert content(tmp_path / "bag2") == content(tmp_path / "bag") | {
        f"data/{layout.CARD}": (tmp_path / "bag2" / "data" / layout.CARD).read_bytes()
    }


def test_captures_are_among_the_facts(sample: Path, small: Path, tmp_path: Path) -> None:
    made = ddnn_traces.publish(small, tmp_path / "out", **ABOUT, runs=[RUN], captures=[str(sample)])
    paths = {file.path for file in made.release.captures}
    assert f"pcap/{RUN}/worker-1.pcap.gz" in paths
    assert paths == {path for path in content(tmp_path / "out") if path.startswith("pcap/")}


def test_the_template_is_printed(tmp_path: Path, run: Run) -> None:
    done = run("publish", "--template")
    assert (done.returncode, done.stderr) == (0, "")
    (tmp_path / "release.toml").write_text(done.stdout)
    assert "[[creators]]" in done.stdout
    assert run("publish").returncode == 2
    assert run("publish", tmp_path).returncode == 2


def test_a_terminal_gets_questions(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []

    def ask(question: str) -> str:
        questions.append(question)
        return "CC0-1.0"

    options = publish.PublishOptions(title="T", creators=["Ada"], runs=[RUN])
    made = publish.publish(small, tmp_path / "out", options, ask=ask)
    assert made.release.about.licence == "CC0-1.0"
    assert ["licence" in question for question in questions] == [True]
    assert os.listdir(tmp_path) != []  # noqa: PTH208


def test_runs_can_be_held_out(small: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "release"
    release = ddnn_traces.publish(small, out, **ABOUT, splits=[f"test={RUN}"]).release
    assert release.splits == {"test": [RUN], "train": [OTHER]}
    assert [path.name for path in sorted((out / "flows").iterdir())] == ["test-00000.parquet", "train-00000.parquet"]
    with ddnn_traces.open(out) as dataset:
        assert dict(dataset.sql("SELECT run_id, split FROM runs").iter_rows()) == {RUN: "test", OTHER: "train"}
        assert set(dataset.query("split_scores")["split"]) == {"test", "train"}
    with ddnn_traces.open(out, runs=[RUN]) as dataset:
        assert dataset.sql("SELECT DISTINCT run_id FROM flows")["run_id"].to_list() == [RUN]
    names = {name for name, _ in running.CHECKS} - {"data", "samples", "explorer", "RO-Crate"}  # know no split
    assert {result.status for result in checked(out, tmp_path / "scratch", *names)} == {PASSED}
    front = yaml.safe_load((out / layout.CARD).read_text().split("---\n")[1])
    flows = next(config for config in front["configs"] if config["config_name"] == "flows")
    assert {file["split"]: file["path"] for file in flows["data_files"]} == {
        "test": "flows/test-*.parquet", "train": "flows/train-*.parquet",
    }  # fmt: skip
    record_sets = json.loads((out / layout.CROISSANT).read_text())["recordSet"]
    assert [row["splits/url"] for row in record_sets[0]["data"]] == ["cr:TestSplit", "cr:TrainingSplit"]
    for split, said in (
        (RUN, "write NAME=RUN"), ("Test=" + RUN, "small letters"), ("part=" + RUN, "small letters"),
        ("test=nothing", "--split nothing: there are: "),
    ):  # fmt: skip
        done = run("publish", small, *OPTIONS, "--split", split, "--out", tmp_path / "wrong")
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    with pytest.raises(UsageError, match="is in test already"):
        ddnn_traces.publish(small, tmp_path / "wrong", **ABOUT, splits=[f"test={RUN}", f"validation={RUN}"])


def test_simulated_runs_are_published_and_verified(tmp_path: Path) -> None:
    run = SimulatedRun(workers=3, steps=3, profile=thesis(10, 300_000, 30))
    write_traffic(tmp_path / "dataset", [simulator.traffic(simulator.simulate(run))])
    release = ddnn_traces.publish(tmp_path / "dataset", tmp_path / "release", **ABOUT).path
    steps = json.loads((release / "release.json").read_text())["provenance"]
    assert steps[0]["kind"] == "generate" and "Simulated, not measured: 1 run." in steps[0].values()
    assert {row.status for row in all_found(release, tmp_path / "scratch")} <= {PASSED, NOT_CHECKED}
