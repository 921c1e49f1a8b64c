"""README.md: the dataset card. Its front matter is what the Hugging Face Hub reads: licence, size, a config a table."""

from __future__ import annotations

from typing import Any

from ddnn_traces.release import facts
from ddnn_traces.release.descriptions import bibtex, shared
from ddnn_traces.release.descriptions.markup import block, code, markdown, plain, table, yaml
from ddnn_traces.store import layout

#: The Hub's identifiers where they are not SPDX's in small letters; a licence that it does not know is "other".
_HUB_LICENCES = {"ODbL-1.0": "odbl", "ODC-By-1.0": "odc-by", "PDDL-1.0": "pddl"}
_HUB_KNOWS = ("CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "CDLA-Permissive-2.0", "MIT", "Apache-2.0")

_HUB_TYPES = {"string": "string", "int64": "int64", "double": "float64", "bool": "bool"}
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B")

#: Columns of runs that tell them apart, for the list of runs.
_TOLD = ("framework", "backend", "model", "topology", "workers", "batch_size", "source")


def text(release: facts.Release) -> str:
    """README.md. Raises MissingExtra."""
    return f"---\n{yaml(front_matter(release))}---\n\n{_body(release)}"


def front_matter(release: facts.Release) -> dict[str, Any]:
    """What the Hub is told."""
    about = release.about
    main = _example(release)
    rows = sum(table.rows for table in release.tables)
    configs = [
        {"config_name": table.name, "data_files": [{"split": "train", "path": shared.pattern(table.name)}]}
        | ({"default": True} if table.name == main else {})
        for table in release.tables
    ]
    features = [
        {
            "config_name": table.name,
            "features": [
                {"name": column.name, "dtype": _HUB_TYPES[column.type]}
                for column in shared.definition(release, table).columns
            ],
        }
        for table in release.tables
    ]
    said = {
        **_licence(about.licence),
        "pretty_name": about.title,
        "language": ["en"],
        "tags": list(dict.fromkeys([*shared.keywords(release), "tabular", "network-traffic", "distributed-training"])),
        "size_categories": [_size(rows)],
        "configs": configs,
        "dataset_info": features,
    }
    return {key: value for key, value in said.items() if value}


def _licence(licence: str) -> dict[str, str]:
    if licence in _HUB_LICENCES:
        return {"license": _HUB_LICENCES[licence]}
    if licence in _HUB_KNOWS:
        return {"license": licence.lower()}
    return {"license": "other", "license_name": licence.lower(), "license_link": layout.LICENCE}


def _size(rows: int) -> str:
    """The Hub's class of a number of rows."""
    return _SIZES[min(max(len(str(rows)) - 3, 0), len(_SIZES) - 1)]


def _example(release: facts.Release) -> str | None:
    """The table that the examples read: flows where it is there."""
    names = [table.name for table in release.tables]
    return "flows" if "flows" in names else next(iter(names), None)


def _body(release: facts.Release) -> str:
    about = release.about
    shifted = ", all shifted by one secret offset" if release.anonymisation.times == "shifted" else ""
    size = shared.readable_size(shared.total_bytes(release))
    parts = [
        f"# {plain(about.title)}\n",
        f"{markdown(shared.summary(release))}\n",
        f"Version {plain(about.version)}, {plain(about.published)}, {size}, licence {plain(about.licence)} "
        f"([{layout.LICENCE}]({layout.LICENCE})). What was done to the data, and what they do not tell: "
        f"[{layout.DATASHEET}]({layout.DATASHEET}).\n",
        *_flagged(release),
        "## Tables\n",
        _tables(release),
        "Files are `TABLE/run_id=RUN/*.parquet`; keys are columns, too. Times (`*_ns`) are nanoseconds since the "
        f"epoch, UTC{shifted}. Types, units and meaning of columns: [{layout.DATA_PACKAGE}]({layout.DATA_PACKAGE}), "
        f"[{layout.CROISSANT}]({layout.CROISSANT}).\n",
        *_captures(release),
        "## Load\n",
        "In the folder of the release:\n",
        *(block("python", example) for example in examples(release)),
        "## Runs\n",
        _runs(release),
        "## Cite\n",
        f"{plain(shared.citation(about))}\n",
        block("bibtex", bibtex.entry(about)),
        *_papers(about),
    ]
    return "\n".join(parts)


def examples(release: facts.Release) -> list[str]:
    """How to load a table with each library, as Python to be run in the release's folder. The tests run them."""
    name = _example(release)
    if name is None:
        return []
    return [
        f'import polars as pl\n\n{name} = pl.read_parquet("{name}/*/*.parquet", hive_partitioning=False)',
        f'import pandas as pd\n\n{name} = pd.read_parquet("{name}", partitioning=None)',
        "import duckdb\n\n"
        f"{name} = duckdb.sql(\"FROM read_parquet('{name}/*/*.parquet', hive_partitioning = false)\").fetchall()",
        f'import mlcroissant\n\n{name} = mlcroissant.Dataset("{layout.CROISSANT}").records("{name}")\n'
        f"first = next(iter({name}))",
        f'import ddnn_traces\n\nwith ddnn_traces.open(".") as release:\n    {name} = release.sql("FROM {name}")',
    ]


def _tables(release: facts.Release) -> str:
    rows = [
        [
            f"`{item.name}`",
            plain(shared.definition(release, item).row),
            f"{item.rows:,}",
            str(len(shared.definition(release, item).columns)),
            shared.readable_size(sum(file.bytes for file in item.files)),
        ]
        for item in release.tables
    ]
    return table(("table", "a row is", "rows", "columns", "size"), rows)


def _runs(release: facts.Release) -> str:
    rows = [
        [code(run["run_id"]), *("" if run.get(name) is None else plain(run[name]) for name in _TOLD)]
        for run in release.runs
    ]
    return table(("run", *_TOLD), rows)


def _captures(release: facts.Release) -> list[str]:
    """A word on the cut-down captures, where there are any."""
    if not release.captures:
        return []
    number = shared.counted(len(release.captures), "file")
    return [
        f"`{layout.CAPTURES}/RUN/`: the captures with their logs, cut down to headers ({number}); `ddnn-traces ingest` "
        "takes them.\n"
    ]


def _flagged(release: facts.Release) -> list[str]:
    """A warning where runs failed their checks."""
    if not release.flagged:
        return []
    runs = ", ".join(code(run) for run in sorted(release.flagged))
    return [f"**Runs that failed data checks and are published all the same:** {runs}; see the datasheet.\n"]


def _papers(about: facts.About) -> list[str]:
    """The papers to cite with the data."""
    if not about.papers:
        return []
    lines = ["The papers:\n"]
    for paper in about.papers:
        parts = [paper.authors, paper.title, str(paper.year) if paper.year else None, shared.paper_url(paper)]
        lines.append("- " + ". ".join(plain(part) for part in parts if part))
    return ["\n".join(lines) + "\n"]
