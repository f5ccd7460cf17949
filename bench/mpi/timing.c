#include "mpi/timing.h"

#include "mpi/units.h"

/* MPI's clock, not the system's: under a simulator it is the simulated one. */
static uint64_t elapsed_ns(double start_s, double end_s)
{
    return end_s > start_s ? (uint64_t)((end_s - start_s) * NS_PER_S + 0.5) : 0;
}

static void warm_up(struct run *run)
{
    for (uint64_t i = 0; i < run->warmup; i++)
        run->benchmark->step(run);
}

void timing_prepare(struct run *run)
{
    const struct content *content = run->benchmark->content;

    if (content == NULL || !run->options->validate)
        return;
    run->epoch++;
    struct pass pass = {.kind = PASS_SPOIL, .epoch = run->epoch};

    content->fill(run);
    content->expect(run, &pass);
}

void timing_check(struct run *run)
{
    const struct content *content = run->benchmark->content;

    if (content == NULL || !run->options->validate)
        return;
    struct pass pass = {.kind = PASS_CHECK, .epoch = run->epoch, .corrupt = run->options->corrupt};

    content->expect(run, &pass);
    run->wrong_bytes += pass.wrong_bytes;
}

void timing_in_a_row(struct run *run)
{
    if (run->options->validate_each) {
        timing_apart(run);
        return;
    }
    warm_up(run);
    timing_prepare(run);
    MPI_Barrier(run->comm);
    double last_s = MPI_Wtime();

    for (uint64_t i = 0; i < run->iterations; i++) {
        run->benchmark->step(run);
        double now_s = MPI_Wtime();

        run->times_ns[i] = elapsed_ns(last_s, now_s);
        last_s = now_s;
    }
    timing_check(run);
}

void timing_apart(struct run *run)
{
    bool each = run->options->validate_each;

    warm_up(run);
    if (!each)
        timing_prepare(run);
    for (uint64_t i = 0; i < run->iterations; i++) {
        if (each)
            timing_prepare(run);
        MPI_Barrier(run->comm);
        double start_s = MPI_Wtime();

        run->benchmark->step(run);
        run->times_ns[i] = elapsed_ns(start_s, MPI_Wtime());
        if (each)
            timing_check(run);
    }
    if (!each)
        timing_check(run);
}

void timing_limit(struct run *run, double limit_s)
{
    /* The first step may have to connect. */
    run->benchmark->step(run);
    MPI_Barrier(run->comm);
    double start_s = MPI_Wtime();

    run->benchmark->step(run);
    double step_s = MPI_Wtime() - start_s;

    MPI_Allreduce(MPI_IN_PLACE, &step_s, 1, MPI_DOUBLE, MPI_MAX, run->comm);
    if (step_s * (double)run->iterations <= limit_s)
        return;
    run->iterations = limit_s > step_s ? (uint64_t)(limit_s / step_s) : 1;
}

double timing_total_ns(const struct run *run)
{
    double total_ns = 0;

    for (uint64_t i = 0; i < run->iterations; i++)
        total_ns += (double)run->times_ns[i];
    return total_ns;
}
