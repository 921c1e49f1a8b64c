"""How many planted secrets a release publishes: 200 in 20 classes, ten spellings of each.

    python benchmarks/planted_secrets.py                      # all, careful and strict
    python benchmarks/planted_secrets.py --half developed     # the five spellings that the program was developed with
    python benchmarks/planted_secrets.py --class "node list" --profile strict --spellings 1

Each secret is planted wherever a user would have it: the name of the run, every word of run.toml, the name of an
event, a host's label, the names of a log and a capture, a comment of a pcapng, the output of a scheduler, and the
description of the release. It counts as published where any of its identifying parts is in any file of a release; a
release that is refused publishes nothing. The search here knows nothing of the program's: it compares decoded text.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import random
import re
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import polars as pl
import pyarrow.parquet as pq

import ddnn_traces
from ddnn_traces.errors import LeakError, UsageError

#: 2026-11-20 06:18:23 UTC, a Friday of ISO week 47 and day 324 of the year.
START_S = 1_795_155_503
PROFILES = ("careful", "strict")
#: Statements of the release; no run has its date.
ABOUT = {"title": "Runs of training", "licence": "CC-BY-4.0", "creators": ["Ada Lovelace"], "date": "2027-01-31"}
WORDS = ("framework", "backend", "model", "optimizer", "topology", "congestion_control", "variant")


@dataclass(frozen=True)
class Secret:
    """What is planted, and the parts of it that identify on their own; () for the whole alone."""

    kind: str
    text: str
    parts: tuple[str, ...] = ()
    developed: bool = False

    def is_in(self, text: str) -> bool:
        """Whether it is in a text, in small letters; a part only where no letter and no digit continues it."""
        continued = (rf"(?<![^\W_]){re.escape(part.lower())}(?![^\W_])" for part in self.parts)
        return self.text.lower() in text or any(re.search(part, text) for part in continued)


_Rule = Callable[[random.Random], list[str | tuple[str, ...]]]


def _digits(rng: random.Random, size: int) -> str:
    return "".join(rng.choices("0123456789", k=size))


def _hex(rng: random.Random, size: int) -> str:
    return "".join(rng.choices("0123456789abcdef", k=size))


def _letters(rng: random.Random, size: int) -> str:
    return "".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", k=size))


def _ipv4(rng: random.Random) -> list[str | tuple[str, ...]]:
    made = [[rng.choice((10, 172, 132, 193)), *rng.choices(range(16, 250), k=3)] for _ in range(10)]
    a, b, c, d, e, f, g, h, i, j = made
    return [
        ".".join(map(str, a)),
        ".".join(f"{n:04o}" for n in b),
        "%2E".join(map(str, c)),
        "".join(f"{n:02X}" for n in d),
        "ip-" + "-".join(map(str, e)),
        str(int.from_bytes(bytes(f))),
        ".".join(f"0x{n:02x}" for n in g),
        ".".join(map(str, h[::-1])) + ".in-addr.arpa",
        "::ffff:" + ".".join(map(str, i)) + "/24",
        ".".join(map(str, j[:3])) + ".x",
    ]


def _ipv6(rng: random.Random) -> list[str | tuple[str, ...]]:
    groups = [[f"{rng.randrange(4096, 65536):x}" for _ in range(5)] for _ in range(10)]
    return [
        f"2001:638:{groups[0][0]}::{groups[0][1]}",
        f"fe80::{groups[1][0]}:{groups[1][1]}:{groups[1][2]}:{groups[1][3]}%eth0",
        f"[2a02:{groups[2][0]}::7]:29500",
        f"2001-638-{groups[3][0]}--{groups[3][1]}",
        f"fd00{groups[4][0]}{groups[4][1]}" + "0" * 19 + "1",
        f"2001:0638:{groups[5][0]}:0000:0000:0000:0000:{groups[5][1]}",
        f"2a02:{groups[6][0]}::/48",
        f"2001%3A638%3A{groups[7][0]}%3A%3A1",
        f"ff02::1:ff{groups[8][0][:2]}:{groups[8][1]}",
        f"2001:638:{groups[9][0]}:{groups[9][1]}:{groups[9][2]}:{groups[9][3]}:1:2".upper(),
    ]


def _hardware(rng: random.Random) -> list[str | tuple[str, ...]]:
    pairs = [[_hex(rng, 2) for _ in range(6)] for _ in range(10)]
    return [
        ":".join(pairs[0]),
        "Mellanox_" + ":".join(pairs[1][3:]),
        "-".join(pairs[2]).upper(),
        "IntelCor_" + ":".join(pairs[3][3:]),
        "".join(pairs[4]),
        ".".join("".join(pairs[5][k : k + 2]) for k in (0, 2, 4)),
        "enx" + "".join(pairs[6]),
        "_".join(pairs[7]),
        "NVIDIA_" + "-".join(pairs[8][3:]),
        "wlx" + "".join(pairs[9]),
    ]


def _guid(rng: random.Random) -> list[str | tuple[str, ...]]:
    made = [[_hex(rng, 6), _hex(rng, 6)] for _ in range(10)]
    words = [f"{a}0300{b}" for a, b in made]
    return [
        f"0x{words[0]}",
        ":".join(words[1][k : k + 4] for k in range(0, 16, 4)),
        f"guid={words[2]}",
        f"fe80::{words[3][:4]}:{words[3][4:8]}:{words[3][8:12]}:{words[3][12:]}",
        f"mlx5_0:{made[4][0]}fffe{made[4][1]}",
        ":".join(f"{made[5][0]}fffe{made[5][1]}"[k : k + 2] for k in range(0, 16, 2)),
        f"S_{words[6]}",
        f"MT_{_digits(rng, 10)}",
        f"lid {_digits(rng, 5)} qp 0x{_hex(rng, 6)}",
        f"psid MT27{_digits(rng, 4)}X{_digits(rng, 5)}",
    ]


_HOSTS = ("titan", "orion", "zeus", "athena", "lise", "kepler", "saturn", "borg", "raven", "mistral")


def _host(rng: random.Random) -> list[str | tuple[str, ...]]:
    n = [rng.randrange(3, 90) for _ in range(10)]
    return [
        f"gpu-node{n[0]:02}",
        f"{_HOSTS[0]}{n[1]}",
        f"r{n[2]:02}c3s{n[3]}",
        f"dgx-a100-{n[4]:02}",
        f"{_HOSTS[3]}",
        f"nid{_digits(rng, 6)}",
        f"DESKTOP-{_letters(rng, 7).upper()}",
        f"ip-10-{n[7]}-7-{n[8]}",
        f"{_HOSTS[8]}-login{n[9] % 9}",
        f"lab{n[9]}pc{n[0]}",
    ]


def _domain(rng: random.Random) -> list[str | tuple[str, ...]]:
    n = [rng.randrange(3, 90) for _ in range(10)]
    return [
        f"node{n[0]}.cluster.example.edu",
        f"{_HOSTS[1]}.cs.tu-example.de",
        "hpc.corp.internal",
        f"gpu{n[3]}.k8s.svc.cluster.local",
        f"https://wandb.ai/{_HOSTS[4]}lab/runs/{_letters(rng, 8).lower()}",
        f"{_HOSTS[5]}.lrz.example.org",
        f"s3.{_HOSTS[6]}-bucket.example.com",
        f"git@git.{_HOSTS[7]}.example:group/x.git",
        f"{_HOSTS[8]}%2Eexample%2Eorg",
        f"ec2-18-{n[9]}-7-9.eu-west-1.compute.amazonaws.com",
    ]


def _nodes(rng: random.Random) -> list[str | tuple[str, ...]]:
    n = sorted(rng.sample(range(11, 99), 10))
    return [
        ("gpu[001-004,007]", "001-004"),
        (f"node[{n[0]}-{n[1]}]", f"{n[0]}-{n[1]}"),
        (f"{_HOSTS[2]}[{n[2]:03},{n[3]:03}]", f"{_HOSTS[2]}"),
        (f"rack{n[4]}n[1-2]x[08-09]", f"rack{n[4]}"),
        (f"gpu{n[5]},gpu{n[6]},cpu-{n[7]}", f"gpu{n[5]}"),
        (f"{_HOSTS[5]}{n[8]}/0*8+{_HOSTS[5]}{n[9]}/0*8", f"{_HOSTS[5]}{n[8]}"),
        (f"{_HOSTS[6]}{n[1]}:4,{_HOSTS[6]}{n[2]}:4", f"{_HOSTS[6]}{n[1]}"),
        (f"n{n[3]:04}-n{n[4]:04}", f"n{n[3]:04}"),
        (f"node{{{n[5]}..{n[6]}}}", f"{n[5]}..{n[6]}"),
        (f"{_HOSTS[9]}-[a-c]{n[7]}", f"{_HOSTS[9]}"),
    ]


def _jobs(rng: random.Random) -> list[str | tuple[str, ...]]:
    made = [_digits(rng, 6).replace("0", "4") for _ in range(10)]
    return [
        (f"slurm-{made[0]}.out", made[0]),
        (f"{made[1]}.pbs-server", made[1]),
        (f"job {made[2]}", made[2]),
        (f"train.o{made[3]}", made[3]),
        (f"SLURM_JOB_ID={made[4]}", made[4]),
        (f"slurm-{made[5]}_17.err", made[5]),
        (f"LSB_JOBID {made[6]}", made[6]),
        (f"events.out.tfevents.{START_S + 400}.{_HOSTS[7]}", str(START_S + 400), _HOSTS[7]),
        (f"run-{_letters(rng, 8).lower()}",),
        (f"jobid{made[9]}.batch", made[9]),
    ]


def _user(rng: random.Random) -> list[str | tuple[str, ...]]:
    n = rng.randrange(10, 99)
    return [
        "amueller",
        f"k{_digits(rng, 6)}",
        f"ga{n}hod",
        f"di{n}xyz2",
        "erika_mustermann",
        f"s{_digits(rng, 7)}",
        "jdoe's run",
        f"b{_digits(rng, 3)}cb",
        "USER=carola",
        f"uid=10{n}(mwagner)",
    ]


def _path(rng: random.Random) -> list[str | tuple[str, ...]]:
    n = rng.randrange(10, 99)
    return [
        ("/home/amueller/exp", "amueller"),
        ("/lustre/projects/pn57ke/run", "pn57ke"),
        (r"C:\Users\carola\runs", "carola"),
        (f"~jdoe{n}/out", f"jdoe{n}"),
        ("s3://acme-research-bucket/traces", "acme"),
        ("hdfs://namenode/user/mwagner", "mwagner"),
        (f"$WORK/pr{n}qa/x", f"pr{n}qa"),
        ("%2Fscratch%2Fkrueger%2F7", "krueger"),
        ("gs://bluelab-data/x", "bluelab"),
        (f"..\\..\\share\\grp{n}\\x", f"grp{n}"),
    ]


def _mail(rng: random.Random) -> list[str | tuple[str, ...]]:
    n = rng.randrange(10, 99)
    return [
        "a.mueller@example.edu",
        f"carola{n}@example.org",
        "jdoe(at)example(dot)com",
        "krueger AT lab.example DOT de",
        "@mwagner",
        "mailto:x.y@example.net",
        "0000-0002-1825-0097",
        "https://github.com/krueger-lab",
        "erika%40example.org",
        "slack #acme-gpu",
    ]


def _device(rng: random.Random) -> list[str | tuple[str, ...]]:
    uuid = [f"{_hex(rng, 8)}-{_hex(rng, 4)}-{_hex(rng, 4)}-{_hex(rng, 4)}-{_hex(rng, 12)}" for _ in range(5)]
    return [
        (f"GPU-{uuid[0]}", uuid[0]),
        (f"MIG-GPU-{uuid[1]}/1/0", uuid[1]),
        f"serial {_digits(rng, 13)}",
        f"S/N MT{_digits(rng, 4)}X{_digits(rng, 5)}",
        (uuid[2],),
        f"Service Tag {_letters(rng, 7).upper()}",
        (uuid[3].replace("-", ""),),
        f"i-0{_hex(rng, 16)}",
        (f"machine-id={uuid[4].replace('-', '')}", uuid[4].replace("-", "")),
        f"WWN 0x5{_hex(rng, 15)}",
    ]


def _place(rng: random.Random) -> list[str | tuple[str, ...]]:
    n, w = (f"{rng.uniform(40, 55):.4f}" for _ in range(2)), f"{rng.uniform(5, 20):.4f}"
    first, second = n
    return [
        (f"{first},{w}", first),
        (f"{second}N {w}E", second),
        ("48°12'30\"N 16°22'23\"E", "48°12"),
        "rack B17 U23",
        "room MI 03.07.023",
        "8FWR6C3J+2V",
        (f"geo:{first},{w}", first),
        "A-1040 Wien",
        ("lat=48.14 lon=11.58", "48.14"),
        "DC Garching hall 2",
    ]


def _date(rng: random.Random) -> list[str | tuple[str, ...]]:
    return [
        "2026-11-20",
        "2026-W47",
        "20261120",
        "2026-324",
        "20nov2026",
        "20.11.2026",
        "11/20/26",
        "Nov 20, 2026",
        "KW47-2026",
        "261120",
    ]  # fmt: skip


def _time(rng: random.Random) -> list[str | tuple[str, ...]]:
    return [
        f"{START_S + 40}",
        "2026-11-20T06:18",
        "20261120_0618",
        f"{START_S + 7}.25",
        "06-18-23",
        "Fri Nov 20 06:18:23 2026",
        "061823Z",
        hex(START_S + 9),
        f"{(START_S + 77) * 1000}",
        "6h18 am",
    ]


def _cloud(rng: random.Random) -> list[str | tuple[str, ...]]:
    secret = [_letters(rng, 40) for _ in range(4)]
    return [
        "AKIA" + _letters(rng, 16).upper(),
        secret[0],
        (f"aws {secret[1][:20]}/{secret[1][20:39]}", secret[1][:20]),
        ("AccountKey=" + _letters(rng, 86) + "==",),
        "sig=" + _letters(rng, 42) + "%3D",
        (f"wJalr/{secret[2][:16]}+{secret[2][16:33]}", secret[2][:16]),
        "AIza" + _letters(rng, 35),
        (f"arn:aws:iam::{_digits(rng, 12)}:user/x",),
        f"subscription {_hex(rng, 8)}-{_hex(rng, 4)}-4{_hex(rng, 3)}-a{_hex(rng, 3)}-{_hex(rng, 12)}",
        f"LTAI{_letters(rng, 20)}",
    ]


def _token(rng: random.Random) -> list[str | tuple[str, ...]]:
    return [
        _hex(rng, 40),
        "hf_" + _letters(rng, 34),
        "sk_live_" + _letters(rng, 24),
        "ghp_" + _letters(rng, 36),
        f"local-{_hex(rng, 40)}",
        "xoxb-" + _digits(rng, 12) + "-" + _letters(rng, 24),
        "rk_test_" + _letters(rng, 24),
        "nvapi-" + _letters(rng, 64),
        "glpat-" + _letters(rng, 20),
        "dckr_pat_" + _letters(rng, 27),
    ]


def _password(rng: random.Random) -> list[str | tuple[str, ...]]:
    return [
        ("password=correcthorse", "correcthorse"),
        ("S3cr3t!" + _letters(rng, 6),),
        ("postgres://app:hunter22@db/x", "hunter22"),
        ("pw " + _letters(rng, 12),),
        ("Tr0ub4dor&3",),
        ("token: " + _letters(rng, 20),),
        ("passwd " + _letters(rng, 10),),
        ("ssh-rsa AAAAB3NzaC1yc2E" + _letters(rng, 60), "AAAAB3NzaC1yc2E"),
        ("SHA256:" + _letters(rng, 43),),
        ("Basic " + _letters(rng, 22) + "==",),
    ]


def _phone(rng: random.Random) -> list[str | tuple[str, ...]]:
    return [
        f"+43 1 58801 {_digits(rng, 5)}",
        f"+49-89-{_digits(rng, 8)}",
        f"(555) {rng.randrange(200, 900)}-{_digits(rng, 4)}",
        f"0049 89 289 {_digits(rng, 5)}",
        f"tel:+1{_digits(rng, 10)}",
        f"+44.20.7946.0{_digits(rng, 3)}",
        f"0176/{_digits(rng, 8)}",
        f"ext. {_digits(rng, 5)}",
        f"+4315880{_digits(rng, 6)}",
        f"555-{_digits(rng, 4)}",
    ]


def _project(rng: random.Random) -> list[str | tuple[str, ...]]:
    return [
        f"ERC-2021-{_digits(rng, 6)}",
        "BlackSwan",
        f"pn{_digits(rng, 2)}ke",
        "acme-phoenix",
        f"account_{_letters(rng, 5).lower()}{_digits(rng, 2)}",
        f"P {_digits(rng, 5)}-N",
        "customer Zebrafish",
        f"CVE-internal-{_digits(rng, 4)}",
        f"GH200-eval-{_letters(rng, 6)}",
        "Projekt Nordlicht",
    ]


CLASSES: dict[str, _Rule] = {
    "IPv4 address": _ipv4, "IPv6 address": _ipv6, "hardware address": _hardware, "InfiniBand identifier": _guid,
    "host": _host, "domain, web address": _domain, "node list": _nodes, "job, output file": _jobs, "user": _user,
    "path, bucket": _path, "mail, account": _mail, "serial, UUID": _device, "place": _place, "day, week": _date,
    "time": _time, "cloud key": _cloud, "service token": _token, "password, key": _password, "phone number": _phone,
    "project, grant": _project,
}  # fmt: skip


def corpus() -> list[Secret]:
    """The 200 secrets. Of each class's ten spellings every second one was held back until the program was finished."""
    found = []
    for kind, rule in CLASSES.items():
        for number, made in enumerate(rule(random.Random(kind))):
            text, *parts = (made,) if isinstance(made, str) else made
            found.append(Secret(kind, text, tuple(parts), developed=number % 2 == 0))
    return found


# --- planting


def _pcapng(frames: Sequence[bytes], comment: str) -> bytes:
    """A pcapng whose section, interface and first packet have the comment."""

    def block(kind: int, body: bytes) -> bytes:
        size = 12 + len(body)
        return struct.pack("<II", kind, size) + body + struct.pack("<I", size)

    def padded(data: bytes) -> bytes:
        return data + bytes(-len(data) % 4)

    def option(code: int, text: str) -> bytes:
        data = text.encode()
        return struct.pack("<HH", code, len(data)) + padded(data)

    end = bytes(4)
    made = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + option(1, comment) + option(3, comment) + end)
    made += block(1, struct.pack("<HHI", 1, 0, 65535) + option(2, comment) + end)
    for number, frame in enumerate(frames):
        us = START_S * 10**6 + number * 1000
        header = struct.pack("<IIIII", 0, us >> 32, us & 0xFFFFFFFF, len(frame), len(frame))
        made += block(6, header + padded(frame) + option(1, comment) + end)
    return made


def _frames() -> list[bytes]:
    """Two packets of TCP, one in each direction."""
    ethernet = bytes.fromhex("9cb6d01a2b01 9cb6d01a2b02 0800".replace(" ", ""))
    ends = [bytes([10, 77, 0, 1]), bytes([10, 77, 0, 2])]
    made = []
    for source, destination, ports in ((0, 1, (40000, 29500)), (1, 0, (29500, 40000))):
        payload = bytes(100)
        ip = (
            struct.pack(">BBHHHBBH", 0x45, 0, 40 + len(payload), 0, 0x4000, 64, 6, 0) + ends[source] + ends[destination]
        )
        made.append(ethernet + ip + struct.pack(">HHIIBBHHH", *ports, 1, 1, 0x50, 0x10, 500, 0, 0) + payload)
    return made


def _is_name(text: str) -> bool:
    """Whether it can be the name of a file in a folder."""
    return "/" not in text and len(text) < 150 and not text.startswith(".")


def plant(folder: Path, secrets: Sequence[Secret]) -> dict[str, Secret]:
    """A run for each secret, with it in every place; the secrets by the names of their runs."""
    planted = {}
    for number, secret in enumerate(secrets):
        text = secret.text
        name = f"resnet50-{text}" if _is_name(text) else f"resnet50-{number}"
        run = folder / (name if not (folder / name).exists() else f"{name}-{number}")
        run.mkdir(parents=True)
        planted[run.name] = secret
        words = {word: text if place % 2 else f"resnet50 {text}" for place, word in enumerate(WORDS)}
        hosts = [("10.77.0.1", text), ("10.77.0.2", f"{text}-b")]
        lines = [f"{word} = {json.dumps(value, ensure_ascii=False)}" for word, value in words.items()]
        lines += [f'[[hosts]]\nip = "{ip}"\nlabel = {json.dumps(label, ensure_ascii=False)}' for ip, label in hosts]
        (run / "run.toml").write_text("\n".join(lines) + "\n")
        worker = text if _is_name(text) else "worker-1"
        log = "Type,ID,Timestamp,Loss,Accuracy\n" + "".join(
            f"batch,{step},{START_S + step * 0.01:.3f},0.5,0.5\n" for step in range(3)
        )
        (run / f"train_history-{worker}.log").write_text(log)
        events = io.StringIO()
        csv.writer(events).writerows(
            [("step", "kind", "name", "t_begin", "t_end", "bytes"), (1, "send", text, START_S, START_S + 0.001, 100)]
        )
        (run / f"events-{worker}.csv").write_text(events.getvalue())
        (run / "slurm.out").write_text(f"started on {text}\nSLURM_JOB_NODELIST={text}\n")
        capture = f"{text}.pcapng" if _is_name(text) else "worker-1.pcapng"
        (run / capture).write_bytes(_pcapng(_frames(), text))
    return planted


# --- what is published


def texts(release: Path) -> Iterator[tuple[str, str]]:
    """Place and text of all that a release holds, in small letters, with what %XX stands for decoded, too."""
    for path in sorted(release.rglob("*")):
        name = path.relative_to(release).as_posix()
        yield name, f"{name}\n{unquote(name)}".lower()
        if not path.is_file():
            continue
        if path.suffix == ".parquet":
            table = pq.read_table(path, partitioning=None)
            metadata = table.schema.metadata or {}
            yield f"{name}: metadata", "\n".join(value.decode(errors="replace") for value in metadata.values()).lower()
            for column, values in zip(table.column_names, pl.from_arrow(table).iter_columns(), strict=True):
                if values.dtype in (pl.String, pl.Categorical):
                    yield f"{name}: {column}", "\n".join(values.cast(pl.String).drop_nulls().unique()).lower()
            continue
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode(errors="replace")
        yield name, text.lower()
        if path.suffix in (".json", ".jsonld"):
            yield name, json.dumps(json.loads(text), ensure_ascii=False).lower().replace('\\"', '"')


@dataclass
class Outcome:
    """places: where each secret that was published is. refused: secrets for which nothing was published."""

    places: dict[Secret, list[str]] = field(default_factory=dict)
    refused: list[Secret] = field(default_factory=list)


def publish(secrets: Sequence[Secret], profile: str, work: Path, **options: object) -> Outcome:
    """Publish runs with the secrets; where that is refused, each half of them on its own."""
    shutil.rmtree(work, ignore_errors=True)
    planted = plant(work / "runs", secrets)
    ddnn_traces.ingest(work / "runs", work / "dataset").close()
    return _published(planted, profile, work, options)


def _published(planted: Mapping[str, Secret], profile: str, work: Path, options: Mapping[str, object]) -> Outcome:
    """planted: the secret of each run."""
    try:
        _publish(work, profile, list(planted), options)
    except (LeakError, UsageError):
        if len(planted) == 1:
            return Outcome(refused=list(planted.values()))
        runs = list(planted.items())
        halves = [_published(dict(half), profile, work, options) for half in (runs[::2], runs[1::2])]
        return Outcome(halves[0].places | halves[1].places, halves[0].refused + halves[1].refused)
    return Outcome(_found(list(planted.values()), work / "release"))


def _publish(work: Path, profile: str, runs: list[str], options: Mapping[str, object]) -> None:
    shutil.rmtree(work / "release", ignore_errors=True)
    ddnn_traces.publish(
        work / "dataset", work / "release", profile=profile, key=work / "key", runs=runs, allow_flagged=runs,
        **ABOUT, **options,
    )  # fmt: skip


def state(secrets: Sequence[Secret], profile: str, work: Path) -> Outcome:
    """Publish a release for each secret, with it in the description."""
    shutil.rmtree(work, ignore_errors=True)
    runs = list(plant(work / "runs", [Secret("none", "worker-1")]))
    ddnn_traces.ingest(work / "runs", work / "dataset").close()
    outcome = Outcome()
    for secret in secrets:
        words = {"description": f"Training of resnet50 on four workers, with {secret.text}, in a lab."}
        try:
            _publish(work, profile, runs, words)
        except (LeakError, UsageError):
            outcome.refused.append(secret)
        else:
            outcome.places |= _found([secret], work / "release")
    return outcome


def _found(secrets: Sequence[Secret], release: Path) -> dict[Secret, list[str]]:
    places: dict[Secret, list[str]] = {}
    for place, text in texts(release):
        for secret in secrets:
            if secret.is_in(text):
                places.setdefault(secret, []).append(place)
    return places


_Half = Literal["developed", "held back", "all"]


def chosen(half: _Half, kinds: Sequence[str] = ()) -> list[Secret]:
    """The secrets of a half, of some classes or all."""
    return [
        secret
        for secret in corpus()
        if half in ("all", "developed" if secret.developed else "held back") and (not kinds or secret.kind in kinds)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", choices=("developed", "held back", "all"), default="all")
    parser.add_argument("--class", dest="kinds", action="append", choices=list(CLASSES), default=[])
    parser.add_argument("--spellings", type=int, default=10, help="Of each class, the first ones.")
    parser.add_argument("--profile", dest="profiles", action="append", choices=("open", *PROFILES), default=[])
    parser.add_argument("--places", choices=("runs", "description", "both"), default="both")
    parser.add_argument("--show", action="store_true", help="Also each secret that was published, and where.")
    chosen_options = parser.parse_args()
    first = [secret for number in range(chosen_options.spellings) for secret in corpus()[number::10]]
    secrets = [secret for secret in chosen(chosen_options.half, chosen_options.kinds) if secret in first]
    profiles = chosen_options.profiles or PROFILES
    published: dict[str, dict[Secret, list[str]]] = {profile: {} for profile in profiles}
    with tempfile.TemporaryDirectory() as folder:
        for profile in profiles:
            for name, run in (("runs", publish), ("description", state)):
                if chosen_options.places in (name, "both"):
                    outcome = run(secrets, profile, Path(folder) / "work")
                    print(
                        f"{profile}, {name}: {len(outcome.places)} published, {len(outcome.refused)} refused",
                        flush=True,
                    )
                    for secret, places in outcome.places.items():
                        published[profile].setdefault(secret, []).extend(places)
    print("| class | planted | " + " | ".join(profiles) + " |")
    for kind in (*CLASSES, None):
        planted = [secret for secret in secrets if kind in (None, secret.kind)]
        if planted:
            counts = [sum(secret in published[profile] for secret in planted) for profile in profiles]
            print(f"| {kind or 'all'} | {len(planted)} | " + " | ".join(map(str, counts)) + " |")
    if chosen_options.show:
        for profile in profiles:
            for secret, places in published[profile].items():
                print(f"{profile}: {secret.kind}: {secret.text}: {', '.join(sorted(set(places))[:4])}")


if __name__ == "__main__":
    main()
