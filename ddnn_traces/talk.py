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

    def start_files(self, total_bytes: int) -> None:
        """Capture files of that many bytes together will be read."""

    def start_file(self, name: str) -> None:
        """The next file begins."""

    def advance(self, size: int) -> None:
        """`size` more bytes of capture files were read."""

    def end_file(self, summary: str) -> None:
        """The file is read; summary is one line."""

    def end_files(self) -> None:
        """No more files."""
