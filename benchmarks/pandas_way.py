"""The published pipeline's way to a run's figures: packet rows as text, read again for every figure.

The analysis published with zerwas (github.com/tum-lkn/dml-network-traffic-analysis) prints every packet with tshark
into one CSV a capture; each figure then reads all of them with pandas, sorts by time as text and groups packets. This
is a reimplementation, timed next to the queries. export() writes the output of tshark from the table
`packets`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from ddnn_traces.query.dataset import Dataset

PAIR = ["ip.src", "ip.dst"]
FLOW = [*PAIR, "tcp.srcport", "tcp.dstport"]
TIME = "%b %d, %Y %H:%M:%S.%f CET"


def export(dataset: Dataset, folder: Path) -> int:
    """Write the packets of a dataset's only run, a file a capture; returns how many there are.

    Needs a run that was ingested with packets.
    """
    folder.mkdir()
    packets = """
        SELECT strftime(make_timestamp(ts_ns // 1000), '%b %d, %Y %H:%M:%S.%f')
                   || lpad((ts_ns % 1000)::VARCHAR, 3, '0') || ' CET' AS "frame.time",
               src_ip AS "ip.src", dst_ip AS "ip.dst", src_port AS "tcp.srcport", dst_port AS "tcp.dstport",
               'eth0' AS "frame.interface_name", p.wire_bytes AS "frame.len"
        FROM packets AS p JOIN flows USING (run_id, flow_id) WHERE src_ip = '{}' ORDER BY capture_id, record
    """
    for (host,) in dataset.connection.execute("SELECT DISTINCT src_ip FROM flows ORDER BY src_ip").fetchall():
        target = folder / f"{host}.csv"
        dataset.connection.execute(f"COPY ({packets.format(host)}) TO '{target}' (HEADER, DELIMITER '\t')")
    return dataset.sql("SELECT count(*) FROM packets").item()


def read(folder: Path) -> pd.DataFrame:
    """All packets of the run, as every figure reads them."""
    packets = pd.concat([pd.read_csv(path, sep="\t") for path in folder.glob("*.csv")], axis=0, ignore_index=True)
    return packets.sort_values(by=["frame.time"])


def with_times(packets: pd.DataFrame) -> pd.DataFrame:
    # pandas reads nanoseconds with %f
    packets["frame.time"] = pd.to_datetime(packets["frame.time"], format=TIME)
    return packets


def bytes_sent(folder: Path) -> pd.DataFrame:
    return read(folder).groupby("ip.src")["frame.len"].sum().reset_index()


def matrix(folder: Path) -> pd.DataFrame:
    return read(folder).groupby(PAIR)["frame.len"].sum().reset_index()


def bytes_per_ms(folder: Path) -> pd.DataFrame:
    """Bytes of the run in each ms, and of each pair; both come from one reading, as published."""
    packets = with_times(read(folder))
    total = packets.resample("1ms", on="frame.time")["frame.len"].sum().reset_index()
    pairs = packets.set_index("frame.time").groupby(PAIR)["frame.len"].resample("1ms").sum().reset_index()
    pairs.pivot_table(values="frame.len", index=["frame.time"], columns=PAIR, fill_value=0)
    return total


def number_of_flows(folder: Path) -> pd.DataFrame:
    return read(folder).groupby(FLOW).size().to_frame(name="size").reset_index()


def flow_cdf(folder: Path) -> pd.DataFrame:
    sizes = read(folder).groupby(FLOW)["frame.len"].sum().to_frame(name="value").reset_index()
    counted = sizes.groupby("value")["value"].agg("count").to_frame("frequency").reset_index()
    counted["cdf"] = (counted["frequency"] / counted["frequency"].sum()).cumsum()
    return counted


def temporal_flows(folder: Path) -> pd.DataFrame:
    packets = with_times(read(folder))
    packets["frame.time"] -= packets["frame.time"].min()
    return packets.set_index("frame.time").groupby(FLOW)["frame.len"].resample("10s").sum().reset_index()


#: Each figure: the pandas way, the same by SQL, and the columns of both whose sum must be equal.
FIGURES: dict[str, tuple[Callable[[Path], pd.DataFrame], str, str, str]] = {
    "bytes sent": (
        bytes_sent,
        "SELECT src_ip, sum(wire_bytes)::BIGINT AS wire_bytes FROM traffic_matrix GROUP BY ALL ORDER BY ALL",
        "frame.len",
        "wire_bytes",
    ),
    "matrix": (matrix, "FROM traffic_matrix", "frame.len", "wire_bytes"),
    "bytes per ms and pair": (bytes_per_ms, "FROM pair_throughput(window_ms := 1)", "frame.len", "wire_bytes"),
    "number of flows": (
        number_of_flows,
        "SELECT src_ip, dst_ip, src_port, dst_port, sum(packets)::BIGINT AS size FROM flows GROUP BY ALL ORDER BY ALL",
        "size",
        "size",
    ),
    "flow CDF": (
        flow_cdf,
        "SELECT value, count(*) AS frequency, sum(count(*)) OVER (ORDER BY value) / sum(count(*)) OVER () AS cdf FROM "
        "(SELECT sum(wire_bytes) AS value FROM flows GROUP BY src_ip, dst_ip, src_port, dst_port) GROUP BY value "
        "ORDER BY value",
        "frequency",
        "frequency",
    ),
    "flows over time, 10 s": (temporal_flows, "FROM throughput_windows()", "frame.len", "wire_bytes"),
}
