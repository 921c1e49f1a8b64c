"""Derived files are kept in the user's cache, else next to the package, else nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddnn_traces import cache


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cache, "__file__", str(tmp_path / "package" / "cache.py"))
    return tmp_path / "package" / "__pycache__"


@pytest.mark.parametrize("set_to", ["absolute", "relative", "empty"])
def test_the_users_cache_comes_first(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_to: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", {"absolute": str(tmp_path / "xdg"), "relative": "xdg", "empty": ""}[set_to])
    user = tmp_path / "xdg" if set_to == "absolute" else tmp_path / "home" / ".cache"
    assert cache.folder("some") == user / "ddnn_traces" / "some"
    assert (user / "ddnn_traces" / "some").is_dir()
    assert not package.exists()


def test_without_a_user_cache_the_package_has_it(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where the folder should be: also root cannot make it."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache.folder("some") == package / "some"


def test_where_nothing_is_writable_nothing_is_cached(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packet loop and the traffic model are then compiled in each process; numba itself would refuse."""
    (tmp_path / "file").touch()
    package.parent.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache.folder("some") is None
    from ddnn_traces.ingestors.packets.compiled import jit

    assert jit.compiled(lambda number: number + 1, folder=None)(1) == 2
