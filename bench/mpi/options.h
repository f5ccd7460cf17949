/* The command line, as OMB has it. */
#pragma once

#include "common/failure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTIONS_NAMES_MAX 128
#define OPTIONS_PERCENTILES_MAX 16
#define OPTIONS_DIMENSIONS_MAX 8

enum window_type { WINDOW_ALLOCATE, WINDOW_CREATE, WINDOW_DYNAMIC };
enum sync { SYNC_LOCK, SYNC_FLUSH, SYNC_FLUSH_LOCAL, SYNC_LOCK_ALL, SYNC_PSCW, SYNC_FENCE };

/* What -w and -s call them; each ends with NULL. */
extern const char *const options_window_types[];
extern const char *const options_syncs[];

/* What the user asked for. A number that was not given is 0 (sizes: the flag beside it is false).
 */
struct options {
    const char *names[OPTIONS_NAMES_MAX]; /* benchmarks and groups; ends with NULL */
    enum { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_LIST } action;
    bool has_size_min;
    bool has_size_max;
    size_t size_min_bytes;
    size_t size_max_bytes;
    size_t memory_limit_bytes; /* of the buffers of one rank */
    uint64_t iterations;
    uint64_t warmup;
    bool has_warmup;
    bool validate;      /* the data of the timed iterations */
    bool validate_each; /* -c: fresh data in every iteration */
    bool corrupt;       /* damage what arrives, to see the validation work */
    bool full;
    bool json;
    bool tail; /* -z */
    double percentiles[OPTIONS_PERCENTILES_MAX];
    size_t percentile_count;
    unsigned datatypes; /* bit i: datatype i; 0: the benchmark's own */
    int window;
    int pairs;
    int test_calls;   /* -t N, overlap forms: MPI_Test during the computation */
    int threads_send; /* -t S:R, latency_mt; processes of latency_mp */
    int threads_receive;
    int grid_dimensions; /* -N, neighbours */
    int grid_radius;
    bool many_buffers; /* -b multiple */
    bool message_rate; /* -R: print messages per second, too */
    enum window_type window_type;
    bool has_sync;
    enum sync sync;
};

/* Reads the command line. Returns 0, or -1 and says what is wrong. `options` points into `argv`. */
int options_parse(struct options *options, int argc, char **argv, struct failure *failure);

/* One line for each option. */
void options_describe(FILE *out);
