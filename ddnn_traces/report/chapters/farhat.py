"""Farhat: what is sent before, during and after training, and what an iteration takes and sends."""

from __future__ import annotations

import math

import polars as pl

from ddnn_traces.report.answers import NO_FLOWS, NO_LOG, Answers, figure
from ddnn_traces.report.charts import farhat
from ddnn_traces.report.section import Section, Source, named, numbers, table
from ddnn_traces.report.words import (  # fmt: skip
    count,
    digits,
    digits_span,
    left_out,
    number,
    number_of,
    percent,
    percents,
    size,
    size_span,
    span,
    words,
)

# What a figure shows at most, so that a page of any dataset stays readable and below 15 MB.
BAR_RUNS = 80
PANEL_RUNS = 12
ITERATIONS, ITERATION_WINDOWS = 5, 1000
CDF_POINTS = 40


def positions(answers: Answers) -> Section:
    slug, title = "positions", "Before, during and after training (figs. 2 and 3)"
    source = Source("position_volume")
    frame = answers.frame(source)
    if frame.is_empty():
        return Section(slug, title, answers.no_steps)
    during, outside = frame.filter(position="during"), frame.filter(pl.col("position") != "during")
    runs = frame["run_id"].n_unique()
    headline = (
        f"Training itself carries {percents(during['share_of_wire_bytes'])} of a run's bytes and "
        f"{percents(during['share_of_packets'])} of its packets; what comes before it or after it is at most "
        f"{percent(number_of(outside['share_of_wire_bytes'].max()))} of the bytes, over {number(runs, 'run')} with a "
        "log."
    )
    shown = answers.first_runs(frame, BAR_RUNS)
    caption = (
        "Before the first step, during training and after the last step, by the log of the worker at which a packet "
        f"was captured. {left_out(shown['run_id'].n_unique(), runs, source.query)}"
    )
    return Section(slug, title, headline, [figure("position_volume", farhat.position_volume(shown), caption, [source])])


def iteration_packets(answers: Answers) -> Section:
    slug, title = "iteration-packets", "Packets over the marks of iterations"
    excerpt = {"step_count": ITERATIONS, "runs": PANEL_RUNS}
    marks_source = Source("iteration_markers", excerpt)
    marks = answers.frame(marks_source)
    if marks.is_empty():
        return Section(slug, title, answers.no_steps)
    source = Source("packets_over_iterations", {**excerpt, "window_ms": _window_ms(number_of(marks["end_ms"].max()))})
    frame = answers.frame(source)
    if frame.is_empty():
        return Section(
            slug,
            title,
            "No run has traffic in its first iterations: its log's clock is not that of its captures; ingest it again "
            "with --clock-offset auto.",
        )
    busiest = frame.sort("packets", descending=True, maintain_order=True).row(0, named=True)
    headline = (
        f"In the first {ITERATIONS} iterations, the busiest {busiest['length_ms']:g} ms hold "
        f"{number(busiest['packets'], 'packet')} ({busiest['gbit_per_s']:.3g} Gbit/s), in "
        f"{busiest['run_id']}{answers.of_drawn(frame)}."
    )
    caption = (
        "Packets of all hosts in windows, with the begin and end of each iteration by one worker's log. "
        f"{left_out(frame['run_id'].n_unique(), answers.places.height, source.query)}"
    )
    chart = figure(
        "packets_over_iterations", farhat.packets_over_iterations(frame, marks), caption, [source, marks_source]
    )
    return Section(slug, title, headline, [chart])


def _window_ms(longest_ms: float) -> float:
    """The query's own 5 ms, or the next of 10, 20, 50 ... that keeps the number of windows drawable."""
    least = longest_ms / ITERATION_WINDOWS
    if least <= 5:
        return 5
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least)


def iteration_durations(answers: Answers) -> Section:
    slug, title = "iteration-durations", "How long iterations take (fig. 4)"
    source = Source("iteration_duration_cdf", {"points": CDF_POINTS})
    frame = answers.frame(source)
    if frame.is_empty():
        return Section(slug, title, NO_LOG)
    longest = frame.sort("duration_ms", descending=True, maintain_order=True).row(0, named=True)
    headline = (
        f"Half of a run's iterations take at most {digits_span(_halves(frame, 'duration_ms'))} ms; the longest of all "
        f"takes {digits(longest['duration_ms'])} ms, in {longest['run_id']}."
    )
    shown = answers.first_runs(frame, PANEL_RUNS)
    caption = (
        "Cumulative distribution over the iterations of all workers. "
        f"{left_out(shown['run_id'].n_unique(), frame['run_id'].n_unique(), source.query)}"
    )
    chart = figure("iteration_duration_cdf", farhat.iteration_duration_cdf(shown), caption, [source])
    return Section(slug, title, headline, [chart])


def iteration_flow_sizes(answers: Answers) -> Section:
    slug, title = "iteration-flow-sizes", "What a flow sends in an iteration (fig. 5)"
    source = Source("iteration_flow_size_cdf", {"points": CDF_POINTS})
    frame = answers.frame(source)
    if frame.is_empty():
        missing = (
            "No flow sends data inside training steps: that needs a log beside the captures (train_history.log) whose "
            "clock is theirs; ingest with --clock-offset auto where it is not."
        )
        return Section(slug, title, NO_FLOWS if answers.places.is_empty() else missing)
    headline = (
        "In half of the iterations, a flow that carries data sends at most "
        f"{size_span(_halves(frame, 'wire_bytes'))} a run; the most is {size(number_of(frame['wire_bytes'].max()))}."
    )
    shown = answers.first_runs(frame, PANEL_RUNS)
    caption = (
        "Cumulative distribution over iterations of data flows; a data flow is large and sends payload in steps. "
        f"{left_out(shown['run_id'].n_unique(), frame['run_id'].n_unique(), source.query)}"
    )
    chart = figure("iteration_flow_size_cdf", farhat.iteration_flow_size_cdf(shown), caption, [source])
    return Section(slug, title, headline, [chart])


def _halves(frame: pl.DataFrame, column: str) -> pl.Series:
    """Of each run the smallest value that half of its values do not exceed."""
    return frame.filter(pl.col("cumulative_share") >= 0.5).group_by("run_id").agg(pl.col(column).min())[column]


def flow_classes(answers: Answers) -> Section:
    slug, title = "flow-classes", "Small, medium and large flows"
    source = Source("flow_class_counts")
    frame = answers.frame(source)
    if frame.is_empty():
        return Section(slug, title, NO_FLOWS)
    large = frame.filter(size_class="large")
    others = frame.filter(pl.col("size_class") != "large").group_by("run_id").agg(pl.col("flows").sum())
    headline = (
        f"{span(large['flows'], 'flow')} of a run {'is' if large['flows'].max() == 1 else 'are'} large and carry "
        f"{percents(large['share_of_wire_bytes'])} of its volume; {span(others['flows'], 'flow')} are medium or small."
    )
    shown = answers.first_runs(frame, BAR_RUNS)
    caption = (
        "Classes are parted at the two widest gaps of a run's flow sizes; a bar runs from the smallest flow of a class "
        f"to its largest. {left_out(shown['run_id'].n_unique(), frame['run_id'].n_unique(), source.query)}"
    )
    return Section(slug, title, headline, [figure("flow_classes", farhat.flow_classes(shown), caption, [source])])


def model_sizes(answers: Answers) -> Section:
    slug, title = "flow-and-model", "Flow size and model size"
    source = Source("iteration_flow_size")
    frame = answers.frame(source)
    known = frame.drop_nulls(["model_size_bytes", "mean_bytes"])
    if known.is_empty():
        return Section(
            slug,
            title,
            "No run has both a model size and a flow that carries data in steps: the size is model_bytes in a run.toml "
            "beside the captures, the steps are in the training's log.",
        )
    headline = (
        f"In an iteration a flow that carries data sends {digits_span(known['ratio'])} times the model's size on "
        f"average, over {number(known.height, 'run')}."
    )
    caption = (
        "Lines are one and two bytes on the wire for each byte of the model. "
        f"{left_out(known.height, frame.height, source.query)}"
    )
    chart = figure("iteration_flow_size", farhat.iteration_flow_size(known), caption, [source])
    columns = [
        named("run", "run_id"), named("topology (declared)", "topology", words),
        numbers("model", "model_size_bytes", size), numbers("data flows", "data_flows", count),
        numbers("a flow's iteration (mean)", "mean_bytes", size), numbers("median", "median_bytes", size),
        numbers("of the model", "ratio"), numbers("payload of the model", "payload_ratio"),
        numbers("2(N-1)/N of a ring", "ring_ratio"),
    ]  # fmt: skip
    return Section(slug, title, headline, [chart], [table(frame, columns, "Size of a data flow.", source)])
