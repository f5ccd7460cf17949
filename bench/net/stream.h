/* The TCP stream: messages one after the other, in one direction or in both at once. */
#pragma once

#include "common/failure.h"
#include "net/job.h"
#include "net/measurement.h"

#include <stdbool.h>
#include <stddef.h>

/* What stream_run needs as `buffer` for a job. */
size_t stream_buffer_bytes(const struct job *job);

/*
 * Warm-up, timed region, then JOB_CHECKED_MESSAGES whose content is compared. Each of the three
 * ends only when both ends know that everything has arrived, so the elapsed time covers the last
 * byte at its receiver. Return 0 or -1.
 */
int stream_run(int data, const struct job *job, bool is_client, uint8_t *buffer,
               struct measurement *result, struct failure *failure);
