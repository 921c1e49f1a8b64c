"""Fixtures of the tests of predict."""

from __future__ import annotations

import pytest

from ddnn_traces.regression import predict as predict_module


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draws for the intervals of an hour: 200,000 are only needed where a test examines those."""
    monkeypatch.setattr(predict_module, "DRAWS", 1_000)
