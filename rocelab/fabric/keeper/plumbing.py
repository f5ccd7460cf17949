"""Builds the links of a fabric: veth pairs, bridges, token buckets, addresses. The only one that changes them.

Runs once, in a child of the switch, which may enter the network namespace of every node.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from pyroute2.ethtool.ioctl import IoctlEthtool
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, nlmsg
from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.rtnl import RTM_NEWQDISC, RTM_SETLINK, TC_H_ROOT
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from rocelab.fabric.keeper import kernel, loss, marks

#: linux/if_addr.h: the address is usable at once, without duplicate address detection.
IFA_F_NODAD = 0x02
#: include/net/pkt_sched.h: the kernel counts token bucket time in units of 64 ns.
TICK_NS = 64
#: linux/pkt_sched.h: count packet sizes as Ethernet does.
LINKLAYER_ETHERNET = 1
#: What a frame occupies on an Ethernet cable beyond what the kernel counts (which includes the
#: 14-byte header): check sequence 4, preamble and start 8, gap 12 (IEEE 802.3).
FRAME_OVERHEAD_BYTES = 24
ETHERNET_HEADER_BYTES = 14
#: The shortest frame (64 bytes with its check sequence) with preamble and gap.
FRAME_MIN_BYTES = 84
#: Far more than the second by which the kernel may delay news of a link.
CARRIER_LIMIT_S = 10.0

_MODULE_HINT = (
    "The kernel lacks a module for it (veth, bridge or sch_tbf): load it as root with modprobe, or install the "
    "package with the kernel's modules."
)


_LOSS_HINT = (
    "loss_percent needs nftables in the kernel, with its table of devices and its random numbers "
    "(CONFIG_NF_TABLES_NETDEV, CONFIG_NFT_NUMGEN): load the modules nf_tables and nft_numgen as root."
)

_MARKS_HINT = (
    "ecn_percent needs nftables in the kernel, with its table of bridges and its limits "
    "(CONFIG_NF_TABLES_BRIDGE, CONFIG_NFT_LIMIT): load the modules nf_tables and nft_limit as root."
)


class GsoLimits(nlmsg):  # type: ignore[misc]
    """A link with how much TCP hands to it and takes from it at once, by the numbers of linux/if_link.h.

    The first two are about IPv6 and, up to 64 KiB, IPv4; the others, about IPv4 alone, pyroute2 does not name yet.
    """

    fields = ifinfmsg.fields
    nla_map = (
        (41, "IFLA_GSO_MAX_SIZE", "uint32"),
        (58, "IFLA_GRO_MAX_SIZE", "uint32"),
        (63, "IFLA_GSO_IPV4_MAX_SIZE", "uint32"),
        (64, "IFLA_GRO_IPV4_MAX_SIZE", "uint32"),
    )


def build(specification: Mapping[str, Any], network_fds: Mapping[str, int]) -> bool:
    """Build every link of the specification. Returns whether the machine has IPv6.

    Called in the switch's network namespace. Raises KernelError.
    """
    home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    ipv6 = Path("/proc/sys/net/ipv6").is_dir()
    for name in specification["nodes"]:
        _enter(network_fds[name["name"]])
        _prepare_node(ipv6)
    _enter(home)
    with IPRoute() as netlink:
        for link in specification["links"]:
            _attempt(f"building link {link['id']}", _build_link, netlink, link, network_fds)
    for node in specification["nodes"]:
        _enter(network_fds[node["name"]])
        with IPRoute() as netlink:
            for port in node["ports"]:
                _attempt(f"setting up {port['interface']} of {node['name']}", _finish_port, netlink, port, ipv6)
    _enter(home)
    _wait_until_up(list(network_fds.values()))
    os.close(home)
    return ipv6


def _wait_until_up(network_fds: list[int]) -> None:
    """Until every interface has its carrier: the kernel tells bridges and programs up to a second late."""
    deadline_s = time.monotonic() + CARRIER_LIMIT_S
    for fd in [None, *network_fds]:
        if fd is not None:
            _enter(fd)
        with IPRoute() as netlink:
            while late := [
                link.get_attr("IFLA_IFNAME")
                for link in netlink.get_links()
                if link.get_attr("IFLA_IFNAME") != "lo" and link.get_attr("IFLA_OPERSTATE") != "UP"
            ]:
                if time.monotonic() > deadline_s:
                    raise kernel.KernelError(f"waiting for {', '.join(late)} to come up", errno.ETIMEDOUT)
                time.sleep(0.005)


def _attempt(what: str, step: Any, *arguments: Any) -> None:
    try:
        step(*arguments)
    except NetlinkError as error:
        hint = _MODULE_HINT if error.code in (errno.EOPNOTSUPP, errno.ENOENT) else ""
        raise kernel.KernelError(what, error.code, hint) from error


def _enter(network_fd: int) -> None:
    kernel.setns(network_fd, kernel.CLONE_NEWNET)


def _prepare_node(ipv6: bool) -> None:
    """Before a node has interfaces: loopback up, and no waiting for duplicate link-local addresses."""
    with IPRoute() as netlink:
        netlink.link("set", index=1, state="up")
    if ipv6:
        for scope in ("all", "default"):
            _set(f"/proc/sys/net/ipv6/conf/{scope}/accept_dad", "0")
            _set(f"/proc/sys/net/ipv6/conf/{scope}/accept_ra", "0")
    # Lets a program without privileges ping, as on an ordinary machine.
    _set("/proc/sys/net/ipv4/ping_group_range", "0 0")


def _set(path: str, value: str) -> None:
    # /proc/sys is read-only in some containers; what is set here is convenience.
    with contextlib.suppress(OSError):
        Path(path).write_text(value, encoding="ascii")


def _build_link(netlink: Any, link: Mapping[str, Any], network_fds: Mapping[str, int]) -> None:
    if link["kind"] == "direct":
        one, other = link["ports"]
        netlink.link(
            "add",
            kind="veth",
            ifname=one["interface"],
            net_ns_fd=network_fds[one["node"]],
            peer={"ifname": other["interface"], "net_ns_fd": network_fds[other["node"]]},
        )
        return
    bridges = {name: _add_bridge(netlink, name) for name in link["bridges"]}
    for port in link["ports"]:
        netlink.link(
            "add",
            kind="veth",
            ifname=port["switch_interface"],
            peer={"ifname": port["interface"], "net_ns_fd": network_fds[port["node"]]},
        )
        _join_switch(
            netlink, port["switch_interface"], bridges[port["bridge"]], link["mtu_bytes"], link["switch_shape"]
        )
    for uplink in link["uplinks"]:
        ends = ((uplink["interface"], uplink["bridge"]), (uplink["spine_interface"], uplink["spine"]))
        netlink.link("add", kind="veth", ifname=ends[0][0], peer={"ifname": ends[1][0]})
        for interface, bridge in ends:
            _join_switch(netlink, interface, bridges[bridge], link["mtu_bytes"], link["uplink_shape"])
    for bridge in bridges.values():
        netlink.link("set", index=bridge, mtu=link["mtu_bytes"])
        netlink.link("set", index=bridge, state="up")
    if link["loss_percent"] is not None:
        _lose_packets(netlink, link)
    if link["ecn_percent"] is not None:
        _mark_packets(link)


def _lose_packets(netlink: Any, link: Mapping[str, Any]) -> None:
    """Drop packets at the ports of a switch that nodes are at, one by one as they come in."""
    names = [port["switch_interface"] for port in link["ports"]]
    for name in names:
        index = netlink.link_lookup(ifname=name)[0]
        # NAPI keeps packets in order, and GRO comes with it, which is not to join what is dropped
        # packet by packet.
        _receive_as_a_card_does(name)
        _set_sizes(netlink, index, dict.fromkeys(("IFLA_GRO_MAX_SIZE", "IFLA_GRO_IPV4_MAX_SIZE"), 1))
    try:
        loss.add(link["id"], names, round(link["loss_percent"] / 100 * loss.PARTS))
    except OSError as error:
        raise kernel.KernelError(f"making {link['id']} lose packets", error.errno or 0, _LOSS_HINT) from error


def _mark_packets(link: Mapping[str, Any]) -> None:
    """Mark packets at the ports of a switch that nodes are at. They count as if each was as large as it can be."""
    packet_bytes = link["mtu_bytes"] + ETHERNET_HEADER_BYTES + FRAME_OVERHEAD_BYTES
    packets_per_s = int(link["switch_shape"]["rate_bytes_per_s"] * link["ecn_percent"] / 100 / packet_bytes)
    try:
        marks.add(link["id"], [port["switch_interface"] for port in link["ports"]], max(1, packets_per_s))
    except OSError as error:
        raise kernel.KernelError(f"making {link['id']} mark packets", error.errno or 0, _MARKS_HINT) from error


def _add_bridge(netlink: Any, name: str) -> int:
    netlink.link("add", kind="bridge", ifname=name, br_stp_state=0, br_mcast_snooping=0)
    return int(netlink.link_lookup(ifname=name)[0])


def _join_switch(netlink: Any, interface: str, bridge: int, mtu_bytes: int, shape: Mapping[str, Any] | None) -> None:
    """Make an interface of the switch's namespace a port of a bridge."""
    index = netlink.link_lookup(ifname=interface)[0]
    netlink.link("set", index=index, mtu=mtu_bytes, master=bridge)
    _shape(netlink, index, interface, shape)
    netlink.link("set", index=index, state="up")


def _finish_port(netlink: Any, port: Mapping[str, Any], ipv6: bool) -> None:
    index = netlink.link_lookup(ifname=port["interface"])[0]
    netlink.link("set", index=index, mtu=port["mtu_bytes"], address=port["mac"])
    if port["gso_max_bytes"] is not None:
        # Over IPv4 from Linux 6.3 on, over IPv6 from 5.19 on.
        _set_sizes(netlink, index, {name: int(port["gso_max_bytes"]) for _, name, _ in GsoLimits.nla_map})
    if port["packet_by_packet"]:
        _send_packet_by_packet(port["interface"])
    _shape(netlink, index, port["interface"], port["shape"])
    netlink.link("set", index=index, state="up")
    netlink.addr("add", index=index, address=port["address"], prefixlen=port["prefix_bits"])
    if ipv6 and port["address6"] is not None:
        netlink.addr("add", index=index, address=port["address6"], prefixlen=port["prefix6_bits"], flags=IFA_F_NODAD)


def _set_sizes(netlink: Any, index: int, sizes_bytes: Mapping[str, int]) -> None:
    """Let TCP hand that much to an interface, or take that much from it, at once."""
    request = GsoLimits()
    request["index"] = index
    request["attrs"] = list(sizes_bytes.items())
    request["header"]["type"] = RTM_SETLINK
    request["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK
    # A kernel that has no such thing goes on with 64 KiB.
    with contextlib.suppress(NetlinkError):
        netlink.nlm_request_batch([request])


def _shape(netlink: Any, index: int, interface: str, shape: Mapping[str, Any] | None) -> None:
    """Put a token bucket in front of an interface: `rate_bytes_per_s`, `burst_bytes`, `queue_bytes`.

    Sent as a plain message because pyroute2's helper cannot express the frame overhead. Packets larger than
    the burst (segmentation offload) are cut into frames by the kernel first, so every frame is counted.
    """
    if shape is None:
        return
    rate_bytes_per_s = int(shape["rate_bytes_per_s"])
    buffer_ns = (int(shape["burst_bytes"]) + FRAME_OVERHEAD_BYTES) * 1_000_000_000 // rate_bytes_per_s
    request = tcmsg()
    request["index"] = index
    request["handle"] = 0x1_0000
    request["parent"] = TC_H_ROOT
    parameters = {
        "rate_cell_log": LINKLAYER_ETHERNET,
        "rate___reserved": LINKLAYER_ETHERNET,
        "rate_overhead": FRAME_OVERHEAD_BYTES,
        "rate_mpu": FRAME_MIN_BYTES,
        "rate": rate_bytes_per_s,
        "limit": int(shape["queue_bytes"]),
        "buffer": buffer_ns // TICK_NS,
    }
    request["attrs"] = [("TCA_KIND", "tbf"), ("TCA_OPTIONS", {"attrs": [("TCA_TBF_PARMS", parameters)]})]
    request["header"]["type"] = RTM_NEWQDISC
    request["header"]["flags"] = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
    netlink.nlm_request_batch([request])
    _receive_as_a_card_does(interface)


def _receive_as_a_card_does(interface: str) -> None:
    """Make the other end of this cable receive through NAPI with GRO, as a network card does.

    The kernel's veth driver does so only if this end claims no TCP segmentation (drivers/net/veth.c). Without NAPI,
    frames are queued on whichever core a timer ran on, and arrive out of order.
    """
    _switch_off(interface, "tx-tcp")
    IoctlEthtool(interface).set_offload_flag("generic-receive-offload", True)


def _send_packet_by_packet(interface: str) -> None:
    """Have the kernel cut whatever programs hand over at once into packets, before it leaves the interface."""
    _switch_off(interface, "tx-tcp", "tx-udp-segmentation", "tx-gso-list")
    _receive_as_a_card_does(interface)


def _switch_off(interface: str, *beginnings: str) -> None:
    """Switch off the features whose names begin so: the old switches for many miss those that newer kernels have."""
    offloads = IoctlEthtool(interface)
    features = offloads.get_features()
    for name in features.keys():  # noqa: SIM118 -- not a mapping
        if name.startswith(beginnings):
            features[name] = False
    offloads.set_features(features)
