"""Emulated fabrics, for real: what a node sees, and that nothing is left however the owner ends."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocelab.fabric import emulated, plan, records
from rocelab.fabric.base import FabricError, LaunchError, LinkProfile, Node
from rocelab.fabric.tests.conftest import DIRECT, ETHERNET_1G
from rocelab.launch.namespace import NamespaceLauncher

pytestmark = pytest.mark.fabric

#: ICMP echo and its reply, without needing a ping program.
PING = """
import socket, struct, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
protocol, kind = (socket.IPPROTO_ICMPV6, 128) if family == socket.AF_INET6 else (socket.IPPROTO_ICMP, 8)
s = socket.socket(family, socket.SOCK_DGRAM, protocol)
s.settimeout(60)
s.sendto(struct.pack("!BBHHH", kind, 0, 0xFFFF - (kind << 8) - 7 if kind == 8 else 0, 0, 7), (sys.argv[1], 0))
s.recv(100)
"""

OWNER = """
import sys, time
from rocelab.fabric import emulated
from rocelab.fabric.base import LinkProfile
from rocelab.launch.namespace import NamespaceLauncher
fabric = emulated.up([LinkProfile("direct", "direct"), LinkProfile("switched", "bridge", rate_mbps=1000)])
launcher = NamespaceLauncher(fabric)
# Two generations, in a session of their own, deaf to the polite signal.
running = launcher.start(fabric.nodes[0], ["sh", "-c", "trap '' TERM; setsid sh -c 'sleep 1000' & sleep 1000"])
print(fabric.name, *[node.pid for node in fabric.nodes], flush=True)
time.sleep(1000)
"""


def output_on(fabric: emulated.EmulatedFabric, node: Node, *argv: str) -> str:
    finished = NamespaceLauncher(fabric).start(node, argv).wait(20)
    assert finished.exit_status == 0, finished.stderr
    return finished.stdout


def processes_naming(name: str) -> set[int]:
    """Every process of a fabric: its keepers name it, and programs share a namespace with one of them."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and name.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def namespaces_of(pids: list[int]) -> set[str]:
    return {str((Path(f"/proc/{pid}/ns") / kind).readlink()) for pid in pids for kind in ("net", "pid", "mnt", "uts")}


def processes_in(namespaces: set[str]) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if any(str(link.readlink()) in namespaces for link in (entry / "ns").iterdir()):
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def eventually(condition: Callable[[], bool], limit_s: float = 60.0) -> bool:
    deadline_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("family", ["addresses", "addresses6"])
@pytest.mark.parametrize("link", ["direct", "ethernet-1g"])
def test_nodes_reach_each_other_on_every_link(fabric: emulated.EmulatedFabric, link: str, family: str) -> None:
    for here, there in (fabric.nodes, fabric.nodes[::-1]):
        if not getattr(there, family):
            pytest.skip("this machine has no IPv6")
        output_on(fabric, here, sys.executable, "-c", PING, getattr(there, family)[link])


def test_a_node_knows_itself_and_the_others_by_name(fabric: emulated.EmulatedFabric) -> None:
    first, second = fabric.nodes
    assert output_on(fabric, second, "uname", "-n") == "node1\n"
    assert output_on(fabric, second, "cat", "/etc/hostname") == "node1\n"
    assert output_on(fabric, second, "getent", "ahostsv4", "node0").split()[0] == first.addresses["direct"]
    by_link = output_on(fabric, second, "getent", "ahostsv4", "node0.ethernet-1g")
    assert by_link.split()[0] == first.addresses["ethernet-1g"]


def test_a_node_reaches_nothing_outside(fabric: emulated.EmulatedFabric) -> None:
    assert "nameserver" not in output_on(fabric, fabric.nodes[0], "cat", "/etc/resolv.conf")
    unknown = NamespaceLauncher(fabric).start(fabric.nodes[0], ["getent", "hosts", "deb.debian.org"]).wait(60)
    assert unknown.exit_status == 2  # not found, and at once
    routes = output_on(fabric, fabric.nodes[0], "cat", "/proc/net/route")
    assert all(line.split()[2] == "00000000" for line in routes.splitlines()[1:])  # no gateway


def test_a_node_sees_only_its_own_processes_and_interfaces(fabric: emulated.EmulatedFabric) -> None:
    code = "import os; print(*sorted(int(e) for e in os.listdir('/proc') if e.isdigit()))"
    pids = [int(word) for word in output_on(fabric, fabric.nodes[0], sys.executable, "-c", code).split()]
    assert pids[0] == 1
    assert len(pids) <= 4  # init, the keeper of this program, the program, perhaps one that is just ending
    assert output_on(fabric, fabric.nodes[0], "ls", "/sys/class/net").split() == ["eth0", "eth1", "lo"]


def test_links_have_their_mtu_at_both_ends(can_emulate: None) -> None:
    links = [LinkProfile("jumbo", "direct", mtu_bytes=9000), LinkProfile("wide", "bridge", mtu_bytes=4200)]
    with emulated.up(links, ["left", "right"]) as fabric:
        for node in fabric.nodes:
            assert output_on(fabric, node, "cat", "/sys/class/net/eth0/mtu") == "9000\n"
            assert output_on(fabric, node, "cat", "/sys/class/net/eth1/mtu") == "4200\n"


def test_many_nodes_on_one_switch(can_emulate: None) -> None:
    with emulated.up([LinkProfile("lan", "bridge")], emulated.default_names(5)) as fabric:
        for node in fabric.nodes[1:]:
            output_on(fabric, node, sys.executable, "-c", PING, fabric.nodes[0].addresses["lan"])


def test_two_levels_of_switches_join_every_node(can_emulate: None) -> None:
    link = LinkProfile("racks", "two-level", rate_mbps=100, nodes_per_switch=2, uplink_rate_mbps=200)
    with emulated.up([link, LinkProfile("lan", "bridge")], emulated.default_names(5)) as fabric:
        for node in fabric.nodes[1:]:
            for name in ("racks", "lan"):
                output_on(fabric, node, sys.executable, "-c", PING, fabric.nodes[0].addresses[name])


def test_nodes_do_not_share_memory_or_abstract_sockets(fabric: emulated.EmulatedFabric) -> None:
    output_on(fabric, fabric.nodes[0], "touch", "/dev/shm/rocelab-test")
    assert output_on(fabric, fabric.nodes[1], "ls", "/dev/shm") == ""
    assert not Path("/dev/shm/rocelab-test").exists()


def test_two_fabrics_at_once_do_not_meet(can_emulate: None) -> None:
    with emulated.up([DIRECT]) as one, emulated.up([DIRECT]) as other:
        assert one.name != other.name
        code = "import socket,sys; s=socket.create_server(('', 7000)); print('up', flush=True); s.accept()"
        servers = []
        for fabric in (one, other):  # the same port on the same address, twice
            launcher = NamespaceLauncher(fabric)
            servers.append(launcher.start(fabric.nodes[0], [sys.executable, "-c", code]))
            launcher.wait_until_listening(fabric.nodes[0], servers[-1], 7000)
        servers[0].stop()
        one.close()
        assert servers[1].poll() is None
        output_on(other, other.nodes[1], sys.executable, "-c", PING, other.nodes[0].addresses["direct"])
        servers[1].stop()


def test_close_removes_everything_and_may_be_repeated(can_emulate: None) -> None:
    fabric = emulated.up([DIRECT, ETHERNET_1G])
    namespaces = namespaces_of([node.pid for node in fabric.nodes])
    running = NamespaceLauncher(fabric).start(fabric.nodes[0], ["sleep", "1000"])
    assert processes_naming(fabric.name)
    fabric.close()
    with pytest.raises(LaunchError, match=r"sleep .* is lost: its node went away"):
        running.wait(5)
    assert processes_naming(fabric.name) == set()
    assert processes_in(namespaces) == set()
    fabric.close()


def names_in(folder: str) -> set[str]:
    """Of links, or of named namespaces, whose folder is there once a process has made one."""
    path = Path(folder)
    return {entry.name for entry in path.iterdir()} if path.exists() else set()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_however_the_owner_ends_nothing_is_left(can_emulate: None, number: signal.Signals) -> None:
    links_before, names_before = names_in("/sys/class/net"), names_in("/run/netns")
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # A shell starts what it puts in the background with SIGINT ignored, and children inherit
        # that.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as owner:
        try:
            assert owner.stdout is not None
            words = owner.stdout.readline().decode().split()
            name, pids = words[0], [int(word) for word in words[1:]]
            namespaces = namespaces_of(pids)
            # Two nodes, a keeper, a shell and two sleeps.
            assert eventually(lambda: len(processes_in(namespaces)) >= 6)
        finally:
            owner.send_signal(number)
            try:
                owner.wait(60)
            finally:
                owner.kill()
    assert eventually(lambda: not processes_naming(name))
    assert eventually(lambda: not processes_in(namespaces))
    # Others may take away theirs meanwhile.
    assert names_in("/sys/class/net") <= links_before
    assert names_in("/run/netns") <= names_before


def test_killing_the_guard_ends_the_fabric(can_emulate: None) -> None:
    with emulated.up([DIRECT]) as fabric:
        namespaces = namespaces_of([node.pid for node in fabric.nodes])
        (found,) = [found for found in records.leftovers() if found.name == fabric.name]
        assert found.owner is not None
        assert found.owner.pid == os.getpid()
        os.kill(found.keeper.pid, signal.SIGKILL)
        assert eventually(lambda: not processes_in(namespaces))
        # A node may end before the switch has let go of the last of its own descriptors.
        assert eventually(lambda: f"fabric {fabric.name} is gone" in refusal_by(fabric))


def refusal_by(fabric: emulated.EmulatedFabric) -> str:
    try:
        fabric.request(fabric.nodes[0], {"op": "hello"}, [])
    except FabricError as error:
        return str(error)
    return ""


def test_nothing_of_a_refused_fabric_is_left(can_emulate: None, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"refused-{os.getpid()}"
    # A hardware address that the kernel refuses, after the nodes and their link were made.
    monkeypatch.setattr("rocelab.fabric.plan.specification", with_a_bad_address(plan.specification))
    with pytest.raises(FabricError, match="setting up eth0 of node0: Cannot assign requested address"):
        emulated.up([DIRECT], name=name)
    assert processes_naming(name) == set()


def with_a_bad_address(real: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def specification(*arguments: object) -> dict[str, Any]:
        made = real(*arguments)
        made["nodes"][0]["ports"][0]["mac"] = "01:00:00:00:00:01"  # a group address
        return made

    return specification


def test_an_unknown_node_is_named_with_those_there_are(fabric: emulated.EmulatedFabric) -> None:
    assert fabric.node("node1") is fabric.nodes[1]
    with pytest.raises(FabricError, match="no node 'node7'; it has node0, node1"):
        fabric.node("node7")
