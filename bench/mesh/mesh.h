/* The full mesh of li2019: every rank sends to every other, much and often. */
#pragma once

#include "mpi/run.h"

/* The table of the group. */
extern const struct benchmark mesh_benchmarks[];
