/* The TCP stream: messages one after the other, in one direction or in both at once. */
#pragma once

#include "common/failure.h"
#include "net/borrow.h"
#include "net/job.h"
#include "net/measurement.h"
#include "net/memory.h"

#include <stdbool.h>
#include <stddef.h>

/* Room for what comes that stream_run needs in the memory of a job. */
size_t stream_incoming_bytes(const struct job *job);

/*
 * Warm-up, timed region, then JOB_CHECKED_MESSAGES whose content is compared. Each of the three
 * ends only when both ends know that everything has arrived, so the elapsed time covers the last
 * byte at its receiver. Return 0 or -1.
 */
int stream_run(int data, const struct job *job, bool is_client, const struct memory *memory,
               struct borrow *borrow, struct measurement *result, struct failure *failure);
