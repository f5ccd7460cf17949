/*
 * Every collective once: C(name, MPI's name, among which ranks, what moves, whether it adds up, the
 * arguments that all its forms share). Among all ranks is `collective`, among neighbours
 * `neighbour`: the prefix of what opens it. `run` is the run and `state` its struct collective.
 * Adding a collective is a line here (and what moves, in content.c).
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
    C(bcast, Bcast, collective, bcast, false,                                                      \
      (run->rank == COLLECTIVE_ROOT ? run->send : run->recv, run->count, TYPE, ROOT))              \
    C(gather, Gather, collective, gather, false, (SEND, RECV, ROOT))                               \
    C(gatherv, Gatherv, collective, gather, false, (SEND, RECV_V, ROOT))                           \
    C(scatter, Scatter, collective, scatter, false, (SEND, RECV, ROOT))                            \
    C(scatterv, Scatterv, collective, scatter, false, (SEND_V, RECV, ROOT))                        \
    C(allgather, Allgather, collective, allgather, false, (SEND, RECV, run->comm))                 \
    C(allgatherv, Allgatherv, collective, allgather, false, (SEND, RECV_V, run->comm))             \
    C(alltoall, Alltoall, collective, alltoall, false, (SEND, RECV, run->comm))                    \
    C(alltoallv, Alltoallv, collective, alltoall, false, (SEND_V, RECV_V, run->comm))              \
    C(alltoallw, Alltoallw, collective, alltoall, false,                                           \
      (run->send, state->counts, state->displacements_bytes, state->types, run->recv,              \
       state->counts, state->displacements_bytes, state->types, run->comm))                        \
    C(reduce, Reduce, collective, reduce, true, (SUM, ROOT))                                       \
    C(allreduce, Allreduce, collective, allreduce, true, (SUM, run->comm))                         \
    C(reduce_scatter, Reduce_scatter, collective, reduce_scatter, true,                            \
      (run->send, run->recv, state->parts, NUMBER, MPI_SUM, run->comm))                            \
    C(reduce_scatter_block, Reduce_scatter_block, collective, reduce_scatter_block, true,          \
      (SUM, run->comm))                                                                            \
    C(scan, Scan, collective, scan, true, (SUM, run->comm))                                        \
    C(exscan, Exscan, collective, exscan, true, (SUM, run->comm))

#define NEIGHBOURS(C)                                                                              \
    C(neighbor_allgather, Neighbor_allgather, neighbour, neighbour_allgather, false,               \
      (SEND, RECV, state->comm))                                                                   \
    C(neighbor_allgatherv, Neighbor_allgatherv, neighbour, neighbour_allgather, false,             \
      (SEND, RECV_V, state->comm))                                                                 \
    C(neighbor_alltoall, Neighbor_alltoall, neighbour, neighbour_alltoall, false,                  \
      (SEND, RECV, state->comm))                                                                   \
    C(neighbor_alltoallv, Neighbor_alltoallv, neighbour, neighbour_alltoall, false,                \
      (SEND_V, RECV_V, state->comm))                                                               \
    C(neighbor_alltoallw, Neighbor_alltoallw, neighbour, neighbour_alltoall, false,                \
      (run->send, state->counts, state->addresses, state->types, run->recv, state->counts,         \
       state->addresses, state->types, state->comm))

/* The arguments without their parentheses. */
#define BARE(...) __VA_ARGS__
