"""Writes the frames of one type that pass an interface to a pcap file, until SIGTERM: by a socket of its own.

python frames.py INTERFACE ETHERTYPE FILE
"""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import sys
from pathlib import Path
from types import FrameType

#: All types: a socket for one of them would not see frames that leave.
_ETH_P_ALL = 0x0003
#: A pcap file's header (microseconds, 65535 bytes of each packet, Ethernet), and that of a packet.
_FILE = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
_PACKET = struct.Struct("<IIII")
_TYPE = slice(12, 14)
_BUFFER_BYTES = 1 << 24


def _end(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Say that it has begun, and go on until it is told to end; then take what is there already."""
    interface, ether_type, file = sys.argv[1:]
    wanted = int(ether_type, 16).to_bytes(2, "big")
    with (
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL)) as tap,
        Path(file).open("wb") as out,
    ):
        tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        tap.bind((interface, _ETH_P_ALL))
        out.write(_FILE)

        def take() -> None:
            frame = tap.recv(65535)
            if frame[_TYPE] == wanted:
                out.write(_PACKET.pack(0, 0, len(frame), len(frame)) + frame)

        signal.signal(signal.SIGTERM, _end)
        print("listening", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                take()
        tap.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                take()


if __name__ == "__main__":
    main()
