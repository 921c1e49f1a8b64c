"""The report: one HTML file that loads nothing, with every chart as SVG and PNG in a folder beside it.

A section says in one sentence what its figure shows, from the same rows that the figure is drawn from.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import polars as pl
import vl_convert
from markupsafe import Markup

import ddnn_traces
from ddnn_traces.charts import zerwas
from ddnn_traces.errors import UsageError

if TYPE_CHECKING:
    from ddnn_traces.dataset import Dataset
    from ddnn_traces.regression import Coefficient, Regression

# What a figure shows at most, so that a page of any dataset stays readable and below 15 MB.
HEATMAP_RUNS, HEATMAP_HOSTS = 24, 32
TIMELINE_RUNS, TIMELINE_FLOWS = 12, 30
BURST_RUNS, BURST_PAIRS = 12, 12
BAR_RUNS = 80
TABLE_RUNS = 1000
PNG_SCALE = 2


@dataclass(frozen=True)
class Figure:
    """A chart as a Vega-Lite specification; `name` is also its file's."""

    name: str
    spec: dict[str, Any]
    caption: str


@dataclass(frozen=True)
class Table:
    """A table of texts; the columns in `numeric` are set right."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: Sequence[str] = ()


@dataclass(frozen=True)
class Section:
    """A question and its answer. queries: where its data can be had."""

    slug: str
    title: str
    headline: str
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    sentences: Sequence[str] = ()
    queries: Sequence[str] = ()


FIGURES = tuple(
    chart.__name__
    for chart in (
        zerwas.volume_heatmaps,
        zerwas.flow_counts,
        zerwas.flow_timeline,
        zerwas.pair_throughput,
        zerwas.step_volume_fit,
        zerwas.step_volume_runs,
    )
)


def write(dataset: Dataset, out: Path) -> Path:
    """Write the report to `out` and its charts to the folder `<stem of out>-charts` beside it; return `out`.

    The same dataset gives the same bytes. Files are replaced whole, and a chart that the dataset no longer has is
    removed. Raises UsageError where `out` is a folder.
    """
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name the report's file, for example {out / 'report.html'}")
    sections = _sections(dataset)
    folder = out.with_name(f"{out.stem}-charts")
    folder.mkdir(parents=True, exist_ok=True)
    figures = {figure.name: figure for section in sections for figure in section.figures}
    for name in FIGURES:
        if name in figures:
            _write_chart(figures[name], folder)
        else:
            for suffix in ("svg", "png"):
                (folder / f"{name}.{suffix}").unlink(missing_ok=True)
    _replace(out, _page(sections, folder.name).encode())
    return out


def _write_chart(figure: Figure, folder: Path) -> None:
    svg = _renumbered(vl_convert.vegalite_to_svg(figure.spec, allowed_base_urls=[]))
    _replace(folder / f"{figure.name}.svg", svg.encode())
    _replace(folder / f"{figure.name}.png", vl_convert.svg_to_png(svg, scale=PNG_SCALE))


def _renumbered(svg: str) -> str:
    """Vega numbers gradients through the whole process; a file must not depend on what was drawn before it."""
    for number, name in enumerate(dict.fromkeys(re.findall(r' id="(gradient_\d+)"', svg))):
        svg = svg.replace(f' id="{name}"', f' id="gradient-{number}"').replace(
            f"url(#{name})", f"url(#gradient-{number})"
        )
    return svg


def _replace(path: Path, content: bytes) -> None:
    """Write a file that is there whole or not at all."""
    half_written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        half_written.write_bytes(content)
        half_written.replace(path)
    finally:
        with contextlib.suppress(OSError):
            half_written.unlink()


def _page(sections: Sequence[Section], folder: str) -> str:
    here = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    # both are the project's or Vega's own text; only an early end of the element must be kept out
    css = Markup((here / "report.css").read_text(encoding="utf-8"))  # noqa: S704
    vega = Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script"))  # noqa: S704
    return environment.get_template("report.html").render(
        title="Traffic of distributed training runs",
        sections=sections,
        folder=folder,
        css=css,
        vega=vega,
        version=ddnn_traces.__version__,
    )


def _sections(dataset: Dataset) -> list[Section]:
    regression = ddnn_traces.regress(dataset)
    places = dataset.query("figure_runs")
    return [
        _overview(dataset),
        _heatmaps(dataset, places),
        _flow_counts(dataset, places),
        _flow_timeline(dataset, places),
        _pair_throughput(dataset, places),
        _step_volume(dataset, regression),
        _regression(regression),
        _rings(dataset),
    ]


# Sections, in the page's order.


def _overview(dataset: Dataset) -> Section:
    runs = dataset.query("run_overview")
    ledger = dataset.query("ledger_sums")
    partial = dataset.query("partial_captures")
    counted = dict(zip(ledger["reason"], ledger["share_of_packets"], strict=True)).get("in_flows", 0.0)
    whole = "every capture file is complete"
    if not partial.is_empty():
        whole = f"{partial.height:,} of {_number(runs['captures'].sum(), 'capture file')} could be read only in part"
    headline = (
        f"{_number(runs.height, 'run')}, {_bytes(int(runs['wire_bytes'].sum()))} on the wire in "
        f"{_number(runs['packets'].sum(), 'packet')}; {whole}, and {_percent(counted)} of the captured packets are in "
        "the flows below."
    )
    tables = [_ledger_table(ledger), _run_table(runs)]
    if not partial.is_empty():
        tables.insert(0, _partial_table(partial))
    queries = ("run_overview", "ledger_sums", "partial_captures")
    return Section("overview", "Overview", headline, tables=tables, queries=queries)


def _run_table(runs: pl.DataFrame) -> Table:
    columns = (
        "run", "framework", "backend", "model", "model size (MB)", "batch (samples)", "topology (declared)", "hosts",
        "packets", "volume on the wire", "duration (s)", "steps", "files",
    )  # fmt: skip
    rows = [
        (
            run["run_id"], *(_text(run[name]) for name in ("framework", "backend", "model")),
            _digits(run["model_mb"]), _text(run["batch_size"]), _words(run["topology"]), _text(run["hosts"]),
            _count(run["packets"]), _bytes(run["wire_bytes"]), _digits(run["duration_s"]), _count(run["steps"]),
            f"{run['captures']}" + (f", {run['partial_captures']} partial" if run["partial_captures"] else ""),
        )
        for run in runs.head(TABLE_RUNS).iter_rows(named=True)
    ]  # fmt: skip
    left_out = _left_out(len(rows), runs.height, "run_overview")
    caption = f"The runs. A dash is what nobody declared; a run.toml in the run's folder can. {left_out}"
    return Table(caption, columns, rows, (*columns[4:6], *columns[7:]))


def _ledger_table(ledger: pl.DataFrame) -> Table:
    columns = ("what became of them", "packets", "share of packets", "bytes on the wire", "files", "runs")
    rows = [
        (
            _words(row["reason"]), _count(row["packets"]), _percent(row["share_of_packets"]),
            _count(row["wire_bytes"]), _count(row["captures"]), _count(row["runs"]),
        )
        for row in ledger.iter_rows(named=True)
    ]  # fmt: skip
    return Table("All captured packets; the rows add up to what is in the files.", columns, rows, columns[1:])


def _partial_table(partial: pl.DataFrame) -> Table:
    columns = ("run", "file", "status", "what is wrong", "packets read")
    rows = [
        (row["run_id"], row["capture_id"], row["status"], _text(row["status_detail"]), _count(row["records"]))
        for row in partial.head(TABLE_RUNS).iter_rows(named=True)
    ]
    left_out = _left_out(len(rows), partial.height, "partial_captures", "file")
    return Table(f"Partial captures: what could be read of them counts. {left_out}", columns, rows, columns[4:])


def _heatmaps(dataset: Dataset, places: pl.DataFrame) -> Section:
    slug, title = "heatmaps", "Who sends to whom"
    frame = dataset.query("pair_volume", runs=HEATMAP_RUNS, hosts=HEATMAP_HOSTS)
    if frame.is_empty():
        return Section(slug, title, _NO_FLOWS)
    heavy = frame.group_by("run_id").agg(
        pl.col("is_heavy").sum(), share=pl.col("share_of_run").filter("is_heavy").sum()
    )
    headline = (
        f"A run's heaviest pairs of hosts ({_span(heavy['is_heavy'], 'directed pair')}, each sending at least half as "
        f"much as the first) carry {_percents(heavy['share'])} of its volume{_of_drawn(frame, places)}."
    )
    caption = (
        "Transmitted volume of each directed pair of hosts, in one logarithmic colour scale for all runs; k, M and G "
        "are 10³, 10⁶ and 10⁹ bytes. W is a worker, PS a parameter server, Ch. the chief. "
        f"{_hosts_left_out(frame)}{_left_out(frame['run_id'].n_unique(), places.height, 'pair_volume')}"
    )
    return Section(slug, title, headline, [_figure("volume_heatmaps", frame, caption)], queries=("pair_volume",))


def _hosts_left_out(frame: pl.DataFrame) -> str:
    least = _number_of(frame.group_by("run_id").agg(pl.col("share_of_run").sum())["share_of_run"].min())
    if least > 1 - 1e-9:
        return ""
    return (
        f"Of each run the {HEATMAP_HOSTS} hosts with the most traffic are drawn; in the worst case the pairs among "
        f"them carry {_percent(least)} of the run's volume. "
    )


def _flow_counts(dataset: Dataset, places: pl.DataFrame) -> Section:
    slug, title = "flow-counts", "How many flows"
    counts = dataset.query("flow_counts").filter(pl.col("flows") > 0)
    if counts.is_empty():
        return Section(slug, title, _NO_FLOWS)
    few = _span(counts["large_flows"], "large one")
    headline = f"A run has {_span(counts['flows'], 'flow')}; 99% of its volume is in {few}."
    frame = _first_runs(counts, places, BAR_RUNS)
    caption = (
        "Flows are directed five-tuples, so a TCP connection is two. Large flows are the fewest that carry 99% of the "
        f"run's bytes on the wire. {_left_out(frame.height, counts.height, 'flow_counts')}"
    )
    return Section(slug, title, headline, [_figure("flow_counts", frame, caption)], queries=("flow_counts",))


def _flow_timeline(dataset: Dataset, places: pl.DataFrame) -> Section:
    slug, title = "flow-timeline", "When flows send"
    frame = dataset.query("flow_timeline", runs=TIMELINE_RUNS, flows=TIMELINE_FLOWS)
    if frame.is_empty():
        return Section(slug, title, _NO_FLOWS)
    flows = frame.unique(["run_id", "flow_place"])
    shares = [_number_of(flows.filter(pl.col("is_large") == large)["active_share"].median()) for large in (True, False)]
    small = f", the median other flow in {_percent(shares[1])}" if flows["is_large"].not_().any() else ""
    large = f"The median large flow sends in {_percent(shares[0])} of its run's windows"
    headline = f"{large}{small}{_of_drawn(frame, places)}."
    counts = dataset.query("flow_counts").filter(pl.col("run_id").is_in(frame["run_id"].unique().implode()))
    fewer = (
        f"Of a run the {TIMELINE_FLOWS} largest flows are drawn. "
        if _number_of(counts["flows"].max()) > TIMELINE_FLOWS
        else ""
    )
    caption = (
        "One row a flow, the largest on top. The more solid a bar, the more the flow sends in the window, as a share "
        "of the run's busiest flow and window. A window is 1, 2 or 5 times a power of ten, the shortest that makes at "
        f"most 100 of the run; its length stands over each panel. {fewer}"
        f"{_left_out(frame['run_id'].n_unique(), places.height, 'flow_timeline')}"
    )
    return Section(slug, title, headline, [_figure("flow_timeline", frame, caption)], queries=("flow_timeline",))


def _pair_throughput(dataset: Dataset, places: pl.DataFrame) -> Section:
    slug, title = "pair-throughput", "How bursty pairs of hosts are"
    frame = dataset.query("pair_burst", runs=BURST_RUNS, pairs=BURST_PAIRS)
    if frame.is_empty():
        return Section(slug, title, _NO_FLOWS)
    peak = frame.sort("gbit_per_s", descending=True, maintain_order=True).row(0, named=True)
    headline = (
        f"The highest throughput of a pair is {peak['gbit_per_s']:.3g} Gbit/s over {peak['window_ms']:g} ms: "
        f"{peak['pair']} in {peak['run_id']}{_of_drawn(frame, places)}."
    )
    window_ms, excerpt_ms = (f"{_number_of(frame[name].min()):g}" for name in ("window_ms", "excerpt_ms"))
    caption = (
        f"Throughput in windows of {window_ms} ms over the {excerpt_ms} ms in which the run transmits most; a row is a "
        "directed pair of hosts, its full height the run's highest value, which stands over the panel. Of a run at "
        f"most the {BURST_PAIRS} pairs that send most are drawn. "
        f"{_left_out(frame['run_id'].n_unique(), places.height, 'pair_burst')}"
    )
    return Section(slug, title, headline, [_figure("pair_throughput", frame, caption)], queries=("pair_burst",))


def _step_volume(dataset: Dataset, regression: Regression) -> Section:
    slug, title = "step-volume", "Volume of a step and model size"
    attributes = dataset.query("run_step_volume").select("run_id", "framework_backend", "batch_size", "topology")
    frame = regression.fitted.join(attributes, on="run_id", how="left", maintain_order="left")
    if frame.is_empty():
        return Section(slug, title, _missing(regression))
    ratio = frame["step_bytes"] / frame["model_size"]
    smallest, largest = (f"{_number_of(value):.3g}" for value in (ratio.min(), ratio.max()))
    slope = "".join(
        f"; {verdict.sentence.removeprefix('significant: ')}"
        for verdict in regression.verdicts
        if verdict.term == "model_size" and verdict.estimable
    )
    between = smallest if smallest == largest else f"between {smallest} and {largest}"
    headline = f"A step transmits {between} times the model's size{slope}."
    shown = frame.head(BAR_RUNS)
    figures = [
        _figure("step_volume_fit", frame, "Mean volume of a training step against model size; a mark is a run."),
        _figure(
            "step_volume_runs",
            shown,
            "The same for each MB of model, so that runs can be told apart. "
            + _left_out(shown.height, frame.height, "run_step_volume"),
        ),
    ]
    return Section(slug, title, headline, figures, queries=("run_step_volume",))


def _regression(regression: Regression) -> Section:
    slug, title = "regression", "What drives the volume of a step"
    excluded = [f"{run.run_id} is not in the fit: {run.reason}" for run in regression.excluded[:BAR_RUNS]]
    if len(regression.excluded) > BAR_RUNS:
        excluded.append(f"{_number(len(regression.excluded) - BAR_RUNS, 'further run')} not in the fit")
    verdicts = [f"{verdict.term}: {verdict.sentence}" for verdict in regression.verdicts]
    sentences = [*verdicts, *regression.notes, *excluded]
    if not regression.coefficients:
        headline = " ".join(regression.notes[:1]) or "Nothing is fitted."
        return Section(slug, title, headline, sentences=[*verdicts, *regression.notes[1:], *excluded, _HOW_TO_FIT])
    headline = (
        f"The attributes of the runs explain {_percent(regression.r_squared or 0)} of the variance of the volume of a "
        f"step over {_number(regression.rows, 'run')}"
        + (f"; model size alone correlates with {regression.correlation:.3f}." if regression.correlation else ".")
    )
    columns = ("coefficient", "estimate", "95% interval", "p-value", "unit")
    rows = [_coefficient_row(regression, coefficient) for coefficient in regression.coefficients]
    caption = (
        f"{regression.formula}, by ordinary least squares over {_number(regression.rows, 'run')}: "
        f"R² {_r_squared(regression.r_squared)}, adjusted R² {_r_squared(regression.adj_r_squared)}, "
        f"{_number(regression.df_resid or 0, 'residual degree')} of freedom. "
        f"Model size is {regression.model_size_source}."
    )
    table = Table(caption, columns, rows, columns[1:4])
    return Section(slug, title, headline, tables=[table], sentences=sentences, queries=("run_step_volume",))


def _coefficient_row(regression: Regression, coefficient: Coefficient) -> tuple[str, ...]:
    factor, unit = regression.readable(coefficient)
    unit = {"MB/MB": "MB a step for each MB of model", "MB": "MB a step"}.get(unit, unit)
    interval = "–"
    if coefficient.ci_low is not None and coefficient.ci_high is not None:
        interval = f"{coefficient.ci_low * factor:.4g} to {coefficient.ci_high * factor:.4g}"
    p = coefficient.p_value
    p_text = "–" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
    name = re.sub(r"^C\((\w+)\)\[T\.(.*)\]$", r"\1 = \2", coefficient.name)
    return name, f"{coefficient.estimate * factor:.4g}", interval, p_text, unit


def _rings(dataset: Dataset) -> Section:
    frame = dataset.query("ring_comparison")
    declared = frame.filter(pl.col("agrees").is_not_null())
    rings = frame["is_ring"].sum()
    if declared.is_empty():
        headline = (
            f"No run declares a topology; {rings:,} of {_number(frame.height, 'run')} sent in a ring. "
            "A run.toml with topology and the hosts' ring_position gives something to compare with."
        )
    else:
        headline = (
            f"Traffic agrees with the declaration in {declared['agrees'].sum()} of {_number(declared.height, 'run')} "
            f"that declare a topology; {_number(rings, 'run')} sent in a ring."
        )
    words = {True: "yes", False: "no", None: "–"}
    columns = ("run", "topology (declared)", "ring (declared)", "ring (inferred from traffic)", "agrees")
    rows = [
        (
            row["run_id"], _words(row["declared_topology"]), _text(row["declared_ring"]),
            row["inferred_ring"] or "no ring", words[row["agrees"]],
        )
        for row in frame.head(TABLE_RUNS).iter_rows(named=True)
    ]  # fmt: skip
    caption = (
        "Order in which data flows from host to host. Rings agree where they have the same edges in the same "
        "direction. " + _left_out(len(rows), frame.height, "ring_comparison")
    )
    tables = [Table(caption, columns, rows)]
    return Section("rings", "Rings, declared and inferred", headline, tables=tables, queries=("ring_comparison",))


# Words.

_NO_FLOWS = "No run of this dataset has a flow; see the table of captured packets above for what became of them."
_HOW_TO_FIT = (
    "The fit needs three or more runs with a training log (train_history.log beside the captures) and a run.toml with "
    "model_bytes, framework, batch_size and topology."
)


def _missing(regression: Regression) -> str:
    """Why no run can be drawn, from the reasons of those that are left out."""
    reasons = sorted({run.reason for run in regression.excluded})
    why = f" ({'; '.join(reasons[:3])})" if reasons else ""
    return f"No run has both a volume for each step and a model size{why}. {_HOW_TO_FIT}"


def _figure(name: str, frame: pl.DataFrame, caption: str) -> Figure:
    return Figure(name, getattr(zerwas, name)(frame).to_dict(), caption)


def _first_runs(frame: pl.DataFrame, places: pl.DataFrame, most: int) -> pl.DataFrame:
    """The rows of the runs that come first in figure_runs, in the frame's order."""
    return frame.join(places.filter(pl.col("place") <= most), on="run_id", how="semi", maintain_order="left")


def _left_out(shown: int, total: int, query: str, noun: str = "run") -> str:
    if shown >= total:
        return ""
    return f"{_number(total - shown, noun)} of {total:,} left out here; the query {query} has all."


def _of_drawn(frame: pl.DataFrame, places: pl.DataFrame) -> str:
    """A headline's limit, where it is made from fewer runs than there are."""
    drawn = frame["run_id"].n_unique()
    return "" if drawn == places.height else f" (of the {_number(drawn, 'run')} drawn here)"


def _span(values: pl.Series, noun: str) -> str:
    low, high = (int(_number_of(value)) for value in (values.min(), values.max()))
    return _number(high, noun) if low == high else f"{low:,} to {_number(high, noun)}"


def _percents(shares: pl.Series) -> str:
    low, high = (_percent(_number_of(value)) for value in (shares.min(), shares.max()))
    return low if low == high else f"{low} to {high}"


def _number(count: Any, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _number_of(value: Any) -> float:
    return float(value or 0)


def _text(value: Any) -> str:
    return "–" if value is None else str(value)


def _words(value: str | None) -> str:
    return _text(value).replace("_", " ")


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _percent(share: float) -> str:
    """Three digits, but 100% only for all of it."""
    if 0.9995 <= share < 1:
        return "more than 99.9%"
    return f"{100 * share:.3g}%"


def _r_squared(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


def _bytes(size: int) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}" if size < 1000 * factor else f"{size / factor:,.0f} {unit}"
    return f"{size} B"
