"""The chart of one query, as the report draws it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import altair as alt
from altair.utils.schemapi import debug_mode

from ddnn_traces.errors import NoDataError, UsageError
from ddnn_traces.query import catalogue
from ddnn_traces.report.page import CHAPTERS
from ddnn_traces.report.section import NO_LOG, Figure, Results
from ddnn_traces.text import nearest

if TYPE_CHECKING:
    from ddnn_traces.query.dataset import Dataset

#: Queries that the report has figures of.
DRAWN = tuple(dict.fromkeys(query for chapter in CHAPTERS for query in chapter.drawn))
#: Queries whose rows are in the figure of another.
SHOWN_BY = {
    "traffic_matrix": "pair_volume",
    "topology": "topology_graph",
    "ring_order": "topology_graph",
    "total_volume": "volume_by_model",
    "pair_throughput": "pair_burst",
    "throughput_windows": "flow_timeline",
    "batch_burst_structure": "batch_pair_excerpt",
    "volume_to_accuracy": "accuracy_volume",
    "run_relative_duration": "duration_by_loss",
    "run_step_time": "condition_response",
    "sweep_cells": "condition_response",
}
_INFER_STEPS = (
    "Or take the steps that the traffic shows, where they are sure: --infer-steps, in Python open(..., "
    "infer_steps=True)."
)


def figures(dataset: Dataset, name: str, params: dict[str, Any] | None = None) -> list[Figure]:
    """The figures of a query, or of the one that shows its rows. params: of the query with the figure, also as text.

    Raises QueryError for unknown names and parameters, UsageError for a query without a figure, NoDataError where the
    dataset has no data for it.
    """
    catalogue.find(name)
    asked, name = name, _drawn_by(name)
    catalogue.find(name).values(params or {})  # refuses unknown ones
    found: list[Figure] = []
    missing: dict[str, None] = {}
    with Results(dataset, {name: params or {}}) as results:
        # the first screen has a small form of what a chapter shows whole
        for chapter in sorted(CHAPTERS, key=lambda chapter: chapter.slug == "summary"):
            for section in chapter.sections(results, only=chapter.drawn.get(name, ())):
                found += [figure for figure in section.figures if figure.sources[0].query == name]
                missing |= {section.missing: None} if section.missing else {}
    if not found:
        if NO_LOG in missing and not dataset.step_notes:
            missing |= {_INFER_STEPS: None}
        raise NoDataError(f"{asked}: nothing to draw. {each_once(missing)}".rstrip())
    return found


def each_once(missing: Iterable[str]) -> str:
    """The sentences of several texts, each once: sections that lack the same say how to get it in the same words."""
    return " ".join(dict.fromkeys(re.split(r"(?<=\.) ", " ".join(missing))))


def _drawn_by(name: str) -> str:
    """The query with the figure that shows a query's rows. Raises UsageError where there is none."""
    drawn = SHOWN_BY.get(name, name)
    if drawn not in DRAWN:
        raise UsageError(f"query {name} has no figure (without a query all figures are listed); {nearest(name, DRAWN)}")
    return drawn


def chart(dataset: Dataset, name: str, params: dict[str, Any] | None = None) -> alt.TopLevelMixin:
    """The chart of a query; of several the first. Raises as figures()."""
    spec = figures(dataset, name, params)[0].file_spec
    kind = next((kind for key, kind in _KINDS.items() if key in spec), alt.Chart)
    with debug_mode(False):
        drawn: alt.TopLevelMixin = kind.from_dict(spec, validate=False)
    return drawn


#: Altair's classes by the key that only their specifications have; Altair would try to validate one after the other.
_KINDS: dict[str, Any] = {
    "concat": alt.ConcatChart, "hconcat": alt.HConcatChart, "vconcat": alt.VConcatChart, "layer": alt.LayerChart,
    "facet": alt.FacetChart,
}  # fmt: skip
