"""Verdicts, on rings in which one host or link is slow, and on rings with noise alone."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from datasets import read_case, write_dataset
from slow_rings import HOSTS, MS, ORIGIN_NS, STEPS, WORKERS, always, dataset, ring

import ddnn_traces
from ddnn_traces.query.dataset import Dataset

DATASET = Path(__file__).parents[2] / "data" / "dataset"

#: Rows of the query verdicts for runs whose names begin with this.
Verdicts = Callable[[str], pl.DataFrame]


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """The runs of the quick tests. In one dataset: to plan the query takes longer than to run it on such few rows."""
    with dataset(tmp_path_factory.mktemp("slow"), *slow_runs()) as opened:
        yield opened


@pytest.fixture(scope="module")
def verdicts(slow: Dataset) -> Verdicts:
    found = slow.query("verdicts")
    return lambda begin: found.filter(pl.col("run_id").str.starts_with(begin))


def slow_runs() -> list[dict[str, pl.DataFrame]]:
    """Named by the test that looks at them."""
    return [
        *(ring(f"host {host}", host, always(host, 15)) for host in range(WORKERS)),
        *(ring(f"link {host}", host, slow_link=host) for host in range(WORKERS)),
        *(ring(f"part {name}", 1, {(1, step): 40.0 for step in steps}) for name, steps in PARTS.items()),
        ring("part noisy", 1, {(1, step): 40.0 for step in range(4, 9)} | {(1, 1): 8.0, (1, 11): 8.0}),
        *one_after_the_other(),
        ring("answer", 1, always(2, 40), answer_ms=35, unread=1),
        *(ring(f"log {name}", 1, always(1, 15)) | log(f"log {name}", late) for name, late in LOGS.items()),
        tree("tree inner", [50, 70, 50, 50]),
        tree("tree leaves", [50, 60, 63, 63]),
        *(clique(f"end {way}", links) for way, links in ENDS.items()),
        *copied_and_lost(),
        ring("in turn", 1, {(step % WORKERS, step): 30.0 for step in range(STEPS)}),
    ]


def test_the_slow_host_is_named_and_what_it_costs(verdicts: Verdicts) -> None:
    found = verdicts("host ")
    assert found["run_id"].to_list() == ["host 0", "host 1", "host 2", "host 3"]
    assert found["host_ip"].to_list() == HOSTS
    assert set(found["kind"]) == {"slow_host"}
    assert all(13 < cost < 16 for cost in found["cost_ms"])
    for host, (steps_worst, sentence) in enumerate(found.select("steps_worst", "sentence").iter_rows()):
        assert sentence.startswith(f"worker-{host + 1} is late in {steps_worst} of {STEPS - 1} steps behind the first")
        assert "in steps" not in sentence


#: From step 5 on, and in each second step: these are no part.
PARTS = {"one": range(5, STEPS), "scattered": range(1, STEPS, 2)}


def test_one_part_of_the_steps_is_named(verdicts: Verdicts) -> None:
    noisy, part, scattered = verdicts("part ").filter(kind="slow_host")["sentence"]
    assert "is late in 7 of 11 steps" in noisy and "% of it in steps 4 to 8; it needs" in noisy
    assert f"%), all in steps 5 to {STEPS - 1}; it needs" in part
    assert "in steps" not in scattered


def one_after_the_other() -> list[dict[str, pl.DataFrame]]:
    """Runs of 30 steps."""
    first = {(1, step): 30.0 for step in (*range(1, 10), *range(20, 30))}
    second = {(3, step): 60.0 for step in range(10, 20)}
    few = {(1, step): 30.0 for step in (2, 25)}
    with pytest.MonkeyPatch.context() as longer:
        longer.setattr("slow_rings.STEPS", 30)
        return [ring("turns both", 1, first | second), ring("turns few", 2, few | second)]


def test_two_hosts_that_are_slow_one_after_the_other_are_named(verdicts: Verdicts) -> None:
    """No host explains 55% of all steps. Two steps beside the part are so by chance."""
    found = verdicts("turns ").filter(kind="slow_host")
    assert found.select("run_id", "host_ip", "steps_worst", "is_established").rows() == [
        ("turns both", HOSTS[3], 10, True),
        ("turns both", HOSTS[1], 19, True),
        ("turns few", HOSTS[3], 10, True),
    ]
    part, rest, _ = found["sentence"]
    assert "in 10 of 29 steps behind the first: " in part and "%), all in steps 10 to 19; it needs" in part
    assert "%), beside steps 10 to 19; it needs" in rest


def test_a_delayed_acknowledgement_of_a_slow_host_is_no_delay_of_its_link(slow: Dataset, verdicts: Verdicts) -> None:
    answers = slow.query("answer_times").filter(run_id="answer", src_ip=HOSTS[1])
    assert verdicts("answer").select("kind", "host_ip").rows() == [("slow_host", HOSTS[2])]
    assert set(answers["extra_ms"]) == {0}
    assert answers.filter(pl.col("step") > 1)["answer_ms"].null_count() == STEPS - 2


def log(run_id: str, late_ms: dict[tuple[int, int], float]) -> dict[str, pl.DataFrame]:
    """Steps of 100 ms and the events in which a worker communicates, from 50 ms and late_ms on until the step's end."""
    whole: dict[str, list[dict[str, Any]]] = {"steps": [], "events": []}
    for step in range(STEPS):
        for host in range(WORKERS):
            start_ns = ORIGIN_NS + 100 * step * MS
            of_step = {"run_id": run_id, "worker": f"worker-{host + 1}", "step": step, "end_ns": start_ns + 100 * MS}
            begin_ns = start_ns + int((50 + late_ms.get((host, step), 0)) * MS)
            whole["steps"].append({**of_step, "start_ns": start_ns})
            whole["events"].append({**of_step, "kind": "communicate", "start_ns": begin_ns})
    return {table: pl.DataFrame(rows).cast(pl.String) for table, rows in whole.items()}


LOGS = {"contradicts": always(3, 15), "agrees": always(1, 15)}


def test_a_host_that_the_log_contradicts_is_not_called_slow(verdicts: Verdicts) -> None:
    found = verdicts("log ")
    assert found.select("run_id", "kind", "host_ip").rows() == [("log agrees", "slow_host", HOSTS[1])]


def tree(run_id: str, computing_ms: list[float]) -> dict[str, pl.DataFrame]:
    """As ring, on a tree: 1 and 2 send to 0, and 3 to 1, then the sums back. Each says first that it is ready."""
    noise = random.Random(1)
    ups = {1: 0, 2: 0, 3: 1}
    links = [*ups.items(), *((parent, child) for child, parent in ups.items())]
    base = ring(run_id, 1)
    free, messages = [0.0] * WORKERS, []

    def send(src: int, dst: int, start: float, size: int) -> float:
        messages.append((links.index((src, dst)), start, size))
        return start + size / 125_000

    for _ in range(STEPS):
        entry = [free[host] + computing_ms[host] + abs(noise.gauss(0, 0.1)) for host in range(WORKERS)]
        for src, dst in links:
            send(src, dst, entry[src], 48)
        summed = entry[:]
        for child in (3, 1, 2):  # a child's children before it
            done = send(child, ups[child], max(summed[child], entry[ups[child]]) + 0.1, 1_000_000)
            summed[ups[child]] = max(summed[ups[child]], done)
        free = summed[:]
        for child in (1, 2, 3):
            free[child] = send(ups[child], child, free[ups[child]] + 0.1, 1_000_000)
    return base | of_messages(run_id, links, messages)


def pipeline(run_id: str, computing_ms: list[float], micro_batches: int = 4) -> dict[str, pl.DataFrame]:
    """Micro-batches through WORKERS stages and back, computing_ms of each stage for each, twice as long back.

    A step begins with 30 ms of all hosts. A message takes 1 ms; both stages say that they are ready for it.
    """
    noise = random.Random(run_id)
    links = [(a, b) for a in range(WORKERS) for b in (a + 1, a - 1) if 0 <= b < WORKERS]
    free, messages = [0.0] * WORKERS, []
    for _ in range(STEPS):
        free = [end + 30 for end in free]
        for stages, times in ((range(WORKERS), 1), (range(WORKERS)[::-1], 2)):
            for _ in range(micro_batches):
                arrived = 0.0
                for stage, to in zip(stages, [*stages[1:], None], strict=True):
                    free[stage] = max(free[stage], arrived) + times * computing_ms[stage] + noise.uniform(0, 0.5)
                    if to is not None:
                        messages.append((links.index((stage, to)), free[stage], 48))
                        messages.append((links.index((to, stage)), free[to], 48))
                        start = max(free[stage], free[to]) + 0.1
                        messages.append((links.index((stage, to)), start, 125_000))
                        arrived = free[stage] = start + 1
    return ring(run_id, 1) | of_messages(run_id, links, messages)


def one_forward_one_backward(run_id: str, computing_ms: list[float], micro_batches: int = 6) -> dict[str, pl.DataFrame]:
    """As pipeline, but each stage begins to go back as soon as it can, and data comes while it computes."""
    noise = random.Random(run_id)
    links = [(a, b) for a in range(WORKERS) for b in (a + 1, a - 1) if 0 <= b < WORKERS]
    free, messages = [0.0] * WORKERS, []
    for _ in range(STEPS):
        free = [end + 30 for end in free]
        arrived = {(0, 1, number): free[0] for number in range(micro_batches)}  # stage, way, micro-batch: of its data
        orders = []
        for stage in range(WORKERS):
            ahead = min(WORKERS - 1 - stage, micro_batches)
            turns = [turn for number in range(micro_batches - ahead) for turn in ((1, ahead + number), (-1, number))]
            last = [(-1, number) for number in range(micro_batches - ahead, micro_batches)]
            orders.append([*((1, number) for number in range(ahead)), *turns, *last])
        while any(orders):
            for stage, order in enumerate(orders):
                while order and (stage, *order[0]) in arrived:
                    way, number = order.pop(0)
                    begin = max(free[stage], arrived[stage, way, number])
                    free[stage] = begin + (1 if way == 1 else 2) * computing_ms[stage] + noise.uniform(0, 0.5)
                    to = stage + way
                    if to == WORKERS:
                        arrived[stage, -1, number] = free[stage]
                    elif to >= 0:
                        messages.append((links.index((stage, to)), free[stage], 125_000))
                        arrived[to, way, number] = free[stage] + 1
    return ring(run_id, 1) | of_messages(run_id, links, messages)


def of_messages(
    run_id: str, links: list[tuple[int, int]], messages: list[tuple[int, float, int]]
) -> dict[str, pl.DataFrame]:
    """The tables of flows and messages. links: hosts that send and receive. messages: row of it, start, ms, bytes."""
    offsets, rows = [0] * len(links), []
    for number, (flow, start, size) in enumerate(sorted(messages, key=lambda one: one[1])):
        rows.append(
            {"flow_id": flow, "message": number, "first_ns": ORIGIN_NS + int(start * MS),
             "duration_ns": size * MS // 125_000, "stream_offset": offsets[flow], "bytes": size, "packets": 100,
             "end_source": "silence"}
        )  # fmt: skip
        offsets[flow] += size
    flows = [
        {"flow_id": number, "src_ip": HOSTS[src], "dst_ip": HOSTS[dst], "protocol": 6,
         "reverse_flow_id": links.index((dst, src)), "receive_window_bytes": 1 << 20}
        for number, (src, dst) in enumerate(links)
    ]  # fmt: skip
    made = {"flows": flows, "messages": rows}
    return {
        table: pl.DataFrame(of_table).with_columns(run_id=pl.lit(run_id)).cast(pl.String)
        for table, of_table in made.items()
    }


def test_an_inner_host_of_a_tree_is_slow_only_if_no_leaf_is_later(slow: Dataset, verdicts: Verdicts) -> None:
    """1 computes for longer than 0, its only equal; in `leaves` all wait for 2 and 3, which get the sums last."""
    collectives = slow.query("collectives").filter(pl.col("run_id").str.starts_with("tree "))
    assert collectives["algorithm"].to_list() == ["tree", "tree"]
    found = verdicts("tree ")
    assert found.select("run_id", "kind", "host_ip").rows() == [("tree inner", "slow_host", HOSTS[1])]
    assert 11 < found["cost_ms"][0] < 13  # 20 behind 0, but 3 gets the sums 8 ms later
    bound = re.search(r"at least (1[12].*) ms of .* it needs (.*) ms longer .* another host", found["sentence"][0])
    assert bound and float(bound[1]) == pytest.approx(found["cost_ms"][0], abs=0.05)
    assert float(bound[2]) == pytest.approx(20, abs=0.5)


@pytest.mark.long
def test_the_slow_stage_of_a_pipeline_is_named_if_the_others_wait_for_it(tmp_path: Path) -> None:
    """Stages of unlike roles are compared by what each needs for a step; a half more than the next one is usual."""
    runs = pipeline("equal", [5, 5, 5, 5]), pipeline("slow", [5, 5, 15, 5]), pipeline("uneven", [5, 5, 7, 5])
    with dataset(tmp_path, *runs) as found_in:
        assert found_in.query("communicators")["role"].unique().to_list() == ["pipeline"]
        found = found_in.query("verdicts")
        periods = dict(found_in.query("jobs").select("run_id", "period_ms").iter_rows())
    assert found.select("run_id", "kind", "host_ip", "peer_ip").rows() == [("slow", "slow_host", HOSTS[2], None)]
    assert found["cost_ms"][0] == pytest.approx(periods["slow"] - periods["equal"], rel=0.05)


@pytest.mark.long
def test_a_slow_stage_is_named_where_data_comes_while_it_computes(tmp_path: Path) -> None:
    """Its own time was counted from its last data on. Steps whose messages are not told apart count for no stage."""
    equal, slow = (one_forward_one_backward(run, times) for run, times in (("equal", [9] * 4), ("slow", [9, 9, 22, 9])))
    with dataset(tmp_path, equal, slow) as found_in:
        found = found_in.query("verdicts")
        periods = dict(found_in.query("jobs").select("run_id", "period_ms").iter_rows())
    assert found.select("run_id", "kind", "host_ip", "peer_ip").rows() == [("slow", "slow_host", HOSTS[2], None)]
    assert found["cost_ms"][0] == pytest.approx(periods["slow"] - periods["equal"], rel=0.15)


@pytest.mark.long
def test_long_times_and_large_shares_are_written_without_an_exponent(tmp_path: Path) -> None:
    """0.9 MB sent again of 5.2 MB in the case, 2.6 MB here (above two thirds they are copies); seconds."""
    case = Path(__file__).parents[1] / "queries" / "verdicts" / "loss_on_a_link_of_4"
    tables = read_case(case)
    tables["flow_windows"] = tables["flow_windows"].with_columns(pl.col("retransmitted_bytes") * 3)
    with write_dataset(tmp_path / "loss", tables) as lossy:
        said = lossy.query("verdicts")["sentence"].to_list()
    with dataset(tmp_path / "late", tree("r", [50, 2500, 1300, 50])) as late:
        said += late.query("verdicts")["sentence"].to_list() + late.query("late_together")["sentence"].to_list()
    together = "worker-2 (by 2450 ms), worker-3 (by 1250 ms)"
    for part in ("sent again, 50% of the 5.2 MB", "it needs 2450 ms longer", together):
        assert any(part in one for one in said), part
    assert not [one for one in said if re.search(r"\de[+-]\d", one)]


def test_the_slow_link_is_named_and_what_it_costs(verdicts: Verdicts) -> None:
    found = verdicts("link ")
    assert found["run_id"].to_list() == ["link 0", "link 1", "link 2", "link 3"]
    assert found["host_ip"].to_list() == HOSTS
    assert found["peer_ip"].to_list() == [*HOSTS[1:], HOSTS[0]]
    assert set(found["kind"]) == {"slow_link"}
    assert all(50 < cost < 58 for cost in found["cost_ms"])  # six chunks, each 9 ms longer


def clique(run_id: str, slow: set[tuple[int, int]]) -> dict[str, pl.DataFrame]:
    """As ring, but each host sends 250,000 bytes to each other one: 2 ms on a link, and 20 ms on a slow one.

    In turn a link between hosts without a slow one takes 18 ms: other programs keep the hosts busy.
    """
    noise = random.Random(1)
    links = [(src, dst) for src in range(WORKERS) for dst in range(WORKERS) if src != dst]
    ends = set.intersection(*(set(link) for link in slow))
    busy = [link for link in links if not ends & set(link)]
    start, rows = 0.0, []
    for step in range(STEPS):
        start += 50
        longer = busy[step % len(busy)]
        usual = {link: 20 if link in slow else 18 if link == longer else 2 for link in links}
        took = {link: length * noise.uniform(0.9, 1) for link, length in usual.items()}
        begun = {src: start + abs(noise.gauss(0, 0.1)) for src in range(WORKERS)}
        rows += [
            {"flow_id": flow, "message": step, "first_ns": ORIGIN_NS + int(begun[link[0]] * MS),
             "duration_ns": int(took[link] * MS), "stream_offset": 250_000 * step, "bytes": 250_000, "packets": 200,
             "end_source": "silence"}
            for flow, link in enumerate(links)
        ]  # fmt: skip
        start += max(took.values())
    flows = [
        {"flow_id": flow, "src_ip": HOSTS[src], "dst_ip": HOSTS[dst], "protocol": 6,
         "reverse_flow_id": links.index((dst, src)), "receive_window_bytes": 1 << 20}
        for flow, (src, dst) in enumerate(links)
    ]  # fmt: skip
    made = {
        table: pl.DataFrame(of_table).with_columns(run_id=pl.lit(run_id)).cast(pl.String)
        for table, of_table in {"flows": flows, "messages": rows}.items()
    }
    base = ring(run_id, 1)
    return base | made | {"flow_windows": base["flow_windows"].head(0)}


#: Links from and to a host.
ENDS = {"from": {(2, other) for other in (0, 1, 3)}, "to": {(other, 2) for other in (0, 1, 3)}}


def test_slow_links_that_share_an_end_are_one_finding(verdicts: Verdicts) -> None:
    found = verdicts("end ")
    assert found.select("run_id", "kind", "host_ip", "peer_ip").rows() == [
        (f"end {way}", "slow_link", HOSTS[2], None) for way in ENDS
    ]
    for way, (cost, sentence) in zip(ENDS, found.select("cost_ms", "sentence").iter_rows(), strict=True):
        assert sentence.startswith(f"All links {way} worker-3 carry 0.1")
        assert 14 < cost < 20, way  # its links send at the same time


def copied_and_lost() -> list[dict[str, pl.DataFrame]]:
    """A capture of all interfaces of a bridge has each packet several times: as much again as the link carries."""
    tables = read_case(Path(__file__).parents[1] / "queries" / "verdicts" / "loss_on_a_link_of_4", as_text=True)
    copied = tables["flow_windows"].with_columns(retransmitted_bytes=pl.col("payload_bytes"))
    return [
        {table: rows.with_columns(run_id=pl.lit(run_id)) for table, rows in of_run.items()}
        for run_id, of_run in {"again lost": tables, "again copied": tables | {"flow_windows": copied}}.items()
    ]


def test_copies_of_packets_are_no_loss(verdicts: Verdicts) -> None:
    assert set(verdicts("again lost")["kind"]) == {"slow_link", "loss"}
    assert set(verdicts("again copied")["kind"]) == {"slow_link"}


def test_a_probe_of_an_idle_flow_is_no_loss(tmp_path: Path) -> None:
    """Where a flow has nothing more to send, TCP sends its last segment again: "most links" cost 17% of a step."""
    tables = read_case(Path(__file__).parents[1] / "queries" / "verdicts" / "loss_on_a_link_of_4")
    windows = tables["flow_windows"].with_row_index().with_columns(is_probe=pl.col("index") % 2 == 1)
    probed = windows.with_columns(
        payload_bytes=pl.when("is_probe").then(1448).otherwise("payload_bytes"),
        retransmitted_bytes=pl.when("is_probe").then(1448).otherwise(0),
    )
    lost = windows.with_columns(retransmitted_bytes=pl.when("is_probe").then(1448).otherwise(0))
    for frame, kinds in ((probed, {"slow_link"}), (lost, {"slow_link", "loss"})):
        changed = tables | {"flow_windows": frame.drop("index", "is_probe")}
        with write_dataset(tmp_path / str(len(kinds)), changed) as dataset:
            assert set(dataset.query("verdicts")["kind"]) == kinds


@pytest.mark.long
def test_what_makes_a_link_slow_is_its_kind(tmp_path: Path) -> None:
    given: dict[str, dict[str, float]] = {
        "slow_link": {}, "delay": {"answer_ms": 8}, "receiver": {"window_bytes": 20_000},
        "background": {"others": 1}, "congestion": {"others": 2, "answer_ms": 8},
    }  # fmt: skip
    runs = [ring(kind, 1, slow_link=2, **more) for kind, more in given.items()]  # type: ignore[arg-type]
    with dataset(tmp_path, *runs) as found_in:
        found = found_in.query("verdicts")
        parts = found_in.query("collective_delays").filter(pl.col("step") > 0)
    assert found.select("run_id", "kind").rows() == [(kind, kind) for kind in sorted(given)]
    assert found.select("host_ip", "peer_ip").unique().rows() == [(HOSTS[2], HOSTS[3])]
    means = {run: frame.select(pl.mean("^.*_ms$")).row(0, named=True) for (run,), frame in parts.group_by("run_id")}
    columns = {"background": "other_traffic_ms", "congestion": "incast_ms"}
    for kind in given:
        assert means[kind][columns.get(kind, f"{kind}_ms")] > 4, kind
        others = {"delay_ms", "receiver_ms", "other_traffic_ms", "incast_ms"} - {columns.get(kind, f"{kind}_ms")}
        assert all(means[kind][column] == 0 for column in others if kind != "congestion"), kind


@pytest.mark.long
def test_a_host_that_is_slow_in_some_steps_is_found(tmp_path: Path) -> None:
    some = {(2, step): 60.0 for step in range(3, 8)}
    with dataset(tmp_path, ring("r", 1, some)) as run:
        found = run.query("verdicts")
    assert found.select("kind", "host_ip", "steps_worst").rows() == [("slow_host", HOSTS[2], 5)]


@pytest.mark.long
def test_hosts_enter_when_their_logs_say_so() -> None:
    """Not with what gRPC exchanges behind a step: by that they entered 35 ms earlier."""
    with ddnn_traces.open(DATASET, runs="tf-mlp1-sgd-32-grpc-normal-ring-n3-killed_worker2-r1") as dataset:
        apart = dataset.sql(
            "SELECT min(abs(events.start_ns - entry_ns)) / 1e6 AS ms FROM collective_entries AS c "
            "JOIN training_spans USING (run_id, host_ip) JOIN events USING (run_id, worker) "
            "WHERE events.kind = 'allreduce' AND free_ns IS NOT NULL GROUP BY c.step, c.position, host_ip"
        )["ms"]
    assert len(apart) > 50 and apart.median() < 5


def test_late_in_turn_is_no_finding(slow: Dataset, verdicts: Verdicts) -> None:
    assert "in turn" in slow.run_ids and verdicts("in turn").is_empty()


@pytest.mark.long
def test_noise_alone_is_no_finding(tmp_path: Path) -> None:
    with dataset(tmp_path, *(ring(f"r{seed:02}", seed) for seed in range(30))) as runs:
        assert runs.query("jobs").height == 30
        assert runs.query("verdicts").is_empty()


@pytest.mark.long
def test_parts_of_a_collective(tmp_path: Path) -> None:
    """With a slow link the link is the largest part, with a slow host waiting is. All add up to the time."""
    with dataset(tmp_path, ring("host", 1, always(1, 15)), ring("link", 1, slow_link=2)) as runs:
        found = runs.query("collective_delays").filter(pl.col("step") > 0)
    slow = ["slow_link_ms", "delay_ms", "other_traffic_ms", "incast_ms", "receiver_ms"]
    parts = ["waiting_ms", "transfer_ms", *slow, "stalled_ms"]
    means = {
        str(run): frame.select(pl.col(parts).mean()).row(0, named=True) for (run,), frame in found.group_by("run_id")
    }
    assert max(parts, key=lambda part: means["host"][part]) == "waiting_ms"
    assert max(parts, key=lambda part: means["link"][part]) == "slow_link_ms"
    off = found.select(pl.col("span_ms") - pl.sum_horizontal(parts) - pl.col("remainder_ms")).to_series()
    assert off.abs().max() < 1e-6  # type: ignore[operator]


@pytest.mark.long
def test_the_critical_path_goes_through_the_late_host_without_a_gap(tmp_path: Path) -> None:
    turns = {(step % WORKERS, step): 30.0 for step in range(STEPS)}
    with dataset(tmp_path, ring("r", 1, turns)) as run:
        path = run.query("critical_path")
    late = path.filter(pl.col("step") > 0, place=1)
    assert late["host_ip"].to_list() == [HOSTS[step % WORKERS] for step in range(1, STEPS)]
    assert all(79 < own < 85 for own in late["own_ms"])
    follows = path.with_columns(gap=pl.col("start_ns") - pl.col("end_ns").shift().over("step"))
    assert set(follows["gap"].drop_nulls().cast(pl.Int64)) <= {0}
    took = path.group_by("step").agg(
        whole=(pl.col("end_ns").max() - pl.col("start_ns").min()).cast(pl.Int64) / 1e6,
        parts=pl.sum("own_ms") + pl.sum("collective_ms"),
    )
    assert (took["whole"] - took["parts"]).abs().max() < 1e-6  # type: ignore[operator]


@pytest.mark.long
def test_what_two_collectives_share_is_the_first_ones() -> None:
    """A run whose steps have two collectives that share transfers: these were either's, by chance."""
    with ddnn_traces.open(DATASET, runs="torch-mlp4-sgd-128-gloo-normal-ring-n4-r1") as dataset:
        transfers, found = dataset.query("collective_transfers"), dataset.query("edge_times")
    key = ["step", "position", "src_ip", "dst_ip"]
    firsts = transfers.sort("job", "step", "position").unique(["flow_id", "first_ns"], keep="first")
    assert firsts.height < transfers.height
    assert found.join(firsts, on=key, how="anti").is_empty()


def test_one_host_that_waits_is_one_in_words(slow: Dataset) -> None:
    [sentence] = slow.query("least_delays").filter(run_id="again lost")["sentence"]
    assert sentence == "worker-2 waits for data before it enters, as in a tree: whether it is late is not seen"
