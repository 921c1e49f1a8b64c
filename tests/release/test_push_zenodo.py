"""Push to Zenodo: against zenodo_server.py, made after recorded exchanges, which its head names."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from publishing import run_push
from small_release import SMALL, content, facts_of, make
from web import Answer, Request, json_answer, server
from zenodo_server import ZenodoServer

from ddnn_traces.errors import PushError
from ddnn_traces.release import push
from ddnn_traces.release.push import contents, zenodo

pytest.importorskip("requests")
TOKEN = "zenodo-secret-0123456789"
ARCHIVE = "sample-traces-1.0.0.zip"
WITH_ARCHIVE = {"README.md", "LICENSE", "datacite.json", "SHA256SUMS"}


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ZenodoServer]:
    monkeypatch.setenv("ZENODO_SANDBOX_TOKEN", TOKEN)
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("HOME", str(tmp_path))  # where requests would find another way in
    here = ZenodoServer(TOKEN)
    with server(here.handle) as url:
        here.url = f"{url}/api"
        yield here


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return make(tmp_path / "release")


def send(release: Path, site: ZenodoServer, **options: object) -> tuple[push.Outcome, list[float]]:
    slept: list[float] = []
    chosen = push.PushOptions(endpoint_url=site.url, **options)  # type: ignore[arg-type]
    return push.push(release, "zenodo-sandbox", chosen, retry=push.Retry(attempts=3, sleep=slept.append)), slept


def refused(release: Path, site: ZenodoServer, **options: object) -> str:
    with pytest.raises(PushError) as error:
        send(release, site, **options)
    assert TOKEN not in str(error.value)
    return str(error.value)


def writes(site: ZenodoServer) -> list[str]:
    """The requests that change something."""
    return [f"{request.method} {request.path}" for request in site.requests if request.method != "GET"]


def test_draft(release: Path, site: ZenodoServer) -> None:
    outcome, slept = send(release, site)
    (deposit,) = site.deposits.values()
    assert (outcome.where, outcome.sent, slept) == ("https://zenodo.org/deposit/1000", 5, [])
    assert set(deposit.files) == {ARCHIVE, *WITH_ARCHIVE}
    assert not deposit.submitted
    assert any("10.5281/zenodo.1000" in note for note in outcome.notes)
    assert all(TOKEN not in request.path for request in site.requests)
    with zipfile.ZipFile(io.BytesIO(deposit.files[ARCHIVE])) as packed:
        assert {name: packed.read(name) for name in packed.namelist()} == content(release)


def test_metadata(site: ZenodoServer, tmp_path: Path) -> None:
    about = {"description": "First <b>.\n\nSecond.", "keywords": ("pcap",)}
    send(make(tmp_path / "described", **about), site)
    (deposit,) = site.deposits.values()
    assert deposit.metadata == {
        "upload_type": "dataset",
        "title": "Sample <traces>",
        "publication_date": "2026-11-22",
        "version": "1.0.0",
        "creators": [{"name": "Example, Ada", "affiliation": "Example University", "orcid": "0000-0002-1825-0097"}],
        "description": "<p>First &lt;b&gt;.</p><p>Second.</p>",
        "access_right": "open",
        "license": "cc-by-4.0",
        "keywords": ["pcap"],
        "related_identifiers": [
            {
                "identifier": "10.23919/CNSM52442.2021.9615524",
                "relation": "isSupplementTo",
                "resource_type": "publication-article",
            }
        ],
        "prereserve_doi": True,
    }


@pytest.mark.parametrize(
    ("doi", "site", "kept"),
    [
        ("10.14459/2021mp1632489", "zenodo", True),
        ("10.14459/2021mp1632489", "zenodo-sandbox", False),
        ("10.5281/zenodo.5", "zenodo", False),
    ],
)
def test_doi_of_ones_own(doi: str, site: str, kept: bool) -> None:
    assert ("doi" in zenodo.metadata_of(facts_of(doi=doi), site)) == kept


def test_cut_off_push_goes_on_in_the_same_draft(release: Path, site: ZenodoServer) -> None:
    site.spoil = lambda request: Answer(0) if request.path.endswith("/LICENSE") else None
    message = refused(release, site)
    assert "Zenodo cannot be reached" in message
    assert "tried 3 times; the same command continues from here" in message
    assert ARCHIVE in site.deposits[1000].files
    site.spoil = lambda request: None
    site.requests.clear()
    outcome, _ = send(release, site)
    assert list(site.deposits) == [1000]
    assert not any(ARCHIVE in path for path in writes(site))
    assert outcome.sent + outcome.there == 5
    assert set(site.deposits[1000].files) == {ARCHIVE, *WITH_ARCHIVE}


def test_trouble_that_passes(release: Path, site: ZenodoServer) -> None:
    answers = [json_answer({}, 429, **{"Retry-After": "3"}), json_answer({}, 502)]
    site.spoil = lambda request: answers.pop(0) if request.method == "PUT" and answers else None
    assert send(release, site)[1] == [3.0, 2.0]


def test_public_only_on_request(release: Path, site: ZenodoServer) -> None:
    send(release, site)
    outcome, _ = send(release, site, publish_deposit=True)
    assert (outcome.sent, site.deposits[1000].submitted) == (0, True)
    assert outcome.notes == ("public; DOI 10.5281/zenodo.1000",)


def test_public_record_is_never_touched(release: Path, site: ZenodoServer, tmp_path: Path) -> None:
    send(release, site, publish_deposit=True)
    site.requests.clear()
    again, _ = send(release, site)
    by_number, _ = send(release, site, record=1000)
    assert (again.sent, by_number.sent, writes(site)) == (0, 0, [])
    other = make(tmp_path / "other", SMALL | {"LICENSE": b"other"})
    for options in ({}, {"record": 1000}):
        assert "is there with another content" in refused(other, site, **options)
    assert writes(site) == []


def test_new_version_of_a_record(release: Path, site: ZenodoServer, tmp_path: Path) -> None:
    send(release, site, publish_deposit=True)
    before = dict(site.deposits[1000].files)
    outcome, _ = send(make(tmp_path / "next", SMALL, "1.1.0"), site, record=1000, publish_deposit=True)
    assert site.deposits[1000].files == before
    draft = site.deposits[1001]
    assert (draft.metadata["version"], draft.submitted) == ("1.1.0", True)
    assert set(draft.files) == {"sample-traces-1.1.0.zip", *WITH_ARCHIVE}  # the archive of the version before is out
    assert outcome.there == 3  # README.md, LICENSE and datacite.json are the same


def test_other_files_in_a_draft(release: Path, site: ZenodoServer) -> None:
    send(release, site)
    site.deposits[1000].files["notes.pdf"] = b"mine"
    assert "holds files that are not of this release (notes.pdf)" in refused(release, site)
    assert site.deposits[1000].files["notes.pdf"] == b"mine"


def test_content_spoilt_on_the_way(release: Path, site: ZenodoServer) -> None:
    def spoil(request: Request) -> None:
        if request.path.endswith("/LICENSE"):
            request.body = request.body.replace(b"4.0", b"9.0")

    site.spoil = spoil
    assert "LICENSE: the file there differs from the one that was sent, and was removed" in refused(release, site)
    assert "LICENSE" not in site.deposits[1000].files


def test_wrong_token(release: Path, site: ZenodoServer) -> None:
    site.token = "another"
    assert "refuses the token (The server could not verify" in refused(release, site)


def test_no_token(release: Path, site: ZenodoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZENODO_SANDBOX_TOKEN")
    assert "put it into the environment as ZENODO_SANDBOX_TOKEN" in refused(release, site)
    assert site.requests == []


def test_token_goes_nowhere_else(release: Path, site: ZenodoServer) -> None:
    """A server that names another one as the place for the files gets no data there."""
    state_of = site._state_of
    site._state_of = lambda deposit: state_of(deposit) | {"links": {"bucket": "http://evil.example/files", "self": "x"}}  # type: ignore[method-assign]
    assert "names another server, http://evil.example/files" in refused(release, site)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (json_answer({"message": "Validation error.", "errors": [{"field": "metadata.license", "message": "bad"}]},
                     400), "Validation error.; metadata.license: bad"),
        (json_answer({"message": f"echo {TOKEN}"}, 400), r"echo \*\*\*"),
        (Answer(413, b"<html>"), "no space"),
        (Answer(301, b"", {"Location": "http://evil.example/"}), "HTTP 301"),
    ],
)  # fmt: skip
def test_refusals(release: Path, site: ZenodoServer, answer: Answer, message: str) -> None:
    site.spoil = lambda request: answer if request.method == "POST" else None
    with pytest.raises(PushError, match=message):
        send(release, site)


def test_no_such_record(release: Path, site: ZenodoServer) -> None:
    assert "check --record" in refused(release, site, record=77)


def test_archive_is_the_same_each_time(release: Path) -> None:
    first = contents.archive_of(contents.read(release))
    data = b"".join(first)
    assert len(data) == len(first) == contents.archive_of(contents.read(release)).size
    assert contents.archive_of(contents.read(release)).md5 == first.md5


def test_command(release: Path, site: ZenodoServer, tmp_path: Path) -> None:
    process = run_push(
        release, "--to", "zenodo-sandbox", "--endpoint-url", site.url, cwd=tmp_path, ZENODO_SANDBOX_TOKEN=TOKEN
    )
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "a draft: examine it and publish it there" in err
    assert TOKEN not in err
