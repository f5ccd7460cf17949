"""From link profiles and node names to a complete plan: interfaces, addresses, shaping. Pure functions."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rocelab.fabric.base import LINK_KINDS, PREFIX6_BITS, PREFIX_BITS, FabricError, LinkProfile, Node

#: Limits that follow from the address plan and from the kernel.
NODES_MAX = 250
LINKS_MAX = 250
#: A direct link joins the first two nodes of its fabric.
DIRECT_NODES = 2
MTU_BYTES_MIN = 68  # RFC 791
MTU_BYTES_MAX = 65535
RATE_MBPS_MIN = 0.1
RATE_MBPS_MAX = 34_000  # the 32-bit bytes/s of the kernel's token bucket message
GSO_BYTES_MIN = 65_536  # linux/netdevice.h: GSO_LEGACY_MAX_SIZE, what every kernel has
GSO_BYTES_MAX = 524_280  # linux/netdevice.h: GSO_MAX_SIZE
MTU6_BYTES_MIN = 1280  # RFC 8200: below it an interface has no IPv6
#: Of a packet that is sent; with more, no connection is made in a time that a person waits.
LOSS_PERCENT_MAX = 50

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_ETHERNET_HEADER_BYTES = 14
#: The delay a full queue adds: 1 MiB at 1 Gbps.
_QUEUE_NS = 8_388_608
_QUEUE_FRAMES_MIN = 64
_BURST_FRAMES_MIN = 3
_BURST_NS = 80_000
_SWITCH_BURST_BYTES_MIN = 64 * 1024


def check(links: Sequence[LinkProfile], names: Sequence[str]) -> None:
    """Raise FabricError if these links and node names cannot make a fabric, saying which and why."""
    if not links:
        raise FabricError("a fabric needs at least one link")
    if len(links) > LINKS_MAX:
        raise FabricError(f"a fabric has at most {LINKS_MAX} links, not {len(links)}")
    if not 1 <= len(names) <= NODES_MAX:
        raise FabricError(f"a fabric has 1 to {NODES_MAX} nodes, not {len(names)}")
    for what, given in (("node", names), ("link", [link.id for link in links])):
        for name in given:
            if not _NAME.fullmatch(name):
                raise FabricError(
                    f"{what} {name!r}: a name has 1 to 32 small letters, digits and hyphens, "
                    "with no hyphen at either end"
                )
        if len(set(given)) != len(given):
            raise FabricError(f"two {what}s have the same name: {', '.join(given)}")
    for reserved in {"localhost", "switch"}.intersection(names):
        raise FabricError(f"node {reserved!r}: the name is taken; choose another")
    for link in links:
        _check_link(link, len(names))


def _check_link(link: LinkProfile, node_count: int) -> None:
    def refuse(why: str) -> FabricError:
        return FabricError(f"link {link.id!r}: {why}")

    if link.kind not in LINK_KINDS:
        raise refuse(f"kind {link.kind!r} is not known; a link is {', '.join(LINK_KINDS[:-1])} or {LINK_KINDS[-1]}")
    if link.kind == "direct" and node_count < 2:
        raise refuse("a direct link joins the first two nodes, and there is only one")
    if not MTU_BYTES_MIN <= link.mtu_bytes <= MTU_BYTES_MAX:
        raise refuse(f"mtu_bytes is {MTU_BYTES_MIN} to {MTU_BYTES_MAX}, not {link.mtu_bytes}")
    problems = (_levels_problem, _unshaped_problem, _loss_problem, _marks_problem)
    if (why := next((why for problem in problems if (why := problem(link)) is not None), None)) is not None:
        raise refuse(why)
    for key, rate_mbps in (("rate_mbps", link.rate_mbps), ("uplink_rate_mbps", link.uplink_rate_mbps)):
        if rate_mbps is not None and not RATE_MBPS_MIN <= rate_mbps <= RATE_MBPS_MAX:
            raise refuse(f"{key} is {RATE_MBPS_MIN:g} to {RATE_MBPS_MAX:g}, not {rate_mbps:g}")
    frame_bytes = link.mtu_bytes + _ETHERNET_HEADER_BYTES
    for key in ("queue_bytes", "burst_bytes", "switch_queue_bytes"):
        value = getattr(link, key)
        if value is not None and not frame_bytes <= value < 2**31:
            raise refuse(f"{key} is at least one frame ({frame_bytes} bytes) and below 2 GiB, not {value}")


def _unshaped_problem(link: LinkProfile) -> str | None:
    """Buffers that belong to a shaping which the link does not have, and what a shaped link cannot have."""
    if link.gso_max_bytes is not None and not GSO_BYTES_MIN <= link.gso_max_bytes <= GSO_BYTES_MAX:
        return f"gso_max_bytes is {GSO_BYTES_MIN} to {GSO_BYTES_MAX}, not {link.gso_max_bytes}"
    if link.gso_max_bytes is not None and (link.rate_mbps is not None or link.kind != "direct"):
        return "gso_max_bytes belongs to a direct link without rate_mbps: a token bucket cuts all into frames"
    if link.rate_mbps is None and (link.queue_bytes is not None or link.burst_bytes is not None):
        return "queue_bytes and burst_bytes belong to a shaped link; set rate_mbps too"
    if link.rate_mbps is None and link.uplink_rate_mbps is None and link.switch_queue_bytes is not None:
        return "switch_queue_bytes belongs to a shaped link; set rate_mbps or uplink_rate_mbps too"
    return None


def _loss_problem(link: LinkProfile) -> str | None:
    if link.loss_percent is None:
        return None
    if link.kind == "direct":
        return "loss_percent belongs to a link with a switch, which drops the packets: take kind 'bridge'"
    if not 0 <= link.loss_percent <= LOSS_PERCENT_MAX:
        return f"loss_percent is 0 to {LOSS_PERCENT_MAX}, not {link.loss_percent:g}"
    return None


def _marks_problem(link: LinkProfile) -> str | None:
    if link.ecn_percent is None:
        return None
    if link.kind != "bridge" or link.rate_mbps is None:
        return "ecn_percent belongs to kind 'bridge' with rate_mbps: it is a share of what a port of the switch carries"
    if not 0 < link.ecn_percent <= 100:
        return f"ecn_percent is above 0, and at most 100, not {link.ecn_percent:g}"
    return None


def _levels_problem(link: LinkProfile) -> str | None:
    """What is wrong with what a link says of its switches."""
    if link.kind == "direct" and link.switch_queue_bytes is not None:
        return "a direct link has no switch: leave switch_queue_bytes out"
    if link.kind != "two-level":
        given = [key for key in ("nodes_per_switch", "uplink_rate_mbps") if getattr(link, key) is not None]
        return f"{' and '.join(given)} belong to kind 'two-level', not {link.kind!r}" if given else None
    if link.nodes_per_switch is None:
        return "a two-level link needs nodes_per_switch, how many nodes each access switch has"
    if not 1 <= link.nodes_per_switch <= NODES_MAX:
        return f"nodes_per_switch is 1 to {NODES_MAX}, not {link.nodes_per_switch}"
    return None


def shape(link: LinkProfile) -> dict[str, int] | None:
    """The token bucket in front of each cable end; None where the link is not shaped."""
    if link.rate_mbps is None:
        return None
    bucket = _bucket(link.rate_mbps, link.mtu_bytes)
    return {
        **bucket,
        "queue_bytes": bucket["queue_bytes"] if link.queue_bytes is None else link.queue_bytes,
        "burst_bytes": bucket["burst_bytes"] if link.burst_bytes is None else link.burst_bytes,
    }


def _bucket(rate_mbps: float, mtu_bytes: int) -> dict[str, int]:
    """A token bucket for a rate.

    The burst is small, so that a message of a few frames takes its time on the wire as it would on Ethernet,
    yet long enough (80 us) that a late timer loses little bandwidth. The queue holds about 8 ms.
    """
    rate_bytes_per_s = int(rate_mbps * 1e6 / 8)
    frame_bytes = mtu_bytes + _ETHERNET_HEADER_BYTES
    return {
        "rate_bytes_per_s": rate_bytes_per_s,
        "queue_bytes": max(rate_bytes_per_s * _QUEUE_NS // 1_000_000_000, _QUEUE_FRAMES_MIN * frame_bytes),
        "burst_bytes": max(rate_bytes_per_s * _BURST_NS // 1_000_000_000, _BURST_FRAMES_MIN * frame_bytes),
    }


def switch_shape(link: LinkProfile) -> dict[str, int] | None:
    """The token bucket of a switch port.

    Its burst is larger than a node's, so that it acts only when several nodes send to one: traffic from one node
    has its pace already, and a second pacing would only add delay.
    """
    at_node = shape(link)
    if at_node is None:
        return None
    queue_bytes = at_node["queue_bytes"] if link.switch_queue_bytes is None else link.switch_queue_bytes
    burst_bytes = max(4 * at_node["burst_bytes"], _SWITCH_BURST_BYTES_MIN)
    return {**at_node, "queue_bytes": queue_bytes, "burst_bytes": burst_bytes}


def uplink_shape(link: LinkProfile) -> dict[str, int] | None:
    """The token bucket at either end of the cable between an access switch and the spine.

    Its burst is as small as a node's: where an uplink is the narrowest place of a path, what it lets through at once
    would count as buffer of the switch.
    """
    if link.uplink_rate_mbps is None:
        return None
    bucket = _bucket(link.uplink_rate_mbps, link.mtu_bytes)
    queue_bytes = bucket["queue_bytes"] if link.switch_queue_bytes is None else link.switch_queue_bytes
    return {**bucket, "queue_bytes": queue_bytes}


def nodes(links: Sequence[LinkProfile], names: Sequence[str]) -> tuple[Node, ...]:
    """The nodes with their addresses and interfaces; their pids are not known yet (0)."""
    return tuple(
        Node(
            name=name,
            index=index,
            addresses={link.id: f"10.80.{at}.{index + 1}" for at, link in _links_of(links, index)},
            addresses6={
                link.id: str(ipaddress.IPv6Address(f"fd52:6f63:{at:x}::{index + 1:x}"))
                for at, link in _links_of(links, index)
                if link.mtu_bytes >= MTU6_BYTES_MIN
            },
            interfaces={link.id: f"eth{at}" for at, link in _links_of(links, index)},
            pid=0,
        )
        for index, name in enumerate(names)
    )


def _links_of(links: Sequence[LinkProfile], node_index: int) -> Iterator[tuple[int, LinkProfile]]:
    """The links of a node with their numbers: all, but a cable has only two ends."""
    return ((at, link) for at, link in enumerate(links) if link.kind != "direct" or node_index < DIRECT_NODES)


def hosts(links: Sequence[LinkProfile], planned: Sequence[Node]) -> str:
    """The nodes' /etc/hosts: each name on the first link, and `name.link` on every link."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    for at, link in enumerate(links):
        for node in planned:
            if link.id not in node.addresses:
                continue
            first = at == next(number for number, _ in _links_of(links, node.index))
            names = f"{node.name} {node.name}.{link.id}" if first else f"{node.name}.{link.id}"
            lines.append(f"{node.addresses[link.id]} {names}")
    for link in links:
        lines.extend(
            f"{node.addresses6[link.id]} {node.name}.{link.id}" for node in planned if link.id in node.addresses6
        )
    return "\n".join([*lines, ""])


def specification(links: Sequence[LinkProfile], planned: Sequence[Node]) -> dict[str, Any]:
    """What the keepers need to know, as JSON."""
    return {
        "hosts": hosts(links, planned),
        "nodes": [
            {"name": node.name, "ports": [_port(at, link, node) for at, link in _links_of(links, node.index)]}
            for node in planned
        ],
        "links": [_link(at, link, planned) for at, link in enumerate(links)],
    }


def _port(at: int, link: LinkProfile, node: Node) -> dict[str, Any]:
    return {
        "interface": node.interfaces[link.id],
        # Locally administered, and the same in every run, so that runs differ in nothing they need
        # not.
        "mac": f"02:52:6f:63:{at:02x}:{node.index + 1:02x}",
        "mtu_bytes": link.mtu_bytes,
        "gso_max_bytes": link.gso_max_bytes,
        "packet_by_packet": link.loss_percent is not None,
        "address": node.addresses[link.id],
        "prefix_bits": PREFIX_BITS,
        "address6": node.addresses6.get(link.id),
        "prefix6_bits": PREFIX6_BITS,
        "shape": shape(link),
    }


def _link(at: int, link: LinkProfile, planned: Sequence[Node]) -> dict[str, Any]:
    # The spine, or the only switch; then the access switches.
    top = f"br{at}"
    joined = [node for node in planned if link.id in node.interfaces]
    access = dict.fromkeys(_access_bridge(top, link, node) for node in joined)
    return {
        "id": link.id,
        "kind": link.kind,
        "bridges": list(dict.fromkeys([top, *access])),
        "mtu_bytes": link.mtu_bytes,
        "loss_percent": link.loss_percent,
        "ecn_percent": link.ecn_percent,
        "switch_shape": switch_shape(link),
        "ports": [
            {
                "node": node.name,
                "interface": node.interfaces[link.id],
                "bridge": _access_bridge(top, link, node),
                "switch_interface": f"l{at}n{node.index}",
            }
            for node in joined
        ],
        "uplink_shape": uplink_shape(link),
        "uplinks": [
            {"bridge": bridge, "interface": f"l{at}u{number}", "spine": top, "spine_interface": f"l{at}d{number}"}
            for number, bridge in enumerate(access)
            if bridge != top
        ],
    }


def _access_bridge(top: str, link: LinkProfile, node: Node) -> str:
    """The bridge that a node's cable ends at. Access switches are filled one after the other."""
    return top if link.nodes_per_switch is None else f"{top}a{node.index // link.nodes_per_switch}"
