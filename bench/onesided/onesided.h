/* One-sided communication: put, get, accumulate and the atomics, with OMB's choice of windows and
 * synchronisation. */
#pragma once

#include "mpi/run.h"

/* The table of the group. */
extern const struct benchmark onesided_benchmarks[];
