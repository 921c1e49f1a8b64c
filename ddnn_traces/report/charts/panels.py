"""Charts next to each other: one a run (RunPanels), and each of them apart, as a page arranges them (panels)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import altair as alt
import polars as pl
import polars.selectors as cs

PAGE_WIDTH = 980  # px that a row of panels may take
CONNECTED = 6  # px between charts that share a selection and stay together
SHOWN_RUNS = "shown_runs"  # parameter of charts with rows or lines of many runs
_SETTINGS = "settings"  # parameter: the setting of each run
NAMED_ROWS = 16  # runs that have a row each; of more, a row is a setting
_TOP_LEVEL = {"$schema", "config", "datasets", "params"}


def rows_of(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows as JSON can have them. Seven digits are more than a reader can see, and limit the size of the page."""
    no_json = [float("nan"), float("inf"), float("-inf")]
    return frame.with_columns(cs.float().round_sig_figs(7).replace(no_json, None)).to_dicts()


def quoted(name: str) -> str:
    """A name as a string of Vega's expression language, so that no name can be read as code."""
    return json.dumps(name)


def by_run(frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
    """The names of the runs, in the frame's order, with their rows."""
    return [(str(run_id), run) for (run_id,), run in frame.group_by("run_id", maintain_order=True)]


class RunPanels(alt.TopLevelMixin):
    """Charts of one run each, as many in a row as fit. Altair's own concat takes longer the more charts there are."""

    def __init__(self, specs: list[dict[str, Any]], panel_width: int) -> None:
        self._specs, self._columns = specs, max(1, PAGE_WIDTH // panel_width)
        self._look: dict[str, Any] = {}

    def finished(self, look: dict[str, Any]) -> Self:
        """The same charts with these properties of all together."""
        self._look = look
        return self

    def to_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        """The specification of all charts."""
        params, parts = list(self._look.get("params", [])), []
        datasets: dict[str, Any] = {}
        for number, spec in enumerate(self._specs):
            part = json.loads(json.dumps(_body(spec)).replace('"view_', f'"run{number}_view_'))
            for param in spec.get("params", []):
                params.append({**param, "views": [f"run{number}_{view}" for view in param.get("views", [])]})
            datasets |= spec.get("datasets", {})
            parts.append(part)
        return {
            "$schema": alt.SCHEMA_URL, **self._look, "params": params, "datasets": datasets, "concat": parts,
            "columns": self._columns, "spacing": {"row": 26, "column": 22},
        }  # fmt: skip


def _body(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key not in _TOP_LEVEL}


def place(name: str) -> Any:
    """Where alike_panels puts a value that differs from run to run."""
    return f"@{name}@"


def rows_chart(**look: Any) -> alt.Chart:
    """A chart of the rows that alike_panels gives each run. look: properties; Altair refuses places in them later."""
    return alt.Chart(alt.NamedData(place("rows")), **look)


def alike_panels(
    frame: pl.DataFrame, chart: alt.TopLevelMixin, values: Callable[[str, pl.DataFrame], Mapping[str, Any]],
    panel_width: int,
) -> RunPanels:  # fmt: skip
    """One chart a run, all as `chart` of rows_chart(): it is made once, since that takes longer than all else.

    values: of each `place` in the chart, for a run and its rows: a frame is a dataset, `number` is that of the run.
    """
    text = json.dumps(chart.to_dict(validate=False))
    specs = []
    for number, (run_id, run) in enumerate(by_run(frame)):
        own = {"number": str(number), "rows": run.drop("run_id"), **values(run_id, run)}
        frames = {name: frame for name, frame in own.items() if isinstance(frame, pl.DataFrame)}
        spec = json.loads(_filled(text, {**own, **{name: f"{name}-{number}" for name in frames}}))
        with_own_data = spec["layer"] if "layer" in spec and "data" not in spec else [spec]
        for part in with_own_data:
            part["transform"] = [{"calculate": quoted(run_id), "as": "run"}, *part.get("transform", [])]
        datasets = {f"{name}-{number}": rows_of(frame) for name, frame in frames.items()}
        specs.append({**spec, "datasets": datasets})
    return RunPanels(specs, panel_width)


def _filled(text: str, values: Mapping[str, Any]) -> str:
    """A JSON text with the values in their places: in one pass, so that none is taken for a place."""

    def fill(found: re.Match[str]) -> str:
        value = values[found[1] or found[2]]
        value = json.dumps(value.to_dict(validate=False) if isinstance(value, alt.SchemaBase) else value)
        return value if found[1] else value.strip('"')

    return re.sub(r'"@(\w+)@"|@(\w+)@', fill, text)


def noted(spec: dict[str, Any], notes: Mapping[str, str]) -> dict[str, Any]:
    """The charts of alike_panels, each with the note of its run under its title."""
    parts = [_under_title(part, notes.get(str(_run_of(part)), "")) for part in spec["concat"]]
    return spec | {"concat": parts}


def _under_title(part: dict[str, Any], *notes: str) -> dict[str, Any]:
    """A chart with these lines under its title, and under the lines that are there."""
    title = part.get("title", {})
    title = title if isinstance(title, dict) else {"text": title}
    lines = [*_lines(title.get("subtitle", "")), *filter(None, notes)]
    return part | {"title": title | {"subtitle": lines}} if lines else part


def _lines(text: str | list[str]) -> list[str]:
    return [line for line in ([text] if isinstance(text, str) else text) if line]


def panels(spec: dict[str, Any]) -> list[tuple[str | None, dict[str, Any]]]:
    """The charts that a specification puts next to each other, each with its run where it is one's (alike_panels).

    Each is a specification of its own, with the look and the data that it uses, so that a page can arrange them.
    """
    parts = next((spec[way] for way in ("concat", "hconcat", "vconcat") if way in spec), None)
    if parts is None or ("spacing" in spec and spec["spacing"] == CONNECTED):
        return [(_run_of(spec), spec)]
    shared: dict[str, Any] = {
        name: spec[name] for name in ("$schema", "config", "padding", "background", "data") if name in spec
    }
    title = spec.get("title", {})  # goes over the first, or under the title that this has itself
    found = []
    for part in parts:
        names = set(_data_names([part, spec.get("data", {})]))
        data = {name: rows for name, rows in spec.get("datasets", {}).items() if name in names}
        views = set(_view_names(part))
        params = [param for param in spec.get("params", []) if views >= set(param.get("views", []))]
        steps = spec.get("transform", []) + part.get("transform", [])
        own = {"datasets": data, "params": params + part.get("params", [])} | ({"transform": steps} if steps else {})
        if title and "title" in part:
            part = _under_title(part, *_lines(title["text"] if isinstance(title, dict) else title))
        found += panels({**shared, **({"title": title} if title else {}), **part, **own})
        title = {}
    return found


def choosable(
    spec: dict[str, Any], first: list[str], settings: Mapping[str, str | None] | None = None
) -> dict[str, Any]:
    """The chart of only those runs that are in the parameter `shown_runs`, which begins as `first`.

    settings: of each run in a few words, of a chart with a row a run (style.row_chart): where it has more than
    NAMED_ROWS runs, those of a setting share a row, and a run without a setting has its own.
    """
    steps: list[dict[str, Any]] = [{"filter": f"indexof({SHOWN_RUNS}, datum.run_id) >= 0"}]
    params: list[dict[str, Any]] = [{"name": SHOWN_RUNS, "value": first}]
    if settings is not None:
        params.append({"name": _SETTINGS, "value": dict(settings)})
        setting = f"length({SHOWN_RUNS}) > {NAMED_ROWS} && {_SETTINGS}[datum.run_id] || datum.run_id"
        counted = "datum.row + (datum.row_runs > 1 ? ' (' + datum.row_runs + ' runs)' : '')"  # n of the row
        steps += [
            {"calculate": setting, "as": "row"},
            {"joinaggregate": [{"op": "distinct", "field": "run_id", "as": "row_runs"}], "groupby": ["row"]},
            {"calculate": counted, "as": "row"},
        ]
    of_runs = {name for name, rows in spec.get("datasets", {}).items() if rows and "run_id" in rows[0]}
    changed: dict[str, Any] = _with_steps(spec, of_runs, steps)
    return changed | {"params": [*spec.get("params", []), *params]}


def _with_steps(node: Any, names: set[str], steps: list[dict[str, Any]]) -> Any:
    """The specification in which all data of these names go through the steps first."""
    if isinstance(node, list):
        return [_with_steps(value, names, steps) for value in node]
    if not isinstance(node, dict):
        return node
    node = {key: value if key == "datasets" else _with_steps(value, names, steps) for key, value in node.items()}
    if isinstance(node.get("data"), dict) and node["data"].get("name") in names:
        node["transform"] = [*steps, *node.get("transform", [])]
    return node


def _data_names(node: dict[str, Any] | list[Any]) -> Iterator[str]:
    """The names of the data that parts of a specification draw."""
    if isinstance(node, dict):
        if isinstance(data := node.get("data", node), dict) and isinstance(data.get("name"), str):
            yield data["name"]
        node = [value for key, value in node.items() if key != "datasets"]
    for value in node:
        if isinstance(value, dict | list):  # most are words and numbers
            yield from _data_names(value)


def without_ranges(spec: dict[str, Any]) -> dict[str, Any]:
    """The chart for paper: without the strips on which a range can be dragged, the range being the one at first."""
    chosen = {param["name"]: param for param in spec.get("params", []) if _is_range(param)}
    strips = {view for param in chosen.values() for view in param["views"]}

    def on_paper(node: Any) -> Any:
        if isinstance(node, list):
            return [on_paper(value) for value in node if not (isinstance(value, dict) and value.get("name") in strips)]
        if not isinstance(node, dict):
            return node
        if node.get("param") in chosen and "encoding" in node:
            return chosen[node["param"]]["value"][node["encoding"]]
        return {name: value if name == "datasets" else on_paper(value) for name, value in node.items()}

    params = [param for param in spec.get("params", []) if param["name"] not in chosen]
    drawn: dict[str, Any] = on_paper(spec | {"params": params})
    return drawn


def _is_range(param: Mapping[str, Any]) -> bool:
    select = param.get("select")
    return isinstance(select, dict) and select.get("type") == "interval" and "value" in param


def _view_names(part: dict[str, Any]) -> Iterator[str]:
    """The names of the views of a part, which selections name."""
    if "name" in part:
        yield part["name"]
    for below in (*part.get("layer", []), *part.get("vconcat", []), *([part["spec"]] if "spec" in part else [])):
        yield from _view_names(below)


def _run_of(spec: dict[str, Any]) -> str | None:
    """The run of a chart of alike_panels."""
    for transform in spec.get("transform", []):
        if transform.get("as") == "run":
            run_id: str = json.loads(transform["calculate"])
            return run_id
    below = (*spec.get("layer", []), *spec.get("vconcat", []), *([spec["spec"]] if "spec" in spec else []))
    return next((run_id for run_id in map(_run_of, below) if run_id is not None), None)
