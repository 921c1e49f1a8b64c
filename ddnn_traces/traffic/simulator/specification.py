"""Simulations described by names and values, as options of the command line or TOML give them.

A file has keys of KEYS; [[jobs]] tables with such keys are jobs that share links. A list where a key has one value is
an axis of a sweep.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from ddnn_traces.errors import UsageError
from ddnn_traces.text import nearest
from ddnn_traces.text_files import read_toml
from ddnn_traces.traffic.simulator.job import SimulatedRun
from ddnn_traces.traffic.simulator.layers import LayerProfile, read, read_columns, thesis
from ddnn_traces.traffic.simulator.patterns import Fault, Pattern

_NUMBER = (int, float)
#: Names of keys and the types of their values.
Keys = Mapping[str, tuple[type, ...]]
#: Keys of a job and the types of their values.
JOB_KEYS: dict[str, tuple[type, ...]] = {
    "run_id": (str,), "workers": (int,), "topology": (str,), "shape": (str,), "servers": (int,), "group_size": (int,),
    "iterations": (int,), "bandwidth_mbit": _NUMBER, "server_mbit": _NUMBER, "delay_ms": _NUMBER, "queue": (str,),
    "barrier": (bool,), "fusion_bytes": (int,), "fuse_from": (str,), "split_tensors": (bool,),
    "partition_bytes": (int,), "compression": _NUMBER, "compute_jitter": _NUMBER, "compute_distribution": (str,),
    "update_ms": _NUMBER, "server_barrier": (bool,), "multicast": (bool,), "in_network_aggregation": (bool,),
    "header_bytes": (int,), "batch_size": (int,), "start_ms": _NUMBER, "first_host": (int,), "seed": (int,),
    "pattern": (dict,), "fault": (dict,),
}  # fmt: skip
#: Keys whose values are lists of numbers.
LIST_KEYS = ("link_mbit", "compute_factors", "order")
#: Keys of the layer profile.
PROFILE_KEYS: dict[str, tuple[type, ...]] = {
    "profile": (str,), "layers": (int,), "model_bytes": (int,), "compute_ms": _NUMBER, "rescale": (bool,),
    "loading_ms": _NUMBER,
    "layer_sizes": (str,), "forward_times": (str,), "backward_times": (str,),
}  # fmt: skip
KEYS: Keys = JOB_KEYS | PROFILE_KEYS
#: Keys that have an effect under a condition only: the condition of the other keys' values, and it in words.
Conditions = Mapping[str, tuple[Callable[[Mapping[str, Any]], Any], str]]
CONDITIONS: Conditions = {
    "compute_distribution": (lambda values: values.get("compute_jitter"), "compute_jitter"),
    "seed": (
        lambda values: values.get("compute_jitter") or values.get("topology") == "pair_averaging",
        "compute_jitter or topology = 'pair_averaging'",
    ),
}
#: Keys of JOB_KEYS that have an effect beside a pattern.
_OF_PATTERNS = {
    "pattern", "fault", "run_id", "workers", "iterations", "bandwidth_mbit", "delay_ms", "fusion_bytes", "fuse_from",
    "split_tensors", "compute_jitter", "compute_distribution", "header_bytes", "batch_size", "seed",
    "update_ms",
}  # fmt: skip
#: Of these, those that have an effect on a recorded trace, which has its own computations and tensors.
_OF_TRACES = _OF_PATTERNS - {"fusion_bytes", "fuse_from", "split_tensors", "batch_size", "update_ms"}
_WORDS = {(dict,): "a table", (str,): "text", (int,): "a whole number", (bool,): "true or false", _NUMBER: "a number"}
_FILES = ("layer_sizes", "forward_times", "backward_times")


def job(values: Mapping[str, Any]) -> SimulatedRun:
    """The run of keys and values. Raises UsageError for an unknown key, a wrong type or an impossible value."""
    return SimulatedRun(**fields(values))


def fields(values: Mapping[str, Any], keys: Keys = KEYS) -> dict[str, Any]:
    """The fields of a run of keys and values. Raises UsageError that names the key."""
    _check_names(values, keys)
    given = {name: value for name, value in values.items() if value is not None}
    own = {name: value for name, value in given.items() if name not in PROFILE_KEYS}
    run = {"steps" if name == "iterations" else name: value for name, value in own.items()}
    run |= {name: tuple(given[name]) for name in LIST_KEYS if name in given}
    for name in run.keys() & {"bandwidth_mbit", "delay_ms", "server_mbit"}:
        run[name] = float(run[name])
    if "pattern" in run:
        pattern = run["pattern"] = Pattern.of(run["pattern"])
        used = _OF_TRACES if pattern.trace else _OF_PATTERNS | PROFILE_KEYS.keys()
        if wrong := [name for name in given if name in KEYS and name not in used]:
            what = "a Chakra trace" if pattern.trace else "a pattern"
            raise UsageError(f"{wrong[0]}: has no effect beside {what}; leave it out")
        if pattern.trace:
            run = {"workers": pattern.ranks, "steps": 1} | run
    if "fault" in run:
        if "pattern" not in run:
            raise UsageError("fault: has no effect without a pattern; give that, or leave it out")
        run["fault"] = Fault.of(run["fault"])
    return run | {"profile": profile(given)}


def parsed(texts: Mapping[str, str], keys: Keys = KEYS) -> dict[str, Any]:
    """Values of a command line by their keys: as TOML writes them, texts also without quotation marks."""
    return {name: text if keys.get(name) == (str,) else _of_toml(text) for name, text in texts.items()}


def _of_toml(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def check_used(several: Iterable[Mapping[str, Any]], conditions: Conditions = CONDITIONS) -> None:
    """Raise UsageError for a key that has no effect in any of the jobs that it is given in."""
    several = list(several)
    for name, (holds, wanted) in conditions.items():
        given = [values for values in several if values.get(name) is not None]
        if given and not any(map(holds, given)):
            raise UsageError(f"{name}: has no effect without {wanted}; give that, or leave it out")


def _check_names(values: Mapping[str, Any], keys: Keys) -> None:
    for name, value in values.items():
        if name not in keys and name not in LIST_KEYS:
            raise UsageError(f"{name}: no such key; {nearest(name, [*keys, *LIST_KEYS])}")
        types = (list, tuple) if name in LIST_KEYS else keys[name]
        fits = isinstance(value, types) and (bool in types or not isinstance(value, bool))
        if name in LIST_KEYS and fits:
            fits = all(isinstance(number, _NUMBER) and not isinstance(number, bool) for number in value)
        if value is not None and not fits:
            wanted = "a list of numbers" if name in LIST_KEYS else _WORDS[types]
            several = "; a list is for a sweep" if isinstance(value, list) and name not in LIST_KEYS else ""
            raise UsageError(f"{name} = {value!r}; it must be {wanted}{several}")


def profile_of(values: Mapping[str, Any]) -> LayerProfile:
    """As profile, of keys that nobody has looked at: also raises UsageError for one of a job, and for a wrong type."""
    _check_names(values, PROFILE_KEYS)
    if lists := values.keys() & set(LIST_KEYS):
        raise UsageError(f"{min(lists)}: is of a job; give keys of a profile: {', '.join(PROFILE_KEYS)}")
    return profile(values)


def profile(given: Mapping[str, Any]) -> LayerProfile:
    """The profile that the keys describe: the thesis's, a shipped one, a file, or three files; with the loading of its
    inputs, where loading_ms says how long. Raises UsageError."""
    loading = given.get("loading_ms")
    if loading is None:
        return _computing(given)
    if not 0 <= loading < 1e9:
        raise UsageError(f"loading_ms = {loading!r}; it must be 0 or more")
    return _computing(given).with_loading(loading)


def _computing(given: Mapping[str, Any]) -> LayerProfile:
    name = given.get("profile")
    files = [given[key] for key in _FILES if key in given]
    if files and (len(files) < len(_FILES) or name):
        raise UsageError(f"{', '.join(_FILES)}: give all three and no profile")
    sums = {"model_bytes": given.get("model_bytes"), "compute_ms": given.get("compute_ms")}
    for key, value in sums.items():
        if value is not None and not 0 < value < 1e15:
            raise UsageError(f"{key} = {value!r}; it must be above 0")
    if files or name not in (None, "thesis"):
        for key in ("layers", "rescale"):
            if key in given:
                raise UsageError(f"{key}: is of the thesis's profile; the layers of {name or files[0]} are its own")
        found = read_columns(*map(Path, files)) if files else read(str(name))
        return found.resized(**sums)
    chosen = {key: given[key] for key in ("layers", "model_bytes", "compute_ms") if key in given}
    found = thesis(**chosen)
    return found.resized(chosen.get("model_bytes", 100_000_000)) if given.get("rescale") else found


def read_file(path: Path) -> dict[str, Any]:
    """The keys of a TOML file; those of its [[jobs]] as a list of dictionaries. Raises UsageError."""
    values = read_toml(path, UsageError)
    jobs = values.get("jobs", [])
    if not isinstance(jobs, list) or not all(isinstance(entry, dict) for entry in jobs):
        raise UsageError(f"{path}: jobs must be tables: [[jobs]]")
    return values


def jobs(values: Mapping[str, Any]) -> list[SimulatedRun]:
    """The runs of a file's keys: one, or one of each of [[jobs]], which take the other keys as their defaults.

    Raises UsageError.
    """
    shared = {name: value for name, value in values.items() if name != "jobs"}
    entries = [shared | entry for entry in values.get("jobs") or [{}]]
    if len(entries) > 1:
        entries = [{"run_id": f"job-{i + 1}"} | entry for i, entry in enumerate(entries)]
    runs = [job(entry) for entry in entries]
    check_used(entries)
    if len(runs) > 1 and any(run.pattern for run in runs):
        raise UsageError("pattern: jobs that share links have none; simulate it alone")
    names = [run.run_id for run in runs]
    if len(set(names)) < len(names):
        raise UsageError(f"run_id: {', '.join(names)}; give each of [[jobs]] its own")
    return runs


def axes(values: Mapping[str, Any], keys: Keys = KEYS) -> dict[str, list[Any]]:
    """The keys of a sweep that have a list of values. Raises UsageError where there are none, or one is empty, and for
    keys and types of values that no cell can have."""
    if "jobs" in values:
        raise UsageError("jobs: a sweep is of one job; give its keys at the top")
    found = {name: value for name, value in values.items() if isinstance(value, list) and name not in LIST_KEYS}
    for name, value in values.items():
        for each in found.get(name, [value]) or [None]:
            _check_names({name: each}, keys)
    if not found:
        raise UsageError("no key has a list of values; give one, as bandwidth_mbit = [1000, 10000]")
    for name, several in found.items():
        if not several or len({repr(value) for value in several}) < len(several):
            raise UsageError(f"{name} = {several!r}; give one value or more, each once")
    return found


def cells(values: Mapping[str, Any], keys: Keys = KEYS) -> Iterator[dict[str, Any]]:
    """The keys of each cell of a sweep, the last axis fastest."""
    found = axes(values, keys)
    for chosen in product(*found.values()):
        yield {**values, **dict(zip(found, chosen, strict=True))}
