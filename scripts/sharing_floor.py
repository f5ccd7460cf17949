"""The floor under a stream: what two threads move that do nothing but what each packet must have done to it.

It is `udp_bulk`, an example of nic/udp, over a link of its own between the same two cores: header, ICRC at both ends,
and every byte at its place, in its fastest way of sending and receiving. No verbs, no acknowledgements, no timers.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from sharing_stand import LIMIT_S, SharingError

PROGRAM: Final = Path(__file__).resolve().parent.parent / "nic" / "target" / "release" / "examples" / "udp_bulk"
#: The path MTU: a longer message has packets of that.
PATH_MTU_BYTES: Final = 4096
#: Enough messages of a size to fill the window often.
BUFFER_BYTES: Final = 1 << 20
WINDOW_BYTES: Final = 1 << 20
#: Ways of all steps that do all that a packet needs.
_WHOLE: Final = re.compile(
    r"^(?:and copied to its place|  \S.*?)\s+[\d.]+\s+(?P<median>[\d.]+)\s+[\d.]+$", re.MULTILINE
)


def bare_mbps(size_bytes: int) -> float:
    """What the fastest whole way moves of messages of a size."""
    if not PROGRAM.is_file():
        raise SharingError(
            f"{PROGRAM.name} is not built: run `make bench`, or `cargo build --release --examples` in nic/"
        )
    cores = sorted(os.sched_getaffinity(0))
    payload_bytes = min(size_bytes, PATH_MTU_BYTES)
    message_bytes = max(size_bytes, BUFFER_BYTES // payload_bytes * payload_bytes)
    options = {
        "--payload": payload_bytes,
        "--message": message_bytes,
        "--window": WINDOW_BYTES,
        "--processors": f"{cores[0]},{cores[-1]}",
        "--rounds": 3,
        "--milliseconds": 40,
    }
    command = [str(PROGRAM), *(str(word) for pair in options.items() for word in pair)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    except subprocess.SubprocessError as error:
        raise SharingError(f"{PROGRAM.name} failed: {getattr(error, 'stderr', None) or error}") from error
    return best_mbps(done.stdout)


def best_mbps(report: str) -> float:
    """The fastest of the ways that are whole, from what `udp_bulk` printed in GB/s."""
    found = [float(line["median"]) for line in _WHOLE.finditer(report)]
    if not found:
        raise SharingError(f"{PROGRAM.name} printed none of its rates: {report.strip()[-200:]}")
    return max(found) * 8000
