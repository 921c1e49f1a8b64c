"""The version, the digest of the content and the changelog agree."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddnn_traces.errors import UsageError
from ddnn_traces.release import versions
from ddnn_traces.release.verify import untrusted
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, PASSED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout

VERSIONS = "version"


def check_versions(examined: Examined) -> Iterator[Result]:
    """A semantic version above the one before, the digest that release.json gives, the changelog's first entry."""
    release = examined.told()
    about = release.about
    try:
        versions.check(about.version, release.previous)
    except UsageError as error:
        raise WrongError(f"{layout.RELEASE}: {shown(error)}") from None
    if versions.digest(release) != release.digest:
        detail = f"is not what {layout.RELEASE} was published with: its digest is another; get it again"
        yield Result(VERSIONS, layout.RELEASE, FAILED, detail)
    else:
        yield Result(VERSIONS, layout.RELEASE, PASSED, f"version {about.version}, digest {release.digest[:16]}")
    entries = re.findall(r"^## (\S+) - (\S+)$", untrusted.text(examined.content / layout.CHANGELOG), re.M)
    first = entries[0] if entries else ("no version", "no date")
    if first != (about.version, about.published):
        detail = f"begins with {shown(' of '.join(first))}, {layout.RELEASE} says {about.version} of {about.published}"
        yield Result(VERSIONS, layout.CHANGELOG, FAILED, f"{detail}; get it again")
    else:
        detail = f"begins with {about.version} of {about.published}; what it says was not looked at"
        yield Result(VERSIONS, layout.CHANGELOG, PASSED, detail)
