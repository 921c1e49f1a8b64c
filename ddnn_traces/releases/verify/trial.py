"""A small copy of a release for libraries that read whole tables into memory: every file, cut to its first rows.

mlcroissant and frictionless read by pandas; tables of 100 million rows do not fit. What only holds of whole tables
(their sums, rows, keys, references) other checks look at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ddnn_traces.releases import facts
from ddnn_traces.releases.verify.examined import Examined

#: Rows of all files together; a release with fewer is not cut.
MOST_ROWS = 10_000


@dataclass
class Trial:
    """The folder, and the paths of the files that are cut in it. rows: of each file."""

    folder: Path
    rows: int = 0
    cut: set[str] = field(default_factory=set)

    @property
    def told(self) -> str:
        """What was read, in words."""
        return f"the first {self.rows} rows of each file" if self.cut else "all rows"


def make(examined: Examined) -> Trial:
    """The copy, made once. Raises pyarrow's exceptions, OSError."""
    trial = Trial(examined.scratch / "trial")
    files = [file for table in examined.told().tables for file in table.files]
    total = sum(file.rows for file in files)
    trial.rows = total if total <= MOST_ROWS else max(10, MOST_ROWS // len(files))
    if not trial.folder.exists():
        for file in files:
            _copy(examined.content, file, trial)
    trial.cut = {file.path for file in files if file.rows > trial.rows}
    return trial


def _copy(content: Path, file: facts.TableFile, trial: Trial) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = trial.folder / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.rows <= trial.rows:
        target.symlink_to((content / file.path).absolute())
        return
    parquet = pq.ParquetFile(content / file.path)
    first = next(parquet.iter_batches(trial.rows, use_threads=False))
    pq.write_table(pa.Table.from_batches([first.slice(0, trial.rows)], parquet.schema_arrow), target)
