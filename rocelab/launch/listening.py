"""Whether a port is open on a node, read from the kernel's tables, so that nothing has to connect to find out."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

#: Socket states of include/net/tcp_states.h, as /proc/net/tcp and /proc/net/udp show them.
_TCP_LISTEN = "0A"
_UDP_UNCONNECTED = "07"


def is_open(pid: int, port: int, protocol: Literal["tcp", "udp"]) -> bool:
    """Whether a program listens on `port` (any address, IPv4 or IPv6) in the network namespace of `pid`."""
    wanted = _TCP_LISTEN if protocol == "tcp" else _UDP_UNCONNECTED
    suffix = f":{port:04X}"
    for table in (protocol, protocol + "6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()
        except OSError:
            continue  # No IPv6, or the node is gone: the caller's look at the program tells.
        for line in lines[1:]:
            fields = line.split()
            if fields[1].endswith(suffix) and fields[3] == wanted:
                return True
    return False
