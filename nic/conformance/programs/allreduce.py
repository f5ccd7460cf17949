"""An MPI program that checks what it gets: an allreduce, an alltoall and a ring, in sizes for every protocol."""

from __future__ import annotations

import sys
from array import array

from mpi4py import MPI

SIZES = (1, 100, 10_000, 200_000)


def main() -> None:
    """Run all three on all ranks; rank 0 says how many nodes took part."""
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    for count in SIZES:
        summed = array("q", bytes(8 * count))
        world.Allreduce(array("q", (rank * count + each for each in range(count))), summed)
        ranks = sum(range(size))
        check(summed == array("q", (ranks * count + size * each for each in range(count))), f"allreduce of {count}")

        each_count = max(1, count // size)
        sent = array("q", (rank * 1_000_000 + to for to in range(size) for _ in range(each_count)))
        received = array("q", bytes(8 * each_count * size))
        world.Alltoall(sent, received)
        wanted = array("q", (source * 1_000_000 + rank for source in range(size) for _ in range(each_count)))
        check(received == wanted, f"alltoall of {each_count}")

        passed = array("q", bytes(8 * count))
        world.Sendrecv(array("q", [rank] * count), (rank + 1) % size, recvbuf=passed, source=(rank - 1) % size)
        check(passed == array("q", [(rank - 1) % size] * count), f"ring of {count}")
    nodes = set(world.allgather(MPI.Get_processor_name()))
    if rank == 0:
        print(f"{size} ranks on {len(nodes)} nodes: all data right, {MPI.Get_library_version().split(chr(10))[0]}")


def check(is_right: bool, what: str) -> None:
    """End all ranks if data is wrong."""
    if not is_right:
        print(f"rank {MPI.COMM_WORLD.Get_rank()}: wrong data: {what}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


if __name__ == "__main__":
    main()
