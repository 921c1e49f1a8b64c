"""croissant.json by mlcroissant: it is valid, and every record set loads, with the values of the Parquet files.

mlcroissant's own check passes wrong columns and media types that no reader can load: so every record set is loaded.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddnn_traces import extras
from ddnn_traces.release.descriptions import shared
from ddnn_traces.release.verify import trial
from ddnn_traces.release.verify.examined import Examined
from ddnn_traces.release.verify.result import FAILED, PASSED, Result, WrongError
from ddnn_traces.release.verify.untrusted import shown
from ddnn_traces.store import layout, schema

CROISSANT = "croissant"

_ASK = "ask whoever published it, or publish the dataset again"


def check_croissant(examined: Examined) -> Iterator[Result]:
    """mlcroissant takes the document, and loads each table as it is."""
    document = examined.document(layout.CROISSANT)
    _refuse_elsewhere(document, examined)
    mlcroissant = extras.load("mlcroissant")
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    small = trial.make(examined)
    file = small.folder / layout.CROISSANT
    file.write_bytes((examined.content / layout.CROISSANT).read_bytes())
    try:
        dataset = mlcroissant.Dataset(str(file))
    except Exception as error:  # whatever it stumbles over in what others wrote
        raise WrongError(f"mlcroissant: {shown(error)}; {_ASK}") from None
    warnings = len(dataset.metadata.ctx.issues.warnings)
    yield Result(CROISSANT, "document", PASSED, f"valid ({warnings} warnings)")
    told = {record_set.get("@id") for record_set in document["recordSet"]}
    for table in examined.told().tables:
        if table.name not in told:
            yield Result(CROISSANT, table.name, FAILED, f"has no record set; {_ASK}")
            continue
        try:
            loaded = list(dataset.records(table.name))
        except Exception as error:  # as above
            yield Result(CROISSANT, table.name, FAILED, f"mlcroissant cannot load it ({shown(error)}); {_ASK}")
            continue
        wrong = _different(loaded, small.folder, table.name)
        if wrong:
            yield Result(CROISSANT, table.name, FAILED, f"{wrong}; {_ASK}")
        else:
            yield Result(
                CROISSANT, table.name, PASSED, f"loads as the Parquet files have it ({small.told}: {len(loaded):,})"
            )


def _refuse_elsewhere(document: dict[str, Any], examined: Examined) -> None:
    """Raise WrongError where reading the document would fetch anything, or read beside the release's files."""
    if not isinstance(document.get("@context"), dict) or _names(document) & {"@import", "@base"}:
        raise WrongError(f"its context is not inlined, so that reading it would fetch one; {_ASK}")
    if sum(1 for _ in _contexts(document)) > 1:
        raise WrongError(f"has a context inside, which is not read; {_ASK}")
    known = examined.known_files()
    patterns = {shared.pattern(table) for table in schema.TABLES}
    for item in _list(document, "distribution"):
        kind = item.get("@type")
        fine = item.get("contentUrl") in known if kind == "cr:FileObject" else item.get("includes") in patterns
        if kind not in ("cr:FileObject", "cr:FileSet") or not fine or "containedIn" in item:
            raise WrongError(f"{shown(item.get('@id'))} is no file of the release, so nothing was loaded; {_ASK}")
    for record_set in _list(document, "recordSet"):
        for field in _list(record_set, "field"):
            source = field.get("source")
            if not isinstance(source, dict) or source.keys() != {"fileSet", "extract"} or _odd(source["extract"]):
                raise WrongError(f"{shown(field.get('@id'))} is not from a column, so nothing was loaded; {_ASK}")


def _odd(extract: Any) -> bool:
    return not isinstance(extract, dict) or extract.keys() != {"column"}


def _list(item: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = item.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise WrongError(f"its {name} is no list of objects; {_ASK}")
    return found


def _names(item: Any) -> set[str]:
    if isinstance(item, dict):
        return set(item).union(*map(_names, item.values()))
    return set().union(*map(_names, item)) if isinstance(item, list) else set()


def _contexts(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        yield from ([item["@context"]] if "@context" in item else [])
    for value in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
        yield from _contexts(value)


def _different(loaded: list[dict[str, Any]], folder: Path, table: str) -> str:
    """How the records differ from the rows of the table's files, in whatever order; '' where they do not."""
    import pyarrow.parquet as pq

    columns = [column.name for column in schema.table(table).columns]
    rows: Counter[tuple[Any, ...]] = Counter()
    for path in sorted((folder / table).glob("*/*.parquet")):
        for row in pq.read_table(path, partitioning=None).select(columns).to_pylist():
            rows[tuple(_plain(row[name]) for name in columns)] += 1
    names = [f"{table}/{name}" for name in columns]
    if loaded and set(loaded[0]) != set(names):
        return f"mlcroissant loads other columns ({shown(', '.join(sorted(set(loaded[0]) ^ set(names))))})"
    found = Counter(tuple(_plain(record[name]) for name in names) for record in loaded)
    if found == rows:
        return ""
    odd, lacking = sum((found - rows).values()), sum((rows - found).values())
    return f"mlcroissant loads {odd:,} rows that are none, and lacks {lacking:,}"


def _plain(value: Any) -> Any:
    """A value as both have it: text, number, None."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value
