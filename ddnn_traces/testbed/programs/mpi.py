"""Open MPI's all-reduce algorithms. This module imports nothing, since the testbed reads it too."""

from __future__ import annotations

#: Open MPI 4.1's numbers of coll_tuned_allreduce_algorithm, and the topology that each is in the tables.
ALGORITHMS = {
    "linear": (1, "star"), "binary": (2, "tree"), "recursive_doubling": (3, "recursive_doubling"),
    "ring": (4, "ring"), "rabenseifner": (6, "halving_doubling"),
}  # fmt: skip
#: Of binary: a reduction and a broadcast along the same tree. (Open MPI's binomial ones are along different trees.)
_BINARY = {"coll_tuned_reduce_algorithm": "4", "coll_tuned_bcast_algorithm": "5"}


def mca_settings(algorithm: str) -> dict[str, str]:
    """Settings of mpirun that choose the all-reduce. Raises KeyError for an unknown name."""
    number, _ = ALGORITHMS[algorithm]
    settings = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": str(number)}
    return settings | (_BINARY if algorithm == "binary" else {})
