"""Upload of a release: proven by its checksums, whole or not to be taken for one, and never over another version.

    contents.py (what goes) -> targets.py (where to) -> folder.py, s3.py, hub.py, zenodo.py

What was cut off goes on with the same command. docs/push.md says how each target knows what is there already.
"""

from __future__ import annotations

from pathlib import Path

from ddnn_traces.release.push.contents import Contents, prove, read
from ddnn_traces.release.push.outcome import Outcome, Parcel
from ddnn_traces.release.push.retry import Retry
from ddnn_traces.release.push.secrets import without_userinfo
from ddnn_traces.release.push.targets import Options, Target, target_of
from ddnn_traces.talk import Talk

__all__ = ["Contents", "Options", "Outcome", "Parcel", "Retry", "Target", "parcels", "push"]


def parcels(release: Path, to: str, options: Options | None = None) -> list[Parcel]:
    """What `push` would send, and where to: no network, no credentials. Raises UsageError, PushError."""
    contents = read(release)
    target = target_of(to, options or Options(), contents.folder)
    prove(contents, Talk())
    return target.parcels(contents)


def push(
    release: Path, to: str, options: Options | None = None, talk: Talk | None = None, retry: Retry | None = None
) -> Outcome:
    """Bring a release to a target; what is there already is not sent again.

    to: a folder, s3://BUCKET/PREFIX, hf://datasets/OWNER/NAME, zenodo or zenodo-sandbox. Raises UsageError for a wrong
    call, MissingExtra, and PushError where the release is damaged, the target refuses, or holds another content under
    this version. A Ctrl-C (KeyboardInterrupt) says how to go on.
    """
    talk = talk or Talk()
    contents = read(release)
    target = target_of(to, options or Options(), contents.folder)
    try:
        for path in contents.stray:
            talk.say(f"{path}: not in the release's checksums, stays here")
        prove(contents, talk)
        return target.push(contents, retry or Retry(), talk)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted; nobody can take what is at {without_userinfo(to)} for the whole release; the same command "
            "goes on from there"
        ) from None
