"""The first ingest after an installation: small captures do not wait for the packet loop's compiler.

numba takes some 20 s to compile the loop. Until that has been done once, Python itself runs the loop over small
captures, some 15,000 packets a second with the same result, and another process compiles meanwhile.
`python -m ddnn_traces.cli.first_ingest` compiles it at once: for an image of a container, or a job on a cluster.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ddnn_traces.pcap import compiled

if TYPE_CHECKING:
    from ddnn_traces.messages import Messages

#: Bytes of captures that Python reads in some 5 s; compressed ones count four times.
SMALL_BYTES = 8e6
_COMPRESSED = {".gz", ".xz", ".zst", ".lz4", ".bz2"}
#: Says to numba, when it is imported, that it compiles nothing.
_INTERPRET = "NUMBA_DISABLE_JIT"
#: A pcap of one UDP packet.
_CAPTURE = bytes.fromhex(
    "d4c3b2a1020004000000000000000000ffff000001000000"
    "00000000000000002a0000002a000000"
    "0200000000020200000000010800450000"
    "1c00000000401100000a0000010a00000204d204d200080000"
)


def prepare(sources: Iterable[str], messages: Messages) -> None:
    """Where nothing is compiled yet, and the captures are small, let Python run the loop in this process, and another
    one compile it, which goes on when this one ends. To be called before numba is imported."""
    if compiled.is_cached() or "numba" in sys.modules or _INTERPRET in os.environ or not _are_small(sources):
        return
    if compiled.FOLDER is not None:  # else nothing would be kept of it
        messages.info(
            "compiling the packet loop in the background, once (half a minute); Python reads these small captures"
        )
        # -P: a file of this name in the current folder, where captures may be, is not run
        command = [sys.executable, "-P", "-m", "ddnn_traces.cli.first_ingest"]
        nothing = subprocess.DEVNULL
        compiler = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)
        os.setpriority(os.PRIO_PROCESS, compiler.pid, 19)  # a user waits for this process, not for that one
    os.environ[_INTERPRET] = "1"


def _are_small(sources: Iterable[str]) -> bool:
    """Whether all files are there, and SMALL_BYTES at most together."""
    total = 0.0
    for path in _files(sources):
        if not path.is_file():
            return False
        total += path.stat().st_size * (4 if path.suffix in _COMPRESSED else 1)
        if total > SMALL_BYTES:
            return False
    return True


def _files(sources: Iterable[str]) -> Iterator[Path]:
    for source in map(Path, sources):
        if source.is_dir():
            yield from (path for path in source.rglob("*") if not path.is_dir())
        else:
            yield source


def compile_loop() -> None:
    """Compile all that an ingest uses into the cache, unless another process does."""
    import ddnn_traces
    from ddnn_traces.pcap import numba_engine

    if compiled.FOLDER is None:
        return
    with (compiled.FOLDER / "compiling").open("w") as lock, tempfile.TemporaryDirectory() as scratch:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        numba_engine.prepare(sys.maxsize)
        capture = Path(scratch) / "a.pcap"
        capture.write_bytes(_CAPTURE)
        ddnn_traces.ingest(capture, Path(scratch) / "dataset").close()


if __name__ == "__main__":
    os.nice(10)
    compile_loop()
