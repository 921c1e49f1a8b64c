"""verify: explore.html of a release shows its tables, by this program and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from damages import assert_found, damages_of, declared, found, replaced, sealed

import ddnn_traces
from ddnn_traces.release.verify.examined import NOT_CHECKED, PASSED
from ddnn_traces.report import explorer
from ddnn_traces.store import layout


def lines(folder: Path, scratch: Path) -> dict[str, str]:
    return {row.subject: row.status for row in found(folder, scratch, "explorer") if row.check == "explorer"}


@pytest.mark.parametrize("damage", damages_of("explorer"))
def test_a_damage_is_found(folder: Path, tmp_path: Path, damage: str) -> None:
    assert_found(folder, tmp_path / "scratch", damage)


def test_the_page_is_of_the_released_tables(release: Path, small: Path, tmp_path: Path) -> None:
    assert lines(release, tmp_path) == {layout.EXPLORER: PASSED, "its program": PASSED}
    page = (release / layout.EXPLORER).read_text()
    with ddnn_traces.open(release) as opened:
        assert explorer.page(opened, "Small traces")[1].startswith("2 runs")
    with ddnn_traces.open(small) as opened:
        addresses = opened.sql("SELECT DISTINCT host_ip FROM hosts")["host_ip"].to_list()
    assert addresses and not [address for address in addresses if address in explorer.texts(page)]
    assert len(page) < 5e6 and layout.EXPLORER in (release / layout.CARD).read_text()


def test_what_cannot_be_judged_is_said(folder: Path, tmp_path: Path) -> None:
    replaced(layout.EXPLORER, "window.vegaEmbed=", "window.vegaEmbed =")(folder)
    sealed(folder)
    assert lines(folder, tmp_path / "vega") == {layout.EXPLORER: PASSED, "its program": NOT_CHECKED}
    declared(lambda d: d.update(software="ddnn_traces 9.9"))(folder)
    sealed(folder)
    assert lines(folder, tmp_path / "version") == {layout.EXPLORER: PASSED, "its program": NOT_CHECKED}
    (folder / layout.EXPLORER).unlink()
    sealed(folder)
    assert lines(folder, tmp_path / "none") == {layout.EXPLORER: NOT_CHECKED}
