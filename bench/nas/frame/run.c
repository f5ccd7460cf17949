#include "nas/frame/run.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CACHE_LINE_BYTES 64
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define EXIT_MEMORY 1
#define FOLDED_BYTES_MIN ((size_t)64 << 10)

/* Memory on huge pages where the block is large and the kernel has some: strides of kilobytes, as
 * in transforms, else miss the TLB. */
static void *allocate(size_t bytes)
{
    size_t alignment = bytes < HUGE_PAGE_BYTES ? CACHE_LINE_BYTES : HUGE_PAGE_BYTES;
    size_t rounded = (bytes + alignment) / alignment * alignment;
    void *block = aligned_alloc(alignment, rounded);

    if (block != NULL && alignment == HUGE_PAGE_BYTES)
        madvise(block, rounded, MADV_HUGEPAGE);
    return block;
}

/* Where the work is not done, large blocks of all ranks are the same few pages: what is in them
 * does not count. Small ones say which rank sends how much to which. */
static bool is_folded(const struct run *run, size_t bytes)
{
    return run->modelled && bytes >= FOLDED_BYTES_MIN;
}

#ifdef SMPI_H /* the MPI of SimGrid */
#define allocate_folded(bytes) SMPI_SHARED_MALLOC(bytes)
#define free_folded(block) SMPI_SHARED_FREE(block)
#else
#define allocate_folded(bytes) allocate(bytes)
#define free_folded(block) free(block)
#endif

static void free_block(struct run *run, int index)
{
    if (is_folded(run, run->block_bytes[index]))
        free_folded(run->blocks[index]);
    else
        free(run->blocks[index]);
}

void *run_memory(struct run *run, size_t count, size_t element_bytes)
{
    size_t bytes = count * element_bytes;
    void *block = NULL;

    if (run->block_count < RUN_BLOCKS_MAX && count <= SIZE_MAX / 2 / element_bytes)
        block = is_folded(run, bytes) ? allocate_folded(bytes) : allocate(bytes);
    if (block == NULL) {
        fprintf(stderr, "rocelab-nas: rank %d gets no %zu bytes of memory\n", run->rank, bytes);
        MPI_Abort(run->comm, EXIT_MEMORY);
        exit(EXIT_MEMORY);
    }
    run->blocks[run->block_count] = block;
    run->block_bytes[run->block_count++] = bytes;
    return is_folded(run, bytes) ? block : memset(block, 0, bytes);
}

double *run_doubles(struct run *run, size_t count)
{
    return run_memory(run, count, sizeof(double));
}

int *run_ints(struct run *run, size_t count)
{
    return run_memory(run, count, sizeof(int));
}

void run_release(struct run *run, void *block)
{
    for (int i = 0; i < run->block_count; i++)
        if (run->blocks[i] == block) {
            free_block(run, i);
            run->block_count--;
            run->blocks[i] = run->blocks[run->block_count];
            run->block_bytes[i] = run->block_bytes[run->block_count];
            return;
        }
}

void run_start(struct run *run)
{
    MPI_Barrier(run->comm);
    run->iteration = 0;
    run->loop_s = 0;
    run->mpi_s = 0;
    run->started_s = MPI_Wtime();
}

bool run_next(struct run *run)
{
    if (run->iteration == 0)
        run->loop_started_s = MPI_Wtime();
    if (run->iteration < run->iterations) {
        run->iteration++;
        return true;
    }
    run->loop_s = MPI_Wtime() - run->loop_started_s;
    return false;
}

void run_stop(struct run *run)
{
    double measured_s = MPI_Wtime() - run->started_s;
    double scale = (double)run->plan.iterations / run->iterations;
    double share = measured_s > 0 ? run->mpi_s / measured_s : 0;
    double slowest[3] = {measured_s, measured_s + run->loop_s * (scale - 1), share};
    double overall[3];
    double share_sum;

    MPI_Reduce(slowest, overall, 3, MPI_DOUBLE, MPI_MAX, 0, run->comm);
    MPI_Reduce(&share, &share_sum, 1, MPI_DOUBLE, MPI_SUM, 0, run->comm);
    if (run->rank == 0) {
        run->measured_s = overall[0];
        run->time_s = overall[1];
        run->mpi_share_max = overall[2];
        run->mpi_share = share_sum / run->ranks;
    }
}

static void add_check(struct run *run, const struct check *check)
{
    if (run->iterations < run->plan.iterations || run->modelled)
        return;
    if (run->check_count == RUN_CHECKS_MAX) {
        fprintf(stderr, "rocelab-nas: %s has more than %d results\n", run->program->name,
                RUN_CHECKS_MAX);
        abort();
    }
    run->checks[run->check_count++] = *check;
    if (!check->passed)
        run->verification = VERIFICATION_FAIL;
    else if (run->verification == VERIFICATION_OFF)
        run->verification = VERIFICATION_PASS;
}

void run_check(struct run *run, const char *name, double value, double expected, double tolerance)
{
    if (run->corrupt)
        value += 1 + fabs(value);
    double error = fabs(value - expected) / (expected == 0 ? 1 : fabs(expected));

    /* A result that is no number fails, too. */
    struct check check = {
        .value = value, .expected = expected, .error = error, .passed = error <= tolerance};

    snprintf(check.name, sizeof check.name, "%s", name);
    add_check(run, &check);
}

void run_check_that(struct run *run, const char *name, bool right)
{
    run_check(run, name, right, 1, 0);
}

void run_program(struct run *run)
{
    int verification;

    run->verification = VERIFICATION_OFF;
    run->program->run(run);
    verification = (int)run->verification;
    MPI_Bcast(&verification, 1, MPI_INT, 0, run->comm);
    run->verification = (enum verification)verification;
    while (run->block_count > 0)
        free_block(run, --run->block_count);
}
