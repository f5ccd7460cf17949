#include "mpi/run.h"

#include "mpi/report.h"
#include "mpi/timing.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static size_t blocks(size_t (*of)(const struct run *run), const struct run *run)
{
    return of == NULL ? 0 : of(run);
}

/* Buffers of one rank at a size, or SIZE_MAX if that does not fit in a number. */
static size_t buffer_bytes(const struct run *run, size_t size_bytes)
{
    const struct content *content = run->benchmark->content;

    if (content == NULL)
        return 0;
    size_t count = blocks(content->send_blocks, run) + blocks(content->recv_blocks, run);

    return size_bytes > 0 && count > SIZE_MAX / size_bytes ? SIZE_MAX : count * size_bytes;
}

/* Page-aligned, and there even for no bytes. Gives up for all ranks if there is no memory. */
static void *allocate(size_t size_bytes, MPI_Comm comm)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *memory = NULL;

    if (posix_memalign(&memory, page_bytes, size_bytes > 0 ? size_bytes : 1) != 0) {
        fprintf(stderr, "rocelab-mpi: no memory for buffers of %zu bytes; -M limits them\n",
                size_bytes);
        MPI_Abort(comm, EXIT_FAILURE);
    }
    return memory;
}

/* At most as many iterations as move the schedule's volume. */
static uint64_t within_volume(const struct run *run, uint64_t iterations)
{
    size_t volume_bytes = run->benchmark->method->schedule.volume_bytes;
    uint64_t fit =
        run->size_bytes == 0 || volume_bytes == 0 ? iterations : volume_bytes / run->size_bytes;

    return fit < 1 ? 1 : fit < iterations ? fit : iterations;
}

/* Sets the numbers of iterations for this size. */
static void plan(struct run *run)
{
    const struct options *options = run->options;
    const struct schedule *schedule = &run->benchmark->method->schedule;
    bool large = run->size_bytes > schedule->large_bytes;

    run->iterations = options->iterations > 0 ? options->iterations
                      : large                 ? within_volume(run, schedule->iterations_large)
                                              : within_volume(run, schedule->iterations);
    run->warmup = options->has_warmup ? options->warmup
                  : large             ? schedule->warmup_large
                                      : schedule->warmup;
}

static void judge(struct run *run, struct sample *sample)
{
    uint64_t wrong_bytes = run->wrong_bytes;

    MPI_Allreduce(MPI_IN_PLACE, &wrong_bytes, 1, MPI_UINT64_T, MPI_SUM, run->comm);
    sample->wrong_bytes = wrong_bytes;
    sample->validation = wrong_bytes > 0                   ? VALIDATION_FAIL
                         : run->benchmark->content == NULL ? VALIDATION_NONE
                         : run->options->validate          ? VALIDATION_PASS
                                                           : VALIDATION_OFF;
    run->failed |= wrong_bytes > 0;
}

static void run_size(struct run *run)
{
    const struct benchmark *benchmark = run->benchmark;
    const struct content *content = benchmark->content;
    struct sample sample;

    run->count = (int)(run->size_bytes / run->datatype->bytes);
    run->wrong_bytes = 0;
    plan(run);
    run->times_ns = allocate(run->iterations * sizeof *run->times_ns, run->comm);
    if (content != NULL) {
        run->send = allocate(blocks(content->send_blocks, run) * run->size_bytes, run->comm);
        run->recv = allocate(blocks(content->recv_blocks, run) * run->size_bytes, run->comm);
    }
    sample_clear(&sample);
    if (benchmark->open != NULL)
        benchmark->open(run);
    timing_prepare(run);
    benchmark->method->measure(run, &sample);
    if (benchmark->close != NULL)
        benchmark->close(run);
    judge(run, &sample);
    if (run->rank == 0)
        report_sample(run, &sample);
    free(run->times_ns);
    free(run->send);
    free(run->recv);
    run->send = run->recv = NULL;
    run->times_ns = NULL;
}

/* What fits neither in the user's limit nor in MPI's counts is left out. */
static bool fits(const struct run *run, size_t size_bytes)
{
    return size_bytes <= INT_MAX &&
           buffer_bytes(run, size_bytes) <= run->options->memory_limit_bytes;
}

static void run_sizes(struct run *run)
{
    const struct options *options = run->options;
    const struct benchmark *benchmark = run->benchmark;
    bool chosen = !benchmark->fixed_size;
    size_t min_bytes =
        chosen && options->has_size_min ? options->size_min_bytes : benchmark->size_min_bytes;
    size_t max_bytes =
        chosen && options->has_size_max ? options->size_max_bytes : benchmark->size_max_bytes;

    if (benchmark->size_max_bytes == 0) {
        run->size_bytes = 0;
        run_size(run);
        return;
    }
    for (size_t size = min_bytes; size <= max_bytes; size = size == 0 ? 1 : size * 2) {
        if (size > 0 && size < run->datatype->bytes)
            continue;
        if (!fits(run, size)) {
            if (run->rank == 0)
                fprintf(stderr,
                        "rocelab-mpi: %s: sizes from %zu bytes on are left out: buffers of %zu "
                        "bytes a rank are above the limit of -M\n",
                        benchmark->name, size, buffer_bytes(run, size));
            return;
        }
        /* Whole elements: a size says what moves. */
        run->size_bytes = size - size % run->datatype->bytes;
        run_size(run);
    }
}

const char *run_problem(const struct benchmark *benchmark, const struct options *options, int ranks)
{
    const char *problem = benchmark->problem == NULL ? NULL : benchmark->problem(options);
    int thread_level;

    MPI_Query_thread(&thread_level);
    if (problem != NULL)
        return problem;
    if (thread_level < benchmark->thread_level)
        return "needs MPI_THREAD_MULTIPLE, which this MPI does not give";
    switch (benchmark->shape) {
    case SHAPE_PAIR:
        return ranks == 2 ? NULL : "needs exactly 2 ranks";
    case SHAPE_PAIRS:
        if (options->pairs > 0)
            return ranks >= 2 * options->pairs ? NULL : "needs 2 ranks for each of the pairs (-p)";
        return ranks % 2 == 0 ? NULL : "needs an even number of ranks (or -p)";
    case SHAPE_ALL:
        return ranks >= 2 ? NULL : "needs at least 2 ranks";
    case SHAPE_ANY:
        break;
    }
    return NULL;
}

static void find_peer(struct run *run)
{
    enum shape shape = run->benchmark->shape;

    run->pairs = 0;
    run->peer = MPI_PROC_NULL;
    run->sends = false;
    if (shape != SHAPE_PAIR && shape != SHAPE_PAIRS)
        return;
    run->pairs = shape == SHAPE_PAIR       ? 1
                 : run->options->pairs > 0 ? run->options->pairs
                                           : run->ranks / 2;
    run->sends = run->rank < run->pairs;
    if (run->rank < 2 * run->pairs)
        run->peer = run->sends ? run->rank + run->pairs : run->rank - run->pairs;
}

int run_benchmark(struct run *run)
{
    const struct benchmark *benchmark = run->benchmark;
    unsigned datatypes = run->options->datatypes;

    if (datatypes == 0)
        datatypes = benchmark->reduces ? 1u << DATATYPE_INT : 1u << DATATYPE_CHAR;
    find_peer(run);
    run->window = run->options->window;
    run->sync = run->options->has_sync ? run->options->sync : benchmark->sync;
    run->failed = false;
    for (int i = 0; i < DATATYPE_COUNT; i++) {
        if ((datatypes & 1u << i) == 0)
            continue;
        struct datatype datatype = datatype_of(i);

        run->datatype = &datatype;
        if (run->rank == 0)
            report_heading(run);
        run_sizes(run);
    }
    return run->failed ? -1 : 0;
}
