/*
 * IS, "integer sort": finds the rank of every key of a sequence, ten times, with two keys changed
 * each time. The ranks sort their keys into buckets, agree on which rank takes which buckets so
 * that all have about as many keys, exchange them (all to all, in varying lengths), and count.
 */
#include "nas/is/is.h"

#include "nas/frame/random.h"
#include "nas/frame/run.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ITERATIONS 10
#define PROBES 5

/* For each key. What is sent depends on the keys, so this work is always done. */
#define COUNT_WORK 0.66
#define SORT_WORK 2.0
#define RANK_WORK 1.06

/* A published rank: of the key at an index of the sequence. It changes with the iteration, since
 * that changes two keys: by `slope` each, and `offset` once. */
struct probe {
    int64_t index;
    int64_t rank;
    int slope;
    int offset;
};

static const struct parameters {
    int keys_log2;
    int key_bits;
    int bucket_bits;
    struct probe probes[PROBES];
} classes[CLASS_COUNT] = {
    [CLASS_S] = {16,
                 11,
                 9,
                 {{48427, 0, 1, 0},
                  {17148, 18, 1, 0},
                  {23627, 346, 1, 0},
                  {62548, 64917, -1, 0},
                  {4431, 65463, -1, 0}}},
    [CLASS_W] = {20,
                 16,
                 10,
                 {{357773, 1249, 1, -2},
                  {934767, 11698, 1, -2},
                  {875723, 1039987, -1, 0},
                  {898999, 1043896, -1, 0},
                  {404505, 1048018, -1, 0}}},
    [CLASS_A] = {23,
                 19,
                 10,
                 {{2112377, 104, 1, -1},
                  {662041, 17523, 1, -1},
                  {5336171, 123928, 1, -1},
                  {3642833, 8288932, -1, 1},
                  {4250760, 8388264, -1, 1}}},
    [CLASS_B] = {25,
                 21,
                 10,
                 {{41869, 33422937, -1, 0},
                  {812306, 10244, 1, 0},
                  {5102857, 59149, 1, 0},
                  {18232239, 33135281, -1, 0},
                  {26860214, 99, 1, 0}}},
    [CLASS_C] = {27,
                 23,
                 10,
                 {{44172927, 61147, 1, 0},
                  {72999161, 882988, 1, 0},
                  {74326391, 266290, 1, 0},
                  {129606274, 133997595, -1, 0},
                  {21736814, 133525895, -1, 0}}},
    [CLASS_D] = {31,
                 27,
                 10,
                 {{1317351170, 1, 1, 0},
                  {995930646, 36538729, 1, 0},
                  {1157283250, 1978098519, -1, 0},
                  {1503301535, 2145192618, -1, 0},
                  {1453734525, 2147425337, -1, 0}}},
};

struct is {
    struct run *run;
    const struct parameters *parameters;
    int buckets;
    int shift;     /* from a key to its bucket */
    int key_count; /* of this rank at the start */

    int *keys;       /* as drawn */
    int *in_buckets; /* the same, bucket by bucket */
    int *received;   /* those of the buckets that this rank took */
    int received_count;
    int *at_most;  /* from the first key value of those buckets on: how many received keys are not
                      larger */
    int first_key; /* the least key value of those buckets, */
    int end_key;   /* and the one after the last */
    int64_t lower; /* how many keys ranks before this one took */

    /* Keys in each bucket, here and on all ranks; then the keys that are probed. */
    int *bucket_counts;
    int *bucket_totals;
    int *next; /* where the next key of a bucket goes */
    int *send_counts, *send_offsets, *receive_counts, *receive_offsets; /* per rank */
    int right; /* probes of this rank that had the published rank */
};

/* Upper bound of the keys that a rank takes: its share, and a bucket more. The fullest buckets, in
 * the middle, have 8/3 as many keys as the mean. */
static int64_t capacity(const struct parameters *parameters, int ranks)
{
    int64_t keys = INT64_C(1) << parameters->keys_log2;

    return keys / ranks + 3 * (keys >> parameters->bucket_bits) + 1024;
}

static int plan(const struct job *job, struct plan *plan, struct failure *failure)
{
    const struct parameters *parameters = &classes[job->class];
    int64_t mine = (INT64_C(1) << parameters->keys_log2) / job->ranks;
    int64_t most = capacity(parameters, job->ranks);

    /* More ranks would leave some without a bucket. */
    if (job->ranks > 1 << (parameters->bucket_bits - 2))
        return failure_set(failure,
                           "is class %c has %d buckets of keys: enough for %d ranks at most",
                           CLASS_LETTERS[job->class], 1 << parameters->bucket_bits,
                           1 << (parameters->bucket_bits - 2));
    if (most > INT_MAX)
        return failure_set(failure, "is class %c has too many keys for %d rank%s: take more",
                           CLASS_LETTERS[job->class], job->ranks, job->ranks == 1 ? "" : "s");
    snprintf(plan->size, sizeof plan->size, "%lld", 1ll << parameters->keys_log2);
    plan->iterations = ITERATIONS;
    plan->rank_bytes =
        (uint64_t)(2 * mine + most + (INT64_C(1) << parameters->key_bits)) * sizeof(int);
    return 0;
}

/* The keys of this rank: sums of four random numbers each, so that the middle is likely. */
static void draw_keys(struct is *is)
{
    const double scale = (double)(1 << (is->parameters->key_bits - 2));
    uint64_t state =
        random_skip(RANDOM_SEED, 4 * (uint64_t)is->key_count * (uint64_t)is->run->rank);

    for (int i = 0; i < is->key_count; i++) {
        double sum = random_next(&state);

        sum += random_next(&state);
        sum += random_next(&state);
        sum += random_next(&state);
        is->keys[i] = (int)(scale * sum);
    }
}

/* Counts the keys of each bucket, and adds the probed keys at the end for all ranks to see. */
static void count_buckets(struct is *is)
{
    const int *restrict keys = is->keys;
    int *restrict counts = is->bucket_counts;
    const int shift = is->shift;

    memset(counts, 0, (size_t)(is->buckets + PROBES) * sizeof *counts);
    for (int i = 0; i < PROBES; i++) {
        const struct probe *probe = &is->parameters->probes[i];

        if (probe->index / is->key_count == is->run->rank)
            counts[is->buckets + i] = keys[probe->index % is->key_count];
    }
    for (int i = 0; i < is->key_count; i++)
        counts[keys[i] >> shift]++;
}

static void sort_into_buckets(struct is *is)
{
    const int *restrict keys = is->keys;
    int *restrict next = is->next;
    int *restrict sorted = is->in_buckets;
    const int shift = is->shift;
    int offset = 0;

    for (int i = 0; i < is->buckets; i++) {
        next[i] = offset;
        offset += is->bucket_counts[i];
    }
    for (int i = 0; i < is->key_count; i++)
        sorted[next[keys[i] >> shift]++] = keys[i];
}

/* Rank by rank takes buckets until it and those before it have their share of all keys. */
static void share_buckets(struct is *is)
{
    const int ranks = is->run->ranks;
    int64_t taken = 0;
    int sent = 0;
    int bucket = 0;

    for (int rank = 0; rank < ranks; rank++) {
        int first = bucket;
        int64_t before = taken;

        is->send_offsets[rank] = sent;
        while (bucket < is->buckets && taken < (int64_t)(rank + 1) * is->key_count) {
            taken += is->bucket_totals[bucket];
            sent += is->bucket_counts[bucket];
            bucket++;
        }
        is->send_counts[rank] = sent - is->send_offsets[rank];
        if (rank == is->run->rank) {
            is->lower = before;
            is->first_key = first << is->shift;
            is->end_key = bucket << is->shift;
        }
    }
}

static void exchange_keys(struct is *is)
{
    const int ranks = is->run->ranks;

    IN_MPI(is->run, MPI_Alltoall(is->send_counts, 1, MPI_INT, is->receive_counts, 1, MPI_INT,
                                 is->run->comm));
    is->receive_offsets[0] = 0;
    for (int rank = 1; rank < ranks; rank++)
        is->receive_offsets[rank] = is->receive_offsets[rank - 1] + is->receive_counts[rank - 1];
    is->received_count = is->receive_offsets[ranks - 1] + is->receive_counts[ranks - 1];
    IN_MPI(is->run,
           MPI_Alltoallv(is->in_buckets, is->send_counts, is->send_offsets, MPI_INT, is->received,
                         is->receive_counts, is->receive_offsets, MPI_INT, is->run->comm));
}

/* How many keys of this rank there are up to each value. */
static void count_keys(struct is *is)
{
    const int *restrict received = is->received;
    const int values = is->end_key - is->first_key;
    const int first_key = is->first_key;
    int *restrict counts = is->at_most;

    memset(counts, 0, (size_t)values * sizeof *counts);
    for (int i = 0; i < is->received_count; i++)
        counts[received[i] - first_key]++;
    for (int i = 1; i < values; i++)
        counts[i] += counts[i - 1];
}

static void look_at_probes(struct is *is, int iteration)
{
    for (int i = 0; i < PROBES; i++) {
        const struct probe *probe = &is->parameters->probes[i];
        int key = is->bucket_totals[is->buckets + i];

        if (key < is->first_key || key >= is->end_key)
            continue;
        int64_t rank =
            is->lower + (key == is->first_key ? 0 : is->at_most[key - 1 - is->first_key]);

        is->right += rank == probe->rank + (int64_t)probe->slope * iteration + probe->offset;
    }
}

static void rank_keys(struct is *is, int iteration)
{
    if (is->run->rank == 0) {
        is->keys[iteration] = iteration;
        is->keys[iteration + ITERATIONS] = (1 << is->parameters->key_bits) - iteration;
    }
    run_work(is->run, COUNT_WORK * is->key_count);
    count_buckets(is);
    IN_MPI(is->run, MPI_Allreduce(is->bucket_counts, is->bucket_totals, is->buckets + PROBES,
                                  MPI_INT, MPI_SUM, is->run->comm));
    run_work(is->run, SORT_WORK * is->key_count);
    sort_into_buckets(is);
    share_buckets(is);
    exchange_keys(is);
    run_work(is->run, RANK_WORK * is->received_count);
    count_keys(is);
    look_at_probes(is, iteration);
}

/* Sorts the keys of this rank with their counts, and looks whether they are in order, also with
 * the largest key of the ranks before. */
static bool is_sorted(struct is *is)
{
    struct run *run = is->run;
    int *sorted = run_ints(run, (size_t)is->received_count + 1);
    int largest = INT_MIN, before = INT_MIN;
    bool in_order = true;

    for (int i = 0; i < is->received_count; i++) {
        int *count = &is->at_most[is->received[i] - is->first_key];

        if (*count < 1 || *count > is->received_count)
            return false;
        sorted[--*count] = is->received[i];
    }
    for (int i = 1; i < is->received_count; i++)
        in_order &= sorted[i - 1] <= sorted[i];
    if (is->received_count > 0)
        largest = sorted[is->received_count - 1];
    MPI_Exscan(&largest, &before, 1, MPI_INT, MPI_MAX, run->comm);
    return in_order && (run->rank == 0 || is->received_count == 0 || before <= sorted[0]);
}

static void check(struct is *is)
{
    struct run *run = is->run;
    const int probes = PROBES * ITERATIONS;
    int64_t mine[3] = {is->right, is_sorted(is), is->received_count};
    int64_t all[3];

    MPI_Reduce(mine, all, 3, MPI_INT64_T, MPI_SUM, 0, run->comm);
    if (run->rank != 0)
        return;
    run_check(run, "right ranks", (double)all[0], probes, 0);
    run_check(run, "sorted parts", (double)all[1], run->ranks, 0);
    run_check(run, "keys", (double)all[2], (double)(INT64_C(1) << is->parameters->keys_log2), 0);
}

static void allocate(struct is *is)
{
    struct run *run = is->run;
    const size_t ranks = (size_t)run->ranks;
    const size_t counts = (size_t)(is->buckets + PROBES);

    is->keys = run_ints(run, (size_t)is->key_count);
    is->in_buckets = run_ints(run, (size_t)is->key_count);
    is->received = run_ints(run, (size_t)capacity(is->parameters, run->ranks));
    is->at_most = run_ints(run, (size_t)1 << is->parameters->key_bits);
    is->bucket_counts = run_ints(run, counts);
    is->bucket_totals = run_ints(run, counts);
    is->next = run_ints(run, counts);
    is->send_counts = run_ints(run, ranks);
    is->send_offsets = run_ints(run, ranks);
    is->receive_counts = run_ints(run, ranks);
    is->receive_offsets = run_ints(run, ranks);
}

static void run(struct run *run)
{
    const struct parameters *parameters = &classes[run->job.class];
    struct is is = {
        .run = run,
        .parameters = parameters,
        .buckets = 1 << parameters->bucket_bits,
        .shift = parameters->key_bits - parameters->bucket_bits,
        .key_count = (int)((INT64_C(1) << parameters->keys_log2) / run->ranks),
    };

    allocate(&is);
    draw_keys(&is);
    rank_keys(&is, 1); /* warm-up */
    is.right = 0;

    run_start(run);
    while (run_next(run))
        rank_keys(&is, run->iteration);
    run_stop(run);

    run->operations = (double)ITERATIONS * (double)(INT64_C(1) << parameters->keys_log2);
    check(&is);
}

const struct program program_is = {
    .name = "is",
    .title = "integer sort: all to all",
    .operation = "keys ranked",
    .ranks = RANKS_POWER_OF_TWO,
    .needs_data = true,
    .plan = plan,
    .run = run,
};
