"""Programs that some tests need."""

from __future__ import annotations

import os
import shutil

import pytest


def needs_tool(name: str) -> str:
    """Path of a program. Without it the test is skipped, but fails under CI, which has to have them all."""
    path = shutil.which(name)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed, and CI=true")
        pytest.skip(f"{name} is not installed")
    return path
