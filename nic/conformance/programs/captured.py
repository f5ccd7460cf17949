"""How much went over urxe, by its captures: they tell a program on RDMA from one that took TCP without a word."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

#: Of a pcapng block: its type and its length.
_BLOCK: Final = struct.Struct("<II")
#: An enhanced packet block, and where the length of its packet stands.
_PACKET: Final = 6
_PACKET_BYTES_AT: Final = 24


def packet_bytes(folder: Path) -> int:
    """Bytes of all packets, sent and received, in the captures of a folder. Their last block may be cut off."""
    return sum(_packet_bytes(path.read_bytes()) for path in folder.glob("*.pcapng"))


def _packet_bytes(capture: bytes) -> int:
    total = at = 0
    while at + _BLOCK.size <= len(capture):
        kind, length_bytes = _BLOCK.unpack_from(capture, at)
        if length_bytes < _BLOCK.size:
            raise ValueError(f"no pcapng block at byte {at}")
        if kind == _PACKET and at + length_bytes <= len(capture):
            total += int.from_bytes(capture[at + _PACKET_BYTES_AT : at + _PACKET_BYTES_AT + 4], "little")
        at += length_bytes
    return total
