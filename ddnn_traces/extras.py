"""Libraries that the default install leaves out: imported where they are needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ddnn_traces.errors import MissingExtra


@contextlib.contextmanager
def required(extra: str = "publish") -> Iterator[None]:
    """A context for the import of an extra's library. Raises MissingExtra, with the command that installs it, where the
    library, or one that it needs, is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(
            f"{error.name or error} is not installed, and this needs it: pip install 'ddnn-traces[{extra}]'"
        ) from error
