"""An MPI program: alltoalls of many sizes with their data checked, for so many seconds."""

from __future__ import annotations

import sys
import time
from array import array

from mpi4py import MPI

#: What is printed once all ranks have met.
UNDER_WAY = "under way"
#: Numbers of 8 bytes from each rank to each, for every protocol.
COUNTS = (1, 100, 2_000, 20_000)


def main() -> None:
    """Exchange until the time is up, which rank 0 says; it also says how often."""
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    # The time counts from when all ranks have met: to start them takes long where they share
    # processors.
    end_s = float("inf")
    rounds = 0
    while world.bcast(time.monotonic() < end_s):
        for count in COUNTS:
            sent = array("q", (each for to in range(size) for each in (rank, to, rounds, count))) * count
            received = array("q", bytes(8 * len(sent)))
            world.Alltoall(sent, received)
            # Of each rank's data the block for this one.
            length = len(sent) // size
            for source in range(size):
                theirs = array("q", (each for to in range(size) for each in (source, to, rounds, count))) * count
                if received[source * length : (source + 1) * length] != theirs[rank * length : (rank + 1) * length]:
                    print(f"rank {rank}: wrong data from {source}, {count} times, round {rounds}", flush=True)
                    world.Abort(1)
        rounds += 1
        if rank == 0 and rounds == 1:
            print(UNDER_WAY, flush=True)
            end_s = time.monotonic() + float(sys.argv[1])
    if rank == 0:
        print(f"{size} ranks, {rounds} rounds: all data right")


main()
