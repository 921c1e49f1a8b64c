"""URLs, as they stand where a path may."""

from __future__ import annotations

import re

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://.+", re.S)


def is_url(text: object) -> bool:
    """Whether it is the text of a URL and no path; a Path never is one."""
    return isinstance(text, str) and bool(_URL.fullmatch(text))
