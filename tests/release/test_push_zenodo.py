"""Push to Zenodo: against zenodo_server.py, made after recorded exchanges, which its head names."""

from __future__ import annotations

import contextlib
import io
import itertools
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from publishing import run_push
from small_release import SMALL, content, facts_of, make
from tools import RunCommand, needs_package
from web import Answer, PowerLoss, Request, json_answer, server
from zenodo_server import ZenodoServer

from ddnn_traces.cli import releases
from ddnn_traces.errors import DraftError, PushError
from ddnn_traces.release import facts, push
from ddnn_traces.release.push import upload_contents, zenodo

needs_package("requests")
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
    with zipfile.ZipFile(io.BytesIO(deposit.files[ARCHIVE] or b"")) as packed:
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
        "language": "eng",
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
    ("person", "name"),
    [
        (facts.Person("Ada Lovelace"), "Lovelace, Ada"),
        (facts.Person("Lovelace, Ada King"), "Lovelace, Ada King"),
        (facts.Person("Jan van der Berg"), "van der Berg, Jan"),
        (facts.Person("Plato"), "Plato"),
        (facts.Person("Technical University of Munich"), "Technical University of Munich"),
        (facts.Person("Institute for Networks, Munich"), "Institute for Networks, Munich"),
        (facts.Person("Sand and Sea", organisation=True), "Sand and Sea"),
        (facts.Person("Ada Group", organisation=False), "Group, Ada"),
        (facts.Person("Ada Group", "0000-0002-1825-0097"), "Group, Ada"),
        (facts.Person("Lab, Ada"), "Lab, Ada"),
    ],
)
def test_creators_are_family_and_given_name(person: facts.Person, name: str) -> None:
    described = zenodo.metadata_of(facts_of(creators=(person,)), "zenodo")
    assert described["creators"] == [{"name": name} | ({"orcid": person.orcid} if person.orcid else {})]


@pytest.mark.parametrize(
    ("licence", "known"),
    [("ODbL-1.0", "odbl-1.0"), ("CDLA-Permissive-2.0", "other-open"), ("LicenseRef-mine", "notspecified")],
)
def test_licences_are_those_that_zenodo_knows(licence: str, known: str) -> None:
    described = zenodo.metadata_of(facts_of(licence=licence, licence_text="Text."), "zenodo")
    assert described["license"] == known
    assert (f"<p>Licence: {licence}, see LICENSE</p>" in described.get("notes", "")) == (known != "odbl-1.0")


def test_contact_and_funding_are_notes() -> None:
    described = zenodo.metadata_of(facts_of(contact="Ada <ada@uni.de>", funding=("A 1", "B 2")), "zenodo")
    assert described["notes"] == "<p>Contact: Ada &lt;ada@uni.de&gt;</p><p>Funding: A 1; B 2</p>"


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


def cut(data: bytes) -> Iterator[bytes]:
    """The first half, and a Ctrl-C."""
    yield data[: len(data) // 2]
    raise KeyboardInterrupt


def test_interrupted_in_the_middle_of_the_archive(
    release: Path, site: ZenodoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = b"".join(zenodo.archive_of(upload_contents.read(release)))
    broken_off = threading.Event()
    answer = site.answer

    def tell(request: Request) -> Answer:
        answered = answer(request)
        if request.path.endswith(ARCHIVE):
            broken_off.set()
        return answered

    site.answer = tell  # type: ignore[method-assign]
    with monkeypatch.context() as patched:
        patched.setattr(zenodo.Archive, "__iter__", lambda self: cut(data))
        with pytest.raises(KeyboardInterrupt, match="the same command continues"):
            send(release, site)
    assert broken_off.wait(60)
    assert site.deposits[1000].files == {ARCHIVE: None}
    outcome, _ = send(release, site)
    assert list(site.deposits) == [1000]
    assert (outcome.sent, site.deposits[1000].files[ARCHIVE]) == (5, data)


def test_interrupted_before_it_is_made_public(release: Path, site: ZenodoServer) -> None:
    site.spoil = lambda request: Answer(0) if request.path.endswith("/publish") else None
    assert "the same command continues" in refused(release, site, publish_deposit=True)
    assert not site.deposits[1000].submitted
    site.spoil = lambda request: None
    site.requests.clear()
    outcome, _ = send(release, site, publish_deposit=True)
    assert (outcome.sent, outcome.there, site.deposits[1000].submitted) == (0, 5, True)
    assert writes(site) == ["POST /api/deposit/depositions/1000/actions/publish"]


def test_power_that_zenodo_loses_after_each_change(site: ZenodoServer, tmp_path: Path) -> None:
    """A record is public when all of it is there; the same command goes on in the same draft."""
    public = []
    for changes in itertools.count(1):
        release = make(tmp_path / str(changes), version=f"1.0.{changes}")
        expected = {name: data for name, data in content(release).items() if name in WITH_ARCHIVE}
        expected[ARCHIVE.replace("1.0.0", f"1.0.{changes}")] = b"".join(
            zenodo.archive_of(upload_contents.read(release))
        )
        site.spoil = loss = PowerLoss(site.answer, changes)
        with contextlib.suppress(PushError):
            send(release, site, publish_deposit=True)
        was_lost = not loss.changes
        deposit = site.deposits[999 + changes]
        assert deposit.files.items() <= expected.items()
        assert deposit.files == expected or not deposit.submitted
        public.append(deposit.submitted)
        site.spoil = lambda request: None
        send(release, site, publish_deposit=True)
        assert (len(site.deposits), deposit.files, deposit.submitted) == (changes, expected, True)
        if not was_lost:
            break
    assert public == [False] * (len(public) - 2) + [True, True]
    assert len(public) > len(expected) + 2


@pytest.mark.parametrize(
    "lost", ["POST /api/deposit/depositions", "POST /api/deposit/depositions/1000/actions/publish"]
)
def test_an_answer_that_is_lost_is_not_repeated(release: Path, site: ZenodoServer, lost: str) -> None:
    """The request was carried out: a second deposit would be made, or a public one refuse to be published."""
    answer, losses = site.answer, [lost]

    def lose(request: Request) -> Answer:
        answered = answer(request)
        if f"{request.method} {request.path}" in losses:
            losses.clear()
            return Answer(0)
        return answered

    site.answer = lose  # type: ignore[method-assign]
    outcome, _ = send(release, site, publish_deposit=True)
    assert list(site.deposits) == [1000]
    assert (outcome.notes, losses) == (("public; DOI 10.5281/zenodo.1000",), [])


def test_only_what_is_missing_is_sent(release: Path, site: ZenodoServer) -> None:
    send(release, site)
    del site.deposits[1000].files["LICENSE"]
    site.requests.clear()
    assert send(release, site)[0].sent == 1
    assert writes(site) == ["PUT /api/files/1000/LICENSE"]


@pytest.mark.parametrize("record", [None, 1000])
def test_draft_with_other_content_is_overwritten_on_request_only(
    release: Path, site: ZenodoServer, tmp_path: Path, record: int | None
) -> None:
    send(release, site)
    site.deposits[1000].metadata["description"] = "by hand"
    before = dict(site.deposits[1000].files)
    other = make(tmp_path / "other", SMALL | {"LICENSE": b"other"}, description="Other.")
    site.requests.clear()
    with pytest.raises(
        DraftError, match=r"a draft of version 1.0.0 is there with other content \(LICENSE, SHA256SUMS, "
    ):
        send(other, site, record=record)
    assert (writes(site), site.deposits[1000].files) == ([], before)
    outcome, _ = send(other, site, record=record, overwrite_draft=True)
    assert list(site.deposits) == [1000]
    assert (outcome.sent, outcome.there) == (3, 2)
    assert site.deposits[1000].files["LICENSE"] == b"other"
    assert site.deposits[1000].metadata["description"] == "<p>Other.</p>"


def test_draft_of_another_title_is_not_overwritten(release: Path, site: ZenodoServer) -> None:
    site._new({"title": "Another", "version": "3"})
    with pytest.raises(DraftError, match=r"other content \(title and version \(Another 3\)\); .* --overwrite-draft"):
        send(release, site, record=1000)
    assert writes(site) == []
    site._new({})  # made there by hand, and empty
    send(release, site, record=1001)
    assert site.deposits[1001].metadata["title"] == "Sample <traces>"


def test_description_edited_in_the_draft_stays(release: Path, site: ZenodoServer) -> None:
    send(release, site)
    site.deposits[1000].metadata["description"] = "by hand"
    send(release, site, publish_deposit=True)
    assert site.deposits[1000].metadata["description"] == "by hand"


def test_interrupted_new_version_continues(release: Path, site: ZenodoServer, tmp_path: Path) -> None:
    """Files of the version before are not other content."""
    send(release, site, publish_deposit=True)
    following = make(tmp_path / "next", SMALL | {"LICENSE": b"other"}, "1.1.0")
    site.spoil = lambda request: Answer(0) if request.path.endswith("/SHA256SUMS") else None
    refused(following, site, record=1000)
    site.spoil = lambda request: None
    outcome, _ = send(following, site, record=1000)
    assert (outcome.sent, outcome.there) == (1, 4)


def test_the_command_asks_before_it_overwrites_a_draft(
    release: Path, site: ZenodoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: RunCommand
) -> None:
    send(release, site)
    other = make(tmp_path / "other", SMALL | {"LICENSE": b"other"})
    call = ("push", other, "--to", "zenodo-sandbox", "--endpoint-url", site.url)
    before = dict(site.deposits[1000].files)
    not_asked = command(*call)
    monkeypatch.setattr(releases, "_is_terminal", lambda: True)
    no = command(*call, stdin=b"n\n")
    assert site.deposits[1000].files == before
    yes = command(*call, stdin=b"y\n")
    assert [answer.returncode for answer in (not_asked, no, yes)] == [1, 1, 0]
    assert b"--overwrite-draft" in not_asked.stderr
    assert b"Overwrite the draft? [y/N]" in no.stderr
    assert site.deposits[1000].files["LICENSE"] == b"other"


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
    first = zenodo.archive_of(upload_contents.read(release))
    data = b"".join(first)
    assert len(data) == len(first) == zenodo.archive_of(upload_contents.read(release)).size
    assert zenodo.archive_of(upload_contents.read(release)).md5 == first.md5


def test_command(release: Path, site: ZenodoServer, tmp_path: Path) -> None:
    process = run_push(
        release, "--to", "zenodo-sandbox", "--endpoint-url", site.url, cwd=tmp_path, ZENODO_SANDBOX_TOKEN=TOKEN
    )
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert "a draft: examine it and publish it there" in err
    assert TOKEN not in err
