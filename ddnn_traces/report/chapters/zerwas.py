"""Zerwas: the traffic of training (figs. 3 to 7), what it costs (figs. 8 to 10) and throughput (tables I and II)."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.charts import zerwas as charts
from ddnn_traces.report.section import NO_FLOWS, Chapter, Column, Section, Source, numbers, texts
from ddnn_traces.report.words import count, counts, digits, number_of, pair, percent, size, span, text, words, yes_no
from ddnn_traces.text import counted

# Most that a figure shows, so that a page of any dataset stays readable and below 15 MB.
MODEL_BARS = 60
HEATMAP_RUNS, HEATMAP_HOSTS = 24, 32
BAR_RUNS = 80
TIMELINE_RUNS, TIMELINE_FLOWS = 12, 30
BURST_RUNS, BURST_PAIRS = 12, 12
ACCURACY_RUNS, ACCURACY_POINTS = 40, 60
BATCH_RUNS = 12

PAIR_VOLUME = Source("pair_volume", {"runs": HEATMAP_RUNS, "hosts": HEATMAP_HOSTS})
TIMELINE = Source("flow_timeline", {"runs": TIMELINE_RUNS, "flows": TIMELINE_FLOWS})
_BURSTS = Source("pair_burst", {"runs": BURST_RUNS, "pairs": BURST_PAIRS})
_ACCURACY = Source("accuracy_volume", {"points": ACCURACY_POINTS})
_NO_ACCURACY = "No run's log has an accuracy: log lines of Type,ID,Timestamp,Loss,Accuracy give one for each step."

chapter = Chapter("zerwas", "Zerwas: traffic of training")


@chapter.section("model-volume", "Volume of each model and framework (fig. 3)", Source("volume_by_model"), NO_FLOWS)
def volume_by_model(section: Section, frame: pl.DataFrame) -> None:
    known = section.need(
        frame.filter(pl.col("model") != "unknown"),
        f"{counted(int(frame['runs'].sum()), 'run')} transmit {span(frame['mean_wire_bytes'], size)} on average, but "
        "none declares its model: write model and model_bytes into a run.toml next to its captures and ingest it "
        "again.",
    )
    most = known.sort("mean_wire_bytes", descending=True, maintain_order=True).row(0, named=True)
    section.headline = (
        f"Runs that should send the same transmit {span(known['mean_wire_bytes'], size)} on average; the most, "
        f"{size(most['mean_wire_bytes'])}, {most['model']} with {most['setting']}."
    )
    caption = (
        "Mean over the runs of one model and setting: framework, topology, order, workers and steps, which are in "
        "the tooltips. Settings that these runs do not share are in the table as pooled."
    )
    noun, by = "configuration", ("model", "setting")
    section.figure(charts.volume_by_model, known.head(MODEL_BARS), caption, of=frame, by=by, noun=noun)
    columns = [
        texts("model", "model"), texts("setting", "setting"), numbers("runs", "runs", count), texts("pooled", "pooled"),
        numbers("model size (MB)", "model_mb"), numbers("on the cable in a step", "mean_step_cable_bytes", size),
        numbers("payload in a step, models", "step_model_sizes"),
        numbers("volume (mean)", "mean_wire_bytes", size), numbers("least", "least_wire_bytes", size),
        numbers("most", "most_wire_bytes", size),
    ]  # fmt: skip
    section.table(frame, columns, "Volume on the wire, of whole runs.", noun=noun)


@chapter.section("heatmaps", "Volume of each pair of hosts (fig. 4)", PAIR_VOLUME, NO_FLOWS)
def heatmaps(section: Section, frame: pl.DataFrame) -> None:
    heavy = frame.group_by("run_id").agg(
        pl.col("is_heavy").sum(), share=pl.col("share_of_run").filter("is_heavy").sum()
    )
    section.headline = (
        f"A run's heaviest pairs of hosts ({counts(heavy['is_heavy'], 'directed pair')}, each sending at least half as "
        f"much as the first) carry {span(heavy['share'], percent)} of its volume{section.of_drawn(frame)}."
    )
    least = number_of(frame.group_by("run_id").agg(pl.col("share_of_run").sum())["share_of_run"].min())
    hosts = (
        f" Of each run the {HEATMAP_HOSTS} hosts with the most traffic are drawn; in the worst case the pairs among "
        f"them carry {percent(least)} of the run's volume."
        if least < 1 - 1e-9
        else ""
    )
    caption = (
        "Transmitted volume of each directed pair of hosts, in one logarithmic colour scale for all runs; k, M and G "
        f"are 10³, 10⁶ and 10⁹ bytes. W is a worker, PS a parameter server, Ch. the chief.{hosts}"
    )
    section.figure(charts.volume_heatmaps, frame, caption, of=section.results.places)
    of_means = Source("mean_traffic_matrix")
    means = section.rows(of_means)
    first = means["configuration"].unique(maintain_order=True).head(HEATMAP_RUNS)
    place = pl.max_horizontal("src_place", "dst_place")
    has_more = number_of(means.select(place.max()).item()) > HEATMAP_HOSTS
    caption = "The same, as the mean over the runs of each configuration: those that should send the same." + (
        f" Of each the first {HEATMAP_HOSTS} hosts by rank are drawn." if has_more else ""
    )
    shown, noun = means.filter(pl.col("configuration").is_in(first.implode()), place <= HEATMAP_HOSTS), "configuration"
    section.figure(charts.mean_volume_heatmaps, shown, caption, of_means, of=means, by=noun, noun=noun)


@chapter.section("flow-counts", "Number of flows (fig. 5)", Source("flow_counts"))
def flow_counts(section: Section, frame: pl.DataFrame) -> None:
    frame = section.need(frame.filter(pl.col("flows") > 0), NO_FLOWS)
    section.headline = (
        f"A run has {counts(frame['flows'], 'flow')}; 99% of its volume is in "
        f"{counts(frame['large_flows'], 'large one')}. {counts(frame['acknowledgement_flows'], 'flow').capitalize()} "
        f"only acknowledge large ones, and {counts(frame['side_flows'], 'flow')} carry something else."
    )
    caption = (
        "Flows are directed five-tuples, so a TCP connection is two. Large flows are the fewest that carry 99% "
        "of the run's bytes on the wire, except that an acknowledgement flow among them is counted as such: it goes "
        "back along a large flow with nearly no payload. Side flows are all others."
    )
    section.figure(charts.flow_counts, section.first_runs(frame, BAR_RUNS), caption, of=frame)


@chapter.section("flow-timeline", "Activity of flows over time (fig. 6)", TIMELINE, NO_FLOWS)
def flow_timeline(section: Section, frame: pl.DataFrame) -> None:
    flows = frame.unique(["run_id", "flow_place"])
    large, other = (
        percent(number_of(flows.filter(is_large=is_large)["active_share"].median())) for is_large in (True, False)
    )
    small = f", the median other flow in {other}" if not flows["is_large"].all() else ""
    section.headline = f"The median large flow sends in {large} of its run's windows{small}{section.of_drawn(frame)}."
    flows_of = section.rows(Source("flow_counts")).join(frame, on="run_id", how="semi")["flows"]
    has_more = number_of(flows_of.max()) > TIMELINE_FLOWS
    caption = (
        "One row a flow, the largest on top. The more solid a bar, the more the flow sends in the window, as a "
        "share of the run's busiest flow and window. A window is 1, 2 or 5 times a power of ten, the shortest that "
        "makes at most 100 of the run; its length stands over each panel."
        + (f" Of a run the {TIMELINE_FLOWS} largest flows are drawn." if has_more else "")
    )
    section.figure(charts.flow_timeline, frame, caption, of=section.results.places)


@chapter.section("pair-throughput", "Bursts of pairs of hosts (fig. 7)", _BURSTS, NO_FLOWS)
def pair_throughput(section: Section, frame: pl.DataFrame) -> None:
    peak = frame.sort("gbit_per_s", descending=True, maintain_order=True).row(0, named=True)
    section.headline = (
        f"The highest throughput of a pair is {peak['gbit_per_s']:.3g} Gbit/s over {peak['window_ms']:g} ms: "
        f"{peak['pair']} in {peak['run_id']}{section.of_drawn(frame)}."
    )
    window_ms, excerpt_ms = (f"{number_of(frame[name].min()):g}" for name in ("window_ms", "excerpt_ms"))
    caption = (
        f"Throughput in windows of {window_ms} ms over the {excerpt_ms} ms in which the run transmits most; a "
        "row is a directed pair of hosts, its full height the run's highest value, which stands over the panel. Of a "
        f"run at most the {BURST_PAIRS} pairs that send most are drawn."
    )
    section.figure(charts.pair_throughput, frame, caption, of=section.results.places)


@chapter.section("total-throughput", "Total throughput with 95% intervals (table I)", Source("total_throughput"))
def total_throughput(section: Section, frame: pl.DataFrame) -> None:
    published = Source("total_throughput", {"method": "paper"})
    known = section.need(frame.drop_nulls("gbit_per_s"), NO_FLOWS)
    section.headline = (
        f"Over all links together a run transmits {span(known['gbit_per_s'])} Gbit/s on average; half a 95% "
        f"interval is {span(known['half_width_gbit_per_s'] / known['gbit_per_s'], percent)} of the mean."
    )
    caption = (
        "Mean of the throughput in batches of equal length over the training (without a log: the capture), "
        "with Student's t on the batch means. Intervals are valid where neighbouring batches are hardly correlated, "
        "that is where the lag-1 autocorrelation is near 0."
    )
    section.figure(charts.throughput_intervals, section.first_runs(known, BAR_RUNS), caption, of=frame)
    columns = _interval_columns()
    section.table(frame, columns, "By Student's t on the batch means.")
    of_repeats = Source("total_throughput", {"pool_by": "framework_setting,model"})
    repeats = section.rows(of_repeats).filter(pl.col("runs") > 1)
    if not repeats.is_empty():
        caption = (
            "Runs of one framework and model pooled, as in the paper's table, over 30 batches together. The interval "
            "by runs takes each run as one sample. Settings in which they differ are named: repeats differ in none."
        )
        section.table(repeats, _POOLED_COLUMNS, caption, of_repeats)
    paper = section.rows(published).drop_nulls("gbit_per_s")
    section.sentences = [
        f"The paper's notebook takes windows of 1 s from 200 s to 300 s of a run, so it gives a number for "
        f"{paper.height} of {counted(frame.height, 'run')} here: those that last so long."
    ]
    if not paper.is_empty():
        caption = (
            "As the authors' notebook computes it: mean ± 1.96 s / √n of windows of 1 s from 200 s to 300 s, not "
            "batched."
        )
        section.table(paper, columns, caption, published)


_POOLED_COLUMNS = [
    texts("runs of", "pooled_by"), numbers("runs", "runs", count), texts("that differ in", "pooled"),
    numbers("mean (Gbit/s)", "gbit_per_s"), numbers("95% interval, ±", "half_width_gbit_per_s"),
    numbers("by runs, ±", "run_half_width_gbit_per_s"), numbers("samples", "samples", count),
]  # fmt: skip


def _interval_columns() -> list[Column]:
    return [
        texts("run", "run_id"), numbers("mean (Gbit/s)", "gbit_per_s"),
        numbers("95% interval, ±", "half_width_gbit_per_s"), texts("over", "stretch"), texts("computed", "computation"),
        numbers("samples", "samples", count), numbers("each (ms)", "sample_ms"),
        numbers("lag-1 autocorrelation", "lag1_autocorrelation"),
    ]  # fmt: skip


@chapter.section(
    "gradient-flow", "Throughput of the flow that carries gradients (table II)", Source("gradient_flow_throughput")
)
def gradient_flow(section: Section, frame: pl.DataFrame) -> None:
    known = section.need(frame.drop_nulls("gbit_per_s"), NO_FLOWS)
    section.headline = (
        f"The flow with the most payload in training averages {span(known['gbit_per_s'])} Gbit/s, and in its "
        f"busiest window {span(known['peak_gbit_per_s'])} Gbit/s."
    )
    caption = (
        "Mean with its 95% interval by Student's t on batch means, and the busiest window of "
        f"{number_of(known['peak_sample_ms'].max()):g} ms."
    )
    section.figure(charts.gradient_flow_intervals, section.first_runs(known, BAR_RUNS), caption, of=frame)
    run, *others = _interval_columns()
    columns = [run, Column("flow", _flow), numbers("peak (Gbit/s)", "peak_gbit_per_s"), *others]
    section.table(frame, columns, "The gradient-carrying flow of each run.")
    published = Source(section.source.query, {"method": "paper"}).command
    section.sentences = [f"The published computation (± 1.96 s / 10 over 30 samples) and its correction: {published}"]


def _flow(row: dict[str, object]) -> str:
    if row["src_host"] is None:
        return "–"
    return f"{row['src_host']}:{text(row['src_port'])} → {row['dst_host']}:{text(row['dst_port'])}"


@chapter.section("accuracy", "Accuracy and transmitted volume (fig. 8)", _ACCURACY, _NO_ACCURACY)
def accuracy(section: Section, frame: pl.DataFrame) -> None:
    of_marks, of_savings = Source("volume_to_accuracy"), Source("accuracy_saving")
    caption = (
        f"A line is a run; dashed lines are the accuracies to reach. Of a run about {ACCURACY_POINTS} steps are drawn."
    )
    section.figure(charts.accuracy_volume, section.first_runs(frame, ACCURACY_RUNS), caption, of=frame)
    marks = section.rows(of_marks)
    reached = "; ".join(_reached(mark, rows) for (mark,), rows in marks.group_by("mark", maintain_order=True))
    section.headline = f"{reached}."
    columns = [
        texts("run", "run_id"), texts("framework setting", "framework_setting"), texts("model", "model"),
        numbers("accuracy", "mark", percent), texts("reached", "is_reached", yes_no), numbers("step", "step", count),
        numbers("volume until then", "wire_bytes", size), numbers("until it lasts", "lasting_wire_bytes", size),
        numbers("best accuracy", "best_accuracy", percent), numbers("volume of the run", "run_wire_bytes", size),
    ]  # fmt: skip
    caption = (
        "Volume until the first step with that accuracy, and until the first step from which on it stays there to the "
        "end."
    )
    section.table(marks, columns, caption, of_marks, "row")
    savings = section.rows(of_savings).drop_nulls("saving")
    if savings.is_empty():
        section.sentences = ["No two framework settings reach a mark with the same model, so no saving is known."]
        return
    most = savings.sort("saving", descending=True, maintain_order=True).row(0, named=True)
    section.sentences = [
        f"The largest saving: {most['framework_setting']} needs {percent(most['saving'])} less volume than "
        f"{most['other_setting']} for {most['model'] or 'an unnamed model'} to reach {percent(most['mark'])}."
    ]
    columns = [
        texts("model", "model"), numbers("accuracy", "mark", percent), texts("setting", "framework_setting"),
        Column("runs that reach it", lambda row: f"{row['reaching_runs']} of {row['runs']}", is_number=True),
        numbers("volume (mean)", "mean_wire_bytes", size), texts("other setting", "other_setting"),
        Column("of its runs", lambda row: f"{row['other_reaching_runs']} of {row['other_runs']}", is_number=True),
        numbers("its volume", "other_mean_wire_bytes", size), numbers("saving", "saving", percent),
    ]  # fmt: skip
    section.table(savings, columns, "Volume that one setting saves against another until then.", of_savings, "row")


def _reached(mark: object, rows: pl.DataFrame) -> str:
    reached = rows.filter("is_reached")
    start = f"{reached.height} of {counted(rows.height, 'run')} reach an accuracy of {percent(number_of(mark))}"
    return start if reached.is_empty() else f"{start}, after {span(reached['wire_bytes'], size)}"


@chapter.section("batch-sizes", "Bursts and valleys by batch size (fig. 9)", Source("batch_burst_structure"))
def batch_sizes(section: Section, frame: pl.DataFrame) -> None:
    known = frame.drop_nulls("computation_to_communication")
    section.headline = (
        "No run has two bursts of its busiest pair of hosts with a pause between them, so there is no valley."
        if known.is_empty()
        else f"The busiest pair of a run sends in bursts (of a step, where the traffic shows steps, in "
        f"{counted(known.filter(bursts_of='step').height, 'run')}) of {span(known['burst_ms'])} ms with valleys of "
        f"{span(known['valley_ms'])} ms between them (means of {counted(known.height, 'run')}): computation takes "
        f"{span(known['computation_to_communication'])} times as long as communication."
    )
    columns = [
        texts("run", "run_id"), numbers("batch (samples)", "batch_size", count), texts("pair", "pair", pair),
        texts("over", "stretch"), numbers("bursts", "bursts", count), texts("of a", "bursts_of"),
        numbers("steps", "steps", count), numbers("burst (ms)", "burst_ms"),
        numbers("median", "median_burst_ms"), numbers("valley (ms)", "valley_ms"),
        numbers("median valley", "median_valley_ms"),
        numbers("computation to communication", "computation_to_communication"),
        numbers("in bursts (Gbit/s)", "burst_gbit_per_s"), numbers("share in bursts", "share_in_bursts", percent),
    ]  # fmt: skip
    section.table(frame, columns, "Bursts of each run's busiest pair of hosts.")
    of_excerpts = Source("batch_pair_excerpt")
    excerpts = section.rows(of_excerpts)
    if excerpts.is_empty():
        section.sentences = [
            "No two runs differ in their batch size alone, so no excerpt is drawn: capture a run again with another "
            "batch_size and everything else the same."
        ]
        return
    first = excerpts["run_id"].unique(maintain_order=True).head(BATCH_RUNS)
    shown = excerpts.filter(pl.col("run_id").is_in(first.implode()))
    caption = (
        f"The pair's throughput in windows of {number_of(excerpts['sample_ms'].min()):g} ms, for runs that differ "
        "in their batch size alone, from the first step after the middle of the training."
    )
    section.figure(charts.batch_pair_excerpt, shown, caption, of_excerpts, of=excerpts)


@chapter.section("loss", "Duration and packet loss (fig. 10)", Source("duration_by_loss"))
def packet_loss(section: Section, frame: pl.DataFrame) -> None:
    lossy = section.need(
        frame.filter(pl.col("loss_pct") > 0).drop_nulls("normalised_duration"),
        f"No run can be compared: {counted(frame.filter(pl.col('loss_pct') > 0).height, 'run')} of {frame.height} "
        "declared to lose packets, without a lossless run that is equal in everything else. Declare loss_pct in "
        "run.toml (0 for lossless), or capture the same training without loss.",
    )
    worst = lossy.sort("normalised_duration", descending=True, maintain_order=True).row(0, named=True)
    section.headline = (
        f"In {counted(lossy.height, 'run')} with loss, training takes {span(lossy['normalised_duration'])} times as "
        f"long as without; the longest at {digits(worst['loss_pct'])}% in {worst['run_id']}."
    )
    comparable = frame.drop_nulls(["normalised_duration", "loss_pct"])
    caption = "Duration over the mean of the lossless runs of the same setting."
    section.figure(charts.duration_by_loss, comparable, caption, of=frame)
    columns = [
        texts("run", "run_id"), numbers("packet loss (%)", "loss_pct"), numbers("duration (s)", "duration_s"),
        texts("known from", "duration_source", words), numbers("steps", "steps", count),
        numbers("lossless runs", "lossless_runs", count), texts("compared by", "normalised_by"),
        numbers("of the lossless duration", "normalised_duration"),
    ]  # fmt: skip
    section.table(comparable, columns, "Runs with a lossless run to compare with.")
