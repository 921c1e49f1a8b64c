"""URLs of object stores: what messages show of them, and each failure as one line with the next step."""

from __future__ import annotations

import sys

import pytest

from ddnn_traces.errors import StorageError, UsageError
from ddnn_traces.store import object_store

URL = "s3://bucket/dataset"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://bucket/a b", "s3://bucket/a b"),
        ("https://me:secret@host/a?X-Amz-Signature=secret#secret", "https://host/a"),
        ("https://host/a?sig=secret", "https://host/a"),
        ("s3://KEY:sec/ret@bucket/a", "s3://bucket/a"),
        ("abfs://container@account/a", "abfs://container@account/a"),
        ("s3://[secret", "s3://..."),
    ],
)
def test_a_url_is_shown_without_secrets(url: str, shown: str) -> None:
    assert object_store.shown(url) == shown


def test_texts_of_libraries_lose_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "my+secret/key")
    text = "\x1b[31mGET\x1b[0m https://h/a?X-Amz-Signature=5ec\nwith my+secret/key, AKIAABCDEFGHIJKLMNOP"
    assert object_store.scrubbed(text) == "GET https://h/a?... with ..., ..."


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("RequestTimeTooSkewed", StorageError, "set the clock of this machine"),
        ("NoSuchBucket", UsageError, "no such bucket"),
        ("AccessDenied", UsageError, r"not allowed \(403\)"),
        ("403", UsageError, r"not allowed \(403\)"),
        ("InvalidAccessKeyId", UsageError, "does not accept these credentials"),
        ("ExpiredToken", UsageError, "the credentials have expired"),
        ("SlowDown", StorageError, "busy or the connection failed"),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.cluster
def test_errors_of_s3(code: str, kind: type[Exception], message: str, wrapped: bool) -> None:
    from botocore import exceptions

    error: Exception = exceptions.ClientError({"Error": {"Code": code, "Message": "two\nlines"}}, "PutObject")
    if wrapped:  # as s3fs does
        error, error.__cause__ = PermissionError("two\nlines") if kind is UsageError else OSError(5, "lines"), error
    with pytest.raises(kind, match=message) as found, object_store.errors(URL):
        raise error
    assert str(found.value).startswith(URL) and "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Kernel error\n  404 Not Found\n <Error><Code>NoSuchBucket</Code></Error>", "no such bucket"),
        ("403 Forbidden\n<Error><Code>RequestTimeTooSkewed</Code>", "set the clock"),
        ("403 Forbidden\n<Error><Code>SignatureDoesNotMatch</Code>", "does not accept these credentials"),
        ("error sending request: tcp connect error: Connection refused", "cannot be reached"),
        ("Something else\nhappened at http://h/a?sig=5ec", "the store failed .* happened at"),
    ],
)
def test_errors_of_delta_lake(text: str, message: str) -> None:
    error = object_store.explained(OSError(text), URL)
    import re

    assert re.search(message, str(error)) and "\n" not in str(error) and "5ec" not in str(error)


@pytest.mark.cluster
def test_no_credentials() -> None:
    from botocore import exceptions

    with pytest.raises(UsageError, match="no credentials; give them"), object_store.errors(URL):
        raise exceptions.NoCredentialsError


def test_mistakes_of_this_program_and_full_disks_stay_what_they_are() -> None:
    with pytest.raises(KeyError), object_store.errors(URL):
        raise KeyError("x")
    with pytest.raises(OSError, match="No space"), object_store.errors(URL):
        raise OSError(28, "No space left on device", "/tmp/x")
    with pytest.raises(UsageError, match=r"^as it was$"), object_store.errors(URL):
        raise UsageError("as it was")


@pytest.mark.cluster
def test_a_scheme_that_is_not_known() -> None:
    with pytest.raises(UsageError, match=r"foo://x: cannot be used .*; give a URL of s3://, gs:// or az://"):
        object_store.filesystem("foo://x")


@pytest.mark.parametrize(("url", "package"), [("gs://bucket/x", "gcsfs"), ("az://bucket/x", "adlfs")])
@pytest.mark.cluster
def test_a_library_that_is_missing(url: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    scheme = url.partition("://")[0]
    with pytest.raises(UsageError, match=f"the library for {scheme}:// is not installed; pip install {package}"):
        object_store.filesystem(url)


def test_only_busy_stores_and_networks_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(object_store.time, "sleep", pauses.append)
    # a folder whose connection was lost while it was listed is no folder to fsspec
    retries, left = object_store.Retries(), [ConnectionResetError("x"), NotADirectoryError("x")]

    def work() -> str:
        if left:
            raise left.pop()
        return "done"

    assert object_store.retried(work, retries) == "done"
    assert (retries.count, len(pauses)) == (2, 2) and pauses[1] > pauses[0] / 2

    def refused() -> None:
        raise PermissionError("x")

    with pytest.raises(PermissionError):
        object_store.retried(refused, retries)
    assert retries.count == 2

    def never() -> None:
        raise ConnectionResetError("x")

    with pytest.raises(ConnectionResetError):
        object_store.retried(never, retries)
    assert retries.count == 2 + object_store.ATTEMPTS - 1


def test_plain_http_only_where_the_endpoint_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert object_store.delta_options(URL)["allow_http"] == "true"
    assert "allow_http" not in object_store.delta_options("gs://b/x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://host")
    assert "allow_http" not in object_store.delta_options(URL)


@pytest.mark.parametrize(
    "url",
    ["s3://", "s3://bucket//x", "s3://bucket/a/../b", "s3://bucket/./b", "s3://bucket/a#b", "s3:///x", "ftp://h/x"],
)
def test_urls_where_no_dataset_can_be(url: str) -> None:
    with pytest.raises(UsageError):
        object_store.check_dataset(url)


@pytest.mark.parametrize("url", ["s3://bucket", "s3://bucket/a b/c%20d/", "az://container@account/x", "gs://b/..a"])
def test_urls_where_a_dataset_can_be(url: str) -> None:
    object_store.check_dataset(url)
