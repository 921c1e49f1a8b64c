"""Zerwas, what training costs: volume by model, throughput with intervals, accuracy, batch size and loss.

Figures 3, 8, 9 and 10, tables I and II.
"""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.answers import NO_FLOWS, Answers, figure
from ddnn_traces.report.charts import zerwas_cost
from ddnn_traces.report.section import Column, Section, Source, Table, named, numbers, table
from ddnn_traces.report.words import (  # fmt: skip
    count,
    digits,
    digits_span,
    left_out,
    number,
    number_of,
    pair,
    percent,
    percents,
    size,
    size_span,
    text,
    words,
    yes_no,
)

# What a figure shows at most, so that a page of any dataset stays readable and below 15 MB.
MODEL_BARS = 60
ACCURACY_RUNS, ACCURACY_POINTS = 40, 60
BATCH_RUNS = 12
INTERVAL_RUNS = 80


def volume_by_model(answers: Answers) -> Section:
    slug, title = "model-volume", "Volume of each model and framework (fig. 3)"
    source = Source("volume_by_model")
    frame = answers.frame(source)
    if frame.is_empty():
        return Section(slug, title, NO_FLOWS)
    named_models = frame.filter(pl.col("model") != "unknown")
    if named_models.is_empty():
        return Section(
            slug,
            title,
            f"{number(frame['runs'].sum(), 'run')} transmit {size_span(frame['mean_wire_bytes'])} on average, but none "
            "names its model: write model and model_bytes into a run.toml beside its captures, and ingest it again.",
        )
    most = named_models.sort("mean_wire_bytes", descending=True, maintain_order=True).row(0, named=True)
    headline = (
        f"Runs of one model and framework transmit {size_span(named_models['mean_wire_bytes'])} on average; the most, "
        f"{size(most['mean_wire_bytes'])} in {digits(most['mean_steps'])} steps, {most['model']} with "
        f"{most['framework_setting']}."
    )
    shown = named_models.head(MODEL_BARS)
    caption = (
        "Mean over the runs of a model and framework setting; runs differ in how many steps they have, which stands in "
        "the tooltips. "
        f"{left_out(shown.height, frame.height, source.query, 'pair of model and framework')}"
    )
    chart = figure("volume_by_model", zerwas_cost.volume_by_model(shown), caption, [source])
    columns = [
        named("model", "model"), named("framework setting", "framework_setting"), numbers("runs", "runs", count),
        numbers("model size (MB)", "model_mb"), numbers("steps (mean)", "mean_steps"),
        numbers("volume (mean)", "mean_wire_bytes", size), numbers("least", "least_wire_bytes", size),
        numbers("most", "most_wire_bytes", size),
    ]  # fmt: skip
    values = table(frame, columns, "Volume on the wire, of whole runs.", source, "pair of model and framework")
    return Section(slug, title, headline, [chart], [values])


def total_throughput(answers: Answers) -> Section:
    slug, title = "total-throughput", "Total throughput with 95% intervals (table I)"
    source, published = Source("total_throughput"), Source("total_throughput", {"method": "paper"})
    frame = answers.frame(source)
    known = frame.drop_nulls("gbit_per_s")
    if known.is_empty():
        return Section(slug, title, NO_FLOWS)
    headline = (
        f"Over all links together a run transmits {digits_span(known['gbit_per_s'])} Gbit/s on average; half a 95% "
        f"interval is {percents(known['half_width_gbit_per_s'] / known['gbit_per_s'])} of the mean."
    )
    shown = answers.first_runs(known, INTERVAL_RUNS)
    caption = (
        "Mean of the throughput in batches of equal length over the training (without a log: the capture), with "
        "Student's t on the batch means. Intervals are sound where neighbouring batches are hardly correlated, that is "
        "where the lag-1 autocorrelation is near 0. "
        f"{left_out(shown.height, frame.height, source.query)}"
    )
    chart = figure("throughput_intervals", zerwas_cost.throughput_intervals(shown), caption, [source])
    columns = _interval_columns()
    tables = [table(frame, columns, "By Student's t on the batch means.", source)]
    paper = answers.frame(published)
    sentences = [
        f"The paper's notebook takes windows of 1 s from 200 s to 300 s of a run, so {_reaching(paper, frame.height)}."
    ]
    if paper["gbit_per_s"].count():
        caption = (
            "As the authors' notebook computes it: mean ± 1.96 s / √n of windows of 1 s from 200 s to 300 s, nothing "
            "batched."
        )
        tables.append(table(paper.drop_nulls("gbit_per_s"), columns, caption, published))
    return Section(slug, title, headline, [chart], tables, sentences)


def _reaching(paper: pl.DataFrame, runs: int) -> str:
    reach = paper["gbit_per_s"].count()
    return f"its way gives a number for {reach} of {number(runs, 'run')} here: those that last so long"


def _interval_columns() -> list[Column]:
    return [
        named("run", "run_id"), numbers("mean (Gbit/s)", "gbit_per_s"),
        numbers("95% interval, ±", "half_width_gbit_per_s"), named("over", "stretch"), named("computed", "computation"),
        numbers("samples", "samples", count), numbers("each (ms)", "sample_ms"),
        numbers("lag-1 autocorrelation", "lag1_autocorrelation"),
    ]  # fmt: skip


def gradient_flow(answers: Answers) -> Section:
    slug, title = "gradient-flow", "Throughput of the flow that carries gradients (table II)"
    source = Source("gradient_flow_throughput")
    frame = answers.frame(source)
    known = frame.drop_nulls("gbit_per_s")
    if known.is_empty():
        return Section(slug, title, NO_FLOWS)
    headline = (
        f"The flow with the most payload in training averages {digits_span(known['gbit_per_s'])} Gbit/s, and in its "
        f"busiest window {digits_span(known['peak_gbit_per_s'])} Gbit/s."
    )
    shown = answers.first_runs(known, INTERVAL_RUNS)
    caption = (
        "Mean with its 95% interval by Student's t on batch means, and the busiest window of "
        f"{number_of(known['peak_sample_ms'].max()):g} ms. {left_out(shown.height, frame.height, source.query)}"
    )
    chart = figure("gradient_flow_intervals", zerwas_cost.gradient_flow_intervals(shown), caption, [source])
    run, *others = _interval_columns()
    columns = [
        run, Column("flow", _flow, is_number=False), numbers("peak (Gbit/s)", "peak_gbit_per_s"), *others,
    ]  # fmt: skip
    values = table(frame, columns, "The gradient-carrying flow of each run.", source)
    published = Source(source.query, {"method": "paper"}).command
    sentences = [
        f"The published computation (± 1.96 s / 10 over 30 samples) and its correction: {published}",
    ]
    return Section(slug, title, headline, [chart], [values], sentences)


def _flow(row: dict[str, object]) -> str:
    if row["src_host"] is None:
        return "–"
    return f"{row['src_host']}:{text(row['src_port'])} → {row['dst_host']}:{text(row['dst_port'])}"


def accuracy(answers: Answers) -> Section:
    slug, title = "accuracy", "Accuracy and transmitted volume (fig. 8)"
    curves, reached = Source("accuracy_volume", {"points": ACCURACY_POINTS}), Source("volume_to_accuracy")
    frame, marks = answers.frame(curves), answers.frame(reached)
    if frame.is_empty():
        return Section(
            slug,
            title,
            "No run's log has an accuracy: log lines of Type,ID,Timestamp,Loss,Accuracy give one for each step.",
        )
    shown = answers.first_runs(frame, ACCURACY_RUNS)
    caption = (
        "A line is a run; dashed are the accuracies to reach. Of a run about "
        f"{ACCURACY_POINTS} steps are drawn. "
        f"{left_out(shown['run_id'].n_unique(), frame['run_id'].n_unique(), curves.query)}"
    )
    chart = figure("accuracy_volume", zerwas_cost.accuracy_volume(shown), caption, [curves])
    headline = "; ".join(_mark_words(mark, rows) for (mark,), rows in marks.group_by("mark", maintain_order=True))
    tables = [_reached_table(marks, reached)]
    saving = Source("accuracy_saving")
    savings = answers.frame(saving).drop_nulls("saving")
    sentences = []
    if savings.is_empty():
        sentences.append("No two framework settings reach a mark with the same model, so there is no saving to tell.")
    else:
        most = savings.sort("saving", descending=True, maintain_order=True).row(0, named=True)
        sentences.append(
            f"The largest saving: {most['framework_setting']} needs {percent(most['saving'])} less volume than "
            f"{most['other_setting']} for {most['model'] or 'an unnamed model'} to reach {percent(most['mark'])}."
        )
        tables.append(_saving_table(savings, saving))
    return Section(slug, title, f"{headline}.", [chart], tables, sentences)


def _mark_words(mark: object, rows: pl.DataFrame) -> str:
    there = rows.filter(pl.col("is_reached"))
    start = f"{there.height} of {number(rows.height, 'run')} reach an accuracy of {percent(number_of(mark))}"
    return start if there.is_empty() else f"{start}, after {size_span(there['wire_bytes'])}"


def _reached_table(marks: pl.DataFrame, source: Source) -> Table:
    columns = [
        named("run", "run_id"), named("framework setting", "framework_setting"), named("model", "model"),
        numbers("accuracy", "mark", percent), named("reached", "is_reached", yes_no), numbers("step", "step", count),
        numbers("volume until then", "wire_bytes", size), numbers("until it lasts", "lasting_wire_bytes", size),
        numbers("best accuracy", "best_accuracy", percent), numbers("volume of the run", "run_wire_bytes", size),
    ]  # fmt: skip
    caption = (
        "Volume until the first step with that accuracy, and until the first from which on it stays there to the end."
    )
    return table(marks, columns, caption, source, "row")


def _saving_table(savings: pl.DataFrame, source: Source) -> Table:
    columns = [
        named("model", "model"), numbers("accuracy", "mark", percent), named("setting", "framework_setting"),
        Column("runs that reach it", lambda row: f"{row['reaching_runs']} of {row['runs']}", is_number=True),
        numbers("volume (mean)", "mean_wire_bytes", size), named("other setting", "other_setting"),
        Column("of its runs", lambda row: f"{row['other_reaching_runs']} of {row['other_runs']}", is_number=True),
        numbers("its volume", "other_mean_wire_bytes", size), numbers("saving", "saving", percent),
    ]  # fmt: skip
    return table(savings, columns, "What one setting saves against another on the way there.", source, "row")


def batch_sizes(answers: Answers) -> Section:
    slug, title = "batch-sizes", "Bursts and valleys by batch size (fig. 9)"
    source, structure = Source("batch_pair_excerpt"), Source("batch_burst_structure")
    frame, bursts = answers.frame(source), answers.frame(structure)
    known = bursts.drop_nulls("computation_to_communication")
    if known.is_empty():
        headline = (
            "No run has two bursts of its busiest pair of hosts with a pause between them, so that there is no valley."
        )
    else:
        headline = (
            f"The busiest pair of a run sends in bursts of {digits_span(known['burst_ms'])} ms with valleys of "
            f"{digits_span(known['valley_ms'])} ms between them (means of {number(known.height, 'run')}): computation "
            f"takes {digits_span(known['computation_to_communication'])} times as long as communication."
        )
    columns = [
        named("run", "run_id"), numbers("batch (samples)", "batch_size", count), named("pair", "pair", pair),
        named("over", "stretch"), numbers("bursts", "bursts", count), numbers("steps", "steps", count),
        numbers("burst (ms)", "burst_ms"), numbers("median", "median_burst_ms"), numbers("valley (ms)", "valley_ms"),
        numbers("median valley", "median_valley_ms"),
        numbers("computation to communication", "computation_to_communication"),
        numbers("in bursts (Gbit/s)", "burst_gbit_per_s"), numbers("share in bursts", "share_in_bursts", percent),
    ]  # fmt: skip
    tables = [table(bursts, columns, "Bursts of each run's busiest pair of hosts.", structure)]
    if frame.is_empty():
        missing = (
            "No two runs differ in their batch size alone, so no excerpt is drawn: capture a run again with another "
            "batch_size and everything else the same."
        )
        return Section(slug, title, headline, tables=tables, sentences=[missing])
    runs = frame["run_id"].unique(maintain_order=True)
    shown = frame.filter(pl.col("run_id").is_in(runs.head(BATCH_RUNS).implode()))
    caption = (
        f"The pair's throughput in windows of {number_of(frame['sample_ms'].min()):g} ms, for runs that differ in "
        "their batch size alone, from the first step after the middle of the training. "
        f"{left_out(shown['run_id'].n_unique(), len(runs), source.query)}"
    )
    chart = figure("batch_pair_excerpt", zerwas_cost.batch_pair_excerpt(shown), caption, [source])
    return Section(slug, title, headline, [chart], tables)


def packet_loss(answers: Answers) -> Section:
    slug, title = "loss", "Duration and packet loss (fig. 10)"
    source = Source("duration_by_loss")
    frame = answers.frame(source)
    comparable = frame.drop_nulls(["normalised_duration", "loss_pct"])
    lossy = comparable.filter(pl.col("loss_pct") > 0)
    if lossy.is_empty():
        losing = frame.filter(pl.col("loss_pct") > 0).height
        return Section(
            slug,
            title,
            f"No run can be compared: {number(losing, 'run')} of {frame.height} declared to lose packets, none beside "
            "a lossless run that is equal in everything else. Declare loss_pct in run.toml (0 for lossless), or "
            "capture the same training without loss.",
        )
    worst = lossy.sort("normalised_duration", descending=True, maintain_order=True).row(0, named=True)
    headline = (
        f"In {number(lossy.height, 'run')} with loss, training takes {digits_span(lossy['normalised_duration'])} "
        f"times as long as without; the longest at {digits(worst['loss_pct'])}% in {worst['run_id']}."
    )
    caption = (
        "Duration over the mean of the lossless runs of the same setting. "
        f"{left_out(comparable.height, frame.height, source.query)}"
    )
    chart = figure("duration_by_loss", zerwas_cost.duration_by_loss(comparable), caption, [source])
    columns = [
        named("run", "run_id"), numbers("packet loss (%)", "loss_pct"), numbers("duration (s)", "duration_s"),
        named("known from", "duration_source", words), numbers("steps", "steps", count),
        numbers("lossless runs", "lossless_runs", count), named("compared by", "normalised_by"),
        numbers("of the lossless duration", "normalised_duration"),
    ]  # fmt: skip
    values = table(comparable, columns, "Runs that have a lossless one to be compared with.", source)
    return Section(slug, title, headline, [chart], [values])
