/*
 * Every collective once: C(name, MPI's name, what moves, whether it adds up, the arguments that all
 * its forms share). `run` is the run and `state` its struct collective. Adding a collective is a
 * line here (and what moves, in content.c).
 */
#pragma once

#define TYPE run->datatype->mpi
#define NUMBER run->datatype->number
#define SEND run->send, run->count, TYPE
#define RECV run->recv, run->count, TYPE
#define SEND_V run->send, state->counts, state->displacements, TYPE
#define RECV_V run->recv, state->counts, state->displacements, TYPE
#define ROOT COLLECTIVE_ROOT, run->comm
#define SUM run->send, run->recv, run->count, NUMBER, MPI_SUM

#define COLLECTIVES(C)                                                                             \
    C(bcast, Bcast, bcast, false,                                                                  \
      (run->rank == COLLECTIVE_ROOT ? run->send : run->recv, run->count, TYPE, ROOT))              \
    C(gather, Gather, gather, false, (SEND, RECV, ROOT))                                           \
    C(gatherv, Gatherv, gather, false, (SEND, RECV_V, ROOT))                                       \
    C(scatter, Scatter, scatter, false, (SEND, RECV, ROOT))                                        \
    C(scatterv, Scatterv, scatter, false, (SEND_V, RECV, ROOT))                                    \
    C(allgather, Allgather, allgather, false, (SEND, RECV, run->comm))                             \
    C(allgatherv, Allgatherv, allgather, false, (SEND, RECV_V, run->comm))                         \
    C(alltoall, Alltoall, alltoall, false, (SEND, RECV, run->comm))                                \
    C(alltoallv, Alltoallv, alltoall, false, (SEND_V, RECV_V, run->comm))                          \
    C(alltoallw, Alltoallw, alltoall, false,                                                       \
      (run->send, state->counts, state->displacements_bytes, state->types, run->recv,              \
       state->counts, state->displacements_bytes, state->types, run->comm))                        \
    C(reduce, Reduce, reduce, true, (SUM, ROOT))                                                   \
    C(allreduce, Allreduce, allreduce, true, (SUM, run->comm))                                     \
    C(reduce_scatter, Reduce_scatter, reduce_scatter, true,                                        \
      (run->send, run->recv, state->parts, NUMBER, MPI_SUM, run->comm))                            \
    C(reduce_scatter_block, Reduce_scatter_block, reduce_scatter_block, true, (SUM, run->comm))    \
    C(scan, Scan, scan, true, (SUM, run->comm))                                                    \
    C(exscan, Exscan, exscan, true, (SUM, run->comm))

/* The arguments without their parentheses. */
#define BARE(...) __VA_ARGS__
