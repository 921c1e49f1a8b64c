"""Upload of a release: proven by its checksums, complete or recognisably not, and never over another version.

    upload_contents.py (files to upload) -> the target that a text names -> folder.py, s3.py, hub.py, zenodo.py

upload_contents.py also has what the targets share.

After an interruption the same command continues. docs/push.md states how each target recognises what is there already.
"""

from __future__ import annotations

import re
from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.release.push.folder import Folder
from ddnn_traces.release.push.hub import Hub
from ddnn_traces.release.push.s3 import S3
from ddnn_traces.release.push.upload_contents import (
    Outcome,
    Parcel,
    PushOptions,
    Retry,
    Target,
    prove,
    read,
    without_userinfo,
)
from ddnn_traces.release.push.zenodo import SITES, Zenodo

__all__ = ["Outcome", "Parcel", "PushOptions", "Retry", "Target", "parcels", "push"]

_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]+)(?:/(?P<prefix>.*))?")
_HUB = re.compile(r"hf://datasets/(?P<name>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)/?")
_OF_ZENODO = ("endpoint_url", "record", "publish_deposit", "overwrite_draft")
_KINDS = "a folder, s3://BUCKET/PREFIX, hf://datasets/OWNER/NAME, zenodo or zenodo-sandbox"


def parcels(release: Path, to: str, options: PushOptions | None = None) -> list[Parcel]:
    """The files that `push` would send, without network and credentials. Raises UsageError, PushError."""
    contents = read(release)
    target = target_of(to, options or PushOptions(), contents.folder)
    prove(contents, Messages())
    return target.parcels(contents)


def push(
    release: Path,
    to: str,
    options: PushOptions | None = None,
    messages: Messages | None = None,
    retry: Retry | None = None,
) -> Outcome:
    """Upload a release to a target; files that are there already are not sent again.

    to: a folder, s3://BUCKET/PREFIX, hf://datasets/OWNER/NAME, zenodo or zenodo-sandbox. Raises UsageError for a wrong
    call, MissingExtra, and PushError where the release is damaged, the target refuses, or holds another content under
    this version. After a Ctrl-C the message of KeyboardInterrupt explains how to continue.
    """
    messages = messages or Messages()
    contents = read(release)
    target = target_of(to, options or PushOptions(), contents.folder)
    try:
        for path in contents.stray:
            messages.info(f"{path}: not in the release's checksums, stays here")
        prove(contents, messages)
        return target.push(contents, retry or Retry(), messages)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; what is at {without_userinfo(to)} cannot be mistaken for the whole release; the same "
            "command continues from there"
        ) from None


def target_of(text: str, options: PushOptions, release: Path) -> Target:
    """The target that a text names. Raises UsageError for an unknown one, and for options that it does not take."""
    target, takes = _parsed(text, options, release)
    given = {name for name, value in vars(options).items() if value}
    if wrong := sorted(given - takes):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in wrong)
        raise UsageError(f"{names} means nothing to the target {without_userinfo(text)}; leave it out")
    return target


def _parsed(text: str, options: PushOptions, release: Path) -> tuple[Target, set[str]]:
    if text in SITES:
        return Zenodo(text, **{name: getattr(options, name) for name in _OF_ZENODO}), set(_OF_ZENODO)
    if match := _S3.fullmatch(text):
        prefix = "/".join(part for part in (match["prefix"] or "").split("/") if part)
        if {".", ".."} & set(prefix.split("/")):
            raise UsageError(
                f"{without_userinfo(text)}: '.' and '..' are not names in a bucket; write the prefix without them"
            )
        return S3(match["bucket"], prefix, options.endpoint_url), {"endpoint_url"}
    if match := _HUB.fullmatch(text):
        return Hub(match["name"], options.endpoint_url, options.private), {"endpoint_url", "private"}
    if "://" in text or not text.strip():
        secret = "; credentials do not belong in it (docs/push.md)" if "@" in text else ""
        raise UsageError(f"{without_userinfo(text)!r} is not a target; targets are: {_KINDS}{secret}")
    folder, own = Path(text).absolute(), release.resolve()
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: a file; name a folder, in which the version gets a folder of its own")
    if own in (folder.resolve(), *folder.resolve().parents):
        raise UsageError(f"{folder}: in the release itself; choose a folder outside")
    return Folder(folder), set()
