"""Free text: what it says of addresses, hosts and files is put in other words or left out."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

_MAC = r"(?<![\w:-])(?:[0-9a-f]{2}[:-]){5}[0-9a-f]{2}(?![\w:-])"
_IPV4 = r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)"
_IPV6 = r"(?<![\w:])[0-9a-f:]*:[0-9a-f:]*:[0-9a-f:.]*(?![\w:])"
_PATH = r"(?<![\w./])(?:~|\.\.?)?/[^\s'\",;:()\[\]]*[^\s'\",;:()\[\].]"
_PATTERNS = re.compile(f"(?P<mac>{_MAC})|(?P<ipv4>{_IPV4})|(?P<ipv6>{_IPV6})|(?P<path>{_PATH})", re.IGNORECASE)
_WORDS = {"mac": "a hardware address", "ipv4": "an address", "ipv6": "an address", "path": "a file"}

#: From here on a number of ns is a time since the epoch (1973), and no duration.
_FIRST_TIME_NS = 10**17


def text(words: str, known: Mapping[str, str]) -> str:
    """The text with each known name mapped, and without other addresses and paths."""
    if known:
        alternatives = "|".join(map(re.escape, sorted(known, key=lambda name: (-len(name), name))))
        pattern = re.compile(rf"(?<![\w.:/-])(?:{alternatives})(?![\w:/-]|\.\w)")
        # what is mapped is left alone by the patterns: a Crypto-PAn address is one, too
        parts, end = [], 0
        for match in pattern.finditer(words):
            parts += [_PATTERNS.sub(_in_words, words[end : match.start()]), known[match[0]]]
            end = match.end()
        return "".join([*parts, _PATTERNS.sub(_in_words, words[end:])])
    return _PATTERNS.sub(_in_words, words)


def _in_words(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    if kind in ("ipv4", "ipv6") and not _is_address(match[0]):
        return match[0]
    return _WORDS[kind]


def _is_address(words: str) -> bool:
    try:
        ipaddress.ip_address(words.rstrip("."))
    except ValueError:
        return False
    return True


def values(value: Any, change: Callable[[str], str], offset_ns: int, name: str = "") -> Any:
    """Nested values of JSON with each string changed and each time (a number named *_ns) moved."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): values(held, change, offset_ns, key) for key, held in value.items()}
    if isinstance(value, list):
        return [values(held, change, offset_ns, name) for held in value]
    if isinstance(value, int) and name.endswith("_ns") and value >= _FIRST_TIME_NS:
        return value + offset_ns
    return value
