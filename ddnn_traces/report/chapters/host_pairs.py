"""Who talks to whom: the topology, the volume of each pair of hosts, the rings."""

from __future__ import annotations

import re
from collections import Counter

import polars as pl

from ddnn_traces.report.charts import topology as drawing
from ddnn_traces.report.charts import wire, zerwas
from ddnn_traces.report.number_text import count, counts, number_of, percent, span, typical, words, yes_no
from ddnn_traces.report.section import NO_FLOWS, NO_JOB, Chapter, Column, Section, Source, numbers, texts
from ddnn_traces.text import counted, listed

MOST_HOSTS = 32  # of a heatmap
PAIR_VOLUME = Source("pair_volume", {"hosts": MOST_HOSTS})


chapter = Chapter("hosts", "Who talks to whom")


@chapter.section(
    "topology",
    "Topology, inferred from payload",
    Source("topology"),
    NO_FLOWS,
    finding="Pattern",
    draws=(),
)
def topology(section: Section, frame: pl.DataFrame) -> None:
    if not section.results.runs:
        section.end(NO_FLOWS)
    sure = frame.filter(pl.col("topology") != "unknown").drop_nulls("confidence")
    confidence = f"; confidence {typical(sure, 'confidence', percent)}" if sure.height else ""
    section.headline = f"The traffic of {_shapes(frame)}{confidence}."
    columns = [
        texts("run", "run_id"), Column("topology", lambda row: words(row["problem"] or row["topology"])),
        numbers("confidence", "confidence", percent), texts("why none", "why"), texts("root or centre", "root_ip"),
        numbers("confidence in it", "root_confidence", percent), numbers("hosts", "hosts", count),
        numbers("directed pairs", "edges", count), numbers("payload on them", "matched_share", percent),
        Column("runner-up", _runner_up), numbers("evenness", "evenness"),
        numbers("irregularity", "irregularity"), numbers("turn", "turn"), texts("by steps", "by_steps", yes_no),
    ]  # fmt: skip
    caption = (
        "From payload inside steps alone. Evidence: the share of payload on the matched pairs, and the best that "
        "another shape's pairs could carry (runner-up: its shape is not tested, so more is no better); how alike the "
        "pairs' volumes are (evenness), how much a pair's volume varies from step to step (irregularity), and how much "
        "later one direction of a link starts than the other (turn). The root of a tree is where data flow to first in "
        "each exchange, with a confidence of its own."
    )
    section.table(_plain(frame), columns, caption)


_MOST_NAMED = 3  # runs of a topology
_PATTERNS = "several patterns"
_SEVERAL = r"^several patterns \((.*?); see .*\)$"


def _plain(topologies: pl.DataFrame) -> pl.DataFrame:
    """For a reader of the report: no name of a query or parameter, `why` in its words, and in `problem` nothing but
    "several patterns", which is an answer without a confidence."""
    problem = pl.col("problem")
    several = problem.str.contains(_SEVERAL)
    why = (
        problem.str.replace(_SEVERAL, "$1")
        .str.replace(r"\bcommunicators\b", "groups of hosts")
        .str.replace(r"\bcommunicator\b", "group of hosts")
        .str.replace(r"; see [^;)]*\)", ")")
    )
    return topologies.with_columns(
        why=why,
        problem=pl.when(several).then(pl.lit(_PATTERNS)),
        confidence=pl.when(several.fill_null(False)).then(None).otherwise("confidence"),
    )


def _shapes(topologies: pl.DataFrame) -> str:
    """The runs, and which topology so many of them have."""
    plain = _plain(topologies)
    if plain.height == 1:
        kind, several, why = plain.select("topology", "problem", "why").row(0)
        if several:
            return f"the run has several patterns, which no one topology describes: {why}"
        if kind == "unknown":
            return f"the run does not show its topology ({why})"
        return f"the run shows: {words(kind)}"
    # "more than one exchange, as of another training (2 of 6 pairs carry a second one)": the numbers are in the table
    why = pl.when(pl.col("problem").is_null()).then(pl.col("why").str.replace(r"^(more than one .*) \(.*\)$", "$1"))
    kinds = (
        plain.with_columns(why)
        .group_by(pl.coalesce("why", "problem", "topology").alias("kind"), "why")
        .agg(pl.len(), "run_id")
        .sort(pl.col("why").is_not_null(), -pl.col("len").cast(pl.Int64), "kind")
    )
    found = "; ".join(_in_runs(*row) for row in kinds.iter_rows())
    return f"{counted(topologies.height, 'run')} shows: {found}"


def _in_runs(kind: str, why: str | None, runs: int, names: list[str]) -> str:
    named = f" ({', '.join(sorted(names))})" if runs <= _MOST_NAMED else ""
    if why:
        return f"cannot be told in {runs:,}{named}: {kind}"
    return f"{kind} in {runs:,}{named}" if kind == _PATTERNS else f"{runs:,} {words(kind)}{named}"


def _runner_up(row: dict[str, object]) -> str:
    share = row["runner_up_share"]
    # "tree, 99.9%" beside a ring with 87% read as if the tree were the better one
    return (
        "–" if row["runner_up"] is None else f"{words(str(row['runner_up']))} could carry {percent(number_of(share))}"
    )


@chapter.section(
    "collectives",
    "Jobs, and the collectives of a step",
    Source("collectives"),
    NO_JOB,
    finding="Jobs",
)
def collectives(section: Section, frame: pl.DataFrame) -> None:
    jobs = frame.group_by("run_id", "job", maintain_order=True).agg(
        pl.len(), groups=pl.col("communicator").n_unique(), kinds=pl.col("kind").unique(maintain_order=True)
    )
    runs = jobs["run_id"].n_unique()
    if jobs.height == 1:
        kinds = ", ".join(words(kind) for kind in jobs["kinds"][0])
        groups = counted(jobs["groups"][0], "group")
        section.headline = f"A step has {counted(jobs['len'][0], 'collective')} ({kinds}) of {groups} of hosts."
    else:
        section.headline = (
            f"{counted(runs, 'run')} of {len(section.results.runs):,} {'shows' if runs == 1 else 'show'} "
            f"{counted(jobs.height, 'job')}; a step has {counts(jobs['len'], 'collective')} of "
            f"{counts(jobs['groups'], 'group')} of hosts."
        )
    section.headline += f" {_parallelism(section)}"
    caption = (
        "Inferred from the messages on the wire, without logs: a row is a group of hosts (job.group), a bar the median "
        "time from a collective's first packet to its last. The size is that of nccl-tests. What else the same traffic "
        "can be is in the tooltip; a host's own time of a collective is longer. NVLink inside a host is not seen."
    )
    section.figure(wire.collectives, frame, caption)


#: What each role of the query communicators is in a sentence.
_ROLES = {
    "data": "data parallel", "sharded_data": "data parallel with shards, as FSDP and ZeRO", "tensor": "tensor parallel",
    "pipeline": "pipeline parallel", "expert": "expert parallel", "unknown": "not known",
}  # fmt: skip
_ROLE = r"\w+(?= \(\d)"  # "sharded_data (1 group of 3 hosts), unknown (2 groups of 2 hosts)"
_NO_OTHER_GROUP = "no group has fewer and larger collectives a step"  # why a group is called data parallel
_FEW_JOBS = 3  # that have a sentence each


def _parallelism(section: Section) -> str:
    """What kind of training a job is, as far as its traffic shows; of many jobs how many are of each kind."""
    jobs = section.rows(Source("job_parallelism")).join(section.rows(Source("jobs")), on=["run_id", "job"])
    if jobs.height == 1:
        return _of_one_job(jobs.row(0, named=True))
    if jobs.height <= _FEW_JOBS:
        kinds = [
            f"job {job} of {run_id} ({_of_hosts(hosts)}) is {_with_roles(parallelism)}"
            for run_id, job, hosts, parallelism in jobs.sort("run_id", "job")
            .select("run_id", "job", "hosts", "parallelism")
            .iter_rows()
        ]
    else:
        roles = [" and ".join(_ROLES[role] for role in re.findall(_ROLE, of_job)) for of_job in jobs["parallelism"]]
        counted_kinds = sorted(Counter(roles).items(), key=lambda kind: (-kind[1], kind[0]))
        unknown = [run for run, role in zip(jobs["run_id"], roles, strict=True) if role == _ROLES["unknown"]]
        named = {_ROLES["unknown"]: f" ({_with_topologies(section, unknown)})"} if unknown else {}
        kinds = [f"{counted(number, 'job')} {kind}{named.get(kind, '')}" for kind, number in counted_kinds]
    return f"Guessed from traffic: {'; '.join(kinds)}."


def _with_topologies(section: Section, runs: list[str]) -> str:
    """The runs, with the topology that their traffic shows where it shows one."""
    known = dict(section.rows(Source("topology")).select("run_id", "topology").iter_rows())
    shown = {run: known.get(run, "unknown") for run in dict.fromkeys(runs)}
    return listed([run if of == "unknown" else f"{run}: {words(of)}" for run, of in shown.items()], _FEW_JOBS)


def _of_one_job(job: dict[str, str]) -> str:
    of_hosts, kinds, roles = _of_hosts(job["hosts"]), _with_roles(job["parallelism"]), job["reason"].split("; ")
    why = job["reason"].replace(_NO_OTHER_GROUP, "what its collectives add up is not seen")
    if len(re.findall(_ROLE, job["parallelism"])) == 1:
        why = why.partition(": ")[2]
    if "unknown" in job["parallelism"] and len(roles) == 1:
        return f"How the job of {of_hosts} is parallelised is {kinds}: {why}."
    return f"The job of {of_hosts} is {kinds}, by a guess from its traffic: {why}."


def _of_hosts(hosts: str) -> str:
    return counted(len(hosts.split(",")), "host")


def _with_roles(parallelism: str) -> str:
    return re.sub(_ROLE, lambda found: _ROLES[found[0]], parallelism)


@chapter.section("graph", "Drawing of the topology", Source("topology_graph"), NO_FLOWS)
def graph(section: Section, frame: pl.DataFrame) -> None:
    heavy = frame.filter(pl.col("share_of_heaviest") >= drawing.HEAVY).group_by("run_id").len()["len"]
    section.headline = (
        f"{counts(heavy, 'directed pair')} of a run {'carries' if heavy.max() == 1 else 'carry'} at least "
        f"{percent(drawing.HEAVY)} of the payload that its heaviest pair carries."
    )
    caption = (
        f"Arrows are as wide as the payload from host to host; pale ones have less than {percent(drawing.HEAVY)} of "
        "the heaviest. Orange: the root or centre. Numbers: the order of the ring, in the direction of its data. All "
        "payload counts, also that before training."
    )
    section.figure(drawing.topology_graph, frame, caption)


@chapter.section(
    "heatmaps",
    "Volume of each pair of hosts",
    PAIR_VOLUME,
    NO_FLOWS,
    reference="zerwas, fig. 4",
    draws=("pair_volume", "mean_traffic_matrix"),
)
def heatmaps(section: Section, frame: pl.DataFrame) -> None:
    heavy = frame.group_by("run_id").agg(
        pl.col("is_heavy").sum(), share=pl.col("share_of_run").filter("is_heavy").sum()
    )
    section.headline = (
        f"A run's heaviest pairs of hosts ({counts(heavy['is_heavy'], 'directed pair')}, each sending at least half as "
        f"much as the first) carry {span(heavy['share'], percent)} of its volume."
    )
    least = number_of(frame.group_by("run_id").agg(pl.col("share_of_run").sum())["share_of_run"].min())
    hosts = (
        f" Of each run the {MOST_HOSTS} hosts with the most traffic are drawn; in the worst case the pairs among "
        f"them carry {percent(least)} of the run's volume."
        if least < 1 - 1e-9
        else ""
    )
    caption = (
        "Transmitted volume of each directed pair of hosts, in one logarithmic colour scale for all runs; blank: "
        f"nothing; k, M and G are 10³, 10⁶ and 10⁹ bytes. W is a worker, PS a parameter server, Ch. the chief.{hosts}"
    )
    pairs_of = section.rows(Source("traffic_matrix")).group_by("run_id").len()
    parts = [section.part(frame.height, int(pairs_of["len"].sum()), "directed pair", query="traffic_matrix")]
    parts_of = section.part_of_each(frame, pairs_of, "directed pairs")
    section.figure(zerwas.volume_heatmaps, frame, caption, parts=parts, parts_of=parts_of)
    of_means = Source("mean_traffic_matrix")
    means = section.rows(of_means)
    shown = means.filter(pl.max_horizontal("src_place", "dst_place") <= MOST_HOSTS)
    caption = (
        "The same, as the mean over the runs of a framework's topology, averaged over all models as in the paper: "
        "runs of other models and numbers of steps are one panel, and so are those that lose packets. A run whose "
        "topology or model is not known is in none."
    )
    parts = [section.part(shown.height, means.height, "directed pair", query=of_means.query)]
    if not shown.is_empty():
        parts_of = section.part_of_each(shown, means.group_by("configuration").len(), "directed pairs", "configuration")
        section.figure(
            zerwas.mean_volume_heatmaps, shown, caption, of_means, parts=parts, noun="configuration", parts_of=parts_of
        )


@chapter.section("rings", "Topologies and rings, declared and inferred", Source("ring_comparison"), draws=())
def rings(section: Section, frame: pl.DataFrame) -> None:
    columns = [
        texts("run", "run_id"), texts("topology (declared)", "declared_topology", words),
        texts("topology (inferred)", "inferred_topology", words), texts("ring (declared)", "declared_ring"),
        texts("ring (inferred from traffic)", "inferred_ring", lambda ring: ring or "no ring"),
        texts("order", "ring_order"), texts("agrees", "agrees", yes_no), texts("not comparable", "problem"),
    ]  # fmt: skip
    caption = (
        "Order in which data flows from host to host. A declared order agrees where the ring has the same edges, in "
        "the same direction where that is declared; topologies that send the same agree."
    )
    section.table(frame, columns, caption)
    declared = section.need(
        frame.drop_nulls("agrees"),
        "No run has a declared topology that can be compared. Declare topology and the hosts' ring_position in a "
        "run.toml to compare them.",
    )
    section.headline = (
        f"The inferred topology is the declared one in {declared['agrees'].sum()} of {counted(declared.height, 'run')} "
        "that can be compared."
    )
