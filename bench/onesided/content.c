#include "onesided/content.h"

#include "onesided/window.h"

#include <string.h>

/* A window of messages has slots of its own with -b multiple; the latency forms have one. */
static size_t slots(const struct run *run)
{
    bool streams = run->benchmark->method->columns[0].metric == METRIC_BANDWIDTH;

    return streams && run->options->many_buffers ? (size_t)run->window : 1;
}

size_t onesided_offset(const struct run *run, int index)
{
    return run->options->many_buffers ? (size_t)index * run->size_bytes : 0;
}

static bool both_act(const struct run *run)
{
    const struct window *window = run->state;

    return window->both_act;
}

/* Whether operations of the peer come in here. */
static bool is_target(const struct run *run)
{
    return !run->sends || both_act(run);
}

static bool is_origin(const struct run *run)
{
    return run->sends || both_act(run);
}

/* Iterations since the data was prepared. */
static int steps(const struct run *run)
{
    return run->options->validate_each ? 1 : (int)run->iterations;
}

static void fill_blocks(const struct run *run, uint8_t *data)
{
    for (size_t i = 0; i < slots(run); i++)
        data_fill(data + i * run->size_bytes, run->size_bytes,
                  (struct origin){run->rank, (int)i, run->epoch});
}

static void pass_blocks(const struct run *run, struct pass *pass, uint8_t *data)
{
    for (size_t i = 0; i < slots(run); i++)
        pass_block(pass, data + i * run->size_bytes, run->size_bytes, run->peer, (int)i);
}

static void fill_put(struct run *run)
{
    fill_blocks(run, run->send);
}

static void expect_put(struct run *run, struct pass *pass)
{
    struct window *window = run->state;

    window_begin_local(run);
    if (is_target(run))
        pass_blocks(run, pass, window->memory);
    window_end_local(run);
}

/* Get: the window has what the peer will fetch. */
static void fill_get(struct run *run)
{
    struct window *window = run->state;

    window_begin_local(run);
    fill_blocks(run, window->memory);
    window_end_local(run);
}

static void expect_get(struct run *run, struct pass *pass)
{
    if (is_origin(run))
        pass_blocks(run, pass, run->recv);
}

/* Accumulate: the window starts at 0 and is not spoilt. */
static void clear_window(struct run *run)
{
    struct window *window = run->state;

    window_begin_local(run);
    memset(window->memory, 0, run->size_bytes);
    window->swaps = 0;
    window_end_local(run);
}

static void fill_accumulate(struct run *run)
{
    data_fill_numbers(run->send, run->size_bytes, run->datatype,
                      (struct origin){run->rank, 0, run->epoch});
    clear_window(run);
}

/* The numbers of one rank, that many times. */
static void pass_times(const struct run *run, struct pass *pass, uint8_t *data, int rank, int times)
{
    pass_sums(pass, data, run->size_bytes, run->datatype,
              (struct sums){.begin = rank, .end = rank + 1, .times = times});
}

static void expect_accumulate(struct run *run, struct pass *pass)
{
    struct window *window = run->state;

    if (pass->kind == PASS_SPOIL)
        return;
    window_begin_local(run);
    if (is_target(run))
        pass_times(run, pass, window->memory, run->peer, steps(run));
    window_end_local(run);
}

/* What was fetched last is what all but the last had added. */
static void expect_get_accumulate(struct run *run, struct pass *pass)
{
    if (is_origin(run))
        pass_times(run, pass, run->recv, run->rank, steps(run) - 1);
    expect_accumulate(run, pass);
}

int64_t onesided_addend(const struct run *run, int rank)
{
    return 1 + rank + (int64_t)run->epoch;
}

static void fill_fetch_and_add(struct run *run)
{
    int64_t addend = onesided_addend(run, run->rank);

    memcpy(run->send, &addend, sizeof addend);
    clear_window(run);
}

/* A number in the window that started at 0, and what was there before the last step. */
static void expect_counts(struct run *run, struct pass *pass, int64_t by_peer, int64_t by_this_rank)
{
    struct window *window = run->state;

    if (is_origin(run))
        pass_number(pass, run->recv, (steps(run) - 1) * by_this_rank);
    if (pass->kind == PASS_SPOIL)
        return;
    window_begin_local(run);
    if (is_target(run))
        pass_number(pass, window->memory, steps(run) * by_peer);
    window_end_local(run);
}

static void expect_fetch_and_add(struct run *run, struct pass *pass)
{
    expect_counts(run, pass, onesided_addend(run, run->peer), onesided_addend(run, run->rank));
}

static void expect_compare_and_swap(struct run *run, struct pass *pass)
{
    expect_counts(run, pass, 1, 1);
}

const struct content onesided_put = {slots, slots, fill_put, expect_put};
const struct content onesided_get = {slots, slots, fill_get, expect_get};
const struct content onesided_accumulate = {slots, slots, fill_accumulate, expect_accumulate};
const struct content onesided_get_accumulate = {slots, slots, fill_accumulate,
                                                expect_get_accumulate};
const struct content onesided_fetch_and_add = {slots, slots, fill_fetch_and_add,
                                               expect_fetch_and_add};
const struct content onesided_compare_and_swap = {slots, slots, clear_window,
                                                  expect_compare_and_swap};
