"""No column that tells who, where or when is forgotten: schemas/ says of each what it identifies."""

from __future__ import annotations

import pytest

from ddnn_traces.store import schema

#: Columns of words that ingest chooses itself, or that are no words of anybody: nothing in them is anybody's.
_OWN_WORDS = {
    "capture_ledger.reason", "captures.format", "captures.link_types",
    "captures.counter_source", "captures.status", "captures.engine", "captures.version", "encapsulations.kind",
    "events.group_ranks", "events.kind", "events.profiler", "events.state", "flows.initiator_source",
    "hosts.role", "messages.end_source", "runs.fault_kind", "runs.source",
    "step_flows.position", "steps.start_source",
}  # fmt: skip

_COLUMNS = [(table.name, column) for table in schema.tables() for column in table.columns]


def test_columns_say_what_they_identify(subtests: pytest.Subtests) -> None:
    for table, column in _COLUMNS:
        with subtests.test(f"{table}.{column.name}"):
            check_column(table, column)


def check_column(table: str, column: schema.Column) -> None:
    expected = {"_ip": "address", "_port": "port"}.get("_" + column.name.rsplit("_", 1)[-1], "")
    if "since the epoch" in column.unit:
        expected = "time"
    if column.name == "clock_reference_ip":
        expected = "clock"  # an address, which tells that it is the first of its run
    if expected:
        assert column.identifies == expected
    elif column.type == "string":
        assert (column.identifies in schema.IDENTIFIES) == (f"{table}.{column.name}" not in _OWN_WORDS)
    else:
        assert column.identifies in ("", "tunnel", "flow", "connection", "size", "clock", "hash")
        assert (column.identifies == "flow") == column.name.endswith("flow_id")
        assert (column.identifies == "clock") == ("clock_" in column.name)
        assert (column.identifies == "size") == (column.name == "file_bytes")
