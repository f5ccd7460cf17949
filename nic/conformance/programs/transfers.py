"""Libraries that move memory between hosts: the client writes to the server's, reads it back, and both look at it.

Usage: transfers.py LIBRARY server|client SERVER OWN DEVICE

LIBRARY is one of the functions below, SERVER and OWN are addresses. What the ends have to know of each other goes over
TCP.
"""

from __future__ import annotations

import base64
import json
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

PORT = 18515
LIMIT_S = 120.0
BYTES = 1 << 20
DATA = np.random.default_rng(7).integers(0, 256, BYTES, np.uint8)


@dataclass
class End:
    """One of the two: its memory, and a line to the other."""

    is_server: bool
    server: str
    own: str
    device: str

    def __post_init__(self) -> None:
        #: What is written, and then what is read; of the server only the first half is used.
        self.memory = np.zeros(2 * BYTES, np.uint8)
        self.address: int = self.memory.ctypes.data
        if not self.is_server:
            self.memory[:BYTES] = DATA

    def meet(self) -> None:
        """Wait for the other end."""
        if self.is_server:
            with socket.create_server((self.server, PORT)) as listener:
                listener.settimeout(LIMIT_S)
                self._connection, _ = listener.accept()
        else:
            self._connection = socket.create_connection((self.server, PORT), LIMIT_S)
        self._connection.settimeout(LIMIT_S)
        self._lines = self._connection.makefile(encoding="utf-8")

    def tell(self, value: object) -> None:
        """Tell the other end."""
        self._connection.sendall(f"{json.dumps(value)}\n".encode())

    def hear(self) -> Any:
        """What the other end tells."""
        if not (line := self._lines.readline()):
            sys.exit("the other end has gone")
        return json.loads(line)

    def finish(self) -> None:
        """Look at the memory, once the client has had all its completions, and go when both have."""
        if self.is_server:
            self.hear()
        else:
            self.tell("done")
        where = slice(0, BYTES) if self.is_server else slice(BYTES, 2 * BYTES)
        if not np.array_equal(self.memory[where], DATA):
            sys.exit("something else arrived")
        if self.is_server:
            self.tell("seen")
        else:
            self.hear()
        print("all data right", flush=True)


def mooncake(end: End) -> None:
    """Mooncake's transfer engine, which takes TCP where it finds no RDMA."""
    from mooncake.engine import TransferEngine  # noqa: PLC0415  each library alone may be there

    engine = TransferEngine()
    check("the start", engine.initialize(end.own, "P2PHANDSHAKE", "rdma", end.device))
    check("the registration", engine.register_memory(end.address, end.memory.nbytes))
    end.meet()
    end.tell({"segment": f"{end.own}:{engine.get_rpc_port()}", "address": end.address})
    peer = end.hear()
    if not end.is_server:
        check("the write", engine.transfer_sync_write(peer["segment"], end.address, peer["address"], BYTES))
        check("the read", engine.transfer_sync_read(peer["segment"], end.address + BYTES, peer["address"], BYTES))
    end.finish()


def check(what: str, status: int) -> None:
    """End the program where a call of Mooncake failed."""
    if status != 0:
        sys.exit(f"{what} failed: {status}")


def nixl(end: End) -> None:
    """NIXL with its UCX backend and host memory."""
    from nixl_cu12._api import nixl_agent, nixl_agent_config  # noqa: PLC0415  each library alone may be there

    agent = nixl_agent("server" if end.is_server else "client", nixl_agent_config(backends=["UCX"]))
    registered = agent.register_memory([(end.address, end.memory.nbytes, 0, "")], "DRAM")
    end.meet()
    end.tell({"metadata": base64.b64encode(agent.get_agent_metadata()).decode(), "address": end.address})
    peer = end.hear()
    name = agent.add_remote_agent(base64.b64decode(peer["metadata"]))
    for operation, here in () if end.is_server else (("WRITE", end.address), ("READ", end.address + BYTES)):
        request = agent.initialize_xfer(
            operation,
            agent.get_xfer_descs([(here, BYTES, 0)], "DRAM"),
            agent.get_xfer_descs([(peer["address"], BYTES, 0)], "DRAM"),
            name,
        )
        state = agent.transfer(request)
        deadline_s = time.monotonic() + LIMIT_S
        while state == "PROC" and time.monotonic() < deadline_s:
            state = agent.check_xfer_state(request)
        if state != "DONE":
            sys.exit(f"the {operation} ended as {state}")
        request.release()
    end.finish()
    agent.deregister_memory(registered)


def ibverbs(end: End) -> None:
    """The package `ibverbs`: bindings that open libibverbs by themselves."""
    import ibverbs as ib  # noqa: PLC0415  each library alone may be there

    access = ib.AccessFlags.LOCAL_WRITE | ib.AccessFlags.REMOTE_WRITE | ib.AccessFlags.REMOTE_READ
    device = next(each for each in ib.get_device_list() if each.name == end.device)
    with (
        device.open() as context,
        context.alloc_pd() as pd,
        context.create_cq(16) as cq,
        pd.reg_mr(end.address, end.memory.nbytes, access) as mr,
        pd.create_qp(ib.QPInitAttr(send_cq=cq, recv_cq=cq, qp_type=ib.QPType.RC)) as qp,
    ):
        end.meet()
        own = ib.local_qp_info(qp, context.query_port(1), context.query_gid(1, 0), port=1)
        end.tell({"qp": own.to_bytes().hex(), "address": end.address, "rkey": mr.rkey})
        peer = end.hear()
        ib.connect_rc(qp, ib.QPInfo.from_bytes(bytes.fromhex(peer["qp"])), port=1, sgid_index=0, access=access)
        first, second = ib.SGE(mr, BYTES), ib.SGE(mr, BYTES, offset=BYTES)
        end.tell("ready")
        end.hear()
        codes = ib.WROpcode
        for code, elements in ((codes.RDMA_WRITE, first), (codes.RDMA_READ, second)) if not end.is_server else ():
            qp.post_send(
                ib.SendWR(
                    wr_id=int(code),
                    sg_list=[elements],
                    opcode=code,
                    send_flags=ib.SendFlags.SIGNALED,
                    remote_addr=peer["address"],
                    rkey=peer["rkey"],
                )
            )
            deadline_s = time.monotonic() + LIMIT_S
            while not (completions := cq.poll(1)) and time.monotonic() < deadline_s:
                pass
            completions[0].raise_for_status()
        end.finish()


if __name__ == "__main__":
    {"mooncake": mooncake, "nixl": nixl, "ibverbs": ibverbs}[sys.argv[1]](End(sys.argv[2] == "server", *sys.argv[3:]))
