/*
 * One run of a program: its memory, its clock, and the check of its results.
 *
 *     static void run(struct run *run)
 *     {
 *         double *grid = run_doubles(run, cells);    // freed by the frame
 *         ...                                        // set-up and warm-up, not timed
 *         run_start(run);
 *         while (run_next(run)) {                    // iteration 1, 2, ...: run->iteration
 *             IN_MPI(run, MPI_Allreduce(...));       // counts as time in MPI
 *         }
 *         run_stop(run);
 *         run->operations = ...;                     // of the whole class
 *         run_check(run, "zeta", zeta, zeta_of_class, 1e-10);
 *     }
 *
 * Everything a program knows is in here or on its stack, never in variables of a file: under
 * SimGrid all ranks may be threads of one process.
 */
#pragma once

#include "nas/frame/program.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#define RUN_CHECKS_MAX 64
#define RUN_NAME_MAX 24
#define RUN_BLOCKS_MAX 128

/* One result beside the published one. */
struct check {
    char name[RUN_NAME_MAX];
    double value;
    double expected;
    double error; /* relative to `expected`, absolute where that is 0 */
    bool passed;
};

enum verification { VERIFICATION_PASS, VERIFICATION_FAIL, VERIFICATION_OFF };

struct run {
    const struct program *program;
    struct job job;
    struct plan plan;
    MPI_Comm comm;
    int rank;
    int ranks;
    int nodes;
    int iterations; /* to run: those of the plan, or fewer if the user said so */
    int iteration;  /* the current one, from 1 */
    bool corrupt;   /* spoil the results, to see the check work */
    bool modelled;  /* the work is simulated, not done; in a simulation only */

    double operations; /* set by the program: what all iterations of the class count for */

    double started_s; /* the clock of this rank */
    double loop_started_s;
    double loop_s;
    double mpi_s;

    double measured_s; /* the slowest rank; valid on rank 0, like the rest of the outcome */
    double time_s;     /* the same with all iterations of the class; differs if fewer were run */
    double mpi_share;  /* of the measured time, 0 to 1, mean over the ranks */
    double mpi_share_max;
    struct check checks[RUN_CHECKS_MAX];
    int check_count;
    enum verification verification;

    void *blocks[RUN_BLOCKS_MAX];
    size_t block_bytes[RUN_BLOCKS_MAX];
    int block_count;
};

/* Runs a call of MPI and counts its time as time in MPI. */
#define IN_MPI(run, call)                                                                          \
    do {                                                                                           \
        double in_mpi_since_s = MPI_Wtime();                                                       \
        (void)(call);                                                                              \
        (run)->mpi_s += MPI_Wtime() - in_mpi_since_s;                                              \
    } while (0)

/*
 * Whether to do work that takes so many units of time. A simulator of the network runs the
 * programs, but does not measure them, so that it says the same each time. It is told what the
 * processor has to do, and that may be all there is to it, since messages are the same whatever is
 * in them. A unit is a nanosecond of the processor on which the factors in the programs were
 * measured, with 64 ranks of class C. How fast the simulated one is says its platform, so that of
 * the factors of a program only the proportions matter.
 */
static inline bool run_work(const struct run *run, double units)
{
#ifdef SMPI_H /* the MPI of SimGrid */
    smpi_execute_flops(units);
    return !run->modelled;
#else
    (void)run;
    (void)units;
    return true;
#endif
}

/* Memory until the end of the run, zeroed, aligned to cache lines. Ends the job if there is none.
 */
void *run_memory(struct run *run, size_t count, size_t element_bytes);
double *run_doubles(struct run *run, size_t count);
int *run_ints(struct run *run, size_t count);

/* Frees memory of this run before its end. */
void run_release(struct run *run, void *block);

/* Starts the clock on all ranks at the same time. */
void run_start(struct run *run);

/* The timed loop: true as long as there is an iteration to do. What is timed outside of it counts
 * once, what is inside is scaled where fewer iterations than the plan's are run. */
bool run_next(struct run *run);

/* Stops the clock and gathers the times of the ranks. */
void run_stop(struct run *run);

/* Holds a result against the published one; `tolerance` is relative (absolute where 0 is
 * expected). Only what rank 0 says counts. Does nothing if not all iterations were run, or the work
 * was not done. */
void run_check(struct run *run, const char *name, double value, double expected, double tolerance);

/* The same for what can only be right or wrong. */
void run_check_that(struct run *run, const char *name, bool right);

/* Runs the program. Afterwards all ranks know the verification, and rank 0 the rest. Collective. */
void run_program(struct run *run);
