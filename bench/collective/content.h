/* What moves in each collective, and what must have arrived. */
#pragma once

#include "mpi/run.h"

extern const struct content content_bcast;
extern const struct content content_gather;
extern const struct content content_scatter;
extern const struct content content_allgather;
extern const struct content content_alltoall;
extern const struct content content_reduce;
extern const struct content content_allreduce;
extern const struct content content_reduce_scatter;
extern const struct content content_reduce_scatter_block;
extern const struct content content_scan;
extern const struct content content_exscan;
extern const struct content content_neighbour_allgather;
extern const struct content content_neighbour_alltoall;
