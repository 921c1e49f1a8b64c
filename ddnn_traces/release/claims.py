"""claims.csv: what a release's findings are, each with the question that computes its number from the released tables.

The file is of others. A command in it is read as words and answered inside this process, by SQL that reads the
release's own tables: no shell, no other program, no other file.
"""

from __future__ import annotations

import contextlib
import math
import re
import shlex
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddnn_traces.errors import DdnnTracesError, UsageError
from ddnn_traces.messages import Messages
from ddnn_traces.query import bounded, catalogue, read_only
from ddnn_traces.query.dataset import Dataset, matching_runs
from ddnn_traces.release.facts import Claim
from ddnn_traces.store import layout
from ddnn_traces.store.places import place, zipped
from ddnn_traces.text import counted, nearest, one_line, printable
from ddnn_traces.text_files import MOST_DOCUMENT, csv_cells, read_text

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = tuple(column.name for column in fields(Claim))
NEEDED = COLUMNS[:5]

#: The word of a command that stands for the release, which the reader replaces by its place.
RELEASE = "RELEASE"
PROGRAM = "ddnn-traces"

#: Claims of a file; letters of a command and of each other cell.
MOST_CLAIMS, MOST_COMMAND, MOST_LETTERS = 1000, 20_000, 1000
#: Seconds of one claim, and of all: an artifact committee's reader waits so long.
CLAIM_S, ALL_S = 300.0, 1800.0
#: Bytes of a value.
_MOST_BYTES = 1 << 20
#: Letters of a reason.
_MOST_REASON = 300

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "could not be computed"


@dataclass(frozen=True)
class Command:
    """A question of this program: SQL or the name of a query, its parameters, the runs that it is of."""

    statement: str = ""
    query: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """A claim, what was found, whether it holds, and why nothing was found where that is so."""

    claim: Claim
    found: str
    verdict: str
    reason: str = ""

    def __str__(self) -> str:
        why = self.reason or f"found {self.found}, expected {self.claim.expected}"
        return printable(f"{self.claim.claim}: {self.verdict} ({why})")


def table(outcomes: Sequence[Outcome]) -> pa.Table:
    """A row a claim; all texts, control characters of others' escaped."""
    import pyarrow as pa

    head = ("claim", "expected", "found", "unit", "tolerance", "verdict", "reason")
    rows = [vars(one) | vars(one.claim) for one in outcomes]
    columns = [pa.array([printable(row[name]) for row in rows], pa.string()) for name in head]
    return pa.Table.from_arrays(columns, head)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many hold, of how many."""
    counts = Counter(one.verdict for one in outcomes)
    parts = [
        f"{counts[HOLDS]} hold",
        *(f"{counts[verdict]} {verdict}" for verdict in (FAILS, UNKNOWN) if counts[verdict]),
    ]
    return f"{counted(len(outcomes), 'claim')}: {', '.join(parts)}"


# --- the file


def of_release(folder: Path) -> tuple[Claim, ...]:
    """The claims of a release. Raises UsageError, also where it has none."""
    path = folder / layout.CLAIMS
    if not path.is_symlink() and not path.exists():
        raise UsageError(f"{path}: there is no such file, so that no claim is made; give claims of yours with --claims")
    return read(path)


def answerable(path: Path) -> tuple[Claim, ...]:
    """As read(), for a release. Raises UsageError, too, where a query or a parameter of it is not known."""
    claims = read(path)
    for one in claims:
        asked = command(one)
        if asked.query:
            try:
                catalogue.find(asked.query).values(dict(asked.params))
            except DdnnTracesError as error:
                raise UsageError(f"{path}: claim {printable(one.claim)}, column command: {_line(error)}") from error
    return claims


def read(path: Path) -> tuple[Claim, ...]:
    """The claims of a file, all of them well-formed. Raises UsageError naming line and column of what is not.

    Of a query that is not known, and so of a parameter, evaluate() says that the claim cannot be computed.
    """
    if path.is_symlink() and path.name == layout.CLAIMS:  # of a release: it could lead to any file
        raise UsageError(f"{path}: a link; a release has the file itself")
    lines = read_text(path, MOST_DOCUMENT, UsageError).split("\n")
    rows = [(number, csv_cells(line.removesuffix("\r"))) for number, line in enumerate(lines, 1) if line.strip()]
    if len(rows) > MOST_CLAIMS + 1:
        raise UsageError(f"{path}: {len(rows) - 1:,} claims; at most {MOST_CLAIMS:,} are read")
    head = (rows[0][1] or []) if rows else []
    _check_head(path, head)
    claims = tuple(_claim(f"{path}: line {number}", head, cells) for number, cells in rows[1:])
    seen: set[str] = set()
    for (number, _), one in zip(rows[1:], claims, strict=True):
        if one.claim in seen:
            raise UsageError(f"{path}: line {number}, column claim: the same as another claim; give it its own name")
        seen.add(one.claim)
    return claims


def _check_head(path: Path, head: Sequence[str]) -> None:
    for name in head:
        if name not in COLUMNS:
            raise UsageError(f"{path}: line 1: unknown column {printable(name[:100])}; {nearest(name[:100], COLUMNS)}")
    missing = [name for name in NEEDED if name not in head]
    if missing or len(set(head)) < len(head):
        what = f"has no column {', '.join(missing)}" if missing else "has a column twice"
        raise UsageError(f"{path}: line 1 {what}; the columns are {', '.join(NEEDED)}, and as needed unit, n, column")


def _claim(where: str, head: Sequence[str], cells: Sequence[str] | None) -> Claim:
    if cells is None or len(cells) != len(head):
        what = "cannot be read as CSV" if cells is None else f"has {counted(len(cells), 'cell')}, not {len(head)}"
        raise UsageError(f"{where} {what}; quote a text with commas, and write a statement on one line")
    values = dict(zip(head, map(str.strip, cells), strict=True))
    for name, value in values.items():
        if len(value) > (MOST_COMMAND if name == "command" else MOST_LETTERS):
            raise UsageError(f"{where}, column {name}: {len(value):,} letters; shorten it")
        if not value and name in NEEDED[:4]:
            raise UsageError(f"{where}, column {name}: is empty")
    claim = Claim(**values)
    checks: dict[str, Callable[[Claim], object]] = {"command": command, "tolerance": _tolerance}
    for name, check in checks.items():
        try:
            check(claim)
        except DdnnTracesError as error:
            raise UsageError(f"{where}, column {name}: {_line(error)}") from error
    return claim


def _line(error: Exception) -> str:
    text = one_line(str(error))
    return printable(text if len(text) <= _MOST_REASON else f"{text[:_MOST_REASON]}...")


def _tolerance(claim: Claim) -> Decimal | None:
    """How far a number may be off; None: the texts are equal. Raises UsageError."""
    given = claim.tolerance
    if not given or given == "exact":
        return None
    of = _number(claim.expected, "expected")
    if given.endswith("%"):
        return abs(of) * _positive(given[:-1]) / 100
    return _positive(given)


def _positive(text: str) -> Decimal:
    value = _number(text, "tolerance")
    if value < 0:
        raise UsageError(f"{text}: below 0")
    return value


def _number(text: str, what: str) -> Decimal:
    with contextlib.suppress(ValueError, OverflowError):
        if math.isfinite(value := float(text)):
            return Decimal(repr(value))
    raise UsageError(f"{what} {text[:100]!r} is no number; write 0.02, 1% or exact")


# --- the command


def command(claim: Claim) -> Command:
    """The question of a claim. Raises UsageError for all else than a question of this program that reads."""
    try:
        words = shlex.split(claim.command)
    except ValueError as error:
        raise UsageError(f"cannot be read ({error})") from None
    ways = f"write {PROGRAM} sql {RELEASE} 'SELECT ...' or {PROGRAM} query {RELEASE} NAME"
    if len(words) < 4 or words[0] != PROGRAM or words[1] not in ("sql", "query"):
        raise UsageError(f"{' '.join(words[:2])[:100]!r} is not run; {ways}")
    if words[2] != RELEASE:
        raise UsageError(f"{words[2][:100]!r} is not read: only the release itself is, by the word {RELEASE}; {ways}")
    first, options = words[3], _options(words[4:], words[1] == "query")
    params, runs = dict(options["--param"]), tuple(run for run, _ in options["--run"])
    if words[1] == "sql":
        return Command(statement=_statement(first), runs=runs)
    return Command(query=first, params=params, runs=runs)


def _options(words: Sequence[str], is_query: bool) -> dict[str, list[tuple[str, str]]]:
    """Values of --run and --param, as pairs of what stands before and after the equals sign. Raises UsageError."""
    found: dict[str, list[tuple[str, str]]] = {"--run": [], "--param": []}
    known = ("--run", "--param") if is_query else ("--run",)
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in known:
            raise UsageError(f"{word[:100]!r}: only {' and '.join(known)} may follow")
        value = value if equals else next(rest, "")
        key, equals, after = value.partition("=") if name == "--param" else (value, "=", "")
        if not key or not equals:
            raise UsageError(f"{name} {value[:100]}: needs {'NAME=VALUE' if name == '--param' else 'a run'}")
        found[name].append((key, after))
    return found


def _statement(text: str) -> str:
    """The statement, if it is one that reads. Raises UsageError."""
    import duckdb

    try:
        statements = duckdb.extract_statements(text)
    except (duckdb.Error, UnicodeEncodeError) as error:
        raise UsageError(f"no SQL: {error}") from None
    if len(statements) != 1:
        raise UsageError(f"{counted(len(statements), 'statement')}; give one")
    read_only.check(text)
    return text


#: A constant, or a quoted name, in SQL.
_QUOTED = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_PLAIN_NUMBER = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?%?")


def names(claim: Claim) -> list[str]:
    """Runs and texts that a claim names; not the names of tables and columns, and no plain numbers."""
    asked = command(claim)
    quoted = [part for found in _QUOTED.findall(asked.statement) for part in found]
    found = [claim.expected, *quoted, *asked.params.values(), *asked.runs]
    return [name for name in found if name and not _PLAIN_NUMBER.fullmatch(name)]


# --- the answers


@contextlib.contextmanager
def folder_of(release: str | Path) -> Iterator[Path]:
    """The folder of a dataset or release, a bag or a zip file. Raises UsageError, ReleaseError."""
    if place.is_url(release):
        raise UsageError(f"{release}: claims are computed of files on this machine; download the release first")
    path = Path(release)
    if not place.is_zip(path):
        yield layout.content(path)
        return
    with tempfile.TemporaryDirectory(prefix="ddnn-traces-") as scratch:
        zipped.unpack(path, Path(scratch), whole=True)
        yield layout.content(Path(scratch))


def evaluate(
    folder: Path,
    claims: Sequence[Claim],
    messages: Messages | None = None,
    claim_s: float = CLAIM_S,
    all_s: float = ALL_S,
) -> list[Outcome]:
    """What becomes of each claim, by the tables in a folder. claim_s, all_s: seconds of one, and of all.

    Raises UsageError where the folder is no dataset.
    """
    ends = time.monotonic() + all_s
    found = []
    with _Opened(folder) as opened:
        opened.of(())
        for number, claim in enumerate(claims, 1):
            if messages:
                messages.info(printable(f"{number} of {len(claims)}: {claim.claim}"))
            left = min(claim_s, ends - time.monotonic())
            found.append(
                _outcome(opened, claim, left)
                if left > 0
                else Outcome(claim, "", UNKNOWN, f"all claims together had {all_s:g} s")
            )
    return found


class _Opened:
    """The dataset, confined to its own files, once for each choice of runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._undo = contextlib.ExitStack()
        self._known: dict[tuple[str, ...], Dataset] = {}

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def of(self, runs: tuple[str, ...]) -> Dataset:
        """The dataset with these runs; (): with all. Raises UsageError."""
        if runs not in self._known:
            chosen = matching_runs(runs, self._folder) or None
            opened = self._undo.enter_context(Dataset(self._folder, chosen))
            bounded.confine(opened)
            self._known[runs] = opened
        return self._known[runs]


def _outcome(opened: _Opened, claim: Claim, limit_s: float) -> Outcome:
    """Raises nothing for what is wrong with the claim."""
    asked = command(claim)
    limit: bounded.Limit | None = None
    try:
        dataset = opened.of(asked.runs)
        with (limit := bounded.Limit(dataset.provide(""), limit_s)):
            rows = _rows(dataset, asked)
    except DdnnTracesError as error:
        ended = limit.why_ended if limit else ""
        return Outcome(claim, "", UNKNOWN, f"ended: {ended}" if ended else _line(error))
    try:
        value = _value(rows, claim.column)
    except UsageError as error:
        return Outcome(claim, "", UNKNOWN, _line(error))
    return judged(claim, value)


def _rows(dataset: Dataset, asked: Command) -> pa.Table:
    """The first two rows at least, which is enough to see whether there is one."""
    if asked.query:
        return dataset.query_arrow(asked.query, dict(asked.params))
    bound = f"FROM (\n{asked.statement.rstrip().rstrip(';')}\n) LIMIT 2"  # a statement may end with a comment
    (statement,) = dataset.statements(bound)
    read_only.check(statement)
    return dataset.sql_arrow(statement)


def _value(rows: pa.Table, column: str) -> Any:
    """The one value. Raises UsageError with what there is in its place."""
    if not rows.num_rows:
        raise UsageError("no row")
    if rows.num_rows > 1:
        raise UsageError("several rows; a claim is one value")
    names = rows.column_names
    if not column and len(names) != 1:
        raise UsageError(f"{counted(len(names), 'column')}; name the one that counts in the column `column`")
    if column and names.count(column) != 1:
        raise UsageError(f"no column {printable(column)}; {printable(nearest(column, names))}")
    if rows.nbytes > _MOST_BYTES:
        raise UsageError(f"a value of {rows.nbytes:,} bytes; at most {_MOST_BYTES:,} are compared")
    value = rows[names.index(column) if column else 0][0].as_py()
    if value is None:
        raise UsageError("the value is null")
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"the value is {value}")
    if isinstance(value, list | dict | bytes):
        raise UsageError(f"the value is a {type(value).__name__}, neither a number nor a text")
    return value


def judged(claim: Claim, value: Any) -> Outcome:
    """Whether a value is the expected one, within the tolerance."""
    shown = (
        str(value).lower() if isinstance(value, bool) else f"{value:.10g}" if isinstance(value, float) else str(value)
    )
    tolerance = _tolerance(claim)
    if tolerance is None:
        return Outcome(claim, shown, HOLDS if shown == claim.expected else FAILS)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return Outcome(claim, "", UNKNOWN, f"a text where a number is expected: {one_line(shown)[:100]}")
    off = abs(Decimal(str(value)) - _number(claim.expected, "expected"))
    return Outcome(claim, shown, HOLDS if off <= tolerance else FAILS)
