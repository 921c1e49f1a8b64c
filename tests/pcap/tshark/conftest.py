"""All tests here run tshark."""

from __future__ import annotations

import pytest
from tools import needs_tool


@pytest.fixture(autouse=True)
def _tshark() -> None:
    needs_tool("tshark")
