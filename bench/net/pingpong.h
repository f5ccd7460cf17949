/* The ping-pong: one message out, the same back, one at a time. TCP and UDP. */
#pragma once

#include "common/failure.h"
#include "net/borrow.h"
#include "net/job.h"
#include "net/measurement.h"
#include "net/memory.h"

/*
 * Warm-up, timed region, then JOB_CHECKED_MESSAGES whose content is compared. `memory` has room
 * for a message each way. With a `borrow` messages are lent to the kernel instead of copied. The
 * client fills `result->round_trips_ns`, which has room for job->messages. Return 0 or -1.
 */
int pingpong_client(int data, const struct job *job, const struct memory *memory,
                    struct borrow *borrow, struct measurement *result, struct failure *failure);
int pingpong_server(int data, const struct job *job, const struct memory *memory,
                    struct borrow *borrow, struct measurement *result, struct failure *failure);
