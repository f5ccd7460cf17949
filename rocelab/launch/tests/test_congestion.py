"""The congestion control of connections between the nodes of a real fabric, read back at both ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rocelab import peers
from rocelab.fabric import emulated
from rocelab.fabric.base import LaunchError, LinkProfile
from rocelab.launch.congestion import CongestionControls, unlisted
from rocelab.launch.fake import FakeFabric, FakeLauncher
from rocelab.launch.namespace import NamespaceLauncher

SERVER = """
import json, socket, sys
listener = socket.create_server((sys.argv[1], 7000), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
connection, _ = listener.accept()
print(json.dumps(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode()))
"""
CLIENT = """
import json, socket, sys
connection = socket.create_connection((sys.argv[1], 7000))
print(json.dumps(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode()))
connection.recv(1)
"""


def available() -> list[str]:
    return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="ascii").split()


def machines_default() -> str:
    return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()


def of_both_ends(fabric: emulated.EmulatedFabric, *, ipv6: bool) -> tuple[str, str]:
    """What a new connection has: at its client, at its server."""
    launcher = NamespaceLauncher(fabric)
    near, far = fabric.nodes
    address = (far.addresses6 if ipv6 else far.addresses)["direct"]
    server = launcher.start(far, [sys.executable, "-c", SERVER, address])
    launcher.wait_until_listening(far, server, 7000)
    client = launcher.start(near, [sys.executable, "-c", CLIENT, address])
    return json.loads(client.wait(20).stdout), json.loads(server.wait(20).stdout)


@pytest.mark.fabric
@pytest.mark.parametrize("ipv6", [False, True])
def test_both_ends_of_a_connection_have_what_was_chosen(fabric: emulated.EmulatedFabric, *, ipv6: bool) -> None:
    controls = CongestionControls(fabric.nodes, NamespaceLauncher(fabric))
    default = machines_default()
    for control in available():
        controls.choose("direct", control)
        assert of_both_ends(fabric, ipv6=ipv6) == (control, control)
    controls.choose("direct", peers.DEFAULT)
    assert of_both_ends(fabric, ipv6=ipv6) == (default, default)


@pytest.mark.fabric
def test_what_the_kernel_does_not_know_is_said(fabric: emulated.EmulatedFabric) -> None:
    controls = CongestionControls(fabric.nodes, NamespaceLauncher(fabric))
    with pytest.raises(LaunchError, match=r"node0: TCP over direct could not be given .*'nosuch'.*[Uu]nknown"):
        controls.choose("direct", "nosuch")
    controls.choose("direct", "reno")
    assert of_both_ends(fabric, ipv6=False) == ("reno", "reno")
    controls.choose("direct", peers.DEFAULT)


def test_nodes_are_asked_only_where_something_changes() -> None:
    fabric, launcher = FakeFabric((LinkProfile("direct", "direct"), LinkProfile("lan", "bridge"))), FakeLauncher()
    controls = CongestionControls(fabric.nodes, launcher)
    for link, control in (("direct", peers.DEFAULT), ("direct", "cubic"), ("direct", "cubic"), ("lan", "cubic")):
        controls.choose(link, control)
    controls.choose("direct", peers.DEFAULT)
    assert launcher.controls == [("direct", "cubic", 2), ("lan", "cubic", 2), ("direct", peers.DEFAULT, 2)]


def test_a_link_whose_change_failed_is_changed_again() -> None:
    launcher = FakeLauncher(refused_control="nosuch")
    controls = CongestionControls(FakeFabric((LinkProfile("direct", "direct"),)).nodes, launcher)
    with pytest.raises(LaunchError, match="nosuch"):
        controls.choose("direct", "nosuch")
    controls.choose("direct", peers.DEFAULT)
    assert launcher.controls == [("direct", peers.DEFAULT, 2)]


def test_unlisted_congestion_controls_are_named_once(tmp_path: Path) -> None:
    (tmp_path / "tcp_available_congestion_control").write_text("reno cubic\n")
    assert unlisted(["cubic", "dctcp", peers.DEFAULT, "dctcp", "bbr"], tmp_path) == ["dctcp", "bbr"]
    assert unlisted(["dctcp"], tmp_path / "nothing") == []
