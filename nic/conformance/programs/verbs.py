"""A program over pyverbs: a device, its attributes, memory, and two connected queue pairs that exchange messages.

Usage: verbs.py DEVICE
"""

from __future__ import annotations

import sys
from enum import EnumType
from types import SimpleNamespace

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ, WC
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

try:
    from pyverbs import enums
except ImportError:
    # rdma-core 65 has each in the enumeration that it has in C.
    from pyverbs import libibverbs_enums

    kinds = [kind for kind in vars(libibverbs_enums).values() if isinstance(kind, EnumType)]
    members: dict[str, object] = {name: kind[name] for kind in kinds for name in kind.__members__}
    enums = SimpleNamespace(**members)

BYTES = 4096
ACCESS = enums.IBV_ACCESS_LOCAL_WRITE | enums.IBV_ACCESS_REMOTE_WRITE | enums.IBV_ACCESS_REMOTE_READ


def connect(qp: QP, to: QP, gid: object) -> None:
    """Connect a queue pair to another of the same device."""
    attributes = QPAttr(port_num=1)
    attributes.qp_access_flags = ACCESS
    attributes.dest_qp_num = to.qp_num
    attributes.path_mtu = enums.IBV_MTU_1024
    attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
    attributes.min_rnr_timer, attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = 12, 14, 7, 7
    attributes.ah_attr = AHAttr(port_num=1, is_global=1, gr=GlobalRoute(dgid=gid, sgid_index=0))
    qp.to_rts(attributes)


def completion(cq: CQ) -> WC:
    """The next completion, which has to be a success."""
    count, found = 0, []
    while count == 0:
        count, found = cq.poll()
    if found[0].status != enums.IBV_WC_SUCCESS:
        sys.exit(f"completion with status {found[0].status}")
    return found[0]


def main() -> None:
    """Send a message, and write another."""
    with Context(name=sys.argv[1]) as context, PD(context) as pd:
        print(f"{context.name}: {context.query_device().max_qp} queue pairs")
        cqs = [CQ(context, 10) for _ in range(2)]
        regions = [MR(pd, BYTES, ACCESS) for _ in range(2)]
        initial = QPAttr(port_num=1)
        initial.qp_access_flags = ACCESS
        cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
        qps = [QP(pd, QPInitAttr(qp_type=enums.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap), initial) for cq in cqs]
        gid = context.query_gid(port_num=1, index=0)
        for qp, other in (qps, qps[::-1]):
            connect(qp, other, gid)

        regions[0].write("s" * BYTES, BYTES)
        qps[1].post_recv(RecvWR(sg=[SGE(regions[1].buf, BYTES, regions[1].lkey)], num_sge=1))
        source = SGE(regions[0].buf, BYTES, regions[0].lkey)
        qps[0].post_send(SendWR(sg=[source], num_sge=1))
        completion(cqs[0])
        received = completion(cqs[1])
        if received.byte_len != BYTES or regions[1].read(BYTES, 0) != b"s" * BYTES:
            sys.exit("something else was received")

        regions[0].write("w" * BYTES, BYTES)
        write = SendWR(sg=[source], num_sge=1, opcode=enums.IBV_WR_RDMA_WRITE)
        write.set_wr_rdma(regions[1].rkey, regions[1].buf)
        qps[0].post_send(write)
        completion(cqs[0])
        if regions[1].read(BYTES, 0) != b"w" * BYTES:
            sys.exit("something else was written")
        print("all data right")


if __name__ == "__main__":
    main()
