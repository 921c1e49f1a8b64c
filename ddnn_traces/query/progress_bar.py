"""DuckDB's progress bar, which it draws on stdout, among the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb


def hide_progress_bar(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection draw none. In Jupyter without ipywidgets there is none, and DuckDB refuses to be told so."""
    if connection.execute("SELECT current_setting('enable_progress_bar')").fetchall() != [(False,)]:
        connection.execute("SET enable_progress_bar = false")
