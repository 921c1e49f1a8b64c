"""Object stores by URL (s3://, gs://, az://): file systems of fsspec, options of Delta Lake, errors in one line.

Credentials come from where the stores' own libraries look for them: the environment, profiles, the machine's role.
No message contains a secret: URLs are shown without passwords and queries, texts of libraries without known secrets.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ddnn_traces.errors import DdnnTracesError, StorageError, UsageError, needs_extra
from ddnn_traces.store.whole_files import NO_SPACE

_Result = TypeVar("_Result")

#: Schemes of stores that fsspec and Delta Lake both know, and the package that fsspec needs.
PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}

#: Schemes of files that ssh reaches.
_SSH = ("ssh", "sftp")
#: Packages for other schemes, of captures.
_OTHER_PACKAGES = {"http": "aiohttp", "https": "aiohttp"}

#: Attempts of a request; before the second a pause of _FIRST_S, then each time twice as long, at most _MOST_S.
ATTEMPTS = 7
_FIRST_S, _MOST_S = 0.2, 10.0

_HIDDEN = "..."
_SECRET_NAMES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN")
_SECRETS = (
    re.compile(r"(?i)((?:token|signature|x-amz-[a-z-]+|awsaccesskeyid|credential|sig)=)[^&\s'\"]+"),
    re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]+:[^\s@]+(?=@)"),
    re.compile(r"()\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"),
    re.compile(r"(\?)[^\s\"']+"),
)
#: Of Delta Lake, where the connection ended before the answer did.
_CUT_SHORT = re.compile(r"body from connection|response body|end of file before message|before message completed")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

#: Modules whose exceptions are failures of a store; others are mistakes of this program.
_LIBRARIES = {
    "_internal", "deltalake", "botocore", "aiobotocore", "aiohttp", "fsspec", "s3fs", "gcsfs", "adlfs", "azure",
    "google", "asyncssh", "sshfs",
}  # fmt: skip

_NOT_KNOWN = {
    "PermissionDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthenticationFailed",
    "AuthorizationHeaderMalformed",
}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"}
_NOT_ALLOWED = {"AccessDenied", "AllAccessDisabled", "403", "Forbidden", "PermissionError", "AuthorizationFailure"}
_NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound"}
_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound"}
_UNREACHABLE = {"EndpointConnectionError", "ClientConnectorError", "ConnectionRefusedError", "gaierror"}
_BUSY = {
    "SlowDown", "ServiceUnavailable", "ServerBusy", "InternalError", "RequestTimeout", "RequestLimitExceeded",
    "Throttling", "500", "502", "503", "504", "429", "OperationAborted", "TimeoutError", "ConnectionError",
    "ConnectionResetError", "BrokenPipeError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError",
    "FSTimeoutError", "HTTPClientError", "ClientPayloadError", "ServerDisconnectedError", "ClientOSError",
    "IncompleteRead", "IncompleteReadError", "ResponseStreamingError",
    "ConnectionLost", "DisconnectError", "SFTPConnectionLost", "SFTPNoConnection", "ChannelOpenError",
    "NotADirectoryError",  # fsspec's isdir() takes a connection that is lost meanwhile for none
}  # fmt: skip


def is_store(where: object) -> bool:
    """Whether a value is the text of a URL of an object store that can hold a dataset."""
    return isinstance(where, str) and where.partition("://")[0].lower() in PACKAGES and "://" in where


def shown(url: str) -> str:
    """The URL without its password or signature, which messages must not contain."""
    scheme, parted, rest = url.partition("://")
    if parted and ":" in rest.rpartition("@")[0]:  # a secret key may have a slash in it
        url = f"{scheme}://{rest.rpartition('@')[2]}"
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"{url.partition(':')[0]}://{_HIDDEN}"
    return parts._replace(query="", fragment="").geturl() if parts.query else url


def scrubbed(text: object) -> str:
    """A library's text on one line, without what may be secret."""
    line = " ".join(_COLOUR.sub("", str(text)).split())
    for secret in filter(None, map(os.environ.get, _SECRET_NAMES)):
        line = line.replace(secret, _HIDDEN)
    for pattern in _SECRETS:
        line = pattern.sub(rf"\1{_HIDDEN}", line)
    return line


def refuse_secrets(url: str) -> None:
    """Raise UsageError for a URL with a password or signature in it."""
    if shown(url) != url:
        raise UsageError(
            f"{shown(url)}: the URL has a password or signature in it, which messages and the dataset would show; give "
            "credentials as for the store's own tools (docs/stores.md)"
        )


def check_dataset(url: str) -> None:
    """Raise UsageError for a URL where no dataset can be, or that the stores' libraries take for another one."""
    if not is_store(url):
        raise UsageError(f"{shown(url)}: not the URL of a dataset on a store; give one of s3://, gs:// or az://")
    refuse_secrets(url)
    bucket, *parts = url.partition("://")[2].rstrip("/").split("/")
    if not bucket:
        raise UsageError(f"{url}: a URL without a bucket; give one like s3://BUCKET/DATASET")
    if any(part in ("", ".", "..") for part in parts) or set(url) & set("#?"):
        raise UsageError(f"{url}: the path of a dataset has no empty part, no . or .., no # or ?; choose another one")


def endpoint() -> str:
    """URL of the S3 server, where it is not the usual one."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def is_ssh(url: str) -> bool:
    """Whether a URL is of files that ssh reaches."""
    return url.partition("://")[0].lower() in _SSH


def read_range(found: Any, path: str, begin: int, end: int) -> bytes:
    """Bytes of a file on a file system of fsspec."""
    if "ssh" in found.protocol:  # its cat_file() gives the whole file for any range
        with found.open(path, "rb") as file:
            file.seek(begin)
            data: bytes = file.read(end - begin)
    else:
        data = found.cat_file(path, start=begin, end=end)
    return data


def filesystem(url: str, listings: bool = False) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it without a slash at its end.

    listings: remember what is in a folder. Otherwise it is asked again each time, and failed requests are not repeated:
    retried() does that, and counts. Raises UsageError for a scheme that is not known, not installed or not usable.
    """
    with needs_extra("cluster"):
        import fsspec
        from fsspec.core import url_to_fs
    scheme = url.partition("://")[0].lower()
    refuse_secrets(url)
    try:
        if not (fsspec.get_filesystem_class(scheme).async_impl or scheme == "memory"):
            raise UsageError(
                f"{shown(url)}: {scheme}:// cannot be read by several threads at once; copy the files here first"
            )
        found, path = url_to_fs(url, **_options(scheme, listings))
    except ImportError as error:
        package = (PACKAGES | _OTHER_PACKAGES).get(scheme)
        step = f"pip install {package}" if package else f"install what fsspec asks for ({scrubbed(error)[:120]})"
        raise UsageError(f"{shown(url)}: the library for {scheme}:// is not installed; {step}") from error
    except (ValueError, TypeError) as error:  # TypeError: a URL without the name of a host
        known = "s3://, gs:// or az://"
        raise UsageError(f"{shown(url)}: cannot be used ({scrubbed(error)[:200]}); give a URL of {known}") from error
    if scheme in ("s3", "s3a") and not listings:
        found.retries = 1
    if listings:
        _ask_strictly(found)
    return found, str(path).rstrip("/")


def _ask_strictly(found: Any) -> None:
    """Make questions for a path raise what a request raises: to fsspec, a path whose request failed is not there."""

    def kind(path: str) -> str | None:
        try:
            return str(retried(lambda: found.info(path))["type"])
        except FileNotFoundError:
            return None

    found.isfile = lambda path: kind(path) == "file"
    found.isdir = lambda path: kind(path) == "directory"
    found.exists = lambda path, **_: kind(path) is not None


def _options(scheme: str, listings: bool) -> dict[str, Any]:
    """Of the file system. A new instance where listings are not kept: one that is kept would have the credentials of
    then."""
    if scheme in _SSH:
        # fsspec's own, by paramiko, waits for ever where several threads use it, and takes any host's key
        with needs_extra("cluster"):
            importlib.import_module("sshfs")  # which replaces it
        return {"known_hosts": (), "connect_timeout": 20, "keepalive_interval": 15, "skip_instance_cache": not listings}
    if scheme not in PACKAGES:
        return {}
    options: dict[str, Any] = {"use_listings_cache": listings, "skip_instance_cache": not listings}
    if scheme in ("s3", "s3a"):
        options["config_kwargs"] = {"retries": {"max_attempts": 0}, "connect_timeout": 20, "read_timeout": 120}
    return options


def matching(url: str) -> list[str]:
    """URLs of the files and folders that match a pattern, in order."""
    found, path = filesystem(url, listings=True)
    root = url[: url.rindex(path)]  # the scheme; that of ssh with the host
    return [f"{root}{one}" for one in sorted(found.glob(path))]


def look(url: str) -> None:
    """List what is at a URL, or is next to a pattern. Raises the store's error, but not where nothing is there.

    A listing says what is wrong (no such bucket, a wrong secret or clock); a question for one object only that it is
    refused.
    """
    found, path = filesystem(url)
    try:
        found.ls(re.split(r"[*?\[]", path)[0].rpartition("/")[0] if set(path) & set("*?[") else path)
    except FileNotFoundError as error:
        if lacks_bucket(error):
            raise


def delta_options(url: str) -> dict[str, str]:
    """Storage options of Delta Lake for a URL: limits of time, and plain HTTP where the endpoint has it."""
    options = {"connect_timeout": "20s", "timeout": "120s", "max_retries": str(ATTEMPTS), "retry_timeout": "60s"}
    if url.lower().startswith("s3") and endpoint().lower().startswith("http://"):
        options["allow_http"] = "true"
    return options


class Retries:
    """How often requests were repeated, counted by several threads; `report` gets the number once, by tell()."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """Count one."""
        with self._lock:
            self.count += 1


def retried(work: Callable[[], _Result], retries: Retries | None = None) -> _Result:
    """The result of `work`, which is repeated, with growing pauses, while it fails as a busy store or a network does.

    Raises the last error.
    """
    for attempt in range(1, ATTEMPTS):
        try:
            return work()
        except Exception as error:
            if not is_transient(error):
                raise
            if retries:
                retries.add()
            pause(attempt)
    return work()


def pause(attempt: int) -> None:
    """Wait before another attempt: about twice as long after each, and not as long as others wait."""
    time.sleep(min(_MOST_S, _FIRST_S * 2 ** (attempt - 1)) * random.uniform(0.5, 1.0))  # noqa: S311  no secret


def is_transient(error: BaseException) -> bool:
    """Whether a request may succeed when it is repeated."""
    found = _causes(error)
    refused = _NOT_KNOWN | _EXPIRED | _NOT_ALLOWED | _NO_CREDENTIALS | _NO_BUCKET
    refused |= {"FileNotFoundError", "HostKeyNotVerifiable"}
    return bool(found & (_BUSY | _UNREACHABLE)) and not found & refused


def lacks_bucket(error: BaseException) -> bool:
    """Whether a request failed since there is no such bucket: elsewhere that is an object that is not there."""
    return bool(_causes(error) & _NO_BUCKET)


@contextlib.contextmanager
def errors(url: str) -> Iterator[None]:
    """A context in which failures of the store become UsageError or StorageError: one line with the next step."""
    try:
        yield
    except DdnnTracesError:
        raise
    except Exception as error:
        if not _is_of_a_store(error):
            raise
        raise explained(error, url) from error


#: What a cause means, the first that is found.
_EXPLANATIONS: tuple[tuple[set[str], type[DdnnTracesError], str], ...] = (
    ({"RequestTimeTooSkewed"}, StorageError, "refused, since times differ; set the clock of this machine"),
    (_NO_BUCKET, UsageError, "no such bucket; make it, or check its name and the endpoint"),
    (
        {"HostKeyNotVerifiable"},
        UsageError,
        "the key of this host is not known; connect to it once with ssh, which asks you",
    ),
    (_NO_CREDENTIALS, UsageError, "no credentials; give them as for the store's own tools (docs/stores.md)"),
    (_EXPIRED, UsageError, "the credentials have expired; get new ones and try again"),
    (_NOT_KNOWN, UsageError, "the store does not accept these credentials; check the key and its secret"),
    (_NOT_ALLOWED, UsageError, "not allowed (403); get the permission, or use other credentials"),
    (
        _UNREACHABLE,
        StorageError,
        "the store cannot be reached; check the network and the address (of S3: AWS_ENDPOINT_URL)",
    ),
    (
        {"FileNotFoundError", "404", "NoSuchKey", "TableNotFoundError"},
        UsageError,
        "no such object there; check the URL",
    ),
    (_BUSY, StorageError, f"the store was busy or the connection failed {ATTEMPTS} times; try again later"),
)


def explained(error: Exception, url: str) -> DdnnTracesError:
    """The error as the user gets it. url: also of a file in the store."""
    if isinstance(error, DdnnTracesError):
        return error
    found, name = _causes(error), shown(url)
    for causes, kind, what in _EXPLANATIONS:
        if found & causes:
            return kind(f"{name}: {what}")
    reason = scrubbed(error) or type(error).__name__
    return StorageError(f"{name}: the store failed ({type(error).__name__}: {reason[:200]}); try again")


def _is_of_a_store(error: Exception) -> bool:
    """Whether a library failed at the store; a full disk here is another matter."""
    if isinstance(error, OSError):
        return not (error.errno in NO_SPACE and error.filename is not None)
    return any(one.__module__.partition(".")[0] in _LIBRARIES for one in type(error).__mro__)


def _causes(error: BaseException) -> set[str]:
    """Names of the exceptions, and of the stores' error codes in them, that led to this one."""
    found: set[str] = set()
    one: BaseException | None = error
    for _ in range(10):
        if one is None:
            break
        found |= {type(one).__name__, *_codes(one)}
        if isinstance(one, TimeoutError | ConnectionError | PermissionError | FileNotFoundError):
            found |= {kind.__name__ for kind in type(one).__mro__[:-4]}
        one = one.__cause__ or one.__context__
    return found


def _codes(error: BaseException) -> Iterator[str]:
    response = getattr(error, "response", None)  # of botocore
    if isinstance(response, dict):
        yield str(response.get("Error", {}).get("Code"))
    status = getattr(error, "status", getattr(error, "code", None))  # of aiohttp, Google
    if isinstance(status, int):
        yield str(status)
    if type(error).__module__ in ("builtins", "_internal"):  # of Delta Lake, which has the answer in its text
        text = str(error)
        yield from re.findall(r"<Code>(\w+)</Code>", text)
        yield from re.findall(r"\b(403|404|429|500|502|503|504) [A-Z]", text)
        if _CUT_SHORT.search(text):
            yield "ConnectionError"
        if re.search(r"error sending request|dns error|tcp connect error|Connection refused", text):
            yield "ConnectionRefusedError" if "onnect" in text else "ConnectionError"
