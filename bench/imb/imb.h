/* IMB's view: its transfers, its iteration schedule (limited in volume and time), its columns. */
#pragma once

#include "mpi/run.h"

/* The table of the group. */
extern const struct benchmark imb_benchmarks[];
