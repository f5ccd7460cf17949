#include "imb/imb.h"

#include "imb/transfers.h"
#include "mpi/timing.h"
#include "mpi/units.h"
#include "pt2pt/content.h"
#include "pt2pt/forms.h"

/* IMB's own numbers: repetitions, the volume and the seconds of one size, warm-up. */
#define REPETITIONS 1000
#define VOLUME_BYTES (40u << 20)
#define LIMIT_S 10.0
#define WARM_UP 2
#define SIZE_MAX_BYTES (4u << 20)

/* This rank's mean step. */
static double step_ns(struct run *run)
{
    if (run->options->iterations == 0)
        timing_limit(run, LIMIT_S);
    timing_in_a_row(run);
    return timing_total_ns(run) / (double)run->iterations;
}

static double over_ranks(const struct run *run, double value, MPI_Op operation)
{
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, operation, run->comm);
    return value;
}

static void set_spread(const struct run *run, struct sample *sample, enum metric metric,
                       double scale, bool is_rate)
{
    sample->spread =
        (struct spread){metric, run->times_ns, run->iterations, scale, .is_rate = is_rate};
}

/* PingPong, PingPing: rank 0's time; `share` of a step is one message. */
static void measure_single(struct run *run, struct sample *sample, double share)
{
    double message_ns = step_ns(run) * share;

    sample->values[METRIC_T] = message_ns * US_PER_NS;
    sample->values[METRIC_IMB_BANDWIDTH] =
        (double)run->size_bytes / message_ns * MB_PER_S_PER_BYTE_PER_NS;
    set_spread(run, sample, METRIC_T, US_PER_NS * share, false);
}

static void measure_ping_pong(struct run *run, struct sample *sample)
{
    measure_single(run, sample, 0.5);
}

static void measure_ping_ping(struct run *run, struct sample *sample)
{
    measure_single(run, sample, 1);
}

/* Sendrecv, Exchange: the slowest rank's time counts; every rank sends and receives `messages` in
 * all. */
static void measure_parallel(struct run *run, struct sample *sample, int messages)
{
    double mean_ns = step_ns(run);
    double slowest_ns = over_ranks(run, mean_ns, MPI_MAX);

    sample->values[METRIC_T_MIN] = over_ranks(run, mean_ns, MPI_MIN) * US_PER_NS;
    sample->values[METRIC_T_MAX] = slowest_ns * US_PER_NS;
    sample->values[METRIC_T_AVG] = over_ranks(run, mean_ns, MPI_SUM) / run->ranks * US_PER_NS;
    sample->values[METRIC_IMB_BANDWIDTH] =
        messages * (double)run->size_bytes / slowest_ns * MB_PER_S_PER_BYTE_PER_NS;
    set_spread(run, sample, METRIC_T_AVG, US_PER_NS, false);
}

static void measure_sendrecv(struct run *run, struct sample *sample)
{
    measure_parallel(run, sample, 2);
}

static void measure_exchange(struct run *run, struct sample *sample)
{
    measure_parallel(run, sample, 4);
}

/* Uniband, Biband: a window in each direction, all pairs at once. */
static void measure_bands(struct run *run, struct sample *sample, int directions)
{
    double messages = (double)run->window * run->pairs * directions;
    double bytes = messages * (double)run->size_bytes;
    double slowest_ns = over_ranks(run, step_ns(run), MPI_MAX);

    sample->values[METRIC_IMB_BANDWIDTH] = bytes / slowest_ns * MB_PER_S_PER_BYTE_PER_NS;
    sample->values[METRIC_IMB_MESSAGE_RATE] = messages / slowest_ns * NS_PER_S;
    set_spread(run, sample, METRIC_IMB_BANDWIDTH, bytes * MB_PER_S_PER_BYTE_PER_NS, true);
}

static void measure_uniband(struct run *run, struct sample *sample)
{
    measure_bands(run, sample, 1);
}

static void measure_biband(struct run *run, struct sample *sample)
{
    measure_bands(run, sample, 2);
}

static const struct column single[] = {
    {METRIC_T, false}, {METRIC_IMB_BANDWIDTH, false}, {METRIC_END, false}};
static const struct column parallel[] = {{METRIC_T_MIN, false},
                                         {METRIC_T_MAX, false},
                                         {METRIC_T_AVG, false},
                                         {METRIC_IMB_BANDWIDTH, false},
                                         {METRIC_END, false}};
static const struct column bands[] = {
    {METRIC_IMB_BANDWIDTH, false}, {METRIC_IMB_MESSAGE_RATE, false}, {METRIC_END, false}};

#define SCHEDULE {0, REPETITIONS, REPETITIONS, WARM_UP, WARM_UP, VOLUME_BYTES}

static const struct method ping_pong = {measure_ping_pong, single, SCHEDULE, .imb = true};
static const struct method ping_ping = {measure_ping_ping, single, SCHEDULE, .imb = true};
static const struct method sendrecv = {measure_sendrecv, parallel, SCHEDULE, .imb = true};
static const struct method exchange = {measure_exchange, parallel, SCHEDULE, .imb = true};
static const struct method uniband = {measure_uniband, bands, SCHEDULE, .imb = true};
static const struct method biband = {measure_biband, bands, SCHEDULE, .imb = true};

/* IMB starts at 0 bytes. */
#define SIZES .size_min_bytes = 0, .size_max_bytes = SIZE_MAX_BYTES
#define WINDOW .open = forms_window_open, .close = forms_window_close, .parameters = "wp"

const struct benchmark imb_benchmarks[] = {
    {"PingPong", "PingPong", SHAPE_PAIR, &ping_pong, &content_exchange, SIZES,
     .step = forms_ping_pong},
    {"PingPing", "PingPing", SHAPE_PAIR, &ping_ping, &imb_content_ping_ping, SIZES,
     .step = imb_ping_ping},
    {"Sendrecv", "Sendrecv", SHAPE_ALL, &sendrecv, &imb_content_sendrecv, SIZES,
     .step = imb_sendrecv},
    {"Exchange", "Exchange", SHAPE_ALL, &exchange, &imb_content_exchange, SIZES,
     .step = imb_exchange},
    {"Uniband", "Uniband", SHAPE_PAIRS, &uniband, &content_window, SIZES, WINDOW,
     .step = forms_window_one_way},
    {"Biband", "Biband", SHAPE_PAIRS, &biband, &content_window_both_ways, SIZES, WINDOW,
     .step = forms_window_both_ways},
    {.name = NULL},
};
