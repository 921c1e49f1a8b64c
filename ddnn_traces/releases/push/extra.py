"""Libraries of the extra `publish`, which are loaded when they are needed."""

from __future__ import annotations

import importlib
from typing import Any

from ddnn_traces.errors import MissingExtra


def library(name: str) -> Any:
    """A module. Raises MissingExtra where it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"push to this target needs {error.name}; pip install 'ddnn-traces[publish]'") from error
