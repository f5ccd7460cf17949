/* Point to point. */
#pragma once

#include "mpi/run.h"

/* The table of the group. */
extern const struct benchmark pt2pt_benchmarks[];
