"""Damaged captures without end: the numba engine must read the same as the naive reader, and neither may crash or hang.

    python tests/fuzz.py --seconds 600 [--seed N]     for a given time (`make fuzz`)
    python tests/fuzz.py --cases 1000 --seed 1        the same cases every time (tests/test_fuzz.py)

Case n of a seed is always the same. A case that fails is written to a file, and its name and the reason are printed.
With NUMBA_BOUNDSCHECK=1 (and NUMBA_CACHE_DIR at an empty folder, as the cache does not distinguish such code) numba
checks every index of the loop.
"""

from __future__ import annotations

import argparse
import faulthandler
import gzip
import itertools
import random
import secrets
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import naive
import packets as p
from captures_by_hand import CAPTURES, LINKS, SHUT, T0, TUNNELS, V4, V6, fragment_frames, in_time, roce_frame
from naive.captures import records
from readings import SAMPLE, assert_balanced, assert_same, read_fast

SAMPLE_BYTES = 4000  # of each file: some 40 packets
LONGEST_CASE_S = 60  # reading both ways takes some milliseconds
#: Values at the limits that the readers compare with.
EDGES = (
    0, 1, 4, 6, 8, 12, 16, 19, 20, 39, 40, 54, 127, 128, 255, 0x0800, 0x86DD, 0x8847, 0xFFFF, 2**24, 2**31, 2**32 - 1,
)  # fmt: skip


@cache
def seeds() -> list[bytes]:
    """Sound captures: the starts of real ones, and those made by hand."""
    files = sorted(SAMPLE.glob("*/worker-1-tcpdump.pcap*"))
    return [uncompressed(path)[:SAMPLE_BYTES] for path in files] + made_by_hand()


def made_by_hand(link_types: Iterable[int] = LINKS) -> list[bytes]:
    """Sound captures made by hand, and one of each of these link types."""
    made = [data[:20_000] for data in CAPTURES.values()]
    tunnels = [p.ethernet(packet) for packet, _ in TUNNELS.values()] + [p.ethernet(packet) for packet in SHUT.values()]
    body = p.udp(bytes(1000))
    pieces = [fragment_frames(body, [400, 320], six, identification=i) for six in (False, True) for i in (1, 2)]
    streams = [p.segment(10 * (i % 7), 10 * (i * 7 % 23), p.ACK) for i in range(30)]
    copies = [p.sll2(frame[14:], interface=number) for frame in streams for number in (3, 4, 5)]
    own = [tunnels, list(itertools.chain(*pieces)), [*streams, roce_frame(), p.segment(flags=p.SYN), *streams]]
    links = [p.pcap(in_time(LINKS[link](V4), LINKS[link](V6, p.IPV6)), link=link) for link in link_types]
    return (
        made
        + [*links, p.pcap(in_time(*copies), link=p.SLL2)]
        + [p.pcap(in_time(*frames)) for frames in own]
        + [p.pcapng(in_time(*frames), ">") for frames in own]
    )


def uncompressed(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data


# --- damage


def case(seed: int, number: int) -> bytes:
    """A damaged capture."""
    chance = random.Random(f"{seed}/{number}")
    if chance.random() < 0.4:
        return damaged(chance, chance.choice(seeds()))
    return with_damaged_frames(chance)


def damaged(chance: random.Random, data: bytes) -> bytes:
    """Bytes changed, cut out, doubled, put in from another capture, or cut off."""
    for _ in range(chance.choice((1, 1, 2, 4, 8))):
        if not data:
            return data
        at = chance.randrange(len(data))
        size = chance.choice((1, 2, 4, 4, 8, 60))
        way = chance.randrange(7)
        if way == 0:
            data = data[:at] + chance.randbytes(1) + data[at + 1 :]
        elif way == 1:
            data = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        elif way == 2:
            word = chance.choice(EDGES).to_bytes(4, chance.choice(("little", "big")))
            word = word[2:] if chance.random() < 0.3 else word
            data = data[:at] + word + data[at + len(word) :]
        elif way == 3:
            data = data[:at] + data[at + size :]
        elif way == 4:
            data = data[:at] + data[at : at + size] + data[at:]
        elif way == 5:
            other = chance.choice(seeds())
            begin = chance.randrange(len(other))
            data = data[:at] + other[begin : begin + chance.choice((4, 40, 400))] + data[at:]
        elif chance.random() < 0.3:
            data = data[:at]
    return data


def with_damaged_frames(chance: random.Random) -> bytes:
    """Records that hold, of one or two captures, with damage inside the frames, cut and in another order."""
    chosen = [record for _ in range(chance.choice((1, 1, 2))) for record in records(chance.choice(seeds()))[0]]
    link = chosen[0].link if chosen else p.ETHERNET
    made = [p.Record(each.time, each.captured, each.wire) for each in chosen[:80]]
    for _ in range(chance.choice((1, 4, 20))):
        if made:
            i = chance.randrange(len(made))
            made[i] = damaged_record(chance, made[i])
    if chance.random() < 0.3:
        chance.shuffle(made)
    form = chance.choice("<>")
    if chance.random() < 0.3:
        return p.pcapng(made, form, link=link)
    return p.pcap(made, form, chance.choice((1, 1000)), link=link)


def damaged_record(chance: random.Random, record: p.Record) -> p.Record:
    way = chance.randrange(8)
    if way == 0:
        return replace(record, wire=chance.choice((*EDGES, len(record.frame) + 1)))
    if way == 1:
        return replace(record, time_ns=abs(record.time_ns + chance.choice((-1, 1, 1000, 30 * 10**9, -30 * 10**9))))
    if way == 2:
        return replace(record, frame=record.frame[: chance.randrange(len(record.frame) + 1)])
    frame = bytearray(record.frame)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if frame:
            at = chance.randrange(min(len(frame), 120))  # where the headers are
            frame[at] = chance.choice((chance.randrange(256), frame[at] ^ 1 << chance.randrange(8)))
    return replace(record, frame=bytes(frame))


# --- the target


def check(data: bytes, chance: random.Random) -> None:
    """Raise AssertionError where the engine and the naive reader differ, or the ledger does not add up."""
    sizes = {}
    if chance.random() < 0.5:
        sizes = {"block": chance.randrange(2, 400), "cells": chance.randrange(1, 6), "flows": chance.choice((1, 2, 4))}
    bounds = sorted(T0 + 1000 * chance.randrange(40) for _ in range(chance.randrange(5)))
    open_tunnels = chance.random() < 0.8
    plain = naive.read(data, 5000, bounds, open_tunnels)
    assert_balanced(plain)
    assert_same(read_fast(data, 5000, bounds, open_tunnels, **sizes), plain)


def fuzz(seed: int, cases: int, seconds: float, folder: Path) -> Path | None:
    """Check cases until their number or the time is reached; the file of the first that fails."""
    begin = time.monotonic()
    for number in range(cases):
        if time.monotonic() - begin > seconds:
            break
        data = case(seed, number)
        faulthandler.dump_traceback_later(LONGEST_CASE_S * (1 if number else 10), exit=True)  # the first one compiles
        try:
            check(data, random.Random(f"{seed}/{number}/sizes"))
        except Exception:
            traceback.print_exc()
            failed = folder / f"fuzz-{seed}-{number}"
            failed.write_bytes(data)
            return failed
        finally:
            faulthandler.cancel_dump_traceback_later()
    else:
        number = cases
    print(f"seed {seed}: {number} cases in {time.monotonic() - begin:.0f} s, all equal")
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--cases", type=int, default=sys.maxsize, help="stop after so many cases")
    parser.add_argument("--seed", type=int, default=None, help="a random one if not given")
    arguments = parser.parse_args()
    seed = secrets.randbelow(10**9) if arguments.seed is None else arguments.seed
    failed = fuzz(seed, arguments.cases, arguments.seconds, Path())
    if failed:
        sys.exit(f"{failed} is read in two ways")


if __name__ == "__main__":
    main()
