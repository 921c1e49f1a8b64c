"""verify: the definitions in traces.duckdb."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from damages import assert_found, damages_of, found, other_software, replaced, sealed

from ddnn_traces.query import views
from ddnn_traces.release.verify import database_checks
from ddnn_traces.release.verify.examined import NOT_CHECKED
from ddnn_traces.store import layout


@pytest.mark.parametrize("damage", damages_of("database"))
def test_a_damage_is_found_by_its_check(folder: Path, tmp_path: Path, damage: str) -> None:
    assert_found(folder, tmp_path / "scratch", damage)


def test_queries_of_another_version_are_not_called_right(folder: Path, tmp_path: Path) -> None:
    """Nor wrong, where they read only the tables; and descriptions are not compared word for word then."""
    other_software("CREATE OR REPLACE VIEW ring_order AS SELECT run_id FROM flows, range(3)")(folder)
    replaced(layout.DATASHEET, "# Datasheet", "# A datasheet")(folder)
    sealed(folder)
    rows = {(row.check, row.subject): row for row in found(folder, tmp_path / "scratch", "database", "agreement")}
    queries = rows["database", "queries"]
    assert queries.status == NOT_CHECKED
    assert "ring_order" in queries.detail
    assert "do not rely on them" in queries.detail
    words = rows["agreement", "all descriptions"]
    assert words.status == NOT_CHECKED
    assert "not compared word for word: made by ddnn_traces 0.0.9" in words.detail


def test_this_programs_own_queries_are_harmless() -> None:
    """Else a release of another version would always fail."""
    with duckdb.connect() as connection:
        views.define_relative(connection, [])
        defined = database_checks._definitions(connection)
        assert len(defined) > 50
        for name, several in defined.items():
            assert [database_checks.harm(connection, one.sql, defined) for one in several] == [""], name


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('x')",
        "SELECT * FROM 'x.parquet'",
        "SELECT (SELECT content FROM read_text('x'))",
        "WITH found AS (SELECT * FROM glob('*')) SELECT * FROM found",
        "SELECT * FROM sniff_csv('x')",
        "SELECT * FROM parquet_metadata('x')",
        "SELECT * FROM query('SELECT 1')",
        "SELECT * FROM another.flows",
        "SELECT getenv('HOME')",
        "current_setting('home_directory')",
        "SELECT 1; ATTACH 'x'",
        "COPY flows TO 'x'",
        "PIVOT flows ON run_id",
    ],
)
def test_what_reads_more_than_the_tables_is_harmful(sql: str) -> None:
    with duckdb.connect() as connection:
        assert database_checks.harm(connection, sql, {"flows"})
        assert database_checks.harm(connection, f"CREATE VIEW x AS {sql}", {"flows"})
        assert not database_checks.harm(connection, "CREATE VIEW x AS SELECT upper(run_id) FROM flows", {"flows"})
