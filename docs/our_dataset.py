"""Make data/dataset from data/captures again, and the figures and tables of docs/our_dataset.md from it.

`make our-dataset` runs it. The release has all that the captures have (addresses, times, ports: they are of namespaces
made for it), so that the same captures give the same bytes of each table. What stands between <!-- begin NAME --> and
<!-- end NAME --> in the page is written here; all else by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

import findings_zerwas
import our_findings
import polars as pl
from scipy.stats.contingency import association

import ddnn_traces
from ddnn_traces.regression import documents
from ddnn_traces.release import claims
from ddnn_traces.report.charts import style
from ddnn_traces.report.page import CHAPTERS
from ddnn_traces.report.section import Results, Section

HERE = Path(__file__).parent
PAGE, FIGURES = HERE / "our_dataset.md", HERE / "our_dataset"
CAPTURES, RELEASE = HERE.parent / "data/captures", HERE.parent / "data/dataset"
SPLITS = HERE.parent / "data/dataset_splits.toml"
ABOUT = HERE.parent / "data/dataset_release.toml"
CLAIMS = HERE.parent / "data/dataset_claims.csv"

#: Runs that fail a data check, and why they are published all the same: the datasheet names them.
FLAGGED = (
    # the chief's log seems late against the traffic of workers that are 10 or 100 ms away; all have one clock
    "tf-mlp1-sgd-32-grpc-100ms-ps-n1-r2", "tf-mlp1-sgd-32-grpc-10ms-ps-n1-r2",
    # pair averaging: most of what a worker sends is outside its own steps, so that the shape in them is another one
    "torchp2p-mlp0-sgd-32-gloo-normal-gossip-n4-digits-r3",
)  # fmt: skip


#: The sections of the report that the page has, from the runs of a block.
SECTIONS = {
    "frameworks": (
        "model-volume", "heatmaps", "flow-counts", "flow-timeline", "pair-throughput", "total-throughput",
        "gradient-flow", "loss",
    ),
    "conditions": ("conditions",),
    "models": (
        "positions", "iteration-packets", "iteration-durations", "iteration-flow-sizes", "flow-classes",
        "flow-and-model",
    ),
    "learning": ("accuracy",),
}  # fmt: skip


#: Factors of the regression's runs, and the term of each in its formula.
FACTORS = {
    "model": "model_bytes", "framework_backend": "C(framework_backend)", "batch_size": "C(batch_size)",
    "topology": "C(topology)",
}  # fmt: skip


def block(run_id: str) -> str:
    """The part of data/dataset.toml that a run is of, by its name."""
    if "-killed_" in run_id:
        return "faults"
    if "-sleep" in run_id:
        return "models"
    if "-2ranks" in run_id:
        return "ranks"
    if "-digits" in run_id:
        return "learning"
    if run_id.startswith("jobs-") or re.search("-(fsdp|pipeline|tensor_data|moe|two_rings)-", run_id):
        return "patterns"
    return "conditions" if re.search("-(ps|ring)-n[13](-|$)", run_id) else "frameworks"


def for_regression(runs: list[str]) -> list[str]:
    """The runs of equation (1): the settings that the paper has, without loss.

    Our clique is left out: it sends whole gradients to each worker, which is twice what the other all-reduces send.
    """
    return [run for run in runs if not re.search("-(ps|clique)-|-loss_|-cubic|-(64|512)-", run)]


def main() -> None:
    """Make the release, verify it, draw. Ends with 1 where --check finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables-only", action="store_true", help="Draw from data/dataset as it is.")
    parser.add_argument("--check", action="store_true", help="Write nothing; name what would be another.")
    options = parser.parse_args()
    if not options.tables_only:
        make_release(options.check)
    failed = ddnn_traces.verify(RELEASE).filter(pl.col("status") == "failed")
    if not failed.is_empty():
        sys.exit(f"{RELEASE}: {failed}")
    files = drawn()
    if options.check:
        differing = [path for path, text in files.items() if not path.is_file() or path.read_text("utf-8") != text]
        sys.exit("\n".join(f"{path}: would be another" for path in differing) or None)
    FIGURES.mkdir(exist_ok=True)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")


def drawn() -> dict[Path, str]:
    """The page and its figures, by their paths."""
    runs = blocks()
    texts, files = charts(runs, SECTIONS)
    parts = {name: "\n\n".join(sections) for name, sections in texts.items()} | tables(runs) | findings(runs)
    return files | {PAGE: filled(PAGE.read_text(encoding="utf-8"), parts)}


def blocks() -> dict[str, list[str]]:
    """The runs of each block."""
    found: dict[str, list[str]] = {}
    with ddnn_traces.open(RELEASE) as dataset:
        for run_id in dataset.query("run_overview")["run_id"]:
            found.setdefault(block(run_id), []).append(run_id)
    return found


def charts(
    runs: dict[str, list[str]], sections: dict[str, tuple[str, ...]]
) -> tuple[dict[str, list[str]], dict[Path, str]]:
    """The texts of these sections by block, and their figures by path."""
    texts, files = {}, {}
    for name, wanted in sections.items():
        with ddnn_traces.open(RELEASE, runs=runs[name]) as dataset, Results(dataset) as results:
            made = [one for chapter in CHAPTERS for one in chapter.sections(results, only=wanted)]
        texts[name] = [section_text(section) for section in made]
        figures = [figure for section in made for figure in section.figures]
        files |= {FIGURES / f"{figure.name}.svg": style.svg(figure.file_spec) for figure in figures}
    return texts, files


def tables(runs: dict[str, list[str]]) -> dict[str, str]:
    """The parts of the page that are tables of the release, and its regression."""
    with ddnn_traces.open(RELEASE) as dataset:
        parts = {"scores": table(dataset.query("split_scores"))}
    with ddnn_traces.open(RELEASE, runs=runs["faults"]) as dataset:
        parts["faults"] = table(dataset.query("fault_recovery"))
    with ddnn_traces.open(RELEASE, runs=runs["learning"]) as dataset:
        parts["accuracies"] = table(findings_zerwas.learning(dataset))
    with ddnn_traces.open(RELEASE, runs=for_regression(runs["frameworks"])) as dataset:
        fitted = ddnn_traces.regress(dataset, preset="paper")
        parts["regression"] = f"```text\n{documents.text(fitted)}\n```"
        parts["confounders"] = table(confounders(dataset.query("run_step_volume"), fitted))
    return parts


def findings(runs: dict[str, list[str]]) -> dict[str, str]:
    """The part of the page that compares findings of papers with the release."""
    regression = for_regression(runs["frameworks"])
    synchronous = [run for run in regression if "-gossip-" not in run]
    found = our_findings.rows(RELEASE, runs | {"regression": regression, "synchronous": synchronous})
    columns = ["paper", "finding there", "here", "verdict", "what differs, or is needed"]
    claimed = [claims_of(name) for name in our_findings.measures()]
    rows = pl.DataFrame(found, schema=columns, orient="row").with_columns(claims=pl.Series(claimed))
    return {"findings": table(rows)}


def confounders(runs: pl.DataFrame, fitted: ddnn_traces.Regression) -> pl.DataFrame:
    """How far the factors of the regression's runs go together: Cramer's V of each two, and the inflation of each.

    V (Cramer 1946) is 0 where two are independent and 1 where one tells the other. GVIF^(1/(2 df)) (Fox and Monette
    1992) is how many times wider a term's intervals are than if it were unrelated to the others; null where others
    span a part of it.
    """
    inflation = {test.term: test.gvif_per_df for test in fitted.tests}
    rows = []
    for factor, term in FACTORS.items():
        shared = {}
        for other in FACTORS:
            counts = runs.pivot(other, index=factor, values="run_id", aggregate_function="len")
            shared[other] = float(association(counts.drop(factor).fill_null(0).to_numpy(), method="cramer"))
        rows.append({"factor": factor, "levels": runs[factor].n_unique(), **shared, "gvif_per_df": inflation[term]})
    return pl.DataFrame(rows)


def claims_of(measure: str) -> str:
    """The claims of a finding, by the word that stands in their column `source`."""
    known = [one for one in claims.read(CLAIMS) if one.source.endswith(f": {measure}")]
    return f"{measure} ({len(known)})" if known else "none"


def make_release(check: bool) -> None:
    """Captures to tables to release, which replaces the one that is there if a file differs.

    check: replace nothing; end the program where a table differs. The other files have the queries and texts of the
    version that made the release.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = released(CAPTURES, Path(folder), claims=CLAIMS)
        differing = differing_files(made, RELEASE)
        print(f"{RELEASE}: {'other files: ' + ', '.join(differing) if differing else 'unchanged'}")
        if check and any(name.endswith(".parquet") for name in differing):
            sys.exit("make our-dataset: tables would be others")
        if differing and not check:
            shutil.rmtree(RELEASE, ignore_errors=True)
            shutil.copytree(made, RELEASE)


def released(captures: Path | list[Path], folder: Path, **options: object) -> Path:
    """A release of a folder of run folders, or of some of these, made in `folder`. options: more of publish."""
    ddnn_traces.ingest(captures, folder / "dataset").close()
    names = {path.name for path in (captures.iterdir() if isinstance(captures, Path) else captures)}
    held_out = tomllib.loads(SPLITS.read_text())
    splits = [f"{name}={run}" for name, runs in held_out.items() for run in runs if run in names]
    flagged = [run for run in FLAGGED if run in names]
    made, key = folder / "release", folder / "key"
    # nothing is renamed by it, so that it is no secret; the same each time, because the release names it
    key.write_text(hashlib.sha256(b"data/dataset").hexdigest())
    ddnn_traces.publish(
        folder / "dataset", made, about=ABOUT, splits=splits, profile="open", addresses="kept", times="kept", key=key,
        allow_flagged=flagged,
        **options,
    )  # fmt: skip
    return made


def differing_files(one: Path, other: Path) -> list[str]:
    """Files that only one of two folders has, or that have other bytes there; by their paths in it."""
    names = {str(path.relative_to(folder)) for folder in (one, other) for path in folder.rglob("*") if path.is_file()}
    return sorted(name for name in names if contents(one / name) != contents(other / name))


def contents(path: Path) -> bytes | None:
    """Of a file; None where there is none."""
    return path.read_bytes() if path.is_file() else None


def section_text(section: Section) -> str:
    """A section in Markdown."""
    lines = [f"### {section.title}", section.headline or section.missing]
    for figure in section.figures:
        lines += [f"![{section.title}](our_dataset/{figure.name}.svg)", figure.file_caption]
    return "\n\n".join(lines)


def table(frame: pl.DataFrame) -> str:
    """A result as a Markdown table; numbers to four digits."""
    rows = [["" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row]
            for row in frame.iter_rows()]  # fmt: skip
    lines = [frame.columns, ["---"] * frame.width, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def filled(page: str, parts: dict[str, str]) -> str:
    """The page with each part between its two comments. Raises KeyError for a part that the page does not have."""
    for name, text in parts.items():
        pattern = re.compile(f"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not pattern.search(page):
            raise KeyError(f"{PAGE}: no <!-- begin {name} --> ... <!-- end {name} -->")
        page = pattern.sub(lambda match, text=text: f"{match[1]}{text}\n{match[2]}", page)
    return page


if __name__ == "__main__":
    main()
