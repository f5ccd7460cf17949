"""What a node says of its network: from a fake, and from a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LaunchError, LinkProfile
from rocelab.launch.fake import FakeLauncher, Outcome, Start
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.study.node_facts import SYSCTLS, NodeFacts, ask, sysctls
from rocelab.study.tests import small


def test_settings_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "net" / "ipv4"
    folder.mkdir(parents=True)
    (folder / "tcp_rmem").write_text("4096\t131072\t6291456\n")
    assert sysctls(tmp_path) == {"net.ipv4.tcp_rmem": "4096 131072 6291456"}


def test_interfaces_are_sorted_by_link() -> None:
    said = {"network": {"may_send_frames": True}, "links": {"eth0": {"mtu_bytes": 1500}, "eth1": {"mtu_bytes": 9000}}}
    facts = ask(small.fabric(), FakeLauncher(lambda _: Outcome(stdout=json.dumps(said))))
    assert facts == NodeFacts({"may_send_frames": True}, {"direct": {"mtu_bytes": 1500}, "slow": {"mtu_bytes": 9000}})


def test_a_node_that_cannot_be_asked_fails_no_run() -> None:
    def refuse(_: Start) -> Outcome:
        raise LaunchError("no such program")

    assert ask(small.fabric(), FakeLauncher(refuse)) == NodeFacts()
    assert ask(small.fabric(), FakeLauncher(lambda _: Outcome(exit_status=1, stderr="Traceback"))) == NodeFacts()


@pytest.mark.fabric
def test_a_real_node_tells_its_interfaces_and_settings() -> None:
    links = [LinkProfile("cable", "direct", mtu_bytes=9000), LinkProfile("slow", "bridge", rate_mbps=100.0)]
    try:
        fabric = emulated.up(links, emulated.default_names(2))
    except FabricError as error:
        pytest.skip(f"no fabric can be made here: {error}")
    with fabric:
        facts = ask(fabric, NamespaceLauncher(fabric))
    assert facts.links["cable"]["mtu_bytes"] == 9000
    assert facts.links["slow"]["qdisc"] == "tbf"
    for link in facts.links.values():
        assert {"gso", "gro", "tso", "tx_udp_segmentation", "gso_max_bytes", "gro_max_bytes"} <= link.keys()
    assert isinstance(facts.network["may_send_frames"], bool)
    assert "net.ipv4.tcp_congestion_control" in facts.network
    assert set(facts.network) <= {*SYSCTLS, "may_send_frames"}
