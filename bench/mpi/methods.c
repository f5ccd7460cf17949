#include "mpi/methods.h"

#include "mpi/timing.h"
#include "mpi/units.h"

#include <string.h>

#define LARGE_BYTES 8192 /* from here on OMB does fewer iterations */

/* Makes rank 0's times the means, iteration by iteration, of the times of `contributors` ranks; the
 * others' are 0. */
static void mean_over_ranks(struct run *run, int contributors)
{
    MPI_Reduce(run->rank == 0 ? MPI_IN_PLACE : run->times_ns, run->times_ns, (int)run->iterations,
               MPI_UINT64_T, MPI_SUM, 0, run->comm);
    for (uint64_t i = 0; run->rank == 0 && i < run->iterations; i++)
        run->times_ns[i] /= (uint64_t)contributors;
}

static void mean_over_pairs(struct run *run)
{
    if (!run->sends)
        memset(run->times_ns, 0, run->iterations * sizeof *run->times_ns);
    if (run->pairs > 1)
        mean_over_ranks(run, run->pairs);
}

static void measure_ping_pong(struct run *run, struct sample *sample)
{
    timing_in_a_row(run);
    mean_over_pairs(run);
    sample->values[METRIC_LATENCY] = timing_total_ns(run) / (double)run->iterations / 2 * US_PER_NS;
    sample->spread = (struct spread){METRIC_LATENCY, run->times_ns, run->iterations, US_PER_NS / 2,
                                     .is_rate = false};
}

/* All pairs end when the slowest does: the rate is what all moved, by its time. */
static void measure_stream(struct run *run, struct sample *sample, int directions,
                           enum metric bandwidth)
{
    timing_in_a_row(run);
    double total_ns = run->sends ? timing_total_ns(run) : 0;
    double messages_a_step = (double)run->window * run->pairs * directions;
    double bytes_a_step = messages_a_step * (double)run->size_bytes;

    MPI_Allreduce(MPI_IN_PLACE, &total_ns, 1, MPI_DOUBLE, MPI_MAX, run->comm);
    mean_over_pairs(run);
    double step_ns = total_ns / (double)run->iterations;

    sample->values[bandwidth] = bytes_a_step / step_ns * MB_PER_S_PER_BYTE_PER_NS;
    sample->values[METRIC_MESSAGE_RATE] = messages_a_step / step_ns * NS_PER_S;
    sample->spread = (struct spread){bandwidth, run->times_ns, run->iterations,
                                     bytes_a_step * MB_PER_S_PER_BYTE_PER_NS, .is_rate = true};
}

static void measure_one_way(struct run *run, struct sample *sample)
{
    measure_stream(run, sample, 1, METRIC_BANDWIDTH);
}

static void measure_both_ways(struct run *run, struct sample *sample)
{
    measure_stream(run, sample, 2, METRIC_BANDWIDTH);
}

static void measure_pairs(struct run *run, struct sample *sample)
{
    measure_stream(run, sample, 1, METRIC_PAIRS_BANDWIDTH);
}

static void measure_collective(struct run *run, struct sample *sample)
{
    double mean_ns, slowest_ns, sum_ns, fastest_ns;

    timing_apart(run);
    mean_ns = timing_total_ns(run) / (double)run->iterations;
    MPI_Reduce(&mean_ns, &sum_ns, 1, MPI_DOUBLE, MPI_SUM, 0, run->comm);
    MPI_Reduce(&mean_ns, &fastest_ns, 1, MPI_DOUBLE, MPI_MIN, 0, run->comm);
    MPI_Reduce(&mean_ns, &slowest_ns, 1, MPI_DOUBLE, MPI_MAX, 0, run->comm);
    mean_over_ranks(run, run->ranks);
    if (run->rank != 0)
        return;
    sample->values[METRIC_LATENCY] = sum_ns / run->ranks * US_PER_NS;
    sample->values[METRIC_LATENCY_MIN] = fastest_ns * US_PER_NS;
    sample->values[METRIC_LATENCY_MAX] = slowest_ns * US_PER_NS;
    sample->spread = (struct spread){METRIC_LATENCY, run->times_ns, run->iterations, US_PER_NS,
                                     .is_rate = false};
}

static const struct column latency_columns[] = {{METRIC_LATENCY, false}, {METRIC_END, false}};
static const struct column stream_columns[] = {{METRIC_BANDWIDTH, false}, {METRIC_END, false}};
static const struct column pairs_columns[] = {
    {METRIC_PAIRS_BANDWIDTH, false}, {METRIC_MESSAGE_RATE, false}, {METRIC_END, false}};

static const struct column collective_columns[] = {{METRIC_LATENCY, false},
                                                   {METRIC_LATENCY_MIN, true},
                                                   {METRIC_LATENCY_MAX, true},
                                                   {METRIC_ITERATIONS, true},
                                                   {METRIC_END, false}};

/* As often as OMB does it. */
#define STREAM_SCHEDULE {LARGE_BYTES, 100, 20, 10, 2}

const struct method method_ping_pong = {
    measure_ping_pong, latency_columns, {LARGE_BYTES, 10000, 1000, 100, 10}};
const struct method method_stream = {measure_one_way, stream_columns, STREAM_SCHEDULE};
const struct method method_stream_both_ways = {measure_both_ways, stream_columns, STREAM_SCHEDULE};
const struct method method_stream_pairs = {measure_pairs, pairs_columns, STREAM_SCHEDULE};
const struct method method_collective = {
    measure_collective, collective_columns, {LARGE_BYTES, 1000, 100, 100, 10}};
