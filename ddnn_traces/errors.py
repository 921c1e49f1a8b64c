"""Errors that a user can cause. Each message states what happened, to which file, and the next step."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator

#: What to do about a fault of this program.
REPORT = "this is a fault of ddnn-traces: please report this line"


class DdnnTracesError(Exception):
    """Base of all errors that a user can correct; the command line prints only the message.

    for_python: called on the text where a user of Python sees it; the command line prints the text as it was raised.
    """

    exit_code = 1
    for_python: Callable[[str], str] = staticmethod(lambda text: text)

    def __str__(self) -> str:
        return self.for_python(self.for_command)

    @property
    def for_command(self) -> str:
        """The message with the command's options (--clock-offset)."""
        return super().__str__()


class UsageError(DdnnTracesError):
    """The call is wrong: a missing path, an unknown name, a folder that is not a dataset."""

    exit_code = 2


class CaptureError(DdnnTracesError):
    """A capture file could not be read."""


class EngineError(DdnnTracesError):
    """The program behind an engine is missing or failed."""


class MetadataError(DdnnTracesError):
    """A run.toml or runs.csv contradicts its schema."""


class LogError(DdnnTracesError):
    """A training log could not be read."""


class QueryError(UsageError):
    """An unknown query or parameter, or SQL that DuckDB refused."""


class StorageError(DdnnTracesError):
    """There is no space for the new files, or they cannot replace the old dataset."""


class BusyError(DdnnTracesError):
    """Another ingest writes the dataset, or another testbed or sweep the folder, and the caller does not wait."""


class ClusterError(DdnnTracesError):
    """The workers of a cluster cannot do the tasks, or lost one too often; no scheduler answers."""


class LedgerError(DdnnTracesError):
    """Records of a capture are neither in flows nor in the ledger."""


class InternalError(DdnnTracesError):
    """A fault of this program, such as SQL of its own that DuckDB refuses; the message says what to report."""


class NoDataError(DdnnTracesError):
    """The dataset does not have what a figure needs."""


class RegressionError(UsageError):
    """A formula that cannot be used on the dataset's columns."""


class ModelError(UsageError):
    """A document that is not a traffic model, or is of another version."""


class PredictionError(DdnnTracesError):
    """A job that the runs have no data for, or that is outside their range."""


class SimulationError(DdnnTracesError):
    """The simulator's result cannot be: nothing sent, no time, a link above its rate, a worker that never ends."""


class ReleaseError(DdnnTracesError):
    """A release that is damaged, not available, or not trustworthy."""


class PublishError(DdnnTracesError):
    """A dataset that cannot be published: data checks fail, or the folder of the release exists."""


class LeakError(DdnnTracesError):
    """The release held original addresses, names, paths or times; it was removed."""


class MissingExtra(UsageError):
    """A library that the default install leaves out is needed."""


class PushError(DdnnTracesError):
    """A release that could not be uploaded, or a target that holds other files."""


class DraftError(PushError):
    """A draft at the target that holds other content under this version, which may be overwritten on request."""


class TestbedError(DdnnTracesError):
    """The testbed cannot make a run on this machine, or a run failed."""

    __test__ = False  # no class of tests, whatever its name begins with


@contextlib.contextmanager
def needs_extra(extra: str = "publish") -> Iterator[None]:
    """A context for the import of an extra's library. Raises MissingExtra, with the command that installs it, where the
    library, or one that it needs, is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(
            f"{error.name or error} is not installed, and this needs all of the extra {extra}: "
            f"pip install 'ddnn-traces[{extra}]'"
        ) from error


def require(libraries: Iterable[str], extra: str = "publish") -> None:
    """Nothing is imported, which may take seconds. Raises MissingExtra for the first of these libraries of an extra
    that is not installed."""
    for name in libraries:
        # None there: Python refuses to import it
        found = sys.modules[name] if name in sys.modules else importlib.util.find_spec(name)
        if found is None:
            with needs_extra(extra):
                raise ImportError(name=name)
