/* Collectives: blocking, non-blocking with computation, persistent, and those between neighbours.
 */
#pragma once

#include "mpi/run.h"

/* The table of the group. */
extern const struct benchmark collective_benchmarks[];

#define COLLECTIVE_ROOT 0

/* What the calls need beside the buffers, for one size. */
struct collective {
    /* Every rank the same count, one after the other: the v and w forms, which is what OMB
     * measures. */
    int *counts;
    int *displacements;       /* in elements */
    int *displacements_bytes; /* alltoallw */
    MPI_Datatype *types;      /* alltoallw */
    int *parts;               /* reduce_scatter: elements of each rank, all in run->count */
    MPI_Request request;      /* persistent forms */
};

/* Fill run->state with one of these, and take it down. The second pair makes and frees the
 * persistent request, too. */
void collective_open(struct run *run);
void collective_close(struct run *run);
void collective_open_persistent(struct run *run);
void collective_close_persistent(struct run *run);

/* Starts the request and waits for it. */
void collective_step_persistent(struct run *run);
