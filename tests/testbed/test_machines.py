"""Real machines by ssh: three sshd in network namespaces, which the testbed knows nothing of.

All of it runs in PID, mount and network namespaces of its own, as the testbed itself does.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import tomllib
from pathlib import Path

import pytest
from test_runs import toy_python
from tools import COMMAND

import ddnn_traces

pytestmark = pytest.mark.testbed
HOSTS = (1, 2, 3)

#: Three hosts with sshd, joined by a bridge; this namespace has an address there too.
NETWORK = """
set -e
mount -t tmpfs tmpfs /run && mkdir -p /run/netns /run/sshd
ip link set lo up
ip link add bridge type bridge
ip link set bridge up
ip address add 192.0.2.100/24 dev bridge
for n in 1 2 3; do
  ip netns add host$n
  ip link add train0 netns host$n type veth peer name port$n
  ip link set port$n master bridge up
  ip -n host$n address add 192.0.2.$n/24 dev train0
  ip -n host$n link set train0 up
  ip -n host$n link set lo up
  ip netns exec host$n /usr/sbin/sshd -f {folder}/sshd_config
done
"""
SSHD = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
"""
SSH = """
IdentityFile {folder}/key
UserKnownHostsFile {folder}/known_hosts
"""
MATRIX = """
[[runs]]
program = "star"
workers = 3
steps = 10
"""


def host(folder: Path, number: int) -> str:
    return (
        f'[[hosts]]\nssh = "root@192.0.2.{number}"\naddress = "192.0.2.{number}"\ninterface = "train0"\n'
        f'python = "{toy_python(folder)}"\noptions = ["-F", "{folder}/ssh_config"]\n'
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, configuration of ssh, and the matrix."""
    folder = tmp_path_factory.mktemp("machines")
    for name in ("key", "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    public = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text("".join(f"192.0.2.{n} {public}" for n in HOSTS))
    (folder / "sshd_config").write_text(SSHD.format(folder=folder))
    (folder / "ssh_config").write_text(SSH.format(folder=folder))
    (folder / "hosts.toml").write_text(MATRIX + "".join(host(folder, number) for number in HOSTS))
    return folder


def run(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script beside the three hosts."""
    namespaces = ["unshare", "--pid", "--mount", "--net", "--fork", "--kill-child", "--mount-proc"]
    script = NETWORK.format(folder=shlex.quote(str(folder))) + script
    return subprocess.run([*namespaces, "sh", "-c", script], capture_output=True, text=True, timeout=300)


def test_the_same_by_ssh(folder: Path) -> None:
    testbed = shlex.join([*COMMAND, "testbed", str(folder / "hosts.toml"), "--out", str(folder / "out")])
    left = "for n in 1 2 3; do ip netns pids host$n | wc -l; done; ls -d /tmp/ddnn-traces-testbed.* 2>/dev/null || true"
    done = run(folder, f"{testbed}\n{left}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "1", "1"]  # the sshd of each, and no folder
    (made,) = (folder / "out").iterdir()
    document = tomllib.loads((made / "run.toml").read_text())
    assert [entry["ip"] for entry in document["hosts"]] == ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
    assert str(folder) not in str(document["origin"]["commands"])
    assert "offload" not in document["origin"]  # it is not the testbed's there
    clock = document["origin"]["clocks"]["worker-2"]
    assert abs(clock["offset_ns"]) <= clock["uncertainty_ns"]  # it is the same clock
    with ddnn_traces.ingest(made, folder / "dataset") as dataset:
        ports = "SELECT count(*) FROM flows WHERE 22 IN (src_port, dst_port)"
        assert dataset.sql(ports).item() == 0
        sent = "SELECT sum(payload_bytes - retransmitted_bytes)::BIGINT FROM flows WHERE payload_bytes > 1e6"
        assert dataset.sql(sent).item() == 4 * 10 * 200_000


def test_a_host_that_is_off_is_named(folder: Path) -> None:
    testbed = shlex.join([*COMMAND, "testbed", "run", str(folder / "hosts.toml"), "--out", str(folder / "off")])
    done = run(folder, f"ip -n host2 link set train0 down\n{testbed}")
    assert done.returncode == 1
    assert "worker-2 (root@192.0.2.2)" in done.stderr
    assert "Traceback" not in done.stderr


def test_clean_removes_folders_of_ended_testbeds(folder: Path) -> None:
    left, used = (Path(tempfile.mkdtemp(prefix="ddnn-traces-testbed.", dir="/tmp")) for _ in range(2))
    try:
        clean = shlex.join([*COMMAND, "testbed", "clean", str(folder / "hosts.toml")])
        done = run(folder, f"sh -c 'sleep 1000; true' {used} &\n{clean}")
        assert done.stderr.startswith("root@192.0.2.1: removed ")
        assert (left.exists(), used.exists()) == (False, True)
    finally:
        used.rmdir()
