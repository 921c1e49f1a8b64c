"""Push into an S3-compatible store: moto's server, an HTTP server in a process of its own, with a front that can "
"fail."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from publishing import ABOUT, run_push
from small_release import SMALL, content, make
from tools import needs_package
from web import Answer, Front, PowerLoss, Request, server

import ddnn_traces
from ddnn_traces.errors import PushError
from ddnn_traces.release import push
from ddnn_traces.release.push import s3, upload_contents

needs_package("s3fs")
needs_package("moto")
SECRET = "sEcReTkEy0123456789"
FILES = len(SMALL) + 2


@pytest.fixture(scope="module")
def store() -> Iterator[tuple[str, int]]:
    """moto's server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = "import sys; from moto.server import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None
            time.sleep(0.1)
        yield "127.0.0.1", port
    finally:
        process.terminate()
        process.wait()


def request_of(store: tuple[str, int], method: str, path: str, body: bytes = b"") -> bytes:
    connection = http.client.HTTPConnection(*store, timeout=30)
    connection.request(method, path, body)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    assert answer.status < 300, data
    return data


@pytest.fixture
def front(store: tuple[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Front]:
    """In front of an empty store with one bucket; `front.url` is its address."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in credentials(tmp_path).items():
        monkeypatch.setenv(name, value)
    request_of(store, "POST", "/moto-api/reset")
    request_of(store, "PUT", "/bucket")
    front = Front(*store)
    with server(front.handle) as url:
        front.url = url  # type: ignore[attr-defined]
        yield front


def credentials(home: Path) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLEEXAMPLE00", "AWS_SECRET_ACCESS_KEY": SECRET}
    return keys | {"AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(home)}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return make(tmp_path / "release")


def send(release: Path, front: Front, to: str = "s3://bucket/sets/sample") -> tuple[push.Outcome, list[float]]:
    slept: list[float] = []
    options = push.PushOptions(endpoint_url=front.url)  # type: ignore[attr-defined]
    return push.push(release, to, options, retry=push.Retry(attempts=3, sleep=slept.append)), slept


def refused(release: Path, front: Front, to: str = "s3://bucket/sets/sample") -> str:
    with pytest.raises(PushError) as error:
        send(release, front, to)
    assert SECRET not in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def client(store: tuple[str, int]) -> Any:
    """Another client of the store, not what is tested."""
    boto3 = needs_package("boto3")
    keys = {"aws_access_key_id": "another", "aws_secret_access_key": "another", "region_name": "us-east-1"}
    return boto3.client("s3", endpoint_url=f"http://{store[0]}:{store[1]}", **keys)


def stored(store: tuple[str, int], prefix: str = "sets/sample/") -> dict[str, bytes]:
    """Objects below a prefix."""
    other = client(store)
    keys = [entry["Key"] for entry in other.list_objects_v2(Bucket="bucket", Prefix=prefix).get("Contents", [])]
    return {key.removeprefix(prefix): other.get_object(Bucket="bucket", Key=key)["Body"].read() for key in keys}


def digests(store: tuple[str, int]) -> dict[str, str]:
    """MD5 of the objects, by key."""
    entries = client(store).list_objects_v2(Bucket="bucket").get("Contents", [])
    return {entry["Key"].removeprefix("sets/sample/"): entry["ETag"].strip('"') for entry in entries}


def place(store: tuple[str, int], path: str, data: bytes) -> None:
    """Somebody else puts an object into the version."""
    client(store).put_object(Bucket="bucket", Key=f"sets/sample/1.0.0/{path}", Body=data)


def test_versions_under_a_prefix(release: Path, front: Front, store: tuple[str, int], tmp_path: Path) -> None:
    outcome, slept = send(release, front)
    assert (outcome.where, outcome.sent, slept) == ("s3://bucket/sets/sample/1.0.0", FILES, [])
    assert stored(store) == {f"1.0.0/{path}": data for path, data in content(release).items()}
    assert front.puts()[-1].split("?")[0].endswith("/1.0.0/SHA256SUMS")
    front.requests.clear()
    again, _ = send(release, front)
    assert (again.sent, again.there, front.puts()) == (0, FILES, [])
    send(make(tmp_path / "next", version="2.0.0"), front)
    assert {path.partition("/")[0] for path in stored(store)} == {"1.0.0", "2.0.0"}


@pytest.mark.parametrize("cut", ["no answer", "503 and nothing else"])
def test_cut_off_push_goes_on(release: Path, front: Front, store: tuple[str, int], cut: str) -> None:
    answer = Answer(0) if cut == "no answer" else Answer(503, b"<Error><Code>SlowDown</Code></Error>")
    front.spoil = lambda request: answer if request.method == "PUT" and len(set(front.puts())) > 4 else None
    message = refused(release, front)
    assert "tried 3 times; the same command continues from here" in message
    there = stored(store)
    assert len(there) == 4
    assert "1.0.0/SHA256SUMS" not in there
    front.requests.clear()
    front.spoil = lambda request: None
    outcome, _ = send(release, front)
    assert (outcome.sent, outcome.there, len(front.puts())) == (FILES - 4, 4, FILES - 4)
    assert stored(store) == {f"1.0.0/{path}": data for path, data in content(release).items()}


def test_power_that_the_store_loses_after_a_change(front: Front, store: tuple[str, int], tmp_path: Path) -> None:
    """The store keeps what it has confirmed. The list of checksums, by which a version is known, is the last change.
    The same command sends the rest, and versions before stay as they are."""
    before: dict[str, str] = {}
    for changes in (1, 5, FILES - 1, FILES):
        release = make(tmp_path / str(changes), version=f"1.0.{changes}")
        own = {f"1.0.{changes}/{path}": hashlib.md5(data).hexdigest() for path, data in content(release).items()}
        front.spoil = PowerLoss(front._hand_on, changes)
        assert "the same command continues from here" in refused(release, front)
        there = digests(store)
        assert before.items() <= there.items() <= (before | own).items()
        assert len(there) == len(before) + changes
        assert (f"1.0.{changes}/SHA256SUMS" in there) == (changes == FILES)
        front.spoil = lambda request: None
        outcome, _ = send(release, front)
        assert (outcome.sent, outcome.there) == (FILES - changes, changes)
        before |= own
        assert digests(store) == before


@pytest.mark.parametrize("lost", ["LICENSE", "SHA256SUMS"])
def test_what_a_store_has_confirmed_and_lost_is_sent_again(
    lost: str, release: Path, front: Front, store: tuple[str, int]
) -> None:
    send(release, front)
    client(store).delete_object(Bucket="bucket", Key=f"sets/sample/1.0.0/{lost}")
    outcome, _ = send(release, front)
    assert (outcome.sent, outcome.there) == (1, FILES - 1)
    assert stored(store) == {f"1.0.0/{path}": data for path, data in content(release).items()}


def test_trouble_that_passes(release: Path, front: Front) -> None:
    answers = [Answer(503, b"<Error><Code>ServiceUnavailable</Code></Error>", {"Retry-After": "9"})]
    answers.append(Answer(500, b"<Error><Code>InternalError</Code></Error>"))
    front.spoil = lambda request: answers.pop(0) if request.method == "PUT" and answers else None
    outcome, slept = send(release, front)
    assert (outcome.sent, slept) == (FILES, [9.0, 2.0])


def test_left_over_of_another_content_is_replaced(release: Path, front: Front, store: tuple[str, int]) -> None:
    place(store, "LICENSE", b"CC-BY-4.1\n")
    outcome, _ = send(release, front)
    assert (outcome.sent, stored(store)["1.0.0/LICENSE"]) == (FILES, SMALL["LICENSE"])


@pytest.mark.parametrize("change", ["other", "stranger"])
def test_version_is_never_overwritten(
    release: Path, front: Front, store: tuple[str, int], change: str, tmp_path: Path
) -> None:
    if change == "other":
        send(make(tmp_path / "other", SMALL | {"LICENSE": b"CC-BY-4.1\n"}), front)
    else:
        send(release, front)
        place(store, change, b"CC-BY-4.1\n")
    before = stored(store)
    front.requests.clear()
    message = refused(release, front)
    assert ("LICENSE, SHA256SUMS" if change == "other" else change) in message
    assert "another --version" in message
    assert front.puts() == []
    assert stored(store) == before


@pytest.mark.parametrize("change", ["LICENSE", "SHA256SUMS"])
def test_damaged_copy_is_no_other_version(release: Path, front: Front, store: tuple[str, int], change: str) -> None:
    send(release, front)
    place(store, change, b"CC-BY-4.1\n")
    before = stored(store)
    front.requests.clear()
    assert f"1.0.0 there is damaged: {change} " in refused(release, front)
    assert front.puts() == []
    assert stored(store) == before


def test_objects_of_others(release: Path, front: Front, store: tuple[str, int]) -> None:
    place(store, "flows/run_id=x/part-0.parquet", b"")
    assert "holds files that are not of this release (1 object:" in refused(release, front)
    assert len(stored(store)) == 1


def test_content_spoilt_on_the_way(release: Path, front: Front, store: tuple[str, int]) -> None:
    """A byte changes after the client; its checksums are removed, as a proxy of a store may do."""

    def spoil(request: Request) -> Request | None:
        if request.method != "PUT" or not request.path.endswith("LICENSE"):
            return None
        headers = {k: v for k, v in request.headers.items() if "checksum" not in k and k != "x-amz-content-sha256"}
        return Request(request.method, request.path, headers, request.body.replace(b"4.0", b"9.0"))

    front.spoil = spoil
    assert "LICENSE: the object differs from the file that was sent, and was removed" in refused(release, front)
    assert "1.0.0/LICENSE" not in stored(store)


def test_store_with_etags_of_its_own(release: Path, front: Front) -> None:
    """As with encryption by a key of one's own: the objects are read back."""
    send(release, front)

    def spoil(request: Request) -> Answer | None:
        if request.method == "PUT":
            return None
        request.headers.pop("if-match", None)  # this store's clients send its own ETag
        answer = front._hand_on(request)
        answer.headers = {k: '"0"' if k.lower() == "etag" else v for k, v in answer.headers.items()}
        answer.body = re.sub(rb"<ETag>.*?</ETag>", b"<ETag>0</ETag>", answer.body)
        return answer

    front.spoil = spoil
    again, _ = send(release, front)
    assert (again.sent, again.there) == (0, FILES)


@pytest.mark.long
def test_large_file_in_parts(front: Front, store: tuple[str, int], tmp_path: Path) -> None:
    large = os.urandom(1 << 20) * 40
    release = make(tmp_path / "large", SMALL | {"packets/run_id=one/part-0.parquet": large})
    key = "sets/sample/1.0.0/packets/run_id=one/part-0.parquet"
    client(store).create_multipart_upload(Bucket="bucket", Key=key)  # as an interrupted push leaves it
    outcome, _ = send(release, front)
    assert stored(store)["1.0.0/packets/run_id=one/part-0.parquet"] == large
    assert len([path for path in front.puts() if "partNumber=" in path]) == 3
    assert "Uploads" not in client(store).list_multipart_uploads(Bucket="bucket")
    again, _ = send(release, front)
    assert (outcome.sent, again.sent) == (FILES + 1, 0)


def test_no_such_bucket(release: Path, front: Front) -> None:
    assert "has no bucket nothing-here" in refused(release, front, "s3://nothing-here/x")


def test_wrong_key(release: Path, front: Front, store: tuple[str, int]) -> None:
    request_of(store, "POST", "/moto-api/reset-auth", b"0")  # from now on moto checks permissions
    try:
        message = refused(release, front)
    finally:
        request_of(store, "POST", "/moto-api/reset-auth", b"inf")
    assert "the store refuses (" in message
    assert "AWS_ACCESS_KEY_ID" in message


def test_no_key(release: Path, front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "no credentials for the store were found; give them" in refused(release, front)


def test_full_store(release: Path, front: Front) -> None:
    full = Answer(403, b"<Error><Code>QuotaExceeded</Code><Message>Bucket quota exceeded</Message></Error>")
    front.spoil = lambda request: full if request.method == "PUT" else None
    assert "Bucket quota exceeded" in refused(release, front)


def test_no_server(release: Path, front: Front) -> None:
    front.url = "http://127.0.0.1:9"  # type: ignore[attr-defined]
    assert "the store does not answer as it should" in refused(release, front)


@pytest.mark.long
def test_ctrl_c_then_on(release: Path, front: Front, store: tuple[str, int], tmp_path: Path) -> None:
    """The command is interrupted while its third file is on the way, and goes on when it is called again."""
    front.spoil = lambda request: time.sleep(20) if request.method == "PUT" and len(front.puts()) == 3 else None  # type: ignore[func-returns-value]
    call = (release, "--to", "s3://bucket/sets/sample", "--endpoint-url", front.url)  # type: ignore[attr-defined]
    process = run_push(*call, cwd=tmp_path, **credentials(tmp_path))
    while len(front.puts()) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=15)
    assert process.returncode == 130
    assert "interrupted; what is at s3://bucket/sets/sample cannot be mistaken for the whole release; the same" in err
    front.spoil = lambda request: None
    again = run_push(*call, cwd=tmp_path, **credentials(tmp_path))
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert f"sent {FILES - 2} files" in err
    assert stored(store) == {f"1.0.0/{path}": data for path, data in content(release).items()}


def test_etag_is_that_of_the_parts(tmp_path: Path) -> None:
    """An ETag of AWS for a file of 2 parts is the MD5 of the parts' MD5s, with -2; here worked out by hand."""
    item = make_item(tmp_path, b"a" * s3._PART + b"b" * s3._PART)
    parts = b"".join(hashlib.md5(letter * s3._PART).digest() for letter in (b"a", b"b"))
    assert s3._etag(item) == f"{hashlib.md5(parts).hexdigest()}-2"


def make_item(folder: Path, data: bytes) -> upload_contents.Item:
    (folder / "file").write_bytes(data)
    return upload_contents.Item("file", len(data), "", folder / "file")


@pytest.mark.long
def test_what_was_pushed_can_be_opened(small: Path, front: Front, tmp_path: Path, monkeypatch: Any) -> None:
    """A release of one run: one file of each table, each requested alone."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)  # type: ignore[attr-defined]
    out = tmp_path / "one"
    ddnn_traces.publish(small, out, runs=["torch-mlp1-sgd-32-gloo-0ms-ring"], **ABOUT)
    send(out, front)
    fsspec.filesystem("s3").clear_instance_cache()
    with ddnn_traces.open("s3://bucket/sets/sample/1.0.0") as dataset, ddnn_traces.open(out) as plain:
        assert dataset.run_ids == plain.run_ids
        for query in ("traffic_matrix", "step_volume"):
            assert dataset.query(query).equals(plain.query(query))
    fsspec.filesystem("s3").clear_instance_cache()  # else other tests would use this server
