"""The forms in which something that must not be in a release may be written, as text and as bytes."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Iterator

_LEAST_DECIMAL = 10**8  # smaller numbers are counts of something


def address_texts(text: str) -> Iterator[str]:
    """Spellings of an address: IPv4 dotted, padded, with - and _, hex, decimal, reversed; IPv6 short, long, hex."""
    ip = ipaddress.ip_address(text)
    digits = ip.packed.hex()
    yield from (str(ip), digits, f"0x{digits}", ip.reverse_pointer)
    if isinstance(ip, ipaddress.IPv4Address):
        parts = str(ip).split(".")
        yield from ("-".join(parts), "_".join(parts), ".".join(part.zfill(3) for part in parts))
        yield f"ffff:{int(ip) >> 16:x}:{int(ip) & 0xFFFF:x}"
        if int(ip) >= _LEAST_DECIMAL:
            yield str(int(ip))
    else:
        yield from (ip.exploded, ":".join(f"{int(part, 16):x}" for part in ip.exploded.split(":")))
        yield from (ip.exploded.replace(":", "-"), str(int(ip)))


def address_numbers(text: str) -> Iterator[int]:
    """An IPv4 address as a number in both byte orders; none for IPv6, whose 16 bytes are searched for as they are."""
    packed = ipaddress.ip_address(text).packed
    if len(packed) == 4:
        yield int.from_bytes(packed, "big")
        yield int.from_bytes(packed, "little")


def hardware_texts(address: bytes) -> Iterator[str]:
    """Spellings of a hardware address of 6 bytes, also as the end of an IPv6 address (RFC 4291, appendix A)."""
    pairs = [f"{byte:02x}" for byte in address]
    yield from (":".join(pairs), "-".join(pairs), "".join(pairs), ":".join(f"{byte:x}" for byte in address))
    yield ".".join("".join(pairs[k : k + 2]) for k in (0, 2, 4))
    words = [int.from_bytes(interface_id(address)[k : k + 2], "big") for k in (0, 2, 4, 6)]
    yield from (":".join(f"{word:x}" for word in words), ":".join(f"{word:04x}" for word in words))


def interface_id(address: bytes) -> bytes:
    """The 8 bytes that stand for a hardware address in an IPv6 address."""
    return bytes([address[0] ^ 2]) + address[1:3] + b"\xff\xfe" + address[3:]


def time_texts(ns: int) -> Iterator[str]:
    """Spellings of a time as a number: ns, us, ms and s since the epoch."""
    seconds, fraction = divmod(ns, 10**9)
    yield from (str(ns), str(ns // 1000), str(ns // 10**6), str(seconds), f"{seconds}.{fraction:09d}")


def secret_texts(secret: bytes) -> Iterator[str]:
    """Spellings of the key."""
    yield secret.hex()
    yield base64.b64encode(secret).decode().rstrip("=")
    yield base64.urlsafe_b64encode(secret).decode().rstrip("=")
