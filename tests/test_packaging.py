"""The wheel holds queries/ and schemas/, and works from where it is installed; so does an editable install."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tools import mostly_nightly, script

import ddnn_traces
from ddnn_traces import cache as caches
from ddnn_traces.pcap import compiled
from ddnn_traces.store import samples, schema

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(path.stem for path in ROOT.glob("notebooks/*.ipynb"))

WORKS = """
from pathlib import Path
import ddnn_traces
from ddnn_traces.query import catalogue, checks
from ddnn_traces.store import schema
print(Path(ddnn_traces.__file__).parent, schema.shipped_folder("queries"))
print(len(catalogue.catalogue()), len(schema.tables()), len([*schema.shipped_folder("queries").glob("checks/*.sql")]))
from ddnn_traces.ingestors.metadata import nominal_size_mb
print(nominal_size_mb("ResNet50"))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs."""
    tmp_path = tmp_path_factory.mktemp("wheel")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copy(ROOT / "MANIFEST.in", source)
    for name in ("ddnn_traces", "queries", "schemas", "notebooks", *samples.FOLDERS.values()):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        description = archive.read(metadata).decode().partition("\n\n")[2]
    assert description.startswith("# ddnn_traces\n")
    assert "ddnn-traces ingest captures --out dataset" in description
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.mark.long
def test_an_installed_wheel_works(site: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    result = subprocess.run(
        [sys.executable, "-c", WORKS], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    where, counts, size = result.stdout.splitlines()
    assert where == f"{site / 'ddnn_traces'} {site / 'ddnn_traces' / 'queries'}"
    expected = [len(list((ROOT / folder).glob(f"*.{ending}"))) for folder, ending in
                (("queries", "sql"), ("schemas", "toml"), ("queries/checks", "sql"))]  # fmt: skip
    of_sweeps = sorted(path.name for path in (ROOT / "queries" / "sweep").iterdir())
    shipped_of_sweeps = (site / "ddnn_traces" / "queries" / "sweep").iterdir()
    assert sorted(path.name for path in shipped_of_sweeps) == of_sweeps != []
    assert [int(count) for count in counts.split()] == expected
    assert size == "97.0"
    shipped_files = {path.relative_to(site).as_posix() for path in (site / "ddnn_traces").rglob("*") if path.is_file()}
    in_tree = (path for path in (ROOT / "ddnn_traces").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert {path.relative_to(ROOT).as_posix() for path in in_tree} - shipped_files == set(), "not in the wheel"
    assert (site / "ddnn_traces" / "report" / "page.html").exists()
    assert (site / "ddnn_traces" / "schemas" / "documents" / "traffic_model.json").exists()
    assert (site / "ddnn_traces" / "traffic" / "model" / "__init__.py").exists()
    packed = sorted(path.name for path in (site / "ddnn_traces" / "data").iterdir())
    assert packed == sorted(f"{name}.tar.gz" for name in samples.FOLDERS)
    statements = sorted(path.name for path in (ROOT / "ddnn_traces" / "ingestors" / "reconcile").glob("*.sql"))
    shipped = (site / "ddnn_traces" / "ingestors" / "reconcile").glob("*.sql")
    assert sorted(path.name for path in shipped) == statements != []


SAMPLES = """
import ddnn_traces
from ddnn_traces.store import samples
for name in samples.FOLDERS:
    print(ddnn_traces.sample(name))
"""


@pytest.mark.long
def test_samples_of_a_wheel_are_those_of_the_checkout(site: Path, tmp_path: Path) -> None:
    """Unpacked into the cache once, also where two processes begin together."""
    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    call = [sys.executable, "-c", SAMPLES]
    both = [subprocess.Popen(call, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (process.communicate()[0].splitlines() for process in both)
    assert first == second
    for folder, name in zip(first, samples.FOLDERS, strict=True):
        assert Path(folder).is_relative_to(tmp_path / "cache")
        assert content(Path(folder)) == content(ROOT / samples.FOLDERS[name]) != {}
        assert [path.name for path in Path(folder).parent.iterdir()] == [name], "nothing is left of the unpacking"


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


URLS = """
[project.urls]
Documentation = "https://docs.example.org/"
Repository = "https://git.example.org/ddnn"
"""
RELATIVE = r"\]\((?![a-z]+:)[^)]*\)"


@pytest.mark.parametrize("urls", ["", URLS])
def test_the_long_description_has_no_relative_link(tmp_path: Path, urls: str) -> None:
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    project = (tmp_path / "pyproject.toml").read_text(encoding="utf-8")
    before, _, after = project.partition("[project.urls]\n")
    rest = after.partition("\n[")[2]
    (tmp_path / "pyproject.toml").write_text(f"{before}[{rest}{urls}" if after else project + urls, encoding="utf-8")
    command = [sys.executable, "setup.py", "--long-description"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    readme = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert re.search(RELATIVE, readme), "those of README.md are"
    assert re.findall(RELATIVE, done.stdout) == []
    assert ("](https://docs.example.org/benchmarks.html#speed-of-ingest)" in done.stdout) == bool(urls)
    assert ("](https://git.example.org/ddnn/blob/HEAD/LICENSE)" in done.stdout) == bool(urls)
    assert ("![" in done.stdout) == bool(urls)
    assert "[polars](https://pola.rs)" in done.stdout


@pytest.mark.long
def test_the_demo_of_an_installed_wheel_works(site: Path, tmp_path: Path) -> None:
    """From an empty folder, on the sample that the wheel has; it prints what the tutorial shows."""
    if compiled.FOLDER is not None:  # tests/cli/test_first_ingest.py compiles in a new installation
        shutil.copytree(compiled.FOLDER, tmp_path / "cache" / "ddnn_traces" / compiled.FOLDER.name)
    for name in ("queries", "inferred_jobs"):  # what other tests have of the same contents
        if kept := caches.folder(name):
            (tmp_path / "cache" / "ddnn_traces" / name).symlink_to(kept)
    program = [sys.executable, "-c", "from ddnn_traces.cli import main; main()", "demo"]
    environment = {**os.environ, "PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(program, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert f"ingest {tmp_path / 'cache' / 'ddnn_traces' / 'samples'}" in done.stderr
    assert f"report {Path('demo', 'report.html')}" in done.stderr
    assert "46 runs in 45 cells, R2 = 1.00" in done.stdout
    tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```text\n(.*?)^```", tutorial, re.M | re.S)[0]
    assert shown.startswith("Who sends how much to whom")
    printed = {line.rstrip() for line in done.stdout.splitlines()}
    assert [line for line in shown.splitlines() if line not in printed] == []
    assert (tmp_path / "demo" / "report.html").stat().st_size > 1_000_000
    with ddnn_traces.open(tmp_path / "demo" / "dataset", read_only=True) as dataset:
        compared = dataset.query("ring_comparison")
    assert len(compared) == 48
    assert compared["agrees"].all()


@pytest.mark.long
@pytest.mark.parametrize("name", mostly_nightly(NOTEBOOKS, "06-sharing"))
def test_the_notebooks_of_an_installed_wheel_run(name: str, site: Path, tmp_path: Path) -> None:
    """As `ddnn-traces notebooks` writes them, in an empty folder; what they show, test_notebooks.py compares."""
    program = [sys.executable, "-c", "from ddnn_traces.cli import main; main()", "notebooks", "--out", "written"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(program, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert f"written/{name}.ipynb" in done.stdout.splitlines()
    shown = script("notebooks/execute.py").execute(tmp_path / "written" / f"{name}.ipynb", site)
    assert all(cell.execution_count for cell in shown.cells if cell.cell_type == "code")


def test_the_checkout_finds_its_folders() -> None:
    assert schema.shipped_folder("queries") == ROOT / "queries"
    assert schema.shipped_folder("schemas") == ROOT / "schemas"
