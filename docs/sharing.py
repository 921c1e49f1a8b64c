"""Keeps what docs/sharing.md and notebooks/06-sharing.ipynb show: `python docs/sharing.py CAMPAIGN [OPTIONS]`.

CAMPAIGN: folder of the sweep gao_5.toml or gao_5_cut.toml of docs/simulations; -: what is kept of it stays. OPTIONS:
folder with those of ns3_*.toml there, each named as its file; of those that are not there it stays. data/sharing gets
what the page and the notebook read: cells, seed_results, of the flows those of figures 5.6 to 5.11, of transfers and
layers those of figures 5.20 to 5.23. docs/sharing gets the figures. Prints the tables of the page.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import polars as pl
import vl_convert

from ddnn_traces.query import sweep_queries
from ddnn_traces.report.charts import gao
from ddnn_traces.traffic.ns3.ns3_sweep import axes

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data" / "sharing"
FIGURES = ROOT / "docs" / "sharing"
SIMULATIONS = ROOT / "docs" / "simulations"
#: Larger figures are kept as PNG.
MOST_SVG = 200_000
#: Figures of the campaign that the page shows.
SHOWN = (
    "operating_boundary", "ratio_16", "ratio_8", "ratio_4", "ratio_2", "rate_23", "rate_46", "rate_92", "rate_184",
    "application_ratio_0.5", "application_ratio_0.25", "duration_cdf_16", "duration_cdf_8", "duration_cdf_4",
    "gains_16",
    "progression_4_92_same", "progression_4_92_lower", "progression_2_92_same", "progression_2_92_lower",
)  # fmt: skip
#: Columns of the table of the campaign, with their digits: of query operating_boundary, as of with_intervals.
BOUNDARY = {
    "compute_to_network": "g", "flows_per_s": "g", "seeds": "", "iteration": "", "region": "", "small": "", "large": "",
}  # fmt: skip
#: Likewise of query thesis_statements.
STATEMENTS = {
    "compute_to_network": "g", "flows_per_s": "g", "measure": "", "stated_pct": "+g", "seeds": "", "change": "",
    "here": "",
}  # fmt: skip
#: Columns of the table of the options: a sweep, its axes, and measures, means of its seeds.
OPTIONS = {
    "sweep": "", "values": "", "seeds": "", "iteration_ms": ",.0f", "small_mean_ms": ".3f", "small_p99_ms": ".2f",
    "large_mean_ms": ".1f", "other_iteration_ms": ",.0f",
}  # fmt: skip
#: Likewise of sweeps with a stream.
STREAMS = {
    "sweep": "", "values": "", "seeds": "", "stream_delivered_pct": ".2f", "stream_mean_ms": ".3f",
    "stream_p99_ms": ".3f", "stream_jitter_ms": ".4f",
}  # fmt: skip
#: Measures of setting_changes that the page shows, by the names of their columns there.
CHANGES = {"iteration_ms": "iteration", "small_mean_ms": "small", "large_mean_ms": "large"}


def table(frame: pl.DataFrame, columns: dict[str, str]) -> list[str]:
    """Rows of a table of the page."""
    rows = frame.select(*columns).iter_rows()
    return [f"| {' | '.join(map(_cell, row, columns.values()))} |" for row in rows]


def _cell(value: object, form: str) -> str:
    text = "-" if value is None else format(value, form)
    return text.replace("-", "+") if text == "-0.0" else text


def with_intervals(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """The frame with a column for each name: its change and, where there is one, its 95% interval."""
    columns = {name: f"{name}_change_pct" if name != "change" else "change_pct" for name in names}
    return frame.with_columns(
        pl.Series(
            name,
            [
                _interval(row[change], row[f"{name}_low_pct"], row[f"{name}_high_pct"])
                for row in frame.iter_rows(named=True)
            ],
            pl.String,
        )
        for name, change in columns.items()
    )


def _interval(change: float | None, low: float | None, high: float | None) -> str:
    return _cell(change, "+.1f") + ("" if low is None else f" [{_cell(low, '+.1f')}, {_cell(high, '+.1f')}]")


def tables(data: Path) -> list[list[str]]:
    """Those of the page: the campaign, what the thesis states beside it, the options, their streams, and changes."""
    boundary = with_intervals(sweep_queries.run(data, "operating_boundary"), "iteration", "small", "large")
    statements = with_intervals(sweep_queries.run(data, "thesis_statements"), "change")
    options = pl.read_parquet(data / "options.parquet")
    streams = options.filter(pl.col("stream_delivered_pct").is_not_null())
    changes = pl.read_parquet(data / "option_changes.parquet")
    forms = dict.fromkeys(changes.columns, "")
    shown = (boundary, BOUNDARY), (statements, STATEMENTS), (options, OPTIONS), (streams, STREAMS), (changes, forms)
    return [table(*each) for each in shown]


def keep_campaign(campaign: Path) -> None:
    """Write what is kept of the campaign anew."""
    _keep_tables(campaign)
    gao.write(campaign, axes(SIMULATIONS / "gao_5.toml"))
    for name in SHOWN:
        for old in FIGURES.glob(f"{name}.*"):
            old.unlink()
        figure = campaign / "figures" / f"{name}.svg"
        if figure.stat().st_size < MOST_SVG:
            shutil.copy(figure, FIGURES)
        else:
            png = vl_convert.svg_to_png(figure.read_text(encoding="utf-8"))
            (FIGURES / f"{name}.png").write_bytes(png)


def keep_options(options: Path) -> None:
    """Write what is kept of the options anew, of those that are in the folder."""
    for name, kept in {"options": _means, "option_changes": _changes}.items():
        path = DATA / f"{name}.parquet"
        before, parts = pl.read_parquet(path), []
        for file in sorted(SIMULATIONS.glob("ns3_*.toml")):
            folder, sweep = options / file.stem, file.stem.removeprefix("ns3_")
            parts.append(kept(folder, sweep) if folder.exists() else before.filter(sweep=sweep))
        pl.concat(parts, how="diagonal").write_parquet(path, compression_level=19)
    for file in SIMULATIONS.glob("ns3_*.toml"):
        if (options / file.stem).exists():
            gao.write(options / file.stem, axes(file))
            shutil.copy(options / file.stem / "figures" / "by_axis.svg", FIGURES / f"{file.stem}.svg")


def _keep_tables(campaign: Path) -> None:
    cells = pl.read_parquet(campaign / "cells.parquet")
    shown = sweep_queries.run(campaign, "progression_cells")["cell"]
    of_one_seed = cells.filter(pl.col("seed") == pl.col("seed").min())
    drawn = of_one_seed.filter(pl.col("flows_per_s") == pl.col("flows_per_s").min())["cell"]
    kept = {
        "cells": cells,
        "seed_results": sweep_queries.run(campaign, "seed_results"),
        "background_flows": _rows(campaign, "background_flows", drawn),
        "transfers": _rows(campaign, "transfers", shown).filter(pl.col("worker") == 0),
        "layers": _rows(campaign, "layers", shown),
        "buffers": _rows(campaign, "buffers", shown),
    }
    for name, frame in kept.items():
        frame.write_parquet(DATA / f"{name}.parquet", compression_level=19)


def _rows(campaign: Path, name: str, cells: pl.Series) -> pl.DataFrame:
    return pl.read_parquet(campaign / f"{name}.parquet").filter(pl.col("cell").is_in(cells.implode()))


def _means(folder: Path, sweep: str) -> pl.DataFrame:
    """A row for each cell but its seed: means over the seeds that have a measure."""
    cells = pl.read_parquet(folder / "cells.parquet")
    facts = cells.columns[1 : cells.columns.index("expected_utilization")]
    varied = [fact for fact in facts if fact != "seed" and cells[fact].n_unique() > 1]
    values = pl.concat_str([pl.format(f"{axis} {{}}", pl.col(axis)) for axis in varied], separator=", ")
    measures = [name for name in [*list(OPTIONS)[3:], *list(STREAMS)[3:]] if name in cells.columns]
    grouped = cells.group_by(values.alias("values"), maintain_order=True)
    means = grouped.agg(seeds=pl.len(), **{name: pl.col(name).cast(pl.Float64).mean() for name in measures})
    return means.with_columns(sweep=pl.lit(sweep))


def _changes(folder: Path, sweep: str) -> pl.DataFrame:
    """A row for each change of a setting, whose columns are texts with intervals."""
    rows = sweep_queries.run(folder, "setting_changes").filter(pl.col("measure").is_in(list(CHANGES)))
    texts = [_interval(*each) for each in rows.select("change_pct", "change_low_pct", "change_high_pct").iter_rows()]
    beside = pl.when(pl.col("others") == "").then(pl.lit("")).otherwise(pl.format(", {}", "others"))
    change = pl.format("{} {} for {}{}", "setting", "value", "reference", beside)
    named = rows.select(
        change.alias("change"), measure=pl.col("measure").replace_strict(CHANGES), text=pl.Series(texts)
    )
    wide = named.pivot("measure", index="change", values="text", maintain_order=True)
    return wide.select(pl.lit(sweep).alias("sweep"), "change", *CHANGES.values())


if __name__ == "__main__":
    folders = [*map(Path, sys.argv[1:])]
    if folders[0] != Path("-"):
        keep_campaign(folders[0])
    if folders[1:]:
        keep_options(folders[1])
    print("\n\n".join("\n".join(rows) for rows in tables(DATA)))
