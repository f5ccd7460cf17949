"""Comes to a listening TCP port again and again with what no peer of it says: `strangers.py ADDRESS PORT`."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import struct
import sys
import time

#: What an iWARP peer says first: RFC 5044, 7.1.1, without private data.
REQUEST = b"MPA ID Req Frame" + bytes([0x40, 1, 0, 0])
#: How many stay.
STAYING_MAX = 100
#: From one to the next, seconds.
PAUSE_S = 0.005


def said(draw: random.Random) -> bytes:
    """What a stranger says."""
    return draw.choice(
        [
            b"",
            draw.randbytes(300),
            b"GET / HTTP/1.0\r\n\r\n",
            REQUEST[: draw.randrange(len(REQUEST))],
            REQUEST.replace(b"Req", b"Rep"),
            REQUEST[:18] + b"\xff\xff" + bytes(900),
        ]
    )


def main() -> None:
    """Come until killed."""
    address = (sys.argv[1], int(sys.argv[2]))
    draw = random.Random(1)  # noqa: S311, nothing is to be kept secret
    staying: list[socket.socket] = []
    for _ in itertools.count():
        # The listener may have ended, and so may the other end of the connection.
        with contextlib.suppress(OSError):
            stranger = socket.create_connection(address, timeout=1.0)
            staying.append(stranger)
            stranger.sendall(said(draw))
        if len(staying) > STAYING_MAX or (staying and draw.random() < 0.5):
            leaving = staying.pop(draw.randrange(len(staying)))
            with contextlib.suppress(OSError):
                # By RST, or in order.
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", draw.randrange(2), 0))
            leaving.close()
        time.sleep(PAUSE_S)


main()
