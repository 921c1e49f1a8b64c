"""Nothing that opens a door gets into a message."""

from __future__ import annotations

import re
from collections.abc import Iterable

_HIDDEN = "***"
#: Tokens by their look, also those of which this program knows nothing: in headers, in addresses, by themselves.
_PATTERNS = (
    re.compile(r"(?i)(bearer\s+|basic\s+)[^\s'\",;]+"),
    re.compile(r"(?i)((?:access_token|token|signature|x-amz-[a-z-]+|awsaccesskeyid|credential)=)[^&\s'\"]+"),
    re.compile(r"()\bhf_[A-Za-z0-9]{8,}\b"),
    re.compile(r"()\b(?:AKIA|ASIA)[0-9A-Z]{12,}\b"),
    re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s@]+(?=@)"),
)


def without_userinfo(address: str) -> str:
    """An address as a user typed it, without what stands before its last @: a secret key may have a slash in it."""
    scheme, parted, rest = address.partition("://")
    _, at, place = rest.rpartition("@")
    return f"{scheme}{parted}{_HIDDEN}@{place}" if parted and at else address


def scrub(text: object, secrets: Iterable[str | None] = ()) -> str:
    """A text on one line, without the secrets and without what looks like one."""
    line = " ".join(str(text).split())
    for secret in secrets:
        if secret:
            line = line.replace(secret, _HIDDEN)
    for pattern in _PATTERNS:
        line = pattern.sub(rf"\1{_HIDDEN}", line)
    return line
