/* The method of non-blocking calls: how much of the call hides behind computation. */

#include "mpi/methods.h"
#include "mpi/timing.h"
#include "mpi/units.h"
#include "mpi/work.h"

#define LARGE_BYTES 8192

/* One iteration: start, compute, wait. No work: the call alone. Returns its nanoseconds. */
static double once(struct run *run, struct work work)
{
    MPI_Request request = MPI_REQUEST_NULL;

    MPI_Barrier(run->comm);
    double start_s = MPI_Wtime();

    run->benchmark->start(run, &request);
    if (work.rounds > 0)
        work_do(work, run->options->test_calls, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return (MPI_Wtime() - start_s) * NS_PER_S;
}

/* Mean of this rank over the iterations, after the warm-up; with the data checked as the user wants
 * it. */
static double mean_ns(struct run *run, struct work work)
{
    bool each = run->options->validate_each;
    double total_ns = 0;

    for (uint64_t i = 0; i < run->warmup; i++)
        once(run, work);
    for (uint64_t i = 0; i < run->iterations; i++) {
        if (each || i == 0)
            timing_prepare(run);
        total_ns += once(run, work);
        if (each || i + 1 == run->iterations)
            timing_check(run);
    }
    return total_ns / (double)run->iterations;
}

/* The work without the call. */
static double work_ns(const struct run *run, struct work work)
{
    double start_s = MPI_Wtime();

    for (uint64_t i = 0; i < run->iterations; i++)
        work_do(work, 0, NULL);
    return (MPI_Wtime() - start_s) * NS_PER_S / (double)run->iterations;
}

/* The mean over the ranks; or rank 0's alone, if only it computes. */
static double agree(const struct run *run, bool all, double value)
{
    if (!all && run->rank != 0)
        value = 0;
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, run->comm);
    return all ? value / run->ranks : value;
}

static void measure(struct run *run, struct sample *sample, bool all)
{
    bool computes = all || run->rank == 0;
    double pure_ns = agree(run, all, mean_ns(run, (struct work){0}));
    struct work work = {0};

    if (computes)
        work = work_of_ns(pure_ns);
    MPI_Barrier(run->comm);
    double compute_ns = agree(run, all, work_ns(run, work));
    double overall_ns = agree(run, all, mean_ns(run, work));
    double exposed_ns = overall_ns > compute_ns ? overall_ns - compute_ns : 0;

    sample->values[METRIC_OVERALL] = overall_ns * US_PER_NS;
    sample->values[METRIC_COMPUTE] = compute_ns * US_PER_NS;
    sample->values[METRIC_PURE] = pure_ns * US_PER_NS;
    sample->values[METRIC_OVERLAP] = exposed_ns < pure_ns ? 100 * (1 - exposed_ns / pure_ns) : 0;
}

static void measure_all(struct run *run, struct sample *sample)
{
    measure(run, sample, true);
}

static void measure_first(struct run *run, struct sample *sample)
{
    measure(run, sample, false);
}

static const struct column overlap_columns[] = {{METRIC_OVERALL, false},   {METRIC_COMPUTE, false},
                                                {METRIC_PURE, false},      {METRIC_OVERLAP, false},
                                                {METRIC_ITERATIONS, true}, {METRIC_END, false}};

const struct method method_overlap_one = {
    measure_first, overlap_columns, {LARGE_BYTES, 1000, 100, 100, 10}};
const struct method method_overlap = {
    measure_all, overlap_columns, {LARGE_BYTES, 1000, 100, 100, 10}};
