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
    MPI_Aint *addresses;      /* neighbor_alltoallw: displacements in bytes */
    MPI_Comm comm;            /* of the neighbours, which are a graph; else MPI_COMM_NULL */
    MPI_Request request;      /* persistent forms */
};

/*
 * Fill run->state with one of these, for a call among all ranks or among neighbours, and take it
 * down. The persistent forms make and free the request, too.
 */
void collective_open(struct run *run);
void collective_open_persistent(struct run *run);
void neighbour_open(struct run *run);
void neighbour_open_persistent(struct run *run);
void collective_close(struct run *run);
void collective_close_persistent(struct run *run);

/*
 * Neighbours are those on a periodic grid (-N cart:D:R): in each of D dimensions up to R steps
 * away, both ways. How many, and what rank `index` of those to send to (or, negative `direction`,
 * to receive from) is: a block sent as the index-th arrives as the index-th.
 */
int neighbour_count(const struct run *run);
int neighbour_rank(const struct run *run, int index, int direction);

/* Starts the request and waits for it. */
void collective_step_persistent(struct run *run);
