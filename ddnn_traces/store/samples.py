"""What is shipped for the demo and the notebooks: folders of a checkout, archives in a wheel."""

from __future__ import annotations

import re
import tarfile
import tempfile
import zlib
from pathlib import Path

from ddnn_traces import cache
from ddnn_traces.errors import UsageError
from ddnn_traces.store import schema
from ddnn_traces.text import nearest
from ddnn_traces.version import __version__

#: Folder in a checkout by the name of a sample; in a wheel each is data/NAME.tar.gz, which setup.py makes.
FOLDERS = {"sample": "data/sample", "traces": "tests/traces/runs", "sharing": "data/sharing"}
#: A link to a file of the repository, in the text of a notebook.
_LINK = re.compile(r"\[([^\]\n]*)\]\(\.\./[^)]*\)")


def sample(name: str = "sample") -> Path:
    """As ddnn_traces.sample. Raises UsageError for another name."""
    if name not in FOLDERS:
        raise UsageError(f"no sample named {name}; {nearest(name, [*FOLDERS])}")
    archive = Path(schema.__file__).parents[1] / "data" / f"{name}.tar.gz"
    return _unpacked(archive) if archive.exists() else schema.shipped_folder(FOLDERS[name])


def _unpacked(archive: Path) -> Path:
    """The archive's folder in the user's cache, made at the first use. Raises UsageError where there is no cache."""
    above = cache.folder("samples")
    if above is None:
        raise UsageError("no folder to unpack the sample into; set XDG_CACHE_HOME to one that you may write")
    name = archive.name.removesuffix(".tar.gz")
    done = above / f"{__version__}-{zlib.crc32(archive.read_bytes()):08x}" / name
    if not done.is_dir():
        done.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=done.parent) as half, tarfile.open(archive) as packed:
            packed.extractall(half, filter="data")
            try:
                (Path(half) / name).rename(done)
            except OSError:  # another process was first
                if not done.is_dir():
                    raise
    return done


def write_notebooks(out: Path) -> list[Path]:
    """Copy the notebooks into a folder; links to files that only a checkout has become their text.

    Raises UsageError, and writes nothing, where one of them is there already.
    """
    shipped = sorted(schema.shipped_folder("notebooks").glob("*.ipynb"))
    written = [out / path.name for path in shipped]
    if there := [path for path in written if path.exists()]:
        raise UsageError(f"{there[0]}: exists, and may have your changes; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    for path, copy in zip(shipped, written, strict=True):
        copy.write_text(_LINK.sub(r"\1", path.read_text(encoding="utf-8")), encoding="utf-8")
    return written
