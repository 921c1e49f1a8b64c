"""The order of the report: its chapters and their sections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddnn_traces.report.answers import SYNTHETIC, Answers
from ddnn_traces.report.chapters import chang, farhat, overview, regression, wire, zerwas, zerwas_cost
from ddnn_traces.report.section import Chapter, Figure, Section
from ddnn_traces.report.words import number

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

#: Every chart that a report may have.
FIGURES = (
    "volume_by_model", "volume_heatmaps", "mean_volume_heatmaps", "flow_counts", "flow_timeline", "pair_throughput",
    "throughput_intervals", "gradient_flow_intervals", "accuracy_volume", "batch_pair_excerpt", "duration_by_loss",
    "step_volume_fit", "step_volume_runs", "regression_residuals", "regression_quantiles",
    "position_volume", "packets_over_iterations", "iteration_duration_cdf",
    "iteration_flow_size_cdf", "flow_classes", "iteration_flow_size", "parameter_server_phases", "step_boundaries",
    "overlap_shares", "straggler_slack", "bus_bandwidth",
)  # fmt: skip


#: Of each chapter its name in links, its title and what makes its sections.
OUTLINE: tuple[tuple[str, str, tuple[Callable[[Answers], Section], ...]], ...] = (
    ("overview", "Overview", (overview.overview,)),
    (
        "zerwas",
        "Zerwas: traffic of training",
        (
            zerwas_cost.volume_by_model, zerwas.heatmaps, zerwas.flow_counts, zerwas.flow_timeline,
            zerwas.pair_throughput, zerwas_cost.total_throughput, zerwas_cost.gradient_flow, zerwas_cost.accuracy,
            zerwas_cost.batch_sizes, zerwas_cost.packet_loss, regression.step_volume, regression.drivers,
        ),
    ),
    (
        "farhat",
        "Farhat: flows and iterations",
        (
            farhat.positions, farhat.iteration_packets, farhat.iteration_durations, farhat.iteration_flow_sizes,
            farhat.flow_classes, farhat.model_sizes,
        ),
    ),
    ("chang", "Chang: parameter servers", (chang.phases, chang.transfers)),
    (
        "wire",
        "What the wire tells",
        (
            wire.topology, wire.rings, wire.conservation, wire.bus_bandwidth, wire.inferred_steps, wire.overlap,
            wire.stragglers,
        ),
    ),
)  # fmt: skip


def title(dataset: Dataset) -> str:
    """The page's title, which says when runs were made up."""
    sources = dataset.sql("SELECT source FROM runs")["source"].to_list()
    synthetic = sources.count(SYNTHETIC)
    note = f" ({synthetic:,} of {number(len(sources), 'run')} synthetic, not measured)" if synthetic else ""
    return f"Traffic of distributed training runs{note}"


def _labelled(section: Section, made_up: str) -> Section:
    """The section with `made_up` in each figure's caption, and above the chart, which is also a file of its own."""
    if not made_up:
        return section
    figures = [
        replace(figure, caption=f"{figure.caption} {made_up}", spec={**figure.spec, "title": _below(made_up, figure)})
        for figure in section.figures
    ]
    return replace(section, figures=figures)


def _below(made_up: str, figure: Figure) -> dict[str, Any]:
    """The chart's title with `made_up` as its first line."""
    own = figure.spec.get("title", [])
    given = own if isinstance(own, dict) else {"text": own}
    lines = given["text"] if isinstance(given["text"], list) else [given["text"]]
    return {"anchor": "start", "fontSize": 11, "fontWeight": "normal", **given, "text": [made_up, *lines]}


def chapters(dataset: Dataset, begin: Callable[[Figure], object]) -> list[Chapter]:
    """All chapters of a dataset's report. begin: called with each figure as soon as it is known."""
    found = []
    with Answers(dataset) as answers:
        for slug, title, makers in OUTLINE:
            sections = []
            for make in makers:
                sections.append(_labelled(make(answers), answers.made_up))
                for figure in sections[-1].figures:
                    begin(figure)
            found.append(Chapter(slug, title, sections))
    return found
