/* How much one end can compute while a message is under way; the other end only waits for it. */
#pragma once

#include "mpi/run.h"

extern const struct content content_one_way;

/* The call that the computing end hides; the other end answers at once with a blocking call. */
void overlap_start_send(struct run *run, MPI_Request *request);
void overlap_start_recv(struct run *run, MPI_Request *request);
