/* A run from the first connection to the result: the control conversation of the two ends. */
#pragma once

#include "common/failure.h"
#include "net/job.h"
#include "net/measurement.h"

/* What the client knows at the end. Free `client.round_trips_ns`. */
struct outcome {
    struct measurement client;
    struct measurement server;
};

/* Runs the job with the server at `host`. Return 0 or -1. */
int session_client(const char *host, unsigned port, const struct job *job, struct outcome *outcome,
                   struct failure *failure);

/* Waits on `port` for one client, does its job, and returns. Return 0 or -1. */
int session_server(unsigned port, struct failure *failure);
