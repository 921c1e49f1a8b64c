"""Libraries that the default install leaves out: imported where they are needed, with a word on how to get them."""

from __future__ import annotations

import importlib
from typing import Any

from ddnn_traces.errors import MissingExtra


def load(module: str, extra: str = "publish") -> Any:
    """The module of that dotted name. Raises MissingExtra where it, or something it needs, is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{error.name or module} is not installed, and this needs it: pip install 'ddnn-traces[{extra}]'"
        ) from error
