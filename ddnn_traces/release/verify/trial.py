"""A small copy of a release for libraries that read whole tables into memory: some files, cut to their first rows.

mlcroissant and frictionless read by pandas; tables of 100 million rows do not fit. What only holds of whole tables
(their sums, rows, keys, references) other checks look at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ddnn_traces.release import facts
from ddnn_traces.release.verify.examined import Examined

#: Rows of all files together; a release with fewer is not cut.
MOST_ROWS = 10_000
#: Files together: to open one takes mlcroissant and frictionless some 30 ms each.
MOST_FILES = 300


@dataclass
class Trial:
    """The folder, the paths of its files, and of those that are cut. rows: of each file. whole: nothing is left out."""

    folder: Path
    rows: int = 0
    files: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    whole: bool = True

    @property
    def told(self) -> str:
        """What was read, in words."""
        return "all rows" if self.whole else f"up to {self.rows} rows of each of {len(self.files)} files"


def make(examined: Examined) -> Trial:
    """The copy, made once. Raises pyarrow's exceptions, OSError."""
    trial = Trial(examined.scratch / "trial")
    release = examined.told()
    every = [file for table in release.tables for file in table.files]
    runs = _some_runs(release)
    files = [file for file in every if file.run_id in runs]
    total = sum(file.rows for file in files)
    trial.rows = total if total <= MOST_ROWS else max(10, MOST_ROWS // len(files))
    trial.files = {file.path for file in files}
    trial.cut = {file.path for file in files if file.rows > trial.rows}
    trial.whole = not trial.cut and len(files) == len(every)
    if not trial.folder.exists():
        for file in files:
            _copy(examined.content, file, trial)
    return trial


def _some_runs(release: facts.Release) -> set[str]:
    """So many runs, the first and the last among them, that they have not more than MOST_FILES files; two at least."""
    runs = sorted({file.run_id for table in release.tables for file in table.files})
    number = max(2, MOST_FILES // max(1, len(release.tables)))
    if len(runs) <= number:
        return set(runs)
    return {runs[place * (len(runs) - 1) // (number - 1)] for place in range(number)}


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
