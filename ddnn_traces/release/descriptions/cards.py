"""README.md (the dataset card) with its figure, DICTIONARY.md, DATASHEET.md: no foreign text becomes Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ddnn_traces.query import views
from ddnn_traces.release import facts
from ddnn_traces.release.anonymise import method_text
from ddnn_traces.release.descriptions import croissant, terms
from ddnn_traces.release.descriptions.citation import bibtex_entry
from ddnn_traces.store import layout, schema
from ddnn_traces.text import counted, one_line

#: The Hub's identifiers where they are not SPDX's in small letters; a licence that it does not know is "other".
_HUB_LICENCES = {"ODbL-1.0": "odbl", "ODC-By-1.0": "odc-by", "PDDL-1.0": "pddl"}
_HUB_KNOWS = ("CC0-1.0", "CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "CDLA-Permissive-2.0", "MIT", "Apache-2.0")

_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B", "1B<n<10B")

#: Columns of runs by which a reader distinguishes them, for the list of runs.
_RUN_COLUMNS = (
    "framework", "model", "batch_size", "backend", "topology", "workers", "delay_ms", "loss_pct", "bandwidth_mbit",
    "source",
)  # fmt: skip
#: Runs that the card lists at most; letters of a value that it shows; columns of a table that stand side by side.
_MOST_RUNS, _MOST_LETTERS, _MOST_ACROSS = 100, 36, 9


def card(release: facts.Release) -> str:
    """README.md, the dataset card. Raises MissingExtra."""
    return f"---\n{terms.yaml_text(front_matter(release))}---\n\n{_body(release)}"


def front_matter(release: facts.Release) -> dict[str, Any]:
    """The card's front matter, which the Hub reads: licence, size, a config for each table."""
    about = release.about
    main = _example(release)
    configs, features = [], []
    for table in release.tables:
        config = {"config_name": table.name, "data_files": _data_files(release, table)}
        configs.append(config | ({"default": True} if table.name == main else {}))
        columns = terms.definition(release, table).columns
        types = [{"name": column.name, "dtype": column.types.hub} for column in columns]
        features.append({"config_name": table.name, "features": types})
    return terms.given(
        {
            **_licence(about.licence),
            "pretty_name": about.title,
            "language": ["en"],
            "tags": list(
                dict.fromkeys([*terms.keywords(release), "tabular", "network-traffic", "distributed-training"])
            ),
            "size_categories": [_size(sum(table.rows for table in release.tables))],
            "configs": configs,
            "dataset_info": features,
        }
    )


def _data_files(release: facts.Release, table: facts.Table) -> list[dict[str, str]]:
    """The files of each split; without splits, all are train, which is the Hub's default."""
    there = [split for split, runs in release.splits.items() if table.runs.keys() & set(runs)]
    return [{"split": split, "path": terms.pattern(table.name, split)} for split in there] or [
        {"split": "train", "path": terms.pattern(table.name)}
    ]


def _licence(licence: str) -> dict[str, str]:
    """A licence by the Hub's identifiers."""
    if licence in _HUB_LICENCES:
        return {"license": _HUB_LICENCES[licence]}
    if licence in _HUB_KNOWS:
        return {"license": licence.lower()}
    return {"license": "other", "license_name": licence.lower(), "license_link": layout.LICENCE}


def _size(rows: int) -> str:
    """The Hub's class of a number of rows."""
    return _SIZES[min(max(len(str(rows)) - 3, 0), len(_SIZES) - 1)]


def _example(release: facts.Release) -> str | None:
    """The table that the examples read: flows where the release has it."""
    names = [table.name for table in release.tables]
    return "flows" if "flows" in names else next(iter(names), None)


def _body(release: facts.Release) -> str:
    about = release.about
    shifted = ", all shifted by one secret offset" if release.anonymisation.times == "shifted" else ""
    size = terms.readable_size(release.files)
    flagged = ", ".join(code(run) for run in sorted(release.flagged))
    captures = (
        f"`{layout.CAPTURES}/RUN/`: the captures with their logs, cut down to headers "
        f"({counted(len(release.captures), 'file')}); `ddnn-traces ingest` takes them.\n"
    )
    parts = [
        f"# {plain(about.title)}\n",
        f"{markdown(terms.summary(release))}\n",
        f"Version {plain(about.version)}, {plain(about.published)}, {size}, licence {plain(about.licence)} "
        f"([{layout.LICENCE}]({layout.LICENCE})). What was done to the data, and their limits: "
        f"[{layout.DATASHEET}]({layout.DATASHEET}). For an artifact committee: "
        f"[{layout.ARTIFACT}]({layout.ARTIFACT}).\n",
        *(
            [f"**Runs that failed data checks and are published all the same:** {flagged}; see the datasheet.\n"]
            if flagged
            else []
        ),
        "## Tables\n",
        _tables(release),
        "Files are `TABLE/*.parquet`, in order of the table's key. Times (`*_ns`) are nanoseconds since the "
        f"epoch, UTC{shifted}. Every column with type, unit, meaning and inaccuracy: "
        f"[{layout.DICTIONARY}]({layout.DICTIONARY}); for programs: [{layout.DATA_PACKAGE}]({layout.DATA_PACKAGE}), "
        f"[{layout.CROISSANT}]({layout.CROISSANT}).\n",
        *([captures] if release.captures else []),
        *_figure(release),
        *([_EXPLORER] if release.has_explorer else []),
        "## Load\n",
        "In the folder of the release:\n",
        *(block("python", example) for example in examples(release)),
        _DATABASE,
        *_held_out(release),
        "## Runs\n",
        _runs(release),
        "## Cite\n",
        f"{plain(terms.citation(about))}\n",
        block("bibtex", bibtex_entry(about)),
        *_papers(about),
        *_samples(release),
    ]
    return "\n".join(parts)


def examples(release: facts.Release) -> list[str]:
    """Python that loads a table with each library, to be run in the release's folder. The tests run it."""
    name = _example(release)
    if name is None:
        return []
    return [
        f'import os\n\nimport datasets\n\n{name} = datasets.load_dataset(os.getcwd(), "{name}", split="train")',
        f'import polars as pl\n\n{name} = pl.read_parquet("{name}")',
        f'import pandas as pd\n\n{name} = pd.read_parquet("{name}")',
        f"import duckdb\n\n{name} = duckdb.sql(\"FROM '{name}/*.parquet'\").fetchall()",
        _by_croissant(release, name),
        f'import ddnn_traces\n\nwith ddnn_traces.open(".") as release:\n    {name} = release.sql("FROM {name}")',
    ]


def _by_croissant(release: facts.Release, name: str) -> str:
    """Python that loads a table by mlcroissant, from the files at hand also where the document has addresses."""
    records, *others = (one.name for one in croissant.record_sets(release) if one.table.name == name)
    which = "  # of the first file; each has a record set" if others else ""
    load, at_hand = "import mlcroissant\n", ""
    if terms.files_url(release.about):
        load = (
            f"import json\nfrom pathlib import Path\n\nimport mlcroissant\n\n"
            f'document = json.loads(Path("{layout.CROISSANT}").read_text())\n'
            'files = {one["@id"]: one["name"] for one in document["distribution"]}  # else they are downloaded'
        )
        at_hand = ", mapping=files"
    opened = f'mlcroissant.Dataset("{layout.CROISSANT}"{at_hand})'
    return f'{load}\n{name} = {opened}.records("{records}"){which}\nfirst = next(iter({name}))'


def _tables(release: facts.Release) -> str:
    rows = []
    for item in release.tables:
        defined = terms.definition(release, item)
        numbers = f"{item.rows:,}", str(len(defined.columns)), terms.readable_size(item.files)
        rows.append([f"`{item.name}`", plain(defined.row), *numbers])
    return table(("table", "a row is", "rows", "columns", "size"), rows)


def _runs(release: facts.Release) -> str:
    """The runs with their settings: the first ones of many, and where the others are."""
    rows = [
        [code(run["run_id"]), *(_value(run.get(name)) for name in _RUN_COLUMNS)] for run in release.runs[:_MOST_RUNS]
    ]
    more = len(release.runs) - len(rows)
    others = f"\n{counted(more, 'more run')} in the table `runs`.\n" if more > 0 else ""
    units = (
        f"The workload card of each run: [{layout.WORKLOADS}]({layout.WORKLOADS}). Batch size is samples a worker and "
        "step; delay is one way, loss on purpose. An empty field is not known.\n"
    )
    return f"{units}\n{table(('run', *map(_heading, _RUN_COLUMNS)), rows)}{others}"


def _held_out(release: facts.Release) -> list[str]:
    """The splits, and how to see what the methods of this project reach; nothing where no split is declared."""
    if not release.splits:
        return []
    sizes = ", ".join(f"{plain(name)} {len(runs):,}" for name, runs in release.splits.items())
    return [
        "## Held-out runs\n",
        f"Runs of each split (`runs.split`): {sizes}. `ddnn-traces query . split_predictions` has the truth of each "
        "run, and what each method of ddnn-traces finds. `ddnn-traces query . split_scores` is the leaderboard: errors "
        "by split, task and method.\n",
    ]


def _figure(release: facts.Release) -> list[str]:
    if not release.figure:
        return []
    return [f"![Traffic between the hosts of a run]({layout.FIGURE})\n", f"{FIGURE_CAPTION}\n"]


_EXPLORER = (
    f"[{layout.EXPLORER}]({layout.EXPLORER}), opened in a browser, shows throughput, steps, collectives, pairs of "
    "hosts and flows of chosen runs. It needs no server and no network.\n"
)
_DATABASE = (
    f"`duckdb {views.FILE}` in this folder has the tables and the named queries, which answer usual questions, as "
    "views and macros.\n"
)
FIGURE_CAPTION = (
    "Transmitted volume of each directed pair of hosts, in one logarithmic colour scale; k, M and G are 10³, 10⁶ and "
    "10⁹ bytes. One run of each framework, backend and topology comes before the second of any."
)


def figure(release: facts.Release) -> str | None:
    """traffic.svg, the card's figure: traffic between the hosts of some runs, as in the report; None without flows."""
    if not release.figure:
        return None
    import polars as pl

    from ddnn_traces.report.charts import style, zerwas

    return style.svg(zerwas.volume_heatmaps(pl.DataFrame(list(release.figure))).to_dict(validate=False)) + "\n"


def _samples(release: facts.Release) -> list[str]:
    """The first rows of each table: a line a row, or a line a column where there are many columns."""
    parts = []
    for item in release.tables:
        rows = release.samples.get(item.name, ())
        if not rows:
            continue
        names = [column.name for column in terms.definition(release, item).columns]
        cells = [[_value(row.get(name)) for name in names] for row in rows]
        heads = [f"`{name}`" for name in names]
        if len(names) <= _MOST_ACROSS:
            shown = table(heads, cells)
        else:
            numbers = [f"row {number}" for number in range(1, len(rows) + 1)]
            columns = zip(*cells, strict=True)
            shown = table(["column", *numbers], ([head, *of] for head, of in zip(heads, columns, strict=True)))
        parts.append(f"### {item.name}\n\n{shown}")
    return ["## First rows\n", "An empty field is null.\n", *parts] if parts else []


def _heading(name: str) -> str:
    """A column's name in words, with its unit in brackets: delay (ms)."""
    column = next(column for column in schema.table("runs").columns if column.name == name)
    words, _, unit = name.rpartition("_")
    return (
        f"{words} ({column.unit.replace('percent', '%')})" if unit in ("ms", "pct", "mbit") else name.replace("_", " ")
    )


def _value(value: object) -> str:
    """A value of a table as a cell: numbers as JSON writes them, whole ones without a fraction."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    text = value if isinstance(value, str) else json.dumps(value)
    return plain(text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…")


def _papers(about: facts.About) -> list[str]:
    """The papers to cite with the data."""
    papers = ((paper.authors, paper.title, paper.year, terms.paper_url(paper)) for paper in about.papers)
    lines = [". ".join(plain(part) for part in parts if part) for parts in papers]
    return [_bullets(lines, "The papers:\n\n")] if lines else []


# --- the data dictionary


def dictionary(release: facts.Release) -> str:
    """DICTIONARY.md: every column of every table, for readers."""
    head = (
        f"# Data dictionary of {plain(release.about.title)}, version {plain(release.about.version)}\n\n"
        f"{''.join(f'{sentence} ' for sentence in terms.unmeasured(release))}"
        "Every column of every table: what it means, how exact it is, and what became of it in this release. The same "
        f"for programs: [{layout.CROISSANT}]({layout.CROISSANT}), [{layout.DATA_PACKAGE}]({layout.DATA_PACKAGE}), and "
        "the metadata of each column in the Parquet files.\n\n"
        "Times are 64-bit nanoseconds since 1970-01-01, UTC. A value that is not known is null. A column named after a "
        "table's key refers to that table.\n"
    )
    return "\n".join([head, *(_table_of_columns(release, item) for item in release.tables)])


def _table_of_columns(release: facts.Release, item: facts.Table) -> str:
    defined, original = terms.definition(release, item), schema.table(item.name)
    done = release.anonymisation
    rows = [
        [
            *_identity(column),
            _sentence(column.meaning) + f" Source: {plain(column.source)}.",
            _sentence(column.inaccuracy),
            _sentence(method_text.change(column, done) or _UNCHANGED.get(column.identifies, "unchanged")),
        ]
        for column in original.columns
    ]
    head = ("column", "type", "unit", "meaning", "known inaccuracy", "in this release")
    key = ", ".join(f"`{part}`" for part in defined.key)
    text = f"A row is {plain(defined.row)}. {counted(item.rows, 'row')}. Key, and order of the rows: {key}.\n"
    return f"## {item.name}\n\n{text}\n{table(head, rows)}"


#: As long as the anonymisation does not state another change.
_UNCHANGED = {"run": "unchanged; a part that held an address, a host, a user or a time is a tag made with the key"}


def _identity(column: schema.Column) -> list[str]:
    """Name, type and unit of a column, as the first cells of its row."""
    return [f"`{column.name}`", column.type if column.nullable else f"{column.type}, never null", plain(column.unit)]


def _sentence(text: str) -> str:
    return f"{plain(text[:1].upper() + text[1:]).removesuffix('.')}." if text else ""


# --- the datasheet


def datasheet(release: facts.Release) -> str:
    """DATASHEET.md: the questions of Gebru et al., "Datasheets for Datasets" (2021).

    The publisher's answers are in their own words; where one is missing, the datasheet states that. All else is from
    the facts.
    """
    about, hidden = release.about, release.anonymisation
    funding = [plain(grant) for grant in about.funding]
    collected = [_step(step) for step in release.provenance if step.kind in ("capture", "generate")]
    processed = [_step(step) for step in release.provenance if step.kind not in ("capture", "generate")]
    removed = [f"Addresses: {plain(hidden.addresses)}. Ports: {plain(hidden.ports)}. Times: {plain(hidden.times)}."]
    if hidden.key_id:
        removed.append(f"Releases with the key {plain(hidden.key_id)} map alike and can be joined.")
    sections = {
        "Motivation": _answer(about.motivation, "why the data were collected") + _bullets(funding, "\nFunded by:\n\n"),
        "Composition": _composition(release),
        "Collection": _answer(about.collection, "how the data were collected") + _bullets(collected, "\n"),
        "Preprocessing": _bullets(processed) or "No step is recorded.\n",
        "What was removed": _bullets([*removed, *map(plain, hidden.removed)]),
        "What can still be identified": _answer(about.sensitive, "personal or sensitive information")
        + _bullets([*map(plain, hidden.remaining)], "\n")
        + _attacks(release),
        "Known inaccuracies": _answer(about.limitations, "limitations") + _inaccuracies(release),
        "Uses": _answer(about.uses, "what the data are for"),
        "Distribution": _distribution(about),
        "Maintenance": _maintenance(release),
    }
    head = f"# Datasheet of {plain(about.title)}, version {plain(about.version)}\n"
    return "\n".join([head, *(f"## {name}\n\n{section}" for name, section in sections.items())])


def _attacks(release: facts.Release) -> str:
    """What the attacks recovered that were run when it was published; '' for none."""
    rows = [
        [plain(one["attack"]), plain(one["knows"]), f"{one['n']:,} {plain(one['of'])}",
         *("-" if one[name] is None else f"{100 * one[name]:.3g}%" for name in ("recovered", "chance"))]
        for one in release.attacks
    ]  # fmt: skip
    head = ("attack", "the adversary knows", "of", "recovered", "by chance")
    text = (
        "\nAttacks that the publisher ran on this release, against the real values. A host counts once in each run. By "
        "chance: one of the run's addresses that are not known.\n\n"
    )
    return text + table(head, rows) if rows else ""


def _answer(words: str | None, what: str) -> str:
    """The publisher's answer, or a sentence that it is missing."""
    return f"{markdown(words)}\n" if words and words.strip() else f"The publisher gave no information on {what}.\n"


def _bullets(lines: list[str], head: str = "") -> str:
    """A list after a head; '' for no lines."""
    return head + "".join(f"- {line}\n" for line in lines) if lines else ""


def _composition(release: facts.Release) -> str:
    """Tables, runs by origin, synthetic and flagged ones by name, hosts, windows, captures."""
    rows = [
        [f"`{item.name}`", plain(terms.definition(release, item).row), f"{item.rows:,}", f"{len(item.files)}"]
        for item in release.tables
    ]
    parts = [terms.contents(release) + "\n", table(("table", "a row is", "rows", "files"), rows)]
    sources = terms.sources(release)
    parts += [f"Runs from {plain(source)}: {len(runs)}.\n" for source, runs in sources.items()]
    if synthetic := sources.get("synthetic"):
        names = ", ".join(code(run) for run in synthetic)
        parts.append(f"**Synthetic, generated by the laws of collectives and never measured:** {names}.\n")
    parts.append(_flagged(release))
    if release.windows_ns:
        lengths = ", ".join(f"{length / 1e6:g} ms" for length in sorted(set(release.windows_ns.values())))
        parts.append(f"Length of the base windows of `flow_windows`: {lengths}.\n")
    captures = f"{counted(len(release.captures), 'file')} in `{layout.CAPTURES}/`" if release.captures else "none"
    parts += [
        f"Cut-down captures (headers only) with their logs: {captures}.\n",
        "A value that a run's metadata lack is null. Records of a capture that are in no flow are in `capture_ledger` "
        "with the reason, where that table is part of the release.\n",
    ]
    return "\n".join(parts)


def _flagged(release: facts.Release) -> str:
    """Runs that failed their checks, with the checks and numbers of rows."""
    if not release.flagged:
        return "No run failed the data checks.\n"
    rows = [
        [code(run), code(check), f"{found:,}"]
        for run, checks in sorted(release.flagged.items())
        for check, found in sorted(checks.items())
    ]
    head = "**Runs that failed data checks and were allowed by the publisher:**\n\n"
    return head + table(("run", "check", "rows that fail it"), rows)


def _step(step: facts.Step) -> str:
    """A step in a sentence: what was done, the software, its parameters, the number of inputs."""
    line = f"{plain(step.text)} ({plain(step.kind)}, by {plain(step.software)})"
    if step.parameters:
        values = ", ".join(code(f"{name} = {json.dumps(value)}") for name, value in sorted(step.parameters.items()))
        line += f"; {values}"
    if step.runs:
        line += f"; {counted(len(step.runs), 'run')}"
    if step.inputs:
        hashed = sum(digest is not None for digest in step.inputs.values())
        line += f"; {counted(len(step.inputs), 'input file')}, {hashed} with SHA-256 or BLAKE3 in `{layout.RELEASE}`"
    return line + "."


def _inaccuracies(release: facts.Release) -> str:
    """Known inaccuracies of every column, from schemas/."""
    parts = []
    for item in release.tables:
        rows = [
            [f"`{column.name}`", plain(column.inaccuracy)]
            for column in terms.definition(release, item).columns
            if column.inaccuracy
        ]
        if rows:
            parts.append(f"\n### {item.name}\n\n" + table(("column", "known inaccuracy"), rows))
    return "".join(parts)


def _distribution(about: facts.About) -> str:
    where, missing = terms.address(about), terms.recommended(about)
    lines = [
        f"Licence: {plain(about.licence)} (`{layout.LICENCE}`).",
        f"Published: {plain(about.published)}" + (f" by {plain(about.publisher)}." if about.publisher else "."),
        f"Where: {plain(where)}." if where else "The publisher gave no information on the address.",
        f"Cite as: {plain(terms.citation(about))}",
        *([f"Recommended, and not given by the publisher: {'; '.join(missing)}."] if missing else []),
    ]
    return _bullets(lines)


def _maintenance(release: facts.Release) -> str:
    about = release.about
    lines = [
        f"Contact: {plain(about.contact)}." if about.contact else "The publisher gave no information on the contact.",
        "A version is never changed; a correction or addition is a new version.",
        f"This version follows {plain(release.previous)}; see `{layout.CHANGELOG}`."
        if release.previous
        else "This is the first version.",
        f"Made by {plain(release.software)}; version {release.schema_version} of the tables.",
    ]
    return _bullets(lines)


# --- Markdown

_MARKUP = re.compile(r"[\\`*_\[\]<>|~$&]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_BEGINS = re.compile(r"[#+=:>-]|\d+[.)](?=\s|$)")


def plain(text: object) -> str:
    """A foreign text as one line of Markdown that shows it unchanged: it cannot become markup, link, HTML or cell."""
    line = _MARKUP.sub(r"\\\g<0>", one_line(str(text)))
    if start := _BEGINS.match(line):  # would begin a list, a heading, ...
        line = line[: start.end() - 1] + "\\" + line[start.end() - 1 :]
    return line


def code(text: object) -> str:
    """A foreign text as inline code, also in the cell of a table."""
    shown = one_line(str(text))
    fence = _fence(shown, 1)
    edge = " " if shown.startswith("`") or shown.endswith("`") else ""
    return fence + edge + shown.replace("|", "\\|") + edge + fence


def markdown(text: str) -> str:
    """Foreign Markdown, with code blocks and comments that it leaves open closed: the text after it is not in them."""
    fence = ""
    lines = text.strip().splitlines()
    for line in lines:
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not line[found.end() :].strip():
                fence = ""
        elif found and not (found[1][0] == "`" and "`" in line[found.end() :]):
            fence = found[1]
    closed = "\n".join([*lines, *([fence] if fence else [])])
    return closed + ("\n-->" if closed.rfind("<!--") > closed.rfind("-->") else "")


def _fence(text: str, least: int) -> str:
    """More backticks than there are together in a text."""
    return "`" * max(least, *(len(run) + 1 for run in re.findall("`+", text)), 0)


def block(language: str, text: str) -> str:
    """A fenced code block for any text."""
    fence = _fence(text, 3)
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"
