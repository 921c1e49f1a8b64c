"""Libraries of the extras: what is said where one is missing."""

from __future__ import annotations

import json

import pytest

from ddnn_traces import extras
from ddnn_traces.errors import MissingExtra


def test_a_library_that_is_there_is_given() -> None:
    assert extras.load("json") is json


def test_a_missing_library_is_named_with_its_extra() -> None:
    with pytest.raises(MissingExtra, match=r"no_such_library is not installed.*pip install 'ddnn-traces\[publish\]'"):
        extras.load("no_such_library.part")
