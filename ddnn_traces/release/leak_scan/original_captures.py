"""Reads from the original captures and logs what the tables do not hold: hardware addresses, names, paths."""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ddnn_traces import capture_format as form
from ddnn_traces.pcap.capture_facts import STDIN
from ddnn_traces.pcap.capture_file import CaptureFile
from ddnn_traces.store import hashes

if TYPE_CHECKING:
    from ddnn_traces.pcap.compiled.scan import Framing
    from ddnn_traces.pcap.scanner import Scanner

_MOST_HARDWARE = 1 << 16
_MOST_TEXT_BYTES = 16 << 20  # of a log
_MOST_PCAPNG_BYTES = 64 << 20  # of a file are searched for names: they stand at its start
_MOST_HOSTS = 1 << 12  # of a list

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
#: SLURM_JOB_NODELIST=gpu[01-04], HOSTNAME=gpu01, exec_host = gpu01/0+gpu02/0, "nodes": "gpu01,gpu02", -H gpu01:4
_HOST_LIST = (
    r"(?i:(?<!\w)\w*?(?:hosts?|host_?name|host_?list|nodes?|node_?name|node_?list|master_addr|cluster_?name)"
    r"[\"']?\s{0,2}=\s{0,2}|\"(?:host|node)(?:s|name|_?list)?\"\s?:\s?|(?<!\S)(?:-H|--hosts?|--nodelist)[ =])"
    r"[\"']?([A-Za-z0-9][\w.,:/+*\[\]-]*)"
)
_USER = r"(?i:(?<!\w)\w*?(?:user|user_?name|logname|owner|account)[\"']?\s{0,2}=\s{0,2})[\"']?([A-Za-z_][\w.-]+)"
#: gpu01:1234:1250 [0] NCCL INFO, [gpu01:01234] of Open MPI, [gpu01]:29500, gpu01 slots=4 of a host file.
_BEGINS_WITH_HOST = r"(?m:^\[?([A-Za-z][\w.-]*)(?::\d+:\d+ \[|:\d+\]|\]:\d+| +slots=))"
#: "gpu01:2222" in TF_CONFIG, tcp://gpu01:29500, connected to gpu01:2222.
_HOST_AND_PORT = (
    r"(?:\"|(?i:(?:tcp|grpc|https?)://|\bconnect(?:ed|ing|ion)? (?:to|from) ))([A-Za-z][\w.-]*):\d{2,5}(?!\w)"
)
#: Nov 21 06:18:23 gpu01 sshd[12]: of syslog
_SYSLOG = r"(?m:^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([A-Za-z][\w.-]*) [\w./-]+(?:\[\d+\])?:)"
#: Nodes: gpu[01-04]
_BRACKETS = r"(?i:\b(?:host|node)(?:s|list)?: +)([A-Za-z][\w-]*\[[\d,-]+\])"
_PATTERNS = (
    ("address", _IPV4), ("hardware", _MAC), ("path", _PATH), ("host", _QUALIFIED), ("host", _NAMED_HOST),
    ("host", _BEGINS_WITH_HOST), ("host", _HOST_AND_PORT), ("host", _SYSLOG), ("user", _WINDOWS_USER), ("user", _USER),
)  # fmt: skip
_KINDS = ("address", "hardware", "path", "host", "user")

#: A word that may be the name of a host: a letter, and a digit, hyphen or dot in it.
_HOST_LIKE = re.compile(r"(?<![\w.-])(?=[\w.-]*[\d.-])[A-Za-z][\w-]*(?:\.[\w-]+)*(?![\w-])")
#: What looks like one and is none: interfaces, processors, instruction sets, versions.
_NO_HOST = re.compile(
    r"(?:eth|eno|ens|enp|enx|em|ib|bond|br|docker|veth|vlan|wlan|wlp|tun|tap|virbr|vmnet|roce|hsn|team|usb|ppp|lo)-?\d[\w.]*"
    r"|mlx\d_\d+|i[3579]-\w+|e[357]-\w+|x86[_-]64|x64|i[3-6]86|amd64|arm64|armv\w+|aarch64|sse\w*(?:\.\d)?|avx[\w-]*"
    r"|win\w*-?\d+|v\d[\w.+-]*",
    re.IGNORECASE,
)


def hardware_addresses(path: Path) -> set[bytes]:
    """Hardware addresses in the link headers of a capture; of a damaged file those before the damage."""
    if path == STDIN:
        return set()
    from ddnn_traces.pcap.records import reader_of, split_header

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

        from ddnn_traces.pcap.compiled.scan import INTERFACE_COLUMNS

        self.framing = framing
        self.interfaces = np.zeros((0, INTERFACE_COLUMNS), np.int64)
        self.records = 0
        self.found = np.zeros(_MOST_HARDWARE, np.int64)
        self.count = 0

    def scan(self, block: memoryview | bytes, start: int, stop: int | None) -> tuple[int, int]:
        import numpy as np

        from ddnn_traces.pcap.compiled import addresses

        buf = np.frombuffer(block, np.uint8)
        buf.flags.writeable = False
        pos, why, self.count, records = addresses.collect_hardware(
            buf, start, len(buf), 2**62 if stop is None else stop, self.framing, self.interfaces, self.found,
            self.count,
        )  # fmt: skip
        self.records += records
        return pos, why


def pcapng_texts(path: Path) -> set[str]:
    """Texts in a pcapng, compressed or not: comments, hardware, system, program, names of interfaces and hosts."""
    data = _start_of(path, _MOST_PCAPNG_BYTES)
    if not data.startswith(form.PCAPNG) or len(data) < form.LEAST_BLOCK_BYTES:
        return set()
    order = form.BYTE_ORDERS.get(data[8:12], ">")
    found: set[str] = set()
    at = 0
    while at + form.LEAST_BLOCK_BYTES <= len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        if size < form.LEAST_BLOCK_BYTES or at + size > len(data):
            break
        body = data[at + 8 : at + size - 4]
        if kind == form.SECTION_HEADER:
            found |= _option_texts(order, body[16:], (1, 2, 3, 4))
        elif kind == form.INTERFACE_DESCRIPTION:
            found |= _option_texts(order, body[8:], (1, 2, 3, 11, 12, 15))
        elif kind == form.INTERFACE_STATISTICS:
            found |= _option_texts(order, body[12:], (1,))
        elif kind == form.NAME_RESOLUTION:
            found |= {
                text
                for code, value in form.pcapng_options(order, body)
                if code in (1, 2)
                for text in value[4 if code == 1 else 16 :].decode(errors="replace").split("\0")
                if text
            }
        elif kind == form.ENHANCED_PACKET and len(body) >= 20:
            captured = struct.unpack_from(order + "I", body, 12)[0]
            found |= _option_texts(order, body[20 + captured + -captured % 4 :], (1,))
        at += size
    return found


def _option_texts(order: str, data: bytes, codes: tuple[int, ...]) -> set[str]:
    return {
        value.decode(errors="replace").strip("\0") for code, value in form.pcapng_options(order, data) if code in codes
    }


def _start_of(path: Path, most: int) -> bytes:
    """The first bytes of a file, decompressed."""
    data = bytearray()
    with CaptureFile(path, hash=hashes.NONE) as file:
        for block in file.blocks():
            data += block
            if len(data) >= most:
                break
    return bytes(data[:most])


def folder_words(paths: Iterable[Path]) -> dict[str, set[str]]:
    """What text_words() finds in those of the files that are texts, whatever their names."""
    found: dict[str, set[str]] = {kind: set() for kind in _KINDS}
    for path in sorted(paths):
        data = _start_of(path, _MOST_TEXT_BYTES)
        if b"\0" not in data[:4096]:
            for kind, words in text_words(data.decode(errors="replace")).items():
                found[kind] |= words
    return found


def text_words(text: str) -> dict[str, set[str]]:
    """Addresses, hardware addresses, hosts, users and paths in a text, by kind."""
    found: dict[str, set[str]] = {kind: set() for kind in _KINDS}
    for kind, pattern in _PATTERNS:
        found[kind].update(re.findall(pattern, text))
    for user, host in re.findall(_USER_AT_HOST, text):
        found["user"].add(user)
        found["host"].add(host)
    for names in {*re.findall(_HOST_LIST, text), *re.findall(_BRACKETS, text)}:
        found["host"].update(itertools.islice(_hosts(names), _MOST_HOSTS))
    return found


def _hosts(names: str) -> Iterator[str]:
    """The hosts of a list: gpu[01-03,7],cpu1 of Slurm, gpu01/0*8+gpu02/0 of PBS, gpu01:4,gpu02:4 of mpirun."""
    for name in re.findall(r"(?:\[[^\]]*\]|[^,+\[\]])+", names):
        start, bracket, rest = re.split("[:/]", name)[0].partition("[")
        numbers, _, end = rest.partition("]")
        if not bracket:
            yield start
            continue
        for numbered in numbers.split(","):
            first, _, last = numbered.partition("-")
            if first.isdecimal() and (last or first).isdecimal():
                for number in range(int(first), min(int(last or first), int(first) + _MOST_HOSTS) + 1):
                    yield from _hosts(f"{start}{number:0{len(first)}}{end}")


def names_in(text: str) -> set[str]:
    """A text of a capture and its words that may be hosts: of eth0 on gpu-node17 rack B4 it and gpu-node17."""
    return {name for name in (text.strip(), *_HOST_LIKE.findall(text)) if not _NO_HOST.fullmatch(name)}
