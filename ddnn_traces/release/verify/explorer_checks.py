"""explore.html: it shows the bytes of the release's tables, and its program is this one's, which fetches nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ddnn_traces.errors import DdnnTracesError
from ddnn_traces.query import checks
from ddnn_traces.release import facts
from ddnn_traces.release.verify.examined import ASK, Examined, Finding, WrongError, not_checked, passed, shown
from ddnn_traces.store import layout
from ddnn_traces.text import counted, sql_literal


def check_explorer(examined: Examined) -> Iterator[Finding]:
    """The bytes of each run are those of flow_windows; of this version the page is what it makes of the tables.

    Scripts of another version are not checked: whoever opens the page runs them. Raises WrongError.
    """
    from ddnn_traces.report import explorer

    release = examined.release
    if not (examined.content / layout.EXPLORER).is_file():
        if release.has_explorer:
            yield not_checked(layout.EXPLORER, "is not there; releases before 2026-11-27 have none")
        return
    if not release.has_explorer:
        raise WrongError(f"{layout.EXPLORER} is there, and no flows or windows that it could show; remove it")
    text = examined.text(layout.EXPLORER)
    try:
        page, runs = explorer.parts(text)
        drawn = {str(run["id"]): sum(map(int, run["bytes"])) for run in json.loads(runs)}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WrongError(f"{layout.EXPLORER} {shown(error)}; do not open it, {ASK}") from None
    stored = _sums(examined)
    if wrong := sorted(run for run in drawn.keys() | stored.keys() if drawn.get(run) != stored.get(run)):
        raise WrongError(f"{layout.EXPLORER} has other bytes of {shown(wrong[0])} than flow_windows; {ASK}")
    yield passed(layout.EXPLORER, f"the bytes of {counted(len(drawn), 'run')} are those of flow_windows")
    if release.software != facts.SOFTWARE:
        made_by = shown(release.software)
        yield not_checked("its program", f"{made_by} wrote it; open it only if you trust the publisher")
        return
    made, right = explorer.parts(_made(examined, release.about.title))
    if runs != right:
        raise WrongError(f"{layout.EXPLORER} shows something else than the tables; do not open it, {ASK}")
    if page == made:
        yield passed("its program", "byte for byte as this program writes it")
    elif explorer.without_vega(page) == explorer.without_vega(made):
        yield not_checked("its program", "has another version of Vega; open it only if you trust the publisher")
    else:
        raise WrongError(f"{layout.EXPLORER} has another program than this one writes; do not open it, {ASK}")


def _sums(examined: Examined) -> dict[str, int]:
    """Bytes of each run in flow_windows."""
    import duckdb

    files = sql_literal(str(examined.content / "flow_windows" / "*.parquet"))
    with duckdb.connect() as connection:
        rows = connection.execute(f"SELECT run_id, sum(wire_bytes)::BIGINT FROM {files} GROUP BY run_id").fetchall()
    return {str(run): int(total) for run, total in rows}


def _made(examined: Examined, title: str) -> str:
    from ddnn_traces.report import explorer

    try:
        with checks.with_little_memory(examined.folder, [], examined.jobs, examined.scratch / "explorer") as release:
            return explorer.page(release, title)[0]
    except DdnnTracesError as error:
        raise WrongError(f"the tables cannot be queried ({shown(error)}); see the failures above") from None
