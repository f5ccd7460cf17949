/* A window of memory that the peer reads and writes: how it is made, and the epochs in which it is
 * used. */
#pragma once

#include "mpi/run.h"

#include <mpi.h>
#include <stdint.h>

/* What run->state is in this group. */
struct window {
    MPI_Win win;
    uint8_t *memory;  /* this rank's part */
    MPI_Aint at_peer; /* displacement of the peer's part */
    MPI_Group peer;   /* pscw */
    bool both_act;    /* the second rank's operations come to the first, too */
    int64_t operands[2];
    int64_t swaps; /* of compare-and-swap, since the data was prepared */
};

/*
 * As -w and -s say; with flush forms, the epoch lasts until window_close. For operations of the
 * first rank alone; of both in turn where the synchronisation asks both to act (pscw), as in a
 * ping-pong; or of both at once.
 */
void window_open_one_way(struct run *run);
void window_open_in_turn(struct run *run);
void window_open_both_ways(struct run *run);
void window_close(struct run *run);

/* Waits for the other rank and for all that is under way in the window; begins loads and stores of
 * this rank to its own part. */
void window_begin_local(struct run *run);

/* Ends them: the peer may use it from the next barrier on. */
void window_end_local(struct run *run);

/* One epoch in which `issue` starts operations to the peer, on the ranks that act. */
void window_epoch(struct run *run, void (*issue)(struct run *run));

/* The same, of both ranks at once; with pscw and fence only. */
void window_epoch_both_ways(struct run *run, void (*issue)(struct run *run));
