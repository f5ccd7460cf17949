"""What happened to packets while many nodes sent: lost, paused, marked or sent again, by the counters of each node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rocelab.fabric.base import Finished, Launcher, LaunchError, Node, Running
from rocelab.launch.network_counters import KINDS, kind_of
from rocelab.results import EVENTS_METRIC
from rocelab.tools import urxe_stat
from rocelab.tools.base import Executable, Value

#: How long all nodes may take to say what their urxe counted.
_STAT_LIMIT_S: Final = 10.0

#: Of each node, by ``source.name``, how much a counter grew.
Events = tuple[Mapping[str, int], ...]


class NetworkEvents:
    """Reads the counters of nodes at the beginning and at the end of what is watched."""

    def __init__(self, launcher: Launcher, nodes: Sequence[Node], link: str, nic: Executable | None) -> None:
        """`nic` is what gives programs their device in userspace, and counts; None: the kernel has the device."""
        self._launcher = launcher
        self._nodes = nodes
        self._link = link
        self._nic = nic
        self._before: list[Mapping[str, int]] = []

    def begin(self) -> None:
        """Read the kernels' counters. Raises LaunchError where a node is gone."""
        self._before = self._read()

    def end(self) -> Events:
        """What grew. The programs have to run still: what urxe counts belongs to them, and they began with nothing."""
        after = self._read()
        of_programs = self._of_programs()
        grown = []
        for first, last, programs in zip(self._before, after, of_programs, strict=True):
            of_kernel = {name: count - first.get(name, 0) for name, count in last.items()}
            grown.append({name: count for name, count in {**of_kernel, **programs}.items() if count > 0})
        return tuple(grown)

    def _read(self) -> list[Mapping[str, int]]:
        return [self._launcher.network_counters(node, self._link) for node in self._nodes]

    def _of_programs(self) -> list[Mapping[str, int]]:
        """Of each node; nothing where it cannot be had, as it is no part of what is measured."""
        if self._nic is None:
            return [{} for _ in self._nodes]
        asked = [self._asked(node, urxe_stat.command(self._nic)) for node in self._nodes]
        found: list[Mapping[str, int]] = []
        for each in asked:
            said: Finished | None = None
            with contextlib.suppress(LaunchError):
                said = None if each is None else each.wait(_STAT_LIMIT_S)
            counted = {} if said is None or said.exit_status != 0 else urxe_stat.read(said.stdout)
            found.append({name: count for name, count in counted.items() if kind_of(name.partition(".")[2])})
        return found

    def _asked(self, node: Node, command: Sequence[str]) -> Running | None:
        try:
            return self._launcher.start(node, command)
        except LaunchError:
            return None


def values(events: Events, nodes: Sequence[str]) -> Iterator[Value]:
    """For each kind of event how many there were at least, and every counter of every node that grew.

    One packet may be counted by several counters of a node (the driver's, the interface's), so the largest stands for
    the node.
    """
    for kind, _ in KINDS:
        largest = [
            max((count for name, count in of_node.items() if _kind(name) == kind), default=0) for of_node in events
        ]
        yield Value(f"{EVENTS_METRIC}{kind}", "events", "total", float(sum(largest)))
    for node, of_node in zip(nodes, events, strict=True):
        for name, count in of_node.items():
            yield Value(f"{EVENTS_METRIC}{_kind(name)}.{name}", "events", node, float(count))


def _kind(name: str) -> str | None:
    return kind_of(name.partition(".")[2])
