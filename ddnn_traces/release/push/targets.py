"""Which target a text names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ddnn_traces.errors import UsageError
from ddnn_traces.release.push.contents import Contents
from ddnn_traces.release.push.folder import Folder
from ddnn_traces.release.push.hub import Hub
from ddnn_traces.release.push.outcome import Outcome, Parcel
from ddnn_traces.release.push.retry import Retry
from ddnn_traces.release.push.s3 import S3
from ddnn_traces.release.push.secrets import without_userinfo
from ddnn_traces.release.push.zenodo import SITES, Zenodo
from ddnn_traces.talk import Talk

_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]+)(?:/(?P<prefix>.*))?")
_HUB = re.compile(r"hf://datasets/(?P<name>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)/?")
_KINDS = "a folder, s3://BUCKET/PREFIX, hf://datasets/OWNER/NAME, zenodo or zenodo-sandbox"


class Target(Protocol):
    """Where a release can be brought."""

    def parcels(self, contents: Contents) -> list[Parcel]:
        """What would go where; without network and credentials."""

    def push(self, contents: Contents, retry: Retry, talk: Talk) -> Outcome:
        """Bring it there. Raises PushError, UsageError, MissingExtra."""


@dataclass(frozen=True)
class Options:
    """endpoint_url: another server of the same kind. record: of Zenodo, to which this is a new version.

    publish_deposit: make the deposit at Zenodo public, for good. private: a repository at the Hub that is not there
    yet is made private.
    """

    endpoint_url: str | None = None
    record: int | None = None
    publish_deposit: bool = False
    private: bool = False


def target_of(text: str, options: Options, release: Path) -> Target:
    """The target that a text names. Raises UsageError for none, and for options that mean nothing to it."""
    target, takes = _parsed(text, options, release)
    given = {name for name, value in vars(options).items() if value}
    if wrong := sorted(given - takes):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
        raise UsageError(f"{names} means nothing to the target {without_userinfo(text)}; leave it out")
    return target


def _parsed(text: str, options: Options, release: Path) -> tuple[Target, set[str]]:
    if text in SITES:
        zenodo = Zenodo(text, options.endpoint_url, options.record, options.publish_deposit)
        return zenodo, {"endpoint_url", "record", "publish_deposit"}
    if match := _S3.fullmatch(text):
        prefix = "/".join(part for part in (match["prefix"] or "").split("/") if part)
        if {".", ".."} & set(prefix.split("/")):
            raise UsageError(
                f"{without_userinfo(text)}: '.' and '..' are no names in a bucket; write the prefix without them"
            )
        return S3(match["bucket"], prefix, options.endpoint_url), {"endpoint_url"}
    if match := _HUB.fullmatch(text):
        return Hub(match["name"], options.endpoint_url, options.private), {"endpoint_url", "private"}
    if "://" in text or not text.strip():
        secret = "; credentials do not belong in it (docs/push.md)" if "@" in text else ""
        raise UsageError(f"{without_userinfo(text)!r} is no target; there are: {_KINDS}{secret}")
    folder, own = Path(text).absolute(), release.resolve()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: a file; name a folder, in which the version gets one of its own")
    if own in (folder.resolve(), *folder.resolve().parents):
        raise UsageError(f"{folder}: in the release itself; choose a folder outside")
    return Folder(folder), set()
