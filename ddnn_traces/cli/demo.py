"""The main job on the shipped sample, end to end: the output of `make demo`."""

from __future__ import annotations

from pathlib import Path

import click

import ddnn_traces
from ddnn_traces.cli import terminal
from ddnn_traces.ingestors import pipeline
from ddnn_traces.messages import Messages
from ddnn_traces.regression import documents
from ddnn_traces.store import schema

#: The run whose traffic matrix is shown: a ring of four.
SHOWN_RUN = "torch-mlp1-sgd-32-gloo-normal-ring-n4"


def run(sample: Path | None, out: Path, messages: Messages) -> None:
    """Ingest `sample` into out/dataset, print the results of queries and of the regression, write out/report.html."""
    source = sample or schema.shipped_folder("data/sample")
    dataset = out / "dataset"
    messages.info(f"ingest {source}")
    pipeline.ingest([str(source)], dataset, messages=messages)
    with ddnn_traces.open(dataset) as opened:
        shown = SHOWN_RUN if SHOWN_RUN in opened.run_ids else opened.run_ids[0]
        terminal.print_table(opened.query_arrow("run_overview", {}), "The runs")
        matrix = opened.sql_arrow("SELECT * FROM traffic_matrix WHERE run_id = $run", {"run": shown})
        terminal.print_table(matrix.drop_columns("run_id"), f"Who sends how much to whom in {shown}")
        compared = opened.query_arrow("ring_comparison", {})
        shown_columns = ["run_id", "declared_topology", "inferred_topology", "declared_ring", "inferred_ring", "agrees"]
        terminal.print_table(compared.select(shown_columns), "Topology and ring in the traffic and the declared ones")
        click.echo("What drives the volume of a step\n")
        click.echo(documents.text(ddnn_traces.regress(opened)))
        report = ddnn_traces.write_report(opened, out / "report.html")
    click.echo(f"\nThe dataset is in {dataset}, the report in {report}.")
