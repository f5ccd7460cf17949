/* What not every MPI has. */
#pragma once

#include <mpi.h>

/* MPI-4 brought persistent collectives. Open MPI 5 has them, and calls itself 3.1. */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define HAS_PERSISTENT_COLLECTIVES 1
#endif

/* SimGrid's MPI declares the calls among neighbours, and stops at the first; its ranks are no
 * processes that could have threads. */
#ifndef SMPI_H
#define HAS_NEIGHBOURS 1
#define HAS_THREADS 1
#endif
