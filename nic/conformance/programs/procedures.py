"""Calls of PyTorch's RPC whose tensors TensorPipe moves with verbs: the client has the server add one to each element.

Usage: procedures.py server|client SERVER INTERFACE

SERVER is an address of the server, INTERFACE the network interface of the end that this is. Where they find each other
is told over TCP.
"""

from __future__ import annotations

import os
import sys

#: From one element to several of TensorPipe's ring buffers of 2 MiB, in 4-byte elements.
COUNTS = (1, 1_000, 2_000_000)
PORT = 18515


def main(role: str, server: str, interface: str) -> None:
    """Call and check, or answer until the client has all it wants."""
    os.environ["TP_SOCKET_IFNAME"] = interface
    import torch  # noqa: PLC0415  it looks at the environment
    from torch.distributed import rpc  # noqa: PLC0415

    options = rpc.TensorPipeRpcBackendOptions(
        init_method=f"tcp://{server}:{PORT}", _transports=["ibv"], _channels=["basic"]
    )
    rpc.init_rpc(role, rank=("server", "client").index(role), world_size=2, rpc_backend_options=options)
    if role == "client":
        for count in COUNTS:
            given = torch.arange(count, dtype=torch.float32)
            if not torch.equal(rpc.rpc_sync("server", torch.add, args=(given, 1)), given + 1):
                sys.exit(f"something else came back for {count} elements")
        print("all data right", flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
