"""Charts as text: Vega places every mark, and its scene is drawn into character cells. So each chart has a text."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import vl_convert
from rich.cells import cell_len
from rich.text import Text

from ddnn_traces.text import digits, printable

_FONT = "Roboto Mono"  # of vl-convert: Vega leaves each text the place of its cells
_WIDTH, _HEIGHT = 6.6, 12.0  # px of a cell: those of its letters of 11 px
_LEAST = 120  # px that a chart is narrowed to
_LEGEND_COLUMNS = (4, 3, 2, 1)
_TITLE_LEFT = 30  # px of a title's start left of its y axis
_SHORT_NAME = 16  # letters of a run's name at least
_SHADES = "█▓▒░"
_FAINT = 0.5  # px of a line
_QUIET_ROLES = {"axis-grid", "axis-tick", "legend-gradient", "legend-band"}
_Box = tuple[float, float, float, float]  # left, top, right, bottom, px
_PALE = {"#fefefe", "transparent", "white", "#fff", "#ffffff"}


def text(spec: dict[str, Any], columns: int) -> Text:
    """A Vega-Lite specification as text of at most so many columns, with the colours of its marks."""
    scene = _fitting(_for_text(spec, columns), columns * _WIDTH)
    marks = list(_marks(scene["scenegraph"], *scene["origin"]))
    fills = dict.fromkeys(mark.colour for mark in marks if mark.kind == "rect" and mark.colour)
    canvas = _Canvas(columns, math.ceil(scene["height"] / _HEIGHT) + 1, list(fills))
    for mark in marks:
        mark.draw(canvas)
    return canvas.text()


def only_mark(spec: dict[str, Any]) -> Text | None:
    """The values of a chart whose data are one row, a line each, where its picture would be one bar or point; or None.

    They are those of the tooltip, behind those of the axes that the tooltip lacks.
    """
    rows = [row for name in dict.fromkeys(_values_of(spec, "data", "name")) for row in spec["datasets"].get(name, [])]
    if len(rows) != 1:
        return None
    [row] = rows
    shown: dict[str, tuple[str, str]] = {}
    for channel in [*_axes(spec), *_values_of(spec, "encoding", "tooltip")]:
        for field_ in channel if isinstance(channel, list) else [channel]:
            name, value = field_.get("field"), row.get(field_.get("field"))
            if value is not None and field_.get("title"):
                title = field_["title"]
                said = " ".join(title) if isinstance(title, list) else title
                shown[name] = said, _formatted(value, field_.get("format", ""))
    width = max((cell_len(title) for title, _ in shown.values()), default=0)
    titles = [
        line for title in _values_of(spec, "title", "text") for line in ([title] if isinstance(title, str) else title)
    ]
    lines = [*titles, *(f"  {title}{' ' * (width - cell_len(title))}  {value}" for title, value in shown.values())]
    return Text("\n".join(map(printable, lines))) if shown else None


def _values_of(part: Any, outer: str, inner: str) -> Iterator[Any]:
    """What stands as `inner` in each `outer` of a chart, but for its data."""
    if isinstance(part, list):
        for one in part:
            yield from _values_of(one, outer, inner)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key == outer and isinstance(value, dict) and inner in value:
                yield value[inner]
            elif key not in ("datasets", "values", "config"):
                yield from _values_of(value, outer, inner)


def _axes(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for axis in ("y", "x"):
        yield from (channel for channel in _values_of(spec, "encoding", axis) if isinstance(channel, dict))


def _formatted(value: Any, d3_format: str) -> str:
    """A value as the chart's tooltip has it; numbers without a number of decimals have three digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    places = re.fullmatch(r"([+,]*)(\.\d+)(~?)([f%])", d3_format)
    if not places:
        return f"{value:,}" if isinstance(value, int) else digits(value)
    text_ = format(value, f"{places[1]}{places[2]}{places[4]}")
    return re.sub(r"\.?0+(?=%?$)", "", text_) if places[3] and "." in text_ else text_


def _for_text(spec: dict[str, Any], columns: int) -> dict[str, Any]:
    """The chart with titles of y axes above these, as text is not written from below to above, and short names."""
    config = spec.get("config", {})
    titles = {"titleAngle": 0, "titleAlign": "left", "titleAnchor": "end", "titleBaseline": "bottom", "titleY": -4}
    axis_y = {**config.get("axisY", {}), **titles, "titleX": -_TITLE_LEFT}
    params = [
        param | {"value": max(_SHORT_NAME, columns * 2 // 5)} if param["name"] == "label_characters" else param
        for param in spec.get("params", [])
    ]
    return spec | {"config": {**config, "font": _FONT, "axisY": axis_y}, "params": params}


def _fitting(spec: dict[str, Any], width: float) -> dict[str, Any]:
    """The scene of a chart that is made narrower until it fits: its plots, then legends above or below these."""
    scene: dict[str, Any] = vl_convert.vegalite_to_scenegraph(spec)
    for columns in (None, *_LEGEND_COLUMNS):
        excess = scene["width"] - width
        if excess <= 0:
            break
        spec = _narrowed(spec, excess + 1) if columns is None else _with_legends(spec, columns)
        scene = vl_convert.vegalite_to_scenegraph(spec)
    return scene


def _with_legends(part: Any, columns: int) -> Any:
    """A part of a chart whose legends above or below a plot have at most so many columns."""
    if isinstance(part, list):
        return [_with_legends(one, columns) for one in part]
    if not isinstance(part, dict):
        return part
    new = {key: value if key == "values" else _with_legends(value, columns) for key, value in part.items()}
    if part.get("orient") in ("top", "bottom") and part.get("columns", math.inf) > columns:
        new["columns"] = columns
    return new


def _narrowed(spec: dict[str, Any], excess: float) -> dict[str, Any]:
    """The chart with plots so many px narrower; charts next to each other share that."""
    if isinstance(spec.get("width"), int | float):
        return spec | {"width": max(_LEAST, spec["width"] - excess)}
    for way in ("vconcat", "hconcat", "concat"):
        if way in spec:
            if way == "concat" and spec.get("columns", 1) > 1:
                return spec | {"columns": spec["columns"] - 1}
            share = excess if way != "hconcat" else excess / len(spec[way])
            return spec | {way: [_narrowed(part, share) for part in spec[way]]}
    return spec | {"spec": _narrowed(spec["spec"], excess)} if "spec" in spec else spec


@dataclass
class _Canvas:
    columns: int
    rows: int
    fills: list[str]
    letters: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)

    def put(self, column: int, row: int, letter: str, colour: str) -> None:
        if 0 <= column < self.columns and 0 <= row < self.rows:
            self.letters[row, column] = letter, colour

    def shade(self, colour: str, opacity: float) -> str:
        """The letter of a filled cell: of a scale by how dark it is, another for each colour, of one by opacity."""
        if opacity < 1 and len(self.fills) == 1:
            return _SHADES[min(3, int((1 - opacity) * 4))]
        if colour.startswith("rgb("):  # names have hexadecimal colours, scales have these
            return _SHADES[min(3, int(_lightness(colour) * 4))]
        return _SHADES[self.fills.index(colour) % len(_SHADES)]

    def text(self) -> Text:
        lines: list[Text] = []
        for row in range(self.rows):
            line = Text()
            last = max((column for at, column in self.letters if at == row), default=-1)
            for column in range(last + 1):
                letter, colour = self.letters.get((row, column), (" ", ""))
                line.append(letter, style=_style(colour))
            if line.plain.strip() or lines:
                lines.append(line)
        while lines and not lines[-1].plain.strip():
            lines.pop()
        return Text("\n").join(lines)


def _style(colour: str) -> str:
    return colour.replace(" ", "") if re.fullmatch(r"#[0-9a-fA-F]{6}|rgb\(\d+, ?\d+, ?\d+\)", colour) else ""


def _lightness(colour: str) -> float:
    """0 for black to 1 for white, of #rrggbb and rgb(r, g, b)."""
    if colour.startswith("#"):
        parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    else:
        parts = [int(part) for part in re.findall(r"\d+", colour)[:3]]
    return sum(weight * part for weight, part in zip((0.3, 0.59, 0.11), parts, strict=True)) / 255


@dataclass(frozen=True)
class _Mark:
    """A mark of the scene, at its place in px."""

    kind: str
    role: str
    item: dict[str, Any]
    x: float
    y: float
    clip: _Box | None

    @property
    def colour(self) -> str:
        """The colour that is seen; empty where nothing is."""
        for name in ("fill", "stroke"):
            value = self.item.get(name)
            if isinstance(value, str) and value not in _PALE:
                return value
        return ""

    @property
    def opacity(self) -> float:
        return float(self.item.get("opacity", 1)) * float(self.item.get("fillOpacity", 1))

    @property
    def _is_faint(self) -> bool:
        """Whether it is a line so thin that it is next to nothing: in cells it would be as wide as all others."""
        return self.kind == "rule" and float(self.item.get("strokeWidth", 1)) < _FAINT

    def draw(self, canvas: _Canvas) -> None:
        """Draw into the cells."""
        if self.opacity == 0 or self.role in _QUIET_ROLES or self._is_faint:
            return
        match self.kind:
            case "rect":
                self._rect(canvas)
            case "rule":
                self._line(canvas, self.x, self.y, self._end("x"), self._end("y"))
            case "symbol":
                self._point(canvas, self.x, self.y, self._symbol(canvas))
            case "text":
                self._text(canvas)

    def _symbol(self, canvas: _Canvas) -> str:
        """The letter of a point; in a legend of bars that of their cells."""
        if self.role != "legend-symbol":
            return "●"
        return canvas.shade(self.colour, 1) if self.colour in canvas.fills else "■"

    def _end(self, axis: str) -> float:
        begin: float = getattr(self, axis)
        return begin + float(self.item.get(f"{axis}2", self.item.get(axis, 0))) - float(self.item.get(axis, 0))

    def _point(self, canvas: _Canvas, x: float, y: float, letter: str) -> None:
        if self.colour and self._is_inside(x, y):
            canvas.put(int(x / _WIDTH), int(y / _HEIGHT), letter, self.colour)

    def _is_inside(self, x: float, y: float) -> bool:
        return self.clip is None or (
            self.clip[0] <= x <= self.clip[2] + 1 and self.clip[1] - 1 <= y <= self.clip[3] + 1
        )

    def _rect(self, canvas: _Canvas) -> None:
        if not self.colour:
            return
        width, height = float(self.item.get("width", 0)), float(self.item.get("height", 0))
        right, bottom = self.x + width, self.y + height
        letter = canvas.shade(self.colour, self.opacity)
        first_row, last_row = int(self.y / _HEIGHT + 0.5), int(bottom / _HEIGHT + 0.5)
        if last_row == first_row:  # a thin one is in the cell of its middle
            first_row = int((self.y + bottom) / 2 / _HEIGHT)
            last_row = first_row + 1
        if height < _HEIGHT / 8:  # a row of a bar chart that is next to nothing
            return
        for row in range(first_row, last_row):
            for column in range(int(self.x / _WIDTH), max(int(self.x / _WIDTH) + 1, round(right / _WIDTH))):
                if self._is_inside((column + 0.5) * _WIDTH, (row + 0.5) * _HEIGHT):
                    canvas.put(column, row, letter, self.colour)

    def _line(self, canvas: _Canvas, x: float, y: float, x2: float, y2: float) -> None:
        if self.role == "axis-domain":
            letter = "─" if abs(x2 - x) > abs(y2 - y) else "│"
        else:
            letter = "━" if abs(x2 - x) > 2 * abs(y2 - y) else "┃" if abs(y2 - y) > 2 * abs(x2 - x) else "•"
        steps = max(1, math.ceil(max(abs(x2 - x) / _WIDTH, abs(y2 - y) / _HEIGHT)))
        for step in range(steps + 1):
            self._point(canvas, x + (x2 - x) * step / steps, y + (y2 - y) * step / steps, letter)

    def _text(self, canvas: _Canvas) -> None:
        said = self.item.get("text")
        lines = said if isinstance(said, list) else [said]
        if said in (None, "") or abs(float(self.item.get("angle", 0))) > 45:
            return  # a title beside an axis would be written from below to above
        for number, line in enumerate(lines):
            words = printable(str(line))
            left = self.x / _WIDTH + float(self.item.get("dx", 0)) / _WIDTH
            align = self.item.get("align", "left")
            left -= cell_len(words) * {"left": 0.0, "center": 0.5, "right": 1.0}[align]
            left -= align == "right"  # beside an axis
            baseline = {"top": 0.5, "middle": 0.0, "bottom": -0.5}.get(self.item.get("baseline", "alphabetic"), -0.3)
            row = int(self.y / _HEIGHT + baseline + float(self.item.get("dy", 0)) / _HEIGHT) + number
            for place, letter in enumerate(words):
                canvas.put(max(0, round(left)) + place, row, letter, "")


def _marks(
    mark: dict[str, Any], x: float, y: float, clip: _Box | None = None, group: _Box | None = None
) -> Iterator[_Mark]:
    """All marks below one, where they stand, those on top last. clip: what is seen of them. group: that they are in."""
    kind, role = mark.get("marktype", ""), mark.get("role", "")
    items = mark.get("items", [])
    if kind != "group" and mark.get("clip"):
        clip = group
    for item in items:
        at_x, at_y = x + float(item.get("x", 0)), y + float(item.get("y", 0))
        if kind == "group":
            box = at_x, at_y, at_x + float(item.get("width", 0)), at_y + float(item.get("height", 0))
            inside = box if item.get("clip") or mark.get("clip") else clip
            for below in sorted(item.get("items", []), key=lambda one: one.get("role", "").startswith("axis-")):
                yield from _marks(below, at_x, at_y, inside, box)
        else:
            yield _Mark(kind, role, item, at_x, at_y, clip)
    if kind == "line":
        for before, after in itertools.pairwise(items):
            width, height = after.get("x", 0) - before.get("x", 0), after.get("y", 0) - before.get("y", 0)
            item = {**before, "x2": before.get("x", 0) + width, "y2": before.get("y", 0) + height}
            yield _Mark("rule", role, item, x + before.get("x", 0), y + before.get("y", 0), clip)
