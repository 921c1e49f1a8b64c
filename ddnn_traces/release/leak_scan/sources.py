"""Reads from the original captures and logs what the tables do not hold: hardware addresses, names, paths."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ddnn_traces.ingestors.capture_file import PCAPNG, CaptureFile
from ddnn_traces.ingestors.counters import block_options
from ddnn_traces.ingestors.facts import STDIN
from ddnn_traces.ingestors.sources import RunInput
from ddnn_traces.store import hashes

if TYPE_CHECKING:
    from ddnn_traces.ingestors.packets.compiled.scan import Framing
    from ddnn_traces.ingestors.packets.scanner import Scanner

_MOST_HARDWARE = 1 << 16
_LOG_ENDINGS = (".log", ".csv", ".toml", ".txt", ".json", ".out", ".err", ".md")
_MOST_LOG_BYTES = 16 << 20
_MOST_PCAPNG_BYTES = 64 << 20  # of a file are searched for names: they stand at its begin

_IPV4 = r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\w)"
_PATH = r"(?<![\w.~/:])/(?:[\w.+@-]+/)+[\w.+@-]*"
_WINDOWS_USER = r"(?i:[A-Z]:\\+Users\\+)([\w.-]+)"
_MAC = r"(?<![\w:-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?![\w:-])"
_USER_AT_HOST = r"(?<![\w.+-])([A-Za-z_][\w.-]*)@([A-Za-z0-9][\w-]*(?:\.[\w-]+)*)"
_DOMAIN = (
    r"(?:com|net|org|edu|gov|de|fr|uk|ch|at|eu|cn|jp|io|local|lan|internal|intranet|corp|cluster|home|localdomain)"
)
_QUALIFIED = rf"(?<![\w.@/-])(?:[A-Za-z0-9][\w-]*\.)+{_DOMAIN}(?![\w-]|\.\w)"
_NAMED_HOST = r"(?i:\bhost(?:name)?|\bnode(?:name)?)\s*[=:]\s*[\"']?([A-Za-z][\w.-]{3,})"
_LOG_PATTERNS = (
    ("address", _IPV4), ("hardware", _MAC), ("path", _PATH), ("host", _QUALIFIED), ("host", _NAMED_HOST),
    ("user", _WINDOWS_USER),
)  # fmt: skip


def hardware_addresses(path: Path) -> set[bytes]:
    """Hardware addresses in the link headers of a capture; of a damaged file those before the damage."""
    if path == STDIN:
        return set()
    from ddnn_traces.ingestors.packets.records import reader_of, split_header

    with CaptureFile(path, hash=hashes.NONE) as file:
        _, framing, stream = split_header(file.blocks())
        if framing is None:
            return set()
        collector = _HardwareCollector(framing)
        reader_of(cast("Scanner", collector)).read(stream)
    return {int(number).to_bytes(6, "big") for number in collector.found[: collector.count]}


class _HardwareCollector:
    """Takes a Scanner's place in a RecordReader."""

    def __init__(self, framing: Framing) -> None:
        import numpy as np

        from ddnn_traces.ingestors.packets.compiled.scan import INTERFACE_COLUMNS

        self.framing = framing
        self.interfaces = np.zeros((0, INTERFACE_COLUMNS), np.int64)
        self.records = 0
        self.found = np.zeros(_MOST_HARDWARE, np.int64)
        self.count = 0

    def scan(self, block: memoryview | bytes, begin: int, stop: int | None) -> tuple[int, int]:
        import numpy as np

        from ddnn_traces.ingestors.packets.compiled import addresses

        buf = np.frombuffer(block, np.uint8)
        buf.flags.writeable = False
        pos, why, self.count, records = addresses.collect_hardware(
            buf, begin, len(buf), 2**62 if stop is None else stop, self.framing, self.interfaces, 0, self.found,
            self.count,
        )  # fmt: skip
        self.records += records
        return pos, why


def pcapng_names(path: Path) -> set[str]:
    """Texts in a plain pcapng: comments, hardware, system, names of interfaces and hosts."""
    with path.open("rb") as file:
        data = file.read(_MOST_PCAPNG_BYTES)
    if not data.startswith(PCAPNG) or len(data) < 12:
        return set()
    order = "<" if data[8:12] == b"\x4d\x3c\x2b\x1a" else ">"
    found: set[str] = set()
    at = 0
    while at + 12 <= len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        if size < 12 or at + size > len(data):
            break
        body = data[at + 8 : at + size - 4]
        if kind == 0x0A0D0D0A:
            found |= _option_texts(order, body[16:], (1, 2, 3))
        elif kind == 1:
            found |= _option_texts(order, body[8:], (1, 2, 3, 12))
        elif kind == 4:
            found |= {
                text
                for code, value in block_options(order, body)
                if code in (1, 2)
                for text in value[4 if code == 1 else 16 :].decode(errors="replace").split("\0")
                if text
            }
        elif kind == 6 and len(body) >= 20:
            captured = struct.unpack_from(order + "I", body, 12)[0]
            found |= _option_texts(order, body[20 + captured + -captured % 4 :], (1,))
        at += size
    return found


def _option_texts(order: str, data: bytes, codes: tuple[int, ...]) -> set[str]:
    return {value.decode(errors="replace") for code, value in block_options(order, data) if code in codes}


def log_words(run: RunInput) -> dict[str, set[str]]:
    """Addresses, hardware addresses, hosts, users and paths in the texts next to a run's captures, by kind."""
    found: dict[str, set[str]] = {kind: set() for kind, _ in _LOG_PATTERNS}
    for path in sorted(run.folder.iterdir()) if run.folder else []:
        if path.suffix.lower() not in _LOG_ENDINGS or not path.is_file() or path.stat().st_size > _MOST_LOG_BYTES:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for kind, pattern in _LOG_PATTERNS:
            found[kind].update(re.findall(pattern, text))
        for user, host in re.findall(_USER_AT_HOST, text):
            found["user"].add(user)
            found["host"].add(host)
    return found
