"""Derived files are kept in the user's cache, else next to the package, else nowhere."""

from __future__ import annotations

import ast
import os
import sys
import time
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

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


@pytest.mark.parametrize("whose", ["all users may write it", "another user's"])
@pytest.mark.parametrize("place", ["ddnn_traces", "ddnn_traces/some"])
def test_a_folder_where_others_may_put_code_is_not_used(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, whose: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder("some") == tmp_path / "xdg" / "ddnn_traces" / "some"
    if whose == "another user's":
        if os.geteuid():
            pytest.skip("only root can give a folder away")
        os.chown(tmp_path / "xdg" / place, 12345, -1)
    else:
        (tmp_path / "xdg" / place).chmod(0o777)
    assert cache.folder("some") == package / "some"


def test_where_nothing_is_writable_nothing_is_cached(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The packet loop and the traffic model are then compiled in each process; numba itself would refuse."""
    (tmp_path / "file").touch()
    package.parent.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache.folder("some") is None
    from ddnn_traces import jit

    assert jit.compiled(lambda number: number + 1, folder=None)(1) == 2


def test_compiled_code_of_older_versions_is_removed_with_the_first_compilation_of_a_new_one(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    above = tmp_path / "ddnn_traces"
    for name in ("packet-loop-old", "packet-loop-checked-old", "packet-loop-of-a-second-checkout", "queries"):
        (above / name / "inside").mkdir(parents=True)
        (above / name / "inside" / "code.nbc").write_bytes(b"code")
        if name != "packet-loop-of-a-second-checkout":
            os.utime(above / name, (0, 0))
    current = cache.code_folder("packet-loop", [Path(__file__)])
    assert current
    assert {path.name for path in above.iterdir()} == {"packet-loop-of-a-second-checkout", "queries", current.name}
    (current / "code").mkdir()
    os.utime(above / "packet-loop-of-a-second-checkout", (0, 0))
    assert cache.code_folder("packet-loop", [Path(__file__)]) == current  # it is compiled: nothing is looked for
    assert (above / "packet-loop-of-a-second-checkout").exists()


def test_the_folder_of_the_packet_loop_is_named_by_all_that_is_compiled_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba checks the file of a function only: a constant of another module would keep its value of then."""
    from ddnn_traces import jit
    from ddnn_traces.pcap import compiled

    sources = {*compiled.SOURCES, Path(jit.__file__), Path(cache.__file__)}  # cache: nothing of it is compiled
    for path in compiled.SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not str(node.module).startswith("ddnn_traces"):
                continue
            origin = import_module(str(node.module))
            for name in node.names:
                found = getattr(origin, name.name)
                module = found if isinstance(found, ModuleType) else origin
                assert Path(str(module.__file__)) in sources, f"{path.name} imports {module.__name__}"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "constants.py"
    source.write_text("LIMIT = 1")
    folder = cache.code_folder("loop", [source])
    assert cache.code_folder("loop", [source]) == folder
    source.write_text("LIMIT = 2")
    assert cache.code_folder("loop", [source]) != folder


def test_code_of_the_traffic_model_is_in_a_folder_named_by_its_source() -> None:
    """numba looks at no time of the source: code of an older version would be run."""
    from ddnn_traces.traffic.model import pacing

    assert cache.code_folder("pacing", [Path(pacing.__file__)]) == pacing.CODE


def test_the_same_source_elsewhere_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ddnn_traces import jit

    hits = []
    for name in ("checkout", "installed"):
        source = tmp_path / name / "counted.py"
        source.parent.mkdir()
        source.write_text("def more(number):\n    return number + 1\n")
        spec = spec_from_file_location("counted", source)
        assert spec and spec.loader
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "counted", module)
        spec.loader.exec_module(module)
        compiled = jit.compiled(module.more, tmp_path / "cache")
        assert compiled(1) == 2
        hits.append(sum(compiled.stats.cache_hits.values()))
    assert hits == [0, 1]


def test_older_files_are_removed_and_others_stay(tmp_path: Path) -> None:
    for name in ("old.duckdb", "young.duckdb", "new.duckdb", "old.txt"):
        (tmp_path / name).touch()
        if name != "young.duckdb":
            os.utime(tmp_path / name, (0, 0))
    cache.remove_older(tmp_path / "new.duckdb", "*.duckdb")
    assert {path.name for path in tmp_path.iterdir()} == {"young.duckdb", "new.duckdb", "old.txt"}


def test_older_files_are_looked_for_once_a_day(tmp_path: Path) -> None:
    def left() -> set[str]:
        (tmp_path / "old.arrow").touch()
        os.utime(tmp_path / "old.arrow", (0, 0))
        cache.remove_older_daily(tmp_path / "new.arrow", "*.arrow")
        return {path.name for path in tmp_path.glob("*.arrow")}

    (tmp_path / "new.arrow").touch()
    assert left() == {"new.arrow"}
    assert left() == {"old.arrow", "new.arrow"}
    (looked,) = (path for path in tmp_path.iterdir() if path.suffix != ".arrow")
    yesterday = time.time() - 25 * 3600
    os.utime(looked, (yesterday, yesterday))
    assert left() == {"new.arrow"}
