"""A drawing of the topology: hosts on a circle or in layers, and what they send to each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import altair as alt
import polars as pl

from ddnn_traces.report.charts import panels, style
from ddnn_traces.text import counted

_SIDE, _LARGE_SIDE = 270, 400  # px of a drawing
_MANY = 16  # hosts: of more the drawing is large, and its marks are on circles, with their names turned
_LEVEL_NAMES = 5  # hosts on which none hangs: names of more would overlap, and are turned
_WIDEST, _FEW = 3.4, 16  # px of the heaviest pair's line, where so many lines are heavy
_REACH = 1.3  # from the centre to its border; hosts of a circle are 1 away
HEAVY = 0.05  # of the heaviest pair's payload: pairs from here on are drawn dark, and make the layers
_APART = 0.04  # between the two directions of a pair
_LAYERED = {"star", "tree", "binary_tree_star", "sharded_parameter_server"}
_ROOT, _HOST = "#E69F00", "#ffffff"
_Place = tuple[float, float]


@style.chart("The hosts of each run and what they send to each other, with the root and the order of the ring")
def topology_graph(frame: pl.DataFrame) -> alt.TopLevelMixin:
    """Hosts with arrows as wide as their payload, of query topology_graph, one drawing a run."""
    base = panels.rows_chart().encode(x=_at("x", alt.X), y=_at("y", alt.Y))
    color = alt.Color("color:N", scale=None)
    sent = style.tips(
        ("pair:N", "pair"), ("payload_bytes:Q", "payload (bytes)", ","),
        ("share_of_heaviest:Q", "of the heaviest pair's", ".2~%"),
    )  # fmt: skip
    pairs, hosts = base.transform_filter("datum.kind == 'pair'"), base.transform_filter("datum.kind == 'host'")
    there = style.tips(("host:N", "host"), ("position:Q", "place in the ring"), ("role:N", "role"))
    layers = [
        pairs.mark_rule().encode(
            x2="x2:Q", y2="y2:Q", color=color, strokeWidth=alt.StrokeWidth("width:Q", scale=None), tooltip=sent
        ),
        pairs.mark_point(shape="triangle-up", filled=True, opacity=1).encode(
            x=_at("head_x", alt.X), y=_at("head_y", alt.Y), angle=alt.Angle("angle:Q", scale=None), color=color,
            size=alt.Size("head_size:Q", scale=None), tooltip=sent,
        ),
        hosts.mark_point(filled=True, opacity=1, stroke=style.INK, strokeWidth=1.2).encode(
            color=color, size=alt.Size("size:Q", scale=None), tooltip=there
        ),
        *(
            hosts.transform_filter(f"datum.label_align == '{align}'")
            .mark_text(align=align, baseline="middle", limit=90, fontSize=style.FONT_SIZE, color=style.INK)
            .encode(
                x=_at("label_x", alt.X), y=_at("label_y", alt.Y), text="label:N", tooltip=there,
                angle=alt.Angle("label_angle:Q", scale=None),
            )
            for align in ("left", "center", "right")
        ),
    ]  # fmt: skip
    side = panels.place("side")
    view = alt.ViewBackground(stroke=None)
    drawing = alt.layer(*layers, width=side, height=side, title=panels.place("title"), view=view)
    rows = pl.concat([_drawn(run_id, run) for run_id, run in panels.by_run(frame)], how="diagonal_relaxed")
    of = {run_id: run.row(0, named=True) for run_id, run in panels.by_run(frame)}

    def values(run_id: str, run: pl.DataFrame) -> dict[str, Any]:
        count = run.filter(kind="host").height
        side, hosts = _side(count), counted(count, "host")
        confidence = of[run_id]["confidence"]
        sure = f", confidence {confidence:.0%}" if confidence else ""
        verdict = f"{(of[run_id]['topology'] or 'unknown').replace('_', ' ')}{sure}, {hosts}"
        return {"side": side, "title": style.panel_title(run_id, side, verdict)}

    widest = max(_side(run.filter(kind="host").height) for _, run in panels.by_run(rows))
    return panels.alike_panels(rows, drawing, values, widest + 40)


def _side(hosts: int) -> int:
    return _LARGE_SIDE if hosts > _MANY else _SIDE


def _at(column: str, channel: Any) -> Any:
    """A place in the drawing, without an axis."""
    return channel(f"{column}:Q", scale=alt.Scale(domain=[-_REACH, _REACH], nice=False, zero=False), axis=None)


def _drawn(run_id: str, run: pl.DataFrame) -> pl.DataFrame:
    """What is drawn of a run: a row a host and a row a pair, with their places."""
    names = dict(run.select("src_place", "src_host").iter_rows()) | dict(
        run.select("dst_place", "dst_host").iter_rows()
    )
    position = dict(run.drop_nulls("src_position").select("src_place", "src_position").iter_rows())
    roots = set(run.filter("src_is_root")["src_place"]) | set(run.filter("dst_is_root")["dst_place"])
    small = len(names) > _MANY
    labels = {host: name if host not in position else f"{position[host]}: {name}" for host, name in names.items()}
    if roots and run["topology"][0] in _LAYERED:
        marks = (_around_root if small else _in_layers)(_below_root(run, labels, roots), labels)
    else:
        marks = _on_a_circle(sorted(labels, key=lambda host: (position.get(host, len(names)), host)), labels, small)
    hosts = [
        {
            "kind": "host", "host": names[host], "position": position.get(host), "size": 60 if small else 260,
            "role": "root" if host in roots else "", "color": _ROOT if host in roots else _HOST, **marks[host],
        }
        for host in sorted(names)
    ]  # fmt: skip
    places = {host: (mark["x"], mark["y"]) for host, mark in marks.items()}
    heavy = run.filter(pl.col("share_of_heaviest") >= HEAVY).height
    # many lines of that width would cover each other
    part = min(1.0, math.sqrt(_FEW / max(1, heavy)))
    pairs = [_pair(pair, places, small, part) for pair in run.sort("share_of_heaviest").iter_rows(named=True)]
    return pl.DataFrame([{"run_id": run_id, **row} for row in [*pairs, *hosts]], infer_schema_length=None)


def _mark(place: _Place, label: str, align: str, angle: float, label_place: _Place) -> dict[str, Any]:
    """The place of a host, its label, and where that begins, is centred or ends."""
    (x, y), (label_x, label_y) = place, label_place
    return {
        "x": x, "y": y, "label": label, "label_align": align, "label_angle": angle, "label_x": label_x,
        "label_y": label_y,
    }  # fmt: skip


def _on_a_circle(hosts: list[int], labels: dict[int, str], small: bool) -> dict[int, dict[str, Any]]:
    """The hosts clockwise from the top, with their labels outside; those of many hosts point away from the centre."""
    found = {}
    for number, host in enumerate(hosts):
        turn = number / len(hosts)
        x, y = _on_circle(turn)
        align = "left" if x > 0.01 else "right" if x < -0.01 else "left" if small and y > 0 else "right"
        angle = (360 * turn + (-90 if align == "left" else 90)) if small else 0.0
        if not small and abs(x) < 0.3:
            align = "center"
        away = 1.06 if small else 1.22 if align == "center" else 1.13
        found[host] = _mark((x, y), labels[host], align, angle, (x * away, y * away))
    return found


def _on_circle(turn: float) -> _Place:
    """The place after that part of a turn, clockwise from the top."""
    return math.sin(2 * math.pi * turn), math.cos(2 * math.pi * turn)


#: Of a host: the middle of all that hangs on it (0 to 1), how far it is from the root, whether nothing hangs on it.
_Hanging = tuple[float, int, bool]


def _in_layers(hosts: dict[int, _Hanging], labels: dict[int, str]) -> dict[int, dict[str, Any]]:
    """The root on top, each layer below that of the hosts that it hangs on."""
    ends = sum(is_end for _, _, is_end in hosts.values())
    deepest = max(depth for _, depth, _ in hosts.values())
    found = {}
    for host, (part, depth, is_end) in hosts.items():
        x, y = 2 * part - 1, 1 - 2 * depth / max(1, deepest)
        if depth == 0:
            label = "center", 0.0, (x, y + 0.2)
        elif not is_end:
            label = "left", 0.0, (x + 0.11, y)
        elif ends > _LEVEL_NAMES:
            label = "left", 90.0, (x, y - 0.1)
        else:
            label = "center", 0.0, (x, y - 0.2)
        found[host] = _mark((x, y), labels[host], *label)
    return found


def _around_root(hosts: dict[int, _Hanging], labels: dict[int, str]) -> dict[int, dict[str, Any]]:
    """The same of many hosts: the root in the centre, each layer on a circle around it."""
    deepest = max(depth for _, depth, _ in hosts.values())
    found = {}
    for host, (turn, depth, is_end) in hosts.items():
        along_x, along_y = _on_circle(turn)
        x, y = along_x * depth / max(1, deepest), along_y * depth / max(1, deepest)
        if is_end:
            align = "left" if turn < 0.5 else "right"
            label = align, 360 * turn + (-90 if align == "left" else 90), (x + 0.06 * along_x, y + 0.06 * along_y)
        else:
            label = "left", 0.0, (x + 0.05, y)
        found[host] = _mark((x, y), labels[host], *label)
    return found


def _below_root(run: pl.DataFrame, hosts: Iterable[int], roots: set[int]) -> dict[int, _Hanging]:
    """The hosts as they hang on the root, on each other by heavy pairs, from the first on."""
    heavy = run.filter(pl.col("share_of_heaviest") >= HEAVY).select("src_place", "dst_place")
    near: dict[int, set[int]] = {host: set() for host in hosts}
    for src, dst in heavy.iter_rows():
        near[src].add(dst)
        near[dst].add(src)
    depth, hanging = dict.fromkeys(sorted(roots), 0), {host: list[int]() for host in near}
    waiting = [*depth]
    for host in waiting:  # which grows
        for below in sorted(near[host] - depth.keys()):
            depth[below] = depth[host] + 1
            hanging[host].append(below)
            waiting.append(below)
    for alone in sorted(near.keys() - depth.keys()):  # only light pairs
        depth[alone] = 1
        hanging[waiting[0]].append(alone)
        waiting.append(alone)
    ends = dict.fromkeys(waiting, 1)  # hosts on which none hangs, at or below each
    for host in reversed(waiting):
        ends[host] = sum(ends[below] for below in hanging[host]) or 1
    begin: dict[int, int] = {}
    count = 0
    for host in waiting:
        if depth[host] == 0:
            begin[host], count = count, count + ends[host]
        place = begin[host]
        for below in hanging[host]:
            begin[below], place = place, place + ends[below]
    return {host: ((begin[host] + ends[host] / 2) / count, depth[host], not hanging[host]) for host in waiting}


def _pair(pair: dict[str, Any], places: dict[int, _Place], small: bool, part: float) -> dict[str, Any]:
    """An arrow from the sender to the receiver, beside that of the other direction. part: of the largest width."""
    (x, y), (x2, y2) = places[pair["src_place"]], places[pair["dst_place"]]
    length = math.hypot(x2 - x, y2 - y) or 1.0
    along, across = ((x2 - x) / length, (y2 - y) / length), ((y2 - y) / length, (x - x2) / length)
    gap = 0.04 if small else 0.1
    begin, end = [
        (a + across[0] * _APART + along[0] * way * gap, b + across[1] * _APART + along[1] * way * gap)
        for a, b, way in ((x, y, 1), (x2, y2, -1))
    ]
    share = pair["share_of_heaviest"]
    heavy = share >= HEAVY
    return {
        "kind": "pair", "pair": f"{pair['src_host']} → {pair['dst_host']}", "payload_bytes": pair["payload_bytes"],
        "share_of_heaviest": share, "x": begin[0], "y": begin[1], "x2": end[0], "y2": end[1],
        "head_x": 0.35 * begin[0] + 0.65 * end[0], "head_y": 0.35 * begin[1] + 0.65 * end[1],
        "angle": math.degrees(math.atan2(along[0], along[1])), "width": max(0.2, _WIDEST * part * share),
        "head_size": (30 if small else 70) * part if heavy else 0, "color": style.DARK if heavy else style.PALE,
    }  # fmt: skip
