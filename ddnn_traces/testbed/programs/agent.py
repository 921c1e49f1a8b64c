"""Run a command for as long as the one who asked for it is there: `python -m programs.agent COMMAND ...`.

Lines on standard input are names of signals (INT, USR1), which the command gets. At the end of standard input, when the
asker or the connection to it is gone, the command's process group is ended. The exit code is the command's. So nothing
is left behind on a host whose ssh connection breaks. A killed agent takes the command with it, unless that has changed
its user since.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

#: Seconds that a command has to end after SIGTERM.
GRACE_S = 5
_PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> int:
    """Run the command, and return its exit code; one ended by a signal gives 128 and the signal's number."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, start_new_session=True, preexec_fn=_end_with_the_agent
        )
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    threading.Thread(target=_relay, args=(process,), daemon=True).start()
    code = process.wait()
    _signal(process, signal.SIGKILL)  # what it left in its group
    return code if code >= 0 else 128 - code


def _end_with_the_agent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _relay(process: subprocess.Popen[bytes]) -> None:
    for line in sys.stdin:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.Signals[f"SIG{line.strip()}"])
    _signal(process, signal.SIGTERM)
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
