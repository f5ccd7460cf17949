"""Captures the link to the guests, and reads the capture with tshark."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .guest import BRIDGE

#: What says that tshark does not understand something, or that it is not right.
WRONG: Final = re.compile(r"Malformed|Expert Info \(Error|Bad CRC")
#: What is dissected in full.
PROTOCOLS: Final = "iwarp_mpa,iwarp_ddp_rdmap"
#: Payload is nothing in particular, whatever it looks like.
NOT_WITHIN: Final = ("rpcordma", "smb_direct")
READY_S: Final = 20.0
#: How long packets may take from the link to the file.
SETTLES_S: Final = 0.5
DISSECTION_LIMIT_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class Dissected:
    """What tshark says of iWARP connections."""

    #: Requests and replies of MPA.
    setup_frames: int
    #: FPDUs whose CRC is there and right.
    right_crcs: int
    #: The opcodes of RDMAP that were seen.
    opcodes: frozenset[str]
    #: Lines that say that something is wrong.
    wrong: tuple[str, ...]


def missing() -> str | None:
    """The program that is not there."""
    return next((name for name in ("dumpcap", "tshark") if shutil.which(name) is None), None)


@contextlib.contextmanager
def captured(path: Path) -> Iterator[None]:
    """TCP on the link meanwhile, to a file."""
    path.unlink(missing_ok=True)
    line = ["dumpcap", "-q", "-i", BRIDGE, "-f", "tcp", "-B", "64", "-P", "-w", str(path)]
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as capturing:
        try:
            deadline_s = time.monotonic() + READY_S
            while not path.exists():
                assert capturing.poll() is None, capturing.communicate()[1]
                assert time.monotonic() < deadline_s, f"dumpcap did not begin within {READY_S:g} s"
                time.sleep(0.05)
            time.sleep(SETTLES_S)
            yield
            time.sleep(SETTLES_S)
        finally:
            capturing.terminate()
            capturing.communicate()


def dissect(path: Path) -> Dissected:
    """What is in a capture."""
    without = [word for protocol in NOT_WITHIN for word in ("--disable-protocol", protocol)]
    line = ["tshark", "-n", "-r", str(path), *without, "-O", PROTOCOLS]
    done = subprocess.run(line, capture_output=True, text=True, timeout=DISSECTION_LIMIT_S, check=True)
    return dissected(done.stdout)


def dissected(text: str) -> Dissected:
    """What tshark's text says."""
    return Dissected(
        setup_frames=len(re.findall(r"^ +(?:Request|Reply) frame header$", text, re.MULTILINE)),
        right_crcs=text.count("(Good CRC32)"),
        opcodes=frozenset(re.findall(r"OpCode: ([^(]+) \(", text)),
        wrong=tuple(line.strip() for line in text.splitlines() if WRONG.search(line)),
    )
