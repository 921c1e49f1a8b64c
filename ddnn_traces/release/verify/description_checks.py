"""Each description by the validator of its format, on a small copy of the tables where it reads them.

Each check raises WrongError, of which running.py makes a finding.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from ddnn_traces.errors import UsageError, needs_extra
from ddnn_traces.release import facts
from ddnn_traces.release.claims import read as read_claims
from ddnn_traces.release.verify.examined import (
    ASK,
    Examined,
    Finding,
    WrongError,
    failed,
    not_checked,
    parse_yaml,
    passed,
    shown,
    unless,
)
from ddnn_traces.store import layout, schema
from ddnn_traces.store.layout import is_safe
from ddnn_traces.store.whole_files import sha256_of
from ddnn_traces.text import counted, listed

#: Rows of all files together; a release with fewer is not cut.
MOST_ROWS = 10_000
#: Number of files: mlcroissant and frictionless take about 30 ms to open one.
MOST_FILES = 300


@dataclass
class Trial:
    """A small copy of a release, for libraries that read whole tables into memory: some files, cut to their first rows.

    mlcroissant and frictionless read by pandas; tables of 100 million rows do not fit. Properties of whole tables
    (checksums, rows, keys, references) have checks of their own. files, cut: paths of the files, and of those that
    are cut. rows: at most, of each file. whole: nothing is left out.
    """

    folder: Path
    rows: int = 0
    files: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    whole: bool = True

    @property
    def extent(self) -> str:
        """The rows that were read, in words."""
        return (
            "all rows"
            if self.whole
            else f"up to {counted(self.rows, 'row')} of each of {counted(len(self.files), 'file')}"
        )


def trial(examined: Examined) -> Trial:
    """The small copy, written once; a file that cannot be read is a link in it: a library names it. Raises OSError."""
    small = Trial(examined.scratch / "trial")
    every = examined.release.table_files
    most = max(2, MOST_FILES // max(1, len(examined.release.tables)))
    files = [file for table in examined.release.tables for file in _some(table.files, most)]
    total = sum(file.rows for file in files)
    small.rows = total if total <= MOST_ROWS else max(10, MOST_ROWS // len(files))
    small.files = {file.path for file in files}
    small.cut = {file.path for file in files if file.rows > small.rows}
    small.whole = not small.cut and len(files) == len(every)
    if not small.folder.exists():
        for file in files:
            _copy(examined.content, file, small)
    return small


def _some(files: Sequence[facts.TableFile], most: int) -> list[facts.TableFile]:
    """At most so many of the files, evenly chosen, the first and the last among them."""
    if len(files) <= most:
        return [*files]
    return [files[place * (len(files) - 1) // (most - 1)] for place in range(most)]


def _copy(content: Path, file: facts.TableFile, small: Trial) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = small.folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if file.rows > small.rows:
            parquet = pq.ParquetFile(content / file.path)
            first = next(parquet.iter_batches(small.rows, use_threads=False))
            pq.write_table(pa.Table.from_batches([first.slice(0, small.rows)], parquet.schema_arrow), target)
            return
    except (pa.ArrowException, OSError):
        target.unlink(missing_ok=True)
    target.symlink_to((content / file.path).absolute())


# --- croissant.json


def check_croissant(examined: Examined) -> Iterator[Finding]:
    """croissant.json by mlcroissant: the document is valid, and every record set loads the values of the Parquet files.

    mlcroissant's own check passes wrong columns and media types that no reader can load.
    """
    document = examined.document(layout.CROISSANT)
    _refuse_elsewhere(document, examined)
    with needs_extra():
        import mlcroissant
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    small = trial(examined)
    file = small.folder / layout.CROISSANT
    file.write_text(json.dumps(_at_hand(document, examined.release, small)), encoding="utf-8")
    try:
        dataset = mlcroissant.Dataset(str(file))
    except Exception as error:  # an untrusted document can make it raise anything
        raise WrongError(f"mlcroissant: {shown(error)}; {ASK}") from None
    warnings = len(dataset.metadata.ctx.issues.warnings)
    yield passed("document", f"valid ({warnings} warnings)")
    named = {record_set.get("@id") for record_set in document["recordSet"]}
    for name, (table, its_files) in record_sets(document, examined.release).items():
        if name not in named:
            yield failed(name, f"has no record set; {ASK}")
            continue
        files = [small.folder / one.path for one in its_files if one.path in small.files]
        if not files:
            continue
        try:
            loaded = list(dataset.records(name))
        except Exception as error:  # as above
            yield failed(name, f"mlcroissant cannot load it ({shown(error)}); {ASK}")
            continue
        if wrong := _difference(loaded, files, name, table.name):
            yield failed(name, f"{wrong}; {ASK}")
        else:
            yield passed(
                name, f"mlcroissant loads {counted(len(loaded), 'row')} as they are in the files ({small.extent})"
            )


def record_sets(
    document: dict[str, Any], release: facts.Release
) -> dict[str, tuple[facts.Table, tuple[facts.TableFile, ...]]]:
    """Table and files of each record set that croissant.json must have.

    As mlcroissant reads a file set only from a folder, a table of several files at addresses has a record set for each.
    """
    in_folder = any(item.get("@type") == "cr:FileSet" for item in document["distribution"])
    found: dict[str, tuple[facts.Table, tuple[facts.TableFile, ...]]] = {}
    for table in release.tables:
        if in_folder or len(table.files) == 1:
            found[table.name] = (table, table.files)
        else:
            found |= {f"{table.name}.{PurePosixPath(file.path).stem}": (table, (file,)) for file in table.files}
    return found


def _paths(document: dict[str, Any], release: facts.Release) -> dict[str, str]:
    """Paths of the files by their addresses in croissant.json: all below the same one, which release.json allows.

    A repository's page holds no files, so that the url need not be their address.
    """
    about = release.about
    if about.files_url is not None or about.url is None:
        bases = {"" if about.files_url in (None, ".") else f"{about.files_url.rstrip('/')}/"}
    else:
        name = "/".join(about.url.rstrip("/").split("/")[-2:])
        bases = {
            "",
            f"{about.url.rstrip('/')}/",
            f"https://huggingface.co/datasets/{name}/resolve/v{about.version}/",
        }
    found = {base: {base + (quote(f.path) if base else f.path): f.path for f in release.files} for base in bases}
    objects = [one.get("contentUrl") for one in document["distribution"] if one.get("@type") == "cr:FileObject"]
    return next((paths for paths in found.values() if objects and objects[0] in paths), found[min(bases)])


def _at_hand(document: dict[str, Any], release: facts.Release, small: Trial) -> dict[str, Any]:
    """The document with the files of the small copy instead of those at their addresses: nothing is downloaded."""
    paths = _paths(document, release)
    distribution = []
    for item in document["distribution"]:
        path = paths.get(item.get("contentUrl"))
        changed = {} if path is None else {"contentUrl": path}
        if path in small.cut:
            changed["sha256"] = sha256_of(small.folder / path)
        distribution.append(item | changed)
    return document | {"distribution": distribution}


_SOURCES = ({"fileSet", "extract"}, {"fileObject", "extract"})


def _refuse_elsewhere(document: dict[str, Any], examined: Examined) -> None:
    """Raise WrongError where reading the document would fetch anything, or read files outside the release."""
    every = list(_every_object(document))
    if not isinstance(document.get("@context"), dict) or any(one.keys() & {"@import", "@base"} for one in every):
        raise WrongError(f"its context is not inlined, so that reading it would fetch one; {ASK}")
    if sum("@context" in one for one in every) > 1:
        raise WrongError(f"has a context inside, which is not read; {ASK}")
    distribution = _objects(document, "distribution")
    known = _paths(document, examined.release).keys()
    patterns = {f"{table}/*.parquet" for table in schema.TABLES}
    for item in distribution:
        kind = item.get("@type")
        fine = item.get("contentUrl") in known if kind == "cr:FileObject" else item.get("includes") in patterns
        if kind not in ("cr:FileObject", "cr:FileSet") or not fine or "containedIn" in item:
            raise WrongError(f"{shown(item.get('@id'))} is not a file of the release, so nothing was loaded; {ASK}")
    for record_set in _objects(document, "recordSet"):
        if record_set.get("@id") == "splits" and not any("source" in column for column in record_set["field"]):
            continue  # its data are in the document
        for column in _objects(record_set, "field"):
            source = column.get("source")
            extract = source["extract"] if isinstance(source, dict) and set(source) in _SOURCES else None
            if not isinstance(extract, dict) or extract.keys() != {"column"}:
                raise WrongError(f"{shown(column.get('@id'))} is not from a column, so nothing was loaded; {ASK}")


def _objects(item: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = item.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise WrongError(f"its {name} is not a list of objects; {ASK}")
    return found


def _every_object(item: Any) -> Iterator[dict[str, Any]]:
    """The objects in a document at any depth, itself included."""
    if isinstance(item, dict):
        yield item
    for value in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
        yield from _every_object(value)


def _difference(loaded: list[dict[str, Any]], files: Sequence[Path], name: str, table: str) -> str:
    """How the records differ from the rows of the files, in whatever order; '' where they do not."""
    import pyarrow.parquet as pq

    columns = [column.name for column in schema.table(table).columns]
    rows: Counter[tuple[Any, ...]] = Counter()
    for path in files:
        for row in pq.read_table(path, partitioning=None).select(columns).to_pylist():
            rows[tuple(_comparable(row[column]) for column in columns)] += 1
    names = [f"{name}/{column}" for column in columns]
    if loaded and set(loaded[0]) != set(names):
        return f"mlcroissant loads other columns ({shown(', '.join(sorted(set(loaded[0]) ^ set(names))))})"
    found = Counter(tuple(_comparable(record[column]) for column in names) for record in loaded)
    if found == rows:
        return ""
    odd, lacking = sum((found - rows).values()), sum((rows - found).values())
    return f"mlcroissant loads {odd:,} rows that the files do not have, and lacks {lacking:,}"


def _comparable(value: Any) -> Any:
    """A value in a form that both readers share: text, number, None."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value


# --- datapackage.json

_RESOURCE = {
    "$schema", "name", "title", "description", "type", "path", "format", "mediatype", "hash", "sizeInBytes", "rows",
    "parts", "table", "schema",
}  # fmt: skip
_FIELD = {"name", "type", "title", "description", "unit", "constraints"}
_SCHEMA = {"$schema", "fields", "primaryKey", "uniqueKeys", "foreignKeys"}


def check_data_package(examined: Examined) -> Iterator[Finding]:
    """datapackage.json by frictionless: the document is valid, and its schema fits every file's rows."""
    document = examined.document(layout.DATA_PACKAGE)
    resources = document.get("resources")
    if not isinstance(resources, list):
        raise WrongError(f"has no resources; {ASK}")
    known = examined.known_files()
    for resource in resources:
        _refuse_odd_resource(resource, set(known))
    with needs_extra():
        import frictionless
    small = trial(examined)
    whole = small.whole and all(isinstance(resource["path"], str) for resource in resources)
    cut = document | {"resources": resources if whole else [_cut_resource(one, small) for one in resources]}
    try:
        # by frictionless' own model of the whole document first, then of the rows
        package = frictionless.Package.from_descriptor(document, basepath=str(small.folder))
        assert len(package.resources) == len(resources)
        report = frictionless.Package.from_descriptor(cut, basepath=str(small.folder)).validate()
    except frictionless.FrictionlessException as error:
        raise WrongError(f"frictionless: {shown(error)}; {ASK}") from None
    issues = [(task.place, issue) for task in report.tasks for issue in task.errors[:1]]
    issues += [("document", issue) for issue in report.errors]
    wrong = (failed(place, f"frictionless: {shown(issue.message)}; {ASK}") for place, issue in issues)
    without = "" if whole else ", without keys between files"
    detail = f"{counted(len(resources), 'resource')}, valid with {small.extent}{without}"
    yield from unless(wrong, passed("resources", detail))


def _refuse_odd_resource(resource: Any, known: set[str]) -> None:
    """Raise WrongError for a resource that frictionless would read from another place, or with rules of its own."""
    where = resource.get("path") if isinstance(resource, dict) else resource
    paths = where if isinstance(where, list) else [where]
    if (
        not isinstance(resource, dict)
        or not paths
        or not known.issuperset(map(str, paths))
        or resource.keys() - _RESOURCE
    ):
        raise WrongError(f"{shown(where)} is not a file of the release, so nothing was read; {ASK}")
    defined = resource.get("schema")
    if not isinstance(defined, dict) or defined.keys() - _SCHEMA or not isinstance(defined.get("fields"), list):
        raise WrongError(f"{shown(resource['path'])} has no schema of its own, so nothing was read; {ASK}")
    for column in defined["fields"]:
        odd = not isinstance(column, dict) or column.keys() - _FIELD
        if odd or column.get("constraints", {"required": True}) != {"required": True}:
            raise WrongError(
                f"{shown(resource['path'])} has a column with rules of its own, so nothing was read; {ASK}"
            )


def _cut_resource(resource: dict[str, Any], small: Trial) -> dict[str, Any]:
    """A resource of the small copy: the first of its files, without references to others.

    frictionless reads no other file of several; of a part of the rows there is neither number nor checksum.
    """
    path = resource["path"] if isinstance(resource["path"], str) else resource["path"][0]
    part_of = path in small.cut or path != resource["path"]
    schema_ = {name: value for name, value in resource["schema"].items() if name != "foreignKeys"}
    kept = {name: value for name, value in resource.items() if not (part_of and name in ("rows", "hash", "parts"))}
    return kept | {"path": path, "schema": schema_}


# --- ro-crate-metadata.json

_MOST_ISSUES = 10


def check_ro_crate(examined: Examined) -> Iterator[Finding]:
    """ro-crate-metadata.json by rocrate-validator, offline, with the inlined context: all that 1.1 requires."""
    document = examined.document(layout.RO_CRATE)
    if not isinstance(document.get("@context"), dict) or "@import" in document["@context"]:
        raise WrongError(f"its context is not inlined, so that reading it would fetch one; {ASK}")
    with needs_extra():
        from rocrate_validator import models, services
    logging.getLogger("rocrate_validator").setLevel(logging.CRITICAL)
    settings = models.ValidationSettings(
        rocrate_uri=str(examined.content),
        profile_identifier="ro-crate-1.1",
        requirement_severity=models.Severity.REQUIRED,
        offline=True,
        cache_path=examined.scratch / "rocrate",
    )
    try:
        result = services.validate(settings)
    except Exception as error:  # as above
        raise WrongError(f"rocrate-validator: {shown(error)}; {ASK}") from None
    if result.passed():
        yield passed(layout.RO_CRATE, "valid: all that RO-Crate 1.1 requires")
    for issue in [*result.get_issues()][:_MOST_ISSUES]:
        yield failed(layout.RO_CRATE, f"rocrate-validator: {shown(issue.message)}; {ASK}")


# --- the smaller ones


def check_datacite(examined: Examined) -> Iterator[Finding]:
    """datacite.json follows DataCite's JSON schema 4.5."""
    document = examined.document(layout.DATACITE)
    with needs_extra():
        from datacite import schema45
    _refuse_unfit(document, schema45.validator)
    yield passed(layout.DATACITE, "follows DataCite's schema 4.5")


def check_citation(examined: Examined) -> Iterator[Finding]:
    """CITATION.cff follows the schema of the Citation File Format 1.2.0."""
    import jsonschema

    document = parse_yaml(examined.text(layout.CITATION), layout.CITATION)
    rules = json.loads(Path(__file__).with_name("citation_schema.json").read_text())  # the format's own (CC-BY-4.0)
    _refuse_unfit(document, jsonschema.validators.validator_for(rules)(rules))
    yield passed(layout.CITATION, "follows the schema of CFF 1.2.0")


def check_card(examined: Examined) -> Iterator[Finding]:
    """The card's front matter has a config for each table, whose pattern matches the table's files and no others."""
    release = examined.release
    front = parse_yaml(front_matter(examined.text(layout.CARD)), layout.CARD)
    configs = front.get("configs")
    if not isinstance(configs, list) or not all(isinstance(config, dict) for config in configs):
        raise WrongError(f"its front matter has no configs; {ASK}")
    found, known = {}, examined.known_files()
    for config in configs:
        try:
            of_splits = {data["split"]: data["path"] for data in config["data_files"]}
            found[config["config_name"]] = {
                split: [path for path in known if fnmatchcase(path, pattern)] for split, pattern in of_splits.items()
            }
        except (KeyError, TypeError, ValueError):
            raise WrongError(f"its config {shown(config.get('config_name'))} names no files; {ASK}") from None
    right = {table.name: _files_of_splits(release, table) for table in release.tables}
    wrong = sorted(name for name in found.keys() | right.keys() if found.get(name) != right.get(name))
    if wrong:
        raise WrongError(f"its configs do not have the files of {shown(', '.join(wrong))}; {ASK}")
    about = release.about
    _refuse_lacking(release, examined.text(layout.CARD), (about.title, about.version, about.published, about.licence))
    yield passed(layout.CARD, f"{counted(len(found), 'config')} with the tables' files")


def _files_of_splits(release: facts.Release, table: facts.Table) -> dict[str, list[str]]:
    """Paths of a table's files by the split of their runs."""
    split_of = {run: split for split, runs in release.splits.items() for run in runs}
    found: dict[str, list[str]] = {}
    for file in table.files:
        found.setdefault(split_of.get(min(file.runs), "train"), []).append(file.path)
    return found


def check_licence(examined: Examined) -> Iterator[Finding]:
    """LICENSE is the text of the licence that release.json names, with year and holders in their places."""
    about = examined.release.about
    text = examined.text(layout.LICENCE)
    right = about.licence_text
    if right is None:
        known = Path(facts.__file__).with_name("licences") / f"{about.licence}.txt"  # of the SPDX licence list
        if not is_safe(about.licence) or not known.is_file():
            raise WrongError(f"no text of the licence {shown(about.licence)} is known here; {ASK}")
        right = known.read_text(encoding="utf-8")
    places = {"<year>": about.published[:4], "<copyright holders>": ", ".join(one.name for one in about.creators)}
    parts = re.split("(<year>|<copyright holders>)", right) if about.licence_text is None else [right]
    if text.strip() != "".join(places.get(part, part) for part in parts).strip():
        raise WrongError(f"is not the text of {shown(about.licence)}; {ASK}")
    yield passed(layout.LICENCE, f"the text of {shown(about.licence)}")


def _flat(text: object) -> str:
    """A text without Markdown's escapes, code marks and line ends."""
    return " ".join(re.sub(r"[\\`]", "", str(text)).split())


def _cells(text: str) -> Iterator[list[str]]:
    """The cells of each row of its tables."""
    for line in text.splitlines():
        if line.startswith("| "):
            yield [_flat(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _refuse_lacking(release: facts.Release, text: str, needed: Iterable[str]) -> None:
    """Raise WrongError for a document that lacks one of these texts, or a table with its number of rows."""
    flat = _flat(text)
    if lacking := [one for one in needed if _flat(one) not in flat]:
        raise WrongError(f"does not state {shown(lacking[0])!r}; {ASK}")
    numbers = {cells[0]: cells for cells in reversed(list(_cells(text)))}
    for table in release.tables:
        if f"{table.rows:,}" not in numbers.get(table.name, ()):
            raise WrongError(f"does not state the {counted(table.rows, 'row')} of {table.name}; {ASK}")


def check_datasheet(examined: Examined) -> Iterator[Finding]:
    """The datasheet has the steps, what was removed and what remains, and every run that fails data checks."""
    release = examined.release
    text = examined.text(layout.DATASHEET)
    if not text.strip():
        raise WrongError(f"is empty; {ASK}")
    about, done = release.about, release.anonymisation
    lacking = [run_id for run_id in release.flagged if _flat(run_id) not in _flat(text)]
    if lacking:
        raise WrongError(f"does not state that {shown(', '.join(lacking))} fails data checks; {ASK}")
    own = [about.motivation, about.collection, about.uses, about.limitations, about.sensitive]
    steps = [step.text for step in release.provenance]
    needed = [about.title, about.licence, *filter(None, own), *done.removed, *done.remaining, *steps]
    _refuse_lacking(release, text, needed)
    yield passed(layout.DATASHEET, f"names {counted(len(release.flagged), 'flagged run')}")


def check_dictionary(examined: Examined) -> Iterator[Finding]:
    """DICTIONARY.md has every column of every table, with type, unit and meaning, below the table's heading."""
    sections = {part.partition("\n")[0]: part for part in examined.text(layout.DICTIONARY).split("\n## ")}
    lacking = []
    for table in examined.release.tables:
        section = sections.get(table.name, "")
        if f"{counted(table.rows, 'row')}. Key" not in section:
            lacking.append(f"the {counted(table.rows, 'row')} of {table.name}")
        rows = {cells[0]: cells for cells in _cells(section)}
        for column in schema.table(table.name).columns:
            right = [column.name, column.type + ", never null" * (not column.nullable), _flat(column.unit)]
            found = rows.get(column.name, [])
            if found[:3] != right or _flat(column.meaning)[1:] not in found[3]:
                lacking.append(f"{table.name}.{column.name}")
    if lacking:
        raise WrongError(f"lacks {listed(lacking, 5)}, or has another type, unit or meaning; {ASK}")
    columns = sum(len(schema.table(table.name).columns) for table in examined.release.tables)
    yield passed(layout.DICTIONARY, f"has {counted(columns, 'column')} with type and unit")


#: Elements of a drawing that cannot load or run anything.
_DRAWN = {
    "svg", "g", "path", "text", "tspan", "line", "rect", "circle", "defs", "linearGradient", "stop", "clipPath",
    "title", "desc",
}  # fmt: skip
_SVG = "{http://www.w3.org/2000/svg}"
_VOLUME = re.compile(r"sender: (\S+); receiver: (\S+); bytes on the wire: ([\d,]+);.* run: (.+)")


def check_figure(examined: Examined) -> Iterator[Finding]:
    """traffic.svg is a drawing of the rows in release.json, in which nothing runs, and which loads nothing."""
    release = examined.release
    if not release.figure:
        return
    text = examined.text(layout.FIGURE)
    elements = _elements(text)
    for element in elements:
        name = element.tag.removeprefix(_SVG)
        if not element.tag.startswith(_SVG) or name not in _DRAWN:
            raise WrongError(f"has an element {shown(name)}, which no drawing needs; {ASK}")
        for key, value in element.attrib.items():
            if key.startswith("aria-"):  # words, with names of runs in them
                continue
            if key.lower().startswith("on") or "href" in key or re.search(r"url\((?!#)|javascript:", value, re.I):
                raise WrongError(f"has an attribute {shown(key)} that could load or run something; {ASK}")
    drawn = {found.groups() for label in labels(text) if (found := _VOLUME.search(label))}
    stated = {(r["src_host"], r["dst_host"], f"{r['wire_bytes']:,}", r["run_id"]) for r in release.figure}
    if drawn != stated:
        odd = shown(", ".join(min(drawn ^ stated)))
        raise WrongError(f"does not draw the volumes of {layout.RELEASE}: {odd} is in one of them only; {ASK}")
    yield passed(layout.FIGURE, f"{counted(len(elements), 'element')}, nothing in it loads or runs")


def _elements(svg: str) -> list[ElementTree.Element]:
    """The elements of a drawing. Raises WrongError."""
    if "<!" in svg:  # a declaration, with entities that grow or name files
        raise WrongError(f"is not plain SVG: it has a declaration or a comment; {ASK}")
    try:
        return list(ElementTree.fromstring(svg).iter())  # noqa: S314 - without declarations
    except ElementTree.ParseError as error:
        raise WrongError(f"is not SVG ({shown(error)}); {ASK}") from None


def labels(svg: str) -> list[str]:
    """What a drawing shows, in words, which do not depend on the fonts of the machine. Raises WrongError."""
    return [label for element in _elements(svg) if (label := element.get("aria-label"))]


#: Fields of CCL-Bench's template, and where a card has a value of the run.
_CARD_FIELDS = {
    "version", "description", "hf_url", "trace_url", "contributor", "contact", "workload", "Model-executor",
    "metric_source", "ddnn_traces",
}  # fmt: skip
_CARD_VALUES = {
    "model": ("workload", "model", "model_family"),
    "epochs": ("workload", "model", "epochs"),
    "model_params": ("workload", "model", "model_arch", "num_params"),
    "batch_size": ("workload", "data", "batch_size"),
    "framework": ("Model-executor", "framework", "name"),
    "backend": ("Model-executor", "communication_library", "name"),
    "topology": ("ddnn_traces", "topology"),
    "workers": ("ddnn_traces", "workers"),
}


def check_workloads(examined: Examined) -> Iterator[Finding]:
    """workloads.yaml has a card of every run, in order: the fields of CCL-Bench's template, the values of the run."""
    documents = f"\n{examined.text(layout.WORKLOADS)}".split("\n---\n")[1:]
    cards = [parse_yaml(document, layout.WORKLOADS) for document in documents]
    release = examined.release
    own = [card.get("ddnn_traces") for card in cards]
    named = [one.get("run_id") if isinstance(one, dict) else None for one in own]
    if named != release.run_ids:
        raise WrongError(f"its cards are not those of the runs, one each; {ASK}")
    for run, card in zip(release.runs, cards, strict=True):
        if card.keys() != _CARD_FIELDS:
            raise WrongError(f"the card of {shown(run['run_id'])} has other fields than CCL-Bench's template; {ASK}")
        for name, keys in _CARD_VALUES.items():
            value: Any = card
            for key in keys:
                value = value.get(key, ...) if isinstance(value, dict) else ...
            if value != run.get(name):
                raise WrongError(f"the card of {shown(run['run_id'])} has {shown(value)} as {'/'.join(keys)}; {ASK}")
    yield passed(layout.WORKLOADS, f"{counted(len(cards), 'card')}, of every run")


def check_claims(examined: Examined) -> Iterator[Finding]:
    """claims.csv has the claims of release.json, each with a question that this program may answer."""
    claims = examined.release.claims
    path = examined.content / layout.CLAIMS
    if not claims and not path.exists():
        return
    try:
        found = read_claims(path)
    except UsageError as error:
        raise WrongError(f"{shown(str(error).removeprefix(f'{path}: '))}; {ASK}") from None
    if found != claims:
        raise WrongError(f"has other claims than {layout.RELEASE}; {ASK}")
    yield passed(layout.CLAIMS, f"{counted(len(claims), 'claim')} as in {layout.RELEASE}")
    yield not_checked("their values", "'ddnn-traces claims RELEASE' computes them")


def check_artifact(examined: Examined) -> Iterator[Finding]:
    """ARTIFACT.md states identifier, licence, size, what is withheld and each claim with its command."""
    release = examined.release
    if "claims" not in examined.document(layout.RELEASE) and not (examined.content / layout.ARTIFACT).exists():
        yield not_checked(layout.ARTIFACT, "is not there; releases before 2026-11-28 have none")
        return
    about, text = release.about, examined.text(layout.ARTIFACT)
    size = sum((examined.content / file.path).stat().st_size for file in release.files)
    done = release.anonymisation
    needed = [about.title, about.version, about.published, about.licence, *filter(None, [about.doi, about.url])]
    needed += [f"{size:,} bytes", counted(len(release.runs), "run"), *done.removed, *done.remaining, *release.flagged]
    flat = _flat(text)
    if lacking := [one for one in needed if _flat(one) not in flat]:
        raise WrongError(f"does not state {shown(lacking[0])!r}; {ASK}")
    rows = list(_cells(text))[1:]  # after the heads of the only table
    right = [
        [
            _flat(cell)
            for cell in (one.claim, one.source, one.expected, one.unit, one.tolerance or "exact", one.n, one.command)
        ]
        for one in release.claims
    ]
    if rows != right:
        raise WrongError(f"has other claims than {layout.RELEASE}; {ASK}")
    if not right and "makes no claims" not in flat:
        raise WrongError(f"does not state that there are no claims; {ASK}")
    yield passed(layout.ARTIFACT, f"{counted(len(right), 'claim')}, {size:,} bytes")


def front_matter(card: str) -> str:
    """The YAML at the start of the card. Raises WrongError."""
    start, _, rest = card.partition("---\n")
    found, end, _ = rest.partition("\n---\n")
    if start or not end:
        raise WrongError(f"does not begin with front matter between lines of ---; {ASK}")
    return f"{found}\n"


def _refuse_unfit(document: dict[str, Any], validator: Any) -> None:
    import jsonschema

    wrong = jsonschema.exceptions.best_match(validator.iter_errors(document))
    if wrong is not None:
        where = "/".join(map(str, wrong.absolute_path)) or "the document"
        raise WrongError(f"{shown(where)} does not follow the schema ({shown(wrong.message)}); {ASK}")
