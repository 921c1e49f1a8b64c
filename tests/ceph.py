"""A real S3 server on loopback: one Ceph monitor, one in-memory OSD and Ceph's object gateway. Root is not needed.

Debian packages ceph-mon, ceph-osd, radosgw, ceph-common. It honours conditional PUT (If-None-Match: *), which Delta
Lake needs: of several writers exactly one wins. Without tcp_nodelay each answer would take 40 ms more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools import needs_tool

KEY, SECRET = "AKTEST", "SKTEST"
#: A user who owns no bucket.
OTHER_KEY, OTHER_SECRET = "AKOTHER", "SKOTHER"
_ATTEMPTS = 5

_CONF = """[global]
fsid = {fsid}
mon host = 127.0.0.1:{monitor}
public network = 127.0.0.0/8
keyring = {folder}/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
run dir = {folder}/run
admin socket = {folder}/run/$name.$pid.asok
log file = {folder}/$name.log
pid file = {folder}/run/$name.pid
[mon.a]
mon data = {folder}/mon
mon addr = 127.0.0.1:{monitor}
[osd.0]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
"""


@dataclass(frozen=True)
class Server:
    """A running server. endpoint: its URL."""

    endpoint: str

    def environment(self, key: str = KEY, secret: str = SECRET) -> Mapping[str, str]:
        """What S3 programs need to reach it, and nothing of this machine's own configuration."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }


def start() -> tuple[Path, Server]:
    """Start a server. Returns the folder of its daemons, by which stop() ends them."""
    for program in ("ceph-mon", "ceph-osd", "radosgw", "ceph-authtool"):
        needs_tool(program)
    for attempt in range(_ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix="ceph-"))  # short: a socket's path has 107 bytes at most
        port = _two_free_ports()
        try:
            _start(folder, port)
        except BaseException as error:
            stop(folder)
            # another program can have taken a port meanwhile
            if attempt == _ATTEMPTS - 1 or not isinstance(error, subprocess.SubprocessError | TimeoutError):
                raise
            continue
        return folder, Server(f"http://127.0.0.1:{port}")
    raise AssertionError("unreachable")


#: Name of the server that all test processes share (fixture once).
SHARED = "ceph"


def start_shared(file: Path) -> None:
    """Start a server that outlives this process; the file has its folder and its URL."""
    folder, started = start()
    file.write_text(f"{folder}\n{started.endpoint}\n")


def stop_shared(session: Path) -> None:
    """End the server of a test session, by its base folder, if it has one."""
    file = session / SHARED / "made"
    if file.exists():
        stop(Path(file.read_text().splitlines()[0]))


def _two_free_ports() -> int:
    """A free port whose next one is free, too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port


def _start(folder: Path, port: int) -> None:
    for name in ("run", "mon", "osd"):
        (folder / name).mkdir()
    conf = folder / "ceph.conf"
    fsid = str(uuid.uuid4())
    conf.write_text(_CONF.format(fsid=fsid, monitor=port + 1, port=port, folder=folder))
    _run("ceph-authtool", "--create-keyring", folder / "keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
    for name in ("client.admin", "client.rgw", "osd.0"):
        caps = [word for part in ("mon", "osd", "mgr") for word in ("--cap", part, "allow *")]
        _run("ceph-authtool", folder / "keyring", "--gen-key", "-n", name, *caps)
    _run("monmaptool", "--create", "--add", "a", f"127.0.0.1:{port + 1}", "--fsid", fsid, folder / "monmap")
    _run("ceph-mon", "-c", conf, "--mkfs", "-i", "a", "--monmap", folder / "monmap", "--keyring", folder / "keyring")
    _run("ceph-mon", "-c", conf, "-i", "a")
    _run("ceph", "-c", conf, "osd", "create")
    _run("ceph-osd", "-c", conf, "-i", "0", "--mkfs")
    _run("ceph-osd", "-c", conf, "-i", "0")
    _run("radosgw", "-c", conf, "-n", "client.rgw")
    _wait_for(f"http://127.0.0.1:{port}")
    for user, key, secret in (("test", KEY, SECRET), ("other", OTHER_KEY, OTHER_SECRET)):
        keys = ("--access-key", key, "--secret-key", secret)
        admin = ("radosgw-admin", "-c", conf, "-n", "client.rgw")
        _run(*admin, "user", "create", "--uid", user, "--display-name", user, *keys)


def _run(*command: str | Path) -> None:
    """Run a program; daemons leave it and keep its output open, which therefore goes nowhere."""
    subprocess.run([*map(str, command)], check=True, timeout=90, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait_for(url: str) -> None:
    """Return when the gateway answers."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(url, timeout=2).close()
            return
        time.sleep(0.2)
    raise TimeoutError(url)


def stop(folder: Path) -> None:
    """End the daemons by their pid files, and remove the folder."""
    for file in (folder / "run").glob("*.pid"):
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(file.read_text()), signal.SIGTERM)
    shutil.rmtree(folder, ignore_errors=True)
