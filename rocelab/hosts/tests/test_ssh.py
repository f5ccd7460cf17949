"""Hosts that are reached by real sshd: what runs there, and what happens when something of it fails."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rocelab import peers
from rocelab.fabric.base import FabricError, LaunchError, Node
from rocelab.hosts import fabric as hosts_fabric
from rocelab.hosts.agent import FOLDER_PREFIX
from rocelab.hosts.fabric import HostsFabric
from rocelab.hosts.inventory import find
from rocelab.hosts.launcher import HostsLauncher
from rocelab.hosts.session import HostError
from rocelab.hosts.sessions import Sessions
from rocelab.hosts.tests.cluster import SshCluster

pytestmark = pytest.mark.fabric

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def hosts(cluster: SshCluster) -> Iterator[HostsFabric]:
    with hosts_fabric.up(find(str(cluster.hosts_toml()))) as made:
        yield made


@pytest.fixture
def launcher(hosts: HostsFabric) -> HostsLauncher:
    return HostsLauncher(hosts)


@pytest.fixture
def node(hosts: HostsFabric) -> Node:
    return hosts.nodes[1]


def test_hosts_are_nodes_and_their_networks_are_links(hosts: HostsFabric) -> None:
    assert [node.name for node in hosts.nodes] == ["node0", "node1", "node2", "node3"]
    assert [(link.id, link.mtu_bytes) for link in hosts.links] == [("eth0", 1500), ("eth1", 9000)]
    assert hosts.nodes[2].addresses == {"eth0": "10.80.0.3", "eth1": "10.80.1.3"}
    for session in hosts.sessions.values():
        assert abs(session.clock.offset_s) < 1 + session.clock.within_s


def test_a_program_runs_on_its_host_and_is_logged(launcher: HostsLauncher, node: Node, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "step.log"
    core = launcher.core(node, "eth0")
    done = launcher.start(
        node, ["sh", "-c", "hostname; echo $X; taskset -p $$; exit 3"], env={"X": "y"}, cores=(core,), log=log
    ).wait(LIMIT_S)
    assert done.exit_status == 3
    assert done.stdout.startswith("node1\ny\n")
    assert done.stdout.strip().endswith(f"{1 << core:x}")
    assert "node1] $ sh -c" in log.read_text()
    assert "--- exit status 3," in log.read_text()


def test_a_time_limit_ends_a_program_with_all_it_started(launcher: HostsLauncher, node: Node) -> None:
    done = launcher.start(node, ["sh", "-c", "echo begun; sleep 1000 & sleep 1000"]).wait(0.5)
    assert done.timed_out
    assert done.stopped_because == "time limit of 0.5 s"
    assert "sleep" not in launcher.start(node, ["sh", "-c", "cat /proc/[0-9]*/comm"]).wait(LIMIT_S).stdout.split()


def test_a_program_that_is_not_there_is_named_with_its_host(launcher: HostsLauncher, node: Node) -> None:
    with pytest.raises(LaunchError, match="node1: there is no program 'no-such-program'"):
        launcher.start(node, ["no-such-program"])


def test_a_server_that_fails_is_told_with_its_words(launcher: HostsLauncher, node: Node) -> None:
    (port,) = launcher.free_ports(node, 1)
    failing = launcher.start(node, ["sh", "-c", "echo 'cannot bind' >&2; exit 4"])
    with pytest.raises(LaunchError, match=rf"node1: .*exit status 4.*port {port}\ncannot bind"):
        launcher.wait_until_listening(node, failing, port)
    silent = launcher.start(node, ["sleep", "1000"])
    with pytest.raises(LaunchError, match=rf"node1: nothing listened on tcp port {port} within 0\.1 s"):
        launcher.wait_until_listening(node, silent, port, timeout_s=0.1)
    silent.stop()


def test_bytes_that_leave_an_interface_are_counted(launcher: HostsLauncher, node: Node) -> None:
    before = launcher.sent_bytes(node, "eth0")
    send = "exec 3>/dev/udp/10.80.0.1/9; head -c 1000 /dev/zero >&3"
    launcher.start(node, ["bash", "-c", send]).wait(LIMIT_S)
    assert launcher.sent_bytes(node, "eth0") >= before + 1000
    with pytest.raises(LaunchError, match="node1: there is no interface eth9"):
        launcher.sent_bytes(node, "eth9")


def test_counters_of_what_happened_to_packets_are_read(launcher: HostsLauncher, node: Node) -> None:
    found = launcher.network_counters(node, "eth0")
    assert {"tcp.RetransSegs", "udp.RcvbufErrors", "ipext.InCEPkts", "interface.rx_dropped"} <= set(found)


def test_what_belongs_to_the_hosts_is_not_changed(launcher: HostsLauncher, hosts: HostsFabric) -> None:
    launcher.choose_congestion_control(hosts.nodes, "eth0", peers.DEFAULT)
    with pytest.raises(LaunchError, match="rocelab does not change the routes of hosts"):
        launcher.choose_congestion_control(hosts.nodes, "eth0", "cubic")
    assert launcher.change_interfaces(hosts.nodes, "eth0", [{}] * 4) == [{}] * 4
    with pytest.raises(LaunchError, match="rocelab does not change the interfaces of hosts"):
        launcher.change_interfaces(hosts.nodes, "eth0", [{"rx-gro": 1}, {}, {}, {}])


def test_a_program_on_one_host_starts_others_as_ssh_would(cluster: SshCluster) -> None:
    with hosts_fabric.up(find(str(cluster.hosts_toml()))) as fabric:
        # The hosts reach each other without the way in that this process has.
        fabric.inventory = find(str(cluster.hosts_toml(name="inside")))
        launcher = HostsLauncher(fabric)
        with launcher.remote_shell({"GREETING": "it's here"}, {"node2": (0,)}) as shell:
            command = 'hostname; echo "$GREETING"; taskset -p $$ | sed "s/.*: //"'
            done = launcher.start(fabric.nodes[0], [shell.program, "-x", "node2", command], env=shell.env).wait(LIMIT_S)
    assert (done.stdout, done.exit_status) == ("node2\nit's here\n1\n", 0)


def test_hosts_that_cannot_be_used_are_all_named_with_the_reason(cluster: SshCluster) -> None:
    for text, words in (
        ('python = "no-such-python"', "node3 has no no-such-python: install Python 3.9 or newer, or name one"),
        ('[[rail]]\nid = "x"\ninterface = "eth7"', "node0 has no interface eth7 that is up"),
    ):
        with pytest.raises(FabricError, match=words):
            hosts_fabric.up(find(str(cluster.hosts_toml(text))))
    with pytest.raises(FabricError) as failure:
        hosts_fabric.up(find(str(cluster.hosts_toml(hosts="node[0-1],nowhere[1-2]"))))
    said = str(failure.value)
    assert said.startswith("2 of 4 hosts cannot be used:\n  nowhere1 cannot be reached by ssh: ")
    assert said.endswith("Mend them, or do without them: --without nowhere[1-2]")


@contextlib.contextmanager
def stopped_sshd(cluster: SshCluster, name: str) -> Iterator[None]:
    """End all that a host's sshd has let in, as if the host were switched off; it is there again afterwards."""
    cluster.servers[name].stop()
    try:
        yield
    finally:
        cluster.start_sshd(name)


def test_a_dying_host_takes_its_programs_and_leaves_the_others(cluster: SshCluster) -> None:
    with hosts_fabric.up(find(str(cluster.hosts_toml()))) as fabric:
        launcher = HostsLauncher(fabric)
        lost = launcher.start(fabric.nodes[2], ["sh", "-c", "echo oops >&2; exec sleep 1000"])
        other = launcher.start(fabric.nodes[3], ["sleep", "1000"])
        with stopped_sshd(cluster, "node2"):
            with pytest.raises(HostError, match=r"node2 is lost: the connection by ssh has ended"):
                lost.wait(LIMIT_S)
            with pytest.raises(HostError, match="node2 is lost"):
                launcher.start(fabric.nodes[2], ["true"])
            assert other.poll() is None
            assert launcher.start(fabric.nodes[3], ["true"]).wait(LIMIT_S).exit_status == 0
            other.stop()


CONTROLLER = """
import sys, time
from rocelab.hosts.fabric import up
from rocelab.hosts.inventory import find
from rocelab.hosts.launcher import HostsLauncher
fabric = up(find(sys.argv[1]))
launcher = HostsLauncher(fabric)
for node in fabric.nodes:
    print(launcher.start(node, ["sh", "-c", "sleep 1000 & exec sleep 1001"]).pid)
print("started", flush=True)
time.sleep(1000)
"""


def test_nothing_is_left_on_hosts_when_rocelab_is_killed(cluster: SshCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-c", CONTROLLER, str(cluster.hosts_toml())]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as controller:
        try:
            assert controller.stdout is not None
            while controller.stdout.readline() != "started\n":
                assert controller.poll() is None
            # A shell that has forked takes a moment to become `sleep`.
            assert becomes(8)
        finally:
            controller.send_signal(signal.SIGKILL)
    assert becomes(0)


def becomes(count: int) -> bool:
    """Whether so many programs sleep within the limit."""
    deadline_s = time.monotonic() + LIMIT_S
    while len(sleeping()) != count:
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.05)
    return True


def sleeping() -> list[int]:
    found = [["sleep", "1000"], ["sleep", "1001"]]
    return [each.pid for each in psutil.process_iter() if command_of(each) in found]


def command_of(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.cmdline()
    return []


def test_a_closed_session_ends_what_runs_and_leaves_no_folder(cluster: SshCluster) -> None:
    with Sessions(find(str(cluster.hosts_toml()))) as sessions:
        assert sessions.open() == {}
        folders = [Path(session.introduction.result()["folder"]) for session in sessions.values()]
        assert all(folder.name.startswith(FOLDER_PREFIX) and folder.exists() for folder in folders)
    deadline_s = time.monotonic() + LIMIT_S
    while any(folder.exists() for folder in folders):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    with pytest.raises(HostError, match="node0: the session was closed"):
        sessions["node0"].ask("alive")
