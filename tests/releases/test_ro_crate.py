"""ro-crate-metadata.json by roc-validator, without a network, and by rocrate."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from described import ABOUT, BARE, HOSTILE, copy, described, put
from rocrate.rocrate import ROCrate
from rocrate_validator import services
from rocrate_validator.models import Severity

from ddnn_traces import parquet
from ddnn_traces.dataset import Dataset
from ddnn_traces.releases import facts, layout
from ddnn_traces.releases.descriptions import ro_crate

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
        file = parquet.partition(path, table, run) / "part-0.parquet"
        put(path, table, RUN, pq.read_table(file, partitioning=None))
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
    """But for the address of an organisation, which nobody is asked for."""
    assert set(issues(original, tmp_path)) <= {"The organization SHOULD have a URL."}


@pytest.mark.parametrize(
    "about",
    [BARE, facts.About(HOSTILE, "LicenseRef-X", (facts.Person(HOSTILE),), "1.0.0", "2026-01-02", licence_text="Ask.")],
)
def test_the_least_and_hostile_words(folder: Path, tmp_path: Path, about: facts.About) -> None:
    described(folder, about)
    assert issues(folder, tmp_path, Severity.REQUIRED) == []


def test_a_missing_file_is_found(folder: Path, tmp_path: Path) -> None:
    (parquet.partition(folder, "flows", RUN) / "part-0.parquet").unlink()
    assert any("part-0.parquet" in issue for issue in issues(folder, tmp_path))


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
    assert len(files) == 4
    assert {entity["contentSize"] for entity in files} == {
        str(path.stat().st_size) for path in original.glob("*/*/*.parquet")
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


def test_the_context_is_the_official_one(original: Path) -> None:
    context = json.loads((original / layout.RO_CRATE).read_text())["@context"]
    assert context == ro_crate.context()
    assert len(context) > 2500
    assert context["File"] == "http://schema.org/MediaObject"
