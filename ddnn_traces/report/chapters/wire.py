"""Results that no paper has a figure of: topology, conservation, steps without a log, overlap and stragglers."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.charts import wire as charts
from ddnn_traces.report.section import NO_FLOWS, NO_LOG, Chapter, Column, Section, Source, numbers, texts
from ddnn_traces.report.words import count, number_of, percent, size, span, words, yes_no
from ddnn_traces.text import counted

# Most that a figure shows, so that a page of any dataset stays readable and below 15 MB.
BOUNDARY_RUNS, PANEL_RUNS = 12, 12
BANDWIDTH_STEPS = 100

chapter = Chapter("wire", "Beyond the papers")


@chapter.section("topology", "Topology, inferred from payload", Source("topology"), NO_FLOWS)
def topology(section: Section, frame: pl.DataFrame) -> None:
    kinds = frame.group_by("topology").len().sort(["len", "topology"], descending=[True, False])
    found = ", ".join(f"{words(kind)} {runs:,}" for kind, runs in kinds.iter_rows())
    sure = frame.filter(pl.col("topology") != "unknown")["confidence"].drop_nulls()
    confidence = f"; confidence {span(sure, percent)}" if len(sure) else ""
    section.headline = f"The traffic of {counted(frame.height, 'run')} shows: {found}{confidence}."
    columns = [
        texts("run", "run_id"), texts("topology", "topology", words), numbers("confidence", "confidence", percent),
        texts("root or centre", "root_ip"), numbers("hosts", "hosts", count),
        numbers("directed pairs", "edges", count), numbers("payload on them", "matched_share", percent),
        Column("runner-up", _runner_up), numbers("evenness", "evenness"),
        numbers("irregularity", "irregularity"), numbers("turn", "turn"), texts("by steps", "by_steps", yes_no),
    ]  # fmt: skip
    caption = (
        "From payload inside steps alone. Evidence: the share of payload on the matched pairs, and the best that "
        "another shape's pairs could carry (runner-up); how alike the pairs' volumes are (evenness), how much a pair's "
        "volume varies from step to step (irregularity), and how much later one direction of a link starts than the "
        "other (turn)."
    )
    section.table(frame, columns, caption)


def _runner_up(row: dict[str, object]) -> str:
    share = row["runner_up_share"]
    return "–" if row["runner_up"] is None else f"{words(str(row['runner_up']))}, {percent(number_of(share))}"


@chapter.section("rings", "Topologies and rings, declared and inferred", Source("ring_comparison"))
def rings(section: Section, frame: pl.DataFrame) -> None:
    columns = [
        texts("run", "run_id"), texts("topology (declared)", "declared_topology", words),
        texts("topology (inferred)", "inferred_topology", words), texts("ring (declared)", "declared_ring"),
        texts("ring (inferred from traffic)", "inferred_ring", lambda ring: ring or "no ring"),
        texts("order", "ring_order"), texts("agrees", "agrees", yes_no), texts("not comparable", "problem"),
    ]  # fmt: skip
    caption = (
        "Order in which data flows from host to host. A declared order agrees where the ring has the same edges, in "
        "the same direction where that is declared; topologies that send the same agree."
    )
    section.table(frame, columns, caption)
    found = int(frame["is_ring"].sum())
    declared = section.need(
        frame.drop_nulls("agrees"),
        f"No run has a declared topology that can be compared; {found:,} of {counted(frame.height, 'run')} sent in a "
        "ring. Declare topology and the hosts' ring_position in a run.toml to compare them.",
    )
    section.headline = (
        f"The inferred topology is the declared one in {declared['agrees'].sum()} of {counted(declared.height, 'run')} "
        f"that can be compared; {counted(found, 'run')} sent in a ring."
    )


@chapter.section("conservation", "Expected and observed volume", Source("conservation"))
def conservation(section: Section, frame: pl.DataFrame) -> None:
    columns = [
        texts("run", "run_id"), texts("topology", "topology", words), texts("law", "law", words),
        numbers("expected payload", "expected_bytes", size), numbers("payload in steps", "payload_bytes", size),
        numbers("spilled", "spilled_bytes", size), numbers("start-up in steps", "startup_in_steps_bytes", size),
        numbers("sent again", "retransmitted_bytes", size), numbers("framing", "framing_bytes", size),
        numbers("not captured", "missed_bytes", size),
        numbers("unexplained", "unexplained_bytes", size), numbers("unexplained share", "unexplained_share", percent),
        texts("not estimated", "not_estimated"), numbers("control", "control_bytes", size),
        numbers("headers", "header_bytes", size), texts("flagged", "flagged", yes_no), texts("problem", "problem"),
    ]  # fmt: skip
    caption = (
        "Payload of the pairs that carry the exchange, of all steps, against the law of the run's algorithm. "
        "Unexplained is payload in steps and spilled, less start-up, sent again, framing and expected payload, and "
        "what was not captured. What is not estimated is in it."
    )
    section.table(frame, columns, caption)
    problems = ", ".join(frame["problem"].drop_nulls().unique().sort().to_list()) or "no runs"
    judged = section.need(
        frame.drop_nulls("flagged"),
        f"No run can be compared with the volume that its algorithm must transmit ({problems}): that needs steps (a "
        "training log), a topology that is inferred from them, and model_bytes in a run.toml.",
    )
    worst = judged.sort(pl.col("unexplained_share").abs(), descending=True, maintain_order=True).row(0, named=True)
    section.headline = (
        f"{judged.height - judged['flagged'].sum()} of {counted(judged.height, 'run')} transmit the volume that the "
        f"algorithm must transmit to within 2%; the most that is unexplained is {percent(worst['unexplained_share'])}, "
        f"in {worst['run_id']}."
    )


@chapter.section("bus-bandwidth", "Algorithm and bus bandwidth, from the wire", Source("bus_bandwidth"))
def bus_bandwidth(section: Section, frame: pl.DataFrame) -> None:
    frame = section.need(
        frame.drop_nulls("bus_gbit_per_s"),
        "No run has steps (a training log) and a synchronous exchange without parameter servers, which bus bandwidth "
        "needs; the query gives the reason for each run.",
    )
    names = [
        "exchanged_bytes", "exchange_ms", "algorithm_gbit_per_s", "bus_gbit_per_s", "moving_bus_gbit_per_s",
        "link_gbit_per_s",
    ]  # fmt: skip
    keys = ["run_id", "measured_by", "algorithm", "law", "vantage", "hosts"]
    medians = frame.group_by(keys, maintain_order=True).agg(pl.len().alias("steps"), pl.col(names).median())
    section.headline = (
        f"In the median step of a run the bus carries {span(medians['bus_gbit_per_s'])} Gbit/s, pauses included, and "
        f"{span(medians['moving_bus_gbit_per_s'])} Gbit/s while something moves, over "
        f"{counted(medians['run_id'].n_unique(), 'run')}."
    )
    by_program = pl.col("measured_by") == "events"
    drawn = section.first_runs(frame.filter(by_program | ~by_program.any().over("run_id", "step")), PANEL_RUNS)
    shown = drawn.group_by("run_id", maintain_order=True).head(BANDWIDTH_STEPS)
    steps = f" Of a run the first {BANDWIDTH_STEPS} steps are drawn." if shown.height < drawn.height else ""
    caption = (
        "Bus bandwidth, as in nccl-tests, is the volume that the algorithm exchanges over the time that the exchange "
        "takes, times 2(N-1)/N, so that numbers of workers compare; while moving, over the time with payload on the "
        "busiest host's wire. Times are those of the program where it logs its communication, else of the shortest "
        f"interval with 99% of the payload.{steps}"
    )
    section.figure(charts.bus_bandwidth, shown, caption, of=frame)
    columns = [
        texts("run", "run_id"), texts("algorithm", "algorithm", words), texts("law", "law", words),
        texts("measured by", "measured_by"), numbers("hosts", "hosts", count), numbers("steps", "steps", count),
        numbers("exchanged", "exchanged_bytes", size), numbers("exchange (ms)", "exchange_ms"),
        numbers("algorithm (Gbit/s)", "algorithm_gbit_per_s"), numbers("bus (Gbit/s)", "bus_gbit_per_s"),
        numbers("bus while moving (Gbit/s)", "moving_bus_gbit_per_s"), numbers("link (Gbit/s)", "link_gbit_per_s"),
    ]  # fmt: skip
    section.table(medians, columns, "Medians of a run's steps; the query has every step.")


@chapter.section("inferred-steps", "Steps without a log", Source("step_inference_score"))
def inferred_steps(section: Section, score: pl.DataFrame) -> None:
    of_boundaries = Source("step_boundaries", {"runs": BOUNDARY_RUNS})
    frame = section.rows(of_boundaries)
    structured = score.filter("structured")
    scored = structured.drop_nulls(["recall", "precision"])
    against = "" if structured.is_empty() else "; there is no log to compare them with"
    if not scored.is_empty():
        against = (
            f"; of the boundaries in the logs of {counted(scored.height, 'run')}, {span(scored['recall'], percent)} "
            f"are found, and {span(scored['precision'], percent)} of those found are right "
            f"({span(scored['corrected_precision'], percent)} corrected for chance); "
            f"the median timeline error is {span(scored['median_error_share'], percent)} of a step"
        )
    section.headline = f"Traffic alone shows steps in {structured.height} of {counted(score.height, 'run')}{against}."
    section.sentences = [
        f"{run_id}: asynchronous; its workers end steps at different times, and the logs have no boundaries of the run"
        for run_id in score.filter("is_asynchronous")["run_id"]
    ]
    if not frame.is_empty():
        caption = "Ends of the first steps. Workers of asynchronous runs end their steps at different times."
        section.figure(charts.step_boundaries, frame, caption, of_boundaries, of=score)
    columns = [
        texts("run", "run_id"), texts("steps in the traffic", "structured", yes_no),
        numbers("confidence", "confidence", percent), numbers("boundaries in the logs", "in_log", count),
        numbers("inferred", "inferred", count), numbers("matched within 5 ms", "matched", count),
        numbers("recall", "recall", percent), numbers("precision", "precision", percent),
        numbers("by chance", "chance_precision", percent),
        numbers("precision, corrected", "corrected_precision", percent),
        numbers("timeline error (of a step, median)", "median_error_share", percent),
        numbers("95th percentile", "p95_error_share", percent),
        numbers("log is later by (ms, median)", "median_delay_ms"),
    ]  # fmt: skip
    section.table(score, columns, "Boundaries inferred from traffic against those of the logs.")


@chapter.section("overlap", "Communication during computation", Source("overlap_summary"), NO_LOG)
def overlap(section: Section, frame: pl.DataFrame) -> None:
    drawable = section.need(
        frame.drop_nulls("only_wire_ms"),
        "No traffic can be assigned to a worker of the logs: a label there must be that of a host (label in run.toml, "
        "or a capture named after the worker).",
    )
    known = frame.drop_nulls("overlap_share")
    measured = (
        "the share of bytes during its computation needs the program's own intervals (phases-worker-N.csv next to "
        "the captures)"
        if known.is_empty()
        else f"{span(known['overlap_share'], percent)} of its bytes are sent or received during its computation, by "
        f"the intervals of {counted(known['run_id'].n_unique(), 'run')}"
    )
    on_wire = span(frame["wire_share_of_step"].drop_nulls(), percent)
    section.headline = f"A worker communicates in {on_wire} of a step; {measured}."
    caption = (
        "Means of a worker's steps. Where a program states when it computes, overlap is measured; elsewhere "
        "communication is taken to be the time with payload on the wire, and the rest computation. Windows with less "
        "than a hundredth of the fastest window's rate are not communication."
    )
    section.figure(charts.overlap_shares, section.first_runs(drawable, PANEL_RUNS), caption, of=frame)


@chapter.section("stragglers", "Stragglers and their cost", Source("straggler_summary"))
def stragglers(section: Section, frame: pl.DataFrame) -> None:
    runs = frame["run_id"].n_unique()
    waiting = section.need(
        frame.drop_nulls("worker"),
        f"In none of {counted(runs, 'run')} do logs show that workers wait for each other: this needs a "
        "train_history-worker-N.log of several workers.",
    )
    costs = waiting.unique("run_id", maintain_order=True)["run_cost_share"].drop_nulls()
    most = waiting.sort("share_last", descending=True, maintain_order=True).row(0, named=True)
    cost = f", which costs {span(costs, percent)} of a run's time" if len(costs) else ""
    section.headline = (
        f"In {waiting['run_id'].n_unique()} of {counted(runs, 'run')} workers wait for the last to start{cost}; most "
        f"often the same, in {percent(most['share_last'])} of the steps, for {most['worker']} of {most['run_id']}."
    )
    caption = (
        "Slack is how much later a worker could start to communicate without making the step longer. The cost "
        "is how much shorter steps would be, had the last started with the median worker."
    )
    section.figure(charts.straggler_slack, section.first_runs(waiting, PANEL_RUNS), caption, of=frame)
