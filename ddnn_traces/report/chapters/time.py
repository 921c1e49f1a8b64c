"""When hosts send: over the run, in its busiest stretch, on average."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from ddnn_traces.report.charts import farhat, zerwas
from ddnn_traces.report.number_text import (
    count,
    milliseconds,
    number_of,
    pair,
    percent,
    rate,
    span,
    text,
    times,
    typical,
)
from ddnn_traces.report.section import NO_FLOWS, Chapter, Column, Section, Source, numbers, texts
from ddnn_traces.text import counted, digits

# of a run
TIMELINE_FLOWS, FEWEST_FLOWS = 30, 6
ROWS_OF_FLOWS = 1_200  # of all runs together
BURST_PAIRS = 12
TIMELINE = Source("flow_timeline", {"flows": TIMELINE_FLOWS})
_BURSTS = Source("pair_burst", {"pairs": BURST_PAIRS})


chapter = Chapter("time", "When, and how bursty")


@chapter.section(
    "positions", "Before, during and after training", Source("position_volume"), reference="farhat, figs. 2 and 3"
)
def positions(section: Section, frame: pl.DataFrame) -> None:
    section.need(frame, section.no_steps)
    inferred = section.results.runs_of_inferred_steps
    during, outside = frame.filter(position="during"), frame.filter(pl.col("position") != "during")
    section.headline = (
        f"Training itself carries {span(during['share_of_wire_bytes'], percent)} of a run's bytes and "
        f"{span(during['share_of_packets'], percent)} of its packets; what comes before it or after it is at most "
        f"{percent(number_of(outside['share_of_wire_bytes'].max()))} of the bytes, over "
        f"{counted(frame['run_id'].n_unique(), 'run')} with {_logged_or(frame, inferred, 'a log', 'inferred steps')}."
    )
    by_log, by_traffic = "the log of the worker at which a packet was captured", "the steps that the traffic shows"
    caption = (
        "Before the first step, during training and after the last step, by "
        f"{_logged_or(frame, inferred, by_log, by_traffic)}. Of several runs in a row bars are means, points where "
        "training starts."
    )
    section.figure(farhat.position_volume, frame, caption, has_rows=True)


def _logged_or(frame: pl.DataFrame, inferred: set[str], by_log: str, by_traffic: str) -> str:
    """Where the steps of these runs come from. inferred: the runs without a log."""
    runs = {*frame["run_id"]}
    there = [by_log] if runs - inferred else []
    return " or ".join([*there, by_traffic] if runs & inferred else there)


@chapter.section("flow-timeline", "Activity of flows over time", TIMELINE, NO_FLOWS, reference="zerwas, fig. 6")
def flow_timeline(section: Section, frame: pl.DataFrame) -> None:
    flows = frame.unique(["run_id", "flow_place"])
    large, other = (
        percent(number_of(flows.filter(is_large=is_large)["active_share"].median())) for is_large in (True, False)
    )
    small = f", the median other flow in {other}" if not flows["is_large"].all() else ""
    section.headline = f"The median large flow sends in {large} of its run's windows{small}."
    flows_of = section.rows(Source("flow_counts")).join(frame, on="run_id", how="semi").select("run_id", "flows")
    most = section.results.each(ROWS_OF_FLOWS, TIMELINE_FLOWS, FEWEST_FLOWS)
    frame, flows = (rows.filter(pl.col("flow_place") <= most) for rows in (frame, flows))
    caption = (
        "One row a flow, the largest on top. The more solid a bar, the more the flow sends in the window, as a "
        "share of the run's busiest flow and window. A window is 1, 2 or 5 times a power of ten, the shortest that "
        "makes at most 100 of the run; its length stands over each panel. Of a run at most the "
        f"{most} largest flows are drawn."
    )
    parts = [section.part(flows.height, int(flows_of["flows"].sum()), "flow", query="five_tuples")]
    parts_of = section.part_of_each(flows, flows_of, "flows")
    section.figure(zerwas.flow_timeline, frame, caption, parts=parts, parts_of=parts_of)


@chapter.section("pair-throughput", "Bursts of pairs of hosts", _BURSTS, NO_FLOWS, reference="zerwas, fig. 7")
def pair_throughput(section: Section, frame: pl.DataFrame) -> None:
    peak = frame.sort("gbit_per_s", descending=True, maintain_order=True).row(0, named=True)
    window_ms, excerpt_ms = (f"{number_of(frame[name].min()):g}" for name in ("window_ms", "excerpt_ms"))
    share, over = peak["link_share"], (frame["link_share"] > 1).any()
    of_link = f" ({percent(share)} of the declared rate of its link)" if share else ""
    section.headline = (
        f"In the {excerpt_ms} ms in which its run transmits most, the highest throughput of a pair is "
        f"{rate(peak['gbit_per_s'])} over {peak['window_ms']:g} ms{of_link}: {peak['pair']} in {peak['run_id']}."
    )
    caption = (
        f"Throughput in windows of {window_ms} ms over the {excerpt_ms} ms in which the run transmits most; a "
        "row is a directed pair of hosts, its full height the highest value of these, which stands over the panel. Of "
        f"a run at most the {BURST_PAIRS} pairs that send most are drawn."
        + (" A shaper passes its burst above the rate; the check link_rate finds more than that." if over else "")
    )
    pairs_of = section.rows(Source("traffic_matrix")).join(frame, on="run_id", how="semi").group_by("run_id").len()
    shown = frame.select("run_id", "pair").unique()
    parts = [section.part(shown.height, int(pairs_of["len"].sum()), "directed pair")]
    parts_of = section.part_of_each(shown, pairs_of, "directed pairs")
    section.figure(zerwas.pair_throughput, frame, caption, parts=parts, parts_of=parts_of)


@chapter.section(
    "total-throughput",
    "Total throughput and how certain it is",
    Source("total_throughput"),
    reference="zerwas, table I",
)
def total_throughput(section: Section, frame: pl.DataFrame) -> None:
    published = Source("total_throughput", {"method": "paper"})
    timed = by_inferred_steps(section, frame)
    known = section.need(timed.drop_nulls("gbit_per_s"), NO_FLOWS)
    drawn = _of_stretches(known)
    trained, killed = without_kills(section, drawn)
    mean = f" on average {by_stretch(trained, _span)}" if trained.height else ""
    partly = section.results.partly_covered.issuperset(known["run_id"])
    links = "all links that its captures show" if partly else "all links"
    said = f"Over {links} together a run transmits{mean}{_certainty(trained)}." if mean else ""
    section.headline = f"{said}{killed}".strip()
    caption = (
        f"Mean of the throughput of each run {_stretches(drawn)}. A bar is the 95% "
        "interval within the run, where the mean of a longer run would be, of samples of a step or more; "
        f"{_FEW_SAMPLES}.{_WITH_PAUSE if killed else ''}"
    )
    sources = [section.source, *([_INFERRED] if "inferred" in set(drawn["stretch"]) else [])]
    parts = [section.part(drawn, frame)]
    section.figure(zerwas.throughput_intervals, drawn, caption, *sources, has_rows=True, parts=parts)
    columns = [*_interval_columns(), numbers("share of the links", "link_share", percent)]
    inferred = numbers("from the first to the last inferred step (Gbit/s)", "inferred")
    section.table(
        timed,
        [*columns[:2], inferred, *columns[2:]],
        "Throughput of each run; the interval says nothing about other runs of the setting.",
    )
    of_repeats = Source("total_throughput", {"pool_by": "framework_setting,model"})
    repeats = section.rows(of_repeats).filter(pl.col("runs") > 1)
    repeats = repeats.filter(~pl.col("pooled_by").str.contains(_UNDECLARED))
    if not repeats.is_empty():
        caption = (
            "Runs of one framework and model, as in the paper's table. A run counts as one, an interval takes three. "
            "Settings in which they differ are named: repeats differ in none."
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


#: Of a cell whose settings no run declares: its runs are no repeats of each other.
_UNDECLARED = r"^\w+ unknown(, \w+ unknown)*$"
_INFERRED = Source("inferred_throughput")
#: What a mean is of, as a headline says it: idle time of a capture makes it another quantity than one in training.
_STRETCHES = {
    "training": "in training",
    "inferred": "from the first to the last inferred step",
    "capture": "over the capture, idle time included",
}


def by_inferred_steps(section: Section, means: pl.DataFrame) -> pl.DataFrame:
    """The rows of total_throughput with a column inferred: of runs without a log, the rate of inferred_throughput."""
    steps = section.rows(_INFERRED).select("run_id", inferred="gbit_per_s")
    is_capture = pl.col("stretch") == "capture"
    return means.join(steps, on="run_id", how="left", maintain_order="left").with_columns(
        inferred=pl.when(is_capture).then("inferred")
    )


def without_kills(section: Section, means: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """The runs in which nothing was killed on purpose, and a sentence on the others: hardly anything is sent until
    their training goes on, which is no throughput of training. Empty where there are none."""
    killed = section.rows(Source("fault_recovery")).join(means, on="run_id", how="semi")
    if killed.is_empty():
        return means, ""
    rest = means.join(killed, on="run_id", how="anti", maintain_order="left")
    passes = f"; {typical(killed, 'recovery_s', _seconds)} pass until the next step ends"
    why = f"a process or host was killed{passes if killed['recovery_s'].count() else ''} (query fault_recovery)"
    if rest.is_empty():
        where = "" if means.height == 1 else f" in {'both' if means.height == 2 else f'all {means.height:,}'} runs"
        return rest, f" There is no mean of a training without a pause:{where} {why}."
    number = f"{killed.height:,} of {counted(means.height, 'run')}"
    return rest, f" The mean leaves out {number}, in {'which' if killed.height == 1 else 'each of which'} {why}."


_WITH_PAUSE = " That of a run with a kill has its pause."


def _seconds(value: float) -> str:
    return f"{digits(value)} s"


def _of_stretches(means: pl.DataFrame) -> pl.DataFrame:
    """The means of which a headline speaks: where there are inferred steps the rate of these, in place of all that
    total_throughput says of the capture."""
    if "inferred" not in means.columns:
        return means
    is_inferred = pl.col("inferred").is_not_null()
    of_capture = [name for name in _OF_SAMPLES if name in means.columns]
    return means.with_columns(
        pl.coalesce("inferred", "gbit_per_s").alias("gbit_per_s"),
        pl.when(~is_inferred).then(pl.col(*of_capture)) if of_capture else [],
        stretch=pl.when(is_inferred).then(pl.lit("inferred")).otherwise("stretch"),
    ).drop("inferred")


#: Columns of total_throughput about the samples of which a mean is.
_OF_SAMPLES = (
    "low_gbit_per_s", "high_gbit_per_s", "half_width_gbit_per_s", "computation", "samples", "sample_ms",
    "lag1_autocorrelation",
)  # fmt: skip


def _stretches(means: pl.DataFrame) -> str:
    there = set(means["stretch"])
    return "; or ".join(said for name, said in _STRETCHES.items() if name in there)


def by_stretch(means: pl.DataFrame, form: Callable[[pl.DataFrame], str]) -> str:
    """What `form` says of the means, those of a training, of inferred steps and of a whole capture apart."""
    means = _of_stretches(means)
    groups = means.partition_by("stretch", as_dict=True)
    found = {said: groups[name,] for name, said in _STRETCHES.items() if (name,) in groups}
    values = [(form(rows), said, counted(rows.height, "run")) for said, rows in found.items()]
    return ", ".join(
        f"{value} {said}{f' ({runs})' if len(values) > 1 and runs not in value else ''}" for value, said, runs in values
    )


def _span(means: pl.DataFrame) -> str:
    return span(means["gbit_per_s"], rate)


_FEW_SAMPLES = "with fewer than 200 samples there is none"


def _certainty(known: pl.DataFrame) -> str:
    """How wide the intervals within the runs are, and how many runs have one."""
    sure = known.drop_nulls("half_width_gbit_per_s")
    if sure.is_empty():
        return f"; no interval within a run: {_why_uncertain(known)}"
    widths = span(sure["half_width_gbit_per_s"] / sure["gbit_per_s"], percent)
    return f"; the 95% interval within a run is the mean ± {widths}, in {sure.height} of {counted(known.height, 'run')}"


#: A part of total_throughput's computation -> why runs have no interval.
_NO_INTERVAL = {
    "fewer than": "fewer than 200 samples of a step or more",
    "shorter than a step": "samples shorter than a step",
    "": "no log, which states how long a step, and so a sample, is",
}


def _why_uncertain(known: pl.DataFrame) -> str:
    """The reasons for which none of these means has an interval, with the number of runs where there are several."""
    said = known["computation"].fill_null("").to_list()
    of_run = [next(why for part, why in _NO_INTERVAL.items() if part in computation) for computation in said]
    runs = {why: of_run.count(why) for why in _NO_INTERVAL.values() if why in of_run}
    return " and ".join(
        why + (f" in {counted(number, 'run')}" if len(runs) > 1 else "") for why, number in runs.items()
    )


_POOLED_COLUMNS = [
    texts("runs of", "pooled_by"),
    numbers("runs", "runs", count),
    texts("that differ in", "pooled"),
    numbers("mean (Gbit/s)", "gbit_per_s"),
    numbers("95% interval over runs, ±", "half_width_gbit_per_s"),
    texts("computed", "computation"),
]


def _interval_columns() -> list[Column]:
    return [
        texts("run", "run_id"),
        numbers("mean (Gbit/s)", "gbit_per_s"),
        numbers("95% interval within the run, ±", "half_width_gbit_per_s"),
        texts("over", "stretch"),
        texts("computed", "computation"),
        numbers("samples", "samples", count),
        numbers("each (ms)", "sample_ms"),
        numbers("lag-1 autocorrelation", "lag1_autocorrelation"),
    ]


@chapter.section(
    "gradient-flow",
    "Throughput of the flow that carries gradients",
    Source("gradient_flow_throughput"),
    reference="zerwas, table II",
)
def gradient_flow(section: Section, frame: pl.DataFrame) -> None:
    known = section.need(frame.drop_nulls("gbit_per_s"), NO_FLOWS)
    trained, killed = without_kills(section, known)
    mean = f"averages {by_stretch(trained, _span)}, and in" if trained.height else "has in"
    section.headline = (
        f"The flow with the most payload {mean} its busiest window {span(known['peak_gbit_per_s'], rate)}.{killed}"
    )
    caption = (
        f"Mean with its 95% interval within the run ({_FEW_SAMPLES}), and the busiest window of "
        f"{number_of(known['peak_sample_ms'].max()):g} ms.{_WITH_PAUSE if killed else ''}"
    )
    parts = [section.part(known, frame)]
    section.figure(zerwas.gradient_flow_intervals, known, caption, has_rows=True, parts=parts)
    run, *others = _interval_columns()
    columns = [
        run,
        Column("flow", _flow),
        numbers("peak (Gbit/s)", "peak_gbit_per_s"),
        numbers("share of the link", "link_share", percent),
        numbers("peak share of the link", "peak_link_share", percent),
        *others,
    ]
    section.table(frame, columns, "The gradient-carrying flow of each run.")
    published = Source(section.source.query, {"method": "paper"}).command
    section.sentences = [
        *_above_the_link(known),
        f"The published computation (± 1.96 s / 10 over 30 samples) and its correction: {published}",
    ]


def _above_the_link(known: pl.DataFrame) -> list[str]:
    """How many runs' busiest windows are above the declared rate of their link, and why that can be."""
    above = known.filter(pl.col("peak_link_share") > 1)
    if above.is_empty():
        return []
    explained = above.filter(pl.col("peak_link_share") <= pl.col("most_link_share")).height
    return [
        f"In {above.height} of {counted(known['link_share'].count(), 'run')} with a declared rate, the busiest window "
        f"is above it: up to {percent(number_of(above['peak_link_share'].max()))} of the rate. In {explained} of these "
        "runs the declared burst of the shaper (burst_bytes) explains this: packets are captured as they leave it.",
    ]


def _flow(row: dict[str, object]) -> str:
    if row["src_host"] is None:
        return "–"
    return f"{row['src_host']}:{text(row['src_port'])} → {row['dst_host']}:{text(row['dst_port'])}"


@chapter.section(
    "batch-sizes",
    "Bursts and valleys by batch size",
    Source("batch_burst_structure"),
    reference="zerwas, fig. 9",
    draws=("batch_pair_excerpt",),
)
def batch_sizes(section: Section, frame: pl.DataFrame) -> None:
    known = section.need(
        frame.drop_nulls("computation_to_communication"),
        "No run has two bursts of its busiest pair of hosts with a pause between them, so there is no valley.",
    )
    section.headline = (
        f"The busiest pair of a run sends in bursts (of a step, where pauses show steps, in "
        f"{counted(known.filter(bursts_of='step').height, 'run')}) of {span(known['burst_ms'], milliseconds)} with "
        f"valleys of {span(known['valley_ms'], milliseconds)} between them (means of {counted(known.height, 'run')}): "
        f"valleys are {span(known['computation_to_communication'], times)} as long, and hold computation and "
        "waiting for the network alike."
    )
    columns = [
        texts("run", "run_id"), numbers("batch (samples)", "batch_size", count), texts("pair", "pair", pair),
        texts("over", "stretch"), numbers("bursts", "bursts", count), texts("of a", "bursts_of"),
        numbers("steps", "steps", count), numbers("burst (ms)", "burst_ms"),
        numbers("median", "median_burst_ms"), numbers("valley (ms)", "valley_ms"),
        numbers("median valley", "median_valley_ms"),
        numbers("valley to burst", "computation_to_communication"),
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
    caption = (
        "The pair's throughput for runs that differ in their batch size alone, from the first step after the middle of "
        "the training on: two steps of the run in which they take longest, in at most 250 windows."
    )
    section.figure(zerwas.batch_pair_excerpt, excerpts, caption, of_excerpts)
