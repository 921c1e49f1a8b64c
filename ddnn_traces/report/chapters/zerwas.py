"""Zerwas, the traffic itself: who sends to whom, in how many flows, when and how bursty (figs. 4 to 7)."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.answers import NO_FLOWS, Answers, figure
from ddnn_traces.report.charts import zerwas
from ddnn_traces.report.section import Figure, Section, Source
from ddnn_traces.report.words import left_out, number_of, percent, percents, span

# What a figure shows at most, so that a page of any dataset stays readable and below 15 MB.
HEATMAP_RUNS, HEATMAP_HOSTS = 24, 32
TIMELINE_RUNS, TIMELINE_FLOWS = 12, 30
BURST_RUNS, BURST_PAIRS = 12, 12
BAR_RUNS = 80


def heatmaps(answers: Answers) -> Section:
    slug, title = "heatmaps", "Who sends to whom (fig. 4)"
    source = Source("pair_volume", {"runs": HEATMAP_RUNS, "hosts": HEATMAP_HOSTS})
    frame = answers.frame(source)
    if frame.is_empty():
        return Section(slug, title, NO_FLOWS)
    heavy = frame.group_by("run_id").agg(
        pl.col("is_heavy").sum(), share=pl.col("share_of_run").filter("is_heavy").sum()
    )
    headline = (
        f"A run's heaviest pairs of hosts ({span(heavy['is_heavy'], 'directed pair')}, each sending at least half as "
        f"much as the first) carry {percents(heavy['share'])} of its volume{answers.of_drawn(frame)}."
    )
    caption = (
        "Transmitted volume of each directed pair of hosts, in one logarithmic colour scale for all runs; k, M and G "
        "are 10³, 10⁶ and 10⁹ bytes. W is a worker, PS a parameter server, Ch. the chief. "
        f"{_hosts_left_out(frame)}{left_out(frame['run_id'].n_unique(), answers.places.height, 'pair_volume')}"
    )
    runs = figure("volume_heatmaps", zerwas.volume_heatmaps(frame), caption, [source])
    return Section(slug, title, headline, [runs, _mean_heatmaps(answers)])


def _hosts_left_out(frame: pl.DataFrame) -> str:
    least = number_of(frame.group_by("run_id").agg(pl.col("share_of_run").sum())["share_of_run"].min())
    if least > 1 - 1e-9:
        return ""
    return (
        f"Of each run the {HEATMAP_HOSTS} hosts with the most traffic are drawn; in the worst case the pairs among "
        f"them carry {percent(least)} of the run's volume. "
    )


def _mean_heatmaps(answers: Answers) -> Figure:
    source = Source("mean_traffic_matrix")
    frame = answers.frame(source)
    configurations = frame["configuration"].unique(maintain_order=True)
    shown = frame.filter(
        pl.col("configuration").is_in(configurations.head(HEATMAP_RUNS).implode()),
        pl.max_horizontal("src_place", "dst_place") <= HEATMAP_HOSTS,
    )
    hosts = (
        f"Of each the first {HEATMAP_HOSTS} hosts by rank are drawn. "
        if number_of(frame.select(pl.max_horizontal("src_place", "dst_place").max()).item()) > HEATMAP_HOSTS
        else ""
    )
    caption = (
        "The same, as the mean over the runs of each configuration: framework setting and declared topology. "
        f"{hosts}{left_out(shown['configuration'].n_unique(), len(configurations), source.query, 'configuration')}"
    )
    return figure("mean_volume_heatmaps", zerwas.mean_volume_heatmaps(shown), caption, [source])


def flow_counts(answers: Answers) -> Section:
    slug, title = "flow-counts", "How many flows (fig. 5)"
    source = Source("flow_counts")
    counts = answers.frame(source).filter(pl.col("flows") > 0)
    if counts.is_empty():
        return Section(slug, title, NO_FLOWS)
    headline = (
        f"A run has {span(counts['flows'], 'flow')}; 99% of its volume is in {span(counts['large_flows'], 'large one')}"
        f". {span(counts['acknowledgement_flows'], 'flow').capitalize()} only acknowledge large ones, and "
        f"{span(counts['side_flows'], 'flow')} carry something else."
    )
    frame = answers.first_runs(counts, BAR_RUNS)
    caption = (
        "Flows are directed five-tuples, so a TCP connection is two. Large flows are the fewest that carry 99% of the "
        "run's bytes on the wire, an acknowledgement flow among them counted as such: it goes back along a large flow "
        "with nearly no payload. Side flows are all others. "
        f"{left_out(frame.height, counts.height, source.query)}"
    )
    return Section(slug, title, headline, [figure("flow_counts", zerwas.flow_counts(frame), caption, [source])])


def flow_timeline(answers: Answers) -> Section:
    slug, title = "flow-timeline", "When flows send (fig. 6)"
    source = Source("flow_timeline", {"runs": TIMELINE_RUNS, "flows": TIMELINE_FLOWS})
    frame = answers.frame(source)
    if frame.is_empty():
        return Section(slug, title, NO_FLOWS)
    flows = frame.unique(["run_id", "flow_place"])
    shares = [number_of(flows.filter(pl.col("is_large") == large)["active_share"].median()) for large in (True, False)]
    small = f", the median other flow in {percent(shares[1])}" if flows["is_large"].not_().any() else ""
    large = f"The median large flow sends in {percent(shares[0])} of its run's windows"
    headline = f"{large}{small}{answers.of_drawn(frame)}."
    counts = answers.frame(Source("flow_counts")).filter(pl.col("run_id").is_in(frame["run_id"].unique().implode()))
    fewer = (
        f"Of a run the {TIMELINE_FLOWS} largest flows are drawn. "
        if number_of(counts["flows"].max()) > TIMELINE_FLOWS
        else ""
    )
    caption = (
        "One row a flow, the largest on top. The more solid a bar, the more the flow sends in the window, as a share "
        "of the run's busiest flow and window. A window is 1, 2 or 5 times a power of ten, the shortest that makes at "
        f"most 100 of the run; its length stands over each panel. {fewer}"
        f"{left_out(frame['run_id'].n_unique(), answers.places.height, 'flow_timeline')}"
    )
    return Section(slug, title, headline, [figure("flow_timeline", zerwas.flow_timeline(frame), caption, [source])])


def pair_throughput(answers: Answers) -> Section:
    slug, title = "pair-throughput", "How bursty pairs of hosts are (fig. 7)"
    source = Source("pair_burst", {"runs": BURST_RUNS, "pairs": BURST_PAIRS})
    frame = answers.frame(source)
    if frame.is_empty():
        return Section(slug, title, NO_FLOWS)
    peak = frame.sort("gbit_per_s", descending=True, maintain_order=True).row(0, named=True)
    headline = (
        f"The highest throughput of a pair is {peak['gbit_per_s']:.3g} Gbit/s over {peak['window_ms']:g} ms: "
        f"{peak['pair']} in {peak['run_id']}{answers.of_drawn(frame)}."
    )
    window_ms, excerpt_ms = (f"{number_of(frame[name].min()):g}" for name in ("window_ms", "excerpt_ms"))
    caption = (
        f"Throughput in windows of {window_ms} ms over the {excerpt_ms} ms in which the run transmits most; a row is a "
        "directed pair of hosts, its full height the run's highest value, which stands over the panel. Of a run at "
        f"most the {BURST_PAIRS} pairs that send most are drawn. "
        f"{left_out(frame['run_id'].n_unique(), answers.places.height, 'pair_burst')}"
    )
    return Section(slug, title, headline, [figure("pair_throughput", zerwas.pair_throughput(frame), caption, [source])])
