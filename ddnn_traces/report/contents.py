"""The order of the report: its chapters and their sections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ddnn_traces.report import chang, farhat, overview, regression, wire, zerwas, zerwas_cost
from ddnn_traces.report.answers import Answers
from ddnn_traces.report.model import Chapter, Figure, Section

if TYPE_CHECKING:
    from ddnn_traces.dataset import Dataset

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


def chapters(dataset: Dataset, begin: Callable[[Figure], object]) -> list[Chapter]:
    """All chapters of a dataset's report. begin: called with each figure as soon as it is known."""
    found = []
    with Answers(dataset) as answers:
        for slug, title, makers in OUTLINE:
            sections = []
            for make in makers:
                sections.append(make(answers))
                for figure in sections[-1].figures:
                    begin(figure)
            found.append(Chapter(slug, title, sections))
    return found
