/* The UDP stream: datagrams as fast as the socket takes them. Nothing is resent; what was lost is
 * counted. */
#pragma once

#include "common/failure.h"
#include "net/job.h"
#include "net/measurement.h"
#include "net/memory.h"

#include <stdbool.h>

/* Room for one incoming datagram of the largest kind. */
#define DATAGRAMS_INCOMING_BYTES 65536u

/*
 * Sends (client, or both ends of a bidirectional job) and receives. The elapsed time ends with the
 * last datagram that came. `control` tells when the other end has sent all of its own. Warm-up
 * datagrams are counted apart, the content of the last one that came is compared. Return 0 or -1.
 */
int datagrams_run(int data, int control, const struct job *job, bool is_client,
                  const struct memory *memory, struct measurement *result, struct failure *failure);
