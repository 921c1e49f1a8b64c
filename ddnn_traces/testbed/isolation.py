"""The testbed runs in PID, mount and network namespaces of its own, and so cannot leave anything behind.

The first process of a PID namespace takes all others with it when it ends, whatever ends it; the names of network
namespaces are bind mounts in a mount namespace that nobody else sees. When the command that a user sees is killed, the
kernel kills what it started (PR_SET_PDEATHSIG), and the last process takes interfaces, rules and qdiscs with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from ddnn_traces.errors import TestbedError

_OWN_NAMESPACES = (
    "setpriv", "--pdeathsig", "KILL",
    "unshare", "--pid", "--mount", "--net", "--fork", "--kill-child=KILL", "--mount-proc",
)  # fmt: skip


def start(*arguments: str) -> Iterator[dict[str, Any]]:
    """Run `python -m ddnn_traces.testbed ARGUMENTS` in namespaces of its own; yields what it reports.

    An exception of the caller ends it at once. Raises TestbedError where it cannot be started or ends early.
    """
    command = [*_OWN_NAMESPACES, sys.executable, "-m", "ddnn_traces.testbed", *arguments]
    # a session of its own: a Ctrl-C is for the command that the user sees
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                yield json.loads(line)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise TestbedError(f"the testbed ended with {process.returncode}; is a message above? a killed one has none")


def take_names() -> None:
    """In the process inside: names of network namespaces that nobody else has or sees."""
    subprocess.run(["mkdir", "-p", "/run/netns"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
