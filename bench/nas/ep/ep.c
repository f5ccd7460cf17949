/*
 * EP, "embarrassingly parallel": draws 2^m pairs of uniform random numbers, and makes normally
 * distributed ones of those inside the unit circle (the polar method). It sums them, and counts in
 * which square ring around the origin they fall. The ranks share the batches of 2^16 pairs and talk
 * once, at the end.
 */
#include "nas/ep/ep.h"

#include "nas/frame/random.h"
#include "nas/frame/run.h"

#include <math.h>
#include <stdio.h>

#define EP_SEED UINT64_C(271828183)
#define BATCH_LOG2 16
#define BATCH_PAIRS (1 << BATCH_LOG2)
#define RINGS 10
#define PAIR_WORK 11.5
#define TOLERANCE 1e-8

static const struct parameters {
    int pairs_log2;
    double sum_x;
    double sum_y;
} classes[CLASS_COUNT] = {
    [CLASS_S] = {24, -3.247834652034740e+3, -6.958407078382297e+3},
    [CLASS_W] = {25, -2.863319731645753e+3, -6.320053679109499e+3},
    [CLASS_A] = {28, -4.295875165629892e+3, -1.580732573678431e+4},
    [CLASS_B] = {30, 4.033815542441498e+4, -2.660669192809235e+4},
    [CLASS_C] = {32, 4.764367927995374e+4, -8.084072988043731e+4},
    [CLASS_D] = {36, 1.982481200946593e+5, -1.020596636361769e+5},
};

/* What all pairs add up to; in this order in messages. */
struct sums {
    double x;
    double y;
    double rings[RINGS];
};

static int batch_count(const struct job *job)
{
    return 1 << (classes[job->class].pairs_log2 - BATCH_LOG2);
}

static int plan(const struct job *job, struct plan *plan, struct failure *failure)
{
    int batches = batch_count(job);

    if (job->ranks > batches)
        return failure_set(failure, "ep class %c has %d batches: too few for %d ranks",
                           CLASS_LETTERS[job->class], batches, job->ranks);
    snprintf(plan->size, sizeof plan->size, "%llu", 2ull << classes[job->class].pairs_log2);
    plan->iterations = (batches + job->ranks - 1) / job->ranks;
    plan->rank_bytes = 2 * BATCH_PAIRS * sizeof(double);
    return 0;
}

/* Keeps the pairs inside the unit circle, as points of the square from -1 to 1, at the start of
 * the array. Returns how many. Without a branch: which pairs those are cannot be foreseen. */
static int keep_inside(double *pairs)
{
    int kept = 0;

    for (int i = 0; i < BATCH_PAIRS; i++) {
        double x = 2 * pairs[2 * i] - 1;
        double y = 2 * pairs[2 * i + 1] - 1;

        pairs[2 * kept] = x;
        pairs[2 * kept + 1] = y;
        kept += x * x + y * y <= 1;
    }
    return kept;
}

static void add_batch(struct sums *sums, double *pairs, uint64_t batch)
{
    uint64_t state = random_skip(EP_SEED, batch * 2 * BATCH_PAIRS);

    random_fill(&state, 2 * BATCH_PAIRS, pairs);
    int kept = keep_inside(pairs);

    for (int i = 0; i < kept; i++) {
        double square = pairs[2 * i] * pairs[2 * i] + pairs[2 * i + 1] * pairs[2 * i + 1];
        double stretch = sqrt(-2 * log(square) / square);
        double x = pairs[2 * i] * stretch;
        double y = pairs[2 * i + 1] * stretch;

        sums->rings[(int)fmax(fabs(x), fabs(y))] += 1;
        sums->x += x;
        sums->y += y;
    }
}

static void run(struct run *run)
{
    const struct parameters *parameters = &classes[run->job.class];
    double *pairs = run_doubles(run, 2 * BATCH_PAIRS);
    struct sums mine = {.x = 0}, all;
    const int batches = batch_count(&run->job);
    const int first = (int)((int64_t)batches * run->rank / run->ranks);
    const int end = (int)((int64_t)batches * (run->rank + 1) / run->ranks);

    add_batch(&mine, pairs, 0); /* warm-up */
    mine = (struct sums){.x = 0};

    run_start(run);
    while (run_next(run)) {
        int batch = first + run->iteration - 1;

        if (batch < end && run_work(run, PAIR_WORK * BATCH_PAIRS))
            add_batch(&mine, pairs, (uint64_t)batch);
    }
    IN_MPI(run, MPI_Allreduce(&mine, &all, 2 + RINGS, MPI_DOUBLE, MPI_SUM, run->comm));
    run_stop(run);

    run->operations = ldexp(1, parameters->pairs_log2 + 1);
    run_check(run, "sum of x", all.x, parameters->sum_x, TOLERANCE);
    run_check(run, "sum of y", all.y, parameters->sum_y, TOLERANCE);
}

const struct program program_ep = {
    .name = "ep",
    .title = "normal random numbers, hardly any messages",
    .operation = "random numbers generated",
    .ranks = RANKS_ANY,
    .plan = plan,
    .run = run,
};
