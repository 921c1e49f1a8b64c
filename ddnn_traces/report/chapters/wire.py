"""What the wire tells, for which no paper has a figure: topology, conservation, steps, overlap and stragglers."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.answers import NO_FLOWS, NO_LOG, Answers, figure
from ddnn_traces.report.charts import wire
from ddnn_traces.report.section import Column, Section, Source, named, numbers, table
from ddnn_traces.report.words import (  # fmt: skip
    count,
    digits_span,
    left_out,
    number,
    number_of,
    percent,
    percents,
    size,
    words,
    yes_no,
)

# What a figure shows at most, so that a page of any dataset stays readable and below 15 MB.
BOUNDARY_RUNS, PANEL_RUNS = 12, 12
BANDWIDTH_STEPS = 100


def topology(answers: Answers) -> Section:
    slug, title = "topology", "Topology, inferred from payload"
    source = Source("topology")
    frame = answers.frame(source)
    if frame.is_empty():
        return Section(slug, title, NO_FLOWS)
    kinds = frame.group_by("topology").len().sort(["len", "topology"], descending=[True, False])
    found = ", ".join(f"{words(kind)} {runs:,}" for kind, runs in kinds.iter_rows())
    sure = frame.filter(pl.col("topology") != "unknown")["confidence"].drop_nulls()
    with_confidence = f"; confidence {percents(sure)}" if len(sure) else ""
    headline = f"The traffic of {number(frame.height, 'run')} shows: {found}{with_confidence}."
    columns = [
        named("run", "run_id"), named("topology", "topology", words), numbers("confidence", "confidence", percent),
        named("root or centre", "root_ip"), numbers("hosts", "hosts", count),
        numbers("directed pairs", "edges", count), numbers("payload on them", "matched_share", percent),
        Column("runner-up", _runner_up, is_number=False), numbers("evenness", "evenness"),
        numbers("irregularity", "irregularity"), numbers("turn", "turn"), named("by steps", "by_steps", yes_no),
    ]  # fmt: skip
    caption = (
        "From payload inside steps alone. Evidence: the share of payload on the matched pairs, and the best that "
        "another shape's pairs could carry (runner-up); how alike the pairs' volumes are (evenness), how much a pair's "
        "volume varies from step to step (irregularity), and how much later one direction of a link starts than the "
        "other (turn)."
    )
    return Section(slug, title, headline, tables=[table(frame, columns, caption, source)])


def _runner_up(row: dict[str, object]) -> str:
    share = row["runner_up_share"]
    return "–" if row["runner_up"] is None else f"{words(str(row['runner_up']))}, {percent(number_of(share))}"


def rings(answers: Answers) -> Section:
    slug, title = "rings", "Rings, declared and inferred"
    source = Source("ring_comparison")
    frame = answers.frame(source)
    declared = frame.filter(pl.col("agrees").is_not_null())
    found = frame["is_ring"].sum()
    if declared.is_empty():
        headline = (
            f"No run declares a topology; {found:,} of {number(frame.height, 'run')} sent in a ring. "
            "A run.toml with topology and the hosts' ring_position gives something to compare with."
        )
    else:
        headline = (
            f"Traffic agrees with the declaration in {declared['agrees'].sum()} of {number(declared.height, 'run')} "
            f"that declare a topology; {number(found, 'run')} sent in a ring."
        )
    columns = [
        named("run", "run_id"), named("topology (declared)", "declared_topology", words),
        named("ring (declared)", "declared_ring"),
        named("ring (inferred from traffic)", "inferred_ring", lambda ring: ring or "no ring"),
        named("agrees", "agrees", yes_no),
    ]  # fmt: skip
    caption = (
        "Order in which data flows from host to host. Rings agree where they have the same edges in the same direction."
    )
    return Section(slug, title, headline, tables=[table(frame, columns, caption, source)])


def conservation(answers: Answers) -> Section:
    slug, title = "conservation", "What the algorithm must move, and what was moved"
    source = Source("conservation")
    frame = answers.frame(source)
    judged = frame.filter(pl.col("flagged").is_not_null())
    if judged.is_empty():
        problems = ", ".join(frame["problem"].drop_nulls().unique().sort().to_list()) or "no runs"
        headline = (
            f"No run can be held against what its algorithm must move ({problems}): that needs steps (a training log), "
            "a topology that is told from them, and model_bytes in a run.toml."
        )
    else:
        flagged = judged.filter("flagged")
        worst = judged.sort(pl.col("unexplained_share").abs(), descending=True, maintain_order=True).row(0, named=True)
        headline = (
            f"{judged.height - flagged.height} of {number(judged.height, 'run')} transmit what the algorithm must move "
            f"to within 2%; the most that is unexplained is {percent(worst['unexplained_share'])}, in "
            f"{worst['run_id']}."
        )
    columns = [
        named("run", "run_id"), named("topology", "topology", words), named("law", "law", words),
        numbers("expected payload", "expected_bytes", size), numbers("payload in steps", "payload_bytes", size),
        numbers("after the last step", "spilled_bytes", size), numbers("sent again", "retransmitted_bytes", size),
        numbers("unexplained", "unexplained_share", percent), numbers("control", "control_bytes", size),
        numbers("headers", "header_bytes", size), named("flagged", "flagged", yes_no), named("problem", "problem"),
    ]  # fmt: skip
    caption = "Payload of the pairs that carry the exchange, of all steps, against the law of the run's algorithm."
    return Section(slug, title, headline, tables=[table(frame, columns, caption, source)])


def bus_bandwidth(answers: Answers) -> Section:
    slug, title = "bus-bandwidth", "Algorithm and bus bandwidth, from the wire"
    source = Source("bus_bandwidth")
    frame = answers.frame(source).drop_nulls("bus_gbit_per_s")
    if frame.is_empty():
        return Section(
            slug,
            title,
            "No run has steps (a training log) and a topology that is told from them, which the bandwidth of an "
            "algorithm needs.",
        )
    names = ["exchanged_bytes", "exchange_ms", "algorithm_gbit_per_s", "bus_gbit_per_s", "link_gbit_per_s"]
    keys = ["run_id", "algorithm", "law", "vantage", "hosts"]
    medians = frame.group_by(keys, maintain_order=True).agg(pl.len().alias("steps"), pl.col(names).median())
    headline = (
        f"In the median step of a run the bus carries {digits_span(medians['bus_gbit_per_s'])} Gbit/s, and the busiest "
        f"host's link {digits_span(medians['link_gbit_per_s'])} Gbit/s, over {number(medians.height, 'run')}."
    )
    drawn = answers.first_runs(frame, PANEL_RUNS)
    shown = drawn.group_by("run_id", maintain_order=True).head(BANDWIDTH_STEPS)
    steps = f"Of a run the first {BANDWIDTH_STEPS} steps are drawn. " if shown.height < drawn.height else ""
    caption = (
        "Bus bandwidth is what the algorithm exchanges over the time with payload on the busiest worker's wire, times "
        "2(N-1)/N, so that numbers of workers compare; link is what the busiest host sent or received in that time. "
        f"{steps}{left_out(shown['run_id'].n_unique(), medians.height, source.query)}"
    )
    columns = [
        named("run", "run_id"), named("algorithm", "algorithm", words), named("law", "law", words),
        named("vantage", "vantage"), numbers("hosts", "hosts", count), numbers("steps", "steps", count),
        numbers("exchanged", "exchanged_bytes", size), numbers("exchange (ms)", "exchange_ms"),
        numbers("algorithm (Gbit/s)", "algorithm_gbit_per_s"), numbers("bus (Gbit/s)", "bus_gbit_per_s"),
        numbers("link (Gbit/s)", "link_gbit_per_s"),
    ]  # fmt: skip
    values = table(medians, columns, "Medians of a run's steps; the query has every step.", source)
    chart = figure("bus_bandwidth", wire.bus_bandwidth(shown), caption, [source])
    return Section(slug, title, headline, [chart], [values])


def inferred_steps(answers: Answers) -> Section:
    slug, title = "inferred-steps", "Steps without a log"
    source = Source("step_inference_score")
    boundaries = Source("step_boundaries", {"runs": BOUNDARY_RUNS})
    score, frame = answers.frame(source), answers.frame(boundaries)
    structured = score.filter("structured")
    scored = structured.drop_nulls(["recall", "precision"])
    against = (
        f"; against the logs of {number(scored.height, 'run')}, {percents(scored['recall'])} of the boundaries are "
        f"found and {percents(scored['precision'])} of those found are right"
        if not scored.is_empty()
        else "; there is no log to hold them against"
    )
    headline = (
        f"Traffic alone shows steps in {structured.height} of {number(score.height, 'run')}"
        f"{against if not structured.is_empty() else ''}."
    )
    columns = [
        named("run", "run_id"), named("steps in the traffic", "structured", yes_no),
        numbers("confidence", "confidence", percent), numbers("boundaries in the logs", "in_log", count),
        numbers("inferred", "inferred", count), numbers("matched within 5 ms", "matched", count),
        numbers("recall", "recall", percent), numbers("precision", "precision", percent),
        numbers("recall (first worker's log)", "first_worker_recall", percent),
        numbers("log is later by (ms, median)", "median_delay_ms"),
    ]  # fmt: skip
    values = table(score, columns, "Boundaries inferred from traffic against those of the logs.", source)
    if frame.is_empty():
        return Section(slug, title, headline, tables=[values])
    caption = (
        "Ends of the first steps. Asynchronous runs have no structure in their traffic. "
        f"{left_out(frame['run_id'].n_unique(), score.height, boundaries.query)}"
    )
    chart = figure("step_boundaries", wire.step_boundaries(frame), caption, [boundaries])
    return Section(slug, title, headline, [chart], [values])


def overlap(answers: Answers) -> Section:
    slug, title = "overlap", "Communication behind computation"
    source = Source("overlap_summary")
    frame = answers.frame(source)
    if frame.is_empty():
        return Section(slug, title, NO_LOG)
    drawable = frame.drop_nulls("only_wire_ms")
    if drawable.is_empty():
        return Section(
            slug,
            title,
            "No traffic is known to be that of a worker in the logs: a label there has to be that of a host (label in "
            "run.toml, or a capture named after the worker).",
        )
    known = frame.drop_nulls("overlap_share")
    on_wire = f"A worker sends or receives payload in {percents(frame['wire_share_of_step'].drop_nulls())} of a step"
    if known.is_empty():
        headline = (
            f"{on_wire}; what of it is behind computation needs the program's own intervals (phases-worker-N.csv "
            "beside the captures)."
        )
    else:
        headline = (
            f"{on_wire}; {percents(known['overlap_share'])} of that is behind its computation, by the intervals of "
            f"{number(known['run_id'].n_unique(), 'run')}."
        )
    shown = answers.first_runs(drawable, PANEL_RUNS)
    caption = (
        "Means of a worker's steps. Where a program says when it computes, overlap is measured; elsewhere "
        "communication is taken to be the time with payload on the wire, and the rest computation. "
        f"{left_out(shown['run_id'].n_unique(), frame['run_id'].n_unique(), source.query)}"
    )
    return Section(slug, title, headline, [figure("overlap_shares", wire.overlap_shares(shown), caption, [source])])


def stragglers(answers: Answers) -> Section:
    slug, title = "stragglers", "Stragglers, and what they cost"
    source = Source("straggler_summary")
    frame = answers.frame(source)
    waiting = frame.drop_nulls("worker")
    runs = frame["run_id"].n_unique()
    if waiting.is_empty():
        return Section(
            slug,
            title,
            f"In none of {number(runs, 'run')} do workers wait for each other, as far as logs of several workers tell: "
            "each needs a train_history-worker-N.log.",
        )
    costs = waiting.unique("run_id", maintain_order=True)["run_cost_share"].drop_nulls()
    most = waiting.sort("share_last", descending=True, maintain_order=True).row(0, named=True)
    cost = f", which costs {percents(costs)} of a run's time" if len(costs) else ""
    headline = (
        f"In {waiting['run_id'].n_unique()} of {number(runs, 'run')} workers wait for the last to start{cost}; most "
        f"often the same, in {percent(most['share_last'])} of the steps, for {most['worker']} of {most['run_id']}."
    )
    shown = answers.first_runs(waiting, PANEL_RUNS)
    caption = (
        "Slack is how much later a worker could start to communicate without making the step longer. The cost is how "
        "much shorter steps were, had the last started with the median worker. "
        f"{left_out(shown['run_id'].n_unique(), runs, source.query)}"
    )
    return Section(slug, title, headline, [figure("straggler_slack", wire.straggler_slack(shown), caption, [source])])
