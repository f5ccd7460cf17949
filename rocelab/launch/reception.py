"""How the two ends of a link hand what arrives to TCP, chosen for the time of a measurement.

    receptions = Receptions(fabric.nodes, launcher)
    receptions.choose("direct", "napi-deferred")   # returns what it set, for the samples
    receptions.choose("direct", peers.USUAL)       # as the fabric made it

A veth hands packets to its other end through NAPI, as a network card does, only where it has no TCP segmentation and
the other end has GRO (drivers/net/veth.c). Only then has the kernel something to poll for a socket with SO_BUSY_POLL.
Only interfaces of the fabric's own namespaces are changed. A fabric of real hosts would have to change those of the
hosts: its launcher refuses, and what needs it is not measured there.
"""

from __future__ import annotations

import errno
import fnmatch
import json
import os
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from rocelab import peers
from rocelab.fabric.base import Launcher, LaunchError, Node

#: To change an interface takes milliseconds.
_LIMIT_S: Final = 10.0

#: asm-generic/socket.h; Python's own module does not have them.
_SO_BUSY_POLL: Final = 46
_SO_PREFER_BUSY_POLL: Final = 69

_NAPI: Final[Mapping[str, int]] = {"tx-tcp*": 0, "rx-gro": 1}
#: What Documentation/networking/napi.rst of Linux gives for busy polling in place of interrupts.
_DEFERRED: Final[Mapping[str, int]] = {"gro_flush_timeout": 200_000, "napi_defer_hard_irqs": 100}

#: What is set, at the first node (the client) and the others (the server).
_SETTINGS: Final[Mapping[peers.Reception, tuple[Mapping[str, int], Mapping[str, int]]]] = {
    "napi": (_NAPI, _NAPI),
    "napi-deferred": (_NAPI, {**_NAPI, **_DEFERRED}),
}


def unavailable(reception: peers.Reception) -> str | None:
    """Why TCPs that need this reception cannot be measured from here, for a person; None if they can."""
    wanted = {
        "usual": (),
        "napi": (("SO_BUSY_POLL", _SO_BUSY_POLL, 100),),
        "napi-deferred": (("SO_PREFER_BUSY_POLL", _SO_PREFER_BUSY_POLL, 1),),
    }[reception]
    with socket.socket() as probe:
        for name, option, value in wanted:
            try:
                probe.setsockopt(socket.SOL_SOCKET, option, value)
            except OSError as error:
                needs = ", which needs CAP_NET_ADMIN outside of any user namespace"
                return f"{name}: {os.strerror(error.errno or 0)}{needs if error.errno == errno.EPERM else ''}"
    return None


class Receptions:
    """Sets the reception of links, at all of their nodes, and remembers what is set and what there was."""

    def __init__(self, nodes: Sequence[Node], launcher: Launcher) -> None:
        self._nodes = nodes
        self._launcher = launcher
        self._usual: dict[str, list[Mapping[str, int]]] = {}
        self._chosen: dict[str, peers.Reception | None] = {}

    def choose(self, link: str, reception: peers.Reception) -> Mapping[str, int]:
        """Have a link receive in this way until another is chosen. Returns what is set, by end and name.

        LaunchError where an interface cannot be changed. Then the next choice is not taken for granted either.
        """
        nodes = [node for node in self._nodes if link in node.addresses]
        if self._chosen.get(link, peers.USUAL) != reception:
            # Until all are as they were, nothing else may be measured; and until all have changed,
            # what is set is open.
            self._restore(link, nodes)
            if reception != peers.USUAL:
                self._chosen[link] = None
                self._launcher.change_interfaces(nodes, link, [_wanted(reception, at) for at in range(len(nodes))])
            self._chosen[link] = reception
        if reception == peers.USUAL:
            return {}
        return {
            f"{'server' if at else 'client'}_{name.rstrip('*')}": value
            for at in range(2)
            for name, value in _wanted(reception, at).items()
        }

    def _restore(self, link: str, nodes: Sequence[Node]) -> None:
        if link not in self._usual:
            asked = self._launcher.change_interfaces(nodes, link, [{} for _ in nodes])
            self._usual[link] = [{name: value for name, value in found.items() if _is_ours(name)} for found in asked]
        elif self._chosen.get(link, peers.USUAL) != peers.USUAL:
            self._chosen[link] = None
            self._launcher.change_interfaces(nodes, link, self._usual[link])
            self._chosen[link] = peers.USUAL


def _wanted(reception: peers.Reception, at: int) -> Mapping[str, int]:
    return _SETTINGS[reception][min(at, 1)]


def _is_ours(name: str) -> bool:
    """Whether it is among what is set: the kernel refuses to be told most others, even what they are."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in (*_NAPI, *_DEFERRED))


def change_interfaces(
    launcher: Launcher, nodes: Sequence[Node], link: str, wanted: Iterable[Mapping[str, int]]
) -> list[Mapping[str, int]]:
    """Change the nodes' interfaces of a link all at once by `interface.py`. LaunchError where one refuses."""
    program = [sys.executable, "-I", "-S", str(Path(__file__).with_name("interface.py"))]
    started = []
    for node, changes in zip(nodes, wanted, strict=True):
        words = (f"{name}={value}" for name, value in changes.items())
        started.append((node, launcher.start(node, [*program, node.interfaces[link], *words])))
    ends = [(node, running.wait(_LIMIT_S)) for node, running in started]
    for node, end in ends:
        if end.exit_status != 0:
            raise LaunchError(
                f"{node.name}: how {link} receives cannot be changed: {end.stderr.strip() or 'no reason is known'}"
            )
    return [json.loads(end.stdout) for _, end in ends]
