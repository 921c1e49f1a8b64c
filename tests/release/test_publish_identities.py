"""publish: what identifies is renamed, withheld by a profile, or refuses the release."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from damages import all_found
from damages import found as checked
from publishing import ABOUT, OPTIONS, OTHER, RUN, Run
from small_release import content
from small_runs import found_by

import ddnn_traces
from ddnn_traces.errors import LeakError, UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.release import publish
from ddnn_traces.release.verify.examined import PASSED
from ddnn_traces.store import layout, schema


def test_a_leak_removes_the_release(small: Path, tmp_path: Path) -> None:
    description = "Captured on 10.10.0.1, a host of ours."
    with pytest.raises(LeakError) as caught:
        ddnn_traces.publish(small, tmp_path / "above" / "out", **ABOUT, description=description, words="kept")
    assert "not published" in str(caught.value)
    assert layout.CARD in str(caught.value)
    assert "an IP address (host 1 of run " in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["release.toml", "run.toml", "the name of a run"])
def test_a_key_of_a_service_is_not_published(place: str, sample: Path, tmp_path: Path) -> None:
    """A token in the description refuses the release; in a run's name or metadata it is replaced."""
    token = "AKIAIOSFODNN7EXAMPLE"
    folder = Path(shutil.copytree(sample / RUN, tmp_path / "in" / (f"job-{token}" if "name" in place else "job")))
    if place == "run.toml":
        (folder / "run.toml").write_text(
            f'model = "{token}"\n' + (folder / "run.toml").read_text().replace("model =", "#")
        )
    ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset").close()
    about = ABOUT | ({"description": f"Uploaded with {token}."} if place == "release.toml" else {})
    said: list[str] = []
    if place == "release.toml":
        with pytest.raises(LeakError, match=r"description: AKIA\.\.\. ") as found:
            ddnn_traces.publish(tmp_path / "dataset", tmp_path / "release", **about)
        said.append(str(found.value))
    else:
        messages = Messages()
        messages.info = said.append  # type: ignore[method-assign]
        options = publish.PublishOptions(**about)
        said.append(publish.publish(tmp_path / "dataset", tmp_path / "release", options, messages).message)
        with ddnn_traces.open(tmp_path / "release") as release:
            model, name = release.sql("SELECT model, run_id FROM runs").row(0)
        assert re.fullmatch("job-[0-9a-f]{8}", name) if "name" in place else re.fullmatch("[0-9a-f]{8}", model)
        assert any("AKIA... (20 letters)" in line for line in said)
    # a run has to be named to say that it is renamed
    assert [line for line in said if token in line and not line.startswith("renamed")] == []


def test_the_day_of_publication_may_be_that_of_the_runs(small: Path, tmp_path: Path) -> None:
    with ddnn_traces.open(small) as dataset:
        first_ns = dataset.sql("SELECT min(first_seen_ns) AS ns FROM flows")["ns"][0]
    today = f"{datetime.fromtimestamp(first_ns / 1e9, UTC) + timedelta(hours=12):%Y-%m-%d}"  # its midnight is near
    release = ddnn_traces.publish(small, tmp_path / "release", **ABOUT | {"date": today}).path
    assert json.loads((release / layout.DATA_PACKAGE).read_text())["created"] == f"{today}T00:00:00Z"


# --- names of runs


def test_runs_whose_names_identify_are_renamed_everywhere(sample: Path, tmp_path: Path, run: Run) -> None:
    """An address, a time and a host; the same names with the same key, also where there is a run more."""
    scheme = "torch-mlp1-sgd-32-gloo-0ms-ring-10.10.0.3"  # metadata that come from the name
    names = ("run1-10.10.0.2", "at_2026-11-20_09-41", "run-1795167600", "run_2_10.10.0.1", scheme, "plain")
    for name in names:
        shutil.copytree(sample / RUN, tmp_path / "in" / name)
    (tmp_path / "in" / scheme / "run.toml").unlink()
    ddnn_traces.ingest(tmp_path / "in", tmp_path / "dataset").close()
    found = {}
    for number, chosen in enumerate((names, names[:1])):
        about = ABOUT | {"captures": [str(tmp_path / "in")], "key": tmp_path / "key", "runs": chosen, "words": "kept"}
        release = ddnn_traces.publish(tmp_path / "dataset", tmp_path / f"release-{number}", **about).release
        found[chosen] = release.run_ids
        text = b"".join(name.encode() + data for name, data in content(tmp_path / f"release-{number}").items())
        assert not [name for name in names[:-1] if name.encode() in text]
        with ddnn_traces.open(tmp_path / f"release-{number}") as opened:
            for table in release.tables:
                ids = opened.sql(f"SELECT DISTINCT run_id FROM {table.name} ORDER BY ALL")["run_id"].to_list()
                assert ids == release.run_ids == sorted(release.run_ids), table.name
        assert {path.name for path in (tmp_path / f"release-{number}" / "pcap").iterdir()} == set(release.run_ids)
    assert set(found[names[:1]]) < set(found[names])
    tag = "[0-9a-f]{8}"
    patterns = (f"at_{tag}", "plain", f"run-{tag}", f"run1-{tag}", f"run_2_{tag}", f"{scheme[:-9]}{tag}")
    assert all(re.fullmatch(*pair) for pair in zip(patterns, found[names], strict=True))
    told = ["publish", tmp_path / "dataset", *OPTIONS, "--out", tmp_path / "told", "--allow", "plain"]
    inside = run(*told, "--renamed", tmp_path / "told" / "names.csv")
    assert (inside.returncode, (tmp_path / "told").exists()) == (2, False)
    assert "the names would be inside the release" in inside.stderr
    done = run(*told, "--renamed", tmp_path / "names.csv")
    assert done.returncode == 0
    with (tmp_path / "names.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    runs = {row["original"]: row["released"] for row in rows if row["kind"] == "run"}
    assert [*runs] == sorted(names[:-1])
    with ddnn_traces.open(tmp_path / "told") as opened, ddnn_traces.open(tmp_path / "dataset") as original:
        assert {*runs.values()} == {*opened.run_ids} - {"plain"}
        hosts = "SELECT host_ip, label FROM hosts WHERE run_id = ?"
        for run_id in names:
            there = original.sql(hosts, [run_id]).to_dict(as_series=False)
            new = opened.sql(hosts, [runs.get(run_id, run_id)]).to_dict(as_series=False)
            for kind, column in (("address", "host_ip"), ("host", "label")):
                told_of = {
                    row["original"]: row["released"] for row in rows if (row["run_id"], row["kind"]) == (run_id, kind)
                }
                assert sorted(told_of.get(name, name) for name in there[column]) == sorted(new[column])
                assert set(told_of) >= {name for name in there[column] if name not in new[column]}
    assert sum(row["kind"] == "address" for row in rows) >= len(names)
    assert stat.S_IMODE((tmp_path / "names.csv").stat().st_mode) == 0o600
    assert "renamed 5 runs, whose names hold what must not be published" in done.stderr
    assert "run1-10.10.0.2 is run1-" in done.stderr
    assert "kept the names of 1 run, in which each word is a known one, an English one too: plain" in done.stderr


@pytest.mark.parametrize("name", ["a.pcap", "the-licensor.pcap"])
def test_names_that_the_descriptions_hold_anyway_are_no_leak(name: str, sample: Path, tmp_path: Path) -> None:
    """DICTIONARY.md has "a pcap", and licences "the licensor": spellings of these names with another separator."""
    capture = next((sample / OTHER).glob("worker-1*.pcap.gz"))
    (tmp_path / name).write_bytes(gzip.decompress(capture.read_bytes()))
    ddnn_traces.ingest(tmp_path / name, tmp_path / "dataset").close()
    release = ddnn_traces.publish(tmp_path / "dataset", tmp_path / "release", **ABOUT).path
    assert "a pcap" in (release / layout.DICTIONARY).read_text()
    assert "capture.pcap" in pq.read_table(release / "captures")["capture_id"].to_pylist()


# --- profiles


#: What each profile withholds, and what a test finds of it in the tables.
PROFILES = {
    "open": (), "careful": ("hash", "size", "clock"), "strict": ("hash", "size", "clock"),
}  # fmt: skip


#: Checks of what a profile changes: columns, keys, ports, and the texts that state it.
BY_PROFILE = (
    "columns", "rows and order", "encoding", "runs", "anonymisation", "data", "data package", "datasheet", "dictionary",
    "agreement",
)  # fmt: skip


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles(profile: str, small: Path, tmp_path: Path) -> None:
    """What is withheld is nowhere in the release, which says so. A strict one passes the checks of what its profile
    changes; other tests verify a careful one, and data/dataset, which is open."""
    release = tmp_path / "release"
    made = ddnn_traces.publish(small, release, profile=profile, **ABOUT).release
    withheld = PROFILES[profile]
    assert made.anonymisation.withheld == withheld
    assert made.anonymisation.ports == ("classed" if profile == "strict" else "kept")
    assert {name: made.options[name] for name in ("hashes", "sizes", "clocks")} == dict.fromkeys(
        ("hashes", "sizes", "clocks"), "withheld" if withheld else "kept"
    )
    columns = [(table, name) for kind in ("hash", "size", "clock") for table, name in schema.identifying(kind)]
    with ddnn_traces.open(small) as before, ddnn_traces.open(release) as after:
        for table, name in columns:
            (there,) = before.sql(f"SELECT count({name}) FROM {table}").row(0)
            assert after.sql(f"SELECT count({name}) FROM {table}").row(0) == (0 if withheld else there,), (table, name)
        digests = before.sql("SELECT coalesce(sha256, blake3) AS digest FROM captures")["digest"].to_list()
    text = b"".join(content(release).values())
    assert [digest.encode() in text for digest in digests] == [not withheld] * len(digests)
    assert all((digest is None) == bool(withheld) for digest in made.provenance[1].inputs.values())
    datasheet = (release / layout.DATASHEET).read_text()
    assert ("SHA-256 and BLAKE3 of the original captures were withheld" in datasheet) == bool(withheld)
    files = {table.name: table.files[0].path for table in made.tables}
    meanings = [
        pq.read_schema(release / files[table]).field(name).metadata[b"meaning"]
        for table, name in columns
        if table in files  # no packets are kept
    ]
    assert len(meanings) == 9
    assert [b"In this release: withheld" in meaning for meaning in meanings] == [bool(withheld)] * len(meanings)
    if profile == "strict":
        assert {row.status for row in checked(release, tmp_path / "scratch", *BY_PROFILE)} == {PASSED}
        assert_connections_that_look_alike_are_numbered(release)


@pytest.mark.nightly
@pytest.mark.parametrize("profile", ["open", "strict"])
def test_a_release_of_a_profile_passes_verify(profile: str, small: Path, tmp_path: Path) -> None:
    release = ddnn_traces.publish(small, tmp_path / "release", profile=profile, **ABOUT).path
    assert {row.status for row in all_found(release, tmp_path / "scratch")} == {PASSED}


def assert_connections_that_look_alike_are_numbered(release: Path) -> None:
    """As classed ports make them."""
    alike = "run_id, src_ip, dst_ip, protocol, src_port, dst_port, encapsulation_id, roce_dest_qp"
    with ddnn_traces.open(release) as dataset:
        found = dataset.sql(
            f"SELECT count(*) AS flows, list_sort(list(connection)) AS numbers FROM flows GROUP BY {alike}"
        )
        assert found_by(dataset, "flow_references") == []
    assert found["flows"].max() > 1, "or this shows nothing"
    assert found["numbers"].to_list() == [list(range(flows)) for flows in found["flows"]]


def test_an_option_wins_over_the_profile(small: Path, tmp_path: Path) -> None:
    careful = ddnn_traces.publish(small, tmp_path / "1", key=tmp_path / "key", **ABOUT).release
    options = ABOUT | {"clocks": "kept", "key": tmp_path / "key", "previous": tmp_path / "1"}
    found = ddnn_traces.publish(small, tmp_path / "2", **options).release
    assert (careful.anonymisation.withheld, found.anonymisation.withheld) == (
        ("hash", "size", "clock"),
        ("hash", "size"),
    )
    assert found.about.version == "2.0.0"
    assert "Option changed: `clocks: withheld -> kept`" in (tmp_path / "2" / layout.CHANGELOG).read_text()
    with pytest.raises(UsageError, match="`profile` carefull: did you mean careful"):
        ddnn_traces.publish(small, tmp_path / "3", profile="carefull", **ABOUT)
    with pytest.raises(UsageError, match=r"ports classed \(`profile` strict\), connections would not"):
        ddnn_traces.publish(small, tmp_path / "3", profile="strict", captures=["no such folder"], **ABOUT)
