"""Looks at the TCP connections of nodes while something runs, as the kernel lists them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from rocelab.fabric.base import Node, Running
from rocelab.launch.namespace import NamespaceLauncher

#: An address of a node, as rocelab.fabric.plan gives them out, and what stands behind it: the port.
_ADDRESS = r"\[?(?:::ffff:)?((?:10\.80\.|fd52:)[0-9a-f.:]*?)\]?:\d+"
#: A connection between nodes with its congestion control, as ss(8) shows it with -i and -O.
_CONNECTION = re.compile(rf"ESTAB\s+\d+\s+\d+\s+{_ADDRESS}\s+{_ADDRESS}\s.*?\b(cubic|bbr|reno|dctcp)\b")
#: The program that has it, with -p.
_PROGRAM = re.compile(r'users:\(\("([^"]+)"')
_LOOK = "while :; do ss -tinpHO; sleep 0.02; done"


class Seen:
    """Which congestion controls the connections of each node had."""

    def __init__(self, running: dict[str, Running]) -> None:
        self._running = running

    def controls(self) -> dict[str, set[str]]:
        """By node, so far."""
        return {node: controls_in(listing) for node, listing in self._listings().items()}

    def controls_of(self, program: str) -> dict[str, set[str]]:
        """Those of the connections that a program had: its name, as the kernel cuts it to 15 letters."""
        found = {}
        for node, listing in self._listings().items():
            lines = (line for line in listing.splitlines() if program in _PROGRAM.findall(line))
            found[node] = controls_in("\n".join(lines))
        return found

    def _listings(self) -> dict[str, str]:
        return {node: running.output()[0] for node, running in self._running.items()}


def controls_in(listing: str) -> set[str]:
    """The congestion controls of connections from one node to another: those within a node do not cross its link."""
    return {control for here, there, control in _CONNECTION.findall(listing) if here != there}


@contextlib.contextmanager
def connections(launcher: NamespaceLauncher, nodes: Sequence[Node]) -> Iterator[Seen]:
    """Looks until the end of the block."""
    running = {node.name: launcher.start(node, ["sh", "-c", _LOOK]) for node in nodes}
    try:
        yield Seen(dict(running))
    finally:
        for each in running.values():
            each.stop()
