"""What the address of the page says, and what it says after a change."""

from __future__ import annotations

import pytest

from ddnn_traces.explore import state
from ddnn_traces.explore.answers import Selection
from ddnn_traces.explore.contents import ALL

KNOWN = [
    {"run_id": "a", "framework": "torch", "backend": "gloo", "model": "mlp1", "topology": "ring", "hosts": 2},
    {"run_id": "b", "framework": "torch", "backend": "gloo", "model": None, "topology": "tree", "hosts": 10},
    {"run_id": "c", "framework": "tf", "backend": "grpc", "model": "mlp1", "topology": "tree", "hosts": 4},
]


class Parameters(dict[str, str]):
    """As marimo's query parameters."""

    def to_dict(self) -> dict[str, str]:
        return dict(self)

    def set(self, key: str, value: str) -> None:
        self[key] = value

    def remove(self, key: str) -> None:
        self.pop(key, None)


@pytest.mark.parametrize(
    ("address", "selection"),
    [
        ({}, Selection(("a",))),
        ({"run": "b"}, Selection(("b",))),
        ({"runs": '["c", "a", "c", "gone"]', "run": "b"}, Selection(("c", "a"))),
        ({"runs": "[1"}, Selection(("a",))),
        ({"runs": "[2,0,9,-1,{}]"}, Selection(("c", "a"))),
        ({"runs": "[]", "topology": "tree"}, Selection(("b",))),
        ({"topology": "mesh"}, Selection()),
        ({"run": "b", "from": "1.5", "to": "2"}, Selection(("b",), (1.5, 2.0))),
        ({"run": "b", "from": "2", "to": "1"}, Selection(("b",))),
        ({"run": "b", "from": "nan", "to": "inf"}, Selection(("b",))),
        ({"run": "b", "from": "x", "to": "1"}, Selection(("b",))),
        ({"run": "b", "from": "-inf", "to": "inf"}, Selection(("b",), ALL)),
    ],
)
def test_an_address_is_read(address: dict[str, str], selection: Selection) -> None:
    assert state.read(address, KNOWN).selection == selection


def test_values_are_counted_among_what_the_other_settings_leave() -> None:
    found = state.counts(KNOWN, {"topology": "tree"})
    assert found["topology"] == {"ring": 1, "tree": 2}
    assert found["framework"] == {"tf": 1, "torch": 1}
    assert list(found["hosts"].items()) == [("4", 1), ("10", 1)]
    assert found["model"] == {"mlp1": 1, "not known": 1}
    assert state.fitting(KNOWN, {"topology": "tree", "framework": "torch"}, kept=["a"]) == ["a", "b"]


def test_what_is_kept_is_read_again() -> None:
    parameters = Parameters(run="b", narrow="1")
    address = state.Address(parameters, KNOWN)
    assert address.keep_runs(["b", "c"]).selection == Selection(("b", "c"))
    assert address.keep_zoom((0.25, 1 / 3)).selection == Selection(("b", "c"), (0.25, 0.333333333))
    assert address.keep(topology="tree").facets == {"topology": "tree"}
    assert parameters.keys() == {"runs", "from", "to", "topology", "narrow"}
    again = state.Address(Parameters(parameters), KNOWN).state()
    assert again == address.state() and again.is_narrow
    many = [{**KNOWN[0], "run_id": f"run of a long name {number}"} for number in range(300)]
    address_of_many = state.Address(long := Parameters(), many)
    names = [run["run_id"] for run in many[50:]]
    assert address_of_many.keep_runs(names).selection == Selection(tuple(names)) and len(long["runs"]) < 1000
    assert address.keep_zoom(None).selection.zoom is None and address.keep(topology=None).facets == {}
