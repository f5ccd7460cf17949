/* Computation to do while a transfer is under way. */
#pragma once

#include "mpi/run.h"

#include <stdint.h>

/* An amount of arithmetic, and what it takes alone. An amount, not a duration: a program that takes
 * the processor away prolongs it. */
struct work {
    uint64_t rounds;
};

/* As much as takes `duration_ns` on an undisturbed processor. Takes some milliseconds to find out.
 */
struct work work_of_ns(double duration_ns);

/* Does it, in `test_calls` + 1 parts with MPI_Test of `request` between them. */
void work_do(struct work work, int test_calls, MPI_Request *request);
