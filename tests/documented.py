"""The examples of README.md and docs/ for the tests that run them: docs/examples.py, and what it needs of pytest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tools import Once, run_here, script

from ddnn_traces.testbed import matrix

ROOT = Path(__file__).parents[1]


examples = script("docs/examples.py")
examples.run_here = run_here
#: The examples of each page.
BLOCKS = {page: list(examples.blocks(examples.page_text(page))) for page in examples.PAGES}


def lines_of(page: str) -> Iterator[str]:
    """The lines of sh of a page that call the command."""
    for block in BLOCKS[page]:
        if block.kind == "sh":
            yield from (line for line in block.lines if examples.command_words(line) is not None)


def run_page(page: str, folder: Path, once: Once) -> None:
    """Run the examples of a page in a folder and compare what they print."""
    shared = {"traces": "sample"}  # the fixture sample_dataset has that name
    examples.prepare(
        page, folder, lambda name: once(shared.get(name, f"docs-{name}"), lambda path: examples.make_source(name, path))
    )
    done = examples.outputs(page, folder)
    assert len(done) == len(BLOCKS[page])
    for block, printed in done:
        if block.shown is not None:
            assert examples.agrees(block.shown, printed), (
                f"{block.code}\n{printed}\nlook at it, then `make docs-examples`"
            )
    for name in re.findall(r"sudo ddnn-traces .*?\b(\w+\.toml)", "\n".join(lines_of(page))):
        assert matrix.read(next(path for path in (folder / name, examples.ROOT / "data" / name) if path.exists())).runs
