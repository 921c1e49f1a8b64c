"""Push to the Hugging Face Hub: its real client library against hub_server.py, whose head says what it is made "
"after."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import HubServer
from publishing import run_push
from small_release import SMALL, content, make
from tools import needs_package
from web import Answer, PowerLoss, json_answer, server

from ddnn_traces.errors import PushError
from ddnn_traces.release import push

needs_package("huggingface_hub")
TOKEN = "hf_secretsecretsecret0123"
TO = "hf://datasets/ada/traces"
FILES = len(SMALL) + 2


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    from huggingface_hub import constants
    from huggingface_hub.utils import _http

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(_http.time, "sleep", lambda _: None)  # the client's own pauses
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    here = HubServer(TOKEN)
    with server(here.handle) as url:
        here.url = url
        yield here


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return make(tmp_path / "release")


def send(release: Path, hub: HubServer, private: bool = False) -> tuple[push.Outcome, list[float]]:
    slept: list[float] = []
    options = push.PushOptions(endpoint_url=hub.url, private=private)
    return push.push(release, TO, options, retry=push.Retry(attempts=3, sleep=slept.append)), slept


def refused(release: Path, hub: HubServer) -> str:
    with pytest.raises(PushError) as error:
        send(release, hub)
    assert TOKEN not in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def writes(hub: HubServer) -> list[str]:
    """The requests that change something."""
    parts = ("/lfs/", "/commit/", "/tag/", "/repos/create")
    return [request.path for request in hub.requests if any(part in request.path for part in parts)]


@pytest.mark.parametrize("private", [False, True])
def test_new_repository(release: Path, hub: HubServer, private: bool) -> None:
    outcome, slept = send(release, hub, private)
    assert (outcome.where, outcome.sent, slept) == ("hf://datasets/ada/traces@v1.0.0", FILES, [])
    assert hub.private == private
    assert hub.tags == {"v1.0.0": hub.head}
    assert {path: data for path, data in hub.tree("v1.0.0").items() if path != ".gitattributes"} == content(release)
    assert writes(hub)[-1].endswith(f"/tag/{hub.head}")


def test_same_version_again(release: Path, hub: HubServer) -> None:
    send(release, hub)
    hub.requests.clear()
    again, _ = send(release, hub)
    assert (again.sent, again.there, writes(hub)) == (0, FILES, [])


def test_version_is_never_overwritten(release: Path, hub: HubServer, tmp_path: Path) -> None:
    send(release, hub)
    hub.requests.clear()
    message = refused(make(tmp_path / "other", SMALL | {"LICENSE": b"other"}), hub)
    assert "v1.0.0: version 1.0.0 is there with another content (2 files: LICENSE" in message
    assert "another --version" in message
    assert writes(hub) == []


def test_next_version(release: Path, hub: HubServer, tmp_path: Path) -> None:
    """The version before keeps its tag; files that are no more in the release go from main."""
    send(release, hub)
    fewer = {path: data for path, data in SMALL.items() if path != "flows/run_id=one/part-0.parquet"}
    following = make(tmp_path / "next", fewer, "1.1.0")
    outcome, _ = send(following, hub)
    assert set(hub.tags) == {"v1.0.0", "v1.1.0"}
    assert {path: data for path, data in hub.tree().items() if path != ".gitattributes"} == content(following)
    assert {path: data for path, data in hub.tree("v1.0.0").items() if path != ".gitattributes"} == content(release)
    assert outcome.sent == 2  # release.json and SHA256SUMS


@pytest.mark.parametrize("where", ["/lfs/", "/commit/", "/tag/"])
def test_cut_off_push_goes_on(release: Path, hub: HubServer, where: str) -> None:
    hub.create()
    paths = []

    def spoil(request: object) -> Answer | None:
        path = request.path  # type: ignore[attr-defined]
        if where in path:
            paths.append(path)
        return Answer(0) if where in path and len(set(paths)) > (1 if where == "/lfs/" else 0) else None

    hub.spoil = spoil  # type: ignore[assignment]
    assert "the same command continues from here" in refused(release, hub)
    assert hub.tags == {}
    large = sorted(hub.lfs)
    assert large or where == "/lfs/"
    hub.spoil = lambda request: None
    hub.requests.clear()
    send(release, hub)
    assert not [path for path in writes(hub) if path.removeprefix("/lfs/") in large]
    assert [path for path in writes(hub) if "/commit/" in path] == ([] if where == "/tag/" else writes(hub)[-2:-1])
    assert {path: data for path, data in hub.tree("v1.0.0").items() if path != ".gitattributes"} == content(release)


@pytest.mark.parametrize("earlier", [False, True])
def test_power_that_the_hub_loses_after_each_change(earlier: bool, hub: HubServer, tmp_path: Path) -> None:
    """A version has its tag when all of it is there; the same command goes on, and the version before stays."""
    release = make(tmp_path / "release", version="1.1.0")
    if earlier:
        other = {path: data * 2 for path, data in SMALL.items() if path != "captures/one/empty.log"}
        send(make(tmp_path / "earlier", other), hub)
    start = (hub.commits, hub.tags, hub.lfs, hub.head)
    tagged = []
    for changes in itertools.count(1):
        hub.commits, hub.tags, hub.lfs, hub.head = copy.deepcopy(start)
        hub.spoil = loss = PowerLoss(hub.answer, changes)
        with contextlib.suppress(PushError):
            send(release, hub)
        was_lost = not loss.changes
        tagged.append("v1.1.0" in hub.tags)
        hub.spoil = lambda request: None
        for again in (True, False):  # what a reader sees before and after the same command
            if "v1.1.0" in hub.tags:
                tree = hub.tree("v1.1.0")
                assert {path: data for path, data in tree.items() if path != ".gitattributes"} == content(release)
            for tag, revision in start[1].items():
                assert hub.tags[tag] == revision
                assert hub.tree(tag) == (start[0] or {})[revision]
            if again:
                send(release, hub)
        assert "v1.1.0" in hub.tags
        if not was_lost:
            break
    assert tagged == [False] * (len(tagged) - 2) + [True, True]
    assert len(tagged) > (3 if earlier else 6)


def test_files_of_others(release: Path, hub: HubServer) -> None:
    hub.create({"thesis.tex": b"mine"})
    assert "holds files that are not of a release (thesis.tex)" in refused(release, hub)
    assert writes(hub) == []


def test_trouble_that_passes(release: Path, hub: HubServer) -> None:
    answers = [json_answer({"error": "slow"}, 429, **{"Retry-After": "4"}), json_answer({"error": "bad gateway"}, 502)]
    hub.spoil = lambda request: answers.pop(0) if "/commit/" in request.path and answers else None
    assert send(release, hub)[1] == [4.0, 2.0]


def test_content_spoilt_on_the_way(release: Path, hub: HubServer) -> None:
    """What the Hub says it holds is compared before anything gets its tag."""
    entry = hub._entry
    hub._entry = lambda name, data: entry(name, data[:-1] + b"?" if name == "LICENSE" else data)  # type: ignore[method-assign]
    assert "the files there differ from those that were sent (LICENSE); nothing was tagged" in refused(release, hub)
    assert hub.tags == {}


def test_wrong_token(release: Path, hub: HubServer) -> None:
    hub.token = "hf_another"
    message = refused(release, hub)
    assert "the Hub refuses (" in message
    assert "HF_TOKEN" in message


def test_token_that_may_not_write(release: Path, hub: HubServer) -> None:
    hub.create()
    answer = json_answer({"error": "Forbidden: pass a token with the write role"}, 403)
    hub.spoil = lambda request: answer if "/commit/" in request.path or "preupload" in request.path else None
    assert "the Hub refuses (" in refused(release, hub)


def test_no_token(release: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    assert "no token for the Hub was found; give a token that may write" in refused(release, hub)
    assert hub.requests == []


def test_full(release: Path, hub: HubServer) -> None:
    answer = json_answer({"error": "Private repository storage limit reached"}, 400)
    hub.spoil = lambda request: answer if "objects/batch" in request.path else None
    assert "the Hub has no space for it" in refused(release, hub)


@pytest.mark.parametrize(
    ("kind", "state", "body"),
    [
        ("application/xml", 404, b"<?xml version='1.0'?>\n<Error><Code>NoSuchBucket</Code></Error>"),
        ("text/html", 200, b"<html><body>Welcome</body></html>"),
        ("text/html; charset=utf-8", 404, b"<!DOCTYPE html><p>Not found</p>"),
    ],
)
def test_server_that_is_no_hub(release: Path, hub: HubServer, kind: str, state: int, body: bytes) -> None:
    hub.spoil = lambda request: Answer(state, body, {"Content-Type": kind})
    message = refused(release, hub)
    assert "the server there is not a Hub" in message
    assert "check --endpoint-url or HF_ENDPOINT" in message
    assert "<" not in message
    assert "\n" not in message


def test_no_server(release: Path, hub: HubServer) -> None:
    hub.url = "http://127.0.0.1:9"
    assert "the Hub cannot be reached" in refused(release, hub)


def test_command(release: Path, hub: HubServer, tmp_path: Path) -> None:
    environment = {
        "HF_TOKEN": TOKEN,
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(tmp_path / "hf"),
    }
    process = run_push(release, "--to", TO, cwd=tmp_path, **environment)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "")
    assert err.splitlines() == [
        f"commit {hub.head}",
        f"{TO}@v1.0.0: sent {FILES} files, {sum(map(len, content(release).values())):,} bytes",
    ]
    assert set(hub.tags) == {"v1.0.0"}
