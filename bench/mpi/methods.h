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
