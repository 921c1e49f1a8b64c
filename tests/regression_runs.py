"""Runs for tests of the regression, and short forms of its results."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import polars as pl

from ddnn_traces import regression
from ddnn_traces.regression import PAPER_FORMULA, Regression

# of make_runs
MODELS = (14_000_000, 98_000_000, 528_000_000)  # MobileNet, ResNet-50, VGG-16: bytes of parameters
EFFECT = {"kungfu-pair": -6e8, "tf-grpc": 0.0, "torch-gloo": 0.0}
# of noisy_runs
SIZES = (14_000_000, 80_000_000, 97_000_000, 171_000_000)


def make_runs(noise: float = 1e7) -> pl.DataFrame:
    """36 runs, full factorial, whose step takes 5.7 bytes a model byte, less for KungFu's pair averaging.

    variant: each run is a cell, also where a test removes the attributes in which they differ.
    """
    rng = np.random.default_rng(7)
    return pl.DataFrame(
        {
            "run_id": f"{backend}-{batch}-{topology}-{size}",
            "step_bytes": 1e9 + 5.7 * size + EFFECT[backend] + rng.normal(0, noise),
            "model_bytes": size,
            "model_size_mb": size / 1e6,
            "framework_backend": backend,
            "batch_size": batch,
            "topology": topology,
            "variant": f"{backend}-{batch}-{topology}-{size}",
        }
        for backend, batch, topology, size in product(EFFECT, (32, 64), ("ring", "star"), MODELS)
    )


def fit(rows: pl.DataFrame, formula: str | None = None, errors: str | None = None, **options: Any) -> Regression:
    """The regression, by equation (1) where no formula is given."""
    return regression.fit(rows, formula, errors, **{"form": PAPER_FORMULA} | options)


def estimates(result: Regression) -> dict[str, float]:
    return {c.name: c.estimate for c in result.coefficients}


def sentence(result: Regression, term: str) -> str:
    return next(v.sentence for v in result.verdicts if v.term == term)


def verdict(result: Regression, term: str) -> tuple[bool, bool | None]:
    return next((v.estimable, v.significant) for v in result.verdicts if v.term == term)


def noted(result: Regression, *facts: str) -> list[str]:
    """The notes that have all of these facts."""
    return [note for note in result.notes if all(fact in note for fact in facts)]


def missing_facts(text: str, *facts: str) -> list[str]:
    """The facts that a sentence does not have: tests assert that there are none, and leave its wording free."""
    return [fact for fact in facts if fact not in text]


def blank(runs: pl.DataFrame, column: str, *rows: int) -> pl.DataFrame:
    """`runs` with nulls in `column` at `rows`."""
    hit = pl.int_range(pl.len()).is_in(list(rows))
    return runs.with_columns(pl.when(hit).then(None).otherwise(pl.col(column)).alias(column))


def assert_nothing_fitted(result: Regression, reason: str) -> None:
    assert (result.r_squared, result.adj_r_squared, result.df_resid) == (None, None, None)
    assert result.coefficients == ()
    assert result.notes[0].startswith("Nothing is fitted: ")
    assert reason in result.notes[0]
    assert result.points.height == result.rows
    assert result.points["fitted"].null_count() == result.rows


def noisy_runs(**columns: Any) -> pl.DataFrame:
    """24 runs of three frameworks, two batch sizes and two topologies, with noise."""
    rng = np.random.default_rng(3)
    rows = [
        {
            "run_id": f"run-{i:02d}",
            "model_bytes": size,
            "framework_backend": ("tf-grpc", "torch-gloo", "kungfu-pair")[i % 3],
            "batch_size": (32, 64)[i % 2],
            "topology": ("ring", "star")[i % 6 // 3],
            "model": f"m{size}",
            "source": "capture",
        }
        for i, size in enumerate(np.repeat(SIZES, 6).tolist())
    ]
    frame = pl.DataFrame(rows).with_columns(
        step_bytes=6.0 * pl.col("model_bytes")
        - 2e8 * (pl.col("framework_backend") == "kungfu-pair")
        + pl.Series(rng.normal(0, 2e7, 24))
    )
    return frame.with_columns(**columns)


def as_paper(rows: pl.DataFrame, **options: Any) -> Regression:
    return Regression(**vars(fit(rows, **options)) | {"preset": "paper"})


def joint(result: Regression, term: str) -> str:
    """The numbers of the joint test as a sentence has them."""
    test = next(test for test in result.tests if test.term == term)
    assert test.f is not None
    assert test.p_value is not None
    statistic = f"{test.f:,.0f}" if test.f >= 1000 else f"{test.f:.4g}"
    p_value = "p < 0.0001" if test.p_value < 1e-4 else f"p = {test.p_value:.3g}"
    return f"F({test.df}, {f'{test.df_denominator:.1f}'.removesuffix('.0')}) = {statistic}, {p_value}"
