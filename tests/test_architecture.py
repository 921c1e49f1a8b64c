"""A module imports only what stands above it in the order of stages, and the command line starts light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import ddnn_traces

PACKAGE = Path(ddnn_traces.__file__).parent

#: In the order in which data flows. `ddnn_traces` itself is the public API and may be named for its version anywhere.
ORDER = (
    "errors", "extras", "talk", "text", "whole_files", "schema", "marker", "parquet", "releases", "releases.layout",
    "releases.facts", "releases.columns", "places",
    "places.url", "places.path", "places.place", "places.folder", "places.zipped",
    "places.remote", "places.finding", "progress_bar", "queries", "views", "synthetic", "synthetic.collectives",
    "synthetic.run_files", "ingestors", "ingestors.compression", "ingestors.capture_file", "ingestors.facts",
    "ingestors.spill", "ingestors.compiled", "ingestors.compiled.jit", "ingestors.compiled.flow_table",
    "ingestors.compiled.headers", "ingestors.compiled.tunnels", "ingestors.compiled.fragments",
    "ingestors.compiled.connections", "ingestors.compiled.scan", "ingestors.compiled.cut",
    "ingestors.compiled.needles", "ingestors.compiled.join", "ingestors.pcapng", "ingestors.scanner",
    "ingestors.record_reader", "ingestors.parts", "ingestors.numba_engine", "ingestors.plain_flows",
    "ingestors.tshark_dissect", "ingestors.pyshark_engine", "ingestors.metadata", "ingestors.sources",
    "ingestors.phases", "ingestors.logs", "ingestors.clocks", "ingestors.vantage", "ingestors.log_clock",
    "ingestors.encapsulations", "ingestors.windows", "ingestors.tables", "ingestors.flow_filter",
    "ingestors.parallel", "ingestors.reading", "ingestors.inputs", "ingestors.locking", "ingestors.store",
    "ingestors.pipeline", "missing", "read_only", "synthetic.traffic", "synthetic.tables", "synthetic.packets",
    "synthetic.scenarios", "dataset", "traffic_model.document", "traffic_model.placement", "traffic_model.measure",
    "traffic_model.fitting", "traffic_model.sampler", "traffic_model.generation", "traffic_model.peers",
    "traffic_model.scoring", "traffic_model", "checks", "dictionary", "formats", "regression.formula",
    "regression.results", "regression.rows", "regression.design", "regression.aliasing", "regression.estimate",
    "regression.outcome", "regression.inference", "regression.verdicts", "regression.diagnostics",
    "regression.compare", "regression.fitting", "regression.presets", "regression.paper", "regression",
    "regression.layout", "regression.text", "regression.latex", "regression.data", "regression.job",
    "regression.point", "regression.predict", "regression.predict_text", "charts", "charts.style", "charts.zerwas",
    "charts.wire", "charts.residuals", "charts.farhat", "charts.chang", "charts.zerwas_cost", "report",
    "report.words", "report.model", "report.answers", "report.overview", "report.zerwas", "report.zerwas_cost",
    "report.regression", "report.farhat", "report.chang", "report.wire", "report.contents", "report.page",
    "report.regression_page", "exporters", "exporters.duckdb_file", "exporters.perfetto", "exporters.transfers",
    "exporters.basic_sim", "exporters.htsim", "exporters.goal", "exporters.chakra", "exporters.simulators",
    "releases.descriptions", "releases.descriptions.shared", "releases.descriptions.markup",
    "releases.descriptions.bibtex", "releases.descriptions.licence", "releases.descriptions.croissant",
    "releases.descriptions.data_package", "releases.descriptions.ro_crate", "releases.descriptions.datacite",
    "releases.descriptions.citation", "releases.descriptions.card", "releases.descriptions.datasheet",
    "releases.descriptions.writing", "releases.anonymise", "releases.anonymise.key", "releases.anonymise.names",
    "releases.anonymise.addresses", "releases.anonymise.ports", "releases.anonymise.times",
    "releases.anonymise.scrub", "releases.anonymise.told", "releases.anonymise.mapping", "releases.captures",
    "releases.leak_scan.forms", "releases.leak_scan.sources", "releases.leak_scan.shapes", "releases.leak_scan.search",
    "releases.leak_scan.words", "releases.leak_scan.places", "releases.leak_scan", "releases.order",
    "releases.content", "releases.request", "releases.checksums", "releases.bag",
    "releases.versions", "releases.provenance", "releases.database",
    "releases.publish", "releases.push.secrets", "releases.push.retry", "releases.push.outcome",
    "releases.push.contents", "releases.push.archive", "releases.push.folder", "releases.push.s3",
    "releases.push.hub", "releases.push.zenodo", "releases.push.targets", "releases.push", "releases.verify",
    "releases.verify.result", "releases.verify.untrusted", "releases.verify.examined", "releases.verify.trial",
    "releases.verify.files", "releases.verify.told", "releases.verify.tables", "releases.verify.data",
    "releases.verify.versions", "releases.verify.definitions", "releases.verify.database", "releases.verify.croissant",
    "releases.verify.data_package", "releases.verify.ro_crate", "releases.verify.texts", "releases.verify.agreement",
    "releases.verify.running", "terminal", "shell", "demo", "completion", "cli.shared", "cli.ingest", "cli.questions",
    "cli.analysis", "cli.made_up", "cli.exports", "cli.publish", "cli.push", "cli.verify", "cli",
)  # fmt: skip

HEAVY = (
    "altair",
    "duckdb",
    "numba",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "pyshark",
    "rich",
    "statsmodels",
    "vl_convert",
)


def modules() -> list[str]:
    """All modules of the package but its public API, dotted, without the package's own name."""
    paths = [path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py")]
    names = [".".join(path.parts).removesuffix("__init__").removesuffix(".") for path in paths]
    return sorted(name for name in names if name)


def imports(module: str) -> set[str]:
    """Modules of the package that a module imports, wherever in it, for typing or not."""
    path = PACKAGE.joinpath(*module.split("."))
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            base = node.module or ""
            submodules = {f"{base}.{alias.name}" for alias in node.names}
            found |= {base, *submodules}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.removeprefix("ddnn_traces.") for name in found if name.startswith("ddnn_traces.")} & set(modules())


def test_every_module_has_its_place() -> None:
    assert sorted(ORDER) == modules()


@pytest.mark.parametrize("module", ORDER)
def test_imports_go_only_upwards(module: str) -> None:
    above = set(ORDER[: ORDER.index(module)])
    assert imports(module) <= above


def test_nobody_imports_the_command_line() -> None:
    others = [module for module in ORDER if module.partition(".")[0] != "cli"]
    assert [module for module in others if any(name.partition(".")[0] == "cli" for name in imports(module))] == []


@pytest.mark.parametrize("module", ["ddnn_traces", "ddnn_traces.cli"])
def test_heavy_libraries_wait_until_they_are_needed(module: str) -> None:
    """--help has to answer at once; what counts is what is loaded, not how fast this machine loads it."""
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()
    )
    assert module.partition(".")[0] in loaded
    assert loaded.isdisjoint(HEAVY)
