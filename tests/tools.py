"""Programs that some tests need."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def needs_tool(name: str) -> str:
    """Path of a program. Without it the test is skipped, but fails under CI, which has to have them all."""
    path = shutil.which(name)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is not installed, and CI=true")
        pytest.skip(f"{name} is not installed")
    return path


def _can_mount() -> bool:
    """Whether this process may mount file systems in a mount namespace of its own."""
    if shutil.which("unshare") is None:
        return False
    return (
        subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0
    )


needs_namespaces = pytest.mark.skipif(not _can_mount(), reason="only root may mount file systems")
