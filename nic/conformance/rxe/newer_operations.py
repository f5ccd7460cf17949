"""ATOMIC WRITE and FLUSH, which Linux rxe has since 6.2 and 6.3: one program for both ends, as operations.py is.

Usage: python -m rxe.newer_operations DEVICE GID_INDEX PORT [SERVER]

FLUSH is part of it where both ends have a libibverbs with it, from rdma-core 46 on. The client prints each operation
that was right.
"""

from __future__ import annotations

import socket
import sys
from typing import Any

from pyverbs import enums
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx

from .operations import ACCESS, BYTES, REMOTE, SEND_AT, WRITE_AT, End, expect, main, pattern

HAS_FLUSH = hasattr(enums, "IBV_QP_EX_WITH_FLUSH")
#: What the region is for, and what the queue pair is for besides.
GLOBAL = enums.IBV_ACCESS_FLUSH_GLOBAL if HAS_FLUSH else 0
PERSISTENT = enums.IBV_ACCESS_FLUSH_PERSISTENT if HAS_FLUSH else 0
OPERATIONS = enums.IBV_QP_EX_WITH_ATOMIC_WRITE | enums.IBV_QP_EX_WITH_RDMA_WRITE
WORD = bytes(range(1, 9))


class NewerEnd(End):
    """One whose queue pair has them."""

    remote = REMOTE | GLOBAL | PERSISTENT
    access = ACCESS | GLOBAL

    def __init__(self, device: str, gid_index: int, line: socket.socket) -> None:
        """Connect the queue pair, or say that the device does not have the operations."""
        try:
            super().__init__(device, gid_index, line)
        except PyverbsError as error:
            sys.exit(f"no ATOMIC WRITE and FLUSH: {error}")

    def new_qp(self, cap: QPCap, initial: QPAttr) -> Any:
        """A queue pair that requests are posted to one call at a time."""
        attributes = QPInitAttrEx(
            qp_type=enums.IBV_QPT_RC,
            scq=self.cq,
            rcq=self.cq,
            cap=cap,
            pd=self.pd,
            comp_mask=enums.IBV_QP_INIT_ATTR_PD | enums.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            send_ops_flags=OPERATIONS | (enums.IBV_QP_EX_WITH_FLUSH if HAS_FLUSH else 0),
        )
        return QPEx(self.context, attributes, initial)

    def post(self, operation: str, at: int, *further: Any, status: int = 0) -> None:
        """Post one to the same place of the peer's memory as of the own, and wait until it is done."""
        self.qp.wr_start()
        self.qp.wr_flags = enums.IBV_SEND_SIGNALED
        getattr(self.qp, operation)(self.peer["rkey"], self.peer["address"] + at, *further)
        if operation == "wr_rdma_write":
            self.qp.wr_set_sge(*self.sge(at))
        self.qp.wr_complete()
        self.completion(status)


def ask(end: NewerEnd) -> None:
    """The client."""
    end.say(flush=HAS_FLUSH)
    both_flush = end.hear()["flush"] and HAS_FLUSH

    def looked_at(name: str) -> None:
        end.say(look=name)
        end.hear()
        print(name, flush=True)

    end.post("wr_atomic_write", WRITE_AT + 16, WORD)
    looked_at("ATOMIC WRITE")
    if both_flush:
        end.put(SEND_AT, pattern("FLUSH"))
        end.post("wr_rdma_write", SEND_AT)
        end.post("wr_flush", SEND_AT, BYTES, enums.IBV_FLUSH_GLOBAL, enums.IBV_FLUSH_RANGE)
        end.post("wr_flush", SEND_AT, 0, enums.IBV_FLUSH_GLOBAL, enums.IBV_FLUSH_MR)
        looked_at("FLUSH")
        refused = enums.IBV_WC_REM_ACCESS_ERR
        end.post("wr_flush", SEND_AT, BYTES, enums.IBV_FLUSH_PERSISTENT, enums.IBV_FLUSH_RANGE, status=refused)
        looked_at("no FLUSH of what the region is not for")
    else:
        end.post("wr_atomic_write", WRITE_AT + 36, WORD, status=enums.IBV_WC_REM_INV_REQ_ERR)
        looked_at("no ATOMIC WRITE across words")
    end.say()
    print("all operations right")


def serve(end: NewerEnd) -> None:
    """The server, which looks at what became of its memory."""
    end.hear()
    end.say(flush=HAS_FLUSH)
    while name := end.hear().get("look"):
        around = end.mr.read(40, WRITE_AT)
        expect(around == bytes(16) + WORD + bytes(16), f"{around.hex()} around what was written")
        expect(name != "FLUSH" or end.mr.read(BYTES, SEND_AT) == pattern(name), "the data before FLUSH")
        end.say()
    print("all operations right")


if __name__ == "__main__":
    main(NewerEnd, ask, serve)
