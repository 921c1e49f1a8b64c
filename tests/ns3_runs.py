"""Runs of the ns-3 model for tests."""

from __future__ import annotations

from functools import cache
from typing import Any

from tools import needs_tool

from ddnn_traces.traffic import ns3
from ddnn_traces.traffic.ns3 import ns3_results, process
from ddnn_traces.traffic.ns3.ns3_results import Ns3Result


@cache
def compiled() -> process.Engine:
    """g++ compiles once for all tests of a process; cppyy would in each."""
    needs_tool("g++")
    return process.find("g++")


def simulated(**values: Any) -> Ns3Result:
    return ns3.simulate(ns3.job(values), compiled())


def measured(**values: Any) -> dict[str, Any]:
    return ns3_results.summary(simulated(**values))
