"""What has gone through a node's interface, read from the kernel's table of interfaces."""

from __future__ import annotations

from pathlib import Path

from rocelab.fabric.base import LaunchError, Node

#: Column of /proc/net/dev, counted from the interface's name, that has the bytes sent.
_SENT_BYTES = 9


def sent_bytes(node: Node, interface: str) -> int:
    """What has left an interface of a node; LaunchError if the node or the interface is gone."""
    try:
        lines = Path(f"/proc/{node.pid}/net/dev").read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise LaunchError(f"{node.name}: its interfaces cannot be seen ({error.strerror})") from error
    for line in lines:
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            return int(numbers.split()[_SENT_BYTES - 1])
    raise LaunchError(f"{node.name} has no interface {interface}")
