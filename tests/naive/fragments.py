"""Fragments said plainly: which datagram a fragment belongs to, and when its flow is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from naive.headers import Fragment

MOST_OPEN, MOST_WAITING, LONGEST_NS = 1024, 4096, 30 * 10**9

Piece = TypeVar("Piece")  # a fragment's packet, as the caller has it
Flow = TypeVar("Flow")  # the flow of a packet, as the caller has it


@dataclass
class Datagram(Generic[Piece, Flow]):
    """opened: time of the fragment that was seen first. flow: that of the first fragment, None before it came.
    seen: bytes that came. end: where the last fragment ends, None before it came."""

    opened: int
    seen: int = 0
    end: int | None = None
    flow: Flow | None = None
    waiting: list[Piece] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return self.end is not None and self.seen >= self.end


class Fragments(Generic[Piece, Flow]):
    """The open datagrams. count: called once with every fragment and the flow of its first, None: the flow that its
    own headers say (the first's, or the one with ports 0); returns the flow."""

    def __init__(self, count: Callable[[Piece, Flow | None], Flow]) -> None:
        self._count = count
        self._open: dict[tuple, Datagram[Piece, Flow]] = {}  # in the order in which they were opened

    def first(self, fragment: Fragment, time: int, piece: Piece) -> None:
        """A fragment that has the transport header. One that was skipped is as if it had not come."""
        flow = self._count(piece, None)  # before any that have waited
        datagram = self._of(fragment, time)
        if datagram.flow is not None:
            self._close(fragment.datagram)
            datagram = self._of(fragment, time)
        datagram.flow = flow
        self._release(datagram)
        self._take(datagram, fragment)

    def later(self, fragment: Fragment, time: int, piece: Piece) -> None:
        datagram = self._of(fragment, time)
        if datagram.flow is not None:
            self._count(piece, datagram.flow)
        else:
            datagram.waiting.append(piece)
        self._take(datagram, fragment)
        if sum(len(each.waiting) for each in self._open.values()) > MOST_WAITING:
            self._close(next(key for key, each in self._open.items() if each.waiting))

    def finish(self) -> None:
        """The file is at its end: nothing more comes."""
        for key in list(self._open):
            self._close(key)

    def _of(self, fragment: Fragment, time: int) -> Datagram[Piece, Flow]:
        """The open datagram of a fragment, which is opened where there is none."""
        key = fragment.datagram
        if key in self._open and time - self._open[key].opened >= LONGEST_NS:
            self._close(key)
        if key not in self._open:
            if len(self._open) == MOST_OPEN:
                self._close(next(iter(self._open)))
            self._open[key] = Datagram(time)
        return self._open[key]

    def _take(self, datagram: Datagram[Piece, Flow], fragment: Fragment) -> None:
        """Add up its bytes; the datagram is closed when they are complete."""
        datagram.seen += fragment.length
        if not fragment.more:
            datagram.end = fragment.offset + fragment.length
        if datagram.complete:
            self._close(fragment.datagram)

    def _close(self, key: tuple) -> None:
        self._release(self._open.pop(key))

    def _release(self, datagram: Datagram[Piece, Flow]) -> None:
        for piece in datagram.waiting:
            self._count(piece, datagram.flow)
        datagram.waiting.clear()
