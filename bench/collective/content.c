#include "collective/content.h"

#include "collective/collective.h"

static bool is_root(const struct run *run)
{
    return run->rank == COLLECTIVE_ROOT;
}

/* How many blocks: one, one for each rank, or those only on some ranks. */

static size_t one(const struct run *run)
{
    (void)run;
    return 1;
}

static size_t each(const struct run *run)
{
    return (size_t)run->ranks;
}

static size_t one_at_root(const struct run *run)
{
    return is_root(run) ? 1 : 0;
}

static size_t each_at_root(const struct run *run)
{
    return is_root(run) ? (size_t)run->ranks : 0;
}

static size_t one_elsewhere(const struct run *run)
{
    return is_root(run) ? 0 : 1;
}

static size_t each_neighbour(const struct run *run)
{
    return (size_t)neighbour_count(run);
}

/* What is sent: every block has its own content, or numbers. */

static void fill_blocks(struct run *run)
{
    size_t blocks = run->benchmark->content->send_blocks(run);

    for (size_t i = 0; i < blocks; i++)
        data_fill(run->send + i * run->size_bytes, run->size_bytes,
                  (struct origin){run->rank, (int)i, run->epoch});
}

static void fill_numbers(struct run *run)
{
    size_t blocks = run->benchmark->content->send_blocks(run);

    for (size_t i = 0; i < blocks; i++)
        data_fill_numbers(run->send + i * run->size_bytes, run->size_bytes, run->datatype,
                          (struct origin){run->rank, (int)i, run->epoch});
}

/* What must arrive. */

/* One block of the root: the first, or the one for this rank. */
static void expect_bcast(struct run *run, struct pass *pass)
{
    if (!is_root(run))
        pass_block(pass, run->recv, run->size_bytes, COLLECTIVE_ROOT, 0);
}

static void expect_scatter(struct run *run, struct pass *pass)
{
    pass_block(pass, run->recv, run->size_bytes, COLLECTIVE_ROOT, run->rank);
}

/* Block `block` of every rank. */
static void expect_from_each(struct run *run, struct pass *pass, int block)
{
    for (int i = 0; i < run->ranks; i++)
        pass_block(pass, run->recv + (size_t)i * run->size_bytes, run->size_bytes, i, block);
}

static void expect_gather(struct run *run, struct pass *pass)
{
    if (is_root(run))
        expect_from_each(run, pass, 0);
}

static void expect_allgather(struct run *run, struct pass *pass)
{
    expect_from_each(run, pass, 0);
}

static void expect_alltoall(struct run *run, struct pass *pass)
{
    expect_from_each(run, pass, run->rank);
}

/* From each neighbour its only block, or the one for this rank. */
static void expect_from_neighbours(struct run *run, struct pass *pass, bool only)
{
    for (int i = 0; i < neighbour_count(run); i++)
        pass_block(pass, run->recv + (size_t)i * run->size_bytes, run->size_bytes,
                   neighbour_rank(run, i, -1), only ? 0 : i);
}

static void expect_neighbour_allgather(struct run *run, struct pass *pass)
{
    expect_from_neighbours(run, pass, true);
}

static void expect_neighbour_alltoall(struct run *run, struct pass *pass)
{
    expect_from_neighbours(run, pass, false);
}

static void expect_sums(struct run *run, struct pass *pass, int end)
{
    pass_sums(pass, run->recv, run->size_bytes, run->datatype,
              (struct sums){.end = end, .times = 1});
}

static void expect_allreduce(struct run *run, struct pass *pass)
{
    expect_sums(run, pass, run->ranks);
}

static void expect_reduce(struct run *run, struct pass *pass)
{
    if (is_root(run))
        expect_sums(run, pass, run->ranks);
}

static void expect_reduce_scatter(struct run *run, struct pass *pass)
{
    const struct collective *state = run->state;
    int before = 0;

    for (int i = 0; i < run->rank; i++)
        before += state->parts[i];
    pass_sums(pass, run->recv, (size_t)state->parts[run->rank] * run->datatype->bytes,
              run->datatype, (struct sums){.end = run->ranks, .times = 1, .first = (size_t)before});
}

static void expect_reduce_scatter_block(struct run *run, struct pass *pass)
{
    pass_sums(pass, run->recv, run->size_bytes, run->datatype,
              (struct sums){.end = run->ranks, .times = 1, .block = run->rank});
}

static void expect_scan(struct run *run, struct pass *pass)
{
    expect_sums(run, pass, run->rank + 1);
}

/* Rank 0 gets nothing. */
static void expect_exscan(struct run *run, struct pass *pass)
{
    if (run->rank > 0)
        expect_sums(run, pass, run->rank);
}

const struct content content_bcast = {one_at_root, one_elsewhere, fill_blocks, expect_bcast};
const struct content content_gather = {one, each_at_root, fill_blocks, expect_gather};
const struct content content_scatter = {each_at_root, one, fill_blocks, expect_scatter};
const struct content content_allgather = {one, each, fill_blocks, expect_allgather};
const struct content content_alltoall = {each, each, fill_blocks, expect_alltoall};
const struct content content_reduce = {one, one_at_root, fill_numbers, expect_reduce};
const struct content content_allreduce = {one, one, fill_numbers, expect_allreduce};
const struct content content_reduce_scatter = {one, one, fill_numbers, expect_reduce_scatter};
const struct content content_reduce_scatter_block = {each, one, fill_numbers,
                                                     expect_reduce_scatter_block};
const struct content content_scan = {one, one, fill_numbers, expect_scan};
const struct content content_exscan = {one, one, fill_numbers, expect_exscan};
const struct content content_neighbour_allgather = {one, each_neighbour, fill_blocks,
                                                    expect_neighbour_allgather};
const struct content content_neighbour_alltoall = {each_neighbour, each_neighbour, fill_blocks,
                                                   expect_neighbour_alltoall};
