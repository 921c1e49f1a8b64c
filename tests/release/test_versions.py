"""Versions of a release: what changed, what the version becomes, the changelog."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import shutil
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from datasets import record_checksums
from publishing import ABOUT
from tools import Notes

import ddnn_traces
from ddnn_traces.errors import UsageError
from ddnn_traces.release import facts, versions
from ddnn_traces.store import layout, schema
from ddnn_traces.store.parquet import partition

RUN, OTHER = "torch-mlp1-sgd-32-gloo-0ms-ring", "mpi-mlp1-sgd-32-openmpi-0ms-ring"

#: In their order (semver.org, 11).
ORDER = (
    "0.9.9", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11",
    "1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0",
)  # fmt: skip

NONE = versions.Changes(False, (), (), (), (), (), False, (), (), False, False)


def test_versions_are_ordered() -> None:
    shuffled = list(ORDER)
    random.Random(1).shuffle(shuffled)
    assert tuple(sorted(shuffled, key=versions._order)) == ORDER
    for version in ORDER[1:]:
        versions.check(version, ORDER[0])
        with pytest.raises(UsageError, match="not greater than"):
            versions.check(ORDER[0], version)
    with pytest.raises(UsageError, match="not greater than"):
        versions.check("1.0.0+another.build", "1.0.0")
    for wrong in ("1", "1.0", "01.0.0", "1.0.0-", "v1.0.0", "1.0.0 "):
        with pytest.raises(UsageError, match="not a semantic version"):
            versions.check(wrong, None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "1.2.4"),
        ({"descriptions": ("title",)}, "1.2.4"),
        ({"options": ("ports: kept -> classed",)}, "1.2.4"),
        ({"runs_added": ("a",)}, "1.3.0"),
        ({"tables_added": ("events",)}, "1.3.0"),
        ({"captures_changed": True}, "1.3.0"),
        ({"rows": (versions.RowChange("flows", "a", 1, 1),)}, "1.3.0"),
        ({"runs_removed": ("a",), "runs_added": ("b",)}, "2.0.0"),
        ({"tables_removed": ("events",)}, "2.0.0"),
        ({"schema_changed": True}, "2.0.0"),
        ({"mapping_differs": True}, "2.0.0"),
    ],
)
def test_the_version_follows_from_what_changed(changes: dict[str, object], expected: str) -> None:
    assert versions.following("1.2.3", dataclasses.replace(NONE, **changes)) == expected  # type: ignore[arg-type]


def test_after_a_prerelease_comes_its_version() -> None:
    assert versions.following("1.0.0-rc.1", NONE) == "1.0.0"


def test_a_run_more_and_rows_changed(small: Path, tmp_path: Path) -> None:
    first = ddnn_traces.publish(small, tmp_path / "first", **ABOUT, runs=[RUN])
    copy = tmp_path / "copy"
    shutil.copytree(small, copy)
    path = partition(copy, "events", RUN) / "part-0.parquet"
    events = pl.read_parquet(path, hive_partitioning=False)
    changed = events.with_columns(priority=pl.when(pl.int_range(pl.len()) < 3).then(7).otherwise(pl.col("priority")))
    pq.write_table(changed.head(-1).to_arrow().cast(schema.table("events").arrow()), path)
    record_checksums(copy)
    second = ddnn_traces.publish(copy, tmp_path / "second", **ABOUT, previous=first.path)
    assert (second.release.about.version, second.release.previous) == ("1.1.0", "1.0.0")
    assert second.key == first.key
    assert second.release.anonymisation.key_id == first.release.anonymisation.key_id
    text = (tmp_path / "second" / layout.CHANGELOG).read_text()
    assert f"- Runs added (1): `{OTHER}`." in text
    assert f"- Rows changed in `events` of `{RUN}`: 3 rows added or changed, 4 removed or changed." in text
    assert text.count("Rows changed") == 1
    assert text.index("## 1.1.0 - 2026-01-31") < text.index("## 1.0.0 - 2026-01-31")
    third = ddnn_traces.publish(copy, tmp_path / "third", **ABOUT, previous=second.path, runs=[OTHER], tables=["flows"])
    assert third.release.about.version == "2.0.0"
    text = (tmp_path / "third" / layout.CHANGELOG).read_text()
    assert f"- Runs removed (1): `{RUN}`." in text
    assert "- Tables removed (8): `hosts`" in text
    assert text.count("\n## ") == 3


def test_nothing_changed_publishes_nothing(small: Path, release: Path, tmp_path: Path) -> None:
    same = ddnn_traces.publish(small, tmp_path / "new", **ABOUT | {"date": "2026-03-01"}, previous=release)
    assert not same.written
    assert same.message == f"{release}: nothing changed since version 1.0.0; nothing is published"
    assert list(tmp_path.iterdir()) == []


def test_only_words_changed(small: Path, release: Path, tmp_path: Path) -> None:
    other = ddnn_traces.publish(small, tmp_path / "new", **ABOUT | {"title": "Better"}, previous=release)
    assert other.release.about.version == "1.0.1"
    assert "- Descriptions changed: title." in (tmp_path / "new" / layout.CHANGELOG).read_text()
    with pytest.raises(UsageError, match=r"`version` 1.0.0: .*1\.0\.1"):
        ddnn_traces.publish(small, tmp_path / "newer", **ABOUT, previous=other.path, version="1.0.0")


def test_another_key_is_reported(small: Path, release: Path, tmp_path: Path) -> None:
    from ddnn_traces.release import publish

    shutil.copytree(release, tmp_path / "before")  # without its key
    messages = Notes()
    options = publish.PublishOptions(**ABOUT, previous=tmp_path / "before", window_ms=10)
    made = publish.publish(small, tmp_path / "new", options, messages)
    assert made.key_made
    assert any("key" in line and "before" in line for line in messages.notes)
    text = (tmp_path / "new" / layout.CHANGELOG).read_text()
    first, *others = [line for line in text.partition("## 2.0.0")[2].partition("\n## ")[0].splitlines()[1:] if line]
    assert first.startswith("- Anonymised with another key: labels")
    (rows,) = [line for line in others if "Rows changed" in line]
    counted = re.search(r"tables of 2 runs: ([\d,]+) rows before, ([\d,]+) now", rows)
    assert counted
    before, now = counted.groups()
    assert int(now.replace(",", "")) < int(before.replace(",", ""))  # windows are longer
    assert made.release.about.version == "2.0.0"
    assert "- Option changed: `window_ms: not given -> 10`." in text


def test_other_options_of_the_mapping_are_a_first_number(small: Path, release: Path, tmp_path: Path) -> None:
    key = release.with_name("traces.key")
    made = ddnn_traces.publish(small, tmp_path / "new", **ABOUT, previous=release, ports="classed", key=key)
    assert made.release.about.version == "2.0.0"
    text = (tmp_path / "new" / layout.CHANGELOG).read_text()
    assert "- Anonymised in another way" in text
    assert text.count("Rows changed") == 1
    assert "- Option changed: `ports: kept -> classed`." in text


def test_another_schema_is_a_first_number(small: Path, release: Path, tmp_path: Path) -> None:
    shutil.copytree(release, tmp_path / "before")
    document = facts.read(release)
    (tmp_path / "before" / layout.RELEASE).write_text(facts.to_json(dataclasses.replace(document, schema_version=1)))
    made = ddnn_traces.publish(small, tmp_path / "new", **ABOUT, previous=tmp_path / "before")
    assert made.release.about.version == "2.0.0"
    assert "- Schema changed" in (tmp_path / "new" / layout.CHANGELOG).read_text()


def test_releases_of_others_are_not_trusted(small: Path, release: Path, tmp_path: Path) -> None:
    before = tmp_path / "before"
    shutil.copytree(release, before)
    file = before / layout.RELEASE
    text = file.read_text()
    path = facts.read(release).tables[0].files[0].path
    for wrong, expected in (
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("{}", "release.json: "),
        (text.replace(f'"{path}"', '"../../etc/passwd"'), "release.json: "),
        (text.replace('"format_version": 2', '"format_version": 3'), "format version 3, this program reads 2"),
        (text.replace('"format_version": 2', '"format_version": 1'), "use the version that made it"),
    ):
        file.write_text(wrong)
        with pytest.raises(UsageError, match=expected):
            facts.read(before)
    outside = tmp_path / "outside.parquet"
    shutil.copy(release / path, outside)
    (before / path).unlink()
    (before / path).symlink_to(outside)
    document = json.loads(text)
    document["tables"][0]["files"][0]["sha256"] = "0" * 64
    file.write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"runs/.*part-00000.parquet is missing"):
        ddnn_traces.publish(
            small, tmp_path / "new", **ABOUT, previous=before, description="Other", key=release.with_name("traces.key")
        )


def test_names_cannot_break_the_changelog() -> None:
    changes = dataclasses.replace(NONE, runs_added=("a`b\n## 9.9.9\n",))
    (line,) = versions._lines(changes)
    assert line == "Runs added (1): `a'b ## 9.9.9`."
