"""What a third party feels of a busy link: round trips of UDP datagrams that are sent at fixed times.

Usage: queue_probe.py answer PORT
       queue_probe.py ask ADDRESS PORT SECONDS   (prints JSON)

A datagram is sent every 10 ms, whether or not the one before has come back, so that a full queue is seen as often as
an empty one. Both ends are this file, started on nodes of an emulated fabric, which have the machine's files.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path

EVERY_S = 0.01
#: How long an answer may take after the last question.
LAST_S = 0.5
#: 64 bytes, as the latency tests have: a number, and what fills up.
_DATAGRAM = struct.Struct("!Q56x")


def command(*arguments: str) -> list[str]:
    """The command line of an end. It needs nothing but Python's own modules, and so is there sooner."""
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), *arguments]


def answer(port: int) -> None:
    """Send back all that comes, until the process is ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind(("", port))
        while True:
            data, sender = ours.recvfrom(_DATAGRAM.size)
            ours.sendto(data, sender)


def ask(address: str, port: int, seconds: float) -> list[float | None]:
    """Round trips in ms, in the order of the questions; None for one that was never answered."""
    sent_s: list[float] = []
    round_trips_ms: list[float | None] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.connect((address, port))
        start_s = time.monotonic()
        while (now_s := time.monotonic()) < start_s + seconds + LAST_S:
            due_s = start_s + len(sent_s) * EVERY_S
            is_over = due_s > start_s + seconds
            if not is_over and now_s >= due_s:
                ours.send(_DATAGRAM.pack(len(sent_s)))
                sent_s.append(now_s)
                round_trips_ms.append(None)
                continue
            if is_over and None not in round_trips_ms:
                break
            wait_s = LAST_S if is_over else due_s - now_s
            if select.select([ours], [], [], wait_s)[0]:
                (number,) = _DATAGRAM.unpack(ours.recv(_DATAGRAM.size))
                round_trips_ms[number] = (time.monotonic() - sent_s[number]) * 1000
    return round_trips_ms


def _main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["answer", port]:
            answer(int(port))
        case ["ask", address, port, seconds]:
            sys.stdout.write(json.dumps(ask(address, int(port), float(seconds))))
        case _:
            sys.stderr.write(__doc__ or "")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
