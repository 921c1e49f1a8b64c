"""Where a dataset or release is: a folder, a zip file, a URL. find() opens it, writer_of() writes a dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddnn_traces.errors import UsageError, needs_extra
from ddnn_traces.store import object_store
from ddnn_traces.store.places.place import Place, in_folder, is_url, is_zip, path_of_url

__all__ = ["Place", "find", "in_folder", "is_url", "is_zip", "path_of_url", "writer_of"]

if TYPE_CHECKING:
    from ddnn_traces.store.writer import Writer


def find(where: str | Path, runs: Sequence[str] | None = None, cache: Path | None = None) -> Place:
    """The place of a dataset. runs: those that will be read; None: all. cache: folder that keeps the files of a dataset
    on a store. Raises errors.DdnnTracesError.
    """
    if str(where).endswith("://"):
        raise UsageError(f"{where}: names no bucket; write {where}BUCKET/FOLDER")
    if object_store.is_store(where):
        with needs_extra("cluster"):
            from ddnn_traces.store.places import delta

        if found := delta.place(str(where), runs, cache):
            return found
    if cache is not None:
        raise UsageError(f"{object_store.shown(str(where))}: a cache is for a dataset on an object store; leave it out")
    if is_url(where) and not str(where).lower().startswith("file://"):
        with needs_extra():
            from ddnn_traces.store.places import remote

        return remote.place(str(where), runs)
    path = path_of_url(str(where)) if is_url(where) else Path(where)
    if is_zip(path):
        from ddnn_traces.store.places import zipped

        return zipped.place(path, runs)
    return in_folder(path, runs)


def writer_of(out: str | Path, wait: bool = True, report: Callable[[str], None] = lambda _: None) -> Writer:
    """The writer of a dataset in a folder or at the URL of an object store. Raises UsageError."""
    if isinstance(out, str) and "://" in out:
        from ddnn_traces.store.delta.delta_writer import StoreWriter

        return StoreWriter(str(out), wait, report)
    from ddnn_traces.store.writer import DatasetWriter

    return DatasetWriter(Path(out), wait, report)
