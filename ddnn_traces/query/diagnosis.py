"""What makes training jobs slow: the verdicts, and what none tells: other ways to lose time, doubts, why nothing can be
told. As rows and in words, for the command diagnose, its Python function and the report."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from ddnn_traces.query.dataset import Dataset, StoredViews
from ddnn_traces.text import counted, digits, listed

_LEAST_LOST = 0.05  # share of a job's time in long steps that is told
_MOST_HOSTS = 3  # in a sentence
_MOST_RUNS = 3  # in a sentence

_Job = tuple[str, int]  # run and job

_ESTABLISHED, _BY_CHANCE = "established", "by_chance"  # findings, whose kinds are those of the verdicts

#: Kinds of remarks of a job, and its findings, in order.
_ORDER = (
    *("several_jobs", "job_filter", "interrupted", "one_host_captured", "hosts_without_capture", "unknown_payload"),
    *("cut_headers", "no_job", "one_way_hosts", "steps_without_job", "clocks_differ", "doubtful_steps", _ESTABLISHED),
    *("late_together", "long_steps", _BY_CHANCE, "in_no_collective", "two_hosts", "sends_alone", "nothing"),
)

#: Queries with views in common.
_READ = ("verdicts", "long_steps", "late_together", "uncollected_bytes", "jobs", "jobs_of_run", "inferred_steps")

_OF_TWO = (
    "nobody can tell which of the two is slow: no third host shows how long one should need, and the data of one may "
    "wait until the other is ready."  # gloo and NCCL send a message when its receiver has asked for it
)
_OF_SENDS = (
    "collectives are sends between two hosts each, so nobody can tell which host is slow: none enters one with others "
    "(query collectives has when each starts)."
)
_NOTHING = "Nothing stands out"
_ALONE = (
    "one host alone was captured, so no job is seen: what the others send to each other is missing. Its flows, volumes "
    "and steps are there (queries traffic_matrix, inferred_steps); topology, collectives and slow hosts need the "
    "captures of all hosts."
)
_ADD_CAPTURES = "Put their captures into the run's folder and ingest again."
_NO_REPEATS = "flows must repeat their bytes in each of five steps, or of four with the longest pauses between them."
_ONE_TRAINING = (
    "Other traffic between the hosts, or a batch that changes within the run, hides steps: see queries topology and "
    "traffic_matrix, and ingest the packets of one training alone (--filter), or of one part of it (editcap -A, -B)."
)
_STEPS_ALONE = (
    "but no pause tells a step from its parts, as a ring's rounds, or a host only sends or gets, as in a broadcast: "
    "see queries inferred_steps and topology."
)
_ONE_WAY = (
    "as in a broadcast, or where a filter (a port, a host) left a part of the packets in the "
    "captures: see queries traffic_matrix and topology. Capture all that hosts send."
)


@dataclass(frozen=True)
class Remark:
    """What is said of a job, or of a run (job: None), that is no verdict. sentence: without the run's name. Of a job in
    which nothing stands out, bound: what 5% of its steps is; besides: the rest of the sentence, which may be empty."""

    run_id: str
    job: int | None
    kind: str
    sentence: str
    bound: str = ""
    besides: str = ""

    @property
    def line(self) -> str:
        """The sentence behind the names of run and job."""
        return f"{self.run_id}{'' if self.job is None else f', job {self.job}'}: {self.sentence}"


@dataclass(frozen=True)
class Diagnosis:
    """verdicts, jobs: rows of the queries. uncaptured: for each run without a job, hosts that have no capture.
    pauses: of each run in which pauses show steps, how many, and their confidence."""

    verdicts: pl.DataFrame
    jobs: pl.DataFrame
    remarks: tuple[Remark, ...]
    uncaptured: Counter[str]
    pauses: dict[str, str]

    def rows(self) -> pl.DataFrame:
        """Columns of the query verdicts: its rows, and one for each remark, whose kind says what it is of, and which
        has no rank. Each run has a row; by run and job, those of a run and what is said above its findings first, and
        long steps before findings that chance may explain."""
        said = [
            {"run_id": one.run_id, "job": one.job, "kind": one.kind, "sentence": one.sentence} for one in self.remarks
        ]
        of_verdicts = self.verdicts.schema
        remarks = pl.DataFrame(said, {name: of_verdicts[name] for name in ("run_id", "job", "kind", "sentence")})
        of_finding = pl.when("is_established").then(pl.lit(_ESTABLISHED)).otherwise(pl.lit(_BY_CHANCE))
        kind = pl.when(pl.col("rank").is_null()).then("kind").otherwise(of_finding)
        place = kind.replace_strict({one: place for place, one in enumerate(_ORDER)}, return_dtype=pl.Int64)
        rows = pl.concat([self.verdicts, remarks], how="diagonal")
        return rows.sort("run_id", "job", place, "rank", maintain_order=True)

    def lines(self) -> list[str]:
        """The same in words, for people: findings first, and runs of which the same is said in one line."""
        first = [*self._findings(True), *self._lines_of("late_together"), *self._lines_of("long_steps")]
        rest = [
            *self._besides(), *self._lines_of("in_no_collective"), *self._lines_of("interrupted"),
            *self._of_several_jobs(), *self._of_no_job(),
        ]  # fmt: skip
        return [*first, *self._findings(False), *rest]

    def _lines_of(self, kind: str) -> list[str]:
        return [one.line for one in self._by_kind[kind]]

    @cached_property
    def _by_kind(self) -> dict[str, list[Remark]]:
        found: dict[str, list[Remark]] = {kind: [] for kind in _ORDER}
        for remark in self.remarks:
            found[remark.kind].append(remark)
        return found

    def _findings(self, established: bool) -> Iterator[str]:
        """The verdicts of each job that has an established one, or has none, below its name and its doubts."""
        doubts = {(one.run_id, one.job): one.sentence for one in self._by_kind["doubtful_steps"]}
        of_clocks: dict[str, list[str]] = {}
        for one in self._by_kind["clocks_differ"]:
            of_clocks.setdefault(one.run_id, []).append(one.sentence)
        numbers = Counter(self.jobs["run_id"])
        columns = ("run_id", "job", "rank", "confidence", "is_established", "sentence")
        of_jobs = self.verdicts.filter(pl.col("is_established").any().over("run_id", "job") == established)
        for run_id, job, rank, confidence, is_established, sentence in of_jobs.select(columns).iter_rows():
            if rank == 1:
                yield f"{run_id}, job {job}:" if numbers[run_id] > 1 else f"{run_id}:"
                yield from (f"  {said}" for said in of_clocks.get(run_id, []))
                if (run_id, job) in doubts:
                    yield f"  Steps and costs are doubtful: {_small(doubts[run_id, job])}"
            sure = f" Confidence {confidence:.2f}."
            yield f"  {rank}. {sentence}{sure if is_established else ''}"

    def _besides(self) -> Iterator[str]:
        if two := self._by_kind["two_hosts"]:
            yield of_two(two)
        if quiet := self._by_kind["nothing"]:
            bounds = listed([f"{one.run_id}: {one.bound}" for one in quiet if one.bound], _MOST_RUNS)
            yield f"{_NOTHING} in {counted(len(quiet), 'job')}{_no_cost(bounds)}"
            yield from (f"  {one.run_id}, job {one.job}: {one.besides}" for one in quiet if one.besides)
        yield from self._lines_of("sends_alone")
        found = {*self.verdicts.select("run_id", "job").iter_rows()}
        with_findings = {run_id for run_id, _ in found}
        yield from (one.line for one in self._by_kind["clocks_differ"] if one.run_id not in with_findings)
        for one in self._by_kind["doubtful_steps"]:
            if (one.run_id, one.job) not in found:
                yield f"{one.run_id}, job {one.job}: {_small(one.sentence)}"

    def _of_several_jobs(self) -> Iterator[str]:
        for several in self._by_kind["several_jobs"]:
            yield several.line
            filters = [one for one in self._by_kind["job_filter"] if one.run_id == several.run_id]
            yield from (f"  job {one.job}: {one.sentence}" for one in filters)

    def _of_no_job(self) -> Iterator[str]:
        if one_host := self._by_kind["one_host_captured"]:
            yield alone(one_host)
        if partial := self._by_kind["hosts_without_capture"]:
            names = listed(
                [f"{counted(self.uncaptured[one.run_id], 'host')} of {one.run_id}" for one in partial], _MOST_RUNS
            )
            about = f"In {_runs(partial)} no job is seen, and hosts that exchange data have no capture: {names}."
            yield f"{about} {_ADD_CAPTURES}"
        for kind in ("unknown_payload", "cut_headers", "one_way_hosts"):
            yield from (f"{one.run_id}: {_small(one.sentence)}" for one in self._by_kind[kind])
        if silent := [*self._by_kind["no_job"], *self._by_kind["steps_without_job"]]:
            names = listed(sorted(one.run_id for one in silent), _MOST_RUNS)
            yield f"In {_runs(silent)} no job is seen ({names}): {_NO_REPEATS} {_ONE_TRAINING}"
        if stepped := self._by_kind["steps_without_job"]:
            names = listed([f"{one.run_id}: {self.pauses[one.run_id]}" for one in stepped], _MOST_RUNS)
            yield f"The traffic shows steps there in {_runs(stepped)} ({names}), {_STEPS_ALONE}"


def _small(sentence: str) -> str:
    """The sentence behind a colon."""
    return sentence[0].lower() + sentence[1:]


def _large(clause: str) -> str:
    """The clause as a sentence."""
    return clause[0].upper() + clause[1:]


def _runs(remarks: list[Remark]) -> str:
    return counted(len({one.run_id for one in remarks}), "run")


def diagnose(dataset: Dataset) -> Diagnosis:
    """What delays the steps of each training job of a dataset, and what cannot be told."""
    with StoredViews(dataset) as stored:  # a quarter of the CPU time of 329 runs, a third of one run's
        for name in _READ:
            stored.store_inputs(name)
        return _diagnosed(dataset)


def _diagnosed(dataset: Dataset) -> Diagnosis:
    verdicts, jobs = dataset.query("verdicts"), dataset.query("jobs")
    stops = dataset.query("interruptions") if jobs["job"].max() else pl.DataFrame()
    remarks = [*_of_jobs(dataset, verdicts, jobs), *interrupted(stops), *_of_several_jobs(dataset, stops)]
    seen, cut = set(jobs["run_id"]), _cut_headers(dataset)
    remarks += [Remark(run, None, "cut_headers", _large(f"{cut[run]}.")) for run in cut if run in seen]
    unseen = _of_unseen(dataset, jobs, cut)
    return Diagnosis(verdicts, jobs, (*remarks, *unseen.remarks), unseen.uncaptured, unseen.pauses)


def why_no_job(dataset: Dataset, jobs: pl.DataFrame) -> list[str]:
    """Why runs show no job, a line for all with the same reason. jobs: rows of the query."""
    return list(_of_unseen(dataset, jobs, _cut_headers(dataset))._of_no_job())


def _of_unseen(dataset: Dataset, jobs: pl.DataFrame, cut: dict[str, str]) -> Diagnosis:
    """What is said of the runs without a job. cut: of _cut_headers()."""
    seen = set(jobs["run_id"])
    unseen = [run for run in dataset.run_ids if run not in seen]
    if not unseen:
        return Diagnosis(pl.DataFrame(), jobs, (), Counter(), {})
    hosts = dataset.query("uncaptured_hosts")
    uncaptured = Counter(hosts["run_id"])
    pauses = _pauses(dataset) if any(not uncaptured[run] for run in unseen) else {}
    remarks = _of_no_job(dataset, unseen, of_one_host(hosts, jobs), uncaptured, pauses, cut)
    return Diagnosis(pl.DataFrame(), jobs, (*remarks,), uncaptured, pauses)


def _pauses(dataset: Dataset) -> dict[str, str]:
    """As Diagnosis, of all runs."""
    found = dataset.query("inferred_steps").filter("structured").group_by("run_id")
    steps = found.agg(pl.len(), pl.col("confidence").min()).iter_rows()
    return {run: f"{counted(number, 'step')} at confidence {share:.2f}" for run, number, share in steps}


def _of_jobs(dataset: Dataset, verdicts: pl.DataFrame, jobs: pl.DataFrame) -> Iterator[Remark]:
    stepped = of_common_steps(jobs, dataset.query("jobs_of_run"))
    beside = [*together(dataset.query("late_together"), stepped)]
    if stepped.height:
        beside += paused(dataset.query("long_steps"), stepped, dataset)
    beside += of_two_hosts(stepped)
    yield from beside
    yield from uncollected(dataset.query("uncollected_bytes"), stepped)
    told = {*verdicts.select("run_id", "job").iter_rows(), *((one.run_id, one.job) for one in beside)}
    quiet = [job for job in stepped.select("run_id", "job").iter_rows() if job not in told]
    yield from _of_quiet_jobs(dataset, quiet, {*doubtful(jobs).select("run_id", "job").iter_rows()})
    yield from doubts(jobs)
    yield from unlike_clocks(dataset, jobs)


def of_common_steps(jobs: pl.DataFrame, jobs_of_run: pl.DataFrame) -> pl.DataFrame:
    """The jobs but those of runs in which pairs of hosts may meet at random. Both arguments: rows of the query."""
    averaging = jobs_of_run.filter("is_pair_averaging").drop_nulls("problem")
    return jobs.join(averaging, on="run_id", how="anti")


def _of_quiet_jobs(dataset: Dataset, quiet: list[_Job], in_doubt: set[_Job]) -> Iterator[Remark]:
    """Of jobs of which nothing else is told. in_doubt: jobs whose steps are doubtful, in which nothing can be seen."""
    if not quiet:
        return
    of_servers = {*dataset.query("job_servers").select("run_id", "job").iter_rows()}
    sends = sends_alone(dataset.query("job_parallelism")) - of_servers
    beside = [_first_of_job(dataset.query(name)) for name in ("beside_jobs", "links_sent_again")]
    least = dataset.query("least_delays")
    bounds = {(run_id, job): bound for run_id, job, bound in least.select("run_id", "job", "bound").iter_rows()}
    waiting = {job: f"{sentence}." for job, sentence in _first_of_job(least.drop_nulls("sentence")).items()}
    for job in quiet:
        besides = [found[job] for found in beside if job in found]
        if job in sends:
            yield Remark(*job, "sends_alone", " ".join([f"Its {_OF_SENDS}", *besides]))
        elif job not in in_doubt:
            besides = [waiting[job], *besides] if job in waiting else besides
            bound = bounds.get(job, "")
            first = f"{_NOTHING}{_no_cost(bound)}"
            yield Remark(*job, "nothing", " ".join([first, *besides]), bound, " ".join(besides))


def _no_cost(bounds: str) -> str:
    """What "nothing stands out" rests on. bounds: 5% of a step; empty where no host enters a collective twice."""
    return f": no host and no link alone is seen to cost 5% of a step ({bounds})." if bounds else "."


def sends_alone(job_parallelism: pl.DataFrame) -> set[_Job]:
    """Run and job of those whose groups of hosts only send, and are no pipeline: no host enters a collective with
    others, to be compared with. job_parallelism: rows of the query."""
    rows = job_parallelism.filter(pl.col("groups") == pl.col("unknown_groups"))
    return {*rows.select("run_id", "job").iter_rows()}


def of_sends(jobs: list[_Job]) -> str:
    """What is said of all these jobs of sends_alone at once; empty where there is none."""
    if not jobs:
        return ""
    runs = listed(sorted({run_id for run_id, _ in jobs}), _MOST_RUNS)
    return f"In {counted(len(jobs), 'job')} ({runs}) {_OF_SENDS}"


def _first_of_job(rows: pl.DataFrame) -> dict[_Job, str]:
    """The first sentence of each run and job."""
    first = rows.unique(["run_id", "job"], keep="first").select("run_id", "job", "sentence")
    return {(run_id, job): sentence for run_id, job, sentence in first.iter_rows()}


def interrupted(interruptions: pl.DataFrame) -> list[Remark]:
    """Of each job that another one seems to go on with. interruptions: rows of the query, or none."""
    if interruptions.is_empty():
        return []
    rows = interruptions.select("run_id", "job", "sentence").iter_rows()
    return [Remark(run, job, "interrupted", f"{sentence} (query interruptions).") for run, job, sentence in rows]


def _of_several_jobs(dataset: Dataset, interruptions: pl.DataFrame) -> Iterator[Remark]:
    """Of runs whose jobs are not all parts of one training that was interrupted. interruptions: as interrupted()."""
    mixed = dataset.query("jobs_of_run").drop_nulls("problem")
    if not interruptions.is_empty():
        stops = dict(interruptions.filter("is_interrupted")["run_id"].value_counts().iter_rows())
        whole = [run for run, jobs in mixed.select("run_id", "jobs").iter_rows() if stops.get(run) == jobs - 1]
        mixed = mixed.filter(~pl.col("run_id").is_in(whole))
    filters = dataset.query("job_filters").rows_by_key("run_id") if mixed.height else {}
    for run_id, problem, is_averaging in mixed.select("run_id", "problem", "is_pair_averaging").iter_rows():
        yield Remark(run_id, None, "several_jobs", f"{problem}.")
        for job, expression, reason in [] if is_averaging else filters.get(run_id, []):
            # addresses of others' data, to be copied to a shell
            yield Remark(run_id, job, "job_filter", reason or f"--filter {shlex.quote(expression)}")


def _of_no_job(
    dataset: Dataset, unseen: list[str], alone: list[Remark], uncaptured: Counter[str], pauses: dict[str, str],
    cut: dict[str, str],
) -> Iterator[Remark]:  # fmt: skip
    """Why no job is seen in these runs. alone: of those of which one host alone was captured. pauses: as Diagnosis.
    cut: of _cut_headers()."""
    one_host = {one.run_id: one for one in alone}
    unknown = dict(dataset.query("unknown_payload").select("run_id", "problem").iter_rows())
    coverage = dataset.query("capture_coverage").filter(pl.col("one_way_hosts") > 0) if pauses else pl.DataFrame()
    one_way = {row["run_id"]: row["one_way_hosts"] for row in coverage.iter_rows(named=True) if row["run_id"] in pauses}
    for run in unseen:
        if run in unknown:
            yield Remark(run, None, "unknown_payload", f"No job is seen, for {unknown[run]}.")
        elif run in cut:
            yield Remark(run, None, "cut_headers", f"No job is seen, for {cut[run]}.")
        elif run in one_host:
            yield one_host[run]
        elif hosts := uncaptured[run]:
            lacking = "host that exchanges data has" if hosts == 1 else "hosts that exchange data have"
            said = f"No job is seen, and {hosts} {lacking} no capture. {_ADD_CAPTURES}"
            yield Remark(run, None, "hosts_without_capture", said)
        elif run in one_way:
            seen = counted(one_way[run], "host")
            said = f"No job is seen. The traffic shows steps, but data of {seen} in one direction only, {_ONE_WAY}"
            yield Remark(run, None, "one_way_hosts", said)
        elif run in pauses:
            said = f"No job is seen. The traffic shows {pauses[run]}, {_STEPS_ALONE} {_ONE_TRAINING}"
            yield Remark(run, None, "steps_without_job", said)
        else:
            yield Remark(run, None, "no_job", f"No job is seen: {_NO_REPEATS} {_ONE_TRAINING}")


def _cut_headers(dataset: Dataset) -> dict[str, str]:
    """Of the runs whose captures cut TCP headers, what is not known."""
    return dict(dataset.query("cut_headers").select("run_id", "problem").iter_rows())


def paused(long_steps: pl.DataFrame, jobs: pl.DataFrame, dataset: Dataset) -> Iterator[Remark]:
    """Of each of these jobs whose long steps take 5% of its time and more beyond the median, where its steps are not in
    doubt. long_steps, jobs: rows of the queries.
    """
    sure = jobs.join(doubtful(jobs), on=["run_id", "job"], how="anti")
    long_steps = long_steps.join(sure, on=["run_id", "job"], how="semi")
    labels = {(run, host): label for run, host, label in dataset.sql("SELECT run_id, host_ip, label FROM hosts").rows()}
    for run_id, job in long_steps.select("run_id", "job").unique(maintain_order=True).iter_rows():
        rows = long_steps.filter(run_id=run_id, job=job)
        share = rows["lost_share"].sum()
        if share < _LEAST_LOST:
            continue
        hosts = Counter(labels.get((run_id, host)) or host for host in rows.filter(waits_for="host")["host_ip"])
        waits = [f"for {host} in {count}" for host, count in hosts.most_common(_MOST_HOSTS)]
        if within := rows.filter(waits_for="collective").height:
            waits.append(f"for data of a collective in {within}")
        if alike := rows.filter(waits_for="all hosts").height:
            waits.append(f"of all hosts alike, as for a validation, in {alike}")
        step, step_ms = rows.sort("step_ms", descending=True).select("step", "step_ms").row(0)
        many = f"{rows.height} of {counted(rows['steps'][0], 'step')} {'takes' if rows.height == 1 else 'take'}"
        said = (
            f"{many} at least twice the median ({digits(rows['median_ms'][0])} ms), which costs {share:.0%} of the "
            f"time behind the first step; the longest, step {step}, takes {digits(step_ms / 1e3)} s; "
            f"the longest wait is {', '.join(waits)} (query long_steps)."
        )
        yield Remark(run_id, job, "long_steps", said)


def together(late_together: pl.DataFrame, jobs: pl.DataFrame) -> Iterator[Remark]:
    """Of each of these jobs whose hosts are late in the same steps. Both arguments: rows of the query."""
    of_jobs = late_together.join(jobs, on=["run_id", "job"], how="semi")
    for run_id, job, sentence in of_jobs.select("run_id", "job", "sentence").iter_rows():
        yield Remark(run_id, job, "late_together", f"{sentence} (query late_together).")


def uncollected(uncollected_bytes: pl.DataFrame, jobs: pl.DataFrame) -> Iterator[Remark]:
    """Of each of these jobs whose connections carry what no collective has. Both arguments: rows of the query."""
    of_jobs = uncollected_bytes.join(jobs, on=["run_id", "job"], how="semi")
    for run_id, job, sentence in of_jobs.select("run_id", "job", "sentence").iter_rows():
        yield Remark(run_id, job, "in_no_collective", f"{sentence} (query uncollected_bytes).")


def doubtful(jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs whose steps by repeated bytes are not those of the log or of pauses. jobs: rows of the query."""
    return jobs.filter(jobs["agreed_share"] < 1)


def doubts(jobs: pl.DataFrame) -> Iterator[Remark]:
    """Of each job of doubtful(jobs). jobs: rows of the query."""
    for run_id, job, problem in doubtful(jobs).select("run_id", "job", "problem").iter_rows():
        yield Remark(run_id, job, "doubtful_steps", f"{_large(problem)} (query jobs).")


def unlike_clocks(dataset: Dataset, jobs: pl.DataFrame) -> list[Remark]:
    """Of each run with a job whose hosts have clocks that differ. jobs: rows of the query."""
    seen = set(jobs["run_id"])
    found = dataset.query("clock_differences").select("run_id", "problem").iter_rows()
    return [Remark(run, None, "clocks_differ", problem) for run, problem in found if run in seen]


def of_two_hosts(jobs: pl.DataFrame) -> list[Remark]:
    """Of each job of two hosts, of which no verdict can call one slow. jobs: rows of the query."""
    small = jobs.filter(jobs["hosts"].str.split(",").list.len() == 2).select("run_id", "job")
    return [Remark(run, job, "two_hosts", f"In a job of two hosts {_OF_TWO}") for run, job in small.iter_rows()]


def of_two(remarks: list[Remark]) -> str:
    """What of_two_hosts says of all these jobs at once; empty where there is none."""
    if not remarks:
        return ""
    runs = listed(sorted({one.run_id for one in remarks}), _MOST_RUNS)
    return f"In {counted(len(remarks), 'job')} of two hosts ({runs}) {_OF_TWO}"


def of_one_host(uncaptured_hosts: pl.DataFrame, jobs: pl.DataFrame) -> list[Remark]:
    """Of each run of which one host alone was captured, and that shows no job. Both arguments: rows of the query."""
    seen = uncaptured_hosts.group_by("run_id").agg(captured=pl.col("hosts").first() - pl.len())
    runs = {*seen.filter(captured=1)["run_id"]} - {*jobs["run_id"]}
    return [Remark(run, None, "one_host_captured", _large(_ALONE)) for run in sorted(runs)]


def alone(remarks: list[Remark]) -> str:
    """What of_one_host says of all these runs at once; empty where there is none."""
    if not remarks:
        return ""
    return f"In {_runs(remarks)} ({listed([one.run_id for one in remarks], _MOST_RUNS)}) {_ALONE}"
