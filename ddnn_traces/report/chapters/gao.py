"""Gao: simulated runs, their step times, and the slack of each layer."""

from __future__ import annotations

import polars as pl

from ddnn_traces.report.charts import simulation as charts
from ddnn_traces.report.section import Chapter, Column, Section, Source, numbers, texts
from ddnn_traces.report.words import count, span
from ddnn_traces.text import counted

RUNS = 6
_NO_RUNS = "No run is simulated: `ddnn-traces simulate --out DATASET` writes one (docs/simulator.md)."
_NO_LAYERS = "No simulated run has events of its layers: `ddnn-traces simulate --layer-events` writes them."

chapter = Chapter("gao", "Gao: simulated runs")


@chapter.section("simulated", "Step time by rate of the links (fig. 4.7)", Source("link_utilization"), _NO_RUNS)
def simulated(section: Section, frame: pl.DataFrame) -> None:
    rows = section.need(frame.filter(pl.col("source") == "simulation"), _NO_RUNS)
    section.headline = (
        f"{counted(len(rows), 'simulated run')}: a step takes {span(rows['step_ms'])} ms; the busiest link transmits "
        f"for {span(rows['utilization'])} of it (equation 5.2)."
    )
    if rows["bandwidth_mbit"].n_unique() > 1:
        caption = "A point is a simulated run, a line its job and the order of its exchanges."
        section.figure(charts.simulated_step_time, rows, caption)
    columns = [
        texts("run", "run_id"), texts("topology", "topology"), numbers("workers", "workers", count),
        numbers("rate (Mbit/s)", "bandwidth_mbit"), texts("exchanges", "variant"), numbers("step (ms)", "step_ms"),
        numbers("transmission (ms)", "network_ms"), numbers("step : transmission", "compute_to_network"),
    ]  # fmt: skip
    section.table(rows, columns, "Equation 5.1 takes the time of the step for that of the computation.")


@chapter.section("slack", "Slack of each layer (figs. 4.8 to 4.11)", Source("layer_slack"), _NO_LAYERS)
def slack(section: Section, frame: pl.DataFrame) -> None:
    rows = section.first_runs(frame, RUNS)
    first = pl.col("worker") == pl.col("worker").first().over("run_id")
    rows = rows.filter(first & (pl.col("step") == pl.col("step").min().over("run_id")))
    least = rows.group_by("run_id", maintain_order=True).agg(
        pl.col("slack_ms").min().alias("least"), pl.col("slack_ms").median().alias("median"), pl.len().alias("layers")
    )
    section.headline = (
        f"A layer's gradients are exchanged {span(least['median'])} ms before the layer computes with them (median "
        f"of the layers of a run){section.of_drawn(rows)}."
    )
    caption = (
        "Blue: exchange of the buffer with the layer's gradients. Grey: its gradients are computed. Orange: its "
        "forward computation begins. The slack is between blue and orange. First step of the first worker."
    )
    section.figure(charts.layer_timeline, rows, caption, of=frame)
    columns = [
        texts("run", "run_id"), numbers("layers", "layers", count), numbers("least slack (ms)", "least"),
        Column("median (ms)", lambda row: f"{row['median']:.4g}", is_number=True),
    ]  # fmt: skip
    section.table(least, columns, "Slack of the layers in the first step of the first worker.")
