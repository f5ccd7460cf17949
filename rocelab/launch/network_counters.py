"""Counters of a machine that say where packets were lost, paused, marked or sent again.

They are the kernel's (`/proc/net`), the network driver's (what ``ethtool -S`` shows) and the RDMA device's (counters
and hw_counters below `/sys/class/infiniband`). Which of the hundreds say so is decided by their names, as drivers
have nothing else in common. It runs on hosts as well, so it imports nothing of rocelab; Python 3.9 has no strict `zip`.
"""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

#: What a counter can be about, with the names of such counters; the first that fits counts.
KINDS = (
    ("paused", re.compile(r"pause(?!.*(duration|transition|storm))|pfc(?!.*duration)|xmit_wait")),
    ("marked", re.compile(r"(?<!non_)(?<!non-)ecn|cnp|InCEPkts", re.IGNORECASE)),
    ("resent", re.compile(r"retrans|retry|seq_err|out_of_seq|ack_timeout|duplicate_req|rnr", re.IGNORECASE)),
    (
        "lost",
        re.compile(
            r"discard|drop|out_of_buffer|no_?buf|missed|crc|icrc|symbol|overrun|fifo|malformed|bufErrors"
            r"|(^|_)err(or)?s?($|_)",
            re.IGNORECASE,
        ),
    ),
)
#: Of /proc/net/snmp and /proc/net/netstat, by protocol. They are the machine's, of all its
#: connections. SndbufErrors is not among them: it counts calls that the kernel refused, and a
#: program like urxe makes them again.
_OF_PROTOCOLS = {"Tcp": ("RetransSegs",), "Udp": ("RcvbufErrors",), "IpExt": ("InCEPkts",)}
#: Columns of /proc/net/dev behind the interface's name.
_OF_INTERFACE = {"rx_errors": 2, "rx_dropped": 3, "rx_fifo": 4, "tx_errors": 10, "tx_dropped": 11, "tx_fifo": 12}
DEVICES = Path("/sys/class/infiniband")
#: linux/sockios.h and linux/ethtool.h.
_SIOCETHTOOL = 0x8946
_GSTRINGS = 0x1B
_GSTATS = 0x1D
_GSSET_INFO = 0x37
_SS_STATS = 1
_NAME_BYTES = 32


def kind_of(name: str) -> str | None:
    """``lost``, ``paused``, ``marked`` or ``resent``; None where a counter is about none of these."""
    return next((kind for kind, names in KINDS if names.search(name)), None)


def read(process: int | str, interface: str, device: str | None = None, port: int = 1) -> dict[str, int]:
    """All such counters in the network namespace of a process (of /proc: a pid, or ``self``), as ``source.name``.

    The driver's and the device's are read for ``self`` alone. What cannot be read is left out.
    """
    found = {**_protocols(process), **_interface(process, interface)}
    if process == "self":
        found.update(("driver." + name, count) for name, count in _driver(interface))
        if device is not None:
            found.update(("device." + name, count) for name, count in _device(device, port))
    return {name: count for name, count in found.items() if kind_of(name.partition(".")[2]) is not None}


def _protocols(process: int | str) -> dict[str, int]:
    found = {}
    for table in ("snmp", "netstat"):
        lines = _lines(f"/proc/{process}/net/{table}")
        # Two lines for each protocol: names, then numbers.
        for names, numbers in zip(lines[::2], lines[1::2]):  # noqa: B905
            protocol, *columns = names.split()
            wanted = _OF_PROTOCOLS.get(protocol.rstrip(":"), ())
            for name, number in zip(columns, numbers.split()[1:]):  # noqa: B905
                if name in wanted:
                    found[f"{protocol.rstrip(':').lower()}.{name}"] = int(number)
    return found


def _interface(process: int | str, interface: str) -> dict[str, int]:
    for line in _lines(f"/proc/{process}/net/dev"):
        name, _, numbers = line.partition(":")
        if name.strip() == interface:
            columns = numbers.split()
            return {"interface." + each: int(columns[at]) for each, at in _OF_INTERFACE.items()}
    return {}


def _device(device: str, port: int) -> Iterator[tuple[str, int]]:
    for folder in ("counters", "hw_counters"):
        for path in sorted((DEVICES / device / "ports" / str(port) / folder).glob("*")):
            lines = _lines(path)
            if lines and lines[0].strip().isdigit():
                yield path.name, int(lines[0])


def _driver(interface: str) -> list[tuple[str, int]]:
    """What ``ethtool -S`` shows: how many counters, their names, then their values."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            answer = _ethtool(asked, interface, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SS_STATS, 0))
            count = struct.unpack_from("=I", answer, 16)[0]
            room = struct.pack("=III", _GSTRINGS, _SS_STATS, count) + bytes(count * _NAME_BYTES)
            names = _ethtool(asked, interface, room)[12:]
            values = _ethtool(asked, interface, struct.pack("=II", _GSTATS, count) + bytes(count * 8))
    except OSError:
        return []
    named = (names[at : at + _NAME_BYTES].split(b"\0")[0] for at in range(0, len(names), _NAME_BYTES))
    numbers = struct.unpack_from(f"={count}Q", values, 8)
    return [(name.decode(errors="replace").strip(), number) for name, number in zip(named, numbers)]  # noqa: B905


def _ethtool(asked: socket.socket, interface: str, request: bytes) -> bytes:
    buffer = array.array("B", request)
    # struct ifreq: a name, and a union of which this uses a pointer.
    fcntl.ioctl(asked, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode()[:15], buffer.buffer_info()[0]))
    return buffer.tobytes()


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
