/* Start-up: how long MPI_Init takes, and that all ranks are there. */
#pragma once

#include "mpi/run.h"

/* The table of the group. */
extern const struct benchmark startup_benchmarks[];
