/* How the steps of a benchmark become numbers; every kind of benchmark has its method. */
#pragma once

#include "mpi/run.h"

/* A step is a round trip; half of it is the latency, the mean over the pairs. */
extern const struct method method_ping_pong;

/* A step is a window of messages and one acknowledgement; one way, both ways, and with several
 * pairs. */
extern const struct method method_stream;
extern const struct method method_stream_both_ways;
extern const struct method method_stream_pairs;

/* A step is a call of all ranks, with a barrier before it: mean, fastest and slowest rank. */
extern const struct method method_collective;

/*
 * The call alone (started and waited for), then with as much computation between start and wait as
 * the call alone took. What of the call that did not lengthen is the overlap. Needs `start`.
 */
extern const struct method method_overlap;

/* The same, where rank 0 alone computes; the numbers are its own. */
extern const struct method method_overlap_one;
