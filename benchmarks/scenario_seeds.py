"""Number of seeds for which zerwas section VI's findings hold in its synthetic scenarios (docs/scenarios.md).

python benchmarks/scenario_seeds.py --seeds 20
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import ddnn_traces
from ddnn_traces.regression import PAPER_FORMULA, Regression
from ddnn_traces.traffic import synthetic

SIZE = PAPER_FORMULA.split("~")[1].split("+")[0].strip()
PAIR_AVERAGING = "C(framework_backend)[T.kungfu-pairavg]"


def findings(fit: Regression) -> dict[str, bool]:
    """The paper's findings, and whether each holds."""
    verdicts = {verdict.term: verdict.significant for verdict in fit.verdicts}
    levels = {c.name: c for c in fit.coefficients}
    slope, pair_averaging = levels[SIZE], levels[PAIR_AVERAGING]
    others = [c for c in fit.coefficients if c.term == "C(framework_backend)" and c is not pair_averaging]
    small = {
        "batch insignificant": verdicts["C(batch_size)"] is False,
        "topology insignificant": verdicts["C(topology)"] is False,
    }
    if fit.formula != PAPER_FORMULA:  # the others are of equation (1) alone
        return small
    return small | {
        "R2 0.97 to 0.99": 0.97 <= (fit.r_squared or 0) <= 0.99,
        "the slope's interval holds 6": (slope.ci_low or 0) < 6 < (slope.ci_high or 0),
        "pair averaging negative": (pair_averaging.ci_high or 0) < 0,
        "no other framework significant": all((c.p_value or 0) > 0.05 for c in others),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noise", type=float, default=synthetic.DEFAULT_NOISE)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--formula")
    arguments = parser.parse_args()
    held: dict[str, int] = {}
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "dataset"
            synthetic.generate(out, steps=arguments.steps, seed=seed, noise=arguments.noise)
            with ddnn_traces.open(out) as opened:
                fit = ddnn_traces.regress(opened, arguments.formula, preset="paper", errors="classic")
        found = findings(fit)
        slope = next(c for c in fit.coefficients if c.name == SIZE)
        failed = [name for name, holds in found.items() if not holds]
        print(f"seed {seed}: R2 {fit.r_squared:.4f}, slope {slope.estimate:.3f}, correlation {fit.correlation:.3f}",
              f"fails: {', '.join(failed)}" if failed else "", flush=True)  # fmt: skip
        for name, holds in found.items():
            held[name] = held.get(name, 0) + holds
    for name, seeds in held.items():
        print(f"{name}: {seeds} of {arguments.seeds}")


if __name__ == "__main__":
    main()
