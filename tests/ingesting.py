"""Ingests by the pipeline, and what they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddnn_traces.ingestors import pipeline
from ddnn_traces.ingestors.options import IngestOptions
from ddnn_traces.messages import Messages


def ingest(*sources: Path, out: Path, **options: Any) -> list[str]:
    """Warnings of an ingest."""
    messages = Messages()
    pipeline.ingest([str(source) for source in sources], out, IngestOptions(**options), messages)
    return messages.warnings


class Lines(Messages):
    """The lines about files, and all the others."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []
        self.lines: list[str] = []

    def summarize(self, line: str) -> None:
        self.files.append(line)

    def info(self, message: str) -> None:
        self.lines.append(message)
