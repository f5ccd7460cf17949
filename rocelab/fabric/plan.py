"""From link profiles and node names to a complete plan: interfaces, addresses, shaping. Pure functions."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Any

from rocelab.fabric.base import FabricError, LinkProfile, Node

#: Limits that follow from the address plan and from the kernel.
NODES_MAX = 250
LINKS_MAX = 250
MTU_BYTES_MIN = 68  # RFC 791
MTU_BYTES_MAX = 65535
RATE_MBPS_MIN = 0.1
RATE_MBPS_MAX = 34_000  # the 32-bit bytes/s of the kernel's token bucket message
MTU6_BYTES_MIN = 1280  # RFC 8200: below it an interface has no IPv6

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

    if link.kind not in ("direct", "bridge"):
        raise refuse(f"kind {link.kind!r} is not known; a link is 'direct' or 'bridge'")
    if link.kind == "direct" and node_count != 2:
        raise refuse(f"a direct link joins exactly 2 nodes, not {node_count}; use kind 'bridge'")
    if not MTU_BYTES_MIN <= link.mtu_bytes <= MTU_BYTES_MAX:
        raise refuse(f"mtu_bytes is {MTU_BYTES_MIN} to {MTU_BYTES_MAX}, not {link.mtu_bytes}")
    if link.rate_mbps is None:
        if link.queue_bytes is not None or link.burst_bytes is not None:
            raise refuse("queue_bytes and burst_bytes belong to a shaped link; set rate_mbps too")
        return
    if not RATE_MBPS_MIN <= link.rate_mbps <= RATE_MBPS_MAX:
        raise refuse(f"rate_mbps is {RATE_MBPS_MIN:g} to {RATE_MBPS_MAX:g}, not {link.rate_mbps:g}")
    frame_bytes = link.mtu_bytes + _ETHERNET_HEADER_BYTES
    for key, value in (("queue_bytes", link.queue_bytes), ("burst_bytes", link.burst_bytes)):
        if value is not None and not frame_bytes <= value < 2**31:
            raise refuse(f"{key} is at least one frame ({frame_bytes} bytes) and below 2 GiB, not {value}")


def shape(link: LinkProfile) -> dict[str, int] | None:
    """The token bucket in front of each cable end; None where the link is not shaped.

    The burst is small, so that a message of a few frames takes its time on the wire as it would on Ethernet,
    yet long enough (80 us) that a late timer loses little bandwidth. The queue holds about 8 ms.
    """
    if link.rate_mbps is None:
        return None
    rate_bytes_per_s = int(link.rate_mbps * 1e6 / 8)
    frame_bytes = link.mtu_bytes + _ETHERNET_HEADER_BYTES
    queue_bytes = max(rate_bytes_per_s * _QUEUE_NS // 1_000_000_000, _QUEUE_FRAMES_MIN * frame_bytes)
    burst_bytes = max(rate_bytes_per_s * _BURST_NS // 1_000_000_000, _BURST_FRAMES_MIN * frame_bytes)
    return {
        "rate_bytes_per_s": rate_bytes_per_s,
        "queue_bytes": link.queue_bytes if link.queue_bytes is not None else queue_bytes,
        "burst_bytes": link.burst_bytes if link.burst_bytes is not None else burst_bytes,
    }


def switch_shape(link: LinkProfile) -> dict[str, int] | None:
    """The token bucket of a switch port.

    Its burst is larger than a node's, so that it acts only when several nodes send to one: traffic from one node
    has its pace already, and a second pacing would only add delay.
    """
    at_node = shape(link)
    if at_node is None:
        return None
    return {**at_node, "burst_bytes": max(4 * at_node["burst_bytes"], _SWITCH_BURST_BYTES_MIN)}


def nodes(links: Sequence[LinkProfile], names: Sequence[str]) -> tuple[Node, ...]:
    """The nodes with their addresses and interfaces; their pids are not known yet (0)."""
    return tuple(
        Node(
            name=name,
            index=index,
            addresses={link.id: f"10.80.{at}.{index + 1}" for at, link in enumerate(links)},
            addresses6={
                link.id: str(ipaddress.IPv6Address(f"fd52:6f63:{at:x}::{index + 1:x}"))
                for at, link in enumerate(links)
                if link.mtu_bytes >= MTU6_BYTES_MIN
            },
            interfaces={link.id: f"eth{at}" for at, link in enumerate(links)},
            pid=0,
        )
        for index, name in enumerate(names)
    )


def hosts(links: Sequence[LinkProfile], planned: Sequence[Node]) -> str:
    """The nodes' /etc/hosts: each name on the first link, and `name.link` on every link."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    for at, link in enumerate(links):
        for node in planned:
            names = f"{node.name} {node.name}.{link.id}" if at == 0 else f"{node.name}.{link.id}"
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
            {"name": node.name, "ports": [_port(at, link, node) for at, link in enumerate(links)]} for node in planned
        ],
        "links": [_link(at, link, planned) for at, link in enumerate(links)],
    }


def _port(at: int, link: LinkProfile, node: Node) -> dict[str, Any]:
    return {
        "interface": node.interfaces[link.id],
        # Locally administered, and the same in every run, so that runs differ in nothing they need not.
        "mac": f"02:52:6f:63:{at:02x}:{node.index + 1:02x}",
        "mtu_bytes": link.mtu_bytes,
        "address": node.addresses[link.id],
        "prefix_bits": 24,
        "address6": node.addresses6.get(link.id),
        "prefix6_bits": 64,
        "shape": shape(link),
    }


def _link(at: int, link: LinkProfile, planned: Sequence[Node]) -> dict[str, Any]:
    return {
        "id": link.id,
        "kind": link.kind,
        "bridge": f"br{at}",
        "mtu_bytes": link.mtu_bytes,
        "switch_shape": switch_shape(link),
        "ports": [
            {"node": node.name, "interface": node.interfaces[link.id], "switch_interface": f"l{at}n{node.index}"}
            for node in planned
        ],
    }
