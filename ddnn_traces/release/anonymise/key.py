"""The secret of an anonymisation. Its holder can undo the mapping: it stays outside the release.

A key file holds at least 32 bytes as hex digits, as base64 or unencoded (a passphrase of 32 letters is too easily
guessed, and not distinguishable from random bytes: make the key with a random generator). Everything is derived from
the key by HMAC-SHA256 (RFC 2104) in the counter form of HKDF-Expand (RFC 5869, 2.3), one stream for each purpose.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
from pathlib import Path

from ddnn_traces.errors import UsageError
from ddnn_traces.store.whole_files import sync

#: Bytes that a key has at least.
KEY_BYTES = 32
#: A key file of more is something else.
_MOST_FILE_BYTES = 4096
#: Different bytes that 32 random ones have but for one time in 10^15 and more.
_LEAST_DIFFERENT = 16


class Key:
    """A secret; its repr does not show it.

    id: 16 hex digits that may be published: two releases of the same key have the same, and it reveals nothing else.
    """

    __slots__ = ("_secret", "id")

    def __init__(self, secret: bytes) -> None:
        self._secret = hashlib.sha256(b"ddnn_traces release key\0" + secret).digest()
        self.id = self.derive("id", 8).hex()

    def __repr__(self) -> str:
        return f"Key(id={self.id!r})"

    def derive(self, purpose: str, n_bytes: int) -> bytes:
        """Bytes for a purpose; they reveal nothing of those for another."""
        made, block = b"", b""
        for counter in range(1, -(-n_bytes // 32) + 1):
            block = hmac.digest(self._secret, block + purpose.encode() + b"\0" + counter.to_bytes(4, "big"), "sha256")
            made += block
        return made[:n_bytes]

    def number(self, purpose: str, below: int) -> int:
        """A number from 0 to below - 1; 16 more bytes than it needs make all of them equally likely."""
        return int.from_bytes(self.derive(purpose, (below.bit_length() + 7) // 8 + 16), "big") % below


def read_or_make(path: Path) -> Key:
    """The key in a file; a missing file is made, readable by its owner alone. Raises UsageError.

    The error states what is wrong with the file, never its content.
    """
    if not path.exists() and not path.is_symlink():
        _make(path)
    return Key(read_secret(path))


def find(folder: Path, key_id: str | None) -> Path | None:
    """The file NAME.key in a folder that holds the key with this `id`, if there is one."""
    for path in sorted(folder.glob("*.key")):
        with contextlib.suppress(UsageError):
            if Key(read_secret(path)).id == key_id:
                return path
    return None


def read_secret(path: Path) -> bytes:
    """The bytes of the key in a file. Raises UsageError where it cannot be read or is too short."""
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: the key cannot be read ({error.strerror}); check the path") from error
    if len(content) > _MOST_FILE_BYTES:
        raise UsageError(f"{path}: more than {_MOST_FILE_BYTES} bytes are not a key; check the path")
    secret = _decoded(content)
    if len(secret) < KEY_BYTES:
        raise UsageError(
            f"{path}: a key of {len(secret)} bytes is too short, at least {KEY_BYTES} are needed; name a file that "
            "does not exist, and a key is made there, or make one with 'openssl rand -hex 32'"
        )
    if len(set(secret)) < _LEAST_DIFFERENT:
        raise UsageError(
            f"{path}: the key repeats the same few bytes and is easily guessed; make one with 'openssl rand -hex 32'"
        )
    return secret


def _decoded(content: bytes) -> bytes:
    """Hex or base64 where the whole file is such text, else the bytes themselves."""
    text = b"".join(content.split())
    with contextlib.suppress(ValueError):
        return bytes.fromhex(text.decode("ascii"))
    with contextlib.suppress(binascii.Error):
        return base64.b64decode(text, validate=True)
    return content


def _make(path: Path) -> None:
    try:
        write_private(path, secrets.token_hex(KEY_BYTES) + "\n")
    except OSError as error:
        raise UsageError(
            f"{path}: no key can be made there ({error.strerror}); name a file in a folder that can be written"
        ) from error


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone can read, whole or not at all. Raises OSError."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
        sync([path.parent])
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
