"""Messages and progress of a long-running command. Library functions call these methods; the command line prints."""

from __future__ import annotations


class Messages:
    """Prints nothing, but records the warnings. The command line's subclasses print."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        #: Number of the warnings of partial data.
        self.partial = 0

    def warn(self, message: str) -> None:
        """What the user should look at. The data are all there."""
        self.warnings.append(message)

    def warn_partial(self, message: str) -> None:
        """A warning of data that were not read, or only in part: the command ends with exit code 1."""
        self.partial += 1
        self.warn(message)

    def repeat(self, other: Messages) -> None:
        """Warn of all that `other` warned of."""
        for warning in other.warnings:
            self.warn(warning)
        self.partial += other.partial

    def info(self, message: str) -> None:
        """One line that is not about a single file."""

    def start_reading(self, total_bytes: int | None) -> None:
        """Capture files with this number of bytes in total will be read; None where it is unknown."""

    # The next three are called by the threads that read, several at once.

    def start_file(self, name: str) -> None:
        """A file begins."""

    def advance(self, size: int, packets: int) -> None:
        """`size` more bytes of capture files and `packets` more packets were read."""

    def end_file(self, name: str) -> None:
        """The file is read."""

    def summarize(self, line: str) -> None:
        """One line about a file, in the order of the files."""

    def end_reading(self) -> None:
        """All files are read."""
