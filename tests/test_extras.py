"""Libraries of the extras: the message where one is missing."""

from __future__ import annotations

import importlib

import pytest

from ddnn_traces.errors import MissingExtra, needs_extra


def test_a_missing_library_is_named_with_its_extra() -> None:
    words = r"no_such_library is not installed.*pip install 'ddnn-traces\[publish\]'"
    with pytest.raises(MissingExtra, match=words), needs_extra():
        importlib.import_module("no_such_library.part")
