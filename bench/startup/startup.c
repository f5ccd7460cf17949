#include "startup/startup.h"

#include "mpi/units.h"

/* It happened once, before everything else. */
static void measure_init(struct run *run, struct sample *sample)
{
    double init_us = (double)run->init_ns * US_PER_NS;
    double sum_us, fastest_us, slowest_us;

    MPI_Allreduce(&init_us, &sum_us, 1, MPI_DOUBLE, MPI_SUM, run->comm);
    MPI_Allreduce(&init_us, &fastest_us, 1, MPI_DOUBLE, MPI_MIN, run->comm);
    MPI_Allreduce(&init_us, &slowest_us, 1, MPI_DOUBLE, MPI_MAX, run->comm);
    run->iterations = 1;
    run->warmup = 0;
    sample->values[METRIC_INIT] = sum_us / run->ranks;
    sample->values[METRIC_INIT_MIN] = fastest_us;
    sample->values[METRIC_INIT_MAX] = slowest_us;
}

static const struct column columns[] = {
    {METRIC_INIT, false}, {METRIC_INIT_MIN, false}, {METRIC_INIT_MAX, false}, {METRIC_END, false}};

static const struct method method_init = {measure_init, columns, {0, 1, 1, 0, 0}};

const struct benchmark startup_benchmarks[] = {
    {"init", "Init", SHAPE_ANY, &method_init},
    {.name = NULL},
};
