"""README.md, DATASHEET.md, CITATION.cff and datacite.json: for people, for the Hub, for citations."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pyarrow.parquet as pq
import pytest
import yaml
from datacite import schema45
from described import ABOUT, BARE, HOSTILE, copy, described, release, traffic
from huggingface_hub import DatasetCard
from markdown_it import MarkdownIt

import ddnn_traces
from ddnn_traces.query.dataset import Dataset
from ddnn_traces.release import descriptions, facts, verify
from ddnn_traces.release.descriptions import cards, citation, terms, workloads
from ddnn_traces.store import layout, schema

HOSTILE_ABOUT = facts.About(
    HOSTILE, "LicenseRef-X", (facts.Person(HOSTILE),), "1.0.0", "2026-01-02", keywords=(HOSTILE,),
    publisher=HOSTILE, contact=HOSTILE, funding=(HOSTILE,), papers=(facts.Publication(HOSTILE, authors=HOSTILE),),
    licence_text="Ask.",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(sample_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the sample as a release. Not to be changed."""
    path = tmp_path_factory.mktemp("card") / "release"
    copy(sample_dataset.path, path, sample_dataset.run_ids[:2], [t for t in schema.TABLES if t != "packets"])
    described(path)
    return path


@pytest.fixture(scope="module")
def made(folder: Path) -> facts.Release:
    return release(folder)


def blocks(text: str, language: str) -> list[str]:
    """Code blocks of a Markdown text, as a reader of Markdown sees them."""
    return [token.content for token in MarkdownIt().parse(text) if token.type == "fence" and token.info == language]


@pytest.mark.parametrize("number", range(6))
def test_every_example_of_the_card_runs(folder: Path, number: int, tmp_path: Path) -> None:
    _, _, body = (folder / layout.CARD).read_text().split("---\n", 2)
    rows = next(table.rows for table in release(folder).tables if table.name == "flows")
    assert run(blocks(body, "python")[number], folder, tmp_path) == rows


def test_the_example_of_croissant_reads_the_files_at_hand(sample_dataset: Dataset, tmp_path: Path) -> None:
    """Also where they have an address, at which nothing answers."""
    copy(sample_dataset.path, tmp_path, sample_dataset.run_ids[:1], ["runs", "flows"])
    described(tmp_path, dataclasses.replace(ABOUT, files_url="https://traces.invalid/1.0.0"))
    _, _, body = (tmp_path / layout.CARD).read_text().split("---\n", 2)
    (code,) = (block for block in blocks(body, "python") if "mlcroissant" in block)
    assert run(code, tmp_path, tmp_path) == release(tmp_path).tables[1].rows


def run(code: str, folder: Path, home: Path) -> int:
    """Number of flows that an example of the card loads. home: for a library's own files."""
    path = str(Path(ddnn_traces.__file__).parents[1])
    count = "\nprint(sum(1 for _ in flows))" if "mlcroissant" in code else "\nprint(len(flows))"
    done = subprocess.run(
        [sys.executable, "-c", code + count],
        cwd=folder, env={"PYTHONPATH": path, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_the_examples_are_of_every_library(folder: Path) -> None:
    _, _, body = (folder / layout.CARD).read_text().split("---\n", 2)
    found = blocks(body, "python")
    assert len(found) == 6
    libraries = ("datasets", "polars", "pandas", "duckdb", "mlcroissant", "ddnn_traces")
    for library, code in zip(libraries, found, strict=True):
        assert f"import {library}" in code


def test_the_card_lists_runs_with_their_settings(made: facts.Release) -> None:
    runs = [{**made.runs[0], "run_id": f"run {n:03}", "delay_ms": 20.0, "loss_pct": 0.5} for n in range(103)]
    runs[1] |= {"workers": None, "delay_ms": None}
    text = cards.card(dataclasses.replace(made, runs=tuple(runs)))
    head, first, second = re.findall(r"^\| (?:run|`run 00[01]`) \| .*$", text, re.M)
    assert "delay (ms) | loss (%) | bandwidth (Mbit/s)" in head
    names = [name.strip() for name in head.strip("|").split("|")]
    cells = [dict(zip(names, map(str.strip, line.strip("|").split("|")), strict=True)) for line in (first, second)]
    assert (cells[0]["workers"], cells[0]["delay (ms)"], cells[0]["loss (%)"]) == ("4", "20", "0.5")
    assert (cells[1]["workers"], cells[1]["delay (ms)"], cells[1]["loss (%)"]) == ("", "", "0.5")
    assert "`run 099`" in text
    assert "`run 100`" not in text
    assert "\n3 more runs in the table `runs`.\n" in text


def test_the_card_shows_the_first_rows_of_each_table(folder: Path, made: facts.Release) -> None:
    shown = tables_of((folder / layout.CARD).read_text().split("## First rows")[1])
    assert list(shown) == [table.name for table in made.tables if table.rows]
    for name, lines in shown.items():
        (file,) = next(table.files for table in made.tables if table.name == name)
        rows = pq.read_table(folder / file.path, partitioning=None).slice(0, 5).to_pylist()
        columns = [column.name for column in schema.table(name).columns]
        if "column" in lines[0]:  # a line a column
            assert [line["column"] for line in lines] == columns
            lines = [{one["column"]: one[f"row {n}"] for one in lines} for n in range(1, len(rows) + 1)]
        assert len(lines) == len(rows) == min(5, file.rows)
        for line, row in zip(lines, rows, strict=True):
            for column in columns:
                value = row[column]
                if isinstance(value, str) and len(value) > 36:
                    assert line[column] == f"{value[:36]}…"
                elif isinstance(value, float) and value.is_integer():
                    assert line[column] == str(int(value))
                else:
                    assert line[column] == (
                        "" if value is None else value if isinstance(value, str) else json.dumps(value)
                    )


def test_samples_are_escaped(made: facts.Release) -> None:
    rows = [{column.name: HOSTILE for column in schema.table("hosts").columns}]
    text = cards.card(dataclasses.replace(made, samples={"hosts": rows}))
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text.split("## First rows")[1])
    inner = [child for token in tokens for child in token.children or ()]
    assert not any("html" in token.type or token.type in ("link_open", "strong_open") for token in [*tokens, *inner])


def test_the_figure_shows_the_traffic_between_hosts(folder: Path, made: facts.Release) -> None:
    drawn = dataclasses.replace(made, figure=traffic("a <run> & more"))
    texts = descriptions.texts(drawn)
    assert texts == descriptions.texts(drawn)
    assert f"]({layout.FIGURE})" in texts[layout.CARD]
    labels = [one.get("aria-label") or "" for one in ElementTree.fromstring(texts[layout.FIGURE]).iter()]
    cells = [label for label in labels if label.startswith("receiver")]
    assert any("bytes on the wire: 1,000" in cell and "run: a <run> & more" in cell for cell in cells)
    assert layout.FIGURE not in descriptions.texts(dataclasses.replace(made, figure=()))


def test_a_workload_card_a_run(folder: Path, made: facts.Release) -> None:
    """With all fields of CCL-Bench's template (workload_card_template.yaml), null where run.toml does not say."""
    cards = list(yaml.safe_load_all((folder / layout.WORKLOADS).read_text()))
    assert [card["ddnn_traces"]["run_id"] for card in cards] == made.run_ids
    for card, run in zip(cards, made.runs, strict=True):
        work, executor = card["workload"], card["Model-executor"]
        assert set(card) - {"ddnn_traces"} == {
            "version", "description", "hf_url", "trace_url", "contributor", "contact", "workload", "Model-executor",
            "metric_source",
        }  # fmt: skip
        assert (work["model"]["model_family"], work["data"]["batch_size"]) == (run["model"], run["batch_size"])
        assert work["model"]["model_arch"]["num_params"] == run["model_params"]
        assert work["hardware"]["network_topo"]["bandwidth_gbps"] == [run["bandwidth_mbit"] / 1000]
        assert work["hardware"]["xpu_spec"] == dict.fromkeys(["type", "model", "total_count", "count_per_node"])
        assert set(executor["model_plan_parallelization"]) == {
            "dp_replicate",
            "dp_shard",
            "tp",
            "pp",
            "cp",
            "ep",
            "pp_mb",
        }
        assert executor["framework"]["name"] == run["framework"]
        assert executor["communication_library"]["name"] == run["backend"]
        own = card["ddnn_traces"]
        assert (own["workers"], own["delay_ms"], own["loss_pct"]) == (run["workers"], run["delay_ms"], run["loss_pct"])
    unknown = dict.fromkeys(made.runs[0]) | {"run_id": HOSTILE}
    (card,) = yaml.safe_load_all(workloads.text(dataclasses.replace(made, runs=(unknown,))))
    assert card["ddnn_traces"]["run_id"] == HOSTILE
    assert card["workload"]["hardware"]["network_topo"]["bandwidth_gbps"] is None


def test_the_dictionary_has_every_column(folder: Path, made: facts.Release) -> None:
    """Type, unit, meaning, inaccuracy and what became of it here, in tables that Markdown reads as such."""
    text = (folder / layout.DICTIONARY).read_text()
    read = tables_of(text)
    assert list(read) == [table.name for table in made.tables]
    for name, rows in read.items():
        columns = schema.table(name).columns
        assert [row["column"] for row in rows] == [column.name for column in columns]
        for row, column in zip(rows, columns, strict=True):
            assert row["type"].partition(",")[0] == column.type
            assert row["unit"] == column.unit
            assert column.meaning[1:] in row["meaning"]
            assert column.inaccuracy[1:] in row["known inaccuracy"]
    flows = {row["column"]: row for row in read["flows"]}
    assert flows["src_ip"]["in this release"].startswith("A label of the host's role (worker-1)")
    assert flows["first_seen_ns"]["in this release"].startswith("Shifted by one secret offset")
    assert flows["packets"]["in this release"] == "Unchanged."
    assert "a tag made with the key" in flows["run_id"]["in this release"]
    kept = dataclasses.replace(made.anonymisation, addresses="kept")
    unmapped = tables_of(cards.dictionary(dataclasses.replace(made, anonymisation=kept)))["flows"]
    assert {row["column"]: row for row in unmapped}["src_ip"]["in this release"] == "Unchanged."


def tables_of(text: str) -> dict[str, list[dict[str, str]]]:
    """The tables of a Markdown text by the heading before, as a reader shows them."""
    found: dict[str, list[dict[str, str]]] = {}
    heading, head, cells = "", [], []
    tokens = MarkdownIt().enable("table").parse(text)
    for before, token in itertools.pairwise(tokens):
        if before.type == "heading_open":
            heading = token.content
        elif before.type == "th_open":
            head.append("".join(child.content for child in token.children or ()))
        elif before.type == "td_open":
            cells.append("".join(child.content for child in token.children or ()))
        elif token.type == "tr_close" and cells:
            found.setdefault(heading, []).append(dict(zip(head, cells, strict=True)))
            cells = []
        elif token.type == "table_close":
            head = []
    return found


def test_the_hub_reads_a_config_a_table(folder: Path, made: facts.Release) -> None:
    read = DatasetCard.load(folder / layout.CARD, ignore_metadata_errors=False).data.to_dict()
    assert (read["license"], read["pretty_name"], read["size_categories"]) == (
        "cc-by-4.0", ABOUT.title, ["1K<n<10K"],
    )  # fmt: skip
    assert [config["config_name"] for config in read["configs"]] == [table.name for table in made.tables]
    for config, table in zip(read["configs"], made.tables, strict=True):
        (files,) = config["data_files"]
        assert sorted(str(path.relative_to(folder)) for path in folder.glob(files["path"])) == [
            file.path for file in table.files
        ]
    features = {info["config_name"]: [f["name"] for f in info["features"]] for info in read["dataset_info"]}
    assert features["flows"] == [column.name for column in schema.table("flows").columns]


@pytest.mark.parametrize(("rows", "size"), [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (102_000_000, "100M<n<1B")])
def test_the_hubs_classes_of_size(made: facts.Release, rows: int, size: str) -> None:
    file = facts.TableFile("runs/part-00000.parquet", 1, "0", {"x": rows})
    assert cards.front_matter(dataclasses.replace(made, tables=(facts.Table("runs", (file,)),)))["size_categories"] == [
        size
    ]


def test_hostile_words_stay_words(made: facts.Release) -> None:
    hostile: dict[str, Any] = dict(made.runs[0]) | {"run_id": "a`|`b", "model": HOSTILE}
    text = cards.card(dataclasses.replace(made, about=HOSTILE_ABOUT, runs=(hostile,), flagged={"a`|`b": {"x": 1}}))
    read = DatasetCard(text, ignore_metadata_errors=False).data.to_dict()
    assert read["pretty_name"] == HOSTILE
    assert (read["license"], read["license_link"]) == ("other", "LICENSE")
    body = text.split("\n---\n\n", 1)[1]
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(body)
    inner = [child for token in tokens for child in token.children or ()]
    assert not any("html" in token.type for token in [*tokens, *inner])
    assert [child.attrs["href"] for child in inner if child.type == "link_open"] == [
        "LICENSE", "DATASHEET.md", "ARTIFACT.md", "DICTIONARY.md", "datapackage.json", "croissant.json", "explore.html",
        "workloads.yaml",
    ]  # fmt: skip
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(body.split("## First rows")[0])
    heads = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    assert heads[1:] == ["Tables", "Load", "Runs", "Cite"]
    cells = [token for token in tokens if token.type in ("th_open", "td_open")]
    assert len(cells) == 5 * (1 + len(made.tables)) + 11 * 2


def test_the_datasheet_bears_hostile_words(made: facts.Release) -> None:
    text = cards.datasheet(dataclasses.replace(made, about=HOSTILE_ABOUT, flagged={"a`|`b": {"check": 3}}))
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    inner = [child for token in tokens for child in token.children or ()]
    assert not any("html" in token.type or token.type == "link_open" for token in [*tokens, *inner])


@pytest.mark.parametrize(
    "text", ["1. x", "- x", "# x", "> x", "a\nb", "<b>", "[a](b)", "![a](b)", "`a", "**a**", "a|b"]
)
def test_plain_text_is_shown_unchanged(text: str) -> None:
    (_, inline, _) = MarkdownIt("gfm-like", {"linkify": False}).parse(cards.plain(text))
    assert inline.type == "inline"
    assert "".join(child.content for child in inline.children or ()) == " ".join(text.split())


def test_the_datasheet_has_the_answers_and_names_missing_ones(made: facts.Release) -> None:
    full = cards.datasheet(made)
    for words in (ABOUT.motivation, ABOUT.collection, ABOUT.uses, ABOUT.limitations, ABOUT.sensitive):
        assert str(words) in full
    assert "gave no information" not in full
    silent = cards.datasheet(dataclasses.replace(made, about=BARE))
    assert silent.count("The publisher gave no information on ") == 7
    for text in (full, silent):
        assert "Host names were removed." in text
        assert "A role tells a place." in text
        for table in made.tables:
            for column in schema.table(table.name).columns:
                assert cards.plain(column.inaccuracy) in text


def test_the_card_tells_of_captures_and_shifted_times(made: facts.Release) -> None:
    capture = facts.File(f"{layout.CAPTURES}/x/worker-1.pcap", 24, "0" * 64)
    text = cards.card(dataclasses.replace(made, captures=(capture,)))
    assert f"`{layout.CAPTURES}/RUN/`: the captures with their logs, cut down to headers (1 file)" in text
    assert "all shifted by one secret offset" in text
    kept = dataclasses.replace(made.anonymisation, times="kept")
    assert "shifted" not in cards.card(dataclasses.replace(made, anonymisation=kept))
    assert "cut down" not in cards.card(made)


def test_the_datasheet_names_synthetic_and_flagged_runs(made: facts.Release) -> None:
    runs = tuple(dict(run) | {"source": "synthetic"} for run in made.runs[:1]) + made.runs[1:]
    flagged = {made.run_ids[1]: {"ledger_remainder": 12}}
    text = cards.datasheet(dataclasses.replace(made, runs=runs, flagged=flagged))
    assert f"never measured:** `{made.run_ids[0]}`." in text
    assert f"| `{made.run_ids[1]}` | `ledger_remainder` | 12 |" in text
    assert "never measured" not in cards.datasheet(made)


@pytest.mark.parametrize("about", [ABOUT, BARE, HOSTILE_ABOUT])
def test_the_citation_follows_its_format(made: facts.Release, about: facts.About) -> None:
    text = terms.yaml_text(citation.cff_document(dataclasses.replace(made, about=about)))
    read = yaml.safe_load(text)
    rules = Path(verify.__file__).with_name("citation_schema.json").read_text()
    jsonschema.validate(read, json.loads(rules))
    assert read["title"] == about.title
    assert read["type"] == "dataset"


def test_the_citation_names_people(made: facts.Release) -> None:
    read = yaml.safe_load(terms.yaml_text(citation.cff_document(made)))
    assert read["authors"][0] == {
        "given-names": "Ada", "family-names": "Example", "affiliation": "Example University",
        "orcid": "https://orcid.org/0000-0002-1825-0097",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("Ada Example", ("Ada", "Example")),
        ("van der Berg, Jan", ("Jan", "van der Berg")),
        ("Plato", ("", "Plato")),
        ("Ada B. Example", ("Ada B.", "Example")),
        ("Maria de la Cruz", ("Maria", "de la Cruz")),
        ("University of Somewhere", ("", "University of Somewhere")),
    ],
)
def test_names(name: str, parts: tuple[str, str]) -> None:
    assert terms.names(facts.Person(name)) == parts


def test_organisations_stay_whole_in_every_description(made: facts.Release) -> None:
    group = dataclasses.replace(made, about=dataclasses.replace(ABOUT, creators=(facts.Person("Sand and Sea Group"),)))
    texts = descriptions.texts(group)
    assert yaml.safe_load(texts[layout.CITATION])["authors"] == [{"name": "Sand and Sea Group"}]
    assert json.loads(texts[layout.DATACITE])["creators"] == [
        {"name": "Sand and Sea Group", "nameType": "Organizational"}
    ]
    assert json.loads(texts[layout.CROISSANT])["creator"][0]["@type"] == "sc:Organization"
    authors = [one for one in json.loads(texts[layout.RO_CRATE])["@graph"] if one.get("name") == "Sand and Sea Group"]
    assert [one["@type"] for one in authors] == ["Organization"]
    assert "author = {{Sand and Sea Group}}" in texts[layout.CARD]


@pytest.mark.parametrize("about", [ABOUT, BARE, HOSTILE_ABOUT])
def test_datacite_follows_its_schema(made: facts.Release, about: facts.About) -> None:
    document = citation.datacite_document(dataclasses.replace(made, about=about))
    schema45.validator.validate(document)
    assert ("doi" in document) is (about.doi is not None)
    assert document["version"] == about.version


def test_datacite_rights_sizes_and_papers(made: facts.Release) -> None:
    document = citation.datacite_document(made)
    assert document["rightsList"][0]["rightsIdentifier"] == "CC-BY-4.0"
    assert document["relatedIdentifiers"][0]["relatedIdentifier"] == "10.1109/example"
    assert document["sizes"][1] == "2 runs"
    assert document["creators"][0]["nameIdentifiers"][0]["nameIdentifier"].endswith("0000-0002-1825-0097")


@pytest.mark.parametrize(
    ("authors", "expected"),
    [
        ("A. Example, B. Example", [("A.", "Example"), ("B.", "Example")]),
        ("Ada Example and Grace Example", [("Ada", "Example"), ("Grace", "Example")]),
        ("Example, Ada; van Dyck, Grace", [("Ada", "Example"), ("Grace", "van Dyck")]),
        ("Ada Example, Grace Example, Alan Example", [("Ada", "Example"), ("Grace", "Example"), ("Alan", "Example")]),
        ("Ada Example, Grace Example", "Ada Example, Grace Example"),  # or of the family Ada Example
        ("The Sandberg Group", "The Sandberg Group"),
    ],
)
def test_authors_of_a_paper_are_persons(authors: str, expected: Any) -> None:
    paper = facts.Publication("P", authors=authors)
    found = citation._reference(paper)["authors"]
    if isinstance(expected, str):
        assert found == [{"name": expected}]
    else:
        assert [(person["given-names"], person["family-names"]) for person in found] == expected


def test_bibtex_names_persons_and_has_a_key_of_its_own() -> None:
    entry = citation.bibtex_entry(ABOUT)
    assert entry.startswith("@misc{sample_traces_1.0.0,\n  author = {Example, Ada and Example, Grace},\n")
    assert citation.bibtex_entry(dataclasses.replace(ABOUT, version="2.0.0")).startswith("@misc{sample_traces_2.0.0,")
    odd = dataclasses.replace(ABOUT, title="\u8ddf\u8e2a", creators=(facts.Person("Sand and Sea Group"),))
    assert re.match(
        r"@misc\{release_[0-9a-f]{8}_1\.0\.0,\n  author = \{\{Sand and Sea Group\}\},", citation.bibtex_entry(odd)
    )


@pytest.mark.parametrize(
    "markdown", ["x\n```python\ny", "~~~~\n~~~\n", "a\n```` b\n```\n", "1. a\n```\n", "a <!-- b", "<!--\nb"]
)
def test_open_markdown_does_not_swallow_the_text_after_it(made: facts.Release, markdown: str) -> None:
    about = dataclasses.replace(made.about, description=markdown, motivation=markdown)
    for text in (
        cards.card(dataclasses.replace(made, about=about)),
        cards.datasheet(dataclasses.replace(made, about=about)),
    ):
        body = text.split("---\n", 2)[-1]
        headings = {token.content for token in MarkdownIt().parse(body) if token.type == "inline"}
        assert {"Tables", "Load"} <= headings or {"Composition", "Maintenance"} <= headings


def test_closed_markdown_stays_unchanged() -> None:
    for text in ("```\na\n```", "~~~ x\n```\n~~~", "a `b` <!-- c --> d", "``` a`b\nc"):
        assert cards.markdown(text) == text


def test_synthetic_runs_are_named_as_such_by_every_description(made: facts.Release) -> None:
    runs = tuple({**run, "source": "synthetic"} for run in made.runs)
    for release_, sentence in (
        (dataclasses.replace(made, runs=runs), "The data are synthetic"),
        (dataclasses.replace(made, runs=(runs[0], made.runs[1])), "1 of 2 runs are synthetic"),
    ):
        texts = descriptions.texts(release_)
        own_words = {layout.LICENCE, layout.DATASHEET, layout.FIGURE, layout.WORKLOADS, layout.CLAIMS}
        assert "source: synthetic" in texts[layout.WORKLOADS]
        for name in set(layout.DESCRIPTIONS) - own_words:
            assert sentence in texts[name], name
            if name not in (layout.CARD, layout.DICTIONARY, layout.ARTIFACT):
                assert '"synthetic"' in texts[name] or "- synthetic" in texts[name] or ", synthetic" in texts[name], (
                    name
                )
        raw = json.loads(texts[layout.CROISSANT])["rai:dataCollectionRawData"]
        assert raw.startswith(("There are no original captures", "Synthetic runs have no original captures"))
        assert "- synthetic\n" in texts[layout.CARD]
    assert "synthetic" not in descriptions.texts(made)[layout.CARD]


def test_publisher_contact_and_funders_are_in_each(made: facts.Release) -> None:
    people = json.loads(descriptions.texts(made)[layout.DATA_PACKAGE])["contributors"]
    assert [(one["title"], one["roles"]) for one in people[2:]] == [
        ("Example University", ["publisher"]),
        ("traces@example.org", ["contact"]),
        ("Example Foundation 42", ["funder"]),
    ]
    assert json.loads(descriptions.texts(made)[layout.CROISSANT])["contactPoint"]["email"] == "traces@example.org"


def test_missing_recommended_values_are_named(made: facts.Release) -> None:
    assert terms.recommended(ABOUT) == []
    bare = cards.datasheet(dataclasses.replace(made, about=BARE))
    assert "Recommended, and not given by the publisher: url or doi" in bare
    assert "Recommended" not in cards.datasheet(made)


def test_bibtex_is_balanced() -> None:
    entry = citation.bibtex_entry(HOSTILE_ABOUT).replace("\\{", "").replace("\\}", "")
    assert entry.count("{") == entry.count("}")
    assert "\\textbackslash" in entry
