"""Every operation of a reliable connection, over pyverbs, with its data checked: one program for both ends.

Usage: operations.py DEVICE GID_INDEX PORT [SERVER]

Without SERVER it waits for the other end. The client asks for each operation in turn; the server prepares for it, and
looks afterwards at what it did. They go by a TCP connection, a line for each step.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyverbs import enums
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, WC
from pyverbs.device import Context
from pyverbs.mr import MR, MW, MWBindInfo
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

#: Longer than a packet, and no multiple of four.
BYTES = 10001
#: Where each operation has its data; the first words are for atomics.
SEND_AT, WRITE_AT, READ_AT, WINDOW_AT = (16384 * which for which in range(1, 5))
REGION_BYTES = 16384 * 5
IMMEDIATE = 0x01020304
REMOTE = enums.IBV_ACCESS_REMOTE_WRITE | enums.IBV_ACCESS_REMOTE_READ | enums.IBV_ACCESS_REMOTE_ATOMIC
ACCESS = REMOTE | enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_MW_BIND


def pattern(name: str) -> bytes:
    """The bytes of an operation: no two operations have the same."""
    return (name.encode() * BYTES)[:BYTES]


class End:
    """A queue pair, its memory, and the line to the other end."""

    #: What the other end may do with the memory, and what may be done with it here.
    remote = REMOTE
    access = ACCESS
    #: How long an answer may take until a request is sent again: 4.096 us times two to this.
    timeout = 16

    def __init__(self, device: str, gid_index: int, line: socket.socket) -> None:
        """Connect the queue pair to that of the other end."""
        self.hears, self.says = line.makefile("r"), line.makefile("w")
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.cq = CQ(self.context, 16)
        self.mr = MR(self.pd, REGION_BYTES, self.access)
        initial = QPAttr(port_num=1)
        initial.qp_access_flags = self.remote
        self.qp = self.new_qp(QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1), initial)
        gid = self.context.query_gid(port_num=1, index=gid_index)
        self.say(qpn=self.qp.qp_num, gid=str(gid), address=self.mr.buf, rkey=self.mr.rkey)
        self.peer = self.hear()
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = self.remote
        attributes.dest_qp_num = self.peer["qpn"]
        attributes.path_mtu = enums.IBV_MTU_1024
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.min_rnr_timer, attributes.timeout = 12, self.timeout
        attributes.retry_cnt, attributes.rnr_retry = 7, 7
        route = GlobalRoute(dgid=GID(self.peer["gid"]), sgid_index=gid_index)
        attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=route)
        self.qp.to_rts(attributes)
        self.say()
        self.hear()

    def new_qp(self, cap: QPCap, initial: QPAttr) -> Any:
        """A queue pair with these attributes."""
        return QP(self.pd, QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap), initial)

    def say(self, **words: Any) -> None:
        """Tell the other end."""
        print(json.dumps(words), file=self.says, flush=True)

    def hear(self) -> dict[str, Any]:
        """What the other end says."""
        heard: dict[str, Any] = json.loads(self.hears.readline())
        return heard

    def put(self, at: int, data: bytes) -> None:
        """Write into the own memory."""
        self.mr.write(data, len(data), at)

    def sge(self, at: int, length: int = BYTES) -> list[SGE]:
        """A piece of the own memory."""
        return [SGE(self.mr.buf + at, length, self.mr.lkey)]

    def completion(self, status: int = enums.IBV_WC_SUCCESS) -> WC:
        """The next completion, which has to have this status."""
        count, found = 0, []
        while count == 0:
            count, found = self.cq.poll()
        unanswered = enums.IBV_WC_RETRY_EXC_ERR
        is_refused = status not in {enums.IBV_WC_SUCCESS, unanswered}
        expect(not is_refused or found[0].status != unanswered, "the refusal did not arrive")
        expect(found[0].status == status, f"completion with status {found[0].status}")
        return found[0]

    def request(self, opcode: int, at: int, length: int = BYTES, status: int = 0, **more: Any) -> None:
        """Post a request for the same place of the peer's memory as of the own, and wait until it is done."""
        request = SendWR(opcode=opcode, sg=self.sge(at, length), num_sge=1)
        address, rkey = self.peer["address"] + more.get("to", at), more.get("rkey", self.peer["rkey"])
        if "atomic" in more:
            request.set_wr_atomic(rkey, address, *more["atomic"])
        elif opcode in {enums.IBV_WR_RDMA_WRITE, enums.IBV_WR_RDMA_WRITE_WITH_IMM, enums.IBV_WR_RDMA_READ}:
            request.set_wr_rdma(rkey, address)
        if "imm" in more:
            request.imm_data = more["imm"]
        self.qp.post_send(request)
        self.completion(status)

    def word(self, at: int) -> int:
        """A number of eight bytes in the own memory."""
        return int.from_bytes(self.mr.read(8, at), sys.byteorder)

    def put_word(self, at: int, value: int) -> None:
        """Write one."""
        self.put(at, value.to_bytes(8, sys.byteorder))


def expect(is_right: bool, what: str) -> None:
    """End the program if something is wrong."""
    if not is_right:
        sys.exit(f"wrong: {what}")


def ask(end: End) -> None:
    """The client: each operation, between telling the server to prepare for it and to look at it."""

    def operation(name: str, at: int, opcode: int, **more: Any) -> None:
        end.say(prepare=name)
        prepared = end.hear()
        end.put(at, pattern(name))
        end.request(opcode, at, **{**more, **prepared})
        end.say(look=name)
        end.hear()
        print(name)

    operation("SEND", SEND_AT, enums.IBV_WR_SEND)
    operation("SEND with immediate", SEND_AT, enums.IBV_WR_SEND_WITH_IMM, imm=socket.htonl(IMMEDIATE))
    operation("WRITE", WRITE_AT, enums.IBV_WR_RDMA_WRITE)
    operation("WRITE with immediate", WRITE_AT, enums.IBV_WR_RDMA_WRITE_WITH_IMM, imm=socket.htonl(IMMEDIATE))
    operation("READ", READ_AT, enums.IBV_WR_RDMA_READ)
    read, wanted = end.mr.read(BYTES, READ_AT), pattern("of the server")
    wrong = [at for at in range(BYTES) if read[at] != wanted[at]]
    expect(not wrong, f"what was read: {len(wrong)} bytes from {min(wrong, default=0)} to {max(wrong, default=0)}")
    add, swap = enums.IBV_WR_ATOMIC_FETCH_AND_ADD, enums.IBV_WR_ATOMIC_CMP_AND_SWP
    operation("FETCH AND ADD", WINDOW_AT, add, length=8, to=0, atomic=(7, 0))
    expect(end.word(WINDOW_AT) == 5, "what was before it was added to")
    operation("COMPARE AND SWAP", WINDOW_AT, swap, length=8, to=0, atomic=(12, 99))
    expect(end.word(WINDOW_AT) == 12, "what was before it was swapped")
    operation("WRITE through a window", WINDOW_AT, enums.IBV_WR_RDMA_WRITE)
    operation("SEND with invalidate", SEND_AT, enums.IBV_WR_SEND_WITH_INV)
    refused = enums.IBV_WC_REM_ACCESS_ERR
    operation("no WRITE through what is invalid", WINDOW_AT, enums.IBV_WR_RDMA_WRITE, status=refused)
    end.say()
    print("all operations right")


def serve(end: End) -> None:
    """The server: prepares for each operation, and looks at what it did."""
    key = 0
    window = MW(end.pd, enums.IBV_MW_TYPE_2)
    while name := end.hear().get("prepare"):
        prepared: dict[str, Any] = {}
        if name.startswith("SEND") or name.endswith("immediate"):
            end.qp.post_recv(RecvWR(sg=end.sge(SEND_AT), num_sge=1))
        if name == "READ":
            end.put(READ_AT, pattern("of the server"))
        if name == "FETCH AND ADD":
            end.put_word(0, 5)
        if name == "WRITE through a window":
            bind = SendWR(opcode=enums.IBV_WR_BIND_MW)
            bind.set_bind_wr(window, MWBindInfo(end.mr, end.mr.buf + WINDOW_AT, BYTES, REMOTE))
            end.qp.post_send(bind)
            end.completion()
            key = bind.rkey
        if "window" in name or "invalid" in name:
            prepared = {"imm": key} if name.startswith("SEND") else {"rkey": key}
        end.say(**prepared)
        end.hear()
        look(end, name, key)
        end.say()
    print("all operations right")


def look(end: End, name: str, key: int) -> None:
    """Whether an operation did here what it should."""
    if name.startswith("SEND") or name.endswith("immediate"):
        received = end.completion()
        expect(received.byte_len == BYTES, f"{received.byte_len} bytes were received")
        if name.endswith("immediate"):
            expect(socket.ntohl(received.imm_data) == IMMEDIATE, f"immediate {received.imm_data:#x}")
        # Linux rxe invalidates the key, as the next operation finds, and does not tell the program
        # so.
        if received.wc_flags & enums.IBV_WC_WITH_INV:
            expect(received.imm_data == key, f"{received.imm_data:#x} became invalid, not {key:#x}")
    places = {"SEND": SEND_AT, "WRITE": WRITE_AT}
    at = WINDOW_AT if name.endswith("window") else places.get(name.split(maxsplit=1)[0])
    if at is not None:
        expect(end.mr.read(BYTES, at) == pattern(name), f"the data of {name}")
    if name.startswith("no"):
        expect(end.mr.read(BYTES, WINDOW_AT) != pattern(name), "it was written")
    expect(name != "FETCH AND ADD" or end.word(0) == 12, f"{end.word(0)} after it was added to")
    expect(name != "COMPARE AND SWAP" or end.word(0) == 99, f"{end.word(0)} after it was swapped")


@contextlib.contextmanager
def line_to_the_other(port: int, server: str | None) -> Iterator[socket.socket]:
    """A connection to the server, or that of a client."""
    if server is not None:
        with socket.create_connection((server, port), 30) as line:
            yield line
    else:
        with socket.create_server(("", port)) as listener, listener.accept()[0] as line:
            yield line


def main(kind: type[End], ask: Callable[[Any], None], serve: Callable[[Any], None]) -> None:
    """Be one of both ends."""
    device, gid_index, port, server = [*sys.argv[1:], None][:4]
    with line_to_the_other(int(port or 0), server) as line:
        (serve if server is None else ask)(kind(str(device), int(gid_index or 0), line))


if __name__ == "__main__":
    main(End, ask, serve)
