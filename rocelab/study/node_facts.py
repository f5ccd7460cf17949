"""What a node says of its network: settings of the kernel, and its interfaces as they are once the fabric is up.

`ask` starts this file as a program on a node (`python -m rocelab.study.node_facts INTERFACE...`),
because interfaces, and some settings, are those of the namespace of the process that asks. It
prints one JSON object.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rocelab.fabric.base import Fabric, Launcher, LaunchError
from rocelab.results import ParamValue

#: Settings that change what TCP or UDP reach, as sysctl names them;
#: Documentation/admin-guide/sysctl/net.rst and Documentation/networking/ip-sysctl.rst of Linux have
#: their meaning.
SYSCTLS: Final = (
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
)
#: Names of the kernel's features of an interface (net/ethtool/common.c) and the shorter ones that
#: people use.
_FEATURES: Final = {
    "tx-tcp-segmentation": "tso",
    "tx-generic-segmentation": "gso",
    "rx-gro": "gro",
    "tx-udp-segmentation": "tx_udp_segmentation",
}
_LIMIT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the first node says; empty where it could not be asked."""

    network: Mapping[str, ParamValue] = field(default_factory=dict)
    links: Mapping[str, Mapping[str, ParamValue]] = field(default_factory=dict)
    """By link id."""


def ask(fabric: Fabric, launcher: Launcher) -> NodeFacts:
    """Ask the first node. What it does not tell is left out: no run fails for it."""
    node = fabric.nodes[0]
    argv = [sys.executable, "-m", "rocelab.study.node_facts", *node.interfaces.values()]
    try:
        finished = launcher.start(node, argv).wait(_LIMIT_S)
        said: dict[str, Any] = json.loads(finished.stdout)
    except (LaunchError, ValueError):
        return NodeFacts()
    links = {link: said["links"][name] for link, name in node.interfaces.items() if name in said["links"]}
    return NodeFacts(said["network"], links)


def sysctls(root: Path = Path("/proc/sys")) -> dict[str, ParamValue]:
    """The settings that there are, as the kernel writes them, with single spaces."""
    found: dict[str, ParamValue] = {}
    for name in SYSCTLS:
        try:
            found[name] = " ".join((root / name.replace(".", "/")).read_text(encoding="ascii").split())
        except OSError:
            continue
    return found


def _may_send_frames() -> bool:
    """Whether AF_PACKET is allowed (CAP_NET_RAW), by which urxe goes past the IP layer."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError:
        return False
    return True


def _interfaces(names: list[str]) -> dict[str, dict[str, ParamValue]]:
    from pyroute2 import IPRoute  # noqa: PLC0415, half a second that only the program on the node takes

    with IPRoute() as netlink:
        by_name = {link.get_attr("IFLA_IFNAME"): link for link in netlink.get_links()}
    return {name: _interface(name, by_name[name]) for name in names if name in by_name}


def _interface(name: str, link: Any) -> dict[str, ParamValue]:
    from pyroute2.ethtool.ioctl import IoctlEthtool  # noqa: PLC0415, as above

    asked = {
        "qdisc": "IFLA_QDISC",
        "mtu_bytes": "IFLA_MTU",
        "gso_max_bytes": "IFLA_GSO_MAX_SIZE",
        "gro_max_bytes": "IFLA_GRO_MAX_SIZE",
    }
    found = {ours: link.get_attr(theirs) for ours, theirs in asked.items()}
    features = IoctlEthtool(name).get_features()
    present = set(features.keys())
    found |= {ours: bool(features[theirs]) for theirs, ours in _FEATURES.items() if theirs in present}
    return {key: value for key, value in found.items() if value is not None}


def main() -> None:
    """Print what is asked for."""
    network = sysctls() | {"may_send_frames": _may_send_frames()}
    print(json.dumps({"network": network, "links": _interfaces(sys.argv[1:])}))  # noqa: T201, that is its answer


if __name__ == "__main__":
    main()
