"""Looks at the TCP connections of nodes while something runs, as the kernel lists them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from rocelab.fabric.base import Node, Running
from rocelab.launch.namespace import NamespaceLauncher

#: An address of a node, as rocelab.fabric.plan gives them out.
_ADDRESS = r"\[?(?:::ffff:)?(?:10\.80\.|fd52:)\S+"
#: A connection between nodes with its congestion control, as ss(8) shows it with -i and -O.
_CONNECTION = re.compile(rf"ESTAB\s+\d+\s+\d+\s+{_ADDRESS}\s+{_ADDRESS}\s.*?\b(cubic|bbr|reno|dctcp)\b")
_LOOK = "while :; do ss -tinHO; sleep 0.02; done"


class Seen:
    """Which congestion controls the connections of each node had."""

    def __init__(self, running: dict[str, Running]) -> None:
        self._running = running

    def controls(self) -> dict[str, set[str]]:
        """By node, so far."""
        return {node: set(_CONNECTION.findall(running.output()[0])) for node, running in self._running.items()}


@contextlib.contextmanager
def connections(launcher: NamespaceLauncher, nodes: Sequence[Node]) -> Iterator[Seen]:
    """Looks until the end of the block."""
    running = {node.name: launcher.start(node, ["sh", "-c", _LOOK]) for node in nodes}
    try:
        yield Seen(dict(running))
    finally:
        for each in running.values():
            each.stop()
