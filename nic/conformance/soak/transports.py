"""The transports that programs run over, and what they are told for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Transport:
    """A transport of urxe."""

    id: str
    #: Of `urxe run`.
    options: Sequence[str] = ()
    #: Of perftest.
    perftest: Sequence[str] = ()
    #: Whether it runs over TCP, which repeats what is lost: neither do its programs choose how long
    #: to wait for an acknowledgement, nor does urxe lose packets.
    over_tcp: bool = False


ROCE_V2: Final = Transport("RoCE v2", perftest=("-x", "0"))
ROCE_V1: Final = Transport("RoCE v1", options=("--roce-v1",), perftest=("-x", "32"))
IWARP: Final = Transport("iWARP", options=("--transport", "iwarp"), perftest=("-R",), over_tcp=True)
