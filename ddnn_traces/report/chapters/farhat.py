"""Farhat: what is sent before, during and after training, and how long an iteration takes and how much it sends."""

from __future__ import annotations

import math

import polars as pl

from ddnn_traces.report.charts import farhat as charts
from ddnn_traces.report.section import NO_FLOWS, NO_LOG, Chapter, Section, Source, numbers, texts
from ddnn_traces.report.words import count, counts, digits, number_of, percent, size, span, words
from ddnn_traces.text import counted

# Most that a figure shows, so that a page of any dataset stays readable and below 15 MB.
BAR_RUNS = 80
PANEL_RUNS = 12
ITERATIONS, ITERATION_WINDOWS = 5, 1000
CDF_POINTS = 40

_EXCERPT = {"step_count": ITERATIONS, "runs": PANEL_RUNS}
_MARKS = Source("iteration_markers", _EXCERPT)

chapter = Chapter("farhat", "Farhat: flows and iterations")


@chapter.section("positions", "Before, during and after training (figs. 2 and 3)", Source("position_volume"))
def positions(section: Section, frame: pl.DataFrame) -> None:
    section.need(frame, section.no_steps)
    during, outside = frame.filter(position="during"), frame.filter(pl.col("position") != "during")
    section.headline = (
        f"Training itself carries {span(during['share_of_wire_bytes'], percent)} of a run's bytes and "
        f"{span(during['share_of_packets'], percent)} of its packets; what comes before it or after it is at most "
        f"{percent(number_of(outside['share_of_wire_bytes'].max()))} of the bytes, over "
        f"{counted(frame['run_id'].n_unique(), 'run')} with a log."
    )
    caption = (
        "Before the first step, during training and after the last step, by the log of the worker at which a "
        "packet was captured."
    )
    section.figure(charts.position_volume, section.first_runs(frame, BAR_RUNS), caption, of=frame)


@chapter.section("iteration-packets", "Packets over the marks of iterations", _MARKS)
def iteration_packets(section: Section, marks: pl.DataFrame) -> None:
    section.need(marks, section.no_steps)
    source = Source("packets_over_iterations", {**_EXCERPT, "window_ms": _window_ms(number_of(marks["end_ms"].max()))})
    frame = section.rows(
        source,
        "No run has traffic in its first iterations: the clock of its log is not that of its captures; ingest it again "
        "with --clock-offset auto.",
    )
    busiest = frame.sort("packets", descending=True, maintain_order=True).row(0, named=True)
    section.headline = (
        f"In the first {ITERATIONS} iterations, the busiest {busiest['length_ms']:g} ms hold "
        f"{counted(busiest['packets'], 'packet')} ({busiest['gbit_per_s']:.3g} Gbit/s), in "
        f"{busiest['run_id']}{section.of_drawn(frame)}."
    )
    caption = "Packets of all hosts in windows, with the begin and end of each iteration by one worker's log."
    places = section.results.places
    section.figure(charts.packets_over_iterations, frame, caption, source, _MARKS, others=[marks], of=places)


def _window_ms(longest_ms: float) -> float:
    """The query's own 5 ms, or the next of 10, 20, 50 ... that keeps the number of windows drawable."""
    least = longest_ms / ITERATION_WINDOWS
    if least <= 5:
        return 5
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least)


@chapter.section(
    "iteration-durations",
    "Duration of iterations (fig. 4)",
    Source("iteration_duration_cdf", {"points": CDF_POINTS}),
    NO_LOG,
)
def iteration_durations(section: Section, frame: pl.DataFrame) -> None:
    longest = frame.sort("duration_ms", descending=True, maintain_order=True).row(0, named=True)
    section.headline = (
        f"Half of a run's iterations take at most {span(_medians(frame, 'duration_ms'))} ms; the longest of all takes "
        f"{digits(longest['duration_ms'])} ms, in {longest['run_id']}."
    )
    caption = "Cumulative distribution over the iterations of all workers."
    section.figure(charts.iteration_duration_cdf, section.first_runs(frame, PANEL_RUNS), caption, of=frame)


@chapter.section(
    "iteration-flow-sizes",
    "Size of a flow in an iteration (fig. 5)",
    Source("iteration_flow_size_cdf", {"points": CDF_POINTS}),
)
def iteration_flow_sizes(section: Section, frame: pl.DataFrame) -> None:
    missing = (
        "No flow sends data inside training steps: that needs a log next to the captures (train_history.log) with the "
        "same clock; ingest with --clock-offset auto where the clocks differ."
    )
    section.need(frame, NO_FLOWS if section.results.places.is_empty() else missing)
    section.headline = (
        "In half of the iterations, a flow that carries data sends at most "
        f"{span(_medians(frame, 'wire_bytes'), size)} a run; the most is {size(number_of(frame['wire_bytes'].max()))}."
    )
    caption = "Cumulative distribution over iterations of data flows; a data flow is large and sends payload in steps."
    section.figure(charts.iteration_flow_size_cdf, section.first_runs(frame, PANEL_RUNS), caption, of=frame)


def _medians(frame: pl.DataFrame, column: str) -> pl.Series:
    """Of each run the smallest value that half of its values do not exceed."""
    return frame.filter(pl.col("cumulative_share") >= 0.5).group_by("run_id").agg(pl.col(column).min())[column]


@chapter.section("flow-classes", "Small, medium and large flows", Source("flow_class_counts"), NO_FLOWS)
def flow_classes(section: Section, frame: pl.DataFrame) -> None:
    large = frame.filter(size_class="large")
    others = frame.filter(pl.col("size_class") != "large").group_by("run_id").agg(pl.col("flows").sum())
    section.headline = (
        f"{counts(large['flows'], 'flow')} of a run {'is' if large['flows'].max() == 1 else 'are'} large and carry "
        f"{span(large['share_of_wire_bytes'], percent)} of its volume; {counts(others['flows'], 'flow')} are medium or "
        "small."
    )
    caption = (
        "Classes are separated at the two widest gaps of a run's flow sizes; a bar extends from the smallest "
        "flow of a class to its largest."
    )
    section.figure(charts.flow_classes, section.first_runs(frame, BAR_RUNS), caption, of=frame)


@chapter.section("flow-and-model", "Flow size and model size", Source("iteration_flow_size"))
def model_sizes(section: Section, frame: pl.DataFrame) -> None:
    known = section.need(
        frame.drop_nulls(["model_size_bytes", "mean_bytes"]),
        "No run has both a model size and a flow that carries data in steps: the size is model_bytes in a run.toml "
        "next to the captures, the steps are in the training's log.",
    )
    section.headline = (
        f"In an iteration a flow that carries data sends {span(known['ratio'])} times the model's size on average, "
        f"over {counted(known.height, 'run')}."
    )
    caption = "Lines are one and two bytes on the wire for each byte of the model."
    section.figure(charts.iteration_flow_size, known, caption, of=frame)
    columns = [
        texts("run", "run_id"), texts("topology (declared)", "topology", words),
        numbers("model", "model_size_bytes", size), numbers("data flows", "data_flows", count),
        numbers("a flow's iteration (mean)", "mean_bytes", size), numbers("median", "median_bytes", size),
        numbers("of the model", "ratio"), numbers("payload of the model", "payload_ratio"),
        numbers("2(N-1)/N of a ring", "ring_ratio"),
    ]  # fmt: skip
    section.table(frame, columns, "Size of a data flow.")
