"""The floor under a stream and under an exchange: what two threads reach that only do what each packet must have done.

They are examples of nic/udp, over a link of their own between the same two cores: header, ICRC at both ends, and every
byte at its place, in the fastest way of sending and receiving. No verbs, no acknowledgements, no timers.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sharing_stand import LIMIT_S, SharingError

EXAMPLES: Final = Path(__file__).resolve().parent.parent / "nic" / "target" / "release" / "examples"
STREAM: Final = "udp_bulk"
EXCHANGE: Final = "udp_exchange"
#: The path MTU: a longer message has packets of that.
PATH_MTU_BYTES: Final = 4096
#: Enough messages of a size to fill the window often.
BUFFER_BYTES: Final = 1 << 20
WINDOW_BYTES: Final = 1 << 20
#: Those of all steps that do all that a packet needs.
_WHOLE: Final = re.compile(
    r"^(?:and copied to its place|  \S.*?)\s+[\d.]+\s+(?P<median>[\d.]+)\s+[\d.]+$", re.MULTILINE
)
_WAY: Final = re.compile(r"^as (?P<way>\w+)\s+\d+\s+\d+\s+(?P<median>\d+)$", re.MULTILINE)


def bare_mbps(size_bytes: int, *, ways: int = 1) -> float:
    """What the fastest whole loop moves of messages of a size: one way, or both at once, added up."""
    payload_bytes = min(size_bytes, PATH_MTU_BYTES)
    message_bytes = max(size_bytes, BUFFER_BYTES // payload_bytes * payload_bytes)
    options = {
        "--ways": ways,
        "--payload": payload_bytes,
        "--message": message_bytes,
        "--window": WINDOW_BYTES,
        "--rounds": 3,
        "--milliseconds": 40,
    }
    return best_mbps(_report(STREAM, options))


def bare_latency_us(size_bytes: int) -> Mapping[str, float]:
    """Half the round trip of a message of a size, by way: as frames, and as datagrams."""
    return latencies_us(_report(EXCHANGE, {"--message": size_bytes, "--rounds": 20, "--exchanges": 100}))


def _report(name: str, options: Mapping[str, int]) -> str:
    program = EXAMPLES / name
    if not program.is_file():
        raise SharingError(f"{name} is not built: run `make bench`, or `cargo build --release --examples` in nic/")
    cores = sorted(os.sched_getaffinity(0))
    command = [str(program), "--processors", f"{cores[0]},{cores[-1]}"]
    command += [str(word) for pair in options.items() for word in pair]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
    except subprocess.SubprocessError as error:
        raise SharingError(f"{name} failed: {getattr(error, 'stderr', None) or error}") from error


def best_mbps(report: str) -> float:
    """The fastest of the steps that are whole, from what `udp_bulk` printed in GB/s."""
    found = [float(line["median"]) for line in _WHOLE.finditer(report)]
    if not found:
        raise SharingError(f"{STREAM} printed none of its rates: {report.strip()[-200:]}")
    return max(found) * 8000


def latencies_us(report: str) -> Mapping[str, float]:
    """By way, from what `udp_exchange` printed in ns."""
    found = {line["way"]: int(line["median"]) / 1000 for line in _WAY.finditer(report)}
    if not found:
        raise SharingError(f"{EXCHANGE} printed none of its times: {report.strip()[-200:]}")
    return found
