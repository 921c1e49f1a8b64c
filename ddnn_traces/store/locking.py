"""One writer at a time: flock, released by the kernel at exit; for a dataset on a hidden file next to it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from ddnn_traces.errors import BusyError

#: Errors of flock where the file system has no locks (some network file systems).
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def hold(file: int, busy: str) -> None:
    """Lock an open file until it is closed. Raises BusyError with this message where another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BusyError(busy) from None


class DatasetLock:
    """The right to write the dataset at `out`. The lock file exists only while a process holds it or waits for it."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._path = out.parent / f".{out.name}.lock"
        self._file: int | None = None
        #: Whether the lock is held: never on a file system without locks.
        self.is_held = False

    def acquire(self, wait: bool, report: Callable[[str], None]) -> bool:
        """Take the lock; return whether it had to wait for another ingest.

        Raises BusyError when another process holds it and `wait` is false, OSError when the file cannot be made.
        """
        waited = False
        while True:
            if self._path.is_symlink():  # no ingest makes one, and what it leads to is not ours to write
                self._path.unlink()
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                waited |= self._lock(file, wait, report)
                current = self._is_current(file)
            except BaseException:
                os.close(file)
                raise
            if current:
                break
            os.close(file)  # its last holder removed it during the wait: others lock a new file now
        self._file = file
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        return waited

    def _lock(self, file: int, wait: bool, report: Callable[[str], None]) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 20, 0).decode("ascii", "replace") or "unknown"
            if not wait:
                raise BusyError(
                    f"{self._out}: another ingest (pid {holder}) is writing it; try again later, or without --no-wait"
                ) from None
            report(f"waiting for another ingest into {self._out} (pid {holder})")
            fcntl.flock(file, fcntl.LOCK_EX)
            self.is_held = True
            return True
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            report(f"{self._path.parent} has no file locks; run no other ingest into {self._out.name} now")
            return False
        self.is_held = True
        return False

    def _is_current(self, file: int) -> bool:
        """Whether the path still leads to the open file."""
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Release the lock."""
        if self._file is None:
            return
        self._path.unlink(missing_ok=True)  # while it is held, so that no other process loses its file
        os.close(self._file)
        self._file, self.is_held = None, False
