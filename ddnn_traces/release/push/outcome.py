"""What an upload would send, and what it did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parcel:
    """A file as it is sent. name: in the release. address: where it goes."""

    name: str
    bytes: int
    address: str


@dataclass(frozen=True)
class Outcome:
    """What was done. where: the address of the version. sent, sent_bytes: now; there: files that were there before.

    notes: what the publisher has to know or do next.
    """

    where: str
    sent: int
    sent_bytes: int
    there: int
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """One line on it."""
        if not self.sent:
            return f"{self.where}: already there, all {self.there} files are equal"
        there = f", {self.there} were there already" if self.there else ""
        return f"{self.where}: sent {self.sent} files, {self.sent_bytes:,} bytes{there}"
