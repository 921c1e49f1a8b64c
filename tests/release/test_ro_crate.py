"""ro-crate-metadata.json by roc-validator, without a network, and by rocrate."""

from __future__ import annotations

import dataclasses
import json
import shutil
import socket
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from described import ABOUT, BARE, HOSTILE, copy, described, file_of, put
from described import release as facts_of
from rocrate.rocrate import ROCrate
from rocrate_validator import services
from rocrate_validator.models import Severity

from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import ro_crate
from ddnn_traces.store import layout

RUN = "a run, 100% ~odd+name@x"


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_named: Any) -> None:
        raise OSError("the network is not for this")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(scope="module")
def original(sample_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the sample under its name and under an odd one. Not to be changed."""
    path = tmp_path_factory.mktemp("crate") / "release"
    run = sample_dataset.run_ids[0]
    copy(sample_dataset.path, path, [run], ["runs", "flows"])
    for table in ("runs", "flows"):
        put(path, table, RUN, pq.read_table(file_of(path, table)))
    described(path)
    return path


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    shutil.copytree(original, tmp_path / "release")
    return tmp_path / "release"


def issues(folder: Path, cache: Path, severity: Severity = Severity.RECOMMENDED) -> list[str]:
    """What the validator finds against RO-Crate 1.1."""
    settings = services.ValidationSettings(
        rocrate_uri=str(folder),
        profile_identifier="ro-crate-1.1",
        requirement_severity=severity,
        offline=True,
        cache_path=cache / "cache",
    )
    return [str(issue.message) for issue in services.validate(settings).get_issues()]


def test_it_is_valid_as_required_and_recommended(original: Path, tmp_path: Path) -> None:
    """Except the address of an organisation, which the facts do not have."""
    assert set(issues(original, tmp_path)) <= {"The organization SHOULD have a URL."}


@pytest.mark.parametrize(
    "about",
    [BARE, facts.About(HOSTILE, "LicenseRef-X", (facts.Person(HOSTILE),), "1.0.0", "2026-01-02", licence_text="Ask.")],
)
def test_the_least_and_hostile_words(folder: Path, tmp_path: Path, about: facts.About) -> None:
    described(folder, about)
    assert issues(folder, tmp_path, Severity.REQUIRED) == []


def test_a_missing_file_is_found(folder: Path, tmp_path: Path) -> None:
    file_of(folder, "flows").unlink()
    assert any("part-00000.parquet" in issue for issue in issues(folder, tmp_path))


def test_what_is_not_1_1_is_found(folder: Path, tmp_path: Path) -> None:
    path = folder / layout.RO_CRATE
    document = json.loads(path.read_text())
    document["@graph"] = [entity for entity in document["@graph"] if entity["@id"] != "./"]
    path.write_text(json.dumps(document))
    assert issues(folder, tmp_path, Severity.REQUIRED)


def test_rocrate_reads_it(original: Path) -> None:
    crate = ROCrate(original)
    assert crate.version == "1.1"
    assert crate.root_dataset["name"] == ABOUT.title
    assert [person["name"] for person in crate.root_dataset["author"]] == ["Ada Example", "Grace Example"]
    files = [entity for entity in crate.data_entities if "sha256" in entity.properties()]
    assert len(files) == 2
    assert {entity["contentSize"] for entity in files} == {
        str(path.stat().st_size) for path in original.glob("*/*.parquet")
    }


def test_an_action_a_step(original: Path) -> None:
    crate = ROCrate(original)
    actions = [entity for entity in crate.contextual_entities if entity.type == "CreateAction"]
    assert [action["description"] for action in actions] == [
        "Packets were captured.", "Captures were read.", "Addresses became labels.", "Tables were written.",
    ]  # fmt: skip
    assert (actions[0]["instrument"]["name"], actions[0]["instrument"]["softwareVersion"]) == ("tcpdump", "4.99.3")
    assert [original["name"] for original in actions[1]["object"]] == [
        "worker-1-tcpdump.pcap.gz", "worker-2-tcpdump.pcap",
    ]  # fmt: skip
    assert {value["name"]: value["value"] for value in actions[1]["additionalProperty"]} == {
        "engine": "numba", "packets": "false",
    }  # fmt: skip


def test_each_step_takes_what_the_one_before_made(original: Path) -> None:
    crate = ROCrate(original)
    capture, ingest, anonymise, publish = (crate.get(f"#step-{number}") for number in range(1, 5))
    assert capture.get("object") is None
    assert capture["result"] == ingest["object"]
    assert [file.get("sha256") for file in ingest["object"]] == ["ab" * 32, None]
    assert all("not part of this release" in file["description"] for file in ingest["object"])
    assert ingest["result"] == anonymise["object"]
    assert anonymise["result"] == publish["object"]
    assert publish["result"].id == "./"
    assert [step.get("agent") is None for step in (capture, ingest, anonymise, publish)] == [True, True, True, False]


def test_made_up_and_captured_runs_meet_at_anonymisation(original: Path) -> None:
    made = facts_of(original)
    _, ingest, *rest = made.provenance
    one, two = made.run_ids
    steps = (
        facts.Step("capture", "Captured.", "tcpdump", runs=(one,)),
        facts.Step("generate", "Generated.", "x 1", runs=(two,)),
        dataclasses.replace(ingest, runs=(one,)),
        *rest,
    )
    entities = ro_crate.document(dataclasses.replace(made, provenance=steps))["@graph"]
    actions = {entity["@id"]: entity for entity in entities if entity["@type"] == "CreateAction"}
    assert "object" not in actions["#step-2"]
    assert actions["#step-4"]["object"] == [actions["#step-2"]["result"], actions["#step-3"]["result"]]
    there = {entity["@id"] for entity in entities}
    for action in actions.values():
        for end in ("object", "result"):
            found = action.get(end, [])
            assert {one["@id"] for one in (found if isinstance(found, list) else [found])} <= there


def test_every_file_of_a_release_is_a_part(release: Path) -> None:
    crate = ROCrate(release)
    files = {path.relative_to(release).as_posix() for path in release.rglob("*") if path.is_file()}
    assert {unquote(entity.id) for entity in crate.data_entities if entity.type == "File"} == files - {layout.RO_CRATE}


def test_whom_to_ask_and_who_paid(original: Path) -> None:
    crate = ROCrate(original)
    assert crate.root_dataset["publisher"]["contactPoint"]["email"] == "traces@example.org"
    assert crate.root_dataset["funder"]["name"] == "Example Foundation 42"
    assert crate.root_dataset["keywords"] == "pcap, all-reduce"
    without = dataclasses.replace(ABOUT, publisher=None, contact="the desk")
    people = {e["@id"]: e for e in ro_crate.document(facts_of(original, without))["@graph"]}
    assert people["#contact"]["name"] == "the desk"
    assert people["https://orcid.org/0000-0002-1825-0097"]["contactPoint"] == {"@id": "#contact"}


def test_the_context_is_the_official_one(original: Path) -> None:
    context = json.loads((original / layout.RO_CRATE).read_text())["@context"]
    assert context == ro_crate.context()
    assert len(context) > 2500
    assert context["File"] == "http://schema.org/MediaObject"
