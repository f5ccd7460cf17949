"""What a shaped link lets through, measured with iperf3."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import LinkProfile
from rocelab.launch.namespace import NamespaceLauncher

pytestmark = [pytest.mark.fabric, pytest.mark.slow]

PORT = 5201
#: Headers take 6 % at an MTU of 1500. The rest is late timers: a cable at 1 Gbps may hand out 80 us
#: of its rate at once, and what a virtual machine's timer is late beyond that is lost.
PART = 0.85
#: Of so many measurements the median counts.
TIMES = 3

both_directions = pytest.mark.parametrize("options", [(), ("--reverse",)], ids=["forward", "reverse"])
both_rates = pytest.mark.parametrize("rate_mbps", [100, 1000])


@pytest.fixture(autouse=True)
def _needs_iperf3() -> None:
    if shutil.which("iperf3") is None:
        pytest.skip("there is no iperf3 (package iperf3)")


def cable(rate_mbps: int) -> LinkProfile:
    return LinkProfile("shaped", "bridge", mtu_bytes=1500, rate_mbps=rate_mbps)


def tcp_mbps(fabric: emulated.EmulatedFabric, *options: str) -> float:
    """Goodput from the first node to the last as the receiver saw it."""
    launcher = NamespaceLauncher(fabric)
    here, there = fabric.nodes[0], fabric.nodes[-1]
    cores = sorted(os.sched_getaffinity(0))
    server = launcher.start(there, ["iperf3", "--server", "--one-off", "--port", str(PORT)], cores=cores[:2][-1:])
    launcher.wait_until_listening(there, server, PORT)
    client_argv = ["iperf3", "--client", there.name, "--port", str(PORT), "--time", "2", "--omit", "1", "--json"]
    client = launcher.start(here, [*client_argv, *options], cores=cores[:1]).wait(60)
    server.wait(60)
    assert client.exit_status == 0, client.stdout
    rate_bps: float = json.loads(client.stdout)["end"]["sum_received"]["bits_per_second"]
    return rate_bps / 1e6


@both_directions
@both_rates
def test_tcp_gets_no_more_than_the_rate_of_the_link(
    can_emulate: None, rate_mbps: int, options: tuple[str, ...]
) -> None:
    with emulated.up([cable(rate_mbps)]) as fabric:
        mbps = tcp_mbps(fabric, *options)
    # A little more than the cable carries is iperf3's clock, read late.
    assert 0 < mbps < 1.1 * rate_mbps


@pytest.mark.quiet(reason="0.3 cores of other work take 10 % of 1 Gbps")
@both_directions
@both_rates
def test_tcp_gets_nearly_the_rate_of_the_link(can_emulate: None, rate_mbps: int, options: tuple[str, ...]) -> None:
    with emulated.up([cable(rate_mbps)]) as fabric:
        seen_mbps = [tcp_mbps(fabric, *options) for _ in range(TIMES)]
    assert PART * rate_mbps <= statistics.median(seen_mbps) < rate_mbps, seen_mbps


def test_a_narrow_uplink_limits_what_crosses_it_and_nothing_else(can_emulate: None) -> None:
    for nodes, most_mbps in ((3, 40), (2, 200)):  # the third node has another access switch
        link = LinkProfile("racks", "two-level", rate_mbps=200, nodes_per_switch=2, uplink_rate_mbps=40)
        with emulated.up([link], emulated.default_names(nodes)) as fabric:
            assert most_mbps / 4 < tcp_mbps(fabric) < most_mbps


def test_a_direct_link_is_not_shaped(can_emulate: None) -> None:
    kinds = {}
    for link in (LinkProfile("direct", "direct"), cable(1000)):
        with emulated.up([link]) as fabric:
            shown = NamespaceLauncher(fabric).start(fabric.nodes[0], ["tc", "qdisc", "show"]).wait(60)
        assert shown.exit_status == 0, shown.stderr
        kinds[link.id] = "tbf" in shown.stdout
    assert kinds == {"direct": False, "shaped": True}


READ_GSO = """
import sys
sys.path.extend({path!r})
from pyroute2 import IPRoute
from rocelab.fabric.keeper.plumbing import GsoLimits
with IPRoute() as netlink:
    found = netlink.get_links(netlink.link_lookup(ifname="eth0")[0])[0]
link = GsoLimits(found.data, offset=found.offset)
link.decode()
for name in ("IFLA_GSO_MAX_SIZE", "IFLA_GSO_IPV4_MAX_SIZE", "IFLA_GRO_IPV4_MAX_SIZE"):
    print(link.get_attr(name))
"""


@pytest.mark.parametrize("gso_max_bytes", [None, 196_608])
def test_tcp_may_hand_a_direct_link_as_much_as_its_profile_says(can_emulate: None, gso_max_bytes: int | None) -> None:
    with emulated.up([LinkProfile("direct", "direct", gso_max_bytes=gso_max_bytes)]) as fabric:
        code = READ_GSO.format(path=sys.path)
        shown = NamespaceLauncher(fabric).start(fabric.nodes[0], [sys.executable, "-c", code]).wait(60)
    assert shown.exit_status == 0, shown.stderr
    for_ipv6, for_ipv4, taken = shown.stdout.split()
    assert for_ipv6 == str(gso_max_bytes or 65_536)
    if for_ipv4 == "None":
        pytest.skip("this kernel has no BIG TCP over IPv4 (Linux 6.3)")
    assert for_ipv4 == taken == str(gso_max_bytes or 65_536)
