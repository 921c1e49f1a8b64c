"""Formulas: only the language of formulas is evaluated, and errors name the reason."""

from __future__ import annotations

import polars as pl
import pytest
from regression_runs import make_runs

from ddnn_traces.errors import RegressionError
from ddnn_traces.regression import fit


def test_the_error_of_an_unknown_name_lists_the_known_ones():
    with pytest.raises(RegressionError, match="unknown columns: sise ") as caught:
        fit(make_runs(), "step_bytes ~ model_bytes + C(sise)")
    for name in (*make_runs().columns, "model_bytes"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "formula",
    [
        "step_bytes ~ __import__('os').system('touch {}')",
        "step_bytes ~ I(__import__('os').system('touch {}'))",
        "step_bytes ~ open('{}', 'w')",
        "step_bytes ~ C(open('{}', 'w'))",
        "__import__('pathlib').Path('{}').touch() ~ model_bytes",
        "step_bytes ~ model_bytes + Q(\"__import__('pathlib').Path('{}').touch()\")",
        "step_bytes ~ I([open(p, 'w') for p in ['{}']])",
        "step_bytes ~ I((lambda: open('{}', 'w'))())",
        "step_bytes ~ I(f\"{{open('{}', 'w')}}\")",
        "step_bytes ~ model_bytes ~ open('{}', 'w')",
    ],
)
def test_code_in_a_formula_is_refused_and_does_not_run(formula, tmp_path):
    mark = tmp_path / "ran"
    with pytest.raises(RegressionError, match="Not a formula"):
        fit(make_runs(), formula.format(mark))
    assert not mark.exists()


@pytest.mark.parametrize(
    "formula",
    [
        "step_bytes ~ model_bytes.__class__",
        "step_bytes ~ np.load(model_bytes)",
        "step_bytes ~ np.lib.npyio.log(model_bytes)",
        "step_bytes ~ np(model_bytes)",
        "step_bytes ~ np + model_bytes",
        "step_bytes ~ C",
        "step_bytes ~ exit()",
        "step_bytes ~ breakpoint(model_bytes)",
        "step_bytes ~ np.log(model_bytes, model_bytes)",
        "step_bytes ~ np.log(out=model_bytes)",
        "step_bytes ~ C(topology)(model_bytes)",
        "step_bytes ~ model_bytes[0]",
        "step_bytes ~ I(model_bytes if 1 else 2)",
        "step_bytes ~ I(model_bytes and 2)",
        "step_bytes ~ I(a := 1)",
        "step_bytes ~ `model_bytes`",
        "step_bytes ~ {model_bytes}",
        "step_bytes ~ model_bytes @ model_bytes",
        "step_bytes ~ model_bytes # and more",
        "step_bytes ~ ｅｘｅｃ(model_bytes)",
        "step_bytes ~ True",
        "step_bytes ~ 'model_bytes'",
        "step_bytes ~ 1j",
        "step_bytes ~ I(9 ** 9 ** 9 ** 9)",
        "step_bytes ~ I((9 ** 9) ** 9)",
        "step_bytes ~ I(model_bytes ** 999)",
        "step_bytes ~ I(model_bytes ** model_bytes)",
        "step_bytes ~ " + "(" * 230 + "model_bytes" + ")" * 230,
        "step_bytes ~ " + "-" * 300 + "model_bytes",
        "step_bytes ~ model_bytes" + " + model_bytes" * 100,
        "step_bytes ~ ",
        " ~ model_bytes",
        "~",
        "",
        "model_bytes",
        "step_bytes ~ model_bytes +",
        "step_bytes ~ model_bytes)(",
    ],
)
def test_a_text_that_is_not_a_formula_is_refused(formula):
    with pytest.raises(RegressionError, match="Not a formula"):
        fit(make_runs(), formula)


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("step_bytes ~ model_bytes + 3", "cannot be evaluated: numbers besides"),
        ("step_bytes ~ np.log(topology)", "cannot be evaluated"),
        ("step_bytes ~ I(model_bytes : batch_size)", "cannot be evaluated"),
        ("C(step_bytes) ~ model_bytes", "must be one number a row"),
        ("topology ~ batch_size", "must be one number a row"),
        ("I(step_bytes ** 10 * step_bytes ** 8) ~ model_bytes", "squares"),
        ("step_bytes ~ I(model_bytes * 1e-200)", "squares"),
        ("step_bytes ~ model_bytes + step_bytes", "step_bytes is on both sides"),
    ],
)
def test_a_formula_that_gives_no_numbers_is_refused_with_the_reason(formula, message):
    with pytest.raises(RegressionError, match=message):
        fit(make_runs(), formula)


def test_whole_numbers_do_not_overflow_in_a_formula():
    """1e9 ** 3 is beyond int64, which wraps silently."""
    runs = make_runs().with_columns(big=pl.col("model_bytes") * 10)
    runs = runs.with_columns(cube=pl.col("big").cast(pl.Float64) ** 3)
    cubic, linear = fit(runs, "step_bytes ~ I(big ** 3)"), fit(runs, "step_bytes ~ cube")
    assert cubic.r_squared == pytest.approx(linear.r_squared, rel=1e-12)
