"""How the links of a real fabric receive, changed, read back from the kernel, and restored."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rocelab import peers
from rocelab.fabric import emulated
from rocelab.fabric.base import LaunchError, LinkProfile, Node
from rocelab.launch import interface
from rocelab.launch.fake import FakeFabric, FakeLauncher
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.launch.reception import Receptions, unavailable

#: As pyroute2, which is another way to the kernel, sees it.
READ = """
import json, pathlib, sys
from pyroute2.ethtool.ioctl import IoctlEthtool
name = sys.argv[1]
features = IoctlEthtool(name).get_features()
attributes = ("gro_flush_timeout", "napi_defer_hard_irqs")
print(json.dumps({
    "tso": [bool(features[each]) for each in features.keys() if each.startswith("tx-tcp")],
    "gro": bool(features["rx-gro"]),
    **{each: int(pathlib.Path("/sys/class/net", name, each).read_text()) for each in attributes},
}))
"""


def seen(fabric: emulated.EmulatedFabric, node: Node) -> dict[str, object]:
    running = NamespaceLauncher(fabric).start(node, [sys.executable, "-c", READ, node.interfaces["direct"]])
    said = running.wait(60)
    found: dict[str, object] = json.loads(said.stdout)
    return found | {"tso": set(found["tso"])}  # type: ignore[call-overload]


@pytest.mark.fabric
def test_both_ends_receive_as_was_chosen_and_then_as_before(fabric: emulated.EmulatedFabric) -> None:
    receptions = Receptions(fabric.nodes, NamespaceLauncher(fabric))
    before = [seen(fabric, node) for node in fabric.nodes]
    usual = {"tso": {True}, "gro": False, "gro_flush_timeout": 0, "napi_defer_hard_irqs": 0}
    napi = {**usual, "tso": {False}, "gro": True}
    assert before == [usual, usual]
    assert receptions.choose("direct", "napi")["server_rx-gro"] == 1
    assert [seen(fabric, node) for node in fabric.nodes] == [napi, napi]
    assert receptions.choose("direct", "napi-deferred")["server_gro_flush_timeout"] == 200_000
    deferred = {**napi, "gro_flush_timeout": 200_000, "napi_defer_hard_irqs": 100}
    assert [seen(fabric, node) for node in fabric.nodes] == [napi, deferred]
    assert receptions.choose("direct", peers.USUAL) == {}
    assert [seen(fabric, node) for node in fabric.nodes] == before


@pytest.mark.fabric
@pytest.mark.parametrize("refused", ["nosuch", "rx-vlan-challenged*", "tx-gso-partial"])
def test_what_cannot_be_changed_is_said_and_nothing_is_done(fabric: emulated.EmulatedFabric, refused: str) -> None:
    launcher = NamespaceLauncher(fabric)
    before = launcher.change_interfaces(fabric.nodes, "direct", [{}, {}])
    with pytest.raises(LaunchError, match="node0: how direct receives cannot be changed: eth0: "):
        launcher.change_interfaces(fabric.nodes, "direct", [{"rx-gro": 1, refused: 1}, {}])
    assert launcher.change_interfaces(fabric.nodes, "direct", [{}, {}]) == before


def test_nodes_are_asked_only_where_something_changes() -> None:
    fabric, launcher = FakeFabric((LinkProfile("direct", "direct"), LinkProfile("lan", "bridge"))), FakeLauncher()
    receptions = Receptions(fabric.nodes, launcher)
    receptions.choose("direct", peers.USUAL)
    assert launcher.interfaces == {}
    receptions.choose("direct", "napi")
    assert {link for link, _ in launcher.interfaces} == {"direct"}


def test_a_link_that_was_not_restored_is_restored_first() -> None:
    launcher = FakeLauncher()
    receptions = Receptions(FakeFabric((LinkProfile("direct", "direct"),)).nodes, launcher)
    receptions.choose("direct", "napi")
    launcher.refused_interface = "rx-gro"
    for wanted in (peers.USUAL, peers.USUAL, "napi"):
        with pytest.raises(LaunchError, match="rx-gro"):
            receptions.choose("direct", wanted)
    launcher.refused_interface = ""
    receptions.choose("direct", peers.USUAL)
    assert [held["rx-gro"] for held in launcher.interfaces.values()] == [0, 0]


def test_a_pattern_means_all_names_that_begin_so() -> None:
    names = dict.fromkeys(("tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation", "rx-gro"), 1)
    assert dict(interface.expanded({"tx-tcp*": 0, "rx-gro": 1}, names)) == {
        "tx-tcp-segmentation": 0,
        "tx-tcp6-segmentation": 0,
        "rx-gro": 1,
    }
    with pytest.raises(ValueError, match="no tx-sctp"):
        dict(interface.expanded({"tx-sctp*": 0}, names))


def test_a_link_as_it_is_needs_nothing() -> None:
    assert unavailable("usual") is None


def test_the_program_of_the_nodes_imports_nothing_of_rocelab() -> None:
    text = Path(interface.__file__).read_text(encoding="utf-8")
    assert "import rocelab" not in text
    assert "from rocelab" not in text
