"""The parts that all targets share: options, what is reported, retries, and messages without secrets."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ddnn_traces.errors import PushError, needs_extra
from ddnn_traces.messages import Messages
from ddnn_traces.release.push.contents import Contents
from ddnn_traces.text import counted

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class PushOptions:
    """endpoint_url: another server of the same kind. record: of Zenodo; the release becomes its new version.

    publish_deposit: make the deposit at Zenodo public, which cannot be undone. overwrite_draft: replace the content of
    a draft there of this version by the release. private: make a new repository at the Hub private.
    """

    endpoint_url: str | None = None
    record: int | None = None
    publish_deposit: bool = False
    overwrite_draft: bool = False
    private: bool = False


@dataclass(frozen=True)
class Parcel:
    """A file to be sent. name: in the release. address: its place at the target."""

    name: str
    bytes: int
    address: str


@dataclass(frozen=True)
class Outcome:
    """The result of an upload. where: the address of the version. sent, sent_bytes: in this run; there: files that were
    at the target before.

    notes: what the publisher has to know or do next.
    """

    where: str
    sent: int
    sent_bytes: int
    there: int
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, where: str, every: Sequence[Any], sent: Sequence[Any] = (), notes: tuple[str, ...] = ()) -> Outcome:
        """The result where these were sent of all files, each of which has `bytes`."""
        return cls(where, len(sent), sum(file.bytes for file in sent), len(every) - len(sent), notes)

    @property
    def text(self) -> str:
        """A summary in one line."""
        if not self.sent:
            return f"{self.where}: already there, and equal: {counted(self.there, 'file')}"
        there = f", {self.there} were there already" if self.there else ""
        return f"{self.where}: sent {counted(self.sent, 'file')}, {self.sent_bytes:,} bytes{there}"


def parcels_below(place: str, contents: Contents) -> list[Parcel]:
    """The files of a release, each below one address."""
    return [Parcel(item.path, item.bytes, f"{place}/{item.path}") for item in contents.items]


class Target(Protocol):
    """A place that a release can be uploaded to."""

    def parcels(self, contents: Contents) -> list[Parcel]:
        """The files that an upload would send; without network and credentials."""

    def push(self, contents: Contents, retry: Retry, messages: Messages) -> Outcome:
        """Send the files that are not there. Raises PushError, UsageError, MissingExtra."""


#: HTTP states after which the same request may succeed: too many requests, and a server that has trouble.
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


class Transient(Exception):
    """A failure that may pass. wait_s: the pause that the server requests, s."""

    def __init__(self, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.wait_s = wait_s


@dataclass(frozen=True)
class Retry:
    """attempts in all; before the second one a pause of first_s, then each time twice as long, at most most_s."""

    attempts: int = 6
    first_s: float = 1.0
    most_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep

    def call(
        self, work: Callable[[], _Result], messages: Messages, explain: Callable[[Exception], Exception] | None = None
    ) -> _Result:
        """The result of `work`, which is repeated while it raises Transient.

        explain: makes Transient or PushError of a library's error, whose own text may hold a secret. Raises PushError
        after the last attempt, MissingExtra.
        """
        with needs_extra():
            import tenacity

        def attempt() -> _Result:
            try:
                return work()
            except Exception as error:
                raise (explain(error) if explain else error) from None

        def failure(state: tenacity.RetryCallState) -> Transient:
            error = state.outcome and state.outcome.exception()
            assert isinstance(error, Transient)
            return error

        exponential = tenacity.wait_exponential(multiplier=self.first_s, max=self.most_s)

        def wait_s(state: tenacity.RetryCallState) -> float:
            requested = failure(state).wait_s
            return float(exponential(state)) if requested is None else min(self.most_s, max(0.0, requested))

        def give_up(state: tenacity.RetryCallState) -> _Result:
            raise PushError(
                f"{failure(state)}; tried {state.attempt_number} times; the same command continues from here when that "
                "has passed"
            ) from failure(state)

        result: _Result = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(Transient),
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=wait_s,
            sleep=self.sleep,
            before_sleep=lambda state: messages.info(f"{failure(state)}; again in {state.upcoming_sleep:g} s"),
            retry_error_callback=give_up,
        )(attempt)
        return result


def seconds(header: str | None) -> float | None:
    """A Retry-After header in seconds; None where it is missing or a date."""
    try:
        return float(header) if header else None
    except ValueError:
        return None


_HIDDEN = "***"
#: Tokens recognised by their form, also those that this program did not get itself.
_SECRETS = (
    re.compile(r"(?i)(bearer\s+|basic\s+)[^\s'\",;]+"),
    re.compile(r"(?i)((?:access_token|token|signature|x-amz-[a-z-]+|awsaccesskeyid|credential)=)[^&\s'\"]+"),
    re.compile(r"()\bhf_[A-Za-z0-9]{8,}\b"),
    re.compile(r"()\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"),
    re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]+(?=@)"),
)


def without_userinfo(address: str) -> str:
    """An address as typed, without the part before its last @: a secret key may have a slash in it."""
    scheme, parted, rest = address.partition("://")
    _, at, place = rest.rpartition("@")
    return f"{scheme}{parted}{_HIDDEN}@{place}" if parted and at else address


def scrub(text: object, secrets: Iterable[str | None] = ()) -> str:
    """A text on one line, without the secrets given and without parts that look like one."""
    line = " ".join(str(text).split())
    for secret in secrets:
        if secret:
            line = line.replace(secret, _HIDDEN)
    for pattern in _SECRETS:
        line = pattern.sub(rf"\1{_HIDDEN}", line)
    return line
