"""The release as checks look at it: what several need is read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ddnn_traces.release import facts
from ddnn_traces.release.verify import untrusted
from ddnn_traces.release.verify.result import WrongError
from ddnn_traces.store import layout


@dataclass
class Examined:
    """A release that is being verified.

    folder: as given; content: where its files are (data/ of a bag). release: what release.json says, once
    that was found sound. scratch: for temporary files. sums: SHA-256 of the files that were read. safe: there is
    no link or the like in it; else nothing more is read.
    """

    folder: Path
    scratch: Path
    jobs: int
    release: facts.Release | None = None
    safe: bool = False
    sums: dict[str, str] = field(default_factory=dict)

    @property
    def content(self) -> Path:
        """Folder of the release's files."""
        return layout.content(self.folder)

    @cached_property
    def documents(self) -> dict[str, dict[str, Any]]:
        """JSON documents that were read, by name of the file."""
        return {}

    def document(self, name: str) -> dict[str, Any]:
        """A JSON document of the release. Raises WrongError."""
        if name not in self.documents:
            self.documents[name] = untrusted.json_document(self.content / name)
        return self.documents[name]

    def told(self) -> facts.Release:
        """What release.json says. Raises WrongError where that is not known."""
        if self.release is None:
            raise WrongError(f"{layout.RELEASE} is not sound, and says what should be here")
        return self.release

    def known_files(self) -> dict[str, facts.File]:
        """The data files that release.json lists, by path."""
        release = self.told()
        tables = [file for table in release.tables for file in table.files]
        return {file.path: file for file in (*tables, *release.captures)}
