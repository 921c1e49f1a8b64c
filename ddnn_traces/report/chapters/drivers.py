"""What drives the volume of a step and the time of a training: model, batch, accuracy, network."""

from __future__ import annotations

import polars as pl

from ddnn_traces.regression import ERRORS, Regression, sentences
from ddnn_traces.report.charts import cheng, gao, regression, zerwas
from ddnn_traces.report.number_text import (
    count,
    digits,
    milliseconds,
    number_of,
    percent,
    size,
    span,
    times,
    words,
    yes_no,
)
from ddnn_traces.report.section import LINES_AT_FIRST, Chapter, Column, Section, Source, Table, numbers, texts
from ddnn_traces.text import counted, listed

EXCLUDED = 80  # runs whose reason is stated
ACCURACY_POINTS = 60  # of a run
TRAININGS = 40
_SOURCE = Source("run_step_volume")
_ACCURACY = Source("accuracy_volume", {"points": ACCURACY_POINTS})
_HOW_TO_FIT = (
    "The fit needs three or more runs with a training log (train_history.log next to the captures) and a run.toml with "
    "model_bytes, framework, batch_size and topology."
)
_NO_ACCURACY = "No run's log has an accuracy: log lines of Type,ID,Timestamp,Loss,Accuracy give one for each step."
_CONDITIONS = {"delay_ms": "delay (ms)", "bandwidth_mbit": "rate (Mbit/s)", "loss_pct": "loss (%)"}
_OF_TRAINING = [
    "framework_backend", "topology", "model", "batch_size", "workers", "ranks_per_host", "congestion_control",
]  # fmt: skip
_NO_SWEEP = (
    "No two runs of one training differ in one condition of their links alone: declare delay_ms, bandwidth_mbit and "
    "loss_pct in run.toml, or make a sweep (docs/testbed.md)."
)
_NO_SIMULATED_STEPS = (
    "No run is simulated: `ddnn-traces simulate --out DATASET` writes one (docs/simulator.md). The query "
    "link_utilization has the rows of captures whose bandwidth_mbit is declared."
)


_MOST_NAMES = 3  # of runs, in a sentence

chapter = Chapter("drivers", "What drives volume and time")


@chapter.section("step-volume", "Volume of a step and model size", _SOURCE, reference="zerwas, section VI")
def step_volume(section: Section, frame: pl.DataFrame) -> None:
    fit = section.results.fit
    shown = volumes(section, frame)
    ratio = span(shown["step_bytes"] / shown["size_bytes"], times)
    slope = "".join(
        f"; {verdict.sentence.removeprefix('significant: ')}"
        for verdict in fit.verdicts
        if fit.size_column in (verdict.term, verdict.term.removeprefix("np.log(").removesuffix(")"))
    )
    section.headline = f"A step transmits {ratio} the model's size{slope}. {fit.synthetic or ''}".rstrip()
    caption = (
        "Mean volume of a training step against model size. A mark is the runs of a framework whose collectives send "
        "the same by law; the number beside marks is that of the runs there; line: fitted; dashed: payload by law."
    )
    parts = [section.part(shown, frame)]
    section.figure(regression.step_volume_fit, shown, caption, parts=parts)
    caption = "The same for each MB of model, which separates the runs."
    section.figure(regression.step_volume_runs, shown, caption, has_rows=True, parts=parts)


def volumes(section: Section, frame: pl.DataFrame) -> pl.DataFrame:
    """The points of the fit that have a volume of a step and a model size, with the attributes of their runs."""
    fit = section.results.fit
    attributes = frame.select("run_id", "framework_backend", "topology", "workers", "law_factor")
    reasons = sorted({run.reason for run in fit.excluded})
    why = f" ({'; '.join(reasons[:3])})" if reasons else ""
    points = fit.points.drop_nulls(["step_bytes", "size_bytes"])
    return section.need(
        points.join(attributes, on="run_id", how="left", maintain_order="left"),
        f"No run has both a volume for each step and a model size{why}. {_HOW_TO_FIT}",
    )


@chapter.section(
    "regression",
    "Attributes that explain the volume of a step",
    _SOURCE,
    reference="zerwas, section VI",
    finding="Drivers",
)
def drivers(section: Section, frame: pl.DataFrame) -> None:
    fit = section.results.fit
    excluded = [f"{run.run_id} is not in the fit: {run.reason}" for run in fit.excluded[:EXCLUDED]]
    if len(fit.excluded) > EXCLUDED:
        excluded.append(f"{counted(len(fit.excluded) - EXCLUDED, 'further run')} not in the fit")
    notes = fit.notes
    if not fit.coefficients:
        section.end(f"{' '.join(notes[:1]) or 'Nothing is fitted.'} {_HOW_TO_FIT}")
    without_size = " No run declares the size of its model: model_bytes in a run.toml."
    section.headline = (
        f"{sentences.drivers(fit)}{'' if fit.size_column else without_size} {fit.synthetic or ''}".rstrip()
    )
    faults = section.results.faults.get("conservation")
    if faults is not None and (off := sorted({*faults["run_id"]} & {*fit.points["run_id"]})):
        runs = f"{counted(len(off), 'run')} ({listed(off, _MOST_NAMES)})"
        section.headline += (
            f" The volume of {runs} breaks the law of its collective (check conservation): see model_bytes."
        )
    for chart, points, caption in residual_charts(fit):
        section.figure(chart, points, caption, others=[fit.left], parts=[section.part(points, frame)])
    section.tables = _fit_tables(fit)
    verdicts = [f"{verdict.term}: {verdict.sentence}" for verdict in fit.verdicts]
    lists = (
        ("Read first", notes),
        ("Terms", verdicts),
        ("Diagnostics", sentences.diagnosis(fit)),
        ("Left out", excluded),
    )
    section.lists = [(heading, sentences) for heading, sentences in lists if sentences]


def residual_charts(fit: Regression) -> list[tuple[regression.OfResiduals, pl.DataFrame, str]]:
    """Charts of the residuals, each with the frame that it draws and a caption; none where nothing is fitted."""
    points = fit.points.drop_nulls("fitted")
    if points.is_empty():
        return []
    drawn = (
        f" At most {regression.MOST:,} of {points.height:,} rows are drawn." if points.height > regression.MOST else ""
    )
    caption = "Residuals against fitted values: a funnel is scatter that grows, a bend a term that is missing."
    found: list[tuple[regression.OfResiduals, pl.DataFrame, str]]
    found = [(regression.regression_residuals, points, caption + drawn)]
    of_fit = points.drop_nulls("studentized_residual")
    if not of_fit.is_empty():
        caption = (
            "Studentized residuals in order against the quantiles of a normal distribution: normal residuals lie on "
            "the line. Runs that determine a coefficient alone are left out."
        )
        if fit.unit == "cell" and fit.grain == "run":
            of_fit = of_fit.unique("cell", maintain_order=True)
        found.append((regression.regression_quantiles, of_fit, caption + drawn))
    return found


def _fit_tables(fit: Regression) -> list[Table]:
    """The coefficients, and the joint test of each term."""
    caption = (
        f"{fit.formula}, by ordinary least squares over {sentences.units(fit)}: R² {_r_squared(fit.r_squared)}, "
        f"adjusted R² {_r_squared(fit.adj_r_squared)}, {counted(fit.df_resid or 0, 'residual degree')} of freedom. "
        f"Intervals and p-values are by {ERRORS[fit.errors]} standard errors."
    )
    found = [(sentences.coefficient_table(fit, verbose=True), caption)]
    if fit.tests:
        terms = sentences.term_table(fit)
        widened = "GVIF^(1/(2 df)) is by how much other terms widen its intervals (1: not at all)."
        found.append((terms, f"{terms.title}. {widened}"))
    return [
        Table(caption, table.columns, table.rows, [table.columns[place] for place in table.numeric], [_SOURCE])
        for table, caption in found
    ]


def _r_squared(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


@chapter.section("accuracy", "Accuracy and transmitted volume", _ACCURACY, _NO_ACCURACY, reference="zerwas, fig. 8")
def accuracy(section: Section, frame: pl.DataFrame) -> None:
    of_marks, of_savings = Source("volume_to_accuracy"), Source("accuracy_saving")
    caption = "A line is a run, a panel a model; dashed lines are the accuracies to reach."
    is_thinned = frame.group_by("run_id").len()["len"].max() >= ACCURACY_POINTS  # type: ignore[operator]
    steps = section.rows(Source("accuracy_volume")) if is_thinned else frame
    parts = [section.part(frame.height, steps.height, "step of a run")]
    section.figure(zerwas.accuracy_volume, frame, caption, most=LINES_AT_FIRST, parts=parts)
    marks = section.rows(of_marks)
    reached = "; ".join(_reached(mark, rows) for (mark,), rows in marks.group_by("mark", maintain_order=True))
    section.headline = f"{reached}."
    columns = [
        texts("run", "run_id"), texts("framework setting", "framework_setting"), texts("model", "model"),
        numbers("accuracy", "mark", percent), texts("reached", "is_reached", yes_no), numbers("step", "step", count),
        numbers("volume until then", "wire_bytes", size), numbers("until it lasts", "lasting_wire_bytes", size),
        numbers("best accuracy", "best_accuracy", percent), numbers("volume to the end", "run_wire_bytes", size),
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


@chapter.section(
    "conditions",
    "Samples a second by condition",
    Source("condition_response"),
    _NO_SWEEP,
    reference="cheng, figs. 2 to 10",
)
def conditions(section: Section, frame: pl.DataFrame) -> None:
    known = section.need(
        frame.drop_nulls("samples_per_s"),
        f"Of {counted(int(frame['runs'].sum()), 'run')} that differ in one condition none finished.",
    )
    said = [
        f"{_CONDITIONS[str(condition)].split(' ')[0]} {span(rows['of_best'])}"
        for (condition,), rows in known.filter(pl.col("of_best") != 1).group_by("condition", maintain_order=True)
    ]
    verdicts = frame["verdict"].drop_nulls()
    differ, alike = (int((verdicts == verdict).sum()) for verdict in ("differs", "not told apart"))
    section.headline = (
        f"Samples a second, as a share of those at the best value of the condition: {'; '.join(said)}. Of "
        f"{counted(len(verdicts), 'comparison')} over runs (at 95%, three a side or more): {differ} differ, {alike} "
        f"are not told apart, {len(verdicts) - differ - alike} cannot be told."
        if said
        else "Trainings finished at one value of each condition only, so that nothing can be compared."
    )
    first = frame.select(_OF_TRAINING).unique(maintain_order=True).head(TRAININGS)
    caption = (
        "A panel shows one condition; the others are at their best. Bars are 95% intervals over at least three runs. "
        "A training of one run has a bar only if its log has 200 steps; that is within this run and says nothing of "
        "another run. A cross is a training of which no run did all its steps in its time limit."
    )
    shown = frame.join(first, on=_OF_TRAINING, how="semi", nulls_equal=True, maintain_order="left")
    parts = [section.part(shown, frame, "training", _OF_TRAINING)]
    section.figure(cheng.samples_by_condition, shown, caption, parts=parts)
    columns = [
        Column("condition", lambda row: _CONDITIONS[row["condition"]]), numbers("value", "value"),
        texts("framework, backend", "framework_backend"), texts("model", "model"),
        numbers("batch (samples)", "batch_size", count), numbers("workers", "workers", count),
        texts("congestion control", "congestion_control"),
        Column("finished", lambda row: f"{row['finished_runs']} of {row['runs']}", is_number=True),
        numbers("samples/s", "samples_per_s"), numbers("95% from", "low_samples_per_s"),
        numbers("to", "high_samples_per_s"), numbers("of the best", "of_best"), numbers("from", "low_of_best"),
        numbers("to ", "high_of_best"), texts("verdict", "verdict"),
    ]  # fmt: skip
    section.table(frame, columns, "Each training and condition, with 95% intervals.", noun="row")


@chapter.section("loss", "Duration and packet loss", Source("duration_by_loss"), reference="zerwas, fig. 10")
def packet_loss(section: Section, frame: pl.DataFrame) -> None:
    lossy = section.need(
        frame.filter(pl.col("loss_pct") > 0, pl.col("lossless_runs") > 0).drop_nulls("normalised_duration"),
        f"No run can be compared: {counted(frame.filter(pl.col('loss_pct') > 0).height, 'run')} of {frame.height} "
        "declared to lose packets, without a lossless run that is equal in everything else. Declare loss_pct in "
        "run.toml (0 for lossless), or capture the same training without loss.",
    )
    worst = lossy.sort("normalised_duration", descending=True, maintain_order=True).row(0, named=True)
    section.headline = (
        f"In {counted(lossy.height, 'run')} with loss, training takes {span(lossy['normalised_duration'], times)} as "
        f"long as without; the longest at {digits(worst['loss_pct'])}% in {worst['run_id']}."
    )
    comparable = frame.drop_nulls(["normalised_duration", "loss_pct"]).filter(pl.col("lossy_runs") > 0)
    caption = (
        "Duration from the end of the first step to that of the last, over the mean of the lossless runs of the same "
        "setting, of settings that ran with loss, too. A mark is a run; a line goes through the means of a setting."
    )
    section.figure(zerwas.duration_by_loss, comparable, caption, parts=[section.part(comparable, frame)])
    cut = frame.filter(pl.col("loss_pct") > 0).drop_nulls("left_out_reason")
    section.sentences = [
        f"{counted(rows.height, 'run')} with {digits(loss)}% loss not compared: {reason}."
        for (loss, reason), rows in cut.group_by("loss_pct", "left_out_reason", maintain_order=True)
    ]
    columns = [
        texts("run", "run_id"), numbers("packet loss (%)", "loss_pct"), numbers("duration (s)", "duration_s"),
        texts("known from", "duration_source", words), numbers("steps", "steps", count),
        numbers("lossless runs", "lossless_runs", count), texts("compared by", "normalised_by"),
        numbers("of the lossless duration", "normalised_duration"),
    ]  # fmt: skip
    section.table(comparable, columns, "Runs with a lossless run to compare with.")


@chapter.section("simulated", "Step time by rate of the links", Source("link_utilization"), reference="gao, fig. 4.7")
def simulated(section: Section, frame: pl.DataFrame) -> None:
    rows = section.need(frame.filter(pl.col("source").is_in(["simulation", "ns3"])), _NO_SIMULATED_STEPS)
    section.headline = (
        f"{counted(len(rows), 'simulated run')}: a step takes {span(rows['step_ms'], milliseconds)}; the busiest link "
        f"transmits for {span(rows['utilization'])} of the step (equation 5.2)."
    )
    if rows["bandwidth_mbit"].n_unique() > 1:
        caption = "A point is a simulated run, a line its job and the order of its exchanges."
        section.figure(gao.simulated_step_time, rows, caption)
    columns = [
        texts("run", "run_id"), texts("topology", "topology"), numbers("workers", "workers", count),
        numbers("rate (Mbit/s)", "bandwidth_mbit"), texts("exchanges", "variant"), numbers("step (ms)", "step_ms"),
        numbers("transmission (ms)", "network_ms"), numbers("step : transmission", "compute_to_network"),
    ]  # fmt: skip
    section.table(rows, columns, "Equation 5.1 takes the time of the step for that of the computation.")
