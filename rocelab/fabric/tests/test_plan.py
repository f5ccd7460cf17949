"""The plan of a fabric: addresses, names, shaping, and what is refused with which words."""

from __future__ import annotations

import ipaddress

import pytest

from rocelab.fabric import plan
from rocelab.fabric.base import FabricError, LinkProfile

DIRECT = LinkProfile("direct", "direct")
SHAPED = LinkProfile("ethernet-1g", "bridge", mtu_bytes=1500, rate_mbps=1000)


def test_addresses_are_unique_and_each_link_is_one_subnet() -> None:
    nodes = plan.nodes([LinkProfile("lan", "bridge"), SHAPED], ["a", "b", "c"])
    for family in ("addresses", "addresses6"):
        every = [getattr(node, family)[link] for node in nodes for link in ("lan", "ethernet-1g")]
        assert len(set(every)) == 6
        assert all(str(ipaddress.ip_address(address)) == address for address in every)
        prefix_bits = 24 if family == "addresses" else 64
        for link in ("lan", "ethernet-1g"):
            networks = {
                ipaddress.ip_network(f"{getattr(node, family)[link]}/{prefix_bits}", strict=False) for node in nodes
            }
            assert len(networks) == 1


def test_hosts_file_names_every_node_on_every_link() -> None:
    links = [DIRECT, SHAPED]
    nodes = plan.nodes(links, ["a", "b"])
    lines = [line.split() for line in plan.hosts(links, nodes).splitlines()]
    names = {(words[0], name) for words in lines for name in words[1:]}
    assert ("10.80.0.1", "a") in names
    assert ("10.80.0.2", "b") in names
    assert ("10.80.1.2", "b.ethernet-1g") in names
    assert (nodes[1].addresses6["ethernet-1g"], "b.ethernet-1g") in names
    # A plain name must mean one address, or programs that try them all differ from those that do
    # not.
    assert [words[0] for words in lines if "b" in words[1:]] == ["10.80.0.2"]


def test_a_direct_link_joins_the_first_two_of_many_nodes() -> None:
    links = [DIRECT, SHAPED]
    nodes = plan.nodes(links, ["a", "b", "c"])
    assert [list(node.interfaces.items()) for node in nodes[1:]] == [
        [("direct", "eth0"), ("ethernet-1g", "eth1")],
        [("ethernet-1g", "eth1")],
    ]
    assert "10.80.1.3 c c.ethernet-1g" in plan.hosts(links, nodes)
    specification = plan.specification(links, nodes)
    assert [port["node"] for port in specification["links"][0]["ports"]] == ["a", "b"]
    assert [len(node["ports"]) for node in specification["nodes"]] == [2, 2, 1]


def test_a_link_too_narrow_for_ipv6_has_none() -> None:
    (node,) = plan.nodes([LinkProfile("narrow", "bridge", mtu_bytes=576)], ["a"])
    assert node.addresses6 == {}
    assert "fd52" not in plan.hosts([LinkProfile("narrow", "bridge", mtu_bytes=576)], [node])


def test_shaping_defaults_follow_the_rate() -> None:
    assert plan.shape(DIRECT) is None
    assert plan.shape(SHAPED) == {"rate_bytes_per_s": 125_000_000, "queue_bytes": 1_048_576, "burst_bytes": 10_000}
    slow = plan.shape(LinkProfile("slow", "bridge", rate_mbps=1))
    assert slow is not None
    assert slow["burst_bytes"] == 3 * 1514
    assert slow["queue_bytes"] == 64 * 1514


def test_a_switch_port_does_not_pace_what_one_node_has_paced() -> None:
    for link in (SHAPED, LinkProfile("fast", "bridge", rate_mbps=25_000, mtu_bytes=9000)):
        at_node, at_switch = plan.shape(link), plan.switch_shape(link)
        assert at_node is not None
        assert at_switch is not None
        assert at_switch["burst_bytes"] > at_node["burst_bytes"]
        assert at_switch["rate_bytes_per_s"] == at_node["rate_bytes_per_s"]


def test_a_shallow_switch_leaves_the_nodes_queues_as_they_are() -> None:
    shallow = LinkProfile("shallow", "bridge", rate_mbps=1000, switch_queue_bytes=5000)
    at_node, at_switch = plan.shape(shallow), plan.switch_shape(shallow)
    assert at_node is not None
    assert at_switch is not None
    assert (at_node["queue_bytes"], at_switch["queue_bytes"]) == (1_048_576, 5000)


def test_access_switches_fill_in_turn_and_each_has_an_uplink() -> None:
    link = LinkProfile("fabric", "two-level", rate_mbps=100, nodes_per_switch=2, uplink_rate_mbps=400)
    names = ["a", "b", "c", "d", "e"]
    (built,) = plan.specification([link], plan.nodes([link], names))["links"]
    assert [port["bridge"] for port in built["ports"]] == ["br0a0", "br0a0", "br0a1", "br0a1", "br0a2"]
    assert built["bridges"] == ["br0", "br0a0", "br0a1", "br0a2"]
    assert [(uplink["bridge"], uplink["spine"]) for uplink in built["uplinks"]] == [
        ("br0a0", "br0"),
        ("br0a1", "br0"),
        ("br0a2", "br0"),
    ]
    assert built["uplink_shape"] == {"rate_bytes_per_s": 50_000_000, "queue_bytes": 419_430, "burst_bytes": 4542}
    assert built["switch_shape"]["rate_bytes_per_s"] == 12_500_000


def test_one_switch_has_no_uplinks() -> None:
    (built,) = plan.specification([SHAPED], plan.nodes([SHAPED], ["a", "b"]))["links"]
    assert (built["bridges"], built["uplinks"]) == (["br0"], [])
    assert {port["bridge"] for port in built["ports"]} == {"br0"}


@pytest.mark.parametrize(
    ("links", "names", "words"),
    [
        ([], ["a", "b"], "at least one link"),
        ([DIRECT], [], "1 to 250 nodes, not 0"),
        ([DIRECT], ["a"], "joins the first two nodes, and there is only one"),
        ([DIRECT, DIRECT], ["a", "b"], "two links have the same name"),
        ([DIRECT], ["a", "a"], "two nodes have the same name"),
        ([DIRECT], ["a", "B_1"], "node 'B_1': a name has"),
        ([DIRECT], ["a", "localhost"], "'localhost': the name is taken"),
        ([LinkProfile("x", "mesh")], ["a"], "kind 'mesh' is not known; a link is direct, bridge or two-level"),  # type: ignore[arg-type]
        ([LinkProfile("x", "bridge", mtu_bytes=9)], ["a"], "link 'x': mtu_bytes is 68 to 65535, not 9"),
        ([LinkProfile("x", "bridge", rate_mbps=0)], ["a"], "rate_mbps is 0.1 to 34000, not 0"),
        ([LinkProfile("x", "bridge", rate_mbps=40_000)], ["a"], "rate_mbps is 0.1 to 34000, not 40000"),
        ([LinkProfile("x", "bridge", queue_bytes=9999)], ["a"], "belong to a shaped link"),
        ([LinkProfile("x", "bridge", rate_mbps=1, burst_bytes=100)], ["a"], "at least one frame (1514 bytes)"),
        (
            [LinkProfile("x", "bridge", rate_mbps=1, switch_queue_bytes=100)],
            ["a"],
            "switch_queue_bytes is at least one",
        ),
        ([LinkProfile("x", "bridge", switch_queue_bytes=9999)], ["a"], "set rate_mbps or uplink_rate_mbps too"),
        ([LinkProfile("x", "direct", rate_mbps=1, switch_queue_bytes=9999)], ["a", "b"], "a direct link has no switch"),
        ([LinkProfile("x", "bridge", uplink_rate_mbps=1)], ["a"], "uplink_rate_mbps belong to kind 'two-level', not"),
        ([LinkProfile("x", "direct", loss_percent=1)], ["a", "b"], "loss_percent belongs to a link with a switch"),
        ([LinkProfile("x", "bridge", loss_percent=-1)], ["a"], "loss_percent is 0 to 50, not -1"),
        ([LinkProfile("x", "bridge", loss_percent=51)], ["a"], "loss_percent is 0 to 50, not 51"),
        ([LinkProfile("x", "bridge", ecn_percent=85)], ["a"], "ecn_percent belongs to kind 'bridge' with rate_mbps"),
        ([LinkProfile("x", "direct", rate_mbps=1000, ecn_percent=85)], ["a", "b"], "ecn_percent belongs to kind"),
        ([LinkProfile("x", "bridge", rate_mbps=1000, ecn_percent=0)], ["a"], "above 0, and at most 100, not 0"),
        ([LinkProfile("x", "two-level")], ["a"], "a two-level link needs nodes_per_switch"),
        ([LinkProfile("x", "two-level", nodes_per_switch=0)], ["a"], "nodes_per_switch is 1 to 250, not 0"),
        (
            [LinkProfile("x", "two-level", nodes_per_switch=1, uplink_rate_mbps=0)],
            ["a"],
            "uplink_rate_mbps is 0.1 to 34000, not 0",
        ),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(links: list[LinkProfile], names: list[str], words: str) -> None:
    with pytest.raises(FabricError) as refused:
        plan.check(links, names)
    assert words in str(refused.value)
