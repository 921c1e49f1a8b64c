"""datapackage.json by frictionless: the document is valid, and its schema fits every file's rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ddnn_traces import extras
from ddnn_traces.release.verify import trial
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, PASSED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout
from ddnn_traces.text import counted

DATA_PACKAGE = "data package"

_ASK = "ask whoever published it, or publish the dataset again"
_RESOURCE = {
    "$schema", "name", "title", "description", "type", "path", "format", "mediatype", "hash", "sizeInBytes", "rows",
    "table", "run_id", "schema",
}  # fmt: skip
_FIELD = {"name", "type", "title", "description", "unit", "constraints"}
_SCHEMA = {"$schema", "fields", "primaryKey", "uniqueKeys", "foreignKeys"}


def check_data_package(examined: Examined) -> Iterator[Result]:
    """frictionless takes the document, and reads every resource by it."""
    document = examined.document(layout.DATA_PACKAGE)
    resources = document.get("resources")
    if not isinstance(resources, list):
        raise WrongError(f"has no resources; {_ASK}")
    known = examined.known_files()
    for resource in resources:
        _refuse_odd(resource, set(known))
    frictionless = extras.load("frictionless")
    small = trial.make(examined)
    some = [resource for resource in resources if resource["path"] in small.files]
    cut = document | {"resources": [resource if small.whole else _cut(resource, small.cut) for resource in some]}
    try:
        # by frictionless' own model of the whole document first, then of the rows
        package = frictionless.Package.from_descriptor(document, basepath=str(small.folder))
        assert len(package.resources) == len(resources)
        report = frictionless.Package.from_descriptor(cut, basepath=str(small.folder)).validate()
    except frictionless.FrictionlessException as error:
        raise WrongError(f"frictionless: {shown(error)}; {_ASK}") from None
    wrong = 0
    for task in report.tasks:
        for issue in task.errors[:1]:
            wrong += 1
            yield Result(DATA_PACKAGE, shown(task.place), FAILED, f"frictionless: {shown(issue.message)}; {_ASK}")
    for issue in report.errors:
        wrong += 1
        yield Result(DATA_PACKAGE, "document", FAILED, f"frictionless: {shown(issue.message)}; {_ASK}")
    if not wrong:
        without = "" if small.whole else ", without keys between files"
        detail = f"{counted(len(resources), 'resource')}, valid with {small.told}{without}"
        yield Result(DATA_PACKAGE, "resources", PASSED, detail)


def _refuse_odd(resource: Any, known: set[str]) -> None:
    """Raise WrongError for a resource that frictionless would read from elsewhere, or by rules of its own."""
    if not isinstance(resource, dict) or resource.get("path") not in known or resource.keys() - _RESOURCE:
        where = resource.get("path") if isinstance(resource, dict) else resource
        raise WrongError(f"{shown(where)} is no file of the release, so nothing was read; {_ASK}")
    defined = resource.get("schema")
    if not isinstance(defined, dict) or defined.keys() - _SCHEMA or not isinstance(defined.get("fields"), list):
        raise WrongError(f"{shown(resource['path'])} has no schema of its own, so nothing was read; {_ASK}")
    for field in defined["fields"]:
        odd = not isinstance(field, dict) or field.keys() - _FIELD
        if odd or field.get("constraints", {"required": True}) != {"required": True}:
            raise WrongError(
                f"{shown(resource['path'])} has a column with rules of its own, so nothing was read; {_ASK}"
            )


def _cut(resource: dict[str, Any], cut: set[str]) -> dict[str, Any]:
    """A resource as it is of the small copy: where files are cut, without their sums and references to other files."""
    kept = {name: value for name, value in resource["schema"].items() if name != "foreignKeys"}
    gone = {"rows", "hash"} if resource["path"] in cut else set()
    return {name: value for name, value in resource.items() if name not in gone} | {"schema": kept}
