#include "mesh/mesh.h"

#include "collective/content.h"
#include "mpi/timing.h"
#include "mpi/units.h"

/* 1 Mi ints for each pair of ranks, as in the study. */
#define PAIR_BYTES (4u << 20)

static void step(struct run *run)
{
    MPI_Alltoall(run->send, run->count, run->datatype->mpi, run->recv, run->count,
                 run->datatype->mpi, run->comm);
}

/* What leaves a rank for others, by the mean time of a step; a rank's block for itself does not
 * count. */
static void measure(struct run *run, struct sample *sample)
{
    double bytes = (double)run->size_bytes * (run->ranks - 1);

    timing_in_a_row(run);
    double mean_ns = timing_total_ns(run) / (double)run->iterations;

    MPI_Allreduce(MPI_IN_PLACE, &mean_ns, 1, MPI_DOUBLE, MPI_SUM, run->comm);
    double rank_mb_per_s = bytes / (mean_ns / run->ranks) * MB_PER_S_PER_BYTE_PER_NS;

    sample->values[METRIC_PER_RANK] = rank_mb_per_s;
    sample->values[METRIC_PER_NODE] = rank_mb_per_s * run->ranks / run->nodes;
    sample->values[METRIC_TOTAL] = rank_mb_per_s * run->ranks;
    sample->spread = (struct spread){METRIC_PER_RANK, run->times_ns, run->iterations,
                                     bytes * MB_PER_S_PER_BYTE_PER_NS, .is_rate = true};
}

static const struct column columns[] = {{METRIC_PER_RANK, false},
                                        {METRIC_PER_NODE, false},
                                        {METRIC_TOTAL, false},
                                        {METRIC_ITERATIONS, true},
                                        {METRIC_END, false}};

static const struct method method = {measure, columns, {8192, 100, 10, 10, 1}};

const struct benchmark mesh_benchmarks[] = {
    {"mesh", "Full Mesh Alltoall", SHAPE_ALL, &method, &content_alltoall,
     .size_min_bytes = PAIR_BYTES, .size_max_bytes = PAIR_BYTES, .step = step},
    {.name = NULL},
};
