"""OpenSSH's server on loopback, for files that ssh:// reaches. It needs no root: it lets in the user who starts it."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dask_cluster import is_open, until
from tools import needs_tool, reserved_port

_CONF = """Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
Subsystem sftp internal-sftp
"""


@dataclass
class SshServer:
    """A running server. url: of its root. home: a home folder whose ssh may log in, and knows the host."""

    url: str
    home: Path
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """A server with keys of its own. It is ended, with its connections."""
    program = needs_tool("/usr/sbin/sshd")
    with reserved_port() as port:
        home = folder / "home"
        (home / ".ssh").mkdir(parents=True)
        for key in (folder / "host", folder / "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        (folder / "user").rename(home / ".ssh" / "id_ed25519")
        words = (folder / "host.pub").read_text().split()
        (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {words[0]} {words[1]}\n")
        (folder / "conf").write_text(_CONF.format(port=port, folder=folder))
        with contextlib.suppress(PermissionError):  # which root's server wants
            Path("/run/sshd").mkdir(exist_ok=True)
        process = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "conf")], stderr=subprocess.DEVNULL)
        try:
            until(lambda: process.poll() is None and is_open(port))
            yield SshServer(f"ssh://{getpass.getuser()}@127.0.0.1:{port}", home, process)
        finally:
            process.terminate()
            process.wait()


def lose_connections(server: SshServer) -> None:
    """End the server's processes of connections, as a network that fails does; it takes new ones."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    for pid in map(int, children.read_text().split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
