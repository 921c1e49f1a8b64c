"""The tables of docs/ns3.md: iteration times of ns-3 and of the simulator without background, and ns-3's speed.

Run it as `python benchmarks/ns3.py`; it needs the extra ns3.
"""

from __future__ import annotations

from ddnn_traces.traffic import ns3, simulator
from ddnn_traces.traffic.ns3 import engine, results
from ddnn_traces.traffic.simulator import specification

RATES_MBIT = (1000, 2000, 5000, 10_000, 20_000)
#: The thesis's default model among eight workers; 54 bytes of headers a packet of 8940 are 9 of 1448.
JOB = {"workers": 8, "iterations": 2, "delay_ms": 0.02}
HEADER_BYTES = 9


def main() -> None:
    """Print a row a rate."""
    chosen = engine.find()
    print(chosen)
    print("| Mbit/s | ns3 (ms) | simulate (ms) | difference | events | events/s | simulated s a wall s |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for rate in RATES_MBIT:
        values = {**JOB, "bandwidth_mbit": rate}
        found = results.summary(ns3.simulate(ns3.job(values), chosen))
        events = simulator.simulate(specification.job({**values, "header_bytes": HEADER_BYTES}))
        expected, packets = float(events.iteration_ms.mean()), found["iteration_ms"]
        row = f"{rate:,} | {packets:,.1f} | {expected:,.1f} | {packets / expected - 1:+.2%} | {found['events']:,}"
        print(f"| {row} | {found['events_per_s']:,.0f} | {found['simulated_per_wall']:.2f} |")


if __name__ == "__main__":
    main()
