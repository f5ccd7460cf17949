"""Which congestion control the TCP of a link has, chosen by an attribute of the routes to the other nodes.

    controls = CongestionControls(fabric.nodes, launcher)
    controls.choose("direct", "cubic")        # connections made from now on, by whatever program
    controls.choose("direct", peers.DEFAULT)  # what the machine gives them

The route's attribute (`congctl`, ip-route(8)) reaches programs that have no option for it, such as MPI libraries and
Java, and both ends of a connection. Nothing outside the nodes changes: a program could name only what
net.ipv4.tcp_allowed_congestion_control lists, which belongs to the whole machine.
"""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rocelab import peers
from rocelab.fabric.base import PREFIX6_BITS, PREFIX_BITS, Launcher, LaunchError, Node

#: To change two routes takes milliseconds.
_LIMIT_S: Final = 10.0


def unlisted(controls: Iterable[str], root: Path = Path("/proc/sys/net/ipv4")) -> list[str]:
    """Which of these the kernel does not list: it may still load a module for one, if root asks."""
    try:
        known = (root / "tcp_available_congestion_control").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [each for each in dict.fromkeys(controls) if each not in (*known, peers.DEFAULT)]


class CongestionControls:
    """Sets the congestion control of links, on all of their nodes, and remembers what is set."""

    def __init__(self, nodes: Sequence[Node], launcher: Launcher) -> None:
        self._nodes = nodes
        self._launcher = launcher
        self._chosen: dict[str, str] = {}

    def choose(self, link: str, control: str) -> None:
        """Give connections over a link this congestion control, or `peers.DEFAULT`: the machine's.

        LaunchError if the kernel does not know it, or a node's routes cannot be changed.
        """
        if self._chosen.get(link, peers.DEFAULT) == control:
            return
        # Until all nodes have changed, what is set is not known.
        self._chosen[link] = ""
        self._launcher.choose_congestion_control(
            [node for node in self._nodes if link in node.addresses], link, control
        )
        self._chosen[link] = control


def change_routes(launcher: Launcher, nodes: Sequence[Node], link: str, control: str) -> None:
    """Change the routes of a link by ip(8) on all nodes at once. LaunchError where it refuses."""
    started = [(node, launcher.start(node, ["sh", "-c", _script(node, link, control)])) for node in nodes]
    ends = [(node, running.wait(_LIMIT_S)) for node, running in started]
    for node, end in ends:
        if end.exit_status != 0:
            raise LaunchError(
                f"{node.name}: TCP over {link} could not be given the congestion control {control!r}: "
                f"{end.stderr.strip() or 'no reason is known'}. The kernel has those that "
                "/proc/sys/net/ipv4/tcp_available_congestion_control lists; root may load more with modprobe."
            )


def _script(node: Node, link: str, control: str) -> str:
    return " && ".join(shlex.join(command) for command in _commands(node, link, control))


def _commands(node: Node, link: str, control: str) -> Iterator[list[str]]:
    """The routes as the kernel made them, which a change would else take away, and the attribute."""
    device = ["dev", node.interfaces[link], "proto", "kernel"]
    attribute = [] if control == peers.DEFAULT else ["congctl", control]
    address = node.addresses[link]
    network = ipaddress.ip_interface(f"{address}/{PREFIX_BITS}").network
    yield ["ip", "-4", "route", "change", str(network), *device, "scope", "link", "src", address, *attribute]
    if (address6 := node.addresses6.get(link)) is not None:
        network6 = ipaddress.ip_interface(f"{address6}/{PREFIX6_BITS}").network
        yield ["ip", "-6", "route", "change", str(network6), *device, "metric", "256", *attribute]
