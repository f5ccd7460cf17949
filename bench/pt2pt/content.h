/* What moves between two ranks of a pair. */
#pragma once

#include "mpi/run.h"

/* One message each way. */
extern const struct content content_exchange;

/* A window of messages from the first to the second, or each way; with -b multiple each has its own
 * buffer. */
extern const struct content content_window;
extern const struct content content_window_both_ways;

/* The buffer of message `index` of a window. */
uint8_t *content_slot(const struct run *run, uint8_t *buffer, int index);
