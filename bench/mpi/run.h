/* What a benchmark is, and what it gets to work with: the two types every benchmark is written
 * against. */
#pragma once

#include "mpi/data.h"
#include "mpi/options.h"
#include "mpi/sample.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct run;

/* The ranks a benchmark needs. */
enum shape {
    SHAPE_PAIR,  /* two: rank 0 sends to rank 1 */
    SHAPE_PAIRS, /* an even number: rank i sends to rank i + pairs; ranks beyond the pairs have no
                    peer */
    SHAPE_ALL,   /* two or more, all alike */
    SHAPE_ANY,   /* one or more */
};

/*
 * What moves. The buffers are made of blocks of run->size_bytes; `fill` writes what this rank
 * sends; `expect` passes over what it must have received, to spoil it before and to check it after
 * (data.h). Both NULL: no data moves.
 */
struct content {
    size_t (*send_blocks)(const struct run *run);
    size_t (*recv_blocks)(const struct run *run);
    void (*fill)(struct run *run);
    void (*expect)(struct run *run, struct pass *pass);
};

/* How often, unless the user says: fewer for sizes above `large_bytes`. */
struct schedule {
    size_t large_bytes;
    uint64_t iterations, iterations_large;
    uint64_t warmup, warmup_large;
    size_t volume_bytes; /* not 0: as many iterations as move this much, at least one */
};

/* How steps become numbers, and which are printed. */
struct method {
    void (*measure)(struct run *run, struct sample *sample);
    const struct column *columns; /* ends with METRIC_END */
    struct schedule schedule;
    bool imb; /* the table is printed as IMB prints it */
};

/*
 * One entry of the registry. `open` and `close` run around each message size (persistent requests,
 * windows), `step` is one timed iteration; all three are called by every rank of the run. What they
 * keep between them is behind run->state.
 */
struct benchmark {
    const char *name;
    const char *title; /* "Latency": the heading says "rocelab MPI Latency Test" */
    enum shape shape;
    const struct method *method;
    const struct content *content;
    size_t size_min_bytes; /* both 0: the benchmark has no sizes */
    size_t size_max_bytes;
    void (*step)(struct run *run);
    /* The call as a request, for methods that compute meanwhile and for persistent forms; else
     * NULL. */
    void (*start)(struct run *run, MPI_Request *request);
    void (*open)(struct run *run);
    void (*close)(struct run *run);
    bool fixed_size; /* -m does not apply */
    enum sync sync;  /* unless -s says otherwise */
    /* NULL, or why these options will not do; may be absent. */
    const char *(*problem)(const struct options *options);
    const char *parameters; /* letters of options that matter: w window, p pairs, y synchronisation,
                               t threads, f forked processes, c test calls */
    bool reduces;           /* elements are added up: numbers, not bytes */
    int thread_level;       /* of MPI_Init_thread; 0 is MPI_THREAD_SINGLE in every MPI here */
};

/* One benchmark under way, as one rank sees it. */
struct run {
    const struct options *options;
    const struct benchmark *benchmark;
    const char *group;
    uint64_t init_ns; /* what MPI_Init took on this rank */

    MPI_Comm comm;
    int rank;
    int ranks;
    int nodes;
    int pairs;  /* 0 unless the shape is one of pairs */
    int peer;   /* MPI_PROC_NULL: this rank has none */
    bool sends; /* the first of its pair */

    const struct datatype *datatype;
    size_t size_bytes;
    enum sync sync;
    int count; /* of elements in size_bytes */
    int window;
    uint64_t iterations;
    uint64_t warmup;

    uint8_t *send;
    uint8_t *recv;
    uint64_t *times_ns; /* room for `iterations` */
    uint32_t epoch;     /* another one for each filling: old data is wrong data */
    size_t wrong_bytes; /* on this rank, in this sample */
    bool failed;        /* some sample of this run was wrong */
    void *state;
};

/* Runs `run->benchmark` over all datatypes and sizes. Returns 0, or -1 if a sample was wrong. */
int run_benchmark(struct run *run);

/* NULL, or why this many ranks will not do. */
const char *run_problem(const struct benchmark *benchmark, const struct options *options,
                        int ranks);
