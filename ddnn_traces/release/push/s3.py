"""Upload into an S3-compatible store, through s3fs: s3://BUCKET/PREFIX/VERSION/..., the list of checksums last.

An object exists whole or not at all. Its ETag identifies the content: the MD5 of it, or of the parts' MD5s. Where an
ETag is something else (encryption with the owner's key), the object is read back.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ddnn_traces.errors import PushError, needs_extra
from ddnn_traces.messages import Messages
from ddnn_traces.release.push.upload_contents import (
    TRANSIENT,
    Contents,
    Item,
    Outcome,
    Parcel,
    Retry,
    Transient,
    other_content,
    parcels_below,
    refuse_damaged,
    scrub,
    seconds,
)
from ddnn_traces.text import counted

_Result = TypeVar("_Result")

#: Size of a part, bytes: a file of at least two parts is sent in parts, some at a time, each in memory.
_PART = 16 << 20
_PARTS_AT_A_TIME = 4
_CREDENTIALS = (
    "give them as for any S3 program: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE and "
    "~/.aws/credentials"
)


@dataclass(frozen=True)
class S3:
    """A prefix in a bucket. endpoint_url: None for AWS, or for the value of AWS_ENDPOINT_URL."""

    bucket: str
    prefix: str
    endpoint_url: str | None = None

    def place(self, contents: Contents) -> str:
        """BUCKET/PREFIX/VERSION."""
        return "/".join(part for part in (self.bucket, self.prefix, contents.version) if part)

    def parcels(self, contents: Contents) -> list[Parcel]:
        return parcels_below(f"s3://{self.place(contents)}", contents)

    def push(self, contents: Contents, retry: Retry, messages: Messages) -> Outcome:
        """Send the files that are not there. Raises PushError, MissingExtra."""
        store = _Store(self, retry, messages)
        place = self.place(contents)
        there = store.listing(place)
        own = {item.path: item for item in contents.items}
        strange = sorted(there.keys() - own.keys())
        same = {path for path in there.keys() & own.keys() if store.holds(f"{place}/{path}", own[path], there[path])}
        other = sorted((there.keys() & own.keys()) - same)
        absent = sorted(own.keys() - there.keys())
        if contents.last.path in there and other:
            refuse_damaged(f"s3://{place}", contents, [*other, *strange, *absent])
        if strange or (other and contents.last.path in there):
            raise _refused(f"s3://{place}", contents, strange, other)
        store.abort_unfinished(place, own)
        missing = [item for item in contents.items if item.path not in same]
        for item in missing:
            store.put(f"{place}/{item.path}", item, only_new=item == contents.last)
        return Outcome.of(f"s3://{place}", contents.items, missing)


def _refused(place: str, contents: Contents, strange: list[str], other: list[str]) -> PushError:
    if contents.last.path in other or not strange:
        return other_content(place, contents, other, ", or choose another prefix")
    return PushError(
        f"{place}: holds files that are not of this release ({counted(len(strange), 'object')}: "
        f"{', '.join(strange[:3])}), which readers would take for the release's; publish yours under another "
        "--version, choose another prefix, or remove them"
    )


class _Store:
    """The requests to the store. Raises PushError for what it refuses; failures that may pass are tried again."""

    def __init__(self, target: S3, retry: Retry, messages: Messages) -> None:
        self._target, self._retry, self._messages = target, retry, messages
        config = {"retries": {"max_attempts": 0}, "connect_timeout": 20, "read_timeout": 120}
        with needs_extra():
            import s3fs
        self._fs = s3fs.S3FileSystem(
            anon=False,
            endpoint_url=target.endpoint_url,
            use_listings_cache=False,
            skip_instance_cache=True,
            config_kwargs=config,
        )
        self._fs.retries = 1  # s3fs' own retries are off: targets.Retry serves all targets, and reports each

    def listing(self, place: str) -> dict[str, Mapping[str, Any]]:
        """Objects under a prefix by their path below it."""
        found = self._call(lambda: self._fs.find(place, detail=True, refresh=True), place)
        return {path.removeprefix(f"{place}/"): info for path, info in found.items()}

    def holds(self, address: str, item: Item, info: Mapping[str, Any]) -> bool:
        """Whether an object is the item, by its ETag, else by its content."""
        if info.get("size") != item.bytes:
            return False
        return str(info.get("ETag", "")).strip('"') == _etag(item) or self._read_back(address) == item.sha256

    def put(self, address: str, item: Item, only_new: bool) -> None:
        """Send a file and compare the object that results. only_new: never replace another object. Raises PushError."""
        self._call(lambda: self._send(address, item, only_new), address)
        info = self._call(lambda: self._fs.info(address, refresh=True), address)
        if not self.holds(address, item, info):
            with contextlib.suppress(Exception):
                self._fs.rm_file(address)
            raise PushError(
                f"s3://{address}: the object differs from the file that was sent, and was removed; run the same "
                "command again"
            )

    def abort_unfinished(self, place: str, own: Mapping[str, Item]) -> None:
        """End uploads in parts that an interrupted push left: they are invisible, but are paid for."""
        keys = {f"{place}/{path}".partition("/")[2] for path in own}
        with contextlib.suppress(OSError):  # many keys may upload but not list; then a rule of the bucket removes them
            for upload in self._fs.list_multipart_uploads(self._target.bucket):
                if upload.get("Key") in keys:
                    self._fs.abort_mpu(self._target.bucket, upload["Key"], upload["UploadId"])

    def _send(self, address: str, item: Item, only_new: bool) -> None:
        parts = {"chunksize": _PART, "max_concurrency": _PARTS_AT_A_TIME}
        try:
            self._fs.put_file(str(item.local), address, mode="create" if only_new else "overwrite", **parts)
        except OSError as error:
            if not only_new or error.errno != errno.ENOSYS:
                raise
            self._fs.put_file(str(item.local), address, **parts)  # a store that does not know If-None-Match

    def _read_back(self, address: str) -> str:
        def read() -> str:
            with self._fs.open(address, "rb", block_size=_PART, cache_type="readahead") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()

        return self._call(read, address)

    def _call(self, work: Callable[[], _Result], address: str) -> _Result:
        return self._retry.call(work, self._messages, lambda error: self._explained(error, address))

    def _explained(self, error: Exception, address: str) -> Exception:
        from botocore import exceptions  # s3fs has imported it

        where = f"s3://{address}"
        reason = scrub(error) or type(error).__name__
        if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
            return PushError(f"{where}: no credentials for the store were found; {_CREDENTIALS}")
        if isinstance(error, exceptions.ProfileNotFound):
            return PushError(f"{where}: {reason}; {_CREDENTIALS}")
        state, wait_s = _http_state(error)
        of_the_network = (exceptions.HTTPClientError, exceptions.ConnectionError, ConnectionError, TimeoutError)
        if state in TRANSIENT or isinstance(error, of_the_network):
            at = self._target.endpoint_url or "AWS, or the value of AWS_ENDPOINT_URL"
            return Transient(f"{where}: the store does not answer as it should ({reason}; store: {scrub(at)})", wait_s)
        if isinstance(error, FileExistsError):
            return PushError(f"{where}: another push has finished this version meanwhile; run the command again")
        if isinstance(error, PermissionError):
            return PushError(
                f"{where}: the store refuses ({reason}); check that the key may list and write; {_CREDENTIALS}"
            )
        if isinstance(error, FileNotFoundError):
            return PushError(
                f"{where}: the store has no bucket {self._target.bucket} ({reason}); make it, or check the name and "
                "--endpoint-url"
            )
        return PushError(f"{where}: {reason}; correct that and run the same command again")


def _http_state(error: Exception) -> tuple[int | None, float | None]:
    """HTTP state of an answer, and its Retry-After, s."""
    response = getattr(error, "response", None) or getattr(error.__cause__, "response", None) or {}
    meta = response.get("ResponseMetadata", {}) if isinstance(response, dict) else {}
    return meta.get("HTTPStatusCode"), seconds(meta.get("HTTPHeaders", {}).get("retry-after"))


def _etag(item: Item) -> str:
    """ETag of the file as this program sends it."""
    md5s = []
    with item.local.open("rb") as file:
        if item.bytes < 2 * _PART:
            return hashlib.file_digest(file, _md5).hexdigest()
        while part := file.read(_PART):
            md5s.append(_md5(part).digest())
    return f"{_md5(b''.join(md5s)).hexdigest()}-{len(md5s)}"


def _md5(data: bytes = b"") -> Any:
    return hashlib.md5(data, usedforsecurity=False)
