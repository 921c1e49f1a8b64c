"""The wheel holds queries/ and schemas/, and works from where it is installed; so does an editable install."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from ddnn_traces.store import schema

ROOT = Path(__file__).parents[1]

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


def test_an_installed_wheel_works(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("ddnn_traces", "queries", "schemas"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(source)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)

    environment = {**os.environ, "PYTHONPATH": str(site)}
    result = subprocess.run(
        [sys.executable, "-c", WORKS], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
    )
    where, counts, size = result.stdout.splitlines()
    assert where == f"{site / 'ddnn_traces'} {site / 'ddnn_traces' / 'queries'}"
    expected = [len(list((ROOT / folder).glob(f"*.{ending}"))) for folder, ending in
                (("queries", "sql"), ("schemas", "toml"), ("queries/checks", "sql"))]  # fmt: skip
    assert [int(count) for count in counts.split()] == expected
    assert size == "97.0"
    assert (site / "ddnn_traces" / "report" / "page.html").exists()
    assert (site / "ddnn_traces" / "schemas" / "documents" / "traffic_model.json").exists()
    assert (site / "ddnn_traces" / "traffic" / "model" / "__init__.py").exists()
    statements = sorted(path.name for path in (ROOT / "ddnn_traces" / "ingestors" / "reconcile").glob("*.sql"))
    shipped = (site / "ddnn_traces" / "ingestors" / "reconcile").glob("*.sql")
    assert sorted(path.name for path in shipped) == statements != []


def test_the_checkout_finds_its_folders() -> None:
    assert schema.shipped_folder("queries") == ROOT / "queries"
    assert schema.shipped_folder("schemas") == ROOT / "schemas"
