"""The smaller descriptions by their schemas: DataCite, CITATION.cff, the card's front matter, LICENSE, datasheet."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from ddnn_traces import extras
from ddnn_traces.errors import UsageError
from ddnn_traces.release.descriptions import citation, licence
from ddnn_traces.release.verify import untrusted
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import PASSED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout
from ddnn_traces.text import counted

DATACITE = "DataCite"
CITATION = "citation"
CARD = "card"
LICENCE = "licence"
DATASHEET = "datasheet"

_ASK = "ask whoever published it, or publish the dataset again"


def check_datacite(examined: Examined) -> Iterator[Result]:
    """datacite.json follows DataCite's JSON schema 4.5."""
    document = examined.document(layout.DATACITE)
    _refuse_unfit(document, extras.load("datacite.schema45").validator)
    yield Result(DATACITE, layout.DATACITE, PASSED, "follows DataCite's schema 4.5")


def check_citation(examined: Examined) -> Iterator[Result]:
    """CITATION.cff follows the schema of the Citation File Format 1.2.0."""
    import jsonschema

    document = citation_of(examined)
    rules = citation.json_schema()
    _refuse_unfit(document, jsonschema.validators.validator_for(rules)(rules))
    yield Result(CITATION, layout.CITATION, PASSED, "follows the schema of CFF 1.2.0")


def check_card(examined: Examined) -> Iterator[Result]:
    """The card's front matter has a config for each table, whose pattern matches the table's files and no others."""
    release, front = examined.told(), front_matter(examined)
    configs = front.get("configs")
    if not isinstance(configs, list) or not all(isinstance(config, dict) for config in configs):
        raise WrongError(f"its front matter has no configs; {_ASK}")
    found = {}
    for config in configs:
        try:
            (data,) = config["data_files"]
            pattern = data["path"]
            found[config["config_name"]] = [path for path in examined.known_files() if fnmatchcase(path, pattern)]
        except (KeyError, TypeError, ValueError):
            raise WrongError(f"its config {shown(config.get('config_name'))} names no files; {_ASK}") from None
    right = {table.name: [file.path for file in table.files] for table in release.tables}
    wrong = sorted(name for name in found.keys() | right.keys() if found.get(name) != right.get(name))
    if wrong:
        raise WrongError(f"its configs do not have the files of {shown(', '.join(wrong))}; {_ASK}")
    yield Result(CARD, layout.CARD, PASSED, f"{counted(len(found), 'config')} with the tables' files")


def check_licence(examined: Examined) -> Iterator[Result]:
    """LICENSE is the text of the licence that release.json names."""
    release = examined.told()
    text = untrusted.text(examined.content / layout.LICENCE)
    try:
        right = licence.text(release)
    except UsageError as error:
        raise WrongError(f"{shown(error)}") from None
    if text != right:
        raise WrongError(f"is not the text of {shown(release.about.licence)}; {_ASK}")
    yield Result(LICENCE, layout.LICENCE, PASSED, f"the text of {shown(release.about.licence)}")


def check_datasheet(examined: Examined) -> Iterator[Result]:
    """The datasheet names every run that was published although it fails data checks."""
    release = examined.told()
    text = untrusted.text(examined.content / layout.DATASHEET)
    if not text.strip():
        raise WrongError(f"is empty; {_ASK}")
    lacking = [run_id for run_id in release.flagged if run_id not in text.replace("\\", "")]
    if lacking:
        raise WrongError(f"does not tell that {shown(', '.join(lacking))} fails data checks; {_ASK}")
    yield Result(DATASHEET, layout.DATASHEET, PASSED, f"tells of {counted(len(release.flagged), 'flagged run')}")


def citation_of(examined: Examined) -> dict[str, Any]:
    """CITATION.cff as a document of texts. Raises WrongError, MissingExtra."""
    text = untrusted.text(examined.content / layout.CITATION)
    return untrusted.yaml_document(text, layout.CITATION)


def front_matter(examined: Examined) -> dict[str, Any]:
    """The YAML at the begin of the card, as texts. Raises WrongError, MissingExtra."""
    text = untrusted.text(examined.content / layout.CARD)
    begin, _, rest = text.partition("---\n")
    found, end, _ = rest.partition("\n---\n")
    if begin or not end:
        raise WrongError(f"does not begin with front matter between lines of ---; {_ASK}")
    return untrusted.yaml_document(f"{found}\n", layout.CARD)


def _refuse_unfit(document: dict[str, Any], validator: Any) -> None:
    import jsonschema

    wrong = jsonschema.exceptions.best_match(validator.iter_errors(document))
    if wrong is not None:
        where = "/".join(map(str, wrong.absolute_path)) or "the document"
        raise WrongError(f"{shown(where)} does not follow the schema ({shown(wrong.message)}); {_ASK}")
