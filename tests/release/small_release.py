"""A release of a few small files, as `publish` lays one out, for what only moves files."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ddnn_traces.release import facts
from ddnn_traces.store import layout

SMALL = {
    "runs/run_id=one/part-0.parquet": b"PAR1 runs of one PAR1",
    "flows/run_id=one/part-0.parquet": b"PAR1" + bytes(range(256)) * 40 + b"PAR1",
    "flows/run_id=two%20words/part-0.parquet": b"PAR1 flows of two words PAR1",
    "captures/one/worker-1.pcap": b"\xd4\xc3\xb2\xa1" + b"\0" * 20,
    "captures/one/empty.log": b"",
    "README.md": b"---\nlicense: cc-by-4.0\n---\n# Sample\n",
    "LICENSE": b"CC-BY-4.0\n",
    "datacite.json": b"{}\n",
    "dataset.json": b'{"format": "ddnn_traces dataset", "schema_version": 1}\n',
}


def facts_of(version: str = "1.0.0", **about: object) -> facts.Release:
    """Facts with nothing in the tables."""
    person = facts.Person("Example, Ada", "0000-0002-1825-0097", "Example University")
    given = {
        "title": "Sample <traces>",
        "licence": "CC-BY-4.0",
        "published": "2026-11-22",
        "creators": (person,),
    } | about
    paper = facts.Publication("Under the microscope", doi="10.23919/CNSM52442.2021.9615524")
    known = facts.About(version=version, papers=(paper,), **given)  # type: ignore[arg-type]
    kept = facts.Anonymisation("roles", "kept", "shifted", None)
    return facts.Release(known, 1, "ddnn_traces", (), (), {}, (), kept)


def make(folder: Path, files: dict[str, bytes] = SMALL, version: str = "1.0.0", **about: object) -> Path:
    """Write a release and its checksums."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / layout.RELEASE).write_text(facts.to_json(facts_of(version, **about)))
    seal(folder)
    return folder


def seal(folder: Path) -> None:
    """Write the checksums of what is there."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != layout.CHECKSUMS)
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n" for path in paths
    ]
    (folder / layout.CHECKSUMS).write_text("".join(lines))


def content(folder: Path) -> dict[str, bytes]:
    """All files in a folder."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
