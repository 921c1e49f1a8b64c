"""traffic.svg, the card's figure: traffic between the hosts of some runs, as in the report."""

from __future__ import annotations

from ddnn_traces.release import facts

CAPTION = (
    "Transmitted volume of each directed pair of hosts, in one logarithmic colour scale; k, M and G are 10³, 10⁶ and "
    "10⁹ bytes. One run of each framework, backend and topology comes before the second of any."
)


def svg(release: facts.Release) -> str | None:
    """The figure; None for a release without flows."""
    if not release.figure:
        return None
    import polars as pl

    from ddnn_traces.report.charts import style, zerwas

    return style.svg(zerwas.volume_heatmaps(pl.DataFrame(list(release.figure))).to_dict(validate=False)) + "\n"
