"""The hash that identifies an input file: as b3sum or sha256sum print it, so that anybody can compare the file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from io import RawIOBase
from pathlib import Path
from typing import BinaryIO, Protocol, cast

#: Columns of captures. BLAKE3 is several times as fast as SHA-256, also where the CPU has instructions for that.
ALGORITHMS = ("blake3", "sha256")
DEFAULT = "blake3"
NONE = "none"
CHOICES = (*ALGORITHMS, NONE)


class Hasher(Protocol):
    """A hash of bytes that come in pieces. `update` releases the interpreter while it works on a large one."""

    def update(self, data: memoryview, /) -> object:
        """Take the next bytes."""

    def hexdigest(self) -> str:
        """The hash in hex of the bytes so far."""


def hasher(algorithm: str) -> Hasher:
    """A new hash of this name, one of ALGORITHMS."""
    if algorithm == "blake3":
        from blake3 import blake3

        return cast(Hasher, blake3())
    return hashlib.new(algorithm)


def digests_of(path: Path, algorithm: str) -> dict[str, str]:
    """The hash of a file in hex by the name of its algorithm; empty for NONE. Raises OSError."""
    if algorithm == NONE:
        return {}
    with path.open("rb") as file:
        return digests_in(file, algorithm)


def digests_in(file: BinaryIO | RawIOBase, algorithm: str) -> dict[str, str]:
    """The same of an open file, from its place on. algorithm: not NONE."""
    return {algorithm: hashlib.file_digest(file, lambda: hasher(algorithm)).hexdigest()}  # type: ignore[arg-type,return-value]


def named(digests: Mapping[str, str]) -> str | None:
    """The digest as provenance states it: SHA-256 as bare hex, as it always was, another one after its name."""
    if sha256 := digests.get("sha256"):
        return sha256
    return next((f"{algorithm}:{digest}" for algorithm, digest in digests.items()), None)
