"""Messages between rocelab and the keepers: one JSON object per datagram, with open files attached.

The sockets are SOCK_SEQPACKET: a message arrives whole or not at all, and the end of the other side is seen as
an end of file. That end of file is the lifeline of a fabric and of every program in it.
"""

from __future__ import annotations

import array
import errno
import json
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

#: Enough for an environment of the usual size many times over; the kernel's own limit is about 200
#: KiB.
MESSAGE_BYTES_MAX = 180_000
FILES_MAX = 8
_CREDENTIALS = struct.Struct("3i")


class MessageTooLongError(Exception):
    """The command line and environment together do not fit into one message."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends, neither inherited by programs."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(end: socket.socket, message: Mapping[str, object], files: Sequence[int] = ()) -> None:
    """Send one message with duplicates of `files`. Raises OSError if the other side is gone."""
    data = json.dumps(message, ensure_ascii=True).encode()
    if len(data) > MESSAGE_BYTES_MAX:
        raise MessageTooLongError(f"{len(data)} bytes of command line and environment, at most {MESSAGE_BYTES_MAX}")
    forward(end, data, files)


def forward(end: socket.socket, data: bytes, files: Sequence[int]) -> None:
    """Send bytes that are already a message, with files."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
    end.sendmsg([data], rights, socket.MSG_NOSIGNAL)


def receive_raw(end: socket.socket) -> tuple[bytes, list[int], int | None]:
    """Return the bytes, the open files (now the caller's) and the sender's pid if asked for; b"" at the end."""
    space = socket.CMSG_SPACE(FILES_MAX * 4) + socket.CMSG_SPACE(_CREDENTIALS.size)
    try:
        try:
            received = end.recvmsg(MESSAGE_BYTES_MAX, space, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:
            # The other side closed with something of ours unread. That is told once; what it sent
            # is still there.
            received = end.recvmsg(MESSAGE_BYTES_MAX, space, socket.MSG_CMSG_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ECONNRESET, errno.ENOTCONN):
            return b"", [], None
        raise
    data, control, _, _ = received
    files: list[int] = []
    sender: int | None = None
    for level, kind, payload in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
            files.extend(numbers)
        elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            sender = _CREDENTIALS.unpack(payload[: _CREDENTIALS.size])[0]
    return data, files, sender


def receive(end: socket.socket) -> dict[str, Any] | None:
    """Return one message, or None when the other side is gone. Files that came with it are closed."""
    data, files, _ = receive_raw(end)
    close_all(files)
    return decode(data) if data else None


def receive_with_sender(end: socket.socket) -> tuple[dict[str, Any] | None, int | None]:
    """As `receive`, with the sender's pid in this process's PID namespace (the socket must have SO_PASSCRED)."""
    data, files, sender = receive_raw(end)
    close_all(files)
    return (decode(data) if data else None), sender


def decode(data: bytes) -> dict[str, Any]:
    """The JSON object of a message; ValueError if it is none."""
    message = json.loads(data)
    if not isinstance(message, dict):
        raise ValueError("a message is a JSON object")  # noqa: TRY004 -- callers handle one kind of bad message
    return message


def close_all(files: Sequence[int]) -> None:
    """Close file descriptors."""
    for number in files:
        os.close(number)
