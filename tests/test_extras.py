"""Libraries of the extras: the message where one is missing."""

from __future__ import annotations

import importlib

import pytest

from ddnn_traces import extras
from ddnn_traces.errors import MissingExtra


def test_a_missing_library_is_named_with_its_extra() -> None:
    words = r"no_such_library is not installed.*pip install 'ddnn-traces\[publish\]'"
    with pytest.raises(MissingExtra, match=words), extras.required():
        importlib.import_module("no_such_library.part")
