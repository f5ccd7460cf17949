"""Shows and changes how an interface sends and receives: offloads, and what its NAPI does. A program for nodes.

Usage: interface.py INTERFACE [NAME=VALUE...]

It changes what is named, all of it or nothing, and prints what everything was before as a JSON object. Names are the
attributes below, in /sys/class/net/INTERFACE, and the kernel's names of features (net/ethtool/common.c), 0 or 1; one
that ends on * is all that begin so. It runs around measurements, so it takes milliseconds and imports nothing of
rocelab.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Documentation/networking/napi.rst of Linux: nanoseconds after which packets that wait are handed
#: on, and how often a NAPI that found nothing waits so long instead of switching its interrupts on
#: again.
ATTRIBUTES = ("gro_flush_timeout", "napi_defer_hard_irqs")

#: linux/sockios.h and linux/ethtool.h.
_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSSET_INFO, _GFEATURES, _SFEATURES = 0x1B, 0x37, 0x3A, 0x3B
_SS_FEATURES = 4
_NAME_BYTES = 32


class Interface:
    """One interface of the namespace that this runs in."""

    def __init__(self, name: str) -> None:
        """OSError if there is none."""
        self._name = name
        self._attributes = Path("/sys/class/net") / name
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._features = self._feature_names()

    def values(self, *, active: bool) -> dict[str, int]:
        """Everything that can be changed. Features as they are `active`, or else as they are wanted."""
        count = self._blocks()
        answer = self._ask(struct.pack(f"=II{16 * count}x", _GFEATURES, count))
        # Of each 32: available, requested, active, never changed.
        words = struct.unpack_from(f"={4 * count}I", answer, 8)
        column = 2 if active else 1
        found = {
            name: words[4 * (bit // 32) + column] >> bit % 32 & 1 for bit, name in enumerate(self._features) if name
        }
        return found | {name: int((self._attributes / name).read_text()) for name in ATTRIBUTES}

    def change(self, wanted: Mapping[str, int]) -> None:
        """Set all of it. Raises OSError; then some may be changed."""
        valid, requested = 0, 0
        for name, value in wanted.items():
            if name in ATTRIBUTES:
                (self._attributes / name).write_text(str(value))
            else:
                bit = self._features.index(name)
                valid |= 1 << bit
                requested |= bool(value) << bit
        if valid:
            blocks = (word >> 32 * at & 0xFFFFFFFF for at in range(self._blocks()) for word in (valid, requested))
            self._ask(struct.pack(f"=II{2 * self._blocks()}I", _SFEATURES, self._blocks(), *blocks))

    def check(self, wanted: Mapping[str, int]) -> None:
        """Look whether all of it is so. The kernel may leave a feature as it is without a word. Raises ValueError."""
        now = self.values(active=True)
        if refused := [name for name, value in wanted.items() if now[name] != value]:
            raise ValueError(f"{', '.join(refused)} of {self._name} cannot be changed")

    def _blocks(self) -> int:
        return (len(self._features) + 31) // 32

    def _feature_names(self) -> list[str]:
        answer = self._ask(struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SS_FEATURES, 0))
        (count,) = struct.unpack_from("=I", answer, 16)
        answer = self._ask(struct.pack(f"=III{_NAME_BYTES * count}x", _GSTRINGS, _SS_FEATURES, count))
        names = struct.unpack_from(f"={f'{_NAME_BYTES}s' * count}", answer, 12)
        return [name.rstrip(b"\0").decode() for name in names]

    def _ask(self, request: bytes) -> bytes:
        buffer = ctypes.create_string_buffer(request, len(request))
        # struct ifreq: a name, and a union of which this uses a pointer.
        fcntl.ioctl(self._socket, _SIOCETHTOOL, struct.pack("16sP16x", self._name.encode(), ctypes.addressof(buffer)))
        return buffer.raw


def expanded(wanted: Mapping[str, int], names: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Every name that is meant. ValueError for one that means none."""
    for pattern, value in wanted.items():
        meant = [name for name in names if name == pattern or (pattern[-1] == "*" and name.startswith(pattern[:-1]))]
        if not meant:
            raise ValueError(f"the kernel knows no {pattern}")
        yield from ((name, value) for name in meant)


def main() -> None:
    """Do what the command line says."""
    name, *words = sys.argv[1:]
    wanted = {key: int(value) for key, _, value in (word.partition("=") for word in words)}
    try:
        interface = Interface(name)
        before = interface.values(active=False)
        # What is so already may be something that this user cannot set, as the attributes are in a
        # user namespace.
        every = dict(expanded(wanted, before))
        changes = {each: value for each, value in every.items() if value != before[each]}
        try:
            interface.change(changes)
            interface.check(every)
        except (OSError, ValueError):
            interface.change({each: before[each] for each in changes})
            raise
    except (OSError, ValueError) as error:
        sys.exit(f"{name}: {error}")
    print(json.dumps(before))  # noqa: T201, that is its answer


if __name__ == "__main__":
    main()
