/* What the ranks run in: which MPI, how many nodes. */
#pragma once

#include <mpi.h>
#include <stdio.h>

/* The library's name and version as a JSON string: its first words, up to a comma or the end of
 * the sentence or the line. */
void world_write_library(FILE *out);

/* How many shared-memory nodes the ranks are on. Collective. */
int world_nodes(MPI_Comm comm);
