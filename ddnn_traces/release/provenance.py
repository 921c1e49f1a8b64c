"""How a release came about: the steps, from what the dataset's files and the table captures say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddnn_traces.release import facts
from ddnn_traces.text import sql_literal
from ddnn_traces.version import __version__

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

SOFTWARE = f"ddnn_traces {__version__}"

_GENERATED = {
    "testbed": "Made by training on a testbed",
    "simulation": "Made by a simulator, not measured",
    "ns3": "Made by the simulator ns-3, not measured",
    "synthetic": "Captures were made up by the laws of the collectives, not measured",
}
#: runs.source of what was made up: as tables, where nobody captured or read anything, or as capture files.
_SYNTHETIC = "synthetic"


def steps(
    dataset: Dataset,
    runs: Sequence[Mapping[str, Any]],
    ingested: Mapping[str, Mapping[str, str]],
    anonymisation: facts.Anonymisation,
    options: Mapping[str, Any],
) -> tuple[facts.Step, ...]:
    """The steps in order. runs: rows of the table. ingested: each run's provenance, mapped, as in its Parquet files."""
    tables = {
        run["run_id"]: ingested[run["run_id"]]
        for run in runs
        if run["source"] == _SYNTHETIC and not _inputs(ingested[run["run_id"]])
    }
    read = [run for run in runs if run["run_id"] not in tables]
    measured = {run["run_id"]: ingested[run["run_id"]] for run in read if run["source"] != _SYNTHETIC}
    made_up = {run["run_id"]: ingested[run["run_id"]] for run in read if run["source"] == _SYNTHETIC}
    return (
        *_made(dataset, read),
        *_made_up(tables),
        *_ingested(measured, "Captures"),
        *_ingested(made_up, "Made-up captures"),
        _anonymised(anonymisation),
        _published(options),
    )


def _made(dataset: Dataset, runs: Sequence[Mapping[str, Any]]) -> list[facts.Step]:
    by_source: dict[str, list[str]] = {}
    for run in runs:
        by_source.setdefault(run["source"] or "capture", []).append(run["run_id"])
    told = []
    for source, names in sorted(by_source.items()):
        if source == "capture":
            told.append(_captured(dataset, names))
        else:
            text = f"{_GENERATED.get(source, f'Made by {source}')}: {_runs(len(names))}."
            told.append(facts.Step("generate", text, source, runs=tuple(names)))
    return told


def _made_up(generated: Mapping[str, Mapping[str, str]]) -> list[facts.Step]:
    """A step for each version that made runs up. A parameter in which runs differ is the list of its values."""
    groups: dict[str, list[str]] = {}
    for run_id, told in sorted(generated.items()):
        groups.setdefault(told.get("version", "of unknown version"), []).append(run_id)
    found = []
    for version, names in sorted(groups.items()):
        parameters = _shared([json.loads(generated[run_id].get("parameters", "{}")) for run_id in names])
        text = f"Made up by the laws of the collectives, not measured: {_runs(len(names))}."
        found.append(facts.Step("generate", text, f"ddnn_traces {version}", parameters, runs=tuple(names)))
    return found


def _shared(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Parameters of several runs as those of one: a value where all have the same, else the list of them."""
    found: dict[str, Any] = {}
    for name in sorted(set().union(*every)):
        values = [parameters.get(name) for parameters in every]
        if len(within := [value for value in values if isinstance(value, Mapping)]) == len(values):
            found[name] = _shared(within)
            continue
        different = list({json.dumps(value, sort_keys=True): value for value in values}.values())
        found[name] = different[0] if len(different) == 1 else different
    return found


def _captured(dataset: Dataset, names: Sequence[str]) -> facts.Step:
    listed = ", ".join(map(sql_literal, names))
    query = f"""
        SELECT count(*) AS files, count(DISTINCT (run_id, vantage_ip)) AS hosts,
               list_sort(list(DISTINCT snaplen)) AS snaplen, list_sort(list(DISTINCT format)) AS format,
               list_sort(list(DISTINCT link_types)) AS link_types,
               list_sort(list(DISTINCT time_resolution_ns)) AS time_resolution_ns
        FROM captures WHERE run_id IN ({listed})"""
    (row,) = dataset.sql_arrow(query).to_pylist()
    files, hosts = row.pop("files"), row.pop("hosts")
    parameters = {name: [value for value in values or [] if value is not None] for name, values in row.items()}
    text = f"Packets were captured during {_runs(len(names))}: {files:,} capture files at {hosts:,} hosts of runs."
    return facts.Step("capture", text, "packet capture (program not recorded)", parameters, runs=tuple(names))


def _inputs(told: Mapping[str, str]) -> dict[str, str | None]:
    """SHA-256 of the files that a run was read from, by their names."""
    return dict(json.loads(told.get("inputs", "{}")))


def _ingested(ingested: Mapping[str, Mapping[str, str]], what: str) -> list[facts.Step]:
    """A step for each version and set of parameters that runs were ingested with."""
    groups: dict[tuple[str, str], list[str]] = {}
    for run_id, told in sorted(ingested.items()):
        groups.setdefault((told.get("version", "of unknown version"), told.get("parameters", "{}")), []).append(run_id)
    found = []
    for (version, parameters), names in sorted(groups.items()):
        inputs = {f"{run_id}/{file}": sha256 for run_id in names for file, sha256 in _inputs(ingested[run_id]).items()}
        text = f"{what} and training logs of {_runs(len(names))} were read into tables."
        found.append(facts.Step("ingest", text, f"ddnn_traces {version}", json.loads(parameters), inputs, tuple(names)))
    return found


def _anonymised(anonymisation: facts.Anonymisation) -> facts.Step:
    told = {"addresses": anonymisation.addresses, "ports": anonymisation.ports, "times": anonymisation.times}
    return facts.Step("anonymise", "What tells who, where and when was removed or mapped.", SOFTWARE, told)


def _published(options: Mapping[str, Any]) -> facts.Step:
    return facts.Step(
        "publish", "Tables were written as Parquet, descriptions made from them.", SOFTWARE, dict(options)
    )


def _runs(number: int) -> str:
    return f"{number:,} run{'' if number == 1 else 's'}"
