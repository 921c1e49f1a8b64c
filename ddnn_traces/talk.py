"""What a long-running command says while it works. Library functions talk through this; the command line draws it."""

from __future__ import annotations


class Talk:
    """Says nothing but remembers whether anything was partial. The command line's subclasses print."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        """Something was not right and is marked in the dataset; the command ends with exit code 1."""
        self.warnings.append(message)

    def say(self, message: str) -> None:
        """One line of progress that is not about a single file."""

    def start_files(self, total_bytes: int | None) -> None:
        """Capture files of that many bytes together will be read; None where nobody knows."""

    # The next three are called by the threads that read, several at once.

    def start_file(self, name: str) -> None:
        """A file begins."""

    def advance(self, size: int, packets: int) -> None:
        """`size` more bytes of capture files and `packets` more packets were read."""

    def end_file(self, name: str) -> None:
        """The file is read."""

    def summarize(self, line: str) -> None:
        """One line about a file, in the order of the files."""

    def end_files(self) -> None:
        """No more files."""
