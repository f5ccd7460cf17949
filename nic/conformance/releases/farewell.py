"""A queue pair that ends tells its peer, whose next request then fails soon: one program for both ends, over pyverbs.

Usage: python -m releases.farewell DEVICE GID_INDEX PORT [SERVER]

The server's queue pair ends. The client, which would try for half a minute, has to be done long before.
"""

from __future__ import annotations

import time

from pyverbs import enums
from rxe.operations import SEND_AT, End, expect, main

#: A quarter of the half minute, for busy machines. Half a second of silence is what urxe waits for.
SOON_S = 8.0


class PatientEnd(End):
    """One that sends 8 times, 4.3 s apart, to a peer that does not answer."""

    timeout = 20


def ask(end: PatientEnd) -> None:
    """The client, which sends to a queue pair, and again when it is no more. By the first its peer knows what it is."""
    end.request(enums.IBV_WR_RDMA_WRITE, SEND_AT)
    end.say()
    end.hear()
    started_s = time.monotonic()
    end.request(enums.IBV_WR_RDMA_WRITE, SEND_AT, status=enums.IBV_WC_RETRY_EXC_ERR)
    took_s = time.monotonic() - started_s
    end.say()
    expect(took_s < SOON_S, f"the request failed after {took_s:.1f} s")
    print(f"farewell understood, {took_s:.1f} s")


def serve(end: PatientEnd) -> None:
    """The server, which ends its queue pair and stays."""
    end.hear()
    end.qp.close()
    end.say()
    end.hear()


if __name__ == "__main__":
    main(PatientEnd, ask, serve)
