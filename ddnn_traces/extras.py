"""Libraries that the default install leaves out: imported where they are needed."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from ddnn_traces.errors import MissingExtra


@contextlib.contextmanager
def required(extra: str = "publish") -> Iterator[None]:
    """Around the import of a library of an extra. Raises MissingExtra, with the command that installs it, where the
    library, or one that it needs, is not installed.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtra(
            f"{error.name or error} is not installed, and this needs it: pip install 'ddnn-traces[{extra}]'"
        ) from error


def load(module: str, extra: str = "publish") -> Any:
    """The module of that dotted name. Raises MissingExtra where it, or something it needs, is not installed."""
    with required(extra):
        return importlib.import_module(module)
