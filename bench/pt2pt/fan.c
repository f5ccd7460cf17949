#include "pt2pt/fan.h"

#include "mpi/timing.h"
#include "mpi/units.h"
#include "pt2pt/forms.h"

#include <stdlib.h>

#define HUB 0

static bool is_hub(const struct run *run)
{
    return run->rank == HUB;
}

/* The hub has a block for each other rank (and an unused one for itself); a message of a window
 * overwrites the one before. */
static size_t blocks(const struct run *run)
{
    return is_hub(run) ? (size_t)run->ranks : 1;
}

static uint8_t *block(const struct run *run, uint8_t *buffer, int rank)
{
    return buffer + (size_t)rank * run->size_bytes;
}

static void fill(struct run *run)
{
    for (int i = 0; i < (int)blocks(run); i++)
        data_fill(block(run, run->send, i), run->size_bytes,
                  (struct origin){run->rank, i, run->epoch});
}

static void expect_in(struct run *run, struct pass *pass)
{
    for (int i = 1; is_hub(run) && i < run->ranks; i++)
        pass_block(pass, block(run, run->recv, i), run->size_bytes, i, 0);
}

static void expect_out(struct run *run, struct pass *pass)
{
    if (!is_hub(run))
        pass_block(pass, run->recv, run->size_bytes, HUB, run->rank);
}

const struct content content_fan_in = {blocks, blocks, fill, expect_in};
const struct content content_fan_out = {blocks, blocks, fill, expect_out};

/* The requests of all windows at the hub; the others use the first window of theirs. */
void fan_open(struct run *run)
{
    size_t requests = (size_t)run->window * (size_t)run->ranks;

    run->state = malloc(requests * sizeof(MPI_Request));
    if (run->state == NULL)
        MPI_Abort(run->comm, EXIT_FAILURE);
}

void fan_close(struct run *run)
{
    free(run->state);
}

static void window_of_sends(struct run *run, uint8_t *data, int rank, MPI_Request *requests)
{
    for (int i = 0; i < run->window; i++)
        MPI_Isend(data, run->count, run->datatype->mpi, rank, FORMS_TAG, run->comm, &requests[i]);
}

static void window_of_receives(struct run *run, uint8_t *data, int rank, MPI_Request *requests)
{
    for (int i = 0; i < run->window; i++)
        MPI_Irecv(data, run->count, run->datatype->mpi, rank, FORMS_TAG, run->comm, &requests[i]);
}

/* The end of a step is known to all: the hub has heard from every rank, and every rank from the
 * hub. */
static void finish(struct run *run, int count)
{
    MPI_Waitall(count, run->state, MPI_STATUSES_IGNORE);
    MPI_Barrier(run->comm);
}

static void fan(struct run *run, bool inwards)
{
    MPI_Request *requests = run->state;

    if (!is_hub(run)) {
        if (inwards)
            window_of_sends(run, run->send, HUB, requests);
        else
            window_of_receives(run, run->recv, HUB, requests);
        finish(run, run->window);
        return;
    }
    /* All of them are under way before the first wait. */
    for (int i = 1; i < run->ranks; i++, requests += run->window)
        if (inwards)
            window_of_receives(run, block(run, run->recv, i), i, requests);
        else
            window_of_sends(run, block(run, run->send, i), i, requests);
    finish(run, run->window * (run->ranks - 1));
}

void fan_in(struct run *run)
{
    fan(run, true);
}

void fan_out(struct run *run)
{
    fan(run, false);
}

static void measure(struct run *run, struct sample *sample)
{
    double messages = (double)run->window * (run->ranks - 1);
    double bytes = messages * (double)run->size_bytes;

    timing_in_a_row(run);
    double step_ns = timing_total_ns(run) / (double)run->iterations;

    sample->values[METRIC_BANDWIDTH] = bytes / step_ns * MB_PER_S_PER_BYTE_PER_NS;
    sample->values[METRIC_MESSAGE_RATE] = messages / step_ns * NS_PER_S;
    sample->spread = (struct spread){METRIC_BANDWIDTH, run->times_ns, run->iterations,
                                     bytes * MB_PER_S_PER_BYTE_PER_NS, .is_rate = true};
}

static const struct column columns[] = {
    {METRIC_BANDWIDTH, false}, {METRIC_MESSAGE_RATE, true}, {METRIC_END, false}};

const struct method fan_method = {measure, columns, {8192, 100, 20, 10, 2}};
