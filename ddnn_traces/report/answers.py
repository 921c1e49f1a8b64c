"""The rows that a report is made of: every query asked once, and what of them a figure can show."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from ddnn_traces import regression
from ddnn_traces.query import catalogue
from ddnn_traces.report.section import Figure, Source
from ddnn_traces.report.words import number

if TYPE_CHECKING:
    import altair as alt

    from ddnn_traces.query.dataset import Dataset
    from ddnn_traces.regression import Regression

#: runs.source of a run that synthetic.py made.
SYNTHETIC = "synthetic"
NO_FLOWS = "No run of this dataset has a flow; see the table of captured packets above for what became of them."
NO_LOG = (
    "No run has training steps: put the training's log (train_history.log, or a train_history-worker-N.log of each "
    "worker) beside its captures and ingest the run again."
)


class Answers:
    """The named queries of a dataset, each asked at most once, within a `with` block.

    Views that queries read are kept as temporary tables of the same names, which DuckDB finds before the views: many
    queries read topology or pair_payload, and would compute them each time they name them.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._frames: dict[str, pl.DataFrame] = {}
        self._kept: dict[str, None] = {}  # in order

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for name in reversed(self._kept):
            self._dataset.sql(f"DROP TABLE temp.{name}")

    def frame(self, source: Source) -> pl.DataFrame:
        """The rows of a source."""
        if source.command not in self._frames:
            for name in catalogue.find(source.query).inputs:
                self._keep(name)
            self._frames[source.command] = self._dataset.query(source.query, **source.params)
        return self._frames[source.command]

    def _keep(self, name: str) -> None:
        query = catalogue.catalogue().get(name)
        if query is None or name in self._kept:
            return
        for inner in query.inputs:
            self._keep(inner)
        if not query.params:
            self._dataset.sql(f"CREATE TEMP TABLE {name} AS FROM {name}")
            self._kept[name] = None

    @cached_property
    def fit(self) -> Regression:
        """The regression of the volume of a step."""
        return regression.fit(self.frame(Source("run_step_volume")))

    @property
    def places(self) -> pl.DataFrame:
        """The runs that have a flow, in the order in which they enter a figure."""
        return self.frame(Source("figure_runs"))

    def first_runs(self, frame: pl.DataFrame, most: int) -> pl.DataFrame:
        """The rows of so many of the frame's runs, in its order.

        Those count that come first in figure_runs, and before runs without a flow, which are not in there.
        """
        runs = frame.select("run_id").unique(maintain_order=True)
        placed = runs.join(self.places, on="run_id", how="left", maintain_order="left")
        among = placed.sort("place", nulls_last=True, maintain_order=True).head(most)
        return frame.join(among, on="run_id", how="semi", maintain_order="left")

    @cached_property
    def made_up(self) -> str:
        """How many of the runs were never measured, as a sentence; empty where all were."""
        sources = self.frame(Source("run_overview"))["source"]
        synthetic = int((sources == SYNTHETIC).sum())
        if not synthetic:
            return ""
        return (
            f"{synthetic:,} of {number(len(sources), 'run')} {'is' if synthetic == 1 else 'are'} synthetic (made up by "
            "the laws of the collectives), not measured."
        )

    @property
    def no_steps(self) -> str:
        """Why there is no traffic in steps, and how to get some."""
        return NO_FLOWS if self.places.is_empty() else NO_LOG

    def of_drawn(self, frame: pl.DataFrame) -> str:
        """A headline's limit, where it is made from fewer runs than there are."""
        drawn = frame["run_id"].n_unique()
        return "" if drawn == self.places.height else f" (of the {number(drawn, 'run')} drawn here)"


def figure(name: str, chart: alt.TopLevelMixin, caption: str, sources: Sequence[Source]) -> Figure:
    """A chart as a figure of the page."""
    spec: dict[str, Any] = chart.to_dict(validate=False)
    return Figure(name, spec, caption.strip(), sources)
