/* Whether a class fits into memory, asked before anything runs. */
#pragma once

#include "nas/frame/run.h"

/* Bytes that each rank may use, on the node where that is least: what is available there, shared
 * by its ranks. `limit_bytes` stands in for what is available unless it is 0. 0: not known.
 * Collective. */
uint64_t memory_rank_bytes(MPI_Comm comm, uint64_t limit_bytes);

/* A number of bytes for people: "1.5 GiB". `text` has room for 16 characters. */
const char *memory_text(uint64_t bytes, char *text);
