"""The examples of the pages on releases, which need the extra publish; tests/test_examples.py runs the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from documented import Once, examples, run_page


@pytest.mark.views
@pytest.mark.parametrize("page", sorted(examples.OF_RELEASES))
def test_examples_run_and_print_what_the_page_shows(page: str, tmp_path: Path, once: Once) -> None:
    run_page(page, tmp_path, once)
