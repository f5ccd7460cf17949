"""What the kernel's tables of a process say of its network: ports that are open, bytes that have left.

Nothing has to connect to find out. It runs on hosts as well, so it imports nothing of rocelab.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

#: Socket states of include/net/tcp_states.h, as /proc/net/tcp and /proc/net/udp show them.
_TCP_LISTEN = "0A"
_UDP_UNCONNECTED = "07"
#: Column of /proc/net/dev, counted from the interface's name, that has the bytes sent.
_SENT_BYTES = 9


def is_open(process: int | str, port: int, protocol: Literal["tcp", "udp"]) -> bool:
    """Whether a program listens on `port` (any address, IPv4 or IPv6) in the network namespace of a process.

    The process is one of /proc: a pid, or ``self``.
    """
    wanted = _TCP_LISTEN if protocol == "tcp" else _UDP_UNCONNECTED
    suffix = f":{port:04X}"
    for table in (protocol, protocol + "6"):
        try:
            lines = Path(f"/proc/{process}/net/{table}").read_text(encoding="ascii").splitlines()
        except OSError:
            continue  # No IPv6, or the node is gone: the caller's look at the program tells.
        for line in lines[1:]:
            fields = line.split()
            if fields[1].endswith(suffix) and fields[3] == wanted:
                return True
    return False


def sent_bytes(process: int | str, interface: str) -> int:
    """What has left an interface in the network namespace of a process.

    Raises OSError where the process is gone, and KeyError where it has no such interface.
    """
    for line in Path(f"/proc/{process}/net/dev").read_text(encoding="ascii").splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            return int(numbers.split()[_SENT_BYTES - 1])
    raise KeyError(interface)
