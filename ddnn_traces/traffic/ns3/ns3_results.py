"""What a simulation on ns-3 gives: times, measures, and tables of what was counted packet by packet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
import pyarrow as pa

from ddnn_traces.errors import SimulationError
from ddnn_traces.traffic.ns3.ns3_job import LARGE, SMALL, Ns3Run
from ddnn_traces.traffic.simulator.event_loop import Schedule
from ddnn_traces.traffic.simulator.result import SETUP_NS, Timeline, events, step_times
from ddnn_traces.traffic.table_writer import TrafficTables
from ddnn_traces.traffic.traffic import SNAPLEN, Floats, StepTimes, Traffic, addresses_of
from ddnn_traces.version import __version__

#: Why a run ended that was not to end.
TIME_LIMIT = "time limit"
TRAINING_PORT, BACKGROUND_PORT, STREAM_PORT = 41000, 43000, 44000
_PPP = "9"  # the link type
_COUNTS = ("packets", "wire_bytes", "payload_bytes", "retransmitted_bytes")
_QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Ns3Result(Timeline):
    """A simulated run; its steps are those that all workers completed.

    ended: why it ended, iterations, simulated time or time limit. simulated_ns, wall_s, events: of ns-3; skipped_steps:
    iterations that were skipped (Ns3Run.skip_tolerance). high_exchanges: whether each exchange was in the background's
    band, in the order of their ends. other_iteration_ms: iterations of all other jobs. flows: a row a
    directed five-tuple, in the order of their first packets, as their senders sent them; windows, step_flows: its
    packets and bytes by window, and by the number of forward passes that the sender had ended. background: a row a
    background flow that began, end_ns -1 for one that did not end. partitions: a row a transfer of a partition.
    stream: a row a packet of the stream, end_ns -1 for one that did not arrive. drops: packets
    dropped at hosts and at switches, by band. uplinks: a row a link between a leaf and a spine, with the bytes that it
    carried up and down.
    """

    run: Ns3Run
    ended: str
    simulated_ns: int
    wall_s: float
    events: int
    skipped_steps: int
    high_exchanges: pl.Series
    other_iteration_ms: Floats
    flows: pl.DataFrame
    windows: pl.DataFrame
    step_flows: pl.DataFrame
    background: pl.DataFrame
    stream: pl.DataFrame
    partitions: pl.DataFrame
    drops: pl.DataFrame
    uplinks: pl.DataFrame

    @cached_property
    def steps(self) -> int:
        """Number of complete steps; run.steps, but where there are none."""
        return len(self.schedule.forward_end) - 1

    @property
    def is_whole(self) -> bool:
        """Whether the run ended as it was to end."""
        return self.ended != TIME_LIMIT

    def of_training(self) -> Self:
        """The run with the flows of its own training alone, numbered anew."""
        flows = self.flows.filter(_is_of(TRAINING_PORT)).with_row_index("number")
        numbers = flows.select("flow", number=pl.col("number").cast(pl.Int64))

        def kept(frame: pl.DataFrame) -> pl.DataFrame:
            return frame.join(numbers, on="flow", maintain_order="left").with_columns(flow="number").drop("number")

        windows, step_flows = kept(self.windows), kept(self.step_flows)
        return replace(self, flows=kept(flows.drop("number")), windows=windows, step_flows=step_flows)

    def measured_ns(self) -> tuple[float, float]:
        """Start and end of what is measured: without warm-up and cool-down."""
        return self.run.warm_up_s * 1e9, self.simulated_ns - self.run.cool_down_s * 1e9


def read(run: Ns3Run, out: Path, summary: dict[str, Any]) -> Ns3Result:
    """The results of a run in the folder `out`. Raises SimulationError where a worker did not end a forward pass."""
    names = (
        "flows",
        "windows",
        "step_flows",
        "background",
        "stream",
        "partitions",
        "drops",
        "uplinks",
        "forward_ends",
        "exchanges",
    )
    tables: dict[str, Any] = {name: _read(out, name) for name in names}
    exchanges = tables.pop("exchanges")
    others = [_iteration_ms(_read(out, f"forward_ends-{i + 1}")) for i in range(run.other_jobs)]
    tables["high_exchanges"] = exchanges["is_high"] == 1
    tables["other_iteration_ms"] = np.concatenate([np.empty(0), *others])
    schedule = _schedule(run, tables.pop("forward_ends"), exchanges)
    steps = len(schedule.forward_end) - 1
    planned = run.steps if run.seconds is None or summary["ended"] == "iterations" else None
    whole = run.changed(
        steps=max(steps, 1), planned_steps=planned, log=steps > 0, is_stopped=summary["ended"] == TIME_LIMIT
    )
    return Ns3Result(whole, schedule, **tables, **summary)


def _read(out: Path, name: str) -> pl.DataFrame:
    return pl.read_csv(out / f"{name}.csv", infer_schema=False).cast(pl.Int64)


def _iteration_ms(forward_ends: pl.DataFrame) -> Floats:
    """Iterations of all workers."""
    lasted = pl.col("end_ns").diff().over("worker")
    return forward_ends.sort("worker", "end_ns").select(lasted.drop_nulls() / 1e6).to_series().to_numpy()


def _schedule(run: Ns3Run, forward_ends: pl.DataFrame, exchanges: pl.DataFrame) -> Schedule:
    """The times of the steps that all workers completed."""
    by_worker = [forward_ends.filter(pl.col("worker") == i)["end_ns"].to_numpy() for i in range(run.workers)]
    ends = min(map(len, by_worker))
    if not ends:
        raise SimulationError(f"{run.run_id}: no worker ended a forward pass; give more seconds or a longer time limit")
    steps = ends - 1
    phases = 2 if run.is_phased else 1
    begun, done = np.zeros((2, steps, len(run.buffers), phases))
    rows = exchanges.filter(pl.col("step") < steps)
    place = rows["step"].to_numpy(), rows["buffer"].to_numpy(), rows["phase"].to_numpy()
    begun[place] = rows["start_ns"].to_numpy()
    done[place] = rows["end_ns"].to_numpy() + (run.update_ms * 1e6 if phases == 1 else 0)
    forward_end = np.stack([times[:ends] for times in by_worker], 1).astype(float)
    return Schedule(forward_end, begun[:, None], done[:, None])


# --- measures


def summary(result: Ns3Result) -> dict[str, Any]:
    """Measures of a run, null where it has nothing that they are of; without warm-up and cool-down.

    steps: complete ones; measured_steps: those that begin after the warm-up and end before the cool-down. iteration_ms,
    exposed_ms, first_forward_ms: of these, as of the simulator. all_reduce_bytes: payload of the training in a step,
    all workers. utilization, background_utilization: wire bytes that the hosts sent over what their links carry; other
    jobs are in neither. uplink_utilization, busiest_uplink_utilization: mean and most of the links between leaves and
    spines, each in its busier direction, in the whole run. SIZE_flows, SIZE_completed_pct, SIZE_mean_ms, SIZE_p50_ms,
    ...: completion of background flows of a size (small below 100 kB, large above 10 MB). dropped_high, dropped_middle,
    dropped_low: packets by band. retransmitted_bytes: of the training. high_exchanges_pct: exchanges in the
    background's band. stream_packets: of those that were sent, stream_delivered_pct arrived, after stream_mean_ms and
    stream_p99_ms; stream_jitter_ms: mean of RFC 3550's estimate at each arrival (section 6.4.1). other_iteration_ms: of
    the other jobs, all their iterations. skipped_steps: as of Ns3Result. events_per_s: of ns-3, a second of wall clock;
    simulated_per_wall: seconds.
    """
    measured = _measured_steps(result)
    found: dict[str, Any] = {"ended": result.ended, "steps": result.steps}
    found["measured_steps"] = measured.run.steps if measured else 0
    found |= measured.times() if measured else dict.fromkeys(("iteration_ms", "exposed_ms", "first_forward_ms"))
    found |= {name: _utilization(result, port) for name, port in _PORTS.items()}
    for name, of_size in _SIZES.items():
        found |= {f"{name}_{key}": value for key, value in _completion(result, of_size).items()}
    by_band = result.drops.group_by("band").agg(pl.col("packets").sum()).sort("band")["packets"].to_list()
    found |= {f"dropped_{name}": number for name, number in zip(("high", "middle", "low"), by_band, strict=True)}
    training = result.flows.filter(_is_of(TRAINING_PORT))
    again = training.select(pl.sum("retransmitted_bytes") + pl.sum("out_of_order_bytes"))  # late: lost in the host
    found["retransmitted_bytes"] = again.item()
    exchanged = result.partitions.filter(pl.col("step") < result.steps)["bytes"].sum()
    found["all_reduce_bytes"] = exchanged / result.steps if result.steps else None
    found["other_iteration_ms"] = float(result.other_iteration_ms.mean()) if len(result.other_iteration_ms) else None
    found |= _stream(result)
    number = len(result.high_exchanges)
    found["high_exchanges_pct"] = 100 * int(result.high_exchanges.sum()) / number if number else None
    found |= _uplinks(result)
    found |= {"simulated_s": result.simulated_ns / 1e9, "skipped_steps": result.skipped_steps}
    found |= {"events": result.events, "wall_s": result.wall_s, "events_per_s": result.events / result.wall_s}
    return found | {"simulated_per_wall": result.simulated_ns / 1e9 / result.wall_s}


_PORTS = {"utilization": TRAINING_PORT, "background_utilization": BACKGROUND_PORT}
_SIZES = {
    "small": pl.col("bytes") < SMALL,
    "medium": pl.col("bytes").is_between(SMALL, LARGE),
    "large": pl.col("bytes") > LARGE,
    "all": pl.lit(True),
}


def _measured_steps(result: Ns3Result) -> Timeline | None:
    """The steps that begin after the warm-up and end before the cool-down, of all workers; None: there are none."""
    begin, end = result.measured_ns()
    times = result.schedule.forward_end
    is_in = (times[:-1] >= begin).all(1) & (times[1:] <= end).all(1)
    if not is_in.any():
        return None
    rows = np.flatnonzero(is_in)
    ends = times[rows[0] : rows[-1] + 2]
    parts = (part[rows] for part in (result.schedule.exchange_start, result.schedule.exchange_end))
    run = result.run.changed(steps=len(rows))
    return Timeline(run, Schedule(ends, *parts))


def _is_of(port: int) -> pl.Expr:
    return (pl.col("src_port") == port) | (pl.col("dst_port") == port)


def _utilization(result: Ns3Result, port: int) -> float | None:
    """Wire bytes of all hosts' flows with the port, in the measured windows, over what the hosts' links carry then."""
    run = result.run
    begin, end = (int(time // run.window_ns) for time in result.measured_ns())
    numbers = result.flows.filter(_is_of(port))["flow"]
    rows = result.windows.filter(pl.col("flow").is_in(numbers.implode()), pl.col("window").is_between(begin, end - 1))
    capacity = float(run.rates().sum()) * (end - begin) * run.window_ns
    return float(rows["wire_bytes"].sum()) / capacity if capacity > 0 else None


def _uplinks(result: Ns3Result) -> dict[str, float | None]:
    """Of leaf-spine networks; of the whole run, the busier way of each link."""
    if result.uplinks.is_empty() or not result.simulated_ns:
        return dict.fromkeys(("uplink_utilization", "busiest_uplink_utilization"))
    capacity = result.run.uplink_rate * result.simulated_ns
    busy = result.uplinks.select(pl.max_horizontal("up_bytes", "down_bytes") / capacity).to_series().to_list()
    return {"uplink_utilization": sum(busy) / len(busy), "busiest_uplink_utilization": max(busy)}


def _completion(result: Ns3Result, of_size: pl.Expr) -> dict[str, Any]:
    begin, end = result.measured_ns()
    began = result.background.filter(of_size, pl.col("start_ns").is_between(begin, end))
    ms = began.filter(pl.col("end_ns") >= 0).select((pl.col("end_ns") - pl.col("start_ns")) / 1e6).to_series()
    found: dict[str, Any] = {"flows": len(began)}
    found["completed_pct"] = 100 * len(ms) / len(began) if len(began) else None
    found["mean_ms"] = ms.mean()
    return found | {f"p{q * 100:.0f}_ms": ms.quantile(q, "linear") for q in _QUANTILES}


def _stream(result: Ns3Result) -> dict[str, Any]:
    """Of packets that were sent in the measured time, and arrive in that order; null without a stream."""
    names = ("packets", "delivered_pct", "mean_ms", "p99_ms", "jitter_ms")
    is_measured = pl.col("start_ns").is_between(*result.measured_ns())
    sent = result.stream.filter(is_measured).height
    if not sent:
        return {f"stream_{name}": None for name in names}
    late = (pl.col("end_ns") - pl.col("start_ns")) / 1e6
    arrived = result.stream.filter(pl.col("end_ns") >= 0).with_columns(late=late)
    more = pl.col("late").diff().abs().fill_null(0)  # of the time between two arrivals than between their starts
    arrived = arrived.with_columns(jitter=more.ewm_mean(alpha=1 / 16, adjust=False)).filter(is_measured)
    ms = arrived["late"]
    found = (sent, 100 * len(ms) / sent, ms.mean(), ms.quantile(0.99, "linear"), arrived["jitter"].mean())
    return {f"stream_{name}": value for name, value in zip(names, found, strict=True)}


# --- tables


class CountedTraffic(Traffic):
    """A run on ns-3 as traffic, whose flows, windows and steps are counted, not computed."""

    def __init__(self, result: Ns3Result) -> None:
        self.begin_ns = result.run.start_ns + SETUP_NS
        if result.steps:
            times = step_times(result, self.begin_ns)
        else:
            times = StepTimes(*[np.empty((0, result.run.workers), np.int64)] * 4)
        super().__init__(result.run, times, is_uneven=False)
        self.result = result
        if result.steps:
            self.events = events(result, self.begin_ns, self.labels, layers=True)


class CountedTables(TrafficTables):
    """The tables of a CountedTraffic."""

    def __init__(self, traffic: CountedTraffic) -> None:
        super().__init__(traffic)
        self._result, self._begin_ns = traffic.result, traffic.begin_ns

    def _captures(self) -> Iterable[pa.RecordBatch]:
        """What captures of all that each host sends would hold; ns3: they were never written."""
        sums = self._result.flows.group_by("src").agg(
            pl.sum("packets", "wire_bytes", "captured_bytes"), pl.min("first_ns"), pl.max("last_ns")
        )
        hosts = sorted(range(len(self._labels)), key=lambda i: self._labels[i])
        rows = pl.DataFrame({"src": hosts}).join(sums, on="src", how="left", maintain_order="left")
        packets, wire, captured = (rows[name].fill_null(0) for name in ("packets", "wire_bytes", "captured_bytes"))
        columns: dict[str, Any] = {
            "capture_id": [f"{self._labels[host]}-tcpdump.pcap" for host in rows["src"]],
            "file_bytes": 24 + 16 * packets + captured, "first_ns": rows["first_ns"] + self._begin_ns,
            "last_ns": rows["last_ns"] + self._begin_ns, "records": packets, "wire_bytes": wire,
            "vantage_ip": [self._addresses[host] for host in rows["src"]],
        }  # fmt: skip
        alike = {
            "format": "pcap-le", "link_types": _PPP, "time_resolution_ns": 1, "snaplen": SNAPLEN, "trailing_bytes": 0,
            "untimed_records": 0, "status": "complete", "engine": "ns3", "version": __version__,
        }  # fmt: skip
        return self._columns("captures", columns | {name: [value] * len(rows) for name, value in alike.items()})

    def _flows(self) -> Iterable[pa.RecordBatch]:
        counted = self._result.flows
        addresses = addresses_of(range(self._run.collective.hosts))
        number = {address: i for i, address in enumerate(addresses)}
        dst = [number[str(ip_address(value))] for value in counted["dst_address"]]
        ends = list(zip(counted["src"], dst, counted["src_port"], counted["dst_port"], strict=True))
        place = {end: i for i, end in enumerate(ends)}
        # a job, the background or the stream listens at these ports
        is_client = [TRAINING_PORT <= port <= STREAM_PORT for port in counted["dst_port"]]
        known_by = pl.when(dst_port=STREAM_PORT).then(pl.lit("only_direction")).otherwise(pl.lit("syn"))
        sources = pl.when(pl.Series(is_client)).then(known_by).otherwise(pl.lit("reverse_syn"))
        same = [name for name in counted.columns if name not in ("flow", "src", "dst_address", "first_ns", "last_ns")]
        columns: dict[str, Any] = {
            "flow_id": counted["flow"], "src_ip": [addresses[src] for src in counted["src"]],
            "dst_ip": [addresses[host] for host in dst], "first_seen_ns": counted["first_ns"] + self._begin_ns,
            "last_seen_ns": counted["last_ns"] + self._begin_ns, "cable_bytes_estimate": counted["wire_bytes"],
            "is_initiator": is_client, "initiator_source": counted.select(sources).to_series(),
            "connection": [0] * len(ends),
            "reverse_flow_id": [place.get((to, src, to_port, port)) for src, to, port, to_port in ends],
        }  # fmt: skip
        return self._columns("flows", columns | {name: counted[name] for name in same})

    def _flow_windows(self) -> Iterator[pa.RecordBatch]:
        window_ns = self._run.window_ns
        rows = self._result.windows.sort("window", "flow")
        columns = {
            "window_start_ns": rows["window"] * window_ns + self._begin_ns, "window_ns": [window_ns] * len(rows),
            "flow_id": rows["flow"], **{name: rows[name] for name in _COUNTS},
        }  # fmt: skip
        yield from self._columns("flow_windows", columns)

    def _step_flows(self) -> Iterable[pa.RecordBatch]:
        """Packets by the step of their sender, of a server's by that of the first worker; after the last complete step
        they are after all."""
        steps, workers = self._result.steps, self._run.workers
        inside = pl.when(pl.col("place") > steps).then(pl.lit("after")).otherwise(pl.lit("during"))
        position = pl.when(pl.col("place") == 0).then(pl.lit("before")).otherwise(inside)
        place = pl.min_horizontal("place", pl.lit(steps + 1))
        rows = self._result.step_flows.with_columns(place=place).group_by("flow", "place").agg(pl.sum(*_COUNTS))
        rows = (
            rows.join(self._result.flows.select("flow", "src"), on="flow")
            .with_columns(position=position)
            .sort("flow", "position", "place")
        )
        during = pl.when(pl.col("position") == "during").then(pl.col("place") - 1)
        columns = {
            "flow_id": rows["flow"], "worker": [self._labels[host if host < workers else 0] for host in rows["src"]],
            "position": rows["position"], "step": rows.select(during).to_series(),
            **{name: rows[name] for name in _COUNTS},
        }  # fmt: skip
        return self._columns("step_flows", columns)
