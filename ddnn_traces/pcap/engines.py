"""The ingest engines. Their modules load large libraries and are imported when used: the command line imports this one.

An engine is a module with a function `read_capture(path: Path, options: ReadOptions) -> CaptureFacts`
(capture_facts.py), which reports the facts of one file: flows and cells, skipped packets with their reasons, damage.
ingestors/reconcile/ decides later which copy of a packet counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ddnn_traces.pcap.capture_facts import CaptureFacts, ReadOptions


@dataclass(frozen=True)
class Engine:
    """An engine. module: below ddnn_traces.pcap. about: for users who choose one."""

    module: str
    about: str

    def read_capture(self, path: Path, options: ReadOptions) -> CaptureFacts:
        """The facts of a file. Raises OSError, EngineError when the engine is missing or fails."""
        read: Callable[[Path, ReadOptions], CaptureFacts] = self._imported().read_capture
        return read(path, options)

    def is_cut(self, path: Path, options: ReadOptions, least: float) -> bool:
        """Whether a pool would read the parts of the file, if it has more than `least` bytes: an engine that cuts files
        has a function `is_cut(path: Path, options: ReadOptions, least: float) -> bool`."""
        return bool(getattr(self._imported(), "is_cut", lambda *_: False)(path, options, least))

    def is_compiled(self) -> bool:
        """Whether it reads at once: an engine that compiles itself has a function `is_compiled() -> bool`."""
        return bool(getattr(self._imported(), "is_compiled", lambda: True)())

    def prepare(self, largest: int) -> None:
        """Before captures of up to `largest` bytes are read: an engine that compiles itself does so in
        `prepare(largest: int)`."""
        getattr(self._imported(), "prepare", lambda _: None)(largest)

    def _imported(self) -> Any:
        return import_module(f"ddnn_traces.pcap.{self.module}")


#: By name; the first is the default.
ENGINES = {
    "numba": Engine("numba_engine", "fast"),
    "pyshark": Engine("tshark.pyshark_engine", "tshark's dissectors, slow, reads every format of tshark"),
}
DEFAULT_ENGINE = next(iter(ENGINES))
