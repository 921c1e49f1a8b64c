"""The small files of a dataset by run: inputs.json, sources.json, checksums.json. Each is JSON with one key."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ddnn_traces.store import checksums
from ddnn_traces.store.layout import INPUTS, SOURCES, STORED_FILES

_KEYS = {INPUTS: "runs", SOURCES: "folders", STORED_FILES: "runs"}

NAMES = tuple(_KEYS)

#: What a file has of each run.
Entries = Mapping[str, Any]


def entries(name: str, text: str | None) -> dict[str, Any]:
    """What a small file of this name has of each run; nothing where it is missing or damaged."""
    try:
        found = checksums.unsealed(text or "")[_KEYS[name]]
    except (ValueError, KeyError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def text_of(name: str, runs: Entries) -> str:
    """Content of the file, as an ingest writes it."""
    document = {_KEYS[name]: dict(sorted(runs.items()))}
    return json.dumps(document, indent=1) + "\n" if name == SOURCES else checksums.sealed(document)


def of_runs(name: str, text: str | None, wanted: Callable[[str], bool]) -> dict[str, Any]:
    """The entries of some runs."""
    return {run_id: entry for run_id, entry in entries(name, text).items() if wanted(run_id)}


def merged(name: str, start: str | None, ours: str, theirs: str | None, written: Collection[str]) -> str:
    """Content of the file after a commit on top of another writer's: ours of the runs that we wrote or that only we
    have changed, and theirs of all others.

    start: the content that ours began with. theirs: that of the commit before ours.
    """
    if theirs == start:
        return ours
    before, mine, base = (entries(name, text) for text in (start, ours, theirs))
    chosen = dict(base)
    for run_id, entry in mine.items():
        if run_id in written or (run_id in base and base[run_id] == before.get(run_id)):
            chosen[run_id] = entry
    return text_of(name, chosen)
