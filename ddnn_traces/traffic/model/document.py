"""The document of a traffic model: JSON, checked against schemas/documents/traffic_model.json.

Distributions are lists of quantiles at even steps from 0 to 1, so that a value is drawn by interpolating between them.
The schema describes each field. A document of another version is refused, since its fields may have another meaning.
"""

from __future__ import annotations

import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from ddnn_traces.errors import ModelError, UsageError
from ddnn_traces.store.schema import shipped_folder
from ddnn_traces.store.whole_files import whole_file
from ddnn_traces.text_files import is_missing, read_bytes

FORMAT = "ddnn-traces traffic model"
VERSION = 5

#: Documents have less than 100 KB; a larger file than this is not read.
MOST_BYTES = 1_000_000

_FIT = "write one with 'ddnn-traces generate fit'"

Document = dict[str, Any]


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of the document."""
    path = shipped_folder("schemas") / "documents" / "traffic_model.json"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def write(document: Document, path: Path) -> None:
    """Write the document; the same document gives the same bytes. Raises UsageError where that fails."""
    check(document, str(path))
    try:
        with whole_file(path) as half_written:
            half_written.write_text(text(document), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose another --out") from error


def text(document: Document) -> str:
    """The document as JSON, lists of numbers on one line."""
    indented = json.dumps(document, indent=1, allow_nan=False) + "\n"
    return re.sub(r"\[\n[\s\d.,e+-]+\]", lambda numbers: f"[{' '.join(numbers[0][1:-1].split())}]", indented)


def read(path: Path) -> Document:
    """The document in a file. Raises ModelError where the file is missing or not a document of this version."""
    if is_missing(path):
        raise ModelError(f"{path}: there is no such file; {_FIT}")
    data = read_bytes(path, MOST_BYTES, ModelError)
    try:
        found = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: not JSON ({error}); {_FIT}") from error
    check(found, str(path))
    return dict(found)


def check(document: Any, name: str) -> None:
    """Raise ModelError, which begins with `name`, for anything but a document of this version as in the schema."""
    import jsonschema

    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelError(f"{name}: not a traffic model (its format is not {FORMAT!r}); {_FIT}")
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        raise ModelError(
            f"{name}: a traffic model of version {repr(version)[:20]}, and this program reads version "
            f"{VERSION}; fit the model again with this program, or use the one that wrote it"
        )
    error = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema()).iter_errors(document))
    if error is not None:
        where = "/".join(map(str, error.absolute_path)) or "the document"
        raise ModelError(f"{name}: {where}: {error.message[:200]}; {_FIT}")
    _check_quantiles(document, name, "")
    matrix = document["transfer_matrix"]
    if matrix is not None and any(len(row) != len(matrix) for row in matrix):
        raise ModelError(f"{name}: transfer_matrix is not square; {_FIT}")


def _check_quantiles(value: Any, name: str, where: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_quantiles(inner, name, key)
    elif isinstance(value, list) and where != "transfer_matrix":
        if value and all(isinstance(item, int | float) for item in value):
            if any(a > b for a, b in pairwise(value)):
                raise ModelError(f"{name}: {where}: quantiles decrease; {_FIT}")
            return
        for inner in value:
            _check_quantiles(inner, name, where)


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number in JSON")
