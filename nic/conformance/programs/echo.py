"""An ordinary sockets program: a server that sends back what it gets, and a client that checks it.

Usage: echo.py server | echo.py client ADDRESS
"""

from __future__ import annotations

import random
import socket
import sys

PORT = 7471
BYTES = 1_000_000
CHUNK_BYTES = 20_000


def serve() -> None:
    """Echo one connection until its end."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", PORT))  # noqa: S104  the network is the test's own
        listener.listen()
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(CHUNK_BYTES):
                connection.sendall(data)


def ask(server: str) -> None:
    """Send, chunk by chunk, what has to come back."""
    data = random.Random(7).randbytes(BYTES)
    back = bytearray()
    with socket.socket() as connection:
        connection.connect((server, PORT))
        for start in range(0, BYTES, CHUNK_BYTES):
            connection.sendall(data[start : start + CHUNK_BYTES])
            while len(back) < start + CHUNK_BYTES:
                received = connection.recv(CHUNK_BYTES)
                if not received:
                    sys.exit("the server closed the connection")
                back += received
    if bytes(back) != data:
        sys.exit("something else came back")
    print(f"{len(back)} bytes came back")


if __name__ == "__main__":
    serve() if sys.argv[1] == "server" else ask(sys.argv[2])
