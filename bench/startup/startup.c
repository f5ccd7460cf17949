#include "startup/startup.h"

#include "mpi/units.h"

#define TAG 1

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

/*
 * The first message from each rank to each other, in rounds in which every rank sends and receives:
 * what a library that connects on demand spends on connections. Only the first benchmark of a run
 * finds none there yet.
 */
static void measure_hello(struct run *run, struct sample *sample)
{
    MPI_Barrier(run->comm);
    double start_s = MPI_Wtime();

    for (int distance = 1; distance < run->ranks; distance++) {
        int to = (run->rank + distance) % run->ranks;
        int from = (run->rank + run->ranks - distance) % run->ranks;
        int name = -1;

        MPI_Sendrecv(&run->rank, 1, MPI_INT, to, TAG, &name, 1, MPI_INT, from, TAG, run->comm,
                     MPI_STATUS_IGNORE);
        run->wrong_bytes += name == from ? 0 : sizeof name;
    }
    double contact_us = (MPI_Wtime() - start_s) * NS_PER_S * US_PER_NS;
    double sum_us, slowest_us;

    MPI_Allreduce(&contact_us, &sum_us, 1, MPI_DOUBLE, MPI_SUM, run->comm);
    MPI_Allreduce(&contact_us, &slowest_us, 1, MPI_DOUBLE, MPI_MAX, run->comm);
    run->iterations = 1;
    run->warmup = 0;
    sample->values[METRIC_CONTACT] = sum_us / run->ranks;
    sample->values[METRIC_CONTACT_MAX] = slowest_us;
}

static const struct column hello_columns[] = {
    {METRIC_CONTACT, false}, {METRIC_CONTACT_MAX, false}, {METRIC_END, false}};

static const struct method method_init = {measure_init, columns, {0, 1, 1, 0, 0}};

static const struct method method_hello = {measure_hello, hello_columns, {0, 1, 1, 0, 0}};

const struct benchmark startup_benchmarks[] = {
    {"init", "Init", SHAPE_ANY, &method_init},
    {"hello", "Hello World", SHAPE_ALL, &method_hello},
    {.name = NULL},
};
