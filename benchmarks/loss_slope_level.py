"""How often the preset duration-on-loss finds an effect of loss where there is none (docs/regression.md): 5% is right.

python benchmarks/loss_slope_level.py --repetitions 1000
"""

from __future__ import annotations

import argparse

import numpy as np
import polars as pl

from ddnn_traces.regression.design import make_design
from ddnn_traces.regression.estimate import Estimate
from ddnn_traces.regression.fitting import PRESETS
from ddnn_traces.regression.formula import parse
from ddnn_traces.regression.inference import coefficients_of

FORMULA = PRESETS["duration-on-loss"].forms[0]
#: The loss [%] of each run of a setting, for each setting that is compared.
LAYOUTS = {
    "one setting, three lossless runs and one lossy": [(0.0, 0.0, 0.0, 0.5)],
    "three settings, a lossless run and a lossy one each": [(0.0, 1.0)] * 3,
    "ten settings, a lossless run and lossy ones of 0.01, 0.1 and 1%": [(0.0, 0.01, 0.1, 1.0)] * 10,
    "six settings of different losses and numbers of runs": [
        (0.0, 0.5), (0.0, 0.0, 1.0), (0.1, 2.0), (0.0, 0.01, 0.1, 1.0), (0.0, 0.0, 0.0, 2.0), (0.5, 0.5, 1.0),
    ],
}  # fmt: skip


def p_value(losses: list[tuple[float, ...]], spread: float, rng: np.random.Generator) -> float:
    """Of loss_pct, where the durations of a setting differ by chance alone: log-normally."""
    rows = [(f"setting {i}", loss) for i, several in enumerate(losses) for loss in several]
    frame = pl.DataFrame(rows, schema=["setting", "loss_pct"], orient="row").with_columns(
        run_id=pl.int_range(pl.len()).cast(pl.String)
    )
    level = dict(enumerate(rng.uniform(0, 5, len(losses))))
    logs = [level[int(name.split()[1])] + spread * rng.standard_normal() for name, _ in rows]
    frame = frame.with_columns(comparable_s=np.exp(logs))
    formula = FORMULA if len(losses) > 1 else FORMULA.replace("C(setting) + ", "")
    design = make_design(frame, parse(formula, frame.columns))
    estimate = Estimate(design.response, design.columns, tuple(frame["run_id"]))
    found = next(c for c in coefficients_of(estimate, "classic") if c.name == "loss_pct")
    assert found.p_value is not None
    return found.p_value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--spread", type=float, default=0.1, help="standard deviation of the logarithms")
    arguments = parser.parse_args()
    for name, losses in LAYOUTS.items():
        rng = np.random.default_rng(0)
        found = [p_value(losses, arguments.spread, rng) < 0.05 for _ in range(arguments.repetitions)]
        print(f"{name}: {np.mean(found):.1%} of {arguments.repetitions}", flush=True)


if __name__ == "__main__":
    main()
