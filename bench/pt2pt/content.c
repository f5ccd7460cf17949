#include "pt2pt/content.h"

static size_t one(const struct run *run)
{
    return run->peer == MPI_PROC_NULL ? 0 : 1;
}

static size_t window(const struct run *run)
{
    return run->options->many_buffers ? (size_t)run->window : 1;
}

uint8_t *content_slot(const struct run *run, uint8_t *buffer, int index)
{
    return run->options->many_buffers ? buffer + (size_t)index * run->size_bytes : buffer;
}

static void fill(struct run *run, size_t blocks)
{
    for (size_t i = 0; i < blocks; i++)
        data_fill(run->send + i * run->size_bytes, run->size_bytes,
                  (struct origin){run->rank, (int)i, run->epoch});
}

static void expect(struct run *run, struct pass *pass, size_t blocks)
{
    for (size_t i = 0; run->peer != MPI_PROC_NULL && i < blocks; i++)
        pass_block(pass, run->recv + i * run->size_bytes, run->size_bytes, run->peer, (int)i);
}

static void fill_one(struct run *run)
{
    fill(run, one(run));
}

static void expect_one(struct run *run, struct pass *pass)
{
    expect(run, pass, one(run));
}

static void fill_window(struct run *run)
{
    fill(run, window(run));
}

static void expect_window(struct run *run, struct pass *pass)
{
    expect(run, pass, window(run));
}

static void expect_window_at_second(struct run *run, struct pass *pass)
{
    if (!run->sends)
        expect_window(run, pass);
}

const struct content content_exchange = {one, one, fill_one, expect_one};
const struct content content_window = {window, window, fill_window, expect_window_at_second};
const struct content content_window_both_ways = {window, window, fill_window, expect_window};
