"""Where the time of a step goes: what delays it, its length, its exchange, its workers, its layers."""

from __future__ import annotations

import math
import re

import polars as pl

from ddnn_traces.query import diagnosis
from ddnn_traces.report.chapters.volume import NO_SERVER, no_phases
from ddnn_traces.report.charts import farhat, gao, wire
from ddnn_traces.report.number_text import (
    count,
    milliseconds,
    number_of,
    percent,
    rate,
    size,
    span,
    typical,
    words,
    yes_no,
)
from ddnn_traces.report.section import (
    NO_FLOWS,
    NO_JOB,
    NO_LOG,
    Chapter,
    Section,
    Source,
    numbers,
    texts,
)
from ddnn_traces.text import counted, digits

# of a run
ITERATIONS, ITERATION_WINDOWS = 5, 600
CDF_POINTS = 40
BANDWIDTH_STEPS = 100
_EXCERPT = {"step_count": ITERATIONS}
_MARKS = Source("iteration_markers", _EXCERPT)
_TRANSFERS = Source("parameter_server_transfers")
_NO_LAYERS = "No simulated run has events of its layers: `ddnn-traces simulate --layer-events` writes them."

chapter = Chapter("steps", "Where steps go")


@chapter.section(
    "delays",
    "What delays the steps",
    Source("jobs"),
    NO_JOB,
    finding="Delays",
    draws=(),
)
def delays(section: Section, jobs: pl.DataFrame) -> None:
    stepped = section.results.stepped_jobs
    doubtful = diagnosis.doubtful(stepped)
    found = _by_trust(section.rows(Source("verdicts")), doubtful)
    trusted = stepped.join(doubtful, on=["run_id", "job"], how="anti")
    sure = found.join(trusted, on=["run_id", "job"], how="semi")
    established = sure.filter("is_established")
    together = [one.line for one in diagnosis.together(section.rows(Source("late_together")), stepped)]
    pauses = section.results.pauses
    others = [
        (_TOGETHER, "Several hosts are late in the same steps", together, [*map(_short, together)]),
        ("Few long steps", "Few long steps cost time", pauses, pauses),
    ]
    off = section.results.clocks
    section.lists = [(title, of_jobs) for title, _, of_jobs, _ in others if of_jobs]
    two, sends = diagnosis.of_two_hosts(stepped), _of_sends(section, trusted, found)
    unlike = {*((one.run_id, one.job) for one in two), *sends} - {*sure.select("run_id", "job").iter_rows()}
    comparable = trusted.height - len(unlike & {*trusted.select("run_id", "job").iter_rows()})
    said = [costliest(established, jobs, comparable)]
    said += [f"{what} in {counted(len(told), 'job')}: {told[0]}" for _, what, _, told in others if told]
    if established.height:
        said.append(by_chance(sure, established))
    elif section.lists:
        said.append(_unsure("", sure.height))
    else:
        said.append(_nothing(sure.height, comparable))
    said += [_doubts(doubtful, found), _without_steps(jobs.height - stepped.height)]
    said += [diagnosis.of_two(two), diagnosis.of_sends(sends), *off[:1]]
    section.headline = " ".join(filter(None, said))
    if stops := section.results.interruptions:
        section.headline += (
            f" A job with the same collectives follows another in {counted(len(stops), 'case')}: {stops[0]}"
        )
        section.lists.append(("Trainings that stop and go on", stops))
    if without := section.results.without_job:
        section.lists.append(("Runs without a job", without))
    if off:
        section.lists.append(("Clocks that differ", off))
    if found.is_empty():
        return
    columns = [
        texts("run", "run_id"), numbers("job", "job", count), numbers("rank", "rank", count),
        texts("finding", "sentence"), numbers("confidence", "confidence"),
        *([texts("steps in doubt", "doubt")] if found["doubt"].count() else []),
    ]  # fmt: skip
    caption = (
        "Hosts and links that alone cost 5% of a mean step or more, in each run by itself: its steps are not "
        "independent, and other runs may differ. What all hosts share is not seen (docs/delays.md)."
    )
    section.table(found, columns, caption, Source("verdicts"), noun="finding")


#: The milliseconds of a sentence of late_together are explained once.
_TOGETHER = (
    "Several hosts late at once; in parentheses how late each one is (median), then what a step would gain if all of "
    "these were in time"
)


def _short(line: str) -> str:
    """A line of late_together for the first screen: one clause, without the milliseconds of each host."""
    clause = line.removesuffix(".").partition(";")[0]
    return f"{re.sub(r' [(]by [0-9.,]+ ms[)](?=, | are )', '', clause)}."


def _by_trust(found: pl.DataFrame, doubtful: pl.DataFrame) -> pl.DataFrame:
    """The costliest finding first; behind it those of jobs with doubtful steps, and those that chance may explain."""
    doubt = pl.format("{} by bytes, {} by pauses or log", "steps", "other_steps").alias("doubt")
    rows = found.join(doubtful.select("run_id", "job", doubt), on=["run_id", "job"], how="left")
    order = ~pl.col("is_established"), pl.col("doubt").is_not_null(), -pl.col("share_of_step")
    return rows.sort(*order, "run_id", "job", "rank")


def _of_sends(section: Section, jobs: pl.DataFrame, found: pl.DataFrame) -> list[tuple[str, int]]:
    """Run and job of those of which no finding tells, as no host enters a collective with others."""
    sends = diagnosis.sends_alone(section.rows(Source("job_parallelism")))
    quiet = jobs.join(found, on=["run_id", "job"], how="anti").select("run_id", "job").sort("run_id", "job")
    return [job for job in quiet.iter_rows() if job in sends]


#: What a finding of a kind is, where the kind alone cannot be counted.
_FOUND = {
    "loss": "loss finding", "delay": "delayed link", "background": "shared link",
    "congestion": "congested link", "receiver": "small receive window",
}  # fmt: skip


def costliest(established: pl.DataFrame, jobs: pl.DataFrame, trusted: int) -> str:
    """In how many jobs something costs time, and the first finding; empty where none is established.

    established: of jobs whose steps are not in doubt. trusted: number of these.
    """
    if established.is_empty():
        return ""
    worst, first = established.row(0, named=True), established.filter(pl.col("rank") == 1)
    kinds = first.group_by("kind").len().sort("len", "kind", descending=[True, False])
    where = f", in {worst['run_id']}" if jobs["run_id"].n_unique() > 1 else ""
    said = ", ".join(counted(number, _FOUND.get(kind, words(kind))) for kind, number in kinds.iter_rows())
    left = jobs.height - trusted
    but = f" ({left:,} more {'is' if left == 1 else 'are'} not judged, as said below)" if left else ""
    return (
        f"In {first.height:,} of {counted(trusted, 'job')}{but} a host or a link costs 5% of a step or more ({said}). "
        f"The costliest{where}: {worst['sentence']}"
    )


def by_chance(found: pl.DataFrame, established: pl.DataFrame) -> str:
    """How many findings of jobs without an established one there are, where other jobs have one."""
    others = found.join(established, on=["run_id", "job"], how="anti") if established.height else established
    return _unsure(" in other jobs", others.height)


def _unsure(where: str, findings: int) -> str:
    return f"Not established{where}, as chance may explain it: {counted(findings, 'finding')}." if findings else ""


def _doubts(doubtful: pl.DataFrame, found: pl.DataFrame) -> str:
    """What is said of jobs whose steps are not those of the log or of pauses. found: findings, the costliest first."""
    if doubtful.is_empty():
        return ""
    worst = found.filter("is_established").join(doubtful, on=["run_id", "job"], how="semi", maintain_order="left")
    what, why = ("loses", "its steps are") if doubtful.height == 1 else ("lose", "their steps are")
    said = f"What {counted(doubtful.height, 'job')} {what} is doubtful, as {why} (query jobs)"
    if worst.is_empty():
        return f"{said}; the first is in {doubtful['run_id'][0]}."
    first = worst.row(0, named=True)
    return f"{said}; the costliest, in {first['run_id']}: {first['sentence']}"


def _without_steps(jobs: int) -> str:
    """What is said of jobs of runs in which pairs of hosts may meet at random."""
    return (
        f"In {counted(jobs, 'job')} pairs of hosts may meet at random: no steps, no delays (query jobs_of_run)."
        if jobs
        else ""
    )


def _nothing(unsure: int, jobs: int) -> str:
    """unsure: findings that are not established. jobs: their number; empty where there are neither."""
    if unsure:
        findings = counted(unsure, "finding")
        return f"Nothing is established in {counted(jobs, 'job')}: chance may explain what looks slow ({findings})."
    if not jobs:
        return ""
    return (
        f"Nothing stands out in {counted(jobs, 'job')}: no host and no link alone is seen to cost 5% of a step. A "
        "cause that all hosts share is not seen."
    )


@chapter.section(
    "iteration-durations",
    "Duration of iterations",
    Source("iteration_duration_cdf", {"points": CDF_POINTS}),
    NO_LOG,
    reference="farhat, fig. 4",
)
def iteration_durations(section: Section, frame: pl.DataFrame) -> None:
    longest = frame.sort("duration_ms", descending=True, maintain_order=True).row(0, named=True)
    section.headline = (
        f"Half of a run's iterations take at most {span(_medians(frame, 'duration_ms'), milliseconds)}; the longest of "
        f"all takes {milliseconds(longest['duration_ms'])}, in {longest['run_id']}."
    )
    caption = "Cumulative distribution over the iterations of all workers."
    section.figure(farhat.iteration_duration_cdf, frame, caption)


def _medians(frame: pl.DataFrame, column: str) -> pl.Series:
    """Of each run the smallest value that half of its values do not exceed."""
    return frame.filter(pl.col("cumulative_share") >= 0.5).group_by("run_id").agg(pl.col(column).min())[column]


@chapter.section(
    "iteration-packets", "Packets over the marks of iterations", _MARKS, draws=("packets_over_iterations",)
)
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
        f"{counted(busiest['packets'], 'packet')} ({rate(busiest['gbit_per_s'])}), in "
        f"{busiest['run_id']}."
    )
    caption = "Packets of all hosts in windows, with the start and end of each iteration by one worker's log."
    section.figure(farhat.packets_over_iterations, frame, caption, source, _MARKS, others=[marks])


def _window_ms(longest_ms: float) -> float:
    """The query's own 5 ms, or the next of 10, 20, 50 ... that keeps the number of windows drawable."""
    least = longest_ms / ITERATION_WINDOWS
    if least <= 5:
        return 5
    power = 10.0 ** math.floor(math.log10(least))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= least)


@chapter.section(
    "iteration-flow-sizes",
    "Size of a flow in an iteration",
    Source("iteration_flow_size_cdf", {"points": CDF_POINTS}),
    reference="farhat, fig. 5",
)
def iteration_flow_sizes(section: Section, frame: pl.DataFrame) -> None:
    missing = (
        "No flow sends data inside training steps: that needs a log next to the captures (train_history.log) with the "
        "same clock; ingest with --clock-offset auto where the clocks differ."
    )
    section.need(frame, missing if section.results.runs else NO_FLOWS)
    section.headline = (
        "In half of the iterations, a flow that carries data sends at most "
        f"{span(_medians(frame, 'wire_bytes'), size)} a run; the most is {size(number_of(frame['wire_bytes'].max()))}."
    )
    caption = "Cumulative distribution over iterations of data flows; a data flow is large and sends payload in steps."
    section.figure(farhat.iteration_flow_size_cdf, frame, caption)


@chapter.section(
    "overlap", "Communication during computation", Source("overlap_summary"), NO_LOG, finding="Communication"
)
def overlap(section: Section, frame: pl.DataFrame) -> None:
    drawable = section.need(
        frame.drop_nulls("only_wire_ms"),
        "No traffic can be assigned to a worker of the logs: a label there must be that of a host (label in run.toml, "
        "or a capture named after the worker).",
    )
    known = frame.drop_nulls("overlap_share")
    measured = (
        "The share of bytes during its computation needs the program's own intervals (phases-worker-N.csv next to "
        "the captures)"
        if known.is_empty()
        else f"By the program's intervals it sends or receives {typical(known, 'overlap_share', percent)} of its bytes "
        "during its computation"
    )
    on_wire = typical(frame, "wire_share_of_step", percent)
    logged = frame.drop_nulls("logged_communicate_share")
    by_log = (
        "No program logs when it communicates"
        if logged.is_empty()
        else f"By the programs' logs a host communicates in {typical(logged, 'logged_communicate_share', percent)} of "
        "a step"
    )
    unseen = int((frame["steps"] - frame["captured_steps"]).sum())
    left_out = f" (without {counted(unseen, 'step')} of a host that no capture covers)" if unseen else ""
    section.headline = f"{by_log}. Its bytes move on the wire in {on_wire} of a step{left_out}. {measured}."
    caption = (
        "Means of a worker's steps. Where a program states when it computes, overlap is measured; elsewhere "
        "the time without payload on the wire is taken to be computation. Windows with less than a hundredth of the "
        "fastest window's rate are not communication. A program that communicates also waits, so that its log has more "
        "communication than the wire shows."
    )
    section.figure(wire.overlap_shares, drawable, caption, parts=[section.part(drawable, frame)])


@chapter.section("stragglers", "Stragglers and their cost", Source("straggler_summary"), finding="Slowest worker")
def stragglers(section: Section, frame: pl.DataFrame) -> None:
    runs = frame["run_id"].n_unique()
    waiting = section.need(
        frame.drop_nulls("worker"),
        f"In none of {counted(runs, 'run')} do logs show that workers wait for each other: this needs a "
        "train_history-worker-N.log of several workers.",
    )
    costs = waiting.drop_nulls("run_cost_share")
    cost = (
        f", which costs {typical(costs, 'run_cost_share', percent)} of a run's time behind its first step"
        if costs.height
        else ""
    )
    section.headline = (
        f"By the workers' logs, in {waiting['run_id'].n_unique()} of {counted(runs, 'run')} workers wait for the last "
        f"to start communicating{cost}; {_most_often(waiting)}."
    )
    caption = (
        "Slack is how much later a worker could start to communicate without making the step longer. The cost "
        "is how much shorter steps would be, had the last started with the median worker. The first step of a run "
        "counts for none of this."
    )
    section.figure(wire.straggler_slack, waiting, caption, parts=[section.part(waiting, frame)])


def _most_often(waiting: pl.DataFrame) -> str:
    """Which workers are the last more often than chance, by query straggler_chance, over the runs with enough steps."""
    tested = waiting.drop_nulls("more_often_than_chance")
    if tested.is_empty():
        return "too few steps to tell whether one worker is the last more often than chance"
    named = tested.filter("more_often_than_chance")
    runs = tested["run_id"].n_unique()
    by_chance = digits(0.05 * runs, 2)
    test = f"(exact multinomial test over the steps of each run, p < 0.05; chance alone up to {by_chance} runs)"
    if named.is_empty():
        return (
            f"in the {counted(runs, 'run')} that have enough steps no worker is the last more often than chance {test}"
        )
    most = named.sort("p_value", "run_id", "worker").row(0, named=True)
    return (
        f"in {named['run_id'].n_unique()} of the {counted(runs, 'run')} that have enough steps one worker is the last "
        f"more often than chance {test}, most clearly {most['worker']} of {most['run_id']}, in "
        f"{percent(most['share_last'])} of the steps"
    )


@chapter.section("bus-bandwidth", "Algorithm and bus bandwidth, from the wire", Source("bus_bandwidth"))
def bus_bandwidth(section: Section, frame: pl.DataFrame) -> None:
    known = section.need(
        frame.drop_nulls("bus_gbit_per_s"),
        "No run has steps (a training log) and a synchronous exchange without parameter servers, which bus bandwidth "
        "needs; the query gives the reason for each run.",
    )
    names = [
        "exchanged_bytes", "exchange_ms", "algorithm_gbit_per_s", "bus_gbit_per_s", "moving_bus_gbit_per_s",
        "link_gbit_per_s",
    ]  # fmt: skip
    keys = ["run_id", "measured_by", "algorithm", "law", "vantage", "hosts"]
    medians = known.group_by(keys, maintain_order=True).agg(pl.len().alias("steps"), pl.col(names).median())
    section.headline = (
        f"In the median step of a run the bus carries {span(medians['bus_gbit_per_s'], rate)}, pauses included, and "
        f"{span(medians['moving_bus_gbit_per_s'], rate)} while something moves, over "
        f"{counted(medians['run_id'].n_unique(), 'run')}."
    )
    by_program = pl.col("measured_by") == "events"
    drawn = known.filter(by_program | ~by_program.any().over("run_id", "step"))
    shown = drawn.group_by("run_id", maintain_order=True).head(BANDWIDTH_STEPS)
    caption = (
        "Bus bandwidth, as in nccl-tests, is the volume that the algorithm exchanges over the time that the exchange "
        "takes, times 2(N-1)/N, so that numbers of workers compare; while moving, over the time with payload on the "
        "busiest host's wire. Times are those of the program where it logs its communication, else of the shortest "
        f"interval with 99% of the payload. Of a run at most the first {BANDWIDTH_STEPS} steps are drawn."
    )
    section.figure(
        wire.bus_bandwidth,
        shown,
        caption,
        parts=[section.part(shown, frame), section.part(shown.height, drawn.height, "step of a run")],
    )
    columns = [
        texts("run", "run_id"), texts("algorithm", "algorithm", words), texts("law", "law", words),
        texts("measured by", "measured_by"), numbers("hosts", "hosts", count), numbers("steps", "steps", count),
        numbers("exchanged", "exchanged_bytes", size), numbers("exchange (ms)", "exchange_ms"),
        numbers("algorithm (Gbit/s)", "algorithm_gbit_per_s"), numbers("bus (Gbit/s)", "bus_gbit_per_s"),
        numbers("bus while moving (Gbit/s)", "moving_bus_gbit_per_s"), numbers("link (Gbit/s)", "link_gbit_per_s"),
    ]  # fmt: skip
    section.table(medians, columns, "Medians of a run's steps; the query has every step.")


@chapter.section(
    "server-phases", "Aggregation and distribution", _TRANSFERS, NO_SERVER, reference="chang, section 3, fig. 2"
)
def phases(section: Section, frame: pl.DataFrame) -> None:
    problems = frame.drop_nulls("problem")["run_id", "problem"]
    section.sentences = [f"{run_id}: {problem}" for run_id, problem in problems.iter_rows()]
    timed = section.need(frame.filter(pl.col("phase").is_in(["aggregation", "distribution"])), no_phases(frame))
    aggregation, distribution = (timed.filter(phase=phase)["mean_ms"] for phase in ("aggregation", "distribution"))
    section.headline = (
        f"Of a step, aggregation lasts {span(aggregation, milliseconds)} and distribution "
        f"{span(distribution, milliseconds)} over {counted(frame.filter(phase='both').height, 'run')}; they overlap "
        f"for {span(timed['mean_overlap_ms'], milliseconds)}."
    )
    caption = (
        "Workers send to servers in aggregation, servers to workers in distribution. The mark in the chart of "
        "time is the time still to send when the phase's computation has ended (at most, where it is measured by the "
        "wire or estimated), the mark in the chart of volume a model for each worker. Of several runs in a row "
        "bars and marks are medians."
    )
    section.figure(farhat.parameter_server_phases, timed, caption, has_rows=True, parts=[section.part(timed, frame)])
    columns = [
        texts("run", "run_id"), texts("phase", "phase"), numbers("steps", "steps", count),
        numbers("lasts (ms, mean)", "mean_ms"), numbers("overlap (ms)", "mean_overlap_ms"),
        numbers("still to send (ms)", "mean_remaining_ms"), numbers("over so many steps", "remaining_steps", count),
        texts("measured by", "measured_by"),
    ]  # fmt: skip
    section.table(frame.drop_nulls("phase"), columns, "Times of the phases.", noun="row")


@chapter.section("inferred-steps", "Steps without a log", Source("step_inference_score"), draws=("step_boundaries",))
def inferred_steps(section: Section, score: pl.DataFrame) -> None:
    if not section.results.runs:
        section.end(NO_FLOWS)
    of_boundaries = Source("step_boundaries")
    frame = section.rows(of_boundaries)
    if inferred := section.results.runs_of_inferred_steps:  # their logged steps are the inferred ones
        score, frame = _without_log(score, inferred), frame.filter(~pl.col("run_id").is_in(inferred))
    by_pauses = score.select("run_id", by_pauses="inferred")
    score = _found_by(score, section.results.steps_by_bytes)
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
    by_bytes = structured.filter(found_by="repeated bytes").join(by_pauses, on="run_id").sort("run_id")
    how = f", of {by_bytes.height} by repeated bytes, of the others by pauses" if by_bytes.height else " by pauses"
    section.headline = (
        f"Traffic alone shows steps in {structured.height} of {counted(score.height, 'run')}{how}{against}."
    )
    unsure = structured.filter(in_log=0).filter(~pl.col("run_id").is_in(section.results.runs_of_sure_steps))
    if not unsure.is_empty():
        section.headline += f" In {counted(unsure.height, 'run')} they are not sure (query step_sources)."
    partly = structured.filter(pl.col("run_id").is_in(section.results.partly_covered))
    if not partly.is_empty():
        section.headline += (
            f" The captures of {counted(partly.height, 'run')} of these do not cover all hosts: "
            "parts of a step may pass for its steps."
        )
    surer = by_bytes.filter((pl.col("by_pauses") > 0) & (pl.col("by_pauses") != pl.col("inferred")))
    section.sentences = [
        f"{run_id}: its flows repeat their bytes in {steps} steps, which are surer than {paused} by pauses "
        "(query job_steps, --infer-steps)"
        for run_id, steps, paused in surer.select("run_id", "inferred", "by_pauses").iter_rows()
    ] + [
        f"{run_id}: asynchronous; its workers end steps at different times, and the logs have no boundaries of the run"
        for run_id in score.filter("is_asynchronous")["run_id"]
    ]
    if not frame.is_empty():
        caption = "Ends of the first steps by pauses. Workers of asynchronous runs end their steps at different times."
        section.figure(wire.step_boundaries, frame, caption, of_boundaries)
    columns = [
        texts("run", "run_id"), texts("steps in the traffic", "structured", yes_no), texts("found by", "found_by"),
        numbers("confidence", "confidence", percent), texts("what pauses show", "evidence"),
        numbers("instants at which logged steps end", "in_log", lambda ends: count(ends) if ends else "no log"),
        numbers("inferred", "inferred", count), numbers("matched within 5 ms", "matched", count),
        numbers("recall", "recall", percent), numbers("precision", "precision", percent),
        numbers("by chance", "chance_precision", percent),
        numbers("precision, corrected", "corrected_precision", percent),
        numbers("timeline error (of a step, median)", "median_error_share", percent),
        numbers("95th percentile", "p95_error_share", percent),
        numbers("log is later by (ms, median)", "median_delay_ms"),
    ]  # fmt: skip
    section.table(score, columns, "Boundaries inferred from traffic against those of the logs.")


def _found_by(score: pl.DataFrame, by_bytes: pl.DataFrame) -> pl.DataFrame:
    """The rows with a column found_by. Of the runs in by_bytes, steps and confidence are of repeated bytes."""
    surer = by_bytes.select("run_id", surer="steps", surer_confidence="confidence")
    rows = score.join(surer, on="run_id", how="left", maintain_order="left")
    is_by_bytes = pl.col("surer").is_not_null()
    return rows.with_columns(
        structured=pl.col("structured") | is_by_bytes,
        confidence=pl.coalesce("surer_confidence", "confidence"),
        inferred=pl.coalesce("surer", "inferred"),
        found_by=pl.when(is_by_bytes).then(pl.lit("repeated bytes")).when("structured").then(pl.lit("pauses")),
    ).drop("surer", "surer_confidence")


def _without_log(score: pl.DataFrame, runs: set[str]) -> pl.DataFrame:
    """The rows; those of these runs without what compares them with a log."""
    compared = [
        name for name in score.columns if name not in ("run_id", "structured", "confidence", "evidence", "inferred")
    ]
    return score.with_columns(
        pl.when(~pl.col("run_id").is_in(runs)).then(pl.col(name)).alias(name) for name in compared
    )


@chapter.section("slack", "Slack of each layer", Source("layer_slack"), _NO_LAYERS, reference="gao, figs. 4.8 to 4.11")
def slack(section: Section, frame: pl.DataFrame) -> None:
    rows = frame
    first = pl.col("worker") == pl.col("worker").first().over("run_id")
    rows = rows.filter(first & (pl.col("step") == pl.col("step").min().over("run_id")))
    least = rows.group_by("run_id", maintain_order=True).agg(
        pl.col("slack_ms").min().alias("least"), pl.col("slack_ms").median().alias("median"), pl.len().alias("layers")
    )
    section.headline = (
        f"A layer's gradients are exchanged {span(least['median'], milliseconds)} before the layer computes with them "
        "(median of the layers of a run)."
    )
    caption = (
        "Blue: exchange of the buffer with the layer's gradients. Grey: its gradients are computed. Orange: its "
        "forward computation begins. The slack is between blue and orange. First step of the first worker."
    )
    section.figure(gao.layer_timeline, rows, caption)
    columns = [
        texts("run", "run_id"), numbers("layers", "layers", count), numbers("least slack (ms)", "least"),
        numbers("median (ms)", "median", lambda value: digits(value, 4)),
    ]  # fmt: skip
    section.table(least, columns, "Slack of the layers in the first step of the first worker.")
