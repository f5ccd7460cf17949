#include "onesided/onesided.h"

#include "mpi/methods.h"
#include "mpi/timing.h"
#include "mpi/units.h"
#include "onesided/content.h"
#include "onesided/window.h"

#include <stdint.h>

/* The operations: one, or a window of them. */

static void put_at(struct run *run, int index)
{
    struct window *window = run->state;
    size_t offset = onesided_offset(run, index);

    MPI_Put(run->send + offset, run->count, run->datatype->mpi, run->peer,
            window->at_peer + (MPI_Aint)offset, run->count, run->datatype->mpi, window->win);
}

static void get_at(struct run *run, int index)
{
    struct window *window = run->state;
    size_t offset = onesided_offset(run, index);

    MPI_Get(run->recv + offset, run->count, run->datatype->mpi, run->peer,
            window->at_peer + (MPI_Aint)offset, run->count, run->datatype->mpi, window->win);
}

static void put_one(struct run *run)
{
    put_at(run, 0);
}

static void get_one(struct run *run)
{
    get_at(run, 0);
}

static void put_many(struct run *run)
{
    for (int i = 0; i < run->window; i++)
        put_at(run, i);
}

static void get_many(struct run *run)
{
    for (int i = 0; i < run->window; i++)
        get_at(run, i);
}

static void accumulate(struct run *run)
{
    struct window *window = run->state;

    MPI_Accumulate(run->send, run->count, run->datatype->number, run->peer, window->at_peer,
                   run->count, run->datatype->number, MPI_SUM, window->win);
}

static void get_accumulate(struct run *run)
{
    struct window *window = run->state;

    MPI_Get_accumulate(run->send, run->count, run->datatype->number, run->recv, run->count,
                       run->datatype->number, run->peer, window->at_peer, run->count,
                       run->datatype->number, MPI_SUM, window->win);
}

static void fetch_and_add(struct run *run)
{
    struct window *window = run->state;

    MPI_Fetch_and_op(run->send, run->recv, MPI_INT64_T, run->peer, window->at_peer, MPI_SUM,
                     window->win);
}

/* Counts: every swap finds what the one before left, or is without effect. The operands must live
 * until the epoch ends. */
static void compare_and_swap(struct run *run)
{
    struct window *window = run->state;
    int64_t *operands = window->operands;

    operands[0] = window->swaps++;
    operands[1] = window->swaps;
    MPI_Compare_and_swap(&operands[1], &operands[0], run->recv, MPI_INT64_T, run->peer,
                         window->at_peer, window->win);
}

/* The steps. */

#define LATENCY_STEP(operation)                                                                    \
    static void step_##operation(struct run *run)                                                  \
    {                                                                                              \
        window_epoch(run, operation);                                                              \
    }

LATENCY_STEP(put_one)
LATENCY_STEP(get_one)
LATENCY_STEP(accumulate)
LATENCY_STEP(get_accumulate)
LATENCY_STEP(fetch_and_add)
LATENCY_STEP(compare_and_swap)

static void step_put_many(struct run *run)
{
    window_epoch(run, put_many);
}

static void step_get_many(struct run *run)
{
    window_epoch(run, get_many);
}

static void step_put_both_ways(struct run *run)
{
    window_epoch_both_ways(run, put_many);
}

/* An operation with what completes it; of the pscw ping-pong, half. */
static void measure_latency(struct run *run, struct sample *sample)
{
    const struct window *window = run->state;
    double share = window->both_act ? 0.5 : 1;

    timing_in_a_row(run);
    sample->values[METRIC_LATENCY] =
        timing_total_ns(run) / (double)run->iterations * share * US_PER_NS;
    sample->spread = (struct spread){METRIC_LATENCY, run->times_ns, run->iterations,
                                     US_PER_NS * share, .is_rate = false};
}

static const struct column columns[] = {{METRIC_LATENCY, false}, {METRIC_END, false}};
static const struct method method_latency = {
    measure_latency, columns, {8192, 10000, 1000, 100, 10}};

static const char *problem_both_ways(const struct options *options)
{
    bool both_act = options->sync == SYNC_PSCW || options->sync == SYNC_FENCE;

    return options->has_sync && !both_act ? "needs -s pscw or -s fence" : NULL;
}

#define SIZES .size_min_bytes = 1, .size_max_bytes = 4u << 20
#define EIGHT_BYTES .size_min_bytes = 8, .size_max_bytes = 8, .fixed_size = true
#define LATENCY(content_)                                                                          \
    .method = &method_latency, .content = &content_, .open = window_open_in_turn,                  \
    .close = window_close, .sync = SYNC_FLUSH, .parameters = "os"
#define STREAM                                                                                     \
    .open = window_open_one_way, .close = window_close, .sync = SYNC_FLUSH, .parameters = "wos"

const struct benchmark onesided_benchmarks[] = {
    {"put_latency", "MPI_Put Latency", SHAPE_PAIR, LATENCY(onesided_put), SIZES,
     .step = step_put_one},
    {"get_latency", "MPI_Get Latency", SHAPE_PAIR, LATENCY(onesided_get), SIZES,
     .step = step_get_one},
    {"acc_latency", "MPI_Accumulate Latency", SHAPE_PAIR, LATENCY(onesided_accumulate), SIZES,
     .step = step_accumulate, .reduces = true},
    {"get_acc_latency", "MPI_Get_accumulate Latency", SHAPE_PAIR, LATENCY(onesided_get_accumulate),
     SIZES, .step = step_get_accumulate, .reduces = true},
    {"fop_latency", "MPI_Fetch_and_op Latency", SHAPE_PAIR, LATENCY(onesided_fetch_and_add),
     EIGHT_BYTES, .step = step_fetch_and_add},
    {"cas_latency", "MPI_Compare_and_swap Latency", SHAPE_PAIR, LATENCY(onesided_compare_and_swap),
     EIGHT_BYTES, .step = step_compare_and_swap},
    {"put_bw", "MPI_Put Bandwidth", SHAPE_PAIR, &method_stream, &onesided_put, SIZES, STREAM,
     .step = step_put_many},
    {"get_bw", "MPI_Get Bandwidth", SHAPE_PAIR, &method_stream, &onesided_get, SIZES, STREAM,
     .step = step_get_many},
    {"put_bibw", "MPI_Put Bi-directional Bandwidth", SHAPE_PAIR, &method_stream_both_ways,
     &onesided_put, SIZES, .open = window_open_both_ways, .close = window_close, .sync = SYNC_PSCW,
     .step = step_put_both_ways, .parameters = "wos", .problem = problem_both_ways},
    {.name = NULL},
};
