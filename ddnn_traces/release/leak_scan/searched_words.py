"""Collects what must not be in a release: all that identifies a host, a user, a place or a time in the dataset, its
sources and this machine.

Left out is what identifies nobody: words that this program itself writes into releases, names that are a role,
addresses that every host has (127.0.0.1), and what the publisher states in the release's own description.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import ipaddress
import itertools
import os
import pwd
import re
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ddnn_traces.ingestors.sources import find_runs, host_label
from ddnn_traces.pcap.capture_facts import STDIN
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release.anonymise.identifiers import TIMES, every_value, identifies_no_host, is_role_word
from ddnn_traces.release.anonymise.key import read_secret
from ddnn_traces.release.anonymise.mapping import Options
from ddnn_traces.release.anonymise.words import own_text, own_words
from ddnn_traces.release.leak_scan.original_captures import (
    folder_words,
    hardware_addresses,
    names_in,
    pcapng_texts,
    text_words,
)
from ddnn_traces.release.leak_scan.search import Homes, Instants, Moments, Searcher, Secrets

#: Shorter names are in too many words to be searched for.
_LEAST_NAME = 4
_LEAST_PATH = 6
#: Names that identify nobody.
_COMMON_NAMES = {
    "root", "user", "users", "admin", "ubuntu", "debian", "runner", "nobody", "home", "localhost", "localdomain",
    "data", "sample", "dataset", "captures", "traces", "runs", "test", "tests", "host", "node", "server", "master",
    "linux", "docker", "container", "system", "default", "public", "local", "ip6-localhost", "ip6-loopback",
    "shared", "guest", "everyone", "all-users", "ec2-user", "vagrant", "jovyan",
}  # fmt: skip
#: Kinds that release.toml may state of people and institutes; an address or a hash never is.
_MAY_BE_STATED = ("name of ", "domain of ", "a text in ")
#: Kinds of names that have a domain.
_QUALIFIED = ("name of a host", "name of this machine")
#: Second-level labels under which others register: co.uk, ac.at, edu.cn.
_SECOND_LEVEL = {"ac", "co", "com", "edu", "go", "gob", "gov", "gv", "mil", "ne", "net", "or", "org"}
#: Public domains, which descriptions, logs of downloads and clouds name.
_PUBLIC_DOMAINS = {
    "amazonaws.com", "anaconda.org", "apache.org", "bioschemas.org", "creativecommons.org", "datacite.org",
    "docker.com", "docker.io", "doi.org", "github.com", "gitlab.com", "googleapis.com", "huggingface.co",
    "json-schema.org", "mlcommons.org", "nvidia.com",
    "orcid.org", "purl.org", "pypi.org", "python.org", "pythonhosted.org", "pytorch.org",
    "schema.org", "spdx.org", "tensorflow.org", "w3.org", "w3id.org", "wikidata.org", "wikipedia.org", "xmlns.com",
    "zenodo.org", "in-addr.arpa", "ip6.arpa",
}  # fmt: skip
#: Folders in which each user has one.
_HOMES = ("home", "homes", "users")
#: Hosts and captures of each run are numbered, since messages must not show their names.
_HOSTS = """
SELECT run_id, host_ip, label, 'host ' || row_number() OVER (PARTITION BY run_id ORDER BY host_ip) AS what
FROM hosts ORDER BY run_id, host_ip
"""
#: Names of hosts in logs, outside of the table hosts.
_WORKERS = """
SELECT run_id, value AS label, 'worker ' || row_number() OVER (PARTITION BY run_id ORDER BY value) AS what
FROM ({}) ORDER BY run_id, value
"""
_CAPTURES = """
SELECT run_id, capture_id, sha256, blake3,
    'capture ' || row_number() OVER (PARTITION BY run_id ORDER BY capture_id) AS what
FROM captures ORDER BY run_id, capture_id
"""


@dataclass
class Words:
    """What is searched for. It holds secrets: never shown.

    texts: in small letters, each with its kind and, in brackets, its run. binary: bytes with their kind. numbers: IPv4
    addresses. times: first and last of each run, ns since the epoch, inclusive. runs: those whose
    names hold a word, with start and end of each such part. published: day of the release, which is no time of a run.
    """

    texts: dict[str, str] = field(default_factory=dict, repr=False)
    binary: dict[bytes, str] = field(default_factory=dict, repr=False)
    numbers: set[int] = field(default_factory=set, repr=False)
    times: list[tuple[int, int]] = field(default_factory=list, repr=False)
    runs: dict[str, list[tuple[int, int]]] = field(default_factory=dict, repr=False)
    published: str = ""

    def searcher(self) -> Searcher:
        """Finds all of them in uncompressed bytes. Raises MissingExtra."""
        shapes = (Moments(self.times, self.published), Instants(self.times), Homes(), Secrets())
        return Searcher(self.texts, self.binary, shapes=shapes)


def words(
    dataset: Dataset,
    source_files: list[str],
    options: Options | None = None,
    key: Path | None = None,
    intended: str = "",
) -> Words:
    """What a release of the dataset must not hold. Raises MissingExtra, UsageError.

    source_files: the original captures, where they are available, as ingest takes them. options: of the anonymisation;
    what it keeps is not searched for. key: its file. intended: what the publisher states in the description on purpose.
    """
    options = options or Options()
    collected = _Collector(intended)
    addresses = {row["value"] for row in dataset.sql_arrow(every_value("address")).to_pylist()}
    hosts = dataset.sql_arrow(_HOSTS).to_pylist()
    workers = dataset.sql_arrow(_WORKERS.format(every_value("label", leave_out=["hosts"]))).to_pylist()
    for row in [*hosts, *workers]:
        collected.name(row["label"], "name of a host", (row["what"], row["run_id"]))
    for row in dataset.sql_arrow(_CAPTURES).to_pylist():
        collected.capture(row["capture_id"], (row["what"], row["run_id"]))
        for digest in (row["sha256"], row["blake3"]) if "hash" in options.withheld else ():
            collected.add(digest or "", "the hash of an original capture")
    _add_sources(collected, source_files, addresses)
    _add_machine(collected, [dataset.path, *map(Path, source_files)])
    if options.addresses != "kept":
        for row in hosts:
            collected.address(row["host_ip"], (row["what"], row["run_id"]))
        for address in sorted(addresses):
            collected.address(address)
    if options.times != "kept":
        for row in dataset.sql_arrow(TIMES).to_pylist():
            collected.words.times.append((row["first_ns"], row["last_ns"]))
    if key is not None:
        collected.secret(read_secret(key))
    return collected.finished(dataset.run_ids)


def _add_sources(collected: _Collector, source_files: list[str], addresses: set[str]) -> None:
    made = {made_hardware(address) for address in addresses}  # says no more than the IP address, searched for itself
    for folder in filter(Path.is_dir, map(Path, source_files)):
        _add_found(collected, folder_words([path for path in folder.iterdir() if path.is_file()]), addresses)
    for run in find_runs(source_files) if source_files else []:
        if run.folder:
            collected.path(run.folder)
        for path in run.captures:
            if path == STDIN:
                continue
            collected.path(path.parent)
            collected.capture(path.name)
            for address in hardware_addresses(path) - made:
                collected.hardware(address)
            for text in pcapng_texts(path):
                for name in names_in(text):
                    collected.name(name, "a text in the original capture")
                _add_found(collected, text_words(text), addresses)
        if run.folder:
            others = [path for path in run.folder.rglob("*") if path.is_file() and path not in run.captures]
            _add_found(collected, folder_words(others), addresses)


def _add_found(collected: _Collector, found: dict[str, set[str]], addresses: set[str]) -> None:
    """What a text of the sources names, by kind."""
    for text in found["address"]:
        with contextlib.suppress(ValueError):
            addresses.add(str(ipaddress.ip_address(text)))
    for text in found["hardware"]:
        collected.hardware(bytes.fromhex(text.replace(":", "").replace("-", "")))
    for text in found["path"]:
        collected.path(Path(text))
    for text in found["host"]:
        collected.name(text, "name of a host")
    for text in found["user"]:
        collected.name(text, "name of a user")


def _add_machine(collected: _Collector, paths: Iterable[Path]) -> None:
    """Of the publisher's machine: paths, users, its name."""
    users = {os.environ.get(name) for name in ("USER", "LOGNAME", "SUDO_USER")}
    with contextlib.suppress(KeyError, OSError):
        users.add(getpass.getuser())
    for path in paths:
        absolute = Path(os.path.abspath(path))  # noqa: PTH100 (as ingest names it)
        collected.path(absolute)
        with contextlib.suppress(OSError):
            collected.path(absolute.resolve())
        with contextlib.suppress(KeyError, OSError):
            users.add(pwd.getpwuid(absolute.stat().st_uid).pw_name)
    with contextlib.suppress(RuntimeError):
        collected.path(Path.home())
        users.add(Path.home().name)
    for user in filter(None, users):
        collected.name(user, "name of a user")
    for name in {socket.gethostname(), socket.getfqdn()}:
        collected.name(name, "name of this machine")


_Whose = tuple[str, str] | None  # what of a run, and the run


class _Collector:
    def __init__(self, intended: str) -> None:
        self.words = Words()
        self._intended = intended.lower()
        self._whose: dict[str, tuple[str, str]] = {}

    def finished(self, runs: Sequence[str]) -> Words:
        """The words, each with its run: by name, or by number where the name must not be shown."""
        self._forget_own()
        searcher = self.words.searcher()
        shown = {}
        for number, run_id in enumerate(runs, 1):
            parts = _parts_found(run_id, searcher)
            shown[run_id] = f"run number {number}" if parts else f"run {run_id}"
            if parts:
                self.words.runs[run_id] = parts
                self.words.texts.setdefault(run_id.lower(), "name of a run")
        for word, (what, run_id) in self._whose.items():
            self.words.texts[word] += f" ({what} of {shown[run_id]})"
        return self.words

    def _forget_own(self) -> None:
        """Leave out names that every release holds: of a.pcap that is "a pcap", which a column's meaning has."""
        names = {text: kind for text, kind in self.words.texts.items() if kind.startswith(_MAY_BE_STATED)}
        data = own_text().encode()
        for text in {data[start:end].decode() for start, end, _ in Searcher(names, {}).spans(data)}:
            del self.words.texts[text]
            self._whose.pop(text, None)

    def add(self, text: str, kind: str, whose: _Whose = None) -> None:
        """Search for a text, unless it is a name that the publisher states on purpose."""
        word = text.lower().strip()
        is_meant = kind.startswith(_MAY_BE_STATED) and word in self._intended
        if word and not is_meant and word not in self.words.texts:
            self.words.texts[word] = kind
            if whose:
                self._whose[word] = whose

    def name(self, text: str | None, kind: str, whose: _Whose = None) -> None:
        word = (text or "").strip().lower()
        is_number = not re.search("[a-z]", word)
        if len(word) < _LEAST_NAME or is_number or word.removeprefix("www.") in _PUBLIC_DOMAINS:
            return
        if word in _COMMON_NAMES or is_role_word(word) or word in own_words():
            return
        self.add(word, kind, whose)
        for form in name_texts(word):
            self.add(form, kind, whose)
        short = word.split(".")[0]
        if short != word and "@" not in word:
            self.name(short, kind, whose)
        if kind in _QUALIFIED:
            for domain in _domains(word):
                self.add(domain, "domain of a host", whose)

    def capture(self, name: str, whose: _Whose = None) -> None:
        """The name of an original capture: the host in it, and the whole unless that is a role."""
        label = host_label(Path(name))
        if label is None or not is_role_word(label):
            self.name(name, "name of a capture", whose)
            self.name(label, "name of a host", whose)

    def path(self, path: Path) -> None:
        """An absolute path, and the folders above it but for the first two, which are on every machine."""
        text = str(path).rstrip("/")
        if len(text) >= _LEAST_PATH and text.count("/") >= 2:
            self.add(text, "a path")
        elif text.count("/") == 1 and len(text) > 1:
            self.add(text + "/", "a path")
        for folder in path.parents:
            if len(folder.parts) > 3:
                self.add(str(folder), "a path")
        for above, name in itertools.pairwise(path.parts):
            if above.lower() in _HOMES and (name != path.name or "." not in name):  # not list.txt in users/
                self.name(name, "name of a user")

    def address(self, text: str, whose: _Whose = None) -> None:
        if identifies_no_host(text):
            return
        for form in address_texts(text):
            self.add(form, "an IP address", whose)
        packed = ipaddress.ip_address(text).packed
        if len(packed) == 4:
            self.words.numbers.add(int.from_bytes(packed, "big"))
            for mark in ".-_":
                self.add(mark.join(map(str, (*packed[:3], 0))), "an IP address")  # its network: 10.10.0.0/24
        else:
            self.words.binary[packed] = self.words.binary[packed[::-1]] = "an IP address"

    def hardware(self, address: bytes) -> None:
        if not any(address) or address[0] & 1 or not any(address[:5]):
            return
        for form in hardware_texts(address):
            self.add(form, "a hardware address")
        for made in (address, interface_id(address), *guids(address)):
            self.words.binary[made] = "a hardware address"

    def secret(self, secret: bytes) -> None:
        for form in secret_texts(secret):
            self.add(form, "the key")
        self.words.binary[secret] = "the key"


def _parts_found(text: str, searcher: Searcher) -> list[tuple[int, int]]:
    """Start and end of each word in a text."""
    data = text.encode(errors="replace")
    return [
        (len(data[:start].decode(errors="ignore")), len(data[:end].decode(errors="ignore")))
        for start, end, _ in searcher.spans(data)
    ]


def _domains(name: str) -> Iterator[str]:
    """Domains that a host's name is in, of two labels and more: cluster.example.org and example.org, not co.uk."""
    labels = name.split(".")
    if not labels[-1].isalpha() or not all(re.fullmatch("[a-z0-9_-]+", label) for label in labels):
        return
    for first in range(1, len(labels) - 1):
        domain = labels[first:]
        is_suffix = len(domain) == 2 and domain[0] in _SECOND_LEVEL and len(domain[1]) == 2
        if not is_suffix and ".".join(domain) not in _PUBLIC_DOMAINS:
            yield ".".join(domain)


# --- forms in which a value may be written, as text and as bytes

_LEAST_DIGITS = 9  # of a decimal number; smaller ones are counts of something


#: Letters from which on a name is searched for without its separators, too, and from the last letter to the first.
_LEAST_PACKED, _LEAST_REVERSED = 8, 6


def name_texts(name: str) -> Iterator[str]:
    """Other spellings of a name: with another separator or none, and with its letters in the other order."""
    parts = re.split("[-_. ]", name)
    if len(parts) > 1:
        yield from (mark.join(parts) for mark in "-_. ")
        if len("".join(parts)) >= _LEAST_PACKED or re.search("[0-9]", name):
            yield "".join(parts)
    if len(name) >= _LEAST_REVERSED:
        yield name[::-1]


def address_texts(text: str) -> Iterator[str]:
    """Spellings of an address, also with its bytes in the other order: IPv4 dotted, padded, with - and _, hex, decimal,
    without separators; IPv6 short, long, hex, decimal.
    """
    ip = ipaddress.ip_address(text)
    if isinstance(ip, ipaddress.IPv4Address):
        for packed in (ip.packed, ip.packed[::-1]):
            yield from _ipv4_texts(packed)
        yield f"ffff:{int(ip) >> 16:x}:{int(ip) & 0xFFFF:x}"
        yield f"ffff:{int(ip) >> 16:04x}:{int(ip) & 0xFFFF:04x}"
    else:
        yield from (str(ip), ip.packed.hex(), ip.packed[::-1].hex(), ip.reverse_pointer, ip.exploded)
        yield ":".join(f"{int(part, 16):x}" for part in ip.exploded.split(":"))
        yield from (ip.exploded.replace(":", "-"), str(int(ip)))


def _ipv4_texts(packed: bytes) -> Iterator[str]:
    decimal, pairs = [str(byte) for byte in packed], [f"{byte:02x}" for byte in packed]
    for mark in (".", "-", "_", "%2e"):
        yield from (mark.join(decimal), mark.join(number.zfill(3) for number in decimal))
    yield from (".".join(f"{zero}{byte:0{width}o}" for byte in packed) for zero, width in (("", 3), ("0", 1), ("0", 3)))
    yield ".".join(f"0x{pair}" for pair in pairs)
    yield from (mark.join(pairs) for mark in ("", ":", "-", ".", "_", "\\x", ", 0x", ",0x"))
    number = int.from_bytes(packed, "big")
    yield f"0x{number:x}"
    yield "".join(number.zfill(3) for number in decimal)
    yield from (digits for digits in (str(number), "".join(decimal)) if len(digits) >= _LEAST_DIGITS)


def hardware_texts(address: bytes) -> Iterator[str]:
    """Spellings of a hardware address of 6 bytes, also with its bytes in the other order, and as the end of an IPv6
    address (RFC 4291, appendix A).
    """
    for ordered in (address, address[::-1]):
        pairs = [f"{byte:02x}" for byte in ordered]
        yield from (mark.join(pairs) for mark in ("", ":", "-", ".", "_", "\\x"))
        yield ":".join(f"{byte:x}" for byte in ordered)
        yield from (mark.join("".join(pairs[k : k + 2]) for k in (0, 2, 4)) for mark in ".:-")
    for made in (interface_id(address), *guids(address)):
        words = [int.from_bytes(made[k : k + 2], "big") for k in (0, 2, 4, 6)]
        yield from (":".join(f"{word:x}" for word in words), ":".join(f"{word:04x}" for word in words))
        yield from (mark.join(f"{byte:02x}" for byte in made) for mark in ("", ":", "-"))
    yield from (f"_{mark.join(f'{byte:02x}' for byte in address[3:])}" for mark in ":-")  # Mellanox_2d:4a:1e


def guids(address: bytes) -> tuple[bytes, bytes]:
    """The InfiniBand identifiers that vendors make of a hardware address: with FF FE or 03 00 in the middle."""
    return address[:3] + b"\xff\xfe" + address[3:], address[:3] + b"\3\0" + address[3:]


def interface_id(address: bytes) -> bytes:
    """The 8 bytes that stand for a hardware address in an IPv6 address."""
    return bytes([address[0] ^ 2]) + address[1:3] + b"\xff\xfe" + address[3:]


def made_hardware(ip: str) -> bytes:
    """The hardware address that a cut-down capture has for an IP address (pcap/compiled/cut.py)."""
    return b"\2\0" + ipaddress.ip_address(ip).packed[-4:]


def secret_texts(secret: bytes) -> Iterator[str]:
    """Spellings of the key: hex, and what base64 of it, or of its hex, has in common whatever stands before it."""
    yield secret.hex()
    for data in (secret, secret.hex().encode()):
        for before in range(3):
            for encoded in (base64.b64encode(bytes(before) + data), base64.urlsafe_b64encode(bytes(before) + data)):
                # the first and the last letter of it hold bits of what is around
                yield encoded.decode()[(before * 8 + 5) // 6 : (before + len(data)) * 8 // 6]
