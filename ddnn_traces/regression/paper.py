"""The table and the sentences of Zerwas et al. 2021, section VI, from this dataset, beside the paper's own numbers."""

from __future__ import annotations

from dataclasses import dataclass

from ddnn_traces.regression.outcome import Regression
from ddnn_traces.regression.results import ALPHA, Coefficient
from ddnn_traces.regression.verdicts import SIZES


@dataclass(frozen=True)
class PaperRow:
    """A line of equation (1), or a number of the fit: what it is here, and what the paper prints."""

    name: str
    here: str
    paper: str


SIZE = "Model_Size"
_SIZE = "significant: 5.7 MB more data a step for 1 MB more model"
_BACKEND = "significant only for KungFu PairAvg, negative"
_ZERO = f"insignificant at alpha = {ALPHA}; 95% confidence intervals include 0"


def table(regression: Regression) -> list[PaperRow]:
    """One line a term of equation (1), then R2 and the correlation."""
    terms = {
        SIZE: (SIZES, _SIZE),
        "Framework_Backend": (("C(framework_backend)",), _BACKEND),
        "Batch_Size": (("C(batch_size)", "batch_size"), _ZERO),
        "Comm_Topology": (("C(topology)",), _ZERO),
    }
    rows = [PaperRow(name, _term(regression, names), paper) for name, (names, paper) in terms.items()]
    r_squared = "nothing is fitted" if regression.r_squared is None else f"{regression.r_squared:.6g}"
    correlation = "not known" if regression.correlation is None else f"{regression.correlation:.3g}"
    return [*rows, PaperRow("R2", r_squared, "0.98"), PaperRow("correlation of size and data", correlation, "0.97")]


def _term(regression: Regression, names: tuple[str, ...]) -> str:
    verdict = next((verdict for verdict in regression.verdicts if verdict.term in names), None)
    if verdict is None:
        return "not in the formula"
    if not verdict.estimable:
        return verdict.sentence
    told = {True: "significant", False: f"insignificant at alpha = {ALPHA}", None: "not tested"}[verdict.significant]
    own = [c for c in regression.coefficients if c.term == verdict.term]
    if verdict.term in SIZES:
        interval = "" if own[0].ci_low is None else f" [{own[0].ci_low:.4g}, {own[0].ci_high:.4g}]"
        return f"{told}: {own[0].estimate:.4g}{interval} MB more data a step for 1 MB more model"
    apart = [f"{_level(c)} ({_sign(c)})" for c in _own(regression, verdict.term) if (c.p_value or 0) < ALPHA]
    if apart:
        return f"{told}; intervals without 0: {', '.join(apart)}"
    judged = verdict.significant is not None and _own(regression, verdict.term)
    return f"{told}; 95% confidence intervals include 0" if judged else told


def sentences(regression: Regression) -> list[str]:
    """The paper's sentences with this dataset's numbers; only those that the fit can say."""
    said = []
    missing = missing_size(regression)
    if missing:
        said.append(
            f"{SIZE}, the main regressor of equation (1), is not in this fit ({missing}): it is not the paper's "
            "equation, and its numbers are not to be compared with the paper's."
        )
    if regression.r_squared is not None:
        said.append(f"The regression yields an R2 of {regression.r_squared:.6g} (the paper: 0.98).")
    zero = [v.term for v in regression.verdicts if v.significant is False]
    if zero:
        said.append(
            f"{' and '.join(zero)} {'is' if len(zero) == 1 else 'are'} statistically insignificant at alpha = {ALPHA} "
            "(the paper: Batch_Size and Comm_Topology)."
        )
    said += _backends(regression)
    slope = next((c for c in regression.coefficients if c.name in SIZES), None)
    if slope is not None and regression.left == "step_bytes":
        bounds = "" if slope.ci_low is None else f", 95% interval {slope.ci_low:.4g} to {slope.ci_high:.4g}"
        said.append(
            f"An increase of 1 MB in model size corresponds to {slope.estimate:.4g} MB of data transmitted per step on "
            f"average{bounds} (the paper: 5.7 MB)."
        )
    if regression.correlation is not None:
        said.append(
            "Correlating model size and data transmitted per step yields a correlation value of "
            f"{regression.correlation:.3g} (the paper: 0.97)."
        )
    return said


def missing_size(regression: Regression) -> str | None:
    """Why there is no estimate of the model's size in what is fitted; None where there is one."""
    verdict = next((verdict for verdict in regression.verdicts if verdict.term in SIZES), None)
    if not regression.coefficients or (verdict and verdict.estimable):
        return None
    return verdict.sentence.removeprefix("cannot be estimated: ") if verdict else "not in the formula"


def _own(regression: Regression, term: str) -> list[Coefficient]:
    """The term's coefficients that have an interval and hold no other term's effect."""
    return [c for c in regression.coefficients if c.term == term and c.p_value is not None and c.told_apart]


def _backends(regression: Regression) -> list[str]:
    own = _own(regression, "C(framework_backend)")
    if not own:
        return []
    found = [c for c in own if c.p_value is not None and c.p_value < ALPHA]
    named = "for no configuration" if not found else "for " + ", ".join(f"{_level(c)} ({_sign(c)})" for c in found)
    rest = "" if len(found) in (0, len(own)) else "; it is insignificant for the other configurations"
    if any(not c.told_apart for c in regression.coefficients if c.term == "C(framework_backend)"):
        rest += "; some configurations cannot be told apart from another term"
    return [f"Framework_Backend is significant {named}{rest} (the paper: only for KungFu PairAvg, negative)."]


def _sign(coefficient: Coefficient) -> str:
    return "negative" if coefficient.estimate < 0 else "positive"


def _level(coefficient: Coefficient) -> str:
    return coefficient.name.partition("[T.")[2].removesuffix("]") or coefficient.name
