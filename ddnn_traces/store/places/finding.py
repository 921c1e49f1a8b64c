"""Which kind of place a path or URL is."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from ddnn_traces import extras
from ddnn_traces.store.places import folder, zipped
from ddnn_traces.store.places.place import Place
from ddnn_traces.store.places.url import is_url


def find(where: str | Path, runs: Sequence[str] | None = None) -> Place:
    """The place of a dataset. runs: those that will be read; None: all. Raises errors.DdnnTracesError."""
    if is_url(where) and not str(where).lower().startswith("file://"):
        extras.load("fsspec")
        from ddnn_traces.store.places import remote

        return remote.place(str(where), runs)
    path = Path(url2pathname(urlsplit(str(where)).path)) if is_url(where) else Path(where)
    if path.is_file() and zipfile.is_zipfile(path):
        return zipped.place(path, runs)
    return folder.place(path)
